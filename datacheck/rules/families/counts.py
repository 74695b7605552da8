"""Rules about sizes and counts: files far too small, stated numbers that do not match the data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import CHECKED, Measured, Rows, Texts
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    first_few,
    format_number,
    measure,
    pluralize,
    rule,
    unreadable,
)
from datacheck.rules.measures import form, is_numeric
from datacheck.schema.grammar import SAMPLES, SUM
from datacheck.schema.model import Schema
from datacheck.workers.wire import int64

Array = np.ndarray[Any, Any]

_NEARLY_ALL = 0.9  # share of pictures that one factor must explain
# Bytes of the blocks in which files are written and copied.
_BLOCK = 4096
# A file that was cut is smaller than this share of the smallest other, has this z, and is one of few
# that end at the end of a block.
_CUT = 0.75
_CUT_BELOW = 4.0
_FEW_CUT = 0.1
_MOST_CUT = 2
_SECTOR = 512
_STEADY = 0.05  # least scatter (of logarithms), for files of nearly equal size


@measure("weight", per="sample", depth="structure")
def weight(block: Block, schema: Schema) -> Columns:
    """Size of the sample's file: `bytes`."""
    del schema
    column = block.facts.get("size")
    return (
        {}
        if column is None or column.kind != "array"
        else {"bytes": column.values.astype(np.int64)}
    )


