"""Rules about episodes: long enough for windows, arms that move, time stamps that run evenly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    Skip,
    count_phrase,
    first_few,
    format_number,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.measures import form, is_numeric, of_role, reduced
from datacheck.rules.series import (
    RUNS,
    ends,
    least_run,
    long_runs,
    moving,
    runs,
    series,
    states,
    time_field,
)
from datacheck.schema.grammar import TIME, factor
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

_NOTHING = 1e-4  # OpenVLA's threshold of no motion


def _no_expectation(schema: Schema) -> str:
    if not time_field(schema):
        return "no field with a time axis"
    declared = schema.windows is not None or (
        schema.episode is not None and schema.episode.length is not None
    )
    return "" if declared else "the schema says neither windows nor an episode length"


@rule(
    "DC501",
    "short-episode",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(form,),
    suppressed_by=("DC109", "DC121", "DC122"),
    unless=_no_expectation,
    defaults={"starts": 0.8},
)
def short_episode(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An episode gives no training window, or does not have the declared length.

    What:
        Under ``pad: none`` an episode has ``max(0, T - length + 1)`` windows. With padding a window
        can start at every step, and only an episode without steps has none. Groups (tasks) in which
        no episode has a window are named. The rule also checks the share of all steps that can
        start a window: the last ``length - 1`` steps of every episode cannot. The number of steps
        lies within ``episode: {length: ...}``.
    Why it matters:
        A loop over ``range(0)`` drops the episode silently. The lost starts are the end of every
        task.
    Measure:
        Number of steps, from the time axis of the action; without an action, of the time stamps or
        of another field over time.
    When it is wrong:
        The loader pads: declare it in ``windows``.
    Options:
        starts: share of steps that can start a window; a smaller share is a warning (0.8).
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
    measured = rows.measured(column)
    if not measured.any():
        return
    steps = rows[column][:, 0]
    episode, windows = case.schema.episode, case.schema.windows
    if windows is not None:
        least = windows.length if windows.pad == "none" and windows.short != "pad" else 1
        short = measured & (steps < least)
        if short.any():
            yield _windowless(rows, measured, short, steps, least)
        starts = np.maximum(0, steps - windows.length + 1)
        if (
            windows.pad == "none"
            and 0 < starts[measured].sum() < float(case.options["starts"]) * steps[measured].sum()
        ):
            yield _lost_starts(measured, steps, starts, windows.length)
    if episode is not None and episode.length is not None:
        low = episode.length.low or 0
        high = episode.length.high or np.inf
        outside = measured & ((steps < low) | (steps > high))
        if outside.any():
            yield Failure(
                outside,
                f"{count_phrase(outside, 'have')} {int(np.median(steps[outside])):,} steps (median); "
                f"{episode.length} is allowed.",
                measured={"steps": int(np.median(steps[outside]))},
                expected={"length": str(episode.length)},
                fix="Leave them out, or widen episode: {length: ...}.",
                kind="length",
            )


def _windowless(rows: Rows, measured: Array, short: Array, steps: Array, length: int) -> Failure:
    groups = np.array([rows.table.groups[int(i)] for i in rows.index], dtype=object)
    empty = sorted(set(groups[short]) - set(groups[measured & ~short]) - {""})
    whole = f"; {pluralize(len(empty), 'group')} without any: {first_few(empty)}" if empty else ""
    text = "shorter than the window: range(0)" if length > 1 else "episodes without a step"
    return Failure(
        short,
        f"{count_phrase(short, 'give')} no window of {pluralize(length, 'step')}: the shortest has "
        f"{int(steps[short].min()):,}, "
        f"the longest {int(steps[short].max()):,}{whole}.",
        measured={
            "shortest": int(steps[short].min()),
            "longest": int(steps[short].max()),
            "groups": empty[:20],
            "steps": int(steps[short].sum()),
        },
        expected={"steps": f"{length}.."},
        cause=Cause(text, "short" if length > 1 else "empty", explains=int(short.sum())),
        fix="Pad at the end with a mask (windows: {pad: edge}), or leave them out.",
        kind="short" if length > 1 else "empty",
        order=-steps,
    )


def _lost_starts(measured: Array, steps: Array, starts: Array, length: int) -> Failure:
    every = int(steps[measured].sum())
    usable = int(starts[measured].sum())
    ends_ = int(np.minimum(steps[measured], length - 1).sum())
    return Failure(
        measured & False,
        f"only {usable:,} of {every:,} steps ({100 * usable / max(1, every):.3g} %) can start a "
        f"window of {length}: "
        f"every episode loses its last {length - 1} starts, {ends_:,} in all.",
        measured={"share": usable / max(1, every), "starts": usable, "steps": every, "lost": ends_},
        cause=Cause(
            "windows end with the episode, so the end of every task is never a start", "tail"
        ),
        severity=Severity.WARNING,
        fix="Pad at the end with a mask: windows: {pad: edge}.",
        kind="lost-starts",
    )


PAUSES = 8  # longest pauses of an episode whose places are recorded


@measure("motion", version=3, per="sample", uses=("fields.role", "fields.shape", "fields.absent"))
def motion(block: Block, schema: Schema) -> Columns:
    """Motion of an episode: joint angles and positions together.

    A step is still where every field moves less than 1 % of its own 99th percentile. `still`: still
    steps in runs of at least each of `series.RUNS`; `head`, `tail`: those before the first and
    after the last motion; `steps`; `reach`: largest distance of any number from its start;
    `pauses`: the eight longest runs in time order, alternating first step and count.
    """
    columns = series(block, states(schema))
    motions = moving(columns)
    if motions is None:
        return {}
    moves, count, fits = motions
    sample, first, length = runs(~moves, count)
    head, tail = ends(moves, count)
    stats = {
        "still": long_runs(sample, length, len(block)),
        "head": head,
        "tail": tail,
        "steps": count,
        "reach": np.max([_reach(column, fits) for column in columns], axis=0),
        "pauses": _longest(sample, first - (np.cumsum(count) - count)[sample], length, len(block)),
    }
    return {name: Measured(values, fits) for name, values in stats.items()}


def _longest(sample: Array, first: Array, length: Array, samples: int) -> Array:
    """Return the longest runs of each sample in time order: int32 (samples, 16).

    First step and length alternate.
    """
    longest = np.zeros((samples, PAUSES, 2), np.int32)
    order = np.lexsort((-length, sample))
    kept = np.sort(order[_nth(sample[order]) < PAUSES])
    longest[sample[kept], _nth(sample[kept])] = np.stack([first, length], axis=1)[kept]
    return longest.reshape(samples, -1)


def _nth(sample: Array) -> Array:
    """Return the running number of each entry within its sample, for sorted samples."""
    return np.arange(len(sample)) - np.searchsorted(sample, sample)


def _reach(column: Column, fits: Array) -> Array:
    """Return the largest distance of any number from its start, for the samples that fit."""
    assert column.lengths is not None
    values = np.ascontiguousarray(
        column.values[np.repeat(fits, column.lengths)].T, dtype=np.float64
    )
    mine = np.where(fits, column.lengths, 0)
    first = values[:, np.repeat(np.cumsum(mine) - mine, mine)]
    return reduced(np.maximum, np.abs(values - first).max(axis=0, initial=0.0), mine)


@measure("commands", applies=lambda spec: spec.role == "action")
def commands(column: Column, spec: FieldSpec) -> Columns:
    """Commands without effect: `noop` and `same`, shares of steps.

    In a `noop` step every number is 0 (to 1e-4), or is one that only switches between two values
    and stays. Samples with fewer than two numbers that do more than switch have no `noop`. `same`:
    the command equals that of the step before.
    """
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.ndim != 2:
        return {}
    lengths = column.lengths
    values = np.ascontiguousarray(column.values.T, dtype=np.float64)
    low = reduced(np.minimum, values, lengths)
    high = reduced(np.maximum, values, lengths)
    ends_ = (values == np.repeat(low, lengths, axis=1)) | (
        values == np.repeat(high, lengths, axis=1)
    )
    switch = (reduced(np.add, ends_, lengths) == lengths) & (
        np.maximum(np.abs(low), np.abs(high)) > _NOTHING
    )
    stays: Array = np.zeros(values.shape, bool)
    stays[:, 1:] = values[:, 1:] == values[:, :-1]
    stays[:, column.starts[lengths > 0]] = True
    idle = ((np.abs(values) <= _NOTHING) | (stays & np.repeat(switch, lengths, axis=1))).all(axis=0)
    share = reduced(np.add, idle, lengths) / np.maximum(lengths, 1)
    same = reduced(np.add, np.asarray(stays.all(axis=0)), lengths) / np.maximum(lengths, 1)
    full = lengths > 0
    return {
        "noop": Measured(share, full & ((~switch).sum(axis=0) >= 2)),
        "same": Measured(same, full),
    }


@rule(
    "DC504",
    "idle-episode",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(motion, commands),
    suppressed_by=("DC109", "DC121", "DC122", "DC123", "DC221", "DC222"),
    defaults={"idle": 0.5, "reach": 0.01, "seconds": 0.5, "steps": 10, "leading": 1.0, "noop": 0.2},
    unless=lambda s: (
        "" if time_field(s) and states(s) else "no joint angles or positions over time"
    ),
    paced=True,
)
def idle_episode(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Nothing moves for most of an episode, or its commands request no motion.

    What:
        The share of steps in pauses of half a second and more (at the start, at the end and inside)
        is at most ``episode: {max_idle: ...}``. The rule also checks the share of commands that
        request no motion, and reports long waits before the first motion (info). ``ranges`` in
        ``valid.json`` holds the steps of an idle episode that remain without its eight longest
        pauses.
    Why it matters:
        The policy learns to wait, and a loader that looks for the first motion raises an exception
        if there is none.
    Measure:
        Runs of steps in which every joint and position moves less than 1 % of the 99th percentile
        of its own speed. An episode that never leaves its start is idle. A command requests no
        motion if its numbers are 0, except for switches (such as a gripper) that keep their value.
    When it is wrong:
        Waiting is the task: raise ``max_idle``.
    Options:
        idle: largest share of idle steps if the schema gives no ``max_idle`` (0.5).
        reach: an episode that stays within this distance of its start is idle (0.01).
        seconds: shortest pause that counts, in seconds (0.5).
        steps: the same in steps, if the schema gives no ``fps`` (10).
        leading: longest wait before the first motion that is not reported, in seconds; needs
        ``fps`` (1).
        noop: largest share of commands that may request no motion (0.2).
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
        Train on ranges of steps instead of whole episodes, and keep the pose at the end.
    Reference:
        DROID issue 82: 70.7 % of the steps are idle; RDT raises an exception if nothing moves by
        0.01 rad.
    """
    measured = rows.measured("still")
    if not measured.any():
        return
    episode, options = case.schema.episode, case.options
    fps = episode.fps if episode is not None else None
    most = (
        float(options["idle"]) if episode is None or episode.max_idle is None else episode.max_idle
    )
    place = least_run(float(options["seconds"]), fps, int(options["steps"]))
    steps = np.maximum(1, rows["steps"])
    frozen = measured & (rows["reach"] < float(options["reach"]))
    idle = np.where(frozen, 1.0, rows["still"][:, place] / steps)
    noop, same = (_share(rows, f"{time_field(case.schema)}:{stat}") for stat in ("noop", "same"))
    bad = measured & (idle > most)
    if bad.any():
        ranges = np.where(frozen[:, None, None], 0, _moving(rows, RUNS[place]))
        yield replace(
            _idle(rows, bad, frozen, idle, np.fmax(noop, same), most, place), ranges=ranges
        )
    nothing = measured & ~bad & (noop > float(options["noop"]))
    if nothing.any():
        yield _noop_failure(nothing, noop, float(options["noop"]))
    waits = measured & ~bad & (rows["head"] > float(options["leading"]) * (fps or np.inf))
    if waits.any():
        yield _waiting(waits, float(np.median(rows["head"][waits])) / (fps or 1.0))


