"""Judge a finished run again without its data: with other thresholds, or to make a baseline.

A rescore reads the rows that a run has stored (`stored_run`), checks that they hold all
measurements that the schema needs, and judges and writes them as a scan does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datacheck.errors import UsageError
from datacheck.scan import run_documents
from datacheck.scan.baseline import BASELINE_BYTES, accepted, make
from datacheck.scan.judging import Judged, choose_criteria, judge_run
from datacheck.scan.pairs import CachedSecondRead, NoSecondRead
from datacheck.scan.prior_results import PriorResults, read_prior_results
from datacheck.scan.run_dir import Journal, run_location
from datacheck.scan.run_writer import RunContents, publish
from datacheck.scan.scan_run import FailOn, ScanRun
from datacheck.scan.stored_run import StoredRun, read_stored_run, without_checks
from datacheck.scan.summary import RunContext, report_of
from datacheck.schema.model import Schema

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
    findings = accepted(results.findings)
    samples = {int(row) for finding in findings for row in finding.rows}
    started = run.document["run"]["started"]
    data = make(findings, run.state.table, run.declared.name, started, reason)
    if len(data) > BASELINE_BYTES:
        msg = (
            f"{request.run}: its findings make a baseline of {len(data):,} bytes; at most "
            f"{BASELINE_BYTES:,} are read. Waive whole rules in the schema instead."
        )
        raise UsageError(msg)
    return data, len(findings), len(samples), run.skipped_checks("baseline")


def _judge(run: StoredRun, request: Rescore, prior: PriorResults) -> Judged:
    """Judge all rows of a run.

    Raises:
        UsageError: the schema needs measurements that the run lacks, or an option or a waiver is
            wrong.
    """
    rates = run.rates
    if not run.trusted:
        rates = rates._replace(schema=without_checks(rates.schema))
    own_modules = request.paths if run.trusted else None
    criteria = choose_criteria(
        rates, run.level, prior, own_modules, allow_unread=request.allow_unread
    )
    _check_measured(run, run.missing_measurements(criteria))
    no_second_read = NoSecondRead()
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
