"""Rules about things put into the world by a pose: they rest on something, and views of one scene agree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datacheck.finding import Failure, Level, Severity
from datacheck.rotation import inverse, moved
from datacheck.rules.base import Case, Columns, measure, rule, shown, those
from datacheck.rules.measures import column_of, leaf, norms, place, positions, reduced
from datacheck.rules.placing import first_poses
from datacheck.rules.projection import FRAMES
from datacheck.sample import Block, Column, Sample
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.units import factor
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]

_NEEDS = ("DC109", "DC122", "DC201", "DC221", "DC304")
_MOST = 1500  # points of a view that are compared
_CLEARLY = 3.0  # times their own spacing: points of two views that do not fit
_NOTHING: Mapping[str, float] = {"gap": math.nan, "spacing": math.nan, "size": math.nan}
_NEIGHBOURS = 256  # points whose distances to all others are held at once


@measure("posed", per="sample", uses=(
    "fields.posed_by", "fields.columns", "fields.order", "fields.up", "fields.scale", "fields.role",
))  # fmt: skip
def posed(block: Block, schema: Schema) -> Columns:
    """How low the points of a thing come once it is put into the world: ``<field>:lowest``, along `up` (z)."""
    found: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        pose = first_poses(block, schema, spec.posed_by) if spec.posed_by and name in block.fields else None
        column = column_of(block, schema, name) if pose is not None else None
        here = None if column is None else positions(column)
        if pose is None or here is None:
            continue
        counts = np.ones(len(block), np.int64) if here[1] is None else here[1]
        up = spec.up or "z"
        axis, sign = "xyz".index(up[-1]), -1.0 if up.startswith("-") else 1.0
        points = here[0].astype(np.float64) * (spec.scale or 1.0)
        height = sign * _along(points, pose[0], counts, axis)
        found[f"{name}:lowest"] = Measured(reduced(np.minimum, height, counts), pose[1] & (counts > 0))
    return dict(found)


def _along(points: Array, transforms: Array, counts: Array, axis: int) -> Array:
    """Return one coordinate of the moved points."""
    turn = np.repeat(transforms[:, axis], counts, axis=0).T
    out: Array = turn[0] * points[0] + turn[1] * points[1] + turn[2] * points[2] + turn[3]
    return out


@rule(
    "DC313", "floating-object", Severity.WARNING, Level.SAMPLE, measures=(posed,), needs=_NEEDS,
    applies=lambda s: leaf(s) and s.role == "points" and s.posed_by is not None and s.rests is not None,
)  # fmt: skip
def floating_object(rows: Rows, case: Case) -> Iterator[Failure]:
    """A thing floats above what it stands on, or sticks in it.

    What:
        The lowest point, with the pose of ``posed_by`` applied (and ``scale``, where the pose is in another unit than
        the points), is within ``rests``.
    Why it matters:
        Grasps on a floating thing need no care for the table; those on one that is half inside cannot be done.
    Measure:
        Smallest coordinate along ``up`` (z) of ``R (scale p) + t``.
    When it is wrong:
        Things hang or are held: leave ``rests`` out.
    Options:
        none
    Bad::

        schema:
          fields:
            p: {role: points, shape: [P, 3], centered: box, posed_by: o, rests: -0.005..0.05}
            o: {role: pose, shape: [7], columns: "pos:3 quat:4"}
        samples:
          - {n: 3, p: {box: [60, 3], size: 0.2, at: [0, 0, 0]}, o: {standing: 0.2}}
          - {p: {box: [60, 3], size: 0.2, at: [0, 0, 0]}, o: {standing: 0.2, above: 0.1}}

    Good::

        schema:
          fields:
            p: {role: points, shape: [P, 3], centered: box, posed_by: o, rests: -0.005..0.05}
            o: {role: pose, shape: [7], columns: "pos:3 quat:4"}
        samples:
          - {n: 4, p: {box: [60, 3], size: 0.2, at: [0, 0, 0]}, o: {standing: 0.2}}

    Fix:
        Check the scale of the mesh and the order of the quaternion before the height of the pose.
    Reference:
        SceneLeap puts objects on a table at z = 0; a mesh scale that differs by 10 lifts or sinks them.
    """
    column, allowed = f":{case.name}:lowest", case.spec.rests
    known = rows.measured(column)
    if not known.any() or allowed is None:
        return
    low, unit = rows[column], case.spec.unit
    bottom = -math.inf if allowed.low is None else allowed.low
    top = math.inf if allowed.high is None else allowed.high
    high, deep = known & (low > top), known & (low < bottom)
    if high.any():
        yield _off_ground(high, low, "floats", str(allowed), unit or "")
    if deep.any():
        yield _off_ground(deep, low, "sinks", str(allowed), unit or "")


def _off_ground(bad: Array, low: Array, kind: str, allowed: str, unit: str) -> Failure:
    middle = float(np.median(low[bad]))
    verb = "float" if kind == "floats" else "sink"
    return Failure(
        bad,
        f"{those(bad, verb)}: the lowest point is at {shown(middle, unit)} (median), allowed "
        f"{f'{allowed} {unit}'.rstrip()}.",
        measured={"lowest": middle},
        expected={"rests": allowed},
        fix="Check the scale of the points, the order of the quaternion, then the pose.",
        kind=kind,
        order=np.abs(low),
    )


def _registered(spec: FieldSpec) -> bool:
    return leaf(spec) and spec.role == "points" and spec.extrinsics is not None and spec.frame in FRAMES


def _neighbours(rows: Rows, case: Case) -> Array:
    """Return each view with the next one of its group, the last one with the first."""
    known = rows.measured("box")
    if case.schema.samples.group is None:
        return np.zeros((0, 2), np.int64)
    pairs = []
    for _, places in rows.by_group():
        mine = places[known[places]]
        if len(mine) > 1:
            pairs.append(np.stack([mine, np.roll(mine, -1)], axis=1)[: len(mine) if len(mine) > 2 else 1])
    return np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64)


def _gap(a: Sample, b: Sample, case: Case) -> Mapping[str, float]:
    """Return how far two views of one scene are apart in the world, where they overlap.

    `gap`: median distance from a point to the other view's nearest; `spacing`: to the nearest of its own view, the
    larger of both views; `size`: diagonal of the overlap. NaN where less than a tenth of either is near the other.
    """
    found = _apart(_in_world(a, case), _in_world(b, case))
    if found["gap"] > _CLEARLY * found["spacing"]:
        turned = _apart(_in_world(a, case, inverted=True), _in_world(b, case, inverted=True))
        if turned["gap"] <= _CLEARLY * turned["spacing"]:
            return _NOTHING  # the direction is wrong, not the place: DC307
    return found


def _apart(first: Array | None, second: Array | None) -> Mapping[str, float]:
    if first is None or second is None:
        return _NOTHING
    low = np.maximum(first.min(axis=1), second.min(axis=1))
    high = np.minimum(first.max(axis=1), second.max(axis=1))
    slack = 0.05 * norms((first.max(axis=1) - first.min(axis=1))[:, None])[0]
    views = (first, second)
    parts = [v[:, ((v >= (low - slack)[:, None]) & (v <= (high + slack)[:, None])).all(axis=0)] for v in views]
    if any(10 * part.shape[1] < view.shape[1] for part, view in zip(parts, views, strict=True)):
        return _NOTHING
    gap = min(float(np.median(_nearest(p, v))) for p, v in zip(parts, reversed(views), strict=True))
    spacing = max(float(np.median(_nearest(v, v, itself=True))) for v in views)
    return {"gap": gap, "spacing": spacing, "size": float(norms((high - low)[:, None])[0])}


def _in_world(sample: Sample, case: Case, *, inverted: bool = False) -> Array | None:
    """Return at most 1,500 points of a view in the world, (3, points)."""
    fields = {name: Column.of([value]) for name, value in sample.fields.items() if isinstance(value, np.ndarray)}
    block = Block([sample.key], fields, [sample.origin])
    pose = first_poses(block, case.schema, case.spec.extrinsics or "")
    column = column_of(block, case.schema, case.name)
    here = None if column is None else positions(column)
    if pose is None or here is None or not pose[1][0] or here[0].shape[1] < 10:
        return None
    points = here[0][:, :: -(-here[0].shape[1] // _MOST)]
    return moved(points, inverse(pose[0]) if inverted else pose[0], np.array([points.shape[1]]))


def _nearest(points: Array, others: Array, *, itself: bool = False) -> Array:
    """Return the distance from each point to the nearest of the others."""
    middle = others.mean(axis=1, keepdims=True)  # small numbers keep their digits
    points, others, found = points - middle, others - middle, []
    far = (others * others).sum(axis=0)
    for start in range(0, points.shape[1], _NEIGHBOURS):
        part = points[:, start : start + _NEIGHBOURS]
        square = (part * part).sum(axis=0)[:, None] + far - 2 * (part.T @ others)
        if itself:
            square[np.arange(part.shape[1]), start + np.arange(part.shape[1])] = np.inf
        found.append(np.sqrt(np.maximum(square.min(axis=1), 0.0)))
    return np.concatenate(found)


@rule(
    "DC310", "view-registration", Severity.WARNING, Level.GROUP, measures=(place,), needs=(*_NEEDS, "DC303", "DC307"),
    applies=_registered, defaults={"far": 0.03, "share": 0.05, "spacing": 3.0}, depth="deep",
    pairs=_neighbours, compare=_gap,
)  # fmt: skip
def view_registration(rows: Rows, case: Case) -> Iterator[Failure]:
    """Views of one scene do not fit together in the world.

    What:
        Neighbouring views of a group, put into the world by their ``extrinsics``, lie on one another where they
        overlap. A view is named if it fits neither neighbour.
    Why it matters:
        A fused cloud then has double walls; labels that were projected from one view hit the wrong points of the other.
    Measure:
        Median distance to the nearest point of the other view, within the common part of both boxes, for up to 1,500
        points of each; against ``far``, ``share`` of the overlap's size, and the points' own spacing.
    When it is wrong:
        Things move between the views, or views of opposite sides have nothing in common.
    Options:
        far: metres (0.03). share: of the overlap's diagonal (0.05); either is too much. spacing: it must also be so
        many times the distance between neighbouring points (3.0).
    Bad::

        schema:
          samples: {files: "*", group: "{scene}"}
          fields:
            p: {role: points, shape: [P, 3], unit: m, frame: camera_opencv, extrinsics: t}
            t: {role: transform, shape: [4, 4], unit: m}
        samples:
          - {n: 5, group: a, p: {view: 1500}, t: {view: 1500, pose: true}}
          - {n: 1, group: a, p: {view: 1500, aside: 0.2}, t: {view: 1500, pose: true}}

    Good::

        schema:
          samples: {files: "*", group: "{scene}"}
          fields:
            p: {role: points, shape: [P, 3], unit: m, frame: camera_opencv, extrinsics: t}
            t: {role: transform, shape: [4, 4], unit: m}
        samples:
          - {n: 6, group: a, p: {view: 1500}, t: {view: 1500, pose: true}}

    Fix:
        Calibrate the camera again, or leave the view out.
    Reference:
        ScanNet's poses drift where tracking was lost; issue 9 has poses of minus infinity.
    """
    if case.pairs is None or not len(case.pairs.first):
        return
    unit = factor(case.spec.unit or "m")
    gap, spacing, size = (case.pairs.of(name) * unit for name in ("gap", "spacing", "size"))
    seen = np.isfinite(gap)
    options = case.options
    apart = seen & (gap > float(options["spacing"]) * spacing)
    apart &= (gap > float(options["far"])) | (gap > float(options["share"]) * size)
    ends = np.concatenate([case.pairs.first, case.pairs.second])
    count = np.bincount(ends[np.tile(seen, 2)], minlength=len(rows))
    misfits = np.bincount(ends[np.tile(apart, 2)], minlength=len(rows))
    bad = (count > 0) & (misfits == count)
    if bad.any():
        yield _misfits(bad, float(np.median(gap[apart])), float(np.median(spacing[apart])), int(apart.sum()))


def _misfits(bad: Array, gap: float, spacing: float, pairs: int) -> Failure:
    return Failure(
        bad,
        f"{those(bad, 'fit')} no other view of the scene: {shown(gap, 'm')} apart (median of {pairs:,} pairs), where "
        f"points are {shown(spacing, 'm')} from those of their own view.",
        measured={"gap": gap, "spacing": spacing, "pairs": pairs},
        fix="Calibrate again, or leave these views out.",
        kind="apart",
    )
