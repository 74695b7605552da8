"""One scan from the data folder to the report: list, measure changed files, judge, publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datacheck.errors import DamagedRunError, ManyLines, StorageError, UsageError
from datacheck.formats.base import formats
from datacheck.model.finding import Progress, Report
from datacheck.model.sample import Depth
from datacheck.model.table import SKIPPED, Note, Table, concatenate
from datacheck.plugins import add_module_folders
from datacheck.rules import rules_for
from datacheck.rules.engine import RuleResults, judge
from datacheck.rules.selection import choose_rules, for_files, measures_of
from datacheck.runtime import sandbox
from datacheck.runtime.hashing import digest_value
from datacheck.scan import previous_runs, run_dir, run_documents
from datacheck.scan.baseline import apply as apply_baseline
from datacheck.scan.baseline import read as read_baseline
from datacheck.scan.measuring import ScanJob, measure
from datacheck.scan.pairs import CachedSecondRead, Rereader
from datacheck.scan.previous_runs import (
    PreviousRun,
    Slots,
    changes_since,
    last_finished,
    named_reference,
    read_reference,
    same_data_run,
    state_bytes,
)
from datacheck.scan.run_dir import Journal
from datacheck.scan.samples import codes_digest, read_codes, table_bytes
from datacheck.scan.summary import (
    RunContext,
    coverage,
    first_bytes_notes,
    foreign_lines,
    notes_with_unread,
    report_of,
    without_unread_rule,
)
from datacheck.scan.unlisted import BoundedTables
from datacheck.scan.worker import unread_rows
from datacheck.schema.model import Schema
from datacheck.sources import (
    check_alone,
    matches,
    open_source,
    plan_work,
    with_indexes,
    with_label_table,
    with_rate,
    with_stats,
)
from datacheck.sources.base import Item, Unread, Work
from datacheck.sources.listing import Listing, list_files, target
from datacheck.workers.parallel import Limits

Array = np.ndarray[Any, Any]
FailOn = Literal["error", "warning", "never"]
# Up to this many bytes, a scan without a level reads pixels too: it takes some seconds.
SMALL = 1 << 26


@dataclass(frozen=True, eq=False)
class ScanRun:
    """A finished scan.

    Args:
        report: verdicts, findings and counts.
        table: one row per listed sample.
        listing: the files with their digests.
        valid: bool (samples): fit for training.
        codes: per sample, the codes that make it unfit.
        schema: the schema with its extra folders in place.
    """

    report: Report
    table: Table
    listing: Listing
    valid: Array
    codes: list[tuple[str, ...]]
    schema: Schema

    @cached_property
    def work(self) -> Work:
        """The items that the schema makes of the listing."""
        return plan_work(self.schema, self.listing)


@dataclass(frozen=True)
class Request:
    """The data and the options of a scan.

    Args:
        data: folder, file or Zarr folder.
        roots: extra folders by name.
        workers: child processes; None: one for small data, one per core for large.
        scheduler: address of a Dask scheduler to use instead.
        output: folder for the results; None: a new one in ``.datacheck``.
        rehash: read every file, including unchanged ones.
        fail_on: the lowest severity that makes the exit code 1.
        command: the command line, for the record.
        limits: of time and memory, per item.
        reference: folder of a finished run to compare with.
        baseline: file of known findings, which are not reported again.
        paths: folders in which the schema's own checks are found (the folder of the schema's file,
            or the working folder).
        level: how deep to read: "structure" headers only, "numeric" all values but pixels, "deep"
            everything; None: "deep" where the files have at most `SMALL` bytes, else "numeric".
        allow_unread: most of the bytes may be in files that are not opened (DC113 is off).
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
    level: Depth | None = None
    allow_unread: bool = False


def run_scan(schema: Schema, request: Request, progress: Progress | None = None) -> ScanRun:
    """Scan a dataset and write the run's files.

    Args:
        schema: what the data promise.
        request: the data and the options.
        progress: called after each task.

    Raises:
        UsageError: the data are missing or empty, the schema fits none of them, or an option, a
            waiver or the reference is wrong.
        OutOfSpaceError: the results do not fit on the disk.
        StorageError: the disk or the Dask cluster refuses.
        KeyboardInterrupt: the user stopped the scan; finished parts are kept, and its notes say so.

    Notes:
        Rows depend on the data and the schema only, never on workers, order or interruptions. Where
        the files of an earlier scan turn out to be damaged, every data file is read again.
    """
    try:
        return _scan(schema, request, progress)
    except DamagedRunError:
        if request.rehash:
            raise
        return _scan(schema, replace(request, rehash=True), progress)


