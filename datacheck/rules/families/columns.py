"""Rules about table columns: few samples whose columns as a whole differ from all others'."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    first_few,
    format_number,
    measure,
    pluralize,
    rule,
)
from datacheck.rules.causes import CandidateCause, explain
from datacheck.rules.measures import (
    MOST_COMPONENTS,
    extremes,
    form,
    is_numeric,
    leaf,
    numbers,
    unlisted_fields,
)
from datacheck.schema.model import ANY, UNLISTED, FieldSpec, Schema

Array = np.ndarray[Any, Any]

_ROLES = frozenset({"points", "position", "pose", "action", "joint_angle", "value"})
_LEAST_ROWS = 8  # fewest rows of a measured sample
_ROWS = 64  # rows sampled from it
# Names of numbers that no sensor gives one after another.
_NO_SENSORS = r"normal|rgb|colou?r|face|label|class|mask"
_SENSED = 0.5  # share of rows in which a column changes that follows a sensor
_NUMBERS = 1 << 18  # numbers processed together
# All rows are examined where the peak exceeds so many root mean squares, in so many rows or more.
_PEAK = 5.0
_LONG = 200
# Between _VOID and 2 * _VOID times the third quartile lie at most so many numbers for each outlier.
_VOID = 4.0
_BETWEEN = 0.15
# fewest outlying rows, and their largest share
_FEW_ROWS = 20
_FEW_SHARE = 0.2
_QUATERNION = 4  # columns of a quaternion
_NEAR = 0.02  # tolerance of its length 1
_MOSTLY = 0.8  # share of samples or quaternions
_LARGE = 0.5  # share of the sum of squares
_AWAY = 0.75  # largest standard deviation, as a share of the mean, of numbers away from 0
_CLOUD = 100  # with fewer rows the spread of an axis is chance
# Values up to the first are switches (off, on, back); from the second on float32 has no fractions.
_SWITCH = 1.0
_NO_FRACTIONS = float(1 << 23)
_FACTORS = (
    ("deg", "degrees where the others hold radians", math.degrees(1)),
    ("1/100", "hundredths of the others' unit (cm, %)", 100.0),
    ("1/1000", "thousandths of the others' unit (mm, ms)", 1000.0),
)
# Columns of places in a plane. Fewest samples of them, fewest and most of these in another unit, and
# the least gap above all others.
_PLANE = 2
_FEWEST_PLACES = 30
_FEWEST_SCALED = 3
_FEW_PLACES = 0.1
_GAP_OF_PLACES = 5.0
_GAP = math.log(2)
_FAR = math.log(10)
_FAR_ALONE = math.log(20)
_DECADE = math.log(10)
# in logarithms
_SLACK = 0.1
_SHAPE_SLACK = 0.5
_NARROW = math.log(2)


@measure(
    "columns",
    version=2,
    uses=("shape",),
    applies=lambda s: leaf(s) and (s.role is None or s.role in _ROLES),
)
def columns(column: Column, spec: FieldSpec) -> Columns:
    """Statistics of each of 2 to 64 floating-point columns, from 64 rows of a sample.

    `column_mean`; `column_scatter`, the standard deviation; `column_step`, the root mean square of
    the differences of consecutive rows; `column_whole`: all numbers are integers; `column_unit`:
    this column and the next three make rows of length 1. No row for samples of fewer than 8 rows.
    For a field without a time axis, all rows are searched for a column in which a few are in
    another unit than the others: `odd_rows`, how many; `odd_column`, which column; `odd_first`, the
    first row; `odd_factor`; `odd_low` and `odd_high`, the smallest and the largest of them, without
    their signs; `odd_usual`, a value that three quarters of the rows do not exceed.
    """
    size = prod(column.values.shape[1:])
    lengths = column.lengths
    if (
        not is_numeric(column)
        or column.values.dtype.kind != "f"
        or lengths is None
        or not 1 < size <= MOST_COMPONENTS
    ):
        return {}
    present = lengths >= _LEAST_ROWS
    if not present.any():
        return {}
    table = {
        name: np.zeros((len(column), size), np.float32) for name in ("mean", "scatter", "step")
    }
    table |= {name: np.zeros((len(column), size), bool) for name in ("whole", "unit")}
    values = column.values.reshape(-1, size)
    peak = np.maximum(*map(np.abs, extremes(column)[:2]))
    outliers: dict[int, _UnitOutliers] = {}
    for batch, count in _of_one_count(np.where(present, np.minimum(lengths, _ROWS), 0), size):
        rows = column.starts[batch, None] + np.arange(count) * lengths[batch, None] // count
        # Rows last: reductions along the last axis are fast.
        taken = np.moveaxis(values[rows], 2, 0).astype(np.float64, order="C")
        mean = taken.mean(axis=2, keepdims=True)
        table["mean"][batch] = mean[:, :, 0].T
        table["scatter"][batch] = np.sqrt(((taken - mean) ** 2).mean(axis=2)).T
        table["step"][batch] = np.sqrt((np.diff(taken, axis=2) ** 2).mean(axis=2)).T
        table["whole"][batch] = (taken == np.rint(taken)).all(axis=2).T
        table["unit"][batch] = _unit_rows(taken, peak[:, batch]).T
        usual = np.hypot(table["mean"][batch], table["scatter"][batch]).T
        far = (peak[:, batch] > _PEAK * usual) & (lengths[batch] >= _LONG) & (not _over_time(spec))
        for place, sample in np.argwhere(far).tolist():
            if batch[sample] not in outliers:
                outlier = _unit_outliers(
                    column[int(batch[sample])].reshape(-1, size)[:, place], taken[place, sample]
                )
                outliers |= (
                    {} if outlier is None else {int(batch[sample]): outlier._replace(column=place)}
                )
    stats = {f"column_{name}": Measured(numbers_, present) for name, numbers_ in table.items()}
    return stats | (_outlier_columns(outliers, len(column)) if outliers else {})


@measure("moving", uses=("shape",), applies=columns.applies)
def moving(column: Column, spec: FieldSpec) -> Columns:
    """Share of the rows in which each of 2 to 64 columns changes: `column_moves`.

    From 64 pairs of consecutive rows. No row for samples of fewer than 64 rows.
    """
    del spec
    size = prod(column.values.shape[1:])
    lengths = column.lengths
    if not is_numeric(column) or lengths is None or not 1 < size <= MOST_COMPONENTS:
        return {}
    present = lengths >= _ROWS
    if not present.any():
        return {}
    values = column.values.reshape(-1, size)
    moves = np.zeros((len(column), size), np.float32)
    for batch, count in _of_one_count(np.where(present, _ROWS, 0), size):
        steps = np.arange(count) * (lengths[batch, None] - 1) // count
        rows = column.starts[batch, None] + steps
        moves[batch] = (values[rows] != values[rows + 1]).mean(axis=1)
    return {"column_moves": Measured(moves, present)}


def _of_one_count(counts: Array, size: int) -> Iterator[tuple[Array, int]]:
    """Yield batches of samples with an equal count of sampled rows, and that count."""
    for count in np.unique(counts[counts > 0]).tolist():
        where = np.flatnonzero(counts == count)
        part = max(1, _NUMBERS // (count * size))
        yield from ((where[start : start + part], count) for start in range(0, len(where), part))


def _unit_rows(taken: Array, peak: Array) -> Array:
    """Tell where four columns begin that make rows of length 1, given eight columns or more."""
    mask = np.zeros(peak.shape, bool)
    start_count = len(peak) - _QUATERNION + 1
    if len(peak) < 2 * _QUATERNION:
        return mask
    small = np.lib.stride_tricks.sliding_window_view(peak <= 1 + _NEAR, _QUATERNION, axis=0).all(
        axis=2
    )
    if small.any():
        squares = taken * taken
        lengths = sum(
            (squares[offset : offset + start_count] for offset in range(1, _QUATERNION)),
            squares[:start_count].copy(),
        )
        mask[:start_count] = small & (np.abs(np.sqrt(lengths) - 1) < _NEAR).all(axis=2)
    return mask


def _over_time(spec: FieldSpec) -> bool:
    return (spec.ragged or "").startswith("T")


class _UnitOutliers(NamedTuple):
    rows: float
    column: float
    first: float
    factor: float
    low: float
    high: float
    usual: float


def _outlier_columns(outliers: Mapping[int, _UnitOutliers], count: int) -> dict[str, Measured]:
    values = np.zeros((len(_UnitOutliers._fields), count))
    for sample, outlier in outliers.items():
        values[:, sample] = outlier
    present = np.isin(np.arange(count), list(outliers))
    return {
        f"odd_{name}": Measured(numbers, present)
        for name, numbers in zip(_UnitOutliers._fields, values, strict=True)
    }


def _unit_outliers(values: Array, probed: Array) -> _UnitOutliers | None:
    """Return the few far larger numbers of a column, if another unit explains them.

    Notes:
        Forces, prices and rates also have few far larger rows, but without a gap below them, with
        another distribution, or around 0, where noise and motion look alike at any size. So only
        columns away from 0 are judged.
    """
    usual = float(np.sort(np.abs(probed))[3 * len(probed) // 4])
    size = np.abs(values.astype(np.float64))
    outliers = size > 2 * _VOID * usual
    count = int(outliers.sum())
    between = int((~outliers & (size > _VOID * usual)).sum())
    if (
        not usual
        or not _FEW_ROWS <= count <= _FEW_SHARE * len(values)
        or between > _BETWEEN * count
    ):
        return None
    large = np.sort(values[outliers].astype(np.float64))
    rest = values[~outliers].astype(np.float64)
    # Few distinct values are weights or settings, not measurements.
    if int((np.diff(large) > 0).sum()) < _FEW_ROWS / 2:
        return None
    if rest.std() > _AWAY * abs(float(rest.mean())) or 20 * int(
        (rest * rest.mean() < 0).sum()
    ) > len(rest):
        return None
    fits = [
        factor
        for *_, factor in _FACTORS
        if _same_distribution(large / factor, rest, 2 * _VOID * usual / factor)
    ]
    if len(fits) != 1:
        return None
    ends = float(size[outliers].min()), float(size[outliers].max()), usual
    return _UnitOutliers(count, 0, int(np.argmax(outliers)), fits[0], *ends)


def _same_distribution(numbers: Array, others: Array, least: float) -> bool:
    """Tell whether numbers are distributed as others.

    Others near 0 do not count.
    """
    others = others[np.abs(others) > least]
    return len(others) >= _FEW_ROWS and _difference(numbers, others) <= 1


def _difference(numbers: Array, others: Array) -> float:
    """Return the statistic of a two-sample Kolmogorov-Smirnov test, divided by its limit at 1 %."""
    every = np.concatenate([numbers, others])
    shares = [
        np.searchsorted(np.sort(numbers_), every, side="right") / len(numbers_)
        for numbers_ in (numbers, others)
    ]
    limit = 1.63 * math.sqrt(1 / len(numbers) + 1 / len(others))
    return float(np.abs(shares[0] - shares[1]).max()) / limit


class _Tables(NamedTuple):
    """The measurements of the samples with the usual number of columns.

    Shapes:
        at: int64 (samples), positions within the judged rows; all others (samples, columns)
    """

    at: Array
    low: Array
    high: Array
    mean: Array
    scatter: Array
    step: Array
    whole: Array
    unit: Array

    @property
    def width(self) -> int:
        return int(self.low.shape[1])

    @property
    def peak(self) -> Array:
        return np.maximum(np.abs(self.low), np.abs(self.high))


@rule(
    "DC230",
    "odd-columns",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(columns, moving, numbers, form),
    span="all",
    suppressed_by=(
        "DC109",
        "DC122",
        "DC125",
        "DC201",
        "DC202",
        "DC203",
        "DC221",
        "DC222",
        "DC224",
        "DC226",
    ),
    applies=columns.applies,
    defaults={"least": 8, "share": 0.2},
)
def odd_columns(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A few samples, or some of their rows, hold columns in another unit, exchanged, rounded or dead.

    What:
        In a table with 2 to 64 columns of floating-point numbers, a few samples must not differ
        from all others in one of these ways: columns are 57.3 (degrees), 100 or 1000 times as large
        as in the others, and vary along the rows as they do there; columns hold only whole numbers
        where the others have fractions; a cloud is narrow along another axis than all others, and
        fits them once two axes are exchanged; of four columns or more, two hold what the others
        hold in each other, and the remaining ones agree; two or more quaternions of a row have their largest
        number last where those of the others have it first, or the other way round. Without
        a role, a column that changes in half of the rows of every other sample does not hold one
        number throughout a few samples of 64 rows or more. Within a sample that has at least 200 rows and no
        time axis, a few rows of a column must not be 57.3, 100 or 1000 times as large as the others.
    Why it matters:
        Two columns in degrees, or y and z exchanged, in one file of ten: the value range of the
        whole table does not show it.
    Measure:
        For each column, the smallest and the largest number, and from 64 rows the mean, the
        standard deviation, the step from row to row, and whether the numbers are whole. A column
        counts as larger if a gap of at least a factor of 2 lies between a few samples and all
        others. The gaps of the columns of one set of samples must multiply to at least 10 (20 for
        one column), one factor must bring all of them into the range of the others, and either the
        others lie within a decade, or at least 2 columns and 3 samples are affected. Positions of
        two coordinates (at least 30 samples, 3 to a tenth of them odd): the larger coordinate is at
        least 5 times that of all others, and one factor brings its largest into their range and its
        median within a factor of 2 of theirs. Axes: every
        cloud has at least 100 rows, and its narrowest axis is at most half as wide as the next one.
        Exchanged columns (5 samples or more, no role or ``value``): the difference of the two means has
        the other sign, with hardly a sample between both groups; means and standard deviations of
        one column are distributed as the others' of the other column, and the means of every other
        column as theirs (Kolmogorov-Smirnov test, 1 %).
        Rows: at least 20 rows, and at most a fifth, are more than 8 times as large as the third
        quartile, and hardly any lie between half of that size and that size; divided by the factor
        they are distributed like the other rows (Kolmogorov-Smirnov test, 1 %), which lie on one
        side of 0 and away from it.
    When it is wrong:
        Such samples are intended: ``DC230: off``.
    Options:
        least: fewest samples to judge (8).
        share: odd samples are reported only up to this share of all samples (0.2).
    Bad::

        schema: {fields: {x: {role: value, shape: [T, 3]}}}
        samples:
          - {n: 12, x: {normal: [30, 3]}}
          - {x: {choice: [30, 3], among: [-1.0, 0.0, 2.0]}}

    Good::

        schema: {fields: {x: {role: value, shape: [T, 3]}}}
        samples:
          - {n: 13, x: {normal: [30, 3]}}

    Fix:
        Look at the samples; convert or exchange the columns, or export them again.
    Reference:
        A file of demonstrations in which ten of a hundred held the pole's angle and its rate in
        degrees, and recordings of muscles with one dead channel: a scan without this rule found
        nothing.
    """
    # What was rounded or scaled may have lost a whole column by that.
    odd = np.zeros(len(rows), bool)
    for failure in _odd_samples(rows, case):
        odd |= failure.mask
        yield failure
    yield from _dead(rows, case, odd)


