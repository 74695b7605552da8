"""Rules about episodes: windows that training can cut, time that runs forward, arms that move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, shown, those
from datacheck.rules.measures import form, is_numeric, leaf, norms, of_role, reduced
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.units import factor
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

RATIOS = (1.05, 1.1, 1.25, 1.5, 1.75, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
_STATE = ("joint_angle", "position")


def time_field(schema: Schema) -> str:
    """Return the field whose first axis is the time of an episode: action, else time stamp, else any ``[T, ...]``."""
    for roles in (("action",), ("timestamp",)):
        for name, spec in schema.of_role(*roles):
            if spec.ragged and schema.part_of(name) is None:
                return name
    stored = sorted(schema.stored.items())
    return next((name for name, spec in stored if spec.ragged == "T" and not spec.absent and not spec.optional), "")


def _no_expectation(schema: Schema) -> str:
    if not time_field(schema):
        return "no field with a time axis"
    told = schema.windows is not None or (schema.episode is not None and schema.episode.length is not None)
    return "" if told else "the schema says neither windows nor an episode length"


@rule(
    "DC501", "short-episode", Severity.ERROR, Level.SAMPLE, per="sample", measures=(form,),
    needs=("DC109", "DC121", "DC122"), unless=_no_expectation, defaults={"starts": 0.8},
)  # fmt: skip
def short_episode(rows: Rows, case: Case) -> Iterator[Failure]:
    """An episode gives no training window, or is not of the declared length.

    What:
        Windows of an episode: ``max(0, T - length + 1)`` under ``pad: none``; with padding every step starts one. Also
        the share of all steps that can start a window: the last ``length - 1`` of every episode cannot.
    Why it matters:
        ``range(0)`` drops the episode without a word; the lost starts are the end of every task.
    Measure:
        Number of steps, from the time axis of the action.
    When it is wrong:
        The loader pads: say so in ``windows``.
    Options:
        starts: share of steps that can start a window below which a warning is given (0.8).
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 2]}}, windows: {length: 64}}
        samples:
          - {n: 3, a: {normal: [500, 2]}}
          - {a: {normal: [50, 2]}}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 2]}}, windows: {length: 64}}
        samples:
          - {n: 3, a: {normal: [500, 2]}}

    Fix:
        Pad at the end, with a mask (``windows: {pad: edge}``), or leave the episodes out.
    Reference:
        RDT on LIBERO: demos of 50 steps, windows of 64; half of all starts are lost.
    """
    column = f"{time_field(case.schema)}:dims"
    known = rows.measured(column)
    if not known.any():
        return
    steps = rows[column][:, 0]
    episode, windows = case.schema.episode, case.schema.windows
    if windows is not None and windows.pad == "none":
        short = known & (steps < windows.length)
        if windows.short != "pad" and short.any():
            yield _windowless(short, steps, windows.length)
        share = float(np.maximum(0, steps[known] - windows.length + 1).sum() / max(1, steps[known].sum()))
        if share < float(case.options["starts"]):
            yield _lost_starts(known, share, windows.length)
    if episode is not None and episode.length is not None:
        low, high = episode.length.low or 0, episode.length.high or np.inf
        odd = known & ((steps < low) | (steps > high))
        if odd.any():
            yield Failure(
                odd,
                f"{those(odd, 'have')} {int(np.median(steps[odd])):,} steps (median); {episode.length} is allowed.",
                measured={"steps": int(np.median(steps[odd]))},
                expected={"length": str(episode.length)},
                fix="Leave them out, or widen episode: {length: ...}.",
                kind="length",
            )


def _windowless(short: Array, steps: Array, length: int) -> Failure:
    return Failure(
        short,
        f"{those(short, 'give')} no window of {length} steps: the shortest has {int(steps[short].min()):,}.",
        measured={"shortest": int(steps[short].min()), "longest": int(steps[short].max())},
        expected={"steps": f"{length}.."},
        cause=Cause("shorter than the window: range(0)", "short", explains=int(short.sum())),
        fix="Pad at the end with a mask (windows: {pad: edge}), or leave them out.",
        kind="short",
        order=-steps,
    )


def _lost_starts(known: Array, share: float, length: int) -> Failure:
    return Failure(
        known & False,
        f"only {100 * share:.3g} % of all steps can start a window of {length}: every episode loses its last "
        f"{length - 1} starts.",
        measured={"share": share},
        severity=Severity.WARNING,
        fix="Pad at the end with a mask: windows: {pad: edge}.",
        kind="lost-starts",
    )


@measure("timing", applies=of_role("timestamp"))
def timing(column: Column, spec: FieldSpec) -> Columns:
    """How time runs, in the field's unit.

    `steps` between time stamps; `back` and `still`: those below and equal to 0; `step`: their median; `longer`: how
    many are above the median by each of `RATIOS`.
    """
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.shape[1:] not in {(), (1,)}:
        return {}
    values = (column.values if column.values.ndim == 1 else column.values[:, 0]).astype(np.float64)
    count = np.maximum(column.lengths - 1, 0)
    inner = np.ones(len(values), bool)
    inner[column.starts[column.lengths > 0]] = False
    step = np.diff(values, prepend=0.0)[inner]
    sample = np.repeat(np.arange(len(column)), count)
    order = np.lexsort((step, sample))
    middle = np.cumsum(count) - count + (count - 1) // 2
    full = count > 0
    median = np.zeros(len(column))
    median[full] = step[order][middle[full]]
    above = step[:, None] > np.array(RATIOS) * np.maximum(median, 0)[sample][:, None]
    columns = {
        "steps": count,
        "back": reduced(np.add, step < 0, count),
        "still": reduced(np.add, step == 0, count),
        "step": median,
        "longer": reduced(np.add, np.ascontiguousarray(above.T), count).T,
    }
    return {name: Measured(values, full) for name, values in columns.items()}


@rule(
    "DC502", "bad-timestamps", Severity.ERROR, Level.SAMPLE, measures=(timing,), needs=("DC109", "DC122", "DC221"),
    applies=of_role("timestamp"), defaults={"gap": 1.5, "share": 0.001},
)  # fmt: skip
def bad_timestamps(rows: Rows, case: Case) -> Iterator[Failure]:
    """Time stands still, runs backwards, or has gaps.

    What:
        Time stamps rise within an episode (error), without gaps (warning).
    Why it matters:
        Nearest-in-time pairing takes the wrong image; velocities become infinite.
    Measure:
        Differences of neighbours, against their median.
    When it is wrong:
        The recording pauses on purpose: raise ``share``, or split the episode.
    Options:
        gap: a step is a gap above so many median steps (1.5; one of 1.05, 1.1, 1.25, 1.5, 1.75, 2, 3, 5, 10, 30, 100).
        share: share of gaps allowed (0.001).
    Bad::

        schema: {fields: {t: {role: timestamp, shape: [T], unit: s}}}
        samples:
          - {n: 2, t: [0.0, 0.05, 0.1, 0.15, 0.2]}
          - {t: [0.0, 0.05, 0.1, 0.05, 0.2]}

    Good::

        schema: {fields: {t: {role: timestamp, shape: [T], unit: s}}}
        samples:
          - {n: 3, t: [0.0, 0.05, 0.1, 0.15, 0.2]}

    Fix:
        Sort or split the episodes at their source.
    Reference:
        LeRobot issues 933 and 1875; ScanNet issue 9.
    """
    known = rows.measured("steps")
    if not known.any():
        return
    bad = known & ((rows["back"] > 0) | (rows["still"] > 0))
    if bad.any():
        back, still = int(rows["back"][bad].sum()), int(rows["still"][bad].sum())
        yield Failure(
            bad,
            f"time runs backwards {back:,} times and stands still {still:,} times in {counted(int(bad.sum()))}.",
            measured={"back": back, "still": still},
            fix="Sort the rows or split the episodes where the clock was set.",
            kind="order",
            order=rows["back"] + rows["still"],
        )
    place = int(np.argmin(np.abs(np.array(RATIOS) - float(case.options["gap"]))))
    gappy = known & ~bad & (rows["longer"][:, place] > float(case.options["share"]) * rows["steps"])
    if gappy.any():
        yield _gappy(rows, case, gappy, place)


def _gappy(rows: Rows, case: Case, gappy: Array, place: int) -> Failure:
    gaps = rows["longer"][:, place]
    seconds = float(np.median(rows["step"][gappy])) * factor(case.spec.unit or "s")
    return Failure(
        gappy,
        f"{those(gappy, 'have')} {counted(int(gaps[gappy].sum()), 'gap')} above {RATIOS[place]:g} median "
        f"steps of {shown(seconds, 's')}.",
        measured={"gaps": int(gaps[gappy].sum())},
        severity=Severity.WARNING,
        fix="Split the episodes at the gaps, or fill them.",
        kind="gaps",
        order=gaps,
    )


def _states(schema: Schema) -> list[str]:
    """Return the fields that say where the robot is at each step."""
    axis = schema.fields[time_field(schema)].ragged if time_field(schema) else None
    stored = [(n, s) for n, s in schema.of_role(*_STATE) if schema.part_of(n) is None and leaf(s)]
    return [name for name, spec in stored if spec.ragged is not None and spec.ragged == axis]


@measure("motion", per="sample", uses=("fields.role", "fields.shape", "fields.absent"))
def motion(block: Block, schema: Schema) -> Columns:
    """How much an episode moves: joint angles and positions together.

    `idle`: share of steps in which every one of them moves less than 1 % of its own 99th percentile; `head`, `tail`:
    such steps before the first and after the last motion; `reach`: largest distance of any number from its start.
    """
    columns = [block.fields[n] for n in _states(schema) if n in block.fields and is_numeric(block.fields[n])]
    columns = [c for c in columns if c.lengths is not None and c.values.ndim == 2]
    if not columns:
        return {}
    lengths = columns[0].lengths
    assert lengths is not None
    fits = np.logical_and.reduce([c.lengths == lengths for c in columns]) & (lengths > 1)
    if not fits.any():
        return {}
    moving = np.zeros(int((lengths[fits] - 1).sum()), bool)
    reach = np.zeros(len(block))
    count = np.where(fits, lengths - 1, 0)
    for column in columns:
        speed, far = _speed(column, fits)
        order = np.lexsort((speed, np.repeat(np.arange(len(block)), count)))
        place = np.cumsum(count) - count + np.floor(0.99 * np.maximum(count - 1, 0)).astype(np.int64)
        fast = np.zeros(len(block))
        fast[fits] = speed[order][place[fits]]
        moving |= speed > 0.01 * np.repeat(fast, count)
        reach = np.maximum(reach, far)
    at = np.arange(len(moving)) - np.repeat(np.cumsum(count) - count, count)
    most = np.repeat(count, count)
    head = np.minimum(reduced(np.minimum, np.where(moving, at, most), count), count)
    tail = np.minimum(reduced(np.minimum, np.where(moving, most - 1 - at, most), count), count)
    idle = 1 - reduced(np.add, moving, count) / np.maximum(count, 1)
    found = {"idle": idle, "head": head, "tail": tail, "reach": reach}
    return {name: Measured(values, fits) for name, values in found.items()}


def _speed(column: Column, fits: Array) -> tuple[Array, Array]:
    """Return the length of each step of the samples that fit, and per sample the largest distance from its start."""
    lengths = column.lengths
    assert lengths is not None
    values = np.ascontiguousarray(column.values[np.repeat(fits, lengths)].T, dtype=np.float64)
    mine = np.where(fits, lengths, 0)
    starts = np.cumsum(mine) - mine
    inner = np.ones(values.shape[1], bool)
    inner[starts[fits]] = False
    step = np.diff(values, axis=1, prepend=0.0)[:, inner]
    first = np.repeat(values[:, np.minimum(starts, values.shape[1] - 1)], mine, axis=1)
    far = reduced(np.maximum, np.abs(values - first).max(axis=0), mine)
    return norms(step), far


@rule(
    "DC504", "idle-episode", Severity.WARNING, Level.SAMPLE, per="sample", measures=(motion,),
    needs=("DC109", "DC121", "DC122", "DC123", "DC221", "DC222"), defaults={"idle": 0.5, "reach": 0.01},
    unless=lambda s: "" if time_field(s) and _states(s) else "no joint angles or positions over time",
)  # fmt: skip
def idle_episode(rows: Rows, case: Case) -> Iterator[Failure]:
    """Nothing moves for most of an episode.

    What:
        Share of steps without motion of any joint or position, against ``episode: {max_idle: ...}``.
    Why it matters:
        The policy learns to wait; and a loader that looks for the first motion raises where there is none.
    Measure:
        Steps shorter than 1 % of the field's own 99th percentile; an episode that never leaves its start is idle.
    When it is wrong:
        Waiting is the task: raise ``max_idle``.
    Options:
        idle: share allowed where the schema says none (0.5). reach: an episode that stays within this is idle (0.01).
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 2]}, q: {role: joint_angle, shape: [T, 2], unit: rad}}}
        samples:
          - {n: 2, a: {normal: [40, 2]}, q: {ramp: [40, 2], to: 1.0}}
          - {a: {normal: [40, 2]}, q: {ramp: [40, 2], to: 1.0, moves: 10}}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 2]}, q: {role: joint_angle, shape: [T, 2], unit: rad}}}
        samples:
          - {n: 3, a: {normal: [40, 2]}, q: {ramp: [40, 2], to: 1.0}}

    Fix:
        Train on ranges of steps instead of whole episodes; keep the end pose.
    Reference:
        DROID issue 82: 70.7 % of the steps are idle; RDT raises when nothing moves by 0.01 rad.
    """
    known = rows.measured("idle")
    if not known.any():
        return
    episode = case.schema.episode
    most = float(case.options["idle"]) if episode is None or episode.max_idle is None else episode.max_idle
    frozen = known & (rows["reach"] < float(case.options["reach"]))
    idle = np.where(frozen, 1.0, rows["idle"])
    bad = known & (idle > most)
    if bad.any():
        ends = int(np.median((rows["head"] + rows["tail"])[bad]))
        yield Failure(
            bad,
            f"{those(bad, 'stand')} still for {100 * float(np.median(idle[bad])):.3g} % of their steps "
            f"(median; {ends:,} of them at the ends), allowed {100 * most:g} %.",
            measured={"idle": float(np.median(idle[bad])), "frozen": int((frozen & bad).sum())},
            expected={"idle": f"..{most:g}"},
            fix="Train on the ranges that move, and keep the end pose.",
            order=idle,
        )
