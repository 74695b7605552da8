"""Rules about structure: declared fields exist, with their shape, dtype and common lengths."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import UNREADABLE, Measured, Rows, Texts
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    first_few,
    format_number,
    match_texts,
    measure,
    pluralize,
    rule,
    unique_texts,
)
from datacheck.rules.measures import form, is_numeric, leaf, numbers, of_role, reduced
from datacheck.schema.grammar import format_shape
from datacheck.schema.model import FieldSpec, Schema, parse_columns

Array = np.ndarray[Any, Any]

_ATTRIBUTE = "attribute "
_TOLD = 200  # sets of missing names reported one by one


@measure(
    "missing",
    version=3,
    per="sample",
    uses=("fields.optional", "fields.absent", "attrs"),
    depth="structure",
)
def missing(block: Block, schema: Schema) -> Columns:
    """Names of the declared fields and attributes that the samples lack: `missing`, joined by ", ".

    Fields with a missing file of their own are left out. `taken`: ``field=name`` of those found
    under a similar name.
    """
    wanted = [name for name, spec in schema.stored.items() if not spec.optional and not spec.absent]
    names = [
        name
        for name in sorted(wanted)
        if name not in block.fields and f"absent/{name}" not in block.facts
    ]
    names += [
        f"attribute {name}" for name in schema.needed_attrs if f"attrs/{name}" not in block.facts
    ]
    near = [
        (name, block.facts[f"near/{name}"])
        for name in sorted(wanted)
        if f"near/{name}" in block.facts
    ]
    taken = [
        ", ".join(f"{name}={column.objects[i]}" for name, column in near) for i in range(len(block))
    ]
    return {"missing": [", ".join(names)] * len(block), "taken": taken}


@rule("DC121", "missing-field", Severity.ERROR, Level.SAMPLE, per="sample", measures=(missing,))
def missing_field(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A declared field or attribute is missing from the sample.

    What:
        Every field and attribute of the schema is present, unless it is ``optional`` or ``absent``
        in this split. If a schema sets ``near_names`` and all samples hold a field under one
        similar name (``action`` for ``actions``), the rule accepts that name and reports it as
        info. An attribute that no sample has is a warning.
    Why it matters:
        Loaders replace missing fields by zeros or by the last good sample.
    Measure:
        Names that were not found; ``None`` counts as missing. Similar names differ in case, plural,
        ``-`` and ``_``, or a group of observations, and have the declared kind and sizes.
    When it is wrong:
        The field has another name in the file: declare it with ``at``. Not every sample has the
        field: ``optional: true``.
    Options:
        none
    Bad::

        schema: {fields: {a: {role: value, shape: [4]}, b: {role: value, shape: [2]}}}
        samples:
          - {n: 2, a: {normal: [4]}, b: {normal: [2]}}
          - {a: {normal: [4]}}

    Good::

        schema: {fields: {a: {role: value, shape: [4]}, b: {role: value, shape: [2], optional: true}}}
        samples:
          - {a: {normal: [4]}, b: {normal: [2]}}
          - {n: 2, a: {normal: [4]}}

    Fix:
        Export the samples again, or declare the field optional.
    Reference:
        robomimic replaces a missing key by zeros of shape (T, 1).
    """
    if "missing" not in rows:
        return
    lacks = rows["missing"]
    attributes = _attributes_of_none(unique_texts(lacks))
    if attributes:
        every = np.ones(len(rows), bool)
        yield Failure(
            every,
            f"{count_phrase(every, 'lack')} {', '.join(attributes)}.",
            fix="Write it for loaders that read it (robomimic does), or take it out of attrs.",
            severity=Severity.WARNING,
            kind="no-attribute",
        )
        rest = {text: _without(text, attributes) for text in unique_texts(lacks)}
        lacks = np.array([rest[text] for text in lacks], object)
    if "taken" in rows:
        yield from _renamed_fields(rows["taken"])
    yield from _missing_sets(
        lacks, sum(not spec.optional and not spec.absent for spec in case.schema.stored.values())
    )


