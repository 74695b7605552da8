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
        _check_chunks(path, start, size, points)
        check_expansion(points * row, size, "the points")
    elif points * row > size - start:
        msg = (
            f"{points:,} points of {row} bytes are declared; {size - start:,} bytes follow the "
            f"header"
        )
        raise FormatError(msg)
    if points and row < _ROW_BYTES:
        msg = f"{points:,} points of {row} bytes are declared; a point has at least {_ROW_BYTES}"
        raise FormatError(msg)
    check_bytes(points * max(row, 24), "the points")


def _check_chunks(path: AnyPath, start: int, size: int, points: int) -> None:
    """Check the place and the declared length of the chunk table of a compressed file."""
    with path.open("rb") as file:
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
