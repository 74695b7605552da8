"""Slice arrays that hold many samples along their first axis: rows, or consecutive episodes."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import format_of
from datacheck.model.row_keys import NumberedKeys
from datacheck.model.sample import Block, Column, Container, Peeked, value_bytes
from datacheck.schema.model import FieldSpec
from datacheck.sources.base import BLOCK_BYTES, BLOCK_SAMPLES, Item, Part, Source, Unread
from datacheck.sources.fields import ContainerNames, FieldMap, Shelf, Values
from datacheck.sources.lines import numbered, numbers_of
from datacheck.sources.values import read_value

Array = np.ndarray[Any, Any]
Span = tuple[int, int]

_WHOLE_BYTES = 256 << 20  # larger arrays are read in pieces
# Limits of a part of a file of rows; the rows of a scan's result take memory, too.
PART_BYTES = BLOCK_BYTES
PART_ROWS = 1 << 18
LEAST_BYTES = 16 << 20  # smaller files are read whole
# Stored bytes per part of a file: each part reads some rows again, and has its own budget.
_PART_FILE_BYTES = 1 << 20
_SOME = 1 << 10  # rows sampled to estimate the size of a row


class RowSlices:
    """The fields of one file, each with one row (or element) per step.

    Args:
        container: the open file; it stays open while the slices are used.
        fields: where the fields are stored.
        companions: fields of companion files, sliced in the same way.
        piecewise: read only the rows that are sliced, where the format can.
        even: fields that are known to be arrays.

    Attributes:
        known: the names in the file.
        stop: end of the last row that will be sliced; no piece extends beyond it.

    Raises:
        FormatError: a value is damaged, or a declared value has no first axis.
    """

    def __init__(
        self,
        container: Container,
        fields: FieldMap,
        companions: Values,
        *,
        piecewise: bool = False,
        even: Sequence[str] = (),
    ) -> None:
        self._container, self._piecewise, self._even = container, piecewise, even
        self.known = ContainerNames(container)
        # By field: first row of the piece that was read last, and its rows.
        self._pieces: dict[str, tuple[int, Any]] = {}
        self.stop = 1 << 62
        self._look = fields.look
        self.values: dict[str, Any] = dict(companions)
        self.deferred: dict[str, tuple[FieldSpec, str]] = {}  # large arrays: read when sliced
        self.noted: dict[Span, Values] = {}  # values of a sample as a whole, by its rows
        self.lengths: dict[str, int] = {}
        self._others: set[str] = set()  # fields that the schema does not list
        self.declared = set(fields.declared) | set(fields.columns)
        if fields.columns:
            self.values |= fields.read(container)
        else:
            fields.taken = {}
            for field, spec, name in fields.found(container, known=self.known):
                self._add(field, spec, name)
                missing = field not in self.values and field not in self.deferred
                if missing and (other := fields.near(container, field, known=self.known)):
                    fields.taken[field] = other
                    self._add(field, spec, other)
        for field, value in self.values.items():
            self.lengths[field] = (
                _rows(value, field) if field in self.declared or _long(value) else -1
            )
        self.weights = {field: self._weight(field) for field in self.lengths}

    @property
    def row_bytes(self) -> float:
        """Bytes of one row of all fields."""
        return sum(self.weights[field] for field in self.lengths)

    @property
    def whole(self) -> bool:
        """Whether values to be sliced are in memory; small unlisted ones do not count."""
        listed_fields = self.lengths.keys() - self._others
        return not all(
            f in self.deferred or isinstance(self.values[f], Peeked) for f in listed_fields
        )

    def _add(self, field: str, spec: FieldSpec, name: str) -> None:
        look = self._look(field)
        try:
            if field in self._even:
                self._container.assume_uniform(name)
            shape, dtype = self._container.peek(name)
            rows = self._deferred_rows(name, shape, dtype)
        except KeyError:
            return
        if rows and (
            look is None
            or dtype in {"text", "json"}
            or not look(Peeked(tuple(shape), np.dtype(dtype)))
        ):
            self.deferred[field] = (spec, name)
            self.lengths[field] = rows
        else:
            value = read_value(self._container, name, spec, field, look)
            if value is not None:
                self.values[field] = value

    def _deferred_rows(self, name: str, shape: Sequence[int], dtype: str) -> int:
        """Return how many rows a value has if it is read when sliced, 0 if it is read at once."""
        rows = self._container.sliced(name) if self._piecewise else None
        if rows:
            return rows
        sliced = type(self._container).read_rows is not Container.read_rows
        return shape[0] if sliced and len(shape) and _nbytes(shape, dtype) > _WHOLE_BYTES else 0

    def add_unlisted(self, fields: FieldMap) -> list[str]:
        """Add arrays that the schema does not list; `keep` drops those of another length.

        Returns:
            Names of unread arrays.
        """
        headers = [self._container.peek(name) for _, name in self.deferred.values()]
        late_bytes = sum(_nbytes(shape, dtype) for shape, dtype in headers if shape)
        held_bytes = sum(
            value.nbytes for value in self.values.values() if isinstance(value, np.ndarray)
        )
        unlisted_values, passed = fields.unlisted(
            self._container,
            (held_bytes, late_bytes),
            known=self.known,
            later=lambda name, header: (
                self._deferred_rows(name, header.shape, header.dtype.str) > 0
            ),
        )
        self._others.update(unlisted_values)
        for field, value in unlisted_values.items():
            if isinstance(value, Peeked):
                self.deferred[field] = (FieldSpec(), field)
            else:
                self.values[field] = value
            self.lengths[field] = len(value) if value.ndim else -1
            self.weights[field] = self._weight(field)
        return passed

    def seek_points(self) -> Array | None:
        """Return the rows where a read of all fields can begin, see `Container.seek_points`."""
        points: Array | None = None
        for field in sorted(self.deferred.keys() & self.lengths.keys()):
            field_points = self._container.seek_points(self.deferred[field][1])
            if field_points is not None:
                points = (
                    field_points
                    if points is None
                    else np.intersect1d(points, field_points, assume_unique=True)
                )
        return points

    def columns(self, spans: Sequence[Span]) -> Iterator[tuple[str, Any]]:
        """Yield each field with the rows of several spans concatenated.

        Raises:
            FormatError: a listed field is damaged; a damaged unlisted field is dropped instead.
        """
        for field in sorted(self.lengths):
            try:
                rows = self.cut(field, spans)
            except FormatError:
                if field not in self._others:
                    raise
                del self.lengths[field]
            else:
                yield field, rows

    def _weight(self, field: str) -> float:
        """Return bytes per row."""
        rows = max(1, self.lengths[field])
        if field in self.values:
            return value_bytes(self.values[field]) / rows
        shape, dtype = self._container.peek(self.deferred[field][1])
        if not shape:  # texts
            rows = min(rows, _SOME)
            return value_bytes(self._read(field, 0, rows)) / rows
        return float(np.prod(shape[1:], dtype=np.float64)) * np.dtype(dtype).itemsize

    def leave_out(self, name: str) -> None:
        """Drop the value `name` unless it is declared: it defines the spans and is not a field."""
        if name not in self.declared:
            self.lengths.pop(name, None)

    def keep(self, total: int, why: str) -> None:
        """Drop undeclared values of another length.

        Raises:
            FormatError: a declared field has another length.
        """
        for field, length in list(self.lengths.items()):
            if length == total:
                continue
            if field in self.declared:
                msg = f"{field} has {length} rows, {why}"
                raise FormatError(msg)
            del self.lengths[field]

    def cut(self, field: str, spans: Sequence[Span]) -> Any:
        """Return the rows of several spans concatenated: an array, or a list."""
        merged = list(_merged(spans))
        if field in self.deferred:
            parts = [self._piece(field, a, b) for a, b in merged]
        else:
            parts = [self.values[field][a:b] for a, b in merged]
        if len(parts) == 1:
            return parts[0]
        if isinstance(parts[0], Peeked):
            return Peeked((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
        if isinstance(parts[0], list):
            return [row for part in parts for row in part]
        return np.concatenate(parts)

    def _piece(self, field: str, start: int, stop: int) -> Any:
        """Return rows of a value in the file.

        Notes:
            Reads far ahead: for each call, libraries read the whole chunk or page of a row again.
        """
        if not self._piecewise:
            return self._read(field, start, stop)
        piece_start, rows = self._pieces.get(field, (0, ()))
        if not piece_start <= start <= stop <= piece_start + len(rows):
            read_end = start + int(PART_BYTES // max(1.0, self.row_bytes))
            piece_start = start
            rows = self._read(
                field, start, max(stop, min(read_end, self.stop, self.lengths[field]))
            )
            self._pieces[field] = piece_start, rows
        return rows[start - piece_start : stop - piece_start]

    def _read(self, field: str, start: int, stop: int) -> Any:
        spec, name = self.deferred[field]
        return read_value(self._container, name, spec, field, rows=(start, stop))

    def chunks(self, spans: Sequence[Span]) -> Iterator[Sequence[int]]:
        """Yield runs of positions in `spans`; each run makes one block."""
        per_row = self.row_bytes
        start, size = 0, 0.0
        for place, (a, b) in enumerate(spans):
            weight = (b - a) * per_row
            if place > start and (size + weight > BLOCK_BYTES or place - start >= BLOCK_SAMPLES):
                yield range(start, place)
                start, size = place, 0.0
            size += weight
        if start < len(spans):
            yield range(start, len(spans))

    def uniform_runs(self, places: list[int], spans: Sequence[Span]) -> Iterator[list[int]]:
        """Yield runs of positions in `spans` whose samples have the same names in `noted`."""
        if self.noted:
            for _, run in groupby(
                places, key=lambda place: sorted(self.noted.get(spans[place], ()))
            ):
                yield list(run)
        else:
            yield places


def _nbytes(shape: Sequence[int], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.float64)) * np.dtype(dtype).itemsize


def _long(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, np.ndarray | Peeked) and value.ndim > 0)


def _rows(value: Any, field: str) -> int:
    if not _long(value):
        msg = (
            f"{field}: one value for the whole file, where the schema cuts rows; leave it out of "
            f"fields"
        )
        raise FormatError(msg)
    return len(value)


def _merged(spans: Sequence[Span]) -> Iterator[Span]:
    start, stop = spans[0]
    for a, b in spans[1:]:
        if a != stop:
            yield start, stop
            start = a
        stop = b
    yield start, stop


class RowSliceSource(Source):
    """Samples that follow one another in the arrays of a file; keys end in a 12-digit number."""

    @abstractmethod
    def spans(
        self, item: Item, container: Container, strips: RowSlices
    ) -> tuple[Array, Sequence[Span]]:
        """Return the ascending sample numbers and their spans; settle the fields in `strips`.

        Raises:
            FormatError: the file does not define its samples.
        """

    @abstractmethod
    def column(self, value: Any, lengths: Array) -> Column:
        """Return the column of samples whose rows are concatenated in `value`."""

    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the file's samples as blocks.

        Raises:
            FormatError: the file or a companion cannot be read, or its fields are inconsistent.
        """
        fields, _ = self.way(item.split)
        piecewise = item.rows is not None or (item.keys is not None and self._in_pieces(item))
        with self.opened(item, fields.hint, whole=not piecewise) as container:
            companions: Values = {}
            facts = self.with_companions(companions, item, item.names, shelf)
            strips = RowSlices(container, fields, companions, piecewise=piecewise, even=item.even)
            self.left_out(item.path, strips.values)
            if self.unlisted:
                self.passed.update(strips.add_unlisted(fields))
            self.note_unread(item, container, container.passed)
            numbers, spans = self.spans(item, container, strips)
            places: Sequence[int] = range(len(spans))
            if item.rows is not None:
                places = range(*self._part(item, strips, len(spans)))
            if item.keys is None and not spans:
                msg = "holds no sample"
                raise FormatError(msg)
            if item.keys is not None:
                wanted_numbers, unread = numbers_of(item)
                indexes = np.searchsorted(numbers, wanted_numbers)
                is_present = np.append(numbers, -1)[indexes] == wanted_numbers
                places = indexes[is_present].tolist()
                lost_keys = [
                    numbered(item.path, n) for n in np.asarray(wanted_numbers)[~is_present].tolist()
                ]
                yield from unread
                yield from (
                    Unread(key, "DC101", f"{item.path} holds {len(spans)} samples only")
                    for key in lost_keys
                )
            strips.stop = max((spans[place][1] for place in places), default=0)
            for chunk in strips.chunks([spans[place] for place in places]):
                for picked in strips.uniform_runs([places[n] for n in chunk], spans):
                    yield self._block(
                        item, strips, numbers[picked].tolist(), [spans[n] for n in picked], facts
                    )

    def seek_points(self, item: Item) -> Array | None:
        """Return the first samples at or after the rows where a read of all fields can begin.

        Raises:
            FormatError: the file or a companion cannot be read, or its fields are inconsistent.
        """
        file_format = format_of(item.path)
        if file_format is None or not file_format.points or not self._in_pieces(item):
            return None
        fields, _ = self.way(item.split)
        with self.opened(item, fields.hint, whole=False) as container, Shelf(self.opener) as shelf:
            companions: Values = {}
            self.with_companions(companions, item, item.names, shelf)
            strips = RowSlices(container, fields, companions, piecewise=True, even=item.even)
            numbers, spans = self.spans(item, container, strips)
            points = strips.seek_points()
            if points is None or not len(numbers):
                return None
            places = [bisect_left(spans, point, key=itemgetter(0)) for point in points.tolist()]
            return np.unique([0, *(int(numbers[place]) for place in places if place < len(spans))])

    def _in_pieces(self, item: Item) -> bool:
        """Return whether to read only requested rows; files read at once are also digested."""
        return item.nbytes >= LEAST_BYTES and self.opener.takes(item.path, item.nbytes) is None

    def _part(self, item: Item, strips: RowSlices, total: int) -> tuple[int, int]:
        """Return the samples [start, stop) of a part; the first part defines `cuts`."""
        assert item.rows is not None
        start, stop = item.rows
        if stop >= 0:
            return start, min(stop, total)
        step = max(1, total)
        if not strips.whole:
            step = max(1, min(PART_ROWS, int(PART_BYTES // max(1.0, strips.row_bytes))))
            step = max(step, -(-total // (2 + item.nbytes // _PART_FILE_BYTES)))
            # Blocks then begin where they begin without parts.
            step -= step % BLOCK_SAMPLES if step > BLOCK_SAMPLES else 0
        self.cuts[item.path, item.split] = total, step
        return 0, min(step, total)

    def _block(
        self,
        item: Item,
        strips: RowSlices,
        numbers: Sequence[int],
        spans: list[Span],
        extra: dict[str, str],
    ) -> Block:
        lengths = np.array([stop - start for start, stop in spans], dtype=np.int64)
        fields = {name: self._column(rows, lengths) for name, rows in strips.columns(spans)}
        for name in strips.noted.get(spans[0], ()):
            fields[name] = Column.of([strips.noted[span][name] for span in spans])
        return self.block(item, NumberedKeys.of(item.path, numbers), spans, fields, extra)

    def _column(self, value: Any, lengths: Array) -> Column:
        if isinstance(value, Peeked):
            return replace(self.column(value.array, lengths), peeked=True)
        return self.column(value, lengths)


def per_sample(values: list[Any]) -> Column:
    """Return the column of texts or JSON values, one per sample.

    Raises:
        FormatError: texts and other values are mixed.
    """
    texts = sum(isinstance(value, str) for value in values)
    if texts not in {0, len(values)}:
        msg = "a list that mixes texts and other values"
        raise FormatError(msg)
    return Column.of(values)
