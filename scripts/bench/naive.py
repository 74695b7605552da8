"""The loop that people write first: validate_dataset() looks at `dataset[idx]` of a system's own training loader.

    PYTHON naive.py FILE.jsonl      the loop over minimind's dataset, with a Python that has Hugging
    Face datasets

Each function does what that loader does to one sample, and tells whether something is left to train
on. Augmentation, voxels and tokens are left out, and pictures but for `frame`, which makes the loop
faster than it is in truth.
"""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

try:
    import h5py
    from PIL import Image
except ModuleNotFoundError:  # not in the environment of a peer
    h5py = Image = None

Array = np.ndarray[Any, Any]

_IGNORE = 255
_CLASSES = np.array(
    [
        c
        for c in range(3, 41)
        if c not in {13, 15, 17, *range(18, 24), 25, 26, 27, *range(29, 33), 35, 37, 38, 40}
    ]
)
_COLOUR_MEAN, _COLOUR_STD = np.array([0.476, 0.428, 0.373]), np.array([0.285, 0.276, 0.270])
_MANO = [0, 13, 14, 15, 16, 1, 2, 3, 17, 4, 5, 6, 18, 10, 11, 12, 19, 7, 8, 9, 20]
_CUBE_MM = 280.0
CHUNK = 64


def checked(items: Iterable[Any], good: Callable[[Any], bool]) -> int:
    """Return how many samples are bad; one that cannot be loaded is."""
    bad = 0
    for item in items:
        try:
            bad += not good(item)
        except Exception:  # noqa: BLE001  that loop does so
            bad += 1
    return bad


def scene(path: Path) -> bool:
    """Load a scene as Mask3D's SemanticSegmentationDataset does: centre, scale colours, map labels; any instance?"""
    points = np.load(path)
    coordinates, color, normals = points[:, :3], points[:, 3:6], points[:, 6:9]
    segments, labels = points[:, 9], points[:, 10:12]
    raw_coordinates, raw_color = coordinates.copy(), color.copy()
    coordinates -= coordinates.mean(0)
    color = (color.astype(np.uint8).astype(np.float32) / 255 - _COLOUR_MEAN) / _COLOUR_STD
    labels = labels.astype(np.int32)
    labels[:, 0] = remapped(labels[:, 0])
    labels[labels[:, 0] == _IGNORE, 1] = _IGNORE
    features = np.hstack((color, coordinates)).astype(np.float32)
    sample = (
        coordinates,
        features,
        np.hstack((labels, segments[:, None].astype(np.int32))),
        raw_color,
        normals,
        raw_coordinates,
    )
    instances = sample[2][:, 1]
    return bool(len(instances[(instances != _IGNORE) & (instances != -1)]))


def remapped(labels: Array) -> Array:
    """Number the classes anew from 0, as Mask3D's _remap_from_zero does: one pass over the labels for each of them."""
    labels = labels.copy()
    labels[~np.isin(labels, _CLASSES)] = _IGNORE
    for number, label in enumerate(_CLASSES):
        labels[labels == label] = number
    return labels


def hand(path: Path) -> bool:
    """Load a frame's joints as the HO3D loaders do: reorder, millimetres, centre, project, scale by the cube."""
    with path.open("rb") as file:
        record = pickle.load(file, encoding="latin1")  # noqa: S301  we wrote it
    joints = record["handJoints3D"][_MANO] * 1000
    centre = joints.mean(axis=0)
    u, v, z = record["camMat"] @ centre
    label = (joints - centre) / (_CUBE_MM / 2)
    return bool(np.isfinite(label).all() and np.isfinite([u / z, v / z]).all())


def frame(path: Path, picture: Path) -> bool:
    """Load a frame as the HO3D loaders do, its picture too (one and the same for all, half of what they decode)."""
    pixels = np.asarray(Image.open(picture).convert("RGB"), dtype=np.float32) / 255
    return hand(path) and pixels.shape == (480, 640, 3)


def window(path: Path, demo: str, start: int) -> bool:
    """Load a chunk of actions as RDT's HDF5 loader does: each one reads the whole episode's low-dimensional arrays."""
    with h5py.File(path, "r") as file:
        episode = file["data"][demo]
        actions = episode["actions"][:]
        states = [
            episode["obs"][name][:]
            for name in ("joint_states", "gripper_states", "ee_pos", "ee_ori")
        ]
    state = np.concatenate([array.reshape(len(actions), -1) for array in states], axis=1)
    chunk = actions[start : start + CHUNK]
    mean, std = state.mean(axis=0), state.std(axis=0)
    return len(chunk) == CHUNK and bool(np.isfinite(chunk).all() and np.isfinite([mean, std]).all())


def lines(path: Path) -> int:
    """Check every line as a training script does: it parses, its field is there and not empty, none stands twice."""
    seen, bad = set(), 0
    with path.open(encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            value = record.get("text") or record.get("conversations")
            text = (
                value
                if isinstance(value, str)
                else "".join(message["content"] for message in value or ())
            )
            bad += not text.strip() or text in seen
            seen.add(text)
    return bad


def served(path: Path) -> tuple[int, float]:
    """Look at `dataset[idx]` of minimind's datasets before they tokenize: a row of Hugging Face datasets, joined.

    Returns:
        how many are bad; seconds of processor time, loading included.
    """
    from datasets import Features, Value, load_dataset

    began = time.process_time()
    chat = [{"role": Value("string"), "content": Value("string")}]
    features = Features(
        {"conversations": chat} if path.stem.startswith("sft") else {"text": Value("string")}
    )
    with tempfile.TemporaryDirectory() as cache:
        rows = load_dataset(
            "json", data_files=str(path), split="train", features=features, cache_dir=cache
        )
        bad = 0
        for index in range(len(rows)):
            row = rows[index]
            text = (
                str(row["text"])
                if "text" in row
                else "".join(turn["content"] for turn in row["conversations"])
            )
            bad += not text.strip()
    return bad, time.process_time() - began


if __name__ == "__main__":
    print(*served(Path(sys.argv[1])))
