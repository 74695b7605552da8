"""Rules about layout: columns in their order, samples of one make-up, ids that fit their dtype."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, different, listed, measure, rule, shown, those
from datacheck.rules.measures import form, is_numeric, leaf, numbers, of_role, reduced
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema, parse_columns
from datacheck.table import Measured, Rows, Texts

Array = np.ndarray[Any, Any]

_WIDEST = 64
_UNIT = 0.01  # how far from 1 the length of a unit quaternion may be here
_FOUR = 4
_IDS = frozenset({"instance", "segment", "class", "id"})
_MANY = 200
_TOLD = 200  # make-ups one by one
_SAME = "Export them again with the same settings, or declare the fields optional."
_EXACT = {"float16": 2**11, "float32": 2**24}


@measure("windows", version=2, applies=lambda s: s.columns is not None and not s.is_text, uses=("columns",))
def windows(column: Column, spec: FieldSpec) -> Columns:
    """Where quaternions may lie: `unit`, share of the rows in which columns i to i + 3 have length 1, for every i."""
    values, lengths = column.values, column.lengths
    if not is_numeric(column) or values.dtype.kind != "f":
        return {}
    if values.ndim == 1 and lengths is not None:
        width = max(stop for _, stop in parse_columns(spec.columns or "").values())
        whole = lengths == width
        values, lengths = values[np.repeat(whole, lengths)].reshape(-1, width), whole.astype(np.int64)
    width = int(values.shape[-1])
    if values.ndim != 2 or not _FOUR <= width <= _WIDEST:
        return {}
    squares = np.ascontiguousarray(values.T).astype(np.float64) ** 2
    count = np.ones(len(column), np.int64) if lengths is None else lengths
    shares = np.zeros((len(column), width - _FOUR + 1))
    for i in range(width - _FOUR + 1):
        near = np.abs(squares[i : i + _FOUR].sum(axis=0) - 1) <= 2 * _UNIT
        shares[:, i] = reduced(np.add, near, lengths) / np.maximum(count, 1)
    return {"unit": Measured(shares, count > 0)}


def _quaternions(schema: Schema, name: str) -> list[tuple[str, int]]:
    parts = schema.parts(name)
    found = [(part, start) for part, (start, stop) in parts.items() if stop - start == _FOUR]
    return [(part, start) for part, start in found if schema.spec(f"{name}.{part}").role == "quaternion"]


@rule(
    "DC125", "layout-mismatch", Severity.ERROR, Level.SAMPLE, measures=(windows,), applies=windows.applies,
    needs=("DC109", "DC122", "DC221"), defaults={"share": 0.95, "few": 0.5},
)  # fmt: skip
def layout_mismatch(rows: Rows, case: Case) -> Iterator[Failure]:
    """The columns of a field are in another order than declared.

    What:
        Where ``columns`` names four of them as a quaternion, these have length 1. If they have not, and four other
        columns have in 95 % of the rows, the parts are in another order.
    Why it matters:
        Two files of one project store position, quaternion, joints and position, joints, quaternion: read with the
        other's order, every number is finite, and every grasp is wrong.
    Measure:
        Share of rows in which four neighbouring columns have length 1 within 1 %, for each place.
    When it is wrong:
        Never known: four columns of other numbers have length 1 in 95 % of the rows by no accident.
    Options:
        share: of the rows that must fit the other order (0.95). few: share that may fit the declared one (0.5).
    Bad::

        schema: {fields: {q: {role: pose, shape: [G, 9], columns: "pos:3 quat:4 more:2"},
                          q.quat: {role: quaternion}}}
        samples:
          - {q: [[0.1, 0.2, 0.3, 0.6, 0.8, 0.0, 0.0, 0.1, 0.2], [0.4, 0.2, 0.3, 0.0, 0.0, 0.6, 0.8, 0.3, 0.2]]}
          - {q: [[0.1, 0.2, 0.3, 0.1, 0.2, 0.6, 0.8, 0.0, 0.0], [0.4, 0.2, 0.3, 0.3, 0.2, 0.0, 0.0, 0.6, 0.8]]}

    Good::

        schema: {fields: {q: {role: pose, shape: [G, 9], columns: "pos:3 quat:4 more:2"},
                          q.quat: {role: quaternion}}}
        samples:
          - {q: [[0.1, 0.2, 0.3, 0.6, 0.8, 0.0, 0.0, 0.1, 0.2], [0.4, 0.2, 0.3, 0.0, 0.0, 0.6, 0.8, 0.3, 0.2]]}
          - {q: [[0.2, 0.2, 0.3, 0.8, 0.6, 0.0, 0.0, 0.1, 0.2], [0.5, 0.2, 0.3, 0.0, 0.0, 0.8, 0.6, 0.3, 0.2]]}

    Fix:
        Correct ``columns``, or write the samples again in the declared order.
    Reference:
        SceneLeapUltra: position, quaternion, 16 joints in its ``.npy``; position, 16 joints, quaternion in its cache.
    """
    if "unit" not in rows:
        return
    known, shares = rows.measured("unit"), rows["unit"]
    share, few = float(case.options["share"]), float(case.options["few"])
    for part, start in _quaternions(case.schema, case.name):
        if start >= shares.shape[1]:
            continue
        elsewhere = np.argmax(shares, axis=1)
        bad = known & (shares[:, start] < few) & (shares.max(axis=1) >= share)
        for place in sorted(set(elsewhere[bad])):
            mask = bad & (elsewhere == place)
            order = _order(case.spec, part, int(place))
            yield Failure(
                mask,
                f"{part} of {counted(int(mask.sum()))} has length 1 in {_percent(shares[mask, start])} of the rows; "
                f"columns {int(place)} to {int(place) + 3} have it in {_percent(shares[mask, place])}.",
                measured={"declared": start, "found": int(place)},
                cause=Cause(f"the columns are {order}" if order else f"the quaternion is at column {place}", "order"),
                kind=f"{part}-at-{int(place)}",
                fix=f"Declare columns: {order!r}, or write the samples again." if order else "Correct columns.",
                extra=tuple(f"{case.name}.{name}" for name in parse_columns(case.spec.columns or "")),
            )


def _percent(shares: Array) -> str:
    return f"{100 * float(np.median(shares)):.3g} %"


def _order(spec: FieldSpec, part: str, place: int) -> str:
    """Return the parts in the order that puts `part` at a place, "" where no exchange of whole parts does."""
    parts = {name: stop - start for name, (start, stop) in parse_columns(spec.columns or "").items()}
    rest = [name for name in parts if name != part]
    for at in range(len(rest) + 1):
        if sum(parts[name] for name in rest[:at]) == place:
            order = [*rest[:at], part, *rest[at:]]
            return " ".join(f"{name}:{parts[name]}" if parts[name] > 1 else name for name in order)
    return ""


# ---------------------------------------------------------------------------------------------- make-up


@measure("makeup", per="sample", uses=("fields.role", "fields.optional", "fields.file"), depth="structure")
def makeup(block: Block, schema: Schema) -> Columns:
    """What a sample is made of: `makeup`, its fields with their kind and sizes behind the first axis, as text.

    Left out: fields that are optional, text, masks, lie in a file of their own or are not listed, and sizes of images.
    """
    said = []
    for name, column in sorted(block.fields.items()):
        spec = schema.fields.get(name)
        if spec is None or spec.optional or spec.is_text or spec.file is not None or spec.role == "mask":
            continue
        sizes = "" if column.kind != "array" or spec.role in _SIZED else _sizes(column)
        said.append(
            f"{name} {_KINDS.get(column.values.dtype.kind, '') if column.kind == 'array' else column.kind}{sizes}"
        )
    return {"makeup": ["; ".join(said)[:_LONGEST]] * len(block)}


_SIZED = frozenset({"image", "depth", "mask", "video"})
_LONGEST = 4000
_KINDS = {"f": "float", "i": "whole", "u": "whole", "b": "bool"}


def _sizes(column: Column) -> str:
    return "".join(f" x {size}" for size in column.values.shape[1:])


def _nothing_listed(schema: Schema) -> str:
    return "" if schema.stored else "the schema lists no field"


@rule(
    "DC126", "mixed-schema", Severity.WARNING, Level.DATASET, per="sample", measures=(makeup,),
    needs=("DC109", "DC121", "DC122"), unless=_nothing_listed,
)  # fmt: skip
def mixed_schema(rows: Rows, case: Case) -> Iterator[Failure]:
    """Some samples have other fields, kinds of numbers or widths than most.

    What:
        In the fields that the schema lists all samples of a split have one kind of numbers (float, whole, bool) and
        the same sizes behind the first axis, also where the schema leaves them open. Images may have any size.
    Why it matters:
        Batches cannot be stacked, or are stacked after a silent cast; two exports with different settings were joined.
    Measure:
        Kinds and sizes by field; what most samples have counts as right. Of texts (.csv, .txt, .json) whole numbers
        count as floats.
    When it is wrong:
        Robots or cameras were mixed on purpose: declare such fields ``optional: true``.
    Options:
        none
    Bad::

        schema: {fields: {a: {role: value, shape: [T, A]}}}
        samples:
          - {n: 3, a: {normal: [9, 7]}}
          - {a: {normal: [9, 8]}}

    Good::

        schema: {fields: {a: {role: value, shape: [T, A]}}}
        samples:
          - {n: 3, a: {normal: [9, 7]}}
          - {a: {normal: [12, 7]}}

    Fix:
        Export them again with the same settings, or split the dataset in two.
    Reference:
        robocasa issue 124: observations of 267 numbers in some demos and 217 in others; leisaac issue 142: 8 and 6.
    """
    del case
    known = rows.measured(":makeup")
    if not known.any() or len(different(rows[":makeup"])) < 2:
        return
    makeups = _untyped(rows)
    counts = Counter(makeups[known])
    if len(counts) < 2:
        return
    usual = min(counts, key=lambda text: (-counts[text], text))
    sets = Texts.of(makeups.tolist())
    number = {text: i for i, text in enumerate(sets.words)}
    others = sorted(counts.keys() - {usual}, key=lambda text: (-counts[text], text))
    for text in sorted(others[:_TOLD]):
        mask = known & (sets.rows == number[text])
        mine, most = (dict(part.split(" ", 1) for part in t.split("; ") if " " in part) for t in (text, usual))
        odd = [name for name in sorted({*mine, *most}) if mine.get(name) != most.get(name)]
        said = [f"{n}: {mine.get(n, 'missing')} ({most.get(n, 'missing')} in the others)" for n in odd]
        yield Failure(
            mask,
            f"{those(mask, 'have')} another make-up than the other {counts[usual]:,}: {listed(said)}.",
            measured={"fields": odd[:10]},
            kind=", ".join(odd[:3]),
            fix=_SAME,
        )
    if more := others[_TOLD:]:
        mask = known & np.isin(sets.rows, [number[text] for text in more])
        yield Failure(
            mask,
            f"{those(mask, 'differ')} from the other {counts[usual]:,} in {counted(len(more), 'further way')}.",
            kind="more make-ups",
            fix=_SAME,
        )


def _untyped(rows: Rows) -> Array:
    """Return the make-up of each row, whole numbers of texts as floats: whether one has a point is chance there."""
    files, makeups = rows.files, Texts.of(rows[":makeup"].tolist())
    texts = np.array([word.lower().endswith(_TEXTS) for word in files.words], bool)[files.rows]
    other = np.array([re.sub(r" whole(?= x |;|$)", " float", word) for word in makeups.words], dtype=object)
    return np.where(texts, other[makeups.rows], rows[":makeup"])


_TEXTS = (".csv", ".tsv", ".txt", ".xyz", ".pts", ".json", ".jsonl", ".jsonl.gz", ".ndjson", ".xml", ".yaml", ".yml")


# ---------------------------------------------------------------------------------------------- ids


@measure("ids", version=2, applies=of_role(*sorted(_IDS)))
def ids(column: Column, spec: FieldSpec) -> Columns:
    """How many different ids a sample has: `ids`, for integers of 8 and 16 bits, which they may not fit."""
    del spec
    dtype = column.values.dtype
    if not is_numeric(column) or dtype.kind not in "iu" or dtype.itemsize > 2:
        return {}
    low = int(np.iinfo(dtype).min)
    found = [len(np.flatnonzero(np.bincount(column[i].reshape(-1).astype(np.int64) - low))) for i in range(len(column))]
    return {"ids": np.array(found, dtype=np.int64)}


@rule(
    "DC127", "id-overflow", Severity.ERROR, Level.SAMPLE, measures=(ids, numbers, form),
    needs=("DC109", "DC122", "DC221"), applies=lambda s: leaf(s) and s.role in _IDS, defaults={"distinct": _MANY},
)  # fmt: skip
def id_overflow(rows: Rows, case: Case) -> Iterator[Failure]:
    """Ids do not fit the dtype in which they are stored.

    What:
        Integers of 8 or 16 bits that reach the end of their dtype while there are more than 200 different ids, or that
        begin again at its negative end; float32 above 16,777,216 and float16 above 2,048, which skip whole numbers.
    Why it matters:
        Ids 256 and 0 become one object, or two objects one: nothing crashes, and the label is wrong for good.
    Measure:
        Smallest and largest value, number of different ids.
    When it is wrong:
        The end of the dtype is a mark: declare it with ``ignore``.
    Options:
        distinct: ids above which the end of the dtype is no accident (200).
    Bad::

        schema: {fields: {part: {role: id, shape: [P]}}}
        samples:
          - {part: {choice: [40], among: [0, 1, 2], dtype: float32}}
          - {part: {choice: [40], among: [16777217, 16777216, 33554435], dtype: float32}}

    Good::

        schema: {fields: {part: {role: id, shape: [P]}}}
        samples:
          - {n: 2, part: {choice: [40], among: [0, 1, 2], dtype: float32}}

    Fix:
        Store the ids as int32 or int64, from their source; what was lost cannot be had back.
    Reference:
        ScanNet++ vertices: segment ids above 2^24 in the float32 columns of a preprocessed scene.
    """
    known = rows.measured("min", "dtype")
    if not known.any():
        return
    low, high = rows["min"].min(axis=1), rows["max"].max(axis=1)
    marks = (*case.spec.ignore, *case.spec.sentinels)
    for dtype in sorted(set(rows["dtype"][known])):
        mine = known & (rows["dtype"] == dtype)
        if dtype in _EXACT and case.spec.role != "segment":  # of segments DC412 says it
            bad = mine & (np.maximum(np.abs(low), np.abs(high)) > _EXACT[dtype])
            yield from _does_not_fit(bad, dtype, high, f"whole numbers are exact up to {_EXACT[dtype]:,}", "float")
        elif dtype in {"int8", "uint8", "int16", "uint16"} and "ids" in rows:
            ends = np.iinfo(dtype)
            many = mine & (rows["ids"] > int(case.options["distinct"]))
            full = many & (high == ends.max) & (ends.max not in marks)
            yield from _does_not_fit(full, dtype, high, f"its largest value is {ends.max:,}", "full")
            wrapped = mine & ~full & (low < -1) & ~np.isin(low, marks) & (high > 0.9 * ends.max) & (ends.min < 0)
            yield from _does_not_fit(
                wrapped, dtype, low, f"ids above {ends.max:,} begin again at {ends.min:,}", "wrapped"
            )


def _does_not_fit(bad: Array, dtype: str, values: Array, words: str, kind: str) -> Iterator[Failure]:
    if bad.any():
        worst = float(values[bad][np.argmax(np.abs(values[bad]))])
        yield Failure(
            bad,
            f"{those(bad, 'hold')} ids up to {shown(worst)} in {dtype}; {words}.",
            measured={"value": worst, "dtype": dtype},
            cause=Cause(f"{dtype} is too small for these ids", kind),
            kind=kind,
            fix="Store the ids as int32 or int64, from their source.",
        )
