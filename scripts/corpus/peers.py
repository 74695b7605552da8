"""Shards that other libraries write: run once with a Python that has them, the files are checked in.

PYTHON scripts/corpus/peers.py webdataset|streaming
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

OUT = Path("tests/corpus")


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

    folder = OUT / "tar"
    folder.mkdir(exist_ok=True)
    with ShardWriter(f"{folder}/y_webdataset-%06d.tar", maxcount=3, verbose=0) as writer:
        for i, sample in enumerate(samples()):
            writer.write({
                "__key__": f"train/{i:04d}", "points.npy": sample["points"], "cls": sample["label"],
                "txt": sample["caption"], "json": sample["about"], "pose.npz": {"r": np.eye(3) * i, "t": np.arange(3)},
                "pyd": {"id": i, "joints": np.full((2, 3), i, np.float32)}, "mask": bytes([i, 255]),
            })  # fmt: skip


if __name__ == "__main__":
    {"webdataset": webdataset}[sys.argv[1]]()
