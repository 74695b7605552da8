"""One scan from the data folder to the report: list, measure what is new, judge, keep."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datacheck.digest import digest_value
from datacheck.errors import DamagedRunError, ManyLines, StorageError, UsageError
from datacheck.finding import Progress, Report
from datacheck.formats.base import formats
from datacheck.judging.judge import Judged, judge
from datacheck.judging.select import choose_rules, measures_of, of_files
from datacheck.parallel import Limits
from datacheck.registry import find_in
from datacheck.rules import rules_for
from datacheck.runtime import sandbox
from datacheck.sample import Depth
from datacheck.scan import history, places, store
from datacheck.scan.baseline import apply as apply_baseline
from datacheck.scan.baseline import read as read_baseline
from datacheck.scan.coverage import allowed, coverage, foreign_lines, noted
from datacheck.scan.gather import Gathered, anew, as_before
from datacheck.scan.measuring import Job
from datacheck.scan.pairs import Remembering, Rereader
from datacheck.scan.reference import named_reference, read_reference
from datacheck.scan.samples import codes_digest, read_codes, table_bytes
from datacheck.scan.since import of_the_same, since
from datacheck.scan.state import Past, last_finished, state_bytes
from datacheck.scan.summary import Facts, report_of
from datacheck.schema.model import Schema
from datacheck.sources import check_alone, matches, plan_work, with_indexes, with_label_table, with_rate, with_stats
from datacheck.sources.base import Work
from datacheck.sources.listing import Listing, list_files, target
from datacheck.table import Note, Table

Array = np.ndarray[Any, Any]
FailOn = Literal["error", "warning", "never"]
SMALL = 1 << 26  # bytes of a dataset of which pixels are read without being asked for: some seconds


@dataclass(frozen=True, eq=False)
class ScanRun:
    """A finished scan.

    Args:
        report: what it says.
        table: one row per listed sample.
        listing: the files with their digests.
        valid: bool (samples): fit for training.
        codes: per sample, the codes that make it unfit.
        schema: with its extra folders in place.
    """

    report: Report
    table: Table
    listing: Listing
    valid: Array
    codes: list[tuple[str, ...]]
    schema: Schema

    @cached_property
    def work(self) -> Work:
        """What the listing comes to."""
        return plan_work(self.schema, self.listing)


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
        level: how deep to read: "structure" headers only, "numeric" all values but pixels, "deep" everything; None:
            "deep" where the files come to at most `SMALL` bytes, else "numeric".
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
        request: what to scan and how.
        progress: called after each task.

    Raises:
        UsageError: the data are missing or empty, the schema fits none of them, an option, a waiver or the reference
            is wrong.
        OutOfSpaceError: the results do not fit on the disk.
        StorageError: the disk or the Dask cluster refuses.
        KeyboardInterrupt: the user stopped it; finished parts are kept, and its notes say so.

    Notes:
        Rows depend on the data and the schema only, never on workers, order or interruptions. Where what an earlier
        scan left behind turns out to be damaged, every file is read again.
    """
    try:
        return _scanned(schema, request, progress)
    except DamagedRunError:
        if request.rehash:
            raise
        return _scanned(schema, replace(request, rehash=True), progress)


def _scanned(schema: Schema, request: Request, progress: Progress | None) -> ScanRun:
    began = time.time()
    root, only = target(request.data)
    listing = listed(request.data, request.roots)
    declared, placed = schema, schema.placed(request.roots, root)
    check_alone(placed, listing.alone, declared.tokenizer)
    schema, unread = with_stats(placed, root, request.roots)
    rated = with_rate(schema, listing)
    schema = rated.schema
    schema, notes = with_label_table(schema, root, request.roots)
    notes += [*unread, *rated.notes]
    reference = None if request.reference is None else read_reference(request.reference, schema)
    baseline = None if request.baseline is None else read_baseline(request.baseline)
    find_in(request.paths)
    level: Depth = request.level or ("deep" if listing.nbytes <= SMALL else "numeric")
    choices = choose_rules(schema, rules_for(schema), level)
    measures = measures_of(choices, level)
    place = places.place_of(schema, root, only, request.roots, request.output)
    job = Job(
        schema, root, request.roots, [m.name for m in measures], level, request.workers, request.scheduler,
        request.limits, request.paths,
    )  # fmt: skip
    measured = history.measured(schema, measures, level)
    journal = places.Journal(place, digest_value(measured))
    with journal.held():
        gathered = _gathered(job, listing, request, measured, place, journal, progress, notes)
        state, table = gathered.state, gathered.state.table
        run = partial(ScanRun, table=table, listing=state.listing, schema=rated.of_all(schema))
        second = Remembering(Rereader(job, lambda: plan_work(schema, listing).items, progress), state.pairs)
        choices = [of_files(history.comparable(choice, compared=state.compared)) for choice in choices]
        choices = allowed(choices, unread=request.allow_unread)
        seen = coverage(state, schema, level)
        rates = rated.of(table.files)
        judged = judge(table, schema, choices, noted(state.notes, seen), state.crashes, reference, second, rates)
        if gathered.kept_samples:
            store.check_crashes(judged.crashes, state.crashes, state.folder)
        judged, silenced = (judged, []) if baseline is None else apply_baseline(baseline, judged, table)
        facts = Facts(
            declared, request.data, state, began, gathered.kept_files, gathered.kept_samples, level, silenced,
            seen,
        )  # fmt: skip
        report = report_of(facts, request.command, request.fail_on, judged)
        boxed = "off (own checks)" if job.sandbox is None else sandbox.described()
        report = replace(report, run=report.run | {"sandbox": boxed} | named_reference(request.reference))
        if request.allow_unread:
            report = replace(report, run=report.run | {"allow_unread": True})
        report = replace(report, run=report.run | since(report, gathered.last))
        folder = publish(report, declared, judged, state, second.answers, place, journal)
    return run(replace(report, folder=str(folder)), valid=judged.valid, codes=judged.codes)


