"""Rules about conventions of rotations: the order of a quaternion's numbers, what three angles mean."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rotation import matrices, wxyz
from datacheck.rules.base import Case, Columns, counted, measure, rule, shown, those
from datacheck.rules.measures import column_of, leaf, norms, numbers, of_role, place, positions, reduced
from datacheck.rules.placing import rows_of
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.units import factor
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_OTHER = {"wxyz": "xyzw", "xyzw": "wxyz"}
_NEEDS = ("DC109", "DC122", "DC125", "DC221", "DC222")


@measure("facing", per="sample", uses=("fields.near", "fields.columns", "fields.role"))
def facing(block: Block, schema: Schema) -> Columns:
    """How well each axis of a gripper points at what it is near to, with its quaternion read in either order.

    ``<field>:wxyz``, ``<field>:xyzw``: mean cosine (3) over the sample's rows, for a quaternion whose position is
    another part of the same field and says what it is ``near``.
    """
    found: dict[str, Measured] = {}
    for name, _ in schema.of_role("quaternion"):
        whole = schema.part_of(name)
        beside = [n for n, s in schema.of_role("position") if whole and s.near and _parent(schema, n) == whole[0]]
        column, here = column_of(block, schema, name), column_of(block, schema, beside[0]) if beside else None
        other = schema.spec(beside[0]).near or "" if beside else ""
        there = column_of(block, schema, other) if other else None
        aim = None if here is None or there is None else _aim(here, there, schema.spec(other))
        quaternions = None if column is None or aim is None else rows_of(column, 4)
        if quaternions is None or aim is None or aim[0].shape[1] != len(quaternions[0]):
            continue
        values, counts = quaternions
        for order in _OTHER:
            axes = matrices(wxyz(values, order))
            cosines = np.ascontiguousarray(np.einsum("in,nij->jn", aim[0], axes))
            mean = reduced(np.add, cosines, counts) / np.maximum(counts, 1)
            found[f"{name}:{order}"] = Measured(np.nan_to_num(mean.T), aim[1] & (counts > 0))
    return dict(found)


def _parent(schema: Schema, name: str) -> str:
    return (schema.part_of(name) or ("",))[0]


def _aim(here: Column, there: Column, spec: FieldSpec) -> tuple[Array, Array] | None:
    """Return the directions from positions to what they are near, (3, rows), and the samples that have it."""
    mine, centres = positions(here), place.function(there, spec)
    if mine is None or not centres:
        return None
    centre = centres["centroid" if spec.role == "points" else "first"]
    assert isinstance(centre, Measured)
    counts = np.ones(len(here), np.int64) if mine[1] is None else mine[1]
    to = np.repeat(centre.values, counts, axis=0).T - mine[0]
    return to / norms(to), centre.present


@rule(
    "DC305", "quaternion-order", Severity.WARNING, Level.DATASET, measures=(numbers, facing),
    needs=(*_NEEDS, "DC201", "DC304"), applies=lambda s: leaf(s) and s.role == "quaternion" and s.order is not None,
    defaults={"clear": 0.7, "better": 3.0, "samples": 20},
)  # fmt: skip
def quaternion_order(rows: Rows, case: Case) -> Iterator[Failure]:
    """Quaternions make sense in the other order, and not in the declared one.

    What:
        Whether the scalar stands first or last, where something tells: a gripper whose position is ``near`` an object
        has an axis that points at it; things that stand on a table turn about z only.
    Why it matters:
        Both orders have length 1 and turn equally fast: permuting the four numbers keeps every angle between two
        quaternions, so neither norms nor smoothness can tell, and no library complains.
    Measure:
        Mean cosine between each axis and the direction to the object, under both orders; whether the two components
        are 0 that are in a rotation about z, under both orders.
    When it is wrong:
        The gripper holds things beside itself, or everything really is turned upside down about a horizontal axis.
    Options:
        clear: mean cosine of the other order (0.7). better: how much nearer to 1 it must be (a factor, 3.0).
        samples: fewest samples with rotations about z (20).
    Bad::

        schema:
          fields:
            g: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}
            g.pos: {role: position, unit: m, near: o}
            g.quat: {role: quaternion, order: wxyz}
            o: {role: position, shape: [3], unit: m}
        samples:
          - {n: 3, g: {grasps: 40}, o: {normal: [3], scale: 0.01}}
          - {g: {grasps: 40, order: xyzw}, o: {normal: [3], scale: 0.01}}

    Good::

        schema:
          fields:
            g: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}
            g.pos: {role: position, unit: m, near: o}
            g.quat: {role: quaternion, order: wxyz}
            o: {role: position, shape: [3], unit: m}
        samples:
          - {n: 4, g: {grasps: 40}, o: {normal: [3], scale: 0.01}}

    Fix:
        Roll the four numbers by one, or declare the other order.
    Reference:
        SceneLeap stores w x y z, SciPy, ROS and robosuite x y z w.
    """
    columns = [f":{case.name}:{order}" for order in (case.spec.order, _OTHER[case.spec.order or "wxyz"])]
    if rows.measured(*columns).any():
        yield from _pointing(rows, case, columns)
    else:
        yield from _standing(rows, case)


def _pointing(rows: Rows, case: Case, columns: list[str]) -> Iterator[Failure]:
    """Judge by the axis that points at the object."""
    known = rows.measured(*columns)
    mine, theirs = (np.abs(rows[column]).max(axis=1) for column in columns)
    bad = known & (theirs >= float(case.options["clear"]))
    bad &= 1 - mine >= float(case.options["better"]) * (1 - theirs)
    if bad.any():
        values = shown(float(np.median(theirs[bad]))), shown(float(np.median(mine[bad])))
        sign = f"an axis points at the object (mean cosine {values[0]}, not {values[1]})"
        yield _misread(bad, case.spec.order or "wxyz", sign, known)


def _standing(rows: Rows, case: Case) -> Iterator[Failure]:
    """Judge by the components that rotations about z do not have."""
    own = case.spec.order or "wxyz"
    about, swapped = _about_z(rows, own), _about_z(rows, _OTHER[own])
    sound = bool((about & ~swapped).any())
    bad = swapped & ~about if sound else swapped
    standing = int((about | swapped).sum())
    enough = standing >= max(int(case.options["samples"]), int(0.9 * len(rows)))
    doubtful = own == "xyzw" and not sound  # rotations about x read as well
    if enough and (bad & ~about).any() and not doubtful and (int(bad.sum()) == standing or 2 * bad.sum() <= standing):
        sign = f"all of them turn about z (as {own} about a horizontal axis)"
        yield _misread(bad, own, sign, about | swapped)


def _about_z(rows: Rows, order: str) -> Array:
    """Return where the components along x and y are zero in every row."""
    known = rows.measured("min", "max")
    if not known.any() or rows["min"].shape[1] != 4:
        return known & False
    peak = np.maximum(np.abs(rows["min"]), np.abs(rows["max"]))
    x = order.index("x")
    found: Array = known & (peak[:, x : x + 2] < 1e-3).all(axis=1)
    return found


def _misread(bad: Array, own: str, sign: str, known: Array) -> Failure:
    other = _OTHER[own]
    return Failure(
        bad,
        f"{counted(int(bad.sum()))} of {int(known.sum()):,}: read as {other}, {sign}; {own} is declared.",
        expected={"order": own},
        cause=Cause(f"probably {other}", other, explains=int(bad.sum())),
        fix=f"Roll the four numbers by one, or declare order: {other}.",
        kind=other,
    )


@measure("spin", applies=of_role("rotvec"), uses=("unit",))
def spin(column: Column, spec: FieldSpec) -> Columns:
    """Lengths of rotation vectors, in radians.

    `angle`: the longest; `vectors`: how many; `over`: those longer than pi; `euler`: steps in which
    one component alone jumps by 2 pi while the others are large, which no rotation vector does.
    """
    found = rows_of(column, 3)
    if found is None:
        return {}
    by = factor(spec.unit or "rad")
    vectors, counts = np.ascontiguousarray(found[0].T, dtype=np.float64) * by, found[1]
    size = norms(vectors)
    columns = {
        "angle": reduced(np.maximum, size, counts),
        "over": reduced(np.add, size > math.pi + 1e-3, counts),
        "vectors": counts,
        "euler": np.zeros(len(column), np.int64),
    }
    if column.values.shape[1:] == (3,):
        columns["euler"] = reduced(np.add, _alone(vectors, counts), counts)
    return {name: Measured(values, counts > 0) for name, values in columns.items()}


def _alone(vectors: Array, counts: Array) -> Array:
    """Return bool (rows): rows to which one component jumps by 2 pi while the others, which are large, stay."""
    jump = np.abs(np.diff(vectors, axis=1, prepend=vectors[:, :1]))
    starts = (np.cumsum(counts) - counts)[counts > 0]
    jump[:, starts] = 0.0
    leaps = np.abs(jump - 2 * math.pi) < 0.5
    rest = norms(np.where(leaps, 0.0, vectors))
    found: Array = (leaps.sum(axis=0) == 1) & (np.where(leaps, 0.0, jump).max(axis=0, initial=0.0) < 0.3) & (rest > 1.5)
    return found


@rule(
    "DC312", "rotation-convention", Severity.WARNING, Level.DATASET, measures=(spin,), needs=(*_NEEDS, "DC202"),
    applies=of_role("rotvec"), defaults={"most": 2 * math.pi, "share": 0.01},
)  # fmt: skip
def rotation_convention(rows: Rows, case: Case) -> Iterator[Failure]:
    """Rotation vectors are longer than a rotation vector can be, or jump as only Euler angles do.

    What:
        The length of a rotation vector is its angle: up to pi, or up to 2 pi where the writer does not take the shorter
        way round (told as info: such vectors cannot be Euler angles). More than ``most`` is something else.
    Why it matters:
        Three angles look alike whatever they mean: axis-angle read as Euler angles is a wrong rotation, without any
        error. A policy that learns it still reaches 80 % of what it could.
    Measure:
        Lengths; steps in which one component alone jumps by 2 pi while the others are large.
    When it is wrong:
        Several turns are meant: raise ``most``.
    Options:
        most: longest allowed, in radians (2 pi). share: share of rows longer than pi from which that is told (0.01).
    Bad::

        schema: {fields: {r: {role: rotvec, shape: [T, 3], unit: rad}}}
        samples:
          - {n: 3, r: {normal: [40, 3], scale: 0.5}}
          - {r: {full: [20, 3], value: 5}}

    Good::

        schema: {fields: {r: {role: rotvec, shape: [T, 3], unit: rad}}}
        samples:
          - {n: 4, r: {normal: [40, 3], scale: 0.5}}

    Fix:
        Convert with the convention that the writer used; store 6 numbers of the matrix for training.
    Reference:
        LIBERO's ee_ori is quat2axisangle with angles up to 2 pi (issues 40, 69, 129); a fork of RDT reads Euler angles.
    """
    known = rows.measured("angle")
    if not known.any():
        return
    most = float(case.options["most"])
    euler = known & (rows["euler"] > 0)
    long = known & ~euler & (rows["angle"] > most + 1e-3)
    if euler.any():
        yield _angles(euler, rows["euler"])
    if long.any():
        yield _too_long(long, rows["angle"], most)
    yield from _unwrapped(rows, known & ~euler & ~long, float(case.options["share"]))


def _angles(bad: Array, steps: Array) -> Failure:
    return Failure(
        bad,
        f"{those(bad, 'have')} steps in which one component alone jumps by 2 pi "
        f"({int(steps[bad].sum()):,} steps): rotation vectors turn round as a whole.",
        measured={"steps": int(steps[bad].sum())},
        cause=Cause("these are Euler angles", "euler", explains=int(bad.sum())),
        fix="Convert them from Euler angles, in the writer's order of axes.",
        kind="euler",
        order=steps,
    )


def _too_long(bad: Array, angle: Array, most: float) -> Failure:
    return Failure(
        bad,
        f"{those(bad, 'hold')} rotation vectors of up to {shown(float(angle[bad].max()), 'rad')}, "
        f"allowed {shown(most, 'rad')}: they are no axis times angle.",
        measured={"angle": float(angle[bad].max())},
        expected={"angle": most},
        fix="Find out what these three numbers are: another unit, Euler angles, a velocity.",
        kind="long",
        order=angle,
    )


def _unwrapped(rows: Rows, known: Array, share: float) -> Iterator[Failure]:
    over, total = int(rows["over"][known].sum()), int(rows["vectors"][known].sum())
    if total and over >= share * total:
        yield Failure(
            known & False,
            f"{over:,} of {total:,} vectors are longer than pi: axis-angle the long way round, no Euler angles.",
            measured={"share": over / total},
            severity=Severity.INFO,
            fix="Nothing; read them as axis times angle.",
            kind="unwrapped",
        )
