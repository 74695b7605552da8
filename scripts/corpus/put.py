"""Where the corpus lies, and the one way to write a file of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

OUT = Path("tests/corpus")
RNG = np.random.default_rng(7)


def put(name: str, data: bytes) -> None:
    path = OUT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
