"""MDS shards of MosaicML Streaming, plain or zstd.

Sample 12 has the values ``000000000012/NAME``, one per column. If an ``index.json`` is in the
folder, the shard is checked against it: size, number of samples, columns, and every hash that it
declares. Lists of pictures and raw PIL pictures are no values: they are not listed, and reading one
raises an error that says why.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import xxhash

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint, format_of, parse_container
from datacheck.formats.limits import (
    DEPTH,
    TEXT_BYTES,
    VALUE_BYTES,
    CountedContainer,
    check_bytes,
    check_samples,
    text,
    wrap_errors,
)
from datacheck.formats.parsed import from_json, parse_json
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath

INDEX = "index.json"
_DIGITS = 12
_PIECE = 1 << 20
_CODES = {
    8: "u1",
    9: "i1",
    16: "u2",
    17: "i2",
    18: "f2",
    32: "u4",
    33: "i4",
    34: "f4",
    64: "u8",
    65: "i8",
    66: "f8",
}
_SCALARS = {np.dtype(code).name: np.dtype(f"<{code}") for code in _CODES.values()} | {
    "int": np.dtype("<i8")
}
_XXHASHES = frozenset({"xxh32", "xxh64", "xxh128", "xxh3_64", "xxh3_128"})


class _ColumnSpec(NamedTuple):
    """Encoding of one column.

    Args:
        name, encoding: as declared by the shard.
        size: bytes of each value, 0 where they differ.
        decode: from bytes to a value; None for an encoding that is not read.
    """

    name: str
    encoding: str
    size: int
    decode: Callable[[bytes], Any] | None


class _Mds(CountedContainer):
    """An open shard and the offsets of its samples."""

    def __init__(self, path: AnyPath) -> None:
        entry = _index_entry(path)
        self._file = _opened(path, entry)
        try:
            with wrap_errors("damaged MDS shard"):
                self._read_head(path.stat().st_size)
            if entry is not None:
                _check_head(entry, len(self._stops) - 1, self._columns)
        except BaseException:
            self.close()
            raise
        self.passed = sorted(
            name for name, column in self._columns.items() if column.decode is None
        )
        self.opaque = bool(self.passed)
        self._known = (len(self._stops) - 1) * (len(self._columns) - len(self.passed))
        self._last: tuple[int, dict[str, bytes]] | None = None

    def _read_head(self, stored: int) -> None:
        total = self._file.seek(0, io.SEEK_END)
        self._file.seek(0)
        count = int.from_bytes(self._file.read(4), "little")
        if total < 8 or 8 + 4 * count > total:
            msg = (
                f"{count:,} samples are declared in a file of {total:,} bytes: no MDS shard, or "
                f"cut short"
            )
            raise FormatError(msg)
        check_samples(count, stored)
        self._stops = np.frombuffer(self._file.read(4 * count + 4), "<u4").astype(np.int64)
        header_start = 8 + 4 * count
        if int(self._stops[0]) < header_start or bool((np.diff(self._stops) < 0).any()):
            msg = "the places of its samples do not rise: no MDS shard, or damaged"
            raise FormatError(msg)
        if int(self._stops[-1]) != total:
            msg = (
                f"its samples end at byte {self._stops[-1]:,}, the file has {total:,}: cut "
                f"short, or no MDS shard"
            )
            raise FormatError(msg)
        check_bytes(int(self._stops[0]) - header_start, "its header", TEXT_BYTES)
        self._columns = _columns(parse_json(self._file.read(int(self._stops[0]) - header_start)))

    def close(self) -> None:
        self._file.close()

    def keys(self) -> list[str]:
        return [f"{number:0{_DIGITS}d}" for number in range(len(self._stops) - 1)]

    def names(self) -> list[str]:
        columns = sorted(
            name for name, column in self._columns.items() if column.decode is not None
        )
        return [f"{key}/{name}" for key in self.keys() for name in columns]

    def _sample_column(self, name: str) -> tuple[int, _ColumnSpec]:
        key, _, column = name.partition("/")
        number = int(key) if re.fullmatch(rf"[0-9]{{{_DIGITS}}}", key) else -1
        if not 0 <= number < len(self._stops) - 1 or column not in self._columns:
            raise KeyError(name)
        return number, self._columns[column]

    def read(self, name: str) -> Any:
        number, column = self._sample_column(name)
        if column.decode is None:
            what = f"values of encoding {column.encoding[:60]!r} are not read"
            msg = f"{name}: {what}; write them as ndarray, jpeg or json"
            raise FormatError(msg)
        try:
            with wrap_errors("damaged value"):
                return column.decode(self._sample(number)[column.name])
        except FormatError as error:
            msg = f"{name}: {error}"
            raise FormatError(msg, error.code) from error

    def _sample(self, number: int) -> dict[str, bytes]:
        """Return the bytes of each column of one sample."""
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        start, stop = self._stops[number : number + 2].tolist()
        check_bytes(stop - start, f"sample {number}")
        self._file.seek(start)
        data = self._file.read(stop - start)
        variable_count = sum(not column.size for column in self._columns.values())
        declared_sizes = (
            np.frombuffer(data[: 4 * variable_count], "<u4").tolist()
            if len(data) >= 4 * variable_count
            else []
        )
        sizes = iter(declared_sizes)
        parts = {}
        offset = 4 * variable_count
        for name, column in self._columns.items():
            size = column.size or next(sizes, 0)
            parts[name] = data[offset : offset + size]
            offset += size
        if offset != len(data):
            msg = f"sample {number}: its columns come to {offset:,} bytes, it has {len(data):,}"
            raise FormatError(msg)
        self._last = number, parts
        return parts

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        _, column = self._sample_column(name)
        fixed = _fixed(column.encoding)
        if fixed is not None:
            return fixed[1], fixed[0].str
        value = self.read(name)
        return (value.shape, value.dtype.str) if isinstance(value, np.ndarray) else ((), "json")


# ------------------------------------------------------------------------------------------ columns


def _columns(config: Any) -> dict[str, _ColumnSpec]:
    """Return the columns by name, in stored order."""
    header = config if isinstance(config, Mapping) else {}
    if header.get("format") != "mds" or header.get("version") != 2:
        msg = "its header is not that of an MDS shard of version 2"
        raise FormatError(msg)
    names, encodings, sizes = (
        header.get(f"column_{part}") for part in ("names", "encodings", "sizes")
    )
    if not (isinstance(names, list) and isinstance(encodings, list) and isinstance(sizes, list)):
        msg = "its header lists no columns"
        raise FormatError(msg)
    if not all(isinstance(word, str) and word for word in names + encodings) or len(
        set(names)
    ) < len(names):
        msg = "the columns of its header have no names, or one twice"
        raise FormatError(msg)
    if not len(names) == len(encodings) == len(sizes):
        msg = "its header has names, encodings and sizes of different numbers of columns"
        raise FormatError(msg)
    return {
        name: _column(name, word, size)
        for name, word, size in zip(names, encodings, sizes, strict=True)
    }


def _column(name: str, encoding: str, size: Any) -> _ColumnSpec:
    if size is not None and (type(size) is not int or not 0 < size <= VALUE_BYTES):
        msg = f"{name}: a size of {str(size)[:40]} bytes"
        raise FormatError(msg)
    fixed = _fixed(encoding)
    if fixed is not None and size != (needed := math.prod(fixed[1]) * fixed[0].itemsize):
        msg = f"{name}: {encoding[:60]} needs {needed:,} bytes, its header says {size}"
        raise FormatError(msg)
    return _ColumnSpec(name, encoding, size or 0, _decoder(encoding))


def _fixed(encoding: str) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Return (dtype, shape) of an encoding that declares both, else None."""
    if encoding in _SCALARS:
        return _SCALARS[encoding], ()
    kind, shape = _array_of(encoding) if encoding.startswith("ndarray") else (None, None)
    return None if kind is None or shape is None else (kind, shape)


