"""LAS and LAZ point clouds: "points" (scaled, float64), "colors" (uint16), other dimensions.

Each other dimension is a value under its own name. The header is checked against the size of the
file before laspy reads it: with impossible counts, laspy reads on for minutes, and its decompressor
panics or allocates without bound.
"""

from __future__ import annotations

import os
import struct
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    Values,
    add_values,
    check_bytes,
    check_expansion,
    plain,
    wrap_errors,
)
from datacheck.plugins import require
from datacheck.runtime.beneath import AnyPath

_HEADER_BYTES = 375  # of the newest version, 1.4
_ROW_BYTES = 20  # of point format 0
_RECORD_BYTES = 60  # of the header of an extended record
_RECORDS_BYTES = 1 << 20  # of the records before the points that are searched
_LASZIP = b"laszip encoded\0\0"  # user of the record about compression
_VARIABLE = 0xFFFFFFFF  # size of the chunks of a COPC file
_CHUNK_BYTES = 4096  # more than a chunk takes besides its points
_COLORS = ("red", "green", "blue")


def _check(head: bytes, size: int, path: AnyPath) -> None:
    if head[:4] != b"LASF" or len(head) < 227:
        msg = (
            "not a LAS file: it does not start with LASF"
            if head[:4] != b"LASF"
            else "a LAS header cut short"
        )
        raise FormatError(msg)
    minor = head[25]
    header, start, vlrs, point_format, row, points = struct.unpack_from("<HIIBHI", head, 94)
    if minor >= 4 and len(head) >= _HEADER_BYTES:
        extended_start, more = struct.unpack_from("<QI", head, 235)
        points = max(points, struct.unpack_from("<Q", head, 247)[0])
        if more and (extended_start > size or more * 60 > size - extended_start):
            msg = f"{more:,} extended records are declared at byte {extended_start:,}; the file has {size:,}"
            raise FormatError(msg)
    if not 227 <= header <= start <= size or vlrs * 54 > start - header:
        msg = (
            f"a header of {header} bytes with {vlrs:,} records and points from byte {start:,}; "
            f"the file has {size:,}"
        )
        raise FormatError(msg)
    if point_format & 0xC0:
        _check_chunks(path, (header, start, size), points, row)
        check_expansion(points * row, size, "the points")
    else:
        _check_rest(path, (start, _end_of_points(head, size)), points, row)
    if points and row < _ROW_BYTES:
        msg = f"{points:,} points of {row} bytes are declared; a point has at least {_ROW_BYTES}"
        raise FormatError(msg)
    check_bytes(points * max(row, 24), "the points")


def _end_of_points(head: bytes, size: int) -> int:
    """Return where the points end at the latest: waveforms and extended records may follow."""
    header, version = int.from_bytes(head[94:96], "little"), head[25]
    waveforms = int.from_bytes(head[227:235], "little") if version >= 3 and header >= 235 else 0
    records = int.from_bytes(head[235:243], "little") if version >= 4 and header >= 375 else 0
    return min(place or size for place in (waveforms, records, size))


def _check_rest(path: AnyPath, places: tuple[int, int], points: int, row: int) -> None:
    """Check that the declared points, and no others, are in the file.

    Zeros (space that a program reserved) and an extended record (an index that a program added) are
    no points.

    Args:
        path: the file.
        places: where the points start, and where they end at the latest.
        points: the declared number of points.
        row: bytes of a point.
    """
    start, end = places
    stop = start + points * row
    rest = end - stop
    if stop > (size := path.stat().st_size):
        msg = (
            f"{points:,} points of {row} bytes are declared; {size - start:,} bytes follow the "
            f"header"
        )
        raise FormatError(msg)
    if rest < max(row, 1):
        return
    with path.open("rb") as file:
        file.seek(stop)
        first = file.read(max(row, _RECORD_BYTES))
    name, length = first[2:18].rstrip(b"\0"), int.from_bytes(first[20:28], "little")
    is_record = name.isascii() and name.decode("ascii").isprintable() and bool(name)
    if any(first[:row]) and not (is_record and length <= rest - _RECORD_BYTES):
        msg = (
            f"{rest:,} bytes ({rest // row:,} points of {row} bytes) follow the last point that the "
            f"header declares"
        )
        raise FormatError(msg)


def _check_chunks(path: AnyPath, places: tuple[int, int, int], points: int, row: int) -> None:
    """Check the chunk table of a compressed file: its place, and its chunks against the points.

    Args:
        path: the file.
        places: size of the header, first byte of the points, size of the file.
        points: the declared number of points.
        row: bytes of a point.
    """
    header, start, size = places
    with path.open("rb") as file:
        file.seek(header)
        records = file.read(min(start - header, _RECORDS_BYTES))
        file.seek(start)
        table = int.from_bytes(file.read(8), "little", signed=True)
        if table == -1:  # written as a stream: the offset is at the end
            file.seek(size - 8)
            table = int.from_bytes(file.read(8), "little", signed=True)
        in_file = start + 8 <= table <= size - 8
        file.seek(table if in_file else 0)
        chunks = int.from_bytes(file.read(8)[4:], "little") if in_file else 0
    if points and (not in_file or chunks > max(points, 1)):
        msg = (
            f"the chunk table (byte {table:,}, {chunks:,} chunks) does not fit {points:,} points "
            f"in {size:,} bytes"
        )
        raise FormatError(msg)
    # The last chunk has any number of points, and a writer may add an empty one.
    most = (chunks - 2) * _chunk_points(records)
    packed = table - start - 8
    if in_file and (points < most or packed > 2 * points * row + _CHUNK_BYTES * (chunks + 1)):
        msg = (
            f"{points:,} points of {row} bytes are declared, but {chunks:,} chunks of {packed:,} "
            f"bytes hold more"
        )
        raise FormatError(msg)


def _chunk_points(records: bytes) -> int:
    """Return the points of each chunk but the last; 0 if chunks differ, or no record says it."""
    # 16 bytes of the user's name, 36 of the rest of the record's header, 12 before the size.
    place = records.find(_LASZIP) + 16 + 36 + 12
    if _LASZIP not in records or place + 4 > len(records):
        return 0
    count = int.from_bytes(records[place : place + 4], "little")
    return 0 if count == _VARIABLE else count


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    laspy = require("laspy", "clouds")
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
    _check(head, size, path)
    if head[104] & 0xC0 and not laspy.LazBackend.detect_available():
        require("lazrs", "clouds")
    with wrap_errors("damaged LAS file"):
        cloud = laspy.read(os.fspath(path))
        names = list(cloud.point_format.dimension_names)
        declared = int(cloud.header.point_count)
        if len(cloud.points) != declared:
            msg = f"{declared:,} points are declared, {len(cloud.points):,} found"
            raise FormatError(msg)
        values: dict[str, Any] = {
            "points": np.stack([np.asarray(cloud[axis]) for axis in "xyz"], axis=-1)
        }
        if all(name in names for name in _COLORS):
            values["colors"] = np.stack(
                [plain(np.asarray(cloud[name])) for name in _COLORS], axis=-1
            )
        rest = [name for name in names if name not in {"X", "Y", "Z", *_COLORS}]
        add_values(values, ((name, plain(np.asarray(cloud[name]))) for name in rest))
    return Values(values)


LAS = Format("las", (".copc.laz", ".las", ".laz"), _open, magic=(b"LASF",))
