"""Rules about episodes: windows that training can cut, arms that move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, listed, measure, rule, those
from datacheck.rules.measures import form, is_numeric, reduced
from datacheck.rules.series import RUNS, ends, least_run, long_runs, moving, runs, series, states, time_field
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_NOTHING = 1e-4  # what OpenVLA takes for no motion


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
        Windows of an episode: ``max(0, T - length + 1)`` under ``pad: none``; with padding every step starts one, and
        only an episode without steps gives none. Groups (tasks) that give none at all are named. Also the share of all
        steps that can start a window: the last ``length - 1`` of every episode cannot.
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
    if windows is not None:
        least = windows.length if windows.pad == "none" and windows.short != "pad" else 1
        short = known & (steps < least)
        if short.any():
            yield _windowless(rows, known, short, steps, least)
        starts = np.maximum(0, steps - windows.length + 1)
        if windows.pad == "none" and 0 < starts[known].sum() < float(case.options["starts"]) * steps[known].sum():
            yield _lost_starts(known, steps, starts, windows.length)
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


def _windowless(rows: Rows, known: Array, short: Array, steps: Array, length: int) -> Failure:
    groups = np.array([rows.table.groups[int(i)] for i in rows.index], dtype=object)
    empty = sorted(set(groups[short]) - set(groups[known & ~short]) - {""})
    whole = f"; {counted(len(empty), 'group')} without any: {listed(empty)}" if empty else ""
    text = "shorter than the window: range(0)" if length > 1 else "episodes without a step"
    return Failure(
        short,
        f"{those(short, 'give')} no window of {counted(length, 'step')}: the shortest has {int(steps[short].min()):,}, "
        f"the longest {int(steps[short].max()):,}{whole}.",
        measured={
            "shortest": int(steps[short].min()), "longest": int(steps[short].max()), "groups": empty[:20],
            "steps": int(steps[short].sum()),
        },
        expected={"steps": f"{length}.."},
        cause=Cause(text, "short" if length > 1 else "empty", explains=int(short.sum())),
        fix="Pad at the end with a mask (windows: {pad: edge}), or leave them out.",
        kind="short" if length > 1 else "empty",
        order=-steps,
    )  # fmt: skip


def _lost_starts(known: Array, steps: Array, starts: Array, length: int) -> Failure:
    every, usable = int(steps[known].sum()), int(starts[known].sum())
    ends_ = int(np.minimum(steps[known], length - 1).sum())
    return Failure(
        known & False,
        f"only {usable:,} of {every:,} steps ({100 * usable / max(1, every):.3g} %) can start a window of {length}: "
        f"every episode loses its last {length - 1} starts, {ends_:,} in all.",
        measured={"share": usable / max(1, every), "starts": usable, "steps": every, "lost": ends_},
        cause=Cause("windows end with the episode, so the end of every task is never a start", "tail"),
        severity=Severity.WARNING,
        fix="Pad at the end with a mask: windows: {pad: edge}.",
        kind="lost-starts",
    )


PAUSES = 8  # of an episode of which it is kept where they are


@measure("motion", version=3, per="sample", uses=("fields.role", "fields.shape", "fields.absent"))
def motion(block: Block, schema: Schema) -> Columns:
    """How much an episode moves: joint angles and positions together.

    A step is still where every one of them moves less than 1 % of its own 99th percentile. `still`: still steps in runs
    of at least each of `series.RUNS`; `head`, `tail`: those before the first and after the last motion; `steps`;
    `reach`: largest distance of any number from its start; `pauses`: the eight longest runs, in order of time: first
    step and how many, in turn.
    """
    columns = series(block, states(schema))
    found = moving(columns)
    if found is None:
        return {}
    moves, count, fits = found
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
    """Return the longest runs of each sample in order of time, first step and length in turn: int32 (samples, 16)."""
    found = np.zeros((samples, PAUSES, 2), np.int32)
    order = np.lexsort((-length, sample))
    kept = np.sort(order[_nth(sample[order]) < PAUSES])
    found[sample[kept], _nth(sample[kept])] = np.stack([first, length], axis=1)[kept]
    return found.reshape(samples, -1)


def _nth(sample: Array) -> Array:
    """Return the how many-eth of its sample each is, of samples in rising order."""
    return np.arange(len(sample)) - np.searchsorted(sample, sample)


def _reach(column: Column, fits: Array) -> Array:
    """Return the largest distance of any number from its start, of the samples that fit."""
    assert column.lengths is not None
    values = np.ascontiguousarray(column.values[np.repeat(fits, column.lengths)].T, dtype=np.float64)
    mine = np.where(fits, column.lengths, 0)
    first = values[:, np.repeat(np.cumsum(mine) - mine, mine)]
    return reduced(np.maximum, np.abs(values - first).max(axis=0, initial=0.0), mine)


@measure("commands", applies=lambda spec: spec.role == "action")
def commands(column: Column, spec: FieldSpec) -> Columns:
    """Commands that ask for nothing: `noop` and `same`, shares of steps.

    Of a `noop` every number is 0 (to 1e-4), or one that only switches between two values, and stays; samples with fewer
    than two numbers that do more than switch have none. `same`: the command is that of the step before.
    """
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.ndim != 2:
        return {}
    lengths = column.lengths
    values = np.ascontiguousarray(column.values.T, dtype=np.float64)
    low, high = reduced(np.minimum, values, lengths), reduced(np.maximum, values, lengths)
    ends_ = (values == np.repeat(low, lengths, axis=1)) | (values == np.repeat(high, lengths, axis=1))
    switch = (reduced(np.add, ends_, lengths) == lengths) & (np.maximum(np.abs(low), np.abs(high)) > _NOTHING)
    stays: Array = np.zeros(values.shape, bool)
    stays[:, 1:] = values[:, 1:] == values[:, :-1]
    stays[:, column.starts[lengths > 0]] = True
    idle = ((np.abs(values) <= _NOTHING) | (stays & np.repeat(switch, lengths, axis=1))).all(axis=0)
    share = reduced(np.add, idle, lengths) / np.maximum(lengths, 1)
    same = reduced(np.add, np.asarray(stays.all(axis=0)), lengths) / np.maximum(lengths, 1)
    full = lengths > 0
    return {"noop": Measured(share, full & ((~switch).sum(axis=0) >= 2)), "same": Measured(same, full)}


@rule(
    "DC504", "idle-episode", Severity.WARNING, Level.SAMPLE, per="sample", measures=(motion, commands),
    needs=("DC109", "DC121", "DC122", "DC123", "DC221", "DC222"),
    defaults={"idle": 0.5, "reach": 0.01, "seconds": 0.5, "steps": 10, "leading": 1.0, "noop": 0.2},
    unless=lambda s: "" if time_field(s) and states(s) else "no joint angles or positions over time", paced=True,
)  # fmt: skip
def idle_episode(rows: Rows, case: Case) -> Iterator[Failure]:
    """Nothing moves for most of an episode, or its commands ask for nothing.

    What:
        Share of steps in pauses of half a second and more, against ``episode: {max_idle: ...}``: at the start, at the
        end and inside. Also the share of commands that are no command, and long waits before the first motion (info).
        ``ranges`` in ``valid.json`` holds the steps of an idle episode that are left without its eight longest pauses.
    Why it matters:
        The policy learns to wait; and a loader that looks for the first motion raises where there is none.
    Measure:
        Runs of steps in which every joint and position moves less than 1 % of its own 99th percentile; an episode that
        never leaves its start is idle. No command: every number is 0, and those that only switch stay.
    When it is wrong:
        Waiting is the task: raise ``max_idle``.
    Options:
        idle: share allowed where the schema says none (0.5). reach: an episode that stays within this is idle (0.01).
        seconds: shortest pause that counts (0.5). steps: the same where the schema says no ``fps`` (10). leading: wait
        before the first motion, in seconds, that is told (1). noop: share of commands that may be none (0.2).
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
    known = rows.measured("still")
    if not known.any():
        return
    episode, options = case.schema.episode, case.options
    fps = episode.fps if episode is not None else None
    most = float(options["idle"]) if episode is None or episode.max_idle is None else episode.max_idle
    place = least_run(float(options["seconds"]), fps, int(options["steps"]))
    steps = np.maximum(1, rows["steps"])
    frozen = known & (rows["reach"] < float(options["reach"]))
    idle = np.where(frozen, 1.0, rows["still"][:, place] / steps)
    noop, same = (_share(rows, f"{time_field(case.schema)}:{stat}") for stat in ("noop", "same"))
    bad = known & (idle > most)
    if bad.any():
        ranges = np.where(frozen[:, None, None], 0, _moving(rows, RUNS[place]))
        yield replace(_idle(rows, bad, frozen, idle, np.fmax(noop, same), most, place), ranges=ranges)
    nothing = known & ~bad & (noop > float(options["noop"]))
    if nothing.any():
        yield _unasked(nothing, noop, float(options["noop"]))
    waits = known & ~bad & (rows["head"] > float(options["leading"]) * (fps or np.inf))
    if waits.any():
        yield _waiting(waits, float(np.median(rows["head"][waits])) / (fps or 1.0))


