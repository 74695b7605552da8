"""Labels counted: which numbers there are, how often, and which points each instance has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.rules.measures import flat, in_classes, one_of, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec

Array = np.ndarray[Any, Any]

_BINS = 1 << 16
_MOST_CELLS = 1 << 24
_STRIP = 1 << 14  # rows that are looked at together
_FIRST = 1 << 10  # rows in which the first of each instance are looked for first


def whole(values: Array) -> Array | None:
    """Return values as whole numbers, int32; None where one is none, or larger."""
    numbers = np.empty(values.shape, np.int32)
    # as int32, as it is, where float16 would take large numbers for infinity, and uint32 -1 for 4,294,967,295
    back = values.dtype if values.dtype.kind == "f" and values.dtype.itemsize > 2 else np.dtype(np.int32)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(values), _STRIP):  # there and back while it is in the cache of a core
            part, number = values[start : start + _STRIP], numbers[start : start + _STRIP]
            number[:] = part
            if not (number.astype(back, copy=False) == part).all():
                return None
    return numbers


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
    if classes is not None and len(classes) != len(ids):
        return None
    numbers = whole(ids), None if classes is None else whole(classes)
    first = _places(ids if numbers[0] is None else numbers[0], max(65_536, len(ids)))
    second: tuple[Array, Array] | None = np.zeros(1, np.int64), np.zeros(1, np.int32)
    if classes is not None:
        second = _places(classes if numbers[1] is None else numbers[1], 4096)
    if first is None or second is None or len(first[0]) * len(second[0]) > _MOST_CELLS:
        return None
    height, width = len(first[0]), max(1, len(second[0]))
    code = (first[1] * width + second[1]).astype(np.intp)
    cells = np.bincount(code, minlength=height * width).reshape(height, width)
    plain = numbers[0] is not None and (classes is None or numbers[1] is not None)
    return Crossed(first[0], second[0], cells, code, plain)


def _places(values: Array, room: int) -> tuple[Array, Array] | None:
    """Return the numbers that may occur in rising order, and of each value its place among them.

    Notes:
        All numbers of the span where that is at most `room`, else the distinct ones; None where one is not finite.
    """
    if len(values) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    low, high = float(values.min()), float(values.max())
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
