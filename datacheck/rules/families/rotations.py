"""Rules about rotations: unit quaternions, rigid matrices, unit normals, axes and conventions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np

from datacheck.model.chats import Messages
from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.rotation import matrices, wxyz
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    count_phrase,
    first_few,
    format_number,
    measure,
    pluralize,
    rule,
    unique_texts,
)
from datacheck.rules.measures import (
    column_of,
    is_numeric,
    leaf,
    norms,
    numbers,
    of_role,
    place,
    positions,
    reduced,
)
from datacheck.rules.placement import quaternion_columns, rows_of, transforms_of
from datacheck.schema.grammar import factor
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

_END = np.array([0.0, 0.0, 0.0, 1.0])
_KEYS = 32  # most keys with matrices
_RECORDS = 16  # first records of a list searched for them
_PLACES = 20  # records that a message names
_SUPPRESSED_BY = ("DC109", "DC122", "DC221", "DC222")


def _turns(spec: FieldSpec) -> bool:
    return (leaf(spec) and spec.role in {"quaternion", "transform"}) or (
        spec.role == "pose" and quaternion_columns(spec) is not None
    )


def _grain(column: Column) -> Array:
    """Return the largest rounding error of a sum of products in the dtype, per sample."""
    dtype = column.values.dtype
    return np.full(len(column), 8 * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0)


@measure("unit", applies=lambda s: _turns(s) and s.role != "transform", uses=("role", "columns"))
def unit(column: Column, spec: FieldSpec) -> Columns:
    """Lengths of quaternions.

    `shortest` and `longest` of those that are not zero; `lengthless`: count of zero ones;
    `quaternions`: count of all; `grain`: rounding error of the dtype.
    """
    place = quaternion_columns(spec) if spec.role == "pose" else None
    quaternions = rows_of(column if place is None else column.slice_items(*place), 4)
    if quaternions is None:
        return {}
    values, counts = quaternions
    size = norms(np.ascontiguousarray(values.T))
    zero = size < 1e-6
    filled = counts > 0
    columns = {
        "shortest": reduced(np.minimum, np.where(zero, 1.0, size), counts),
        "longest": reduced(np.maximum, np.where(zero, 1.0, size), counts),
        "lengthless": reduced(np.add, zero, counts),
        "quaternions": counts,
        "grain": _grain(column),
    }
    return {name: Measured(value, filled) for name, value in columns.items()}


@measure("rigid", applies=of_role("transform"))
def rigid(column: Column, spec: FieldSpec) -> Columns:
    """Deviations of matrices from rigid motions.

    `skew`: largest number in ``R^T R - I``; `det`: lowest and highest determinant; `last_row`: its
    distance from ``0 0 0 1``, `last_column`: likewise; `turnless`: matrices of zeros; `grain`:
    rounding error of the dtype.
    """
    del spec
    transforms = transforms_of(column)
    if transforms is None:
        return {}
    matrix, counts, whole = transforms
    turn = matrix[:, :3, :3]
    det = np.einsum("ni,ni->n", turn[:, 0], np.cross(turn[:, 1], turn[:, 2]))
    aside = np.abs(matrix[:, :, 3] - _END).max(axis=1, initial=0.0)
    off = (
        np.abs(np.einsum("nji,njk->nik", turn, turn) - np.eye(3))
        .reshape(-1, 9)
        .max(axis=1, initial=0.0)
    )
    columns = {
        "skew": reduced(np.maximum, off, counts),
        "det": np.stack([reduced(u, det, counts) for u in (np.minimum, np.maximum)], axis=1),
        "last_row": reduced(
            np.maximum, np.abs(matrix[:, 3] - _END).max(axis=1, initial=0.0), counts
        ),
        "last_column": reduced(np.maximum, np.where(whole, aside, 1.0), counts),
        "turnless": reduced(np.add, (turn == 0).all(axis=(1, 2)), counts),
        "grain": _grain(column),
    }
    return {name: Measured(value, counts > 0) for name, value in columns.items()}


@rule(
    "DC304",
    "bad-rotation",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(unit, rigid),
    suppressed_by=(*_SUPPRESSED_BY, "DC125"),
    applies=_turns,
    defaults={"off": 1e-3},
)
def bad_rotation(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A quaternion or a matrix is not a rotation.

    What:
        Quaternions have length 1; rotation matrices are orthonormal with determinant +1; the last
        row of a 4 x 4 transform is ``0 0 0 1``. A zero quaternion or matrix fails whatever ``off``
        is. The rule also judges poses with a column ``quat``.
    Why it matters:
        Conversion code raises no error: a zero quaternion becomes a wrong rotation or NaN, a scaled
        matrix enlarges the object, and a transposed transform leaves the object at the origin.
    Measure:
        ``| |q| - 1 |``; the largest number of ``|R^T R - I|``; the determinant; the last row. The
        rounding error of half precision is always allowed.
    When it is wrong:
        The transforms scale on purpose: raise ``off``.
    Options:
        off: largest deviation of each measure (0.001).
    Bad::

        schema: {fields: {q: {role: quaternion, shape: [G, 4], order: wxyz}}}
        samples:
          - {n: 3, q: {turns: 5}}
          - {q: {turns: 5, scale: 1.5}}

    Good::

        schema: {fields: {q: {role: quaternion, shape: [G, 4], order: wxyz}}}
        samples:
          - {n: 4, q: {turns: 5}}

    Fix:
        Divide quaternions by their length, transpose or orthonormalise matrices, and leave zeros
        out; exporting again is better.
    Reference:
        SceneLeap reads grasps without any check of the quaternion; BOP's scene_gt.json holds
        rounded matrices.
    """
    part = f"{case.name}.quat"
    if case.spec.role == "pose" and case.schema.part_of(part) and part in case.schema.fields:
        return  # reported for the part
    if case.spec.role == "transform":
        yield from _no_motion(rows, float(case.options["off"]))
        return
    measured = rows.measured("shortest")
    if not measured.any():
        return
    zero = measured & (rows["lengthless"] > 0)
    if zero.any():
        yield _zero(zero, rows["lengthless"], rows["quaternions"])
    limit = np.maximum(float(case.options["off"]), rows["grain"])
    bent = measured & ~zero & ((rows["longest"] - 1 > limit) | (1 - rows["shortest"] > limit))
    if bent.any():
        yield _not_unit(bent, rows["shortest"], rows["longest"], limit)


