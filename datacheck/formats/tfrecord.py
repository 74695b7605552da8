"""TFRecord files of tf.train.Example (RLDS, TensorFlow Datasets), read without TensorFlow.

Each record is a sample, with values such as ``000000000012/steps/action``. Numbers are flat lists
in the file. A ``features.json`` in the folder declares their shapes, and a ``dataset_info.json``
how many records the file has (its attribute `shardLengths`). Bytes are text if they are UTF-8.
Other bytes (pictures) are no values: they are not listed, and reading one raises an error that says
why.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import google_crc32c
import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    DEPTH,
    TEXT_BYTES,
    CountedContainer,
    check_bytes,
    check_fields,
    check_samples,
    stored,
    wrap_errors,
)
from datacheck.formats.parsed import parse_json
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath

_FEATURES = "features.json"
INFO = "dataset_info.json"
SHARD_LENGTH = "shardLengths"
_SHARD = re.compile(r".+-([^-]+)\.tfrecord-(\d{1,9})-of-(\d{1,9})", re.ASCII)
_DIGITS = 12
_HEAD = 12  # length and its checksum
_TAIL = 4  # the checksum of the data
# fields of a Feature
_BYTES = 1
_FLOATS = 2
_INTEGERS = 3
_VARINT = 0
_FIXED64 = 1
_WITH_LENGTH = 2
_FIXED32 = 5
_SINGLE = {_FLOATS: _FIXED32, _INTEGERS: _VARINT}  # wire types of numbers that are not packed
_ALL_BITS = (1 << 64) - 1
_NO_EXAMPLE = (
    "its records are no tf.train.Example; read them with the library that defines them, and scan "
    "what your loader "
    "returns (--loader MODULE:FUNCTION)"
)

# Number, wire type, value: bytes of a field with a length, else a number.
Field = tuple[int, int, Any]


def _masked_crc(data: bytes | memoryview) -> bytes:
    crc = google_crc32c.value(bytes(data))
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64 and offset < len(data):
        value |= (data[offset] & 0x7F) << shift
        offset, shift = offset + 1, shift + 7
        if data[offset - 1] < 0x80:
            return value, offset
    raise FormatError(_NO_EXAMPLE)


def _fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a protocol buffers message.

    Raises:
        FormatError: the bytes are no such message.
    """
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        number = tag >> 3
        kind = tag & 7
        if kind == _VARINT:
            value, offset = _varint(data, offset)
            yield number, kind, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind, -1)
        if kind == _WITH_LENGTH:
            size, offset = _varint(data, offset)
        if size < 0 or offset + size > len(data) or not number:
            raise FormatError(_NO_EXAMPLE)
        yield number, kind, data[offset : offset + size]
        offset += size


def _inside(data: bytes, number: int) -> Iterator[bytes]:
    """Yield the messages in the field `number` of a message without other fields.

    Raises:
        FormatError: the message has other fields.
    """
    for field_number, kind, value in _fields(data):
        if field_number != number or kind != _WITH_LENGTH:
            raise FormatError(_NO_EXAMPLE)
        yield value


def _features(record: bytes) -> dict[str, bytes]:
    """Return the features of an Example by name, as messages."""
    by_name: dict[str, bytes] = {}
    for features in _inside(record, 1):
        for entry in _inside(features, 1):
            fields = [
                (number, value) for number, kind, value in _fields(entry) if kind == _WITH_LENGTH
            ]
            parts = dict(fields)
            if len(parts) < len(fields):  # protocol buffers would merge repeated parts
                raise FormatError(_NO_EXAMPLE)
            try:
                name = parts.get(1, b"").decode("utf-8")
            except UnicodeDecodeError as error:
                raise FormatError(_NO_EXAMPLE) from error
            by_name[name] = parts.get(2, b"")  # of two entries of one name, the last one counts
    return by_name


def _value(feature: bytes) -> Any:
    """Return the value of a Feature: numbers, or the bytes of each entry; None if it is empty."""
    kinds = list(_fields(feature))
    if not kinds:
        return None
    number, kind, inner = kinds[0]
    if len(kinds) > 1 or kind != _WITH_LENGTH or number not in {_BYTES, _FLOATS, _INTEGERS}:
        raise FormatError(_NO_EXAMPLE)
    if number == _BYTES:
        return list(_inside(inner, 1))
    entries = list(_fields(inner))
    wires = {wire for _, wire, _ in entries}  # packed, or one by one
    if (
        any(field != 1 for field, _, _ in entries)
        or len(wires) > 1
        or not wires <= {_WITH_LENGTH, _SINGLE[number]}
    ):
        raise FormatError(_NO_EXAMPLE)
    values = [value for _, _, value in entries]
    if number == _INTEGERS and wires == {_VARINT}:
        return np.array([value & _ALL_BITS for value in values], np.uint64).view(np.int64)
    packed = b"".join(values)
    if number == _INTEGERS:
        return _integers(packed)
    if len(packed) % 4:
        raise FormatError(_NO_EXAMPLE)
    return np.frombuffer(packed, "<f4")


