"""MDS shards of MosaicML Streaming, plain or zstd.

Sample 12 has the values ``000000000012/NAME``, one per column. Each column names one encoding. A
column whose encoding has no decoder (a list of pictures, a raw PIL picture) is not listed, and
reading one of its values raises an error that says why.

If the folder has an ``index.json``, the shard is checked against it: Streaming finds shards,
samples and columns by the index alone. A shard that its index does not list, or describes
otherwise, would be served differently from what its own header says, so it is refused. The index is
untrusted: a field of it may have any JSON type.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, BinaryIO

import numpy as np
import xxhash

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint, format_of, parse_container
from datacheck.formats.limits import (
    TEXT_BYTES,
    VALUE_BYTES,
    CountedContainer,
    check_bytes,
    check_samples,
    path_below,
    text,
    wrap_errors,
)
from datacheck.formats.parsed import from_json, parse_json
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath

# ---------------------------------------------------------------------------- the index of a folder

INDEX = "index.json"
_READ_BYTES = 1 << 20
_XXHASHES = frozenset({"xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"})


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """The entry of one shard in an index.

    Args:
        values: the JSON object.
    """

    values: Mapping[str, Any]

    def names(self) -> list[str]:
        """Return the names of the shard's plain and of its compressed file, where declared."""
        declared = [self._file(key).get("basename") for key in ("raw_data", "zip_data")]
        return [name for name in declared if isinstance(name, str)]

    def check_plain(self, file: BinaryIO) -> None:
        """Check size and hashes of the plain file; also that of an unpacked shard.

        Raises:
            FormatError: the index declares others, or a hash that is not known.
        """
        _check_file(file, self._file("raw_data"))

    def check_compressed(self, file: BinaryIO) -> None:
        """Check size and hashes of the compressed file.

        Raises:
            FormatError: the index declares others, or a hash that is not known.
        """
        _check_file(file, self._file("zip_data"))

    def check_header(self, header: Mapping[str, Any]) -> None:
        """Check that the index repeats the header of the shard.

        Args:
            header: what the shard has, by the keys of an index entry.

        Raises:
            FormatError: the index says something else.
        """
        for key, actual in header.items():
            declared = self.values.get(key)
            if declared != actual:
                msg = (
                    f"{INDEX} says {key} {str(declared)[:100]}, but the shard has "
                    f"{str(actual)[:100]}"
                )
                raise FormatError(msg)

    def _file(self, key: str) -> Mapping[str, Any]:
        return _mapping(self.values.get(key))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _check_file(file: BinaryIO, declared: Mapping[str, Any]) -> None:
    size = file.seek(0, io.SEEK_END)
    declared_size = declared.get("bytes")
    if size != declared_size:
        msg = f"{size:,} bytes, but {INDEX} says {str(declared_size)[:40]}"
        raise FormatError(msg)
    hashes = _mapping(declared.get("hashes"))
    for name, digest in _digests(file, list(hashes)).items():
        if digest != hashes[name]:
            msg = f"its {name} is {digest}, but {INDEX} says {str(hashes[name])[:140]}"
            raise FormatError(msg)


def _digests(file: BinaryIO, names: Sequence[str]) -> dict[str, str]:
    """Return the hexadecimal digest of a file by each of the named hashes, read once for all."""
    hashers = {name: _hasher(name) for name in names}
    file.seek(0)
    while hashers and (data := file.read(_READ_BYTES)):
        for hasher in hashers.values():
            hasher.update(data)
    return {name: hasher.hexdigest() for name, hasher in hashers.items()}


def _hasher(name: str) -> Any:
    if name in _XXHASHES:
        return getattr(xxhash, name)()
    # The shake hashes have no fixed length: their hexdigest needs one as an argument.
    if name in hashlib.algorithms_guaranteed and not name.startswith("shake"):
        return hashlib.new(name)
    msg = f"{INDEX} declares the hash {name[:40]!r}, which is not known"
    raise FormatError(msg)


def shard_entry(path: AnyPath) -> ShardEntry | None:
    """Return the entry of a shard in the index of its folder; None if there is no index.

    Raises:
        FormatError: the index is damaged, or does not list the shard exactly once.
    """
    index = path.with_name(INDEX)
    if not index.is_file():
        return None
    with wrap_errors(INDEX):
        status = index.stat()
    entries = _entries_by_name(index, status.st_size, status.st_mtime_ns).get(path.name, [])
    if not entries:
        msg = f"{INDEX} in its folder does not list it, so Streaming does not read it"
        raise FormatError(msg)
    if len(entries) > 1:
        msg = f"{INDEX} in its folder lists it {len(entries)} times, so Streaming reads it as often"
        raise FormatError(msg)
    return entries[0]