def _zero(zero: Array, count: Array, rows: Array) -> Failure:
    return Failure(
        zero,
        f"{count_phrase(zero, 'hold')} quaternions of length 0, which are no rotations "
        f"({int(count[zero].sum()):,} of {int(rows[zero].sum()):,} rows).",
        measured={"zeros": int(count[zero].sum())},
        cause=Cause("a value that was never set", "zero", explains=int(zero.sum())),
        fix="Leave these rows out; zero marks a pose that was never written.",
        kind="zero",
        order=count,
    )


def _not_unit(bent: Array, low: Array, high: Array, limit: Array) -> Failure:
    uniform = bent & (high - low <= np.maximum(limit, 1e-3 * high))
    scaled = int(uniform.sum()) >= 0.9 * int(bent.sum())
    cause = (
        Cause(
            "all quaternions of a sample have the same length: they were scaled",
            "scaled",
            explains=int(uniform.sum()),
        )
        if scaled
        else None
    )
    return Failure(
        bent,
        f"{count_phrase(bent, 'hold')} quaternions of length "
        f"{format_number(float(low[bent].min()))} to "
        f"{format_number(float(high[bent].max()))}, allowed 1 +- "
        f"{format_number(float(limit[bent].min()))}.",
        measured={"low": float(low[bent].min()), "high": float(high[bent].max())},
        expected={"length": 1.0},
        cause=cause,
        fix="Divide them by their length, or find out what these four numbers are.",
        kind="scaled" if scaled else "length",
        order=np.maximum(high - 1, 1 - low),
    )


_FIXES = {
    "zero": (
        "matrices without rotation",
        "Leave them out; zeros mark a pose that was never written.",
    ),
    "transposed": (
        "transforms that are transposed: the last column is 0 0 0 1, the last row is not",
        "Transpose them: translation belongs into the last column.",
    ),
    "last-row": (
        "transforms whose last row is not 0 0 0 1",
        "Set the last row, or find out what was stored.",
    ),
    "mirror": (
        "matrices of determinant -1: they mirror",
        "Flip one axis of the frame in the exporter.",
    ),
    "scaled": ("matrices that scale alike in all directions", "Divide the rotation by its scale."),
    "skew": (
        "matrices that are not orthonormal",
        "Orthonormalise them (SVD), or export again with more digits.",
    ),
}


def _no_motion(rows: Rows, off: float) -> Iterator[Failure]:
    """Yield a failure for each kind of matrices that are no rigid motions.

    A sample is named once, by the first kind that it shows.
    """
    measured = rows.measured("skew")
    if not measured.any():
        return
    limit = np.maximum(off, rows["grain"])
    scale = np.cbrt(np.abs(rows["det"]))
    bad_row = rows["last_row"] > limit
    square = np.abs(scale**2 - 1).max(axis=1)
    ways = {
        "zero": rows["turnless"] > 0,
        "transposed": bad_row & (rows["last_column"] <= limit),
        "last-row": bad_row,
        "mirror": (rows["det"] < 0).any(axis=1) & (rows["skew"] <= limit),
        "scaled": (rows["skew"] > limit)
        & (np.ptp(scale, axis=1) <= limit)
        & (np.abs(square - rows["skew"]) <= limit),
        "skew": rows["skew"] > limit,
    }
    unexplained = measured
    for kind, where in ways.items():
        bad = unexplained & where
        unexplained = unexplained & ~bad
        if bad.any():
            yield _no_rotation(bad, kind, rows["skew"], float(np.median(scale[bad])))


