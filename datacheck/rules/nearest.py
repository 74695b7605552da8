"""Which of many samples are likely alike, by their sketches: never all pairs, always the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from datacheck.rules.sketches import HASHES

Array = np.ndarray[Any, Any]

MOST_PAIRS = 10_000
_NEXT = 3  # neighbours within a bucket that a sample is held against: equal ones make a chain, not all pairs
_CHUNK = 1 << 15  # pairs estimated at a time
_MISSED = 1e-3  # share of the pairs just as alike as asked for that may meet in no band
_BANDS, _AXES = 16, 4  # of courses
_WIDE = 4.0  # times the largest difference: cells of a course along an axis
_SEED = 20_260_102
_ODD = np.uint64(0x9E3779B97F4A7C15)


def near_sets(hashes: Array, near: float) -> Array:
    """Return the pairs of sets whose Jaccard similarity is likely at least `near`.

    Shapes:
        hashes: uint16 (samples, 64), as of `sketches.signatures`
        returns: int64 (pairs, 2), the lower place first, the likeliest pair first, at most 10,000

    Notes:
        Bands of r numbers: a pair of similarity J meets in one with probability 1 - (1 - J^r)^(64 / r); r is as large
        as leaves 0.999 at `near` (4 at 0.8).
    """
    width = max([r for r in range(1, 9) if (1 - near**r) ** (HASHES // r) <= _MISSED], default=1)
    count = HASHES // width
    bands = np.zeros((len(hashes), count), np.uint64)
    for place in range(width):
        bands = bands * _ODD + hashes[:, place : count * width : width]
    least = near - 3 * np.sqrt(near * (1 - near) / HASHES)

    def alike(first: Array, second: Array) -> Array:
        return np.asarray((hashes[first] == hashes[second]).mean(axis=1))

    return _likeliest(((bands[:, i], bands[:, i - 1]) for i in range(count)), alike, float(least))


def near_courses(course: Array, reach: Array, apart: float) -> Array:
    """Return the pairs of courses that are likely nowhere further apart than a part of their range.

    Shapes:
        course: float (samples, numbers), as of `sketches.averaged`
        reach: float (samples, columns); 0 behind the columns that a sample has
        returns: as of `near_sets`

    Notes:
        Bands of cells along four random axes, every band with axes and borders of its own.
    """
    course, reach = course.astype(np.float64), reach.astype(np.float64)
    widths = np.count_nonzero(reach, axis=1)
    bands = np.zeros((len(course), _BANDS), np.uint64)
    ties = np.zeros((len(course), _BANDS))
    scaled, ranges = np.zeros_like(course), np.zeros_like(course)
    for width in np.unique(widths).tolist():
        mine = np.flatnonzero(widths == width)
        numbers = _numbers(width, course.shape[1])
        wide = np.tile(reach[mine, :width], (1, numbers // width))
        unit = np.median(wide, axis=0)
        scaled[mine, :numbers], ranges[mine, :numbers] = course[mine, :numbers] / unit, wide / unit
        rng = np.random.default_rng([_SEED, numbers])
        axes = rng.standard_normal((numbers, _BANDS * _AXES))
        along = scaled[mine, :numbers] @ (axes / np.linalg.norm(axes, axis=0)) / (_WIDE * apart)
        cells = np.clip(np.floor(along + rng.uniform(0, 1, _BANDS * _AXES)), -1e15, 1e15).astype(np.int64)
        key = np.full((len(mine), _BANDS), width, np.uint64)
        for place in range(_AXES):
            key = (key ^ cells[:, place::_AXES].view(np.uint64)) * _ODD
            key ^= key >> np.uint64(29)
        bands[mine], ties[mine] = key, along[:, ::_AXES]

    def alike(first: Array, second: Array) -> Array:
        wide = np.maximum(ranges[first], ranges[second])
        gap = np.abs(scaled[first] - scaled[second])
        far = np.divide(gap, wide, out=np.zeros_like(gap), where=wide > 0).max(axis=1)
        return np.where(widths[first] == widths[second], 1 - far, -np.inf)

    return _likeliest(((bands[:, i], ties[:, i]) for i in range(_BANDS)), alike, 1 - apart - 1e-6)


def _numbers(width: int, most: int) -> int:
    """Return how many numbers a course of so many columns has."""
    return min(most, width * (1 << max(0, (HASHES // max(width, 1)).bit_length() - 1)))


def _likeliest(bands: Iterator[tuple[Array, Array]], alike: Callable[[Array, Array], Array], least: float) -> Array:
    """Return the likeliest pairs of those that meet in a band.

    Args:
        bands: the bucket of each sample, and what is close for samples that are close; one pair per band.
        alike: estimates the similarity of pairs.
        least: pairs below it are left out.
    """
    best, likely = np.zeros(0, np.int64), np.zeros(0)  # a pair is one number: lower place times samples plus the other
    count = 0
    for bucket, tie in bands:
        count, order = len(bucket), np.lexsort((tie, bucket))
        for step in range(1, _NEXT + 1):
            meet = np.flatnonzero(bucket[order[:-step]] == bucket[order[step:]])
            for start in range(0, len(meet), _CHUNK):
                first, second = (order[meet[start : start + _CHUNK] + more] for more in (0, step))
                value = alike(first, second)
                pairs = np.minimum(first, second) * count + np.maximum(first, second)
                good = value >= least
                best, likely = _kept(np.concatenate([best, pairs[good]]), np.concatenate([likely, value[good]]))
    return np.stack(np.divmod(best, max(count, 1)), axis=1)


def _kept(pairs: Array, likely: Array) -> tuple[Array, Array]:
    """Return each pair once, the likeliest first, ties by place, at most 10,000."""
    pairs, once = np.unique(pairs, return_index=True)
    likely = likely[once]
    order = np.argsort(-likely, kind="stable")[:MOST_PAIRS]
    return pairs[order], likely[order]
