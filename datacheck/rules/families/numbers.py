"""Rules about numbers: NaN and infinity, sentinel values, constant dimensions, ranges."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Column
from datacheck.model.table import LEFT_OUT, WIDE_NUMBER, WIDEST, Measured, Rows, Texts
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
from datacheck.rules.measures import (
    MOST_COMPONENTS,
    extremes,
    finite,
    form,
    is_numeric,
    leaf,
    numbers,
    one_of,
    reduced,
    too_wide,
)
from datacheck.schema.model import ANY, FieldSpec

Array = np.ndarray[Any, Any]

# Roles in which a row of equal values is no valid data; a point may have equal coordinates.
_MARKED = frozenset(
    {"joints", "position", "pose", "quaternion", "rotvec", "joint_angle", "transform"}
)
_NEVER_ZERO = frozenset({"points", "quaternion", "transform"})  # normals are judged by DC311
_STEERED = frozenset({"action", "joint_angle", "position", "value"})


@rule(
    "DC221",
    "non-finite",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(finite,),
    suppressed_by=("DC109", "DC122"),
    applies=lambda spec: not spec.is_text and spec.finite,
)
def non_finite(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A field holds NaN or infinity.

    What:
        Every number of every declared field is finite. Fields that the schema does not list give a
        warning.
    Why it matters:
        One NaN in a batch makes the loss NaN; one NaN row makes farthest-point sampling select the
        first rows of a file.
    Measure:
        Number of non-finite values, and the first row that contains one.
    When it is wrong:
        NaN marks missing points in organised clouds: declare ``finite: false``.
    Options:
        none
    Bad::

        schema: {fields: {q: {role: value, shape: [T, 3]}}}
        samples:
          - {n: 2, q: {normal: [9, 3]}}
          - {q: [[0.5, 1, 2], [1, .nan, 3]]}

    Good::

        schema: {fields: {q: {role: value, shape: [T, 3]}}}
        samples:
          - {n: 3, q: {normal: [9, 3]}}

    Fix:
        Repair the source, and leave the samples out until then.
    Reference:
        ScanNet issue 9: poses of minus infinity; RDT issue 93: NaN at the first step.
    """
    if case.schema.part_of(case.name) is not None:
        return  # reported for the whole field
    bad = rows.measured("nonfinite")
    if bad.any():
        bad &= rows["nonfinite"] > 0
    if bad.any():
        values = int(rows["nonfinite"][bad].sum())
        where = ""
        if case.name == ANY and "worst" in rows:
            where = f" in {first_few(sorted(set(rows['worst'][bad])))}"
        elif case.name != ANY:
            where = f"; the first one in row {int(rows['bad_row'][bad][0]):,}"
        yield Failure(
            bad,
            f"{count_phrase(bad, 'hold')} NaN or infinity ({pluralize(values, 'value')}){where}.",
            measured={"values": values},
            severity=Severity.WARNING if case.name == ANY else None,
            fix="Repair the source, or declare finite: false where NaN means missing.",
            order=rows["nonfinite"],
        )


def _constant_rows(column: Column) -> tuple[Array, Array, Array]:
    """Return the count of rows of each sample, and the rows of equal numbers: sample and value.

    Notes:
        A sample that is itself a vector is one row.
    """
    values, lengths = column.values, column.lengths
    if values.ndim == 1:
        if lengths is None:
            return np.zeros(len(column), np.int64), np.zeros(0, np.int64), np.zeros(0)
        low = reduced(np.minimum, values, lengths)
        high = reduced(np.maximum, values, lengths)
        constant = np.flatnonzero((lengths > 1) & (low == high))
        return (lengths > 1).astype(np.int64), constant, low[constant].astype(np.float64)
    values = values.reshape(len(values), prod(values.shape[1:]))
    count = np.ones(len(column), np.int64) if lengths is None else lengths
    if values.shape[1] < 2:
        return np.zeros_like(count), np.zeros(0, np.int64), np.zeros(0)
    if values.shape[1] <= MOST_COMPONENTS:
        first, *others = column.planes
        hits = np.flatnonzero(first == others[0])  # few rows remain for the others
        for other in others[1:]:
            hits = hits[first.take(hits) == other.take(hits)]
    else:
        hits = np.flatnonzero(values[:, 0] == values[:, 1])
        hits = hits[(values[hits] == values[hits, :1]).all(axis=1)]
    return (
        count,
        np.searchsorted(np.cumsum(count), hits, side="right"),
        values[hits, 0].astype(np.float64),
    )


