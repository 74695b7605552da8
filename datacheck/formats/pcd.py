"""PCD point clouds, versions .5 to .7, ascii, binary and binary_compressed.

Values: "points", "normals" (normal_x, normal_y, normal_z), "colors" uint8 [N, 3] (unpacked from rgb
or rgba, the latter also with "alpha"), then each other field by its name; a field with COUNT k is
[N, k].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    Values,
    add_values,
    check_bytes,
    check_expansion,
    declared,
    numbers,
    plain,
)
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_HEADER_BYTES = 64 << 10
_KINDS = {"F": "f", "I": "i", "U": "u"}
_GROUPS = {"points": ("x", "y", "z"), "normals": ("normal_x", "normal_y", "normal_z")}


@dataclass(frozen=True)
class _Field:
    name: str
    dtype: np.dtype[Any]
    count: int


def _header(data: bytes) -> tuple[list[_Field], int, str, int]:
    """Return (fields, number of points, encoding, where the body starts)."""
    entries: dict[str, list[str]] = {}
    offset = 0
    while "DATA" not in entries:
        end = data.find(b"\n", offset, _HEADER_BYTES)
        if end < 0:
            msg = f"not a PCD file: no DATA line in the first {_HEADER_BYTES:,} bytes"
            raise FormatError(msg)
        words = data[offset:end].decode("latin1").split()
        if words and not words[0].startswith("#"):
            entries[words[0].upper()] = words[1:]
        offset = end + 1
    try:
        fields = _fields(entries)
        width, height = (int(entries[key][0]) for key in ("WIDTH", "HEIGHT"))
        points = int(entries["POINTS"][0]) if "POINTS" in entries else width * height
        encoding = entries["DATA"][0].lower()
    except (KeyError, IndexError, ValueError, TypeError) as error:
        msg = f"the PCD header is incomplete or contradicts itself: {error}"
        raise FormatError(msg) from error
    if points < 0 or width * height != points:
        msg = f"the PCD header says {points:,} points but WIDTH x HEIGHT is {width * height:,}"
        raise FormatError(msg)
    return fields, points, encoding, offset


def _fields(entries: dict[str, list[str]]) -> list[_Field]:
    names = entries.get("FIELDS") or entries["COLUMNS"]
    counts = [int(c) for c in entries.get("COUNT", ["1"] * len(names))]
    kinds = zip(entries["TYPE"], entries["SIZE"], strict=True)
    dtypes = [np.dtype(f"<{_KINDS[kind]}{int(size)}") for kind, size in kinds]
    fields = [_Field(*parts) for parts in zip(names, dtypes, counts, strict=True)]
    # "_" is padding, of 0 bytes where the writer needs none
    fields = [f for f in fields if f.name != "_" or f.count]
    shown = [f.name for f in fields if f.name != "_"]
    if len(set(shown)) != len(shown) or any(not 0 < f.count <= 1 << 20 for f in fields):
        msg = "a field stands twice or has a COUNT that is not positive"
        raise ValueError(msg)
    return fields


def unpack_lzf(data: bytes, size: int) -> bytes:
    """Unpack liblzf's format to `size` bytes.

    Raises:
        FormatError: the bytes refer outside themselves or do not give `size` bytes.
    """
    out = bytearray()
    position = 0
    end = len(data)
    while position < end and len(out) <= size:
        control = data[position]
        position += 1
        if control < 32:
            out += data[position : position + control + 1]
            position += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += data[position] if position < end else 0
            position += 1
        if position >= end:
            break
        back = ((control & 31) << 8) + data[position] + 1
        position += 1
        length += 2
        start = len(out) - back
        if start < 0:
            msg = "the compressed points refer to bytes before their start"
            raise FormatError(msg)
        chunk = out[start : start + length]
        out += chunk if back >= length else (chunk * (length // back + 1))[:length]
    if len(out) != size or position != end:
        msg = f"the compressed points do not unpack to the {size:,} bytes that are declared"
        raise FormatError(msg)
    return bytes(out)


_EXACT = 2.0**53  # from here on float64 skips integers


def _ascii(body: bytes, fields: list[_Field], points: int) -> dict[str, Array]:
    values = numbers(body)
    width = sum(f.count for f in fields)
    if len(values) != points * width:
        msg = f"{points:,} points of {width} numbers are declared, {len(values):,} numbers found"
        raise FormatError(msg)
    rows = values.reshape(points, width)
    columns = {}
    first_column = 0
    for f in fields:
        part = slice(first_column, first_column + f.count)
        if (
            f.dtype.itemsize == 8
            and f.dtype.kind in "iu"
            and (np.abs(rows[:, part]) >= _EXACT).any()
        ):
            columns[f.name] = _whole(np.array(body.split()).reshape(points, width)[:, part], f)
        else:
            columns[f.name] = declared(rows[:, part], f.dtype, f"field {f.name}")
        first_column += f.count
    return columns


def _whole(tokens: Array, field: _Field) -> Array:
    """Return integers that float64 cannot represent exactly, such as times in nanoseconds.

    Shapes:
        tokens: bytes (points, count)
    """
    try:
        values = [int(token) for token in tokens.ravel().tolist()]
        return np.array(values, dtype=field.dtype).reshape(tokens.shape)
    except (ValueError, OverflowError) as error:
        msg = f"field {field.name} is declared {field.dtype} but holds other numbers"
        raise FormatError(msg) from error


def _binary(body: bytes, fields: list[_Field], points: int) -> dict[str, Array]:
    spec: list[Any] = [(str(i), f.dtype, (f.count,)) for i, f in enumerate(fields)]
    row = np.dtype(spec)
    if points * row.itemsize > len(body) or body[points * row.itemsize :].strip(b"\0\r\n "):
        msg = f"{points:,} points of {row.itemsize} bytes are declared, {len(body):,} bytes found"
        raise FormatError(msg)
    rows = np.frombuffer(body, row, points) if points else np.empty(0, row)
    return {f.name: rows[str(i)] for i, f in enumerate(fields)}


def _compressed(body: bytes, fields: list[_Field], points: int) -> dict[str, Array]:
    packed, size = (int(n) for n in np.frombuffer(body[:8].ljust(8, b"\0"), "<u4"))
    needed = points * sum(f.count * f.dtype.itemsize for f in fields)
    if size != needed or packed > len(body) - 8:
        msg = (
            f"{needed:,} bytes of points are declared; the body says {size:,} in {packed:,} of "
            f"{len(body) - 8:,} bytes"
        )
        raise FormatError(msg)
    check_expansion(size, packed, "the compressed points")
    raw = unpack_lzf(body[8 : 8 + packed], size)
    columns = {}
    offset = 0
    for f in fields:  # field after field, not point after point
        columns[f.name] = np.frombuffer(raw, f.dtype, points * f.count, offset).reshape(
            points, f.count
        )
        offset += points * f.count * f.dtype.itemsize
    return columns


_BODIES = {"ascii": _ascii, "binary": _binary, "binary_compressed": _compressed}


def _values(columns: dict[str, Array]) -> dict[str, Any]:
    rest = {
        name: column[:, 0] if column.shape[1] == 1 else column
        for name, column in columns.items()
        if name != "_"
    }
    values: dict[str, Any] = {}
    for group, parts in _GROUPS.items():
        if all(p in rest and rest[p].ndim == 1 for p in parts):
            values[group] = plain(np.stack([rest.pop(p) for p in parts], axis=-1))
    for packed in ("rgb", "rgba"):
        if packed in rest and rest[packed].dtype.itemsize == 4 and rest[packed].ndim == 1:
            word = np.ascontiguousarray(rest.pop(packed)).view("<u4")
            channels = np.stack([word >> 16, word >> 8, word, word >> 24], axis=-1).astype(np.uint8)
            values["colors"] = np.ascontiguousarray(channels[:, :3])
            if packed == "rgba":
                values["alpha"] = np.ascontiguousarray(channels[:, 3])
    add_values(values, ((name, plain(column)) for name, column in rest.items()))
    return values


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    check_bytes(path.stat().st_size, "the file")
    data = path.read_bytes()
    fields, points, encoding, body_start = _header(data)
    if encoding not in _BODIES:
        msg = f"PCD data in encoding {encoding[:30]!r}; {', '.join(_BODIES)} are read"
        raise FormatError(msg)
    check_bytes(points * sum(f.count * f.dtype.itemsize for f in fields), "the points")
    return Values(_values(_BODIES[encoding](data[body_start:], fields, points)))


PCD = Format("pcd", (".pcd",), _open, magic=(b"# .PCD", b"VERSION "))
