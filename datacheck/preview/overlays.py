"""Joints and bones: the skeleton of a sample, its projection, overlays of failing poses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.rotation import matrices, wxyz
from datacheck.model.sample import Column
from datacheck.preview.drawings import (
    Array,
    NotDrawableError,
    floats,
    number_text,
    numeric,
    rounded,
)
from datacheck.rules.base import pluralize
from datacheck.rules.placement import FRAMES, READINGS, Signs, cameras, inside
from datacheck.rules.skeletons import SKELETONS, Skeleton
from datacheck.schema.model import FieldSpec, Schema

_HAND_JOINTS = 21
_MAX_JOINTS = 512


class Pose(NamedTuple):
    """The joints of one moment.

    Shapes:
        joints: float64 (joints, 3)
        finite: bool (joints): the joint is finite

    Args:
        skeleton: their order; None if unknown.
        guessed: the schema names no skeleton; this is the one with the shortest bones.
        moment: which moment of several, or "".
    """

    joints: Array
    finite: Array
    skeleton: Skeleton | None
    guessed: bool
    moment: str

    @property
    def chains(self) -> list[Any]:
        """The bones as JSON: each finger's name and its joints."""
        return (
            []
            if self.skeleton is None
            else [[finger, list(chain)] for finger, chain in self.skeleton.chains.items()]
        )


def pose(value: object, name: str | None) -> Pose:
    """Return the joints of one moment; of several, the middle one.

    Shapes:
        value: as in `skeleton`

    Args:
        name: of the skeleton that the schema declares, or None.

    Raises:
        NotDrawableError: no joint is finite, or the shape is another one.
    """
    joints, moment = _joints(numeric(value))
    finite = np.asarray(np.isfinite(joints).all(axis=1))
    if not finite.any():
        msg = f"has {len(joints)} joints, none of them finite"
        raise NotDrawableError(msg)
    return Pose(joints, finite, *_bones(joints, finite, name), moment)


def skeleton(
    value: object, name: str | None = None, unit: str = "", up: str | None = None
) -> dict[str, Any]:
    """Return the preview of the joints of one moment; of several, the middle one.

    Shapes:
        value: number (joints, 3), (joints, 2), (3), or (T, joints, 3)

    Args:
        name: of the skeleton that the schema declares, or None.
        unit: of the coordinates; "" if unknown.
        up: the axis that points up; None: z.

    Raises:
        NotDrawableError: no joint is finite, or the shape is another one.
    """
    posed = pose(value, name)
    joints = posed.joints
    finite = posed.finite
    matched_skeleton = posed.skeleton
    low = joints[finite].min(axis=0)
    high = joints[finite].max(axis=0)
    with np.errstate(over="ignore"):
        span = float((high - low).max())
    rounded_joints = [
        [rounded(v, span) for v in joint] if fine else None
        for joint, fine in zip(joints, finite, strict=True)
    ]
    preview = {
        "kind": "skeleton",
        "unit": unit,
        "up": up or "z",
        "box": [low.tolist(), high.tolist()],
        "joints": rounded_joints,
        "chains": posed.chains,
        "skeleton": "" if matched_skeleton is None else matched_skeleton.name,
        "guessed": posed.guessed,
        "unfinite": int((~finite).sum()),
    }
    return preview | {"about": _about(preview, posed.moment, low, high)}


def _joints(values: Array) -> tuple[Array, str]:
    """Return the joints of one moment, float64 (joints, 3), and which moment it is."""
    moment = ""
    if values.ndim == 3 and len(values):
        place = len(values) // 2
        values, moment = values[place], f"step {place:,} of {len(values):,}"
    if values.ndim == 1 and len(values) == 3:
        values = values[None]
    if values.ndim != 2 or values.shape[1] not in {2, 3} or not 0 < len(values) <= _MAX_JOINTS:
        msg = f"has shape {list(values.shape)}; joints are [J, 3], at most {_MAX_JOINTS}"
        raise NotDrawableError(msg)
    joints = np.zeros((len(values), 3))
    joints[:, : values.shape[1]] = floats(values)
    return joints, moment


