"""Same code, another result: what a process really was, what of it is not pinned, and what differs between two.

Importing this loads neither PyTorch, Zarr, Dask, YAML nor pydantic; recorders are imported when they are first used.
"""

from __future__ import annotations

from typing import Any

from datacheck.registry import resolve
from datacheck.repro.capture import capture  # not lazily: a submodule of that name would hide the function
from datacheck.repro.check.pin import pin

_HOME = {
    "LightningRecorder": "datacheck.repro.runs.lightning",
    "Recorder": "datacheck.repro.runs.record",
    "TrainerRecorder": "datacheck.repro.runs.trainer",
}

__all__ = [*sorted(_HOME), "capture", "pin"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return resolve(f"{_HOME[name]}:{name}")
    msg = f"module 'datacheck.repro' has no attribute {name!r}"
    raise AttributeError(msg)
