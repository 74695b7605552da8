"""Keys of positions (one number each) and the spacing of points in clouds.

Families that compare points share the keys, which are cached on the column.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.sample import Column
from datacheck.model.table import Measured
from datacheck.rules.measures import MOST_COMPONENTS, extremes, positions, reduced

Array = np.ndarray[Any, Any]

_ODD = tuple(
    np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], dtype=np.uint64)
)
_STRIP = 1 << 15  # points that stay in the cache of a core
_MOST_KEPT = 1 << 23  # keys of more points would take too much memory and are not cached
_HALF = np.uint64(32)
_OTHER = np.uint64(29)
_CELLS = 1e5  # cells across a cloud; positions too coarse in float32 are rounded to these
_COARSE = 1e-6  # share of a cloud's size that float32 must resolve
# sizes and coordinates that float32 holds with full precision
_LEAST = 1e-30
_MOST = 1e30


def mixed(keys: Array) -> Array:
    """Return uint64 keys hashed so that every bit depends on every bit (splitmix64's finaliser)."""
    keys = keys.copy()
    shifted = keys >> np.uint64(30)
    keys ^= shifted
    keys *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(keys, np.uint64(27), out=shifted)
    keys ^= shifted
    keys *= np.uint64(0x94D049BB133111EB)
    np.right_shift(keys, np.uint64(31), out=shifted)
    keys ^= shifted
    return keys


def exact_keys(column: Column) -> tuple[Array, Array | None] | None:
    """Return a key of each position: equal positions have equal keys.

    Different positions have equal keys in 1 of 2**64 pairs.

    Shapes:
        keys: uint64 (rows)
        lengths: int64 (samples), None where each sample is one position

    Returns:
        None where the field holds no positions.

    Notes:
        -0 equals 0. Cached, except for very large clouds.
    """
    return _kept(column, "_exact_keys", _exact)


def content_keys(column: Column) -> tuple[Array, Array | None] | None:
    """Return keys like `exact_keys`, but from float32: a copy in another dtype has equal keys.

    Notes:
        A cloud may be so far from the origin that float32 is coarse against its size (1e-6). Its
        positions are then rounded to 1e-5 of its size instead, unless all of them are float32
        numbers: writers subtract other offsets.
    """
    return _kept(column, "_content_keys", _narrow)


def _kept(column: Column, name: str, make: Any) -> tuple[Array, Array | None] | None:
    if name in column.__dict__:
        cached: tuple[Array, Array | None] | None = column.__dict__[name]
        return cached
    result: tuple[Array, Array | None] | None = make(column)
    if len(column.values) <= _MOST_KEPT:
        column.__dict__[name] = result
    return result


def _exact(column: Column) -> tuple[Array, Array | None] | None:
    if column.values.dtype.kind == "f" and column.values.dtype.itemsize <= 4:
        return content_keys(column)
    coordinates = positions(column)
    return (
        None
        if coordinates is None
        else (_keys64(coordinates[0].astype(np.float64, copy=False)), coordinates[1])
    )


def _narrow(column: Column) -> tuple[Array, Array | None] | None:
    coordinates = positions(column)
    if coordinates is None:
        return None
    xyz, lengths = coordinates
    narrow = xyz.astype(np.float32, copy=False)
    if lengths is None or xyz.dtype.itemsize <= 2 or xyz.dtype == np.float32:
        return _keys32(narrow), lengths
    coarse, size = _coarse(column, xyz, lengths)
    if coarse.any():
        changed = np.logical_or.reduce(
            [rounded != same for rounded, same in zip(narrow, xyz, strict=True)]
        )
        coarse &= reduced(np.add, changed, lengths) > 0
    keys = np.empty(len(narrow[0]), np.uint64) if coarse[lengths > 0].all() else _keys32(narrow)
    stops = np.cumsum(lengths)
    for i in np.flatnonzero(coarse):
        part = slice(stops[i] - lengths[i], stops[i])
        keys[part] = _keys64(
            np.round(np.multiply(xyz[:, part], _CELLS / size[i], dtype=np.float64))
        )
    return keys, lengths


def _coarse(column: Column, xyz: Array, lengths: Array) -> tuple[Array, Array]:
    """Return the samples whose positions float32 resolves too coarsely, and the sizes of all.

    Shapes:
        returns: bool (samples); float64 (samples), 1 where all points are equal
    """
    narrow = column.values.ndim == 2 and column.values.shape[1] <= MOST_COMPONENTS
    ends = (
        extremes(column)[:2]
        if narrow
        else [reduced(ufunc, xyz, lengths) for ufunc in (np.minimum, np.maximum)]
    )
    low, high = (end[:3].astype(np.float64) for end in ends)
    size = (high - low).max(axis=0)
    reach = np.maximum(-low, high).max(axis=0)
    fine = (reach * np.finfo(np.float32).eps <= _COARSE * size) & (size > _LEAST) & (reach < _MOST)
    return ~fine & np.isfinite(size), np.where(size > 0, size, 1.0)


def _keys32(xyz: Array) -> Array:
    """Return a key of each position.

    Shapes:
        xyz: float32 (3, rows)
        returns: uint64 (rows)
    """
    keys = np.empty(xyz.shape[1], np.uint64)
    other, shifted = np.empty((2, min(_STRIP, len(keys))), np.uint64)
    plain = np.empty(len(other), np.float32)
    for start in range(0, len(keys), _STRIP):
        part = slice(start, start + _STRIP)
        key = keys[part]
        along = other[: len(key)]
        high = shifted[: len(key)]
        zeroed = plain[: len(key)]
        bits = zeroed.view(np.uint32)
        np.add(xyz[0, part], 0, out=zeroed)  # -0 + 0 is 0
        key[:] = bits
        np.add(xyz[1, part], 0, out=zeroed)
        along[:] = bits
        along <<= _HALF
        key |= along
        key *= _ODD[0]
        # Without this step a sum of products would lose which coordinates belong together.
        key ^= np.right_shift(key, _HALF, out=high)
        np.add(xyz[2, part], 0, out=zeroed)
        along[:] = bits
        along *= _ODD[1]
        key += along
        # Another shift than before: the same one would undo the first where z is 0.
        key ^= np.right_shift(key, _OTHER, out=high)
        key *= _ODD[2]
        key ^= np.right_shift(key, _HALF, out=high)
    return keys


def _keys64(xyz: Array) -> Array:
    """Return a key of each position.

    Shapes:
        xyz: float64 (3, rows)
        returns: uint64 (rows)
    """
    keys = np.zeros(xyz.shape[1], np.uint64)
    for start in range(0, len(keys), _STRIP):
        key = keys[start : start + _STRIP]
        for axis, multiplier in zip(xyz, _ODD, strict=True):
            key += (axis[start : start + _STRIP] + 0.0).view(np.uint64)  # -0 + 0 is 0
            key *= multiplier
            key ^= key >> _HALF
        key[:] = mixed(key)  # the last axis was mixed only once
    return keys


# most and fewest points whose nearest neighbour is searched
_SAMPLED_POINTS = 32
_FEWEST = 8
_SMALL = 1024  # clouds of at most so many points are searched completely
_PAIRS = 1 << 12  # distances measured in one cloud
_TOGETHER = 1 << 13  # distances measured in one call for small clouds of equal size
_SEEN = 64  # points from which the extent of a cloud is estimated
_WIDE = 10.0  # width of a column, as a multiple of the rough spacing of points on a surface
_KEPT = 128  # points in all columns, about
_INNER = 0.25  # of a column's width: least distance of a sampled point from the walls
_WIDER = (0, 2, 4)  # powers of two by which too narrow columns are widened
# coordinates whose squared distances fit into float32
_TINY = 1e-12
_HUGE = 1e15


def spacing(column: Column, chosen: Array) -> Measured | None:
    """Return the spacing of each cloud: the median distance of up to 32 points to the nearest one.

    Args:
        chosen: bool (samples): the clouds to measure; the others have no value.

    Returns:
        None where samples are no clouds [P, 3]; frames of an episode, for example, overlap.

    Notes:
        Copies of a point (distance 0) and points that are not finite do not count. A cloud without
        two distinct positions has no value.
    """
    coordinates = positions(column)
    if coordinates is None or coordinates[1] is None or column.values.ndim != 2:
        return None
    xyz = _floats(coordinates[0])
    lengths = coordinates[1]
    spacings = np.full(len(lengths), np.nan)
    stops = np.cumsum(lengths)
    ends = np.abs(extremes(column)[:2]).max(axis=(0, 1))  # NaN where there is one
    small = chosen & (ends > _TINY) & (ends < _HUGE) & (lengths > 1) & (lengths <= _SMALL)
    for size in np.unique(lengths[small]).tolist():
        mine = np.flatnonzero(small & (lengths == size))
        most = max(1, _TOGETHER // min(_PAIRS, _SAMPLED_POINTS * size))
        for batch in (mine[start : start + most] for start in range(0, len(mine), most)):
            spacings[batch] = _among(xyz[:, (stops[batch] - size)[:, None] + np.arange(size)])
    large = np.flatnonzero(chosen & (lengths > _SMALL))
    plans = _cell_grids(xyz, stops[large], lengths[large]) if len(large) else ()
    for i, plan in zip(large.tolist(), plans, strict=True):
        spacings[i] = _in_columns(xyz[:, stops[i] - lengths[i] : stops[i]], plan)
    for i in np.flatnonzero(chosen & (lengths > 1) & ~small & np.isnan(spacings)).tolist():
        spacings[i] = _one_by_one(xyz[:, stops[i] - lengths[i] : stops[i]])
    return Measured(spacings, np.isfinite(spacings))


def _floats(xyz: Array) -> Array:
    """Return coordinates as float32 or float64, whichever holds them exactly."""
    if xyz.dtype in {np.dtype(np.float32), np.dtype(np.float64)}:
        return xyz
    return xyz.astype(np.float32 if xyz.dtype.itemsize <= 2 else np.float64)


# ------------------------------------------------------------------------------ against all of them


def _one_by_one(cloud: Array) -> float:
    """Return the spacing of any cloud; NaN or infinite without two distinct positions."""
    cloud = cloud[:, np.isfinite(cloud).all(axis=0)].astype(np.float64)
    if cloud.shape[1] <= _SMALL:
        return float(_among(cloud[:, None])[0]) if cloud.shape[1] > 1 else math.nan
    sampled = cloud[:, _evenly(cloud.shape[1], _FEWEST)]
    strips = (cloud[:, start : start + _STRIP] for start in range(0, cloud.shape[1], _STRIP))
    return float(_middle(np.minimum.reduce([_nearest(sampled, strip) for strip in strips])))


def _evenly(count: int, many: int) -> Array:
    """Return up to `many` of `count` places, evenly spaced."""
    return (2 * np.arange(min(many, count)) + 1) * count // (2 * min(many, count))


def _among(clouds: Array) -> Array:
    """Return the spacing of clouds of equal size.

    Shapes:
        clouds: float (3, clouds, points), finite
        returns: float64 (clouds)
    """
    many = min(_SAMPLED_POINTS, max(_FEWEST, _PAIRS // clouds.shape[2]))
    return _middle(_nearest(clouds[:, :, _evenly(clouds.shape[2], many)], clouds))


def _nearest(queries: Array, points: Array) -> Array:
    """Return the distance from each point to the nearest different one, not finite without one.

    Shapes:
        queries, points: float (3, ..., queries) and (3, ..., points)
        returns: float (..., queries)
    """
    gaps = queries[..., :, None] - points[..., None, :]
    gaps *= gaps
    square = gaps[0]
    square += gaps[1]
    square += gaps[2]
    # Non-negative floats sort like their bits.
    bits = square.view(np.uint32 if square.itemsize == 4 else np.uint64)
    bits -= bits.dtype.type(1)  # 0 wraps around to the largest: copies are no neighbours
    least = np.asarray(bits.min(axis=-1) + bits.dtype.type(1)).view(points.dtype)
    return np.sqrt(np.where(least > 0, least, np.inf))


def _middle(nearest: Array) -> Array:
    """Return the median along the last axis, the lower of two."""
    return np.asarray(np.sort(nearest, axis=-1)[..., (nearest.shape[-1] - 1) // 2])


# --------------------------------------------------------------------------------------- in columns


class _CellGrid(NamedTuple):
    """A grid of thin columns through a cloud: two axes, a point in one column, width and period.

    Args:
        bits: of each axis one slice in 2**bits is kept.
        exponent: a slice is 2**exponent wide, in the unit of the cloud.
        least: smallest exponent that numbers so far from the origin can resolve.
    """

    axes: tuple[int, int]
    point: tuple[float, float]
    bits: tuple[int, int]
    exponent: int
    least: int


def _cell_grids(xyz: Array, stops: Array, lengths: Array) -> list[_CellGrid | None]:
    """Return the grid of each cloud, None where a few of its points do not determine it."""
    seen = xyz[
        :, (stops - lengths)[:, None] + (2 * np.arange(_SEEN) + 1) * lengths[:, None] // (2 * _SEEN)
    ]
    finite = np.isfinite(seen).all(axis=0)
    seen[:, ~finite] = np.nan
    finite_counts = finite.sum(axis=1)
    every = np.arange(len(stops))
    ordered = np.sort(seen.astype(np.float64), axis=2)
    low, high = (
        ordered[:, every, (share * finite_counts).astype(np.int64) - (share > 0.5)]
        for share in (0.1, 0.95)
    )
    wide = high - low
    axes = np.argsort(-wide, axis=0, kind="stable")[:2]
    first, second = wide[axes, every]
    count = lengths * finite_counts / _SEEN
    width = _WIDE * np.maximum(np.sqrt(first * second / count), first / count)
    reach = np.maximum(np.abs(low), np.abs(high)).max(axis=0) * float(np.finfo(seen.dtype).eps) * 8
    good = (finite_counts >= _SEEN // 4) & (width > 1e-30) & (width < 1e30)
    exponents, least = (
        np.floor(np.log2(np.where(good, size, 1.0))).astype(int).tolist() for size in (width, reach)
    )
    bits = np.maximum(0, np.rint(np.log2(np.maximum(count, 1) / _KEPT))).astype(int)
    # The second axis gets fewer bits: few points are left after the first.
    bits = np.stack([bits - np.maximum(bits - 2, 0) // 2, np.maximum(bits - 2, 0) // 2])
    places = seen[
        axes, every, np.argmax(np.roll(finite, -_SEEN // 2, axis=1), axis=1) - _SEEN // 2
    ].T.tolist()
    parameters = zip(axes.T.tolist(), places, bits.T.tolist(), exponents, least, strict=True)
    return [
        _CellGrid((a, b), (x, y), (many, few), *rest) if fine else None
        for fine, ((a, b), (x, y), (many, few), *rest) in zip(
            good.tolist(), parameters, strict=True
        )
    ]


def _in_columns(cloud: Array, plan: _CellGrid | None) -> float:
    """Return the spacing from the points in thin columns alone, NaN where they do not suffice.

    Notes:
        One pass over an axis keeps every n-th slice; a pass over another axis thins the rest in the
        same way. That gives columns all over the cloud, each with all of its points. A neighbour
        nearer than the wall of the column is the nearest of all. A neighbour further away than the
        median does not change the median.
    """
    if plan is None:
        return math.nan
    for more in _WIDER:
        estimate = _within(cloud, plan, max(plan.exponent + more, plan.least))
        if not math.isnan(estimate):
            return estimate
    return math.nan


def _within(cloud: Array, plan: _CellGrid, exponent: int) -> float:
    (first, second), (x, y) = plan.axes, plan.point
    scale = cloud.dtype.type(2.0**-exponent)
    kept = _in_slices(cloud[first], x, exponent, plan.bits[0])
    kept = kept[_in_slices(cloud[second].take(kept), y, exponent, plan.bits[1])]
    points = cloud.take(kept, axis=1)
    points *= scale  # a power of two is exact, and squares then neither underflow nor overflow
    off = np.abs(points - np.rint(points))
    walls = 0.5 - np.maximum(off[first], off[second])
    inner = np.flatnonzero(walls > _INNER)
    many = min(_SAMPLED_POINTS, max(_FEWEST, _PAIRS // max(len(kept), 1)))
    if len(inner) < _FEWEST:
        return math.nan
    sampled = inner[:: -(-len(inner) // many)]
    nearest = _nearest(points.take(sampled, axis=1), points)
    middle = float(_middle(nearest))
    if middle < _INNER or bool((nearest < walls[sampled]).all()):
        return math.ldexp(middle, exponent)
    return math.nan


def _in_slices(places: Array, like: float, exponent: int, bits: int) -> Array:
    """Return the places that lie in a kept slice, one congruent to that of `like`.

    Notes:
        Adding a large number leaves the slice number in the last digits of the sum.
    """
    digits, whole = (23, np.int32) if places.itemsize == 4 else (52, np.int64)
    large = places.dtype.type(1.5 * 2.0 ** (exponent + digits))
    mask = whole((1 << bits) - 1)
    number = whole(round(math.ldexp(like, -exponent)) & int(mask))
    parts = []
    for start in range(0, len(places), _STRIP):
        numbers = (places[start : start + _STRIP] + large).view(whole)
        numbers &= mask
        parts.append(np.flatnonzero(numbers == number) + start)
    return (
        parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, np.int64)
    )
