"""Distances within skeletons, of single ones and of sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.rules.base import Case, Columns, measure
from datacheck.rules.measures import is_numeric, leaf, norms
from datacheck.rules.skeletons import SKELETONS, Skeleton
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.schema.units import factor
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]


def skeleton_of(spec: FieldSpec) -> Skeleton | None:
    """Return the skeleton that a field declares, None where it declares none that is known."""
    return SKELETONS.get(spec.skeleton or "")


@measure("bones", version=2, applies=lambda spec: leaf(spec) and skeleton_of(spec) is not None, uses=("skeleton",))
def bones(column: Column, spec: FieldSpec) -> Columns:
    """Distances within a skeleton, in the field's unit.

    `pairs`: float32, at most 64: the bones first, then what other joint orders take for bones; `bone`: median of the
    bones. Of a sequence they are medians over its `moments`; `sway` (as `pairs`) are their standard deviations,
    `strain` how far each bone is from the median at most. Samples that are no whole skeletons have no row.
    """
    skeleton = skeleton_of(spec)
    if skeleton is None or not is_numeric(column) or column.lengths is None:
        return {}
    joints, inner, size = skeleton.joints, len(skeleton.bones), column.values.shape[1:]
    if size == (3,):
        whole = column.lengths == joints
        rows = column.values[np.repeat(whole, column.lengths)]
        found = {"pairs": _apart(rows.reshape(-1, joints, 3), skeleton)}
    elif size == (joints, 3):
        whole = column.lengths > 0
        each = [_apart(column[i], skeleton) for i in np.flatnonzero(whole).tolist()]
        empty = np.zeros((0, len(skeleton.pairs)))
        found = {
            "pairs": np.stack([np.median(one, axis=0) for one in each]) if each else empty,
            "sway": np.stack([one.std(axis=0) for one in each]) if each else empty,
            "strain": np.stack([_strain(one[:, :inner]) for one in each]) if each else empty[:, :inner],
            "moments": column.lengths[whole],
        }
    else:
        return {}
    found["bone"] = np.median(found["pairs"][:, :inner].astype(np.float32), axis=1).astype(np.float64)
    return {name: _spread(values, whole) for name, values in found.items()}


def _apart(skeletons: Array, skeleton: Skeleton) -> Array:
    """Return the distances of all pairs, float64 (skeletons, pairs)."""
    start, stop = np.array(skeleton.pairs).T
    xyz = np.ascontiguousarray(skeletons.transpose(2, 1, 0), dtype=np.float64)
    return norms(xyz[:, stop] - xyz[:, start]).T


def _strain(lengths: Array) -> Array:
    """Return how far each bone (steps, bones) is from its median in any step."""
    found: Array = np.abs(lengths - np.median(lengths, axis=0)).max(axis=0)
    return found


def _spread(values: Array, whole: Array) -> Measured:
    """Return values of those samples that have any."""
    out = np.zeros((len(whole), *values.shape[1:]), np.float32 if values.ndim > 1 else values.dtype)
    out[whole] = values
    return Measured(out, whole)


@dataclass(frozen=True, eq=False)
class Apart:
    """How far joints are apart, in metres.

    Shapes:
        lengths: float64 (rows, pairs), of sequences their medians over the steps
        sway: float64 (rows, pairs), their standard deviations over the steps; 0 of single skeletons
        strain: float64 (rows, bones), the farthest from the median in a step; 0 of single skeletons
        steps: int64 (rows), of single skeletons 1
    """

    lengths: Array
    sway: Array
    strain: Array
    steps: Array

    @staticmethod
    def of(rows: Rows, case: Case, skeleton: Skeleton) -> Apart:
        """Return the distances of all pairs of a skeleton."""

        def metres(name: str, many: int) -> Array:
            unit = factor(case.spec.unit or "m")
            return (
                rows[name][:, :many].astype(np.float64) * unit
                if name in rows
                else np.broadcast_to(0.0, (len(rows), many))
            )

        pairs, inner = len(skeleton.pairs), len(skeleton.bones)
        steps = np.ones(len(rows), np.int64)
        if "moments" in rows:
            steps = np.where(rows.measured("moments"), rows["moments"], steps)
        return Apart(metres("pairs", pairs), metres("sway", pairs), metres("strain", inner), steps)

    def at(self, places: Array) -> Apart:
        """Return those of some rows."""
        return Apart(self.lengths[places], self.sway[places], self.strain[places], self.steps[places])

    @property
    def spread(self) -> Array:
        """Standard deviation of each pair within sequences, of single skeletons over all of them: float64 (pairs)."""
        inner = self.steps > 1
        if inner.any():
            return np.sqrt(np.average(self.sway[inner] ** 2, axis=0, weights=self.steps[inner]))
        return np.asarray(self.lengths.std(axis=0))