def _moving(rows: Rows, least: int) -> Array:
    """Return the ranges of steps without pauses of at least `least` steps.

    The pose before and after each pause is kept.

    Shapes:
        returns: int64 (rows, 9, 2), as of `Failure.ranges`
    """
    first, still = np.moveaxis(rows["pauses"].astype(np.int64).reshape(len(rows), PAUSES, 2), 2, 0)
    every = rows["steps"][:, None] + 1  # rows of the episode, one more than steps between them
    start = np.where(first > 0, first + 1, 0)
    stop = first + still
    stop = np.where(stop == every - 1, every, stop)
    start, stop = (
        np.sort(np.where(still >= least, edges, every), axis=1) for edges in (start, stop)
    )
    return np.stack(
        [np.concatenate([0 * every, stop], axis=1), np.concatenate([start, every], axis=1)], axis=2
    )


def _noop_failure(nothing: Array, noop: Array, most: float) -> Failure:
    typical = float(np.median(noop[nothing]))
    return Failure(
        nothing,
        f"{100 * typical:.3g} % of the commands of {pluralize(int(nothing.sum()))} (median) ask "
        f"for nothing, allowed "
        f"{100 * most:g} %.",
        measured={"noop": typical},
        expected={"noop": f"..{most:g}"},
        fix="Leave these steps out, as OpenVLA does, and check what is left of each task.",
        kind="no-op",
        order=np.nan_to_num(noop),
    )