def _scan(schema: Schema, request: Request, progress: Progress | None) -> ScanRun:
    began = time.time()
    root, only = target(request.data)
    listing = list_dataset(request.data, request.roots)
    declared = schema
    placed = schema.placed(request.roots, root)
    check_alone(placed, listing.alone, declared.tokenizer)
    schema, unread = with_stats(placed, root, request.roots)
    rated = with_rate(schema, listing)
    schema = rated.schema
    schema, notes = with_label_table(schema, root, request.roots)
    notes += [*unread, *rated.notes]
    reference = None if request.reference is None else read_reference(request.reference, schema)
    baseline = None if request.baseline is None else read_baseline(request.baseline)
    add_module_folders(request.paths)
    level: Depth = request.level or ("deep" if listing.nbytes <= SMALL else "numeric")
    choices = choose_rules(schema, rules_for(schema), level)
    measures = measures_of(choices, level)
    place = run_dir.run_location(schema, root, only, request.roots, request.output)
    job = ScanJob(
        schema,
        root,
        request.roots,
        [m.name for m in measures],
        level,
        request.workers,
        request.scheduler,
        request.limits,
        request.paths,
    )
    measured = previous_runs.measured(schema, measures, level)
    journal = run_dir.Journal(place, digest_value(measured))
    with journal.held():
        gathered = _gather(job, listing, request, measured, place, journal, progress, notes)
        state, table = gathered.state, gathered.state.table
        run = partial(ScanRun, table=table, listing=state.listing, schema=rated.of_all(schema))
        second = CachedSecondRead(
            Rereader(job, lambda: plan_work(schema, listing).items, progress), state.pairs
        )
        choices = [
            for_files(previous_runs.comparable(choice, compared=state.compared))
            for choice in choices
        ]
        choices = without_unread_rule(choices, unread=request.allow_unread)
        read_coverage = coverage(state, schema, level)
        rates = rated.of(table.files)
        judged = judge(
            table,
            schema,
            choices,
            notes_with_unread(state.notes, read_coverage),
            state.crashes,
            reference,
            second,
            rates,
        )
        if gathered.kept_samples:
            run_documents.check_crashes(judged.crashes, state.crashes, state.folder)
        judged, silenced = (
            (judged, []) if baseline is None else apply_baseline(baseline, judged, table)
        )
        facts = RunContext(
            declared,
            request.data,
            state,
            began,
            gathered.kept_files,
            gathered.kept_samples,
            level,
            silenced,
            read_coverage,
        )
        report = report_of(facts, request.command, request.fail_on, judged)
        sandbox_text = "off (own checks)" if job.sandbox is None else sandbox.sandbox_parts()
        report = replace(
            report, run=report.run | {"sandbox": sandbox_text} | named_reference(request.reference)
        )
        if request.allow_unread:
            report = replace(report, run=report.run | {"allow_unread": True})
        report = replace(report, run=report.run | changes_since(report, gathered.last))
        folder = publish(report, declared, judged, state, second.answers, place, journal)
    return run(replace(report, folder=str(folder)), valid=judged.valid, codes=judged.codes)


def _gather(
    job: ScanJob,
    listing: Listing,
    request: Request,
    measured: Sequence[Any],
    place: run_dir.RunLocation,
    journal: run_dir.Journal,
    progress: Progress | None,
    notes: Sequence[Note],
) -> ScanState:
    key = digest_value(measured)
    last_run = last_finished(place.finished())
    previous = same_data_run(last_run, listing, target(request.data)[1])
    parts = None if request.rehash else journal.parts(job.root, job.schema)
    if (
        last_run is not None
        and parts is None
        and not request.rehash
        and previous_runs.unchanged(listing, key, last_run)
    ):
        return replace(reuse_all(last_run, listing), last=previous)
    pasts = [] if request.rehash else [past for past in (parts, last_run) if past is not None]
    work = _planned(job.schema, listing, request.data)
    only = target(request.data)[1]
    work = replace(work, notes=[*work.notes, *notes])
    return replace(
        measure_changed(
            job, listing, work, measured, key, pasts, last_run, journal, progress, only
        ),
        last=previous,
    )


def list_dataset(data: Path, roots: Mapping[str, Path] | None = None) -> Listing:
    """Return the files of a dataset.

    Raises:
        UsageError: the data or an extra folder are missing, or the data are empty.
    """
    root, only = target(data)
    listing = list_files(root, roots, only)
    if not listing.entries:
        path, reason = listing.skipped[0] if listing.skipped else ("", "")
        left_out = (
            f" that can be scanned ({len(listing.skipped):,} left out; {path}: {reason})"
            if path
            else ""
        )
        msg = f"{data}: holds no files{left_out}. Check the path."
        raise UsageError(msg)
    return listing


