"""Voxel cells and their representatives, as training loaders compute them: pure NumPy, used by rules and transforms."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def cells(points: Array, edge: float) -> Array:
    """Return the voxel of every point.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        returns: int64 (rows, 3): floor((xyz - min) / edge), in float64

    Args:
        edge: edge of a voxel, above 0.
    """
    if len(points) == 0:
        return np.zeros((0, 3), np.int64)
    xyz = np.ascontiguousarray(
        np.asarray(points).T, dtype=np.float64
    )  # axis by axis it is many times faster
    xyz = xyz - xyz.min(axis=1, keepdims=True)
    found: Array = np.floor(xyz / edge).astype(np.int64)
    return found.T


def occupied(points: Array, edge: float) -> tuple[Array, Array]:
    """Return the rows that stand for the occupied voxels, and how many points each of these voxels holds.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        returns: int64 (voxels): of each voxel its lowest row, in ascending order; int64 (voxels):
            points in it

    Notes:
        Deterministic: ties go to the lowest row; the same bits on every CPU (integer keys, none
            twice).
    """
    last = _lasts_of(points, edge)
    counts = np.bincount(last, minlength=len(last))[::-1]
    rows = np.flatnonzero(counts)
    return rows, counts[rows]


def _lasts_of(points: Array, edge: float) -> Array:
    """Return of each point, counted from the end, the last one in its voxel, counted from the end."""
    return (
        last_rows(_reversed_keys(points, edge).astype(np.int64, copy=False))
        if len(points)
        else np.zeros(0, np.int64)
    )


def _reversed_keys(points: Array, edge: float) -> Array:
    """Return one number per point, the last point first, equal for those in one voxel."""
    keys = _keys(points, edge)
    return np.ascontiguousarray((_numbers(cells(points, edge)) if keys is None else keys)[::-1])


def _keys(points: Array, edge: float) -> Array | None:
    """Return one number per voxel, int32 or int64 (rows); None where the extent is too large, or not finite."""
    axes = np.asarray(points).T
    lows = [float(axis.min()) for axis in axes]
    sizes: list[int] = []
    room = 1 << 62
    for axis, low in zip(axes, lows, strict=True):
        top = (float(axis.max()) - low) / edge
        if not top < room:
            return None
        sizes.append(int(top) + 1)
        room //= sizes[-1]
    keys: Array = np.empty(axes.shape[1], np.int32 if prod(sizes) < 1 << 31 else np.int64)
    places, numbers = np.empty(_LONG, np.float64), np.empty(_LONG, keys.dtype)
    for start in range(0, len(keys), _LONG):
        part = keys[start : start + _LONG]
        place, number = places[: len(part)], numbers[: len(part)]
        for i, (axis, low, size) in enumerate(zip(axes, lows, sizes, strict=True)):
            place[:] = axis[start : start + _LONG]
            place -= low
            place /= edge
            np.copyto(
                number if i else part, place, casting="unsafe"
            )  # not below 0: without its fraction is the floor
            if i:
                part *= size
                part += number
    return keys


def _numbers(cell: Array) -> Array:
    """Return one number per voxel, int64 (rows), whatever its extent."""
    order = np.lexsort((cell[:, 2], cell[:, 1], cell[:, 0]))
    along = cell[order]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(np.concatenate([[False], (along[1:] != along[:-1]).any(axis=1)]))
    return found


_ODD = tuple(
    np.uint64(odd)
    for odd in (
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
        0xE7037ED1A0B428DB,
    )
)


_BAND = 1 << 20  # rows that are looked at together
_STRIP = 1 << 14  # rows that stay in the cache of a core while they are worked on
_LONG = 1 << 15  # such rows, where few arrays are at work


def last_rows(keys: Array) -> Array:
    """Return of each row the last row with the same key.

    Shapes:
        keys: int64 or uint64 (rows)
        returns: int64 (rows)

    Notes:
        A table of slots that stays in a core's cache is many times faster than sorting: all rows
        write their number into the slot of their key, and the last one stays. Rows that find
        another key there try again elsewhere.
    """
    keys = np.ascontiguousarray(keys).view(np.uint64)
    if len(keys) <= _BAND:
        return _hash_last_rows(keys)
    found = np.empty(len(keys), np.int64)
    for rows in _bands(keys):
        found[rows] = rows[_hash_last_rows(keys[rows])]
    return found


def are_last(keys: Array) -> Array:
    """Tell of each row whether no later one has the same key.

    Shapes:
        keys: int32, uint32, int64 or uint64 (rows)
        returns: bool (rows)
    """
    keys = np.ascontiguousarray(keys).view(f"u{keys.dtype.itemsize}")
    if len(keys) <= _BAND:
        return _hash_are_last(keys)
    found = np.empty(len(keys), bool)
    for rows in _bands(keys):
        found[rows] = _hash_are_last(keys[rows])
    return found


def _bands(keys: Array) -> Iterator[Array]:
    """Yield the rows that are looked at together: many small tables stay in the cache, one large one would not."""
    bands = -(-len(keys) // _BAND)
    band = ((keys.astype(np.uint64, copy=False) * _ODD[-1]) >> np.uint64(48)).astype(
        np.uint16
    ) % np.uint16(bands)
    return (np.flatnonzero(band == number) for number in range(bands))


def _hash_last_rows(keys: Array) -> Array:
    met, other, lost = _probe(keys, _ODD[0])
    found: Array = met.astype(np.int64)
    rows = other[lost]
    for odd in _ODD[1:]:
        if not len(rows):
            return found
        met, other, lost = _probe(keys[rows], odd)
        found[rows] = rows[met]
        rows = rows[other[lost]]
    found[rows] = rows[_sort_last_rows(keys[rows])]
    return found


def _hash_are_last(keys: Array) -> Array:
    _, other, lost = _probe(keys, _ODD[0])
    found: Array = np.ones(len(keys), bool)
    found[other] = False
    rows = other[lost]
    for odd in _ODD[1:]:
        if not len(rows):
            return found
        _, other, lost = _probe(keys[rows], odd)
        found[rows] = True
        found[rows[other]] = False
        rows = rows[other[lost]]
    found[rows] = _sort_last_rows(keys[rows]) == np.arange(len(rows))
    return found


def _sort_last_rows(keys: Array) -> Array:
    """Return of each row the last row with the same key, by sorting."""
    order = np.argsort(keys, kind="stable")
    along = keys[order]
    last = np.concatenate([along[1:] != along[:-1], np.ones(min(1, len(order)), bool)])
    found: Array = np.empty(len(order), np.int64)
    found[order] = order[last][np.cumsum(last) - last]
    return found


def _probe(keys: Array, odd: np.uint64) -> tuple[Array, Array, Array]:
    """Return of each row the last one of the same slot, the rows of which that is another, and which of them lost it.

    Those lost it whose key is not that of the last.

    Shapes:
        keys: uint32 or uint64 (rows)
        returns: int32 or int64 (rows); int64 (others); bool (others)
    """
    bits = max(8, (2 * len(keys)).bit_length())
    own: Array = np.arange(len(keys), dtype=np.int32 if len(keys) < 1 << 31 else np.int64)
    table: Array = np.empty(1 << bits, own.dtype)
    met: Array = np.empty(len(keys), own.dtype)
    strips = [slice(start, start + _STRIP) for start in range(0, len(keys), _STRIP)]
    for strip in strips:
        table[_hashed(keys[strip], odd, bits)] = own[strip]
    for strip in strips:
        met[strip] = table.take(_hashed(keys[strip], odd, bits))
    other = np.flatnonzero(met != own)  # of the rest the last row is themselves
    return met, other, keys.take(other) != keys.take(met.take(other))


_PART = 8  # one voxel in so many is looked at for those that have plenty


def deciding_rows(
    points: Array, edge: float, owner: Array, size: Array, first: Array, enough: int
) -> Array:
    """Return representatives that tell of each owner how many it has, up to `enough`, and which is its first.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        owner: int (rows): whose each point is, from 1; 0 for nobody
        size: int64 (owners): points of each
        first: int64 (owners): the lowest row of each, -1 of those without one
        returns: int64 (voxels), ascending: of the `representatives` at least the first of each
            owner, and `enough` of its others or all that it has

    Notes:
        Voxels are looked at whole or not at all: an eighth of them, those where an owner begins,
            and all of those that
        this leaves in doubt. So a representative is the same as among all. For three quarters less
        time.
    """
    keys = _keys(points, edge)
    if keys is None or not len(keys):
        return representatives(points, edge)
    wanted = np.zeros(1 << 16, bool)
    wanted[::_PART] = True
    wanted[_hashed(keys[first[first >= 0]], _ODD[-1], 16)] = True
    doubt = size < 2 * _PART * enough
    while True:
        if size[doubt].any():
            mine = np.concatenate([[False], doubt]).take(owner)
            wanted[_hashed(keys[mine], _ODD[-1], 16)] = True
        rows = _rows_in_bins(keys, wanted)
        kept: Array = rows[are_last(keys.take(rows[::-1]))[::-1]]
        found = np.bincount(owner.take(kept), minlength=len(size) + 1)[1:]
        there = np.zeros(len(keys) + 1, bool)
        there[kept] = True
        more = ~doubt & ((found < enough) | ~there[first])
        if not more.any():
            return kept
        doubt |= more


def _rows_in_bins(keys: Array, wanted: Array) -> Array:
    """Return the rows whose key is in one of the bins that are wanted, ascending."""
    found: Array = np.empty(len(keys), bool)
    for start in range(0, len(keys), _LONG):
        part = slice(start, start + _LONG)
        wanted.take(
            _hashed(keys[part], _ODD[-1], 16), out=found[part], mode="clip"
        )  # else it is copied first
    return np.flatnonzero(found)


def _hashed(keys: Array, odd: np.uint64, bits: int) -> Array:
    """Return so many bits of each key, stirred: intp (rows)."""
    plain = keys.view(f"u{keys.dtype.itemsize}")
    width = 8 * plain.dtype.itemsize
    found: Array = plain * plain.dtype.type(odd >> np.uint64(64 - width))
    found >>= plain.dtype.type(width - bits)
    return found.astype(np.intp)


def representatives(points: Array, edge: float) -> Array:
    """Return the rows that stand for the occupied voxels: of each voxel the lowest row, in ascending order.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        returns: int64 (voxels)

    Notes:
        As of `occupied`.
    """
    if len(points) == 0:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.ascontiguousarray(are_last(_reversed_keys(points, edge))[::-1]))