def _array_of(encoding: str) -> tuple[np.dtype[Any] | None, tuple[int, ...] | None]:
    """Return dtype and shape of ``ndarray:float32:4096,6``; None where each value has its own."""
    match = re.fullmatch(r"ndarray(?::(\w+)(?::(\d{1,12}(?:,\d{1,12})*))?)?", encoding)
    if match is None or (match[1] is not None and match[1] not in _SCALARS):
        msg = f"the encoding {encoding[:60]!r} is not known"
        raise FormatError(msg)
    kind = None if match[1] is None else _SCALARS[match[1]]
    return kind, None if match[2] is None else tuple(map(int, match[2].split(",")))


def _decoder(encoding: str) -> Callable[[bytes], Any] | None:
    if encoding.startswith("ndarray"):
        return partial(_array, *_array_of(encoding))
    if encoding in _SCALARS:
        return partial(_array, _SCALARS[encoding], ())
    return _DECODERS.get(encoding)


def _array(kind: np.dtype[Any] | None, shape: tuple[int, ...] | None, data: bytes) -> Array:
    """Return an array; if `kind` or `shape` is None, the first bytes declare it."""
    offset = 0
    if kind is None:
        code = data[0] if data else -1
        offset = 1
        if code not in _CODES:
            msg = f"the code {code} of a dtype is not known"
            raise FormatError(msg)
        kind = np.dtype(f"<{_CODES[code]}")
    if shape is None:
        axes, width = (
            (data[offset] >> 2, 1 << (data[offset] & 3)) if len(data) > offset else (DEPTH, 1)
        )
        sizes = data[offset + 1 : offset + 1 + axes * width]
        if len(sizes) < axes * width:
            msg = "an array whose shape is cut short"
            raise FormatError(msg)
        shape, offset = (
            tuple(np.frombuffer(sizes, f"<u{width}").tolist()),
            offset + 1 + axes * width,
        )
    if (needed := math.prod(shape) * kind.itemsize) != len(data) - offset:
        msg = f"shape {list(shape)} of {kind} needs {needed:,} bytes, found {len(data) - offset:,}"
        raise FormatError(msg)
    return (
        np.frombuffer(data, kind, offset=offset).reshape(shape)
        if len(data) > offset
        else np.empty(shape, kind)
    )


