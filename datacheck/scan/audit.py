"""A scan of what a user's loader returns: every sample read in a child, measured and judged, then asked for again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.digest import digest_bytes
from datacheck.finding import Finding, Progress, Report, Tick, Verdict
from datacheck.judging.bench import Bench
from datacheck.judging.judge import Judged, judge
from datacheck.judging.select import CONTRACT, NONDETERMINISM, Choice, choose_rules, measures_of, of_samples
from datacheck.judging.served import served
from datacheck.registry import find_in
from datacheck.rules import rules_for
from datacheck.rules.base import counted
from datacheck.sample import Block, Depth
from datacheck.scan import places
from datacheck.scan.baseline import apply as apply_baseline
from datacheck.scan.baseline import read as read_baseline
from datacheck.scan.contract import (
    Served,
    ask_again,
    combined,
    made_by_loader,
    of_end,
    of_index,
    of_length,
)
from datacheck.scan.loader import Answer, Loader, Shaper, read_all, whole_fields
from datacheck.scan.passes import First, Passes, spread
from datacheck.scan.reference import named_reference, read_reference
from datacheck.scan.runner import Request, ScanRun, publish, run_scan
from datacheck.scan.state import Past, Slots
from datacheck.scan.summary import Facts, report_of
from datacheck.scan.worker import checked_rows, unread_rows
from datacheck.schema.model import Schema
from datacheck.sources import with_label_table, with_stats
from datacheck.sources.base import Part, Unread, blocks
from datacheck.sources.entries import Entries
from datacheck.sources.listing import Listing
from datacheck.table import Note, Table, concatenate

Array = np.ndarray[Any, Any]

COMPARED = 2000

_ASKED_AGAIN = 8
_UNREADABLE, _DUPLICATE = "DC101", "DC803"


@dataclass(frozen=True)
class Audit:
    """What is asked of a loader.

    Args:
        factory: ``module:function``; called without arguments it returns a map-style dataset.
        files: the schema of the files that it reads (they are `Request.data`), None where they are not scanned.
        split: the split that it serves, "" where there is one only.
        compared: how many samples are read a second time.
    """

    factory: str
    files: Schema | None = None
    split: str = ""
    compared: int = COMPARED


def run_audit(schema: Schema, audit: Audit, request: Request, progress: Progress | None = None) -> ScanRun:
    """Scan what a loader returns and write the run's files.

    Args:
        schema: what its samples promise.
        audit: the loader.
        request: as for a scan; `data` are the files that it reads.
        progress: called after each batch.

    Raises:
        UsageError: the loader cannot be built, an option or a waiver is wrong.
        StorageError: the results cannot be written.

    Notes:
        Never incremental: nothing tells whether the user's code has changed.
    """
    of_files = replace(request, output=None, reference=None, baseline=None)
    files = None if audit.files is None else run_scan(audit.files, of_files, progress)
    began = time.time()
    root = Path.cwd() if audit.files is None else request.data
    told = with_label_table(with_stats(schema.placed((), root), root, request.roots)[0], root, request.roots)[0]
    placed = served(told.for_split(audit.split))
    baseline = None if request.baseline is None else read_baseline(request.baseline)
    reference = None if request.reference is None else read_reference(request.reference, schema)
    find_in(request.paths)
    choices = [of_samples(choice) for choice in choose_rules(placed, rules_for(placed), _level(request))]
    place = places.place_of(schema, Path(audit.factory), audit.split or "loader", {}, request.output)
    seen = _First(placed, audit, request, choices, progress)
    seen.read()
    notes, unseen = _contract(seen, audit, files)
    choices = _without_nondeterminism(choices, notes, seen)
    judged = judge(seen.table, placed, choices, notes, seen.crashes, reference)
    notes += [] if files is None else made_by_loader(judged, seen.table.keys, files, audit.split)
    if codes := _consequences(notes):
        choices = [_after_contract(choice, codes) for choice in choices]
        judged = judge(seen.table, placed, choices, notes, seen.crashes, reference)
    judged = replace(judged, findings=[_of_loader(finding) for finding in judged.findings])
    judged, silenced = (judged, []) if baseline is None else apply_baseline(baseline, judged, seen.table)
    state = _state(audit, seen)
    report = _report(schema, state, request, seen, judged, began, [*unseen, *silenced])
    journal = places.Journal(place, "")
    with journal.held():
        folder = publish(report, schema, judged, state, {}, place, journal)
    report = replace(report, folder=str(folder))
    return ScanRun(report, seen.table, state.listing, judged.valid, judged.codes, schema)


# ------------------------------------------------------------------------------------------ rules


def _without_nondeterminism(choices: Sequence[Choice], notes: Sequence[Note], seen: _First) -> list[Choice]:
    """Return the choices; where nothing was compared, or the index decides nothing, bytes that differ say nothing."""
    why = "" if seen.again() else "no sample was read a second time"
    if any(n.code == CONTRACT and n.about["kind"] in {"index-ignored", "constant"} for n in notes):
        why = f"{CONTRACT}: the index that is asked for is not the one that is served"
    return [
        replace(c, verdict=Verdict.SKIP, why=why) if why and c.rule.code == NONDETERMINISM and not c.verdict else c
        for c in choices
    ]


def _of_loader(finding: Finding) -> Finding:
    if finding.code != _UNREADABLE:
        return finding
    return replace(finding, fix="Mend the loader or the data that it reads, or leave these samples out.")


def _consequences(notes: Sequence[Note]) -> set[str]:
    """Return the rules that fail because of the loader: they do not judge the samples that it made."""
    kinds = {note.about["kind"] for note in notes if note.code == CONTRACT}
    made = {note.about["rule"] for note in notes if note.code == CONTRACT and note.about["kind"] == "made"}
    return made | ({_DUPLICATE} if "substituted" in kinds else set())


def _after_contract(choice: Choice, codes: set[str]) -> Choice:
    rule = choice.rule
    follows = rule.code in codes or not codes.isdisjoint(rule.needs)
    return replace(choice, rule=replace(rule, needs=(*rule.needs, CONTRACT))) if follows else choice


# ------------------------------------------------------------------------------------------ the first pass


@dataclass(eq=False)
class _Progress:
    told: Progress | None
    samples: int = 0
    nbytes: int = 0
    doing: str = "reading"

    def __call__(self, length: int) -> None:
        if self.told is not None:
            self.told(Tick(self.samples, length, 0, 0, self.samples, 0, self.doing))


def _level(request: Request) -> Depth:
    """Return how deep what a loader returns is judged; its size is not known beforehand."""
    return request.level or "numeric"


class _First:
    """The first pass: every sample read once, in order, in one process; what rules and later passes need of it."""

    def __init__(
        self, schema: Schema, audit: Audit, request: Request, choices: Sequence[Choice], progress: Progress | None
    ) -> None:
        self.audit, self.request = audit, request
        self.whole = whole_fields(schema)
        self.loader = Loader(audit.factory, self.whole, request.limits)
        self.table, self.deaths = Table(), list[dict[str, str]]()
        self._bench = Bench(schema, measures_of(choices, _level(request)))
        self._shaper = Shaper(schema, audit.factory)
        self._tell = _Progress(progress)
        self._fields: dict[int, dict[str, int]] = {}
        self._instead: dict[int, tuple[int, bool]] = {}

    def read(self) -> None:
        """Read everything.

        Raises:
            UsageError: the loader cannot be built.
        """
        loader = self.loader
        try:
            loader.build()
            self.length = loader.length
            self.digests = np.zeros(self.length, np.uint64)
            self._compared = set(spread(self.length, self.audit.compared))
            self._tell(self.length)
            tables = [self._rows(got) for got in blocks(self._parts(), self.audit.split)]
        finally:
            loader.close()
        self.table = concatenate(tables)

    def _parts(self) -> Iterator[Part]:
        for answer in read_all(self.loader):
            self._remember(answer)
            yield self._shaper.piece(answer)
            self._tell.samples += 1
            if self._tell.samples % 64 == 0:
                self._tell(self.length)

    def _remember(self, answer: Answer) -> None:
        index = int(answer["index"])
        if "crash" in answer:
            self.deaths.append({"rule": "", "at": f"index {index}", "traceback": answer["error"]})
        if "error" in answer:
            return
        self.digests[index] = combined(answer["digests"])
        if answer["instead"] is not None:
            other, inner = answer["instead"]
            self._instead[index] = other, inner
        if index in self._compared:
            self._fields[index] = answer["digests"]

    def _rows(self, got: Block | Unread) -> Table:
        if isinstance(got, Unread):
            return unread_rows([got], self.audit.factory, self.audit.split)
        return checked_rows(got, self._bench.measure(got))

    @property
    def crashes(self) -> list[dict[str, str]]:
        """Measurements that failed."""
        return list(self._bench.crashes.values())

    @property
    def undeclared(self) -> set[str]:
        """Fields that the schema does not list."""
        return self._bench.undeclared

    @property
    def served(self) -> Served:
        """What is known of every index."""
        keys = self._shaper.keys
        instead = {
            index: f"item {other} of the dataset inside" if inner else keys[other]
            for index, (other, inner) in self._instead.items()
        }
        return Served(keys, self.digests, instead)

    def passes(self) -> Passes:
        """Return the further passes."""
        first = First(self._shaper.keys, self._fields)
        self._tell.doing = "reading again"
        tell: Callable[[], None] = lambda: self._tell(self.length)  # noqa: E731
        return Passes(self.audit.factory, self.whole, self.request.limits, first, tell)

    def again(self) -> list[int]:
        """Return the indices that are asked for again and again."""
        readable = sorted(self._fields)
        return [readable[place] for place in spread(len(readable), _ASKED_AGAIN)]

    def unseen(self) -> Iterator[str]:
        """Yield what was not looked at."""
        readable = int(np.count_nonzero(self.digests))
        if 0 < len(self._fields) < readable:
            yield (
                f"{readable - len(self._fields):,} of {readable:,} samples were read once: a second pass compares "
                f"{len(self._fields):,}, evenly spread (--compare)"
            )


def _contract(seen: _First, audit: Audit, files: ScanRun | None) -> tuple[list[Note], list[str]]:
    """Return the notes about determinism and contract, and what could not be looked at."""
    unseen = list(seen.unseen())
    loader = Loader(audit.factory, seen.whole, seen.request.limits)
    try:
        answers = ask_again(loader, seen.again())
        notes = list(of_index(seen.served, [(index, combined(digests)) for index, digests in answers]))
        notes += of_end(loader, seen.served)
    finally:
        loader.close()
    if not any(note.about["kind"] in {"index-ignored", "constant"} for note in notes):
        notes += seen.passes().notes(answers)
    if files is not None and audit.files is not None:
        found, words = of_length(seen.length, audit.split, files, audit.files)
        notes += found
        unseen += [words] if words else []
        unseen += list(_of_the_files(files.report))
    return [replace(note, split=audit.split) for note in notes], unseen


def _of_the_files(report: Report) -> Iterator[str]:
    counts = report.counts()
    if counts["error"] or counts["warning"]:
        yield (
            f"the files have findings of their own ({counted(counts['error'], 'error')}, "
            f"{counted(counts['warning'], 'warning')}): see {report.folder}"
        )


def _state(audit: Audit, seen: _First) -> Past:
    listing = Listing(Path(audit.factory), Entries.of([]))
    undeclared = sorted(seen.undeclared)
    return Past(listing, "", Slots([], [], {}), seen.table, undeclared=undeclared, deaths=seen.deaths)


def _report(
    schema: Schema, state: Past, request: Request, seen: _First, judged: Judged, began: float, unseen: Sequence[str]
) -> Report:
    facts = Facts(schema, state.listing.root, state, began, 0, 0, _level(request))
    report = report_of(facts, request.command, request.fail_on, judged)
    digest = digest_bytes(np.ascontiguousarray(seen.digests, dtype="<u8").tobytes())
    dataset = report.dataset | {"digest": digest, "bytes": int(seen.table.nbytes.sum())}
    run = report.run | named_reference(request.reference)
    return replace(report, run=run, dataset=dataset, unchecked=[*unseen, *report.unchecked])
