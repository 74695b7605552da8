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
    voxels: Array = np.floor(xyz / edge).astype(np.int64)
    return voxels.T


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
    numbers_left = 1 << 62
    for axis, low in zip(axes, lows, strict=True):
        top = (float(axis.max()) - low) / edge
        if not top < numbers_left:
            return None
        sizes.append(int(top) + 1)
        numbers_left //= sizes[-1]
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
    sorted_cells = cell[order]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(
        np.concatenate([[False], (sorted_cells[1:] != sorted_cells[:-1]).any(axis=1)])
    )
    return numbers


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
    result = np.empty(len(keys), np.int64)
    for rows in _bands(keys):
        result[rows] = rows[_hash_last_rows(keys[rows])]
    return result


def are_last(keys: Array) -> Array:
    """Return for each row whether no later row has the same key.

    Shapes:
        keys: int32, uint32, int64 or uint64 (rows)
        returns: bool (rows)
    """
    keys = np.ascontiguousarray(keys).view(f"u{keys.dtype.itemsize}")
    if len(keys) <= _BAND:
        return _hash_are_last(keys)
    is_last = np.empty(len(keys), bool)
    for rows in _bands(keys):
        is_last[rows] = _hash_are_last(keys[rows])
    return is_last


def _bands(keys: Array) -> Iterator[Array]:
    """Yield bands of rows by key, each small enough for a hash table that stays in the cache."""
    band_count = -(-len(keys) // _BAND)
    band_numbers = ((keys.astype(np.uint64, copy=False) * _ODD[-1]) >> np.uint64(48)).astype(
        np.uint16
    ) % np.uint16(band_count)
    return (np.flatnonzero(band_numbers == number) for number in range(band_count))


def _hash_last_rows(keys: Array) -> Array:
    slot_rows, earlier, collided = _probe(keys, _ODD[0])
    result: Array = slot_rows.astype(np.int64)
    rows = earlier[collided]
    for multiplier in _ODD[1:]:
        if not len(rows):
            return result
        slot_rows, earlier, collided = _probe(keys[rows], multiplier)
        result[rows] = rows[slot_rows]
        rows = rows[earlier[collided]]
    result[rows] = rows[_sort_last_rows(keys[rows])]
    return result


def _hash_are_last(keys: Array) -> Array:
    _, earlier, collided = _probe(keys, _ODD[0])
    is_last: Array = np.ones(len(keys), bool)
    is_last[earlier] = False
    rows = earlier[collided]
    for multiplier in _ODD[1:]:
        if not len(rows):
            return is_last
        _, earlier, collided = _probe(keys[rows], multiplier)
        is_last[rows] = True
        is_last[rows[earlier]] = False
        rows = rows[earlier[collided]]
    is_last[rows] = _sort_last_rows(keys[rows]) == np.arange(len(rows))
    return is_last


def _sort_last_rows(keys: Array) -> Array:
    """Return for each row the last row with the same key, by sorting."""
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    is_last = np.concatenate(
        [sorted_keys[1:] != sorted_keys[:-1], np.ones(min(1, len(order)), bool)]
    )
    result: Array = np.empty(len(order), np.int64)
    result[order] = order[is_last][np.cumsum(is_last) - is_last]
    return result


def _probe(keys: Array, multiplier: np.uint64) -> tuple[Array, Array, Array]:
    """Return for each row the last row in its hash slot, and the collisions.

    The second array lists the rows that are not the last row of their slot. The third tells which
    of these lost the slot to another key.

    Shapes:
        keys: uint32 or uint64 (rows)
        returns: int32 or int64 (rows); int64 (others); bool (others)
    """
    bits = max(8, (2 * len(keys)).bit_length())
    rows: Array = np.arange(len(keys), dtype=np.int32 if len(keys) < 1 << 31 else np.int64)
    table: Array = np.empty(1 << bits, rows.dtype)
    slot_rows: Array = np.empty(len(keys), rows.dtype)
    strips = [slice(start, start + _STRIP) for start in range(0, len(keys), _STRIP)]
    for strip in strips:
        table[_hashed(keys[strip], multiplier, bits)] = rows[strip]
    for strip in strips:
        slot_rows[strip] = table.take(_hashed(keys[strip], multiplier, bits))
    earlier = np.flatnonzero(slot_rows != rows)  # a row that is the last of its slot finds itself
    return slot_rows, earlier, keys.take(earlier) != keys.take(slot_rows.take(earlier))


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
    wanted_bins = np.zeros(1 << 16, bool)
    wanted_bins[::_PART] = True
    wanted_bins[_hashed(keys[first[first >= 0]], _ODD[-1], 16)] = True
    doubt = size < 2 * _PART * enough
    while True:
        if size[doubt].any():
            doubtful = np.concatenate([[False], doubt]).take(owner)
            wanted_bins[_hashed(keys[doubtful], _ODD[-1], 16)] = True
        rows = _rows_in_bins(keys, wanted_bins)
        kept_rows: Array = rows[are_last(keys.take(rows[::-1]))[::-1]]
        counts = np.bincount(owner.take(kept_rows), minlength=len(size) + 1)[1:]
        is_kept = np.zeros(len(keys) + 1, bool)
        is_kept[kept_rows] = True
        new_doubt = ~doubt & ((counts < enough) | ~is_kept[first])
        if not new_doubt.any():
            return kept_rows
        doubt |= new_doubt


def _rows_in_bins(keys: Array, wanted_bins: Array) -> Array:
    """Return the rows whose key hashes to a wanted bin, ascending."""
    is_wanted: Array = np.empty(len(keys), bool)
    for start in range(0, len(keys), _LONG):
        part = slice(start, start + _LONG)
        # Without `mode="clip"`, `take` copies the output first.
        wanted_bins.take(_hashed(keys[part], _ODD[-1], 16), out=is_wanted[part], mode="clip")
    return np.flatnonzero(is_wanted)


def _hashed(keys: Array, multiplier: np.uint64, bits: int) -> Array:
    """Return `bits` hashed bits of each key: intp (rows)."""
    plain = keys.view(f"u{keys.dtype.itemsize}")
    width = 8 * plain.dtype.itemsize
    hashes: Array = plain * plain.dtype.type(multiplier >> np.uint64(64 - width))
    hashes >>= plain.dtype.type(width - bits)
    return hashes.astype(np.intp)


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