def _missing_sets(lacks: Array, promised: int) -> Iterator[Failure]:
    """Yield the missing names: each set of names on its own, up to 200 of them.

    Args:
        lacks: text (samples), names joined by ", ".
        promised: how many fields each sample must have.
    """
    schema_fix = "Choose the schema of these data (--schema), or draft one: datacheck init DATA."
    export_fix = (
        "Export them again, name the field in the file with at:, or declare it optional: true."
    )
    sets = Texts.of(lacks.tolist())
    counts = np.bincount(sets.rows, minlength=len(sets.words))
    most = sorted(np.flatnonzero(counts).tolist(), key=lambda i: (-counts[i], sets.words[i]))
    most = [number for number in most if sets.words[number]]
    for number in sorted(most[:_TOLD], key=sets.words.__getitem__):
        names = sets.words[number]
        mask = sets.rows == number
        fields = [name for name in names.split(", ") if not name.startswith("attribute ")]
        foreign = bool(mask.all()) and 2 <= promised <= 2 * len(fields)
        why = (
            f"{len(fields)} of {promised} fields are in no sample: probably data of another layout"
        )
        yield Failure(
            mask,
            f"{count_phrase(mask, 'lack')} {names}.",
            cause=Cause(why, "other-layout") if foreign else None,
            fix=f"{schema_fix} Else: {export_fix[0].lower()}{export_fix[1:]}"
            if foreign
            else export_fix,
            kind=names,
            extra=tuple(fields),
        )
    if more := most[_TOLD:]:
        mask = np.isin(sets.rows, more)
        every = sorted({name for number in more for name in sets.words[number].split(", ")})
        yield Failure(
            mask,
            f"{count_phrase(mask, 'lack')} fields in "
            f"{pluralize(len(more), 'further combination')}: {first_few(every)}.",
            fix=export_fix,
            kind="more sets",
            extra=tuple(name for name in every if not name.startswith("attribute ")),
        )


def _attributes_of_none(lacks: list[str]) -> list[str]:
    """Return the attributes in every one of some lists of missing names: no sample has them."""
    lists = [text.split(", ") for text in lacks]
    return [
        name
        for name in lists[0]
        if name.startswith(_ATTRIBUTE) and all(name in names for names in lists)
    ]


def _without(text: str, names: list[str]) -> str:
    return ", ".join(name for name in text.split(", ") if name not in names)


def _renamed_fields(taken: Array) -> Iterator[Failure]:
    """Yield fields found under another name: an info where all samples agree, else an error."""
    named: dict[str, dict[str, list[str]]] = {}  # field: other name: texts of the column
    for text in filter(None, unique_texts(taken)):
        for pair in text.split(", "):
            field, _, name = pair.partition("=")
            named.setdefault(field, {}).setdefault(name, []).append(text)
    for field, names in sorted(named.items()):
        texts = {text for column_texts in names.values() for text in column_texts}
        mask = match_texts(taken, texts.__contains__)
        called = " or ".join(sorted(names))
        agreed = bool(mask.all()) and len(names) == 1
        others = (
            "taken for it"
            if agreed
            else f"the others call it {field}"
            if len(names) == 1
            else "they do not agree"
        )
        yield Failure(
            mask,
            f"{count_phrase(mask, 'have')} {called} where the schema names {field}: {others}.",
            fix=f"Say it in a schema of your own: fields: {{{field}: {{at: {called}}}}}."
            if agreed
            else "Call it by one name in all samples.",
            severity=Severity.INFO if agreed else None,
            kind=f"near {field}",
            extra=(field,),
        )


def _optional(schema: Schema) -> dict[str, FieldSpec]:
    return {
        name: spec
        for name, spec in sorted(schema.stored.items())
        if spec.optional and not spec.absent
    }


@measure("lacking", per="sample", uses=("fields.optional", "fields.absent"), depth="structure")
def lacking(block: Block, schema: Schema) -> Columns:
    """Names of the optional fields that the samples lack: `lacking`, joined by ", "."""
    return {
        "lacking": [", ".join(name for name in _optional(schema) if name not in block.fields)]
        * len(block)
    }


