"""Columns of Arrow as values, for the formats that hold them: Parquet, Arrow IPC (Feather).

A column is an array of all rows: numbers, dates as their count, and lists of numbers of one length
as one more axis each. Columns of text are JSON lists of text, and lists of different lengths are
JSON too, as are records (structs) of numbers, texts, lists and records: the messages of a chat. A
column of any other type (bytes, maps) is absent, and reading it raises an error that says why. A
null is NaN among floats, "" among texts, and an error anywhere else: no integer, time or list is
invented for it. In a record null and NaN are null.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.limits import (
    DEPTH,
    FLOOR_BYTES,
    check_bytes,
    check_expansion,
    plain,
    wrap_errors,
)
from datacheck.model.arrow_arrays import flattened, list_lengths, numbers, present
from datacheck.model.sample import Array, Container

# First rows of columns of lists, None where the lists differ in length. A process reads several
# parts of a file; without the cache each part would read the whole column to find out.
_STEPS: dict[tuple[Any, ...], Array | None] = {}
_MOST_STEPS = 256
_PIECE = 1 << 20  # indices that are handled at once
_VALUE_BYTES = 64  # of a value of a record, at least


class ArrowColumns(Container):
    """Columns stored in groups of rows: row groups, record batches.

    Args:
        pa: the module pyarrow.
        schema: the Arrow schema.
        groups: number of rows of each group.
        nbytes: size of the file.
        stamp: identifies the file and its state.

    Raises:
        FormatError: two columns have one name, or there are rows without a column.
    """

    def __init__(
        self, pa: Any, schema: Any, groups: Sequence[int], nbytes: int, stamp: tuple[Any, ...]
    ) -> None:
        self._pa, self._nbytes, self._stamp = pa, nbytes, stamp
        self._types = {field.name: field.type for field in schema}
        if len(self._types) != len(schema):
            msg = "two columns have one name"
            raise FormatError(msg)
        self._records = {name for name, kind in self._types.items() if _is_record(pa, kind)}
        self.passed = sorted(
            name
            for name, kind in self._types.items()
            if _leaf(pa, kind) is None and name not in self._records
        )
        self.opaque = any(_holds_bytes(pa, self._types[name]) for name in self.passed)
        self._stops = np.cumsum([0, *groups])
        self._rows = int(self._stops[-1])
        if groups and not self._types:
            msg = f"{self._rows:,} rows are declared, but no column"
            raise FormatError(msg)
        # By column, the stream at the row that it was read to.
        self._streams: dict[str, _ColumnStream] = {}
        self._even: set[str] = set()  # columns of lists of one length

    @abstractmethod
    def _batches(self, name: str, groups: Iterable[int]) -> Iterator[Any]:
        """Yield a column of some row groups, piece by piece; a group is read only when needed.

        Raises:
            FormatError: the column is far larger than the file.
        """

    def _first(self, name: str, group: int) -> Any:
        """Return the first row of a column in one group."""
        return next(self._batches(name, [group]))[:1]

    def names(self) -> list[str]:
        """Return the names of the columns that are values, sorted."""
        return sorted(self._types.keys() - set(self.passed))

    def read(self, name: str) -> Any:
        """Return a whole column."""
        return self.read_rows(name, 0, self._rows)

    def sliced(self, name: str) -> int | None:
        """Return the number of rows of a column, None where its type depends on all rows."""
        if name in self._records:
            return int(self._rows)
        kind = self._types[name]
        kind = kind.value_type if self._pa.types.is_dictionary(kind) else kind
        # If the lists of a column differ in length, a part may still have lists of one length, and
        # would then be an array instead of JSON.
        if _leaf(self._pa, kind) is None or (
            _is_list(self._pa, kind) and self.peek(name)[1] == "json"
        ):
            return None
        return int(self._rows)

    def assume_uniform(self, name: str) -> None:
        """Skip the check that the lists of a column have one length."""
        self._even.add(name)

    def seek_points(self, name: str) -> Array | None:
        """Return the rows at which groups begin."""
        del name
        return np.unique(self._stops[:-1]).astype(np.int64)

    def read_rows(self, name: str, start: int, stop: int) -> Any:
        """Return rows of a column, across row groups."""
        kind = self._types[name]
        leaf = _leaf(self._pa, kind)
        if name in self.passed:
            msg = (
                f"{name}: values of type {str(kind)[:60]} are not read; numbers, text, and lists "
                f"and records of them are"
            )
            raise FormatError(msg)
        start, stop = max(0, start), min(stop, self._rows)
        groups = [
            i
            for i in range(len(self._stops) - 1)
            if self._stops[i] < stop and self._stops[i + 1] > start
        ]
        if not groups or start >= stop:
            return self.read_rows(name, 0, 1)[:0] if self._rows else self._empty(kind, leaf)
        with wrap_errors(name):
            group_start = int(self._stops[groups[0]])
            stream = self._streams.pop(name, None)
            if stream is None or not stream.leads_to(start, group_start):
                stream = _ColumnStream(
                    self._batches(name, range(groups[0], len(self._stops) - 1)), group_start
                )
            parts = stream.rows(start, stop)
            if stream.stop < stop:
                msg = f"{stop - group_start:,} rows are declared, {stream.stop - group_start:,} are there"
                raise FormatError(msg)
            # A later call that reads on need not read its row group from the beginning.
            if stop < self._rows:
                self._streams[name] = stream
            values = self._pa.chunked_array(parts, kind).combine_chunks()
            if name in self._records:
                return _json_values(self._pa, values)
            return _values(self._pa, values, start, self._nbytes)

    def _empty(self, kind: Any, leaf: Any) -> Any:
        if leaf is None or not _is_number(self._pa, leaf):
            return []
        shape = [0]
        while kind is not leaf and hasattr(kind, "value_type"):
            shape.append(kind.list_size if self._pa.types.is_fixed_size_list(kind) else 0)
            kind = kind.value_type
        return np.empty(shape, _dtype(self._pa, leaf))

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        """Return (shape, dtype) of a column; a column of lists is read for that, once."""
        kind = self._types[name]
        if _is_number(self._pa, kind):
            return (self._rows,), _dtype(self._pa, kind).str
        leaf = kind
        sizes = []
        while self._pa.types.is_fixed_size_list(leaf):
            sizes.append(leaf.list_size)
            leaf = leaf.value_type
        if _is_number(self._pa, leaf):
            return (self._rows, *sizes), _dtype(self._pa, leaf).str
        bottom = _leaf(self._pa, kind)
        if name in self._records:
            return (), "json"
        if bottom is not None and not _is_number(self._pa, bottom):
            return (), "json"
        if (*self._stamp, name) not in _STEPS:
            if len(_STEPS) >= _MOST_STEPS:
                _STEPS.clear()
            _STEPS[*self._stamp, name] = self._step(name)
        step = _STEPS[*self._stamp, name]
        return ((), "json") if step is None else ((self._rows, *step.shape[1:]), step.dtype.str)

    def _step(self, name: str) -> Array | None:
        """Return the first row of a column of equal-length lists, None if the rows make no array.

        Notes:
            Only the column itself says how long its lists are: it is read, but not kept.
        """
        if name in self._even and self._rows:
            group = int(np.flatnonzero(np.diff(self._stops))[0])
            with wrap_errors(name):
                row = _values(self._pa, self._first(name, group), 0, self._nbytes)
            return row if isinstance(row, np.ndarray) else None
        first_row = self.read_rows(name, 0, 1)
        # A copy, because a view would keep the whole row group in memory.
        first_row = first_row.copy() if isinstance(first_row, np.ndarray) else first_row
        if not isinstance(first_row, np.ndarray):
            return None
        groups = range(len(self._stops) - 1)
        with wrap_errors(name):
            even = all(
                _is_uniform(self._pa, rows, first_row.shape[1:], self._nbytes)
                for rows in self._batches(name, groups)
            )
        return first_row if even else None


class ByteCounter:
    """Counts the bytes of a column's batches; a dictionary that several batches share counts once.

    Args:
        pa: the module pyarrow.
    """

    def __init__(self, pa: Any) -> None:
        self._pa, self._total = pa, 0
        # Held, so that no other dictionary gets the same address.
        self._last: dict[tuple[Any, ...], Any] = {}

    def add(self, column: Any) -> int:
        """Add a batch and return the bytes of all batches."""
        dictionaries = {
            _buffer_ids(dictionary): dictionary for dictionary in _dictionaries(self._pa, column)
        }
        repeated_bytes = sum(
            dictionary.nbytes for key, dictionary in dictionaries.items() if key in self._last
        )
        self._last = dictionaries
        self._total += column.nbytes - repeated_bytes
        return self._total


def _buffer_ids(rows: Any) -> tuple[Any, ...]:
    return (
        rows.offset,
        len(rows),
        *(None if buffer is None else buffer.address for buffer in rows.buffers()),
    )


class _ColumnStream:
    """A column that is read on from where the last call ended.

    Args:
        batches: the column from a row on.
        first: that row.

    Attributes:
        stop: the row after the last one that was read.
    """

    def __init__(self, batches: Iterator[Any], first: int) -> None:
        self._batches, self.stop = batches, first
        self._last: Any = None  # the last batch

    def leads_to(self, start: int, group: int) -> bool:
        """Return whether to read on: `start` is not behind, and no row group starts nearer to it.

        Args:
            start: the first row that is wanted.
            group: first row of the row group that holds `start`.
        """
        begin = self.stop - (0 if self._last is None else len(self._last))
        return begin <= start and (start < self.stop or group <= self.stop)

    def rows(self, start: int, stop: int) -> list[Any]:
        """Return rows [start, stop) in pieces, fewer where the column ends earlier."""
        pieces: list[Any] = []
        while True:
            if self._last is not None and self.stop > start:
                begin = self.stop - len(self._last)
                offset = max(0, start - begin)
                pieces.append(
                    self._last.slice(offset, max(0, min(stop, self.stop) - begin - offset))
                )
            if self.stop >= stop or (batch := next(self._batches, None)) is None:
                return pieces
            self._last, self.stop = batch, self.stop + len(batch)


def _leaf(pa: Any, kind: Any) -> Any:
    """Return the type at the bottom of nested lists, None where it is neither number nor text."""
    for _ in range(DEPTH):
        if pa.types.is_dictionary(kind) or _is_list(pa, kind):
            kind = kind.value_type
        else:
            return kind if _is_number(pa, kind) or _is_text(pa, kind) else None
    return None


def _is_record(pa: Any, kind: Any) -> bool:
    """Return whether a type holds records, and nothing but records, lists, numbers and texts."""
    return _holds(pa, kind, pa.types.is_struct, DEPTH) and _is_json(pa, kind, DEPTH)


def _holds(pa: Any, kind: Any, wanted: Callable[[Any], bool], depth: int) -> bool:
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return wanted(kind) or (depth > 0 and any(_holds(pa, one, wanted, depth - 1) for one in inner))


def _is_json(pa: Any, kind: Any, depth: int) -> bool:
    if pa.types.is_struct(kind) or _is_list(pa, kind):
        inner = [kind.field(index) for index in range(kind.num_fields)]
        is_plain = len({one.name for one in inner}) == len(inner)
        return is_plain and depth > 0 and all(_is_json(pa, one.type, depth - 1) for one in inner)
    if pa.types.is_temporal(kind):
        return False
    if pa.types.is_dictionary(kind):
        return _is_text(pa, kind.value_type)
    return _is_text(pa, kind) or _is_number(pa, kind) or bool(pa.types.is_null(kind))


def _holds_bytes(pa: Any, kind: Any) -> bool:
    """Return whether a type contains bytes, as the pictures of Hugging Face datasets do."""
    is_ = pa.types
    if is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind):
        return True
    return any(_holds_bytes(pa, kind.field(index).type) for index in range(kind.num_fields))


def _is_list(pa: Any, kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _is_text(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(pa: Any, kind: Any) -> bool:
    is_ = pa.types
    return bool(
        is_.is_integer(kind)
        or is_.is_floating(kind)
        or is_.is_boolean(kind)
        or is_.is_temporal(kind)
    )


def _dtype(pa: Any, kind: Any) -> np.dtype[Any]:
    if pa.types.is_temporal(kind):
        return np.dtype("<i8")
    return (
        np.dtype("?")
        if pa.types.is_boolean(kind)
        else np.dtype(kind.to_pandas_dtype()).newbyteorder("<")
    )


def _dictionaries(pa: Any, rows: Any) -> Iterator[Any]:
    """Yield the dictionaries of a column: its own, or those within its lists and records."""
    while _is_list(pa, rows.type):
        rows = rows.values
    if pa.types.is_dictionary(rows.type):
        yield rows.dictionary
    elif pa.types.is_struct(rows.type):
        for index in range(rows.type.num_fields):
            yield from _dictionaries(pa, rows.field(index))


def _widths(pa: Any, rows: Any) -> Array:
    """Return the bytes of each entry of a dictionary; a nested dictionary counts by its indices.

    Shapes:
        returns: int64 (entries)
    """
    if not len(rows):
        return np.zeros(0, np.int64)
    if _is_list(pa, rows.type):
        lengths = list_lengths(rows)
        ends = np.concatenate([[0], np.cumsum(_widths(pa, flattened(rows)))])
        return np.asarray(
            8 + np.diff(ends[np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])])
        )
    if _is_text(pa, rows.type):
        offsets = np.frombuffer(
            rows.buffers()[1], np.int64 if pa.types.is_large_string(rows.type) else np.int32
        )
        return 8 + np.diff(offsets[rows.offset : rows.offset + len(rows) + 1]).astype(np.int64)
    kind = rows.type.index_type if pa.types.is_dictionary(rows.type) else rows.type
    return np.full(len(rows), max(1, kind.bit_width // 8), np.int64)


def _dense(pa: Any, rows: Any, stored: int) -> Any:
    """Return an array without its dictionary.

    Args:
        stored: size of the file.

    Raises:
        FormatError: the array would be far larger than the file.
    """
    check_expansion(_decoded_bytes(pa, rows), stored, "entries of a dictionary")
    return rows.dictionary_decode()


def _decoded_bytes(pa: Any, rows: Any) -> int:
    """Return the bytes of an array without its dictionary."""
    widths = _widths(pa, rows.dictionary)
    size = 0
    for start in range(0, len(rows) if len(widths) else 0, _PIECE):
        indices = rows.indices.slice(start, _PIECE)
        size += int(widths[np.where(present(indices), numbers(indices), 0)].sum())
    return size


def _values(pa: Any, rows: Any, first_entry: int, stored: int) -> Any:
    """Return an Arrow array as numbers with one axis per level of lists, else as JSON."""
    rows = _dense(pa, rows, stored) if pa.types.is_dictionary(rows.type) else rows
    if rows.null_count and pa.types.is_floating(rows.type):
        values = numbers(rows)
        return plain(np.where(present(rows), values, values.dtype.type(np.nan)))
    if rows.null_count and _is_text(pa, rows.type):
        return ["" if text is None else text for text in rows.to_pylist()]
    if rows.null_count:
        empty = int(np.argmin(present(rows)))
        msg = f"entry {first_entry + empty:,} is empty (null)"
        raise FormatError(msg)
    if _is_number(pa, rows.type):
        return _numbers(pa, rows)
    if not _is_list(pa, rows.type):
        return rows.to_pylist()
    lengths = list_lengths(rows)
    before = (
        first_entry * int(lengths[0]) if len(lengths) and bool((lengths == lengths[0]).all()) else 0
    )
    inner = _values(pa, flattened(rows), before, stored)
    if isinstance(inner, np.ndarray) and (
        not len(lengths) or int(lengths.min()) == int(lengths.max())
    ):
        size = int(lengths[0]) if len(lengths) else 0
        return inner.reshape(len(lengths), size, *inner.shape[1:])
    stops = np.cumsum(lengths).tolist()
    check_bytes(16 * len(inner), "lists of different lengths", FLOOR_BYTES)
    flat = inner.tolist() if isinstance(inner, np.ndarray) else inner
    if (
        isinstance(inner, np.ndarray)
        and inner.dtype.kind == "f"
        and not bool(np.isfinite(inner).all())
    ):
        msg = "lists of different lengths with a number that is not finite"
        raise FormatError(msg)
    return [
        flat[stop - length : stop] for stop, length in zip(stops, lengths.tolist(), strict=True)
    ]


def _json_values(pa: Any, rows: Any) -> list[Any]:
    """Return records as JSON values, with null for NaN, which JSON lacks.

    Raises:
        FormatError: they are too many for memory, or hold an infinite number.
    """
    nans: list[bool] = []
    check_bytes(_VALUE_BYTES * _count_values(pa, rows, nans), "records", FLOOR_BYTES)
    values = list(rows.to_pylist())
    return [_without_nan(value) for value in values] if any(nans) else values


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _count_values(pa: Any, rows: Any, nans: list[bool]) -> int:
    """Return the number of values in records and lists: an empty record has no byte of its own.

    Args:
        pa: the module pyarrow.
        rows: records, or what they hold.
        nans: gets for each array of floats whether it holds NaN.

    Raises:
        FormatError: a number is infinite.
    """
    if pa.types.is_struct(rows.type):
        # Only `flatten` gives the fields the nulls of their records.
        fields = (
            rows.flatten()
            if rows.null_count
            else [rows.field(index) for index in range(rows.type.num_fields)]
        )
        return len(rows) + sum(_count_values(pa, inner, nans) for inner in fields)
    if _is_list(pa, rows.type):
        return len(rows) + _count_values(pa, flattened(rows), nans)
    if pa.types.is_dictionary(rows.type):
        return len(rows) + _decoded_bytes(pa, rows) // _VALUE_BYTES
    if pa.types.is_floating(rows.type):
        values = numbers(rows)[present(rows)]
        nans.append(bool(np.isnan(values).any()))
        if np.isinf(values).any():
            msg = "records with a number that is infinite"
            raise FormatError(msg)
    return len(rows)


def _is_uniform(pa: Any, rows: Any, sizes: tuple[int, ...], stored: int) -> bool:
    """Return whether lists have these sizes, level by level; nulls are left to the reader."""
    for size in sizes:
        rows = _dense(pa, rows, stored) if pa.types.is_dictionary(rows.type) else rows
        lengths = list_lengths(rows)[present(rows)]
        if bool((lengths != size).any()):
            return False
        rows = flattened(rows)
    return True


def _numbers(pa: Any, rows: Any) -> Array:
    if not pa.types.is_temporal(rows.type):
        return plain(numbers(rows))
    # An interval of months, days and nanoseconds has no single count: Arrow refuses it.
    counts = rows.cast(pa.int64()) if rows.type.bit_width > 64 else rows
    return numbers(counts).astype("<i8", copy=False)
