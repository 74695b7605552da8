"""Positions projected into images, under every reading of the camera's axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.rules.base import Columns, measure
from datacheck.rules.measures import column_of, is_numeric, positions
from datacheck.sample import Block, Column
from datacheck.schema.model import Schema
from datacheck.table import Measured

Array = np.ndarray[Any, Any]
Signs = tuple[int, int, int]

FRAMES: dict[str, Signs] = {"camera_opencv": (1, 1, 1), "camera_opengl": (1, -1, -1)}
READINGS: tuple[Signs, ...] = (
    (1, 1, 1), (1, -1, -1), (1, 1, -1), (1, -1, 1), (-1, 1, 1), (-1, 1, -1), (-1, -1, 1), (-1, -1, -1),
)  # fmt: skip
_EXACT = 1e-3  # of the last row of a camera matrix


def cameras(
    column: Column, of: Array | None = None, step: Array | int = 0, steps: Array | int = 1
) -> tuple[Array, Array]:
    """Return the camera of each sample `of` a column, and where there is a finite one.

    Shapes:
        cameras: float64 (of), of all samples if None: focal lengths and principal point, fx fy cx cy [px]
        known: bool (of)

    Args:
        of: int64 (of), positions of samples.
        step: which camera of a sample that has one for each of `steps` (of); of others it is the first.

    Notes:
        From matrices [3, 3], [3, 4], [4, 4], from vectors fx, fy, cx, cy, and from lists of either. Rows of four are
        a matrix where the third one is 0, 0, 1, and vectors else.
    """
    values = column.values
    of = np.arange(len(column)) if of is None else of
    out = np.zeros((len(of), 4))
    if not is_numeric(column) or column.lengths is None:
        return out, np.zeros(len(of), bool)
    starts, lengths = column.starts[of], column.lengths[of]
    mine = starts + np.where(lengths == steps, step, 0)
    if values.ndim == 1:
        known = lengths == 4
        out[known] = values[starts[known][:, None] + np.arange(4)]
    elif values.ndim == 2 and values.shape[1] in {3, 4}:
        matrix = _matrices(values, starts, lengths)
        first, second = values[starts[matrix]], values[starts[matrix] + 1]
        out[matrix] = np.stack([first[:, 0], second[:, 1], first[:, 2], second[:, 2]], axis=1)
        known = matrix
        if values.shape[1] == 4:
            known = lengths > 0
            out[known & ~matrix] = values[mine[known & ~matrix]]
    elif values.ndim == 3 and values.shape[1] in {3, 4} and values.shape[2] in {3, 4}:
        known = lengths > 0
        k = values[mine[known]]
        out[known] = np.stack([k[:, 0, 0], k[:, 1, 1], k[:, 0, 2], k[:, 1, 2]], axis=1)
    else:
        known = np.zeros(len(of), bool)
    return out, known & np.isfinite(out).all(axis=1)


def _of_each(camera: Column, column: Column, counts: Array, *, moves: bool) -> tuple[Array, Array]:
    """Return the camera of each of `counts` positions of samples: (positions, 4), and which samples have one.

    Where a column `moves` (its rows are steps), samples with as many cameras as steps have one for each.
    """
    steps = np.ones(len(column), np.int64)
    if moves and camera.lengths is not None and column.lengths is not None:
        moving = (camera.lengths == column.lengths) & (counts > 0)
        steps[moving] = column.lengths[moving]
    of = np.repeat(np.arange(len(column)), steps)
    step = np.arange(len(of)) - np.repeat(np.cumsum(steps) - steps, steps)
    found, known = cameras(camera, of, step, steps[of])
    lacking = np.bincount(of[~known], minlength=len(column))
    return np.repeat(found, (counts // steps)[of], axis=0), lacking == 0


def _matrices(rows: Array, starts: Array, lengths: Array) -> Array:
    """Return which samples are one matrix; four vectors of four numbers have its shape, too."""
    if rows.shape[1] == 3:
        return np.asarray(lengths == 3)
    found: Array = (lengths == 3) | (lengths == 4)
    found[found] = (np.abs(rows[starts[found] + 2, :3] - [0.0, 0.0, 1.0]) < _EXACT).all(axis=1)
    return found


def inside(xyz: Array, lens: Array, size: tuple[int, int]) -> Iterator[Array]:
    """Yield which of positions (3, n) lie in the image by each of `READINGS`: bool (n)."""
    (x, y, z), (fx, fy, cx, cy), (width, height) = xyz, lens, size
    u, v = fx * x / z, fy * y / z
    across = {s: (cx + s * u >= 0) & (cx + s * u < width) for s in (1, -1)}
    down = {s: (cy + s * v >= 0) & (cy + s * v < height) for s in (1, -1)}
    ahead = {1: z > 0, -1: z < 0}
    return (ahead[c] & across[a * c] & down[b * c] for a, b, c in READINGS)


@measure("projection", per="sample", version=5, uses=("fields.role", "fields.intrinsics", "fields.image_size"))
def projection(block: Block, schema: Schema) -> Columns:
    """Share of positions inside the image, by the field's intrinsics: ``<field>:inside``, one for each of `READINGS`.

    Of as many cameras as steps each step is projected by its own. A reading says which of x, y, z are reversed before
    they are taken for OpenCV's (x right, y down, z forward). What is behind the camera is outside.
    """
    found: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        camera = block.fields.get(spec.intrinsics or "")
        column = column_of(block, schema, name) if camera is not None and spec.image_size is not None else None
        here = None if column is None else positions(column)
        if here is None or column is None or camera is None or spec.image_size is None:
            continue
        xyz, lengths = here
        counts = np.ones(len(block), np.int64) if lengths is None else lengths
        moves = column.values.ndim > 2 or (spec.role == "position" and column.values.ndim > 1)
        focal, known = _of_each(camera, column, counts, moves=moves)
        sample = np.repeat(np.arange(len(block)), counts)
        seen = inside(xyz.astype(np.float64, copy=False), focal.T, spec.image_size)
        hits = [np.bincount(sample, weights=mask, minlength=len(block)) for mask in seen]
        shares = np.stack(hits, axis=1) / np.maximum(counts, 1)[:, None]
        found[f"{name}:inside"] = Measured(shares, known & (counts > 0))
    return dict(found)
