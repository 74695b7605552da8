"""Rules about time stamps: they run forward, without gaps, at the declared rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, shown, those
from datacheck.rules.measures import is_numeric, of_role, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.schema.units import TIME, factor
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_IRREGULAR = 0.1  # share of the steps above which long ones are how these data were recorded, not gaps
RATIOS = (1.05, 1.1, 1.25, 1.5, 1.75, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


@measure("timing", version=3, applies=of_role("timestamp"))
def timing(column: Column, spec: FieldSpec) -> Columns:
    """How time runs, in the field's unit.

    `steps` between time stamps; `back` and `still`: those below and equal to 0; `step`: their median; `longer`: how
    many are above the median by each of `RATIOS`; `lost`: which share of the time these take beyond the median.
    """
    del spec
    if not is_numeric(column) or column.lengths is None or column.values.shape[1:] not in {(), (1,)}:
        return {}
    values = column.values if column.values.ndim == 1 else column.values[:, 0]
    exact = values.dtype.kind in "iu" and int(np.abs(values.astype(np.float64)).max(initial=0)) < 1 << 62
    values = values.astype(np.int64 if exact else np.float64)  # nanoseconds since 1970 are no float64
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
    with np.errstate(over="ignore", invalid="ignore"):  # times near the end of float64
        span = reduced(np.add, np.maximum(step, 0), count)
        usual = median[sample]
        for place, ratio in enumerate(RATIOS):  # one by one: there may be millions of steps
            above = step > ratio * np.maximum(usual, 0)
            longer[:, place] = reduced(np.add, above, count)
            gone = reduced(np.add, np.where(above, step - usual, 0), count)
            lost[:, place] = np.nan_to_num(gone / np.where(span > 0, span, 1))
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
    "DC502", "bad-timestamps", Severity.ERROR, Level.SAMPLE, measures=(timing,), needs=("DC109", "DC122", "DC221"),
    applies=of_role("timestamp"), defaults={"gap": 1.5, "share": 0.001, "lost": 0.1},
)  # fmt: skip
def bad_timestamps(rows: Rows, case: Case) -> Iterator[Failure]:
    """Time stands still, runs backwards, or has gaps.

    What:
        Time stamps rise within an episode (error), without gaps (warning).
    Why it matters:
        Nearest-in-time pairing takes the wrong image; velocities become infinite.
    Measure:
        Differences of neighbours, against their median. Where more than a tenth of the steps are long, rows were not
        recorded at one rate, and there are no gaps.
    When it is wrong:
        The recording pauses on purpose: raise ``share``, or split the episode.
    Options:
        gap: a step is a gap above so many median steps (1.5; one of 1.05, 1.1, 1.25, 1.5, 1.75, 2, 3, 5, 10, 30, 100).
        share: share of gaps allowed (0.001).
        lost: share of the time that gaps may take, however few they are (0.1).
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
    back, still = known & (rows["back"] > 0), known & (rows["back"] == 0) & (rows["still"] > 0)
    for mask, words, stat, kind, fix in (
        (back, "runs backwards", "back", "order", "Sort the rows or split the episodes where the clock was set."),
        (still, "stands still", "still", "still", "Write the time of each row."),
    ):
        if mask.any():
            count = int(rows[stat][mask].sum())
            yield Failure(
                mask,
                f"time {words} {counted(count, 'time')} in {counted(int(mask.sum()))}.",
                measured={stat: count},
                fix=fix,
                kind=kind,
                order=rows[stat],
            )
    place = int(np.argmin(np.abs(np.array(RATIOS) - float(case.options["gap"]))))
    gaps = rows["longer"][:, place]
    many = gaps > float(case.options["share"]) * rows["steps"]
    gappy = known & ~back & ~still & (many | (rows["lost"][:, place] > float(case.options["lost"])))
    gappy &= gaps <= _IRREGULAR * rows["steps"]
    if gappy.any():
        yield _gappy(rows, case, gappy, place)


