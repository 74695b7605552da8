"""Labels counted: which numbers there are, how often, and which points each instance has."""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.rules.measures import flat, one_of, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec

Array = np.ndarray[Any, Any]

_BINS = 1 << 16


def whole(column: Column) -> Array | None:
    """Return the values as whole numbers, int32 (rows, *item), made once; None where one is none, or larger."""
    if "_whole" not in column.__dict__:
        column.__dict__["_whole"] = _whole(column.values)
    found: Array | None = column.__dict__["_whole"]
    return found


def _whole(values: Array) -> Array | None:
    with np.errstate(invalid="ignore", over="ignore"):
        numbers = values.astype(np.int32)
        return numbers if bool((numbers == values).all()) else None


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
        known = column.__dict__["_distinct"] = _distinct(column)
    return known


def _distinct(column: Column) -> tuple[Array, Array, Array]:
    values, lengths = flat(column)
    numbers = whole(column)
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


def numbered(ids: Array, good: Array) -> tuple[Array, Array]:
    """Return the distinct ids of the `good` points in rising order, and of each point its place there, -1 for none."""
    if ids.dtype.kind == "f":
        good = good & (ids < 2.0**62)  # infinity is no id
    numbers = ids.astype(np.int64)
    numbers += 1
    numbers *= good  # 0 stands for none
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if low < 0 or high > 1 << 20:
        which = np.full(len(ids), -1)
        known, which[good] = np.unique(ids[good].astype(np.int64), return_inverse=True)
        return known, which
    known = np.flatnonzero(np.bincount(numbers, minlength=1)[1:])
    place = np.full(high + 1, -1)
    place[known + 1] = np.arange(len(known))
    return known, place[numbers]


def stored_instances(ids: Column, spec: FieldSpec) -> Array:
    """Return how many instances each sample holds, before any class or step."""
    values, _, lengths = distinct(ids)
    good = (values >= 0) & ~one_of(values, spec.ignore)
    if len(values) == len(ids.values):  # every value stands for itself
        parts = np.split(np.arange(len(values)), np.cumsum(lengths)[:-1])
        return np.array([len(numbered(values[rows], good[rows])[0]) for rows in parts], dtype=np.int64)
    found: Array = reduced(np.add, good, lengths)
    return found