def _moving(rows: Rows, least: int) -> Array:
    """Return the steps that are left without pauses of at least so many; the pose before and behind each is kept.

    Shapes:
        returns: int64 (rows, 9, 2), as of `Failure.ranges`
    """
    first, still = np.moveaxis(rows["pauses"].astype(np.int64).reshape(len(rows), PAUSES, 2), 2, 0)
    every = rows["steps"][:, None] + 1  # rows of the episode: a step leads from one to the next
    start, stop = np.where(first > 0, first + 1, 0), first + still
    stop = np.where(stop == every - 1, every, stop)
    start, stop = (np.sort(np.where(still >= least, one, every), axis=1) for one in (start, stop))
    return np.stack([np.concatenate([0 * every, stop], axis=1), np.concatenate([start, every], axis=1)], axis=2)


def _unasked(nothing: Array, noop: Array, most: float) -> Failure:
    typical = float(np.median(noop[nothing]))
    return Failure(
        nothing,
        f"{100 * typical:.3g} % of the commands of {counted(int(nothing.sum()))} (median) ask for nothing, allowed "
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
        f"{those(waits, 'begin')} with {seconds:.2g} s (median) in which nothing moves.",
        measured={"seconds": seconds},
        severity=Severity.INFO,
        fix="Let windows begin shortly before the first motion.",
        kind="leading",
    )