def _waiting(waits: Array, seconds: float) -> Failure:
    return Failure(
        waits,
        f"{count_phrase(waits, 'begin')} with {seconds:.2g} s (median) in which nothing moves.",
        measured={"seconds": seconds},
        severity=Severity.INFO,
        fix="Let windows begin shortly before the first motion.",
        kind="leading",
    )


def _share(rows: Rows, column: str) -> Array:
    """Return a measured share, NaN where there is none."""
    measured = rows.measured(column)
    return (
        np.where(measured, rows[column], np.nan) if measured.any() else np.full(len(rows), np.nan)
    )


def _idle(
    rows: Rows, bad: Array, frozen: Array, idle: Array, unasked: Array, most: float, place: int
) -> Failure:
    still = rows["still"][:, place]
    head, tail = (np.where(rows[end] <= still, rows[end], 0) for end in ("head", "tail"))
    where = {
        "start": head[bad].sum(),
        "end": tail[bad].sum(),
        "inside": np.maximum(0, still - head - tail)[bad].sum(),
    }
    every = max(1, sum(int(n) for n in where.values()))
    breakdown = ", ".join(
        f"{100 * int(n) / every:.0f} % of it {'inside' if w == 'inside' else f'at the {w}'}"
        for w, n in where.items()
    )
    reasons = {
        "no-op": (
            bad & (unasked >= 0.5 * idle),
            "nothing was asked for: the commands stand still as well",
        ),
        "stuck": (
            bad & (unasked < 0.5 * idle),
            "commands go on while nothing moves: a robot that is stuck, or old states",
        ),
    }
    kind = max(reasons, key=lambda k: int(reasons[k][0].sum()))
    explained = int(reasons[kind][0].sum())
    return Failure(
        bad,
        f"{count_phrase(bad, 'stand')} still for {100 * float(np.median(idle[bad])):.3g} % of the "
        f"steps (median; {breakdown}), "
        f"allowed {100 * most:g} %.",
        measured={
            "idle": float(np.median(idle[bad])),
            "frozen": int((frozen & bad).sum()),
            **{w: int(n) for w, n in where.items()},
        },
        expected={"idle": f"..{most:g}"},
        cause=Cause(reasons[kind][1], kind, explains=explained) if explained else None,
        fix="Train on the ranges that move (ranges in valid.json), and keep the end pose.",
        order=idle,
    )