def _no_rotation(bad: Array, kind: str, skew: Array, scale: float) -> Failure:
    words, fix = _FIXES[kind]
    by = {
        "scaled": f" (x{format_number(scale)}, median)",
        "skew": f" (off by {format_number(float(np.median(skew[bad])))}, median)",
    }
    return Failure(
        bad,
        f"{count_phrase(bad, 'hold')} {words}{by.get(kind, '')}.",
        measured={"off": float(np.median(skew[bad])), "scale": scale},
        cause=Cause(words, kind, 1 / scale if kind == "scaled" and scale else None, int(bad.sum())),
        fix=fix,
        kind=kind,
        order=skew,
    )


# --------------------------------------------------------------------------------- matrices in JSON


@measure("record_matrices", per="sample")
def record_matrices(block: Block, schema: Schema) -> Columns:
    """4 x 4 matrices in the records of a JSON list: `matrices`, their count.

    `upright`: those with a last row 0 0 0 1 alone; `transposed`: those with a last column 0 0 0 1
    alone; `transposed_at`: the list, the key and these records. Among several keys, the one with
    most transposed matrices counts.
    """
    del schema
    names = [
        name
        for name, column in sorted(block.fields.items())
        if column.kind == "json"
        and not isinstance(column, Messages)
        and b"[[" in column.values.tobytes()
    ]
    if not names:
        return {}
    candidates = [
        max((_best(name, block.fields[name].objects[i]) for name in names), default=_NO)
        for i in range(len(block))
    ]
    present = np.array([candidate[1] > 0 for candidate in candidates], dtype=bool)
    if not present.any():
        return {}
    counts = np.array([candidate[:3] for candidate in candidates], dtype=np.int64).T
    columns: dict[str, Measured | list[str]] = {
        name: Measured(values, present)
        for name, values in zip(("transposed", "matrices", "upright"), counts, strict=True)
    }
    return columns | {"transposed_at": [candidate[3] for candidate in candidates]}


_Found = tuple[int, int, int, str]  # transposed, all, upright, where
_NO: _Found = (0, 0, 0, "")


def _best(name: str, records: Any) -> _Found:
    """Return the counts of the key with most transposed matrices in a list of records."""
    if not isinstance(records, list):
        return _NO
    first = (record for record in records[:_RECORDS] if isinstance(record, dict))
    keys = {
        key for record in first for key, value in islice(record.items(), _KEYS) if _is_matrix(value)
    }
    entries: dict[str, list[tuple[int, Any]]] = {key: [] for key in sorted(keys)[:_KEYS]}
    # One pass for all keys: there may be millions of other records.
    for i, record in enumerate(records if entries else ()):
        for key in entries.keys() & record.keys() if isinstance(record, dict) else ():
            if _is_matrix(record[key]):
                entries[key].append((i, record[key]))
    return max((_under(name, key, matches) for key, matches in entries.items()), default=_NO)


def _under(name: str, key: str, entries: list[tuple[int, Any]]) -> _Found:
    matrices = np.array([value for _, value in entries], dtype=np.float64)
    row, column = (
        np.abs(m - _END).max(axis=1) <= 1e-6 for m in (matrices[:, 3], matrices[:, :, 3])
    )
    places = np.array([i for i, _ in entries])[column & ~row].tolist()
    return (
        len(places),
        len(entries),
        int((row & ~column).sum()),
        f"{key} of {name} {first_few(_runs(places), _PLACES)}",
    )


def _is_matrix(value: Any) -> bool:
    rows = value if isinstance(value, list) and len(value) == 4 else []
    four = bool(rows) and all(isinstance(row, list) and len(row) == 4 for row in rows)
    return four and all(
        type(x) is float or (type(x) is int and abs(x) < 1 << 53) for row in rows for x in row
    )


def _runs(places: list[int]) -> Iterator[str]:
    """Yield ascending numbers as text, consecutive ones as "25-28"."""
    starts = [i for i, place in enumerate(places) if not i or place != places[i - 1] + 1]
    for start, stop in pairwise([*starts, len(places)]):
        yield f"{places[start]}-{places[stop - 1]}" if stop > start + 1 else f"{places[start]}"


