"""Rules about motion: joint limits and speeds, wraps, jumps, lags; one shape for one subject."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    format_number,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.measures import (
    MOST_COMPONENTS,
    column_of,
    flat,
    is_numeric,
    leaf,
    norms,
    numbers,
    of_role,
    reduced,
)
from datacheck.rules.robot_limits import (
    MARGINS,
    beyond,
    clear_reading,
    driven,
    gripper_readings,
    has_speeds,
    pace,
    readings,
    timed,
)
from datacheck.rules.series import differences, steps
from datacheck.schema.grammar import ANGLE, factor
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.robots import Robot

Array = np.ndarray[Any, Any]

_SUPPRESSED_BY = ("DC109", "DC122", "DC125", "DC202", "DC221", "DC222")


def _wrong_width(rows: Rows, case: RuleContext, robot: Robot, margin: float) -> Iterator[Failure]:
    bad = rows.measured("joint_columns")
    if not bad.any():
        return
    wide = int(np.sort(rows["joint_columns"][bad])[bad.sum() // 2])  # the usual one
    bad &= rows["joint_columns"] == wide
    cause = clear_reading(gripper_readings(rows.where(bad), wide, robot, margin))
    reason = (
        "which columns are the joints is unknown"
        if cause is None
        else f"{cause.text}: the others are within the limits"
    )
    yield Failure(
        bad,
        f"{count_phrase(bad, 'have')} {pluralize(wide, 'column')}; the {robot.name} has "
        f"{pluralize(robot.size, 'joint')}; {reason}.",
        measured={"columns": wide},
        expected={"columns": robot.size},
        cause=cause,
        fix="Name the parts, such as columns: 'arm:7 gripper:1', and give robot to the joints alone.",
        kind="width",
    )


_REPAIRS = {
    "deg": "Convert to radians (x 0.017453), or declare unit: deg.",
    "order": "Bring the columns into the order of the robot.",
    "turn": "Move the joint back by the full turn.",
}


@rule(
    "DC603",
    "joint-limit",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(beyond,),
    suppressed_by=_SUPPRESSED_BY,
    applies=driven,
    defaults={"margin": 1.0, "share": 0.001},
)
def joint_limit(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A joint angle lies outside the robot's limits.

    What:
        Every joint of the declared ``robot`` is within its limits, up to one degree, or one
        millimetre of a joint in metres. If the robot's columns are in use in several orders, the
        rule takes the order that fits most samples. The field has a column for each joint, or a
        multiple for several robots. A cause is stated only if one reading alone brings nearly all
        failing samples within the limits: degrees, another order, two joints exchanged, or a full
        turn.
    Why it matters:
        Impossible angles have another unit, robot, column order or zero position; replayed on the
        robot, they stop it.
    Measure:
        Degrees outside ``low..high`` of the joint; share of the steps.
    When it is wrong:
        The robot has other limits: write a profile of your own, or leave ``robot`` out and declare
        ``range``.
    Options:
        margin: degrees outside the limits that are allowed (1; one of 0, 0.2, 0.5, 1, 2, 5, 10,
        20).
        share: largest share of steps that may be further outside (0.001).
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
        Check unit, order and zero position of the joints; leave out what the robot cannot do.
    Reference:
        Each file in ``robots/`` names the URDF or data sheet of its limits; the Panda's are those
        that Franka publishes.
    """
    robot = case.spec.robot
    if robot is None:
        return
    place = int(np.argmin(np.abs(np.array(MARGINS) - float(case.options["margin"]))))
    yield from _wrong_width(rows, case, robot, MARGINS[place])
    measured = rows.measured("outside")
    if not measured.any():
        return
    counts = rows["outside"][:, place :: len(MARGINS)]
    bad = measured[:, None] & (counts > float(case.options["share"]) * rows["poses"][:, None])
    order = int(np.argmin(bad.sum(axis=0)))
    failing = bad[:, order]
    if not failing.any():
        return
    excess = rows["excess"][:, order * robot.size : (order + 1) * robot.size]
    column = int(np.argmax(np.median(excess[failing], axis=0)))
    far = float(excess[failing, column].max())
    name, joints = list(robot.columns.items())[order]
    joint = robot.joints[joints[column]]
    low, high = robot.limits[joints[column]]
    steps = int(counts[failing, order].sum())
    cause = clear_reading(readings(rows.where(failing), case.spec, robot, order, MARGINS[place]))
    yield Failure(
        failing,
        f"{count_phrase(failing, 'lie')} beyond the limits of the {robot.name} in "
        f"{pluralize(steps, 'step')}: joint {joint.name} (column {column + 1}) by up to "
        f"{format_number(far, 'deg' if joint.unit == 'rad' else 'mm')}; "
        f"{low:g}..{high:g} {joint.unit} is allowed.",
        measured={"joint": column + 1, "name": joint.name, "degrees": far, "steps": steps},
        expected={"range": [low, high], "order": name},
        cause=cause,
        fix="The cause is unknown: check unit, order and zero of the joints; leave out what the robot "
        "cannot do."
        if cause is None
        else _REPAIRS[cause.kind],
        kind="limit",
        order=excess.max(axis=1),
    )


def _no_rate(schema: Schema) -> str:
    return (
        ""
        if schema.episode and schema.episode.fps
        else "the schema does not say how many steps a second has"
    )


