"""Rules about what a robot's numbers mean: actions against states, encoders, joints, grippers, sides.

Commands and states are rows of numbers over time. The names of their columns come from the file, as
the fact ``names/<field>`` of an episode; rules that need them are silent without.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    Info,
    RuleContext,
    Skip,
    count_phrase,
    first_few,
    format_number,
    measure,
    pluralize,
    rule,
    unique_texts,
)
from datacheck.rules.measures import MOST_COMPONENTS, extremes, is_numeric, leaf, reduced
from datacheck.rules.series import differences
from datacheck.schema.grammar import ANGLE
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

_SUPPRESSED_BY = ("DC109", "DC121", "DC122", "DC123", "DC221", "DC222")
_USES = ("fields.role", "fields.shape", "fields.absent", "fields.at", "fields.columns")
_PAIRS = 16  # pairs of an action and a state that are compared: a file may have thousands of fields
_FIELDS = 16  # commands and states that are measured
# Last parts of the names under which LeRobot and ALOHA store the robot's state.
_STATE_NAMES = frozenset({"state", "qpos"})


def _over_time(spec: FieldSpec) -> bool:
    return not spec.is_text and spec.ragged is not None and len(spec.shape or ()) == 2


def _actions(schema: Schema) -> list[str]:
    stored = sorted(schema.stored.items())
    return [name for name, spec in stored if spec.role == "action" and _over_time(spec)]


def _is_state(name: str, spec: FieldSpec) -> bool:
    """Tell whether a field is the robot's state: by its role, or by its name in the file."""
    last = re.split(r"[./]", (spec.at or name).strip("/"))[-1]
    named = spec.role in {None, "value"} and last in _STATE_NAMES
    return _over_time(spec) and (spec.role == "joint_angle" or named)


def _states(schema: Schema) -> list[str]:
    return [name for name, spec in sorted(schema.stored.items()) if _is_state(name, spec)]


def _joint_fields(schema: Schema) -> list[str]:
    return sorted({*_actions(schema), *_states(schema)})[:_FIELDS]


def _state_pairs(schema: Schema) -> list[tuple[str, str]]:
    """Return the pairs of an action and a state over the same axis whose widths may agree."""
    pairs = []
    for action in _actions(schema):
        spec = schema.fields[action]
        for state in _states(schema):
            other = schema.fields[state]
            sizes = (spec.shape or ())[1], (other.shape or ())[1]
            fixed = all(isinstance(size, int) for size in sizes)
            if spec.ragged == other.ragged and (not fixed or sizes[0] == sizes[1]):
                pairs.append((action, state))
    return pairs[:_PAIRS]


def _names(block: Block, name: str) -> list[str]:
    """Return the names of a field's columns for each sample, with commas; "" where unknown."""
    column = block.facts.get(f"names/{name}")
    if column is None or column.kind != "text":
        return [""] * len(block)
    width = block.fields[name].values.shape[1]
    return [text if text.count(",") + 1 == width else "" for text in column.objects]


def _matrix(block: Block, name: str) -> Column | None:
    """Return a field's rows over time, None where the block has none that are measured."""
    column = block.fields.get(name)
    if (
        column is None
        or column.lengths is None
        or not is_numeric(column)
        or column.values.ndim != 2
        or not 0 < column.values.shape[1] <= MOST_COMPONENTS
    ):
        return None
    return column


def _column_name(names: str, place: int) -> str:
    return f"column {place} ({names.split(',')[place]})" if names else f"column {place}"


def _is_gripper(names: str, width: int) -> Array:
    """Return bool (columns): those that are named a gripper."""
    listed = names.lower().split(",") if names else []
    return np.array([i < len(listed) and "gripper" in listed[i] for i in range(width)], bool)


# ------------------------------------------------------------------------------------------- offset

_LAGS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 15)  # steps by which a state may follow its action
_LEAST_STEPS = 30


@measure("gaps", version=2, per="sample", uses=_USES)
def gaps(block: Block, schema: Schema) -> Columns:
    """Differences between an action and a state of the same width, column by column.

    `<action>~<state>:gap`: median of action minus state, at the lag of 0 to 15 steps at which the
    difference varies least; `:gap_spread`: its 10th to 90th percentile; `:follow`: correlation at
    that lag; `:gain`: standard deviation of the state by that of the action; `:swing`: 5th to 95th
    percentile of the action; `:joints`: names of the columns. No row for episodes of fewer than 30
    steps, or where the two have other names.
    """
    columns: dict[str, Measured] = {}
    for action, state in _state_pairs(schema):
        command, actual = _matrix(block, action), _matrix(block, state)
        if command is None or actual is None or command.values.shape[1:] != actual.values.shape[1:]:
            continue
        assert command.lengths is not None
        assert actual.lengths is not None
        names, others = _names(block, action), _names(block, state)
        same = np.array([not a or not b or a == b for a, b in zip(names, others, strict=True)])
        fits = (command.lengths == actual.lengths) & (command.lengths >= _LEAST_STEPS) & same
        if not fits.any():
            continue
        values = np.zeros((len(block), 5, command.values.shape[1]))
        for i in np.flatnonzero(fits).tolist():
            values[i] = _gap(command[i].astype(np.float64), actual[i].astype(np.float64))
        present = fits & np.isfinite(values).all(axis=(1, 2))
        pair = f"{action}~{state}"
        for place, stat in enumerate(("gap", "gap_spread", "follow", "gain", "swing")):
            columns[f"{pair}:{stat}"] = Measured(values[:, place], present)
        texts = np.array([a or b for a, b in zip(names, others, strict=True)], dtype=object)
        columns[f"{pair}:joints"] = Measured(texts, present)
    return dict(columns)