def _odd_samples(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    yield from _scaled_rows(rows)
    tables = _usual_tables(rows, int(case.options["least"]))
    if tables is not None:
        most = int(float(case.options["share"]) * len(tables.at))
        yield from _rounded(rows, tables, most, case.spec)
        are_places = case.spec.role == "position" and tables.width == _PLANE
        if are_places and len(tables.at) >= _FEWEST_PLACES:
            yield from _scaled_places(rows, tables, int(_FEW_PLACES * len(tables.at)))
        else:
            yield from _scaled(rows, tables, most)
        yield from _reordered_quaternions(rows, tables, most)
        if _is_cloud(rows, tables, case.spec):
            yield from _exchanged(rows, tables, most)
        if case.spec.role in {None, "value"}:
            yield from _exchanged_channels(rows, tables, float(case.options["share"]))


def _usual_tables(rows: Rows, least: int) -> _Tables | None:
    """Return the samples with the most frequent number of columns, None where they are too few."""
    if "column_mean" not in rows or "dims" not in rows:
        return None
    measured = rows.measured("column_mean", "min", "dims")
    if int(measured.sum()) < least:
        return None
    row_indices, width = _of_usual_width(rows, measured)
    if len(row_indices) < least:
        return None
    tables = [
        rows[name][row_indices][:, :width]
        for name in (
            "min",
            "max",
            *(f"column_{name}" for name in ("mean", "scatter", "step", "whole", "unit")),
        )
    ]
    finite = np.isfinite(np.concatenate(tables[:5], axis=1)).all(axis=1)
    if int(finite.sum()) < least:
        return None
    low, high, mean, scatter, step = (values[finite].astype(np.float64) for values in tables[:5])
    return _Tables(
        row_indices[finite],
        low,
        high,
        mean,
        scatter,
        step,
        *(values[finite].astype(bool) for values in tables[5:]),
    )


def _of_usual_width(rows: Rows, measured: Array) -> tuple[Array, int]:
    """Return the places of the samples with the most frequent number of columns, and that number."""
    widths = rows["dims"][:, 1:].astype(np.int64).prod(axis=1, where=rows["dims"][:, 1:] > 0)
    measured = measured & (widths > 0) & (widths <= MOST_COMPONENTS)
    width = int(np.bincount(widths[measured], minlength=1).argmax())
    return np.flatnonzero(measured & (widths == width)), width


def _mask(rows: Rows, places: Array) -> Array:
    mask = np.zeros(len(rows), bool)
    mask[places] = True
    return mask


def _named(places: Array | list[int], width: int) -> str:
    """Return the names of columns, in words; "all columns" for all of them."""
    names = [str(place) for place in places]
    if len(names) == width:
        return "all columns"
    head = names[:-1]
    last = names[-1]
    if len(names) > 4:
        return f"{len(names)} of {width} columns ({first_few(names)})"
    return f"columns {', '.join(head)} and {last}" if head else f"column {last}"


# --------------------------------------------------------------------------------------- dead columns


def _dead(rows: Rows, case: RuleContext, odd: Array) -> Iterator[Failure]:
    """Yield the samples in which a column holds one number, where it moves in all others.

    Args:
        odd: bool (rows): samples that are not judged.
    """
    # A flat mesh has a column of one number; an arm that is not commanded rests.
    needed = "column_moves", "min", "dims"
    is_sensor = case.spec.role in {None, "value"} and not re.search(_NO_SENSORS, case.name.lower())
    if not is_sensor or not all(name in rows for name in needed):
        return
    present = rows.measured(*needed) & ~odd
    measured, width = _of_usual_width(rows, present)
    if len(measured) < int(case.options["least"]) or rows["min"].shape[1] < width:
        return
    moves = rows["column_moves"][measured, :width]
    still = rows["min"][measured, :width] == rows["max"][measured, :width]
    # A sample that stands still as a whole is another fault (DC226).
    moving = ~still.all(axis=1)
    if int(moving.sum()) < int(case.options["least"]):
        return
    measured, moves, still = measured[moving], moves[moving], still[moving]
    few = still.sum(axis=0)
    least = np.where(still, 1.0, moves).min(axis=0)
    most = int(float(case.options["share"]) * len(measured))
    dead: dict[tuple[int, ...], list[int]] = {}
    for place in np.flatnonzero((few > 0) & (few <= most) & (least >= _SENSED)).tolist():
        dead.setdefault(tuple(np.flatnonzero(still[:, place]).tolist()), []).append(place)
    for samples, places in dead.items():
        mask = _mask(rows, measured[list(samples)])
        values = np.unique(rows["min"][measured[list(samples)]][:, places])
        value = f", {format_number(float(values[0]))}," if len(values) == 1 else ""
        yield Failure(
            mask,
            f"{count_phrase(mask, 'hold')} one number{value} throughout in "
            f"{_named(places, width)}; in each of the other {len(measured) - len(samples):,} at "
            f"least {100 * float(least[places].min()):.0f} % of the rows differ from the row before.",
            measured={"columns": places},
            kind="dead",
            fix="Look at them: the part may have been at rest, or the sensor gave no signal. Leave "
            "out the samples without a signal.",
        )


# ----------------------------------------------------------------------------------------- few rows


def _scaled_rows(rows: Rows) -> Iterator[Failure]:
    """Yield the samples with a column in which a few rows are in another unit than the others."""
    if "odd_rows" not in rows:
        return
    measured = rows.measured("odd_rows")
    for column, factor in sorted(
        {*zip(rows["odd_column"][measured], rows["odd_factor"][measured], strict=True)}
    ):
        affected = measured & (rows["odd_column"] == column) & (rows["odd_factor"] == factor)
        total_rows = int(rows["dims"][affected, 0].sum())
        low = format_number(float(rows["odd_low"][affected].min()))
        high = format_number(float(rows["odd_high"][affected].max()))
        kind, words = next((kind, words) for kind, words, by in _FACTORS if by == factor)
        words = words if kind == "deg" else "a lost decimal point, or another unit"
        count = int(rows["odd_rows"][affected].sum())
        yield Failure(
            affected,
            f"column {int(column)} of {pluralize(int(affected.sum()))} reaches {low} to {high} in "
            f"{pluralize(count, 'row')} of "
            f"{total_rows:,} (the first: row {int(rows['odd_first'][affected][0]):,}), in about three quarters "
            f"at most "
            f"{format_number(float(rows['odd_usual'][affected].max()))}.",
            measured={
                "column": int(column),
                "rows": count,
                "of": total_rows,
                "factor": float(factor),
            },
            cause=Cause(
                f"probably {words}: divided by {factor:.4g} they are distributed as the others",
                kind,
            ),
            kind="rows",
            fix="Look at these rows; convert them, or leave them out.",
            order=rows["odd_rows"],
        )


# ----------------------------------------------------------------------------------------- integers


def _rounded(rows: Rows, tables: _Tables, most: int, spec: FieldSpec) -> Iterator[Failure]:
    """Yield samples with integers alone where all others have fractions."""
    ends = np.stack([tables.low, tables.high])
    # `whole` covers only the sampled rows; the extremes cover all.
    whole = tables.whole & (ends == np.rint(ends)).all(axis=0)
    fractions = whole.sum(axis=0) <= most
    moving = (tables.scatter > 0) & fractions
    rounded = whole[:, fractions].all(axis=1) & (moving.sum(axis=1) > 1)
    size = np.where(fractions, tables.peak, 0).max(axis=1)
    rounded &= size < _NO_FRACTIONS
    # Few points may be corners of a drawn box, which are whole; a scanned cloud has many.
    if spec.role == "points":
        rounded &= rows["dims"][tables.at, 0] >= _CLOUD
    if not 0 < int(rounded.sum()) <= most or int(fractions.sum()) < 2:
        return
    few = _mask(rows, tables.at[rounded])
    low = float(tables.low[rounded][:, fractions].min())
    high = float(tables.high[rounded][:, fractions].max())
    switches = bool((size[rounded] <= _SWITCH).all())
    yield Failure(
        few,
        f"{count_phrase(few, 'hold')} whole numbers only ({format_number(low)} to "
        f"{format_number(high)}) in "
        f"{_named(np.flatnonzero(fractions), tables.width)}, where the other {int((~rounded).sum()):,} "
        f"have fractions.",
        measured={"columns": np.flatnonzero(fractions).tolist(), "low": low, "high": high},
        cause=None
        if switches
        else Cause("probably rounded, or cast to a type of whole numbers", "rounded"),
        kind="rounded",
        fix="Look at them: commands of a keyboard are whole. Where numbers were rounded, export "
        "them again."
        if switches
        else "Look at these samples; where they have lost their fractions, export them again from "
        "their source.",
    )


# ------------------------------------------------------------------------------------- another unit


class _Gap(NamedTuple):
    column: int
    size: float  # of the gap, in logarithms
    band: float  # from the smallest to the largest of the others, in logarithms


def _gaps(tables: _Tables, most: int) -> dict[tuple[int, ...], list[_Gap]]:
    """Return the columns where few samples exceed all others by a gap, by these samples."""
    gaps: dict[tuple[int, ...], list[_Gap]] = {}
    logs = _logs(tables.peak)
    for column in np.flatnonzero(tables.whole.mean(axis=0) < 0.5).tolist():
        finite_rows = np.flatnonzero(np.isfinite(logs[:, column]))
        if len(finite_rows) < len(logs) - most or most < 1:
            continue
        order = finite_rows[np.argsort(logs[finite_rows, column], kind="stable")]
        size = logs[order, column]
        steps = np.diff(size)[-most:]
        first = len(order) - len(steps) + int(np.argmax(steps))
        # A constant column is a setting.
        if steps.max() >= _GAP and (tables.low < tables.high)[order[first:], column].all():
            few = tuple(sorted(order[first:].tolist()))
            gaps.setdefault(few, []).append(
                _Gap(column, float(steps.max()), float(size[first - 1] - size[0]))
            )
    return gaps


def _logs(values: Array) -> Array:
    return np.log(np.where(values > 0, values, np.nan))


def _scaled(rows: Rows, tables: _Tables, most: int) -> Iterator[Failure]:
    """Yield the samples with columns in another unit than those of the others."""
    groups = _gaps(tables, most)
    for few in sorted(groups, key=lambda few: -sum(gap.size for gap in groups[few])):
        gaps = groups[few]
        scaled = np.isin(np.arange(len(tables.at)), few)
        places = [gap.column for gap in gaps]
        narrow = all(gap.band <= _DECADE for gap in gaps)
        several = len(gaps) > 1 and len(few) > 2
        far = sum(gap.size for gap in gaps) >= (_FAR if len(gaps) > 1 else _FAR_ALONE)
        if not far or not (narrow or several) or not _move_alike(tables, places, scaled):
            continue
        inside, cause = _unit(rows, tables, places, scaled)
        if cause is not None or (inside and narrow):
            yield _in_other_unit(rows, tables, places, scaled, cause)
            return


def _scaled_places(rows: Rows, tables: _Tables, most: int) -> Iterator[Failure]:
    """Yield few tracks in a plane that a factor of units brings to where all others are.

    Notes:
        Scenes differ in size and place, so the numbers of one scene may lie far from those of most
        others, and a track may come near to an axis. So both coordinates are judged together, and
        only a gap above all others counts that a factor of units explains.
    """
    peak = tables.peak.max(axis=1)
    order = np.argsort(-peak, kind="stable")
    size = peak[order]
    if most < _FEWEST_SCALED or not size[most] > 0:
        return
    count = int(np.argmax(size[:most] / size[1 : most + 1])) + 1
    far, rest = size[:count], size[count:]
    if count < _FEWEST_SCALED or far[-1] < _GAP_OF_PLACES * rest[0]:
        return
    ratio = float(np.median(far) / np.median(rest))
    fitting = [
        (kind, words, factor)
        for kind, words, factor in _FACTORS[1:]  # no angles
        if far[0] <= math.exp(_SLACK) * factor * rest[0] and abs(math.log(ratio / factor)) < _GAP
    ]
    if len(fitting) != 1:
        return
    ((kind, words, factor),) = fitting
    few = _mask(rows, tables.at[order[:count]])
    yield Failure(
        few,
        f"{count_phrase(few, 'reach')} {format_number(float(far[-1]))} to "
        f"{format_number(float(far[0]))}, the other {len(rest):,} at most "
        f"{format_number(float(rest[0]))}.",
        measured={"ratio": ratio},
        cause=Cause(f"probably {words}", kind, factor),
        kind="unit of places",
        fix="Look at these samples; convert the coordinates if they are in another unit.",
    )


def _move_alike(tables: _Tables, places: list[int], scaled: Array) -> bool:
    """Tell whether columns of few samples vary along their rows as in the others, at any scale."""
    still = tables.low == tables.high
    for part, whole in ((tables.step, tables.scatter), (tables.scatter, tables.peak)):
        logs = np.where(still, np.nan, _logs(part) - _logs(whole))[:, places]
        logs = logs[:, np.isfinite(logs).any(axis=0)]
        if not logs.shape[1]:
            continue
        low = np.fmin.reduce(logs[~scaled])
        high = np.fmax.reduce(logs[~scaled])
        inside = (logs[scaled] >= low - _SHAPE_SLACK) & (logs[scaled] <= high + _SHAPE_SLACK)
        if not (inside | np.isnan(logs[scaled])).all():
            return False
    return True


def _unit(
    rows: Rows, tables: _Tables, places: list[int], scaled: Array
) -> tuple[bool, Cause | None]:
    """Return whether a factor brings few samples' columns into the others' range, and the cause."""
    logs = _logs(tables.peak[:, places])
    low = np.fmin.reduce(logs[~scaled]) - _SLACK
    high = np.fmax.reduce(logs[~scaled]) + _SLACK
    groups = rows.where(_mask(rows, tables.at)).groups
    names = [f"column {place}" for place in places]
    changes = []
    for kind, words, factor in _FACTORS:
        mended = logs - math.log(factor)
        allowed = ((mended >= low) & (mended <= high)).all(axis=1)
        looks = dict(zip(names, mended.T, strict=True))
        changes.append(
            CandidateCause(
                kind, f"probably {words}", 1 / factor, looks, allowed, common=kind == "deg"
            )
        )
    inside = any(bool(change.allowed[scaled].all()) for change in changes)
    return inside, explain(
        changes, dict(zip(names, logs.T, strict=True)), {}, scaled, ~scaled, groups, share=1.0
    )


def _in_other_unit(
    rows: Rows, tables: _Tables, places: list[int], scaled: Array, cause: Cause | None
) -> Failure:
    few = _mask(rows, tables.at[scaled])
    peak = tables.peak[:, places]
    ratio = np.median(peak[scaled], axis=0) / np.median(peak[~scaled], axis=0)
    size = np.zeros(len(rows))
    size[tables.at] = peak.max(axis=1)
    first = int(np.argmax(ratio))
    times = format_number(float(ratio.min())) + (
        f" to {format_number(float(ratio.max()))}" if len(places) > 1 else ""
    )
    return Failure(
        few,
        f"{_named(places, tables.width)} of {pluralize(int(scaled.sum()))} "
        f"{'reach' if len(places) > 1 else 'reaches'} "
        f"{times} times what {'they do' if len(places) > 1 else 'it does'} in the other "
        f"{int((~scaled).sum()):,} (column "
        f"{places[first]}: {_between(peak[scaled, first])}, in the others "
        f"{_between(peak[~scaled, first])}).",
        measured={"columns": places, "ratio": [float(value) for value in ratio]},
        cause=cause,
        kind="unit",
        fix="Look at these samples; convert the columns if they are in another unit.",
        order=size,
    )


def _between(values: Array) -> str:
    low = format_number(float(values.min()))
    high = format_number(float(values.max()))
    return low if low == high else f"{low} to {high}"


# --------------------------------------------------------------------------------------------- axes


def _is_cloud(rows: Rows, tables: _Tables, spec: FieldSpec) -> bool:
    """Tell whether the first three columns may be the axes of clouds.

    The rows of clouds have no order in time.
    """
    long = bool((rows["dims"][tables.at, 0] >= _CLOUD).all())
    return (
        long
        and tables.width > 2
        and spec.role in {None, "points", "value"}
        and not _over_time(spec)
    )


def _exchanged(rows: Rows, tables: _Tables, most: int) -> Iterator[Failure]:
    """Yield clouds whose narrow axis differs and that fit the others with two axes exchanged."""
    logs = _logs(tables.scatter[:, :3])
    mean = tables.mean[:, :3]
    if not np.isfinite(logs).all():
        return
    narrow = logs.argmin(axis=1)
    ordered = np.sort(logs, axis=1)
    usual = int(np.bincount(narrow, minlength=3).argmax())
    exchanged = narrow != usual
    if not 0 < int(exchanged.sum()) <= most or (ordered[:, 1] - ordered[:, 0]).min() < _NARROW:
        return
    room = np.stack(
        [np.full(3, _SHAPE_SLACK), 0.5 * np.median(tables.scatter[~exchanged, :3], axis=0)]
    )
    looks = np.stack([logs, mean])
    low = looks[:, ~exchanged].min(axis=1) - room
    high = looks[:, ~exchanged].max(axis=1) + room
    for other in sorted(set(narrow[exchanged].tolist())):
        mine = exchanged & (narrow == other)
        order = [0, 1, 2]
        order[usual], order[other] = other, usual
        mended = looks[:, mine][:, :, order]
        if ((mended >= low[:, None]) & (mended <= high[:, None])).all():
            yield _axes(rows, tables, mine, usual, other)


def _axes(rows: Rows, tables: _Tables, exchanged: Array, usual: int, other: int) -> Failure:
    few = _mask(rows, tables.at[exchanged])
    rest = tables.scatter[~exchanged]
    low_axis, high_axis = sorted((usual, other))
    return Failure(
        few,
        f"the narrow axis of {pluralize(int(exchanged.sum()))} is column {other} (standard deviation "
        f"{_between(tables.scatter[exchanged, other])}, of column {usual} "
        f"{_between(tables.scatter[exchanged, usual])}), of the "
        f"other {len(rest):,} it is column {usual} ({_between(rest[:, usual])}, of column {other} "
        f"{_between(rest[:, other])}).",
        measured={"columns": [low_axis, high_axis], "samples": int(exchanged.sum())},
        cause=Cause(
            f"probably columns {low_axis} and {high_axis} exchanged, or the clouds turned by 90 degrees: so "
            f"they lie as in the "
            "others",
            "exchanged",
        ),
        kind="exchanged",
        fix="Look at them; exchange the two columns if another axis is up in these samples.",
    )


# ----------------------------------------------------------------------------------------- channels

_CHANNELS = 4  # fewest columns: what the others show decides
_COMPARED = 2048  # samples that are compared at first
_FEWEST_EXCHANGED = 5
# Share of the median difference beyond which, on both sides, exchanged and other samples lie.
_CROSSED = 0.125
_BETWEEN_BOTH = 0.1  # most samples between them, for each exchanged one
_STILL = 1e-6  # deviation of a column, as a share of its mean, that rounding makes
_TESTS = 1.3  # limit of each of several tests together


def _exchanged_channels(rows: Rows, tables: _Tables, share: float) -> Iterator[Failure]:
    """Yield few samples in which two columns are distributed as each other, and all others as usual.

    Notes:
        A class, a subject or a place of its own would mostly change other columns, too. What is
        mirrored by nature cannot be told from an exchange, so no cause is named.
    """
    if tables.width < _CHANNELS:
        return
    compared = np.unique(np.linspace(0, len(tables.at) - 1, _COMPARED).astype(int))
    mean, scatter = tables.mean[compared], tables.scatter[compared]
    # A size of pictures or a lens is constant within a sample.
    varying = np.flatnonzero(np.median(scatter > _STILL * np.abs(mean), axis=0)).tolist()
    for a, b in combinations(varying, 2):
        exchanged, others = _sides(mean[:, a] - mean[:, b])
        count = int(exchanged.sum())
        between = len(mean) - count - int(others.sum())
        if (
            not _FEWEST_EXCHANGED <= count <= share * len(mean)
            or between > _BETWEEN_BOTH * count
            or not _are_exchanged(mean, scatter, (a, b), exchanged, others)
        ):
            continue
        exchanged, others = _sides(tables.mean[:, a] - tables.mean[:, b])
        yield _channels(rows, tables, (a, b), exchanged, others)


def _sides(difference: Array) -> tuple[Array, Array]:
    """Return the samples in which a difference has clearly the other sign, and those with the usual one."""
    usual = float(np.median(difference))
    sized = difference * np.sign(usual)
    least = _CROSSED * abs(usual)
    return sized < -least, sized > least


def _are_exchanged(
    mean: Array, scatter: Array, pair: tuple[int, int], exchanged: Array, others: Array
) -> bool:
    a, b = pair
    crossed = [
        _difference(looks[exchanged, one], looks[others, other])
        for looks in (mean, scatter)
        for one, other in ((a, b), (b, a))
    ]
    mirrored = _difference((mean[:, b] - mean[:, a])[exchanged], (mean[:, a] - mean[:, b])[others])
    if max(*crossed, mirrored) > _TESTS:
        return False
    return all(
        _difference(mean[exchanged, column], mean[others, column]) <= _TESTS
        for column in range(mean.shape[1])
        if column not in pair
    )


def _channels(
    rows: Rows, tables: _Tables, pair: tuple[int, int], exchanged: Array, others: Array
) -> Failure:
    few = _mask(rows, tables.at[exchanged])
    a, b = pair
    own, usual = (
        np.median(tables.mean[side][:, pair], axis=0).tolist() for side in (exchanged, others)
    )
    return Failure(
        few,
        f"{count_phrase(few, 'hold')} in columns {a} and {b} what the other {int(others.sum()):,} hold "
        f"in {b} and {a} (medians of the means {format_number(own[0])} and {format_number(own[1])}, in "
        f"the others {format_number(usual[0])} and {format_number(usual[1])}); the other columns agree.",
        measured={"columns": [a, b], "samples": int(exchanged.sum())},
        kind="channels",
        fix="Look at them: the columns may be exchanged, but portrait pictures among landscapes and "
        "left-handed people among others look alike.",
    )


# -------------------------------------------------------------------------------------- quaternions


def _reordered_quaternions(rows: Rows, tables: _Tables, most: int) -> Iterator[Failure]:
    """Yield samples whose quaternions, two or more a row, have w at the end opposite to others'."""
    squares = tables.mean**2 + tables.scatter**2
    starts = list(_quaternions(tables))
    for w_first in (True, False):
        w_offset, opposite_offset = (0, _QUATERNION - 1) if w_first else (_QUATERNION - 1, 0)
        mine = [
            start for start in starts if (squares[:, start + w_offset] > _LARGE).mean() >= _MOSTLY
        ]
        if len(mine) < 2:
            continue
        unit = tables.unit[:, mine]
        share = ((squares[:, [start + opposite_offset for start in mine]] > _LARGE) & unit).sum(
            axis=1
        ) / np.maximum(unit.sum(axis=1), 1)
        reordered = (share >= _MOSTLY) & (unit.sum(axis=1) > 1)
        if 0 < int(reordered.sum()) <= most and float(share[~reordered].max()) < 1 - _MOSTLY:
            yield _other_order(rows, tables, reordered, mine, first=w_first)


def _quaternions(tables: _Tables) -> Iterator[int]:
    """Yield the first column of each quaternion that most samples have."""
    next_free = 0
    for start in np.flatnonzero(tables.unit.mean(axis=0) >= _LARGE).tolist():
        if start >= next_free:
            next_free = start + _QUATERNION
            yield start


def _other_order(
    rows: Rows, tables: _Tables, reordered: Array, starts: list[int], *, first: bool
) -> Failure:
    few = _mask(rows, tables.at[reordered])
    ends = ("first", "last") if first else ("last", "first")
    orders = ("x y z w", "w x y z") if first else ("w x y z", "x y z w")
    return Failure(
        few,
        f"in {pluralize(int(reordered.sum()))} the largest number of the quaternions (columns "
        f"{starts[0]}, "
        f"{first_few(map(str, starts[1:]))} and the three behind each) is the {ends[1]} of four, "
        f"in the other "
        f"{int((~reordered).sum()):,} the {ends[0]}.",
        measured={"columns": starts, "samples": int(reordered.sum())},
        cause=Cause(f"probably {orders[0]} where the others hold {orders[1]}", "order"),
        kind="order",
        fix="Look at them; exchange the order of the columns as in the other samples.",
    )


_ALIKE = 10.0  # the other samples lie within this factor
# Of quaternions: their largest length, and the least distance of another order from all others.
_UNIT = 1.01
_APART = 0.5
# Fewest of a sample that stands still: a single number may be constant without a fault.
_STEPS = 8
_COLUMNS = 2


def _no_unlisted(schema: Schema) -> str:
    return "" if schema.reads_unlisted else f"the schema speaks of all fields ({ANY!r})"


@rule(
    UNLISTED,
    "odd-unlisted-field",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(numbers, form),
    suppressed_by=("DC109",),
    unless=_no_unlisted,
    defaults={"least": 8, "share": 0.2, "factor": 50.0},
)
def odd_unlisted_field(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A few samples differ from all others in a field that the schema does not list.

    What:
        Each sample has the same shape (after the first axis) and kind of numbers as the others. No
        sample of floating-point numbers is 50 times as large as the others while these lie within a
        decade (a sample of zeros lies in none). No sample stands still throughout while all others
        move. No unit quaternion has its columns in another order (w first, w last). DC221 reports
        NaN and infinity.
    Why it matters:
        A loader may read more fields than the schema lists. A schema that lists five of twenty
        fields leaves the others unchecked.
    Measure:
        Number of axes and the sizes after the first axis, the largest absolute number, and the
        smallest and largest number of each dimension. Fields that hold numbers but no pixels are
        read as long as together they have no more bytes than the sample's listed fields, or 1 MB if
        that is more; at most 64 fields of a sample.
    When it is wrong:
        No loader reads the field: ``DC130: off``, and datacheck does not read it either.
    Options:
        least: fewest samples with the field (8).
        share: odd samples are reported only up to this share of them (0.2).
        factor: how many times as large (50).
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 9, x: {normal: [4]}, y: {normal: [30, 3]}}
          - {x: {normal: [4]}, y: {normal: [30, 3], scale: 1000}}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 10, x: {normal: [4]}, y: {normal: [30, 3]}}

    Fix:
        List the field with its role and unit, so that more rules judge it; or repair the samples.
    Reference:
        An HDF5 file of Isaac Lab scanned with the robomimic schema: ``eef_pos`` of one demo was in
        millimetres, and nothing was found.
    """
    for name in unlisted_fields(rows.table, case.schema):
        measured = rows.measured(f"{name}:max", f"{name}:ndim")
        if int(measured.sum()) < int(case.options["least"]):
            continue
        forms = _forms(rows, name)
        usual, count = Counter(
            form for form, present in zip(forms, measured, strict=True) if present
        ).most_common(1)[0]
        other = measured & np.array([form != usual for form in forms])
        if _is_minority(other, measured, case):
            seen = first_few(
                sorted(
                    {
                        _form_text(form)
                        for form, differs in zip(forms, other, strict=True)
                        if differs
                    }
                )
            )
            yield _odd_failure(
                name,
                other,
                f"{count_phrase(other, 'hold')} {seen} where {count:,} hold {_form_text(usual)}",
                "form",
            )
        conforming = measured & ~other
        yield from _large(rows, case, name, conforming, usual)
        yield from _still(rows, case, name, conforming, usual)
        yield from _reordered_unlisted(rows, case, name, conforming, usual)


def _is_minority(minority: Array, population: Array, case: RuleContext) -> bool:
    return 0 < int(minority.sum()) <= float(case.options["share"]) * int(population.sum())


def _odd_failure(
    name: str, mask: Array, message: str, kind: str, order: Array | None = None
) -> Failure:
    return Failure(
        mask,
        f"{message}.",
        kind=kind,
        order=order,
        extra=(name,),
        fix="Look at them; list the field in the schema with its role and unit, and more of it is "
        "judged.",
    )


def _forms(rows: Rows, name: str) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return the kind of numbers, the number of axes and the sizes after the first axis, by row."""
    ndim = rows[f"{name}:ndim"].astype(np.int64).tolist()
    kinds = [_kind(str(dtype)) for dtype in rows[f"{name}:dtype"]]
    dims = (
        rows[f"{name}:dims"].astype(np.int64)
        if f"{name}:dims" in rows
        else np.zeros((len(rows), 0), np.int64)
    )
    sizes = [tuple(row[1:axes]) for row, axes in zip(dims.tolist(), ndim, strict=True)]
    return list(zip(kinds, ndim, sizes, strict=True))