@measure(
    "marks",
    uses=("sentinels",),
    applies=lambda s: not s.is_text and s.role in _MARKED | _NEVER_ZERO,
)
def marks(column: Column, spec: FieldSpec) -> Columns:
    """Rows that look like a mark for missing values, in fields with 2 or more numbers per row.

    `rows`; `zeros`: rows of zeros; `alike`: rows whose numbers all equal one value other than 0,
    the most frequent one (ties: the lowest); `alike_value`; `declared`: rows that are one of the
    declared sentinels.
    """
    if not is_numeric(column):
        return {}
    size = len(column)
    count, sample, value = _constant_rows(column)
    columns = {
        "rows": count,
        "zeros": np.bincount(sample[value == 0], minlength=size),
        "declared": np.bincount(sample[one_of(value, spec.sentinels)], minlength=size),
        "alike": np.zeros(size, np.int64),
        "alike_value": np.zeros(size),
    }
    other = value != 0
    if other.any():
        pairs, often = np.unique(
            np.stack([sample[other], value[other]]), axis=1, return_counts=True
        )
        # The most frequent value last, the lowest of ties: the last one written stays.
        order = np.lexsort((-pairs[1], often))
        which = pairs[0, order].astype(np.int64)
        columns["alike"][which], columns["alike_value"][which] = often[order], pairs[1, order]
    return {name: Measured(values, count > 0) for name, values in columns.items()}