@rule(
    "DC129",
    "partly-missing",
    Severity.WARNING,
    Level.SAMPLE,
    per="sample",
    measures=(lacking,),
    unless=lambda s: (
        ""
        if _optional(s) or s.samples.companions
        else "no field is optional, no companion is declared"
    ),
    defaults={"most": 0.5},
)
def partly_missing(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An optional field or file is present in most samples and missing in some.

    What:
        A field that is ``optional``, or a file of ``samples: {companions: ...}``, is present for
        all samples of a split, or missing for a large share of them. ``rules: {DC129: error}``
        marks each sample that lacks it as invalid.
    Why it matters:
        One mesh of forty is gone, or the wrist camera is missing in a tenth of the demos: a loader
        skips these samples or fills in zeros.
    Measure:
        Share of the samples that lack the field, or the file that holds it. If all fields are
        optional, a sample lacks nothing that shares no field with the samples that have this one: it
        is of another kind. Companions are judged
        by the file listing alone: they are not opened, and a file of 0 bytes counts as missing and
        is always reported.
    When it is wrong:
        Some samples are meant to lack it: lower ``most``, or switch the rule off.
    Options:
        most: share of samples without the field from which its absence is not reported (0.5).
    Bad::

        schema: {fields: {a: {role: value, shape: [4]}, b: {role: value, shape: [2], optional: true}}}
        samples:
          - {n: 9, a: {normal: [4]}, b: {normal: [2]}}
          - {a: {normal: [4]}}

    Good::

        schema: {fields: {a: {role: value, shape: [4]}, b: {role: value, shape: [2], optional: true}}}
        samples:
          - {n: 4, a: {normal: [4]}, b: {normal: [2]}}
          - {n: 6, a: {normal: [4]}}

    Fix:
        Restore the missing field or file, or leave these samples out.
    Reference:
        HO3D without some of its images; LIBERO demos without the wrist camera: a loader that
        requests it fails late.
    """
    for note in case.notes:
        lack, empty = (_in_files(rows, note.about[key]) for key in ("lack", "empty"))
        missing = lack | empty if _is_minority(lack | empty, rows, case) else empty
        if missing.any():
            name = note.about["name"]
            count = int(missing.sum())
            have = len(rows) - int((lack | empty).sum())
            without = f" ({pluralize(int(empty.sum()), 'file')} of 0 bytes)" if empty.any() else ""
            yield Failure(
                missing,
                f"{count_phrase(missing, 'have')} no {name} beside {'it' if count == 1 else 'them'} "
                f"({note.key}){without}; "
                f"{pluralize(have, 'other')} of the split {'does' if have == 1 else 'do'}.",
                measured={"lack": count, "of": len(rows)},
                fix="Copy the missing files again, or leave these samples out.",
                kind=name,
            )
    if "lacking" not in rows:
        return
    names = rows["lacking"]
    fields_by_mask: dict[bytes, list[str]] = {}  # fields that are missing from the same samples
    lacked = {}
    for name in _optional(case.schema):
        missing = match_texts(names, lambda text, name=name: name in text.split(", "))  # type: ignore[misc]
        if _is_minority(missing, rows, case):
            missing &= ~_of_other_kinds(names, name, case.schema)
        if _is_minority(missing, rows, case):
            fields_by_mask.setdefault(missing.tobytes(), []).append(name)
            lacked[name] = missing
    for fields in fields_by_mask.values():
        yield _lacked(rows, case, fields, lacked[fields[0]])


def _of_other_kinds(lacking: Array, name: str, schema: Schema) -> Array:
    """Return the samples whose fields are all others than those of the samples with this one.

    A draft may take files of several kinds together: nothing is missing where a file of masses has no
    frames.
    """
    optional = _optional(schema).keys()
    texts = Texts.of(lacking.tolist())
    if optional != schema.stored.keys() or len(texts.words) > _MOST_SETS:
        return np.zeros(len(lacking), bool)
    present = [optional - set(text.split(", ")) for text in texts.words]
    beside = set[str]().union(*(fields for fields in present if name in fields))
    of_others = [bool(fields) and not fields & beside for fields in present]
    return np.array(of_others, bool)[texts.rows]


def _lacked(rows: Rows, case: RuleContext, fields: Sequence[str], lacking: Array) -> Failure:
    places = [(name, case.schema.stored[name].file) for name in fields]
    field_texts = first_few(
        [f"{name} ({file})" if file is not None else name for name, file in places]
    )
    count = int(lacking.sum())
    message = (
        f"{count_phrase(lacking, 'have')} no {field_texts}; {pluralize(len(rows) - count, 'other')} of "
        f"the split do"
    )
    files = _whole_files(rows, lacking)
    if files:
        message += (
            f". In {pluralize(len(files), 'file')} no sample has "
            f"{'it' if len(fields) == 1 else 'them'}: "
        )
        message += first_few(files, _FILES_NAMED)
    return Failure(
        lacking,
        f"{message}.",
        measured={"lack": count, "of": len(rows)},
        fix="Scan files of another table separately, or give all the same fields: loaders of "
        "tables refuse a mixture."
        if files
        else "Restore what is missing, or leave these samples out.",
        kind=", ".join(fields[:3]),
        extra=tuple(fields),
    )


def _whole_files(rows: Rows, lacking: Array) -> list[str]:
    """Return the files of several samples that all lack a field; [] if only some of a file do."""
    file_rows = rows.files.rows
    every = np.bincount(file_rows)
    lack = np.bincount(file_rows[lacking], minlength=int(file_rows.max()) + 1)
    hit = lack > 0
    whole = bool((every[hit] == lack[hit]).all() and (every[hit] > 1).all())
    return [rows.files.words[i] for i in np.flatnonzero(hit).tolist()] if whole else []


_FILES_NAMED = 3
_MOST_SETS = 1_000  # sets of fields that are compared


def _is_minority(lacking: Array, rows: Rows, case: RuleContext) -> bool:
    """Tell whether few samples lack a field, even if all unreadable ones lack it, too."""
    unread = int((rows.table.status == UNREADABLE).sum())
    return bool(
        0
        < int(lacking.sum()) + unread * bool(lacking.any())
        < float(case.options["most"]) * (len(lacking) + unread)
    )


def _in_files(rows: Rows, paths: Sequence[str]) -> Array:
    """Return bool (rows): those whose file is one of these."""
    path_set = set(paths)
    return np.array([word in path_set for word in rows.files.words], dtype=bool)[rows.files.rows]


@rule(
    "DC122",
    "shape-or-dtype",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form,),
    applies=lambda spec: True,
)
def shape_or_dtype(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A field has another shape or another kind of values than declared.

    What:
        The number of axes and the fixed sizes match ``shape``; the kind of values matches
        ``dtype``. Named axes may have any size.
    Why it matters:
        Broadcasting hides a wrong shape until the loss is wrong; integers cut off the fractions
        that floats keep.
    Measure:
        Shape and dtype as stored.
    When it is wrong:
        Another width of the same kind (float64 for float32) is reported as info only.
    Options:
        none
    Bad::

        schema: {fields: {joints: {role: joints, shape: [21, 3], dtype: float32}}}
        samples:
          - {n: 2, joints: {normal: [21, 3]}}
          - {joints: {normal: [20, 3]}}

    Good::

        schema: {fields: {joints: {role: joints, shape: [21, 3], dtype: float32}}}
        samples:
          - {n: 3, joints: {normal: [21, 3]}}

    Fix:
        Export the samples again, or correct the declaration.
    Reference:
        robocasa issue 124: 267 numbers instead of the expected 217.
    """
    if "dtype" not in rows:
        return
    spec = case.spec
    dtypes = rows["dtype"]
    text = match_texts(dtypes, lambda name: name in {"text", "json"})
    if spec.is_text or spec.role is not None or spec.shape is not None or spec.dtype is not None:
        wrong = text != spec.is_text
        if wrong.any():
            yield _of_kind(wrong, dtypes, "text" if spec.is_text else "numbers")
        kind = _kind_of_text(spec)
        other = text & (dtypes != kind) & (kind != "")
        if other.any():
            yield _of_kind(other, dtypes, "messages" if kind == "json" else "text")
    if spec.shape is not None and not spec.is_text:
        yield from _of_shape(rows, case, text)
    if spec.dtype is not None and spec.dtype not in {"text", "json"}:
        yield from _of_dtype(dtypes, spec.dtype, text)


def _kind_of_text(spec: FieldSpec) -> str:
    """Return the required kind of a text field: "text", "json" (a chat's messages), "" for any."""
    if spec.dtype == "text" or (spec.role == "text" and spec.dtype is None):
        return "text"
    return "json" if spec.role == "chat" and spec.dtype is None else ""


def _of_kind(wrong: Array, dtypes: Array, declared: str) -> Failure:
    kinds = sorted(set(dtypes[wrong]))
    return Failure(
        wrong,
        f"{count_phrase(wrong, 'hold')} {first_few(kinds)} where {declared} "
        f"{'is' if declared == 'text' else 'are'} declared.",
        measured={"dtype": kinds},
        kind="kind",
        fix="Correct the role or dtype in the schema, or export the field again.",
    )


def _of_shape(rows: Rows, case: RuleContext, text: Array) -> Iterator[Failure]:
    wanted = case.spec.shape or ()
    wrong = (rows["ndim"] != len(wanted)) & ~text
    if "dims" in rows and wanted:
        dims = rows["dims"]
        for axis, size in enumerate(wanted[: dims.shape[1]]):
            if isinstance(size, int):
                wrong |= (dims[:, axis] != size) & ~text
    if wrong.any():
        dims = rows["dims"][wrong] if "dims" in rows else np.zeros((int(wrong.sum()), 0), np.int64)
        pairs = Counter(zip(rows["ndim"][wrong].tolist(), map(tuple, dims.tolist()), strict=True))
        shapes = Counter[str]()
        for (rank, sizes), count in pairs.items():
            shapes[format_shape(sizes[:rank]) if rank > 0 and sizes else "[]"] += count
        most = [
            f"{shape} ({count:,})" if len(shapes) > 1 else shape
            for shape, count in shapes.most_common()
        ]
        yield Failure(
            wrong,
            f"{count_phrase(wrong, 'have')} shape {first_few(most)}; {format_shape(wanted)} is "
            f"declared.",
            measured={"shapes": dict(shapes.most_common(10))},
            expected={"shape": list(wanted)},
            kind="shape",
            fix="Export the samples again, or correct the shape in the schema.",
        )


def _of_dtype(dtypes: Array, declared: str, text: Array) -> Iterator[Failure]:
    wanted = np.dtype(declared)
    compatible = {"i": "iu", "u": "iu"}.get(wanted.kind, wanted.kind)
    kinds = {name: np.dtype(name).kind for name in sorted(set(dtypes[~text]))}
    for name, kind in kinds.items():
        if name != declared:
            mask = dtypes == name
            same = kind in compatible
            yield Failure(
                mask,
                f"{count_phrase(mask, 'are')} {name}; {declared} is declared.",
                measured={"dtype": name},
                expected={"dtype": declared},
                severity=Severity.INFO if same else None,
                kind=name,
                fix=f"Cast to {declared} when the cache is built, or declare dtype: {name}.",
            )


def _shared(schema: Schema) -> dict[str, list[tuple[str, str, int]]]:
    """Return {axis: (field, column, place in it)} of the named axes that several fields have."""
    axes: dict[str, list[tuple[str, str, int]]] = {}
    for name, spec in sorted(schema.stored.items()):
        for place, axis in enumerate(spec.shape or ()):
            if isinstance(axis, str) and not spec.absent:
                axes.setdefault(axis, []).append((name, f"{name}:dims", place))
    return {axis: places for axis, places in sorted(axes.items()) if len(places) > 1}


def _nothing_shared(schema: Schema) -> str:
    return "" if _shared(schema) else "no two fields share a named axis"


@rule(
    "DC123",
    "length-mismatch",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(form,),
    suppressed_by=("DC122",),
    unless=_nothing_shared,
)
def length_mismatch(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Fields that belong together row by row differ in length.

    What:
        A named axis (``T``, ``P``) has the same size in all fields of a sample.
    Why it matters:
        Points are paired with the labels of other points, actions with the images of other steps.
    Measure:
        Sizes of the named axes.
    When it is wrong:
        The axes are not the same: give them different names.
    Options:
        none
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}, label: {role: class, shape: [P]}}}
        samples:
          - {n: 2, xyz: {box: [30, 3]}, label: {choice: [30], among: [0, 1, 2]}}
          - {xyz: {box: [30, 3]}, label: {choice: [29], among: [0, 1, 2]}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}, label: {role: class, shape: [P]}}}
        samples:
          - {n: 2, xyz: {box: [30, 3]}, label: {choice: [30], among: [0, 1, 2]}}
          - {xyz: {box: [29, 3]}, label: {choice: [29], among: [0, 1, 2]}}

    Fix:
        Align the fields at their source; never cut the longer one.
    Reference:
        ESAM issue 8: an instance mask of 20,000 points with 40,000 labels.
    """
    for axis, places in _shared(case.schema).items():
        sizes, known = _sizes(rows, case.schema, places)
        high = np.where(known, sizes, -1).max(axis=0)
        low = np.where(known, sizes, np.iinfo(np.int64).max).min(axis=0)
        wrong = (known.sum(axis=0) > 1) & (low != high)
        if wrong.any():
            first_row = int(np.flatnonzero(wrong)[0])
            most = int(np.argmax(np.bincount(sizes[known[:, first_row], first_row])))
            deviating = [
                j for j in range(len(places)) if known[j, first_row] and sizes[j, first_row] != most
            ]
            phrases = [f"{sizes[j, first_row]:,} in {places[j][0]}" for j in deviating]
            fields = [places[j][0] for j in deviating]
            yield Failure(
                wrong,
                f"{axis} is not one size within {pluralize(int(wrong.sum()))}; in the first it is "
                f"{first_few(phrases, 4)} and {most:,} elsewhere.",
                measured={"axis": axis, "first": phrases, "elsewhere": most},
                kind=axis,
                fix="Align the fields at their source; never cut the longer one.",
                extra=tuple(fields),
            )


def _sizes(rows: Rows, schema: Schema, places: list[tuple[str, str, int]]) -> tuple[Array, Array]:
    """Return (sizes, known), both (places, rows); a field of undeclared rank is not known."""
    sizes = np.zeros((len(places), len(rows)), np.int64)
    known = np.zeros((len(places), len(rows)), bool)
    for j, (name, column, place) in enumerate(places):
        if column not in rows:
            continue
        values = rows[column]
        known[j] = rows.measured(column)
        if place < values.shape[1]:
            sizes[j] = values[:, place]
            known[j] &= rows[f"{name}:ndim"] == len(schema.fields[name].shape or ())
    return sizes, known


_WIDEST = 64
_UNIT = 0.01  # tolerance of the length of a unit quaternion
_FOUR = 4
_IDS = frozenset({"instance", "segment", "class", "id"})
_MANY = 200
_SAME = "Export them again with the same settings, or declare the fields optional."
_EXACT = {"float16": 2**11, "float32": 2**24}


@measure(
    "windows",
    version=2,
    applies=lambda s: s.columns is not None and not s.is_text,
    uses=("columns",),
)
def windows(column: Column, spec: FieldSpec) -> Columns:
    """Possible places of quaternions: `unit`, one share for every column i.

    It is the share of the rows in which columns i to i + 3 have length 1.
    """
    values, lengths = column.values, column.lengths
    if not is_numeric(column) or values.dtype.kind != "f":
        return {}
    if values.ndim == 1 and lengths is not None:
        width = max(stop for _, stop in parse_columns(spec.columns or "").values())
        whole = lengths == width
        values, lengths = (
            values[np.repeat(whole, lengths)].reshape(-1, width),
            whole.astype(np.int64),
        )
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
    four_wide = [(part, start) for part, (start, stop) in parts.items() if stop - start == _FOUR]
    return [
        (part, start)
        for part, start in four_wide
        if schema.spec(f"{name}.{part}").role == "quaternion"
    ]


@rule(
    "DC125",
    "layout-mismatch",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(windows,),
    applies=windows.applies,
    suppressed_by=("DC109", "DC122", "DC221"),
    defaults={"share": 0.95, "few": 0.5},
)
def layout_mismatch(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The columns of a field are in another order than declared.

    What:
        The four columns that ``columns`` names as a quaternion have length 1. If they do not, and
        four other columns have length 1 in 95 % of the rows, the parts are in another order.
    Why it matters:
        Two files of one project store position, quaternion, joints and position, joints,
        quaternion. If a file is read in the other's order, every number is finite and every grasp
        is wrong.
    Measure:
        For each position, the share of rows in which four neighbouring columns have length 1 within
        1 %.
    When it is wrong:
        No case is known: four columns of other numbers do not have length 1 in 95 % of the rows by
        accident.
    Options:
        share: share of rows that must fit the other order (0.95).
        few: share of rows below which the declared order does not fit (0.5).
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
        SceneLeapUltra: position, quaternion, 16 joints in its ``.npy``; position, 16 joints,
        quaternion in its cache.
    """
    if "unit" not in rows:
        return
    measured = rows.measured("unit")
    shares = rows["unit"]
    share = float(case.options["share"])
    few = float(case.options["few"])
    for part, start in _quaternions(case.schema, case.name):
        if start >= shares.shape[1]:
            continue
        elsewhere = np.argmax(shares, axis=1)
        bad = measured & (shares[:, start] < few) & (shares.max(axis=1) >= share)
        for place in sorted(set(elsewhere[bad])):
            mask = bad & (elsewhere == place)
            order = _order(case.spec, part, int(place))
            yield Failure(
                mask,
                f"{part} of {pluralize(int(mask.sum()))} has length 1 in "
                f"{_percent(shares[mask, start])} of the rows; "
                f"columns {int(place)} to {int(place) + 3} have it in "
                f"{_percent(shares[mask, place])}.",
                measured={"declared": start, "found": int(place)},
                cause=Cause(
                    f"the columns are {order}" if order else f"the quaternion is at column {place}",
                    "order",
                ),
                kind=f"{part}-at-{int(place)}",
                fix=f"Declare columns: {order!r}, or write the samples again."
                if order
                else "Correct columns.",
                extra=tuple(
                    f"{case.name}.{name}" for name in parse_columns(case.spec.columns or "")
                ),
            )