def _kind(dtype: str) -> str:
    return "floats" if dtype.startswith("float") else "whole numbers"


def _form_text(form: tuple[str, int, tuple[int, ...]]) -> str:
    kind, ndim, sizes = form
    axes = ", ".join(["N" if ndim else "", *map(str, sizes)]).strip(", ")
    return f"{kind} [{axes}]"


def _large(
    rows: Rows,
    case: RuleContext,
    name: str,
    measured: Array,
    usual: tuple[str, int, tuple[int, ...]],
) -> Iterator[Failure]:
    # Integers may be names and counters: among 0 and 1, a 150 is no larger measurement.
    if usual[0] != "floats":
        return
    size = np.maximum(np.abs(rows[f"{name}:min"]), np.abs(rows[f"{name}:max"])).max(axis=1)
    good = measured & np.isfinite(size)
    if not good.any() or not (typical := float(np.median(size[good]))):
        return
    outliers = good & (size >= float(case.options["factor"]) * typical)
    rest = size[good & ~outliers]
    if (
        rest.all()
        and _is_minority(outliers, measured, case)
        and float(rest.max()) <= _ALIKE * float(rest.min())
    ):
        message = (
            f"{count_phrase(outliers, 'hold')} numbers up to "
            f"{format_number(float(size[outliers].max()))}; the others reach "
        )
        yield _odd_failure(
            name,
            outliers,
            f"{message}{format_number(float(rest.min()))} to {format_number(float(rest.max()))}",
            "large",
            size,
        )