# A folder may have thousands of shards, each of which needs the same index.
@lru_cache(maxsize=1)
def _entries_by_name(index: AnyPath, size: int, modified: int) -> dict[str, list[ShardEntry]]:
    """Return the entries of an index by file name; `size` and `modified` tell its versions apart."""
    del size, modified
    by_name: dict[str, list[ShardEntry]] = {}
    for entry in _read_entries(index):
        # Normalised, as Streaming joins the name to the folder.
        for name in {posixpath.normpath(name) for name in entry.names()}:
            by_name.setdefault(name, []).append(entry)
    return by_name


def named_shards(index: AnyPath) -> tuple[list[tuple[list[str], Any]], list[str]]:
    """Return the MDS shards of an index, and the names of those outside of its folder.

    Returns:
        For each shard its possible file names, normalised, and its number of samples; for each
        shard without a name below the folder its declared name, "" if it has none. The names are
        those of the plain and of the compressed file.

    Raises:
        FormatError: the index cannot be read.
    """
    shards: list[tuple[list[str], Any]] = []
    outside: list[str] = []
    for entry in _read_entries(index):
        if entry.values.get("format") != "mds":
            continue
        declared = entry.names()
        names = [path for name in declared if (path := path_below(name)) is not None]
        if names:
            shards.append((names, entry.values.get("samples")))
        else:
            outside.append(next(iter(declared), ""))
    return shards, outside


def _read_entries(index: AnyPath) -> list[ShardEntry]:
    with wrap_errors(INDEX):
        check_bytes(index.stat().st_size, INDEX, TEXT_BYTES)
        data = index.read_bytes()
    try:
        shards = _mapping(parse_json(data)).get("shards")
    except FormatError as error:
        msg = f"{INDEX}: {error}"
        raise FormatError(msg) from error
    if not isinstance(shards, list):
        return []
    return [ShardEntry(shard) for shard in shards if isinstance(shard, Mapping)]


# ----------------------------------------------------------------------------- encodings of columns

Decoder = Callable[[bytes], Any]

# The byte by which a value of encoding ``ndarray`` states its dtype, as Streaming writes it.
_DTYPE_CODES: dict[int, np.dtype[Any]] = {
    8: np.dtype("u1"),
    9: np.dtype("i1"),
    16: np.dtype("<u2"),
    17: np.dtype("<i2"),
    18: np.dtype("<f2"),
    32: np.dtype("<u4"),
    33: np.dtype("<i4"),
    34: np.dtype("<f4"),
    64: np.dtype("<u8"),
    65: np.dtype("<i8"),
    66: np.dtype("<f8"),
}
_NUMBERS = {dtype.name: dtype for dtype in _DTYPE_CODES.values()} | {"int": np.dtype("<i8")}
_NDARRAY = re.compile(r"ndarray(?::(?P<dtype>\w+)(?::(?P<shape>\d{1,12}(?:,\d{1,12})*))?)?")


@dataclass(frozen=True, slots=True)
class ArrayType:
    """What an encoding declares about its arrays.

    Args:
        dtype: None: each value starts with the code of its dtype.
        shape: None: each value states its shape, before the numbers.
    """

    dtype: np.dtype[Any] | None
    shape: tuple[int, ...] | None

    @property
    def value_bytes(self) -> int | None:
        """The size of each value; None if it varies."""
        if self.dtype is None or self.shape is None:
            return None
        return math.prod(self.shape) * self.dtype.itemsize

    def decode(self, data: bytes) -> Array:
        """Return the array that `data` stores.

        Raises:
            FormatError: dtype, shape and number of bytes do not fit together.
        """
        dtype, shape, start = self.dtype, self.shape, 0
        if dtype is None:
            dtype = _stated_dtype(data)
            start = 1
        if shape is None:
            shape, start = _stated_shape(data, start)
        needed = math.prod(shape) * dtype.itemsize
        stored = len(data) - start
        if needed != stored:
            msg = f"shape {list(shape)} of {dtype} needs {needed:,} bytes, found {stored:,}"
            raise FormatError(msg)
        if stored == 0:  # np.frombuffer refuses an empty buffer
            return np.empty(shape, dtype)
        return np.frombuffer(data, dtype, offset=start).reshape(shape)