def _planned(schema: Schema, listing: Listing, data: Path) -> Work:
    work = plan_work(schema, listing)
    if not work.items and not any(note.missing for note in work.notes):
        raise UsageError(_mismatch_error(schema, listing, data))
    return with_indexes(work, schema, listing)


def _mismatch_error(schema: Schema, listing: Listing, data: Path) -> str:
    count = len(listing.entries)
    fitting = matches(schema, listing)
    if fitting:
        fitting_text = f"{fitting:,} of its {count:,} files fit schema {schema.name}"
        return f"{data}: {fitting_text}, but the lists of samples (samples.list) name none. Mend the lists."
    misfit_text = f"none of its {count:,} files fits" if count > 1 else "its only file does not fit"
    patterns = ", ".join(schema.samples.files)
    first = listing.entries[0].path
    # Lines of advice follow: a line break in a name must not fake one.
    first = first if first.isprintable() else repr(first)
    message = f"{data}: {misfit_text} schema {schema.name} (samples.files: {patterns}); the first is {first}."
    if schema.name == "files":
        lines = [f"{message} No format reads them; known are {', '.join(sorted(formats()))}."]
        return ManyLines.of(
            [*lines, *(f"    {line}" for line in foreign_lines(listing) if line.isprintable())]
        )
    from datacheck.scan.suggest import advice, unreadable  # noqa: PLC0415  it loads all built-in schemas

    advice_text = (
        ""
        if unreadable(data, listing)
        else " Choose another schema; --schema files takes any folder"
    )
    return ManyLines.of([f"{message}{advice_text}", *advice(data, listing, schema)])


def publish(
    report: Report,
    schema: Schema,
    judged: RuleResults,
    state: PreviousRun,
    pairs: Mapping[str, Mapping[str, Array]],
    place: run_dir.RunLocation,
    journal: run_dir.Journal,
) -> Path:
    """Write the files of a run and publish its folder; files equal to an earlier run's are linked.

    Args:
        report, judged: the verdicts and findings.
        schema: as the user wrote it.
        state: the rows, and the state for the next scan.
        pairs: the results of the second read of pairs of samples.
        place, journal: the run's final place, and its working folder.

    Returns:
        The folder of the run.
    """
    try:
        staged = _write(journal, report, schema, judged, state, pairs)
    # Another scan may have replaced the earlier run since: write all files instead of linking.
    except (FileNotFoundError, StorageError) as error:
        if state.folder == Path() or not isinstance(error.__cause__ or error, FileNotFoundError):
            raise
        staged = _write(
            journal, report, schema, judged, replace(state, folder=Path(), written=False), pairs
        )
    folder = place.publish(staged, report.run["id"])
    journal.clear()
    return folder


def _write(
    journal: run_dir.Journal,
    report: Report,
    schema: Schema,
    judged: RuleResults,
    state: PreviousRun,
    pairs: Mapping[str, Mapping[str, Array]],
) -> Path:
    from datacheck.schema.load import dump_schema  # noqa: PLC0415  YAML is not needed before

    old = state.folder
    same_rows = old != Path() and read_codes(old / run_documents.SAMPLES) == codes_digest(
        judged.failing
    )
    same_state = state.written and pairs.keys() == state.pairs.keys()
    files: dict[str, bytes | memoryview | Path] = {
        run_documents.RESULT: run_documents.dump_json(run_documents.result(report)),
        run_documents.SAMPLES: old / run_documents.SAMPLES
        if same_rows
        else table_bytes(state.table, judged.failing),
        run_documents.VALID: run_documents.dump_json(
            run_documents.valid(report, state.table, judged.codes)
        ),
        run_documents.LISTING: old / run_documents.LISTING
        if same_state
        else state_bytes(replace(state, pairs=pairs)),
        # Never a link to the file of an earlier run: people edit it.
        run_documents.SCHEMA: dump_schema(schema).encode(),
    }
    return journal.stage(files)


@dataclass(frozen=True, eq=False)
class ScanState:
    """The measured state of the data, before the rules judge it.

    Args:
        state: the rows, and the state for the next scan.
        kept_files, kept_samples: how many come from an earlier scan.
        last: folder of the previous finished scan of the same data, or None.
    """

    state: PreviousRun
    kept_files: int
    kept_samples: int
    last: Path | None = None


