"""Rotations as arrays: quaternion order and norm, SO(3) residual. Pure NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def quaternion_error(quaternions: Array) -> Array:
    """Return how far each quaternion is from unit norm.

    Shapes:
        quaternions: float (rows, 4), either order
        returns: float64 (rows): | |q| - 1 |; NaN where a component is NaN
    """
    q = np.asarray(quaternions, dtype=np.float64)
    error: Array = np.abs(np.sqrt(np.einsum("...i,...i->...", q, q)) - 1.0)
    return error


def rotation_error(matrices: Array) -> Array:
    """Return how far each 3x3 block is from a proper rotation.

    Shapes:
        matrices: float (rows, 3 or 4, 3 or 4); of a 4x4 the upper left block
        returns: float64 (rows): max |R^T R - I|, and 2 where the determinant is negative
    """
    r = np.asarray(matrices, dtype=np.float64)[..., :3, :3]
    gram = np.einsum("...ji,...jk->...ik", r, r)
    error = np.abs(gram - np.eye(3)).max(axis=(-2, -1))
    determinant = np.einsum("...i,...i->...", r[..., 0], np.cross(r[..., 1], r[..., 2]))
    found: Array = np.where(determinant < 0, np.maximum(error, 2.0), error)
    return found
