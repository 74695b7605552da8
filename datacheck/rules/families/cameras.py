"""Rules about cameras: intrinsics fit the image, extrinsics map from the camera to the world."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from datacheck.model.finding import Cause, Failure, Level, Severity
from datacheck.model.rotation import inverse, transformed
from datacheck.model.sample import Block, Column, Sample
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import (
    Columns,
    RuleContext,
    Skip,
    count_phrase,
    format_number,
    measure,
    rule,
)
from datacheck.rules.measures import column_of, leaf, norms, of_role, place, positions, reduced
from datacheck.rules.placement import FRAMES, cameras, first_poses, transforms_of
from datacheck.schema.grammar import factor
from datacheck.schema.model import FieldSpec, Schema

Array = np.ndarray[Any, Any]

_SUPPRESSED_BY = ("DC109", "DC122", "DC221")


@measure("lens", version=3, applies=of_role("intrinsics"))
def lens(column: Column, spec: FieldSpec) -> Columns:
    """Focal lengths and principal point of the first camera, in pixels: `lens` (fx, fy, cx, cy)."""
    del spec
    lenses, present = cameras(column)
    return {"lens": Measured(lenses, present)} if present.any() else {}


def _size_of(schema: Schema, name: str) -> tuple[tuple[int, int] | None, tuple[str, ...]]:
    """Return a camera's image size, and the fields that are projected with the camera."""
    users = tuple(
        n for n, s in sorted(schema.fields.items()) if s.intrinsics == name and not s.absent
    )
    sizes = [schema.fields[n].image_size for n in (name, *users)]
    return next((size for size in sizes if size is not None), None), users


