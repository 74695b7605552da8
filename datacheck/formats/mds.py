"""MDS shards of MosaicML Streaming, plain or zstd.

Sample 12 has the values ``000000000012/NAME``, one per column. `mds_encodings` decodes them. If
the folder has an ``index.json``, `mds_index` checks the shard against it. A column whose encoding
has no decoder is not listed, and reading one of its values raises an error that says why.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    TEXT_BYTES,
    VALUE_BYTES,
    CountedContainer,
    check_bytes,
    check_samples,
    wrap_errors,
)
from datacheck.formats.mds_encodings import ArrayType, Decoder, array_type, decoder
from datacheck.formats.mds_index import INDEX, ShardEntry, shard_entry
from datacheck.formats.parsed import parse_json
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath

_KEY = re.compile(r"[0-9]{12}")
_READ_BYTES = 1 << 20


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