def _unfiltered(schema: Schema) -> str:
    if not time_field(schema):
        return "no field with a time axis"
    drops = (
        schema.windows is not None
        and schema.windows.pad == "none"
        and schema.windows.short == "drop"
    )
    limited = schema.episode is not None and schema.episode.length is not None
    return "" if drops or limited else "nothing that is declared leaves episodes out"


def _kept(schema: Schema, steps: Array) -> Array:
    """Tell which episodes pass the declared windows and length."""
    kept = steps > 0
    if (
        schema.windows is not None
        and schema.windows.pad == "none"
        and schema.windows.short == "drop"
    ):
        kept &= steps >= schema.windows.length
    if schema.episode is not None and schema.episode.length is not None:
        low, high = schema.episode.length.low, schema.episode.length.high
        kept &= (steps >= (low or 0)) & (steps <= (np.inf if high is None else high))
    return kept


@rule(
    "DC509",
    "filter-collapse",
    Severity.ERROR,
    Level.DATASET,
    per="sample",
    measures=(form,),
    suppressed_by=("DC109", "DC121", "DC122"),
    unless=_unfiltered,
    defaults={"share": 0.5, "least": 2},
)
def filter_collapse(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The declared windows and length exclude most episodes of a task.

    What:
        Windows and the declared length keep at least half of the episodes of every group. A group
        that loses all of them is an error, otherwise the finding is a warning.
    Why it matters:
        The task is then learnt from a few episodes, or not at all, while the total still looks
        healthy.
    Measure:
        Share of each group's episodes that are excluded (``samples: {group: ...}``; all episodes if
        there are no groups).
    When it is wrong:
        The group is meant to be excluded: filter it in ``samples``.
    Options:
        share: largest share of a group that may be excluded (0.5).
        least: fewest episodes of a group to judge (2).
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 2]}}, windows: {length: 64}, rules: {DC501: off}}
        samples:
          - {n: 2, group: stack, a: {normal: [500, 2]}}
          - {n: 2, group: pour, a: {normal: [50, 2]}}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 2]}}, windows: {length: 64}, rules: {DC501: off}}
        samples:
          - {n: 3, group: stack, a: {normal: [500, 2]}}
          - {n: 3, group: pour, a: {normal: [100, 2]}}

    Fix:
        Use shorter windows, or pad at the end with a mask.
    Reference:
        flower_vla issue 13: a filter for idle steps empties one task of LIBERO-90.
    """
    column = f"{time_field(case.schema)}:dims"
    measured = rows.measured(column)
    if not measured.any():
        return
    out = measured & ~_kept(case.schema, rows[column][:, 0])
    groups = np.array([rows.table.groups[int(i)] for i in rows.index], dtype=object)
    emptied: list[tuple[str, int, int]] = []
    thinned: list[tuple[str, int, int]] = []
    for name, places in rows.by_group():
        mine = int(measured[places].sum())
        lost = int(out[places].sum())
        if (
            mine
            and mine >= int(case.options["least"])
            and lost > float(case.options["share"]) * mine
        ):
            (emptied if lost == mine else thinned).append((str(name) or "the dataset", lost, mine))
    if emptied:
        yield _collapsed(measured, groups, emptied, None)
    if thinned:
        yield _collapsed(measured, groups, thinned, Severity.WARNING)


def _collapsed(
    measured: Array, groups: Array, lost: list[tuple[str, int, int]], severity: Severity | None
) -> Failure:
    phrases = [f"{name} ({out:,} of {total:,})" for name, out, total in lost]
    every = severity is None
    return Failure(
        measured & False,
        f"windows and length leave out {'all' if every else 'most'} episodes of "
        f"{pluralize(len(lost), 'group')}: "
        f"{first_few(phrases)}.",
        measured={"groups": {name: [out, total] for name, out, total in lost[:20]}},
        cause=Cause(
            "the episodes of these tasks are shorter than the window, or not of the declared length",
            "length",
        ),
        severity=severity,
        fix="Shorter windows, or padding at the end with a mask: windows: {pad: edge}.",
        kind="emptied" if every else "thinned",
    )


# Share of the steps above which long ones are due to the recording, not to gaps.
_IRREGULAR = 0.1
# Fewest steps that show a time step, fewest samples with another one, and largest share of them.
_STEADY_STEPS = 8
_FEWEST_OTHERS = 3
_FEW = 0.1
RATIOS = (1.05, 1.1, 1.25, 1.5, 1.75, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


@measure("timing", version=3, applies=of_role("timestamp"))
def timing(column: Column, spec: FieldSpec) -> Columns:
    """Course of time stamps, in the field's unit.

    `steps` between time stamps; `back` and `still`: those below and equal to 0; `step`: their
    median; `longer`: how many exceed the median by each of `RATIOS`; `lost`: the share of the time
    that these take beyond the median.
    """
    del spec
    if (
        not is_numeric(column)
        or column.lengths is None
        or column.values.shape[1:] not in {(), (1,)}
    ):
        return {}
    values = column.values if column.values.ndim == 1 else column.values[:, 0]
    exact = (
        values.dtype.kind in "iu"
        and int(np.abs(values.astype(np.float64)).max(initial=0)) < 1 << 62
    )
    # float64 cannot hold nanoseconds since 1970 exactly.
    values = values.astype(np.int64 if exact else np.float64)
    count = np.maximum(column.lengths - 1, 0)
    inner = np.ones(len(values), bool)
    inner[column.starts[column.lengths > 0]] = False
    step = np.diff(values, prepend=values[:1])[inner].astype(np.float64)
    sample = np.repeat(np.arange(len(column)), count)
    order = np.lexsort((step, sample))
    middle = np.cumsum(count) - count + (count - 1) // 2
    full = count > 0
    median = np.zeros(len(column))
    median[full] = step[order][middle[full]]
    longer, lost = np.zeros((2, len(column), len(RATIOS)))
    with np.errstate(over="ignore", invalid="ignore"):  # times near the limits of float64
        span = reduced(np.add, np.maximum(step, 0), count)
        usual = median[sample]
        for place, ratio in enumerate(RATIOS):  # one by one, as there may be millions of steps
            above = step > ratio * np.maximum(usual, 0)
            longer[:, place] = reduced(np.add, above, count)
            missing_time = reduced(np.add, np.where(above, step - usual, 0), count)
            lost[:, place] = np.nan_to_num(missing_time / np.where(span > 0, span, 1))
    columns = {
        "steps": count,
        "back": reduced(np.add, step < 0, count),
        "still": reduced(np.add, step == 0, count),
        "step": median,
        "longer": longer.astype(np.int64),
        "lost": lost,
    }
    return {name: Measured(values, full) for name, values in columns.items()}


@rule(
    "DC502",
    "bad-timestamps",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(timing,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=of_role("timestamp"),
    defaults={"gap": 1.5, "share": 0.001, "lost": 0.1, "jump": 100},
)
def bad_timestamps(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Time stamps stand still, run backwards or have gaps.

    What:
        Time stamps rise within an episode (error), without gaps (warning).
    Why it matters:
        Pairing by nearest time takes the wrong image, and velocities become infinite.
    Measure:
        Differences of neighbouring time stamps, relative to their median; a few gaps count if one of
        them is long, or if together they take much of the time. If more than a tenth of
        the steps are long, the rows were not recorded at one rate, and no gaps are reported.
    When it is wrong:
        The recording pauses on purpose: raise ``share`` and ``jump``, or split the episode.
    Options:
        gap: a step longer than this multiple of the median step is a gap (1.5; one of 1.05, 1.1,
        1.25, 1.5, 1.75, 2, 3, 5, 10, 30, 100).
        share: largest share of steps that may be gaps (0.001).
        lost: largest share of the time that gaps may take, however few they are (0.1).
        jump: a step longer than this multiple of the median step is reported, even if it is the
        only one (100; one of the same numbers, or a larger one for never).
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
    measured = rows.measured("steps")
    if not measured.any():
        return
    back = measured & (rows["back"] > 0)
    still = measured & (rows["back"] == 0) & (rows["still"] > 0)
    for mask, words, stat, kind, fix in (
        (
            back,
            "runs backwards",
            "back",
            "order",
            "Sort the rows or split the episodes where the clock was set.",
        ),
        (still, "stands still", "still", "still", "Write the time of each row."),
    ):
        if mask.any():
            count = int(rows[stat][mask].sum())
            yield Failure(
                mask,
                f"time {words} {pluralize(count, 'time')} in {pluralize(int(mask.sum()))}.",
                measured={stat: count},
                fix=fix,
                kind=kind,
                order=rows[stat],
            )
    place, far = (
        int(np.argmin(np.abs(np.array(RATIOS) - float(case.options[name]))))
        for name in ("gap", "jump")
    )
    far = max(far, place)
    gaps = rows["longer"][:, place]
    many = gaps > float(case.options["share"]) * rows["steps"]
    long = rows["lost"][:, place] > float(case.options["lost"])
    jumped = (rows["longer"][:, far] > 0) & (float(case.options["jump"]) <= RATIOS[-1])
    gappy = measured & ~back & ~still & (many | long | jumped)
    gappy &= gaps <= _IRREGULAR * rows["steps"]
    if gappy.any():
        yield _gappy(rows, case, gappy, place, far)


def _gappy(rows: Rows, case: RuleContext, gappy: Array, place: int, far: int) -> Failure:
    gaps = rows["longer"][:, place]
    count, jumps = (int(rows["longer"][gappy, which].sum()) for which in (place, far))
    lost = float(rows["lost"][gappy, place].max())
    steps = rows["step"][gappy] * factor(case.spec.unit or "s")
    least, most = (format_number(float(end), "s") for end in (steps.min(), steps.max()))
    usual = (
        f"median steps of {least}"
        if least == most
        else f"of their own median steps ({least} to {most})"
    )
    return Failure(
        gappy,
        f"{count_phrase(gappy, 'have')} {pluralize(count, 'gap')} above "
        f"{RATIOS[far if jumps == count else place]:g} {usual}"
        f"{f', {jumps:,} of them above {RATIOS[far]:g}' if 0 < jumps < count else ''}"
        f"{f', which take up to {lost:.0%} of the time' if lost > float(case.options['lost']) else ''}.",
        measured={"gaps": count, "lost": lost},
        severity=Severity.WARNING,
        fix="Split the episodes at the gaps, or fill them.",
        kind="gaps",
        order=gaps,
    )


@rule(
    "DC503",
    "fps-mismatch",
    Severity.WARNING,
    Level.GROUP,
    measures=(timing,),
    suppressed_by=("DC109", "DC122", "DC206", "DC221", "DC502"),
    applies=of_role("timestamp"),
    defaults={"tolerance": 0.02, "least": 30},
    unless=lambda s: (
        "the schema says no episode fps"
        if s.samples.each == "episode" and (s.episode is None or s.episode.fps is None)
        else ""
    ),
    paced=True,
)
def fps_mismatch(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Time stamps run at another rate than declared, or than nearly all others.

    What:
        The inverse of the median time step is ``episode: {fps: ...}``. Without a declared rate,
        nine tenths of the samples have one median step, and no others keep to another one.
    Why it matters:
        Speeds, windows in seconds and pairs with video frames are all wrong by the same factor.
    Measure:
        Median difference of neighbouring time stamps, in the declared unit. Without a declared rate
        a sample counts if it has at least 8 steps, none of them longer than its median step by 5 %
        or more; at least three must deviate.
    When it is wrong:
        The rate varies from episode to episode: remove ``fps``, or ``DC503: off``.
    Options:
        tolerance: largest relative difference that is allowed (0.02).
        least: fewest samples to compare without a declared rate (30).
    Bad::

        schema: {episode: {fps: 20}, fields: {t: {role: timestamp, shape: [T], unit: s}}}
        samples:
          - {t: [0.0, 0.05, 0.1, 0.15, 0.2]}
          - {t: [0.1, 0.15, 0.2, 0.25, 0.3]}
          - {t: [0.0, 0.1, 0.2, 0.3, 0.4]}

    Good::

        schema: {episode: {fps: 20}, fields: {t: {role: timestamp, shape: [T], unit: s}}}
        samples:
          - {t: [0.0, 0.05, 0.1, 0.15, 0.2]}
          - {t: [0.1, 0.15, 0.2, 0.25, 0.3]}

    Fix:
        Correct ``fps`` or the unit of the time stamps, or resample.
    Reference:
        LeRobot looks up frames by ``index / fps``: a wrong rate shows the wrong image without an
        error.
    """
    episode = case.schema.episode
    measured = rows.measured("step")
    if not measured.any():
        return
    if episode is None or episode.fps is None:
        yield from _other_step(rows, case)
        return
    seconds = np.where(measured & (rows["step"] > 0), rows["step"], np.nan) * factor(
        case.spec.unit or "s"
    )
    ratio = 1 / seconds / episode.fps
    off = measured & (np.abs(ratio - 1) > float(case.options["tolerance"]))
    if off.any():
        typical = float(np.median(ratio[off]))
        cause = _rate_cause(typical, case.spec.unit or "s")
        yield Failure(
            off,
            f"{count_phrase(off, 'run')} at {format_number(typical * episode.fps)} rows a second "
            f"(median); {episode.fps:g} is "
            "declared.",
            measured={"fps": typical * episode.fps},
            expected={"fps": episode.fps},
            cause=cause,
            fix="Correct episode: {fps: ...}, the unit of the time stamps, or resample.",
            kind=cause.kind if cause is not None else "",
            order=np.abs(np.log(np.where(off, ratio, 1.0))),
        )