def _gappy(rows: Rows, case: Case, gappy: Array, place: int) -> Failure:
    gaps, lost = rows["longer"][:, place], float(rows["lost"][gappy, place].max())
    steps = rows["step"][gappy] * factor(case.spec.unit or "s")
    least, most = (shown(float(end), "s") for end in (steps.min(), steps.max()))
    usual = f"median steps of {least}" if least == most else f"of their own median steps ({least} to {most})"
    return Failure(
        gappy,
        f"{those(gappy, 'have')} {counted(int(gaps[gappy].sum()), 'gap')} above {RATIOS[place]:g} {usual}"
        f"{f', which take up to {lost:.0%} of the time' if lost > float(case.options['lost']) else ''}.",
        measured={"gaps": int(gaps[gappy].sum()), "lost": lost},
        severity=Severity.WARNING,
        fix="Split the episodes at the gaps, or fill them.",
        kind="gaps",
        order=gaps,
    )


@rule(
    "DC503", "fps-mismatch", Severity.WARNING, Level.GROUP, measures=(timing,),
    needs=("DC109", "DC122", "DC206", "DC221", "DC502"), applies=of_role("timestamp"), defaults={"tolerance": 0.02},
    unless=lambda s: "" if s.episode is not None and s.episode.fps is not None else "the schema says no episode fps",
    paced=True,
)  # fmt: skip
def fps_mismatch(rows: Rows, case: Case) -> Iterator[Failure]:
    """Time stamps run at another rate than declared.

    What:
        One over the median step of time is ``episode: {fps: ...}``.
    Why it matters:
        Speeds, windows in seconds and pairs with video frames are all wrong by the same factor.
    Measure:
        Median difference of neighbouring time stamps, in the declared unit.
    When it is wrong:
        The rate varies from episode to episode: leave ``fps`` away.
    Options:
        tolerance: relative difference that is allowed (0.02).
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
        Correct ``fps``, the unit of the time stamps, or resample.
    Reference:
        LeRobot looks frames up by ``index / fps``: a wrong rate shows the wrong picture without an error.
    """
    episode = case.schema.episode
    known = rows.measured("step")
    if not known.any() or episode is None or episode.fps is None:
        return
    seconds = np.where(known & (rows["step"] > 0), rows["step"], np.nan) * factor(case.spec.unit or "s")
    ratio = 1 / seconds / episode.fps
    off = known & (np.abs(ratio - 1) > float(case.options["tolerance"]))
    if off.any():
        typical = float(np.median(ratio[off]))
        cause = _rate_cause(typical, case.spec.unit or "s")
        yield Failure(
            off,
            f"{those(off, 'run')} at {shown(typical * episode.fps)} rows a second (median); {episode.fps:g} is "
            "declared.",
            measured={"fps": typical * episode.fps},
            expected={"fps": episode.fps},
            cause=cause,
            fix="Correct episode: {fps: ...}, the unit of the time stamps, or resample.",
            kind=cause.kind if cause is not None else "",
            order=np.abs(np.log(np.where(off, ratio, 1.0))),
        )


def _rate_cause(ratio: float, unit: str) -> Cause | None:
    """Return why time runs `ratio` times as fast as it should: another unit, or another number of rows for each step.

    Notes:
        Rows that were left out and time stamps that were stretched look alike, so neither is named.
    """
    for other, size in TIME.items():
        if other != unit and abs(ratio * factor(unit) / size - 1) < 0.1:
            return (
                None if not np.isfinite(ratio) else Cause(f"the time stamps are in {other}", other, size / factor(unit))
            )
    for k in range(2, 11):
        if abs(ratio * k - 1) < 0.03:
            return Cause(f"one row for {k} steps of the declared rate", "thinned", 1 / k)
        if abs(ratio / k - 1) < 0.03:
            return Cause(f"{k} rows for each step of the declared rate", "denser", float(k))
    return None
