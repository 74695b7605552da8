"""Read samples that are lines (JSON, columns, CoNLL-U) and convert them to columns in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats import conll, conllu, jsonl, tabbed
from datacheck.formats.base import check_lines, format_of
from datacheck.model.row_keys import NumberedKeys
from datacheck.model.sample import Block, Column, signature
from datacheck.runtime.beneath import File
from datacheck.schema.model import FieldSpec
from datacheck.sources.base import BLOCK_SAMPLES, Array, Item, Part, Source, Unread
from datacheck.sources.fast_jsonl import BulkParser
from datacheck.sources.fields import FieldMap, Shelf, Values
from datacheck.sources.values import cast_all, check_written, is_rows

Record = dict[str, Any]
Columns = dict[str, Column]


def grouped(
    fields: FieldMap, records: Sequence[Record]
) -> Iterator[tuple[list[int] | None, Columns | None]]:
    """Yield (positions, columns) for every group of records whose fields have one signature.

    Args:
        fields: maps keys to fields.
        records: parsed objects.

    Yields:
        The ascending positions within `records` (None: all), and their columns by field in name
        order. None for columns: these records must be read one by one, because they hold lists of
        numbers, or values that no column can hold.
    """
    specs = {}
    values = {}
    try:
        for name, spec, field_values in fields.of_records(records):
            specs[name], values[name] = spec, field_values
    except FormatError:
        yield list(range(len(records))), None
        return
    kinds = [list(map(type, values[name])) for name in sorted(values)]
    if all(len(set(kind)) == 1 for kind in kinds):
        yield None, _columns(specs, values)
        return
    groups: dict[tuple[type, ...], list[int]] = {}
    for place, kind in enumerate(zip(*kinds, strict=True)):
        groups.setdefault(kind, []).append(place)
    for places in groups.values():
        yield (
            places,
            _columns(
                specs,
                {name: [field_values[i] for i in places] for name, field_values in values.items()},
            ),
        )


def _columns(specs: dict[str, FieldSpec], values: dict[str, list[Any]]) -> Columns | None:
    """Return columns of values with one type per field; fields that are always None are absent."""
    columns = {}
    for name in sorted(values):
        field_values = values[name]
        spec = specs[name]
        if field_values[0] is None:
            continue
        if isinstance(field_values[0], list) and is_rows(spec):
            return None
        try:
            column = _column(field_values, spec)
        except (FormatError, OverflowError, TypeError):
            return None
        if column is None:
            return None
        columns[name] = column
    return columns


def _column(values: list[Any], spec: FieldSpec) -> Column | None:
    if isinstance(values[0], bool | int | float) and not spec.is_text:
        dtype = {bool: np.bool_, int: np.int64, float: np.float64}[type(values[0])]
        array = cast_all(np.array(values, dtype=dtype), spec)
        return None if array is None else Column(array)
    return Column.of(values)


_CUT_BYTES = 16 << 20
# Bytes read before Arrow is loaded: reading this many bytes without it takes as long as the import.
_LEAST_BYTES = 4 << 20
_BULK_LINES = 1 << 14  # each block has a fixed cost; lines without Python objects are small


def numbered(path: str, number: int) -> str:
    """Return the key of a line, row or episode; 12 digits make bytewise order reading order."""
    return f"{path}:{number:012d}"


def runs(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Split numbers into ascending runs; each run is one pass over a file."""
    run: list[int] = []
    for number in numbers:
        if run and number <= run[-1]:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def numbers_of(item: Item) -> tuple[list[int], list[Unread]]:
    """Return the numbers in the item's keys, and the keys that do not belong to this file."""
    numbers: list[int] = []
    unread: list[Unread] = []
    for key in item.keys or ():
        digits = key.removeprefix(item.path + ":")
        if digits.isdecimal() and numbered(item.path, int(digits)) == key:
            numbers.append(int(digits))
        else:
            unread.append(Unread(key, "DC101", f"not a sample of {item.path}"))
    return numbers, unread


