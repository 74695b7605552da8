"""Labels counted: which numbers there are, how often, and which points each instance has."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from datacheck.rules.measures import flat, in_classes, one_of, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec

Array = np.ndarray[Any, Any]

_BINS = 1 << 16
_MOST_CELLS = 1 << 24
_STRIP = 1 << 15  # rows that are looked at together
_FIRST = 1 << 10  # rows in which the first of each instance are looked for first


def whole(values: Array) -> Array | None:
    """Return values as whole numbers, int32; None where one is none, or larger."""
    numbers = np.empty(values.shape, np.int32)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(values), _STRIP):
            part = _whole(values[start : start + _STRIP])
            if part is None:
                return None
            numbers[start : start + _STRIP] = part
    return numbers


def _whole(values: Array) -> Array | None:
    # as int32, as it is, where float16 would take large numbers for infinity, and uint32 -1 for 4,294,967,295
    back = values.dtype if values.dtype.kind == "f" and values.dtype.itemsize > 2 else np.dtype(np.int32)
    numbers = values.astype(np.int32)
    return numbers if (numbers.astype(back, copy=False) == values).all() else None


def distinct(column: Column) -> tuple[Array, Array, Array]:
    """Return the different numbers of each sample, in rising order, and how often each is there.

    Shapes:
        values: any (numbers)
        often: int64 (numbers)
        lengths: int64 (samples) [numbers]

    Notes:
        Labels are few numbers again and again. Where they are not (other than whole ones, or far apart) every value
        stands for itself, once.
    """
    known: tuple[Array, Array, Array] | None = column.__dict__.get("_distinct")
    if known is None:
        counted = column.__dict__.get("_counted", {})
        each = [counted[i] for i in range(len(column))] if len(counted) == len(column) else []
        known = column.__dict__["_distinct"] = _beside(each) if each else _distinct(column)
    return known


def _beside(each: list[tuple[Array, Array]]) -> tuple[Array, Array, Array]:
    values, often = (np.concatenate(parts) for parts in zip(*each, strict=True))
    return values, often, np.array([len(part) for part, _ in each])


def _distinct(column: Column) -> tuple[Array, Array, Array]:
    values, lengths = flat(column)
    numbers = whole(column.values)
    if numbers is None or not numbers.size:
        return values, np.ones(len(values), np.int64), lengths
    low = int(numbers.min())
    width = int(numbers.max()) - low + 1
    if width * len(column) > max(_BINS, 4 * numbers.size):
        return values, np.ones(len(values), np.int64), lengths
    code = numbers.reshape(-1) - low if low else numbers.reshape(-1)
    if len(column) > 1:
        code = code + np.repeat(np.arange(len(column)) * width, lengths)
    bins = np.bincount(code, minlength=width * len(column)).reshape(len(column), width)
    sample, place = np.nonzero(bins)
    return place + low, bins[sample, place], np.bincount(sample, minlength=len(column))


@dataclass(frozen=True, eq=False)
class Crossed:
    """The instances and classes of one sample, counted together.

    Shapes:
        ids: int64 (ids), in rising order: all that may occur
        classes: int64 (classes), likewise; one 0 where there is no class field
        cells: int64 (ids, classes): points of each pair
        code: int64 (points): the flat place in `cells`

    Args:
        whole: all values are whole numbers; if not, these are what is left of them without their fractions.
    """

    ids: Array
    classes: Array
    cells: Array
    code: Array
    whole: bool


def crossed(ids: Column, classes: Column | None, i: int) -> Crossed | None:
    """Count one sample's points by instance and class, once.

    Returns:
        None where lengths differ, where a number is not finite, or where there are too many pairs.
    """
    kept = ids.__dict__.setdefault("_pairs", {})
    key = (i, id(classes))
    if key not in kept:
        kept[key] = pairs = _crossed(ids[i].reshape(-1), None if classes is None else classes[i].reshape(-1))
        if pairs is not None and pairs.whole:
            _keep_counts(pairs, ids, classes, i)
    found: Crossed | None = kept[key]
    return found


def _keep_counts(pairs: Crossed, ids: Column, classes: Column | None, i: int) -> None:
    """Spare `distinct` the counting of what has just been counted by pairs."""
    for column, values, axis in ((ids, pairs.ids, 1), (classes, pairs.classes, 0)):
        if column is not None:
            often = pairs.cells.sum(axis=axis)
            there = np.flatnonzero(often)
            column.__dict__.setdefault("_counted", {})[i] = values[there], often[there]


def _crossed(ids: Array, classes: Array | None) -> Crossed | None:
    values = [ids] if classes is None else [ids, classes]
    if len(values[-1]) != len(ids):
        return None
    rooms = max(65_536, len(ids)), 4096
    spans = [span for v, room in zip(values, rooms, strict=False) if (span := _span(v, room)) is not None]
    code = _code(values, spans) if len(spans) == len(values) else None
    plain = code is not None or not any(whole(v) is None for v in values)
    numbers = [np.arange(low, high + 1) for low, high in spans]
    if code is None:
        found = [places for v, room in zip(values, rooms, strict=False) if (places := _places(v, room)) is not None]
        numbers = [known for known, _ in found]
        if len(found) < len(values) or prod(map(len, numbers)) > _MOST_CELLS:
            return None
        code = np.zeros(len(ids), np.intp)
        for known, which in found:
            code *= max(1, len(known))
            code += which
    height, width = len(numbers[0]), 1 if classes is None else max(1, len(numbers[1]))
    cells = np.bincount(code, minlength=height * width).reshape(height, width)
    return Crossed(numbers[0], np.zeros(1, np.int64) if classes is None else numbers[1], cells, code, plain)


def _span(values: Array, room: int) -> tuple[int, int] | None:
    """Return the smallest and the largest value where they are less than `room` apart, and int32 holds them."""
    low, high = (values.min().item(), values.max().item()) if len(values) else (0.0, np.inf)
    return (int(low), int(high)) if high - low < room and max(-low, high) < 1 << 31 else None


def _code(values: list[Array], spans: list[tuple[int, int]]) -> Array | None:
    """Return of each point its place among all pairs of numbers within the spans; None where a number is not whole."""
    if prod(high - low + 1 for low, high in spans) > _MOST_CELLS:
        return None
    code = np.empty(len(values[0]), np.intp)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(code), _STRIP):
            place: Any = 0
            for v, (low, high) in zip(values, spans, strict=True):
                number = _whole(v[start : start + _STRIP])
                if number is None:
                    return None
                number -= low
                place = number if v is values[0] else place * (high - low + 1) + number
            code[start : start + _STRIP] = place
    return code


def _places(values: Array, room: int) -> tuple[Array, Array] | None:
    """Return the numbers that may occur in rising order, and of each value its place among them.

    Notes:
        All numbers of the span where that is at most `room`, else the distinct ones; None where one is not finite.
    """
    if len(values) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    low, high = values.min().item(), values.max().item()  # as they are: float64 rounds large whole numbers
    if not (np.isfinite(low) and np.isfinite(high)) or max(-low, high) > 2.0**62:
        return None
    numbers = values if values.dtype == np.int32 else values.astype(np.int64)
    if high - low < room:
        return np.arange(int(low), int(high) + 1), numbers - int(low)
    known, which = np.unique(numbers, return_inverse=True)
    return known.astype(np.int64), which


def numbered(ids: Array, good: Array) -> tuple[Array, Array]:
    """Return the distinct ids of the `good` points in rising order, and of each point its place from 1, 0 for none."""
    if ids.dtype.kind == "f":
        good = good & (ids < 2.0**62)  # infinity is no id
    numbers = ids.astype(np.int64)
    numbers += 1
    numbers *= good  # 0 stands for none
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if low < 0 or high > 1 << 20:
        which = np.zeros(len(ids), np.int64)
        known, inverse = np.unique(ids[good].astype(np.int64), return_inverse=True)
        which[good] = inverse + 1
        return known, which
    known = np.flatnonzero(np.bincount(numbers, minlength=1)[1:])
    place = np.zeros(high + 1, np.int64)
    place[known + 1] = np.arange(1, len(known) + 1)
    return known, place[numbers]


def numbered_points(
    ids: Column, classes: Column | None, i: int, spec: FieldSpec, class_spec: FieldSpec
) -> tuple[Array, Array, Array]:
    """Return as `numbered` of the points of one sample that have an instance, and a class where there are classes.

    Shapes:
        returns: the ids, the place of each point, and int64 (ids): how many points each has
    """

    def good(values: Array) -> Array:
        return np.asarray((values >= 0) & ~one_of(values, spec.ignore))

    pairs = crossed(ids, classes, i)
    if pairs is None or not pairs.whole:
        mine = ids[i].reshape(-1)
        fits = good(mine) if classes is None else good(mine) & in_classes(classes[i].reshape(-1), class_spec)
        found, which = numbered(mine, fits)
        return found, which, np.bincount(which, minlength=len(found) + 1)[1:]
    known = np.ones(1, bool) if classes is None else in_classes(pairs.classes, class_spec)
    fits = good(pairs.ids)
    size: Array = np.where(fits, pairs.cells[:, : len(known)] @ known.astype(np.int64), 0)
    there = size > 0
    place = np.zeros(len(there), np.int32)
    place[there] = np.arange(1, np.count_nonzero(there) + 1)
    which = np.multiply.outer(place, known, dtype=np.int32).reshape(-1).take(pairs.code)
    return pairs.ids[there], which, size[there]


def first_rows(which: Array, count: int) -> Array:
    """Return the first row that holds each of the numbers 1 to `count`, -1 where none does: int64 (count)."""
    first = np.full(count + 1, -1)
    start, size = 0, _FIRST  # mostly the first few hold them all
    while start < len(which) and (first[1:] < 0).any():
        here = np.full(len(first), -1)
        part = which[start : start + size]
        here[part[::-1]] = np.arange(start, start + len(part))[::-1]  # the last written stays: the lowest row
        first = np.where(first < 0, here, first)
        start, size = start + size, min(2 * size, _STRIP)
    return first[1:]


def stored_instances(ids: Column, spec: FieldSpec) -> Array:
    """Return how many instances each sample holds, before any class or step."""
    values, _, lengths = distinct(ids)
    good = (values >= 0) & ~one_of(values, spec.ignore)
    if len(values) == len(ids.values):  # every value stands for itself
        parts = np.split(np.arange(len(values)), np.cumsum(lengths)[:-1])
        return np.array([len(numbered(values[rows], good[rows])[0]) for rows in parts], dtype=np.int64)
    found: Array = reduced(np.add, good, lengths)
    return found
