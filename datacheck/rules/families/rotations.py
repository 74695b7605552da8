"""Rules about rotations: quaternions have length 1, matrices turn and do nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Cause, Failure, Level, Severity
from datacheck.rules.base import Case, Columns, measure, rule, shown, those
from datacheck.rules.measures import leaf, norms, of_role, reduced
from datacheck.rules.placing import quaternion_columns, rows_of, transforms_of
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

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
    end = np.array([0.0, 0.0, 0.0, 1.0])
    aside = np.abs(matrix[:, :, 3] - end).max(axis=1, initial=0.0)
    off = np.abs(np.einsum("nji,njk->nik", turn, turn) - np.eye(3)).reshape(-1, 9).max(axis=1, initial=0.0)
    columns = {
        "skew": reduced(np.maximum, off, counts),
        "det": np.stack([reduced(u, det, counts) for u in (np.minimum, np.maximum)], axis=1),
        "last_row": reduced(np.maximum, np.abs(matrix[:, 3] - end).max(axis=1, initial=0.0), counts),
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
