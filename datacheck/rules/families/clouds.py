"""Rules about point clouds and meshes: enough points, no repeated points, valid faces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.model.finding import Failure, Level, Severity
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.model.voxel_grid import are_last
from datacheck.rules.base import Columns, RuleContext, count_phrase, format_number, measure, rule
from datacheck.rules.measures import (
    column_of,
    extremes,
    form,
    is_numeric,
    of_role,
    positions,
    reduced,
)
from datacheck.rules.point_spacing import exact_keys, mixed, spacing
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]


@rule(
    "DC124",
    "too-few-points",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(form,),
    suppressed_by=("DC109", "DC122"),
    applies=lambda spec: (
        spec.role == "points" or (spec.role == "pose" and spec.min_points is not None)
    ),
)
def too_few_points(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A point cloud has fewer points than the schema requires, or none.

    What:
        A field of role points has at least ``min_points`` points, or at least one if the schema
        gives no number. A field of role pose (such as grasps) with ``min_points`` has at least so
        many poses: fewer are a warning, none is an error.
    Why it matters:
        Sampling 20,000 points from 5 repeats each of them 4,000 times, and no surface is left to
        learn from. A sampler that draws 64 grasps of an object with 12 repeats them, and draws none
        of an object without grasps.
    Measure:
        Length of the first axis.
    When it is wrong:
        Small clouds are intended: lower ``min_points``. Empty clouds are intended: switch the rule
        off.
    Options:
        none
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3], min_points: 64}}}
        samples:
          - {n: 2, xyz: {box: [200, 3]}}
          - {xyz: {box: [5, 3]}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3], min_points: 64}}}
        samples:
          - {n: 2, xyz: {box: [200, 3]}}
          - {xyz: {box: [64, 3]}}

    Fix:
        Leave the samples out, or sample the surface again.
    Reference:
        A Lyft sweep of 5 points in the tests of mmdetection3d.
    """
    least = case.spec.min_points or 1
    if "dims" not in rows:
        return
    count = rows["dims"][:, 0]
    few = rows.measured("dims") & (count < least)
    if case.spec.role == "pose":
        yield from _too_few_poses(few, count, least)
    elif few.any():
        yield Failure(
            few,
            f"{count_phrase(few, 'have')} fewer than {least:,} points; the smallest has "
            f"{int(count[few].min()):,}."
            if least > 1
            else f"{count_phrase(few, 'have')} no points.",
            measured={"smallest": int(count[few].min())},
            expected={"min_points": least},
            fix="Leave them out, or sample the surface again.",
            order=-count,
        )


def _too_few_poses(few: Array, count: Array, least: int) -> Iterator[Failure]:
    none = few & (count == 0)
    if none.any():
        text = (
            f"{count_phrase(none, 'have')} no rows: nothing can be sampled from "
            f"{'it' if none.sum() == 1 else 'them'}."
        )
        yield Failure(
            none, text, expected={"min_points": least}, fix="Leave them out.", kind="none"
        )
    if (nonempty := few & ~none).any():
        yield Failure(
            nonempty,
            f"{count_phrase(nonempty, 'have')} fewer than {least:,} rows, which the sampler takes; the "
            f"smallest has "
            f"{int(count[nonempty].min()):,}: rows are repeated.",
            measured={"smallest": int(count[nonempty].min())},
            expected={"min_points": least},
            severity=Severity.WARNING,
            fix="Leave them out, or sample fewer rows.",
            kind="repeated",
            order=-count,
        )


_MANY = 1 << 16  # in clouds of more points a few copies are ignored
_FEW = 0.01  # share of copies; linear counting is off by 0.0015 of the points (standard deviation)
_TOGETHER = 1 << 16  # points searched in one table, which stays in the cache of a core
_STRIP = 1 << 14  # points that stay in the cache of a core
_EACH = 4  # of smaller clouds, one in so many has its spacing measured


