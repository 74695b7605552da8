"""Arrow IPC: Feather files and the streams of Hugging Face datasets; columns as in Parquet.

The messages are found and measured here before Arrow reads them: the length of each, its number of
rows, and the unpacked size of its buffers. An Arrow file is a stream between two marks, and is read
as that stream. Loaders read by its footer, which must name the same batches and columns.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from datacheck.errors import FormatError
from datacheck.formats.arrow_columns import ArrowColumns, ByteCounter
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import check_bytes, check_expansion, wrap_errors
from datacheck.model.sample import Container
from datacheck.runtime.beneath import AnyPath, stamp_of

_MAGIC = b"ARROW1"
_FIRST_FEATHER = b"FEA1"
_NEXT = b"\xff\xff\xff\xff"
_PADDING = 64  # bytes: Arrow aligns to this many, so fewer zeros at the end are padding
_HEAD_BYTES = 64 << 20  # of one message's metadata
_MOST_ROWS = 1 << 36
_SCHEMA = 1
_DICTIONARY = 2
_BATCH = 3

_Block = tuple[int, int, int]  # byte offsets: start of the message, start of its body, end


@cache
def _libraries() -> tuple[Any, Any]:
    import pyarrow as pa  # noqa: PLC0415  0.1 s, for files of this format only
    from pyarrow import ipc  # noqa: PLC0415

    return pa, ipc


class _FlatbufferTable:
    """A table of FlatBuffers: finds its fields.

    Raises:
        FormatError: a field lies outside the bytes.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self.number("<i", at)

    def number(self, form: str, at: int) -> int:
        if at < 0 or at + struct.calcsize(form) > len(self._data):
            msg = "the description of a message points outside itself"
            raise FormatError(msg)
        return int(struct.unpack_from(form, self._data, at)[0])

    def place(self, field: int) -> int:
        """Return the offset of a field, 0 where it is absent."""
        slot = 4 + 2 * field
        step = (
            self.number("<H", self._fields + slot) if slot < self.number("<H", self._fields) else 0
        )
        return self._at + step if step else 0

    def value(self, field: int, form: str) -> int:
        offset = self.place(field)
        return self.number(form, offset) if offset else 0

    def table(self, field: int) -> _FlatbufferTable:
        offset = self.place(field)
        return _FlatbufferTable(self._data, offset + self.number("<I", offset))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Yield the pairs of 64-bit integers in a list."""
        for offset in self._structures(field, 16):
            yield self.number("<q", offset), self.number("<q", offset + 8)

    def blocks(self, field: int) -> list[_Block]:
        """Return the offsets of the messages that a footer lists."""
        return [
            (
                begin := self.number("<q", offset),
                body := begin + self.number("<i", offset + 8),
                body + self.number("<q", offset + 16),
            )
            for offset in self._structures(field, 24)
        ]

    def _structures(self, field: int, size: int) -> Iterable[int]:
        offset = self.place(field)
        offset += self.number("<I", offset) if offset else 0
        return (
            range(offset + 4, offset + 4 + size * self.number("<I", offset), size) if offset else ()
        )


class _Message(NamedTuple):
    kind: int
    rows: int
    body: int
    end: int


def _message(data: Any, position: int, name: str) -> _Message | None:
    """Return the message at byte `position`, None at the end of the stream.

    Raises:
        FormatError: it is cut short, or damaged.
    """
    word = bytes(data[position : position + 8])
    start = position + (8 if word[:4] == _NEXT else 4)  # Arrow before 0.15 wrote no mark
    size = int.from_bytes(word[4:] if word[:4] == _NEXT else word[:4], "little", signed=True)
    if not word or (size == 0 and len(word) >= start - position):
        return None
    body = start + size
    if size < 8 or len(word) < 8 or body > len(data):
        msg = (
            f"{name} at byte {position:,}: a description of {size:,} bytes, "
            f"{max(0, len(data) - start):,} are left"
        )
        raise FormatError(msg)
    check_bytes(size, f"{name}: its description", _HEAD_BYTES)
    head = bytes(data[start:body])
    root = _FlatbufferTable(head, int.from_bytes(head[:4], "little"))
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
        rows = batch.value(0, "<q")
        packed = bool(batch.place(3))
        unpacked_bytes = 0
        for offset, taken in batch.pairs(2):
            if offset < 0 or taken < 0 or offset + taken > length:
                msg = (
                    f"{name} at byte {position:,}: a buffer of {taken:,} bytes from byte {offset:,}, "
                    f"of {length:,}"
                )
                raise FormatError(msg)
            unpacked = int.from_bytes(
                bytes(data[body + offset : body + offset + 8]), "little", signed=True
            )
            unpacked_bytes += max(taken, unpacked) if packed and taken >= 8 else taken
        check_expansion(unpacked_bytes, len(data), name)
        if not 0 <= rows < _MOST_ROWS:
            msg = f"{name} at byte {position:,} has {rows:,} rows"
            raise FormatError(msg)
    return _Message(kind, rows, body, body + length)


def _check_footer(data: Any, end: int, blocks: Mapping[int, list[_Block]]) -> None:
    """Check the footer against the messages of the file: loaders read by the footer.

    Args:
        data: bytes of the file.
        end: end of its messages.
        blocks: offsets of the messages of each kind.

    Raises:
        FormatError: the footer names other messages.
    """
    size = int.from_bytes(bytes(data[-10:-6]), "little", signed=True)
    if not 8 <= size <= len(data) - 10 - end:
        msg = f"a footer of {size:,} bytes, {len(data) - 10 - end:,} are left: the file is damaged"
        raise FormatError(msg)
    check_bytes(size, "the footer", _HEAD_BYTES)
    foot = bytes(data[len(data) - 10 - size : len(data) - 10])
    root = _FlatbufferTable(foot, int.from_bytes(foot[:4], "little"))
    for kind, field, what in ((_DICTIONARY, 2, "dictionaries"), (_BATCH, 3, "record batches")):
        named = root.blocks(field)
        actual = blocks[kind]
        if len(named) != len(actual):
            msg = (
                f"its footer names {len(named):,} {what}, {len(actual):,} are there: readers "
                f"differ in what it holds"
            )
            raise FormatError(msg)
        if (sorted(named) if kind == _DICTIONARY else named) != actual:
            msg = (
                f"its footer names other places than those of the {what}: readers differ in what "
                f"it holds"
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
    mark = 8 if word[:4] == _NEXT else 4  # Arrow before 0.15 wrote four zeros
    rest = len(data) - end - mark
    if rest >= _PADDING or any(bytes(data[end + mark :][:_PADDING])):
        msg = (
            f"{rest:,} bytes follow the end mark of the stream at byte {end:,}: no reader sees "
            f"them; rows are lost where the file was overwritten, or never written to its end"
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
            start = 8 if bytes(data[:6]) == _MAGIC else 0
            if bytes(data[:4]) == _FIRST_FEATHER:
                msg = "Feather of version 1: write it again, as version 2"
                raise FormatError(msg)
            if start and (len(data) < 18 or bytes(data[-6:]) != _MAGIC):
                msg = (
                    f"it ends with {bytes(data[-6:])!r}, not with {_MAGIC!r}: the file is cut "
                    f"short, or not finished"
                )
                raise FormatError(msg)
            groups = list[int]()
            position = start
            number = 0
            blocks: dict[int, list[_Block]] = {_DICTIONARY: [], _BATCH: []}
            while (
                message := _message(
                    data, position, f"message {number:,}" if number else "the schema"
                )
            ) is not None:
                if (message.kind == _SCHEMA) != (number == 0):
                    msg = "not a file of Arrow: it does not begin with a schema, or has several"
                    raise FormatError(msg)
                groups += [message.rows] * (message.kind == _BATCH)
                blocks.setdefault(message.kind, []).append((position, message.body, message.end))
                position, number = message.end, number + 1
            if not number:
                msg = "not a file of Arrow: no schema"
                raise FormatError(msg)
            self._stream = mapped.slice(start, position - start)
            if not start:
                _check_stream_end(data, position)
            schema = self._ipc.open_stream(pa.BufferReader(self._stream)).schema
            if start:
                _check_footer(data, position, blocks)
                if self._ipc.open_file(pa.BufferReader(mapped)).schema != schema:
                    msg = (
                        "its footer declares other columns than its first message: readers "
                        "differ in what it holds"
                    )
                    raise FormatError(msg)
            super().__init__(pa, schema, groups, status.st_size, (status.st_dev, *stamp_of(status)))

    def _batches(self, name: str, groups: Iterable[int]) -> Iterator[Any]:
        wanted = sorted(groups)
        counted = ByteCounter(self._pa)
        column_index = list(self._types).index(name)
        options = self._ipc.IpcReadOptions(included_fields=[column_index], use_threads=False)
        reader = self._ipc.open_stream(self._pa.BufferReader(self._stream), options=options)
        for number in range(wanted[-1] + 1 if wanted else 0):
            column = reader.read_next_batch().column(0)
            if number >= wanted[0]:
                column.validate(full=True)  # without it, Arrow trusts the list offsets of the file
                check_expansion(counted.add(column), self._nbytes, name)
                yield column


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _Arrow(path)


ARROW = Format("arrow", (".arrow", ".feather"), _open, magic=(_MAGIC,), points=True)