def _gathered(
    job: Job, listing: Listing, request: Request, measured: Sequence[Any], place: places.Place,
    journal: places.Journal, progress: Progress | None, notes: Sequence[Note],
) -> Gathered:  # fmt: skip
    key = digest_value(measured)
    last = last_finished(place.finished())
    before = of_the_same(last, listing, target(request.data)[1])
    parts = None if request.rehash else journal.parts(job.root, job.schema)
    if last is not None and parts is None and not request.rehash and history.unchanged(listing, key, last):
        return replace(as_before(last, listing), last=before)
    pasts = [] if request.rehash else [past for past in (parts, last) if past is not None]
    work, only = _planned(job.schema, listing, request.data), target(request.data)[1]
    work = replace(work, notes=[*work.notes, *notes])
    return replace(anew(job, listing, work, measured, key, pasts, last, journal, progress, only), last=before)


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
        raise UsageError(_misfit(schema, listing, data))
    return with_indexes(work, schema, listing)


def _misfit(schema: Schema, listing: Listing, data: Path) -> str:
    count, fitting = len(listing.entries), matches(schema, listing)
    if fitting:
        those = f"{fitting:,} of its {count:,} files fit schema {schema.name}"
        return f"{data}: {those}, but the lists of samples (samples.list) name none. Mend the lists."
    none = f"none of its {count:,} files fits" if count > 1 else "its only file does not fit"
    patterns, first = ", ".join(schema.samples.files), listing.entries[0].path
    first = first if first.isprintable() else repr(first)  # lines of advice follow: a name may not pass for one
    said = f"{data}: {none} schema {schema.name} (samples.files: {patterns}); the first is {first}."
    if schema.name == "files":
        lines = [f"{said} No format reads them; known are {', '.join(sorted(formats()))}."]
        return ManyLines.of([*lines, *(f"    {line}" for line in foreign_lines(listing) if line.isprintable())])
    from datacheck.scan.misfit import advice, unreadable  # noqa: PLC0415  it reads all built-in schemas

    other = "" if unreadable(data, listing) else " Choose another schema; --schema files takes any folder"
    return ManyLines.of([f"{said}{other}", *advice(data, listing, schema)])


def publish(
    report: Report, schema: Schema, judged: Judged, state: Past, pairs: Mapping[str, Mapping[str, Array]],
    place: places.Place, journal: places.Journal,
) -> Path:  # fmt: skip
    """Write the files of a run and give its folder its name; what an earlier run has written already is linked.

    Args:
        report, judged: what is said of the data.
        schema: as the user wrote it.
        state: the rows, and what the next scan wants to know.
        pairs: what was found of pairs of samples.
        place, journal: where the run goes, and where it is made.
    """
    try:
        staged = _write(journal, report, schema, judged, state, pairs)
    except (FileNotFoundError, StorageError) as error:  # another scan may have replaced the earlier run just now
        if state.folder == Path() or not isinstance(error.__cause__ or error, FileNotFoundError):
            raise
        staged = _write(journal, report, schema, judged, replace(state, folder=Path(), written=False), pairs)
    folder = place.publish(staged, report.run["id"])
    journal.clear()
    return folder


def _write(
    journal: places.Journal, report: Report, schema: Schema, judged: Judged, state: Past,
    pairs: Mapping[str, Mapping[str, Array]],
) -> Path:  # fmt: skip
    from datacheck.schema.dump import dump_schema  # noqa: PLC0415  YAML is not needed before

    old = state.folder
    same_rows = old != Path() and read_codes(old / store.SAMPLES) == codes_digest(judged.failing)
    same_state = state.written and pairs.keys() == state.pairs.keys()
    files: dict[str, bytes | memoryview | Path] = {
        store.RESULT: store.dump_json(store.result(report)),
        store.SAMPLES: old / store.SAMPLES if same_rows else table_bytes(state.table, judged.failing),
        store.VALID: store.dump_json(store.valid(report, state.table, judged.codes)),
        store.LISTING: old / store.LISTING if same_state else state_bytes(replace(state, pairs=pairs)),
        store.SCHEMA: dump_schema(schema).encode(),  # never that of the old run: people edit it
    }
    return journal.stage(files)