@rule(
    "DC316",
    "transposed-matrix",
    Severity.ERROR,
    Level.SAMPLE,
    per="sample",
    measures=(record_matrices,),
    defaults={"matrices": 8, "share": 0.5},
)
def transposed_matrix(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Some 4 x 4 matrices in the records of a JSON list are transposed.

    What:
        If most matrices under one key of the records have the last row ``0 0 0 1``, no other matrix
        has ``0 0 0 1`` as its last column instead. DC304 judges fields of matrices.
    Why it matters:
        The translation is in the last row, so a loader that reads the last column places these
        cameras at the origin.
    Measure:
        The last row and the last column of each matrix, in JSON lists of mappings such as
        ``frames`` of a ``transforms.json``. Records are counted from 0.
    When it is wrong:
        No case is known: the last row of a rigid motion is ``0 0 0 1``.
    Options:
        matrices: fewest matrices of a list to judge (8).
        share: share of matrices that must have the last row ``0 0 0 1`` and another last column
        (0.5).
    Bad::

        schema: {fields: {frames: {dtype: json}}}
        samples:
          - frames:
              json: [{m: &m [[1, 0, 0, 0.5], [0, 1, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]]}, {m: *m}, {m: *m}, {m: *m},
                     {m: *m}, {m: *m}, {m: *m}, {m: [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0.5, 2, 3, 1]]}]

    Good::

        schema: {fields: {frames: {dtype: json}}}
        samples:
          - frames:
              json: [{m: &m [[1, 0, 0, 0.5], [0, 1, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]]}, {m: *m}, {m: *m}, {m: *m},
                     {m: *m}, {m: *m}, {m: *m}, {m: [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]}]

    Fix:
        Transpose these matrices: the translation belongs in the last column.
    Reference:
        ``transforms.json`` of instant-ngp and nerfstudio: some OpenGL and Blender exporters write
        columns first, others rows.
    """
    measured = rows.measured(":matrices")
    if not measured.any():
        return
    every = rows[":matrices"]
    bad = rows[":transposed"]
    usual = rows[":upright"] >= float(case.options["share"]) * every
    mask = measured & (bad > 0) & usual & (every >= int(case.options["matrices"]))
    if mask.any():
        where = unique_texts(rows[":transposed_at"][mask])
        yield Failure(
            mask,
            f"{int(bad[mask].sum()):,} of {int(every[mask].sum()):,} matrices in records are "
            f"transposed "
            f"({first_few(where)}): their last column is 0 0 0 1, in place of the last row.",
            measured={"transposed": int(bad[mask].sum()), "matrices": int(every[mask].sum())},
            cause=Cause(
                "written column by column, the others row by row",
                "transposed",
                explains=int(mask.sum()),
            ),
            fix="Transpose them: translation belongs into the last column.",
            kind="transposed",
            order=bad,
        )


OFF = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_MOST = 4096  # sampled points of a cloud for its second moments
_STRIP = 1 << 16  # normals that stay in the cache of a core
_ORIENTATION_SUPPRESSED_BY = ("DC109", "DC122", "DC221")


@measure("normals", applies=of_role("normal"))
def normals(column: Column, spec: FieldSpec) -> Columns:
    """Lengths of normals: `normals`, their count; `off`, `none`.

    `off`: those further from 1 than each of `OFF`; `none`: those of length 0.
    """
    del spec
    if (
        not is_numeric(column)
        or column.lengths is None
        or column.values.ndim != 2
        or column.values.shape[1] != 3
    ):
        return {}
    exact = column.values.dtype.kind == "f" and column.values.dtype.itemsize >= 4
    xyz = column.planes if exact else column.planes.astype(np.float32)
    counts = column.lengths
    off = np.zeros((len(column), len(OFF)), np.int64)
    strips = []
    low = (1 - OFF[0]) ** 2
    high = (1 + OFF[0]) ** 2
    fine = True  # mostly all normals are, and the counts below are skipped
    for start in range(0, xyz.shape[1], _STRIP):
        x, y, z = xyz[:, start : start + _STRIP]
        strips.append(x * x + y * y + z * z)
        fine = fine and bool(low <= strips[-1].min() and strips[-1].max() <= high)
    if not fine:
        square = np.concatenate(strips)
        for place, limit in enumerate(OFF):
            wrong = ~((square >= (1 - limit) ** 2) & (square <= (1 + limit) ** 2))
            off[:, place] = reduced(np.add, wrong, counts)
    none = reduced(np.add, square == 0, counts) if off.any() else np.zeros(len(column), np.int64)
    columns = {"normals": counts, "off": off, "none": none}
    return {name: Measured(values, counts > 0) for name, values in columns.items()}


@rule(
    "DC311",
    "bad-normals",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(normals,),
    suppressed_by=_ORIENTATION_SUPPRESSED_BY,
    applies=of_role("normal"),
    defaults={"off": 0.05, "share": 0.01},
)
def bad_normals(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Normals are absent or are not unit vectors.

    What:
        At most 1 % of a sample's normals differ from length 1 by more than 5 %. Samples whose
        normals are all zero are reported separately, as written without normals.
    Why it matters:
        A network trained with normals silently receives zeros for some scenes.
    Measure:
        Length of every normal.
    When it is wrong:
        The lengths have a meaning, for example an area: give the field another role.
    Options:
        off: largest difference from length 1 (0.05; one of 0.01, 0.02, 0.05, 0.1, 0.2, 0.5).
        share: largest share of normals that may differ more (0.01).
    Bad::

        schema: {fields: {normal: {role: normal, shape: [P, 3]}}}
        samples:
          - {n: 3, normal: {directions: 200}}
          - {normal: {directions: 200, length: 0.5}}

    Good::

        schema: {fields: {normal: {role: normal, shape: [P, 3]}}}
        samples:
          - {n: 4, normal: {directions: 200}}

    Fix:
        Divide normals by their length; estimate absent normals from the mesh, or leave the channels
        out.
    Reference:
        ExCap3D writes zeros and only logs a warning if the .pth holds no normals.
    """
    measured = rows.measured("off")
    if not measured.any():
        return
    absent = measured & (rows["none"] >= rows["normals"])
    if absent.any():
        yield Failure(
            absent,
            f"{count_phrase(absent, 'hold')} no normals: all of them are zero.",
            measured={"share": 1.0},
            cause=Cause("written without normals", "absent", explains=int(absent.sum())),
            fix="Compute them, or leave the channels out for all samples.",
            kind="absent",
        )
    place = int(np.argmin(np.abs(np.array(OFF) - float(case.options["off"]))))
    share = rows["off"][:, place] / np.maximum(rows["normals"], 1)
    bad = measured & ~absent & (share > float(case.options["share"]))
    if bad.any():
        yield Failure(
            bad,
            f"{count_phrase(bad, 'hold')} normals whose length is more than {OFF[place]:g} from 1 "
            f"({100 * float(np.median(share[bad])):.3g} % of them, median; "
            f"{int(rows['none'][bad].sum()):,} are zero).",
            measured={"share": float(np.median(share[bad])), "zero": int(rows["none"][bad].sum())},
            expected={"length": 1.0},
            fix="Divide them by their length; estimate those that are zero.",
            kind="length",
            order=share,
        )


