"""Judge a finished run again without its data: with other thresholds, or to make a baseline.

A rescore reads the rows that a run has stored (`read_stored_run`), checks that they hold all
measurements that the schema needs, and judges and writes them as a scan does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.model.finding import Severity
from datacheck.model.sample import Depth
from datacheck.model.table import Rows
from datacheck.rules.base import Rule, RuleContext
from datacheck.scan import run_documents
from datacheck.scan.baseline import make
from datacheck.scan.judging import (
    Judged,
    PriorResults,
    choose_criteria,
    judge_run,
    read_prior_results,
)
from datacheck.scan.measurement_settings import MeasurementSettings, missing_measurements
from datacheck.scan.pairs import CachedSecondRead
from datacheck.scan.run_dir import Journal, read_run, run_location
from datacheck.scan.run_state import RunState, read_state
from datacheck.scan.run_writer import RunContents, publish
from datacheck.scan.scan_run import FailOn, ScanRun
from datacheck.scan.scanned_dataset import with_stated_values
from datacheck.scan.summary import RunContext, report_of
from datacheck.schema.model import Schema
from datacheck.sources import with_rate
from datacheck.sources.indexes import StepRates
from datacheck.sources.listing import stat_entry
from datacheck.sources.loader_tables import path_of

Array = np.ndarray[Any, Any]

_NAMED = 5


@dataclass(frozen=True)
class Rescore:
    """The options of a rescore.

    Args:
        run: the folder of a run, or a folder of runs, for the newest.
        output: folder for the results; None: a new one in ``.datacheck``.
        fail_on: the lowest severity that makes the exit code 1.
        command: the command line, for the record.
        reference: folder of a finished run to compare with.
        baseline: file of known findings, which are not reported again.
        paths: folders with the modules of the checks of a schema that the caller names.
        allow_unread: as in `Request`; also on if it was on in the run.
    """

    run: Path
    output: Path | None = None
    fail_on: FailOn = "error"
    command: str = ""
    reference: Path | None = None
    baseline: Path | None = None
    paths: Sequence[str] = ()
    allow_unread: bool = False


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run as a rescore judges it.

    Args:
        folder: as the user named it.
        document: its ``result.json``.
        state: its rows, with notes on datasets that state no step rate.
        declared: the schema to judge by: the caller's, or the run's own.
        rates: the step rates of LeRobot datasets, with the schema in force.
        trusted: the caller named the schema. Otherwise nothing that it names is imported, and a
            file that it names must be as it was scanned: whoever shares a run chooses its schema.
    """

    folder: Path
    document: Mapping[str, Any]
    state: RunState
    declared: Schema
    rates: StepRates
    trusted: bool

    @property
    def level(self) -> Depth:
        """How deep the run has read."""
        level: Depth = self.document["run"].get("level", "numeric")
        return level

    def skipped_checks(self, command: str) -> list[str]:
        """Return a sentence on the checks that did not run; [] where there are none."""
        return [] if self.trusted else not_run(self.declared, f"datacheck {command} {self.folder}")


def rescore(request: Rescore, schema: Schema | None = None) -> ScanRun:
    """Judge the rows of a finished run and write a new run; the data are not read.

    Args:
        request: which run, and how.
        schema: has other thresholds; None: the run's own, without its own checks (see
            `without_checks`).

    Raises:
        UsageError: there is no such run, the schema needs measurements that the run lacks, or an
            option, a waiver, the reference or the baseline is wrong.
        OutOfSpaceError: the results do not fit on the disk.
        StorageError: the disk refuses.

    Notes:
        The findings are those of a fresh scan of the same data with that schema, plus the run's
        findings on changes since the run before it.
    """
    began = time.time()
    run = read_stored_run(request.run, schema)
    allow_unread = request.allow_unread or run.document["run"].get("allow_unread", False)
    request = replace(request, allow_unread=allow_unread)
    prior = read_prior_results(run.declared, request.reference, request.baseline)
    state = run.state
    listing = state.listing
    place = run_location(run.rates.schema, listing.root, state.only, listing.roots, request.output)
    journal = Journal(place, state.key, "-rescore")
    with journal.held(), run_documents.reading(request.run):
        judged = _judge(run, request, prior)
        facts = RunContext(
            schema=run.declared,
            data=Path(run.document["dataset"]["root"]),
            state=state,
            began=began,
            kept_files=len(state.items),
            kept_samples=len(state.table),
            level=run.level,
            silenced=[*judged.silenced, *run.skipped_checks("rescore")],
            coverage=judged.coverage,
            remarks=_remarks(run, request, prior),
        )
        report = report_of(facts, request.command, request.fail_on, judged.results)
        contents = RunContents(report, judged.results, run.declared, state, state.pairs)
        report = publish(contents, place, journal)
    return ScanRun(
        report,
        state.table,
        listing,
        judged.results.valid,
        judged.results.codes,
        run.rates.of_all(run.rates.schema),
    )


def _remarks(run: StoredRun, request: Rescore, prior: PriorResults) -> dict[str, Any]:
    remarks = {"rescored": run.document["run"]["id"], **prior.reference_name}
    if request.allow_unread:
        remarks["allow_unread"] = True
    return remarks


def baseline_of(
    request: Rescore, reason: str, schema: Schema | None = None
) -> tuple[bytes, int, int, list[str]]:
    """Return a baseline of a finished run: its bytes, numbers of findings and samples, and notes.

    Args:
        request: which run; `output`, `fail_on` and `baseline` do not matter.
        reason: why these findings are accepted.
        schema: as in `rescore`.

    Raises:
        UsageError: there is no such run, or its rows lack measurements that its schema needs.
    """
    run = read_stored_run(request.run, schema)
    prior = read_prior_results(run.declared, request.reference, None)
    with run_documents.reading(request.run):
        results = _judge(run, request, prior).results
    accepted = [finding for finding in results.findings if finding.severity is not Severity.INFO]
    samples = {int(row) for finding in accepted for row in finding.rows}
    started = run.document["run"]["started"]
    data = make(accepted, run.state.table, run.declared.name, started, reason)
    return data, len(accepted), len(samples), run.skipped_checks("baseline")


