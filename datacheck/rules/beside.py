"""How far, and in which direction, positions are from what they are to be near to."""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.rules.base import Columns, measure
from datacheck.rules.measures import column_of, norms, place, positions, quantile
from datacheck.sample import Block
from datacheck.schema.model import FieldSpec, Schema
from datacheck.table import Measured

Array = np.ndarray[Any, Any]

_UP = {"camera_opengl": "y", "camera_opencv": "-y"}  # of frames that say which way is up
APPROACHES = 20  # bins of a cosine


def up_of(spec: FieldSpec) -> str | None:
    """Return which axis points up for what a field holds ("-y"), None where its declaration does not say."""
    return spec.up or _UP.get(spec.frame or "")


def _up_beside(schema: Schema, name: str) -> str | None:
    """Return which axis points up where a field lies: as it says, or a cloud that its pose puts there (z: it rests)."""
    pose = (schema.part_of(name) or (name,))[0]
    posed = [told for _, told in schema.of_role("points") if told.posed_by == pose]
    said = (up_of(schema.spec(name)), *(told.up or ("z" if told.rests else None) for told in posed))
    return next(filter(None, said), None)


@measure("near", version=2, per="sample", uses=(
    "fields.near", "fields.columns", "fields.role", "fields.posed_by", "fields.up", "fields.frame", "fields.rests",
))  # fmt: skip
def near(block: Block, schema: Schema) -> Columns:
    """Distance from what a field says it is ``near`` to: ``<field>:near``, median over the rows, in the field's unit.

    The other field's position is its first one; of points their centroid. ``<field>:approach``: how many positions or
    poses there are in which direction from that, `APPROACHES` bins from -1 to 1 of the cosine between the way there and
    up (-1: from above), where the schema says which way is up.
    """
    found: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        mine = column_of(block, schema, name) if spec.near and spec.role != "depth" else None
        other = column_of(block, schema, spec.near or "") if mine is not None else None
        here = None if mine is None else positions(mine)
        there = None if other is None else place.function(other, schema.spec(spec.near or ""))
        if here is None or not there:
            continue
        centre = there["centroid" if schema.spec(spec.near or "").role == "points" else "first"]
        assert isinstance(centre, Measured)
        xyz, lengths = here
        count = np.ones(len(block), np.int64) if lengths is None else lengths
        away = xyz - np.repeat(centre.values, count, axis=0).T
        length, known = norms(away), centre.present & (count > 0)
        found[f"{name}:near"] = Measured(quantile(length, count, 0.5), known)
        up = _up_beside(schema, spec.near or "") if spec.role in {"position", "pose"} else None
        if up is not None:
            height = away["xyz".index(up[-1])] * (-1.0 if up.startswith("-") else 1.0)
            found[f"{name}:approach"] = Measured(_approaches(-height / length, count), known)
    return dict(found)


def _approaches(cosine: Array, count: Array) -> Array:
    """Return how many rows of each sample are in each bin of a cosine; those that are not finite in none."""
    owner, finite = np.repeat(np.arange(len(count)), count), np.isfinite(cosine)
    places = np.clip((cosine[finite] + 1) * (APPROACHES / 2), 0, APPROACHES - 1).astype(np.int64)
    many = np.bincount(owner[finite] * APPROACHES + places, minlength=len(count) * APPROACHES)
    return many.reshape(len(count), APPROACHES)