def _bones(joints: Array, finite: Array, name: str | None) -> tuple[Skeleton | None, bool]:
    """Return the order of the joints, and whether it was guessed.

    The guess is the known hand skeleton with the shortest bones.
    """
    declared = SKELETONS.get(name or "")
    if declared is not None:
        return (declared, False) if declared.joints == len(joints) else (None, False)
    if name is not None or len(joints) != _HAND_JOINTS or not finite.all():
        return None, False

    def length(candidate: Skeleton) -> float:
        ends = np.array(candidate.bones)
        with np.errstate(over="ignore", invalid="ignore"):
            return float(
                np.sqrt(np.square(joints[ends[:, 0]] - joints[ends[:, 1]]).sum(axis=1)).sum()
            )

    return min(SKELETONS.values(), key=length), True


def _about(preview: dict[str, Any], moment: str, low: Array, high: Array) -> str:
    with np.errstate(over="ignore"):
        edges = " x ".join(number_text(float(edge)) for edge in high - low)
    count = len(preview["joints"])
    parts = [
        f"{count} {'joint' if count == 1 else 'joints'}",
        f"{edges} {preview['unit'] or '(no unit declared)'}",
    ]
    if moment:
        parts.insert(0, moment)
    if preview["unfinite"]:
        parts.append(f"{preview['unfinite']} not finite and not drawn")
    if preview["guessed"]:
        parts.append(
            f"the schema names no skeleton; bones as in {preview['skeleton']}, in which they are "
            f"shortest"
        )
    elif preview["skeleton"]:
        parts.append(f"bones of {preview['skeleton']}")
    else:
        parts.append("bones are not known")
    return f"Skeleton: {'; '.join(parts)}."


def near_points(
    spec: FieldSpec, fields: Mapping[str, Any], schema: Schema
) -> tuple[str, Array] | None:
    """Return the name and the points, float64 (points, 3), of the object a field should be near.

    Args:
        spec: of the field; its ``near`` names points, or the position of a pose that places points.
        fields: values of the sample by name.
        schema: the schema for the sample's split.

    Returns:
        None if the schema names no object, or the sample has none in a shape that can be placed.
    """
    if spec.near is None:
        return None
    part = schema.part_of(spec.near)
    pose = part[0] if part else spec.near
    for name, points_spec in schema.of_role("points"):
        points = fields.get(name)
        if not isinstance(points, np.ndarray) or points.ndim != 2 or points.shape[1:] != (3,):
            continue
        if name == spec.near:
            return name, floats(points)
        if points_spec.posed_by == pose:
            motion = _pose_motion(pose, fields.get(pose), schema)
            if motion is not None and np.isfinite(motion[0]).all():
                turn, place = motion
                return name, np.einsum(
                    "ij,pj->pi", turn, floats(points) * (points_spec.scale or 1.0)
                ) + place
    return None