@rule(
    "DC604",
    "joint-speed",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(pace,),
    suppressed_by=(*_SUPPRESSED_BY, "DC603"),
    unless=_no_rate,
    applies=has_speeds,
    defaults={"factor": 1.2},
    paced=True,
)
def joint_speed(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A joint moves faster than the robot can.

    What:
        In no step does a joint move at more than 1.2 times its highest speed, computed with
        ``episode: {fps: ...}``. Joints whose maker states no speed are not judged. A jump by a full
        turn is not motion; DC607 reports it.
    Why it matters:
        A dropped or repeated frame becomes a jerk that a policy imitates; a wrong frame rate makes
        every motion too fast.
    Measure:
        ``|q[t+1] - q[t]| * fps`` divided by the joint's highest speed.
    When it is wrong:
        A simulated robot ignores speed limits: raise ``factor``.
    Options:
        factor: largest allowed multiple of the highest speed (1.2).
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
        The robot's profile names the source of its speeds; Franka publishes 2.175 and 2.61 rad/s.
        DC505 checks the same for any field with ``max_speed``.
    """
    measured = rows.measured("peak_pace")
    episode = case.schema.episode
    robot = case.spec.robot
    if not measured.any() or episode is None or not episode.fps or robot is None:
        return
    most = float(case.options["factor"])
    peak = rows["peak_pace"] * episode.fps
    usual = rows["usual_pace"] * episode.fps
    bad = measured & (peak > most)
    if not bad.any():
        return
    throughout = int((bad & (usual > most)).sum())
    steady = throughout >= 0.9 * int(bad.sum())
    joint = int(rows["fast_joint"][int(np.argmax(np.where(bad, peak, -1.0)))])
    named = robot.joints[joint - 1].name if len(robot.columns) == 1 else f"{joint}"
    words = (
        "too fast throughout: fps or unit is wrong"
        if steady
        else "single jumps: frames were dropped or repeated"
    )
    yield Failure(
        bad,
        f"{count_phrase(bad, 'move')} joints at up to {format_number(float(peak[bad].max()))} "
        f"times their highest speed "
        f"(joint {named} of the {robot.name}, {episode.fps:g} steps a second), allowed "
        f"{most:g}.",
        measured={"factor": float(peak[bad].max()), "joint": joint},
        expected={"factor": most},
        cause=Cause(
            words,
            "rate" if steady else "jump",
            explains=throughout if steady else int(bad.sum()) - throughout,
        ),
        fix="Correct episode: {fps: ...}." if steady else "Cut the episodes at the jumps.",
        kind="rate" if steady else "jump",
        order=peak,
    )


def _angular(spec: FieldSpec) -> bool:
    angle = spec.unit in ANGLE or spec.unit is None
    return leaf(spec) and spec.role in {"joint_angle", "rotvec"} and angle and timed(spec)


@measure("wraps", version=2, applies=_angular, uses=("role", "unit"))
def wraps(column: Column, spec: FieldSpec) -> Columns:
    """Jumps by a full turn between steps.

    `moves`: steps; `wrapped`: those in which an angle, or a rotation vector as a whole, jumps by 2
    pi; `at_plus` and `at_minus`: rows in which each component (up to 64) is within 0.05 of pi and
    of -pi.
    """
    if not is_numeric(column) or column.values.ndim != 2 or column.lengths is None:
        return {}
    if column.values.shape[1] > MOST_COMPONENTS:
        return {}
    angles = np.ascontiguousarray(column.values.T, dtype=np.float64) * factor(spec.unit or "rad")
    counts = np.maximum(column.lengths - 1, 0)
    step = differences(angles, column.lengths)
    size = norms(step) if spec.role == "rotvec" and len(step) == 3 else np.abs(step)
    wrapped = np.any(np.atleast_2d(np.abs(size - 2 * math.pi) < 0.5), axis=0)
    columns = {
        "moves": counts,
        "wrapped": reduced(np.add, wrapped, counts),
        "at_plus": reduced(np.add, np.abs(angles - math.pi) < 0.05, column.lengths).T,
        "at_minus": reduced(np.add, np.abs(angles + math.pi) < 0.05, column.lengths).T,
    }
    return {name: Measured(values, counts > 0) for name, values in columns.items()}


@rule(
    "DC607",
    "angle-wrap",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(wraps,),
    suppressed_by=_SUPPRESSED_BY,
    applies=_angular,
    defaults={"share": 0.001, "mass": 0.01},
)
def angle_wrap(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Angles jump by a full turn, or lie on both sides of the cut at pi.

    What:
        Neighbouring steps do not differ by about 2 pi. No angle has more than 1 % of its values
        near pi and also more than 1 % near -pi, which are the same angle.
    Why it matters:
        The mean of pi and -pi is 0, the opposite direction; a standard deviation of 3 hides all
        real motion; a policy that averages across the cut turns the wrong way.
    Measure:
        Differences within 0.5 of 2 pi, of each joint angle or of a rotation vector as a whole;
        values within 0.05 of the cut.
    When it is wrong:
        The training code unwraps the angles or uses sine and cosine.
    Options:
        share: largest share of steps that may jump (0.001).
        mass: share of values that both sides of the cut must exceed for a finding (0.01).
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
        Unwrap the angles within each episode; train on sine and cosine, or on 6 numbers of the
        rotation matrix.
    Reference:
        openpi issues 637 and 814: LIBERO's roll lies at both 3.14 and -3.14, with a standard
        deviation of 3.05.
    """
    measured = rows.measured("wrapped")
    if not measured.any():
        return
    bad = measured & (rows["wrapped"] > float(case.options["share"]) * rows["moves"])
    if bad.any():
        steps = int(rows["wrapped"][bad].sum())
        yield Failure(
            bad,
            f"{count_phrase(bad, 'jump')} by a full turn between two steps "
            f"({pluralize(steps, 'step')}).",
            measured={"steps": steps},
            cause=Cause("angles were wrapped into -pi..pi", "wrap", explains=int(bad.sum())),
            fix="Unwrap them within the episode, or train on sine and cosine.",
            kind="wrap",
            order=rows["wrapped"] / np.maximum(rows["moves"], 1),
        )
    else:
        yield from _both_sides(rows, measured, float(case.options["mass"]))


def _both_sides(rows: Rows, measured: Array, most: float) -> Iterator[Failure]:
    measured = measured & rows.measured("at_plus", "at_minus")  # too wide arrays lack these columns
    if not measured.any():
        return
    total = int((rows["moves"][measured] + 1).sum())
    plus, minus = (rows[name][measured].sum(axis=0) / total for name in ("at_plus", "at_minus"))
    both = np.minimum(plus, minus)
    if float(both.max(initial=0.0)) > most:
        place = int(np.argmax(both))
        yield Failure(
            measured & ((rows["at_plus"][:, place] > 0) | (rows["at_minus"][:, place] > 0)),
            f"number {place + 1} is near pi in {100 * float(plus[place]):.3g} % of the steps and "
            f"near -pi in "
            f"{100 * float(minus[place]):.3g} %: the same angle, as far apart as can be.",
            measured={"plus": float(plus[place]), "minus": float(minus[place])},
            cause=Cause("the cut of the angle lies where the data are", "cut"),
            fix="Turn the zero of this angle, or train on sine and cosine.",
            kind="cut",
        )


@rule(
    "DC608",
    "shape-changes",
    Severity.WARNING,
    Level.GROUP,
    measures=(numbers,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=of_role("shape"),
    unless=lambda s: "" if s.samples.group else "the schema names no group of samples",
    defaults={"off": 1e-3},
)
def shape_changes(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The body shape changes within a sequence of one subject.

    What:
        Shape parameters (MANO's beta) are the same in all samples of a group.
    Why it matters:
        Bones that grow and shrink hide errors of the pose. A dataset that promises one shape per
        subject was then fitted frame by frame, or its files come from several fits.
    Measure:
        Distance of each number from its median over the group.
    When it is wrong:
        Groups hold several subjects: correct ``samples: {group: ...}``. Shapes are fitted per
        frame: raise ``off``.
    Options:
        off: largest distance of a number from its median (0.001).
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
        Repeat the fit with one shape per subject, or leave the deviating frames out.
    Reference:
        HO3D fits one shape per subject; HaMeR drops shapes beyond 3.
    """
    measured = rows.measured("min", "max")
    if not measured.any():
        return
    limit = float(case.options["off"])
    frames = measured & False
    drifting = measured & False
    far = np.zeros(len(rows))
    for _, places in rows.by_group():
        mine = places[measured[places]]
        if len(mine) >= 2:
            low, high = (
                np.abs(rows[name][mine] - np.median(rows[name][mine], axis=0))
                for name in ("min", "max")
            )
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
        f"shapes of {pluralize(int(mask.sum()))} {verb} by up to "
        f"{format_number(float(far[mask].max()))}, allowed "
        f"{format_number(limit)} within a sequence.",
        measured={"off": float(far[mask].max())},
        expected={"off": limit},
        cause=Cause(
            "single frames from another fit" if kind == "frames" else "fitted frame by frame", kind
        ),
        fix="Fit again with one shape per subject, or leave the odd frames out.",
        kind=kind,
        order=far,
    )


# Share of the samples that may jump, and fewest of them; how far the gap is beyond chance (e^-8);
# share of a step by which a jump exceeds the steps beside it.
_TAIL = 0.05
_FEWEST_IN_TAIL = 5
_NO_CHANCE = 8.0
_ALONE = 0.75
_MOVED = frozenset({"position", "joint_angle", "rotvec"})
LAGS = tuple(range(-5, 6))


def _moved(spec: FieldSpec) -> bool:
    timed = spec.shape is None or spec.ragged is not None
    return (
        leaf(spec)
        and timed
        and (spec.role in _MOVED or (spec.role == "action" and spec.max_speed is not None))
    )


def _sizes(column: Column, fits: Array, spec: FieldSpec) -> tuple[Array, Array]:
    """Return the size of each step: a distance, the largest change of an angle, or a rotation."""
    if spec.role == "rotvec" and column.values.shape[1] == 3:
        return _turns(column, fits, spec)
    change, count = steps(column, fits)
    return norms(change) if spec.role == "position" else np.abs(change).max(
        axis=0, initial=0.0
    ), count


def _turns(column: Column, fits: Array, spec: FieldSpec) -> tuple[Array, Array]:
    """Return the angle between neighbouring rotations in the field's unit.

    A rotation vector and its partner 2 pi away are the same rotation.
    """
    unit = ANGLE.get(spec.unit or "rad", 1.0)
    vectors = np.ascontiguousarray(column.values.T, dtype=np.float64) * unit
    angle = norms(vectors)
    scale = np.where(angle > 1e-12, np.sin(angle / 2) / np.maximum(angle, 1e-12), 0.5)
    whole = np.concatenate([np.cos(angle / 2)[None], vectors * scale])
    change, count = steps(Column(np.ascontiguousarray(whole.T), column.lengths), fits)
    near = norms(change)  # unit quaternions are 2 sin(angle / 4) apart, the shorter way round
    return 4 * np.arcsin(
        np.minimum(1.0, np.minimum(near, np.sqrt(np.maximum(0.0, 4 - near**2))) / 2)
    ) / unit, count


@measure("speed", applies=_moved, uses=("role", "unit"))
def speed(column: Column, spec: FieldSpec) -> Columns:
    """Largest motion of a field in one step, in its unit.

    `leap`, the largest step; `leap_at`, its number; `lone`, by how much the most isolated step
    exceeds both neighbours.
    """
    if not is_numeric(column) or column.lengths is None or column.values.ndim > 2:
        return {}
    lengths = column.lengths
    if column.values.ndim == 1:
        column = Column(column.values[:, None], lengths)
    fits = np.asarray(lengths > 3)
    if not fits.any():
        return {}
    far, count = _sizes(column, fits, spec)
    starts = np.cumsum(count) - count
    peak = reduced(np.maximum, far, count)
    before = np.roll(far, 1)
    after = np.roll(far, -1)
    # The first and the last step have one neighbour only and never count as isolated.
    before[starts[fits]], after[(starts + count - 1)[fits]] = np.inf, np.inf
    lone = reduced(np.maximum, far - np.maximum(before, after), count)
    leap_place = (
        reduced(
            np.minimum,
            np.where(far == np.repeat(peak, count), np.arange(len(far)), len(far)),
            count,
        )
        - starts
    )
    columns = {"leap": peak, "lone": np.maximum(lone, 0.0), "leap_at": leap_place}
    return {name: Measured(values, fits & np.isfinite(peak)) for name, values in columns.items()}


@rule(
    "DC505",
    "action-jump",
    Severity.WARNING,
    Level.GROUP,
    measures=(speed,),
    suppressed_by=("DC109", "DC122", "DC125", "DC201", "DC202", "DC221", "DC222"),
    applies=_moved,
    defaults={"z": 12.0, "logs": 8.0, "least": 10},
    paced=True,
)
def action_jump(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A field moves faster than allowed, or makes a jump unlike any in the other episodes.

    What:
        With ``max_speed`` and ``episode: {fps: ...}``, no step is faster. Otherwise no episode has
        a single step that exceeds its neighbours far more than the most isolated steps of the other
        episodes do; actions are judged by ``max_speed`` only.
    Why it matters:
        A controller that follows the jump reaches its limits; velocities computed from it corrupt
        the statistics.
    Measure:
        Distance, largest change of an angle, or angle of rotation per step. For each episode, the
        step that exceeds both neighbours most is compared with the median and MAD of all episodes,
        by its value and by its logarithm. Of 100 episodes or more, at most a twentieth also jump if
        a gap that does not occur by chance lies between them and all others, and each of their steps
        is four times as large as those before and after it.
    When it is wrong:
        Commands may jump: declare no ``max_speed`` for them.
    Options:
        z: robust deviation above which a step is a jump (12).
        logs: the same limit for the logarithm, which must also be exceeded (8).
        least: fewest episodes for the comparison (10).
    Bad::

        schema: {episode: {fps: 10}, fields: {q: {role: joint_angle, shape: [T, 1], unit: rad, max_speed: 2.6}}}
        samples:
          - {q: [[0.0], [0.1], [0.2], [0.3], [0.4]]}
          - {q: [[0.0], [0.1], [1.2], [1.3], [1.4]]}

    Good::

        schema: {episode: {fps: 10}, fields: {q: {role: joint_angle, shape: [T, 1], unit: rad, max_speed: 2.6}}}
        samples:
          - {q: [[0.0], [0.1], [0.2], [0.3], [0.4]]}
          - {q: [[0.0], [0.1], [0.3], [0.5], [0.6]]}

    Fix:
        Cut the episode at the jump, or smooth it.
    Reference:
        The Franka Panda's joints turn at most at 2.175 rad/s (2.61 rad/s for the last three).
    """
    measured = rows.measured("leap")
    if not measured.any():
        return
    fps = case.schema.episode.fps if case.schema.episode is not None else None
    most = case.spec.max_speed
    if most is not None and fps is not None:
        fast = measured & (rows["leap"] * fps > most * (1 + 1e-6))
        if fast.any():
            yield _fast(rows, case, fast, fps)
        return
    if case.spec.role == "action" or measured.sum() < int(case.options["least"]):
        return
    score, logs = _outlying(np.where(measured, rows["lone"], np.nan))
    jumping = measured & (score > float(case.options["z"])) & (logs > float(case.options["logs"]))
    jumping |= _apart(rows["lone"], rows["leap"], measured)
    if jumping.any():
        yield _jumping(rows, case, jumping, score, float(np.median(rows["lone"][measured])))


def _jumping(rows: Rows, case: RuleContext, jumping: Array, score: Array, usual: float) -> Failure:
    jump = float(np.median(rows["lone"][jumping]))
    return Failure(
        jumping,
        f"{count_phrase(jumping, 'have')} a single step of {format_number(jump, case.spec.unit)} "
        f"(median) more than the steps beside it; "
        f"{format_number(usual, case.spec.unit)} is usual.",
        measured={"jump": jump, "usual": usual},
        cause=_jump_cause(rows, case, jumping),
        fix="Cut the episode at the jump, or smooth it.",
        kind="jump",
        order=score,
    )


def _outlying(values: Array) -> tuple[Array, Array]:
    """Return robust deviations of numbers and of their logarithms; 0 for NaN and equal numbers."""
    finite = np.isfinite(values)
    floor = max(1e-12, 1e-3 * float(np.median(values[finite])))
    deviations = []
    for scaled, least in (
        (np.where(finite, values, 0.0), floor),
        (np.log(np.where(finite, values, 0.0) + floor), 0.15),
    ):
        middle = np.median(scaled[finite])
        spread = max(least, 1.4826 * float(np.median(np.abs(scaled[finite] - middle))))
        deviations.append(np.where(finite, (scaled - middle) / spread, 0.0))
    return deviations[0], deviations[1]


def _apart(lone: Array, leap: Array, measured: Array) -> Array:
    """Return few samples whose isolated steps lie beyond a gap above those of many others.

    Notes:
        In the tail of a distribution, k times the logarithm of the ratio of the k-th largest number
        to the next one follows one exponential distribution for all k (Renyi). The gap is no chance
        where this number is far above the mean of the others, and the steps beyond it are jumps
        where they are four times as large as the steps beside them.
    """
    judged = np.flatnonzero(measured & (lone > 0))
    most = int(_TAIL * len(judged))
    mask = np.zeros(len(lone), bool)
    if most < _FEWEST_IN_TAIL:
        return mask
    order = judged[np.argsort(-lone[judged], kind="stable")]
    places = np.arange(1, most + 1)
    spacings = places * np.log(lone[order[:most]] / lone[order[1 : most + 1]])
    if np.median(spacings) == 0:  # whole pixels or counts: each level is a gap above the next one
        return mask
    last = int(np.argmax(spacings))
    usual = (spacings.sum() - spacings[last]) / (most - 1)
    beyond = order[: last + 1]
    is_gap = spacings[last] > (_NO_CHANCE + math.log(most)) * usual
    if is_gap and (lone[beyond] >= _ALONE * leap[beyond]).all():
        mask[beyond] = True
    return mask


def _fast(rows: Rows, case: RuleContext, fast: Array, fps: float) -> Failure:
    unit = f"{case.spec.unit or ''}/s".lstrip("1")
    top = float(rows["leap"][fast].max()) * fps
    return Failure(
        fast,
        f"{count_phrase(fast, 'move')} at up to {format_number(top, unit)}, at step "
        f"{int(np.median(rows['leap_at'][fast])):,} "
        f"(median); {format_number(case.spec.max_speed or 0.0, unit)} is allowed.",
        measured={"speed": top},
        expected={"speed": f"..{case.spec.max_speed:g}"},
        cause=_jump_cause(rows, case, fast),
        fix="Cut the episode at the jump, or correct max_speed or fps.",
        kind="speed",
        order=rows["leap"],
    )


def _jump_cause(rows: Rows, case: RuleContext, bad: Array) -> Cause | None:
    peak = rows["leap"][bad]
    lone = rows["lone"][bad]
    turn = 2 * np.pi / ANGLE.get(case.spec.unit or "rad", 1.0)
    wraps = (
        np.abs(peak - turn) < 0.05 * turn
        if case.spec.role == "joint_angle"
        else np.zeros(len(peak), bool)
    )
    single = (lone > 0.5 * peak) & ~wraps
    reasons = {
        "wrap": (wraps, "the angle wraps round by a full turn"),
        "jump": (single, "a single step: rows are missing there, or two recordings were joined"),
    }
    kind = max(reasons, key=lambda name: int(reasons[name][0].sum()))
    explained = int(reasons[kind][0].sum())
    return Cause(reasons[kind][1], kind, explains=explained) if explained else None


def _driven_fields(schema: Schema) -> list[tuple[str, FieldSpec]]:
    return [(name, spec) for name, spec in schema.of_role("action", "gripper") if spec.drives]


def _rows_of(block: Block, schema: Schema, name: str) -> Column | None:
    column = column_of(block, schema, name)
    if column is None or column.lengths is None or not is_numeric(column) or column.values.ndim > 2:
        return None
    return column if column.values.ndim == 2 else Column(column.values[:, None], column.lengths)


@measure(
    "lags", per="sample", uses=("fields.drives", "fields.columns", "fields.role", "fields.absent")
)
def lags(block: Block, schema: Schema) -> Columns:
    """Correlation of a command with the change of what it drives, at each of `LAGS` steps.

    `<field>:delta`: correlation of the command; `<field>:absolute`: of the change of the command;
    both are means over the columns. Lag 1 is the change from the command's own row to the next, lag
    0 the one before.
    """
    columns: dict[str, Measured] = {}
    for name, spec in _driven_fields(schema):
        command = _rows_of(block, schema, name)
        state = _rows_of(block, schema, spec.drives or "")
        if command is None or state is None or command.lengths is None or state.lengths is None:
            continue
        fits = (command.lengths == state.lengths) & (command.lengths > 4 * len(LAGS))
        if not fits.any():
            continue
        width = min(command.values.shape[1], state.values.shape[1])
        change, count = steps(state, fits)
        command_change, _ = steps(command, fits)
        rows = np.ascontiguousarray(
            command.values[np.repeat(fits, command.lengths)].T, dtype=np.float64
        )
        later = np.ones(rows.shape[1], bool)
        later[(np.cumsum(count + fits) - count - fits)[fits]] = False
        for kind, values in (("delta", rows[:width, later]), ("absolute", command_change[:width])):
            r = _correlations(values, change[:width], count)
            columns[f"{name}:{kind}"] = Measured(r, fits & np.isfinite(r).all(axis=1))
    return dict(columns)


def _unit(values: Array, count: Array) -> Array:
    """Return each sample's components without their mean and scaled to length 1; 0 if constant."""
    mean = reduced(np.add, values, count) / np.maximum(count, 1)
    centred = values - np.repeat(mean, count, axis=-1)
    size = np.sqrt(reduced(np.add, centred * centred, count))
    return np.asarray(centred / np.repeat(np.where(size > 1e-12, size, np.inf), count, axis=-1))


def _correlations(command: Array, change: Array, count: Array) -> Array:
    """Return float64 (samples, lags), the mean over columns that change.

    `change[t]` leads to row t of `command`.
    """
    a = _unit(command, count)
    b = _unit(change, count)
    alive = ((reduced(np.add, np.abs(a), count) > 0) & (reduced(np.add, np.abs(b), count) > 0)).sum(
        axis=0
    )
    sample = np.repeat(np.arange(len(count)), count)
    out = np.zeros((len(count), len(LAGS)))
    for place, lag in enumerate(LAGS):
        first = slice(max(0, -lag), len(sample) - max(0, lag))
        second = slice(max(0, lag), len(sample) - max(0, -lag))
        product = (a[:, first] * b[:, second]).sum(axis=0) * (sample[first] == sample[second])
        out[:, place] = np.bincount(sample[first], product, len(count)) / np.maximum(alive, 1)
    return out


@rule(
    "DC507",
    "action-state-lag",
    Severity.INFO,
    Level.DATASET,
    per="sample",
    measures=(lags,),
    suppressed_by=("DC109", "DC121", "DC122", "DC123", "DC221"),
    defaults={"r": 0.5, "agree": 0.6},
    unless=lambda s: "" if _driven_fields(s) else "no action says what it drives",
)
def action_state_lag(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """States follow the actions at another lag than declared.

    What:
        The change of the field that an action ``drives`` correlates best with the action at the
        declared ``lag``, or at 0 or 1 if none is declared.
    Why it matters:
        A policy trained on pairs that are shifted by one step learns to act on the result of its
        own action.
    Measure:
        Correlation of the action (or its change) with the change of the state at -5 to 5 steps;
        median over the episodes.
    When it is wrong:
        The controller is slow: declare its actual ``lag``.
    Options:
        r: correlation that the best lag must reach (0.5).
        agree: share of episodes that must agree on that lag (0.6).
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 1], drives: q, lag: 1}, q: {role: position, shape: [T, 1]}}}
        samples:
          - {n: 3, a: {normal: [80, 1]}, q: {walk: [80, 1], lag: 3}}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 1], drives: q, lag: 1}, q: {role: position, shape: [T, 1]}}}
        samples:
          - {n: 3, a: {normal: [80, 1]}, q: {walk: [80, 1], lag: 1}}

    Fix:
        Shift one of the two fields by the difference, or declare ``lag``.
    Reference:
        LIBERO's create_dataset.py stores the observation after the step: obs[t] is the result of
        action[t].
    """
    for name, spec in _driven_fields(case.schema):
        kinds = [k for k in ("delta", "absolute") if rows.measured(f":{name}:{k}").any()]
        if not kinds:
            continue
        by_kind = {
            k: np.median(rows[f":{name}:{k}"][rows.measured(f":{name}:{k}")], axis=0) for k in kinds
        }
        kind = max(kinds, key=lambda k: float(np.max(_size(by_kind[k], spec))))
        measured = rows.measured(f":{name}:{kind}")
        each = _size(rows[f":{name}:{kind}"], spec)
        r = _size(by_kind[kind], spec)
        best = int(np.argmax(r))
        agree = measured & (np.argmax(each, axis=1) == best)
        allowed = {0, 1} if spec.lag is None else {spec.lag}
        wanted = max(
            (LAGS.index(lag) for lag in allowed if lag in LAGS),
            key=lambda i: float(r[i]),
            default=None,
        )
        # The better lag explains half of what the wanted one leaves unexplained.
        clear = wanted is None or 1 - r[best] < 0.5 * (1 - r[wanted])
        if LAGS[best] in allowed or r[best] < float(case.options["r"]) or not clear:
            continue
        if agree.sum() < float(case.options["agree"]) * measured.sum():
            continue
        yield _lagging(name, spec, agree, float(r[best]), LAGS[best], allowed)


def _size(r: Array, spec: FieldSpec) -> Array:
    # The sign of a gripper's command is judged elsewhere.
    return np.abs(r) if spec.role == "gripper" else r


def _lagging(
    name: str, spec: FieldSpec, agree: Array, r: float, lag: int, allowed: set[int]
) -> Failure:
    expected_lag = str(spec.lag) if spec.lag is not None else "0 or 1"
    return Failure(
        agree,
        f"{spec.drives} follows {name} best after {lag} steps (correlation {r:.2f}); {expected_lag} is "
        f"expected.",
        measured={"lag": lag, "r": r},
        expected={"lag": sorted(allowed)},
        cause=Cause(
            f"one of the two is shifted by {lag - (spec.lag if spec.lag is not None else 1)} steps",
            f"lag{lag}",
            float(lag),
            explains=int(agree.sum()),
        ),
        fix="Shift one of the two by the difference, or declare lag.",
        kind=f"lag{lag}",
        extra=(name,),
    )


# Tolerance of a declared value, for float32 and round trips between units.
_CLOSE = 1e-4
_AHEAD = 3  # steps within which fingers follow a command
_CONVENTIONS = ((-1.0, 1.0), (0.0, 1.0), (0.0, 255.0))


@measure("told", applies=of_role("gripper"), uses=("values",))
def commanded(column: Column, spec: FieldSpec) -> Columns:
    """Commands of a gripper: `told_low`, `told_high`, and shares of values.

    Shares: `between` the two, and undeclared (`strays`).
    """
    if not is_numeric(column):
        return {}
    values, lengths = flat(column)
    values = values.astype(np.float64)
    out = np.zeros((4, len(column)))
    present = lengths > 0
    starts = np.cumsum(lengths) - lengths
    for i in np.flatnonzero(present):
        own = values[starts[i] : starts[i] + lengths[i]]
        low = own.min()
        high = own.max()
        ends = (np.abs(own - low) <= _CLOSE) | (np.abs(own - high) <= _CLOSE)
        allowed = (
            np.logical_or.reduce([np.abs(own - v) <= _CLOSE for v in spec.values])
            if spec.values
            else ends
        )
        out[:, i] = low, high, 1 - np.mean(ends), 1 - np.mean(allowed)
    names = ("told_low", "told_high", "between", "strays")
    return {name: Measured(row, present) for name, row in zip(names, out, strict=True)}


@measure(
    "grasping", per="sample", uses=("fields.drives", "fields.columns", "fields.lag", "fields.role")
)
def grasping(block: Block, schema: Schema) -> Columns:
    """Response of fingers to a gripper's command: ``<field>:follows``, a correlation.

    It correlates the command with the opening 3 steps later (plus `lag`). The opening is the sum of
    the absolute values of what the command `drives`. No row where either never changes.
    """
    columns: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        if spec.role != "gripper" or not spec.drives:
            continue
        mine = column_of(block, schema, name)
        other = column_of(block, schema, spec.drives)
        if mine is None or other is None or not (is_numeric(mine) and is_numeric(other)):
            continue
        value = np.zeros(len(block))
        present = np.zeros(len(block), bool)
        for i in range(len(block)):
            command = mine[i]
            opening = other[i]
            if command.ndim and opening.ndim and len(command) == len(opening):
                value[i], present[i] = _command_correlation(command, opening, spec.lag or 0)
        columns[f"{name}:follows"] = Measured(value, present)
    return dict(columns)


def _command_correlation(commands: Array, openings: Array, lag: int) -> tuple[float, bool]:
    if not commands.size or not openings.size:
        return 0.0, False
    command = commands.reshape(len(commands), -1).astype(np.float64)[:, 0]
    opening = np.abs(openings.reshape(len(openings), -1).astype(np.float64)).sum(axis=1)[
        max(lag, 0) + _AHEAD :
    ]
    command = command[: len(opening)]
    if (
        len(opening) < 2 * _AHEAD
        or not np.isfinite(opening).all()
        or not np.isfinite(command).all()
    ):
        return 0.0, False
    command, opening = command - command.mean(), opening - opening.mean()
    size = float(np.sqrt((command**2).sum() * (opening**2).sum()))
    return (float((command * opening).sum()) / size, True) if size > 1e-12 else (0.0, False)


@rule(
    "DC207",
    "gripper-convention",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(commanded, grasping),
    suppressed_by=("DC109", "DC122", "DC221", "DC224"),
    applies=of_role("gripper"),
    defaults={"strays": 0.01, "sure": 0.3},
)
def gripper_convention(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A gripper command means something else than declared, or than in the other samples.

    What:
        Only declared ``values`` occur. Without declared values, all samples use one pair (-1 and 1,
        0 and 1, or 0 and 255). If ``values: [open, closed]`` and ``drives`` are declared, the
        fingers close on the command to close.
    Why it matters:
        A policy that learnt the opposite sign opens its gripper when it should grasp: the success
        rate is 0 although the loss is fine.
    Measure:
        Values of each sample; correlation of the command with the opening of the fingers 3 steps
        later.
    When it is wrong:
        The gripper is continuous: declare its ``range`` and no ``values``. The fingers respond
        late: declare ``lag``.
    Options:
        strays: largest share of undeclared values (0.01).
        sure: size of a correlation with the wrong sign above which it is reported (0.3).
    Bad::

        schema: {fields: {grip: {role: gripper, shape: [T], values: [-1, 1]}}}
        samples:
          - {grip: [-1.0, -1.0, 1.0, 1.0, -1.0]}
          - {grip: [-1.0, 1.0, 1.0, 1.0, -1.0]}
          - {grip: [0.0, 0.0, 1.0, 1.0, 0.0]}

    Good::

        schema: {fields: {grip: {role: gripper, shape: [T], values: [-1, 1]}}}
        samples:
          - {grip: [-1.0, -1.0, 1.0, 1.0, -1.0]}
          - {grip: [-1.0, 1.0, 1.0, 1.0, -1.0]}

    Fix:
        Rescale or flip the command in the listed samples.
    Reference:
        LIBERO: -1 opens, +1 closes; its RLDS versions use 1 for open and 0 for closed; LeRobot
        issue 1316.
    """
    measured = rows.measured("told_low")
    if not measured.any():
        return
    spec = case.spec
    if spec.values:
        strays = measured & (rows["strays"] > float(case.options["strays"]))
        if strays.any():
            yield _strays(rows, strays, spec)
    else:
        yield from _mixture(rows, measured)
    if len(spec.values) == 2 and f":{case.name}:follows" in rows:
        yield from _against_command(rows, case, f":{case.name}:follows")


def _against_command(rows: Rows, case: RuleContext, column: str) -> Iterator[Failure]:
    """Yield the samples whose fingers open on the command to close."""
    opened, closed = case.spec.values
    measured = rows.measured(column)
    along = rows[column] * np.sign(opened - closed)  # above 0 where fingers follow the command
    wrong = measured & (along < -float(case.options["sure"]))
    if wrong.any():
        middle = float(np.median(rows[column][wrong]))
        yield Failure(
            wrong,
            f"{case.spec.drives} moves against the command in {int(wrong.sum()):,} of "
            f"{pluralize(int(measured.sum()))} "
            f"(correlation {format_number(middle)}, median); {format_number(opened)} is declared "
            f"to open.",
            measured={"correlation": middle},
            cause=Cause("open and closed are swapped", "inverted", -1.0, int(wrong.sum())),
            kind="inverted",
            fix="Swap values: [open, closed] where all samples are so, else flip the command in "
            "these.",
            order=-along,
        )


def _pair(rows: Rows) -> Array:
    """Return int (rows): the pair of values that a sample uses, -1 where unclear.

    It is unclear for a single value and for continuous values.
    """
    conventions = np.full(len(rows), -1)
    for number, (low, high) in enumerate(_CONVENTIONS):
        ends = [
            np.abs(rows[name] - end) <= _CLOSE
            for name in ("told_low", "told_high")
            for end in (low, high)
        ]
        inside = (ends[0] | ends[1]) & (ends[2] | ends[3]) & (rows["between"] <= _CLOSE)
        # The values that no other pair has: -1; 0 and 1 together; 255.
        only = (ends[0], ends[0] & ends[3], ends[3])[number]
        conventions[inside & only] = number
    return conventions


def _strays(rows: Rows, strays: Array, spec: FieldSpec) -> Failure:
    pairs = _pair(rows)
    kinds = sorted({_CONVENTIONS[p] for p in pairs[strays] if p >= 0})
    cause = None
    if kinds and (pairs[strays] >= 0).all():
        text = " and ".join(f"{low:g} and {high:g}" for low, high in kinds)
        cause = Cause(
            f"the command is {text}", f"{kinds[0][0]:g}/{kinds[0][1]:g}", None, int(strays.sum())
        )
    declared = " and ".join(f"{value:g}" for value in spec.values)
    return Failure(
        strays,
        f"{count_phrase(strays, 'have')} commands of "
        f"{format_number(float(rows['told_low'][strays].min()))} to "
        f"{format_number(float(rows['told_high'][strays].max()))}; only {declared} are declared.",
        measured={
            "low": float(rows["told_low"][strays].min()),
            "high": float(rows["told_high"][strays].max()),
        },
        expected={"values": list(spec.values)},
        cause=cause,
        kind="values",
        fix="Rescale the command, or correct values: [open, closed].",
        order=rows["strays"],
    )


def _mixture(rows: Rows, measured: Array) -> Iterator[Failure]:
    pairs = np.where(measured, _pair(rows), -1)
    counts = np.bincount(pairs[pairs >= 0], minlength=len(_CONVENTIONS))
    if np.count_nonzero(counts) > 1:
        usual = int(np.argmax(counts))
        few = (pairs >= 0) & (pairs != usual)
        conventions = " and ".join(
            f"{low:g}, {high:g}" for (low, high), n in zip(_CONVENTIONS, counts, strict=True) if n
        )
        yield Failure(
            few,
            f"samples use different commands: {conventions}; {count_phrase(few, 'have')} the rarer one.",
            measured={"counts": counts.tolist()},
            cause=Cause("datasets of two conventions were joined", "mixed", None, int(few.sum())),
            kind="mixed",
            fix="Bring all to one convention, and declare it: values: [open, closed].",
        )
