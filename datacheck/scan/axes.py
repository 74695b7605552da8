"""Which axes the fields of a few samples have, and which of them they share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from datacheck.scan.look import Seen
from datacheck.schema.units import JOINT_COUNTS

_NEARLY_ALL = 0.8  # samples of which the others are rather what a scan is to find
_FIXED, _MANY = 0.9, 20  # the same of the lengths of a row of numbers, and fewest samples
# Names of what each step has.
_STEPS = r"^acts?$|action|^rew(?:ards?)?$|^dones?$|terminal|^frame_index$|^time_?steps?$|^rotations$"


class Axis(NamedTuple):
    """The name of a field's first axis, and in how many samples its length is not that of the fields that share it."""

    name: str
    astray: int = 0


def name_axes(seen: Mapping[str, Seen], *, episodes: bool) -> dict[str, Axis]:
    """Return the first axis of each field whose length differs between samples; equal lengths, equal name.

    Args:
        seen: the fields.
        episodes: the samples are episodes: the axis that most fields share is time.

    Notes:
        Lengths that are equal in nearly all samples are one axis: in the others something is cut off.
    """
    together: dict[tuple[int, ...], list[str]] = {}
    for name, field in sorted(seen.items()):
        if field.lengths and (_varied(field) or len(field.lengths) <= 2 or episodes):
            together.setdefault(tuple(field.lengths), []).append(name)
    if not episodes:
        together = {
            lengths: names for lengths, names in together.items() if len(names) > 1 or not fixed_length(seen[names[0]])
        }
    free = _letters(episodes=episodes)
    axes: dict[tuple[int, ...], Axis] = {}
    for lengths, names in sorted(together.items(), key=lambda pair: (-len(pair[1]), pair[1])):
        near = [(_astray(other, lengths), axis.name) for other, axis in axes.items() if not axis.astray]
        off, name = min((pair for pair in near if pair[0]), default=(0, ""))
        if not episodes and not name and "T" not in {axis.name for axis in axes.values()}:
            name = "T" if any(_stepwise(one, seen[one]) for one in names) else ""
        axes[lengths] = Axis(name or next(free), off)
    return {name: axes[lengths] for lengths, names in together.items() for name in names}


def _stepwise(name: str, field: Seen) -> bool:
    """Tell whether a field has a value for each step in time."""
    said = name.rpartition("/")[2].lower()
    return _varied(field) and bool(re.search(_STEPS, said) or (len(field.item or []) == 2 and joints(field)))


def _varied(field: Seen) -> bool:
    return len(set(field.lengths)) > 1 and not (joints(field) and len(field.item or []) == 1)


def _astray(one: Sequence[int], two: Sequence[int]) -> int:
    """Return in how many samples two lengths differ that are equal in nearly all, and not by chance, else 0."""
    if len(one) != len(two):
        return 0
    pairs = list(zip(one, two, strict=True))
    off = sum(a != b for a, b in pairs)
    by_chance = len({a for a, b in pairs if a == b}) <= off
    return 0 if by_chance or len(pairs) - off < _NEARLY_ALL * len(pairs) else off


def _letters(*, episodes: bool) -> Iterator[str]:
    yield "T" if episodes else "P"
    yield from "NMKGVFQRS"
    yield from (f"N{number}" for number in count(1))


def joints(seen: Seen) -> int:
    """Return how many joints of three coordinates nearly all samples have, in each of their steps; 0 if none."""
    *sizes, width = [*([usual_length(seen)] if seen.lengths else []), *(seen.item or [])] or [0]
    return sizes[-1] if sizes and width == 3 and sizes[-1] in JOINT_COUNTS else 0


def fixed_length(seen: Seen) -> int:
    """Return the length of rows of numbers that nearly all samples have, where the rest has one other; else 0."""
    alike = not seen.item and len(seen.lengths) >= _MANY and len(set(seen.lengths)) == 2  # 1 is no question
    ((usual, many),) = Counter(seen.lengths).most_common(1) if seen.lengths else ((0, 0),)
    return usual if alike and many >= _FIXED * len(seen.lengths) else 0


def usual_length(seen: Seen) -> int:
    """Return the length that nearly all samples have, 0 if there is none."""
    ((usual, many),) = Counter(seen.lengths).most_common(1)
    return usual if many >= _NEARLY_ALL * len(seen.lengths) else 0