@measure("repeats", version=4, applies=of_role("points"))
def repeats(column: Column, spec: FieldSpec) -> Columns:
    """Repeated points: `placed` (finite points), `copies` (those less the distinct ones).

    In clouds of over 65,536 points `copies` is 0 where about 1 % or fewer are copies, and exact
    where more are. `spacing`: the spacing of points, see `datacheck.rules.point_spacing`. Only one
    in four of smaller clouds has it: to measure all takes as long as the rest of this function, and
    a histogram needs no more.
    """
    del spec
    exact = exact_keys(column)
    placed = positions(column)
    if exact is None or placed is None:
        return {}
    (keys, lengths), xyz = exact, placed[0]
    count = np.ones(len(column), np.int64) if lengths is None else lengths
    spacings = spacing(column, _spacing_mask(keys, count))
    if not all(np.isfinite(ends).all() for ends in extremes(column)[:2]):
        whole: Array = np.logical_and.reduce(np.isfinite(xyz), axis=0)
        keys, count = keys[whole], reduced(np.add, whole, lengths)
    stops = np.cumsum(count)
    looked = count > 0
    for i in np.flatnonzero(count > _MANY):
        looked[i] = not _few_copies(keys[stops[i] - count[i] : stops[i]])
    copies = np.zeros(len(count), np.int64)
    together = np.cumsum(np.where(looked, count, 0)) // _TOGETHER
    for number in np.unique(together[looked]):
        batch = np.flatnonzero(looked & (together == number))
        parts = [keys[stops[i] - count[i] : stops[i]] for i in batch]
        copies[batch] = _copies(np.concatenate(parts), count[batch])
    columns: Columns = {"placed": count, "copies": Measured(copies, count > 0)}
    return columns if spacings is None else {**columns, "spacing": spacings}


def _spacing_mask(keys: Array, count: Array) -> Array:
    """Return the clouds to measure the spacing of, chosen by first point, last point and size."""
    chosen = count > _MANY
    filled = count > 0
    stops = np.cumsum(count)
    ends = keys[(stops - count)[filled]] + keys[stops[filled] - 1] + count[filled].astype(np.uint64)
    chosen[filled] |= mixed(ends) % _EACH == 0
    return chosen


def _few_copies(keys: Array) -> bool:
    """Tell whether about 1 % of the keys or fewer are copies, at a tenth of the cost of a search.

    Notes:
        Linear counting: of m slots that n distinct keys fall into m * exp(-n / m) stay empty.
    """
    bits = (2 * len(keys)).bit_length()
    filled = np.zeros(1 << bits, bool)
    for start in range(0, len(keys), _STRIP):
        filled[(keys[start : start + _STRIP] >> np.uint64(64 - bits)).view(np.int64)] = True
    distinct = -len(filled) * np.log1p(-np.count_nonzero(filled) / len(filled))
    return bool(len(keys) - distinct <= _FEW * len(keys))


def _copies(keys: Array, count: Array) -> Array:
    """Return how many keys of each cloud repeat another of its keys."""
    # The top bits hold the sample, so that one table serves all samples.
    room = np.uint64(max(1, len(count).bit_length()))
    own = keys >> room
    own |= np.repeat(np.arange(len(count), dtype=np.uint64) << (np.uint64(64) - room), count)
    repeats = np.flatnonzero(~are_last(own))
    return np.bincount(
        np.searchsorted(np.cumsum(count), repeats, side="right"), minlength=len(count)
    )


