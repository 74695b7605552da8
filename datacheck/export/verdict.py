"""The verdict of a scan on each sample, and the files that it holds for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.model.finding import Report
from datacheck.scan import ScanRun, run_documents
from datacheck.scan.run_documents import read_valid
from datacheck.scan.run_state import RunState, finished
from datacheck.sources.listing import Listing


@dataclass(frozen=True, eq=False)
class ScannedSamples:
    """The samples of a finished scan.

    Args:
        listing: the files as the scan found them.
        valid: by the key of each sample: fit for training.
    """

    listing: Listing
    valid: dict[str, bool]


def verdict_of_scan(run: ScanRun) -> ScannedSamples:
    """Return the verdict of a scan that has just ended."""
    return ScannedSamples(run.listing, dict(zip(run.table.keys, run.valid.tolist(), strict=True)))


def verdict_of_run(folder: Path) -> ScannedSamples:
    """Return the verdict that a finished run has stored.

    Args:
        folder: of the run, or the folder of all runs for the newest.

    Raises:
        UsageError: there is no such run, or it cannot be read.
        StorageError: this user may not read it.
    """

    def read(report: Report, state: RunState) -> ScannedSamples:
        del report
        place = run_documents.finished_run(folder)
        excluded: dict[str, Any] = read_valid(place, len(state.table))["excluded"]
        return ScannedSamples(state.listing, {key: key not in excluded for key in state.table.keys})

    return finished(folder, read)