def _integers(packed: bytes) -> Array:
    """Return int64 numbers from varints (seven bits per byte)."""
    data = np.frombuffer(packed, np.uint8)
    stops = np.flatnonzero(data < 0x80) + 1
    if len(data) and (not len(stops) or stops[-1] != len(data)):
        raise FormatError(_NO_EXAMPLE)
    lengths = np.diff(stops, prepend=0)
    if lengths.max(initial=0) > 10:
        raise FormatError(_NO_EXAMPLE)
    values = np.zeros(len(stops), np.uint64)
    starts = stops - lengths
    for byte_index in range(int(lengths.max(initial=0))):
        longer = lengths > byte_index
        part = (data[starts[longer] + byte_index] & 0x7F).astype(np.uint64)
        values[longer] |= part << np.uint64(7 * byte_index)
    return values.view(np.int64)


def _texts(entries: list[bytes]) -> list[str] | None:
    """Return bytes as texts, None if an entry is not UTF-8."""
    try:
        return [entry.decode("utf-8") for entry in entries]
    except UnicodeDecodeError:
        return None


class _TfRecord(CountedContainer):
    """An open file: the places of its records, and the shapes of its features."""

    def __init__(self, path: AnyPath) -> None:
        size = path.stat().st_size
        self._data = stored(path, np.dtype(np.uint8), (size,)).data
        self._places = list(self._records(size))
        check_samples(len(self._places), size)
        self._shapes = _read_sidecar(path, _FEATURES, _shapes_of)
        self._stated = _expected_records(path.name, _read_sidecar(path, INFO, _lengths_of))
        self._last: tuple[int, dict[str, Any]] | None = None
        self.passed = sorted(
            {name for number in range(len(self._places)) for name in self._opaque(number)}
        )
        self.opaque = bool(self.passed)
        self._known = len(self._places)

    def _records(self, size: int) -> Iterator[tuple[int, int]]:
        offset = count = 0
        while offset < size:
            head = bytes(self._data[offset : offset + _HEAD])
            if len(head) < _HEAD or _masked_crc(head[:8]) != head[8:]:
                what = (
                    "a length whose checksum does not match"
                    if offset
                    else "no length with its checksum"
                )
                damaged = f"byte {offset:,}: {what}: no TFRecord, or damaged"
                raise FormatError(
                    damaged if len(head) == _HEAD else _truncated(offset, len(head), count)
                )
            length = int.from_bytes(head[:8], "little")
            start = offset + _HEAD
            stop = offset + _HEAD + length
            if stop + _TAIL > size:
                raise FormatError(_truncated(offset, size - offset, count))
            check_bytes(length, f"the record at byte {offset:,}")
            if _masked_crc(self._data[start:stop]) != bytes(self._data[stop : stop + _TAIL]):
                msg = f"the record at byte {offset:,}: its {length:,} bytes do not match their checksum"
                raise FormatError(msg)
            yield start, stop
            offset, count = stop + _TAIL, count + 1

    def _record(self, number: int) -> dict[str, Any]:
        """Return the non-empty features of a record by name: numbers, or bytes per entry."""
        if self._last is None or self._last[0] != number:
            start, stop = self._places[number]
            check_bytes(stop - start, f"record {number}")
            features = {
                name: _value(feature)
                for name, feature in _features(bytes(self._data[start:stop])).items()
            }
            check_fields(len(features))
            self._last = (
                number,
                {
                    name: value
                    for name, value in features.items()
                    if value is not None and len(value)
                },
            )
        return self._last[1]

    def _opaque(self, number: int) -> list[str]:
        return [
            n
            for n, value in self._record(number).items()
            if isinstance(value, list) and _texts(value) is None
        ]

    def keys(self) -> list[str]:
        return [f"{number:0{_DIGITS}d}" for number in range(len(self._places))]

    def names(self) -> list[str]:
        value_names = list[str]()
        for number, key in enumerate(self.keys()):
            opaque = set(self._opaque(number))
            value_names += [
                f"{key}/{name}" for name in sorted(self._record(number)) if name not in opaque
            ]
        return value_names

    def read(self, name: str) -> Any:
        key, _, feature = name.partition("/")
        number = int(key) if re.fullmatch(rf"[0-9]{{{_DIGITS}}}", key) else -1
        if not 0 <= number < len(self._places) or feature not in self._record(number):
            raise KeyError(name)
        value = self._record(number)[feature]
        sizes, several = self._shapes.get(feature, ((), False))
        if isinstance(value, np.ndarray):
            return _shaped(value, sizes, several=several, known=feature in self._shapes)
        texts = _texts(value)
        if texts is None:
            msg = f"{name}: bytes that are no text are not read"
            raise FormatError(msg)
        return texts if several or len(texts) != 1 else texts[0]

    def attrs(self, name: str = "") -> dict[str, Any]:
        return {} if name or self._stated is None else {SHARD_LENGTH: self._stated}

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        value = self.read(name)
        if isinstance(value, np.ndarray):
            return value.shape, value.dtype.str
        return (), "text" if isinstance(value, str) else "json"


