"""The audit of a loader from start to end; see the package for its parts."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from datacheck.model.finding import Progress
from datacheck.scan.loader_audit.contract_checks import check_contract
from datacheck.scan.loader_audit.first_pass import AuditProgress, read_loader
from datacheck.scan.loader_audit.loader_process import Audit
from datacheck.scan.loader_audit.loader_report import loader_run
from datacheck.scan.loader_audit.loader_rules import choose_loader_criteria, judge_loader
from datacheck.scan.prior_results import read_prior_results
from datacheck.scan.run import run_scan
from datacheck.scan.run_dir import Journal, run_location
from datacheck.scan.run_writer import publish
from datacheck.scan.scan_run import Request, ScanRun
from datacheck.schema.model import Schema


def run_audit(
    schema: Schema, audit: Audit, request: Request, progress: Progress | None = None
) -> ScanRun:
    """Scan what a loader returns and write the run's files.

    Args:
        schema: what its samples promise.
        audit: the loader.
        request: as for a scan; `data` are the files that it reads.
        progress: called after each batch.

    Raises:
        UsageError: the loader cannot be built, or an option or a waiver is wrong.
        StorageError: the results cannot be written.

    Notes:
        Never incremental, since changes of the user's code cannot be detected.
    """
    prior = read_prior_results(schema, request.reference, request.baseline)
    files = _scan_files(audit, request, progress)
    began = time.time()
    criteria = choose_loader_criteria(schema, audit, request)
    place = run_location(schema, Path(audit.factory), audit.split or "loader", {}, request.output)
    audit_progress = AuditProgress(progress)
    first_pass = read_loader(
        criteria.schema, audit, request.limits, criteria.measures, audit_progress
    )
    checks = check_contract(first_pass, audit, request.limits, files, audit_progress)
    results, silenced = judge_loader(criteria, first_pass, checks, prior, files, audit.split)
    unchecked = [*checks.unchecked, *silenced]
    contents = loader_run(schema, request, criteria, first_pass, prior, results, unchecked, began)
    journal = Journal(place, "")
    with journal.held():
        report = publish(contents, place, journal)
    state = contents.state
    return ScanRun(report, state.table, state.listing, results.valid, results.codes, schema)


def _scan_files(audit: Audit, request: Request, progress: Progress | None) -> ScanRun | None:
    if audit.files is None:
        return None
    # Output, reference and baseline are those of the loader's run.
    options = replace(request, output=None, reference=None, baseline=None)
    return run_scan(audit.files, options, progress)