class LineSource(Source):
    """Samples that are lines; keys are ``sft.jsonl:000000000012``, counted from 0.

    Attributes:
        met: total bytes of the files read so far.
    """

    met = 0

    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the file's lines as blocks; a bad line is one unread sample.

        Raises:
            FormatError: the file is unreadable or holds no line, or is compressed and holds too
                many lines.
        """
        with self.opener.unchanged(item.path, item.nbytes) as path:
            if item.part is None:  # a file in parts is too large for a pointer or a page
                check_lines(path)
            lines = _LineBlocks(self, item, shelf)
            if item.keys is None:
                yield from self._read(item, path, lines)
                if not lines.seen and item.whole:
                    msg = "holds no line"
                    raise FormatError(msg)
            else:
                numbers, unread = numbers_of(item)
                yield from unread
                for run in runs(numbers):
                    yield from _some(
                        path, run, lines, jsonl.Span(*item.part) if item.part else None
                    )

    def _read(self, item: Item, path: File, lines: _LineBlocks) -> Iterator[Part]:
        if jsonl.splittable(item.path):
            for piece in jsonl.pieces(path, jsonl.Span(*item.part) if item.part else None):
                yield from lines.of_piece(piece)
        elif item.rows is not None:
            yield from self._packed(item, path, lines)
        else:
            self._count(item, path)
            for first_line, values in _batches(path):
                self.check_count(item, lines.seen + len(values))
                yield from lines.blocks(range(first_line, first_line + len(values)), values)

    def _packed(self, item: Item, path: File, lines: _LineBlocks) -> Iterator[Part]:
        """Yield a part of a compressed file as blocks.

        The first part counts all lines, for which it must decompress the whole file.

        Raises:
            FormatError: the file is damaged.
            TooManySamplesError: it has too many lines.
        """
        assert item.rows is not None
        start, stop = item.rows
        if stop < 0:
            self._count(item, path)
        last = stop if stop >= 0 else jsonl.PART_LINES
        total = start
        for piece in jsonl.READ_ON.pieces(path, start):
            total = piece.number + piece.count
            self.check_count(item, total)
            first_line = max(start, piece.number)
            end_line = min(last, total)
            if first_line < end_line:
                yield from lines.of_piece(
                    piece.lines(first_line - piece.number, end_line - piece.number)
                )
            if total >= last and stop >= 0:
                return
        if stop < 0:
            self.cuts[item.path, item.split] = total, jsonl.PART_LINES

    def _count(self, item: Item, path: File) -> None:
        """Count the lines of a highly compressed file before the first one is parsed.

        Raises:
            TooManySamplesError: there are too many; other files raise it during the read.
        """
        if item.path.lower().endswith(".gz") and jsonl.is_overcompressed(path):
            seen = 0
            for piece in jsonl.pieces(path):
                seen += piece.count
                self.check_count(item, seen)

    def seek_points(self, item: Item) -> Array | None:
        """Return [0] for a compressed file, which has no other point to begin; None otherwise."""
        return np.zeros(1, np.int64) if self.is_packed(item) else None

    def cut_when_read(self, item: Item) -> bool:
        """Return whether the file is compressed and large: only a full read counts its lines."""
        return self.is_packed(item) and item.keys is None and item.nbytes >= _LEAST_BYTES

    def is_packed(self, item: Item) -> bool:
        """Return whether lines are compressed; a single JSON document is always parsed whole."""
        return item.path.lower().endswith(".jsonl.gz")

    def cut(self, item: Item) -> Iterator[tuple[tuple[int, int, int], str]] | None:
        """Return the parts of a large file of plain lines: about 64 MB each, or 262,144 lines."""
        if item.keys is not None or item.nbytes < _CUT_BYTES or not jsonl.splittable(item.path):
            return None
        marks = self.marks[item.path] = list[tuple[int, int]]()
        return jsonl.parts(self.opener.file(item.path), marks)


def _batches(
    path: File, span: jsonl.Span | None = None, wanted: Sequence[int] | None = None
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the result of `jsonl.batches` for any line format."""
    if path.name.lower().endswith(conllu.SUFFIX):
        return conllu.batches(path, wanted)
    file_format = format_of(path.name)
    if file_format is None or file_format.name in {"jsonl", "json"}:
        return jsonl.batches(path, span, wanted=wanted)
    head = jsonl.head(path, tabbed.HEAD_BYTES)
    if layout := conll.Layout.of(head):
        return conll.batches(path, layout, wanted)
    if tabbed.is_json(head):
        return jsonl.batches(path, span, wanted=wanted)
    return _columns_of_lines(path, tabbed.Layout.of(path.name, head), wanted)


def _columns_of_lines(
    path: File, layout: tabbed.Layout, wanted: Sequence[int] | None
) -> Iterator[tuple[int, list[Any]]]:
    for chunk in jsonl.chunks(path, wanted=wanted):
        for part in chunk.cut(_BULK_LINES):
            yield part.number, layout.values(part.number, part.offset, part.data, jsonl.BLANK)


def _some(
    path: File, run: list[int], lines: _LineBlocks, span: jsonl.Span | None
) -> Iterator[Part]:
    missing = dict.fromkeys(run)
    for first_line, values in _batches(path, span, run):
        numbers = [
            n
            for n in range(first_line, first_line + len(values))
            if n in missing and values[n - first_line] is not jsonl.BLANK
        ]
        for number in numbers:
            del missing[number]
        yield from lines.blocks(numbers, [values[number - first_line] for number in numbers])
    for number in missing:
        msg = f"no line {number + 1} (any more)"
        yield lines.unread(number, FormatError(msg))