def _still(
    rows: Rows,
    case: RuleContext,
    name: str,
    measured: Array,
    usual: tuple[str, int, tuple[int, ...]],
) -> Iterator[Failure]:
    kind, ndim, sizes = usual
    if kind != "floats" or ndim != 2 or sizes[0] < _COLUMNS:
        return
    long = measured & (rows[f"{name}:dims"][:, 0] >= _STEPS)
    still = long & (rows[f"{name}:min"] == rows[f"{name}:max"]).all(axis=1)
    if int(long.sum()) >= int(case.options["least"]) and _is_minority(still, long, case):
        message = (
            f"{count_phrase(still, 'stand')} still in all dimensions; "
            f"{int((long & ~still).sum()):,} others move"
        )
        yield _odd_failure(name, still, message, "still")


def _reordered_unlisted(
    rows: Rows,
    case: RuleContext,
    name: str,
    measured: Array,
    usual: tuple[str, int, tuple[int, ...]],
) -> Iterator[Failure]:
    """Yield samples whose four columns are the others' rotated by one: w first against w last."""
    if usual[0] != "floats" or usual[2] != (4,):
        return
    # Cut to four columns: the table pads rows to the widest sample.
    low = rows[f"{name}:min"][:, :4]
    high = rows[f"{name}:max"][:, :4]
    measured = measured & (np.abs(low).max(axis=1) <= _UNIT) & (np.abs(high).max(axis=1) <= _UNIT)
    measured &= (np.maximum(low**2, high**2).sum(axis=1) >= 1 / _UNIT) & np.isfinite(
        low + high
    ).all(axis=1)
    if int(measured.sum()) < int(case.options["least"]):
        return
    ends = np.stack([low, high])
    middle = np.median(ends[:, measured], axis=1)[:, None]
    away = np.abs(ends - middle).max(axis=(0, 2))
    turned = np.minimum(
        *(np.abs(np.roll(ends, by, axis=2) - middle).max(axis=(0, 2)) for by in (1, -1))
    )
    reordered = measured & (away > _APART) & (turned < away / 2)
    rest = measured & ~reordered
    if _is_minority(reordered, measured, case) and float(away[rest].max()) < _APART:
        message = (
            f"{count_phrase(reordered, 'have')} unit quaternions that fit the others with their "
            f"columns turned by one"
        )
        yield _odd_failure(name, reordered, f"{message} (w first, w last)", "order", away)
