"""Same code, another result: what a process really was, what of it is not pinned, and what differs between two.

Importing this loads neither PyTorch, Zarr, Dask, YAML nor pydantic; what is here is imported when
it is first used.
"""

from __future__ import annotations

from typing import Any

from datacheck.plugins import resolve

_HOME = {
    "LightningRecorder": "datacheck.repro.callbacks",
    "Recorder": "datacheck.repro.record",
    "TrainerRecorder": "datacheck.repro.callbacks",
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
