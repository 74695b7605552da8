"""Location of positions relative to other fields: distance, direction and image projection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from datacheck.model.rotation import matrices, wxyz
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import Columns, RuleContext, measure
from datacheck.rules.causes import logarithms
from datacheck.rules.measures import column_of, is_numeric, norms, place, positions, quantile
from datacheck.schema.model import FieldSpec, Schema, parse_columns

Array = np.ndarray[Any, Any]

_UP = {"camera_opengl": "y", "camera_opencv": "-y"}  # frames that define the up axis
APPROACHES = 20  # bins of a cosine


def up_of(spec: FieldSpec) -> str | None:
    """Return the axis that points up for a field's values ("-y"), None where none is declared."""
    return spec.up or _UP.get(spec.frame or "")


def _up_beside(schema: Schema, name: str) -> str | None:
    """Return the axis that points up at a field's place.

    It is the field's own, else that of a cloud which the field poses; z if that cloud rests.
    """
    pose = (schema.part_of(name) or (name,))[0]
    posed = [spec for _, spec in schema.of_role("points") if spec.posed_by == pose]
    up_axes = (
        up_of(schema.spec(name)),
        *(spec.up or ("z" if spec.rests else None) for spec in posed),
    )
    return next(filter(None, up_axes), None)


@measure(
    "near",
    version=2,
    per="sample",
    uses=(
        "fields.near",
        "fields.columns",
        "fields.role",
        "fields.posed_by",
        "fields.up",
        "fields.frame",
        "fields.rests",
    ),
)
def near(block: Block, schema: Schema) -> Columns:
    """Distance to the field declared as ``near``: ``<field>:near``, the median over the rows.

    It is in the field's unit. The other field's position is its first one; of points their
    centroid. ``<field>:approach``: a histogram of the directions of positions or poses from that
    position, where the schema defines the up axis. Its `APPROACHES` bins cover the cosine between
    the direction to that position and up, from -1 (from above) to 1.
    """
    columns: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        mine = column_of(block, schema, name) if spec.near and spec.role != "depth" else None
        other = column_of(block, schema, spec.near or "") if mine is not None else None
        coordinates = None if mine is None else positions(mine)
        centres = None if other is None else place.function(other, schema.spec(spec.near or ""))
        if coordinates is None or not centres:
            continue
        centre = centres["centroid" if schema.spec(spec.near or "").role == "points" else "first"]
        assert isinstance(centre, Measured)
        xyz, lengths = coordinates
        count = np.ones(len(block), np.int64) if lengths is None else lengths
        away = xyz - np.repeat(centre.values, count, axis=0).T
        length = norms(away)
        present = centre.present & (count > 0)
        columns[f"{name}:near"] = Measured(quantile(length, count, 0.5), present)
        up = _up_beside(schema, spec.near or "") if spec.role in {"position", "pose"} else None
        if up is not None:
            height = away["xyz".index(up[-1])] * (-1.0 if up.startswith("-") else 1.0)
            columns[f"{name}:approach"] = Measured(_approaches(-height / length, count), present)
    return dict(columns)


def _approaches(cosine: Array, count: Array) -> Array:
    """Return each sample's histogram of a cosine; values that are not finite are in no bin."""
    owner = np.repeat(np.arange(len(count)), count)
    finite = np.isfinite(cosine)
    places = np.clip((cosine[finite] + 1) * (APPROACHES / 2), 0, APPROACHES - 1).astype(np.int64)
    many = np.bincount(owner[finite] * APPROACHES + places, minlength=len(count) * APPROACHES)
    return many.reshape(len(count), APPROACHES)


@measure("stored", per="sample", uses=("fields.centered_on", "fields.columns", "fields.role"))
def stored(block: Block, schema: Schema) -> Columns:
    """The centre that was subtracted (``centered_on``): ``<field>:stored`` (3), in its unit.

    For points it is their centroid, else the first position.
    """
    columns: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        other = schema.spec(spec.centered_on or "")
        column = (
            column_of(block, schema, spec.centered_on)
            if spec.centered_on and name in block.fields
            else None
        )
        centres = {} if column is None else place.function(column, other)
        if centres:
            centre = centres["centroid" if other.role == "points" else "first"]
            assert isinstance(centre, Measured)
            columns[f"{name}:stored"] = centre
    return dict(columns)


