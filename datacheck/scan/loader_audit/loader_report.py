"""The run of a loader: its report, and a state without files, so that no later scan reuses rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from datacheck.rules.engine import RuleResults
from datacheck.runtime.hashing import digest_bytes
from datacheck.scan.loader_audit.first_pass import FirstPass
from datacheck.scan.loader_audit.loader_rules import LoaderCriteria
from datacheck.scan.prior_results import PriorResults
from datacheck.scan.run_state import RunState, Slots
from datacheck.scan.run_writer import RunContents
from datacheck.scan.scan_run import Request
from datacheck.scan.summary import RunContext, report_of
from datacheck.schema.model import Schema
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Entries


def loader_run(
    schema: Schema,
    request: Request,
    criteria: LoaderCriteria,
    first_pass: FirstPass,
    prior: PriorResults,
    results: RuleResults,
    unchecked: Sequence[str],
    began: float,
) -> RunContents:
    """Return what the files of an audit's run hold.

    Args:
        schema: as the user wrote it.
        request: the options.
        criteria, prior: what the samples were judged by.
        first_pass: the samples.
        results: the verdicts and findings.
        unchecked: sentences on what was not checked.
        began: seconds since 1970.
    """
    state = RunState(
        Listing(Path(first_pass.factory), Entries.of([])),
        "",
        Slots([], [], {}),
        first_pass.table,
        undeclared=sorted(first_pass.undeclared),
        deaths=first_pass.deaths,
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
    digests = np.ascontiguousarray(first_pass.served.digests, dtype="<u8")
    dataset = report.dataset | {
        "digest": digest_bytes(digests.tobytes()),
        "bytes": int(first_pass.table.nbytes.sum()),
    }
    report = replace(report, dataset=dataset, unchecked=[*unchecked, *report.unchecked])
    return RunContents(report, results, schema, state, {})