def _truncated(offset: int, remaining: int, record_count: int) -> str:
    records_text = f"{record_count:,} whole record{'s' * (record_count != 1)}"
    return f"the record at byte {offset:,} is cut short: {remaining:,} bytes are left behind {records_text}"


def _shaped(value: Array, sizes: tuple[int, ...], *, several: bool, known: bool) -> Array:
    """Return numbers in their feature's shape; flat if it is unknown or does not fit."""
    entry_size = math.prod(sizes)
    if (
        known
        and entry_size > 0
        and len(value) % entry_size == 0
        and (several or len(value) == entry_size)
    ):
        return value.reshape(-1, *sizes) if several else value.reshape(sizes)
    return value


# -------------------------------------------------------------------------------- sidecar documents


def _read_sidecar(
    path: AnyPath, name: str, read: Callable[[AnyPath, int, int], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the contents of a document in the folder of a file; {} if there is none.

    Raises:
        FormatError: `INFO` cannot be read: only it shows that a shard lost records. An unreadable
            `_FEATURES` gives {}: numbers stay flat, which rules about shapes show.
    """
    sidecar = path.with_name(name)
    try:
        with wrap_errors(name):
            status = sidecar.stat() if sidecar.is_file() else None
        return {} if status is None else read(sidecar, status.st_size, status.st_mtime_ns)
    except FormatError as error:
        if name != INFO:
            return {}
        reason = str(error).removeprefix(f"{name}: ")
        msg = f"{name} in its folder cannot be read, so its number of records is unknown: {reason}"
        raise FormatError(msg) from error


def _document(path: AnyPath, size: int) -> Any:
    check_bytes(size, path.name, TEXT_BYTES)
    with wrap_errors(path.name):
        return parse_json(path.read_bytes())


@lru_cache(maxsize=4)
def _lengths_of(place: AnyPath, size: int, time: int) -> Mapping[str, list[Any]]:
    """Return the number of records in each shard of a split, as TensorFlow Datasets writes it."""
    del time
    splits = _get(_document(place, size), "splits")
    split_lengths = (
        [(_get(split, "name"), _get(split, SHARD_LENGTH)) for split in splits]
        if isinstance(splits, list)
        else []
    )
    return {str(name): lengths for name, lengths in split_lengths if isinstance(lengths, list)}


def _expected_records(name: str, lengths: Mapping[str, list[Any]]) -> int | None:
    """Return the declared number of records of a file, None if no document declares it."""
    match = _SHARD.fullmatch(name)
    shards = lengths.get(match[1], []) if match is not None else []
    if match is None or len(shards) != int(match[3]) or int(match[2]) >= len(shards):
        return None
    declared = str(shards[int(match[2])])
    return int(declared) if re.fullmatch("[0-9]{1,15}", declared) else None


@lru_cache(maxsize=4)
def _shapes_of(place: AnyPath, size: int, time: int) -> Mapping[str, tuple[tuple[int, ...], bool]]:
    """Return the shape of an entry of each feature, and whether a record holds several entries.

    A record that is an episode holds one entry per step.
    """
    del time
    shapes: dict[str, tuple[tuple[int, ...], bool]] = {}
    _collect("", _document(place, size), shapes, DEPTH, several=False)
    return shapes


def _collect(
    name: str, description: Any, shapes: dict[str, Any], depth: int, *, several: bool
) -> None:
    if not isinstance(description, Mapping) or not depth:
        return
    features = _get(description, "featuresDict", "features")
    inner = _get(description, "sequence", "feature")
    if isinstance(features, Mapping):
        for key, item in features.items():
            _collect(
                f"{name}/{key}" if name else str(key), item, shapes, depth - 1, several=several
            )
    elif inner is not None:
        _collect(name, inner, shapes, depth - 1, several=True)
    else:
        sizes = _get(description, "tensor", "shape", "dimensions")
        sizes = [] if sizes is None else sizes
        if (
            isinstance(sizes, list)
            and len(sizes) < DEPTH
            and all(re.fullmatch("[0-9]{1,9}", str(n)) for n in sizes)
        ):
            shapes[name] = tuple(int(n) for n in sizes), several


def _get(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _TfRecord(path)


TFRECORD = Format("tfrecord", (".tfrecords", ".tfrecord"), _open, beside=(_FEATURES, INFO))
