"""HO3D annotations, pickles of a moving hand with 21 joints, one per frame; and their faults.

Bones have the lengths of the MANO mean shape and stay rigid while the fingers bend.

HO3D order: 0 wrist; 1-3 index; 4-6 middle; 7-9 pinky; 10-12 ring; 13-15 thumb; tips 16 thumb, 17
index, 18 middle, 19 ring, 20 pinky.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.formats.base import open_container
from datacheck.testing.draw import Array, curves, dumps, generator, rotation, unit_vectors
from datacheck.testing.fault import Fault, Planted, Site, add_lines, names, truncate

# First joint, tip, bone lengths [m], direction of the knuckle in the palm [deg], direction of the
# finger [deg].
FINGERS = {
    "index": (1, 17, (0.0906, 0.0330, 0.0222, 0.0255), 14.0, 6.0),
    "middle": (4, 18, (0.0947, 0.0317, 0.0233, 0.0263), 2.0, 1.0),
    "pinky": (7, 20, (0.0818, 0.0211, 0.0189, 0.0200), -23.0, -12.0),
    "ring": (10, 19, (0.0861, 0.0288, 0.0248, 0.0258), -10.0, -5.0),
    "thumb": (13, 16, (0.0386, 0.0308, 0.0271, 0.0354), 48.0, 34.0),
}


def articulated(rng: np.random.Generator, frames: int, scale: float = 1.0) -> Array:
    """Return a hand whose fingers open and close, in its own frame.

    The wrist is the origin, and the fingers point along +x.

    Shapes:
        returns: float64 (frames, 21, 3) [m]

    Args:
        scale: size of the subject's hand relative to the mean hand.
    """
    joints = np.zeros((frames, 21, 3))
    for first_joint, tip, bones, knuckle, along in FINGERS.values():
        bend = 0.45 + 0.35 * curves(rng, frames, 3)  # rad at each joint
        spread = np.deg2rad(along) + 0.06 * curves(rng, frames, 1)[:, 0]
        u = np.stack([np.cos(spread), np.sin(spread), np.zeros(frames)], axis=1)
        down = np.broadcast_to([0.0, 0.0, -1.0], (frames, 3))
        if first_joint == 13:  # the thumb closes across the palm
            down = 0.6 * down + 0.8 * np.stack(
                [np.sin(spread), -np.cos(spread), np.zeros(frames)], axis=1
            )
        position = np.broadcast_to(bones[0] * _planar(knuckle), (frames, 3))
        joints[:, first_joint] = position
        angle = np.zeros(frames)
        for joint, bone, extra in zip(
            (first_joint + 1, first_joint + 2, tip), bones[1:], bend.T, strict=True
        ):
            angle = angle + 0.75 * extra
            position = position + bone * (
                np.cos(angle)[:, None] * u + np.sin(angle)[:, None] * down
            )
            joints[:, joint] = position
    return joints * scale


def _planar(degrees: float) -> Array:
    return np.array([np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees)), 0.0])


def placed(rng: np.random.Generator, hand: Array, turn: Array) -> Array:
    """Rotate the hand by `turn` and place it in view of an OpenGL camera, looking along -z.

    Shapes:
        hand: float (frames, 21, 3) [m]
        turn: float (frames, 3) rotation vectors [rad]
        returns: float64 (frames, 21, 3) [m]: camera frame, x right, y up, the whole hand at z < 0
    """
    frames = len(hand)
    turned = np.einsum("tij,tkj->tki", rotation(turn), hand)
    turned -= turned.mean(axis=1, keepdims=True)
    depth = rng.uniform(0.48, 0.72) + 0.06 * curves(rng, frames, 1)[:, 0]
    lateral = 0.16 * curves(rng, frames, 2) * [1.0, 0.5]
    centre = np.stack([lateral[:, 0] * depth, lateral[:, 1] * depth, -depth], axis=1)
    out: Array = turned + centre[:, None]
    return out


VERTICES = 778
WIDTH = 640
HEIGHT = 480

_CAMERAS = ("ABF", "GPMF", "BB", "GSF", "MDF", "ShSu", "SiBF")
_SINGLE = (
    "MC1",
    "MC2",
    "MC4",
    "MC5",
    "MC6",
    "ND2",
    "SM2",
    "SM3",
    "SM4",
    "SM5",
    "SS1",
    "SS2",
    "SS3",
    "SMu1",
    "SiS1",
)
TRAIN = tuple(f"{name}1{camera}" for name in _CAMERAS for camera in range(5)) + _SINGLE
EVALUATION = tuple(f"{name}1{camera}" for name in ("AP", "MPM") for camera in range(5))
_YCB = (
    ("003_cracker_box", (0.16, 0.21, 0.07)),
    ("004_sugar_box", (0.09, 0.18, 0.04)),
    ("006_mustard_bottle", (0.10, 0.19, 0.07)),
    ("010_potted_meat_can", (0.10, 0.08, 0.06)),
    ("021_bleach_cleanser", (0.10, 0.25, 0.07)),
    ("037_scissors", (0.20, 0.09, 0.02)),
)
# Offset of the root joint from handTrans, for the mean hand.
_WRIST = np.array([0.0957, 0.0064, 0.0062])


@dataclass(frozen=True)
class Ho3dSize:
    """Size of the dataset.

    Args:
        train, evaluation: sequences per split.
        frames: fewest and most frames of a sequence.
        vertices: whether to write the four per-vertex fields (nine tenths of a file).
    """

    train: int = 12
    evaluation: int = 2
    frames: tuple[int, int] = (56, 72)
    vertices: bool = True


REAL = Ho3dSize(train=55, evaluation=13, frames=(764, 2509))


def write(folder: Path, seed: int, size: Ho3dSize) -> None:
    """Write a clean dataset."""
    for split, count, subjects in (
        ("train", size.train, TRAIN),
        ("evaluation", size.evaluation, EVALUATION),
    ):
        lines: list[str] = []
        for number in range(count):
            name = (
                subjects[_place(number, count, len(subjects))]
                if count <= len(subjects)
                else f"X{split[0].upper()}{number}"
            )
            meta_folder = folder / split / name / "meta"
            meta_folder.mkdir(parents=True, exist_ok=True)
            for frame, data in enumerate(
                _sequence(generator(seed, "ho3d", split, name), size, split)
            ):
                (meta_folder / f"{frame:04d}.pkl").write_bytes(data)
                lines.append(f"{name}/{frame:04d}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _place(number: int, count: int, subjects: int) -> int:
    return number * subjects // count  # spread over the subjects


def _sequence(rng: np.random.Generator, size: Ho3dSize, split: str) -> list[bytes]:
    frames = int(rng.integers(size.frames[0], size.frames[1] + 1))
    records = sequence(rng, frames)
    if split == "train":
        return [dumps(_annotation(record, rng, vertices=size.vertices)) for record in records]
    return [dumps(evaluation(record)) for record in records]


def sequence(rng: np.random.Generator, frames: int) -> list[dict[str, Any]]:
    """Return annotations of one subject's hand with one object, one per frame.

    The per-vertex fields are missing.
    """
    beta = np.clip(0.8 * rng.standard_normal(10), -2.5, 2.5)
    scale = 1 + 0.025 * beta[0]
    base_turn = unit_vectors(rng, 1)[0] * rng.uniform(0.4, 1.8)
    turn = base_turn + 0.5 * curves(rng, frames, 3)
    joints = placed(rng, articulated(rng, frames, scale), turn)
    pose = np.concatenate([turn, 0.45 * curves(rng, frames, 45)], axis=1)
    focal = 617.34 + 3 * rng.standard_normal()
    cx = 312.42 + rng.standard_normal()
    cy = 241.42 + rng.standard_normal()
    camera = np.array([[focal, 0.0, cx], [0.0, focal, cy], [0.0, 0.0, 1.0]])
    label = int(rng.integers(len(_YCB)))
    name, extent = _YCB[label]
    box = _corners() * extent / 2
    object_turn = unit_vectors(rng, 1)[0] * rng.uniform(0.3, 2.0) + 0.4 * curves(rng, frames, 3)
    object_place = joints.mean(axis=1) + np.array([0.0, -0.03, -0.02])
    corners = np.einsum("tij,kj->tki", rotation(object_turn), box) + object_place[:, None]
    return [
        {
            "camIDList": [str(camera_number) for camera_number in range(5)],
            "camMat": camera,
            "handBeta": beta,
            "handJoints3D": joints[t],
            "handPose": pose[t],
            "handTrans": joints[t, 0] - scale * _WRIST,
            "objCorners3D": corners[t],
            "objCorners3DRest": box,
            "objLabel": label + 1,
            "objName": name,
            "objRot": object_turn[t].reshape(3, 1),
            "objTrans": object_place[t],
        }
        for t in range(frames)
    ]


def _corners() -> Array:
    return np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])


def _annotation(
    record: dict[str, Any], rng: np.random.Generator, *, vertices: bool
) -> dict[str, Any]:
    count = VERTICES if vertices else 1
    distance = np.abs(rng.standard_normal(count, dtype=np.float32)) * np.float32(0.03) + np.float32(
        1e-4
    )
    nearest = (
        record["handJoints3D"][0] + 0.05 * rng.standard_normal((count, 3), dtype=np.float32)
    ).astype(np.float32)
    touching = {
        "handVertContact": (distance < 0.004).astype(np.uint8),
        "handVertDist": distance,
        "handVertIntersec": (distance < 0.001).astype(np.uint8),
        "handVertObjSurfProj": nearest,
    }
    return dict(sorted((record | touching).items()))


def evaluation(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a frame that are released for evaluation.

    These are the root joint and a box, without hand parameters.
    """
    joints = record["handJoints3D"]
    camera = record["camMat"]
    u = camera[0, 0] * joints[:, 0] / -joints[:, 2] + camera[0, 2]
    v = camera[1, 1] * -joints[:, 1] / -joints[:, 2] + camera[1, 2]
    box = np.array([u.min(), v.min(), u.max(), v.max()])
    kept = {k: v for k, v in record.items() if not k.startswith("hand")}
    return kept | {"handJoints3D": joints[0], "handBoundingBox": np.round(box).astype(np.int64)}


