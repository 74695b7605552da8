"""Audits a loader: does it serve the requested samples, all of them, and none of its own making?"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.cache.windows import Windows
from datacheck.model.finding import Finding, Progress, Report, Severity, Tick, Verdict
from datacheck.model.sample import Block, Depth
from datacheck.model.table import CHECKED, UNREADABLE, Note, Table, concatenate
from datacheck.plugins import add_module_folders
from datacheck.rules import rules_for
from datacheck.rules.base import pluralize
from datacheck.rules.engine import RuleResults, judge
from datacheck.rules.measurement import MeasurementRunner
from datacheck.rules.selection import (
    CONTRACT,
    NONDETERMINISM,
    Choice,
    choose_rules,
    for_loader,
    measures_of,
    served,
)
from datacheck.runtime.hashing import digest64, digest_bytes
from datacheck.scan import run_dir
from datacheck.scan.baseline import apply as apply_baseline
from datacheck.scan.baseline import read as read_baseline
from datacheck.scan.loader_process import (
    Answer,
    DeterminismPasses,
    FirstPassDigests,
    Loader,
    PieceBuilder,
    read_all,
    spread,
    whole_fields,
)
from datacheck.scan.previous_runs import PreviousRun, Slots, named_reference, read_reference
from datacheck.scan.run import Request, ScanRun, publish, run_scan
from datacheck.scan.summary import RunContext, report_of
from datacheck.scan.worker import checked_rows, unread_rows
from datacheck.schema.model import Schema
from datacheck.sources import with_label_table, with_stats
from datacheck.sources.base import Part, Unread, blocks
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Entries
from datacheck.workers.child import Death

Array = np.ndarray[Any, Any]

_PROBED = 8
_ROUNDS = 4
# Samples that must be equal before "every index gives one sample" is more than chance.
_LEAST_EQUAL = 3
_CLEARLY_LARGER = 3.0  # factor by which a share of failures must exceed the share in the files
_STANDARD_ERRORS = 3.0  # by which it must exceed it, too
_DROPPED_MOST = 0.5  # if a larger share is missing, the loader counts otherwise and loses nothing


# ---------------------------------------------------------------------------------------- the index


@dataclass(frozen=True, eq=False)
class ServedIndex:
    """The first pass's results for every index.

    Shapes:
        digests: uint64 (indices), 0 where there is no sample

    Args:
        keys: by index.
        digests: of whole samples.
        instead: by requested index, the sample that the loader served instead, in words.
    """

    keys: Sequence[str]
    digests: Array
    instead: Mapping[int, str]


def probe_repeatedly(loader: Loader, items: Sequence[int]) -> list[tuple[int, dict[str, int]]]:
    """Return (index, digests) of indices read several times in turn, in one process.

    [] where the process dies.
    """
    if not items:
        return []
    said, death = loader.run("probe", {"items": list(items), "rounds": _ROUNDS})
    return [] if death is not None else [(index, digests) for index, digests in said["asked"]]


def index_notes(served: ServedIndex, answers: Sequence[tuple[int, int]]) -> Iterator[Note]:
    """Yield notes about indices that do not serve their own sample.

    Args:
        served: the first pass.
        answers: (index, digest) of the indices that were read again.
    """
    known = served.digests[served.digests != 0]
    if len(known) >= _LEAST_EQUAL and bool((known == known[0]).all()):
        yield _dataset("constant", samples=len(known))
        return
    others = set(known.tolist())
    moved = [(i, d) for i, d in answers if d != served.digests[i] and d in others]
    novel = [i for i, d in answers if d != served.digests[i] and d not in others]
    if len(moved) >= 2 and len(moved) > len(novel):
        index, digest = moved[0]
        other = int(np.flatnonzero(served.digests == np.uint64(digest))[0])
        yield _dataset(
            "index-ignored",
            asked=len(answers),
            moved=len(moved),
            distinct=len(others),
            samples=len(known),
            key=served.keys[index],
            other=served.keys[other],
        )
        return
    for index, passed_on in sorted(served.instead.items()):
        yield Note(
            CONTRACT, served.keys[index], "", about={"kind": "substituted", "instead": passed_on}
        )


def past_end_notes(loader: Loader, served: ServedIndex) -> Iterator[Note]:
    """Yield a note where the first index past the end is served, recurses or hangs."""
    said, death = loader.run("beyond", {"items": [loader.length]})
    if isinstance(death, Death):
        yield _dataset("beyond", length=loader.length, how=death.how.strip().splitlines()[-1])
    elif said.get("kind") == "RecursionError":
        yield _dataset("beyond", length=loader.length, how="RecursionError")
    elif "digests" in said:
        same = np.flatnonzero(served.digests == np.uint64(sample_digest(said["digests"])))
        yield _dataset(
            "beyond", length=loader.length, key=served.keys[int(same[0])] if len(same) else ""
        )


def sample_digest(digests: Mapping[str, int]) -> int:
    """Return one digest of a whole sample, never 0."""
    return (
        digest64(
            "".join(f"{name}\0{found:016x}\0" for name, found in sorted(digests.items())).encode()
        )
        or 1
    )


def _dataset(kind: str, **about: Any) -> Note:
    return Note(CONTRACT, "", "", about={"kind": kind, **about})


# -------------------------------------------------------------------------- compared with the files


def loader_failures(
    judged: RuleResults, keys: Sequence[str], files: ScanRun, split: str
) -> Iterator[Note]:
    """Yield a note for every sample that fails a rule only as the loader returns it.

    Args:
        judged: the results of the rules on the loader's samples.
        keys: of the rows.
        files: the scan of the files.
        split: the split that the loader serves, "" for all.

    Notes:
        Only rules that judged samples of the files count. Where samples of the files fail too, the
        loader's share of failures must be clearly larger: three times, and by three standard
        errors.
    """
    verdicts = {v.code: v for v in files.report.verdicts}
    checked = {v.code: v.checked for v in judged.verdicts}
    mine = np.array([not split or s == split for s in files.table.splits], dtype=bool)
    there = _by_code(files.report.findings)
    for code, findings in sorted(_by_code(judged.findings).items()):
        before = verdicts.get(code)
        if before is None or not before.checked:
            continue
        rows = sorted({int(row) for finding in findings for row in finding.rows})
        failed = {
            int(row) for finding in there.get(code, ()) for row in finding.rows if mine[int(row)]
        }
        of = min(before.checked, int((mine & (files.table.status == CHECKED)).sum()))
        if not _clearly_larger(len(rows), checked[code], len(failed), of):
            continue
        about = {
            "kind": "made",
            "rule": code,
            "name": findings[0].name,
            "says": findings[0].message,
            "fields": sorted({name for f in findings for name in f.fields}),
            "severity": findings[0].severity.value,
            "failed": len(failed),
            "of": of,
        }
        for row in rows:
            yield Note(CONTRACT, keys[row], "", about=about)


def _by_code(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        of_values = finding.code == "DC109" or finding.code[2] in "234567"
        if of_values and len(finding.rows) and finding.severity is not Severity.INFO:
            found.setdefault(finding.code, []).append(finding)
    return found


def _clearly_larger(failed: int, of: int, failed_before: int, of_before: int) -> bool:
    if not failed_before:
        return failed > 0
    share = failed / max(1, of)
    before = failed_before / max(1, of_before)
    both = (failed + failed_before) / max(1, of + of_before)
    error = (both * (1 - both) * (1 / max(1, of) + 1 / max(1, of_before))) ** 0.5
    return share >= _CLEARLY_LARGER * before and share - before >= _STANDARD_ERRORS * error


def length_notes(length: int, split: str, files: ScanRun, schema: Schema) -> tuple[list[Note], str]:
    """Return a note where the loader serves fewer samples than the files hold, and a sentence.

    The sentence says that this is unknown; else it is "".

    Args:
        length: of the loader's dataset.
        split: the split that it serves, "" where the user has not named it.
        files: the scan of the files.
        schema: of the files.
    """
    counts = _counts(files.table, split, schema)
    if any(length == count for _, _, count in counts):
        return [], ""
    enough = [found for found in counts if found[2] > length]
    where, unit, count = min(enough, key=lambda found: found[2]) if enough else ("", "", 0)
    if not enough or count - length > _DROPPED_MOST * count:
        said = ", ".join(f"{count:,} {unit}{where}" for where, unit, count in counts[:4])
        return (
            [],
            f"whether every sample of the files is served: the loader has {length:,}, the files "
            f"{said}",
        )
    reasons = _reasons(files, split or where.removeprefix(" of "), schema)
    why = [words for words, number in reasons.items() if number == count - length]
    return [_dataset("dropped", length=length, count=count, unit=unit, where=where, why=why)], ""


def _counts(table: Table, split: str, schema: Schema) -> list[tuple[str, str, int]]:
    """Return (split in words, unit, number) of all counts that a loader may serve."""
    splits = Counter(table.splits)
    wanted = [split] if split else [*sorted(name for name in splits if name), ""]
    counts = [
        (_of(name, splits), "samples", splits[name] if name else len(table)) for name in wanted
    ]
    steps = _steps(table, schema)
    if schema.windows is None or steps is None:
        return counts
    said = schema.windows
    windows = Windows(said.length, said.stride, said.pad, said.short).counts(steps)
    of_split = {
        name: np.array([s == name for s in table.splits]) if name else np.ones(len(table), bool)
        for name in wanted
    }
    return counts + [
        (_of(name, splits), "windows", int(windows[of_split[name]].sum())) for name in wanted
    ]


def _of(name: str, splits: Mapping[str, int]) -> str:
    return f" of {name}" if name else " in all" if len(splits) > 1 else ""


def _steps(table: Table, schema: Schema) -> Array | None:
    """Return the steps of each sample, 0 where unknown: int64 (rows); None without such a field."""
    names = [name for name, spec in sorted(schema.stored.items()) if spec.ragged == "T"]
    for name in sorted(names, key=lambda name: schema.fields[name].role != "action"):
        found = table.columns.get(f"{name}:dims")
        if found is not None:
            return np.where(found.present, found.values[:, 0], 0).astype(np.int64)
    return None


def _reasons(files: ScanRun, split: str, schema: Schema) -> dict[str, int]:
    """Return possible reasons for missing samples, and the number of samples that each affects."""
    table = files.table
    mine = np.array(
        [not split or split == "in all" or s == split for s in table.splits], dtype=bool
    )
    counts = {
        "as many as cannot be read": int((mine & (table.status == UNREADABLE)).sum()),
        "as many as the scan of the files calls unfit": int((mine & ~files.valid).sum()),
    }
    steps = _steps(table, schema)
    if schema.windows is not None and steps is not None:
        short = (steps > 0) & (steps < schema.windows.length)
        counts[f"as many as are shorter than {schema.windows.length} steps"] = int(
            (mine & short).sum()
        )
        said = schema.windows
        padded = Windows(said.length, said.stride, said.pad, said.short).counts(steps[mine]).sum()
        inside = Windows(said.length, said.stride).counts(steps[mine]).sum()
        words = (
            f"as many as the windows that reach beyond the end of their episode (pad: {said.pad})"
        )
        counts[words] = int(padded - inside)
    return {words: count for words, count in counts.items() if count}


COMPARED = 2000

_ASKED_AGAIN = 8
_UNREADABLE = "DC101"
_DUPLICATE = "DC803"


@dataclass(frozen=True)
class Audit:
    """The loader to audit.

    Args:
        factory: ``module:function``; called without arguments it returns a map-style dataset.
        files: the schema of the files that it reads (`Request.data`), None where they are not
            scanned.
        split: the split that it serves, "" where there is one only.
        compared: how many samples are read a second time.
    """

    factory: str
    files: Schema | None = None
    split: str = ""
    compared: int = COMPARED


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
    of_files = replace(request, output=None, reference=None, baseline=None)
    files = None if audit.files is None else run_scan(audit.files, of_files, progress)
    began = time.time()
    root = Path.cwd() if audit.files is None else request.data
    told = with_label_table(
        with_stats(schema.placed((), root), root, request.roots)[0], root, request.roots
    )[0]
    placed = served(told.for_split(audit.split))
    baseline = None if request.baseline is None else read_baseline(request.baseline)
    reference = None if request.reference is None else read_reference(request.reference, schema)
    add_module_folders(request.paths)
    choices = [
        for_loader(choice) for choice in choose_rules(placed, rules_for(placed), _level(request))
    ]
    place = run_dir.run_location(
        schema, Path(audit.factory), audit.split or "loader", {}, request.output
    )
    seen = _FirstPass(placed, audit, request, choices, progress)
    seen.read()
    notes, unseen = _contract(seen, audit, files)
    choices = _without_nondeterminism(choices, notes, seen)
    judged = judge(seen.table, placed, choices, notes, seen.crashes, reference)
    notes += [] if files is None else loader_failures(judged, seen.table.keys, files, audit.split)
    if codes := _caused_rules(notes):
        choices = [_suppressed_by_contract(choice, codes) for choice in choices]
        judged = judge(seen.table, placed, choices, notes, seen.crashes, reference)
    judged = replace(judged, findings=[_with_loader_fix(finding) for finding in judged.findings])
    judged, silenced = (
        (judged, []) if baseline is None else apply_baseline(baseline, judged, seen.table)
    )
    state = _state(audit, seen)
    report = _report(schema, state, request, seen, judged, began, [*unseen, *silenced])
    journal = run_dir.Journal(place, "")
    with journal.held():
        folder = publish(report, schema, judged, state, {}, place, journal)
    report = replace(report, folder=str(folder))
    return ScanRun(report, seen.table, state.listing, judged.valid, judged.codes, schema)


# ------------------------------------------------------------------------------------------ rules


def _without_nondeterminism(
    choices: Sequence[Choice], notes: Sequence[Note], seen: _FirstPass
) -> list[Choice]:
    """Return the choices; the rule on nondeterminism is skipped where it can tell nothing.

    That is so if no sample was read twice, or if the index does not decide which sample is served.
    """
    why = "" if seen.probed_indices() else "no sample was read a second time"
    if any(n.code == CONTRACT and n.about["kind"] in {"index-ignored", "constant"} for n in notes):
        why = f"{CONTRACT}: the index that is asked for is not the one that is served"
    return [
        replace(c, verdict=Verdict.SKIP, why=why)
        if why and c.rule.code == NONDETERMINISM and not c.verdict
        else c
        for c in choices
    ]


def _with_loader_fix(finding: Finding) -> Finding:
    if finding.code != _UNREADABLE:
        return finding
    return replace(
        finding, fix="Mend the loader or the data that it reads, or leave these samples out."
    )


def _caused_rules(notes: Sequence[Note]) -> set[str]:
    """Return the rules whose findings the loader causes; they do not judge its samples."""
    kinds = {note.about["kind"] for note in notes if note.code == CONTRACT}
    made = {
        note.about["rule"]
        for note in notes
        if note.code == CONTRACT and note.about["kind"] == "made"
    }
    return made | ({_DUPLICATE} if "substituted" in kinds else set())


def _suppressed_by_contract(choice: Choice, codes: set[str]) -> Choice:
    rule = choice.rule
    follows = rule.code in codes or not codes.isdisjoint(rule.suppressed_by)
    return (
        replace(choice, rule=replace(rule, suppressed_by=(*rule.suppressed_by, CONTRACT)))
        if follows
        else choice
    )


# ----------------------------------------------------------------------------------- the first pass


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
    """Return the depth of a loader's audit; the size of the data is not known beforehand."""
    return request.level or "numeric"


