"""Robot recordings, MCAP and ROS 1 bags: the numbers of each topic, over the topic's own messages.

The topic ``/joint_states`` gives ``joint_states/position`` (messages, N),
``joint_states/header/stamp`` [s], ``joint_states/log_time`` [s], for MCAP
``joint_states/publish_time`` [s], and ``joint_states/size`` [bytes]. Lists whose length differs
between messages are one flat array, with ``.lengths``; of lists of bytes only the length is kept,
as ``.size``. Messages are sorted by log time. A topic whose messages are not read keeps times and
sizes; `passed` says why.

The file is read once, record by record, with one chunk in memory, so that a recording without its
index is recognized.
"""

from __future__ import annotations

import bz2
import io
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import IO, Any

import numpy as np
import orjson

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    DEPTH,
    FIELDS,
    Values,
    add_values,
    check_bytes,
    check_expansion,
    wrap_errors,
)
from datacheck.formats.ros_messages import Decoder, Leaf
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_MAGIC = b"\x89MCAP0\r\n"
_ROS1_MAGIC = b"#ROSBAG V2.0\n"
_RECORD_BYTES = 1 << 30
_KEPT_BYTES = 1 << 30  # of all numbers of a file
_TOPICS = 4096
_PIECE = 1 << 20
_HEADER, _FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK = range(1, 7)
_CHUNK_INDEX, _ATTACHMENT, _STATISTICS, _DATA_END = 8, 9, 11, 15


class _CutError(FormatError):
    """The file ends inside a record, or before its end mark."""


def _seconds(value: dict[str, Any]) -> float | None:
    """Return the seconds of a time in two parts, None for another object."""
    for fine in ("nsec", "nanosec"):
        if value.keys() == {"sec", fine} and all(type(part) is int for part in value.values()):
            return float(value["sec"] + value[fine] * 1e-9)
    return None


def _number(value: Any) -> float | None:
    """Return a number, or the seconds of a time; None for another value."""
    if isinstance(value, int | float):
        return float(value)
    return _seconds(value) if isinstance(value, dict) else None


