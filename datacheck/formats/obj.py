"""Wavefront OBJ meshes: "points", "faces" (triangles, from 0), "normals" (vn), "colors".

Colours come from vertex lines with six numbers or more (v x y z r g b). "normals" and "colors" are
absent if the file has none.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import TEXT_BYTES, Values, check_bytes, numbers, text_lines, triangles
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_WORDS = re.compile(
    rb"(?:v|vn|vt|vp|f|l|p|o|g|s|mtllib|usemtl|cstype|deg|curv2?|surf|end|parm|trim|hole)\b"
)
# Numbers of a line: x y z, then w, r g b, w r g b, or r g b and their count.
_WIDTHS = {3, 4, 6, 7, 8}


def _rows(lines: list[bytes], what: str) -> Array:
    """Return the numbers after the keyword of each line: float64 (lines, numbers per line)."""
    if not lines:
        return np.empty((0, 3))
    widths = {len(line.split()) - 1 for line in lines}
    # Some lines have colours and some do not: keep what all of them have.
    if len(widths) > 1 and min(widths) >= 3:
        lines, widths = [b" ".join(line.split()[:4]) for line in lines], {3}
    width = widths.pop()
    if widths or width not in _WIDTHS:
        msg = f"a {what} line has {min({width, *widths})} numbers; x y z are needed"
        raise FormatError(msg)
    values = numbers(b"\n".join(line.split(None, 1)[1] for line in lines))
    return values.reshape(len(lines), width)


def _faces(lines: list[bytes], vertices: Array, count: int) -> Array:
    """Return triangles.

    Shapes:
        vertices: int64 (faces) [vertices before the face, which negative indices count back from]
        returns: int64 (triangles, 3)
    """
    corners = np.array([len(line.split()) - 1 for line in lines], dtype=np.int64)
    # A corner such as 3/7/2 is vertex, texture, normal.
    body = re.sub(rb"/[^\s]*", b"", b"\n".join(line[1:] for line in lines))
    flat = numbers(body)
    if (
        len(flat) != corners.sum()
        or not (flat == np.trunc(flat)).all()
        or not (np.abs(flat) < 2**53).all()
    ):
        msg = "a face refers to a vertex by something that is no whole number"
        raise FormatError(msg)
    index = flat.astype(np.int64)
    index = np.where(index < 0, np.repeat(vertices, corners) + index, index - 1)
    wrong = np.flatnonzero((index < 0) | (index >= count))
    if len(wrong):
        msg = (
            f"a face refers to vertex {int(flat[wrong[0]])}; the file has {count:,}, counted from 1"
        )
        raise FormatError(msg)
    return triangles(corners, index)


def _positions(lines: list[bytes], key: bytes) -> list[int]:
    return [i for i, line in enumerate(lines) if line.startswith((key + b" ", key + b"\t"))]


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    data = path.read_bytes().replace(b"\\\r\n", b" ").replace(b"\\\n", b" ")
    lines = [line.partition(b"#")[0].strip() for line in text_lines(data)]
    if any(lines) and not any(_WORDS.match(line) for line in lines):
        msg = "not a Wavefront OBJ file: no line starts with one of its keywords (v, vn, f, ...)"
        raise FormatError(msg)
    vertex_at, face_at, normal_at = (_positions(lines, key) for key in (b"v", b"f", b"vn"))
    rows = _rows([lines[i] for i in vertex_at], "vertex")
    values: dict[str, Any] = {"points": np.ascontiguousarray(rows[:, :3])}
    if rows.shape[1] >= 6:
        start = 4 if rows.shape[1] == 7 else 3
        values["colors"] = np.ascontiguousarray(rows[:, start : start + 3])
    if normal_at:
        values["normals"] = np.ascontiguousarray(
            _rows([lines[i] for i in normal_at], "normal")[:, :3]
        )
    if face_at:
        before = np.searchsorted(np.array(vertex_at, dtype=np.int64), face_at)
        values["faces"] = _faces([lines[i] for i in face_at], before, len(rows))
    return Values(values)


OBJ = Format("obj", (".obj",), _open)
