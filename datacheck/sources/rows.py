"""Rows of arrays are the samples: ``joints.npy`` of [83000, 21, 3], a table in CSV, a packed ``.npz``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.sample import Column, Container
from datacheck.sources.base import Item
from datacheck.sources.lines import Spans
from datacheck.sources.strips import LEAST_BYTES, Array, Span, Strips, StripSource, per_sample


class RowSource(StripSource):
    """Samples that are entries of the first axis of every field."""

    def spans(self, item: Item, container: Container, strips: Strips) -> tuple[Array, Sequence[Span]]:
        """Return one span per row, counted from 0.

        Raises:
            FormatError: the fields differ in length.
        """
        del container
        declared = [name for name in strips.lengths if name in strips.declared]
        lengths = {name: strips.lengths[name] for name in declared or strips.lengths if strips.lengths[name] >= 0}
        if not lengths:
            msg = "holds none of the fields, so there are no rows"
            raise FormatError(msg)
        total = Counter(lengths.values()).most_common(1)[0][0]
        first = min(name for name, length in lengths.items() if length == total)
        if not declared and set(lengths.values()) != {total}:
            said = ", ".join(f"{name} {length}" for name, length in sorted(lengths.items()))
            msg = f"its arrays differ in length ({said}); name the fields that are cut into rows"
            raise FormatError(msg)
        self.check_count(item, total)
        strips.keep(total, f"{first} has {total}")
        return np.arange(total), Spans(range(total))

    def cut_when_read(self, item: Item) -> bool:
        """Return whether the file is large; one with companions or columns, which are read whole, is not cut."""
        fields, _ = self.way(item.split)
        alone = not fields.companions and not fields.columns
        return item.keys is None and item.nbytes >= LEAST_BYTES and alone

    def column(self, value: Any, lengths: Array) -> Column:
        """Return the column of samples that are one row each."""
        if isinstance(value, list):
            return per_sample(value)
        if value.ndim == 1:
            return Column(value)
        size = value.shape[1]
        rows = value.reshape(len(value) * size, *value.shape[2:])
        return Column(rows, np.full(len(lengths), size, dtype=np.int64))