def _children(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        yield from ((name, one) for one in value)
    elif isinstance(value, dict):
        yield from ((f"{name}/{key}" if name else key, one) for key, one in value.items())


@dataclass(eq=False)
class _Json:
    """The numbers of JSON messages."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    _texts: dict[str, None] = field(default_factory=dict)
    _messages: int = 0

    @property
    def passed(self) -> list[str]:
        """The names of texts."""
        return list(self._texts)

    def add(self, data: bytes) -> None:
        found: dict[str, list[float]] = {}
        self._collect(orjson.loads(data), "", found, 0)
        for name in found.keys() - self.leaves.keys():
            self.leaves[name] = Leaf(np.dtype("<f8"), (), is_list=True)
            self.leaves[name].counts += [0] * self._messages
        if max(len(self.leaves), len(self._texts)) > FIELDS:
            msg = f"more than {FIELDS:,} fields"
            raise FormatError(msg)
        for name, leaf in self.leaves.items():
            numbers = found.get(name, [])
            leaf.data += np.asarray(numbers, "<f8").tobytes()
            leaf.counts.append(len(numbers))
        self._messages += 1

    def _collect(self, value: Any, name: str, found: dict[str, list[float]], depth: int) -> None:
        if depth > DEPTH:
            msg = f"values more than {DEPTH} levels deep"
            raise FormatError(msg)
        number = _number(value)
        if number is not None:
            found.setdefault(name or "value", []).append(number)
        elif isinstance(value, str):
            self._texts[name or "value"] = None
        else:
            for inner, one in _children(value, name):
                self._collect(one, inner, found, depth + 1)

    def finish(self) -> None:
        """Give a field with one number in each message no axis of its own."""
        for leaf in self.leaves.values():
            if set(leaf.counts) == {1}:
                leaf.is_list = False


@dataclass(eq=False)
class _Topic:
    name: str
    decoder: Decoder | _Json | None
    reason: str = ""
    log_times: list[int] = field(default_factory=list)
    publish_times: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    fault: FormatError | None = None

    def add(self, log_time: int, publish_time: int | None, data: bytes) -> None:
        self.log_times.append(log_time)
        if publish_time is not None:
            self.publish_times.append(publish_time)
        self.sizes.append(len(data))
        if self.decoder is None or self.fault is not None:
            return
        try:
            with wrap_errors(f"message {len(self.sizes):,} of {self.name}"):
                self.decoder.add(data)
        except FormatError as error:
            self.fault = FormatError(f"{self.name}, message {len(self.sizes):,}: {error}")

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield the values by their names within the topic."""
        logged = np.asarray(self.log_times, np.uint64)
        order = np.argsort(logged, kind="stable")
        leaves: dict[str, Leaf] = {} if self.decoder is None else self.decoder.leaves
        if isinstance(self.decoder, _Json):
            self.decoder.finish()
        own: dict[str, Any] = {"log_time": logged[order] / 1e9}
        if self.publish_times:
            own["publish_time"] = np.asarray(self.publish_times, np.uint64)[order] / 1e9
        own["size"] = np.asarray(self.sizes, np.int64)[order]
        for name, value in own.items():
            if name not in leaves:
                yield name, value
        if self.fault is not None and not leaves:  # no field carries the fault
            yield "value", self.fault
        yield from self._messages(order, leaves)

    def _messages(self, order: Array, leaves: dict[str, Leaf]) -> Iterator[tuple[str, Any]]:
        for name, leaf in leaves.items():
            if self.fault is not None:
                yield name, self.fault
                continue
            if not leaf.data:  # a list that no message fills: efforts that a robot does not measure
                continue
            values, counts = leaf.values(order)
            yield name, values
            if counts is not None:
                yield f"{name}.lengths", counts


class Recording:
    """The topics of a file, by the number of their channel."""

    def __init__(self) -> None:
        self.topics: dict[Any, _Topic] = {}
        self._channels: dict[int, tuple[Any, _Topic]] = {}
        self._same = Counter[str]()  # topics by name
        self.messages = 0
        self.attachments = 0

    def declare(
        self, channel: int, topic: str, encoding: str, schema: tuple[str, str, str]
    ) -> None:
        """Note a channel.

        Args:
            channel: its number.
            topic: its topic.
            encoding: of the messages.
            schema: name, encoding and text of the definition.
        """
        key = (topic, encoding, schema)
        known = self._channels.get(channel)
        if known is not None and known[0] != key:
            msg = (
                f"two different channels have the number {channel} ({known[1].name}, {topic[:200]})"
            )
            raise FormatError(msg)
        if key not in self.topics:
            if len(self.topics) >= _TOPICS:
                msg = f"more than {_TOPICS:,} topics"
                raise FormatError(msg)
            name = topic.strip("/") or "messages"
            self._same[name] += 1
            same = self._same[name]
            self.topics[key] = _topic(f"{name}.{same}" if same > 1 else name, encoding, schema)
        self._channels[channel] = (key, self.topics[key])

    def add(self, channel: int, log_time: int, publish_time: int | None, data: bytes) -> None:
        """Note a message; times in nanoseconds."""
        if channel not in self._channels:
            msg = f"a message of channel {channel}, which is not declared before it"
            raise FormatError(msg)
        topic = self._channels[channel][1]
        topic.add(log_time, publish_time, data)
        self.messages += 1
        if self.messages % 4096 == 0:
            self.check()

    def check(self) -> None:
        """Refuse more numbers than are held at once."""
        kept = sum(
            len(leaf.data) + 8 * len(leaf.counts)
            for topic in self.topics.values()
            if topic.decoder is not None
            for leaf in topic.decoder.leaves.values()
        )
        check_bytes(kept + 24 * self.messages, "the numbers of all messages", _KEPT_BYTES)

    def container(self) -> Values:
        """Return the values of all topics that have messages."""
        values: dict[str, Any] = {}
        self.check()
        for topic in self.topics.values():
            if topic.sizes:
                found: dict[str, Any] = {}
                add_values(found, topic.values())
                topic.name = _free_name(topic.name, found, values)
                values |= {f"{topic.name}/{name}": value for name, value in found.items()}
        container = Values(values)
        container.passed = sorted(self._passed())
        if self.attachments:
            container.passed.append(f"attachments ({self.attachments:,})")
        container.opaque = any(".size" in name for name in values)
        return container

    def _passed(self) -> Iterator[str]:
        for topic in self.topics.values():
            if topic.decoder is None:
                yield f"{topic.name} ({topic.reason})"
            else:
                yield from (f"{topic.name}/{name}" for name in topic.decoder.passed)
                yield from (
                    f"{topic.name}/{name} (empty in each message)"
                    for name, leaf in topic.decoder.leaves.items()
                    if topic.sizes and not leaf.data and topic.fault is None
                )


def _free_name(name: str, found: Collection[str], taken: Collection[str]) -> str:
    """Return the name of a topic, with a number where another topic's values have these names.

    A topic ``/a`` with the field ``b/size`` gives a name that a topic ``/a/b`` gives, too.
    """
    free = name
    for number in count(2):
        if not any(f"{free}/{one}" in taken for one in found):
            return free
        free = f"{name}.{number}"
    raise AssertionError


def _topic(name: str, encoding: str, schema: tuple[str, str, str]) -> _Topic:
    kind, schema_encoding, text = schema
    if encoding == "json":
        return _Topic(name, _Json())
    wanted = {"cdr": "ros2msg", "ros1": "ros1msg"}.get(encoding)
    reason = ""
    if wanted is None:
        reason = f"messages in {encoding[:40] or 'no encoding'}: not read"
    elif not schema_encoding:
        reason = f"the definition of {kind[:200]} is not in the file"
    elif kind.endswith("_Event") and "\n---" in text:
        reason = "the calls of a service: not read"
    elif schema_encoding != wanted:
        reason = f"definition in {schema_encoding[:40]}, {wanted} is read"
    if reason:
        return _Topic(name, None, reason)
    try:
        return _Topic(name, Decoder(kind, text, cdr=encoding == "cdr"))
    except FormatError as error:
        return _Topic(name, None, str(error))


def _unpacked(data: bytes, compression: str, size: int, what: str) -> bytes:
    """Return the bytes of a chunk; never more than it declares."""
    check_bytes(size, what, _RECORD_BYTES)
    check_expansion(size, len(data), what)
    if compression in {"", "none"}:
        found = data
    elif compression == "bz2":
        found = bz2.BZ2Decompressor().decompress(data, size + 1)
    elif compression in {"lz4", "zstd"}:
        import pyarrow as pa  # noqa: PLC0415  0.2 s, for compressed recordings only

        with wrap_errors(what):
            found = pa.decompress(data, size, compression, asbytes=True) if size else b""
    else:
        msg = f"{what}: compression {compression[:40]!r}; none, lz4, zstd and bz2 are read"
        raise FormatError(msg)
    if len(found) != size:
        msg = f"{what}: {size:,} bytes are declared, {len(found):,} found"
        raise FormatError(msg)
    return found


# ----------------------------------------------------------------------------------------- MCAP


def _text(data: bytes, place: int) -> tuple[str, int]:
    (size,) = struct.unpack_from("<I", data, place)
    end = place + 4 + size
    if end > len(data):
        msg = f"a text of {size:,} bytes in a record of {len(data):,}"
        raise FormatError(msg)
    return data[place + 4 : end].decode("utf-8", "replace"), end


class _Mcap:
    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size = file, size
        self.recording = Recording()
        self._schemas: dict[int, tuple[str, str, str]] = {0: ("", "", "")}
        self._chunks: set[int] = set()
        self._ended = False
        self._crc = 0

    def read(self) -> None:
        if self._file.read(len(_MAGIC)) != _MAGIC:
            msg = "not an MCAP file: it does not start with MCAP's mark"
            raise FormatError(msg)
        self._crc = zlib.crc32(_MAGIC)
        place, opcode = len(_MAGIC), 0
        try:
            while opcode != _FOOTER:
                opcode, place = self._record(place)
            self._end()
        except _CutError as error:
            msg = (
                f"the recording was not finished (from byte {place:,} of {self._size:,}: {error}), "
                f"as when the recorder stops before it closes the file; "
                f"{self.recording.messages:,} messages in whole chunks before that can be read: mcap "
                f"recover writes them to a new file"
            )
            raise FormatError(msg) from error

    def _end(self) -> None:
        if self._file.read(len(_MAGIC)) != _MAGIC:
            msg = "no end mark"
            raise _CutError(msg)
        if rest := self._size - self._file.tell():
            msg = f"{rest:,} bytes follow the end of the recording, such as those of another one"
            raise FormatError(msg)

    def _record(self, place: int) -> tuple[int, int]:
        head = self._file.read(9)
        if len(head) < 9:
            msg = "no footer" if not head else "a record cut short"
            raise _CutError(msg)
        opcode, length = head[0], int.from_bytes(head[1:], "little")
        if length > self._size - place - 9:
            msg = f"a record of {length:,} bytes with {self._size - place - 9:,} left"
            raise _CutError(msg)
        if opcode == _DATA_END:
            data = self._file.read(length)
            (declared,) = struct.unpack_from("<I", data)
            if declared and declared != self._crc:
                msg = f"the checksum of the messages is {self._crc:08x}, {declared:08x} is stored"
                raise FormatError(msg)
            self._ended = True
            return opcode, place + 9 + length
        self._crc = self._crc if self._ended else zlib.crc32(head, self._crc)
        if opcode in {_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _CHUNK_INDEX, _STATISTICS, _FOOTER}:
            check_bytes(length, f"the record at byte {place:,}", _RECORD_BYTES)
            data = self._file.read(length)
            self._crc = self._crc if self._ended else zlib.crc32(data, self._crc)
            self._take(opcode, data, place)
        else:
            self.recording.attachments += opcode == _ATTACHMENT
            self._pass_over(length)
        return opcode, place + 9 + length

    def _pass_over(self, length: int) -> None:
        while length > 0:
            piece = self._file.read(min(length, _PIECE))
            if not piece:
                break
            self._crc = self._crc if self._ended else zlib.crc32(piece, self._crc)
            length -= len(piece)

    def _take(self, opcode: int, data: bytes, place: int) -> None:
        if opcode == _CHUNK:
            self._chunks.add(place)
            self._chunk(data, f"the chunk at byte {place:,}")
        elif opcode == _CHUNK_INDEX:
            (start,) = struct.unpack_from("<Q", data, 16)
            if start not in self._chunks:
                msg = (
                    f"the index names a chunk at byte {start:,}, where none starts: mcap recover "
                    f"writes the messages with a new index"
                )
                raise FormatError(msg)
        elif opcode == _STATISTICS:
            (count,) = struct.unpack_from("<Q", data)
            if count != self.recording.messages:
                msg = f"{count:,} messages are declared, {self.recording.messages:,} found"
                raise FormatError(msg)
        elif opcode != _FOOTER:
            self._content(opcode, data)

    def _chunk(self, data: bytes, what: str) -> None:
        size, crc = struct.unpack_from("<QI", data, 16)
        compression, place = _text(data, 28)
        (packed,) = struct.unpack_from("<Q", data, place)
        if packed != len(data) - place - 8:
            msg = f"{what}: {packed:,} bytes are declared, {len(data) - place - 8:,} stored"
            raise FormatError(msg)
        inner = _unpacked(data[place + 8 :], compression, size, what)
        if crc and zlib.crc32(inner) != crc:
            msg = f"{what}: its checksum is {zlib.crc32(inner):08x}, {crc:08x} is stored"
            raise FormatError(msg)
        place = 0
        while place < len(inner):
            opcode, length = struct.unpack_from("<BQ", inner, place)
            place += 9
            if length > len(inner) - place:
                msg = f"{what}: a record of {length:,} bytes with {len(inner) - place:,} left"
                raise FormatError(msg)
            if opcode == _CHUNK:
                msg = f"{what}: a chunk lies in it, which no reader opens"
                raise FormatError(msg)
            if opcode in {_SCHEMA, _CHANNEL, _MESSAGE}:
                self._content(opcode, inner[place : place + length])
            place += length

    def _content(self, opcode: int, data: bytes) -> None:
        if opcode == _MESSAGE:
            if self._ended:
                msg = "a message lies behind the end of the data, where no reader looks for it"
                raise FormatError(msg)
            channel, _, logged, published = struct.unpack_from("<HIQQ", data)
            self.recording.add(channel, logged, published, data[22:])
            return
        (number,) = struct.unpack_from("<H", data)
        if opcode == _SCHEMA:
            name, place = _text(data, 2)
            encoding, place = _text(data, place)
            schema = (name, encoding, _text(data, place)[0])
            if number == 0 or self._schemas.setdefault(number, schema) != schema:
                msg = f"two different definitions have the number {number}"
                raise FormatError(msg if number else "a definition has the number 0")
            return
        (schema_number,) = struct.unpack_from("<H", data, 2)
        topic, place = _text(data, 4)
        encoding, _ = _text(data, place)
        if schema_number not in self._schemas:
            msg = f"{topic[:200]}: the definition {schema_number} is not in the file before it"
            raise FormatError(msg)
        self.recording.declare(number, topic, encoding, self._schemas[schema_number])


def _open_mcap(path: AnyPath, hint: Hint) -> Values:
    del hint
    with wrap_errors("damaged MCAP file"), path.open("rb") as file:
        reader = _Mcap(file, path.stat().st_size)
        reader.read()
        return reader.recording.container()


# ---------------------------------------------------------------------------------------- ROS 1


def _ros1_records(data: IO[bytes], size: int) -> Iterator[tuple[dict[str, bytes], bytes]]:
    """Yield header and data of each record; only one is in memory."""
    while data.tell() < size:
        header = _sized(data, size)
        fields, place = {}, 0
        while place < len(header):
            (length,) = struct.unpack_from("<I", header, place)
            name, _, value = header[place + 4 : place + 4 + length].partition(b"=")
            fields[name.decode("ascii", "replace")] = value
            place += 4 + length
        yield fields, _sized(data, size)


def _sized(data: IO[bytes], size: int) -> bytes:
    length = int.from_bytes(head := data.read(4), "little")
    if len(head) < 4 or length > size - data.tell():
        msg = f"a record of {length:,} bytes with {size - data.tell():,} left"
        raise _CutError(msg)
    check_bytes(length, "a record", _RECORD_BYTES)
    return data.read(length)


def _value(fields: Mapping[str, bytes], name: str, size: int | None = None) -> bytes:
    """Return a value of a record's header, which has `size` bytes if that is given."""
    if name not in fields:
        msg = f"a record of a bag has no {name!r}"
        raise FormatError(msg)
    value = fields[name]
    if size is not None and len(value) != size:
        msg = f"the {name!r} of a record has {len(value):,} bytes, not {size}"
        raise FormatError(msg)
    return value


def _u4(fields: Mapping[str, bytes], name: str) -> int:
    return int.from_bytes(_value(fields, name, 4), "little")


class _Ros1:
    def __init__(self, size: int) -> None:
        self._size = size
        self.recording = Recording()
        self._declared: int | None = None
        self._chunks = 0

    def take(self, fields: dict[str, bytes], data: bytes) -> None:
        op = _value(fields, "op", 1)
        if op == b"\2":
            seconds, nanoseconds = struct.unpack("<II", _value(fields, "time", 8))
            self.recording.add(
                _u4(fields, "conn"), seconds * 1_000_000_000 + nanoseconds, None, data
            )
        elif op == b"\7":
            self._connection(fields, data)
        elif op == b"\5":
            self._chunk(fields, data)
        elif op == b"\3":
            self._bag_header(fields)

    def check_whole(self) -> None:
        """Refuse a bag that ends between two chunks.

        Raises:
            FormatError: it has other chunks than its header counts.
        """
        if self._declared is not None and self._chunks != self._declared:
            msg = f"{self._declared:,} chunks are declared, {self._chunks:,} found"
            raise _CutError(msg)

    def _bag_header(self, fields: Mapping[str, bytes]) -> None:
        index = int.from_bytes(_value(fields, "index_pos", 8), "little")
        if index == 0:
            msg = "the bag was not closed by its recorder and has no index: rosbag reindex mends it"
            raise FormatError(msg)
        if index > self._size:
            msg = f"its index begins at byte {index:,} of {self._size:,}"
            raise _CutError(msg)
        self._declared = _u4(fields, "chunk_count")

    def _connection(self, fields: dict[str, bytes], data: bytes) -> None:
        inner, place = dict[str, bytes](), 0
        while place < len(data):
            (length,) = struct.unpack_from("<I", data, place)
            name, _, value = data[place + 4 : place + 4 + length].partition(b"=")
            inner[name.decode("ascii", "replace")] = value
            place += 4 + length
        topic, kind, text = (
            value.decode("utf-8", "replace")
            for value in (
                _value(fields, "topic"),
                _value(inner, "type"),
                _value(inner, "message_definition"),
            )
        )
        self.recording.declare(_u4(fields, "conn"), topic, "ros1", (kind, "ros1msg", text))

    def _chunk(self, fields: dict[str, bytes], data: bytes) -> None:
        self._chunks += 1
        compression = _value(fields, "compression").decode("ascii", "replace")
        inner = _unpacked(data, compression, _u4(fields, "size"), "a chunk")
        for inner_fields, content in _ros1_records(io.BytesIO(inner), len(inner)):
            op = _value(inner_fields, "op", 1)
            if op == b"\5":
                msg = "a chunk lies in a chunk, which no reader opens"
                raise FormatError(msg)
            if op in {b"\2", b"\7"}:
                self.take(inner_fields, content)


def _open_ros1(path: AnyPath, hint: Hint) -> Values:
    del hint
    reader = _Ros1(path.stat().st_size)
    with wrap_errors("damaged ROS 1 bag"), path.open("rb") as file:
        if file.read(len(_ROS1_MAGIC)) != _ROS1_MAGIC:
            msg = "not a ROS 1 bag of version 2.0: it does not start with #ROSBAG V2.0"
            raise FormatError(msg)
        try:
            for fields, data in _ros1_records(file, path.stat().st_size):
                reader.take(fields, data)
            reader.check_whole()
        except _CutError as error:
            msg = (
                f"the bag ends early ({error}); {reader.recording.messages:,} messages before that "
                f"can be read: rosbag reindex, or copy it again"
            )
            raise FormatError(msg) from error
        return reader.recording.container()


MCAP = Format("mcap", (".mcap",), _open_mcap, magic=(_MAGIC,))
ROS1_BAG = Format("rosbag", (".bag",), _open_ros1, magic=(_ROS1_MAGIC,))
