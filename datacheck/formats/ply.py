"""PLY point clouds and meshes, ascii and binary.

Values are "points", "normals", "colors", "faces", then every other property. Own reader: sizes are
checked against the file before anything is allocated, and no library is needed. Properties of
elements other than the vertices are named ``element.property``; a list property gives all its
entries in one flat array and ``<name>.lengths``. Polygons become triangles (a fan around the first
corner).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    Values,
    add_values,
    check_bytes,
    declared,
    numbers,
    plain,
    text_lines,
    triangles,
)
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_HEADER_BYTES = 64 << 10
_TYPES = {
    "char": "i1",
    "int8": "i1",
    "uchar": "u1",
    "uint8": "u1",
    "short": "i2",
    "int16": "i2",
    "ushort": "u2",
    "uint16": "u2",
    "int": "i4",
    "int32": "i4",
    "uint": "u4",
    "uint32": "u4",
    "float": "f4",
    "float32": "f4",
    "double": "f8",
    "float64": "f8",
}
_END = {  # by the line end of the first line
    b"\n": re.compile(rb"\nend_header[ \t\r]*(?:\n|\Z)"),
    b"\r": re.compile(rb"\rend_header[ \t]*(?:\r|\Z)"),
}
_FIRST = re.compile(rb"ply[ \t]*(\r?\n|\r)")
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_GROUPS = {
    "points": ("x", "y", "z"),
    "normals": ("nx", "ny", "nz"),
    "colors": ("red", "green", "blue"),
}
_CORNERS = {"vertex_indices", "vertex_index"}


@dataclass
class _Property:
    name: str
    dtype: np.dtype[Any]
    counts: np.dtype[Any] | None = None  # type of the entry count of a list


@dataclass
class _PlyElement:
    name: str
    count: int
    properties: list[_Property] = field(default_factory=list)

    @property
    def table(self) -> bool:
        """Whether all rows have the same size."""
        return all(p.counts is None for p in self.properties)

    @property
    def least(self) -> int:
        """The least size of a row in a binary file, in bytes."""
        return sum((p.counts or p.dtype).itemsize for p in self.properties)


Columns = dict[str, tuple[Array, Array | None]]  # values, and lengths of a list property


def _header(data: bytes) -> tuple[str, list[_PlyElement], int]:
    """Return (byte order, elements, where the body starts)."""
    if not data.startswith(b"ply"):
        msg = "not a PLY file"
        raise FormatError(msg)
    first_line = _FIRST.match(data)
    end = None
    if first_line is not None:
        line_end = first_line[1][-1:]
        end = _END[line_end].search(data, 0, _HEADER_BYTES)
    if end is None:
        msg = f"no end_header in the first {_HEADER_BYTES:,} bytes"
        raise FormatError(msg)
    texts = [line.decode("latin1") for line in text_lines(data[: end.start() + 1])[1:]]
    lines = [line for line in texts if line.split()]
    formats = [line.split()[1:2] for line in lines if line.split()[0] == "format"]
    order = _ORDERS.get("".join(formats[0])) if formats else None
    if order is None:
        msg = f"the PLY header names no known format ({', '.join(_ORDERS)})"
        raise FormatError(msg)
    elements: list[_PlyElement] = []
    for line in lines:
        try:
            _declare(line.split(), order, elements)
        except (KeyError, IndexError, ValueError) as error:
            msg = f"PLY header line {line[:60]!r} cannot be read"
            raise FormatError(msg) from error
    if len({element.name for element in elements}) < len(elements):
        msg = "the PLY header declares two elements of one name"
        raise FormatError(msg)
    return order, elements, end.end()


_WORDS = {"element": 3, "property": 3, "format": 3}  # words of a line; a list property has two more


def _declare(words: list[str], order: str, elements: list[_PlyElement]) -> None:
    wanted = 5 if words[:2] == ["property", "list"] else _WORDS.get(words[0], len(words))
    if len(words) != wanted or (words[0] == "format" and words[2] != "1.0"):
        raise ValueError(" ".join(words))
    if words[0] == "element":
        if not words[2].isascii() or not words[2].isdigit():
            raise ValueError(words[2])
        elements.append(_PlyElement(words[1], int(words[2])))
    elif words[0] == "property" and words[1] == "list":
        counts = np.dtype(order + _TYPES[words[2]])
        if counts.kind == "f":
            raise ValueError(words[2])
        elements[-1].properties.append(
            _Property(words[4], np.dtype(order + _TYPES[words[3]]), counts)
        )
    elif words[0] == "property":
        elements[-1].properties.append(_Property(words[2], np.dtype(order + _TYPES[words[1]])))
    elif words[0] not in {"comment", "obj_info", "format"}:
        raise KeyError(words[0])


# Binary bodies

# Rows of equal size that are worth reading at once, and rows that are read singly before the next
# attempt.
_RUN = 16
_ROWS = 4096


def _binary(data: bytes, element: _PlyElement, start: int) -> tuple[Columns, int]:
    """Return the columns of one element and where the next starts."""
    if element.count * element.least > len(data) - start:
        msg = (
            f"{element.count:,} rows of {element.name} need more than the {len(data) - start:,} "
            f"bytes that are left"
        )
        raise FormatError(msg)
    columns, size = _rows_of_one_size(data, element, start)
    if columns is not None:
        return columns, start + size
    try:
        return _rows_one_by_one(data, element, start)
    except ValueError as error:
        msg = f"the rows of {element.name} end in the middle: {error}"
        raise FormatError(msg) from error


def _length(data: bytes, p: _Property, offset: int) -> tuple[int, int]:
    """Return the number of entries of the list at `offset` (1 for a plain property) and their start."""
    if p.counts is None:
        return 1, offset
    length = int(np.frombuffer(data, p.counts, 1, offset)[0])
    if not 0 <= length <= len(data):
        msg = f"a list of {length:,} entries"
        raise ValueError(msg)
    return length, offset + p.counts.itemsize


def _first_row(data: bytes, element: _PlyElement, start: int) -> tuple[list[int], np.dtype[Any]]:
    """Return the length of each property in the row at `start`, and the type of rows like it.

    A list of the property i is the field "v{i}" of the type, its length the field "n{i}".
    """
    lengths = []
    fields: list[Any] = []
    offset = start
    for i, p in enumerate(element.properties):
        if element.count:
            length, offset = _length(data, p, offset)
        else:
            length = 1 if p.counts is None else 0
        if p.counts is None:
            fields.append((f"v{i}", p.dtype))
        else:
            fields += [(f"n{i}", p.counts), (f"v{i}", p.dtype, (length,))]
        lengths.append(length)
        offset += length * p.dtype.itemsize
    return lengths, np.dtype(fields)


def _rows_of_one_size(data: bytes, element: _PlyElement, start: int) -> tuple[Columns | None, int]:
    """Read all rows at once if each list is as long as in the first row (a triangle mesh).

    Returns (None, 0) for other rows.
    """
    try:
        lengths, row = _first_row(data, element, start)
    except ValueError:
        return None, 0
    if row.itemsize * element.count > len(data) - start:
        return None, 0
    rows = np.empty(0, row)
    if element.count and row.itemsize:
        rows = np.frombuffer(data, row, element.count, start)
    columns: Columns = {}
    for i, p in enumerate(element.properties):
        if p.counts is None:
            columns[p.name] = rows[f"v{i}"], None
        elif (rows[f"n{i}"] == lengths[i]).all():
            columns[p.name] = rows[f"v{i}"].reshape(-1), rows[f"n{i}"].astype(np.int64)
        else:
            return None, 0
    return columns, row.itemsize * element.count


def _rows_one_by_one(data: bytes, element: _PlyElement, start: int) -> tuple[Columns, int]:
    values: list[list[Array]] = [[] for _ in element.properties]
    lengths: list[list[Array]] = [[] for _ in element.properties]
    offset = start
    remaining = element.count
    batch_size = _RUN
    while remaining:
        uniform, row_bytes = _uniform_rows(data, element, offset, min(remaining, batch_size))
        for i, (p, column) in enumerate(zip(element.properties, values, strict=True)):
            column.append(uniform[f"v{i}"].reshape(-1))
            if p.counts is not None:
                lengths[i].append(uniform[f"n{i}"].astype(np.int64))
        offset += len(uniform) * row_bytes
        remaining -= len(uniform)
        batch_size = 2 * batch_size if len(uniform) == batch_size else _RUN
        if len(uniform) < _RUN:  # triangles and quads alternate
            count = min(remaining, _ROWS)
            offset = _single_rows(data, element, offset, count, values, lengths)
            remaining -= count
    columns: Columns = {}
    for p, column, counts in zip(element.properties, values, lengths, strict=True):
        flat = np.concatenate([np.empty(0, p.dtype), *column])
        if p.counts is None:
            columns[p.name] = flat, None
        else:
            columns[p.name] = flat, np.concatenate([np.zeros(0, np.int64), *counts])
    return columns, offset


def _single_rows(
    data: bytes,
    element: _PlyElement,
    offset: int,
    count: int,
    values: list[list[Array]],
    lengths: list[list[Array]],
) -> int:
    """Add `count` rows to `values` and `lengths`; return where the next row starts."""
    new_lengths: list[list[int]] = [[] for _ in element.properties]
    for _ in range(count):
        for p, column, counts in zip(element.properties, values, new_lengths, strict=True):
            length, offset = _length(data, p, offset)
            column.append(np.frombuffer(data, p.dtype, length, offset))
            counts.append(length)
            offset += length * p.dtype.itemsize
    for counts, into in zip(new_lengths, lengths, strict=True):
        into.append(np.array(counts, np.int64))
    return offset


def _uniform_rows(data: bytes, element: _PlyElement, offset: int, most: int) -> tuple[Array, int]:
    """Return up to `most` rows with lists as long as in the first, and their size in bytes."""
    lengths, row = _first_row(data, element, offset)
    rows = np.frombuffer(data, row, min(most, (len(data) - offset) // row.itemsize), offset)
    if not len(rows):
        msg = f"{len(data) - offset:,} bytes are left"
        raise ValueError(msg)
    same = np.ones(len(rows), bool)
    for i, p in enumerate(element.properties):
        if p.counts is not None:
            same &= rows[f"n{i}"] == lengths[i]
    count = len(rows) if same.all() else int(same.argmin())
    return rows[:count], int(row.itemsize)


def _joined_column(p: _Property, column: list[Array]) -> tuple[Array, Array | None]:
    flat = np.concatenate(column) if column else np.empty(0, p.dtype)
    if p.counts is None:
        return flat, None
    return flat, np.array([len(part) for part in column], dtype=np.int64)


# Text bodies


def _ascii(tokens: Array, element: _PlyElement, start: int) -> tuple[Columns, int]:
    width = len(element.properties)
    if element.count * width > len(tokens) - start:
        msg = (
            f"{element.count:,} rows of {element.name} need more than the "
            f"{len(tokens) - start:,} numbers that are left"
        )
        raise FormatError(msg)
    if element.table:
        stop = start + element.count * width
        rows = tokens[start:stop].reshape(element.count, width)
        table: Columns = {
            p.name: (declared(rows[:, i], p.dtype, f"property {p.name}"), None)
            for i, p in enumerate(element.properties)
        }
        return table, stop
    pieces: list[list[Array]] = [[] for _ in element.properties]
    position = start
    for _ in range(element.count):
        for p, column in zip(element.properties, pieces, strict=True):
            length = 1
            if p.counts is not None:
                length = _entries(float(tokens[position]), p) if position < len(tokens) else 1
                position += 1
            column.append(tokens[position : position + length])
            position += length
        if position > len(tokens):
            msg = f"the rows of {element.name} end in the middle"
            raise FormatError(msg)
    columns: Columns = {}
    for p, column in zip(element.properties, pieces, strict=True):
        flat, lengths = _joined_column(p, column)
        columns[p.name] = declared(flat, p.dtype, f"property {p.name}"), lengths
    return columns, position


def _entries(count: float, p: _Property) -> int:
    if not (count >= 0 and count.is_integer()):
        msg = f"a list of {count:g} entries ({p.name})"
        raise FormatError(msg)
    return int(count)


# Values


def _values(elements: list[tuple[_PlyElement, Columns]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for element, columns in elements:
        prefix = "" if element.name == "vertex" else f"{element.name}."
        rest = dict(columns)
        for group, parts in _GROUPS.items() if element.name == "vertex" else ():
            if all(p in rest and rest[p][1] is None for p in parts):
                values[group] = plain(np.stack([rest.pop(p)[0] for p in parts], axis=-1))
        for name, (flat, lengths) in rest.items():
            if lengths is None:
                add_values(values, [(prefix + name, plain(flat))])
            elif element.name == "face" and name in _CORNERS:
                add_values(values, [("faces", triangles(lengths, flat))])
            else:
                add_values(
                    values, [(prefix + name, plain(flat)), (f"{prefix}{name}.lengths", lengths)]
                )
    return values


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    check_bytes(path.stat().st_size, "the file")
    data = path.read_bytes()
    order, elements, position = _header(data)
    body: Array = np.empty(0)
    if not order:
        body, position = numbers(data[position:]), 0
    element_columns: list[tuple[_PlyElement, Columns]] = []
    for element in elements:
        if element.count and not element.properties:
            msg = (
                f"{element.count:,} rows of {element.name} are declared, but no property: they "
                f"have no bytes"
            )
            raise FormatError(msg)
        if len({p.name for p in element.properties}) != len(element.properties):
            msg = f"two properties of {element.name} have one name"
            raise FormatError(msg)
        columns, position = (
            _binary(data, element, position) if order else _ascii(body, element, position)
        )
        element_columns.append((element, columns))
    # Text files with some surplus rows are common, and other readers skip them too.
    if not order and len(body) > 2 * position:
        msg = (
            f"{len(body) - position:,} numbers follow the {position:,} of the rows that the header "
            f"declares"
        )
        raise FormatError(msg)
    if order and data[position:].strip():
        msg = f"{len(data) - position:,} bytes follow the last row that the header declares"
        raise FormatError(msg)
    return Values(_values(element_columns))


PLY = Format("ply", (".ply",), _open, magic=(b"ply\n", b"ply\r\n"))