@measure("flatness", applies=lambda s: leaf(s) and s.role == "points" and s.up is not None)
def flatness(column: Column, spec: FieldSpec) -> Columns:
    """Flattest direction of a cloud: `flat_axis` (3), a unit vector; `flatness`: its ratio.

    `flatness` states how many times flatter than the next direction. From the second moments of at
    most 4,096 points, evenly sampled.
    """
    del spec
    values, lengths = column.values, column.lengths
    if not is_numeric(column) or lengths is None or values.ndim != 2 or values.shape[1] < 3:
        return {}
    moments = np.zeros((len(column), 3, 3))
    for i, (start, count) in enumerate(zip(column.starts, lengths, strict=True)):
        part = values[start : start + count : max(1, -(-count // _MOST)), :3].astype(np.float64)
        part -= part.mean(axis=0) if count else 0.0
        moments[i] = part.T @ part / max(1, len(part))
    present = (lengths > 3) & np.isfinite(moments).all(axis=(1, 2))
    size, axes = np.linalg.eigh(np.where(present[:, None, None], moments, np.eye(3)))
    present &= size[:, 1] > 0
    ratio = np.sqrt(size[:, 1] / np.maximum(size[:, 0], 1e-12 * np.maximum(size[:, 1], 1e-300)))
    return {"flat_axis": Measured(axes[:, :, 0], present), "flatness": Measured(ratio, present)}


@rule(
    "DC308",
    "up-axis",
    Severity.INFO,
    Level.DATASET,
    measures=(flatness,),
    suppressed_by=(*_ORIENTATION_SUPPRESSED_BY, "DC201"),
    applies=lambda s: leaf(s) and s.role == "points" and s.up is not None,
    defaults={"angle": 20.0, "flat": 1.3, "share": 0.5},
)
def up_axis(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Most clouds are flattest along another axis than the declared up axis.

    What:
        Rooms, streets and tables are wider than high: in most samples, the direction in which a
        cloud varies least is near the declared ``up``.
    Why it matters:
        Augmentation rotates about the vertical axis and cuts at the floor; with the wrong axis, it
        produces rooms that lie on their side.
    Measure:
        Eigenvector of the smallest second moment, if it is clearly the smallest, and its angle to
        ``up``. The measure does not show which end is up.
    When it is wrong:
        The clouds are towers, corridors or single objects.
    Options:
        angle: largest angle between both directions, in degrees (20).
        flat: how many times flatter than the next direction a cloud must be to be judged (1.3).
        share: largest share of the judged clouds that may point elsewhere (0.5).
    Bad::

        schema: {fields: {p: {role: points, shape: [P, 3], unit: m, up: y}}}
        samples:
          - {n: 4, p: {room: 400}}

    Good::

        schema: {fields: {p: {role: points, shape: [P, 3], unit: m, up: z}}}
        samples:
          - {n: 4, p: {room: 400}}

    Fix:
        Rotate the clouds, or declare the axis that points up.
    Reference:
        ScanNet is z-up; most meshes from games and cameras are y-up.
    """
    measured = rows.measured("flatness")
    if not measured.any():
        return
    clear = measured & (rows["flatness"] >= float(case.options["flat"]))
    axis = "xyz".index((case.spec.up or "z")[-1])
    angle = np.rad2deg(np.arccos(np.clip(np.abs(rows["flat_axis"][:, axis]), 0, 1)))
    off = clear & (angle > float(case.options["angle"]))
    if int(off.sum()) > float(case.options["share"]) * max(1, int(clear.sum())):
        names = np.argmax(np.abs(rows["flat_axis"][off]), axis=1)
        often = int(np.argmax(np.bincount(names, minlength=3)))
        yield Failure(
            off,
            f"{int(off.sum()):,} of {int(clear.sum()):,} flat clouds are flattest along "
            f"{'xyz'[often]}, "
            f"{float(np.median(angle[off])):.3g} degrees from {case.spec.up} (median), which is "
            f"declared to point up.",
            measured={"angle": float(np.median(angle[off])), "axis": "xyz"[often]},
            expected={"up": case.spec.up},
            cause=Cause(
                f"probably {'xyz'[often]} points up",
                "xyz"[often],
                explains=int((names == often).sum()),
            ),
            fix=f"Turn the clouds, or declare up: {'xyz'[often]}.",
            kind="xyz"[often],
            order=angle,
        )


_OTHER = {"wxyz": "xyzw", "xyzw": "wxyz"}
_CONVENTION_SUPPRESSED_BY = ("DC109", "DC122", "DC125", "DC221", "DC222")


@measure("facing", per="sample", uses=("fields.near", "fields.columns", "fields.role"))
def facing(block: Block, schema: Schema) -> Columns:
    """Direction of a gripper's axes to its target, for both orders of its quaternion.

    ``<field>:wxyz``, ``<field>:xyzw``: mean cosine (3) over the sample's rows, for a quaternion
    whose position is another part of the same field and declares what it is ``near``.
    """
    columns: dict[str, Measured] = {}
    for name, _ in schema.of_role("quaternion"):
        whole = schema.part_of(name)
        position_names = [
            n
            for n, s in schema.of_role("position")
            if whole and s.near and _parent(schema, n) == whole[0]
        ]
        column = column_of(block, schema, name)
        position_column = column_of(block, schema, position_names[0]) if position_names else None
        other = schema.spec(position_names[0]).near or "" if position_names else ""
        target_column = column_of(block, schema, other) if other else None
        aim = (
            None
            if position_column is None or target_column is None
            else _directions(position_column, target_column, schema.spec(other))
        )
        quaternions = None if column is None or aim is None else rows_of(column, 4)
        if quaternions is None or aim is None or aim[0].shape[1] != len(quaternions[0]):
            continue
        values, counts = quaternions
        for order in _OTHER:
            axes = matrices(wxyz(values, order))
            cosines = np.ascontiguousarray(np.einsum("in,nij->jn", aim[0], axes))
            mean = reduced(np.add, cosines, counts) / np.maximum(counts, 1)
            columns[f"{name}:{order}"] = Measured(np.nan_to_num(mean.T), aim[1] & (counts > 0))
    return dict(columns)


def _parent(schema: Schema, name: str) -> str:
    return (schema.part_of(name) or ("",))[0]


def _directions(
    position_column: Column, target_column: Column, spec: FieldSpec
) -> tuple[Array, Array] | None:
    """Return directions from positions to their target, (3, rows), and the samples with one."""
    mine = positions(position_column)
    centres = place.function(target_column, spec)
    if mine is None or not centres:
        return None
    centre = centres["centroid" if spec.role == "points" else "first"]
    assert isinstance(centre, Measured)
    counts = np.ones(len(position_column), np.int64) if mine[1] is None else mine[1]
    to = np.repeat(centre.values, counts, axis=0).T - mine[0]
    return to / norms(to), centre.present


@rule(
    "DC305",
    "quaternion-order",
    Severity.WARNING,
    Level.DATASET,
    measures=(numbers, facing),
    suppressed_by=(*_CONVENTION_SUPPRESSED_BY, "DC201", "DC304"),
    applies=lambda s: leaf(s) and s.role == "quaternion" and s.order is not None,
    defaults={"clear": 0.7, "better": 3.0, "samples": 20},
)
def quaternion_order(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Quaternions make sense in the other component order, but not in the declared one.

    What:
        Where the data show it, the scalar is first or last as declared. A gripper whose position is
        ``near`` an object has an axis that points at the object; objects that stand on a table
        rotate about z only.
    Why it matters:
        Both orders have length 1 and rotate equally fast. Permuting the four numbers keeps every
        angle between two quaternions, so neither norms nor smoothness reveal the error, and no
        library raises one.
    Measure:
        Mean cosine between each axis and the direction to the object, under both orders; whether
        the two components that are 0 in a rotation about z are 0, under both orders.
    When it is wrong:
        The gripper holds objects at its side, or all objects really are turned about a horizontal
        axis.
    Options:
        clear: mean cosine that the other order must reach (0.7).
        better: factor by which it must be nearer to 1 (3.0).
        samples: fewest samples with rotations about z (20).
    Bad::

        schema:
          fields:
            g: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}
            g.pos: {role: position, unit: m, near: o}
            g.quat: {role: quaternion, order: wxyz}
            o: {role: position, shape: [3], unit: m}
        samples:
          - {n: 3, g: {grasps: 40}, o: {normal: [3], scale: 0.01}}
          - {g: {grasps: 40, order: xyzw}, o: {normal: [3], scale: 0.01}}

    Good::

        schema:
          fields:
            g: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}
            g.pos: {role: position, unit: m, near: o}
            g.quat: {role: quaternion, order: wxyz}
            o: {role: position, shape: [3], unit: m}
        samples:
          - {n: 4, g: {grasps: 40}, o: {normal: [3], scale: 0.01}}

    Fix:
        Roll the four numbers by one, or declare the other order.
    Reference:
        SceneLeap stores w x y z; SciPy, ROS and robosuite store x y z w.
    """
    columns = [
        f":{case.name}:{order}" for order in (case.spec.order, _OTHER[case.spec.order or "wxyz"])
    ]
    if rows.measured(*columns).any():
        yield from _pointing(rows, case, columns)
    else:
        yield from _standing(rows, case)


def _pointing(rows: Rows, case: RuleContext, columns: list[str]) -> Iterator[Failure]:
    """Yield misread quaternions, judged by the axis that points at the object."""
    measured = rows.measured(*columns)
    mine, theirs = (np.abs(rows[column]).max(axis=1) for column in columns)
    bad = measured & (theirs >= float(case.options["clear"]))
    bad &= 1 - mine >= float(case.options["better"]) * (1 - theirs)
    if bad.any():
        values = (
            format_number(float(np.median(theirs[bad]))),
            format_number(float(np.median(mine[bad]))),
        )
        sign = f"an axis points at the object (mean cosine {values[0]}, not {values[1]})"
        yield _misread(bad, case.spec.order or "wxyz", sign, measured)


def _standing(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Yield misread quaternions, judged by components that rotations about z lack."""
    own = case.spec.order or "wxyz"
    about = _about_z(rows, own)
    swapped = _about_z(rows, _OTHER[own])
    sound = bool((about & ~swapped).any())
    bad = swapped & ~about if sound else swapped
    standing = int((about | swapped).sum())
    enough = standing >= max(int(case.options["samples"]), int(0.9 * len(rows)))
    # Rotations about x in xyzw look the same as rotations about z in wxyz.
    doubtful = own == "xyzw" and not sound
    if (
        enough
        and (bad & ~about).any()
        and not doubtful
        and (int(bad.sum()) == standing or 2 * bad.sum() <= standing)
    ):
        sign = f"all of them turn about z (as {own} about a horizontal axis)"
        yield _misread(bad, own, sign, about | swapped)


def _about_z(rows: Rows, order: str) -> Array:
    """Return where the components along x and y are zero in every row."""
    measured = rows.measured("min", "max")
    if not measured.any() or rows["min"].shape[1] != 4:
        return measured & False
    peak = np.maximum(np.abs(rows["min"]), np.abs(rows["max"]))
    x = order.index("x")
    zero_xy: Array = measured & (peak[:, x : x + 2] < 1e-3).all(axis=1)
    return zero_xy


def _misread(bad: Array, own: str, sign: str, measured: Array) -> Failure:
    other = _OTHER[own]
    return Failure(
        bad,
        f"{pluralize(int(bad.sum()))} of {int(measured.sum()):,}: read as {other}, {sign}; {own} is "
        f"declared.",
        expected={"order": own},
        cause=Cause(f"probably {other}", other, explains=int(bad.sum())),
        fix=f"Roll the four numbers by one, or declare order: {other}.",
        kind=other,
    )


@measure("spin", applies=of_role("rotvec"), uses=("unit",))
def spin(column: Column, spec: FieldSpec) -> Columns:
    """Lengths of rotation vectors, in radians.

    `angle`: the longest; `vectors`: count of all; `over`: those longer than pi; `euler`: steps in
    which one component alone jumps by 2 pi while the others are large, which no rotation vector
    does.
    """
    vector_rows = rows_of(column, 3)
    if vector_rows is None:
        return {}
    by = factor(spec.unit or "rad")
    vectors = np.ascontiguousarray(vector_rows[0].T, dtype=np.float64) * by
    counts = vector_rows[1]
    size = norms(vectors)
    columns = {
        "angle": reduced(np.maximum, size, counts),
        "over": reduced(np.add, size > math.pi + 1e-3, counts),
        "vectors": counts,
        "euler": np.zeros(len(column), np.int64),
    }
    if column.values.shape[1:] == (3,):
        columns["euler"] = reduced(np.add, _wraps_alone(vectors, counts), counts)
    return {name: Measured(values, counts > 0) for name, values in columns.items()}


def _wraps_alone(vectors: Array, counts: Array) -> Array:
    """Return bool (rows): rows to which one component jumps by 2 pi while others, large, stay."""
    jump = np.abs(np.diff(vectors, axis=1, prepend=vectors[:, :1]))
    starts = (np.cumsum(counts) - counts)[counts > 0]
    jump[:, starts] = 0.0
    leaps = np.abs(jump - 2 * math.pi) < 0.5
    rest = norms(np.where(leaps, 0.0, vectors))
    wraps: Array = (
        (leaps.sum(axis=0) == 1)
        & (np.where(leaps, 0.0, jump).max(axis=0, initial=0.0) < 0.3)
        & (rest > 1.5)
    )
    return wraps


@rule(
    "DC312",
    "rotation-convention",
    Severity.WARNING,
    Level.DATASET,
    measures=(spin,),
    suppressed_by=(*_CONVENTION_SUPPRESSED_BY, "DC202"),
    applies=of_role("rotvec"),
    defaults={"most": 2 * math.pi, "share": 0.01},
)
def rotation_convention(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Rotation vectors are too long, or jump as only Euler angles do.

    What:
        The length of a rotation vector is its angle: up to pi, or up to 2 pi if the writer does not
        take the shorter way round (reported as info: such vectors cannot be Euler angles). A vector
        longer than ``most`` is not a rotation vector.
    Why it matters:
        Three angles look alike whatever they mean: axis-angle read as Euler angles gives a wrong
        rotation without any error. A policy that learns from them still reaches 80 % of its
        possible performance.
    Measure:
        Lengths; steps in which one component alone jumps by 2 pi while the others are large.
    When it is wrong:
        Several turns are intended: raise ``most``.
    Options:
        most: largest allowed length, in radians (2 pi).
        share: share of rows longer than pi from which the info is given (0.01).
    Bad::

        schema: {fields: {r: {role: rotvec, shape: [T, 3], unit: rad}}}
        samples:
          - {n: 3, r: {normal: [40, 3], scale: 0.5}}
          - {r: {full: [20, 3], value: 5}}

    Good::

        schema: {fields: {r: {role: rotvec, shape: [T, 3], unit: rad}}}
        samples:
          - {n: 4, r: {normal: [40, 3], scale: 0.5}}

    Fix:
        Convert with the convention that the writer used; store 6 numbers of the matrix for
        training.
    Reference:
        LIBERO's ee_ori is quat2axisangle with angles up to 2 pi (issues 40, 69, 129); a fork of RDT
        reads Euler angles.
    """
    measured = rows.measured("angle")
    if not measured.any():
        return
    most = float(case.options["most"])
    euler = measured & (rows["euler"] > 0)
    long = measured & ~euler & (rows["angle"] > most + 1e-3)
    if euler.any():
        yield _angles(euler, rows["euler"])
    if long.any():
        yield _too_long(long, rows["angle"], most)
    yield from _unwrapped(rows, measured & ~euler & ~long, float(case.options["share"]))


def _angles(bad: Array, steps: Array) -> Failure:
    return Failure(
        bad,
        f"{count_phrase(bad, 'have')} steps in which one component alone jumps by 2 pi "
        f"({int(steps[bad].sum()):,} steps): rotation vectors turn round as a whole.",
        measured={"steps": int(steps[bad].sum())},
        cause=Cause("these are Euler angles", "euler", explains=int(bad.sum())),
        fix="Convert them from Euler angles, in the writer's order of axes.",
        kind="euler",
        order=steps,
    )


def _too_long(bad: Array, angle: Array, most: float) -> Failure:
    return Failure(
        bad,
        f"{count_phrase(bad, 'hold')} rotation vectors of up to "
        f"{format_number(float(angle[bad].max()), 'rad')}, "
        f"allowed {format_number(most, 'rad')}: they are no axis times angle.",
        measured={"angle": float(angle[bad].max())},
        expected={"angle": most},
        fix="Find out what these three numbers are: another unit, Euler angles, a velocity.",
        kind="long",
        order=angle,
    )


def _unwrapped(rows: Rows, measured: Array, share: float) -> Iterator[Failure]:
    over = int(rows["over"][measured].sum())
    total = int(rows["vectors"][measured].sum())
    if total and over >= share * total:
        yield Failure(
            measured & False,
            f"{over:,} of {total:,} vectors are longer than pi: axis-angle the long way round, no "
            f"Euler angles.",
            measured={"share": over / total},
            severity=Severity.INFO,
            fix="Nothing; read them as axis times angle.",
            kind="unwrapped",
        )