def reuse_all(past: PreviousRun, listing: Listing) -> ScanState:
    """Return the state of a past scan of data that have not changed since.

    Args:
        past: that scan; `previous_runs.unchanged` holds.
        listing: the new listing.
    """
    new_listing = replace(
        past.listing,
        root=listing.root,
        roots=listing.roots,
        refused=listing.refused,
        alone=listing.alone,
    )
    notes = [note for note in past.notes if note.code != previous_runs.CHANGED]
    written = past.compared and len(notes) == len(past.notes)
    state = replace(past, listing=new_listing, notes=notes, compared=True, written=written)
    return ScanState(state, len(past.items), len(past.table) - sum(note.missing for note in notes))


def measure_changed(
    job: ScanJob,
    listing: Listing,
    work: Work,
    measured: Sequence[Any],
    key: str,
    pasts: Sequence[PreviousRun],
    last: PreviousRun | None,
    journal: Journal,
    progress: Progress | None,
    only: str | None = None,
) -> ScanState:
    """Return the state of all samples; reads the files that changed since the past scans.

    Args:
        job: how files are read.
        listing, work: the files, and the items that the schema makes of them.
        measured, key: `previous_runs.measured` and its digest.
        pasts: scans whose rows may be kept, newest first.
        last: the last finished scan, whose contents are compared.
        journal: stores each finished part.
        progress: called after each task.
        only: the scanned file where DATA is one file; None for a folder.
    """
    source = open_source(job.schema, job.root, job.roots)
    reused = previous_runs.reuse_rows(listing, work.items, source.files, key, pasts)
    before = int(reused.done.sum()), sum(map(len, reused.tables))
    places = np.flatnonzero(~reused.done)
    todo = [work.items[place] for place in places.tolist()]
    fresh = measure(job, source, reused.listing, todo, journal, progress, before[0])
    reused.done[places[fresh.done]] = True
    reused.companions |= {int(places[place]): files for place, files in fresh.companions.items()}
    used = _used_files(work.items, reused, listing)
    # Digests of files in use only: the digest of the listing must not depend on earlier scans.
    fresh.entries.digests = np.where(used, fresh.entries.digests, b"").astype("S32")
    marks = {
        path: np.array(offsets, np.int64).reshape(-1, 2) for path, offsets in source.marks.items()
    }
    listing = replace(listing, entries=fresh.entries, marks=dict(reused.listing.marks) | marks)
    rows = BoundedTables(job.schema, [*reused.tables, *fresh.rows.tables(), _missing(work)])
    if reused.tables and rows.lack(partly=reused.partly):
        return measure_changed(job, listing, work, measured, key, (), last, journal, progress, only)
    table = concatenate(rows.tables())
    complete = bool(
        reused.done.all()
        and (listing.entries.digests[used] != b"").all()
        and not (table.status == SKIPPED).any()
    )
    notes = [
        *work.notes,
        *previous_runs.changes(listing, last, work.items),
        *first_bytes_notes(listing, work.unclaimed),
    ]
    state = PreviousRun(
        only=only,
        listing=listing,
        key=key,
        items=_slots(work.items, reused),
        table=table,
        undeclared=sorted(rows.named(reused.undeclared | fresh.rows.named(fresh.undeclared))),
        measured=measured,
        notes=notes,
        compared=last is not None,
        unclaimed=work.unclaimed,
        whole=complete,
        crashes=list(fresh.crashes.values()),
        deaths=fresh.deaths,
    )
    return ScanState(state, *before)


def _used_files(items: Sequence[Item], kept: previous_runs.ReusedRows, listing: Listing) -> Array:
    """Return bool (files): files that contributed to some item's rows.

    Notes:
        Drops an item from `kept` where one of its files is not listed (DATA was one file).
    """
    find: Callable[[str], int] = listing.entries.find
    used = np.zeros(len(listing.entries), bool)
    for place in np.flatnonzero(kept.done).tolist():
        file_places = [find(file) for file in kept.companions.get(place, (items[place].path,))]
        used[[i for i in file_places if i >= 0]] = True
        if min(file_places) < 0:
            kept.done[place] = False
            del kept.companions[place]
    return used


def _slots(items: Sequence[Item], kept: previous_runs.ReusedRows) -> Slots:
    places = np.flatnonzero(kept.done).tolist()
    return Slots(
        [items[place].path for place in places],
        [items[place].split for place in places],
        {
            number: kept.companions[place]
            for number, place in enumerate(places)
            if place in kept.companions
        },
    )


def _missing(work: Work) -> Table:
    """Return a table with one row for each note on a sample without a readable file.

    One table for all notes, because there may be 100,000 of them.
    """
    notes = [note for note in work.notes if note.missing]
    unread = [Unread(note.key, note.code, note.reason) for note in notes]
    return unread_rows(unread, [note.key for note in notes], [note.split for note in notes])