def _pose_motion(name: str, value: Any, schema: Schema) -> tuple[Array, Array] | None:
    """Return the rotation (3, 3) and translation (3) of a pose.

    The pose is a position and a quaternion, or a matrix [4, 4].
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
        return None
    if value.shape == (4, 4):
        return floats(value[:3, :3]), floats(value[:3, 3])
    parts = {
        schema.spec(f"{name}.{part}").role: (part, columns)
        for part, columns in schema.parts(name).items()
    }
    if value.ndim != 1 or not {"position", "quaternion"} <= parts.keys():
        return None
    part, (quaternion_start, quaternion_stop) = parts["quaternion"]
    order = schema.spec(f"{name}.{part}").order
    start, end = parts["position"][1]
    if order is None or max(quaternion_stop, end) > len(value):
        return None
    return matrices(wxyz(floats(value[quaternion_start:quaternion_stop]), order)[None])[0], floats(
        value[start:end]
    )


_FAR = (
    1e5  # pixels from the image's centre; points further away are drawn there, in their direction
)


def projection(value: Array, camera: object, spec: FieldSpec) -> dict[str, Any]:
    """Return where the joints of one moment lie in the image; of several, the middle one.

    Shapes:
        value: number, as in `skeleton`, in the frame of `spec` and any unit
        camera: number (4), (3, 3), (3, 4), (4, 4): fx, fy, cx, cy [px]; or several: one for each
            moment, otherwise the first is used

    Args:
        spec: of the joints, with ``frame``, ``intrinsics`` and ``image_size``.

    Returns:
        ``pixels`` of each joint, None if it is not in front of the camera or not finite. ``other``,
        if fewer than half of the finite joints are in the image and other signs of the axes bring
        more than half into it.

    Raises:
        NotDrawableError: no joint is finite, there is no finite camera with positive focal lengths,
            or either has another shape.
    """
    posed = pose(value, spec.skeleton)
    joints = np.where(posed.finite[:, None], posed.joints, np.nan)
    lens = _camera_values(camera, spec.intrinsics or "", len(value) if posed.moment else 1)
    frame = spec.frame or ""
    size = spec.image_size or (0, 0)
    declared_signs = FRAMES[frame]
    inside_masks = inside(joints.T, lens, size)
    inside_counts = {
        signs: int(mask.sum()) for signs, mask in zip(READINGS, inside_masks, strict=True)
    }
    best_signs = max(READINGS, key=lambda signs: (inside_counts[signs], signs in FRAMES.values()))
    count = int(posed.finite.sum())
    unseen = int((declared_signs[2] * joints[:, 2] <= 0).sum())
    notes = [
        f"{inside_counts[declared_signs]:,} of {pluralize(count, 'joint')} within {size[0]:,} x {size[1]:,} pixels"
    ]
    if posed.moment:
        notes.insert(0, posed.moment)
    if unseen:
        notes.append(f"{unseen:,} not in front of the camera")
    if count < len(joints):
        notes.append(f"{len(joints) - count:,} not finite")
    notes.append(f"by {spec.intrinsics} and {frame}")
    preview: dict[str, Any] = {
        "kind": "projection",
        "size": [*size],
        "pixels": _pixels(joints, lens, size, declared_signs),
        "chains": posed.chains,
        "other": None,
    }
    if 2 * inside_counts[declared_signs] < count < 2 * inside_counts[best_signs]:
        name = _axes_name(declared_signs, best_signs)
        preview["other"] = {"name": name, "pixels": _pixels(joints, lens, size, best_signs)}
        notes.append(f"{name} {inside_counts[best_signs]:,} would be")
    return preview | {"about": f"Projected: {'; '.join(notes)}."}


def _camera_values(camera: object, name: str, steps: int) -> Array:
    """Return fx, fy, cx, cy; with one camera per step, those of the middle one."""
    if isinstance(camera, np.ndarray) and camera.ndim and camera.dtype.kind in "iuf":
        intrinsics, finite = cameras(
            Column(camera, np.array([len(camera)])), step=steps // 2, steps=steps
        )
        if finite.all() and (intrinsics[0, :2] > 0).all():
            return np.asarray(intrinsics[0])
        if finite.all():
            msg = (
                f"has a camera in {name} of focal lengths "
                f"{' and '.join(map(number_text, intrinsics[0, :2]))}, not above 0"
            )
            raise NotDrawableError(msg)
    msg = f"has no finite camera in {name}"
    raise NotDrawableError(msg)


def _pixels(
    joints: Array, lens: Array, size: tuple[int, int], signs: Signs
) -> list[list[float] | None]:
    """Return the pixels of joints; None for a joint that is not in front of the camera."""
    (fx, fy, cx, cy), (x, y, z), middle = lens, (joints * signs).T, np.array(size) / 2
    away = np.stack([cx + fx * x / z, cy + fy * y / z], axis=1) - middle
    near = (middle + away / np.maximum(np.abs(away).max(axis=1, keepdims=True) / _FAR, 1)).round(1)
    in_front = (z > 0) & np.isfinite(away).all(axis=1)
    return [place if fine else None for place, fine in zip(near.tolist(), in_front, strict=True)]


def _axes_name(declared_signs: Signs, other_signs: Signs) -> str:
    """Return the name of other axes: of a frame, or of the reversed axes."""
    frame = next((name for name, signs in FRAMES.items() if signs == other_signs), "")
    axes = [axis for axis, a, b in zip("xyz", declared_signs, other_signs, strict=True) if a != b]
    return f"as {frame}" if frame else f"with {' and '.join(axes)} reversed"


LEAST = 5  # minimum fit samples for a mean
WORST = 6  # maximum samples laid over it
_MIN_FINITE_JOINTS = 3  # finite joints besides the root that define a rotation
# limits of coordinates and sizes: their squares and quotients stay finite
_LARGEST = 1e50
_SMALLEST = 1e-20
_MAX_SIZE_RATIO = 3.0  # a pose larger or smaller than the mean by more is drawn at its size
# times the median distance to the root: joints further away do not affect the rotation
_OUTLIER_DISTANCE = 4.0
_CENTRED = 1e-9  # of the largest coordinate: a centroid this near the root has no direction
_MIN_BREADTH = 0.5  # of a direction of length 1
_MIRROR = np.array([-1.0, 1.0, 1.0])
_FROM_BEHIND = np.array([-1.0, 1.0, -1.0])
_MIRRORED = 0.5  # a mirror image below this share of the distance fits clearly better


class FailingPose(NamedTuple):
    """The joints of a failing sample, float64 (joints, 3), as read.

    Args:
        round: its rank among the worst samples of its finding.
        rule: the code of the rule.
        moment: which moment of several was read, or "".
    """

    key: str
    split: str
    joints: Array
    round: int
    rule: str
    moment: str = ""


@dataclass(frozen=True)
class MeanPose:
    """The mean of fit samples: root at the origin, centroid above it along y, breadth along x.

    Shapes:
        joints: float64 (joints, 3)
        spread: float64 (joints), root mean square distance of the fit samples
        lengths: float64 (count, bones), see `_lengths`

    Args:
        count: number of fit samples in it.
        apart: root mean square of `spread`.
        mirrored: number of fit samples whose mirror image is clearly nearer to it.
        chains, skeleton, guessed: of the mean's `Pose`.
    """

    joints: Array
    spread: Array
    lengths: Array
    count: int
    apart: float
    mirrored: int
    chains: list[Any]
    skeleton: str
    guessed: bool

    @property
    def span(self) -> float:
        """The largest coordinate."""
        return float(np.abs(self.joints).max())


def overlay(
    fit: Sequence[Array], worst: Sequence[FailingPose], skeleton: str | None, unit: str
) -> dict[str, Any]:
    """Return the mean of fit samples and the worst failing ones laid over it, as JSON values.

    Args:
        fit: joints of fit samples, float64 (joints, 3).
        worst: failing ones; an earlier round comes first, and within it the largest distance.
        skeleton: that the schema declares, or None.
        unit: of the coordinates; "" if unknown.

    Returns:
        ``joints``, ``spread``, ``fit`` (number of samples), ``fit_mirrored`` (number whose mirror
        image is nearer), ``chains``, ``worst`` (see `_overlaid_pose`), ``left_out`` (reasons for
        samples that are missing).

    Raises:
        NotDrawableError: too few fit samples can be laid over one another.
    """
    mean, fit_reasons = _mean_pose(fit, skeleton)
    # 2D joints in pixels: draw with y down, as in an image
    axis_signs = _FROM_BEHIND if unit == "px" and not mean.joints[:, 2].any() else 1.0
    placed_poses = []
    failing_reasons = Counter[str]()
    for sample in worst:
        try:
            placed_poses.append((sample.round, _overlaid_pose(sample, mean, axis_signs)))
        except NotDrawableError as error:
            failing_reasons[str(error)] += 1
    placed_poses.sort(key=lambda pair: (pair[0], -pair[1]["rms"]))
    return {
        "unit": unit,
        "fit": mean.count,
        "fit_mirrored": mean.mirrored,
        "joints": _numbers(mean.joints * axis_signs, mean.span),
        "spread": [_distance(value, mean) for value in mean.spread.tolist()],
        "chains": mean.chains,
        "skeleton": mean.skeleton,
        "guessed": mean.guessed,
        "worst": [sample for _, sample in placed_poses[:WORST]],
        "left_out": [
            *_reason_lines(fit_reasons, "fit sample"),
            *_reason_lines(failing_reasons, "failing sample"),
        ],
    }


# --------------------------------------------------------------------------------------------- mean


def _mean_pose(fit: Sequence[Array], skeleton: str | None) -> tuple[MeanPose, Counter[str]]:
    """Return the mean of the samples with the most frequent number of joints.

    Also return why other samples are not in it.
    """
    skip_reasons = Counter[str]()
    centred = []
    usual = Counter(len(joints) for joints in fit).most_common(1)
    for joints in fit:
        try:
            centred.append(_root_centred(joints, usual[0][0], whole=True))
        except NotDrawableError as error:
            skip_reasons[str(error)] += 1
    if len(centred) < LEAST:
        reasons = "; ".join(_reason_lines(skip_reasons, "fit sample"))
        msg = (
            f"{pluralize(len(centred), 'fit sample')} to take the mean of, {LEAST} are "
            f"needed{reasons and f' ({reasons})'}"
        )
        raise NotDrawableError(msg)
    poses = np.stack(centred)
    mean = poses[0]
    for _ in range(2):  # rounds of generalized Procrustes analysis
        mean = aligned(poses, mean).mean(axis=0)
    mean = mean @ _upright_rotation(mean)
    distances, mirror_distances = (
        np.square(aligned(each, mean) - mean).sum(axis=2) for each in (poses, poses * _MIRROR)
    )
    spread = np.sqrt(distances.mean(axis=0))
    posed = pose(mean, skeleton)
    lengths = _lengths(poses, posed.chains)
    if not _size(lengths):
        msg = "the joints of fit samples lie in one place"
        raise NotDrawableError(msg)
    name = "" if posed.skeleton is None else posed.skeleton.name
    rms_distance = float(np.sqrt(distances.mean()))
    own, image = (np.sqrt(each.mean(axis=1)).tolist() for each in (distances, mirror_distances))
    mirrored = sum(_is_mirrored(*pair, rms_distance) for pair in zip(own, image, strict=True))
    return MeanPose(
        mean, spread, lengths, len(poses), rms_distance, mirrored, posed.chains, name, posed.guessed
    ), skip_reasons


def _is_mirrored(own: float, mirrored: float, rms_distance: float) -> bool:
    """Return whether a mirror image is clearly nearer to the mean."""
    return own > rms_distance and mirrored < _MIRRORED * own


def _root_centred(joints: Array, count: int, *, whole: bool) -> Array:
    """Return joints with the root at the origin.

    Args:
        count: required number of joints.
        whole: all joints must be finite, and not all in one place. Otherwise only the root, and
            enough joints to define a rotation.
    """
    if len(joints) != count:
        msg = f"{pluralize(len(joints), 'joint')}, not {count}"
        raise NotDrawableError(msg)
    finite = np.asarray(np.isfinite(joints).all(axis=1))
    if whole and not (finite.all() and (joints != joints[0]).any()):
        msg = "joints that are not finite" if not finite.all() else "all joints in one place"
        raise NotDrawableError(msg)
    if not finite[0] or finite.sum() <= _MIN_FINITE_JOINTS:
        msg = (
            "no finite root"
            if not finite[0]
            else f"fewer than {_MIN_FINITE_JOINTS} finite joints beside the root"
        )
        raise NotDrawableError(msg)
    if np.abs(joints[finite]).max() > _LARGEST:
        msg = f"coordinates beyond {_LARGEST:g}"
        raise NotDrawableError(msg)
    rooted: Array = np.where(finite[:, None], joints, np.nan) - joints[0]
    return rooted


def aligned(poses: Array, onto: Array) -> Array:
    """Return poses rotated about the origin, each as near as possible to another pose (Kabsch).

    Poses are neither scaled nor mirrored: that would hide the faults of such data.

    Notes:
        Joints in the x-y plane are rotated within it: turned over, they would be a mirror image.

    Shapes:
        poses: float64 (poses, joints, 3)
        onto: float64 (joints, 3)
    """
    rotated: Array = poses @ _rotations(poses, onto)
    return rotated


def _rotations(poses: Array, onto: Array) -> Array:
    """Return the rotations (poses, 3, 3) of `aligned`, for multiplication from the right."""
    tiny = np.finfo(float).tiny
    scaled = poses / np.maximum(np.abs(poses).max(axis=(1, 2), keepdims=True), tiny)
    axes = 3 if scaled[:, :, 2].any() or onto[:, 2].any() else 2
    covariance = np.swapaxes(scaled, 1, 2) @ (onto / max(np.abs(onto).max(), tiny))
    left_vectors, _, right_vectors = np.linalg.svd(covariance[:, :axes, :axes])
    # force a rotation instead of a reflection
    left_vectors[:, :, -1] *= np.where(np.linalg.det(left_vectors @ right_vectors) < 0, -1.0, 1.0)[
        :, None
    ]
    rotations = np.tile(np.eye(3), (len(scaled), 1, 1))
    rotations[:, :axes, :axes] = left_vectors @ right_vectors
    return rotations


def _upright_rotation(joints: Array) -> Array:
    """Return the rotation (3, 3) that puts the centroid above the root: along y, breadth along x.

    Notes:
        As in `aligned`, joints in the x-y plane are rotated within it.
    """
    middle = joints.mean(axis=0)
    _, _, (longest, *_) = np.linalg.svd(joints - middle)
    far = np.linalg.norm(middle)
    up = middle / far if far > _CENTRED * np.abs(joints).max() else longest
    if not joints[:, 2].any():
        across = np.cross(up, [0, 0, 1])
        return np.stack([across, up, np.cross(across, up)], axis=1)
    aside = joints - np.outer(joints @ up, up)
    _, _, (across, *_) = np.linalg.svd(aside - aside.mean(axis=0))
    across = across - (across @ up) * up
    length = np.linalg.norm(across)
    if length < _MIN_BREADTH:  # they lie on a line
        across = np.cross(up, np.eye(3)[np.abs(up).argmin()])
        length = np.linalg.norm(across)
    across = across / length
    # Sign by the third moment: the plain sum is 0, because the centroid lies above the root.
    across = across * (1 if ((joints @ across) ** 3).sum() >= 0 else -1)
    return np.stack([across, up, np.cross(across, up)], axis=1)


def _lengths(joints: Array, chains: Sequence[Any]) -> Array:
    """Return the lengths of bones; without known bones, the distances of joints to the root.

    NaN if an end is not finite.

    Shapes:
        joints: float64 (..., joints, 3)
    """
    ends = np.array([pair for _, chain in chains for pair in pairwise(chain)], np.int64)
    offsets = (
        joints[..., ends[:, 0], :] - joints[..., ends[:, 1], :] if len(ends) else joints[..., 1:, :]
    )
    lengths: Array = np.sqrt(np.square(offsets).sum(axis=-1))
    return lengths


def _size(lengths: Array) -> float:
    """Return the median over samples of their median bone length (..., bones); 0 without any."""
    size = float(np.median(np.median(lengths, axis=-1))) if lengths.size else 0.0
    return size if size > _SMALLEST else 0.0


def _size_ratio(lengths: Array, mean: MeanPose) -> float | None:
    """Return a sample's bone length relative to fit samples; None without finite bones.

    Only the bones that the sample has are compared. The reference is the fit samples, not their
    mean pose, whose bones are too short.
    """
    finite = np.isfinite(lengths)
    reference = _size(mean.lengths[:, finite])
    return _size(lengths[finite]) / reference if reference else None


# -------------------------------------------------------------------------------------------- worst


def _overlaid_pose(
    failing: FailingPose, mean: MeanPose, axis_signs: Array | float
) -> dict[str, Any]:
    """Return a sample laid over the mean.

    Returns:
        Besides its names: ``joints`` as drawn; ``ratio`` (see `_size_ratio`); ``drawn``, the
        divisor of its joints (1 if its size is similar); ``rms``, its distance at its own size;
        ``rms_drawn``, as drawn; ``rms_mirrored``, if its mirror image is clearly nearer, else None.
    """
    rooted = _root_centred(failing.joints, len(mean.joints), whole=False)
    finite = np.asarray(np.isfinite(rooted).all(axis=1))
    ratio = _size_ratio(_lengths(rooted, mean.chains), mean)
    drawn = ratio if ratio and not 1 / _MAX_SIZE_RATIO <= ratio <= _MAX_SIZE_RATIO else 1.0
    filled = np.where(finite[:, None], rooted, 0.0)
    onto = np.where(finite[:, None], mean.joints, 0.0)
    distances = np.linalg.norm(filled, axis=1, keepdims=True)
    # Exclude joints at the root, such as unmarked ones: with a median of 0, all others would count
    # as outliers.
    positive_distances = distances[distances > 0]
    inliers = (
        np.where(distances <= _OUTLIER_DISTANCE * np.median(positive_distances), filled, 0.0)
        if len(positive_distances)
        else filled
    )
    turns = _rotations(np.stack([inliers, inliers * _MIRROR]), onto)
    own = filled @ turns[0]
    mirrored = filled * _MIRROR @ turns[1]
    rms, rms_drawn, rms_mirrored = (
        float(np.sqrt(np.square(laid - onto).sum() / finite.sum()))
        for laid in (own, own / drawn, mirrored / drawn)
    )
    joints = np.where(finite[:, None], own / drawn, np.nan)
    return {
        "key": failing.key,
        "split": failing.split,
        "rule": failing.rule,
        "moment": failing.moment,
        "joints": _numbers(joints * axis_signs, mean.span),
        "ratio": None if ratio is None else _short(ratio),
        "drawn": _short(drawn),
        "rms": _distance(rms, mean),
        "rms_drawn": _distance(rms_drawn, mean),
        "rms_mirrored": _distance(rms_mirrored, mean)
        if _is_mirrored(rms_drawn, rms_mirrored, mean.apart)
        else None,
        "unfinite": int((~finite).sum()),
    }


# ------------------------------------------------------------------------------------------ numbers


def _numbers(joints: Array, span: float) -> list[list[float] | None]:
    """Return joints to four digits of the drawn range; None for a joint that is not finite."""
    return [
        [_rounded(v, span, 3) for v in joint] if np.isfinite(joint).all() else None
        for joint in joints
    ]


def _distance(value: float, mean: MeanPose) -> float:
    """Return a distance with four digits; rounding errors become 0."""
    return float(f"{_rounded(value, mean.span, 6):.4g}")


def _rounded(value: float, span: float, digits: int) -> float:
    step = 10.0 ** np.floor(np.log10(span) - digits)
    return float(f"{round(value / step) * step:.5g}")


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _reason_lines(reasons: Counter[str], noun: str) -> list[str]:
    return [f"{pluralize(many, noun)} with {reason}" for reason, many in sorted(reasons.items())]
