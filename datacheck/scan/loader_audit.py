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
from datacheck.scan.judging import read_prior_results
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
from datacheck.scan.run import run_scan
from datacheck.scan.run_state import RunState, Slots
from datacheck.scan.run_writer import RunContents, publish
from datacheck.scan.scan_run import Request, ScanRun
from datacheck.scan.scanned_dataset import with_stated_values
from datacheck.scan.summary import RunContext, report_of
from datacheck.scan.worker import checked_rows, unread_rows
from datacheck.schema.model import Schema
from datacheck.sources.base import Part, Unread, blocks
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Entries
from datacheck.workers.child import Death

Array = np.ndarray[Any, Any]

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
    answer, death = loader.run("probe", {"items": list(items), "rounds": _ROUNDS})
    return [] if death is not None else [(index, digests) for index, digests in answer["asked"]]


def index_notes(served: ServedIndex, answers: Sequence[tuple[int, int]]) -> Iterator[Note]:
    """Yield notes about indices that do not serve their own sample.

    Args:
        served: the first pass.
        answers: (index, digest) of the indices that were read again.
    """
    digests = served.digests[served.digests != 0]
    if len(digests) >= _LEAST_EQUAL and bool((digests == digests[0]).all()):
        yield _dataset("constant", samples=len(digests))
        return
    distinct = set(digests.tolist())
    moved = [(i, d) for i, d in answers if d != served.digests[i] and d in distinct]
    novel = [i for i, d in answers if d != served.digests[i] and d not in distinct]
    if len(moved) >= 2 and len(moved) > len(novel):
        index, digest = moved[0]
        actual = int(np.flatnonzero(served.digests == np.uint64(digest))[0])
        yield _dataset(
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


def past_end_notes(loader: Loader, served: ServedIndex) -> Iterator[Note]:
    """Yield a note where the first index past the end is served, recurses or hangs."""
    answer, death = loader.run("beyond", {"items": [loader.length]})
    if isinstance(death, Death):
        yield _dataset("beyond", length=loader.length, how=death.how.strip().splitlines()[-1])
    elif answer.get("kind") == "RecursionError":
        yield _dataset("beyond", length=loader.length, how="RecursionError")
    elif "digests" in answer:
        matching = np.flatnonzero(served.digests == np.uint64(sample_digest(answer["digests"])))
        yield _dataset(
            "beyond",
            length=loader.length,
            key=served.keys[int(matching[0])] if len(matching) else "",
        )


def sample_digest(digests: Mapping[str, int]) -> int:
    """Return one digest of a whole sample, never 0."""
    return (
        digest64(
            "".join(f"{name}\0{digest:016x}\0" for name, digest in sorted(digests.items())).encode()
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
    in_split = np.array([not split or s == split for s in files.table.splits], dtype=bool)
    file_findings = _by_code(files.report.findings)
    for code, findings in sorted(_by_code(judged.findings).items()):
        file_verdict = verdicts.get(code)
        if file_verdict is None or not file_verdict.checked:
            continue
        rows = sorted({int(row) for finding in findings for row in finding.rows})
        failed = {
            int(row)
            for finding in file_findings.get(code, ())
            for row in finding.rows
            if in_split[int(row)]
        }
        file_samples = min(
            file_verdict.checked, int((in_split & (files.table.status == CHECKED)).sum())
        )
        if not _clearly_larger(len(rows), checked[code], len(failed), file_samples):
            continue
        about = {
            "kind": "made",
            "rule": code,
            "name": findings[0].name,
            "says": findings[0].message,
            "fields": sorted({name for f in findings for name in f.fields}),
            "severity": findings[0].severity.value,
            "failed": len(failed),
            "of": file_samples,
        }
        for row in rows:
            yield Note(CONTRACT, keys[row], "", about=about)


def _by_code(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        of_values = finding.code == "DC109" or finding.code[2] in "234567"
        if of_values and len(finding.rows) and finding.severity is not Severity.INFO:
            by_code.setdefault(finding.code, []).append(finding)
    return by_code


def _clearly_larger(failed: int, total: int, failed_before: int, total_before: int) -> bool:
    if not failed_before:
        return failed > 0
    share = failed / max(1, total)
    share_before = failed_before / max(1, total_before)
    pooled = (failed + failed_before) / max(1, total + total_before)
    error = (pooled * (1 - pooled) * (1 / max(1, total) + 1 / max(1, total_before))) ** 0.5
    return (
        share >= _CLEARLY_LARGER * share_before and share - share_before >= _STANDARD_ERRORS * error
    )


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
    larger = [candidate for candidate in counts if candidate[2] > length]
    where, unit, count = min(larger, key=lambda candidate: candidate[2]) if larger else ("", "", 0)
    if not larger or count - length > _DROPPED_MOST * count:
        counts_text = ", ".join(f"{count:,} {unit}{where}" for where, unit, count in counts[:4])
        return (
            [],
            f"whether every sample of the files is served: the loader has {length:,}, the files "
            f"{counts_text}",
        )
    reasons = _reasons(files, split or where.removeprefix(" of "), schema)
    why = [words for words, number in reasons.items() if number == count - length]
    return [_dataset("dropped", length=length, count=count, unit=unit, where=where, why=why)], ""


def _counts(table: Table, split: str, schema: Schema) -> list[tuple[str, str, int]]:
    """Return (split in words, unit, number) of all counts that a loader may serve."""
    splits = Counter(table.splits)
    names = [split] if split else [*sorted(name for name in splits if name), ""]
    counts = [
        (_of(name, splits), "samples", splits[name] if name else len(table)) for name in names
    ]
    steps = _steps(table, schema)
    if schema.windows is None or steps is None:
        return counts
    spec = schema.windows
    windows = Windows(spec.length, spec.stride, spec.pad, spec.short).counts(steps)
    of_split = {
        name: np.array([s == name for s in table.splits]) if name else np.ones(len(table), bool)
        for name in names
    }
    return counts + [
        (_of(name, splits), "windows", int(windows[of_split[name]].sum())) for name in names
    ]


def _of(name: str, splits: Mapping[str, int]) -> str:
    return f" of {name}" if name else " in all" if len(splits) > 1 else ""


def _steps(table: Table, schema: Schema) -> Array | None:
    """Return the steps of each sample, 0 where unknown: int64 (rows); None without such a field."""
    names = [name for name, spec in sorted(schema.stored.items()) if spec.ragged == "T"]
    for name in sorted(names, key=lambda name: schema.fields[name].role != "action"):
        dims = table.columns.get(f"{name}:dims")
        if dims is not None:
            return np.where(dims.present, dims.values[:, 0], 0).astype(np.int64)
    return None


def _reasons(files: ScanRun, split: str, schema: Schema) -> dict[str, int]:
    """Return possible reasons for missing samples, and the number of samples that each affects."""
    table = files.table
    in_split = np.array(
        [not split or split == "in all" or s == split for s in table.splits], dtype=bool
    )
    counts = {
        "as many as cannot be read": int((in_split & (table.status == UNREADABLE)).sum()),
        "as many as the scan of the files calls unfit": int((in_split & ~files.valid).sum()),
    }
    steps = _steps(table, schema)
    if schema.windows is not None and steps is not None:
        short = (steps > 0) & (steps < schema.windows.length)
        counts[f"as many as are shorter than {schema.windows.length} steps"] = int(
            (in_split & short).sum()
        )
        spec = schema.windows
        padded = (
            Windows(spec.length, spec.stride, spec.pad, spec.short).counts(steps[in_split]).sum()
        )
        inside = Windows(spec.length, spec.stride).counts(steps[in_split]).sum()
        words = (
            f"as many as the windows that reach beyond the end of their episode (pad: {spec.pad})"
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
    prior = read_prior_results(schema, request.reference, request.baseline)
    of_files = replace(request, output=None, reference=None, baseline=None)
    files = None if audit.files is None else run_scan(audit.files, of_files, progress)
    began = time.time()
    root = Path.cwd() if audit.files is None else request.data
    resolved, _ = with_stated_values(schema.placed((), root), root, request.roots)
    placed = served(resolved.for_split(audit.split))
    add_module_folders(request.paths)
    choices = [
        for_loader(choice) for choice in choose_rules(placed, rules_for(placed), _level(request))
    ]
    place = run_dir.run_location(
        schema, Path(audit.factory), audit.split or "loader", {}, request.output
    )
    first_pass = _FirstPass(placed, audit, request, choices, progress)
    first_pass.read()
    notes, unchecked = _contract(first_pass, audit, files)
    choices = _without_nondeterminism(choices, notes, first_pass)
    judged = judge(first_pass.table, placed, choices, notes, first_pass.crashes, prior.reference)
    notes += (
        [] if files is None else loader_failures(judged, first_pass.table.keys, files, audit.split)
    )
    if codes := _caused_rules(notes):
        choices = [_suppressed_by_contract(choice, codes) for choice in choices]
        judged = judge(
            first_pass.table, placed, choices, notes, first_pass.crashes, prior.reference
        )
    judged = replace(judged, findings=[_with_loader_fix(finding) for finding in judged.findings])
    judged, silenced = prior.without_known(judged, first_pass.table)
    state = _state(audit, first_pass)
    remarks = prior.reference_name
    unchecked += silenced
    report = _report(schema, state, request, first_pass, judged, began, unchecked, remarks)
    journal = run_dir.Journal(place, "")
    with journal.held():
        report = publish(RunContents(report, judged, schema, state, {}), place, journal)
    return ScanRun(report, first_pass.table, state.listing, judged.valid, judged.codes, schema)


# ------------------------------------------------------------------------------------------ rules


def _without_nondeterminism(
    choices: Sequence[Choice], notes: Sequence[Note], first_pass: _FirstPass
) -> list[Choice]:
    """Return the choices; the rule on nondeterminism is skipped where it can tell nothing.

    That is so if no sample was read twice, or if the index does not decide which sample is served.
    """
    why = "" if first_pass.probed_indices() else "no sample was read a second time"
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
    caused = {
        note.about["rule"]
        for note in notes
        if note.code == CONTRACT and note.about["kind"] == "made"
    }
    return caused | ({_DUPLICATE} if "substituted" in kinds else set())


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
            tables = [self._rows(block) for block in blocks(self._parts(), self.audit.split)]
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
            inner_index, inner = answer["instead"]
            self._instead[index] = inner_index, inner
        if index in self._compared:
            self._fields[index] = answer["digests"]

    def _rows(self, block: Block | Unread) -> Table:
        if isinstance(block, Unread):
            return unread_rows([block], self.audit.factory, self.audit.split)
        return checked_rows(block, self._bench.measure(block))

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
            index: f"item {inner_index} of the dataset inside" if inner else keys[inner_index]
            for index, (inner_index, inner) in self._instead.items()
        }
        return ServedIndex(keys, self.digests, instead)

    def passes(self) -> DeterminismPasses:
        """Return the passes that test for determinism."""
        first_digests = FirstPassDigests(self._shaper.keys, self._fields)
        self._tell.doing = "reading again"
        tell: Callable[[], None] = lambda: self._tell(self.length)  # noqa: E731
        return DeterminismPasses(
            self.audit.factory, self.whole, self.request.limits, first_digests, tell
        )

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
    first_pass: _FirstPass, audit: Audit, files: ScanRun | None
) -> tuple[list[Note], list[str]]:
    """Return the notes about determinism and contract, and sentences on what was not checked."""
    unchecked = list(first_pass.coverage_notes())
    loader = Loader(audit.factory, first_pass.whole, first_pass.request.limits)
    try:
        answers = probe_repeatedly(loader, first_pass.probed_indices())
        notes = list(
            index_notes(
                first_pass.served, [(index, sample_digest(digests)) for index, digests in answers]
            )
        )
        notes += past_end_notes(loader, first_pass.served)
    finally:
        loader.close()
    if not any(note.about["kind"] in {"index-ignored", "constant"} for note in notes):
        notes += first_pass.passes().notes(answers)
    if files is not None and audit.files is not None:
        dropped, sentence = length_notes(first_pass.length, audit.split, files, audit.files)
        notes += dropped
        unchecked += [sentence] if sentence else []
        unchecked += list(_file_finding_notes(files.report))
    return [replace(note, split=audit.split) for note in notes], unchecked


def _file_finding_notes(report: Report) -> Iterator[str]:
    counts = report.counts()
    if counts["error"] or counts["warning"]:
        yield (
            f"the files have findings of their own ({pluralize(counts['error'], 'error')}, "
            f"{pluralize(counts['warning'], 'warning')}): see {report.folder}"
        )


def _state(audit: Audit, first_pass: _FirstPass) -> RunState:
    listing = Listing(Path(audit.factory), Entries.of([]))
    undeclared = sorted(first_pass.undeclared)
    return RunState(
        listing,
        "",
        Slots([], [], {}),
        first_pass.table,
        undeclared=undeclared,
        deaths=first_pass.deaths,
    )


def _report(
    schema: Schema,
    state: RunState,
    request: Request,
    first_pass: _FirstPass,
    judged: RuleResults,
    began: float,
    unchecked: Sequence[str],
    remarks: Mapping[str, Any],
) -> Report:
    facts = RunContext(
        schema, state.listing.root, state, began, 0, 0, _level(request), remarks=remarks
    )
    report = report_of(facts, request.command, request.fail_on, judged)
    digest = digest_bytes(np.ascontiguousarray(first_pass.digests, dtype="<u8").tobytes())
    dataset = report.dataset | {"digest": digest, "bytes": int(first_pass.table.nbytes.sum())}
    return replace(report, dataset=dataset, unchecked=[*unchecked, *report.unchecked])
