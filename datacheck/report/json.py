"""``--format json``: exactly the bytes of result.json."""

from __future__ import annotations

from pathlib import Path


def result_bytes(folder: str) -> bytes:
    """Return the bytes of the result.json in a run's folder."""
    return Path(folder, "result.json").read_bytes()
