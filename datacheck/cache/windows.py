"""Windows over episodes: which steps of which episode item i is, by arithmetic; nothing is stored per window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from datacheck.errors import UsageError

Array = np.ndarray[Any, Any]
Pad = Literal["none", "edge", "zero"]
Short = Literal["drop", "pad", "raise"]


@dataclass(frozen=True, slots=True)
class Windows:
    """How episodes are cut.

    Args:
        length: steps of a window, 1 or more.
        stride: steps between the starts of two windows, 1 or more.
        pad: "none": a window ends within its episode; "edge", "zero": windows start at every stride up to the last
            step and are filled up with the last step, or zeros.
        short: what becomes of episodes of fewer steps than `length`: left out, padded ("edge" where `pad` is
            "none"), refused.
        dim: the ragged dimension that is time.

    Raises:
        UsageError: a value is not one of these.
    """

    length: int
    stride: int = 1
    pad: Pad = "none"
    short: Short = "drop"
    dim: str = "T"

    def __post_init__(self) -> None:
        if self.length < 1 or self.stride < 1:
            msg = f"windows: length {self.length}, stride {self.stride}; both must be 1 or more"
            raise UsageError(msg)
        for name, known in (("pad", get_args(Pad)), ("short", get_args(Short))):
            if getattr(self, name) not in known:
                msg = f"windows: {name}: {getattr(self, name)!r} is not one of {', '.join(known)}"
                raise UsageError(msg)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Windows:
        """Return the windows that a cache declares."""
        return cls(**dict(said))

    @property
    def fill(self) -> Literal["edge", "zero"]:
        """What stands behind the end of an episode."""
        return "zero" if self.pad == "zero" else "edge"

    def counts(self, lengths: Array) -> Array:
        """Return how many windows each episode has.

        Shapes:
            lengths: int64 (episodes) [steps]
            returns: int64 (episodes)
        """
        last = lengths - 1 if self.pad != "none" else np.maximum(lengths - self.length, 0)
        counts = last // self.stride + 1
        if self.short != "pad":
            counts = np.where(lengths < self.length, 0, counts)
        return np.where(lengths > 0, counts, 0).astype(np.int64)


class WindowIndex:
    """The windows of all episodes in order: episode by episode, start by start.

    Shapes:
        lengths: int64 (episodes) [steps]
        usable: bool (episodes)

    Args:
        windows: how to cut.
        lengths: steps of each episode.
        usable: the episodes that may be served; windows of others are counted too unless `skip`.
        skip: leave the windows of episodes out that are not usable.

    Raises:
        UsageError: ``short="raise"`` and a usable episode is too short.

    Notes:
        Memory grows with the episodes, not with the windows.
    """

    def __init__(self, windows: Windows, lengths: Array, usable: Array, *, skip: bool = False) -> None:
        self.windows, self._lengths = windows, lengths
        short = np.flatnonzero((lengths < windows.length) & usable)
        if windows.short == "raise" and short.size:
            shown = ", ".join(f"{i} ({lengths[i]} steps)" for i in short[:5].tolist())
            msg = (
                f"windows of {windows.length} steps: {short.size} episodes are shorter: {shown}. "
                f"Use short='pad' or short='drop', or shorter windows."
            )
            raise UsageError(msg)
        counts = windows.counts(lengths)
        self._ends: Array = np.cumsum(np.where(usable, counts, 0) if skip else counts)
        self.usable = int(counts[usable].sum())

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def locate(self, items: Array) -> tuple[Array, Array, Array]:
        """Return episode, first step and number of real (not padded) steps of windows.

        Shapes:
            items: int64 (items), each in [0, len)
            returns: int64 (items), int64 (items) [steps], int64 (items) [steps]
        """
        episodes = np.searchsorted(self._ends, items, side="right")
        before = np.where(episodes > 0, self._ends[episodes - 1], 0)
        first = (items - before) * self.windows.stride
        return episodes, first, np.minimum(self.windows.length, self._lengths[episodes] - first)

    def longest(self, usable: Array) -> int:
        """Return the steps of the longest usable episode."""
        return int(self._lengths[usable].max(initial=0))

    def nth_usable(self, number: int, usable: Array) -> int:
        """Return the item that is window `number` among those of usable episodes only."""
        counts = np.diff(self._ends, prepend=0)
        of_usable = np.cumsum(np.where(usable, counts, 0))
        episode = int(np.searchsorted(of_usable, number, side="right"))
        before = int(of_usable[episode - 1]) if episode else 0
        return int(self._ends[episode]) - int(counts[episode]) + number - before