def _number(pattern: str, dtype: str, data: bytes) -> Array:
    if not re.fullmatch(pattern, word := text(data)):
        msg = f"{word[:40]!r} stands where a number is expected"
        raise FormatError(msg)
    return np.asarray(int(word) if dtype == "<i8" else float(word), dtype=dtype)


def _single_value(name: str, data: bytes) -> Any:
    """Return the one value of a picture or a pickle, read as a file with the suffix `name`."""
    file_format = format_of(name)
    assert file_format is not None
    with parse_container(file_format, data) as container:
        names = container.names()
        if len(names) != 1 or names[0] not in _SINGLE_NAMES:
            msg = f"a pickled mapping of {len(names)} values; write them as columns of their own"
            raise FormatError(msg)
        return container.read(names[0])


_SINGLE_NAMES = frozenset({"image", "array", "records", "value"})
_DECODERS: dict[str, Callable[[bytes], Any]] = {
    "bytes": lambda data: np.frombuffer(data, np.uint8),
    "str": text,
    "str_decimal": text,
    "json": lambda data: from_json(parse_json(data)),
    "str_int": partial(_number, r"-?\d{1,19}", "<i8"),
    "str_float": partial(_number, r"-?\d++(?:\.\d*+)?(?:e[-+]?\d++)?|-?inf|nan", "<f8"),
    "jpeg": partial(_single_value, ".jpg"),
    "png": partial(_single_value, ".png"),
    "pkl": partial(_single_value, ".pkl"),
}

# ---------------------------------------------------------------------------------------- the index


def _index_entry(path: AnyPath) -> Mapping[str, Any] | None:
    """Return the entry of a shard in the index of its folder, None without an index.

    Raises:
        FormatError: the index is damaged, does not name the shard, or names it twice.
    """
    index_path = path.with_name(INDEX)
    if not index_path.is_file():
        return None
    with wrap_errors(INDEX):
        status = index_path.stat()
    entries = _shards_by_name(index_path, status.st_size, status.st_mtime_ns).get(path.name, ())
    if len(entries) == 1:
        return entries[0]
    msg = f"the {INDEX} beside it does not name it, so Streaming does not read it"
    if entries:
        msg = f"the {INDEX} beside it names it {len(entries)} times, so Streaming reads it as often"
    raise FormatError(msg)


def _shards(index: AnyPath) -> list[Mapping[str, Any]]:
    """Return the entries of an index, one per shard.

    Raises:
        FormatError: the index cannot be read.
    """
    with wrap_errors(INDEX):
        check_bytes(index.stat().st_size, INDEX, TEXT_BYTES)
        data = index.read_bytes()
    try:
        root = parse_json(data)
    except FormatError as error:
        msg = f"{INDEX}: {error}"
        raise FormatError(msg) from error
    shards = root.get("shards") if isinstance(root, Mapping) else None
    return (
        [shard for shard in shards if isinstance(shard, Mapping)]
        if isinstance(shards, list)
        else []
    )


