"""OFF meshes: "points" and "faces" (triangles); colours of vertices and faces are skipped."""

from __future__ import annotations

import re

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import TEXT_BYTES, Values, check_bytes, numbers, text_lines, triangles
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_NUMBERS = re.compile(rb"[-+.0-9eE\s]+")


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    body = b"\n".join(line.partition(b"#")[0] for line in text_lines(path.read_bytes())).lstrip()
    if not body.startswith((b"OFF", b"COFF")):
        msg = f"not an OFF file: it starts with {body[:8]!r}"
        raise FormatError(msg)
    lines = [line for line in body.partition(b"OFF")[2].split(b"\n") if line.strip()]
    vertices, faces = _counts(lines)
    rows = [line.split() for line in lines[1 : 1 + vertices + faces]]
    surplus = [line for line in lines[1 + vertices + faces :] if _NUMBERS.fullmatch(line)]
    if surplus:
        msg = (
            f"{len(surplus):,} lines of numbers follow the {vertices:,} vertices and {faces:,} faces "
            f"that the header counts"
        )
        raise FormatError(msg)
    return Values({"points": _points(rows[:vertices]), "faces": _faces(rows[vertices:], vertices)})


def _counts(lines: list[bytes]) -> tuple[int, int]:
    """Return the numbers of vertices and faces, from the first line."""
    counts = numbers(lines[0]) if lines else np.empty(0)
    are_counts = len(counts) in {2, 3} and _whole_numbers(counts)
    if not are_counts or counts[0] + counts[1] > len(lines) - 1:
        msg = (
            f"the OFF header counts {counts[:2].tolist()} vertices and faces; "
            f"{max(len(lines) - 1, 0)} lines follow"
        )
        raise FormatError(msg)
    return int(counts[0]), int(counts[1])


def _points(rows: list[list[bytes]]) -> Array:
    if any(len(row) < 3 for row in rows):
        msg = "a vertex line has fewer than three numbers"
        raise FormatError(msg)
    coordinates = b" ".join(token for row in rows for token in row[:3])
    return numbers(coordinates).reshape(len(rows), 3)


def _faces(rows: list[list[bytes]], vertices: int) -> Array:
    """Return the triangles; a line has its number of corners, then their vertices."""
    sizes = numbers(b" ".join(row[0] for row in rows))
    sides = sizes.astype(np.int64) if _whole_numbers(sizes) else np.full(len(rows), -1)
    faces = list(zip(sides, rows, strict=True))
    if any(not 0 <= count < len(row) for count, row in faces):
        msg = "a face line has fewer corners than it says"
        raise FormatError(msg)
    corners = numbers(b" ".join(token for count, row in faces for token in row[1 : 1 + count]))
    if not _whole_numbers(corners) or not (corners < vertices).all():
        msg = (
            f"a face refers to a vertex that does not exist; the file has {vertices:,}, counted "
            f"from 0"
        )
        raise FormatError(msg)
    return triangles(sides, corners.astype(np.int64))


def _whole_numbers(values: Array) -> bool:
    return bool(((values >= 0) & (values < 2**53) & (values == np.trunc(values))).all())


OFF = Format("off", (".off",), _open, magic=(b"OFF",))
