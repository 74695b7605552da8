"""Voxel cells and their representatives, as training loaders compute them: pure NumPy, used by rules and transforms."""

from __future__ import annotations

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
    xyz = np.ascontiguousarray(np.asarray(points).T, dtype=np.float64)  # axis by axis it is many times faster
    xyz = xyz - xyz.min(axis=1, keepdims=True)
    found: Array = np.floor(xyz / edge).astype(np.int64)
    return found.T


def occupied(points: Array, edge: float) -> tuple[Array, Array]:
    """Return the rows that stand for the occupied voxels, and how many points each of these voxels holds.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        returns: int64 (voxels): of each voxel its lowest row, in ascending order; int64 (voxels): points in it

    Notes:
        Deterministic: ties go to the lowest row; the same bits on every CPU (integer keys, none twice).
    """
    last = _lasts_of(points, edge)
    counts = np.bincount(last, minlength=len(last))[::-1]
    rows = np.flatnonzero(counts)
    return rows, counts[rows]


def _lasts_of(points: Array, edge: float) -> Array:
    """Return of each point, counted from the end, the last one in its voxel, counted from the end."""
    if len(points) == 0:
        return np.zeros(0, np.int64)
    keys = _keys(points, edge)
    return lasts((_numbers(cells(points, edge)) if keys is None else keys)[::-1])


def _keys(points: Array, edge: float) -> Array | None:
    """Return one number per voxel, int64 (rows); None where the extent is too large for that, or not finite."""
    keys: Array | None = None
    room = 1 << 62
    for axis in np.asarray(points).T:
        place = axis.astype(np.float64)
        place -= place.min()
        place /= edge
        top = float(place.max())
        if not top < room:
            return None
        size = int(top) + 1
        room //= size
        cell = place.astype(np.int64)  # not below 0, so cutting the fraction off is the floor
        if keys is None:
            keys = cell
        else:
            keys *= size
            keys += cell
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
    for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
)


_BAND = 1 << 20  # rows that are looked at together


def lasts(keys: Array) -> Array:
    """Return of each row the last row with the same key.

    Shapes:
        keys: int64 or uint64 (rows)
        returns: int64 (rows)

    Notes:
        A table of slots that stays in a core's cache is many times faster than sorting: all rows write their number
        into the slot of their key, and the last one stays. Rows that find another key there try again elsewhere.
    """
    keys = np.ascontiguousarray(keys).view(np.uint64)
    if len(keys) <= _BAND:
        return _lasts(keys)
    found = np.empty(len(keys), np.int64)
    bands = -(-len(keys) // _BAND)
    band = ((keys * _ODD[-1]) >> np.uint64(48)).astype(np.uint16) % np.uint16(bands)
    for number in range(bands):  # many small tables stay in the cache, one large one would not
        rows = np.flatnonzero(band == number)
        found[rows] = rows[_lasts(keys[rows])]
    return found


def _lasts(keys: Array) -> Array:
    found, rows = _met(keys, _ODD[0])
    for odd in _ODD[1:]:
        if not len(rows):
            return found
        met, lost = _met(keys[rows], odd)
        found[rows] = rows[met]
        rows = rows[lost]
    if len(rows):
        order = np.argsort(keys[rows], kind="stable")
        along = keys[rows][order]
        last = np.concatenate([along[1:] != along[:-1], [True]])
        found[rows[order]] = rows[order][last][np.cumsum(last) - last]
    return found


def _met(keys: Array, odd: np.uint64) -> tuple[Array, Array]:
    """Return of each row the last row whose key has the same slot, and the rows for which that is another key."""
    bits = max(8, (4 * len(keys)).bit_length())
    slot = ((keys * odd) >> np.uint64(64 - bits)).view(np.int64)
    own: Array = np.arange(len(keys), dtype=np.int32 if len(keys) < 1 << 31 else np.int64)
    table = np.empty(1 << bits, own.dtype)
    table[slot] = own
    met = table.take(slot)
    other = np.flatnonzero(met != own)  # of the rest the last row is themselves
    last: Array = met.astype(np.int64)
    return last, other[keys.take(other) != keys.take(last.take(other))]


def representatives(points: Array, edge: float) -> Array:
    """Return the rows that stand for the occupied voxels: of each voxel the lowest row, in ascending order.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        returns: int64 (voxels)

    Notes:
        As of `occupied`.
    """
    last = _lasts_of(points, edge)
    return len(last) - 1 - np.flatnonzero(last == np.arange(len(last)))[::-1]