def _stated_dtype(data: bytes) -> np.dtype[Any]:
    if not data:
        msg = "an array without the code of its dtype"
        raise FormatError(msg)
    dtype = _DTYPE_CODES.get(data[0])
    if dtype is None:
        msg = f"the code {data[0]} of a dtype is not known"
        raise FormatError(msg)
    return dtype


def _stated_shape(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """Return the shape that a value states from byte `start` on, and where its numbers start.

    The first byte holds the number of axes, and in its two low bits the width of their sizes.
    """
    head = data[start : start + 1]
    axes = head[0] >> 2 if head else 0
    width = 1 << (head[0] & 3) if head else 1
    stop = start + 1 + axes * width
    if stop > len(data):
        msg = "an array whose shape is cut short"
        raise FormatError(msg)
    sizes = np.frombuffer(data[start + 1 : stop], f"<u{width}")
    return tuple(sizes.tolist()), stop


def array_type(encoding: str) -> ArrayType | None:
    """Return what an encoding of arrays or numbers declares; None for any other encoding.

    Raises:
        FormatError: the encoding begins like one of arrays, but is not known.
    """
    if encoding in _NUMBERS:
        return ArrayType(_NUMBERS[encoding], ())
    if not encoding.startswith("ndarray"):
        return None
    match = _NDARRAY.fullmatch(encoding)
    if match is None or (match["dtype"] is not None and match["dtype"] not in _NUMBERS):
        msg = f"the encoding {encoding[:60]!r} is not known"
        raise FormatError(msg)
    dtype = None if match["dtype"] is None else _NUMBERS[match["dtype"]]
    shape = None if match["shape"] is None else tuple(map(int, match["shape"].split(",")))
    return ArrayType(dtype, shape)


def decoder(encoding: str) -> Decoder | None:
    """Return the function that decodes values of an encoding; None if they cannot be read.

    Raises:
        FormatError: see `array_type`.
    """
    declared = array_type(encoding)
    return _DECODERS.get(encoding) if declared is None else declared.decode


def _bytes(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


def _json(data: bytes) -> Any:
    return from_json(parse_json(data))


# Possessive quantifiers (++): a million digits before a letter would otherwise take a day.
_INTEGER = re.compile(r"-?\d{1,19}")
_FLOAT = re.compile(r"-?\d++(?:\.\d*+)?(?:e[-+]?\d++)?|-?inf|nan")


def _integer(data: bytes) -> Array:
    return np.asarray(int(_number_text(_INTEGER, data)), "<i8")


def _float(data: bytes) -> Array:
    return np.asarray(float(_number_text(_FLOAT, data)), "<f8")


def _number_text(pattern: re.Pattern[str], data: bytes) -> str:
    number = text(data)
    if not pattern.fullmatch(number):
        msg = f"{number[:40]!r} where a number is expected"
        raise FormatError(msg)
    return number


# What the formats of pictures and pickles call the value of a file that holds one.
_SINGLE_NAMES = frozenset({"image", "array", "records", "value"})


def _file_value(suffix: str, data: bytes) -> Any:
    """Return the one value of a picture or a pickle, whose bytes are a whole file."""
    file_format = format_of(suffix)
    assert file_format is not None
    with parse_container(file_format, data) as container:
        names = container.names()
        if len(names) != 1 or names[0] not in _SINGLE_NAMES:
            msg = f"a pickled mapping of {len(names)} values; write each as a column"
            raise FormatError(msg)
        return container.read(names[0])


_DECODERS: dict[str, Decoder] = {
    "bytes": _bytes,
    "str": text,
    "str_decimal": text,
    "json": _json,
    "str_int": _integer,
    "str_float": _float,
    "jpeg": partial(_file_value, ".jpg"),
    "png": partial(_file_value, ".png"),
    "pkl": partial(_file_value, ".pkl"),
}


# ------------------------------------------------------------------------------------------- shards

_KEY = re.compile(r"[0-9]{12}")


@dataclass(frozen=True, slots=True)
class _MdsColumn:
    """One column of a shard.

    Args:
        name, encoding: as the header declares them.
        size: bytes of each value; None where each sample states its own.
        array: what the encoding declares of arrays; None for other values.
        decode: from stored bytes to a value; None for an encoding that is not read.
    """

    name: str
    encoding: str
    size: int | None
    array: ArrayType | None
    decode: Decoder | None


class _MdsShard(CountedContainer):
    """An open shard.

    Args:
        file: the plain shard; closed with the container.
        offsets: see `_read_offsets`.
        columns: by name, in stored order.
    """

    def __init__(self, file: BinaryIO, offsets: Array, columns: Mapping[str, _MdsColumn]) -> None:
        self._file = file
        self._offsets = offsets
        self._columns = columns
        self._samples = len(offsets) - 1
        self._readable = sorted(name for name in columns if columns[name].decode is not None)
        self.passed = sorted(columns.keys() - set(self._readable))
        self.opaque = bool(self.passed)
        self._known = self._samples * len(self._readable)
        self._last: tuple[int, dict[str, bytes]] | None = None

    def close(self) -> None:
        self._file.close()

    def keys(self) -> list[str]:
        return [f"{number:012d}" for number in range(self._samples)]

    def names(self) -> list[str]:
        return [f"{key}/{name}" for key in self.keys() for name in self._readable]

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        _, column = self._locate(name)
        declared = column.array
        if declared is not None and declared.dtype is not None and declared.shape is not None:
            return declared.shape, declared.dtype.str
        value = self.read(name)
        return (value.shape, value.dtype.str) if isinstance(value, np.ndarray) else ((), "json")

    def read(self, name: str) -> Any:
        number, column = self._locate(name)
        if column.decode is None:
            msg = (
                f"{name}: values of encoding {column.encoding[:60]!r} are not read; write them as "
                f"ndarray, jpeg or json"
            )
            raise FormatError(msg)
        try:
            with wrap_errors("damaged value"):
                return column.decode(self._read_sample(number)[column.name])
        except FormatError as error:
            msg = f"{name}: {error}"
            raise FormatError(msg, error.code) from error

    def _locate(self, name: str) -> tuple[int, _MdsColumn]:
        """Return the number of the sample and the column of a value."""
        key, _, column = name.partition("/")
        if not _KEY.fullmatch(key) or int(key) >= self._samples or column not in self._columns:
            raise KeyError(name)
        return int(key), self._columns[column]

    def _read_sample(self, number: int) -> dict[str, bytes]:
        """Return the stored bytes of each column of one sample."""
        # The columns of a sample are read one after the other.
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        start, stop = self._offsets[number : number + 2].tolist()
        check_bytes(stop - start, f"sample {number}")
        self._file.seek(start)
        values = self._split_sample(number, self._file.read(stop - start))
        self._last = number, values
        return values

    def _split_sample(self, number: int, data: bytes) -> dict[str, bytes]:
        """Return the bytes of each column.

        A sample begins with the sizes (uint32) of the columns that have no fixed size. The values
        of all columns follow.
        """
        varying = sum(column.size is None for column in self._columns.values())
        offset = 4 * varying
        if len(data) < offset:
            msg = (
                f"sample {number}: {len(data):,} bytes, too few for the sizes of {varying} columns"
            )
            raise FormatError(msg)
        stated_sizes = iter(np.frombuffer(data[:offset], "<u4").tolist())
        values = {}
        for name, column in self._columns.items():
            size = next(stated_sizes) if column.size is None else column.size
            values[name] = data[offset : offset + size]
            offset += size
        if offset != len(data):
            msg = f"sample {number}: its columns come to {offset:,} bytes, it has {len(data):,}"
            raise FormatError(msg)
        return values


# ---------------------------------------------------------------------------------- opening a shard


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    entry = shard_entry(path)
    file = _open_plain(path, entry)
    try:
        if entry is not None:
            entry.check_plain(file)
        with wrap_errors("damaged MDS shard"):
            offsets = _read_offsets(file, path.stat().st_size)
            columns = _read_columns(file, offsets)
        if entry is not None:
            entry.check_header(_index_values(columns, samples=len(offsets) - 1))
    except BaseException:
        file.close()
        raise
    return _MdsShard(file, offsets, columns)


def _open_plain(path: AnyPath, entry: ShardEntry | None) -> BinaryIO:
    """Open a shard; a compressed one is checked against the index and decompressed into memory."""
    file = path.open("rb")
    if not path.name.endswith(".zstd"):
        return file
    with file:
        if entry is not None:
            entry.check_compressed(file)
    return io.BytesIO(_decompressed(path))


def _decompressed(path: AnyPath) -> bytes:
    import pyarrow as pa  # noqa: PLC0415  0.1 s that only compressed shards should pay

    with (
        wrap_errors("damaged zstd"),
        pa.input_stream(os.fspath(path), compression="zstd") as stream,
    ):
        data = bytearray()
        # In pieces: Arrow allocates memory for the whole requested size.
        while len(data) <= TEXT_BYTES and (piece := stream.read(_READ_BYTES)):
            data += piece
    check_bytes(len(data), "the unpacked shard", TEXT_BYTES)
    return bytes(data)


def _offsets_stop(samples: int) -> int:
    """Return where the offsets end: behind the number of samples, one each, and one more."""
    return 4 + 4 * (samples + 1)


def _read_offsets(file: BinaryIO, stored: int) -> Array:
    """Return where each sample starts, and in the end where the last one stops.

    A shard begins with the number of samples and these offsets, all uint32.

    Shapes:
        returns: int64 (samples + 1) [bytes]

    Args:
        file: the plain shard.
        stored: size of the file on disk, which may be compressed [bytes].
    """
    total = file.seek(0, io.SEEK_END)
    file.seek(0)
    samples = int.from_bytes(file.read(4), "little")
    if _offsets_stop(samples) > total:
        msg = (
            f"{samples:,} samples are declared in a file of {total:,} bytes: not an MDS shard, or "
            f"cut short"
        )
        raise FormatError(msg)
    check_samples(samples, stored)
    offsets = np.frombuffer(file.read(4 * (samples + 1)), "<u4").astype(np.int64)
    if offsets[0] < _offsets_stop(samples) or (np.diff(offsets) < 0).any():
        msg = "its samples are not in ascending order of offset: not an MDS shard, or damaged"
        raise FormatError(msg)
    if offsets[-1] != total:
        msg = (
            f"its samples end at byte {offsets[-1]:,}, the file has {total:,}: cut short, or not "
            f"an MDS shard"
        )
        raise FormatError(msg)
    return offsets


def _read_columns(file: BinaryIO, offsets: Array) -> dict[str, _MdsColumn]:
    """Return the columns by name, from the header: JSON between the offsets and the samples."""
    size = int(offsets[0]) - _offsets_stop(len(offsets) - 1)
    check_bytes(size, "its header", TEXT_BYTES)
    header = parse_json(file.read(size))
    is_mds = isinstance(header, Mapping) and header.get("format") == "mds"
    if not is_mds or header.get("version") != 2:
        msg = "its header is not that of an MDS shard of version 2"
        raise FormatError(msg)
    names = header.get("column_names")
    encodings = header.get("column_encodings")
    sizes = header.get("column_sizes")
    if not (isinstance(names, list) and isinstance(encodings, list) and isinstance(sizes, list)):
        msg = "its header lists no columns"
        raise FormatError(msg)
    if not len(names) == len(encodings) == len(sizes):
        msg = "its header has names, encodings and sizes of different numbers of columns"
        raise FormatError(msg)
    if not all(isinstance(word, str) and word for word in names + encodings):
        msg = "its header has a column without a name or an encoding"
        raise FormatError(msg)
    if len(set(names)) < len(names):
        msg = "its header has two columns of one name"
        raise FormatError(msg)
    columns = map(_column, names, encodings, sizes)
    return {column.name: column for column in columns}


def _column(name: str, encoding: str, size: Any) -> _MdsColumn:
    if size is not None and (type(size) is not int or not 0 < size <= VALUE_BYTES):
        msg = f"{name}: a size of {str(size)[:40]} bytes"
        raise FormatError(msg)
    array = array_type(encoding)
    needed = None if array is None else array.value_bytes
    if needed is not None and size != needed:
        msg = f"{name}: {encoding[:60]} needs {needed:,} bytes, its header says {size}"
        raise FormatError(msg)
    return _MdsColumn(name, encoding, size, array, decoder(encoding))


def _index_values(columns: Mapping[str, _MdsColumn], samples: int) -> dict[str, Any]:
    """Return what an index entry must say of the header, by its keys there."""
    return {
        "format": "mds",
        "version": 2,
        "samples": samples,
        "column_names": list(columns),
        "column_encodings": [column.encoding for column in columns.values()],
        "column_sizes": [column.size for column in columns.values()],
    }


MDS = Format("mds", (".mds.zstd", ".mds"), _open, beside=(INDEX,))