_JOINTS = "handJoints3D"
_FLIP = np.array([1.0, -1.0, -1.0])
_TIPS = [16, 17, 18, 19, 20]


def _read(path: Path) -> dict[str, Any]:
    container = open_container(path)
    try:
        return {name: container.read(name) for name in container.names()}
    finally:
        container.close()


def _frames(site: Site, sequence: str) -> list[str]:
    return names(site, f"{sequence}/meta/*.pkl")


def _whole(site: Site, *, cameras: bool = False) -> list[str]:
    """Take an untouched training sequence; return its frames.

    With `cameras`, only a sequence recorded by several cameras is taken.
    """
    free = [s for s in names(site, "train/*") if not site.taken.intersection(_frames(site, s))]
    free = [s for s in free if s[-2:].isdigit()] if cameras else free
    sequence = site.pick(free)[0]
    keys = _frames(site, sequence)
    site.taken.update(keys)
    return keys


def _one(site: Site) -> str:
    """Take a training frame of a sequence that no fault of a whole sequence has taken."""
    return site.pick(
        [k for k in names(site, "train/*/meta/*.pkl") if k.split("/meta")[0] not in site.taken]
    )[0]


def _rewrite(site: Site, keys: list[str], change: Callable[[Array], Array | None]) -> None:
    for key in keys:
        record = _read(site.folder / key)
        record[_JOINTS] = change(record[_JOINTS])
        (site.folder / key).write_bytes(dumps(record))