def without_checks(schema: Schema) -> Schema:
    """Return the schema of a run without its own checks.

    Otherwise whoever shares a run would choose which modules its reader imports.
    """
    rules = {code: spec for code, spec in schema.rules.items() if code not in schema.checks}
    return schema.model_copy(update={"checks": (), "rules": rules}) if schema.checks else schema


def not_run(schema: Schema, command: str) -> list[str]:
    """Return a sentence that names the checks of a run's schema that did not run, and the remedy.

    Empty where the schema has no checks of its own.
    """
    if not schema.checks:
        return []
    more = f" and {len(schema.checks) - _NAMED} more" if len(schema.checks) > _NAMED else ""
    names = f"{', '.join(schema.checks[:_NAMED])}{more}"
    why = "modules that only the schema.yaml of a run names are not imported"
    return [f"own checks not run ({names}): {why}. Name the schema: {command} --schema FILE"]


# --------------------------------------------------------------------------------- the stored run


def read_stored_run(folder: Path, schema: Schema | None) -> StoredRun:
    """Read a finished run and put a schema in force for it.

    Args:
        folder: of the run, or the folder of all runs for the newest.
        schema: the caller's; None: the run's own.

    Raises:
        UsageError: there is no such run, it is the run of a loader, or a file that the schema names
            is missing or not as it was scanned.
    """
    state, document, own_schema = read_run(
        folder,
        lambda place, document: (read_state(place), document, run_documents.read_schema(place)),
    )
    if not state.measured:
        msg = (
            f"{folder}: is of a loader, and its samples must be read to be judged, since nothing "
            f"tells whether its "
            f"code has changed. Scan it again: --loader {document['dataset']['root']}; datacheck "
            f"report {folder} prints "
            "what it found"
        )
        raise UsageError(msg)
    trusted = schema is not None
    declared = own_schema if schema is None else schema
    if not trusted:
        _check_named_files(declared, state)
    listing = state.listing
    placed = declared.placed(listing.roots, listing.root)
    in_force, _ = with_stated_values(placed, listing.root, listing.roots)
    # Only documents of LeRobot datasets that are as they were scanned.
    rates = with_rate(in_force, listing, sorted(set(state.table.files)))
    new_notes = [note for note in rates.notes if note not in state.notes]
    written = state.written and not new_notes
    state = replace(state, notes=[*state.notes, *new_notes], written=written)
    return StoredRun(folder, document, state, declared, rates, trusted)


def _check_named_files(schema: Schema, state: RunState) -> None:
    """Refuse a run whose schema names a file that is not as it was scanned.

    Whoever shares a run may name any file in its schema.

    Raises:
        UsageError: there is such a file.
    """
    root, roots = state.listing.root, state.listing.roots
    paths = [
        path_of(spec.stats, roots)
        for spec in schema.fields.values()
        if spec.stats and spec.stats.file
    ]
    classes = schema.loader.get("keep_classes") if schema.loader is not None else None
    if isinstance(classes, str):
        paths.append(classes)
    for path in paths:
        if stat_entry(root, path, roots) is not None and not state.listing.holds(path):
            msg = (
                f"{path}: the schema of the run names it, but it is not what was scanned. Scan the "
                f"data again, or name "
                "the schema (--schema FILE)"
            )
            raise UsageError(msg)


# ----------------------------------------------------------------------------------------- judging


def _judge(run: StoredRun, request: Rescore, prior: PriorResults) -> Judged:
    """Judge all rows of a run.

    Raises:
        UsageError: the schema needs measurements that the run lacks, or an option or a waiver is
            wrong.
    """
    rates = run.rates
    if not run.trusted:
        rates = rates._replace(schema=without_checks(rates.schema))
    own_modules = request.paths if run.trusted else ()
    criteria = choose_criteria(
        rates, run.level, prior, own_modules, allow_unread=request.allow_unread
    )
    needed = MeasurementSettings.of(rates.schema, criteria.measures, run.level, outside=run.trusted)
    try:
        stored = MeasurementSettings.from_json(run.state.measured)
        missing = list(missing_measurements(stored, needed, criteria.measures))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise run_documents.unread(run.folder, error) from error
    _check_measured(run, missing)
    no_second_read = _NoSecondRead()
    read_pairs = CachedSecondRead(no_second_read, run.state.pairs)
    judged = judge_run(run.state, criteria, read_pairs, run.folder)
    codes = sorted(no_second_read.rule_codes)
    _check_measured(run, [f"rule {code} compares samples in pairs" for code in codes])
    return judged


def _check_measured(run: StoredRun, missing: Sequence[str]) -> None:
    if missing:
        more = f"; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        msg = (
            f"{run.folder}: these rows cannot answer that, the data must be read: "
            f"{'; '.join(missing[:_NAMED])}{more}. "
            f"Scan {run.state.listing.root} with that schema."
        )
        raise UsageError(msg)


class _NoSecondRead:
    """A `PairReader` that reads nothing and remembers which rules asked for a second read."""

    def __init__(self) -> None:
        self.rule_codes: set[str] = set()

    def __call__(
        self, rule: Rule, case: RuleContext, split: str, rows: Rows, pairs: Array
    ) -> Mapping[str, Array]:
        del case, split, rows, pairs
        self.rule_codes.add(rule.code)
        return {}
