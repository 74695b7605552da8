"""The audit of a loader from start to end; see the package for its parts."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from datacheck.model.finding import Progress
from datacheck.runtime.hashing import digest_bytes
from datacheck.scan.loader_audit.contract_checks import check_contract
from datacheck.scan.loader_audit.first_pass import AuditProgress, FirstPass, read_loader
from datacheck.scan.loader_audit.loader_rules import choose_loader_criteria, judge_loader
from datacheck.scan.prior_results import read_prior_results
from datacheck.scan.run import run_scan
from datacheck.scan.run_dir import Journal, run_location
from datacheck.scan.run_state import RunState
from datacheck.scan.run_writer import RunContents, publish
from datacheck.scan.scan_run import Audit, Request, ScanRun
from datacheck.scan.summary import RunContext, report_of


def run_audit(audit: Audit, request: Request, progress: Progress | None = None) -> ScanRun:
    """Scan what a loader returns and write the run's files.

    Args:
        audit: the loader, and what its samples promise.
        request: as for a scan; `data` are the files that it reads.
        progress: called after each batch.

    Raises:
        UsageError: the loader cannot be built, or an option or a waiver is wrong.
        StorageError: the results cannot be written.

    Notes:
        Never incremental, since changes of the user's code cannot be detected.
    """
    audit = replace(audit, schema=audit.schema.with_tokenizer(request.tokenizer, request.trainer))
    schema = audit.schema
    prior = read_prior_results(schema, request.reference, request.baseline)
    files = _scan_files(audit, request, progress)
    began = time.time()
    criteria = choose_loader_criteria(audit, request, prior)
    place = run_location(schema, Path(audit.factory), audit.split or "loader", {}, request.output)
    audit_progress = AuditProgress(progress)
    first_pass = read_loader(
        criteria.rates.schema, audit, request.limits, criteria.measures, audit_progress
    )
    checks = check_contract(first_pass, audit, request.limits, files, audit_progress)
    results, silenced = judge_loader(criteria, first_pass, checks, files, audit.split)
    state = RunState.of_loader(
        audit.factory, first_pass.table, first_pass.undeclared, first_pass.deaths
    )
    facts = RunContext(
        schema=schema,
        data=state.listing.root,
        state=state,
        began=began,
        kept_files=0,
        kept_samples=0,
        level=criteria.level,
        remarks=prior.reference_name,
    )
    report = report_of(facts, request.command, request.fail_on, results)
    report = replace(
        report,
        dataset=report.dataset | _digest_and_size(first_pass),
        unchecked=[*checks.unchecked, *silenced, *report.unchecked],
    )
    journal = Journal(place, "")
    with journal.held():
        report = publish(RunContents(report, results, schema, state, {}), place, journal)
    return ScanRun(report, state.table, state.listing, results.valid, results.codes, schema)


def _scan_files(audit: Audit, request: Request, progress: Progress | None) -> ScanRun | None:
    if audit.files is None:
        return None
    # Output, reference and baseline are those of the loader's run.
    options = replace(request, output=None, reference=None, baseline=None)
    return run_scan(audit.files, options, progress)


def _digest_and_size(first_pass: FirstPass) -> dict[str, str | int]:
    """Return digest and bytes of the samples, which stand for those of the files."""
    digests = np.ascontiguousarray(first_pass.served.digests, dtype="<u8")
    return {"digest": digest_bytes(digests.tobytes()), "bytes": int(first_pass.table.nbytes.sum())}
