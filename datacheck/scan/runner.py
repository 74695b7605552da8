"""One scan from the data folder to the report: list, measure what is new, judge, keep."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datacheck import fsops
from datacheck.errors import UsageError
from datacheck.finding import Report
from datacheck.formats.base import formats
from datacheck.parallel import Limits
from datacheck.registry import find_in
from datacheck.rules import rules_for
from datacheck.sample import Depth
from datacheck.scan import history, store
from datacheck.scan.baseline import apply as apply_baseline
from datacheck.scan.baseline import read as read_baseline
from datacheck.scan.judge import Judged, judge
from datacheck.scan.measuring import Job, Measured, Progress, measure, with_entries
from datacheck.scan.pairs import Rereader
from datacheck.scan.reference import read_reference
from datacheck.scan.select import choose_rules, measures_of, of_files
from datacheck.scan.summary import Facts, report_of
from datacheck.scan.worker import unread_rows
from datacheck.schema.model import Schema
from datacheck.sources import open_source, plan_work
from datacheck.sources.base import Unread, Work
from datacheck.sources.listing import Listing, list_files, target
from datacheck.table import Table, concatenate

Array = np.ndarray[Any, Any]
FailOn = Literal["error", "warning", "never"]


@dataclass(frozen=True, eq=False)
class ScanRun:
    """A finished scan.

    Args:
        report: what it says.
        table: one row per listed sample.
        listing: the files with their digests.
        work: what the listing came to.
        valid: bool (samples): fit for training.
        codes: per sample, the codes that make it unfit.
    """

    report: Report
    table: Table
    listing: Listing
    work: Work
    valid: Array
    codes: list[tuple[str, ...]]


@dataclass(frozen=True)
class Request:
    """What a scan is asked to do.

    Args:
        data: folder, file or Zarr folder.
        roots: extra folders by name.
        workers: child processes; None: one for small data, one per core for large.
        scheduler: address of a Dask scheduler to use instead.
        output: folder for the results; None: a new one in ``.datacheck``.
        rehash: read every file, also the unchanged ones.
        fail_on: from which severity on the exit code is 1.
        command: how the scan was asked for, for the record.
        limits: of each item.
        reference: folder of a finished run to compare with.
        baseline: file of known findings, which are not told again.
        paths: folders in which the schema's own checks are found (that of the schema's file, the working folder).
        level: how deep to read: "structure" headers only, "numeric" all values but pixels, "deep" everything.
    """

    data: Path
    roots: Mapping[str, Path] = field(default_factory=dict)
    workers: int | None = None
    scheduler: str | None = None
    output: Path | None = None
    rehash: bool = False
    fail_on: FailOn = "error"
    command: str = ""
    limits: Limits = field(default_factory=Limits)
    reference: Path | None = None
    baseline: Path | None = None
    paths: Sequence[str] = ()
    level: Depth = "numeric"


def run_scan(schema: Schema, request: Request, progress: Progress | None = None) -> ScanRun:
    """Scan a dataset and write the run's files.

    Args:
        schema: what the data promise.
        request: what to scan and how.
        progress: called after each task.

    Raises:
        UsageError: the data are missing or empty, the schema fits none of them, an option, a waiver or the reference
            is wrong.
        OutOfSpaceError: the results do not fit on the disk.
        StorageError: the disk or the Dask cluster refuses.
        KeyboardInterrupt: the user stopped it; finished parts are kept, and its notes say so.

    Notes:
        Rows depend on the data and the schema only, never on workers, order or interruptions.
    """
    began = time.time()
    root, only = target(request.data)
    declared, schema = schema, schema.placed(request.roots, root)
    reference = None if request.reference is None else read_reference(request.reference, schema)
    baseline = None if request.baseline is None else read_baseline(request.baseline)
    find_in(request.paths)
    choices = choose_rules(schema, rules_for(schema), request.level)
    measures = measures_of(choices, request.level)
    place = history.place_of(schema, root, only, request.roots, request.output)
    listing = listed(request.data, request.roots)
    work = _planned(schema, listing, request.data)
    key = history.measured_key(schema, measures, request.level)
    journal = history.Journal(place, key)
    with journal.held():
        last = history.last_finished(place)
        pasts = [] if request.rehash else [p for p in (journal.parts(root), last) if p is not None]
        source = open_source(schema, root, request.roots)
        kept = history.keep(listing, work.items, source.files, key, pasts)
        pasts, last = [], last and history.changed_only(last, kept.listing)  # what is kept need not be held twice
        todo = [item for item in work.items if (item.path, item.split) not in kept.items]
        job = Job(
            schema, root, request.roots, [m.name for m in measures], request.level, request.workers, request.scheduler,
            request.limits, request.paths,
        )  # fmt: skip
        fresh = measure(job, source, listing, todo, journal, progress, len(kept.items))
        before = len(kept.items), sum(map(len, kept.tables))
        table = _joined(kept, fresh, work)
        listing = kept.listing
        notes = [*work.notes, *history.changes(listing, last, work.items)]
        choices = [of_files(history.comparable(choice, last)) for choice in choices]
        crashes = list(fresh.crashes.values())
        judged = judge(table, schema, choices, notes, crashes, reference, Rereader(job, work.items))
        judged, silenced = (judged, []) if baseline is None else apply_baseline(baseline, judged, table)
        undeclared = sorted(kept.undeclared | fresh.undeclared)
        facts = Facts(
            declared, request.data, listing, work, began, *before, undeclared, fresh.deaths, request.level, silenced
        )
        report = report_of(facts, request.command, request.fail_on, table, judged)
        files = history.listing_json(listing, report.dataset["digest"], key, kept.items, undeclared)
        folder = publish(report, table, judged, files, place, journal)
    return ScanRun(replace(report, folder=str(folder)), table, listing, work, judged.valid, judged.codes)


def _joined(kept: history.Kept, fresh: Measured, work: Work) -> Table:
    """Return the rows of all samples, and let `kept` have the files and items of both; what was joined is let go."""
    kept.items |= fresh.items
    used = {file for files in kept.items.values() for file in files}
    kept.listing = with_entries(kept.listing, fresh.entries, used)
    fresh.entries.clear()
    table = concatenate([*kept.tables, *fresh.tables, *_missing(work)])
    kept.tables.clear()
    fresh.tables.clear()
    return table


def listed(data: Path, roots: Mapping[str, Path] | None = None) -> Listing:
    """Return the files of a dataset.

    Raises:
        UsageError: the data or an extra folder are missing, or the data are empty.
    """
    root, only = target(data)
    listing = list_files(root, roots, only)
    if not listing.entries:
        path, reason = listing.skipped[0] if listing.skipped else ("", "")
        left_out = f" that can be scanned ({len(listing.skipped):,} left out; {path}: {reason})" if path else ""
        msg = f"{data}: holds no files{left_out}. Check the path."
        raise UsageError(msg)
    return listing


def _planned(schema: Schema, listing: Listing, data: Path) -> Work:
    work = plan_work(schema, listing)
    if not work.items and not any(note.missing for note in work.notes):
        patterns = ", ".join(schema.samples.files)
        hint = "Choose another schema; --schema files takes any folder."
        if schema.name == "files":
            hint = f"No format reads them; known are {', '.join(sorted(formats()))}."
        count = len(listing.entries)
        msg = (
            f"{data}: none of its {count:,} files fits schema {schema.name} (samples.files: {patterns}); "
            f"the first is {listing.entries[0].path}. {hint}"
        )
        raise UsageError(msg)
    return work


def _missing(work: Work) -> list[Table]:
    return [
        unread_rows([Unread(note.key, note.code, note.reason)], note.key, note.split)
        for note in work.notes
        if note.missing
    ]


def publish(
    report: Report, table: Table, judged: Judged, listed: bytes, place: history.Place, journal: history.Journal
) -> Path:
    """Write the files of a run and give them their place; return the folder."""
    files = {
        store.RESULT: store.dump_json(store.result(report)),
        store.SAMPLES: store.table_bytes(table),
        store.VALID: store.dump_json(store.valid(report, table, judged.codes)),
        store.LISTING: listed,
    }
    staged = journal.folder / "run"
    fsops.remove_tree(staged)
    store.write_run(staged, files)
    folder = place.publish(staged, report.run["id"])
    journal.clear()
    return folder