@rule(
    "DC103",
    "empty-or-tiny",
    Severity.ERROR,
    Level.FILE,
    per="sample",
    measures=(weight,),
    sees="all",
    defaults={"share": 0.1, "scatter": 8.0, "least": 8},
)
def empty_or_tiny(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A file is empty, or far smaller than the other files of its kind.

    What:
        No file has 0 bytes (error; a warning if no sample lies in it). No file is smaller than a
        tenth of the median size of the files with the same suffix in the same split, unless the
        sizes scatter that far (warning). No file that is smaller than three quarters of all others
        ends at a multiple of 4,096 bytes, where hardly any other file does (warning).
    Why it matters:
        An export that was interrupted, or that failed after writing a header, leaves a small file
        that still opens.
    Measure:
        Size in bytes; z = |log(size) - median| / (1.4826 MAD of the logarithms), where the
        denominator is at least 5 %.
    When it is wrong:
        The samples differ that much in size: lower ``share``, or switch the warning off with a
        severity of ``info``.
    Options:
        share: share of the median below which a file is tiny (0.1).
        scatter: z above which a file stands out (8).
        least: fewest files of a kind to judge (8).
    Bad::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 9, x: {normal: [4]}, facts: {size: 90000}}
          - {x: {normal: [4]}, facts: {size: 400}}
          - {unreadable: "DC103 the file is empty (0 bytes)"}

    Good::

        schema: {fields: {x: {role: value, shape: [4]}}}
        samples:
          - {n: 9, x: {normal: [4]}, facts: {size: 90000}}
          - {n: 3, x: {normal: [4]}, facts: {size: 30000}}

    Fix:
        Write or download the files again.
    Reference:
        NIST handbook 1.3.5.17: robust z from the median absolute deviation.
    """
    empty = unreadable(rows, lambda reason: reason.startswith("DC103"))
    paths = list[str]()
    if empty.any():
        paths = sorted(
            {_empty_path(rows.table.reasons[int(row)]) for row in rows.index[empty]} - {""}
        )
        where = f": {first_few(paths)}" if paths else ""
        yield Failure(
            empty,
            f"{count_phrase(empty, 'have')} a file of 0 bytes{where}.",
            fix="Write or download them again.",
            kind="empty",
        )
    unused = [note.key for note in case.notes if note.key not in paths]
    if unused:
        yield Failure(
            np.zeros(len(rows), bool),
            f"{pluralize(len(unused), 'file')} of 0 bytes beside the samples: {first_few(unused)}.",
            measured={"files": len(unused)},
            severity=Severity.WARNING,
            fix="Write or download them again.",
            kind="unused",
        )
    kinds = list(_small(rows, case))
    tiny = [_is_tiny(kind, case) for kind in kinds]
    if failure := _of_files(rows, kinds, tiny):
        yield failure
    cut = [_is_cut(kind) & ~small for kind, small in zip(kinds, tiny, strict=True)]
    if failure := _of_files(rows, kinds, cut):
        text = "cut at the end of a block of 4,096 bytes, as a copy that stopped leaves it"
        yield replace(
            failure, kind="cut", cause=Cause(text, "cut", explains=int(failure.mask.sum()))
        )


def _of_files(rows: Rows, kinds: Sequence[_Kind], small: Sequence[Array]) -> Failure | None:
    """Return the failure for the small files of some kinds, None without one."""
    found = [(kind, mask) for kind, mask in zip(kinds, small, strict=True) if mask.any()]
    if not found:
        return None
    files = np.concatenate([kind.files[mask] for kind, mask in found])
    bad = rows.measured(":bytes") & np.isin(rows.files.rows, files)
    sizes, usual = rows[":bytes"][bad], found[0][0].usual
    return Failure(
        bad,
        f"{pluralize(len(files), 'file')} of {format_number(float(np.median(sizes)), 'bytes')} "
        f"(median) where {format_number(usual, 'bytes')} are usual.",
        measured={"smallest": int(sizes.min()), "usual": usual},
        severity=Severity.WARNING,
        fix="Look at them; write or download them again if something is missing.",
        kind="tiny",
        order=-rows[":bytes"],
    )


def _ending(name: str) -> str:
    end = name[name.rfind(".") + 1 :] if "." in name else ""
    return "" if "/" in end else end


def _empty_path(reason: str) -> str:
    """Return the empty companion in a reason ("DC103 a.obj: the file is empty"), else ""."""
    path, separator, _ = reason.removeprefix("DC103 ").partition(": the file is empty")
    return path if separator else ""


class _Kind(NamedTuple):
    """The files of one suffix: their numbers, sizes, and the robust z of each below the median."""

    files: Array
    sizes: Array
    usual: float
    below: Array


def _small(rows: Rows, case: RuleContext) -> Iterator[_Kind]:
    """Yield all kinds of which there are enough files, none where no file can be too small."""
    measured = rows.measured(":bytes")
    if not measured.any():
        return
    files = rows.files
    # A file may have many rows but counts once.
    numbers, first_rows = np.unique(files.rows[measured], return_index=True)
    sizes = np.maximum(rows[":bytes"][np.flatnonzero(measured)[first_rows]], 1)
    most = sizes.max()
    may_be_cut = (sizes < _CUT * most) & (sizes % _BLOCK == 0)
    if sizes.min() >= float(case.options["share"]) * most and not may_be_cut.any():
        return
    for _, kind in Texts.of([_ending(files.words[number]) for number in numbers.tolist()]).places():
        if len(kind) < max(2, int(case.options["least"])):
            continue
        logs = np.log(sizes[kind].astype(np.float64))
        middle = float(np.median(logs))
        scatter = max(1.4826 * float(np.median(np.abs(logs - middle))), _STEADY)
        yield _Kind(numbers[kind], sizes[kind], math.exp(middle), (middle - logs) / scatter)


def _is_tiny(kind: _Kind, case: RuleContext) -> Array:
    share = float(case.options["share"])
    tiny: Array = (kind.sizes < share * kind.usual) & (kind.below > case.options["scatter"])
    return tiny


def _is_cut(kind: _Kind) -> Array:
    """Tell which files end at the end of a block, as no other file does, and are the smallest."""
    whole = kind.sizes % _BLOCK == 0
    in_sectors = (kind.sizes % _SECTOR == 0).sum() > len(whole) / 2  # a format of such blocks
    if whole.sum() > min(_MOST_CUT, _FEW_CUT * len(whole)) or in_sectors:
        return np.zeros(len(whole), bool)
    least = kind.sizes[~whole].min()
    cut: Array = whole & (kind.sizes < _CUT * least) & (kind.below > _CUT_BELOW)
    return cut


@measure("attributes", version=2, per="sample", uses=("attrs",), depth="structure")
def attributes(block: Block, schema: Schema) -> Columns:
    """Counts stated in file attributes: ``attr/<name>`` for each declared integer."""
    columns: dict[str, Measured] = {}
    for name in sorted(schema.attrs):
        column = block.facts.get(f"attrs/{name}")
        if column is not None:
            numbers = [_whole(column, i) for i in range(len(block))]
            values = np.array([-1 if n is None else n for n in numbers], dtype=np.int64)
            columns[f"attr/{name}"] = Measured(
                values, np.array([n is not None for n in numbers], dtype=bool)
            )
    return columns


_NO_COUNT = np.iinfo(np.int64).max  # stated, but no number of rows that there can be


def _whole(column: Column, i: int) -> int | None:
    value = column.objects[i] if column.kind != "array" else column[i]
    try:
        number = int(value.item() if isinstance(value, np.ndarray | np.generic) else value)
    except OverflowError:  # infinity
        return _NO_COUNT
    except (TypeError, ValueError):
        return None
    return number if int64(number) else _NO_COUNT


def _stated_sizes(schema: Schema) -> list[tuple[str, str]]:
    """Return the fields that state the size of a picture, each with the picture."""
    return [(name, spec.pixels_of) for name, spec in schema.of_role("value") if spec.pixels_of]


@measure("stated-sizes", per="sample", uses=("fields.role", "fields.pixels_of", "fields.absent"))
def stated_sizes(block: Block, schema: Schema) -> Columns:
    """Size of a picture as stated by a field: `<field>:stated` [width, height]."""
    columns: dict[str, Measured] = {}
    for name, _ in _stated_sizes(schema):
        column = block.fields.get(name)
        if (
            column is not None
            and is_numeric(column)
            and column.values.ndim == 1
            and column.uniform == 2
        ):
            columns[f"{name}:stated"] = Measured(
                column.stacked().astype(np.float64), np.ones(len(block), bool)
            )
    return dict(columns)


def _counts_nothing(schema: Schema) -> str:
    if schema.attrs or schema.samples.counts or _stated_sizes(schema):
        return ""
    return "attrs and samples.counts are empty, no value is pixels_of a picture: nothing is counted"


@rule(
    "DC111",
    "count-mismatch",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(attributes, form, stated_sizes),
    sees="all",
    unless=_counts_nothing,
)
def count_mismatch(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An attribute, a list entry or an annotation states a number that does not match the data.

    What:
        Attributes in ``attrs`` match the data: the length of a sample's axis (``num_samples: T``),
        the number of samples in the file (``num_demos: samples``), the sum of an axis over the
        samples of the file (``total: sum T``), or a fixed number. An attribute of the file may be
        missing, and a wrong one is only a warning. Sums are judged if all samples of the file could
        be read and their fields agree. ``samples: {counts: ...}`` declares numbers in the entries
        of a YAML or JSON list in the same way (``file_len: P``). A value [width, height] with
        ``pixels_of`` is the size of that image.
    Why it matters:
        Loaders size their index by the attribute. If it is too small, the last demos are never
        seen; if it is too large, an epoch ends in an exception. Boxes are divided by the size that
        the annotation states.
    Measure:
        The stated number, against the length of the axis in the sample's fields or the number of
        samples in the file.
    When it is wrong:
        The number counts something else: remove it from ``attrs`` or ``counts``, or remove
        ``pixels_of``.
    Options:
        none
    Bad::

        schema: {attrs: {num_samples: T}, fields: {a: {role: value, shape: [T, 2]}}}
        samples:
          - {n: 2, a: {normal: [30, 2]}, facts: {attrs/num_samples: 30}}
          - {a: {normal: [30, 2]}, facts: {attrs/num_samples: 31}}

    Good::

        schema: {attrs: {num_samples: T}, fields: {a: {role: value, shape: [T, 2]}}}
        samples:
          - {n: 2, a: {normal: [30, 2]}, facts: {attrs/num_samples: 30}}

    Fix:
        Count again and write the number; if data are missing, restore them.
    Reference:
        robomimic, dataset structure: ``num_samples`` of each demo, ``total`` of ``/data``; LIBERO
        adds ``num_demos``. Mask3D's fix_bugs_in_labels shortens three scenes but not their
        ``file_len``.
    """
    for name, what in sorted(case.schema.attrs.items()):
        if (column := f":attr/{name}") in rows:
            yield from _miscounted(
                rows,
                case,
                "an attribute that states",
                name,
                what,
                rows[column],
                rows.measured(column),
            )
    for name, what in sorted(case.schema.samples.counts.items()):
        yield from _miscounted(
            rows,
            case,
            "an entry in a list that states",
            name,
            what,
            *_listed_count(rows, case, name),
        )
    for name, picture in _stated_sizes(case.schema):
        yield from _missized(rows, name, picture)


