"""Faults of hand annotations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.formats.base import open_container
from datacheck.testing.faults.base import Fault, Planted, Site, add_lines, names, truncate
from datacheck.testing.synth.draw import Array, dumps
from datacheck.testing.synth.ho3d import evaluation

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


def _sequence(name: str, code: str, what: str, change: Callable[[Array], Array]) -> Fault:
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
    _sequence("joints-in-mm", "DC201", "joints in millimetres", lambda j: j * 1000),
    _sequence("root-relative", "DC301", "joints relative to the wrist", lambda j: j - j[0]),
    _sequence("opencv-camera", "DC303", "joints in an OpenCV camera", lambda j: j * _FLIP),
    _sequence("tips-rolled", "DC605", "fingertips in thumb-last order", _rolled_tips),
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
