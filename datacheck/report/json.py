"""``--format json``: exactly the bytes of result.json."""

from __future__ import annotations

from pathlib import Path

from datacheck.runtime.beneath import read_file
from datacheck.scan.documents import RESULT_BYTES
from datacheck.scan.store import RESULT


def result_bytes(folder: str) -> bytes:
    """Return the bytes of the result.json in a run's folder."""
    return read_file(Path(folder, RESULT), RESULT_BYTES, links=False)
