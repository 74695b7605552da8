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
    cell = cells(points, edge)
    if len(cell) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    size = cell.max(axis=0) + 1
    bits = len(cell).bit_length()
    if float(size[0]) * float(size[1]) * float(size[2]) < 2.0 ** (62 - bits):
        keys = (cell[:, 0] * size[1] + cell[:, 1]) * size[2] + cell[:, 2]
        ordered = np.sort((keys << bits) | np.arange(len(keys)))  # all different, so any sort gives the same
        order, key = ordered & ((1 << bits) - 1), ordered >> bits
        first = np.concatenate([[True], key[1:] != key[:-1]])
    else:  # a huge extent would overflow one integer
        order = np.lexsort((cell[:, 2], cell[:, 1], cell[:, 0]))
        along = cell[order]
        first = np.concatenate([[True], (along[1:] != along[:-1]).any(axis=1)])
    counts = np.zeros(len(cell), np.int64)
    counts[order[first]] = np.diff(np.append(np.flatnonzero(first), len(order)))
    rows = np.flatnonzero(counts)
    return rows, counts[rows]


def representatives(points: Array, edge: float) -> Array:
    """Return the rows that stand for the occupied voxels: of each voxel the lowest row, in ascending order.

    Shapes:
        points: float (rows, 3) [unit of `edge`]
        returns: int64 (voxels)

    Notes:
        As of `occupied`.
    """
    return occupied(points, edge)[0]