@lru_cache(maxsize=1)  # an index names thousands of shards, and each of them is checked against it
def _shards_by_name(
    index: AnyPath, size: int, time: int
) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the entries of an index by the names of their files.

    Size and time of the index are part of the cache's key.
    """
    del size, time
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for shard in _shards(index):
        # Normalised, as Streaming joins the name to the folder.
        for name in {posixpath.normpath(name) for name in _names(shard)}:
            entries.setdefault(name, []).append(shard)
    return entries


def _names(shard: Mapping[str, Any]) -> list[str]:
    """Return the names of a shard's files: plain, compressed."""
    basenames = (_file(shard, which)[0] for which in ("raw_data", "zip_data"))
    return [name for name in basenames if isinstance(name, str)]


def named_shards(index: AnyPath) -> list[tuple[list[str], Any]]:
    """Return, for each MDS shard of an index, its possible file names and its number of samples.

    The names are those of the plain and of the compressed file.

    Raises:
        FormatError: the index cannot be read.
    """
    shards = list[tuple[list[str], Any]]()
    for shard in _shards(index):
        names = [
            name
            for name in _names(shard)
            if {"", ".", ".."}.isdisjoint(name.split("/")) and "\0" not in name
        ]
        if shard.get("format") == "mds" and names:
            shards.append((names, shard.get("samples")))
    return shards


def _file(shard: Mapping[str, Any], which: str) -> tuple[Any, Any, Mapping[str, Any]]:
    """Return name, size and hashes of one of a shard's files."""
    entry = shard.get(which)
    entry = entry if isinstance(entry, Mapping) else {}
    hashes = entry.get("hashes")
    return entry.get("basename"), entry.get("bytes"), hashes if isinstance(hashes, Mapping) else {}


def _opened(path: AnyPath, entry: Mapping[str, Any] | None) -> BinaryIO:
    """Open a shard, unpacked if it is compressed, after checking it against size and hashes."""
    packed = path.name.endswith(".zstd")
    file: BinaryIO = path.open("rb")
    try:
        if entry is not None:
            _check_file(file, *_file(entry, "zip_data" if packed else "raw_data")[1:])
        if packed:
            with file:
                file = io.BytesIO(_unpacked(path))
            if entry is not None:
                _check_file(file, *_file(entry, "raw_data")[1:])
    except BaseException:
        file.close()
        raise
    return file


def _unpacked(path: AnyPath) -> bytes:
    import pyarrow as pa  # noqa: PLC0415  0.1 s that only compressed shards should pay

    with (
        wrap_errors("damaged zstd"),
        pa.input_stream(os.fspath(path), compression="zstd") as stream,
    ):
        data = bytearray()
        # In pieces: Arrow allocates memory for the whole requested size.
        while len(data) <= TEXT_BYTES and (piece := stream.read(_PIECE)):
            data += piece
    check_bytes(len(data), "the unpacked shard", TEXT_BYTES)
    return bytes(data)


def _check_file(file: BinaryIO, size: Any, hashes: Mapping[str, Any]) -> None:
    actual_size = file.seek(0, io.SEEK_END)
    if size != actual_size:
        msg = f"{actual_size:,} bytes, but {INDEX} says {str(size)[:40]}"
        raise FormatError(msg)
    digests = {name: _hash(str(name)) for name in hashes}
    file.seek(0)
    while digests and (piece := file.read(_PIECE)):
        for digest in digests.values():
            digest.update(piece)
    for name, digest in digests.items():
        if digest.hexdigest() != hashes[name]:
            msg = f"its {name} is {digest.hexdigest()}, but {INDEX} says {str(hashes[name])[:140]}"
            raise FormatError(msg)


def _hash(name: str) -> Any:
    if name in _XXHASHES:
        return getattr(xxhash, name)()
    # The shake hashes have no fixed length: their hexdigest needs one as an argument.
    if name in hashlib.algorithms_guaranteed and not name.startswith("shake"):
        return hashlib.new(name)
    msg = f"{INDEX} tells a hash {name[:40]!r}, which is not known"
    raise FormatError(msg)


def _check_head(entry: Mapping[str, Any], samples: int, columns: Mapping[str, _ColumnSpec]) -> None:
    """Check the header of a shard against the index, by which Streaming reads its samples."""
    encodings = [c.encoding for c in columns.values()]
    sizes = [c.size or None for c in columns.values()]
    for name, actual in (
        ("format", "mds"),
        ("version", 2),
        ("samples", samples),
        ("column_names", list(columns)),
        ("column_encodings", encodings),
        ("column_sizes", sizes),
    ):
        if entry.get(name) != actual:
            msg = (
                f"its {name} are {str(actual)[:100]}, but {INDEX} says {str(entry.get(name))[:100]}"
            )
            raise FormatError(msg)


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _Mds(path)


MDS = Format("mds", (".mds.zstd", ".mds"), _open, beside=(INDEX,))
