"""All checks of what a loader promises: notes for the rules DC904 and DC905, and what is unknown.

The requested index must decide which sample is served. `determinism` checks that its bytes are the
same again, `file_comparison` that no sample of the files is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from datacheck.model.finding import Report
from datacheck.model.table import Note
from datacheck.rules.base import pluralize
from datacheck.rules.selection import CONTRACT
from datacheck.scan.loader_audit.determinism import DeterminismPasses
from datacheck.scan.loader_audit.file_comparison import length_notes
from datacheck.scan.loader_audit.first_pass import AuditProgress, FirstPass, ServedIndex, spread
from datacheck.scan.loader_audit.loader_process import Loader
from datacheck.scan.loader_audit.sample_builder import sample_digest
from datacheck.scan.scan_run import Audit, ScanRun
from datacheck.workers.budget import Limits
from datacheck.workers.child import Death

# Kinds of notes: with these faults, a second pass compares samples of different indices.
INDEX_FAULTS = frozenset({"index-ignored", "constant"})

_PROBED = 8  # indices that are read several times
_ROUNDS = 4
# Samples that must be equal before "every index gives one sample" is more than chance.
_LEAST_EQUAL = 3


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
    probed = spread(sorted(first_pass.field_digests), _PROBED)
    unchecked = list(_samples_read_once(first_pass))
    loader = Loader(audit.factory, first_pass.whole, limits)
    try:
        answers = _probe_repeatedly(loader, probed)
        digests = [(index, sample_digest(of_fields)) for index, of_fields in answers]
        notes = list(_index_notes(first_pass.served, digests))
        notes += _past_end_notes(loader, first_pass.served)
    finally:
        loader.close()
    if not any(note.about["kind"] in INDEX_FAULTS for note in notes):
        progress.doing = "reading again"
        passes = DeterminismPasses(first_pass, limits, lambda: progress.tell(first_pass.length))
        notes += passes.notes(answers)
    if files is not None and audit.files is not None:
        dropped, unknown = length_notes(first_pass.length, audit.split, files, audit.files)
        notes += dropped
        unchecked += [unknown] if unknown else []
        unchecked += _findings_of_files(files.report)
    in_split = [replace(note, split=audit.split) for note in notes]
    return ContractChecks(in_split, unchecked, bool(probed))


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


# ------------------------------------------------------------------------------------------- index


def _probe_repeatedly(loader: Loader, items: Sequence[int]) -> list[tuple[int, dict[str, int]]]:
    """Return (index, digests) of indices read several times in turn, in one process.

    [] where the process dies.
    """
    if not items:
        return []
    answer, death = loader.run("probe", {"items": list(items), "rounds": _ROUNDS})
    return [] if death is not None else [(index, digests) for index, digests in answer["probed"]]


def _index_notes(served: ServedIndex, answers: Sequence[tuple[int, int]]) -> Iterator[Note]:
    """Yield notes about indices that do not serve their own sample.

    Args:
        served: the first pass.
        answers: (index, digest) of the indices that were read again.
    """
    digests = served.digests[served.digests != 0]
    if len(digests) >= _LEAST_EQUAL and bool((digests == digests[0]).all()):
        yield _dataset_note("constant", samples=len(digests))
        return
    distinct = set(digests.tolist())
    moved = [(i, d) for i, d in answers if d != served.digests[i] and d in distinct]
    novel = [i for i, d in answers if d != served.digests[i] and d not in distinct]
    if len(moved) >= 2 and len(moved) > len(novel):
        index, digest = moved[0]
        actual = int(np.flatnonzero(served.digests == np.uint64(digest))[0])
        yield _dataset_note(
            "index-ignored",
            asked=len(answers),
            moved=len(moved),
            distinct=len(distinct),
            samples=len(digests),
            key=served.keys[index],
            other=served.keys[actual],
        )
        return
    for index, passed_on in sorted(served.instead.items()):
        yield Note(
            CONTRACT, served.keys[index], "", about={"kind": "substituted", "instead": passed_on}
        )


def _past_end_notes(loader: Loader, served: ServedIndex) -> Iterator[Note]:
    """Yield a note where the first index past the end is served, recurses or hangs."""
    answer, death = loader.run("read_past_end", {"items": [loader.length]})
    if isinstance(death, Death):
        yield _dataset_note("beyond", length=loader.length, how=death.how.strip().splitlines()[-1])
    elif answer.get("kind") == "RecursionError":
        yield _dataset_note("beyond", length=loader.length, how="RecursionError")
    elif "digests" in answer:
        matching = np.flatnonzero(served.digests == np.uint64(sample_digest(answer["digests"])))
        yield _dataset_note(
            "beyond",
            length=loader.length,
            key=served.keys[int(matching[0])] if len(matching) else "",
        )


def _dataset_note(kind: str, **about: Any) -> Note:
    """Return a note on the loader as a whole."""
    return Note(CONTRACT, "", "", about={"kind": kind, **about})
