"""Reproducibility: the state of a process, its unpinned settings, and differences between runs.

Importing this loads neither PyTorch, Zarr, Dask, YAML nor pydantic; each name is imported on first
use.
"""

from __future__ import annotations

from typing import Any

from datacheck.plugins import resolve

_HOME = {
    "LightningRecorder": "datacheck.repro.lightning_recorder",
    "Recorder": "datacheck.repro.record",
    "TrainerRecorder": "datacheck.repro.trainer_recorder",
    "capture": "datacheck.repro.captures",
    "pin": "datacheck.repro.checks",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return resolve(f"{_HOME[name]}:{name}")
    msg = f"module 'datacheck.repro' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
