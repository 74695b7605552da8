"""An object where its pose puts it: places that are to be near to it are drawn with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from datacheck.preview.numbers import Array, floats
from datacheck.rotation import matrices, wxyz
from datacheck.schema.model import FieldSpec, Schema


def beside(spec: FieldSpec, fields: Mapping[str, Any], schema: Schema) -> tuple[str, Array] | None:
    """Return the name and the points, float64 (points, 3), of what a field is to be near to.

    Args:
        spec: of the field; its ``near`` names points, or the position of a pose by which points are posed.
        fields: values of the sample by name.
        schema: as it is for the sample's split.

    Returns:
        None where the schema names nothing, or the sample has none of it in a shape that can be placed.
    """
    if spec.near is None:
        return None
    part = schema.part_of(spec.near)
    pose = part[0] if part else spec.near
    for name, told in schema.of_role("points"):
        points = fields.get(name)
        if not isinstance(points, np.ndarray) or points.ndim != 2 or points.shape[1:] != (3,):
            continue
        if name == spec.near:
            return name, floats(points)
        if told.posed_by == pose:
            motion = _motion(pose, fields.get(pose), schema)
            if motion is not None and np.isfinite(motion[0]).all():
                turn, place = motion
                return name, np.einsum("ij,pj->pi", turn, floats(points) * (told.scale or 1.0)) + place
    return None


def _motion(name: str, value: Any, schema: Schema) -> tuple[Array, Array] | None:
    """Return the rotation (3, 3) and the place (3) of a pose of place and quaternion, or of a matrix [4, 4]."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
        return None
    if value.shape == (4, 4):
        return floats(value[:3, :3]), floats(value[:3, 3])
    parts = {schema.spec(f"{name}.{part}").role: (part, columns) for part, columns in schema.parts(name).items()}
    if value.ndim != 1 or not {"position", "quaternion"} <= parts.keys():
        return None
    part, (first, stop) = parts["quaternion"]
    order = schema.spec(f"{name}.{part}").order
    start, end = parts["position"][1]
    if order is None or max(stop, end) > len(value):
        return None
    return matrices(wxyz(floats(value[first:stop]), order)[None])[0], floats(value[start:end])
