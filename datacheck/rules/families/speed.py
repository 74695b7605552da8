"""Rules about how states and commands move: no teleports, no lag that was not declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, measure, rule, shown, those
from datacheck.rules.measures import column_of, is_numeric, leaf, norms, reduced
from datacheck.rules.series import steps
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.units import ANGLE
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_MOVED = frozenset({"position", "joint_angle", "rotvec"})
LAGS = tuple(range(-5, 6))


def _moved(spec: FieldSpec) -> bool:
    timed = spec.shape is None or spec.ragged is not None
    return leaf(spec) and timed and (spec.role in _MOVED or (spec.role == "action" and spec.max_speed is not None))


def _sizes(column: Column, fits: Array, spec: FieldSpec) -> tuple[Array, Array]:
    """Return how far each step goes: a distance, the largest change of an angle, or an angle of rotation."""
    if spec.role == "rotvec" and column.values.shape[1] == 3:
        return _turns(column, fits, spec)
    change, count = steps(column, fits)
    return norms(change) if spec.role == "position" else np.abs(change).max(axis=0, initial=0.0), count


def _turns(column: Column, fits: Array, spec: FieldSpec) -> tuple[Array, Array]:
    """Return the angle between neighbouring rotations in the field's unit; a vector and its 2 pi partner are one."""
    unit = ANGLE.get(spec.unit or "rad", 1.0)
    vectors = np.ascontiguousarray(column.values.T, dtype=np.float64) * unit
    angle = norms(vectors)
    scale = np.where(angle > 1e-12, np.sin(angle / 2) / np.maximum(angle, 1e-12), 0.5)
    whole = np.concatenate([np.cos(angle / 2)[None], vectors * scale])
    change, count = steps(Column(np.ascontiguousarray(whole.T), column.lengths), fits)
    near = norms(change)  # of unit quaternions: 2 sin(angle / 4), the shorter way round
    return 4 * np.arcsin(np.minimum(1.0, np.minimum(near, np.sqrt(np.maximum(0.0, 4 - near**2))) / 2)) / unit, count


