"""Reading rotations, poses and transforms out of columns, for the measurements of several families."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from datacheck.rotation import matrices, wxyz
from datacheck.rules.measures import column_of, is_numeric
from datacheck.sample import Block, Column
from datacheck.schema.model import FieldSpec, Schema, parse_columns

Array = np.ndarray[Any, Any]


def rows_of(column: Column, size: int) -> tuple[Array, Array] | None:
    """Return a field's numbers as rows of `size`, or None where they are not such rows.

    Shapes:
        rows: any (rows, size); a sample of [48] numbers is 16 rows of 3
        counts: int64 (samples): rows of each sample, 0 where its length is no multiple
    """
    values, lengths = column.values, column.lengths
    if not is_numeric(column) or (values.ndim == 1 and lengths is None):
        return None
    if values.ndim == 1 and lengths is not None:
        whole = (lengths % size == 0) & (lengths > 0)
        kept = values if whole.all() else values[np.repeat(whole, lengths)]
        return kept.reshape(-1, size), np.where(whole, lengths // size, 0)
    if values.shape[-1] % size or values.shape[-1] == 0:
        return None
    inner = prod(values.shape[1:]) // size
    counts = (np.ones(len(column), np.int64) if lengths is None else lengths) * inner
    return values.reshape(-1, size), counts


def transforms_of(column: Column) -> tuple[Array, Array, Array] | None:
    """Return a field's matrices as rigid motions, or None where it holds none.

    Shapes:
        transforms: float64 (rows, 4, 4); of [3, 4] and [3, 3] the rest is that of the identity
        counts: int64 (samples): matrices of each sample
        whole: bool (rows): where all 16 numbers are the field's own
    """
    values, lengths = column.values, column.lengths
    if not is_numeric(column) or lengths is None:
        return None
    if values.ndim == 3 and values.shape[1:] in {(4, 4), (3, 4), (3, 3)}:
        out = _identities(len(values))
        out[:, : values.shape[1], : values.shape[2]] = values
        return out, lengths, np.full(len(values), values.shape[1] == 4)
    if values.ndim != 2 or values.shape[1] not in {3, 4}:
        return None
    width = values.shape[1]
    fits = (lengths == 3) | ((lengths == 4) & (width == 4))
    out = _identities(int(fits.sum()))
    own = lengths[fits] == 4
    starts = (np.cumsum(lengths) - lengths)[fits]
    for row in range(4):
        there = own if row == 3 else np.ones(len(starts), bool)
        out[there, row, :width] = values[starts[there] + row]
    return out, fits.astype(np.int64), own


def _identities(count: int) -> Array:
    return np.tile(np.eye(4), (count, 1, 1))


def quaternion_columns(spec: FieldSpec) -> tuple[int, int] | None:
    """Return the columns of a pose that are called ``quat`` or ``quaternion``, None where it names none."""
    named = parse_columns(spec.columns) if spec.columns else {}
    found = next((named[name] for name in ("quat", "quaternion") if name in named), None)
    return found if found is not None and found[1] - found[0] == 4 else None


def first_poses(block: Block, schema: Schema, name: str) -> tuple[Array, Array] | None:
    """Return the first pose of each sample as a rigid motion, or None where the field is no pose that can be read.

    Shapes:
        transforms: float64 (samples, 4, 4)
        known: bool (samples)

    Notes:
        A transform as it is; a pose of position and quaternion by its ``columns``, else three and four numbers.
    """
    spec, column = schema.spec(name), column_of(block, schema, name)
    if column is None:
        return None
    if spec.role == "transform":
        read = transforms_of(column)
        return None if read is None else _firsts(read[0], read[1])
    width = column.values.shape[-1] if column.values.ndim > 1 else column.uniform or 0
    quat = quaternion_columns(spec) or ((3, 7) if width == 7 else None)
    rows = rows_of(column, width) if quat is not None and width >= 7 else None
    if quat is None or rows is None:
        return None
    named = parse_columns(spec.columns) if spec.columns else {}
    start = named.get("pos", (0, 3))[0]
    order = spec.order or schema.spec(f"{name}.quat").order or "wxyz"
    values, counts = rows
    out = _identities(len(values))
    out[:, :3, :3] = matrices(wxyz(values[:, quat[0] : quat[1]], order))
    out[:, :3, 3] = values[:, start : start + 3]
    return _firsts(out, counts)


def _firsts(transforms: Array, counts: Array) -> tuple[Array, Array]:
    out, known = _identities(len(counts)), counts > 0
    out[known] = transforms[(np.cumsum(counts) - counts)[known]]
    return out, known