@rule(
    "DC222",
    "sentinel-values",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(marks,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=marks.applies,
    defaults={
        "values": (-1.0, -100.0, -999.0, -1000.0, -9999.0, 999.0, 1000.0, 9999.0, 65535.0, 1e10),
        "zeros": 0.01,
        "few": 0.01,
    },
)
def sentinel_values(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Rows hold a sentinel for missing data instead of data.

    What:
        Rows of a position, pose, joint, rotation or quaternion do not consist of one sentinel (-1,
        999, ...); rows are not all zeros if zero cannot be data (points, quaternions, transforms);
        no sample holds only declared sentinels.
    Why it matters:
        The model learns the sentinel as a position; a single row of -1 -1 -1 shifts every mean.
    Measure:
        Rows that repeat a single value, and that value.
    When it is wrong:
        The value is data: list only the other sentinels in ``values``. The value is a known
        sentinel: declare ``sentinels: [-1]``.
    Options:
        values: sentinels to look for (-1, -100, -999, -1000, -9999, 999, 1000, 9999, 65535, 1e10).
        zeros: largest share of zero rows (0.01).
        few: share of rows with a sentinel other than zero below which the finding is a warning
        (0.01).
    Bad::

        schema: {fields: {pos: {role: position, shape: [T, 3]}}}
        samples:
          - {n: 3, pos: {normal: [40, 3]}}
          - {pos: {full: [20, 3], value: -1}}

    Good::

        schema: {fields: {pos: {role: position, shape: [T, 3]}}}
        samples:
          - {n: 4, pos: {normal: [40, 3]}}

    Fix:
        Use the mask that says which rows are valid, and declare the sentinel.
    Reference:
        DexYCB: joint_3d is -1 throughout; 78,000 of more than 90,000 test samples are usable.
    """
    measured = rows.measured("rows")
    if not measured.any():
        return
    parent = f"{(case.schema.part_of(case.name) or ('',))[0]}:alike"
    # A fault of the whole field is not reported again for its parts.
    measured &= (rows[parent] == 0) if parent in rows else True
    total = np.maximum(rows["rows"], 1)
    empty = measured & (rows["declared"] >= rows["rows"])
    if empty.any():
        yield _marked(rows, empty, "declared", "nothing but declared sentinels")
    undeclared = np.isin(rows["alike_value"], case.options["values"])
    undeclared &= ~np.isin(rows["alike_value"], case.spec.sentinels)
    uniform = measured & undeclared & (rows["alike"] > 0) & (case.spec.role in _MARKED)
    few = uniform & (rows["alike"] / total < float(case.options["few"]))
    for mask, severity in ((uniform & ~few, None), (few, Severity.WARNING)):
        if mask.any():
            values = [format_number(v) for v in sorted(set(rows["alike_value"][mask]))]
            yield _marked(rows, mask, "alike", f"rows of {first_few(values)} throughout", severity)
    zeros = (
        measured
        & (rows["zeros"] > float(case.options["zeros"]) * total)
        & (case.spec.role in _NEVER_ZERO)
    )
    zeros &= ~empty & (0.0 not in case.spec.sentinels)
    if case.spec.role == "points":
        zeros &= rows["zeros"] > 1  # one point of a small cloud may be the origin
    whole = zeros & (rows["zeros"] >= rows["rows"])
    for mask, severity in ((whole, None), (zeros & ~whole, Severity.WARNING)):
        if mask.any():
            yield _marked(rows, mask, "zeros", "rows of zeros", severity)


def _marked(
    rows: Rows, mask: Array, stat: str, words: str, severity: Severity | None = None
) -> Failure:
    share = rows[stat][mask] / np.maximum(rows["rows"][mask], 1)
    return Failure(
        mask,
        f"{count_phrase(mask, 'hold')} {words} ({100 * float(np.median(share)):.3g} % of the rows, "
        f"median).",
        measured={"share": float(np.median(share)), "rows": int(rows[stat][mask].sum())},
        cause=Cause('a mark for "missing" that was stored as data', "sentinel"),
        severity=severity,
        fix="Use the validity mask and declare the mark: sentinels: [...].",
        kind=stat if severity is None else f"{stat}-few",
        order=rows[stat] / np.maximum(rows["rows"], 1),
    )


_MOST_BYTES = 512 << 20  # of the extremes of one block's samples
_MOST_SHARE = 0.95  # least share of samples with extremes of each dimension, for a judgement
# Fewest rows of a sample whose extremes are kept per dimension: these then take at most an eighth
# of the space of its float32 numbers.
_LONG = 16
_TOO_WIDE = (
    f"more than {MOST_COMPONENTS} dimensions are judged one by one up to {WIDEST:,}, in samples of "
    f"{_LONG} rows and "
    "more, and as far as memory allows"
)


@measure("dimensions", applies=lambda s: leaf(s) and s.role in _STEERED)
def dimensions(column: Column, spec: FieldSpec) -> Columns:
    """Smallest and largest value of each of 65 to 4,096 dimensions: `lows`, `highs`.

    Samples of fewer than 16 rows have no value.
    """
    del spec
    size = prod(column.values.shape[1:])
    lengths = column.lengths
    if not is_numeric(column) or lengths is None or not MOST_COMPONENTS < size <= WIDEST:
        return {}
    present = lengths >= _LONG
    if not present.any():
        return {}
    taken = 2 * size * WIDE_NUMBER
    # A scan keeps less than that, and samples without rows take as much space as others.
    if taken * len(column) > _MOST_BYTES:
        return {LEFT_OUT: Measured(np.full(len(column), taken, np.int32), present)}
    kind = column.values.dtype
    planes = column.planes.astype(
        {"b1": np.uint8, "f2": np.float32}.get(kind.str[1:], kind), copy=False
    )
    ends = {"lows": np.minimum, "highs": np.maximum}
    return {
        name: Measured(reduced(ufunc, planes, lengths).T, present) for name, ufunc in ends.items()
    }


@rule(
    "DC223",
    "constant-dimension",
    Severity.WARNING,
    Level.DATASET,
    measures=(numbers, dimensions, form),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=lambda s: s.role in _STEERED and s.columns is None and not s.pixels_of,
    defaults={
        "spread": 1e-8,
        "samples": 2,
        "splits": ("", "train", "training"),
        "few": 0.25,
        "by": "task_index",
    },
)
def constant_dimension(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """A dimension is constant over all samples, or over all samples of one group, task or file.

    What:
        Every dimension of actions, joint angles, positions and values varies over the training
        split. A dimension that moves in the samples of the other groups, tasks or files moves in
        each of them.
    Why it matters:
        A normaliser divides by the spread: the dimension becomes NaN, or reaches 1e8. If only one
        task was recorded without an axis, the spread of the whole dataset hides it.
    Measure:
        Smallest and largest value per dimension, over all samples of the split. For fields with 65
        to 4,096 dimensions, these are kept for samples with at least 16 rows, as far as memory
        allows. Among groups (else tasks, else files) with at least 3 samples: dimensions that are
        constant over all samples of a group and move within nine tenths of the samples of the
        others, of which there are at least 3. A dimension with only two values is a switch, which a
        task may leave unchanged.
    When it is wrong:
        The robot has a locked joint, or a task needs no such motion: switch the rule off, or drop
        the dimension.
    Options:
        spread: largest range that counts as constant, relative to the value if that is above 1
        (1e-8).
        samples: fewest samples to judge (2).
        splits: splits to examine (no split, train, training).
        few: largest share of the groups in which a dimension may be constant for it to be reported
        there (0.25).
        by: field whose value identifies the task (task_index).
    Bad::

        schema: {fields: {q: {role: action, shape: [T, 2]}}}
        samples:
          - {q: [[0.1, 0.5], [0.2, 0.5], [0.4, 0.5]]}
          - {q: [[0.3, 0.5], [0.2, 0.5], [0.1, 0.5]]}

    Good::

        schema: {fields: {q: {role: action, shape: [T, 2]}}}
        samples:
          - {q: [[0.1, 0.5], [0.2, 0.5], [0.4, 0.5]]}
          - {q: [[0.3, 0.7], [0.2, 0.5], [0.1, 0.6]]}

    Fix:
        Drop the dimension, or set its spread to 1 in the normaliser.
    Reference:
        LeRobot issue 3280: 11 constant dimensions in one dataset; wall-x issue 113: NaN actions.
    """
    splits = case.options["splits"]
    least = max(1, int(case.options["samples"]))
    measured, stats, wide_rows = _by_dimension(rows, case)
    if wide_rows.any():
        yield Skip(wide_rows, _TOO_WIDE)
    if not measured.any():
        return
    if not set(rows.splits) & set(splits):
        if not Texts.of(rows.table.splits).holds(splits):
            yield Skip(
                measured, f"no split is called {' or '.join(filter(None, splits))} (option splits)"
            )
        return
    if int(measured.sum()) < least:
        yield Skip(measured, f"fewer than {pluralize(least)}")
        return
    low, high = (
        end.astype(np.float64)
        for end in (rows[stats[0]][measured].min(axis=0), rows[stats[1]][measured].max(axis=0))
    )
    flat = high - low <= float(case.options["spread"]) * np.maximum(1, np.abs(low))
    if flat.any():
        which = [f"{int(i)} (always {format_number(float(low[i]))})" for i in np.flatnonzero(flat)]
        word = "dimension" if len(which) == 1 else "dimensions"
        yield Failure(
            np.zeros(len(rows), bool),
            f"{word} {first_few(which)} of {len(flat)} in {pluralize(int(measured.sum()))}: no change "
            f"at all.",
            measured={"dimensions": [int(i) for i in np.flatnonzero(flat)]},
            fix="Drop it, or give it a spread of 1 in the normaliser.",
        )
    yield from _dead_in_few(rows, case, measured, stats, flat)


def _by_dimension(rows: Rows, case: RuleContext) -> tuple[Array, tuple[str, str], Array]:
    """Return the rows with extremes of each dimension, their two columns, and the rows without."""
    has_extremes = rows.measured("min")
    wide = has_extremes & too_wide(rows, case.spec)
    measured = wide & rows.measured("lows", "highs")
    if (
        measured.sum() >= _MOST_SHARE * has_extremes.sum() > 0
    ):  # a few long samples do not represent all
        return measured, ("lows", "highs"), has_extremes & ~measured
    return has_extremes & ~wide, ("min", "max"), wide


# Least share of the other groups' samples in which a dimension moves: if it rests more often, it
# may rest in a whole group by chance.
_ALIVE = 0.9
_GROUP = 3  # fewest samples of a group, and fewest other groups


def _dead_in_few(
    rows: Rows, case: RuleContext, measured: Array, stats: tuple[str, str], flat: Array
) -> Iterator[Failure]:
    """Yield the dimensions that stand still in few groups and move in all others.

    Args:
        rows, case: as judged.
        known: bool (rows): those that were measured.
        stats: the columns of the smallest and the largest value per dimension.
        flat: bool (dimensions): those that stand still everywhere.
    """
    what, names, groups = _groups(rows, case, measured)
    count = np.bincount(groups, minlength=len(names))
    large = count >= _GROUP
    if int(large.sum()) <= _GROUP:
        return
    places = np.flatnonzero(measured)
    order = np.argsort(groups, kind="stable")
    starts = np.concatenate([[0], np.cumsum(count)[:-1]])
    low, high = (rows[stat][places].astype(np.float64) for stat in stats)
    spread = float(case.options["spread"])
    moves = high - low > spread * np.maximum(1, np.abs(low))
    lowest = np.minimum.reduceat(low[order], starts)
    highest = np.maximum.reduceat(high[order], starts)
    dead = (highest - lowest <= spread * np.maximum(1, np.abs(lowest))) & large[:, None] & ~flat
    for dimension in np.flatnonzero(dead.any(axis=0)).tolist():
        still = dead[:, dimension]
        others = ~still[groups] & large[groups]
        ends = np.unique([low[others, dimension], high[others, dimension]])
        few = int(still.sum()) <= float(case.options["few"]) * int(large.sum())
        if (
            not few
            or int((large & ~still).sum()) < _GROUP
            or moves[others, dimension].mean() < _ALIVE
            or len(ends) < 3
        ):
            continue
        mask = np.zeros(len(rows), bool)
        mask[places[still[groups]]] = True
        phrases = [
            f"{names[i]} (always {format_number(float(lowest[i, dimension]))})"
            for i in np.flatnonzero(still).tolist()
        ]
        yield Failure(
            mask,
            f"dimension {dimension} of {len(flat)} never changes in {pluralize(len(phrases), what)}: "
            f"{first_few(phrases)}; it "
            f"moves in the other {int((large & ~still).sum()):,}.",
            measured={"dimension": dimension, "groups": phrases[:10]},
            fix="Look whether it was recorded there; if not, record again or leave these samples "
            "out.",
            kind=f"dead in {what}",
        )


def _groups(rows: Rows, case: RuleContext, measured: Array) -> tuple[str, list[str], Array]:
    """Return the kind of grouping, the names of groups, and the group number of each known row."""
    by = f"{case.options['by']}:min"
    if any(rows.groups.present()):
        what, texts = "group", rows.groups
    elif by in rows and rows.measured(by)[measured].all():
        labels, numbers = np.unique(
            rows[by][measured].reshape(int(measured.sum()), -1)[:, 0], return_inverse=True
        )
        return "task", [format_number(float(label)) for label in labels], numbers
    else:
        what, texts = "file", rows.files
    words, numbers = np.unique(texts.rows[measured], return_inverse=True)
    return what, [texts.words[i] for i in words.tolist()], numbers


@measure(
    "extent",
    applies=lambda s: not s.is_text and s.range is not None,
    uses=("sentinels", "ignore", "finite"),
)
def extent(column: Column, spec: FieldSpec) -> Columns:
    """Smallest and largest value of a sample: `lowest`, `highest`.

    Declared marks and (where allowed) NaN and infinity are left out. Samples without another value
    have no row.
    """
    if not is_numeric(column):
        return {}
    size = prod(column.values.shape[1:])
    lengths = (np.ones(len(column), np.int64) if column.lengths is None else column.lengths) * size
    few = 0 < size <= MOST_COMPONENTS
    marks = (*spec.sentinels, *spec.ignore)
    low, high, _ = extremes(column)
    if marks or not spec.finite or np.isnan(low).any():
        values, rows = (
            (column.planes, column.lengths) if few else (column.values.reshape(1, -1), lengths)
        )
        values = values.astype(np.float64)
        if marks or not spec.finite:
            values[~np.isfinite(values) | np.isin(values, marks)] = np.nan
        low = reduced(np.fmin, values, rows)
        high = reduced(np.fmax, values, rows)
    if size == 0:
        low = high = np.zeros((1, len(column)))
    low = np.fmin.reduce(low, axis=0).astype(np.float64)
    high = np.fmax.reduce(high, axis=0).astype(np.float64)
    present = (lengths > 0) & ~np.isnan(low)
    return {"lowest": Measured(low, present), "highest": Measured(high, present)}


def _ends(case: RuleContext, dtypes: Array) -> tuple[Array, Array]:
    """Return the limits of the range for each row, widened by the rounding of its dtype.

    The float32 nearest to 0.1, for example, is inside ``..0.1``.
    """
    ends = case.spec.range
    low = -np.inf if ends is None or ends.low is None else ends.low
    high = np.inf if ends is None or ends.high is None else ends.high
    names = sorted(set(dtypes))
    numeric_dtypes = {name: np.dtype(name) for name in names if name not in {"text", "json"}}
    near = {name: d.type if d.kind == "f" else float for name, d in numeric_dtypes.items()}
    least = {name: min(low, float(kind(low))) for name, kind in near.items()}
    most = {name: max(high, float(kind(high))) for name, kind in near.items()}
    if len(names) == 1:
        return np.full(len(dtypes), least.get(names[0], low)), np.full(
            len(dtypes), most.get(names[0], high)
        )
    return np.array([least.get(d, low) for d in dtypes]), np.array(
        [most.get(d, high) for d in dtypes]
    )


_FIX = "Clip or rescale at the source, or widen the range in the schema."
_OTHER_FIX = (
    "Correct the values (unit, scale, order, encoding), or widen the range in the schema "
    "where they are right."
)


@rule(
    "DC224",
    "out-of-range",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(extent, form),
    suppressed_by=("DC109", "DC122", "DC125", "DC201", "DC202", "DC205", "DC221", "DC222"),
    applies=extent.applies,
)
def out_of_range(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A value lies outside the declared range.

    What:
        Every value of a field with ``range`` lies in that range, including both ends. Values in
        ``sentinels`` and ``ignore`` are not counted.
    Why it matters:
        The controller clips actions beyond -1..1, so the policy learns actions that were never
        executed.
    Measure:
        Smallest and largest value per sample. Each end of the range is rounded to the field's
        dtype.
    When it is wrong:
        The range was a guess: widen it. A value is a sentinel: declare ``sentinels: [-1]``.
    Options:
        none
    Bad::

        schema: {fields: {a: {role: action, shape: [T, 2], range: -1..1}}}
        samples:
          - {n: 3, a: {ramp: [40, 2], to: 0.9}}
          - {a: [[0.2, 0.4], [-1.239, 0.5], [0.1, 0.6]]}

    Good::

        schema: {fields: {a: {role: action, shape: [T, 2], range: -1..1}}}
        samples:
          - {n: 3, a: {ramp: [40, 2], to: 0.9}}
          - {a: [[0.2, 0.4], [-1.0, 0.5], [0.1, 1.0]]}

    Fix:
        Clip or rescale at the source, as the controller did; do not clip silently.
    Reference:
        robosuite's wiping demonstration contains -1.24, while its controller accepts -1..1.
    """
    measured = rows.measured("lowest")
    if not measured.any():
        return
    low, high = _ends(case, rows["dtype"])
    below = low - rows["lowest"]
    above = rows["highest"] - high
    beyond = np.where(measured, np.maximum(below, above), 0)
    bad = beyond > 0
    if bad.any():
        worst = int(np.argmax(beyond))
        value = float(rows["lowest" if below[worst] > above[worst] else "highest"][worst])
        yield Failure(
            bad,
            f"{count_phrase(bad, 'hold')} values outside {case.spec.range}; the farthest is "
            f"{format_number(value, case.spec.unit)}.",
            measured={
                "lowest": float(rows["lowest"][bad].min()),
                "highest": float(rows["highest"][bad].max()),
            },
            expected={"range": str(case.spec.range)},
            fix=_FIX if case.spec.role == "action" else _OTHER_FIX,
            order=beyond,
        )