def _percent(shares: Array) -> str:
    return f"{100 * float(np.median(shares)):.3g} %"


def _order(spec: FieldSpec, part: str, place: int) -> str:
    """Return the parts in the order that puts `part` at a place, "" where no order does."""
    parts = {
        name: stop - start for name, (start, stop) in parse_columns(spec.columns or "").items()
    }
    rest = [name for name in parts if name != part]
    for index in range(len(rest) + 1):
        if sum(parts[name] for name in rest[:index]) == place:
            order = [*rest[:index], part, *rest[index:]]
            return " ".join(f"{name}:{parts[name]}" if parts[name] > 1 else name for name in order)
    return ""


# ------------------------------------------------------------------------------------------- layout


@measure(
    "makeup",
    per="sample",
    uses=("fields.role", "fields.optional", "fields.file"),
    depth="structure",
)
def makeup(block: Block, schema: Schema) -> Columns:
    """Layout of a sample as text: `makeup`, its fields with kind and sizes after the first axis.

    Left out: fields that are optional, text, masks, lie in a file of their own or are not listed,
    and sizes of images.
    """
    parts = []
    for name, column in sorted(block.fields.items()):
        spec = schema.fields.get(name)
        if (
            spec is None
            or spec.optional
            or spec.is_text
            or spec.file is not None
            or spec.role == "mask"
        ):
            continue
        sizes = "" if column.kind != "array" or spec.role in _SIZED else _shape_text(column)
        parts.append(
            f"{name} {_KINDS.get(column.values.dtype.kind, '') if column.kind == 'array' else column.kind}{sizes}"
        )
    return {"makeup": ["; ".join(parts)[:_LONGEST]] * len(block)}