@measure("speed", applies=_moved, uses=("role", "unit"))
def speed(column: Column, spec: FieldSpec) -> Columns:
    """How far a field goes in one step, in its unit.

    `leap`, the farthest; `leap_at`, which step; `lone`, by how much the most isolated step exceeds both neighbours.
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
    before, after = np.roll(far, 1), np.roll(far, -1)
    before[starts[fits]], after[(starts + count - 1)[fits]] = np.inf, np.inf  # the first and last have one neighbour
    lone = reduced(np.maximum, far - np.maximum(before, after), count)
    at = reduced(np.minimum, np.where(far == np.repeat(peak, count), np.arange(len(far)), len(far)), count) - starts
    columns = {"leap": peak, "lone": np.maximum(lone, 0.0), "leap_at": at}
    return {name: Measured(values, fits & np.isfinite(peak)) for name, values in columns.items()}


@rule(
    "DC505", "action-jump", Severity.WARNING, Level.GROUP, measures=(speed,),
    needs=("DC109", "DC122", "DC125", "DC201", "DC202", "DC221", "DC222"), applies=_moved,
    defaults={"z": 12.0, "logs": 8.0, "least": 10}, paced=True,
)  # fmt: skip
def action_jump(rows: Rows, case: Case) -> Iterator[Failure]:
    """Something moves faster than it can, or jumps as it does in no other episode.

    What:
        With ``max_speed`` and ``episode: {fps: ...}`` no step is faster. Otherwise no episode has a single step that
        stands out from its neighbours far more than the most isolated steps of the other episodes do.
    Why it matters:
        A controller that follows it hits its limits; velocities that are taken from it poison the statistics.
    Measure:
        Distance, largest change of an angle, or angle of rotation per step. Of each episode the step that exceeds both
        neighbours most, against median and MAD of all episodes: itself, and its logarithm.
    When it is wrong:
        Commands may jump: declare no ``max_speed`` for them.
    Options:
        z: robust deviation that is a jump (12). logs: that of the logarithm (8). least: episodes that must be there to
        compare with (10).
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
        The Franka Panda's joints turn at most 2.175 rad/s (2.61 rad/s the last three).
    """
    known = rows.measured("leap")
    if not known.any():
        return
    fps = case.schema.episode.fps if case.schema.episode is not None else None
    most = case.spec.max_speed
    if most is not None and fps is not None:
        fast = known & (rows["leap"] * fps > most * (1 + 1e-6))
        if fast.any():
            yield _fast(rows, case, fast, fps)
        return
    if case.spec.role == "action" or known.sum() < int(case.options["least"]):
        return
    score, logs = _outlying(np.where(known, rows["lone"], np.nan))
    odd = known & (score > float(case.options["z"])) & (logs > float(case.options["logs"]))
    if odd.any():
        yield _jumping(rows, case, odd, score, float(np.median(rows["lone"][known])))


def _jumping(rows: Rows, case: Case, odd: Array, score: Array, usual: float) -> Failure:
    jump = float(np.median(rows["lone"][odd]))
    return Failure(
        odd,
        f"{those(odd, 'have')} a single step of {shown(jump, case.spec.unit)} (median) more than the steps beside it; "
        f"{shown(usual, case.spec.unit)} is usual.",
        measured={"jump": jump, "usual": usual},
        cause=_jump_cause(rows, case, odd),
        fix="Cut the episode at the jump, or smooth it.",
        kind="jump",
        order=score,
    )


def _outlying(values: Array) -> tuple[Array, Array]:
    """Return robust deviations of numbers and of their logarithms; NaN has none, and neither have equal numbers."""
    known = np.isfinite(values)
    floor = max(1e-12, 1e-3 * float(np.median(values[known])))
    found = []
    for numbers, least in ((np.where(known, values, 0.0), floor), (np.log(np.where(known, values, 0.0) + floor), 0.15)):
        middle = np.median(numbers[known])
        spread = max(least, 1.4826 * float(np.median(np.abs(numbers[known] - middle))))
        found.append(np.where(known, (numbers - middle) / spread, 0.0))
    return found[0], found[1]


def _fast(rows: Rows, case: Case, fast: Array, fps: float) -> Failure:
    unit = f"{case.spec.unit or ''}/s".lstrip("1")
    top = float(rows["leap"][fast].max()) * fps
    return Failure(
        fast,
        f"{those(fast, 'move')} at up to {shown(top, unit)}, at step {int(np.median(rows['leap_at'][fast])):,} "
        f"(median); {shown(case.spec.max_speed or 0.0, unit)} is allowed.",
        measured={"speed": top},
        expected={"speed": f"..{case.spec.max_speed:g}"},
        cause=_jump_cause(rows, case, fast),
        fix="Cut the episode at the jump, or correct max_speed or fps.",
        kind="speed",
        order=rows["leap"],
    )


def _jump_cause(rows: Rows, case: Case, bad: Array) -> Cause | None:
    peak, lone = rows["leap"][bad], rows["lone"][bad]
    turn = 2 * np.pi / ANGLE.get(case.spec.unit or "rad", 1.0)
    wraps = np.abs(peak - turn) < 0.05 * turn if case.spec.role == "joint_angle" else np.zeros(len(peak), bool)
    single = (lone > 0.5 * peak) & ~wraps
    reasons = {
        "wrap": (wraps, "the angle wraps round by a full turn"),
        "jump": (single, "a single step: rows are missing there, or two recordings were joined"),
    }
    kind = max(reasons, key=lambda name: int(reasons[name][0].sum()))
    found = int(reasons[kind][0].sum())
    return Cause(reasons[kind][1], kind, explains=found) if found else None


def _driven(schema: Schema) -> list[tuple[str, FieldSpec]]:
    return [(name, spec) for name, spec in schema.of_role("action", "gripper") if spec.drives]


def _rows_of(block: Block, schema: Schema, name: str) -> Column | None:
    column = column_of(block, schema, name)
    if column is None or column.lengths is None or not is_numeric(column) or column.values.ndim > 2:
        return None
    return column if column.values.ndim == 2 else Column(column.values[:, None], column.lengths)


@measure("lags", per="sample", uses=("fields.drives", "fields.columns", "fields.role", "fields.absent"))
def lags(block: Block, schema: Schema) -> Columns:
    """How a command goes with the change of what it drives, at each of `LAGS` steps, mean over their columns.

    `<field>:delta`: correlation of the command; `<field>:absolute`: of the change of the command. Lag 1 is the change
    from the command's own row to the next, lag 0 the one before.
    """
    found: dict[str, Measured] = {}
    for name, spec in _driven(schema):
        command, state = _rows_of(block, schema, name), _rows_of(block, schema, spec.drives or "")
        if command is None or state is None or command.lengths is None or state.lengths is None:
            continue
        fits = (command.lengths == state.lengths) & (command.lengths > 4 * len(LAGS))
        if not fits.any():
            continue
        width = min(command.values.shape[1], state.values.shape[1])
        change, count = steps(state, fits)
        asked, _ = steps(command, fits)
        rows = np.ascontiguousarray(command.values[np.repeat(fits, command.lengths)].T, dtype=np.float64)
        later = np.ones(rows.shape[1], bool)
        later[(np.cumsum(count + fits) - count - fits)[fits]] = False
        for kind, values in (("delta", rows[:width, later]), ("absolute", asked[:width])):
            r = _correlations(values, change[:width], count)
            found[f"{name}:{kind}"] = Measured(r, fits & np.isfinite(r).all(axis=1))
    return dict(found)


def _unit(values: Array, count: Array) -> Array:
    """Return each sample's components without their mean, of length 1; 0 where they do not change."""
    mean = reduced(np.add, values, count) / np.maximum(count, 1)
    centred = values - np.repeat(mean, count, axis=-1)
    size = np.sqrt(reduced(np.add, centred * centred, count))
    return np.asarray(centred / np.repeat(np.where(size > 1e-12, size, np.inf), count, axis=-1))


