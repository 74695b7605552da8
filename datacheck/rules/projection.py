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


def cameras(column: Column, step: int = 0, steps: int = 1) -> tuple[Array, Array]:
    """Return the camera of each sample, and where there is a finite one: of `steps` that of `step`, else the first.

    Shapes:
        cameras: float64 (samples, 4): focal lengths and principal point, fx fy cx cy [px]
        known: bool (samples)

    Notes:
        From matrices [3, 3], [3, 4], [4, 4], from vectors fx, fy, cx, cy, and from lists of either. Rows of four are
        a matrix where the third one is 0, 0, 1, and vectors else.
    """
    values, lengths, count = column.values, column.lengths, len(column)
    out = np.zeros((count, 4))
    if not is_numeric(column) or lengths is None:
        return out, np.zeros(count, bool)
    starts = np.cumsum(lengths) - lengths
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
        known = np.zeros(count, bool)
    return out, known & np.isfinite(out).all(axis=1)


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


@measure("projection", per="sample", version=4, uses=("fields.intrinsics", "fields.image_size"))
def projection(block: Block, schema: Schema) -> Columns:
    """Share of positions inside the image, by the field's intrinsics: ``<field>:inside``, one for each of `READINGS`.

    A reading says which of x, y, z are reversed before they are taken for OpenCV's (x right, y down, z forward). What
    is behind the camera is outside.
    """
    found: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        camera = block.fields.get(spec.intrinsics or "")
        column = column_of(block, schema, name) if camera is not None and spec.image_size is not None else None
        here = None if column is None else positions(column)
        if here is None or camera is None or spec.image_size is None:
            continue
        xyz, lengths = here
        counts = np.ones(len(block), np.int64) if lengths is None else lengths
        focal, known = cameras(camera)
        sample = np.repeat(np.arange(len(block)), counts)
        seen = inside(xyz.astype(np.float64, copy=False), np.repeat(focal, counts, axis=0).T, spec.image_size)
        hits = [np.bincount(sample, weights=mask, minlength=len(block)) for mask in seen]
        shares = np.stack(hits, axis=1) / np.maximum(counts, 1)[:, None]
        found[f"{name}:inside"] = Measured(shares, known & (counts > 0))
    return dict(found)
