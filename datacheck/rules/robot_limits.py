"""Joints of robots: how far they are beyond their limits, how fast they move, and what explains it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from datacheck.model.finding import Cause
from datacheck.model.sample import Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import Columns, measure
from datacheck.rules.measures import is_numeric, leaf, quantile, reduced
from datacheck.rules.placement import rows_of
from datacheck.rules.series import differences
from datacheck.schema.grammar import ANGLE, LENGTH
from datacheck.schema.model import FieldSpec
from datacheck.schema.robots import Robot

Array = np.ndarray[Any, Any]

# Degrees, or millimetres of a joint in metres.
MARGINS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
# The same for a joint without limits and for a width that allows no reading.
_NO_LIMIT = 1e6


def driven(spec: FieldSpec) -> bool:
    """Return whether a field holds joints of a known robot."""
    return leaf(spec) and spec.role in {"joint_angle", "action"} and spec.robot is not None


def timed(spec: FieldSpec) -> bool:
    """Return whether a field has a time axis."""
    return (spec.ragged or "").startswith("T")


def has_speeds(spec: FieldSpec) -> bool:
    """Return whether a field holds joints over time whose highest speeds are known."""
    speeds = spec.robot.speeds if spec.robot is not None else ()
    return driven(spec) and timed(spec) and any(map(math.isfinite, speeds))


def _scales(spec: FieldSpec, robot: Robot) -> Array:
    """Return by joint the factor from the field's unit to the joint's: float64 (joints).

    An angle in a field of lengths counts as radians, and a length in a field of angles as metres.
    """
    kinds = {"rad": ANGLE, "m": LENGTH}
    return np.array([kinds[joint.unit].get(spec.unit or "rad", 1.0) for joint in robot.joints])


def _shown(robot: Robot) -> Array:
    """Return by joint the factor from its unit to degrees or millimetres: float64 (joints)."""
    return np.array([180 / math.pi if joint.unit == "rad" else 1000.0 for joint in robot.joints])


def _full_turns(robot: Robot) -> Array:
    """Return by joint what a full turn is in its unit, 0 for a length: float64 (joints)."""
    return np.array([2 * math.pi if joint.unit == "rad" else 0.0 for joint in robot.joints])


@measure("beyond", version=2, applies=driven, uses=("robot", "unit"))
def beyond(column: Column, spec: FieldSpec) -> Columns:
    """Joints outside the robot's limits, in degrees, for every order of its columns.

    `poses`: rows of joints; `outside`: those in which some joint is further outside than each of
    `MARGINS`, order by order; `excess`: the largest distance of each joint outside its limits,
    order by order (not above 0 where it stays inside); `joint_turned`: the largest distance of any
    joint, by order, if each value may be moved by a full turn; `joint_low` and `joint_high`: the
    range of each column in the field's unit. Lengths are in millimetres.

    Of columns that are no whole number of robots: `joint_columns`: their number; `joint_beside`:
    how far joints are outside their limits if a gripper has one or two columns after or before the
    joints of each robot.
    """
    robot = spec.robot
    if robot is None:
        return {}
    pose_rows = rows_of(column, robot.size)
    if pose_rows is None:
        return _wrong_width(column, spec, robot)
    values = np.ascontiguousarray(pose_rows[0].T, dtype=np.float64)
    counts = pose_rows[1]
    outside = []
    excess = []
    turned = []
    for order in robot.columns.values():
        joints = list(order)
        low, high = np.array([robot.limits[joint] for joint in joints]).T[:, :, None]
        shown = _shown(robot)[joints, None]
        scales = _scales(spec, robot)[joints, None]
        placed = values if (scales == 1).all() else values * scales
        far = shown * np.maximum(low - placed, placed - high)
        if not np.isfinite(low).all() or not np.isfinite(high).all():
            far = np.maximum(far, -_NO_LIMIT)
        worst = far.max(axis=0, initial=-_NO_LIMIT)
        outside += [reduced(np.add, worst > margin, counts) for margin in MARGINS]
        excess.append(reduced(np.maximum, far, counts))
        beyond_limits = worst > 0
        if beyond_limits.any():
            nearer = far[:, beyond_limits]
            for turn in (_full_turns(robot), -_full_turns(robot)):
                moved = placed[:, beyond_limits] + turn[joints, None]
                there = shown * np.maximum(low - moved, moved - high)
                nearer = np.where(nearer > 0, np.minimum(nearer, there), nearer)
            worst[beyond_limits] = nearer.max(axis=0)
        turned.append(reduced(np.maximum, worst, counts))
    columns = {
        "poses": counts,
        "outside": np.stack(outside, axis=1),
        "excess": np.concatenate(excess).T,
        "joint_turned": np.stack(turned, axis=1),
        "joint_low": reduced(np.minimum, values, counts).T,
        "joint_high": reduced(np.maximum, values, counts).T,
    }
    return {name: Measured(values, counts > 0) for name, values in columns.items()}


# Columns that a gripper has, and whether they follow the joints.
_GRIPPERS = ((1, True), (1, False), (2, True), (2, False))


def _wrong_width(column: Column, spec: FieldSpec, robot: Robot) -> Columns:
    values = column.values
    wide = values.shape[-1] if values.ndim > 1 else 0
    if not is_numeric(column) or wide == 0:
        return {}
    rows = np.ascontiguousarray(values.reshape(-1, wide), dtype=np.float64)
    inner = math.prod(values.shape[1:-1])
    counts = (np.ones(len(column), np.int64) if column.lengths is None else column.lengths) * inner
    beside = [
        reduced(np.maximum, _farthest(rows, spec, robot, extra, after=after), counts)
        for extra, after in _GRIPPERS
    ]
    return {
        "joint_columns": Measured(np.full(len(column), wide), counts > 0),
        "joint_beside": Measured(np.stack(beside, axis=1), counts > 0),
    }


def _farthest(rows: Array, spec: FieldSpec, robot: Robot, extra: int, *, after: bool) -> Array:
    """Return by row how far a joint is outside if each robot has some columns of a gripper."""
    block = robot.size + extra
    if rows.shape[1] % block:
        return np.full(len(rows), _NO_LIMIT)
    first = 0 if after else extra
    poses = rows.reshape(len(rows), rows.shape[1] // block, block)[:, :, first : first + robot.size]
    far = np.full(len(rows), np.inf)
    for order in robot.columns.values():
        joints = list(order)
        low, high = np.array([robot.limits[joint] for joint in joints]).T
        placed = poses * _scales(spec, robot)[joints]
        worst = np.maximum(low - placed, placed - high) * _shown(robot)[joints]
        far = np.minimum(far, worst.max(axis=(1, 2)))
    return np.asarray(np.clip(far, -_NO_LIMIT, _NO_LIMIT))


@measure("pace", applies=has_speeds, uses=("robot", "unit"))
def pace(column: Column, spec: FieldSpec) -> Columns:
    """Motion of joints in a step, divided by their speed limit, in seconds.

    `peak_pace`: the largest of any joint; `usual_pace`: 99th percentile over the steps;
    `fast_joint`: the number of the fastest joint. Joints without a speed limit do not count.
    """
    robot = spec.robot
    pose_rows = None if robot is None else rows_of(column, robot.size)
    if (
        pose_rows is None
        or robot is None
        or column.lengths is None
        or column.values.shape[1:] != (robot.size,)
    ):
        return {}
    values = np.ascontiguousarray(pose_rows[0].T, dtype=np.float64)
    step = differences(values * _scales(spec, robot)[:, None], pose_rows[1])
    turn = _full_turns(robot)[:, None]
    wraps = np.round(step / np.where(turn > 0, turn, np.inf))
    step = np.abs(step - turn * wraps)  # a wrap is not motion
    # A column may hold any joint that an order puts there.
    speeds = np.max([np.array(robot.speeds)[list(o)] for o in robot.columns.values()], axis=0)
    ratio = step / speeds[:, None]
    fastest = ratio.max(axis=0, initial=0.0)
    counts = np.maximum(pose_rows[1] - 1, 0)
    peaks = reduced(np.maximum, ratio, counts)
    columns = {
        "peak_pace": reduced(np.maximum, fastest, counts),
        "usual_pace": quantile(fastest, counts, 0.99),
        "fast_joint": np.argmax(peaks, axis=0) + 1,
    }
    return {name: Measured(values, counts > 0) for name, values in columns.items()}


# A reading is stated if it fits at least so large a share of the failing samples, and any other at
# most so large a share.
_FITS = 0.9
_NEXT = 0.5
# Failing samples that readings are compared on: the comparison takes joints x joints for each.
_MOST_COMPARED = 1000

# Kind and words of a reading.
Reading = tuple[str, str]


def clear_reading(shares: Mapping[Reading, float]) -> Cause | None:
    """Return the only reading that fits nearly all failing samples, None if it is not clear."""
    ranked = sorted(shares, key=lambda reading: -shares[reading])
    if not ranked or shares[ranked[0]] < _FITS:
        return None
    kind, text = ranked[0]
    if not kind or (len(ranked) > 1 and shares[ranked[1]] > _NEXT):
        return None
    return Cause(text, kind)


def readings(
    rows: Rows, spec: FieldSpec, robot: Robot, order: int, margin: float
) -> dict[Reading, float]:
    """Return by reading of failing samples the share that is within the limits with it.

    A reading without a kind is never stated, but another is not clear if it fits, too.
    """
    picked = np.unique(np.linspace(0, len(rows.index) - 1, _MOST_COMPARED).astype(np.int64))
    ends = rows["joint_low"][picked], rows["joint_high"][picked]
    joints = list(list(robot.columns.values())[order])
    scales = _scales(spec, robot)
    fits = _fits(*ends, robot, scales, margin)[:, :, joints]
    wrong = ~np.diagonal(fits, axis1=1, axis2=2)
    shares = _reordered(fits, wrong, robot, order)

    names = [robot.joints[joint].name for joint in joints]
    moved = ", ".join(name for name, share in zip(names, wrong.mean(axis=0), strict=True) if share)
    turned = off_by_turns(rows, robot, margin)[picked, order]
    shares["turn", f"off by a full turn: {moved}"] = float(turned.mean())
    for part in (-2, -4, 4, 2):
        shift = _full_turns(robot)[joints] / part * wrong / scales[joints]
        inside = _fits(ends[0] + shift, ends[1] + shift, robot, scales, margin)[:, :, joints]
        shares["", f"off by a turn / {part}"] = float(_own(inside).mean())
    if (spec.unit or "rad") == "rad":
        inside = _own(_fits(*ends, robot, scales * ANGLE["deg"], margin)[:, :, joints])
        # One joint with absurd values is not a unit: several exceed two turns.
        large = np.maximum(np.abs(ends[0]), np.abs(ends[1])) > 4 * math.pi
        several = large.sum(axis=1) >= max(min(2, robot.size), robot.size / 3)
        shares["deg", "the values are in degrees"] = float((inside & several).mean())
    return shares


def off_by_turns(rows: Rows, robot: Robot, margin: float) -> Array:
    """Return whether all joints are within their limits if few are moved by a full turn.

    Shapes:
        returns: bool (rows, orders); also true where no joint need be moved
    """
    excess = rows["excess"].reshape(len(rows.index), len(robot.columns), robot.size)
    few = (excess > margin).sum(axis=2) <= max(1.0, robot.size / 3)
    return np.asarray((rows["joint_turned"] <= margin) & few)


def _reordered(fits: Array, wrong: Array, robot: Robot, order: int) -> dict[Reading, float]:
    """Return by order of the columns the share of samples that are within the limits with it.

    Shapes:
        fits: bool (samples, columns, columns): whether a column is within the limits of the joint
            that belongs into another
        wrong: bool (samples, columns)
    """
    orders = list(robot.columns.items())
    joints = list(orders[order][1])
    names = [robot.joints[joint].name for joint in joints]
    # One wrong column may fit elsewhere by chance: an order explains two.
    several = wrong.sum(axis=1) > 1
    placed = {
        f"the columns are in the order {name}": fits[:, :, [joints.index(j) for j in other]]
        for number, (name, other) in enumerate(orders)
        if number != order
    }
    if len(names) > 3:  # the reverse of three columns exchanges two
        placed["the columns are in reverse order"] = fits[:, :, ::-1]
    shares: dict[Reading, float] = {
        ("order", text): float((_own(inside) & several).mean()) for text, inside in placed.items()
    }
    pairs = wrong & (wrong.sum(axis=1) == 2)[:, None]
    for i, j in zip(*np.triu_indices(len(names), 1), strict=True):
        both = pairs[:, i] & pairs[:, j] & fits[:, i, j] & fits[:, j, i]
        if both.any():
            shares["order", f"{names[i]} and {names[j]} are exchanged"] = float(both.mean())
    return shares


def gripper_readings(rows: Rows, wide: int, robot: Robot, margin: float) -> dict[Reading, float]:
    """Return by place of the gripper the share of rows whose joints are within the limits."""
    shares = (rows["joint_beside"] <= margin).mean(axis=0)
    what = "no joints"
    if robot.gripper is not None:
        what = f"the gripper, which opens up to {robot.gripper.width:g} m"
    found: dict[Reading, float] = {}
    for (extra, after), share in zip(_GRIPPERS, shares, strict=True):
        numbers = _gripper_columns(wide, robot.size, extra, after=after)
        columns = f"column{'s' if len(numbers) > 1 else ''} {' and '.join(map(str, numbers))}"
        found["gripper", f"{columns} would be {what}"] = float(share)
    return found


def _gripper_columns(wide: int, size: int, extra: int, *, after: bool) -> list[int]:
    """Return the numbers of the columns that would be a gripper's, from 1."""
    block = size + extra
    first = size if after else 0
    return [start + first + n + 1 for start in range(0, wide, block) for n in range(extra)]


def _fits(lowest: Array, highest: Array, robot: Robot, scales: Array, margin: float) -> Array:
    """Return whether each column is within the limits of each joint: bool (samples, n, n)."""
    low, high = np.array(robot.limits).T
    room = margin / _shown(robot)
    return np.asarray(
        (lowest[:, :, None] * scales >= low - room) & (highest[:, :, None] * scales <= high + room)
    )


def _own(fits: Array) -> Array:
    """Return whether all columns are within the limits of their own joints: bool (samples)."""
    return np.asarray(np.diagonal(fits, axis1=1, axis2=2).all(axis=1))