@rule(
    "DC227",
    "duplicate-points",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(repeats,),
    suppressed_by=("DC109", "DC122", "DC221", "DC222"),
    applies=repeats.applies,
    defaults={"share": 0.2},
)
def duplicate_points(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Many points of a cloud are exact copies of others.

    What:
        At most 20 % of the points of a cloud are copies of another point.
    Why it matters:
        Padding by repetition gives some places more weight. Farthest-point sampling and neighbour
        searches see fewer points than there seem to be. Normals of zero-sized neighbourhoods are
        NaN.
    Measure:
        Number of points minus number of distinct points, by exact value; points with NaN or
        infinity are left out. In clouds of over 65,536 points, about 1 % of copies or fewer count
        as none. The spacing of points in the message is measured in these and in a quarter of the
        smaller clouds: the median distance of up to 32 points to the nearest point at another
        position.
    When it is wrong:
        A mesh repeats the corners of each face on purpose: raise ``share``, or switch the rule off.
    Options:
        share: largest share of copies (0.2).
    Bad::

        schema: {fields: {p: {role: points, shape: [P, 3]}}}
        samples:
          - {n: 3, p: {box: [60, 3]}}
          - {p: [[0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.4, 0.2, 0.3], [0.1, 0.9, 0.3]]}

    Good::

        schema: {fields: {p: {role: points, shape: [P, 3]}}}
        samples:
          - {n: 3, p: {box: [60, 3]}}
          - {p: [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.4, 0.2, 0.3], [0.1, 0.9, 0.3]]}

    Fix:
        Merge equal points, and sample again without replacement.
    Reference:
        Exporters write the corners of every face: 66 % copies in one mesh of trimesh's collection.
        Whang et al. 1990, A linear-time probabilistic counting algorithm, tells whether there are
        more than a few copies.
    """
    measured = rows.measured("copies")
    if not measured.any():
        return
    share = np.where(measured, rows["copies"] / np.maximum(rows["placed"], 1), 0)
    bad = share > float(case.options["share"])
    if bad.any():
        median = float(np.median(share[bad]))
        detail = f"{100 * median:.3g} % of them{_usual_spacing(rows, bad, case)}, median"
        yield Failure(
            bad,
            f"{count_phrase(bad, 'hold')} points that are copies of another one ({detail}).",
            measured={"share": median, "points": int(rows["copies"][bad].sum())},
            expected={"share": f"..{float(case.options['share']):g}"},
            fix="Merge equal points, and sample again without replacement.",
            order=share,
        )


def _usual_spacing(rows: Rows, bad: Array, case: RuleContext) -> str:
    measured = bad & rows.measured("spacing")
    return (
        f"; others are {format_number(float(np.median(rows['spacing'][measured])), case.spec.unit)} "
        f"apart"
        if measured.any()
        else ""
    )


_FARTHEST = 1 << 62  # largest index: a column holds 64 bits
_TINY = 1e-12  # share of the square of the mesh's size, below which a face has no area
_STATS = ("faces", "least", "most", "points", "flat")


@measure("surface", per="sample", uses=("fields.indexes", "fields.role"))
def surface(block: Block, schema: Schema) -> Columns:
    """Faces of a mesh: ``<field>:faces`` and further counts.

    `faces`: count of faces; `least`, `most`: smallest and largest index; `points`: count of indexed
    points; `flat`: faces without an area (of those whose indices exist).
    """
    columns: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        if spec.role != "faces" or not spec.indexes:
            continue
        mine = column_of(block, schema, name)
        other = column_of(block, schema, spec.indexes)
        if mine is None or other is None or not (is_numeric(mine) and is_numeric(other)):
            continue
        if (
            mine.lengths is None
            or other.lengths is None
            or mine.values.ndim != 2
            or mine.values.shape[1] < 3
        ):
            continue
        if other.values.ndim != 2 or other.values.shape[1] < 3:
            continue
        face_stats = np.array(
            [_shape(mine[i], other[i]) for i in range(len(block))], dtype=np.int64
        ).reshape(-1, len(_STATS))
        for place, stat in enumerate(_STATS):
            columns[f"{name}:{stat}"] = Measured(face_stats[:, place], np.ones(len(block), bool))
    return dict(columns)


def _shape(faces: Array, points: Array) -> tuple[int, int, int, int, int]:
    if not len(faces) or not np.isfinite(faces).all():
        return len(faces), 0, -1, len(points), 0
    least, most = (
        max(-_FARTHEST, min(int(index), _FARTHEST)) for index in (faces.min(), faces.max())
    )
    if least < 0 or most >= len(points):
        return len(faces), least, most, len(points), 0
    corners = points[:, :3].astype(np.float64)[faces[:, :3].astype(np.int64)]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    size = float(np.ptp(points[:, :3].astype(np.float64), axis=0).max()) if len(points) else 0.0
    flat = ~(np.abs(normal).max(axis=1) > _TINY * size * size)
    return len(faces), least, most, len(points), int(flat.sum())


@rule(
    "DC128",
    "degenerate-mesh",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(surface,),
    suppressed_by=("DC109", "DC122", "DC221"),
    applies=lambda s: of_role("faces")(s) and s.indexes is not None,
    defaults={"least": 4},
)
def degenerate_mesh(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """The faces of a mesh do not form a surface.

    What:
        A mesh has at least 4 faces, every index names one of the points of ``indexes``, and not all
        faces have an area of 0.
    Why it matters:
        Sampling points from such a mesh fails, and loaders put zeros in place of the object. On a
        GPU, an index out of range reads other memory.
    Measure:
        Number of faces, smallest and largest index, and number of faces with an area of 0.
    When it is wrong:
        Indices count from 1: subtract 1 when the mesh is read. An open sheet has fewer faces: lower
        ``least``.
    Options:
        least: smallest number of faces (4, a tetrahedron).
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
        Export the mesh again, and check that points and faces come from the same file.
    Reference:
        SceneLeap's ``io_utils`` returns an empty mesh after any exception, and zeros are sampled
        from it.
    """
    column = f":{case.name}:faces"
    if column not in rows:
        return
    measured = rows.measured(column)
    faces = rows[column]
    points = rows[f":{case.name}:points"]
    least = rows[f":{case.name}:least"]
    most = rows[f":{case.name}:most"]
    few = measured & (faces < int(case.options["least"]))
    outside = measured & ~few & ((least < 0) | (most >= points))
    flat = measured & ~few & ~outside & (rows[f":{case.name}:flat"] >= faces)
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
                f"{count_phrase(bad, 'have')} {words}; the first {seen}, {int(points[first]):,} "
                f"points.",
                measured={"faces": int(faces[first]), "points": int(points[first])},
                kind="one-based" if one_based else kind,
                fix="Subtract 1: the indices count from 1."
                if one_based
                else "Export the mesh again.",
            )