def _share(rows: Rows, column: str) -> Array:
    """Return a measured share, NaN where there is none."""
    known = rows.measured(column)
    return np.where(known, rows[column], np.nan) if known.any() else np.full(len(rows), np.nan)


def _idle(rows: Rows, bad: Array, frozen: Array, idle: Array, unasked: Array, most: float, place: int) -> Failure:
    still = rows["still"][:, place]
    head, tail = (np.where(rows[end] <= still, rows[end], 0) for end in ("head", "tail"))
    where = {"start": head[bad].sum(), "end": tail[bad].sum(), "inside": np.maximum(0, still - head - tail)[bad].sum()}
    every = max(1, sum(int(n) for n in where.values()))
    said = ", ".join(
        f"{100 * int(n) / every:.0f} % of it {'inside' if w == 'inside' else f'at the {w}'}" for w, n in where.items()
    )
    reasons = {
        "no-op": (bad & (unasked >= 0.5 * idle), "nothing was asked for: the commands stand still as well"),
        "stuck": (
            bad & (unasked < 0.5 * idle),
            "commands go on while nothing moves: a robot that is stuck, or old states",
        ),
    }
    kind = max(reasons, key=lambda k: int(reasons[k][0].sum()))
    found = int(reasons[kind][0].sum())
    return Failure(
        bad,
        f"{those(bad, 'stand')} still for {100 * float(np.median(idle[bad])):.3g} % of the steps (median; {said}), "
        f"allowed {100 * most:g} %.",
        measured={
            "idle": float(np.median(idle[bad])), "frozen": int((frozen & bad).sum()),
            **{w: int(n) for w, n in where.items()},
        },
        expected={"idle": f"..{most:g}"},
        cause=Cause(reasons[kind][1], kind, explains=found) if found else None,
        fix="Train on the ranges that move (ranges in valid.json), and keep the end pose.",
        order=idle,
    )  # fmt: skip