def _correlations(command: Array, change: Array, count: Array) -> Array:
    """Return float64 (samples, lags), the mean over columns that change; `change[t]` leads to row t of `command`."""
    a, b = _unit(command, count), _unit(change, count)
    alive = ((reduced(np.add, np.abs(a), count) > 0) & (reduced(np.add, np.abs(b), count) > 0)).sum(axis=0)
    sample = np.repeat(np.arange(len(count)), count)
    out = np.zeros((len(count), len(LAGS)))
    for place, lag in enumerate(LAGS):
        first, second = slice(max(0, -lag), len(sample) - max(0, lag)), slice(max(0, lag), len(sample) - max(0, -lag))
        product = (a[:, first] * b[:, second]).sum(axis=0) * (sample[first] == sample[second])
        out[:, place] = np.bincount(sample[first], product, len(count)) / np.maximum(alive, 1)
    return out


@rule(
    "DC507", "action-state-lag", Severity.INFO, Level.DATASET, per="sample", measures=(lags,),
    needs=("DC109", "DC121", "DC122", "DC123", "DC221"), defaults={"r": 0.5, "agree": 0.6},
    unless=lambda s: "" if _driven(s) else "no action says what it drives",
)  # fmt: skip
def action_state_lag(rows: Rows, case: Case) -> Iterator[Failure]:
    """States follow the actions at another distance than declared.

    What:
        The change of what an action ``drives`` goes with the action best at the declared ``lag``, else at 0 or 1.
    Why it matters:
        A policy that is trained on pairs that are one step apart learns to act on the result of its action.
    Measure:
        Correlation of action (or its change) and change of state at -5 to 5 steps, the median over episodes.
    When it is wrong:
        The controller is slow: declare the ``lag`` that it has.
    Options:
        r: correlation that must be reached (0.5). agree: share of episodes that must agree on the lag (0.6).
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 1], drives: q, lag: 1}, q: {role: position, shape: [T, 1]}}}
        samples:
          - {n: 3, a: {normal: [80, 1]}, q: {walk: [80, 1], lag: 3}}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 1], drives: q, lag: 1}, q: {role: position, shape: [T, 1]}}}
        samples:
          - {n: 3, a: {normal: [80, 1]}, q: {walk: [80, 1], lag: 1}}

    Fix:
        Shift one of the two by the difference, or declare ``lag``.
    Reference:
        LIBERO's create_dataset.py stores the observation after the step: obs[t] is the result of action[t].
    """
    for name, spec in _driven(case.schema):
        kinds = [k for k in ("delta", "absolute") if rows.measured(f":{name}:{k}").any()]
        if not kinds:
            continue
        by_kind = {k: np.median(rows[f":{name}:{k}"][rows.measured(f":{name}:{k}")], axis=0) for k in kinds}
        kind = max(kinds, key=lambda k: float(np.max(_size(by_kind[k], spec))))
        known = rows.measured(f":{name}:{kind}")
        each, r = _size(rows[f":{name}:{kind}"], spec), _size(by_kind[kind], spec)
        best = int(np.argmax(r))
        agree = known & (np.argmax(each, axis=1) == best)
        allowed = {0, 1} if spec.lag is None else {spec.lag}
        wanted = max((LAGS.index(lag) for lag in allowed if lag in LAGS), key=lambda i: float(r[i]), default=None)
        clear = wanted is None or 1 - r[best] < 0.5 * (1 - r[wanted])  # of the rest, the better lag explains half
        if LAGS[best] in allowed or r[best] < float(case.options["r"]) or not clear:
            continue
        if agree.sum() < float(case.options["agree"]) * known.sum():
            continue
        yield _lagging(name, spec, agree, float(r[best]), LAGS[best], allowed)


def _size(r: Array, spec: FieldSpec) -> Array:
    return np.abs(r) if spec.role == "gripper" else r  # which way a gripper counts is another question


def _lagging(name: str, spec: FieldSpec, agree: Array, r: float, lag: int, allowed: set[int]) -> Failure:
    said = str(spec.lag) if spec.lag is not None else "0 or 1"
    return Failure(
        agree,
        f"{spec.drives} follows {name} best after {lag} steps (correlation {r:.2f}); {said} is expected.",
        measured={"lag": lag, "r": r},
        expected={"lag": sorted(allowed)},
        cause=Cause(
            f"one of the two is shifted by {lag - (spec.lag if spec.lag is not None else 1)} steps", f"lag{lag}",
            float(lag), explains=int(agree.sum()),
        ),
        fix="Shift one of the two by the difference, or declare lag.",
        kind=f"lag{lag}",
        extra=(name,),
    )  # fmt: skip