class Spans(Sequence[tuple[int, int]]):
    """The lines or rows [n, n + 1) of each sample, created on access."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, place: slice) -> Spans: ...
    def __getitem__(self, place: int | slice) -> tuple[int, int] | Spans:
        """Return the lines of one sample, or of a slice of samples."""
        if isinstance(place, slice):
            return Spans(self._numbers[place])
        return self._numbers[place], self._numbers[place] + 1


class _LineBlocks:
    """Turns the lines of one file into blocks.

    Args:
        source, item: the source and the item to read.
        shelf: opens the companions of the file, which all lines share.

    Raises:
        FormatError: a companion is damaged.
    """

    def __init__(self, source: LineSource, item: Item, shelf: Shelf) -> None:
        self.seen = 0
        source.met += item.nbytes
        self._source = source
        self._item = item
        self._fields, facts = source.way(item.split)
        self._bulk = BulkParser(self._fields)
        self._companions: Values = {}
        self._absent = source.with_companions(self._companions, item, item.names, shelf)
        self._group = facts.group(item.location)

    def unread(self, number: int, error: FormatError) -> Unread:
        """Return the `Unread` of a bad line."""
        return Unread(numbered(self._item.path, number), error.code, str(error), self._group)

    def of_piece(self, piece: jsonl.LineChunk) -> Iterator[Part]:
        """Yield the blocks of a chunk of lines, and each unreadable line."""
        for part in piece.cut(_BULK_LINES):
            numbers = range(part.number, part.number + part.count)
            columns = (
                self._bulk.columns(part.data, part.count)
                if self._source.met >= _LEAST_BYTES
                else None
            )
            if columns is None:
                yield from self.blocks(numbers, part.values())
            else:
                self.seen += part.count
                yield self._block(numbers, columns)

    def blocks(self, numbers: Sequence[int], values: Sequence[Any]) -> Iterator[Part]:
        """Yield the blocks of some lines, grouped by signature, and each unreadable line.

        Args:
            numbers: ascending line numbers.
            values: their values, from `jsonl.batches`.
        """
        for start in range(0, len(values), BLOCK_SAMPLES):
            yield from self._blocks(
                numbers[start : start + BLOCK_SAMPLES], values[start : start + BLOCK_SAMPLES]
            )

    def _blocks(self, numbers: Sequence[int], values: Sequence[Any]) -> Iterator[Part]:
        if set(map(type, values)) != {dict}:
            filled_lines = [
                (n, v) for n, v in zip(numbers, values, strict=True) if v is not jsonl.BLANK
            ]
            bad_lines = [(n, v) for n, v in filled_lines if not isinstance(v, dict)]
            self.seen += len(bad_lines)
            yield from self._one_by_one(bad_lines)
            numbers = [n for n, v in filled_lines if isinstance(v, dict)]
            values = [v for _, v in filled_lines if isinstance(v, dict)]
        self.seen += len(values)
        for places, columns in grouped(self._fields, values) if values else ():
            chosen = numbers if places is None else [numbers[i] for i in places]
            if columns is None:
                records = values if places is None else [values[i] for i in places]
                yield from self._one_by_one(zip(chosen, records, strict=True))
            else:
                yield self._block(chosen, columns)

    def _one_by_one(self, lines: Iterable[tuple[int, Any]]) -> Iterator[Part]:
        groups: dict[tuple[object, ...], list[tuple[int, Values]]] = {}
        for number, record in lines:
            try:
                if isinstance(record, FormatError):
                    raise record
                values = self._fields.of_record(record)
                check_written(values)
                group_key = tuple((name, signature(values[name])) for name in sorted(values))
            except FormatError as error:
                yield self.unread(number, error)
            else:
                groups.setdefault(group_key, []).append((number, values))
        for group in groups.values():
            columns = {
                name: Column.of([values[name] for _, values in group])
                for name in sorted(group[0][1])
            }
            yield self._block([number for number, _ in group], columns)

    def _block(self, numbers: Sequence[int], columns: dict[str, Column]) -> Block:
        columns |= {
            name: Column.of([value] * len(numbers)) for name, value in self._companions.items()
        }
        keys = NumberedKeys.of(self._item.path, numbers)
        block = self._source.block(
            self._item, keys, Spans(numbers), dict(sorted(columns.items())), self._absent
        )
        path = self._item.path
        if (
            numbers[0] == 0
            and not path.lower().endswith(conllu.SUFFIX)
            and jsonl.marked(self._source.opener.file(path))
            and conll.Layout.of(jsonl.head(self._source.opener.file(path), tabbed.HEAD_BYTES))
            is None
        ):
            block.facts["bom"] = Column(np.arange(len(numbers)) == 0)
        return block
