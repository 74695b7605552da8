"""Rules about rotations: quaternions have length 1, matrices turn and do nothing else, and none is transposed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.messages import Messages
from datacheck.rules.base import Case, Columns, different, listed, measure, rule, shown, those
from datacheck.rules.measures import leaf, norms, of_role, reduced
from datacheck.rules.placing import quaternion_columns, rows_of, transforms_of
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_END = np.array([0.0, 0.0, 0.0, 1.0])
_KEYS, _RECORDS = 32, 16  # keys that may hold matrices, taken from the first records of a list
_PLACES = 20  # of records that a message names
_NEEDS = ("DC109", "DC122", "DC221", "DC222")


def _turns(spec: FieldSpec) -> bool:
    return (leaf(spec) and spec.role in {"quaternion", "transform"}) or (
        spec.role == "pose" and quaternion_columns(spec) is not None
    )


def _grain(column: Column) -> Array:
    """Return what rounding alone may do to a sum of products, per sample."""
    dtype = column.values.dtype
    return np.full(len(column), 8 * float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0)


@measure("unit", applies=lambda s: _turns(s) and s.role != "transform", uses=("role", "columns"))
def unit(column: Column, spec: FieldSpec) -> Columns:
    """Lengths of quaternions.

    `shortest` and `longest` of those that are not zero; `lengthless`: how many are; `quaternions`; `grain`: rounding.
    """
    place = quaternion_columns(spec) if spec.role == "pose" else None
    found = rows_of(column if place is None else column.slice_items(*place), 4)
    if found is None:
        return {}
    values, counts = found
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
    """How far matrices are from rigid motions.

    `skew`: largest number in ``R^T R - I``; `det`: lowest and highest determinant; `last_row`: how far it is from
    ``0 0 0 1``, `last_column`: the same; `turnless`: matrices of zeros; `grain` of the dtype.
    """
    del spec
    found = transforms_of(column)
    if found is None:
        return {}
    matrix, counts, whole = found
    turn = matrix[:, :3, :3]
    det = np.einsum("ni,ni->n", turn[:, 0], np.cross(turn[:, 1], turn[:, 2]))
    aside = np.abs(matrix[:, :, 3] - _END).max(axis=1, initial=0.0)
    off = np.abs(np.einsum("nji,njk->nik", turn, turn) - np.eye(3)).reshape(-1, 9).max(axis=1, initial=0.0)
    columns = {
        "skew": reduced(np.maximum, off, counts),
        "det": np.stack([reduced(u, det, counts) for u in (np.minimum, np.maximum)], axis=1),
        "last_row": reduced(np.maximum, np.abs(matrix[:, 3] - _END).max(axis=1, initial=0.0), counts),
        "last_column": reduced(np.maximum, np.where(whole, aside, 1.0), counts),
        "turnless": reduced(np.add, (turn == 0).all(axis=(1, 2)), counts),
        "grain": _grain(column),
    }
    return {name: Measured(value, counts > 0) for name, value in columns.items()}


@rule(
    "DC304", "bad-rotation", Severity.ERROR, Level.SAMPLE, measures=(unit, rigid), needs=(*_NEEDS, "DC125"),
    applies=_turns, defaults={"off": 1e-3},
)  # fmt: skip
def bad_rotation(rows: Rows, case: Case) -> Iterator[Failure]:
    """A quaternion or a matrix is no rotation.

    What:
        Quaternions have length 1; rotation matrices are orthonormal with determinant +1; the last row of a 4 x 4
        transform is ``0 0 0 1``. A zero quaternion is wrong whatever is allowed. Also poses with a column ``quat``.
    Why it matters:
        Conversion code never complains: from a zero quaternion it makes a wrong rotation or NaN, from a scaled matrix a
        larger object, from a transposed transform one that stays at the origin.
    Measure:
        ``| |q| - 1 |``; the largest number of ``|R^T R - I|``; the determinant; the last row. For half precision what
        its rounding does is allowed in any case.
    When it is wrong:
        Transforms scale on purpose: raise ``off``.
    Options:
        off: how far each may be off (0.001).
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
        Divide quaternions by their length, transpose or orthonormalise matrices, leave zeros out; better: export again.
    Reference:
        SceneLeap reads grasps without any check of the quaternion; BOP's scene_gt.json holds rounded matrices.
    """
    part = f"{case.name}.quat"
    if case.spec.role == "pose" and case.schema.part_of(part) and part in case.schema.fields:
        return  # the part says it
    if case.spec.role == "transform":
        yield from _no_motion(rows, float(case.options["off"]))
        return
    known = rows.measured("shortest")
    if not known.any():
        return
    zero = known & (rows["lengthless"] > 0)
    if zero.any():
        yield _zero(zero, rows["lengthless"], rows["quaternions"])
    limit = np.maximum(float(case.options["off"]), rows["grain"])
    bent = known & ~zero & ((rows["longest"] - 1 > limit) | (1 - rows["shortest"] > limit))
    if bent.any():
        yield _not_unit(bent, rows["shortest"], rows["longest"], limit)


def _zero(zero: Array, count: Array, rows: Array) -> Failure:
    return Failure(
        zero,
        f"{those(zero, 'hold')} quaternions of length 0, which are no rotations "
        f"({int(count[zero].sum()):,} of {int(rows[zero].sum()):,} rows).",
        measured={"zeros": int(count[zero].sum())},
        cause=Cause("a value that was never set", "zero", explains=int(zero.sum())),
        fix="Leave these rows out; zero marks a pose that was never written.",
        kind="zero",
        order=count,
    )


def _not_unit(bent: Array, low: Array, high: Array, limit: Array) -> Failure:
    alike = bent & (high - low <= np.maximum(limit, 1e-3 * high))
    scaled = int(alike.sum()) >= 0.9 * int(bent.sum())
    cause = Cause("all quaternions of a sample have the same length: they were scaled", "scaled",
                  explains=int(alike.sum())) if scaled else None  # fmt: skip
    return Failure(
        bent,
        f"{those(bent, 'hold')} quaternions of length {shown(float(low[bent].min()))} to "
        f"{shown(float(high[bent].max()))}, allowed 1 +- {shown(float(limit[bent].min()))}.",
        measured={"low": float(low[bent].min()), "high": float(high[bent].max())},
        expected={"length": 1.0},
        cause=cause,
        fix="Divide them by their length, or find out what these four numbers are.",
        kind="scaled" if scaled else "length",
        order=np.maximum(high - 1, 1 - low),
    )


_FIXES = {
    "zero": ("matrices without rotation", "Leave them out; zeros mark a pose that was never written."),
    "transposed": ("transforms that are transposed: the last column is 0 0 0 1, the last row is not",
                   "Transpose them: translation belongs into the last column."),
    "last-row": ("transforms whose last row is not 0 0 0 1", "Set the last row, or find out what was stored."),
    "mirror": ("matrices of determinant -1: they mirror", "Flip one axis of the frame in the exporter."),
    "scaled": ("matrices that scale alike in all directions", "Divide the rotation by its scale."),
    "skew": ("matrices that are not orthonormal", "Orthonormalise them (SVD), or export again with more digits."),
}  # fmt: skip


def _no_motion(rows: Rows, off: float) -> Iterator[Failure]:
    """Yield one failure per way in which matrices are no rigid motions; a sample is named once, by the first."""
    known = rows.measured("skew")
    if not known.any():
        return
    limit = np.maximum(off, rows["grain"])
    scale = np.cbrt(np.abs(rows["det"]))
    last = rows["last_row"] > limit
    square = np.abs(scale**2 - 1).max(axis=1)
    ways = {
        "zero": rows["turnless"] > 0,
        "transposed": last & (rows["last_column"] <= limit),
        "last-row": last,
        "mirror": (rows["det"] < 0).any(axis=1) & (rows["skew"] <= limit),
        "scaled": (rows["skew"] > limit) & (np.ptp(scale, axis=1) <= limit) & (np.abs(square - rows["skew"]) <= limit),
        "skew": rows["skew"] > limit,
    }
    left = known
    for kind, where in ways.items():
        bad = left & where
        left = left & ~bad
        if bad.any():
            yield _no_rotation(bad, kind, rows["skew"], float(np.median(scale[bad])))


def _no_rotation(bad: Array, kind: str, skew: Array, scale: float) -> Failure:
    words, fix = _FIXES[kind]
    by = {"scaled": f" (x{shown(scale)}, median)", "skew": f" (off by {shown(float(np.median(skew[bad])))}, median)"}
    return Failure(
        bad,
        f"{those(bad, 'hold')} {words}{by.get(kind, '')}.",
        measured={"off": float(np.median(skew[bad])), "scale": scale},
        cause=Cause(words, kind, 1 / scale if kind == "scaled" and scale else None, int(bad.sum())),
        fix=fix,
        kind=kind,
        order=skew,
    )


# ---------------------------------------------------------------------------------------------- matrices in JSON


@measure("record_matrices", per="sample")
def record_matrices(block: Block, schema: Schema) -> Columns:
    """4 x 4 matrices in the records of a JSON list: `matrices`, how many; `upright` ones with a last row 0 0 0 1 alone.

    `transposed`: those with a last column 0 0 0 1 alone; `transposed_at`: the list, the key and these records. Of
    several keys the one with most transposed ones.
    """
    del schema
    names = [
        name for name, column in sorted(block.fields.items())
        if column.kind == "json" and not isinstance(column, Messages) and b"[[" in column.values.tobytes()
    ]  # fmt: skip
    if not names:
        return {}
    found = [
        max((_best(name, block.fields[name].objects[i]) for name in names), default=_NO) for i in range(len(block))
    ]
    known = np.array([one[1] > 0 for one in found], dtype=bool)
    if not known.any():
        return {}
    counts = np.array([one[:3] for one in found], dtype=np.int64).T
    columns: dict[str, Measured | list[str]] = {
        name: Measured(values, known)
        for name, values in zip(("transposed", "matrices", "upright"), counts, strict=True)
    }
    return columns | {"transposed_at": [one[3] for one in found]}


_Found = tuple[int, int, int, str]  # transposed, all, upright, where
_NO: _Found = (0, 0, 0, "")


def _best(name: str, records: Any) -> _Found:
    """Return what the records of a list hold under the key with most transposed matrices."""
    if not isinstance(records, list):
        return _NO
    first = (record for record in records[:_RECORDS] if isinstance(record, dict))
    keys = {key for record in first for key, value in islice(record.items(), _KEYS) if _is_matrix(value)}
    held: dict[str, list[tuple[int, Any]]] = {key: [] for key in sorted(keys)[:_KEYS]}
    for i, record in enumerate(records if held else ()):  # once: there may be millions of other records
        for key in held.keys() & record.keys() if isinstance(record, dict) else ():
            if _is_matrix(record[key]):
                held[key].append((i, record[key]))
    return max((_under(name, key, found) for key, found in held.items()), default=_NO)


def _under(name: str, key: str, held: list[tuple[int, Any]]) -> _Found:
    matrices = np.array([value for _, value in held], dtype=np.float64)
    row, column = (np.abs(m - _END).max(axis=1) <= 1e-6 for m in (matrices[:, 3], matrices[:, :, 3]))
    places = np.array([i for i, _ in held])[column & ~row].tolist()
    return len(places), len(held), int((row & ~column).sum()), f"{key} of {name} {listed(_runs(places), _PLACES)}"


def _is_matrix(value: Any) -> bool:
    rows = value if isinstance(value, list) and len(value) == 4 else []
    four = bool(rows) and all(isinstance(row, list) and len(row) == 4 for row in rows)
    return four and all(type(x) is float or (type(x) is int and abs(x) < 1 << 53) for row in rows for x in row)


def _runs(places: list[int]) -> Iterator[str]:
    """Yield ascending numbers, those that follow one another as "25-28"."""
    starts = [i for i, place in enumerate(places) if not i or place != places[i - 1] + 1]
    for start, stop in pairwise([*starts, len(places)]):
        yield f"{places[start]}-{places[stop - 1]}" if stop > start + 1 else f"{places[start]}"


@rule(
    "DC316", "transposed-matrix", Severity.ERROR, Level.SAMPLE, per="sample", measures=(record_matrices,),
    defaults={"matrices": 8, "share": 0.5},
)  # fmt: skip
def transposed_matrix(rows: Rows, case: Case) -> Iterator[Failure]:
    """Some 4 x 4 matrices in the records of a JSON list are transposed.

    What:
        Where most matrices under one key of the records have the last row ``0 0 0 1``, no other has it as its last
        column in place of its last row. Fields of matrices are judged by DC304.
    Why it matters:
        The translation stands in the last row: a loader that takes the last column puts these cameras at the origin.
    Measure:
        The last row and the last column of each matrix, in JSON lists of mappings such as ``frames`` of a
        ``transforms.json``. Records count from 0.
    When it is wrong:
        Never known: a rigid motion has its last row so.
    Options:
        matrices: fewest matrices of a list to judge (8). share: share that must have the last row ``0 0 0 1`` and
        another last column (0.5).
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
        Transpose these matrices: translation belongs into the last column.
    Reference:
        ``transforms.json`` of instant-ngp and nerfstudio: OpenGL and Blender exporters write columns or rows first.
    """
    known = rows.measured(":matrices")
    if not known.any():
        return
    every, bad = rows[":matrices"], rows[":transposed"]
    usual = rows[":upright"] >= float(case.options["share"]) * every
    mask = known & (bad > 0) & usual & (every >= int(case.options["matrices"]))
    if mask.any():
        where = different(rows[":transposed_at"][mask])
        yield Failure(
            mask,
            f"{int(bad[mask].sum()):,} of {int(every[mask].sum()):,} matrices in records are transposed "
            f"({listed(where)}): their last column is 0 0 0 1, in place of the last row.",
            measured={"transposed": int(bad[mask].sum()), "matrices": int(every[mask].sum())},
            cause=Cause("written column by column, the others row by row", "transposed", explains=int(mask.sum())),
            fix="Transpose them: translation belongs into the last column.",
            kind="transposed",
            order=bad,
        )