def _other_step(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Yield samples that keep to another time step than nearly all others do."""
    steady = rows.measured("step", "longer") & (rows["step"] > 0)
    steady &= (rows["steps"] >= _STEADY_STEPS) & (rows["longer"][:, 0] == 0)
    total = int(steady.sum())
    if total < int(case.options["least"]):
        reason = (
            f"no rate is declared, and fewer than {pluralize(int(case.options['least']))} have one"
        )
        yield Skip(rows.measured("step"), reason)
        return
    usual = float(np.median(rows["step"][steady]))
    tolerance = float(case.options["tolerance"])
    off = steady & (np.abs(rows["step"] / usual - 1) > tolerance)
    count = int(off.sum())
    if not _FEWEST_OTHERS <= count <= _FEW * total:
        return
    others = [format_number(float(step), case.spec.unit) for step in np.unique(rows["step"][off])]
    yield Failure(
        off,
        f"{count_phrase(off, 'keep')} to a time step of {first_few(others)}; the other "
        f"{total - count:,} to {format_number(usual, case.spec.unit)}.",
        measured={"step": float(np.median(rows["step"][off])), "usual": usual},
        fix="Look at how they were recorded: correct the time stamps, or resample the samples.",
        kind="step",
        order=np.abs(np.log(np.where(off, rows["step"] / usual, 1.0))),
    )


def _rate_cause(ratio: float, unit: str) -> Cause | None:
    """Return why time runs `ratio` times as fast as declared.

    It is another unit, or another number of rows for each step.

    Notes:
        Omitted rows and stretched time stamps look alike, so neither is named.
    """
    for other, size in TIME.items():
        if other != unit and abs(ratio * factor(unit) / size - 1) < 0.1:
            return (
                None
                if not np.isfinite(ratio)
                else Cause(f"the time stamps are in {other}", other, size / factor(unit))
            )
    for k in range(2, 11):
        if abs(ratio * k - 1) < 0.03:
            return Cause(f"one row for {k} steps of the declared rate", "thinned", 1 / k)
        if abs(ratio / k - 1) < 0.03:
            return Cause(f"{k} rows for each step of the declared rate", "denser", float(k))
    return None