@dataclass(frozen=True, eq=False)
class Placement:
    """The positions of each sample, as measured (`place`, `bones`, `near`).

    Shapes:
        box, away: float64 (rows), diagonal of the bounding box, distance from `origin`
        bone: float64 (rows) or None
        centre, origin: float64 (rows, 3): their centre, and the point from which distance is
            measured

    Args:
        near: whether `origin` is the field that they are ``near``; else it is 0.
    """

    box: Array
    bone: Array | None
    away: Array
    centre: Array
    origin: Array
    near: bool

    @staticmethod
    def of(rows: Rows, case: RuleContext) -> Placement:
        """Return the placement of the judged field."""
        # `Rows` has no `get`.
        spec, bone = case.spec, rows["bone"] if "bone" in rows else None  # noqa: SIM401
        centre = rows["first" if spec.role == "joints" else "centroid"]
        points = case.schema.spec(spec.near or "").role == "points"
        column = f"{spec.near}:{'centroid' if points else 'first'}"
        if spec.near and column in rows and f":{case.name}:near" in rows:
            return Placement(
                rows["box"], bone, rows[f":{case.name}:near"], centre, rows[column], near=True
            )
        away = rows["norm"] if "norm" in rows else norms(centre.T)
        return Placement(rows["box"], bone, away, centre, np.zeros((len(rows), 3)), near=False)

    def distance(self, by: float = 1.0, moved: Array | None = None) -> Array:
        """Return the distance of the positions from `origin` once scaled and moved.

        Notes:
            For several positions in a sample the median distance and their centre are known. The
            difference of the two is their spread, which is taken as the same share of the bounding
            box in all samples.
        """
        with np.errstate(all="ignore"):
            radius = (
                np.sqrt(np.maximum(self.away**2 - norms((self.centre - self.origin).T) ** 2, 0))
                / self.box
            )
            share = np.clip(
                np.nanmedian(radius[np.isfinite(radius)]) if np.isfinite(radius).any() else 0.0,
                0.0,
                0.6,
            )
        offset = norms((self.centre * by + (0.0 if moved is None else moved) - self.origin).T)
        return np.asarray(np.sqrt(offset**2 + (share * by * self.box) ** 2))

    def looks(self, by: float = 1.0, moved: Array | None = None) -> dict[str, Array]:
        """Return the logarithms of size, distance and bones once scaled and moved."""
        quantities = {"size": self.box * by, "distance": self.distance(by, moved)}
        quantities |= {} if self.bone is None else {"bone": self.bone * by}
        return {name: logarithms(values) for name, values in quantities.items()}


def rows_of(column: Column, size: int) -> tuple[Array, Array] | None:
    """Return a field's numbers as rows of `size`, or None where they do not form such rows.

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
        transforms: float64 (rows, 4, 4); [3, 4] and [3, 3] are completed from the identity
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
        has_row = own if row == 3 else np.ones(len(starts), bool)
        out[has_row, row, :width] = values[starts[has_row] + row]
    return out, fits.astype(np.int64), own


def _identities(count: int) -> Array:
    return np.tile(np.eye(4), (count, 1, 1))


def quaternion_columns(spec: FieldSpec) -> tuple[int, int] | None:
    """Return a pose's columns named ``quat`` or ``quaternion``, None where it names none."""
    named = parse_columns(spec.columns) if spec.columns else {}
    columns = next((named[name] for name in ("quat", "quaternion") if name in named), None)
    return columns if columns is not None and columns[1] - columns[0] == 4 else None


def first_poses(block: Block, schema: Schema, name: str) -> tuple[Array, Array] | None:
    """Return the first pose of each sample as a rigid motion, or None for an unreadable field.

    Shapes:
        transforms: float64 (samples, 4, 4)
        known: bool (samples)

    Notes:
        A transform is used unchanged. A pose of position and quaternion is read by its ``columns``,
        else as three and four numbers.
    """
    spec = schema.spec(name)
    column = column_of(block, schema, name)
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
    out = _identities(len(counts))
    nonempty = counts > 0
    out[nonempty] = transforms[(np.cumsum(counts) - counts)[nonempty]]
    return out, nonempty


Signs = tuple[int, int, int]

FRAMES: dict[str, Signs] = {"camera_opencv": (1, 1, 1), "camera_opengl": (1, -1, -1)}
READINGS: tuple[Signs, ...] = (
    (1, 1, 1),
    (1, -1, -1),
    (1, 1, -1),
    (1, -1, 1),
    (-1, 1, 1),
    (-1, 1, -1),
    (-1, -1, 1),
    (-1, -1, -1),
)
_EXACT = 1e-3  # tolerance of the last row of a camera matrix