_SIZED = frozenset({"image", "depth", "mask", "video"})
_LONGEST = 4000
_KINDS = {"f": "float", "i": "whole", "u": "whole", "b": "bool"}


def _shape_text(column: Column) -> str:
    return "".join(f" x {size}" for size in column.values.shape[1:])


def _nothing_listed(schema: Schema) -> str:
    return "" if schema.stored else "the schema lists no field"


@rule(
    "DC126",
    "mixed-schema",
    Severity.WARNING,
    Level.DATASET,
    per="sample",
    measures=(makeup,),
    suppressed_by=("DC109", "DC121", "DC122"),
    unless=_nothing_listed,
)
def mixed_schema(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Some samples have other fields, kinds of numbers or widths than most.

    What:
        In the fields that the schema lists, all samples of a split have one kind of numbers (float,
        whole, bool) and the same sizes after the first axis, even if the schema leaves them open.
        Images may have any size.
    Why it matters:
        Batches cannot be stacked, or are stacked after a silent cast; two exports with different
        settings were joined.
    Measure:
        Kinds and sizes by field; the most common layout counts as correct. In text files (.csv,
        .txt, .json), whole numbers count as floats.
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
        Export the samples again with the same settings, or split the dataset in two.
    Reference:
        robocasa issue 124: observations of 267 numbers in some demos and 217 in others; leisaac
        issue 142: 8 and 6.
    """
    del case
    measured = rows.measured(":makeup")
    if not measured.any() or len(unique_texts(rows[":makeup"])) < 2:
        return
    makeups = _untyped(rows)
    counts = Counter(makeups[measured])
    if len(counts) < 2:
        return
    usual = min(counts, key=lambda text: (-counts[text], text))
    sets = Texts.of(makeups.tolist())
    number = {text: i for i, text in enumerate(sets.words)}
    others = sorted(counts.keys() - {usual}, key=lambda text: (-counts[text], text))
    for text in sorted(others[:_TOLD]):
        mask = measured & (sets.rows == number[text])
        mine, most = (
            dict(part.split(" ", 1) for part in t.split("; ") if " " in part) for t in (text, usual)
        )
        differing = [name for name in sorted({*mine, *most}) if mine.get(name) != most.get(name)]
        phrases = [
            f"{n}: {mine.get(n, 'missing')} ({most.get(n, 'missing')} in the others)"
            for n in differing
        ]
        yield Failure(
            mask,
            f"{count_phrase(mask, 'have')} another make-up than the other {counts[usual]:,}: "
            f"{first_few(phrases)}.",
            measured={"fields": differing[:10]},
            kind=", ".join(differing[:3]),
            fix=_SAME,
        )
    if more := others[_TOLD:]:
        mask = measured & np.isin(sets.rows, [number[text] for text in more])
        yield Failure(
            mask,
            f"{count_phrase(mask, 'differ')} from the other {counts[usual]:,} in "
            f"{pluralize(len(more), 'further way')}.",
            kind="more make-ups",
            fix=_SAME,
        )


def _untyped(rows: Rows) -> Array:
    """Return the layout of each row, with integers of text files as floats.

    In a text file it is chance whether a number has a decimal point.
    """
    files = rows.files
    makeups = Texts.of(rows[":makeup"].tolist())
    texts = np.array([word.lower().endswith(_TEXTS) for word in files.words], bool)[files.rows]
    other = np.array(
        [re.sub(r" whole(?= x |;|$)", " float", word) for word in makeups.words], dtype=object
    )
    return np.where(texts, other[makeups.rows], rows[":makeup"])


_TEXTS = (
    ".csv",
    ".csv.gz",
    ".tsv",
    ".tsv.gz",
    ".txt",
    ".txt.gz",
    ".tab",
    ".dict",
    ".xyz",
    ".pts",
    ".json",
    ".jsonl",
    ".jsonl.gz",
    ".ndjson",
    ".xml",
    ".yaml",
    ".yml",
)


# ---------------------------------------------------------------------------------------------- ids


@measure("ids", version=2, applies=of_role(*sorted(_IDS)))
def ids(column: Column, spec: FieldSpec) -> Columns:
    """Count of distinct ids of a sample: `ids`, for 8-bit and 16-bit integers.

    These are the integers that ids may overflow.
    """
    del spec
    dtype = column.values.dtype
    if not is_numeric(column) or dtype.kind not in "iu" or dtype.itemsize > 2:
        return {}
    low = int(np.iinfo(dtype).min)
    counts = [
        len(np.flatnonzero(np.bincount(column[i].reshape(-1).astype(np.int64) - low)))
        for i in range(len(column))
    ]
    return {"ids": np.array(counts, dtype=np.int64)}


@rule(
    "DC127",
    "id-overflow",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(ids, numbers, form),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=lambda s: leaf(s) and s.role in _IDS,
    defaults={"distinct": _MANY},
)
def id_overflow(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Ids do not fit the dtype in which they are stored.

    What:
        Integers of 8 or 16 bits do not reach the largest value of their dtype if there are more
        than 200 distinct ids, and do not continue at its negative end. Ids in float32 stay at or
        below 16,777,216 and in float16 at or below 2,048; above, these dtypes skip whole numbers.
        DC412 judges segment ids stored as floats.
    Why it matters:
        Ids 256 and 0 become the same object: nothing crashes, and the label is wrong for good.
    Measure:
        Smallest and largest value, number of distinct ids.
    When it is wrong:
        The end of the dtype is an ignore label: declare it with ``ignore``.
    Options:
        distinct: number of distinct ids above which reaching the end of the dtype is reported
        (200).
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
        Store the ids as int32 or int64, from their source; lost ids cannot be restored.
    Reference:
        ScanNet++ vertices: segment ids above 2^24 in the float32 columns of a preprocessed scene.
    """
    measured = rows.measured("min", "dtype")
    if not measured.any():
        return
    low = rows["min"].min(axis=1)
    high = rows["max"].max(axis=1)
    marks = (*case.spec.ignore, *case.spec.sentinels)
    for dtype in sorted(set(rows["dtype"][measured])):
        mine = measured & (rows["dtype"] == dtype)
        if dtype in _EXACT and case.spec.role != "segment":  # DC412 judges segments
            bad = mine & (np.maximum(np.abs(low), np.abs(high)) > _EXACT[dtype])
            yield from _does_not_fit(
                bad, dtype, high, f"whole numbers are exact up to {_EXACT[dtype]:,}", "float"
            )
        elif dtype in {"int8", "uint8", "int16", "uint16"} and "ids" in rows:
            ends = np.iinfo(dtype)
            many = mine & (rows["ids"] > int(case.options["distinct"]))
            full = many & (high == ends.max) & (ends.max not in marks)
            yield from _does_not_fit(
                full, dtype, high, f"its largest value is {ends.max:,}", "full"
            )
            wrapped = (
                mine
                & ~full
                & (low < -1)
                & ~np.isin(low, marks)
                & (high > 0.9 * ends.max)
                & (ends.min < 0)
            )
            yield from _does_not_fit(
                wrapped,
                dtype,
                low,
                f"ids above {ends.max:,} begin again at {ends.min:,}",
                "wrapped",
            )


def _does_not_fit(
    bad: Array, dtype: str, values: Array, words: str, kind: str
) -> Iterator[Failure]:
    if bad.any():
        worst = float(values[bad][np.argmax(np.abs(values[bad]))])
        yield Failure(
            bad,
            f"{count_phrase(bad, 'hold')} ids up to {format_number(worst)} in {dtype}; {words}.",
            measured={"value": worst, "dtype": dtype},
            cause=Cause(f"{dtype} is too small for these ids", kind),
            kind=kind,
            fix="Store the ids as int32 or int64, from their source.",
        )
