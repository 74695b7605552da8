"""Voxel cells and their representatives, as training loaders compute them, in pure NumPy."""

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
    # Axis by axis it is many times faster.
    xyz = np.ascontiguousarray(np.asarray(points).T, dtype=np.float64)
    xyz = xyz - xyz.min(axis=1, keepdims=True)
    found: Array = np.floor(xyz / edge).astype(np.int64)
    return found.T


def occupied(points: Array, edge: float) -> tuple[Array, Array]:
    """Return the representative row of each occupied voxel, and the number of points in the voxel.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        returns: int64 (voxels): the lowest row of each voxel, ascending; int64 (voxels): points in
            the voxel

    Notes:
        Deterministic: ties go to the lowest row. The bits are the same on every CPU (unique integer
        keys).
    """
    last = _lasts_of(points, edge)
    counts = np.bincount(last, minlength=len(last))[::-1]
    rows = np.flatnonzero(counts)
    return rows, counts[rows]


def _lasts_of(points: Array, edge: float) -> Array:
    """Return for each point the last point of its voxel; both counted from the end."""
    return (
        last_rows(_reversed_keys(points, edge).astype(np.int64, copy=False))
        if len(points)
        else np.zeros(0, np.int64)
    )


def _reversed_keys(points: Array, edge: float) -> Array:
    """Return one number per point, last point first; points of one voxel have equal numbers."""
    keys = _keys(points, edge)
    return np.ascontiguousarray((_numbers(cells(points, edge)) if keys is None else keys)[::-1])


def _keys(points: Array, edge: float) -> Array | None:
    """Return one number per voxel, int32 or int64 (rows); None for a huge or non-finite extent."""
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
    places = np.empty(_LONG, np.float64)
    numbers = np.empty(_LONG, keys.dtype)
    for start in range(0, len(keys), _LONG):
        part = keys[start : start + _LONG]
        place = places[: len(part)]
        number = numbers[: len(part)]
        for i, (axis, low, size) in enumerate(zip(axes, lows, sizes, strict=True)):
            place[:] = axis[start : start + _LONG]
            place -= low
            place /= edge
            # Values are at least 0, so truncation equals floor.
            np.copyto(number if i else part, place, casting="unsafe")
            if i:
                part *= size
                part += number
    return keys


def _numbers(cell: Array) -> Array:
    """Return one number per voxel, int64 (rows), for any extent."""
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


_BAND = 1 << 20  # rows that share one hash table
_STRIP = 1 << 14  # rows whose work arrays stay in a core's cache
_LONG = 1 << 15  # such rows where fewer arrays are in use


def last_rows(keys: Array) -> Array:
    """Return for each row the last row with the same key.

    Shapes:
        keys: int64 or uint64 (rows)
        returns: int64 (rows)

    Notes:
        A hash table that stays in a core's cache is many times faster than sorting: every row
        writes its number into the slot of its key, and the last write stays. Rows that find another
        key in their slot retry with another hash.
    """
    keys = np.ascontiguousarray(keys).view(np.uint64)
    if len(keys) <= _BAND:
        return _hash_last_rows(keys)
    found = np.empty(len(keys), np.int64)
    for rows in _bands(keys):
        found[rows] = rows[_hash_last_rows(keys[rows])]
    return found


def are_last(keys: Array) -> Array:
    """Return for each row whether no later row has the same key.

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
    """Yield bands of rows by key, each small enough for a hash table that stays in the cache."""
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
    """Return for each row the last row with the same key, by sorting."""
    order = np.argsort(keys, kind="stable")
    along = keys[order]
    last = np.concatenate([along[1:] != along[:-1], np.ones(min(1, len(order)), bool)])
    found: Array = np.empty(len(order), np.int64)
    found[order] = order[last][np.cumsum(last) - last]
    return found


def _probe(keys: Array, odd: np.uint64) -> tuple[Array, Array, Array]:
    """Return for each row the last row in its hash slot, and the collisions.

    The second array lists the rows that are not the last row of their slot. The third tells which
    of these lost the slot to another key.

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
    other = np.flatnonzero(met != own)  # a row that is the last of its slot finds itself
    return met, other, keys.take(other) != keys.take(met.take(other))


_PART = 8  # owners with many points: evaluate one voxel in eight


def deciding_rows(
    points: Array, edge: float, owner: Array, size: Array, first: Array, enough: int
) -> Array:
    """Return enough representatives to decide each owner's first one and its count up to `enough`.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        owner: int (rows): the owner of each point, from 1; 0 for none
        size: int64 (owners): points of each owner
        first: int64 (owners): the lowest row of each owner, -1 for an owner without points
        returns: int64 (voxels), ascending: a subset of `representatives` with at least the first of
            each owner and `enough` of its others, or all of them

    Notes:
        Evaluates voxels whole or not at all: an eighth of all voxels, the voxels where an owner
        begins, and every voxel of owners that this leaves undecided. Representatives are therefore
        the same as in the full result, in a quarter of the time.
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
    """Return the rows whose key hashes to a wanted bin, ascending."""
    found: Array = np.empty(len(keys), bool)
    for start in range(0, len(keys), _LONG):
        part = slice(start, start + _LONG)
        # Without `mode="clip"`, `take` copies the output first.
        wanted.take(_hashed(keys[part], _ODD[-1], 16), out=found[part], mode="clip")
    return np.flatnonzero(found)


def _hashed(keys: Array, odd: np.uint64, bits: int) -> Array:
    """Return `bits` hashed bits of each key: intp (rows)."""
    plain = keys.view(f"u{keys.dtype.itemsize}")
    width = 8 * plain.dtype.itemsize
    found: Array = plain * plain.dtype.type(odd >> np.uint64(64 - width))
    found >>= plain.dtype.type(width - bits)
    return found.astype(np.intp)


def representatives(points: Array, edge: float) -> Array:
    """Return the lowest row of each occupied voxel, ascending.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        returns: int64 (voxels)

    Notes:
        As for `occupied`.
    """
    if len(points) == 0:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.ascontiguousarray(are_last(_reversed_keys(points, edge))[::-1]))