def cameras(
    column: Column, of: Array | None = None, step: Array | int = 0, steps: Array | int = 1
) -> tuple[Array, Array]:
    """Return the camera of each sample in `of`, and where it is a finite one.

    Shapes:
        cameras: float64 (of), of all samples if None: focal lengths and principal point, fx fy cx
            cy [px]
        known: bool (of)

    Args:
        of: int64 (of), positions of samples.
        step: which camera to use in a sample that has one for each of `steps` (of); in other
            samples it is the first.

    Notes:
        Reads matrices [3, 3], [3, 4], [4, 4], vectors fx, fy, cx, cy, and lists of either. Rows of
        four are a matrix where the third one is 0, 0, 1, and vectors else.
    """
    values = column.values
    of = np.arange(len(column)) if of is None else of
    out = np.zeros((len(of), 4))
    if not is_numeric(column) or column.lengths is None:
        return out, np.zeros(len(of), bool)
    starts = column.starts[of]
    lengths = column.lengths[of]
    mine = starts + np.where(lengths == steps, step, 0)
    if values.ndim == 1:
        readable = lengths == 4
        out[readable] = values[starts[readable][:, None] + np.arange(4)]
    elif values.ndim == 2 and values.shape[1] in {3, 4}:
        matrix = _matrices(values, starts, lengths)
        first = values[starts[matrix]]
        second = values[starts[matrix] + 1]
        out[matrix] = np.stack([first[:, 0], second[:, 1], first[:, 2], second[:, 2]], axis=1)
        readable = matrix
        if values.shape[1] == 4:
            readable = lengths > 0
            out[readable & ~matrix] = values[mine[readable & ~matrix]]
    elif values.ndim == 3 and values.shape[1] in {3, 4} and values.shape[2] in {3, 4}:
        readable = lengths > 0
        k = values[mine[readable]]
        out[readable] = np.stack([k[:, 0, 0], k[:, 1, 1], k[:, 0, 2], k[:, 1, 2]], axis=1)
    else:
        readable = np.zeros(len(of), bool)
    return out, readable & np.isfinite(out).all(axis=1)


def _of_each(camera: Column, column: Column, counts: Array, *, moves: bool) -> tuple[Array, Array]:
    """Return the camera of each of `counts` positions (positions, 4), and the samples with one.

    Where a column `moves` (its rows are steps), samples with as many cameras as steps have one for
    each.
    """
    steps = np.ones(len(column), np.int64)
    if moves and camera.lengths is not None and column.lengths is not None:
        moving = (camera.lengths == column.lengths) & (counts > 0)
        steps[moving] = column.lengths[moving]
    sample_index = np.repeat(np.arange(len(column)), steps)
    step = np.arange(len(sample_index)) - np.repeat(np.cumsum(steps) - steps, steps)
    camera_values, readable = cameras(camera, sample_index, step, steps[sample_index])
    lacking = np.bincount(sample_index[~readable], minlength=len(column))
    return np.repeat(camera_values, (counts // steps)[sample_index], axis=0), lacking == 0


def _matrices(rows: Array, starts: Array, lengths: Array) -> Array:
    """Return which samples are one matrix; four vectors of four numbers have the same shape."""
    if rows.shape[1] == 3:
        return np.asarray(lengths == 3)
    is_matrix: Array = (lengths == 3) | (lengths == 4)
    is_matrix[is_matrix] = (np.abs(rows[starts[is_matrix] + 2, :3] - [0.0, 0.0, 1.0]) < _EXACT).all(
        axis=1
    )
    return is_matrix


def inside(xyz: Array, lens: Array, size: tuple[int, int]) -> Iterator[Array]:
    """Yield which of positions (3, n) lie in the image by each of `READINGS`: bool (n)."""
    (x, y, z), (fx, fy, cx, cy), (width, height) = xyz, lens, size
    u = fx * x / z
    v = fy * y / z
    across = {s: (cx + s * u >= 0) & (cx + s * u < width) for s in (1, -1)}
    down = {s: (cy + s * v >= 0) & (cy + s * v < height) for s in (1, -1)}
    ahead = {1: z > 0, -1: z < 0}
    return (ahead[c] & across[a * c] & down[b * c] for a, b, c in READINGS)


@measure(
    "projection",
    per="sample",
    version=5,
    uses=("fields.role", "fields.intrinsics", "fields.image_size"),
)
def projection(block: Block, schema: Schema) -> Columns:
    """Share of positions inside the image: ``<field>:inside``, one for each of `READINGS`.

    Projected with the field's intrinsics; with as many cameras as steps each step has its own. A
    reading states which of x, y, z are reversed to get OpenCV's axes (x right, y down, z forward).
    Positions behind the camera are outside.
    """
    columns: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        camera = block.fields.get(spec.intrinsics or "")
        column = (
            column_of(block, schema, name)
            if camera is not None and spec.image_size is not None
            else None
        )
        coordinates = None if column is None else positions(column)
        if coordinates is None or column is None or camera is None or spec.image_size is None:
            continue
        xyz, lengths = coordinates
        counts = np.ones(len(block), np.int64) if lengths is None else lengths
        moves = column.values.ndim > 2 or (spec.role == "position" and column.values.ndim > 1)
        focal, present = _of_each(camera, column, counts, moves=moves)
        sample = np.repeat(np.arange(len(block)), counts)
        seen = inside(xyz.astype(np.float64, copy=False), focal.T, spec.image_size)
        hits = [np.bincount(sample, weights=mask, minlength=len(block)) for mask in seen]
        shares = np.stack(hits, axis=1) / np.maximum(counts, 1)[:, None]
        columns[f"{name}:inside"] = Measured(shares, present & (counts > 0))
    return dict(columns)