def _missized(rows: Rows, name: str, picture: str) -> Iterator[Failure]:
    """Yield the pictures whose size differs from a stated one."""
    if f":{name}:stated" not in rows or f"{picture}:dims" not in rows:
        return
    stated = rows[f":{name}:stated"]
    dims = rows[f"{picture}:dims"]
    measured = rows.measured(f":{name}:stated") & (rows[f"{picture}:ndim"] > 1)
    wrong = (
        measured & (stated != dims[:, 1::-1]).any(axis=1)
        if dims.shape[1] > 1
        else np.zeros(len(rows), bool)
    )
    turned = wrong & (stated == dims[:, :2]).all(axis=1)
    for mask, kind, fix in (
        (
            wrong & ~turned,
            name,
            "See whether the sizes belong to these pictures: names may be shifted against the rows. If "
            "they do, write the size of the picture, and scale the boxes if it was resized after them.",
        ),
        (
            turned,
            f"{name}:turned",
            "See which way up the boxes lie: programs differ in whether they follow the EXIF "
            "orientation of a picture. Exchange width and height, or turn the picture.",
        ),
    ):
        if not mask.any():
            continue
        pairs = np.unique(np.concatenate([stated[mask], dims[mask, 1::-1]], axis=1), axis=0)
        phrases = [
            f"{w:.9g} x {h:.9g} where the picture has {a:.9g} x {b:.9g}"
            for w, h, a, b in pairs.tolist()
        ]
        yield Failure(
            mask,
            f"{name} states another size than {picture} has in {pluralize(int(mask.sum()))}: "
            f"{first_few(phrases)} pixels.",
            measured={"stated": stated[mask][0].tolist(), "found": dims[mask][0, 1::-1].tolist()},
            kind=kind,
            cause=None if kind != name else _resized(stated[mask], dims[mask, 1::-1]),
            fix=fix,
            extra=(name,),
        )


