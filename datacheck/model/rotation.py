"""Rotations and rigid motions in plain NumPy: quaternions, matrices, poses."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def wxyz(quaternions: Array, order: str) -> Array:
    """Return quaternions with the scalar first.

    Shapes:
        quaternions: float (..., 4)

    Args:
        order: "wxyz" or "xyzw", how they are stored.
    """
    return np.roll(quaternions, 1, axis=-1) if order == "xyzw" else quaternions


def matrices(quaternions: Array) -> Array:
    """Return the rotation matrices of quaternions, which need not have unit length.

    Shapes:
        quaternions: float (rows, 4), scalar first
        returns: float64 (rows, 3, 3); NaN for a zero quaternion
    """
    q = quaternions.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        w, x, y, z = (q / np.sqrt(np.einsum("ij,ij->i", q, q))[:, None]).T
    out = np.empty((len(q), 3, 3))
    out[:, 0] = np.stack(
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], axis=1
    )
    out[:, 1] = np.stack(
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], axis=1
    )
    out[:, 2] = np.stack(
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], axis=1
    )
    return out


def inverse(transforms: Array) -> Array:
    """Return the inverses of rigid motions.

    Shapes:
        transforms: float (rows, 4, 4), rotation and translation
    """
    turned = np.swapaxes(transforms[:, :3, :3], 1, 2)
    out = np.zeros_like(transforms)
    out[:, :3, :3] = turned
    out[:, :3, 3] = -np.einsum("nij,nj->ni", turned, transforms[:, :3, 3])
    out[:, 3, 3] = 1.0
    return out


def transformed(points: Array, transforms: Array, counts: Array) -> Array:
    """Return points moved by their sample's rigid motion.

    Shapes:
        points: float (3, rows), coordinates first
        transforms: float (samples, 4, 4)
        counts: int64 (samples): how many of the points belong to each
        returns: float64 (3, rows)
    """
    out = np.empty((3, points.shape[1]))
    stops = np.cumsum(counts)
    for matrix, start, stop in zip(transforms, stops - counts, stops, strict=True):
        out[:, start:stop] = matrix[:3, :3] @ points[:, start:stop] + matrix[:3, 3:]
    return out