@rule(
    "DC306",
    "intrinsics-resolution",
    Severity.ERROR,
    Level.SAMPLE,
    measures=(lens,),
    suppressed_by=_SUPPRESSED_BY,
    applies=of_role("intrinsics"),
    defaults={"off": 0.2, "narrow": 20.0, "wide": 120.0},
)
def intrinsics_resolution(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """The camera intrinsics do not fit the declared image size.

    What:
        The principal point lies near the middle of the declared image, both focal lengths are above
        0, and the field of view is plausible for a camera.
    Why it matters:
        Images are resized for training while their intrinsics are not. All projections are then
        wrong by a factor that no assertion detects.
    Measure:
        ``|cx - W/2| / W`` and ``|cy - H/2| / H``; the angle of view ``2 atan(W / 2 fx)``.
    When it is wrong:
        Crops keep the principal point of the whole image, which may lie far outside the crop: raise
        ``off``. The lens has another angle of view: change ``narrow`` and ``wide``.
    Options:
        off: largest distance of the principal point from the middle, divided by the side of the
        image (0.2).
        narrow:, wide: smallest and largest horizontal angle of view in degrees (20, 120).
    Bad::

        schema: {fields: {k: {role: intrinsics, shape: [3, 3], unit: px, image_size: [640, 480]}, x: {}}}
        samples:
          - {n: 3, x: {normal: [9]}, k: [[600.0, 0, 320], [0, 600, 240], [0, 0, 1]]}
          - {x: {normal: [9]}, k: [[1200.0, 0, 640], [0, 1200, 480], [0, 0, 1]]}

    Good::

        schema: {fields: {k: {role: intrinsics, shape: [3, 3], unit: px, image_size: [640, 480]}, x: {}}}
        samples:
          - {n: 4, x: {normal: [9]}, k: [[600.0, 0, 320], [0, 600, 240], [0, 0, 1]]}

    Fix:
        Multiply both focal lengths and the principal point by the new size divided by the old size.
    Reference:
        HO3D: 640 x 480, focal length 617, principal point (312, 241).
    """
    measured = rows.measured("lens")
    if not measured.any():
        return
    size, users = _size_of(case.schema, case.name)
    if size is None:
        yield Skip(measured, "the schema does not say the image_size of this camera")
        return
    fx, fy, cx, cy = rows["lens"].T
    width, height = size
    off = np.maximum(np.abs(cx - width / 2) / width, np.abs(cy - height / 2) / height)
    view = np.rad2deg(2 * np.arctan2(width / 2, np.abs(fx)))
    bad = measured & ~((off <= float(case.options["off"])) & (fx > 0) & (fy > 0))
    bad |= measured & (
        (view < float(case.options["narrow"])) | (view > float(case.options["wide"]))
    )
    if bad.any():
        yield _other_camera(bad, rows["lens"], view, size, users)


def _other_camera(
    bad: Array, camera: Array, view: Array, size: tuple[int, int], users: tuple[str, ...]
) -> Failure:
    width, height = size
    middle = np.median(camera[bad], axis=0)
    causes = {
        "mirrored": (camera[:, :2] < 0).any(axis=1),
        "normalised": _normalised(camera),
        "swapped": _swapped(camera, width, height),
        "resolution": _resized(camera, width, height),
    }
    kind = next(
        (kind for kind, fits in causes.items() if int((fits & bad).sum()) >= 0.9 * int(bad.sum())),
        "",
    )
    scale = float(np.median(camera[bad, 2] / width + camera[bad, 3] / height))
    words = {
        "mirrored": "a negative focal length reverses an axis",
        "normalised": f"in units of the image: multiply the rows by {width} and {height}",
        "swapped": "width and height are swapped",
        "resolution": f"those of an image of about {width * scale:.0f} x {height * scale:.0f}: "
        f"x{format_number(1 / scale)}"
        if scale > 0
        else "",
    }
    cause = (
        Cause(
            words[kind],
            kind,
            1 / scale if kind == "resolution" else None,
            int((causes[kind] & bad).sum()),
        )
        if kind
        else None
    )
    return Failure(
        bad,
        f"{count_phrase(bad, 'have')} intrinsics that do not belong to {width} x {height} pixels: "
        f"principal point "
        f"({middle[2]:.4g}, {middle[3]:.4g}), {float(np.median(view[bad])):.3g} degrees of view "
        f"(median).",
        measured={
            "fx": float(middle[0]),
            "fy": float(middle[1]),
            "cx": float(middle[2]),
            "cy": float(middle[3]),
        },
        expected={"image_size": [width, height]},
        cause=cause,
        fix="Make focal lengths positive, and declare the frame whose axes the positions then have."
        if kind == "mirrored"
        else "Scale them with the image, or correct image_size.",
        kind=kind or "camera",
        extra=users,
    )


def _normalised(camera: Array) -> Array:
    share = camera / np.array([10.0, 10.0, 1.5, 1.5])
    in_range: Array = ((share > 0) & (share <= 1)).all(axis=1)
    return in_range


def _swapped(camera: Array, width: int, height: int) -> Array:
    near: Array = (np.abs(camera[:, 2] - height / 2) < 0.1 * height) & (
        np.abs(camera[:, 3] - width / 2) < 0.1 * width
    )
    return near if abs(width - height) > 0.1 * max(width, height) else np.zeros(len(near), bool)


def _resized(camera: Array, width: int, height: int) -> Array:
    """Return where both coordinates of the principal point are the same multiple of the centre."""
    across = camera[:, 2] / (width / 2)
    down = camera[:, 3] / (height / 2)
    same_multiple: Array = (
        (across > 0) & (down > 0) & (np.abs(across - down) < 0.25 * np.maximum(across, down))
    )
    return same_multiple & (np.abs(across - 1) > 0.1)


def _viewed(spec: FieldSpec) -> bool:
    return leaf(spec) and spec.role in {"points", "joints"} and spec.extrinsics is not None


@measure(
    "viewing",
    per="sample",
    uses=("fields.extrinsics", "fields.columns", "fields.order", "fields.frame"),
)
def viewing(block: Block, schema: Schema) -> Columns:
    """Positions transformed by extrinsics, as declared and inverted.

    ``<field>:seen`` (4): for positions in the world, the share within 60 degrees of the camera's
    axis, for a camera that looks along +z, then -z; ``<field>:posed`` (6): for positions in the
    camera, their centroid in the world. First as declared (camera to world), then inverted.
    """
    columns: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        pose = (
            first_poses(block, schema, spec.extrinsics)
            if _viewed(spec) and spec.extrinsics
            else None
        )
        column = column_of(block, schema, name) if pose is not None else None
        coordinates = None if column is None else positions(column)
        if pose is None or coordinates is None:
            continue
        counts = np.ones(len(block), np.int64) if coordinates[1] is None else coordinates[1]
        both = (pose[0], inverse(pose[0]))
        present = pose[1] & (counts > 0)
        if spec.frame in FRAMES:
            middle = reduced(np.add, coordinates[0].astype(np.float64), counts) / np.maximum(
                counts, 1
            )
            parts = [transformed(middle, t, np.ones(len(block), np.int64)).T for t in both]
            columns[f"{name}:posed"] = Measured(np.concatenate(parts, axis=1), present)
        else:
            seen = [
                reduced(np.add, cone, counts)
                for t in reversed(both)
                for cone in _cones(transformed(coordinates[0], t, counts))
            ]
            columns[f"{name}:seen"] = Measured(
                np.stack(seen, axis=1) / np.maximum(counts, 1)[:, None], present
            )
    return dict(columns)


def _cones(xyz: Array) -> tuple[Array, Array]:
    inside = xyz[0] ** 2 + xyz[1] ** 2 < 3 * xyz[2] ** 2
    return inside & (xyz[2] > 0), inside & (xyz[2] < 0)


@rule(
    "DC307",
    "extrinsics-direction",
    Severity.WARNING,
    Level.GROUP,
    measures=(place, viewing),
    suppressed_by=(*_SUPPRESSED_BY, "DC201", "DC304"),
    applies=_viewed,
    defaults={"views": 4, "ahead": 0.95, "better": 3.0},
)
def extrinsics_direction(rows: Rows, case: RuleContext) -> Iterator[Failure | Skip]:
    """Extrinsics map from the world to the camera instead of from the camera to the world.

    What:
        Positions in the world, transformed into the camera frame, all lie in front of the camera
        (along z, or along -z for OpenGL). Positions in the camera frame, transformed into the
        world, lie in one place for all views of a group. The rule tries the extrinsics as declared
        (camera to world) and inverted, and reports a group that fits only inverted.
    Why it matters:
        Both directions are rigid 4 x 4 matrices, so their shape does not tell them apart. With the
        wrong one, clouds of several views fly apart, or everything is projected from the wrong
        place.
    Measure:
        Share of positions within 60 degrees of the camera's axis; spread of the transformed
        centroids over the views of a group.
    When it is wrong:
        The cameras stand in the middle of what they see, or the views have nothing in common.
    Options:
        views: fewest views of a group (4).
        ahead: share of positions in front of the camera from which the inverse fits (0.95).
        better: how many times smaller the inverse must make the spread of the views (3.0).
    Bad::

        schema:
          samples: {files: "*", group: "{scene}"}
          fields:
            p: {role: points, shape: [P, 3], unit: m, frame: camera_opencv, extrinsics: t}
            t: {role: transform, shape: [4, 4], unit: m}
        samples:
          - {n: 6, group: a, p: {view: 60}, t: {view: 60, pose: true}}
          - {n: 6, group: b, p: {view: 60}, t: {view: 60, pose: true, inverted: true}}

    Good::

        schema:
          samples: {files: "*", group: "{scene}"}
          fields:
            p: {role: points, shape: [P, 3], unit: m, frame: camera_opencv, extrinsics: t}
            t: {role: transform, shape: [4, 4], unit: m}
        samples:
          - {n: 6, group: a, p: {view: 60}, t: {view: 60, pose: true}}
          - {n: 6, group: b, p: {view: 60}, t: {view: 60, pose: true}}

    Fix:
        Invert the matrices once: R^T and -R^T t.
    Reference:
        ScanNet stores camera to world; BOP and COLMAP store world to camera.
    """
    column = f":{case.name}:{'posed' if case.spec.frame in FRAMES else 'seen'}"
    measured = rows.measured(column)
    if not measured.any():
        return
    bad, short = _inverted_views(rows, case, measured, column)
    if short.any():
        yield Skip(short, f"groups of fewer than {case.options['views']} views")
    if bad.any():
        yield _inverted(bad, case.spec.extrinsics or "")


def _inverted_views(
    rows: Rows, case: RuleContext, measured: Array, column: str
) -> tuple[Array, Array]:
    """Return the views of groups that fit only with inverted extrinsics, and of small groups.

    Small groups have too few views to decide.
    """
    judge = _inverse_gathers if case.spec.frame in FRAMES else _inverse_in_front
    bad = measured & False
    short = measured & False
    for _, places in rows.by_group():
        mine = places[measured[places]]
        if 0 < len(mine) < int(case.options["views"]):
            short[mine] = True
        elif len(mine):
            bad[mine] = judge(rows[column][mine], float(np.median(rows["box"][mine])), case)
    return bad, short


def _inverted(bad: Array, name: str) -> Failure:
    return Failure(
        bad,
        f"{count_phrase(bad, 'fit')} together only if {name} is inverted: it leads from the world "
        f"to the camera, camera to "
        "world is declared.",
        expected={"extrinsics": "camera to world"},
        cause=Cause("world to camera", "inverse", explains=int(bad.sum())),
        fix="Invert them once: R^T and -R^T t.",
        kind="inverse",
        extra=(name,),
    )


def _inverse_in_front(seen: Array, box: float, case: RuleContext) -> bool:
    """Tell whether all positions are in front of the cameras only for the inverse."""
    del box
    shares = seen.mean(axis=0)
    own = float(shares[:2].max())
    other = float(shares[2:].max())
    return other >= float(case.options["ahead"]) > own


def _inverse_gathers(posed: Array, box: float, case: RuleContext) -> bool:
    """Tell whether posed views coincide better for the inverse than as declared."""
    own, other = (
        float(np.median(norms((p - np.median(p, axis=0)).T))) for p in (posed[:, :3], posed[:, 3:])
    )
    return other * float(case.options["better"]) < own and own > 0.03 * box


_ALONG = 0.9  # cosine of the angle between a camera's axis and the way to the common place
_LOOK = 0.8  # share of the cameras that must look at it
_SPREAD = 0.05  # smallest spread of the axes: parallel ones meet nowhere
_ROUNDS = 10
# Fewest odd cameras of a kind. An inverted pose may look at the place by chance.
_FEWEST = {"opposite": 2, "inverse": 5}
_OF_ODD = {"opposite": 0.5, "inverse": 0.8}  # share of all odd cameras


@measure("camera_poses", applies=of_role("transform"))
def camera_poses(column: Column, spec: FieldSpec) -> Columns:
    """The upper three rows of the only matrix of a sample: `pose_rows` (12)."""
    del spec
    read = transforms_of(column)
    if read is None:
        return {}
    transforms, counts, _ = read
    single = counts == 1
    rows = np.zeros((len(column), 12))
    rows[single] = transforms[(np.cumsum(counts) - counts)[single], :3].reshape(-1, 12)
    present = single & np.isfinite(rows).all(axis=1)
    return {"pose_rows": Measured(rows, present)} if present.any() else {}


@rule(
    "DC318",
    "odd-camera-pose",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(camera_poses,),
    suppressed_by=(*_SUPPRESSED_BY, "DC304"),
    applies=of_role("transform"),
    defaults={"views": 20},
)
def odd_camera_pose(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """A few cameras look away from the place that all others look at.

    What:
        Where nearly all cameras of a group look at one place, as around an object, no camera looks
        in the opposite direction, and none looks there only once its pose is inverted.
    Why it matters:
        Some poses in the axes of OpenCV among those of OpenGL, or from the world to the camera
        among those to the world, put their pictures to the wrong place: a radiance field or a
        reconstruction becomes blurred, without an error.
    Measure:
        The place nearest to the axes of all cameras (third column of the rotation; least sum of
        distances). At least 80 % of the cameras must have it within 26 degrees of their axis, on
        the same side, and the axes must not be parallel. Then cameras count that have it within 26
        degrees of the opposite direction and are upside down to the others (two or more, and half
        of all odd cameras), and those whose inverse has it within 26 degrees, at up to twice the
        distance of the others (five or more, and 80 % of the odd ones).
    When it is wrong:
        Some cameras were turned outwards: ``DC318: off``.
    Options:
        views: fewest cameras of a group (20).
    Bad::

        schema: {fields: {t: {role: transform, shape: [4, 4]}}}
        samples:
          - {n: 30, t: {view: 60, pose: true}}
          - {n: 6, t: {view: 60, pose: true, inverted: true}}

    Good::

        schema: {fields: {t: {role: transform, shape: [4, 4]}}}
        samples:
          - {n: 36, t: {view: 60, pose: true}}

    Fix:
        Change the sign of the second and the third column of these rotations, or invert the
        matrices once.
    Reference:
        Mildenhall et al. 2020 (NeRF) and Blender look along -z, OpenCV and COLMAP along z.
    """
    measured = rows.measured("pose_rows")
    kinds = {kind: np.zeros(len(rows), bool) for kind in ("opposite", "inverse")}
    others = 0
    for _, places in rows.by_group():
        mine = places[measured[places]]
        if len(mine) >= int(case.options["views"]):
            odd = _odd_cameras(rows["pose_rows"][mine].reshape(-1, 3, 4))
            others += len(mine) - int(sum(mask.sum() for mask in odd.values())) if odd else 0
            for kind, mask in odd.items():
                kinds[kind][mine[mask]] = True
    for kind, mask in kinds.items():
        if mask.any():
            yield _odd_pose(mask, kind, others)


def _odd_cameras(poses: Array) -> dict[str, Array]:
    """Return the cameras of each odd kind, {} where the cameras look at no common place.

    Shapes:
        poses: float64 (cameras, 3, 4), camera to world
        returns: bool (cameras)
    """
    origin, axis = poses[:, :, 3], _unit(poses[:, :, 2])
    place = _common_place(origin, axis)
    if place is None:
        return {}
    away = place - origin
    cosines = (axis * _unit(away)).sum(axis=1)
    side = math.copysign(1.0, float(np.median(cosines)))
    looks = side * cosines >= _ALONG
    if looks.mean() < _LOOK or looks.all():
        return {}
    opposite = side * cosines <= -_ALONG
    turned = poses[:, :, :3].transpose(0, 2, 1)
    back = place + np.einsum("nij,nj->ni", turned, origin)
    farthest = 2 * norms(away[looks].T).max()
    inverse = (
        ~looks
        & (side * (_unit(turned[:, :, 2]) * _unit(back)).sum(axis=1) >= _ALONG)
        & (norms(back.T) <= farthest)
    )
    # A few of one kind look like the other one by chance.
    if np.count_nonzero(inverse) > np.count_nonzero(opposite):
        opposite &= ~inverse
    else:
        inverse &= ~opposite
    # Other axes turn y over, too; a camera that was turned round keeps it up.
    up = poses[:, :, 1]
    if opposite.any() and np.median(up[opposite] @ up[looks].mean(axis=0)) >= 0:
        opposite[:] = False
    least = np.count_nonzero(~looks)
    return {
        kind: mask
        for kind, mask in (("opposite", opposite), ("inverse", inverse))
        if np.count_nonzero(mask) >= max(_FEWEST[kind], _OF_ODD[kind] * least)
    }


def _unit(vectors: Array) -> Array:
    return np.asarray(vectors / np.maximum(norms(vectors.T), 1e-300)[:, None])


def _common_place(origin: Array, axis: Array) -> Array | None:
    """Return the point with the least sum of distances to all axes, None if these are parallel."""
    across = np.eye(3) - axis[:, :, None] * axis[:, None, :]
    if float(np.linalg.eigvalsh(across.mean(axis=0))[0]) < _SPREAD:
        return None
    weights = np.ones(len(origin))
    place = origin.mean(axis=0)
    for _ in range(_ROUNDS):
        weighted = weights[:, None, None] * across
        place = np.linalg.solve(weighted.sum(axis=0), np.einsum("nij,nj->i", weighted, origin))
        distances = norms(np.einsum("nij,nj->ni", across, place - origin).T)
        weights = 1 / np.maximum(distances, 1e-3 * max(float(np.median(distances)), 1e-12))
    return np.asarray(place)


def _odd_pose(mask: Array, kind: str, others: int) -> Failure:
    words, cause, fix = {
        "opposite": (
            "in the direction opposite to",
            "probably the axes of another convention: OpenCV looks along z, OpenGL along -z",
            "Look at their pictures; if they show the same place, change the sign of the second and "
            "the third column of the rotations.",
        ),
        "inverse": (
            "only with an inverted pose at",
            "probably from the world to the camera",
            "Look at their pictures; if they show the same place, invert the matrices once: R^T and "
            "-R^T t.",
        ),
    }[kind]
    return Failure(
        mask,
        f"{count_phrase(mask, 'look')} {words} the place that the other {others:,} look at.",
        measured={"cameras": int(mask.sum()), "others": others},
        cause=Cause(cause, kind, explains=int(mask.sum())),
        fix=fix,
        kind=kind,
    )


_POSING_SUPPRESSED_BY = ("DC109", "DC122", "DC201", "DC221", "DC304")
_MOST = 1500  # points of a view that are compared
_CLEARLY = 3.0  # gap of two views that do not fit, as a multiple of the spacing of points
_NOTHING: Mapping[str, float] = {"gap": math.nan, "spacing": math.nan, "size": math.nan}
_NEIGHBOURS = 256  # points whose distances to all others are in memory at once


@measure(
    "posed",
    per="sample",
    uses=(
        "fields.posed_by",
        "fields.columns",
        "fields.order",
        "fields.up",
        "fields.scale",
        "fields.role",
    ),
)
def posed(block: Block, schema: Schema) -> Columns:
    """Lowest point of an object in the world: ``<field>:lowest``, along `up` (z)."""
    columns: dict[str, Measured] = {}
    for name, spec in sorted(schema.fields.items()):
        pose = (
            first_poses(block, schema, spec.posed_by)
            if spec.posed_by and name in block.fields
            else None
        )
        column = column_of(block, schema, name) if pose is not None else None
        coordinates = None if column is None else positions(column)
        if pose is None or coordinates is None:
            continue
        counts = np.ones(len(block), np.int64) if coordinates[1] is None else coordinates[1]
        up = spec.up or "z"
        axis = "xyz".index(up[-1])
        sign = -1.0 if up.startswith("-") else 1.0
        points = coordinates[0].astype(np.float64) * (spec.scale or 1.0)
        height = sign * _moved_coordinate(points, pose[0], counts, axis)
        columns[f"{name}:lowest"] = Measured(
            reduced(np.minimum, height, counts), pose[1] & (counts > 0)
        )
    return dict(columns)


def _moved_coordinate(points: Array, transforms: Array, counts: Array, axis: int) -> Array:
    """Return one coordinate of the transformed points."""
    turn = np.repeat(transforms[:, axis], counts, axis=0).T
    out: Array = turn[0] * points[0] + turn[1] * points[1] + turn[2] * points[2] + turn[3]
    return out


@rule(
    "DC313",
    "floating-object",
    Severity.WARNING,
    Level.SAMPLE,
    measures=(posed,),
    suppressed_by=_POSING_SUPPRESSED_BY,
    applies=lambda s: (
        leaf(s) and s.role == "points" and s.posed_by is not None and s.rests is not None
    ),
)
def floating_object(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """An object floats above its support surface, or sinks into it.

    What:
        After the pose of ``posed_by`` (and ``scale``, if the pose is in another unit than the
        points) is applied, the lowest point lies within ``rests``.
    Why it matters:
        Grasps of a floating object need not avoid the table; grasps of an object that is half
        inside the table cannot be executed.
    Measure:
        Smallest coordinate of ``R (scale p) + t`` along ``up`` (z).
    When it is wrong:
        The objects hang or are held: leave ``rests`` out.
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
        SceneLeap puts objects on a table at z = 0; a mesh scale that is off by a factor of 10 lifts
        or sinks them.
    """
    column = f":{case.name}:lowest"
    allowed = case.spec.rests
    measured = rows.measured(column)
    if not measured.any() or allowed is None:
        return
    low = rows[column]
    unit = case.spec.unit
    bottom = -math.inf if allowed.low is None else allowed.low
    top = math.inf if allowed.high is None else allowed.high
    high = measured & (low > top)
    deep = measured & (low < bottom)
    if high.any():
        yield _off_ground(high, low, "floats", str(allowed), unit or "")
    if deep.any():
        yield _off_ground(deep, low, "sinks", str(allowed), unit or "")


def _off_ground(bad: Array, low: Array, kind: str, allowed: str, unit: str) -> Failure:
    middle = float(np.median(low[bad]))
    verb = "float" if kind == "floats" else "sink"
    return Failure(
        bad,
        f"{count_phrase(bad, verb)}: the lowest point is at {format_number(middle, unit)} "
        f"(median), allowed "
        f"{f'{allowed} {unit}'.rstrip()}.",
        measured={"lowest": middle},
        expected={"rests": allowed},
        fix="Check the scale of the points, the order of the quaternion, then the pose.",
        kind=kind,
        order=np.abs(low),
    )


def _registered(spec: FieldSpec) -> bool:
    return (
        leaf(spec)
        and spec.role == "points"
        and spec.extrinsics is not None
        and spec.frame in FRAMES
    )


def _neighbours(rows: Rows, case: RuleContext) -> Array:
    """Return each view paired with the next one of its group, the last one with the first."""
    measured = rows.measured("box")
    if case.schema.samples.group is None:
        return np.zeros((0, 2), np.int64)
    pairs = []
    for _, places in rows.by_group():
        mine = places[measured[places]]
        if len(mine) > 1:
            pairs.append(
                np.stack([mine, np.roll(mine, -1)], axis=1)[: len(mine) if len(mine) > 2 else 1]
            )
    return np.concatenate(pairs) if pairs else np.zeros((0, 2), np.int64)


def _gap(a: Sample, b: Sample, case: RuleContext) -> Mapping[str, float]:
    """Return the distance between two views of one scene in the world, where they overlap.

    `gap`: median distance from a point to the other view's nearest; `spacing`: to the nearest of
    its own view, the larger of both views; `size`: diagonal of the overlap. NaN where less than a
    tenth of either is near the other.
    """
    distances = _view_distances(_in_world(a, case), _in_world(b, case))
    if distances["gap"] > _CLEARLY * distances["spacing"]:
        turned = _view_distances(
            _in_world(a, case, inverted=True), _in_world(b, case, inverted=True)
        )
        if turned["gap"] <= _CLEARLY * turned["spacing"]:
            return _NOTHING  # the direction of the extrinsics is wrong, which DC307 reports
    return distances


def _view_distances(first: Array | None, second: Array | None) -> Mapping[str, float]:
    if first is None or second is None:
        return _NOTHING
    low = np.maximum(first.min(axis=1), second.min(axis=1))
    high = np.minimum(first.max(axis=1), second.max(axis=1))
    slack = 0.05 * norms((first.max(axis=1) - first.min(axis=1))[:, None])[0]
    views = (first, second)
    parts = [
        v[:, ((v >= (low - slack)[:, None]) & (v <= (high + slack)[:, None])).all(axis=0)]
        for v in views
    ]
    if any(10 * part.shape[1] < view.shape[1] for part, view in zip(parts, views, strict=True)):
        return _NOTHING
    gap = min(float(np.median(_nearest(p, v))) for p, v in zip(parts, reversed(views), strict=True))
    spacing = max(float(np.median(_nearest(v, v, itself=True))) for v in views)
    return {"gap": gap, "spacing": spacing, "size": float(norms((high - low)[:, None])[0])}


def _in_world(sample: Sample, case: RuleContext, *, inverted: bool = False) -> Array | None:
    """Return at most 1,500 points of a view in the world, (3, points)."""
    fields = {
        name: Column.of([value])
        for name, value in sample.fields.items()
        if isinstance(value, np.ndarray)
    }
    block = Block([sample.key], fields, [sample.origin])
    pose = first_poses(block, case.schema, case.spec.extrinsics or "")
    column = column_of(block, case.schema, case.name)
    coordinates = None if column is None else positions(column)
    if pose is None or coordinates is None or not pose[1][0] or coordinates[0].shape[1] < 10:
        return None
    points = coordinates[0][:, :: -(-coordinates[0].shape[1] // _MOST)]
    return transformed(
        points, inverse(pose[0]) if inverted else pose[0], np.array([points.shape[1]])
    )


def _nearest(points: Array, others: Array, *, itself: bool = False) -> Array:
    """Return the distance from each point to the nearest of the others."""
    middle = others.mean(axis=1, keepdims=True)  # centred first, so that squares keep precision
    points, others, distances = points - middle, others - middle, []
    far = (others * others).sum(axis=0)
    for start in range(0, points.shape[1], _NEIGHBOURS):
        part = points[:, start : start + _NEIGHBOURS]
        square = (part * part).sum(axis=0)[:, None] + far - 2 * (part.T @ others)
        if itself:
            square[np.arange(part.shape[1]), start + np.arange(part.shape[1])] = np.inf
        distances.append(np.sqrt(np.maximum(square.min(axis=1), 0.0)))
    return np.concatenate(distances)


@rule(
    "DC310",
    "view-registration",
    Severity.WARNING,
    Level.GROUP,
    measures=(place,),
    suppressed_by=(*_POSING_SUPPRESSED_BY, "DC303", "DC307"),
    applies=_registered,
    defaults={"far": 0.03, "share": 0.05, "spacing": 3.0},
    depth="deep",
    pairs=_neighbours,
    compare=_gap,
)
def view_registration(rows: Rows, case: RuleContext) -> Iterator[Failure]:
    """Views of one scene do not coincide in the world frame.

    What:
        Neighbouring views of a group, transformed into the world by their ``extrinsics``, coincide
        where they overlap. A view is reported if it fits none of its overlapping neighbours. Needs
        ``--level deep``.
    Why it matters:
        The fused cloud has double walls, and labels projected from one view hit the wrong points of
        the other.
    Measure:
        Median distance to the nearest point of the other view, within the common part of both
        bounding boxes, for up to 1,500 points of each view. It is compared with ``far``, with
        ``share`` of the size of the overlap, and with the spacing of the points.
    When it is wrong:
        Objects move between the views, or views of opposite sides have no surface in common.
    Options:
        far: largest distance in metres (0.03).
        share: largest distance as a share of the overlap's diagonal (0.05); exceeding either limit
        is too much.
        spacing: the distance must also exceed this multiple of the distance between neighbouring
        points (3.0).
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
    separated = seen & (gap > float(options["spacing"]) * spacing)
    separated &= (gap > float(options["far"])) | (gap > float(options["share"]) * size)
    ends = np.concatenate([case.pairs.first, case.pairs.second])
    count = np.bincount(ends[np.tile(seen, 2)], minlength=len(rows))
    misfits = np.bincount(ends[np.tile(separated, 2)], minlength=len(rows))
    bad = (count > 0) & (misfits == count)
    if bad.any():
        yield _misregistered(
            bad,
            float(np.median(gap[separated])),
            float(np.median(spacing[separated])),
            int(separated.sum()),
        )


def _misregistered(bad: Array, gap: float, spacing: float, pairs: int) -> Failure:
    return Failure(
        bad,
        f"{count_phrase(bad, 'fit')} no other view of the scene: {format_number(gap, 'm')} apart "
        f"(median of {pairs:,} pairs), where "
        f"points are {format_number(spacing, 'm')} from those of their own view.",
        measured={"gap": gap, "spacing": spacing, "pairs": pairs},
        fix="Calibrate again, or leave these views out.",
        kind="apart",
    )
