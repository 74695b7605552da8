"""Joints of samples laid over the mean of fit ones: root on root, turned to fit, never scaled nor mirrored.

So what is wrong with them stays to be seen: another unit, the other hand, another order of the joints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from datacheck.preview.numbers import Array, UnfitError
from datacheck.preview.skeleton import pose
from datacheck.rules.base import counted

LEAST, WORST = 5, 6  # fit samples that make a mean; samples that are laid over it
_JOINTS = 3  # finite ones beside the root of which one knows how they are turned
_LARGEST, _SMALLEST = 1e50, 1e-20  # of coordinates, of sizes: their squares and quotients are numbers still
_FACTOR = 3.0  # what is so much larger or smaller than the mean is drawn at its size
_ASTRAY = 4.0  # of the median distance to the root: joints so far off do not turn the others
_CENTRED = 1e-9  # of the largest coordinate: a middle so near the root lies in no direction from it
_ANY = 0.5  # of a direction of length 1
_MIRROR = np.array([-1.0, 1.0, 1.0])
_BEHIND = np.array([-1.0, 1.0, -1.0])
_MIRRORED = 0.5  # of the distance, from where on a mirror image fits clearly better


class Posed(NamedTuple):
    """The joints of a failing sample, float64 (joints, 3), as they were read, its round among the worst, its rule.

    Args:
        moment: which one is read of several, else "".
    """

    key: str
    split: str
    joints: Array
    round: int
    rule: str
    moment: str = ""


@dataclass(frozen=True)
class Mean:
    """The mean of fit samples: root at the origin, its middle above that along y, its breadth along x.

    Shapes:
        joints: float64 (joints, 3)
        spread: float64 (joints), root mean square distance of the fit ones
        lengths: float64 (count, bones), as of `_lengths`

    Args:
        count: of the fit samples in it.
        apart: root mean square of `spread`.
        mirrored: of how many a mirror image is clearly nearer to it.
        chains, skeleton, guessed: as `skeleton.pose` tells them of the mean.
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