def _sequence_fault(name: str, code: str, what: str, change: Callable[[Array], Array]) -> Fault:
    def plant(site: Site) -> list[Planted]:
        keys = _whole(site)
        _rewrite(site, keys, change)
        return [Planted(tuple(keys), code, what)]

    return Fault(name, "ho3d", code, plant)


def _frame(name: str, code: str, what: str, change: Callable[[Array], Array | None]) -> Fault:
    def plant(site: Site) -> list[Planted]:
        key = _one(site)
        _rewrite(site, [key], change)
        return [Planted((key,), code, what)]

    return Fault(name, "ho3d", code, plant)


def _other_hand(site: Site) -> list[Planted]:
    key = _one(site)
    record = _read(site.folder / key)
    record["handBeta"] = record["handBeta"] + 0.5
    (site.folder / key).write_bytes(dumps(record))
    return [Planted((key,), "DC608", "the shape of another hand")]


def _half_camera(site: Site) -> list[Planted]:
    """Halve the images and their camera; the schema declares the full size."""
    key = _one(site)
    record = _read(site.folder / key)
    record["camMat"] = record["camMat"] * np.array([[0.5], [0.5], [1.0]])
    (site.folder / key).write_bytes(dumps(record))
    return [Planted((key,), "DC306", "camera of an image of half the size")]


