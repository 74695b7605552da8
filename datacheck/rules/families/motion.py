"""Rules about joint angles and shapes over time: within limits, not too fast, without wraps; one subject, one shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, shown, those
from datacheck.rules.measures import MOST_COMPONENTS, is_numeric, leaf, norms, numbers, of_role, quantile, reduced
from datacheck.rules.placing import rows_of
from datacheck.rules.robots import ROBOTS, Robot
from datacheck.rules.series import differences
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.units import ANGLE, factor
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

MARGINS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # degrees
_NEEDS = ("DC109", "DC122", "DC125", "DC202", "DC221", "DC222")


def _robot_of(spec: FieldSpec) -> Robot | None:
    return ROBOTS.get(spec.robot or "")


def _driven(spec: FieldSpec) -> bool:
    return leaf(spec) and spec.role in {"joint_angle", "action"} and _robot_of(spec) is not None


def _timed(spec: FieldSpec) -> bool:
    return (spec.ragged or "").startswith("T")


@measure("beyond", applies=_driven, uses=("robot", "unit"))
def beyond(column: Column, spec: FieldSpec) -> Columns:
    """How far joints are outside the robot's limits, in degrees, for every order of its columns.

    `poses`: rows of joints; `outside`: those in which some joint is further outside than each of `MARGINS`, order by
    order; `excess`: how far each joint is at most, order by order (not above 0 where it stays inside).
    """
    robot = _robot_of(spec)
    found = None if robot is None else rows_of(column, robot.joints)
    if found is None or robot is None:
        return {}
    angles, counts = np.ascontiguousarray(found[0].T, dtype=np.float64) * factor(spec.unit or "rad"), found[1]
    outside, excess = [], []
    for order in robot.orders.values():
        low, high = np.array([robot.limits[joint] for joint in order]).T[:, :, None]
        far = np.rad2deg(np.maximum(low - angles, angles - high))
        worst = far.max(axis=0, initial=-np.inf)
        outside += [reduced(np.add, worst > margin, counts) for margin in MARGINS]
        excess.append(reduced(np.maximum, far, counts))
    columns = {"poses": counts, "outside": np.stack(outside, axis=1), "excess": np.concatenate(excess).T}
    return {name: Measured(values, counts > 0) for name, values in columns.items()}


@rule(
    "DC603", "joint-limit", Severity.ERROR, Level.SAMPLE, measures=(beyond,), needs=_NEEDS, applies=_driven,
    defaults={"margin": 1.0, "share": 0.001},
)  # fmt: skip
def joint_limit(rows: Rows, case: Case) -> Iterator[Failure]:
    """A joint is where the robot cannot bring it.

    What:
        Every joint of the declared ``robot`` is within its limits, but for a degree. Where several orders of the
        columns are in use, the one that fits most samples is taken.
    Why it matters:
        Angles that cannot be are in another unit, of another robot, in another order or relative to another zero;
        replayed on the robot they stop it.
    Measure:
        Degrees outside ``low..high`` of the joint; share of the steps.
    When it is wrong:
        A robot with other limits: leave ``robot`` out and declare ``range``.
    Options:
        margin: degrees outside that are allowed (1; one of 0, 0.2, 0.5, 1, 2, 5, 10, 20). share: share of steps that
        may be further out (0.001).
    Bad::

        schema: {fields: {q: {role: joint_angle, shape: [T, 7], unit: rad, robot: panda}}}
        samples:
          - {n: 3, q: {arm: 60}}
          - {q: {arm: 60, shift: 0.6}}

    Good::

        schema: {fields: {q: {role: joint_angle, shape: [T, 7], unit: rad, robot: panda}}}
        samples:
          - {n: 4, q: {arm: 60}}

    Fix:
        Check unit, order and zero of the joints; leave out what the robot cannot do.
    Reference:
        Limits of the Panda as Franka publishes them, of the LEAP hand from its URDF; SceneLeap reads that URDF.
    """
    robot, known = _robot_of(case.spec), rows.measured("outside")
    if robot is None or not known.any():
        return
    place = int(np.argmin(np.abs(np.array(MARGINS) - float(case.options["margin"]))))
    counts = rows["outside"][:, place :: len(MARGINS)]
    bad = known[:, None] & (counts > float(case.options["share"]) * rows["poses"][:, None])
    order = int(np.argmin(bad.sum(axis=0)))
    failing = bad[:, order]
    if not failing.any():
        return
    excess = rows["excess"][:, order * robot.joints : (order + 1) * robot.joints]
    joint = int(np.argmax(np.median(excess[failing], axis=0)))
    far = float(excess[failing, joint].max())
    low, high = robot.limits[list(robot.orders.values())[order][joint]]
    steps = int(counts[failing, order].sum())
    yield Failure(
        failing,
        f"{those(failing, 'lie')} beyond the limits of the {case.spec.robot} in {counted(steps, 'step')}: "
        f"joint {joint + 1} by up to {shown(far, 'deg')}; {low:g}..{high:g} rad is allowed.",
        measured={"joint": joint + 1, "degrees": far, "steps": steps},
        expected={"range": [low, high], "order": list(robot.orders)[order]},
        fix="Check unit, order and zero of the joints; leave out what the robot cannot do.",
        kind="limit",
        order=excess.max(axis=1),
    )


@measure("pace", applies=lambda s: _driven(s) and _timed(s), uses=("robot", "unit"))
def pace(column: Column, spec: FieldSpec) -> Columns:
    """How far joints move in a step, over what they can move in a second, in seconds.

    `peak_pace`: the largest of any joint; `usual_pace`: 99th percentile over the steps; `fast_joint`: which it is.
    """
    robot = _robot_of(spec)
    found = None if robot is None else rows_of(column, robot.joints)
    if found is None or robot is None or column.lengths is None or column.values.shape[1:] != (robot.joints,):
        return {}
    step = differences(np.ascontiguousarray(found[0].T, dtype=np.float64) * factor(spec.unit or "rad"), found[1])
    step = np.abs(step - 2 * math.pi * np.round(step / (2 * math.pi)))  # a wrap is no motion
    ratio = step / np.array(robot.speeds)[:, None]
    fastest, counts = ratio.max(axis=0, initial=0.0), np.maximum(found[1] - 1, 0)
    peaks = reduced(np.maximum, ratio, counts)
    columns = {
        "peak_pace": reduced(np.maximum, fastest, counts),
        "usual_pace": quantile(fastest, counts, 0.99),
        "fast_joint": np.argmax(peaks, axis=0) + 1,
    }
    return {name: Measured(values, counts > 0) for name, values in columns.items()}


def _no_rate(schema: Schema) -> str:
    return "" if schema.episode and schema.episode.fps else "the schema does not say how many steps a second has"


@rule(
    "DC604", "joint-speed", Severity.WARNING, Level.SAMPLE, measures=(pace,), needs=(*_NEEDS, "DC603"), unless=_no_rate,
    applies=lambda s: _driven(s) and _timed(s), defaults={"factor": 1.2}, paced=True,
)  # fmt: skip
def joint_speed(rows: Rows, case: Case) -> Iterator[Failure]:
    """A joint moves faster than the robot can.

    What:
        No step, times ``episode: {fps: ...}``, is more than 1.2 times the highest speed of its joint. Jumps by a full
        turn are no motion; DC607 tells them.
    Why it matters:
        A dropped or repeated frame becomes a jerk that a policy imitates; a wrong rate makes every motion too fast.
    Measure:
        ``|q[t+1] - q[t]| * fps`` over the joint's highest speed.
    When it is wrong:
        Simulated robots that ignore speed limits: raise ``factor``.
    Options:
        factor: times the highest speed that is allowed (1.2).
    Bad::

        schema: {fields: {q: {role: joint_angle, shape: [T, 7], unit: rad, robot: panda}}, episode: {fps: 20}}
        samples:
          - {n: 3, q: {arm: 60}}
          - {q: {arm: 60, jump: 0.5}}

    Good::

        schema: {fields: {q: {role: joint_angle, shape: [T, 7], unit: rad, robot: panda}}, episode: {fps: 20}}
        samples:
          - {n: 4, q: {arm: 60}}

    Fix:
        Cut the episode at the jump, or correct ``fps``.
    Reference:
        Franka publishes 2.175 and 2.61 rad/s; DC505 asks the same of any field with ``max_speed``.
    """
    known, episode = rows.measured("peak_pace"), case.schema.episode
    if not known.any() or episode is None or not episode.fps:
        return
    most = float(case.options["factor"])
    peak, usual = rows["peak_pace"] * episode.fps, rows["usual_pace"] * episode.fps
    bad = known & (peak > most)
    if not bad.any():
        return
    throughout = int((bad & (usual > most)).sum())
    steady = throughout >= 0.9 * int(bad.sum())
    joint = int(rows["fast_joint"][int(np.argmax(np.where(bad, peak, -1.0)))])
    words = "too fast throughout: fps or unit is wrong" if steady else "single jumps: frames were dropped or repeated"
    yield Failure(
        bad,
        f"{those(bad, 'move')} joints at up to {shown(float(peak[bad].max()))} times their highest speed "
        f"(joint {joint} of the {case.spec.robot}, {episode.fps:g} steps a second), allowed {most:g}.",
        measured={"factor": float(peak[bad].max()), "joint": joint},
        expected={"factor": most},
        cause=Cause(
            words, "rate" if steady else "jump", explains=throughout if steady else int(bad.sum()) - throughout
        ),
        fix="Correct episode: {fps: ...}." if steady else "Cut the episodes at the jumps.",
        kind="rate" if steady else "jump",
        order=peak,
    )


def _angular(spec: FieldSpec) -> bool:
    angle = spec.unit in ANGLE or spec.unit is None
    return leaf(spec) and spec.role in {"joint_angle", "rotvec"} and angle and _timed(spec)


@measure("wraps", version=2, applies=_angular, uses=("role", "unit"))
def wraps(column: Column, spec: FieldSpec) -> Columns:
    """Jumps by a full turn between steps.

    `moves`: steps; `wrapped`: those in which an angle, or a rotation vector as a whole, jumps by 2 pi; `at_plus` and
    `at_minus`: rows in which each component (up to 64) is within 0.05 of pi and of -pi.
    """
    if not is_numeric(column) or column.values.ndim != 2 or column.lengths is None:
        return {}
    if column.values.shape[1] > MOST_COMPONENTS:
        return {}
    angles = np.ascontiguousarray(column.values.T, dtype=np.float64) * factor(spec.unit or "rad")
    counts = np.maximum(column.lengths - 1, 0)
    step = differences(angles, column.lengths)
    size = norms(step) if spec.role == "rotvec" and len(step) == 3 else np.abs(step)
    found = np.any(np.atleast_2d(np.abs(size - 2 * math.pi) < 0.5), axis=0)
    columns = {
        "moves": counts,
        "wrapped": reduced(np.add, found, counts),
        "at_plus": reduced(np.add, np.abs(angles - math.pi) < 0.05, column.lengths).T,
        "at_minus": reduced(np.add, np.abs(angles + math.pi) < 0.05, column.lengths).T,
    }
    return {name: Measured(values, counts > 0) for name, values in columns.items()}


@rule(
    "DC607", "angle-wrap", Severity.WARNING, Level.SAMPLE, measures=(wraps,), needs=_NEEDS, applies=_angular,
    defaults={"share": 0.001, "mass": 0.01},
)  # fmt: skip
def angle_wrap(rows: Rows, case: Case) -> Iterator[Failure]:
    """Angles jump by a full turn, or lie on both sides of the cut at pi.

    What:
        No jump by about 2 pi between neighbouring steps; and not more than 1 % of all values near pi and near -pi
        both, which are the same angle.
    Why it matters:
        A mean of pi and -pi is 0, the opposite; a standard deviation of 3 hides all real motion; a policy that
        averages over the cut turns the wrong way round.
    Measure:
        Differences within 0.5 of 2 pi: of each joint angle, of a rotation vector as a whole; values within 0.05 of the
        cut.
    When it is wrong:
        The training code unwraps angles or uses sine and cosine.
    Options:
        share: share of steps that may jump (0.001). mass: share of values on each side of the cut (0.01).
    Bad::

        schema: {fields: {q: {role: joint_angle, shape: [T, 2], unit: rad}}}
        samples:
          - {n: 3, q: {ramp: [60, 2], to: 1.5}}
          - {q: {circle: [60, 2]}}

    Good::

        schema: {fields: {q: {role: joint_angle, shape: [T, 2], unit: rad}}}
        samples:
          - {n: 4, q: {ramp: [60, 2], to: 1.5}}

    Fix:
        Unwrap within episodes; train on sine and cosine, or on 6 numbers of the rotation matrix.
    Reference:
        openpi issues 637 and 814: LIBERO's roll lies at both 3.14 and -3.14, standard deviation 3.05.
    """
    known = rows.measured("wrapped")
    if not known.any():
        return
    bad = known & (rows["wrapped"] > float(case.options["share"]) * rows["moves"])
    if bad.any():
        steps = int(rows["wrapped"][bad].sum())
        yield Failure(
            bad,
            f"{those(bad, 'jump')} by a full turn between two steps ({counted(steps, 'step')}).",
            measured={"steps": steps},
            cause=Cause("angles were wrapped into -pi..pi", "wrap", explains=int(bad.sum())),
            fix="Unwrap them within the episode, or train on sine and cosine.",
            kind="wrap",
            order=rows["wrapped"] / np.maximum(rows["moves"], 1),
        )
    else:
        yield from _both_sides(rows, known, float(case.options["mass"]))


def _both_sides(rows: Rows, known: Array, most: float) -> Iterator[Failure]:
    known = known & rows.measured("at_plus", "at_minus")  # not of arrays without columns
    if not known.any():
        return
    total = int((rows["moves"][known] + 1).sum())
    plus, minus = (rows[name][known].sum(axis=0) / total for name in ("at_plus", "at_minus"))
    both = np.minimum(plus, minus)
    if float(both.max(initial=0.0)) > most:
        place = int(np.argmax(both))
        yield Failure(
            known & ((rows["at_plus"][:, place] > 0) | (rows["at_minus"][:, place] > 0)),
            f"number {place + 1} is near pi in {100 * float(plus[place]):.3g} % of the steps and near -pi in "
            f"{100 * float(minus[place]):.3g} %: the same angle, as far apart as can be.",
            measured={"plus": float(plus[place]), "minus": float(minus[place])},
            cause=Cause("the cut of the angle lies where the data are", "cut"),
            fix="Turn the zero of this angle, or train on sine and cosine.",
            kind="cut",
        )


@rule(
    "DC608", "shape-changes", Severity.WARNING, Level.GROUP, measures=(numbers,), needs=("DC109", "DC122", "DC221"),
    applies=of_role("shape"), unless=lambda s: "" if s.samples.group else "the schema names no group of samples",
    defaults={"off": 1e-3},
)  # fmt: skip
def shape_changes(rows: Rows, case: Case) -> Iterator[Failure]:
    """The shape of a body changes within a sequence of one subject.

    What:
        Shape parameters (MANO's beta) are the same in all samples of a group.
    Why it matters:
        Bones that grow and shrink explain errors of the pose away; a dataset that promises one shape per subject was
        then fitted frame by frame, or its files come from several fits.
    Measure:
        Distance of each number from its median over the group.
    When it is wrong:
        Groups hold several subjects: correct ``samples: {group: ...}``. Shapes are fitted per frame: raise ``off``.
    Options:
        off: how far a number may be from its median (0.001).
    Bad::

        schema: {samples: {files: "*", group: "{seq}"}, fields: {b: {role: shape, shape: [3]}, x: {}}}
        samples:
          - {n: 5, group: x, b: [0.5, -1.0, 0.2], x: {normal: [9]}}
          - {n: 1, group: x, b: [0.5, -1.3, 0.2], x: {normal: [9]}}
          - {n: 5, group: y, b: [1.5, 0.3, 0.1], x: {normal: [9]}}

    Good::

        schema: {samples: {files: "*", group: "{seq}"}, fields: {b: {role: shape, shape: [3]}, x: {}}}
        samples:
          - {n: 5, group: x, b: [0.5, -1.0, 0.2], x: {normal: [9]}}
          - {n: 5, group: y, b: [1.5, 0.3, 0.1], x: {normal: [9]}}

    Fix:
        Fit again with one shape per subject, or leave the odd frames out.
    Reference:
        HO3D fits one shape per subject; HaMeR drops shapes beyond 3.
    """
    known = rows.measured("min", "max")
    if not known.any():
        return
    limit = float(case.options["off"])
    frames, drifting = known & False, known & False
    far = np.zeros(len(rows))
    for _, places in rows.by_group():
        mine = places[known[places]]
        if len(mine) >= 2:
            low, high = (np.abs(rows[name][mine] - np.median(rows[name][mine], axis=0)) for name in ("min", "max"))
            far[mine] = np.maximum(low, high).max(axis=1)
            off = far[mine] > limit
            (drifting if 2 * int(off.sum()) > len(mine) else frames)[mine] = off
    if frames.any():
        yield _reshaped(frames, far, limit, "frames", "differ from their sequence")
    if drifting.any():
        yield _reshaped(drifting, far, limit, "drift", "change")


def _reshaped(mask: Array, far: Array, limit: float, kind: str, verb: str) -> Failure:
    return Failure(
        mask,
        f"shapes of {counted(int(mask.sum()))} {verb} by up to {shown(float(far[mask].max()))}, allowed "
        f"{shown(limit)} within a sequence.",
        measured={"off": float(far[mask].max())},
        expected={"off": limit},
        cause=Cause("single frames from another fit" if kind == "frames" else "fitted frame by frame", kind),
        fix="Fit again with one shape per subject, or leave the odd frames out.",
        kind=kind,
        order=far,
    )
