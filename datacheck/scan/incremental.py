"""Measure a dataset: keep the rows of earlier scans where no file has changed, read the rest.

Where nothing has changed since the last finished scan, its state is the new one and no file is
opened. Otherwise three sources of rows are joined: rows of the last finished scan and of an
interrupted one (`row_reuse`), rows that children measure now (`measuring`), and one row for each
sample that a list names and that has no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.model.finding import Progress
from datacheck.model.table import SKIPPED
from datacheck.scan.coverage import first_bytes_notes
from datacheck.scan.measure_tasks import ScanJob
from datacheck.scan.measurement_settings import MeasurementSettings
from datacheck.scan.measuring import MeasureResult, measure
from datacheck.scan.row_reuse import (
    ReusedRows,
    changes,
    interrupted_run,
    reuse_all,
    reuse_rows,
    same_data_run,
    unchanged,
)
from datacheck.scan.rows import BoundedTables, missing_rows
from datacheck.scan.run_dir import Journal, RunLocation
from datacheck.scan.run_state import RunState, last_finished
from datacheck.scan.scanned_dataset import ScannedDataset
from datacheck.sources import Listing, Work
from datacheck.sources.planning import without_sample

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class MeasuredState:
    """The measured state of a dataset, before the rules judge it.

    Args:
        state: the rows, and all that the next scan needs to keep them.
        kept_files, kept_samples: how many come from an earlier scan.
        last: folder of the last finished scan of the same data, or None.
    """

    state: RunState
    kept_files: int
    kept_samples: int
    last: Path | None = None


def measure_dataset(
    dataset: ScannedDataset,
    job: ScanJob,
    settings: MeasurementSettings,
    place: RunLocation,
    journal: Journal,
    progress: Progress | None,
    *,
    rehash: bool,
) -> MeasuredState:
    """Return the state of all samples; read only the files that have changed since earlier scans.

    Args:
        dataset: the files, and the schema in force.
        job: how files are read.
        settings: what else decides the rows.
        place: where earlier scans of the dataset are.
        journal: has the parts of an interrupted scan, and stores each new part.
        progress: called after each task.
        rehash: read every file.

    Raises:
        UsageError: the schema fits no file.
        KeyboardInterrupt: the user stopped the scan; finished parts are kept.
        StorageError: a disk or a cluster refuses.
    """
    last_run = last_finished(place.finished())
    last = same_data_run(last_run, dataset.listing, dataset.only)
    interrupted = None if rehash else interrupted_run(journal, job.source.root, job.source.schema)
    if (
        last_run is not None
        and interrupted is None
        and not rehash
        and unchanged(dataset.listing, settings.key, last_run)
    ):
        state = reuse_all(last_run, dataset.listing)
        missing = sum(note.missing for note in state.notes)
        return MeasuredState(state, len(state.items), len(state.table) - missing, last)
    earlier = [] if rehash else [run for run in (interrupted, last_run) if run is not None]
    work = dataset.plan(job)
    gathered = _gather_rows(dataset, work, job, settings, earlier, journal, progress)
    state = _state_of(gathered, dataset, work, settings, last_run)
    return MeasuredState(state, gathered.kept_files, gathered.kept_samples, last)


@dataclass(frozen=True, eq=False)
class _GatheredRows:
    """The rows of all items.

    Args:
        listing: the files as they were when they were read, with the digests of those in use.
        used: bool (files): the files that rows come from.
        reused: which items are done, kept or new, and the files of each.
        fresh: what the children answered.
        tables: kept rows, new rows, and the rows of samples without a file.
        kept_files, kept_samples: how many come from an earlier scan.
    """

    listing: Listing
    used: Array
    reused: ReusedRows
    fresh: MeasureResult
    tables: BoundedTables
    kept_files: int
    kept_samples: int


def _gather_rows(
    dataset: ScannedDataset,
    work: Work,
    job: ScanJob,
    settings: MeasurementSettings,
    earlier: Sequence[RunState],
    journal: Journal,
    progress: Progress | None,
) -> _GatheredRows:
    source = job.source.open()
    reused = reuse_rows(dataset.listing, work.items, source.files, settings.key, earlier)
    kept_files = int(reused.done.sum())
    kept_samples = sum(map(len, reused.tables))
    places = np.flatnonzero(~reused.done)
    todo = [work.items[place] for place in places.tolist()]
    fresh = measure(job, source, reused.listing, todo, journal, progress, kept_files)
    reused.done[places[fresh.done]] = True
    reused.companions |= {int(places[place]): files for place, files in fresh.companions.items()}
    tables = BoundedTables(
        job.source.schema, [*reused.tables, *fresh.rows.tables(), missing_rows(work)]
    )
    if reused.tables and tables.lack(partly=reused.partly):
        return _gather_rows(dataset, work, job, settings, (), journal, progress)
    used = reused.used_files(work.items)
    # Digests of files in use only: the digest of the listing must not depend on earlier scans.
    fresh.entries.digests = np.where(used, fresh.entries.digests, b"").astype("S32")
    marks = {
        path: np.array(offsets, np.int64).reshape(-1, 2) for path, offsets in source.marks.items()
    }
    listing = replace(
        dataset.listing, entries=fresh.entries, marks=dict(reused.listing.marks) | marks
    )
    return _GatheredRows(listing, used, reused, fresh, tables, kept_files, kept_samples)


def _state_of(
    gathered: _GatheredRows,
    dataset: ScannedDataset,
    work: Work,
    settings: MeasurementSettings,
    last_run: RunState | None,
) -> RunState:
    listing, fresh, tables = gathered.listing, gathered.fresh, gathered.tables
    table = tables.table()
    whole = bool(
        gathered.reused.done.all()
        and (listing.entries.digests[gathered.used] != b"").all()
        and not (table.status == SKIPPED).any()
    )
    undeclared = gathered.reused.undeclared | fresh.rows.named(fresh.undeclared)
    unclaimed = sorted({*work.unclaimed, *without_sample(dataset.schema, listing, table.keys)})
    return RunState(
        only=dataset.only,
        listing=listing,
        key=settings.key,
        items=gathered.reused.slots(work.items),
        table=table,
        undeclared=sorted(tables.named(undeclared)),
        measured=settings.as_json(),
        notes=[
            *work.notes,
            *changes(listing, last_run, work.items),
            *first_bytes_notes(listing, unclaimed),
        ],
        compared=last_run is not None,
        unclaimed=unclaimed,
        whole=whole,
        crashes=list(fresh.crashes.values()),
        deaths=fresh.deaths,
    )
