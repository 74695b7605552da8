"""Which sample, or which window of which episode, is served as item i: a pure function of (seed, epoch, i)."""

from __future__ import annotations

import struct
from typing import Any, Literal, get_args

import numpy as np
import xxhash

from datacheck.cache.windows import WindowIndex
from datacheck.errors import UsageError

Array = np.ndarray[Any, Any]
Policy = Literal["resample", "skip", "raise"]

_TRIES = 64  # then the draw is made among the usable items directly, which costs a pass over them
_KEY = struct.Struct("<QQQQ")
_MASK = 2**64 - 1


def draw(seed: int, epoch: int, item: int, attempt: int) -> int:
    """Return 64 random bits that belong to (seed, epoch, item, attempt)."""
    return xxhash.xxh3_64_intdigest(_KEY.pack(seed & _MASK, epoch & _MASK, item & _MASK, attempt & _MASK))


class Items:
    """The items of a dataset: samples, or windows of episodes.

    Shapes:
        usable: bool (samples)

    Args:
        usable: which samples may be served.
        policy: "resample" puts a usable item in the place of each other one, "skip" counts usable items only,
            "raise" leaves the refusal to the caller.
        seed: any integer.
        windows: the windows, made with ``skip`` for that policy; None where an item is a whole sample.

    Raises:
        UsageError: nothing can be served; the policy is unknown.

    Notes:
        A substitute depends on (seed, epoch, item) and the cache only: equal in every worker and on every rank.
        Its draw is uniform over the usable items.
    """

    def __init__(self, usable: Array, policy: Policy, seed: int, windows: WindowIndex | None = None) -> None:
        if policy not in get_args(Policy):
            msg = f"on_invalid={policy!r} is not one of {', '.join(get_args(Policy))}"
            raise UsageError(msg)
        self._usable, self._seed, self._windows = usable, seed, windows
        samples = int(np.count_nonzero(usable))
        if samples == 0:
            msg = f"none of the {len(usable):,} samples is valid. See what is wrong with them: datacheck scan"
            raise UsageError(msg)
        self._count = samples if windows is None else windows.usable
        if self._count == 0 and windows is not None:
            cut = windows.windows
            msg = (
                f"no window: none of the {samples:,} valid episodes has {cut.least} steps; the longest has "
                f"{windows.longest(usable)}. Pad short episodes (short='pad') or use shorter windows."
            )
            raise UsageError(msg)
        self._kept = np.flatnonzero(usable) if policy == "skip" and samples < len(usable) and windows is None else None
        whole = len(usable) if windows is None else len(windows)
        self._length = self._count if policy == "skip" else whole
        self._perfect = samples == len(usable)

    def __len__(self) -> int:
        return self._length

    def samples(self, items: Array) -> Array:
        """Return the sample (episode) of each item, int64 (items)."""
        if self._windows is not None:
            return self._windows.locate(items)[0]
        return items if self._kept is None else self._kept[items]

    def steps(self, items: Array) -> tuple[Array, Array]:
        """Return the step of each item, and how many its episode has, int64 (items) each."""
        if self._windows is None:
            msg = "items are whole samples"
            raise UsageError(msg)
        episodes, at = self._windows.locate(items)
        return at, self._windows.lengths(episodes)

    def unusable(self, items: Array) -> Array:
        """Return the positions in `items` whose sample must not be served."""
        if self._perfect:
            return items[:0]
        return np.flatnonzero(~self._usable[self.samples(items)])

    def substituted(self, items: Array, epochs: Array | int) -> Array:
        """Return the items that are served for `items` in an epoch, or each in its own one."""
        wrong = self.unusable(items)
        if wrong.size:
            of = np.broadcast_to(epochs, items.shape)[wrong].tolist()
            items = items.copy()
            items[wrong] = [self._substitute(*wanted) for wanted in zip(items[wrong].tolist(), of, strict=True)]
        return items

    def _substitute(self, item: int, epoch: int) -> int:
        for attempt in range(_TRIES):
            candidate = draw(self._seed, epoch, item, attempt) % self._length
            if not self.unusable(np.array([candidate])).size:
                return candidate
        number = draw(self._seed, epoch, item, _TRIES) % self._count
        if self._windows is None:
            return int(np.flatnonzero(self._usable)[number])
        return self._windows.nth_usable(number, self._usable)