class _FirstPass:
    """The first pass: reads every sample once, in order, in one process.

    Collects what rules and later passes need.
    """

    def __init__(
        self,
        schema: Schema,
        audit: Audit,
        request: Request,
        choices: Sequence[Choice],
        progress: Progress | None,
    ) -> None:
        self.audit, self.request = audit, request
        self.whole = whole_fields(schema)
        self.loader = Loader(audit.factory, self.whole, request.limits)
        self.table, self.deaths = Table(), list[dict[str, str]]()
        self._bench = MeasurementRunner(schema, measures_of(choices, _level(request)))
        self._shaper = PieceBuilder(schema, audit.factory)
        self._tell = _Progress(progress)
        self._fields: dict[int, dict[str, int]] = {}
        self._instead: dict[int, tuple[int, bool]] = {}

    def read(self) -> None:
        """Read all samples.

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
        self.digests[index] = sample_digest(answer["digests"])
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
    def served(self) -> ServedIndex:
        """The results for every index."""
        keys = self._shaper.keys
        instead = {
            index: f"item {other} of the dataset inside" if inner else keys[other]
            for index, (other, inner) in self._instead.items()
        }
        return ServedIndex(keys, self.digests, instead)

    def passes(self) -> DeterminismPasses:
        """Return the passes that test for determinism."""
        first = FirstPassDigests(self._shaper.keys, self._fields)
        self._tell.doing = "reading again"
        tell: Callable[[], None] = lambda: self._tell(self.length)  # noqa: E731
        return DeterminismPasses(self.audit.factory, self.whole, self.request.limits, first, tell)

    def probed_indices(self) -> list[int]:
        """Return the indices that are read several times."""
        readable = sorted(self._fields)
        return [readable[place] for place in spread(len(readable), _ASKED_AGAIN)]

    def coverage_notes(self) -> Iterator[str]:
        """Yield sentences on samples that are not compared."""
        readable = int(np.count_nonzero(self.digests))
        if 0 < len(self._fields) < readable:
            yield (
                f"{readable - len(self._fields):,} of {readable:,} samples were read once: a "
                f"second pass compares "
                f"{len(self._fields):,}, evenly spread (--compare)"
            )


def _contract(
    seen: _FirstPass, audit: Audit, files: ScanRun | None
) -> tuple[list[Note], list[str]]:
    """Return the notes about determinism and contract, and sentences on what was not checked."""
    unseen = list(seen.coverage_notes())
    loader = Loader(audit.factory, seen.whole, seen.request.limits)
    try:
        answers = probe_repeatedly(loader, seen.probed_indices())
        notes = list(
            index_notes(
                seen.served, [(index, sample_digest(digests)) for index, digests in answers]
            )
        )
        notes += past_end_notes(loader, seen.served)
    finally:
        loader.close()
    if not any(note.about["kind"] in {"index-ignored", "constant"} for note in notes):
        notes += seen.passes().notes(answers)
    if files is not None and audit.files is not None:
        found, words = length_notes(seen.length, audit.split, files, audit.files)
        notes += found
        unseen += [words] if words else []
        unseen += list(_file_finding_notes(files.report))
    return [replace(note, split=audit.split) for note in notes], unseen


def _file_finding_notes(report: Report) -> Iterator[str]:
    counts = report.counts()
    if counts["error"] or counts["warning"]:
        yield (
            f"the files have findings of their own ({pluralize(counts['error'], 'error')}, "
            f"{pluralize(counts['warning'], 'warning')}): see {report.folder}"
        )


def _state(audit: Audit, seen: _FirstPass) -> PreviousRun:
    listing = Listing(Path(audit.factory), Entries.of([]))
    undeclared = sorted(seen.undeclared)
    return PreviousRun(
        listing, "", Slots([], [], {}), seen.table, undeclared=undeclared, deaths=seen.deaths
    )


def _report(
    schema: Schema,
    state: PreviousRun,
    request: Request,
    seen: _FirstPass,
    judged: RuleResults,
    began: float,
    unseen: Sequence[str],
) -> Report:
    facts = RunContext(schema, state.listing.root, state, began, 0, 0, _level(request))
    report = report_of(facts, request.command, request.fail_on, judged)
    digest = digest_bytes(np.ascontiguousarray(seen.digests, dtype="<u8").tobytes())
    dataset = report.dataset | {"digest": digest, "bytes": int(seen.table.nbytes.sum())}
    run = report.run | named_reference(request.reference)
    return replace(report, run=run, dataset=dataset, unchecked=[*unseen, *report.unchecked])
