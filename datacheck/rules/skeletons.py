"""Known skeletons: joint orders and bone lengths (``skeleton: mano21_ho3d``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from datacheck.model.sample import Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import Columns, RuleContext, measure
from datacheck.rules.measures import is_numeric, leaf, norms
from datacheck.schema.grammar import factor
from datacheck.schema.model import FieldSpec

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Skeleton:
    """A hand of one root and chains of joints.

    Args:
        name: as in schemas.
        chains: the joints of each finger from the root to the tip.
        lengths: the bone lengths of each finger from the root on [m], of an average hand.
    """

    name: str
    chains: Mapping[str, tuple[int, ...]]
    lengths: Mapping[str, tuple[float, ...]]

    @cached_property
    def joints(self) -> int:
        """Number of joints."""
        return 1 + max(j for chain in self.chains.values() for j in chain)

    @cached_property
    def bones(self) -> tuple[Pair, ...]:
        """(parent, child) of every bone, chain by chain."""
        return tuple(pair for chain in self.chains.values() for pair in pairwise(chain))

    @cached_property
    def bone_names(self) -> tuple[str, ...]:
        """Name of every bone: finger and number from the root."""
        return tuple(
            f"{finger} {i + 1}"
            for finger, chain in self.chains.items()
            for i in range(len(chain) - 1)
        )

    @cached_property
    def table(self) -> tuple[float, ...]:
        """Average length of every bone [m]."""
        return tuple(length for finger in self.chains for length in self.lengths[finger])

    @cached_property
    def median(self) -> float:
        """Median of the average bone lengths [m]."""
        ordered = sorted(self.table)
        return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2

    @cached_property
    def ends(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(last joints before the tips, tips), finger by finger."""
        return tuple(c[-2] for c in self.chains.values()), tuple(
            c[-1] for c in self.chains.values()
        )

    @cached_property
    def others(self) -> tuple[Skeleton, ...]:
        """Other known orders of the same joints."""
        return tuple(
            s for s in SKELETONS.values() if s.joints == self.joints and s.name != self.name
        )

    def taken_from(self, other: Skeleton) -> tuple[int, ...]:
        """Return the position of each joint of this order in another one."""
        places = [0] * self.joints
        for finger, chain in self.chains.items():
            for mine, theirs in zip(chain, other.chains[finger], strict=True):
                places[mine] = theirs
        return tuple(places)

    def swap(self, a: str, b: str) -> tuple[int, ...]:
        """Return the joints with two fingers exchanged, except for the root."""
        places = list(range(self.joints))
        for joint, other_joint in zip(self.chains[a][1:], self.chains[b][1:], strict=True):
            places[joint], places[other_joint] = other_joint, joint
        return tuple(places)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Pairs of joints whose distances distinguish orders.

        The bones come first, then the pairs that are bones in other orders.
        """
        lasts, tips = self.ends
        wanted = [*self.bones, *((last, tip) for last in lasts for tip in tips)]
        wanted += [pair for other in self.others for pair in other.bones]
        return tuple(dict.fromkeys(wanted))


# Mean-shape MANO hand, measured; facts, not the model.
_MANO = {
    "index": (0.0906, 0.0330, 0.0222, 0.0255),
    "middle": (0.0947, 0.0317, 0.0233, 0.0263),
    "pinky": (0.0818, 0.0211, 0.0189, 0.0200),
    "ring": (0.0861, 0.0288, 0.0248, 0.0258),
    "thumb": (0.0386, 0.0308, 0.0271, 0.0354),
}

_HO3D = {
    "index": (0, 1, 2, 3, 17),
    "middle": (0, 4, 5, 6, 18),
    "pinky": (0, 7, 8, 9, 20),
    "ring": (0, 10, 11, 12, 19),
    "thumb": (0, 13, 14, 15, 16),
}
# Fingers in the order of their chains.
_TIPS_LAST = {"index": 16, "middle": 17, "pinky": 18, "ring": 19, "thumb": 20}
_OPENPOSE = {
    "thumb": (0, 1, 2, 3, 4),
    "index": (0, 5, 6, 7, 8),
    "middle": (0, 9, 10, 11, 12),
    "ring": (0, 13, 14, 15, 16),
    "pinky": (0, 17, 18, 19, 20),
}

SKELETONS: dict[str, Skeleton] = {
    "mano21_ho3d": Skeleton("mano21_ho3d", _HO3D, _MANO),
    "mano21": Skeleton("mano21", {f: (*c[:-1], _TIPS_LAST[f]) for f, c in _HO3D.items()}, _MANO),
    "mano21_openpose": Skeleton("mano21_openpose", _OPENPOSE, _MANO),
}


Array = np.ndarray[Any, Any]


def skeleton_of(spec: FieldSpec) -> Skeleton | None:
    """Return the skeleton that a field declares, None without a known one."""
    return SKELETONS.get(spec.skeleton or "")


@measure(
    "bones",
    version=2,
    applies=lambda spec: leaf(spec) and skeleton_of(spec) is not None,
    uses=("skeleton",),
)
def bones(column: Column, spec: FieldSpec) -> Columns:
    """Distances within a skeleton, in the field's unit.

    `pairs`: float32, at most 64: the bones first, then the pairs that are bones in other joint
    orders; `bone`: median of the bones. In a sequence they are medians over its `moments`; `sway`
    (as `pairs`) are their standard deviations, `strain` the largest deviation of each bone from its
    median. Samples that are no whole skeletons have no row.
    """
    skeleton = skeleton_of(spec)
    if skeleton is None or not is_numeric(column) or column.lengths is None:
        return {}
    joints = skeleton.joints
    inner = len(skeleton.bones)
    size = column.values.shape[1:]
    if size == (3,):
        whole = column.lengths == joints
        rows = column.values[np.repeat(whole, column.lengths)]
        quantities = {"pairs": _pair_distances(rows.reshape(-1, joints, 3), skeleton)}
    elif size == (joints, 3):
        whole = column.lengths > 0
        each = [_pair_distances(column[i], skeleton) for i in np.flatnonzero(whole).tolist()]
        empty = np.zeros((0, len(skeleton.pairs)))
        quantities = {
            "pairs": np.stack([np.median(distances, axis=0) for distances in each])
            if each
            else empty,
            "sway": np.stack([distances.std(axis=0) for distances in each]) if each else empty,
            "strain": np.stack([_strain(distances[:, :inner]) for distances in each])
            if each
            else empty[:, :inner],
            "moments": column.lengths[whole],
        }
    else:
        return {}
    quantities["bone"] = np.median(
        quantities["pairs"][:, :inner].astype(np.float32), axis=1
    ).astype(np.float64)
    return {name: _spread(values, whole) for name, values in quantities.items()}


def _pair_distances(skeletons: Array, skeleton: Skeleton) -> Array:
    """Return the distances of all pairs, float64 (skeletons, pairs)."""
    start, stop = np.array(skeleton.pairs).T
    xyz = np.ascontiguousarray(skeletons.transpose(2, 1, 0), dtype=np.float64)
    return norms(xyz[:, stop] - xyz[:, start]).T


def _strain(lengths: Array) -> Array:
    """Return the largest deviation of each bone (steps, bones) from its median in any step."""
    deviations: Array = np.abs(lengths - np.median(lengths, axis=0)).max(axis=0)
    return deviations


def _spread(values: Array, whole: Array) -> Measured:
    """Return the values of complete samples as a column over all samples."""
    out = np.zeros((len(whole), *values.shape[1:]), np.float32 if values.ndim > 1 else values.dtype)
    out[whole] = values
    return Measured(out, whole)


@dataclass(frozen=True, eq=False)
class JointDistances:
    """Distances between joints, in metres.

    Shapes:
        lengths: float64 (rows, pairs), for sequences their medians over the steps
        sway: float64 (rows, pairs), their standard deviations over the steps; 0 for single
            skeletons
        strain: float64 (rows, bones), the largest deviation from the median; 0 for single skeletons
        steps: int64 (rows), 1 for single skeletons
    """

    lengths: Array
    sway: Array
    strain: Array
    steps: Array

    @staticmethod
    def of(rows: Rows, case: RuleContext, skeleton: Skeleton) -> JointDistances:
        """Return the distances of all pairs of a skeleton."""

        def metres(name: str, many: int) -> Array:
            unit = factor(case.spec.unit or "m")
            return (
                rows[name][:, :many].astype(np.float64) * unit
                if name in rows
                else np.broadcast_to(0.0, (len(rows), many))
            )

        pairs = len(skeleton.pairs)
        inner = len(skeleton.bones)
        steps = np.ones(len(rows), np.int64)
        if "moments" in rows:
            steps = np.where(rows.measured("moments"), rows["moments"], steps)
        return JointDistances(
            metres("pairs", pairs), metres("sway", pairs), metres("strain", inner), steps
        )

    def at(self, places: Array) -> JointDistances:
        """Return the distances of some rows."""
        return JointDistances(
            self.lengths[places], self.sway[places], self.strain[places], self.steps[places]
        )

    @property
    def spread(self) -> Array:
        """Standard deviation of each pair: float64 (pairs).

        It is taken within sequences, or over all single skeletons where there are no sequences.
        """
        inner = self.steps > 1
        if inner.any():
            return np.sqrt(np.average(self.sway[inner] ** 2, axis=0, weights=self.steps[inner]))
        return np.asarray(self.lengths.std(axis=0))
