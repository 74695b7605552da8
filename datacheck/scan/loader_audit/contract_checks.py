"""All checks of what a loader promises: notes for the rules DC904 and DC905, and what is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from datacheck.model.finding import Report
from datacheck.model.table import Note
from datacheck.rules.base import pluralize
from datacheck.scan.loader_audit.determinism import DeterminismPasses, FirstPassDigests, spread
from datacheck.scan.loader_audit.file_comparison import length_notes
from datacheck.scan.loader_audit.first_pass import AuditProgress, FirstPass
from datacheck.scan.loader_audit.index_checks import (
    INDEX_FAULTS,
    index_notes,
    past_end_notes,
    probe_repeatedly,
    sample_digest,
)
from datacheck.scan.loader_audit.loader_process import Audit, Loader
from datacheck.scan.scan_run import ScanRun
from datacheck.workers.budget import Limits

_PROBED = 8  # indices that are read several times


@dataclass(frozen=True, eq=False)
class ContractChecks:
    """The results of all checks.

    Args:
        notes: for the rules about the contract and about determinism.
        unchecked: sentences on what was not checked.
        probed: whether a sample was read a second time.
    """

    notes: list[Note]
    unchecked: list[str]
    probed: bool


def check_contract(
    first_pass: FirstPass,
    audit: Audit,
    limits: Limits,
    files: ScanRun | None,
    progress: AuditProgress,
) -> ContractChecks:
    """Read some indices again, and compare the loader with itself and with its files.

    Args:
        first_pass: what it has served.
        audit: the loader.
        limits: of time and memory, per sample.
        files: the scan of the files that it reads, None where they were not scanned.
        progress: reports each pass.
    """
    probed = _probed_indices(first_pass)
    unchecked = list(_samples_read_once(first_pass))
    loader = Loader(audit.factory, first_pass.whole, limits)
    try:
        answers = probe_repeatedly(loader, probed)
        digests = [(index, sample_digest(of_fields)) for index, of_fields in answers]
        notes = list(index_notes(first_pass.served, digests))
        notes += past_end_notes(loader, first_pass.served)
    finally:
        loader.close()
    if not any(note.about["kind"] in INDEX_FAULTS for note in notes):
        progress.doing = "reading again"
        passes = DeterminismPasses(
            audit.factory,
            first_pass.whole,
            limits,
            FirstPassDigests(first_pass.served.keys, first_pass.field_digests),
            lambda: progress.tell(first_pass.length),
        )
        notes += passes.notes(answers)
    if files is not None and audit.files is not None:
        dropped, unknown = length_notes(first_pass.length, audit.split, files, audit.files)
        notes += dropped
        unchecked += [unknown] if unknown else []
        unchecked += _findings_of_files(files.report)
    in_split = [replace(note, split=audit.split) for note in notes]
    return ContractChecks(in_split, unchecked, bool(probed))


def _probed_indices(first_pass: FirstPass) -> list[int]:
    readable = sorted(first_pass.field_digests)
    return [readable[place] for place in spread(len(readable), _PROBED)]


def _samples_read_once(first_pass: FirstPass) -> Iterator[str]:
    readable = int(np.count_nonzero(first_pass.served.digests))
    compared = len(first_pass.field_digests)
    if 0 < compared < readable:
        yield (
            f"{readable - compared:,} of {readable:,} samples were read once: a second pass "
            f"compares {compared:,}, evenly spread (--compare)"
        )


def _findings_of_files(report: Report) -> list[str]:
    counts = report.counts()
    if not (counts["error"] or counts["warning"]):
        return []
    return [
        f"the files have findings of their own ({pluralize(counts['error'], 'error')}, "
        f"{pluralize(counts['warning'], 'warning')}): see {report.folder}"
    ]