def _gap(action: Array, state: Array) -> Array:
    """Return float64 (5, columns): median difference, its spread, correlation, gain and motion."""
    steps, width = action.shape
    lags = [lag for lag in _LAGS if 2 * lag < steps]
    compared = steps - lags[-1]  # the same actions for each lag
    scatter = [np.var(action[:compared] - state[lag : lag + compared], axis=0) for lag in lags]
    best = np.argmin(scatter, axis=0)
    out = np.zeros((5, width))
    for place in np.unique(best):
        mine = best == place
        lag = lags[place]
        a, s = action[: steps - lag, mine], state[lag:, mine]
        low, middle, high = _quantiles(a - s, (0.1, 0.5, 0.9))
        least, most = _quantiles(a, (0.05, 0.95))
        a, s = a - a.mean(axis=0), s - s.mean(axis=0)
        deviations = np.sqrt((a * a).mean(axis=0)), np.sqrt((s * s).mean(axis=0))
        product = deviations[0] * deviations[1]
        moves = product > 1e-18
        out[:, mine] = (
            middle,
            high - low,
            np.where(moves, (a * s).mean(axis=0) / np.where(moves, product, 1.0), 0.0),
            np.where(moves, deviations[1] / np.where(moves, deviations[0], 1.0), 0.0),
            most - least,
        )
    return out


def _quantiles(values: Array, shares: tuple[float, ...]) -> Array:
    """Return float64 (shares, columns), as `numpy.quantile` does, which takes longer for few rows."""
    ordered = np.sort(values, axis=0)
    places = np.array(shares) * (len(ordered) - 1)
    below = places.astype(np.int64)
    low, high = ordered[below], ordered[np.minimum(below + 1, len(ordered) - 1)]
    between: Array = low + (high - low) * (places - below)[:, None]
    return between


def _no_pairs(schema: Schema) -> str:
    return "" if _state_pairs(schema) else "no action beside a state of the robot"


_NEAR = 0.5  # share of `offset` within which the other columns agree
_CONSTANT = 0.5  # largest spread of the difference within an episode, of the offset
_STEADY = 0.35  # largest deviation of an episode's offset from the median, of the offset
_GAINS = (0.85, 1.18)  # of a state in the unit of its action
_FULL_TURNS = (2 * np.pi, 360.0)