def _resized(stated: Array, found: Array) -> Cause | None:
    """Return the one factor by which nearly all pictures differ from their stated size, or None."""
    factor = float(np.median(found / np.maximum(stated, 1)))
    # A side is rounded.
    fits = int((np.abs(found - factor * stated) <= 1).all(axis=1).sum())
    if fits < _NEARLY_ALL * len(found):
        return None
    text = f"the pictures were resized by {format_number(factor)} after they were annotated"
    return Cause(text, "resized", factor, fits)


def _listed_count(rows: Rows, case: RuleContext, name: str) -> tuple[Array, Array]:
    """Return the count that a list states for each row's file, and the rows with one."""
    stated_counts = {note.key: int(note.about[name]) for note in case.notes if name in note.about}
    files = rows.files
    listed = np.array([word in stated_counts for word in files.words], dtype=bool)
    stated = np.array([stated_counts.get(word, -1) for word in files.words], dtype=np.int64)
    return stated[files.rows], listed[files.rows]


def _miscounted(
    rows: Rows,
    case: RuleContext,
    words: str,
    name: str,
    what: int | str,
    stated: Array,
    measured: Array,
) -> Iterator[Failure]:
    """Yield the mismatches of one number that attributes or lists state."""
    of_file = what == SAMPLES or str(what).startswith(SUM)
    actual, whole = (
        _in_file(rows, case.schema, str(what)) if of_file else _in_sample(rows, case.schema, what)
    )
    wrong = measured & whole & (stated != actual)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        pairs = sorted(
            {(int(a), int(b)) for a, b in zip(stated[wrong], actual[wrong], strict=True)}
        )
        phrases = [f"{a:,} where there are {b:,}" for a, b in pairs]
        what_of = (
            " (samples of a file)"
            if what == SAMPLES
            else ""
            if isinstance(what, int)
            else f" ({what})"
        )
        yield Failure(
            wrong,
            f"{count_phrase(wrong, 'have')} {words} {name}: {first_few(phrases)}{what_of}.",
            measured={"stated": int(stated[first]), "found": int(actual[first])},
            kind=name,
            severity=Severity.WARNING if of_file else None,  # the present samples may be sound
            fix="Count again and write the number; restore what is missing.",
            order=np.abs(stated - actual),
        )


def _in_sample(rows: Rows, schema: Schema, what: int | str) -> tuple[Array, Array]:
    """Return (number, known) of each row: a plain number, or the size of an axis.

    The size is known where all fields with the axis agree.
    """
    if isinstance(what, int):
        return np.full(len(rows), what, np.int64), np.ones(len(rows), bool)
    sizes, known, agreed = (np.zeros(len(rows), kind) for kind in (np.int64, bool, bool))
    agreed[:] = True
    for name, spec in sorted(schema.stored.items()):
        shape = spec.shape or ()
        if what not in shape or f"{name}:dims" not in rows:
            continue
        dims = rows[f"{name}:dims"]
        if (place := shape.index(what)) < dims.shape[1]:
            fits = rows.measured(f"{name}:dims") & (rows[f"{name}:ndim"] == len(shape))
            agreed &= ~(fits & known) | (sizes == dims[:, place])
            sizes[fits] = dims[fits, place]
            known |= fits
    return sizes, known & agreed


def _in_file(rows: Rows, schema: Schema, what: str) -> tuple[Array, Array]:
    """Return (number, known) of each row's file: its samples, or the sum of an axis over them."""
    if what == SAMPLES:  # without samples that a list in the file names but that are missing
        sizes = (~unreadable(rows, lambda reason: reason.startswith("DC105"))).astype(np.int64)
        sized = np.ones(len(rows), bool)
    else:
        sizes, sized = _in_sample(rows, schema, what.removeprefix(SUM))
        sized &= rows.table.status[rows.index] == CHECKED
    _, file = np.unique(
        np.array([rows.table.files[int(i)] for i in rows.index], dtype=object), return_inverse=True
    )
    total = np.zeros(len(rows), np.int64)
    whole = np.ones(len(rows), bool)
    np.add.at(total, file, sizes)
    np.logical_and.at(whole, file, sized)
    return total[file], whole[file]