def _out_of_view(joints: Array) -> Array:
    out: Array = joints + np.array([-1.4 * joints[0, 2], 0.0, 0.0])
    return out


def _nan_joint(joints: Array) -> Array:
    out = joints.copy()
    out[7, 2] = np.nan
    return out


def _rolled_tips(joints: Array) -> Array:
    out = joints.copy()
    out[_TIPS] = joints[[17, 18, 19, 20, 16]]
    return out


def _truncated(site: Site) -> list[Planted]:
    key = _one(site)
    truncate(site.folder / key)
    return [Planted((key,), "DC101", "half of an annotation is missing")]


def _missing(site: Site) -> list[Planted]:
    key = _one(site)
    (site.folder / key).unlink()
    return [Planted((key,), "DC105", "a listed annotation does not exist")]


def _hole(site: Site) -> list[Planted]:
    """Remove five frames from the folder and from the list."""
    keys = _whole(site)
    start = len(keys) // 2
    removed = keys[start : start + 5]
    for key in removed:
        (site.folder / key).unlink()
    lines = {f"{key.split('/')[1]}/{Path(key).stem}" for key in removed}
    path = site.folder / "train.txt"
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if line not in lines]
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return [
        Planted((keys[start + 5],), "DC112", "five frames gone, from the list too", tuple(removed))
    ]


def _leaked_camera(site: Site) -> list[Planted]:
    """Add another camera of a training recording to the evaluation split."""
    train = _whole(site, cameras=True)
    stem = train[0].split("/")[1]
    used = {Path(s).name for s in names(site, "train/*")}
    other = next(
        f"{stem[:-1]}{camera}" for camera in range(10) if f"{stem[:-1]}{camera}" not in used
    )
    keys = [key.replace(f"train/{stem}", f"evaluation/{other}") for key in train]
    for source, key in zip(train, keys, strict=True):
        record = _read(site.folder / source)
        record[_JOINTS] = record[_JOINTS] * [-1.0, 1.0, 1.0] + [0.01, -0.005, -0.03]
        (site.folder / key).parent.mkdir(parents=True, exist_ok=True)
        (site.folder / key).write_bytes(dumps(evaluation(record)))
    site.taken.update(keys)
    add_lines(site.folder / "evaluation.txt", [f"{other}/{Path(key).stem}" for key in keys])
    return [
        Planted(tuple(keys), "DC802", f"{other} is another camera of train's {stem}", tuple(train))
    ]


FAULTS = (
    _sequence_fault("joints-in-mm", "DC201", "joints in millimetres", lambda j: j * 1000),
    _sequence_fault("root-relative", "DC301", "joints relative to the wrist", lambda j: j - j[0]),
    _sequence_fault("opencv-camera", "DC303", "joints in an OpenCV camera", lambda j: j * _FLIP),
    _sequence_fault("tips-rolled", "DC605", "fingertips in thumb-last order", _rolled_tips),
    Fault("leaked-camera", "ho3d", "DC802", _leaked_camera),
    _frame("collapsed-joints", "DC602", "21 copies of the wrist", lambda j: j[:1].repeat(21, 0)),
    _frame("nan-joint", "DC221", "one joint is NaN", _nan_joint),
    _frame("no-joints", "DC121", "handJoints3D is None", lambda j: None),
    _frame("twenty-joints", "DC122", "20 joints", lambda j: j[:20].copy()),
    Fault("half-size-camera", "ho3d", "DC306", _half_camera),
    _frame("out-of-view", "DC606", "a hand beside the image", _out_of_view),
    Fault("other-hand", "ho3d", "DC608", _other_hand),
    Fault("truncated-pickle", "ho3d", "DC101", _truncated),
    Fault("missing-pickle", "ho3d", "DC105", _missing),
    Fault("missing-frames", "ho3d", "DC112", _hole),
)