@rule(
    "DC521",
    "action-offset",
    Severity.WARNING,
    Level.DATASET,
    per="sample",
    measures=(gaps,),
    suppressed_by=_SUPPRESSED_BY,
    unless=_no_pairs,
    defaults={"offset": 0.15, "r": 0.9, "agree": 0.9, "least": 5},
)
def action_offset(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """The action of one joint differs from its state by a constant.

    What:
        Where the columns of an action follow those of a state, no column keeps a constant distance
        from its state in all episodes while the others agree with theirs.
    Why it matters:
        The policy learns targets that the robot does not reach. The loss is fine, and the hand
        misses by centimetres.
    Measure:
        An action and a state of the same width, with the same names where names are known: the
        median difference at the lag of 0 to 15 steps at which it varies least, in each episode of
        30 steps or more. A column follows if the correlation is at least 0.9 and both have the same
        scale (standard deviations differ by a factor of at most 1.18). The offset is compared with
        the motion of the column and of the typical column (5th to 95th percentile of an episode);
        it is at least twice as large as the spread of the difference and deviates by at most 35 %
        between episodes. At least half of the columns that follow, and at least one, are within
        half of ``offset``. Velocities, changes and other units do not follow; columns named
        gripper are not judged, and neither is an offset of a full turn.
    When it is wrong:
        Action and state refer to different points of the robot on purpose, such as flange and
        fingertip: switch the rule off.
    Options:
        offset: smallest offset, as a share of the motion (0.15).
        r: correlation from which a column follows its state (0.9).
        agree: share of the episodes that must have the offset (0.9).
        least: fewest episodes in which the column follows (5).
    Bad::

        schema: {fields: {action: {role: action, shape: [T, 3]},
                 q: {role: joint_angle, shape: [T, 3], unit: rad}}}
        samples:
          - {n: 5, action: {ramp: [60, 3], at: [0, 0.6, 0]}, q: {ramp: [60, 3]}}

    Good::

        schema: {fields: {action: {role: action, shape: [T, 3]},
                 q: {role: joint_angle, shape: [T, 3], unit: rad}}}
        samples:
          - {n: 5, action: {ramp: [60, 3]}, q: {ramp: [60, 3]}}

    Fix:
        Compare the zero positions of leader and follower in this joint. If the state is right, move
        the recorded actions by the offset; otherwise record again.
    Reference:
        lerobot pull request 3762: leader and follower 17 degrees apart in one joint; the robot
        missed by 6 cm.
    """
    judged = np.zeros(len(rows), bool)
    for action, state in _state_pairs(case.schema):
        for names, places in _robots(rows, f"{action}~{state}", "gap"):
            yield from _offsets(rows, case, (action, state), places, names, judged)
    yield from _unjudged(judged, "no state that their actions follow in its own unit")


def _unjudged(judged: Array, reason: str) -> Iterator[Skip]:
    if not judged.all():
        yield Skip(~judged, reason)


def _robots(rows: Rows, pair: str, stat: str) -> Iterator[tuple[str, Array]]:
    """Yield (names of the columns, positions of the episodes that have them)."""
    measured = rows.measured(f":{pair}:{stat}")
    if measured.any():
        joints = rows[f":{pair}:joints"]
        for names in unique_texts(joints[measured]):
            yield names, np.flatnonzero(measured & (joints == names))


def _offsets(
    rows: Rows, case: RuleContext, fields: tuple[str, str], places: Array, names: str, seen: Array
) -> Iterator[Failure]:
    """Yield the columns with an offset; mark the episodes that were judged in `seen`."""
    gap, spread, r, gain, swing = (
        rows[f":{fields[0]}~{fields[1]}:{stat}"][places]
        for stat in ("gap", "gap_spread", "follow", "gain", "swing")
    )
    usual = np.median(swing, axis=0)
    follows = (
        (r >= float(case.options["r"]))
        & (gain >= _GAINS[0])
        & (gain <= _GAINS[1])
        & (swing > 0.2 * usual)
    )
    count = follows.sum(axis=0)
    judged = count >= max(int(case.options["least"]), 0.5 * len(places))
    if judged.sum() < 2:
        return
    seen[places] = True
    middle = np.array([np.median(gap[f, j]) if f.any() else 0.0 for j, f in enumerate(follows.T)])
    wide = np.array([np.median(spread[f, j]) if f.any() else 0.0 for j, f in enumerate(follows.T)])
    scale = np.maximum(usual, np.median(usual[judged]))
    limit = float(case.options["offset"]) * scale
    steady = (np.abs(gap - middle) <= _STEADY * np.abs(middle)) & follows
    turned = np.min([np.abs(np.abs(middle) - turn) / turn for turn in _FULL_TURNS], axis=0) < 0.02
    off = (
        judged
        & (np.abs(middle) >= limit)
        & (wide <= _CONSTANT * np.abs(middle))
        & (steady.sum(axis=0) >= float(case.options["agree"]) * count)
        & ~turned
        & ~_is_gripper(names, len(middle))
    )
    near = judged & (np.abs(middle) <= _NEAR * limit)
    if not off.any() or near.sum() < max(1, 0.5 * judged.sum()):
        return
    unit = case.schema.fields[fields[1]].unit
    found = [
        f"{_column_name(names, int(j))} by {format_number(float(middle[j]), unit)} (it moves by "
        f"{format_number(float(usual[j]), unit)} in an episode)"
        for j in np.flatnonzero(off)
    ]
    failing = np.zeros(len(rows), bool)
    failing[places[steady[:, off].any(axis=1)]] = True
    yield Failure(
        failing,
        f"{fields[0]} differs from {fields[1]} by a constant in {first_few(found)}, in "
        f"{pluralize(int(failing.sum()), 'episode')}; {pluralize(int(near.sum()), 'other column')} "
        f"agree.",
        measured={
            "columns": [int(j) for j in np.flatnonzero(off)],
            "offsets": [float(middle[j]) for j in np.flatnonzero(off)],
        },
        expected={"offset": f"..{float(case.options['offset']):g} of the motion"},
        kind="offset",
        fix="Compare the zero positions of leader and follower in this joint.",
        extra=fields,
    )


# --------------------------------------------------------------------------------------------- wrap

_RADIANS = 4.2 * np.pi  # largest angle that is taken for radians
_TICKS = tuple(float(2**n) for n in range(10, 17))
_SMALL = 1 / 25  # largest ordinary step, of a turn
_ORDINARY = 3.0  # times the 95th percentile of the steps that a mended step may have
_PRECISE = 0.02  # of a turn, by which jumps inside the range may differ from it
_MOVING_STEPS = 10  # fewest steps other than the jumps that move: a switch has none


def _may_wrap(spec: FieldSpec) -> bool:
    """Tell whether a field may hold an encoder's angle; DC607 judges joint angles and rotations."""
    angle = spec.unit in ANGLE or spec.unit is None
    return leaf(spec) and _over_time(spec) and angle and spec.role in {None, "value", "action"}


def _turn_sizes(values: Array, unit: str | None) -> list[float]:
    """Return the sizes of a full turn that the numbers of one column may have, by unit or range."""
    if unit is not None:
        return [2 * np.pi / ANGLE[unit]]
    top = float(np.abs(values).max(initial=0.0))
    sizes = []
    if top <= _RADIANS:
        sizes.append(2 * np.pi)
    if 4 * np.pi < top <= 2 * 361:
        sizes.append(360.0)
    if top >= 500 and bool((values == np.floor(values)).all()):
        sizes += [turn for turn in _TICKS if 0.45 * turn <= top <= 2 * turn]
    return sizes


def _turn_jumps(values: Array, turn: float, *, declared: bool, inside: bool) -> Array:
    """Return the steps of one column that are a full turn, and nothing else.

    The jump is an ordinary step once the turn is added, and the steps beside it are small.
    Without a declared unit, it must go from one end of a turn to the other; or, where jumps
    `inside` a turn count, come twice.
    """
    step = np.diff(values)
    size = np.abs(step)
    far = size > 0.5 * turn
    if not far.any() or far.sum() > 0.1 * len(step):
        return np.zeros(0, np.int64)
    usual = float(np.quantile(size[~far], 0.95))
    limit = max(_ORDINARY * usual, 1e-6 * turn)
    if usual > _SMALL * turn or np.count_nonzero(step[~far]) < _MOVING_STEPS:
        return np.zeros(0, np.int64)
    jumps: Array = np.flatnonzero(far & (np.abs(size - turn) <= limit))
    beside = np.concatenate([[0.0], size, [0.0]])
    jumps = jumps[(np.maximum(beside[jumps], beside[jumps + 2]) <= limit)]
    if declared or len(jumps) == 0:
        return jumps
    before, after = values[jumps], values[jumps + 1]
    middle = np.abs(before + after) <= 2 * limit
    zero = np.minimum(np.abs(before), np.abs(after)) <= 2 * limit
    if bool((middle | zero).all()):
        return jumps
    precise = bool((np.abs(size[jumps] - turn) <= _PRECISE * turn).all())
    return jumps if inside and len(jumps) > 1 and precise else jumps[:0]


@measure("turn_jumps", applies=_may_wrap, uses=("role", "unit", "shape"))
def turn_jumps(column: Column, spec: FieldSpec) -> Columns:
    """Jumps of a column by a full turn between two small steps.

    `turned` (columns): jumps; `turn_size` (columns): the turn, 0 without jumps; `turned_at`: the
    first step behind a jump of the column with most jumps, -1 without.
    """
    if (
        not is_numeric(column)
        or column.lengths is None
        or column.values.ndim != 2
        or not 0 < column.values.shape[1] <= MOST_COMPONENTS
    ):
        return {}
    counts = np.zeros((len(column), column.values.shape[1]), np.int64)
    sizes = np.zeros(counts.shape)
    first = np.full(len(column), -1)
    present = np.asarray(column.lengths > _MOVING_STEPS)
    for i in np.flatnonzero(present).tolist():
        rows = column[i].astype(np.float64)
        if not np.isfinite(rows).all():
            continue
        largest = np.abs(np.diff(rows, axis=0)).max(axis=0)
        small = bool(np.abs(rows).max() <= _RADIANS)
        for j in np.flatnonzero(largest > np.pi):  # no turn is smaller
            for turn in _turn_sizes(rows[:, j], spec.unit):
                inside = turn > _RADIANS or small
                jumps = _turn_jumps(rows[:, j], turn, declared=spec.unit is not None, inside=inside)
                if len(jumps) > counts[i, j]:
                    if len(jumps) > counts[i].max():
                        first[i] = int(jumps[0]) + 1
                    counts[i, j], sizes[i, j] = len(jumps), turn
    columns = {"turned": counts, "turn_size": sizes, "turned_at": first}
    return {name: Measured(values, present) for name, values in columns.items()}


@rule(
    "DC522",
    "encoder-wrap",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(turn_jumps,),
    suppressed_by=_SUPPRESSED_BY,
    applies=_may_wrap,
    defaults={"few": 0.25},
)
def encoder_wrap(rows: Rows, case: RuleContext) -> Iterator[Failure | Info]:
    """A state or an action jumps by a full turn in one step.

    What:
        No column jumps by a full turn of its unit between two small steps, in a quarter of the
        episodes or fewer. In more episodes it is an angle whose cut lies where the data are; the
        rule then says so without a finding. DC607 judges fields with the role ``joint_angle`` or
        ``rotvec``.
    Why it matters:
        A policy that learns the jump turns the joint by a full turn, or averages both values and
        turns it the wrong way.
    Measure:
        A full turn is 2 pi, 360, or 2^10 to 2^16 ticks of whole numbers, by the declared unit, else
        by the largest value of the column. A step counts if it becomes ordinary (at most 3 times
        the 95th percentile of the episode's steps) once a turn is added, if the steps beside it
        are ordinary, and if ordinary steps are less than a 25th of a turn. Without a declared
        unit, the jump also begins or ends at 0, or lies symmetrical to 0, or the column jumps more
        than once in the episode, by a turn up to 2 %; the latter counts for 2 pi only if no number
        of the field is above 4.2 pi.
    When it is wrong:
        The training code unwraps the angles, or uses sine and cosine.
    Options:
        few: largest share of the episodes with such jumps in a column for a finding (0.25); one
        episode is always reported.
    Bad::

        schema: {fields: {s: {role: value, shape: [T, 2]}}}
        samples:
          - {n: 3, s: {ramp: [60, 2], to: 1.5}}
          - {s: {circle: [600, 2]}}

    Good::

        schema: {fields: {s: {role: value, shape: [T, 2]}}}
        samples:
          - {n: 4, s: {ramp: [60, 2], to: 1.5}}

    Fix:
        Unwrap the column within each episode (numpy.unwrap with the turn as its period).
    Reference:
        openpi issues 637 and 814: LIBERO's roll lies at both 3.14 and -3.14.
    """
    measured = rows.measured("turned")
    if not measured.any():
        return
    counts = np.where(measured[:, None], rows["turned"], 0)
    episodes = (counts > 0).sum(axis=0)
    usual = episodes > max(1.0, float(case.options["few"]) * measured.sum())
    if usual.any():
        columns = first_few(str(j) for j in np.flatnonzero(usual))
        yield Info(
            f"column {columns} jumps by a full turn in {pluralize(int(episodes.max()), 'episode')} "
            f"of {int(measured.sum()):,}: an angle that wraps within its range"
        )
    counts = counts * ~usual
    bad = counts.max(axis=1) > 0
    if not bad.any():
        return
    worst = int(np.argmax(counts[bad].sum(axis=0)))
    turn = float(rows["turn_size"][bad][:, worst].max())
    jumps = int(counts[bad].sum())
    yield Failure(
        bad,
        f"{count_phrase(bad, 'jump')} by a full turn ({format_number(turn)} in column {worst}) "
        f"between two small steps ({pluralize(jumps, 'jump')}); the first is at step "
        f"{int(np.median(rows['turned_at'][bad])):,} (median).",
        measured={"jumps": jumps, "turn": turn, "column": worst},
        cause=Cause(
            "the angle wraps: the step is ordinary once a full turn is added",
            "wrap",
            explains=int(bad.sum()),
        ),
        fix="Unwrap the column within the episode.",
        kind="wrap",
        order=counts.max(axis=1),
    )


# ------------------------------------------------------------------------------------------- joints

_GRASPS = re.compile(r"\b(?:pick|grasp|grab|place|put|lift|insert)(?:s|ed|ing)?\b", re.IGNORECASE)


@measure("joint_motion", version=2, per="sample", uses=_USES, depth="numeric")
def joint_motion(block: Block, schema: Schema) -> Columns:
    """Motion of each column of the actions and states of an episode.

    `<field>:extent` (columns): largest minus smallest value; `:busy` (columns): share of the steps
    that change; `:stuck` (columns): most steps in a row without a change; `:driven` (columns): share
    of these at which the command of the column changes, 0 without one or in less than 30 steps;
    `:home`, `:centre`, `:wobble` (columns): first value, mean, standard deviation; `:joints`: names
    of the columns. `:errand`: number of the task's text, -1 without one;
    `:asks_grasp`: whether the text has a word such as pick or place.
    """
    columns: dict[str, Measured] = {}
    for name in _joint_fields(schema):
        column = _matrix(block, name)
        if column is None or column.lengths is None:
            continue
        lengths = column.lengths
        fits = np.asarray(lengths >= _LEAST_STEPS)
        if not fits.any():
            continue
        planes = column.planes.astype(np.float64)
        low, high, _ = extremes(column)
        steps = np.maximum(lengths - 1, 0)
        size = np.maximum(lengths, 1)
        centre = reduced(np.add, planes, lengths) / size
        square = reduced(np.add, (planes - np.repeat(centre, lengths, axis=1)) ** 2, lengths)
        moves = differences(planes, lengths) != 0
        stuck = _stuck(moves, steps)
        home = np.zeros(low.shape)
        home[:, fits] = planes[:, column.starts[fits]]
        extent = high.astype(np.float64) - low.astype(np.float64)
        values = {
            "extent": extent,
            "busy": reduced(np.add, moves.astype(np.float64), steps) / np.maximum(steps, 1),
            "stuck": stuck,
            "driven": _driven(moves, stuck, steps, _command_moves(block, schema, name, column)),
            "home": home,
            "centre": centre,
            "wobble": np.sqrt(square / size),
        }
        present = fits & np.isfinite(extent).all(axis=0)
        columns |= {f"{name}:{stat}": Measured(v.T, present) for stat, v in values.items()}
        columns[f"{name}:joints"] = Measured(np.array(_names(block, name), object), present)
    if columns:
        texts = _task_texts(block, schema)
        errands = [zlib.crc32(text.encode("utf-8", "replace")) if text else -1 for text in texts]
        known = np.ones(len(block), bool)
        columns["errand"] = Measured(np.array(errands, np.int64), known)
        asks = [bool(_GRASPS.search(text)) for text in texts]
        columns["asks_grasp"] = Measured(np.array(asks, np.int64), known)
    return dict(columns)


def _runs(moves: Array, steps: Array) -> Array:
    """Return how many steps without a change end at each step: int64, as `moves`."""
    places = np.arange(moves.shape[1])
    before = np.repeat(np.cumsum(steps) - steps - 1, steps)
    last = np.maximum.accumulate(np.where(moves, places, -1), axis=1)
    runs: Array = places - np.maximum(last, before)
    return runs


def _stuck(moves: Array, steps: Array) -> Array:
    return reduced(np.maximum, _runs(moves, steps), steps)


def _command_moves(block: Block, schema: Schema, name: str, column: Column) -> Array | None:
    """Return where the command of a state changes, None if the block has no command of its shape."""
    for action, state in _state_pairs(schema):
        command = _matrix(block, action) if state == name else None
        if command is None or command.lengths is None or column.lengths is None:
            continue
        same = command.values.shape == column.values.shape
        if same and np.array_equal(command.lengths, column.lengths):
            moves: Array = differences(command.planes.astype(np.float64), command.lengths) != 0
            return moves
    return None


def _driven(moves: Array, stuck: Array, steps: Array, commands: Array | None) -> Array:
    """Return the share of the steps of each longest run at which the command changes."""
    share = np.zeros(stuck.shape)
    if commands is None:
        return share
    starts = np.cumsum(steps) - steps
    for j, i in np.argwhere(stuck >= _LEAST_STEPS).tolist():
        mine = slice(int(starts[i]), int(starts[i] + steps[i]))
        end = int(np.argmax(_runs(moves[j : j + 1, mine], steps[i : i + 1]))) + mine.start + 1
        share[j, i] = commands[j, end - int(stuck[j, i]) : end].mean()
    return share


def _task_texts(block: Block, schema: Schema) -> list[str]:
    """Return the text of each episode's task, "" where there is none."""
    for name, spec in schema.of_role("text"):
        column = block.fields.get(name)
        if spec.role == "text" and column is not None and column.kind == "text":
            return [str(text) for text in column.objects]
    return [""] * len(block)


def _no_joints(schema: Schema) -> str:
    return "" if _joint_fields(schema) else "no action and no state of a robot over time"


_ALIVE = 0.8  # least share of the episodes in which a joint moves
_FEWEST = 0.2  # motion in the 5th percentile of the moving episodes, of the usual one
_BUSY = 0.25  # median share of the steps at which a joint moves in the other episodes


@rule(
    "DC523",
    "dead-joint",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(joint_motion,),
    suppressed_by=_SUPPRESSED_BY,
    unless=_no_joints,
    defaults={"few": 0.2, "least": 5},
)
def dead_joint(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """A joint that moves in the other episodes stands still in one.

    What:
        No column of an action or a state is constant in an episode in which the other columns move,
        if it moves in nearly all other episodes. No column of a state keeps one value for a long
        part of an episode while its command changes.
    Why it matters:
        A cable, a bus or a recorder lost one joint: the policy learns that it stands still while
        the task needs it.
    Measure:
        Largest minus smallest value of each column in each episode of 30 steps or more; exactly 0
        is dead. The column is judged if it moves in 80 % of the episodes, at a quarter of their
        steps (median), and if the 5th percentile of its motion there is a fifth of the usual one:
        a joint that sometimes rests, a gripper or a switch is not judged. In the episode, at least
        half of the other columns move by half of what is usual. A column that is constant in all
        episodes of a task is left to DC223. A part: 30 steps or more with exactly one value, at
        half of which the column of the action of the same shape changes; 4 times the longest such
        run of the episodes without one, and at most ``few`` of the episodes. The column changes at
        half of the steps of the other episodes, and a quarter of such columns do not stand still.
    When it is wrong:
        The joint was locked on purpose in these episodes: waive them.
    Options:
        few: largest share of the episodes that may be dead for a finding (0.2).
        least: fewest episodes in which the joint moves (5).
    Bad::

        schema: {fields: {q: {role: joint_angle, shape: [T, 3], unit: rad}}}
        samples:
          - {n: 8, q: {ramp: [60, 3]}}
          - {q: {ramp: [60, 3], to: [1.0, 0.0, 1.0]}}

    Good::

        schema: {fields: {q: {role: joint_angle, shape: [T, 3], unit: rad}}}
        samples:
          - {n: 9, q: {ramp: [60, 3]}}

    Fix:
        Leave these episodes out, or record them again; check cable and configuration of the joint.
    Reference:
        lerobot-lint reports joints whose standard deviation is below 1 % of the largest one.
    """
    judged = np.zeros(len(rows), bool)
    states = _states(case.schema)
    for name in _joint_fields(case.schema):
        for names, places in _robots(rows, name, "extent"):
            if len(places) >= int(case.options["least"]):
                judged[places] = True
                yield from _dead_joints(rows, case, name, places, names)
                if name in states:
                    yield from _stuck_joints(rows, case, name, places, names)
    yield from _unjudged(judged, "too short, or too few episodes to compare with")


def _dead_joints(
    rows: Rows, case: RuleContext, name: str, places: Array, names: str
) -> Iterator[Failure]:
    extent, busy = (rows[f":{name}:{stat}"][places] for stat in ("extent", "busy"))
    errand = rows[":errand"][places]
    alive = extent > 0
    usual = np.array(
        [np.median(e[a]) if a.any() else 0.0 for e, a in zip(extent.T, alive.T, strict=True)]
    )
    ordinary = alive & (extent >= 0.5 * usual)
    dead = np.zeros(alive.shape, bool)
    for j in np.flatnonzero(~alive.all(axis=0)):
        mine = alive[:, j]
        moving = extent[mine, j]
        rests = (~mine).sum() > float(case.options["few"]) * len(mine)
        if rests or mine.sum() < int(case.options["least"]) or mine.mean() < _ALIVE:
            continue
        steady = np.quantile(moving, 0.05) >= _FEWEST * usual[j]
        if not steady or np.median(busy[mine, j]) < _BUSY or _is_gripper(names, len(usual))[j]:
            continue
        others = np.arange(len(usual)) != j
        known = usual[others] > 0
        moved = ordinary[:, others][:, known]
        if not known.any():
            continue
        dead[:, j] = ~mine & (moved.mean(axis=1) >= 0.5)
        for task in np.unique(errand[dead[:, j]]):  # a task that needs no such motion
            same = errand == task
            if task >= 0 and dead[same, j].sum() > mine[same].sum():
                dead[same, j] = False
    if not dead.any():
        return
    found = [
        f"{_column_name(names, int(j))} in {pluralize(int(dead[:, j].sum()), 'episode')} of "
        f"{len(places):,}"
        for j in np.flatnonzero(dead.any(axis=0))
    ]
    failing = np.zeros(len(rows), bool)
    failing[places[dead.any(axis=1)]] = True
    yield Failure(
        failing,
        f"{name} has a joint that never changes while the others move: {first_few(found)}.",
        measured={"columns": [int(j) for j in np.flatnonzero(dead.any(axis=0))]},
        kind=f"dead {name}",
        fix="Leave these episodes out, or record them again.",
        extra=(name,),
    )


def _stuck_joints(
    rows: Rows, case: RuleContext, name: str, places: Array, names: str
) -> Iterator[Failure]:
    """Yield the joints of a state that keep one value for long while their commands change."""
    stuck, driven, busy, extent = (
        rows[f":{name}:{stat}"][places] for stat in ("stuck", "driven", "busy", "extent")
    )
    lively = (np.median(busy, axis=0) >= _LIVELY) & ~_is_gripper(names, stuck.shape[1])
    held = (stuck >= _LEAST_STEPS) & (driven >= _DRIVEN) & (extent > 0) & lively
    usual = np.where(held, 0, stuck).max(axis=0)
    held &= (stuck >= _TIMES_STUCK * usual) & (
        held.sum(axis=0) <= float(case.options["few"]) * len(places)
    )
    free = (lively & (stuck <= usual)).sum(axis=1)
    held &= (free >= _FREE * lively.sum())[:, None]
    if not held.any():
        return
    columns = np.flatnonzero(held.any(axis=0))
    failing = np.zeros(len(rows), bool)
    failing[places[held.any(axis=1)]] = True
    shown = first_few(_column_name(names, int(j)) for j in columns)
    yield Failure(
        failing,
        f"{name} keeps one value in {shown} for up to {int(stuck[held].max()):,} steps while the "
        f"action changes, in {pluralize(int(failing.sum()), 'episode')} of {len(places):,}; "
        f"elsewhere these columns do for at most {int(usual[columns].max()):,}.",
        measured={"columns": columns.tolist(), "steps": int(stuck[held].max())},
        expected={"steps": f"..{int(usual[columns].max())}"},
        kind=f"stuck {name}",
        fix="Cut the episodes where the joints stand still, or record them again.",
        extra=(name,),
    )


_LIVELY = 0.5  # share of the steps at which a column changes whose long runs are judged
_DRIVEN = 0.5  # least share of the steps of a run at which the command changes
_TIMES_STUCK = 4.0
_FREE = 0.25  # least share of the columns that still move in the episode
_INERT = 0.02  # largest motion of a gripper at rest, of the usual one
_MOVES = 0.3  # least motion of a gripper that works, of the usual one


@rule(
    "DC524",
    "inert-gripper",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(joint_motion,),
    suppressed_by=_SUPPRESSED_BY,
    unless=_no_joints,
    defaults={"alive": 0.8, "least": 5},
)
def inert_gripper(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """The gripper never moves in an episode whose task is to grasp.

    What:
        Where the task has a word such as pick, grasp, place, put, lift or insert, a gripper of the
        robot moves, as it does in the other episodes of the task.
    Why it matters:
        The episode failed, or the gripper's channel was lost: the policy learns to reach without
        grasping.
    Measure:
        Columns of actions and states whose names in ``meta/info.json`` contain ``gripper``; without
        names the rule is silent. A gripper is inert if it moves by at most 2 % of what is usual
        (median over the episodes of the task), all grippers of the robot at once. In 80 % of the
        task's episodes, at least one moves by 30 % of it.
    When it is wrong:
        The episode shows a failed grasp on purpose: waive it.
    Options:
        alive: least share of the task's episodes in which a gripper moves (0.8).
        least: fewest episodes of the task in which it moves (5).
    Bad::

        schema: {fields: {action: {role: action, shape: [T, 2]}, task: {role: text}}}
        samples:
          - {n: 8, action: {ramp: [60, 2]}, task: pick the cube, facts: {names/action: "arm,gripper"}}
          - {action: {ramp: [60, 2], to: [1.0, 0.0]}, task: pick the cube,
             facts: {names/action: "arm,gripper"}}

    Good::

        schema: {fields: {action: {role: action, shape: [T, 2]}, task: {role: text}}}
        samples:
          - {n: 9, action: {ramp: [60, 2]}, task: pick the cube, facts: {names/action: "arm,gripper"}}

    Fix:
        Look at the video of the episode. Leave it out if the grasp is missing.
    Reference:
        lerobot-lint reports grippers that move by less than 1e-6 in such tasks.
    """
    judged = np.zeros(len(rows), bool)
    for name in _joint_fields(case.schema):
        for names, places in _robots(rows, name, "extent"):
            extent = rows[f":{name}:extent"][places]
            grippers = _is_gripper(names, extent.shape[1])
            if not grippers.any():
                continue
            judged[places] = True
            inert = _inert(rows, case, places, extent[:, grippers])
            if inert.any():
                failing = np.zeros(len(rows), bool)
                failing[places[inert]] = True
                listed = [names.split(",")[j] for j in np.flatnonzero(grippers)]
                yield Failure(
                    failing,
                    f"{first_few(listed)} of {name} never moves in {pluralize(int(inert.sum()), 'episode')} "
                    f"whose task is to grasp; it moves in the others.",
                    measured={"episodes": int(inert.sum())},
                    kind=f"inert {name}",
                    fix="Look at the video of the episode; leave it out if the grasp is missing.",
                    extra=(name,),
                )
    yield from _unjudged(judged, "no column of an action or a state is named gripper")


def _inert(rows: Rows, case: RuleContext, places: Array, extent: Array) -> Array:
    """Return bool (episodes): those in which no gripper moves although the task asks for it."""
    errand, asks = rows[":errand"][places], rows[":asks_grasp"][places] > 0
    inert = np.zeros(len(places), bool)
    for task in np.unique(errand[asks]):
        mine = np.flatnonzero(errand == task)
        usual = np.median(extent[mine], axis=0)
        used = usual > 0
        if not used.any():
            continue
        moved = extent[mine][:, used] / usual[used]
        works = (moved >= _MOVES).any(axis=1)
        if works.sum() >= int(case.options["least"]) and works.mean() >= float(
            case.options["alive"]
        ):
            inert[mine] = (moved <= _INERT).all(axis=1)
    return inert


# -------------------------------------------------------------------------------------------- sides

_SIDE = re.compile(r"(?<![a-z])(left|right)(?![a-z])", re.IGNORECASE)
_APART = (
    8.0  # robust deviations between the medians of both sides from which a number tells them apart
)
_OUTSIDE = 4.0  # robust deviations from which a number does not belong to its column
_CLEAR = 0.95  # share of the numbers that must agree
_EXCHANGED = 0.25  # largest share of the episodes


def _sides(names: str) -> Array:
    """Return int64 (columns): the column of the other side, -1 for columns without one."""
    listed = [name.lower() for name in names.split(",")] if names else []
    other = {"left": "right", "right": "left"}
    swapped = [_SIDE.sub(lambda found: other[found[1]], name) for name in listed]
    return np.array(
        [
            listed.index(mirror) if mirror != name and mirror in listed else -1
            for name, mirror in zip(listed, swapped, strict=True)
        ],
        np.int64,
    )


@rule(
    "DC525",
    "swapped-sides",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(joint_motion,),
    suppressed_by=_SUPPRESSED_BY,
    unless=_no_joints,
    defaults={"least": 10, "pairs": 3},
)
def swapped_sides(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """The columns of left and right are exchanged in some episodes.

    What:
        Where columns are named left and right, the numbers of each episode fit the columns of their
        own side.
    Why it matters:
        Each arm gets the commands of the other one.
    Measure:
        First value, mean and standard deviation of each column in an episode, against the median
        and the median absolute deviation over all episodes. Numbers in which both sides lie at
        least 8 deviations apart tell them apart; at least two first values do, and numbers of at
        least three pairs of columns. An episode is reported if 95 % of these lie more than 4
        deviations outside their own column, while 95 % of all numbers lie within 4 deviations of
        the other side's. At most a quarter of the episodes may be so. Names come from
        ``meta/info.json``; without them the rule is silent.
    When it is wrong:
        Arms of one kind were exchanged on purpose: waive the episodes.
    Options:
        least: fewest episodes to compare (10).
        pairs: fewest pairs of columns that tell the sides apart (3).
    Bad::

        schema: {fields: {q: {role: joint_angle, shape: [T, 6], unit: rad}}}
        samples:
          - {n: 11, q: {ramp: [90, 6], to: 0.2, at: [1, 2, 2.5, -1, -2, -2.5]},
             facts: {names/q: "left_a,left_b,left_c,right_a,right_b,right_c"}}
          - {q: {ramp: [90, 6], to: 0.2, at: [-1, -2, -2.5, 1, 2, 2.5]},
             facts: {names/q: "left_a,left_b,left_c,right_a,right_b,right_c"}}

    Good::

        schema: {fields: {q: {role: joint_angle, shape: [T, 6], unit: rad}}}
        samples:
          - {n: 12, q: {ramp: [90, 6], to: 0.2, at: [1, 2, 2.5, -1, -2, -2.5]},
             facts: {names/q: "left_a,left_b,left_c,right_a,right_b,right_c"}}

    Fix:
        Exchange the columns of both sides in these episodes, in action and state alike.
    Reference:
        Humanoid-Everyday issue 4: right and left hand are swapped in the columns.
    """
    judged = np.zeros(len(rows), bool)
    for name in _joint_fields(case.schema):
        for names, places in _robots(rows, name, "extent"):
            other = _sides(names)
            if len(places) < int(case.options["least"]) or not (other >= 0).any():
                continue
            swapped = _swapped(rows, name, places, other, int(case.options["pairs"]))
            if swapped is None:
                continue
            judged[places] = True
            if swapped.any():
                failing = np.zeros(len(rows), bool)
                failing[places[swapped]] = True
                yield Failure(
                    failing,
                    f"{name}: in {pluralize(int(swapped.sum()), 'episode')} of {len(places):,}, the "
                    f"columns of left and right have each other's values.",
                    measured={"episodes": int(swapped.sum())},
                    cause=Cause(
                        "left and right are exchanged", "swapped", explains=int(swapped.sum())
                    ),
                    kind=f"swapped {name}",
                    fix="Exchange the columns of both sides in these episodes.",
                    extra=(name,),
                )
    yield from _unjudged(judged, "no columns named left and right that differ clearly")


def _swapped(rows: Rows, name: str, places: Array, other: Array, pairs: int) -> Array | None:
    """Return bool (episodes): those that fit the other side; None where the sides are alike."""
    mine = np.flatnonzero(other >= 0)
    stats = [rows[f":{name}:{stat}"][places] for stat in ("home", "centre", "wobble")]
    values = np.stack(stats, axis=1)
    middle = np.median(values, axis=0)
    scatter = 1.4826 * np.median(np.abs(values - middle), axis=0)
    floor = 1e-3 * np.maximum(np.abs(middle).max(), 1e-9)
    scatter = np.maximum(scatter, floor)
    partner = other[mine]
    apart = np.abs(middle[:, mine] - middle[:, partner]) > _APART * np.maximum(
        scatter[:, mine], scatter[:, partner]
    )
    if apart[0].sum() < 4 or apart.any(axis=0).sum() < 2 * pairs:  # each pair counts twice
        return None
    own = np.abs(values[:, :, mine] - middle[:, mine]) / scatter[:, mine]
    exchanged = np.abs(values[:, :, partner] - middle[:, mine]) / scatter[:, mine]
    outside = (own[:, apart] > _OUTSIDE).mean(axis=1) >= _CLEAR
    fits = (exchanged <= _OUTSIDE).mean(axis=(1, 2)) >= _CLEAR
    swapped: Array = outside & fits
    return swapped if swapped.sum() <= _EXCHANGED * len(places) else swapped & False
