"""Windows over episodes: maps an item to the steps of an episode by arithmetic.

Nothing is stored per window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeGuard, get_args

import numpy as np

from datacheck.errors import UsageError

Array = np.ndarray[Any, Any]
Pad = Literal["none", "edge", "zero"]
Short = Literal["drop", "pad", "raise"]

_FARTHEST = 1 << 31  # steps
_MOST_STEPS = 2**53  # a float holds every whole number up to here
_TOLERANCE = 1e-4  # seconds, as LeRobot's


@dataclass(frozen=True)
class Windows:
    """How episodes are cut: an item is a step of an episode, served with the steps around it.

    Args:
        length: steps of a window from its item's step on, 1 or more; None: that one step, without
            an axis of time.
        stride: steps between the items of an episode, 1 or more.
        pad: "none": a window lies within its episode; "edge", "zero": every stride-th step is an
            item, and steps outside the episode repeat its nearest step, or are zeros. None: "edge"
            if there are deltas, else "none".
        short: what happens to episodes of fewer steps than a window (with padding: than `length`):
            "drop" leaves them out; "pad" fills them (one window, "edge", if `pad` is "none"; else
            as other episodes); "raise" refuses them.
        dim: the ragged dimension that is time.
        history: steps before the item's step to serve as well, 0 or more.
        delta_indices: by field: the steps to serve, relative to the item's, instead of history and
            length.
        delta_timestamps: the same in seconds; each a multiple of 1/fps, to within 0.1 ms.
        fps: steps per second; needed for `delta_timestamps`.

    Raises:
        UsageError: a value is not one of these.

    Reference:
        LeRobot's ``delta_timestamps``; robomimic's ``seq_length`` is `length`, its ``frame_stack``
        is history + 1, its padding is "edge".
    """

    length: int | None = None
    stride: int = 1
    pad: Pad | None = None
    short: Short = "drop"
    dim: str = "T"
    history: int = 0
    delta_indices: Mapping[str, Sequence[int]] = field(default_factory=dict)
    delta_timestamps: Mapping[str, Sequence[float]] = field(default_factory=dict)
    fps: float | None = None

    def __post_init__(self) -> None:
        self._take_whole_numbers()
        self._check_lengths()
        dim: Any = self.dim
        if not isinstance(dim, str) or any("\ud800" <= letter <= "\udfff" for letter in dim):
            msg = f"windows: dim: {dim!r} is no name of a dimension"
            raise UsageError(msg)
        if self.pad is None:
            has_deltas = bool(self.delta_indices or self.delta_timestamps)
            object.__setattr__(self, "pad", "edge" if has_deltas else "none")
        _check_choice("pad", self.pad, get_args(Pad))
        _check_choice("short", self.short, get_args(Short))
        delta_steps = [abs(step) for steps in self.deltas.values() for step in steps]
        if max(self.length or 1, self.stride, self.history, *delta_steps) > _FARTHEST:
            msg = f"windows: no step is more than {_FARTHEST:,} steps away"
            raise UsageError(msg)

    def _take_whole_numbers(self) -> None:
        if self.length is not None:
            object.__setattr__(self, "length", _check_whole("length", self.length))
        object.__setattr__(self, "stride", _check_whole("stride", self.stride))
        object.__setattr__(self, "history", _check_whole("history", self.history))

    def _check_lengths(self) -> None:
        if (self.length is not None and self.length < 1) or self.stride < 1:
            msg = f"windows: length {self.length}, stride {self.stride}; both must be 1 or more"
            raise UsageError(msg)
        if self.history < 0 or (self.history and self.length is None):
            msg = (
                f"windows: history {self.history}, length {self.length}; a history is 0 or more "
                f"and needs a length"
            )
            raise UsageError(msg)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Windows:
        """Return the windows that a cache declares.

        Raises:
            UsageError: the declaration is invalid.
        """
        try:
            return cls(**dict(said))
        except TypeError as error:  # an unknown name
            msg = f"windows: {error}"
            # `from None`: the error's text holds a name from the cache; see `DatacheckError`.
            raise UsageError(msg) from None

    @property
    def fill(self) -> Literal["edge", "zero"]:
        """How to fill steps outside an episode."""
        return "zero" if self.pad == "zero" else "edge"

    @cached_property
    def deltas(self) -> dict[str, tuple[int, ...]]:
        """The steps to serve by field, relative to the item's step; seconds are converted to steps.

        Raises:
            UsageError: a field has no steps or two lists, or a value is not a step.
        """
        indices = _listed("delta_indices", self.delta_indices)
        by_field = {
            name: [_check_whole(f"{name}: delta_indices", step) for step in steps]
            for name, steps in indices.items()
        }
        for name, seconds in _listed("delta_timestamps", self.delta_timestamps).items():
            if name in by_field:
                msg = f"windows: {name} has delta_indices and delta_timestamps; give one of them"
                raise UsageError(msg)
            by_field[name] = [self._step(name, second) for second in seconds]
        for name, steps in by_field.items():
            if not steps:
                msg = (
                    f"windows: no step of {name} is asked for; leave the field out with "
                    f"fields=[...]"
                )
                raise UsageError(msg)
        return {name: tuple(steps) for name, steps in by_field.items()}

    def _step(self, name: str, second: float) -> int:
        if not _is_number(self.fps) or not 0 < self.fps < math.inf:
            msg = (
                f"windows: delta_timestamps need fps, the steps per second of the episodes; it "
                f"is {self.fps}"
            )
            raise UsageError(msg)
        step = float(second) * float(self.fps) if _is_number(second) else math.nan
        if not math.isfinite(step) or abs(step - round(step)) > _TOLERANCE * self.fps:
            msg = f"windows: {name}: {second} s is no multiple of 1/{self.fps:g} s"
            raise UsageError(msg)
        return round(step)

    def offsets(self, name: str) -> Array | None:
        """Return the steps of a field to serve, relative to the item's step.

        None stands for the item's step alone, without an axis of time.
        """
        own_offsets = self._offsets.get(name)
        return self._around if own_offsets is None else own_offsets

    @cached_property
    def _offsets(self) -> dict[str, Array]:
        return {
            name: _read_only(np.array(steps, dtype=np.int64)) for name, steps in self.deltas.items()
        }

    @cached_property
    def _around(self) -> Array | None:
        return None if self.length is None else _read_only(np.arange(-self.history, self.length))

    @cached_property
    def extent(self) -> tuple[int, int]:
        """The farthest steps before and after an item's step, 0 or more each."""
        steps = [step for steps in self.deltas.values() for step in steps]
        before = max(self.history, -min(steps, default=0))
        after = max((self.length or 1) - 1, max(steps, default=0))
        return before, after

    @property
    def least(self) -> int:
        """The number of steps from which on an episode is not short."""
        if self.pad != "none":
            return self.length or 1
        before, after = self.extent
        return before + 1 + after

    def counts(self, lengths: Array) -> Array:
        """Return the number of windows of each episode.

        Shapes:
            lengths: int64 (episodes) [steps]
            returns: int64 (episodes)
        """
        last_start = lengths - 1 if self.pad != "none" else np.maximum(lengths - self.least, 0)
        counts = last_start // self.stride + 1
        if self.short != "pad":
            counts = np.where(lengths < self.least, 0, counts)
        return np.where(lengths > 0, counts, 0).astype(np.int64)


