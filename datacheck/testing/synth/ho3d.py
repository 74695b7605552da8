"""HO3D v3: one Python-2 pickle per video frame, and lists of frames.

Layout::

    train.txt, evaluation.txt           one "SEQ/0000" per line
    train/{SEQ}/meta/{0000}.pkl         the 16 keys of the released training annotations
    evaluation/{SEQ}/meta/{0000}.pkl    root joint and bounding box only, as released

Images are left out: they decide nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.testing.synth.draw import Array, curves, generator, rotation, unit_vectors
from datacheck.testing.synth.hand import articulated, placed
from datacheck.testing.synth.pickle2 import dumps

VERTICES = 778
WIDTH, HEIGHT = 640, 480

_CAMERAS = ("ABF", "GPMF", "BB", "GSF", "MDF", "ShSu", "SiBF")
_SINGLE = ("MC1", "MC2", "MC4", "MC5", "MC6", "ND2", "SM2", "SM3", "SM4", "SM5", "SS1", "SS2", "SS3", "SMu1", "SiS1")
TRAIN = tuple(f"{name}1{camera}" for name in _CAMERAS for camera in range(5)) + _SINGLE
EVALUATION = tuple(f"{name}1{camera}" for name in ("AP", "MPM") for camera in range(5))
_YCB = (
    ("003_cracker_box", (0.16, 0.21, 0.07)), ("004_sugar_box", (0.09, 0.18, 0.04)),
    ("006_mustard_bottle", (0.10, 0.19, 0.07)), ("010_potted_meat_can", (0.10, 0.08, 0.06)),
    ("021_bleach_cleanser", (0.10, 0.25, 0.07)), ("037_scissors", (0.20, 0.09, 0.02)),
)  # fmt: skip
_WRIST = np.array([0.0957, 0.0064, 0.0062])  # of the mean hand: what the root joint is away from handTrans


@dataclass(frozen=True)
class Size:
    """How much to write.

    Args:
        train, evaluation: sequences per split.
        frames: fewest and most frames of a sequence.
        vertices: write the four per-vertex fields (nine tenths of a file).
    """

    train: int = 12
    evaluation: int = 2
    frames: tuple[int, int] = (56, 72)
    vertices: bool = True


REAL = Size(train=55, evaluation=13, frames=(764, 2509))


def write(folder: Path, seed: int, size: Size) -> None:
    """Write a clean dataset."""
    for split, count, known in (("train", size.train, TRAIN), ("evaluation", size.evaluation, EVALUATION)):
        lines: list[str] = []
        for number in range(count):
            name = known[_place(number, count, len(known))] if count <= len(known) else f"X{split[0].upper()}{number}"
            place = folder / split / name / "meta"
            place.mkdir(parents=True, exist_ok=True)
            for frame, data in enumerate(_sequence(generator(seed, "ho3d", split, name), size, split)):
                (place / f"{frame:04d}.pkl").write_bytes(data)
                lines.append(f"{name}/{frame:04d}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _place(number: int, count: int, known: int) -> int:
    return number * known // count  # spread over the subjects


def _sequence(rng: np.random.Generator, size: Size, split: str) -> list[bytes]:
    frames = int(rng.integers(size.frames[0], size.frames[1] + 1))
    records = sequence(rng, frames)
    if split == "train":
        return [dumps(_annotation(record, rng, vertices=size.vertices)) for record in records]
    return [dumps(evaluation(record)) for record in records]


def sequence(rng: np.random.Generator, frames: int) -> list[dict[str, Any]]:
    """Return the annotations of one subject's hand with one object, frame by frame, without per-vertex fields."""
    beta = np.clip(0.8 * rng.standard_normal(10), -2.5, 2.5)
    scale = 1 + 0.025 * beta[0]
    first = unit_vectors(rng, 1)[0] * rng.uniform(0.4, 1.8)
    turn = first + 0.5 * curves(rng, frames, 3)
    joints = placed(rng, articulated(rng, frames, scale), turn)
    pose = np.concatenate([turn, 0.45 * curves(rng, frames, 45)], axis=1)
    focal, cx, cy = 617.34 + 3 * rng.standard_normal(), 312.42 + rng.standard_normal(), 241.42 + rng.standard_normal()
    camera = np.array([[focal, 0.0, cx], [0.0, focal, cy], [0.0, 0.0, 1.0]])
    label = int(rng.integers(len(_YCB)))
    name, extent = _YCB[label]
    box = _corners() * extent / 2
    object_turn = unit_vectors(rng, 1)[0] * rng.uniform(0.3, 2.0) + 0.4 * curves(rng, frames, 3)
    object_place = joints.mean(axis=1) + np.array([0.0, -0.03, -0.02])
    corners = np.einsum("tij,kj->tki", rotation(object_turn), box) + object_place[:, None]
    return [
        {
            "camIDList": [str(camera_number) for camera_number in range(5)], "camMat": camera, "handBeta": beta,
            "handJoints3D": joints[t], "handPose": pose[t], "handTrans": joints[t, 0] - scale * _WRIST,
            "objCorners3D": corners[t], "objCorners3DRest": box, "objLabel": label + 1, "objName": name,
            "objRot": object_turn[t].reshape(3, 1), "objTrans": object_place[t],
        }
        for t in range(frames)
    ]  # fmt: skip


def _corners() -> Array:
    return np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])


def _annotation(record: dict[str, Any], rng: np.random.Generator, *, vertices: bool) -> dict[str, Any]:
    count = VERTICES if vertices else 1
    distance = np.abs(rng.standard_normal(count, dtype=np.float32)) * np.float32(0.03) + np.float32(1e-4)
    nearest = (record["handJoints3D"][0] + 0.05 * rng.standard_normal((count, 3), dtype=np.float32)).astype(np.float32)
    touching = {
        "handVertContact": (distance < 0.004).astype(np.uint8),
        "handVertDist": distance,
        "handVertIntersec": (distance < 0.001).astype(np.uint8),
        "handVertObjSurfProj": nearest,
    }
    return dict(sorted((record | touching).items()))


def evaluation(record: dict[str, Any]) -> dict[str, Any]:
    """Return what is released of a frame for evaluation: the root joint and a box, no hand parameters."""
    joints, camera = record["handJoints3D"], record["camMat"]
    u = camera[0, 0] * joints[:, 0] / -joints[:, 2] + camera[0, 2]
    v = camera[1, 1] * -joints[:, 1] / -joints[:, 2] + camera[1, 2]
    box = np.array([u.min(), v.min(), u.max(), v.max()])
    kept = {k: v for k, v in record.items() if not k.startswith("hand")}
    return kept | {"handJoints3D": joints[0], "handBoundingBox": np.round(box).astype(np.int64)}
