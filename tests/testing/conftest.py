"""Clean synthetic datasets, each written once for all workers of pytest."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from datacheck.testing import synth
from tests.conftest import shared_folder


@pytest.fixture(scope="session")
def clean_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """Return what writes a system's dataset of a seed; tests read it, or change a copy."""
    place = shared_folder(tmp_path_factory) / "clean-data"

    def written(system: str, seed: int) -> Path:
        folder = place / str(seed) / system
        done = folder.with_suffix(".done")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                synth.write(system, folder, seed=seed)
                done.touch()
        return folder

    return written
