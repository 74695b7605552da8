"""Rules about meshes: faces that make a surface of the points that they index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Failure, Level, Severity
from datacheck.rules.base import Case, Columns, measure, rule, those
from datacheck.rules.measures import column_of, is_numeric, of_role
from datacheck.sample import Block
from datacheck.schema.model import Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_FARTHEST = 1 << 62  # of an index: a column holds 64 bits
_TINY = 1e-12  # area of a face, as share of the square of the mesh's size, that is none
_STATS = ("faces", "least", "most", "points", "flat")


@measure("surface", per="sample", uses=("fields.indexes", "fields.role"))
def surface(block: Block, schema: Schema) -> Columns:
    """What the faces of a mesh are: ``<field>:faces`` and the other numbers of it.

    `faces`: how many; `least`, `most`: smallest and largest index; `points`: how many there are to index; `flat`: faces
    without an area (of those whose indices exist).
    """
    columns: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        if spec.role != "faces" or not spec.indexes:
            continue
        mine, other = column_of(block, schema, name), column_of(block, schema, spec.indexes)
        if mine is None or other is None or not (is_numeric(mine) and is_numeric(other)):
            continue
        if mine.lengths is None or other.lengths is None or mine.values.ndim != 2 or mine.values.shape[1] < 3:
            continue
        if other.values.ndim != 2 or other.values.shape[1] < 3:
            continue
        found = np.array([_shape(mine[i], other[i]) for i in range(len(block))], dtype=np.int64).reshape(
            -1, len(_STATS)
        )
        for place, stat in enumerate(_STATS):
            columns[f"{name}:{stat}"] = Measured(found[:, place], np.ones(len(block), bool))
    return dict(columns)


def _shape(faces: Array, points: Array) -> tuple[int, int, int, int, int]:
    if not len(faces) or not np.isfinite(faces).all():
        return len(faces), 0, -1, len(points), 0
    least, most = (max(-_FARTHEST, min(int(one), _FARTHEST)) for one in (faces.min(), faces.max()))
    if least < 0 or most >= len(points):
        return len(faces), least, most, len(points), 0
    corners = points[:, :3].astype(np.float64)[faces[:, :3].astype(np.int64)]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    size = float(np.ptp(points[:, :3].astype(np.float64), axis=0).max()) if len(points) else 0.0
    flat = ~(np.abs(normal).max(axis=1) > _TINY * size * size)
    return len(faces), least, most, len(points), int(flat.sum())


@rule(
    "DC128", "degenerate-mesh", Severity.ERROR, Level.SAMPLE, measures=(surface,), needs=("DC109", "DC122", "DC221"),
    applies=lambda s: of_role("faces")(s) and s.indexes is not None, defaults={"least": 4},
)  # fmt: skip
def degenerate_mesh(rows: Rows, case: Case) -> Iterator[Failure]:
    """The faces of a mesh make no surface.

    What:
        A mesh has 4 faces or more; every index names one of the points of ``indexes``; not all faces are flat.
    Why it matters:
        Sampling points from such a mesh fails, and loaders put zeros in place of the object; an index out of range
        reads other memory on a GPU.
    Measure:
        Number of faces, smallest and largest index, faces whose area is 0.
    When it is wrong:
        Indices count from 1: subtract 1 when the mesh is read. An open sheet of fewer faces: lower ``least``.
    Options:
        least: fewest faces (4, a tetrahedron).
    Bad::

        schema: {fields: {verts: {role: points, shape: [V, 3]}, faces: {role: faces, shape: [F, 3], indexes: verts}}}
        samples:
          - {verts: {box: [80, 3]}, faces: [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]}
          - {verts: {box: [80, 3]}, faces: [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 80]]}

    Good::

        schema: {fields: {verts: {role: points, shape: [V, 3]}, faces: {role: faces, shape: [F, 3], indexes: verts}}}
        samples:
          - {n: 2, verts: {box: [80, 3]}, faces: [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]}

    Fix:
        Export the mesh again; check that points and faces are of the same file.
    Reference:
        SceneLeap's ``io_utils`` returns an empty mesh after any exception, and zeros are sampled from it.
    """
    column = f":{case.name}:faces"
    if column not in rows:
        return
    known = rows.measured(column)
    faces, points = rows[column], rows[f":{case.name}:points"]
    least, most = rows[f":{case.name}:least"], rows[f":{case.name}:most"]
    few = known & (faces < int(case.options["least"]))
    outside = known & ~few & ((least < 0) | (most >= points))
    flat = known & ~few & ~outside & (rows[f":{case.name}:flat"] >= faces)
    for kind, bad, words in (
        ("few", few, f"fewer than {case.options['least']} faces"),
        ("outside", outside, f"faces that name points which are not in {case.spec.indexes}"),
        ("flat", flat, "no face with an area"),
    ):
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            seen = f"{int(faces[first]):,} faces of indices {int(least[first])}..{int(most[first])}"
            one_based = kind == "outside" and bool(((least == 1) & (most == points))[bad].all())
            yield Failure(
                bad,
                f"{those(bad, 'have')} {words}; the first {seen}, {int(points[first]):,} points.",
                measured={"faces": int(faces[first]), "points": int(points[first])},
                kind="one-based" if one_based else kind,
                fix="Subtract 1: the indices count from 1." if one_based else "Export the mesh again.",
            )
