"""Where the positions of samples lie and what was subtracted from them: numbers from which causes are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.rules.base import Case, Columns, measure
from datacheck.rules.explain import logarithms
from datacheck.rules.measures import column_of, norms, place
from datacheck.sample import Block
from datacheck.schema.model import Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]


@measure("stored", per="sample", uses=("fields.centered_on", "fields.columns", "fields.role"))
def stored(block: Block, schema: Schema) -> Columns:
    """The centre that was subtracted, where a field says so (``centered_on``): ``<field>:stored`` (3), in its unit.

    Of points their centroid, else the first position.
    """
    found: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        other = schema.spec(spec.centered_on or "")
        column = column_of(block, schema, spec.centered_on) if spec.centered_on and name in block.fields else None
        there = {} if column is None else place.function(column, other)
        if there:
            centre = there["centroid" if other.role == "points" else "first"]
            assert isinstance(centre, Measured)
            found[f"{name}:stored"] = centre
    return dict(found)


@dataclass(frozen=True, eq=False)
class Placed:
    """The positions of each sample, as measured (`place`, `bones`, `near`).

    Shapes:
        box, away: float64 (rows), diagonal of the bounding box, distance from `origin`
        bone: float64 (rows) or None
        centre, origin: float64 (rows, 3), where they lie; what their distance is measured from

    Args:
        near: whether `origin` is the field that they are ``near``; else it is 0.
    """

    box: Array
    bone: Array | None
    away: Array
    centre: Array
    origin: Array
    near: bool

    @staticmethod
    def of(rows: Rows, case: Case) -> Placed:
        """Return those of the judged field."""
        spec, bone = case.spec, rows["bone"] if "bone" in rows else None  # noqa: SIM401  rows have no get
        centre = rows["first" if spec.role == "joints" else "centroid"]
        points = case.schema.spec(spec.near or "").role == "points"
        column = f"{spec.near}:{'centroid' if points else 'first'}"
        if spec.near and column in rows and f":{case.name}:near" in rows:
            return Placed(rows["box"], bone, rows[f":{case.name}:near"], centre, rows[column], near=True)
        away = rows["norm"] if "norm" in rows else norms(centre.T)
        return Placed(rows["box"], bone, away, centre, np.zeros((len(rows), 3)), near=False)

    def distance(self, by: float = 1.0, moved: Array | None = None) -> Array:
        """Return how far the positions are from `origin` once scaled and moved.

        Notes:
            Of several positions in a sample the median distance is known, and their centre: what is left between the
            two is their spread, which is the same share of the bounding box in all samples.
        """
        with np.errstate(all="ignore"):
            apart = np.sqrt(np.maximum(self.away**2 - norms((self.centre - self.origin).T) ** 2, 0)) / self.box
            share = np.clip(np.nanmedian(apart[np.isfinite(apart)]) if np.isfinite(apart).any() else 0.0, 0.0, 0.6)
        offset = norms((self.centre * by + (0.0 if moved is None else moved) - self.origin).T)
        return np.asarray(np.sqrt(offset**2 + (share * by * self.box) ** 2))

    def looks(self, by: float = 1.0, moved: Array | None = None) -> dict[str, Array]:
        """Return the logarithms of size, distance and bones once scaled and moved."""
        found = {"size": self.box * by, "distance": self.distance(by, moved)}
        found |= {} if self.bone is None else {"bone": self.bone * by}
        return {name: logarithms(values) for name, values in found.items()}
