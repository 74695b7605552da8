"""OFF meshes: "points" and "faces" (triangles); colours of vertices and faces are skipped."""

from __future__ import annotations

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import TEXT_BYTES, Values, check_bytes, numbers, text_lines, triangles
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath


def _open(path: AnyPath, hint: Hint) -> Values:
    del hint
    check_bytes(path.stat().st_size, "the file", TEXT_BYTES)
    body = b"\n".join(line.partition(b"#")[0] for line in text_lines(path.read_bytes())).lstrip()
    if not body.startswith((b"OFF", b"COFF")):
        msg = f"not an OFF file: it starts with {body[:8]!r}"
        raise FormatError(msg)
    lines = [line for line in body.partition(b"OFF")[2].split(b"\n") if line.strip()]
    counts = numbers(lines[0]) if lines else np.empty(0)
    if (
        len(counts) not in {2, 3}
        or not _whole_numbers(counts)
        or counts[0] + counts[1] > len(lines) - 1
    ):
        msg = (
            f"the OFF header counts {counts[:2].tolist()} vertices and faces; "
            f"{max(len(lines) - 1, 0)} lines follow"
        )
        raise FormatError(msg)
    vertices = int(counts[0])
    faces = int(counts[1])
    rows = [line.split() for line in lines[1 : 1 + vertices + faces]]
    if any(len(row) < 3 for row in rows[:vertices]):
        msg = "a vertex line has fewer than three numbers"
        raise FormatError(msg)
    points = numbers(b" ".join(token for row in rows[:vertices] for token in row[:3])).reshape(
        vertices, 3
    )
    sizes = numbers(b" ".join(row[0] for row in rows[vertices:]))
    sides = sizes.astype(np.int64) if _whole_numbers(sizes) else np.full(faces, -1)
    if any(not 0 <= n < len(row) for n, row in zip(sides, rows[vertices:], strict=True)):
        msg = "a face line has fewer corners than it says"
        raise FormatError(msg)
    corners = numbers(
        b" ".join(t for n, row in zip(sides, rows[vertices:], strict=True) for t in row[1 : 1 + n])
    )
    if not (_whole_numbers(corners) and (corners < vertices).all()):
        msg = (
            f"a face refers to a vertex that does not exist; the file has {vertices:,}, counted "
            f"from 0"
        )
        raise FormatError(msg)
    return Values({"points": points, "faces": triangles(sides, corners.astype(np.int64))})


def _whole_numbers(values: Array) -> bool:
    return bool(((values >= 0) & (values < 2**53) & (values == np.trunc(values))).all())


OFF = Format("off", (".off",), _open, magic=(b"OFF",))