def _read_only(steps: Array) -> Array:
    """Return the array read-only: every batch receives the same one."""
    steps.flags.writeable = False
    return steps


def _check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    if value not in choices:
        msg = f"windows: {name}: {value!r} is not one of {', '.join(choices)}"
        raise UsageError(msg)


def _check_whole(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        msg = f"windows: {what}: {value!r} is no whole number of steps"
        raise UsageError(msg)
    if abs(int(value)) > _MOST_STEPS:
        msg = f"windows: {what}: more than {_MOST_STEPS:,} steps"
        raise UsageError(msg)
    return int(value)


def _is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a number; whole numbers beyond the precision of a float are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return isinstance(value, float | np.floating) or abs(int(value)) <= _MOST_STEPS


def _listed(what: str, value: Any) -> dict[str, list[Any]]:
    """Return lists by field; raise `UsageError` for any other structure."""
    try:
        return {str(name): list(steps) for name, steps in value.items()}
    except (AttributeError, TypeError) as error:
        msg = f"windows: {what}={value!r}; a list for each field is wanted: {{'action': [0, 1]}}"
        raise UsageError(msg) from error


class WindowIndex:
    """The windows of all episodes in order: episode by episode, step by step.

    Shapes:
        lengths: int64 (episodes) [steps]
        usable: bool (episodes)

    Args:
        windows: how to cut.
        lengths: steps of each episode.
        usable: the episodes that may be served; windows of other episodes count too unless `skip`.
        skip: leave out the windows of episodes that are not usable.

    Raises:
        UsageError: ``short="raise"`` and a usable episode is too short.

    Notes:
        Memory grows with the episodes, not with the windows.
    """

    def __init__(
        self, windows: Windows, lengths: Array, usable: Array, *, skip: bool = False
    ) -> None:
        self.windows = windows
        self._lengths = lengths
        self._least = windows.least
        self._before = windows.extent[0] if windows.pad == "none" else 0
        short = np.flatnonzero((lengths < self._least) & usable)
        if windows.short == "raise" and short.size:
            shown = ", ".join(f"{i} ({lengths[i]} steps)" for i in short[:5].tolist())
            msg = (
                f"windows of {self._least} steps: {short.size} episodes are shorter: {shown}. "
                f"Use short='pad' or short='drop', or shorter windows."
            )
            raise UsageError(msg)
        counts = windows.counts(lengths)
        self.usable = int(counts[usable].sum())
        if skip:
            counts = np.where(usable, counts, 0)
        self._ends: Array = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def locate(self, items: Array) -> tuple[Array, Array]:
        """Return the episode of each item, and its step in the episode.

        Shapes:
            items: int64 (items), each in [0, len)
            returns: int64 (items), int64 (items) [steps]

        Notes:
            Without padding the first item of an episode is the first step with a complete history.
            In a short episode, which has no such step, it is the last step.
        """
        episodes = np.searchsorted(self._ends, items, side="right")
        starts = np.where(episodes > 0, self._ends[episodes - 1], 0)
        steps = (items - starts) * self.windows.stride + self._before
        if self._before:
            steps = np.minimum(steps, self._lengths[episodes] - 1)
        return episodes, steps

    def lengths(self, episodes: Array) -> Array:
        """Return the number of steps of episodes, int64 (episodes)."""
        return self._lengths[episodes]

    def longest(self, usable: Array) -> int:
        """Return the number of steps of the longest usable episode."""
        return int(self._lengths[usable].max(initial=0))

    def nth_usable(self, number: int, usable: Array) -> int:
        """Return the item of the window `number`, counting windows of usable episodes only."""
        counts = np.diff(self._ends, prepend=0)
        of_usable = np.cumsum(np.where(usable, counts, 0))
        episode = int(np.searchsorted(of_usable, number, side="right"))
        preceding = int(of_usable[episode - 1]) if episode else 0
        return int(self._ends[episode]) - int(counts[episode]) + number - preceding
