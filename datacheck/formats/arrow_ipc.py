"""Arrow IPC: Feather files and the streams of Hugging Face datasets; columns as in Parquet.

The messages are found and measured here before Arrow reads them: the length of each, its number of
rows, and the unpacked size of its buffers. An Arrow file is a stream between two marks, and is read
as that stream. Loaders read by its footer, which must name the same batches and columns.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.arrow_columns import ArrowColumns, ByteCounter
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import check_bytes, check_expansion, wrap_errors
from datacheck.model.sample import Container
from datacheck.runtime.beneath import AnyPath, stamp_of

_MAGIC = b"ARROW1"
_FIRST_FEATHER = b"FEA1"
_CONTINUATION = b"\xff\xff\xff\xff"  # begins each message; Arrow before 0.15 wrote none
_END_MARK = 8  # bytes
_FILE_START = 8  # of the messages of a file, behind its mark
_BARE_SCHEMA = 4  # begins a schema that is no message: no message is so small
_FOOTER_DICTIONARIES, _FOOTER_BATCHES = 2, 3  # fields of the footer
_PADDING = 64  # bytes: Arrow aligns to this many, so fewer zeros at the end are padding
_HEAD_BYTES = 64 << 20  # of one message's metadata
_MOST_ROWS = 1 << 36
# Kinds of messages.
_SCHEMA = 1
_DICTIONARY = 2
_BATCH = 3


@cache
def _libraries() -> tuple[Any, Any]:
    import pyarrow as pa  # noqa: PLC0415  0.1 s, for files of this format only
    from pyarrow import ipc  # noqa: PLC0415

    return pa, ipc


@dataclass(frozen=True, order=True, slots=True)
class _Place:
    """Where a message lies: offsets of its start, of its body and of its end [bytes]."""

    start: int
    body: int
    end: int


@dataclass(frozen=True, slots=True)
class _Message:
    """A message of a stream.

    Args:
        kind: `_SCHEMA`, `_DICTIONARY`, `_BATCH` or another.
        rows: of a dictionary or batch; 0 for others.
        place: where it lies.
    """

    kind: int
    rows: int
    place: _Place


class _FlatbufferTable:
    """A table of FlatBuffers: finds its fields, which are numbered from 0.

    Args:
        data: the bytes that hold the table.
        at: the offset of the table.

    Raises:
        FormatError: a field lies outside the bytes.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - self._number("<i", at)

    @classmethod
    def root(cls, data: bytes) -> _FlatbufferTable:
        return cls(data, int.from_bytes(data[:4], "little"))

    def _number(self, form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > len(self._data):
            msg = "the description of a message points outside itself"
            raise FormatError(msg)
        return int(struct.unpack_from(form, self._data, at)[0])

    def offset(self, field: int) -> int:
        """Return the offset of a field, 0 where it is absent."""
        slot = 4 + 2 * field
        if slot >= self._number("<H", self._fields):
            return 0
        distance = self._number("<H", self._fields + slot)
        return self._at + distance if distance else 0

    def value(self, field: int, form: str) -> int:
        """Return a number, 0 where it is absent."""
        offset = self.offset(field)
        return self._number(form, offset) if offset else 0

    def table(self, field: int) -> _FlatbufferTable:
        offset = self.offset(field)
        return _FlatbufferTable(self._data, offset + self._number("<I", offset))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of 64-bit integers in a list."""
        for offset in self._structures(field, 16):
            yield self._number("<q", offset), self._number("<q", offset + 8)

    def places(self, field: int) -> Iterator[_Place]:
        """Yield the places of the messages that a footer lists."""
        for offset in self._structures(field, 24):
            start = self._number("<q", offset)
            body = start + self._number("<i", offset + 8)
            yield _Place(start, body, body + self._number("<q", offset + 16))

    def _structures(self, field: int, size: int) -> Sequence[int]:
        """Return the offsets of the structures of `size` bytes in a list."""
        offset = self.offset(field)
        if not offset:
            return ()
        vector = offset + self._number("<I", offset)
        first = vector + 4
        return range(first, first + size * self._number("<I", vector), size)


def _read_messages(
    data: memoryview, start: int, behind_schema: range | None = None
) -> Iterator[_Message]:
    """Yield the messages of a stream that begins at byte `start`; the first is its schema.

    Args:
        data: bytes of the file.
        start: where the stream begins.
        behind_schema: see `_bare_schema`.

    Raises:
        FormatError: a message is damaged or cut short, or the stream has no schema, or several.
    """
    position = start
    number = 0
    if behind_schema is not None:
        position, number = behind_schema.start, 1
        data = data[: behind_schema.stop]
        yield _Message(_SCHEMA, 0, _Place(start, position, position))
    while True:
        message = _read_message(data, position, f"message {number:,}" if number else "the schema")
        if message is None:
            break
        if (message.kind == _SCHEMA) != (number == 0):
            msg = "not a file of Arrow: it does not begin with a schema, or has several"
            raise FormatError(msg)
        yield message
        position = message.place.end
        number += 1
    if not number:
        msg = "not a file of Arrow: no schema"
        raise FormatError(msg)


def _bare_schema(data: memoryview) -> range | None:
    """Return where the messages of a file lie if its first schema is none; None if it is one.

    Notes:
        Polars 2 writes it without the size that begins a message. Readers of files take the schema
        of the footer.

    Raises:
        FormatError: between the mark and the first message lies more than a schema.
    """
    size = int.from_bytes(bytes(data[_FILE_START : _FILE_START + 4]), "little")
    if size != _BARE_SCHEMA:
        return None
    footer, footer_start = _read_footer(data, _FILE_START)
    places = (*footer.places(_FOOTER_DICTIONARIES), *footer.places(_FOOTER_BATCHES))
    end = min((place.start for place in places), default=footer_start)
    # The footer holds the schema, too.
    if not 0 < end - _FILE_START <= len(data) - footer_start:
        msg = (
            f"{end - _FILE_START:,} bytes before its first message, more "
            f"than the {len(data) - footer_start:,} of its footer: readers skip them"
        )
        raise FormatError(msg)
    return range(end, footer_start)


def _read_footer(data: memoryview, messages_end: int) -> tuple[_FlatbufferTable, int]:
    """Return the footer of a file and its offset.

    Args:
        data: bytes of the file.
        messages_end: offset from which on it may lie.

    Raises:
        FormatError: its size is wrong.
    """
    stop = len(data) - 10  # the size of the footer and the mark follow it
    size = int.from_bytes(bytes(data[stop : stop + 4]), "little", signed=True)
    left = stop - messages_end
    if not 8 <= size <= left:
        msg = f"a footer of {size:,} bytes, {left:,} are left: the file is damaged"
        raise FormatError(msg)
    check_bytes(size, "the footer", _HEAD_BYTES)
    return _FlatbufferTable.root(bytes(data[stop - size : stop])), stop - size


def _read_message(data: memoryview, position: int, name: str) -> _Message | None:
    """Return the message at byte `position`, None at the end of the stream.

    Raises:
        FormatError: it is cut short, or damaged.
    """
    prefix = bytes(data[position : position + 8])
    has_mark = prefix[:4] == _CONTINUATION
    size_bytes = prefix[4:] if has_mark else prefix[:4]
    size = int.from_bytes(size_bytes, "little", signed=True)
    if not prefix or (size == 0 and len(size_bytes) == 4):
        return None
    start = position + (8 if has_mark else 4)
    body = start + size
    if size < 8 or len(prefix) < 8 or body > len(data):
        msg = (
            f"{name} at byte {position:,}: a description of {size:,} bytes, "
            f"{max(0, len(data) - start):,} are left"
        )
        raise FormatError(msg)
    check_bytes(size, f"{name}: its description", _HEAD_BYTES)
    root = _FlatbufferTable.root(bytes(data[start:body]))
    kind = root.value(1, "<B")
    length = root.value(3, "<q")
    if length < 0 or body + length > len(data):
        msg = (
            f"{name} at byte {position:,} has {length:,} bytes, {len(data) - body:,} are left: the "
            f"file is cut short"
        )
        raise FormatError(msg)
    rows = 0
    if kind in {_DICTIONARY, _BATCH}:
        batch = root.table(2) if kind == _BATCH else root.table(2).table(1)
        place_name = f"{name} at byte {position:,}"
        unpacked = _unpacked_bytes(batch, data[body : body + length], place_name)
        check_expansion(unpacked, len(data), name)
        rows = batch.value(0, "<q")
        if not 0 <= rows < _MOST_ROWS:
            msg = f"{place_name} has {rows:,} rows"
            raise FormatError(msg)
    return _Message(kind, rows, _Place(position, body, body + length))


def _unpacked_bytes(batch: _FlatbufferTable, body: memoryview, name: str) -> int:
    """Return the bytes of the buffers of a batch once they are unpacked.

    Raises:
        FormatError: a buffer lies outside the body of the message.
    """
    is_packed = bool(batch.offset(3))
    total = 0
    for offset, stored in batch.pairs(2):
        if offset < 0 or stored < 0 or offset + stored > len(body):
            msg = f"{name}: a buffer of {stored:,} bytes from byte {offset:,}, of {len(body):,}"
            raise FormatError(msg)
        size = stored
        if is_packed and stored >= 8:
            # A packed buffer begins with its unpacked size; -1 stands for one that is not packed.
            declared = int.from_bytes(bytes(body[offset : offset + 8]), "little", signed=True)
            size = max(stored, declared)
        total += size
    return total


def _check_footer(data: memoryview, messages: Sequence[_Message]) -> None:
    """Check the footer against the messages of the file: loaders read by the footer.

    Args:
        data: bytes of the file.
        messages: its messages.

    Raises:
        FormatError: the footer names other messages.
    """
    messages_end = messages[-1].place.end
    footer, footer_start = _read_footer(data, messages_end)
    _check_before_footer(data[messages_end:footer_start], messages_end)
    for kind, field, what in (
        (_DICTIONARY, _FOOTER_DICTIONARIES, "dictionaries"),
        (_BATCH, _FOOTER_BATCHES, "record batches"),
    ):
        listed = list(footer.places(field))
        if kind == _DICTIONARY:  # a footer may list them in any order
            listed.sort()
        actual = [message.place for message in messages if message.kind == kind]
        if len(listed) != len(actual):
            msg = (
                f"its footer names {len(listed):,} {what}, {len(actual):,} are there: readers "
                f"differ in what it holds"
            )
            raise FormatError(msg)
        if listed != actual:
            msg = (
                f"its footer names other places than those of the {what}: readers differ in what "
                f"it holds"
            )
            raise FormatError(msg)


def _check_before_footer(gap: memoryview, start: int) -> None:
    """Check that only the end mark and padding lie between the last message and the footer.

    Raises:
        FormatError: more bytes lie there, and not all of them are zero.
    """
    if len(gap) >= _END_MARK + _PADDING and np.frombuffer(gap[_END_MARK:], np.uint8).any():
        msg = (
            f"{len(gap):,} bytes at byte {start:,}, between the last message and the footer, belong "
            f"to no message, so readers skip them: two files joined, or a part lost. Read each "
            f"file by itself, or write the file again"
        )
        raise FormatError(msg)


def _check_stream_end(data: Any, end: int) -> None:
    """Check that a stream ends with its end mark: a writer that finished has written one.

    Args:
        data: bytes of the file.
        end: end of its messages.

    Raises:
        FormatError: the end mark is missing, or bytes follow it.
    """
    word = bytes(data[end : end + 8])
    if not word:
        msg = "a stream without an end mark: its writer did not finish, or the file is cut short"
        raise FormatError(msg)
    mark = 8 if word[:4] == _CONTINUATION else 4  # Arrow before 0.15 wrote four zeros
    rest = len(data) - end - mark
    if rest >= _PADDING or any(bytes(data[end + mark :][:_PADDING])):
        msg = (
            f"{rest:,} bytes follow the end mark of the stream at byte {end:,}: readers stop at the "
            f"mark and leave them unread"
        )
        raise FormatError(msg)


class _Arrow(ArrowColumns):
    """An open Arrow file or stream."""

    def __init__(self, path: AnyPath) -> None:
        pa, self._ipc = _libraries()
        status = path.stat()
        with wrap_errors("damaged Arrow file"):
            mapped = pa.memory_map(os.fspath(path)).read_buffer()
            data = memoryview(mapped)
            start = _stream_start(data)
            behind_schema = _bare_schema(data) if start else None
            messages = list(_read_messages(data, start, behind_schema))
            stop = messages[-1].place.end
            self._file = None if behind_schema is None else mapped
            self._stream = mapped.slice(start, stop - start)
            if not start:
                _check_stream_end(data, stop)
            else:
                _check_footer(data, messages)
            if behind_schema is not None:
                schema = self._ipc.open_file(pa.BufferReader(mapped)).schema
            else:
                schema = self._ipc.open_stream(pa.BufferReader(self._stream)).schema
                if start and self._ipc.open_file(pa.BufferReader(mapped)).schema != schema:
                    msg = (
                        "its footer declares other columns than its first message: readers "
                        "differ in what it holds"
                    )
                    raise FormatError(msg)
            self._stored_types = {field.name: field.type for field in schema}
            schema = pa.schema([f.with_type(_without_views(pa, f.type)) for f in schema])
            group_rows = [message.rows for message in messages if message.kind == _BATCH]
            stamp = (status.st_dev, *stamp_of(status))
            super().__init__(pa, schema, group_rows, status.st_size, stamp)

    def _batches(self, name: str, groups: Iterable[int]) -> Iterator[Any]:
        wanted = sorted(groups)
        counted = ByteCounter(self._pa)
        column_index = list(self._types).index(name)
        options = self._ipc.IpcReadOptions(included_fields=[column_index], use_threads=False)
        for number, batch in self._read_batches(wanted, options):
            if number >= wanted[0]:
                column = batch.column(0)
                column.validate(full=True)  # without it, Arrow trusts the list offsets of the file
                check_expansion(counted.add(column), self._nbytes, name)
                if self._stored_types[name] != self._types[name]:
                    check_expansion(_viewed_bytes(self._pa, column), self._nbytes, name)
                    column = column.cast(self._types[name])
                yield column

    def _read_batches(self, wanted: Sequence[int], options: Any) -> Iterator[tuple[int, Any]]:
        """Yield the batches up to the last wanted one, with their numbers."""
        numbers = range(wanted[-1] + 1 if wanted else 0)
        if self._file is not None:  # no stream: its schema is no message
            file = self._ipc.open_file(self._pa.BufferReader(self._file), options=options)
            yield from ((number, file.get_batch(number)) for number in wanted)
            return
        stream = self._ipc.open_stream(self._pa.BufferReader(self._stream), options=options)
        yield from ((number, stream.read_next_batch()) for number in numbers)


def _without_views(pa: Any, kind: Any) -> Any:
    """Return a type with plain texts in place of views of texts, which Polars writes."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _without_views(pa, kind.value_type), kind.ordered)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(pa, kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(_without_views(pa, kind.value_type)))
    if pa.types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(_without_views(pa, kind.value_type))
        return pa.list_(item, kind.list_size)
    return kind


def _viewed_bytes(pa: Any, column: Any) -> int:
    """Return the bytes of the texts that views name: many views may name the same bytes."""
    if pa.types.is_dictionary(column.type):
        return _viewed_bytes(pa, column.dictionary)
    if pa.types.is_nested(column.type):
        return _viewed_bytes(pa, column.values)
    if not pa.types.is_string_view(column.type):
        return 0
    views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)  # the first is the length
    lengths = views[column.offset : column.offset + len(column), 0]
    return int(np.maximum(lengths, 0).sum(dtype=np.int64))


def _stream_start(data: memoryview) -> int:
    """Return where the stream of messages begins: in a file behind its mark, else at byte 0.

    Raises:
        FormatError: a file without its mark at the end, or of Feather version 1.
    """
    if bytes(data[:4]) == _FIRST_FEATHER:
        msg = "Feather of version 1: write it again, as version 2"
        raise FormatError(msg)
    if bytes(data[:6]) != _MAGIC:
        return 0
    end = bytes(data[-6:])
    if len(data) < 18 or end != _MAGIC:
        msg = f"it ends with {end!r}, not with {_MAGIC!r}: the file is cut short, or not finished"
        raise FormatError(msg)
    return _FILE_START


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _Arrow(path)


ARROW = Format("arrow", (".arrow", ".feather"), _open, magic=(_MAGIC,), points=True)