def overlay(fit: Sequence[Array], worst: Sequence[Posed], skeleton: str | None, unit: str) -> dict[str, Any]:
    """Return the mean of fit samples and the worst ones laid over it, as JSON values.

    Args:
        fit: joints of fit samples, float64 (joints, 3).
        worst: failing ones; those of an earlier round come first, of one round what lies farthest off.
        skeleton: that the schema declares, or None.
        unit: of the coordinates, "" where it is not known.

    Returns:
        ``joints``, ``spread``, ``fit`` (how many), ``fit_mirrored`` (of how many a mirror image is nearer),
        ``chains``, ``worst`` (see `_laid`), ``left_out`` (why which are not among them).

    Raises:
        UnfitError: too few fit samples can be laid over one another.
    """
    mean, lacking = _mean(fit, skeleton)
    seen = _BEHIND if unit == "px" and not mean.joints[:, 2].any() else 1.0  # with y down, as in an image
    laid, unlaid = [], Counter[str]()
    for one in worst:
        try:
            laid.append((one.round, _laid(one, mean, seen)))
        except UnfitError as error:
            unlaid[str(error)] += 1
    laid.sort(key=lambda pair: (pair[0], -pair[1]["rms"]))
    return {
        "unit": unit, "fit": mean.count, "fit_mirrored": mean.mirrored,
        "joints": _numbers(mean.joints * seen, mean.span),
        "spread": [_distance(value, mean) for value in mean.spread.tolist()],
        "chains": mean.chains, "skeleton": mean.skeleton, "guessed": mean.guessed,
        "worst": [one for _, one in laid[:WORST]],
        "left_out": [*_said(lacking, "fit sample"), *_said(unlaid, "failing sample")],
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------- mean


def _mean(fit: Sequence[Array], skeleton: str | None) -> tuple[Mean, Counter[str]]:
    """Return the mean of the samples of which most have as many joints, and why others are not in it."""
    lacking, known = Counter[str](), []
    usual = Counter(len(one) for one in fit).most_common(1)
    for one in fit:
        try:
            known.append(_rooted(one, usual[0][0], whole=True))
        except UnfitError as error:
            lacking[str(error)] += 1
    if len(known) < LEAST:
        told = "; ".join(_said(lacking, "fit sample"))
        msg = f"{counted(len(known), 'fit sample')} to take the mean of, {LEAST} are needed{told and f' ({told})'}"
        raise UnfitError(msg)
    poses = np.stack(known)
    mean = poses[0]
    for _ in range(2):  # rounds of generalized Procrustes analysis
        mean = turned(poses, mean).mean(axis=0)
    mean = mean @ _axes(mean)
    off, other = (np.square(turned(each, mean) - mean).sum(axis=2) for each in (poses, poses * _MIRROR))
    spread = np.sqrt(off.mean(axis=0))
    posed = pose(mean, skeleton)
    lengths = _lengths(poses, posed.chains)
    if not _size(lengths):
        msg = "the joints of fit samples lie in one place"
        raise UnfitError(msg)
    name = "" if posed.skeleton is None else posed.skeleton.name
    apart = float(np.sqrt(off.mean()))
    own, image = (np.sqrt(each.mean(axis=1)).tolist() for each in (off, other))
    mirrored = sum(_nearer(*both, apart) for both in zip(own, image, strict=True))
    return Mean(mean, spread, lengths, len(poses), apart, mirrored, posed.chains, name, posed.guessed), lacking


def _nearer(own: float, mirrored: float, apart: float) -> bool:
    """Whether a mirror image is clearly nearer to the mean."""
    return own > apart and mirrored < _MIRRORED * own


def _rooted(joints: Array, count: int, *, whole: bool) -> Array:
    """Return joints with the root at the origin.

    Args:
        count: how many there have to be.
        whole: all have to be finite, and not in one place; else the root, and as many as it takes to turn them.
    """
    if len(joints) != count:
        msg = f"{counted(len(joints), 'joint')}, not {count}"
        raise UnfitError(msg)
    finite = np.asarray(np.isfinite(joints).all(axis=1))
    if whole and not (finite.all() and (joints != joints[0]).any()):
        msg = "joints that are not finite" if not finite.all() else "all joints in one place"
        raise UnfitError(msg)
    if not finite[0] or finite.sum() <= _JOINTS:
        msg = "no finite root" if not finite[0] else f"fewer than {_JOINTS} finite joints beside the root"
        raise UnfitError(msg)
    if np.abs(joints[finite]).max() > _LARGEST:
        msg = f"coordinates beyond {_LARGEST:g}"
        raise UnfitError(msg)
    rooted: Array = np.where(finite[:, None], joints, np.nan) - joints[0]
    return rooted


def turned(poses: Array, onto: Array) -> Array:
    """Return poses turned about the origin, each so that its joints are nearest to those of another (Kabsch).

    Notes:
        What lies in the plane of x and y is turned in it: turned over, it would be a mirror image.

    Shapes:
        poses: float64 (poses, joints, 3)
        onto: float64 (joints, 3)
    """
    made: Array = poses @ _turns(poses, onto)
    return made


def _turns(poses: Array, onto: Array) -> Array:
    """Return the rotations (poses, 3, 3) of `turned`, to be multiplied from the right."""
    tiny = np.finfo(float).tiny
    held = poses / np.maximum(np.abs(poses).max(axis=(1, 2), keepdims=True), tiny)
    axes = 3 if held[:, :, 2].any() or onto[:, 2].any() else 2
    both = np.swapaxes(held, 1, 2) @ (onto / max(np.abs(onto).max(), tiny))
    left, _, right = np.linalg.svd(both[:, :axes, :axes])
    left[:, :, -1] *= np.where(np.linalg.det(left @ right) < 0, -1.0, 1.0)[:, None]  # a rotation, no mirror
    made = np.tile(np.eye(3), (len(held), 1, 1))
    made[:, :axes, :axes] = left @ right
    return made


def _axes(joints: Array) -> Array:
    """Return the rotation (3, 3) that brings the middle of the joints above the root, to y, and their breadth to x.

    Notes:
        As `turned`, what lies in the plane of x and y is turned in it.
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
    if length < _ANY:  # they lie on a line
        across = np.cross(up, np.eye(3)[np.abs(up).argmin()])
        length = np.linalg.norm(across)
    across = across / length
    across = across * (1 if ((joints @ across) ** 3).sum() >= 0 else -1)  # the sum itself is 0: the middle is above
    return np.stack([across, up, np.cross(across, up)], axis=1)


def _lengths(joints: Array, chains: Sequence[Any]) -> Array:
    """Return the length of each bone, of unknown ones the distance of each joint to the root; NaN of unknown ends.

    Shapes:
        joints: float64 (..., joints, 3)
    """
    ends = np.array([pair for _, chain in chains for pair in pairwise(chain)], np.int64)
    apart = joints[..., ends[:, 0], :] - joints[..., ends[:, 1], :] if len(ends) else joints[..., 1:, :]
    made: Array = np.sqrt(np.square(apart).sum(axis=-1))
    return made


def _size(lengths: Array) -> float:
    """Return the median of the medians of samples (..., bones); 0 where there is none."""
    size = float(np.median(np.median(lengths, axis=-1))) if lengths.size else 0.0
    return size if size > _SMALLEST else 0.0


def _ratio(lengths: Array, mean: Mean) -> float | None:
    """Return how many times as long as in fit ones the bones of a sample are that it has; None without any."""
    known = np.isfinite(lengths)
    usual = _size(mean.lengths[:, known])
    return _size(lengths[known]) / usual if usual else None


# --------------------------------------------------------------------------------------------------- worst


def _laid(one: Posed, mean: Mean, seen: Array | float) -> dict[str, Any]:
    """Return a sample laid over the mean.

    Returns:
        Beside what it is called its ``joints`` as they are drawn, ``ratio`` (see `_ratio`),
        ``drawn`` (by what its joints are divided: 1 where it is about as large), ``rms``, its distance at its own size,
        ``rms_drawn`` as drawn, ``rms_mirrored``, where a mirror image would be clearly nearer, else None.
    """
    rooted = _rooted(one.joints, len(mean.joints), whole=False)
    finite = np.asarray(np.isfinite(rooted).all(axis=1))
    ratio = _ratio(_lengths(rooted, mean.chains), mean)
    drawn = ratio if ratio and not 1 / _FACTOR <= ratio <= _FACTOR else 1.0
    whole = np.where(finite[:, None], rooted, 0.0)
    onto = np.where(finite[:, None], mean.joints, 0.0)
    far = np.linalg.norm(whole, axis=1, keepdims=True)
    beside = far[far > 0]  # of joints that lie on the root, as those that nobody marked do, all others were astray
    held = np.where(far <= _ASTRAY * np.median(beside), whole, 0.0) if len(beside) else whole
    turns = _turns(np.stack([held, held * _MIRROR]), onto)
    own, mirrored = whole @ turns[0], whole * _MIRROR @ turns[1]
    rms, rms_drawn, other = (
        float(np.sqrt(np.square(laid - onto).sum() / finite.sum())) for laid in (own, own / drawn, mirrored / drawn)
    )
    joints = np.where(finite[:, None], own / drawn, np.nan)
    return {
        "key": one.key, "split": one.split, "rule": one.rule, "moment": one.moment,
        "joints": _numbers(joints * seen, mean.span), "ratio": None if ratio is None else _short(ratio),
        "drawn": _short(drawn), "rms": _distance(rms, mean), "rms_drawn": _distance(rms_drawn, mean),
        "rms_mirrored": _distance(other, mean) if _nearer(rms_drawn, other, mean.apart) else None,
        "unfinite": int((~finite).sum()),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------- numbers


def _numbers(joints: Array, span: float) -> list[list[float] | None]:
    """Return joints to four digits of what is drawn, None for one without a place."""
    return [[_stepped(v, span, 3) for v in joint] if np.isfinite(joint).all() else None for joint in joints]


def _distance(value: float, mean: Mean) -> float:
    """Return a distance with four digits; 0 where it is none but by rounding."""
    return float(f"{_stepped(value, mean.span, 6):.4g}")


def _stepped(value: float, span: float, digits: int) -> float:
    step = 10.0 ** np.floor(np.log10(span) - digits)
    return float(f"{round(value / step) * step:.5g}")


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _said(why: Counter[str], what: str) -> list[str]:
    return [f"{counted(many, what)} with {reason}" for reason, many in sorted(why.items())]
