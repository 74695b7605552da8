"""Shards that other libraries write: run once from the repository root, by a Python that has them.

    PYTHON scripts/corpus/peers.py NAME      webdataset, streaming or lerobot

Those of Streaming have an index beside them, so they lie in tests/sources/mds. Those of LeRobot
have a meta folder, so they lie in tests/sources/lerobot: version 0.3.3 writes v2.1, version 0.4.4
writes v3.0.
"""

from __future__ import annotations

import shutil
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np


def samples() -> Iterator[dict]:
    """Yield five samples whose numbers tests/sources/test_shards.py knows."""
    for i in range(5):
        yield {
            "points": (np.arange(6 * 3, dtype=np.float32).reshape(6, 3) + i) / 8,
            "label": 3 * i,
            "caption": f"cup {i}, caf\u00e9",
            "about": {"scene": f"scene{i:04d}", "size": [i, i + 1], "weight": i / 4},
        }


def webdataset() -> None:
    from webdataset import ShardWriter

    folder = Path("tests/corpus/tar")
    folder.mkdir(exist_ok=True)
    with ShardWriter(f"{folder}/y_webdataset-%06d.tar", maxcount=3, verbose=0) as writer:
        for i, sample in enumerate(samples()):
            writer.write(
                {
                    "__key__": f"train/{i:04d}",
                    "points.npy": sample["points"],
                    "cls": sample["label"],
                    "txt": sample["caption"],
                    "json": sample["about"],
                    "pose.npz": {"r": np.eye(3) * i, "t": np.arange(3)},
                    "pyd": {"id": i, "joints": np.full((2, 3), i, np.float32)},
                    "mask": bytes([i, 255]),
                }
            )


def streaming() -> None:
    # it imports torchvision for datasets of pictures, which has no build for processors alone
    for name in (
        "torchvision",
        "torchvision.datasets",
        "torchvision.transforms",
        "torchvision.transforms.functional",
    ):
        sys.modules[name] = module = types.ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(VisionDataset=object, to_tensor=None)
    from PIL import Image
    from streaming.base import MDSWriter

    columns = {
        "points": "ndarray:float32:6,3",
        "rows": "ndarray:int64",
        "any": "ndarray",
        "label": "int",
        "caption": "str",
        "about": "json",
        "raw": "bytes",
        "weight": "float64",
        "code": "str_int",
        "ratio": "str_float",
        "picture": "png",
        "pickled": "pkl",
        "big": "uint16",
    }
    for name, compression in (("plain", None), ("zstd", "zstd:3")):
        out = Path("tests/sources/mds") / name
        shutil.rmtree(out, ignore_errors=True)
        options = {"compression": compression, "hashes": ["sha1", "xxh64"], "size_limit": 2700}
        with MDSWriter(out=str(out), columns=columns, **options) as writer:
            for i, sample in enumerate(samples()):
                more = {
                    "rows": np.arange(i + 1) * i,
                    "any": np.full((i + 1, 2), i, np.float16),
                    "raw": bytes([i, 255]),
                }
                more |= {
                    "weight": i / 4,
                    "code": -i,
                    "ratio": i / 8,
                    "pickled": np.full(3, i),
                    "big": 60_000 + i,
                }
                writer.write(sample | more | {"picture": Image.new("RGB", (4, 2), (i, 2, 3))})


def lerobot() -> None:
    from lerobot.datasets.lerobot_dataset import CODEBASE_VERSION, LeRobotDataset

    out = Path("tests/sources/lerobot") / CODEBASE_VERSION
    shutil.rmtree(out, ignore_errors=True)
    features = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": None},
        "action": {"dtype": "float32", "shape": (2,), "names": None},
        "matrix": {"dtype": "float64", "shape": (2, 2), "names": None},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
        "note": {"dtype": "string", "shape": (1,), "names": None},
    }
    made = LeRobotDataset.create(
        "datacheck/made", fps=10, features=features, root=out, use_videos=False
    )
    for episode, length in enumerate((3, 2, 4)):
        for t in range(length):
            frame = {
                "observation.state": np.float32([episode, t, episode * t]),
                "action": np.float32([t, -t]) / 8,
                "matrix": np.float64([[t, 1], [episode, 0.1]]),
                "next.done": np.array([t == length - 1]),
                "note": f"n{t}",
            }
            task = "caf\u00e9" if episode == 1 or (episode == 2 and t > 1) else "lift the cup"
            if CODEBASE_VERSION.startswith("v2"):
                made.add_frame(frame, task=task)
            else:
                made.add_frame(frame | {"task": task})
        made.save_episode()
    if hasattr(made, "finalize"):
        made.finalize()


if __name__ == "__main__":
    {"webdataset": webdataset, "streaming": streaming, "lerobot": lerobot}[sys.argv[1]]()
