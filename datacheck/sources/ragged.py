"""Episodes behind one another in flat arrays, with an array of their ends: the replay buffers of diffusion policy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.sample import Column, Container
from datacheck.schema.model import FieldSpec
from datacheck.sources.base import Item
from datacheck.sources.strips import Array, Span, Strips, StripSource
from datacheck.sources.values import read_value


class RaggedSource(StripSource):
    """Samples that are rows ``[ends[i-1], ends[i])`` of every field; ``each: "ends:meta/episode_ends"``."""

    @property
    def ends(self) -> str:
        """The name of the array of ends."""
        return (self.schema.samples.each or "").removeprefix("ends:").strip("/")

    def spans(self, item: Item, container: Container, strips: Strips) -> tuple[Array, list[Span]]:
        """Return one span per episode, counted from 0.

        Raises:
            FormatError: there are no ends, they do not ascend, or a field ends elsewhere.
        """
        ends = read_value(container, self.ends, FieldSpec(dtype="int64"), self.ends)
        if not isinstance(ends, np.ndarray) or ends.ndim != 1 or ends.dtype.kind not in "iu":
            found = "nothing" if ends is None else "no list of whole numbers"
            msg = f"{self.ends}: found {found} where the ends of the episodes should be"
            raise FormatError(msg)
        self.check_count(item, len(ends))
        stops = [0, *map(int, ends)]
        falls = next((i for i, (a, b) in enumerate(pairwise(stops)) if b < a), None)
        if falls is not None:
            msg = f"{self.ends}: entry {falls} is {stops[falls + 1]}, less than the one before it ({stops[falls]})"
            raise FormatError(msg)
        strips.leave_out(self.ends)
        strips.keep(stops[-1], f"{self.ends} ends at {stops[-1]}")
        return np.arange(len(ends)), list(pairwise(stops))

    def column(self, value: Any, lengths: Array) -> Column:
        """Return the column of samples of these lengths."""
        if isinstance(value, list):
            stops = np.concatenate([[0], np.cumsum(lengths)])
            return Column.of([value[a:b] for a, b in pairwise(stops)])
        return Column(value, lengths)
