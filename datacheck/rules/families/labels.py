"""Rules about labels: classes that exist, marks for "no label" that are declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, listed, measure, rule, those
from datacheck.rules.histograms import distinct
from datacheck.rules.measures import extremes, finite, in_classes, is_numeric, of_role, one_of, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_MARKS = (255, 65535)  # what unsigned labels use for "ignore"


@measure("labels", version=3, applies=of_role("class", "instance"), uses=("classes", "ignore"))
def labels(column: Column, spec: FieldSpec) -> Columns:
    """What label values there are, by kind.

    Counts: `ignored` ones, declared as such; `negative` and `mark` (255, 65535) ones, undeclared;
    `outside` the classes otherwise. `least` negative, `marked` value, `low` and `high` of those outside, `top` class.
    """
    if not is_numeric(column):
        return {}
    values, often, lengths = distinct(column)
    ignored, good = one_of(values, spec.ignore), in_classes(values, spec)
    negative = (values < 0) & ~ignored & ~good
    mark = one_of(values, _MARKS) & ~ignored & ((spec.classes is None) | ~good)
    outside = ~(ignored | good | negative | mark)
    good &= ~mark

    def extreme(ufunc: np.ufunc, where: Array) -> Array:
        other = np.inf if ufunc is np.minimum else -np.inf
        found = reduced(ufunc, np.where(where, values.astype(np.float64), other), lengths)
        return np.where(np.isfinite(found), found, 0)

    kinds = {"ignored": ignored, "negative": negative, "mark": mark, "outside": outside}
    columns = {name: reduced(np.add, where * often, lengths) for name, where in kinds.items()}
    zeros = np.zeros(len(column))
    columns["least"] = extreme(np.minimum, negative) if negative.any() else zeros
    columns["marked"] = extreme(np.maximum, mark) if mark.any() else zeros
    columns["low"] = extreme(np.minimum, outside) if outside.any() else zeros
    columns["high"] = extreme(np.maximum, outside) if outside.any() else zeros
    columns["top"] = extreme(np.maximum, good)
    return columns


@rule(
    "DC404", "class-out-of-range", Severity.ERROR, Level.SAMPLE, measures=(labels,),
    needs=("DC109", "DC122", "DC221"), applies=lambda s: of_role("class")(s) and s.classes is not None,
)  # fmt: skip
def class_out_of_range(rows: Rows, case: Case) -> Iterator[Failure]:
    """A label is none of the declared classes.

    What:
        Every value of a class field is in ``classes`` or in ``ignore``. Values below 0, and 255 or 65535, are DC405's.
        The table that ``loader: {keep_classes: FILE}`` names can be read, and none of its entries is null.
    Why it matters:
        On a GPU it is an assertion that names another line, in the middle of an epoch.
    Measure:
        Count, smallest and largest of the values outside.
    When it is wrong:
        The loader maps these values away: list them in ``ignore``.
    Options:
        none
    Bad::

        schema: {fields: {label: {role: class, shape: [P], classes: 0..40}}}
        samples:
          - {n: 3, label: {choice: [50], among: [0, 7, 40]}}
          - {label: {choice: [50], among: [7, 50, 149]}}

    Good::

        schema: {fields: {label: {role: class, shape: [P], classes: 0..40}}}
        samples:
          - {n: 4, label: {choice: [50], among: [0, 7, 40]}}

    Fix:
        Map the labels again, or correct ``classes``.
    Reference:
        ScanNet issues 20 and 86: labels 50 and 149 in three scenes.
    """
    for note in case.notes:
        yield Failure(
            np.zeros(len(rows), bool),
            f"{note.key} {note.reason}.",
            fix="Write the table again: of each class a mapping with its name and validation: true or false.",
            kind="table",
        )
    known = rows.measured("outside")
    bad = known & (rows["outside"] > 0) if known.any() else known
    if bad.any():
        low, high = float(rows["low"][bad].min()), float(rows["high"][bad].max())
        span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        classes = case.spec.classes
        allowed = f"0..{classes - 1}" if isinstance(classes, int) else str(classes)
        yield Failure(
            bad,
            f"{those(bad, 'hold')} labels that are no class ({span}, "
            f"{counted(int(rows['outside'][bad].sum()), 'value')}), allowed {allowed}.",
            measured={"low": low, "high": high, "values": int(rows["outside"][bad].sum())},
            expected={"classes": allowed},
            fix="Map the labels again, or correct classes in the schema.",
            order=rows["outside"],
        )


@rule(
    "DC405", "ignore-label", Severity.ERROR, Level.DATASET, measures=(labels, finite),
    needs=("DC109", "DC122", "DC221"), applies=of_role("class", "instance"),
)  # fmt: skip
def ignore_label(rows: Rows, case: Case) -> Iterator[Failure]:
    """Labels that mean "no label" are not the declared ones, or a sample holds nothing else.

    What:
        No undeclared value below 0, no undeclared 255 or 65535 among several classes (0 and 255 alone are a mask); no
        sample whose classes are all ignored.
    Why it matters:
        A loss with ``ignore_index: 255`` learns -100 as a class, or indexes with it.
    Measure:
        Counts of declared and of likely undeclared marks.
    When it is wrong:
        255 is a class: declare ``classes``.
    Options:
        none
    Bad::

        schema: {fields: {label: {role: class, shape: [P], ignore: [-100]}}}
        samples:
          - {n: 3, label: {choice: [50], among: [0, 7, -100]}}
          - {label: {choice: [50], among: [0, 7, -1]}}

    Good::

        schema: {fields: {label: {role: class, shape: [P], ignore: [-100]}}}
        samples:
          - {n: 4, label: {choice: [50], among: [0, 7, -100]}}

    Fix:
        Declare the mark that the data use, or map it to the one that the loss expects.
    Reference:
        ExCap3D: the configuration says 255, the data -100, the raw files -1.
    """
    known = rows.measured("negative", "count")
    if not known.any():
        return
    if (negative := known & (rows["negative"] > 0)).any():
        yield _mark(rows, case, negative, "least", "negative")
    mark = known & (rows["mark"] > 0) & (case.spec.role == "class")
    top = float(np.max(rows["top"][known]))
    mark &= (top > 0) & (rows["marked"] > top + 1)  # with classes all around it is one of them; 0 and 255 are a mask
    if mark.any():
        yield _mark(rows, case, mark, "marked", "mark")
    used = rows["ignored"] + rows["negative"] + np.where(mark, rows["mark"], 0)
    nothing = known & (used == rows["count"]) & (rows["count"] > 0) & (case.spec.role == "class")
    nothing &= ~negative & ~mark
    if nothing.any():
        fix = "Annotate these samples, or leave them out: nothing can be learnt from them."
        yield Failure(nothing, f"every label of {counted(int(nothing.sum()))} is ignored.", kind="all", fix=fix)


def _mark(rows: Rows, case: Case, where: Array, stat: str, kind: str) -> Failure:
    values = [f"{v:g}" for v in sorted(set(rows[stat][where]))]
    declared = f"ignore: [{', '.join(map(str, case.spec.ignore))}]" if case.spec.ignore else "nothing to ignore"
    unused = case.spec.ignore and not (rows["ignored"][where] > 0).any()
    text = f"these samples use {listed(values)} where the schema says {listed(map(str, case.spec.ignore))}"
    return Failure(
        where,
        f"{those(where, 'hold')} {listed(values)}; the schema declares {declared}.",
        measured={"values": values, "count": int(rows["negative" if kind == "negative" else "mark"][where].sum())},
        expected={"ignore": list(case.spec.ignore)},
        cause=Cause(text, "ignore") if unused else None,
        fix="Declare ignore: [...] as the data have it, or map the labels.",
        kind=kind,
    )


_WHOLE = {"float16": 1 << 11, "float32": 1 << 24, "float64": 1 << 53}  # up to here every integer has its own number


@measure("segments", version=2, applies=of_role("segment"), uses=("ignore",))
def segments(column: Column, spec: FieldSpec) -> Columns:
    """How segments are numbered: `distinct` ids of 0 or more, `top` the largest, `exact` up to where the dtype is."""
    if not is_numeric(column) or column.lengths is None:
        return {}
    distinct, top = np.zeros(len(column), np.int64), np.full(len(column), -1.0)
    low, high, _ = extremes(column)
    for i in np.flatnonzero(column.lengths > 0).tolist() if column.values.size else ():
        ends = float(low[:, i].min()), float(high[:, i].max())
        top[i] = ends[1] if np.isfinite(ends).all() else np.nan
        distinct[i] = _distinct(column[i].reshape(-1), *ends, spec.ignore) if np.isfinite(top[i]) else 0
    exact = np.full(len(column), _WHOLE.get(column.values.dtype.name, 1 << 62))
    present = np.isfinite(top) & (top >= 0)
    return {name: Measured(v, present) for name, v in (("distinct", distinct), ("top", top), ("exact", exact))}


def _distinct(values: Array, low: float, high: float, ignored: tuple[int, ...]) -> int:
    if high - low < max(65_536, 4 * len(values)) and max(-low, high) < _WHOLE["float64"]:
        whole = values.astype(np.int64)
        there = np.zeros(int(high) - int(low) + 1, bool)
        there[whole - int(low) if int(low) else whole] = True
        found = np.flatnonzero(there) + int(low)
    else:
        found = np.unique(values)
    return int(np.count_nonzero((found >= 0) & ~one_of(found, ignored)))


@rule(
    "DC412", "segment-ids", Severity.WARNING, Level.SAMPLE, measures=(segments,), needs=("DC109", "DC122", "DC221"),
    applies=of_role("segment"),
)  # fmt: skip
def segment_ids(rows: Rows, case: Case) -> Iterator[Failure]:
    """Segment ids are not 0 to S - 1, or too large for their dtype.

    What:
        The S segments of a sample are numbered from 0 without gaps, and no id is above what the dtype counts exactly.
    Why it matters:
        Pooling over segments allocates as many rows as the largest id says; ids that a float rounds fall together.
    Measure:
        Distinct ids of 0 or more, and the largest; 2^24 is the last integer that float32 holds exactly.
    When it is wrong:
        The loader numbers them again: ``DC412: off``.
    Options:
        none
    Bad::

        schema: {fields: {s: {role: segment, shape: [P]}}}
        samples:
          - {n: 2, s: {choice: [90], among: [0, 1, 2]}}
          - {s: {choice: [90], among: [0, 1, 7]}}

    Good::

        schema: {fields: {s: {role: segment, shape: [P]}}}
        samples:
          - {n: 3, s: {choice: [90], among: [0, 1, 2]}}

    Fix:
        Number them again: ``np.unique(segment, return_inverse=True)[1]``, as int64 before any cast.
    Reference:
        Mask3D's preprocessing numbers the segments of each scene from 0 and stores them as float32.
    """
    del case
    known = rows.measured("top")
    if not known.any():
        return
    coarse = known & (rows["top"] > rows["exact"])
    if coarse.any():
        yield Failure(
            coarse,
            f"{those(coarse, 'hold')} segment ids up to {float(rows['top'][coarse].max()):,.0f}; their dtype counts "
            f"exactly up to {int(rows['exact'][coarse].min()):,}.",
            measured={"top": float(rows["top"][coarse].max())},
            expected={"top": f"..{int(rows['exact'][coarse].min())}"},
            cause=Cause("ids that the float cannot tell apart", "float"),
            fix="Number the segments from 0 before the cast.",
            kind="float",
            order=rows["top"],
        )
    gaps = known & ~coarse & (rows["top"] + 1 != rows["distinct"])
    if gaps.any():
        top, distinct = float(np.median(rows["top"][gaps])), float(np.median(rows["distinct"][gaps]))
        yield Failure(
            gaps,
            f"{those(gaps, 'have')} {distinct:,.0f} segments (median) numbered up to {top:,.0f}, not 0 to one "
            "less than their number.",
            measured={"top": top, "distinct": distinct},
            fix="Number them again: np.unique(segment, return_inverse=True)[1].",
            kind="gaps",
            order=rows["top"] - rows["distinct"],
        )
