"""Joints where their camera sees them, by what the schema says of camera, frame and image."""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.preview.numbers import Array, UnfitError, shown
from datacheck.preview.skeleton import pose
from datacheck.rules.base import counted
from datacheck.rules.projection import FRAMES, READINGS, Signs, cameras, inside
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec

_FAR = 1e5  # pixels from the image's middle: what lies beyond is drawn there, in the same direction


def projection(value: Array, camera: object, spec: FieldSpec) -> dict[str, Any]:
    """Return where the joints of one moment lie in the image of their camera; of several that of the middle one.

    Shapes:
        value: number, as of `skeleton`, in the frame of `spec` and any unit
        camera: number (4), (3, 3), (3, 4), (4, 4): fx, fy, cx, cy [px]; or several: one for each moment, else the
            first is taken

    Args:
        spec: of the joints, with ``frame``, ``intrinsics`` and ``image_size``.

    Returns:
        ``pixels`` of each joint, None where it is not in front of the camera or not finite; and where fewer than half
        of the finite joints are in the image and other signs of the axes bring more than half there, ``other``.

    Raises:
        UnfitError: it has no finite joint, there is no finite camera of positive focal lengths, or either is of another
            shape.
    """
    found = pose(value, spec.skeleton)
    joints = np.where(found.finite[:, None], found.joints, np.nan)
    lens = _lens(camera, spec.intrinsics or "", len(value) if found.moment else 1)
    frame, size = spec.frame or "", spec.image_size or (0, 0)
    own = FRAMES[frame]
    seen = inside(joints.T, lens, size)
    within = {signs: int(mask.sum()) for signs, mask in zip(READINGS, seen, strict=True)}
    other = max(READINGS, key=lambda signs: (within[signs], signs in FRAMES.values()))
    count, unseen = int(found.finite.sum()), int((own[2] * joints[:, 2] <= 0).sum())
    said = [f"{within[own]:,} of {counted(count, 'joint')} within {size[0]:,} x {size[1]:,} pixels"]
    if found.moment:
        said.insert(0, found.moment)
    if unseen:
        said.append(f"{unseen:,} not in front of the camera")
    if count < len(joints):
        said.append(f"{len(joints) - count:,} not finite")
    said.append(f"by {spec.intrinsics} and {frame}")
    made: dict[str, Any] = {
        "kind": "projection", "size": [*size], "pixels": _drawn(joints, lens, size, own), "chains": found.chains,
        "other": None,
    }  # fmt: skip
    if 2 * within[own] < count < 2 * within[other]:
        name = _turned(own, other)
        made["other"] = {"name": name, "pixels": _drawn(joints, lens, size, other)}
        said.append(f"{name} {within[other]:,} would be")
    return made | {"about": f"Projected: {'; '.join(said)}."}


def _lens(camera: object, name: str, steps: int) -> Array:
    """Return fx, fy, cx, cy, of as many cameras as steps those of the middle one."""
    if isinstance(camera, np.ndarray) and camera.ndim and camera.dtype.kind in "iuf":
        found, known = cameras(Column(camera, np.array([len(camera)])), step=steps // 2, steps=steps)
        if known.all() and (found[0, :2] > 0).all():
            return np.asarray(found[0])
        if known.all():
            msg = f"has a camera in {name} of focal lengths {' and '.join(map(shown, found[0, :2]))}, not above 0"
            raise UnfitError(msg)
    msg = f"has no finite camera in {name}"
    raise UnfitError(msg)


def _drawn(joints: Array, lens: Array, size: tuple[int, int], signs: Signs) -> list[list[float] | None]:
    """Return the pixels of joints, None where one is not in front of the camera."""
    (fx, fy, cx, cy), (x, y, z), middle = lens, (joints * signs).T, np.array(size) / 2
    away = np.stack([cx + fx * x / z, cy + fy * y / z], axis=1) - middle
    near = (middle + away / np.maximum(np.abs(away).max(axis=1, keepdims=True) / _FAR, 1)).round(1)
    known = (z > 0) & np.isfinite(away).all(axis=1)
    return [place if fine else None for place, fine in zip(near.tolist(), known, strict=True)]


def _turned(own: Signs, other: Signs) -> str:
    """Return by what name the reader knows other axes: of a frame, or which of them are reversed."""
    frame = next((name for name, signs in FRAMES.items() if signs == other), "")
    axes = [axis for axis, a, b in zip("xyz", own, other, strict=True) if a != b]
    return f"as {frame}" if frame else f"with {' and '.join(axes)} reversed"
