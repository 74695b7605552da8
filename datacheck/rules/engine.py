"""The rule engine: runs the chosen rules over a table and turns their results into verdicts."""

from __future__ import annotations

import math
import re
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from datacheck.errors import DamagedRunError, UsageError
from datacheck.model.finding import Failure, Finding, RuleVerdict, Severity, Verdict
from datacheck.model.table import CHECKED, Measured, Note, Rows, Table, Texts
from datacheck.rules.base import Info, Pairs, Rule, RuleContext, Skip
from datacheck.rules.comparison import DriftResult, comparison_json
from datacheck.rules.selection import Choice, by_dependency, targets
from datacheck.schema.model import ANY, Schema, is_pattern
from datacheck.workers.budget import OutOfTimeError, limited_time

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class TrackedRows(Rows):
    """Rows that record whether the columns exist that a judge asks for.

    A judge that found no columns counts as skipped, not as passed.

    Args:
        columns: whether each requested column exists, by name.
    """

    columns: dict[str, bool] = field(default_factory=dict)

    def _column(self, name: str) -> Measured | None:
        column = super()._column(name)
        self.columns[name] = column is not None
        return column

    def where(self, mask: Array) -> Rows:
        """Return only the rows at which `mask` is true."""
        return TrackedRows(self.table, self.index[mask], self.field, self.columns)

    @property
    def found_nothing(self) -> bool:
        """Whether none of the columns that the judge asked for exists.

        Values of such a shape have no measurement that the rule could judge.
        """
        return bool(self.columns) and not any(self.columns.values())


MOST_PAIRS = 10_000


class PairReader(Protocol):
    """Reads the samples of pairs again and compares them."""

    def __call__(
        self, rule: Rule, case: RuleContext, split: str, rows: Rows, pairs: Array
    ) -> Mapping[str, Array]:
        """Return the values of `Rule.compare` by name: float64 (pairs), NaN for failed reads."""


def with_pairs(
    rule: Rule, case: RuleContext, split: str, rows: Rows, read: PairReader
) -> RuleContext:
    """Return the context with the results for the pairs that a rule names, at most `MOST_PAIRS`.

    Raises:
        ValueError: a pair lies outside of the rows.
    """
    assert rule.pairs is not None
    wanted = np.asarray(rule.pairs(rows, case), dtype=np.int64).reshape(-1, 2)[:MOST_PAIRS]
    if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(rows)):
        msg = f"the rule asks for pair {wanted.max(axis=0).tolist()} of {len(rows)} rows"
        raise ValueError(msg)
    values = read(rule, case, split, rows, wanted) if len(wanted) else {}
    return replace(case, pairs=Pairs(wanted[:, 0], wanted[:, 1], values))


class ReferenceRows:
    """The rows of an earlier run, selected as a rule of the new run selects its own.

    Args:
        table: all rows of the earlier run.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._splits = np.array(table.splits, dtype=object)

    def rows(self, rule: Rule, name: str, split: str) -> Rows:
        """Return the counterparts of a judge's rows: the same split, with the same field."""
        mask = np.ones(len(self._table), bool) if rule.span == "all" else self._splits == split
        if rule.sees == "checked":
            mask &= self._table.status == CHECKED
        if rule.per == "field":
            mask &= self._table.present(name)
        return self._table.rows(np.flatnonzero(mask), name)


# CPU time [s] that a rule may use, and the extra time for each row.
_RULE_SECONDS = 60.0
_ROW_SECONDS = 1e-4
_MIN_SECONDS = 1.0  # for each further call, when a rule has used up its time
_NO_RATE = "the dataset of their file does not tell its steps a second"
_ABORTED = "stopped"
# Most fields times splits to judge separately: each is one call of each rule, however few rows.
_MAX_JUDGE_CALLS = 20_000
_SMALL_SPLITS = "all others"  # the name under which the splits beyond that are judged as one
_EXAMPLES = 3
_MAX_DRAWN = 12  # worst rows of a finding, for the pictures of the report
_WORST_FIRST = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, eq=False)
class RuleResults:
    """The results of all rules on a table.

    Args:
        verdicts: one per rule, in code order.
        findings: worst first.
        crashes: rule, what it was judging, traceback.
        valid: bool (rows): checked and in no error finding.
        codes: per row, the codes that make it invalid.
        failing: per row, the codes of all its findings, warnings and infos too, with spaces
            between.
        seconds: the time of each rule.
        suppressed: known findings, which are not reported again.
    """

    verdicts: list[RuleVerdict]
    findings: list[Finding]
    crashes: list[dict[str, str]]
    valid: Array
    codes: list[tuple[str, ...]]
    failing: Texts
    seconds: Mapping[str, float] = field(default_factory=dict)
    suppressed: list[Finding] = field(default_factory=list)


class _Waivers:
    """The keys and key patterns in a rule's ``ignore``, and which of its entries matched."""

    def __init__(self, ignore: Sequence[str]) -> None:
        self._known, self.used = set(ignore), set[str]()
        self._patterns = [
            (entry, re.compile(translate(entry)).match) for entry in ignore if is_pattern(entry)
        ]

    def __bool__(self) -> bool:
        return bool(self._known)

    def __contains__(self, key: str) -> bool:
        hits = {entry for entry, match in self._patterns if match(key)} | ({key} & self._known)
        self.used |= hits
        return bool(hits)


@dataclass(eq=False)
class _RuleExecution:
    """One rule on its way to a verdict; masks are over the table's rows.

    Args:
        readable: some sample could be read.
        expected: the schema requires the values that the rule judges: the field is listed and not
            optional.
    """

    choice: Choice
    checked: Array
    failed: Array
    readable: bool
    skipped: dict[str, Array] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    crashes: list[dict[str, str]] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)
    infos: list[str] = field(default_factory=list)
    compared: list[DriftResult] = field(default_factory=list)
    unseen: dict[str, Array] = field(default_factory=dict)
    expected: bool = False
    waived: int = 0
    seconds: float = 0.0
    began: float = field(default_factory=time.process_time)  # [s]
    rows: int = 0  # rows handed to the judge so far

    @cached_property
    def waivers(self) -> _Waivers:
        return _Waivers(self.choice.settings.ignore)

    def verdict(self) -> RuleVerdict:
        rule, choice = self.choice.rule, self.choice
        failed = any(f.severity is not Severity.INFO for f in self.findings)
        why = [*self.infos, *self.allowed]
        if self.waived:
            why.append(f"{self.waived:,} failing samples waived: {choice.settings.reason}")
        unseen = tuple(
            f"{np.count_nonzero(m):,} samples not judged: {reason}"
            for reason, m in sorted(self.unseen.items())
        )
        if self.crashes:
            verdict = Verdict.CRASH
            why.insert(0, self.crashes[0]["traceback"].strip().splitlines()[-1])
        elif failed:
            verdict = Verdict.FAIL
        elif choice.verdict is not None:
            verdict = choice.verdict
            why.append(choice.why)
        elif not self.checked.any():
            verdict, reasons = _nothing_judged(self)
            why += reasons
        else:
            verdict = Verdict.PASS
        skipped = {code: int(np.count_nonzero(mask)) for code, mask in sorted(self.skipped.items())}
        return RuleVerdict(
            rule.code,
            rule.name,
            verdict,
            choice.severity,
            rule.level,
            int(np.count_nonzero(self.checked)),
            int(np.count_nonzero(self.failed)),
            skipped,
            unseen,
            "; ".join(why),
            dict(choice.options),
            comparison_json(self.compared) if self.compared else {},
        )


def _nothing_judged(execution: _RuleExecution) -> tuple[Verdict, list[str]]:
    codes = [code for code, mask in sorted(execution.skipped.items()) if mask.any()]
    if execution.unseen:
        return Verdict.SKIP, list(execution.unseen)
    if codes:
        return Verdict.SKIP, [f"every sample that it would judge fails {', '.join(codes)}"]
    if not execution.readable:
        return Verdict.SKIP, ["no sample could be read"]
    return (Verdict.SKIP if execution.expected else Verdict.NOT_APPLICABLE), [
        "no sample holds what it judges"
    ]


def _mask(mask: Array, index: Array) -> Array:
    row_mask = np.asarray(mask, dtype=bool)
    if row_mask.shape != index.shape:
        msg = f"the judge returned a mask of {row_mask.shape} for {len(index)} rows"
        raise ValueError(msg)
    return row_mask


def judge(
    table: Table,
    schema: Schema,
    choices: Sequence[Choice],
    notes: Sequence[Note] = (),
    crashes: Sequence[Mapping[str, str]] = (),
    reference: Table | None = None,
    second: PairReader | None = None,
    rates: Array | None = None,
) -> RuleResults:
    """Run every chosen rule over the table.

    Args:
        table: all rows of a run.
        schema: the schema in force.
        choices: from `choose_rules`.
        notes: the listing's notes; a rule gets those with its code.
        crashes: measurements that failed: measure, key, traceback.
        reference: all rows of the reference run.
        second: reads samples again for rules over pairs; without it they get no pairs.
        rates: float64 (rows), the frames per second that each row's file gives, NaN where it gives
            none; None: the schema's rate for all.

    Raises:
        UsageError: a waiver matches no failing sample.
    """
    engine = _RuleEngine(table, schema, notes, reference, second, rates)
    executions = {choice.rule.code: engine.evaluate(choice) for choice in by_dependency(choices)}
    for execution in executions.values():
        names = {m.name for m in execution.choice.rule.measures}
        execution.crashes += [
            {
                "rule": execution.choice.rule.code,
                "at": f"measurement {c['measure']} of {c['key']}",
                "traceback": c["traceback"],
            }
            for c in crashes
            if c["measure"] in names and execution.choice.verdict is None
        ]
    _check_waivers(schema, executions)
    findings = sorted((f for t in executions.values() for f in t.findings), key=_worst_first)
    errors = _failing(table, [f for f in findings if f.severity is Severity.ERROR])
    codes: list[tuple[str, ...]] = [()] * len(table)
    for place in np.flatnonzero(errors.rows).tolist():
        codes[place] = tuple(errors[place].split())
    valid = np.array([not text for text in errors.words])[errors.rows] & (table.status == CHECKED)
    verdicts = [executions[code].verdict() for code in sorted(executions)]
    crashed = [c for _, t in sorted(executions.items()) for c in t.crashes]
    seconds = {code: executions[code].seconds for code in sorted(executions)}
    return RuleResults(
        verdicts, findings, crashed, valid, codes, _failing(table, findings), seconds
    )


def _worst_first(finding: Finding) -> tuple[Any, ...]:
    concerned = finding.failed or finding.of
    return (
        _WORST_FIRST[finding.severity],
        -concerned,
        finding.code,
        finding.fields,
        finding.kind,
        finding.split,
    )


def _check_waivers(schema: Schema, executions: Mapping[str, _RuleExecution]) -> None:
    for code, settings in schema.rules.items():
        # Without waivers the rule may be missing from `executions`: a batch, for example, has no files.
        if not settings.ignore:
            continue
        execution = executions[code]
        stale = [key for key in settings.ignore if key not in execution.waivers.used]
        stopped = any(finding.kind == _ABORTED for finding in execution.findings)
        if stale and not stopped and execution.choice.verdict not in {Verdict.OFF, Verdict.SKIP}:
            msg = (
                f"schema {schema.name}, rules.{code}.ignore: {stale[0]!r} matches no sample that "
                f"fails {code}"
                f"{f' (nor do {len(stale) - 1} more)' if len(stale) > 1 else ''}. Remove the "
                f"waiver."
            )
            raise UsageError(msg)


def _failing(table: Table, findings: Sequence[Finding]) -> Texts:
    """Return the codes that each row fails, in code order.

    An unread row without findings gets the code of the reason why it is unread.
    """
    masks: dict[str, Array] = {}
    for finding in findings:
        if len(finding.rows):
            masks.setdefault(finding.code, np.zeros(len(table), bool))[finding.rows] = True
    words = [""]
    rows = np.zeros(len(table), np.int32)
    for code in sorted(masks):
        # Few values: each number stands for one set of codes that rows fail.
        before, place = np.unique(rows[masks[code]], return_inverse=True)
        rows[masks[code]] = len(words) + place
        words += [f"{words[number]} {code}".strip() for number in before.tolist()]
    reasons = Texts.of(table.reasons)
    unread = (table.status != CHECKED) & (rows == 0)
    rows[unread] = len(words) + reasons.rows[unread]
    return Texts(words + [reason.partition(" ")[0] for reason in reasons.words], rows)


class _Findings:
    """The findings of one rule, indexed by row: a rule may have one for each split and field."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._findings = findings
        rows = np.concatenate([np.zeros(0, np.int64), *(finding.rows for finding in findings)])
        order = np.argsort(rows, kind="stable")
        self._rows = rows[order]
        self._of = np.repeat(np.arange(len(findings)), [len(finding.rows) for finding in findings])[
            order
        ]

    def with_rows(self, rows: Array) -> Iterator[tuple[Finding, int]]:
        """Yield each finding that names some of these rows, and how many of them."""
        first = np.searchsorted(self._rows, rows, "left")
        many = np.searchsorted(self._rows, rows, "right") - first
        positions = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many - first, many)
        for number, count in zip(*np.unique(self._of[positions], return_counts=True), strict=True):
            yield self._findings[number], int(count)


class _RuleEngine:
    """Runs one rule after the other; records failing rows, which later rules may skip."""

    def __init__(
        self,
        table: Table,
        schema: Schema,
        notes: Sequence[Note],
        reference: Table | None,
        second: PairReader | None,
        rates: Array | None,
    ) -> None:
        self.table, self.schema, self.rates = table, schema, rates
        by_split = _by_split(table, notes)
        small = _smallest_splits(by_split, schema)
        self.small_count = len(small)
        self.by_split = {split: index for split, index in by_split.items() if split not in small}
        if small:
            self.by_split[_SMALL_SPLITS] = np.sort(
                np.concatenate([by_split[split] for split in small])
            )
        # By code and split; the key None holds the notes of all splits.
        self.notes: dict[tuple[str, str | None], list[Note]] = {}
        for note in notes:
            for split in (_SMALL_SPLITS if note.split in small else note.split, None):
                self.notes.setdefault((note.code, split), []).append(note)
        self.second, self.before = second, None if reference is None else ReferenceRows(reference)
        self.failing: dict[str, dict[str, Array]] = {}
        self.findings: dict[str, _Findings] = {}
        self.schemas = {split: schema.for_split(split) for split in self.by_split}
        self.checked = table.status == CHECKED
        self.readable = bool(self.checked.any())
        self.present: dict[str, Array] = {}

    def evaluate(self, choice: Choice) -> _RuleExecution:
        """Run a rule on every group of rows and target; return its execution with all findings."""
        checked, failed = (np.zeros(len(self.table), bool) for _ in range(2))
        if choice.rule.needs_reference and self.before is None and choice.verdict is None:
            choice = replace(choice, verdict=Verdict.NOT_APPLICABLE, why="no --reference given")
        execution = _RuleExecution(choice, checked, failed, self.readable)
        began = time.perf_counter()
        if choice.verdict is None:
            if self.small_count and choice.rule.span != "all":
                execution.infos.append(
                    f"the {self.small_count:,} splits with the fewest samples are judged as one"
                )
            for split, schema, index in self._row_groups(execution):
                for name, spec in targets(choice.rule, schema, choice.level):
                    self._judge(
                        execution, split, RuleContext(schema, name, spec, choice.options), index
                    )
        self.findings[choice.rule.code] = _Findings(execution.findings)
        execution.seconds = time.perf_counter() - began
        return execution

    def _row_groups(self, execution: _RuleExecution) -> Iterator[tuple[str, Schema, Array]]:
        rule = execution.choice.rule
        if rule.span == "all":
            yield "", self.schema, np.arange(len(self.table), dtype=np.int64)
            return
        for split, index in self.by_split.items():
            for schema, subset in (
                self._by_rate(split, index) if rule.paced else [(self.schemas[split], index)]
            ):
                if not rule.unless(schema):
                    yield split, schema, subset
                elif not rule.unless(self.schemas[split]):  # only the rate is missing
                    subset = _select(subset, self.checked)
                    self._skip(execution, subset, Skip(np.ones(len(subset), bool), _NO_RATE))

    def _by_rate(self, split: str, index: Array) -> Iterator[tuple[Schema, Array]]:
        """Yield the rows of a split that share a rate, with the schema at that rate."""
        schema = self.schemas[split]
        if self.rates is None or schema.episode is None or not len(index):
            yield schema, index
            return
        rates, which = np.unique(self.rates[index], return_inverse=True)
        for number, rate in enumerate(rates.tolist()):
            episode = schema.episode.model_copy(update={"fps": None if math.isnan(rate) else rate})
            yield schema.model_copy(update={"episode": episode}), index[which == number]

    def _judge(
        self, execution: _RuleExecution, split: str, case: RuleContext, index: Array
    ) -> None:
        rule = execution.choice.rule
        execution.expected |= rule.per == "sample" or _is_required(case)
        index = self._without_suppressed(
            execution, case.name, self._judgeable(rule, case.name, index)
        )
        notes = self.notes.get((rule.code, None if rule.span == "all" else split), ())
        if not len(index) and not notes:
            return
        earlier = execution.checked[index]
        execution.checked[index] = True
        rows = TrackedRows(self.table, index, case.name)
        before = (
            None
            if self.before is None or not rule.needs_reference
            else self.before.rows(rule, case.name, split)
        )
        case = replace(case, reference=before)
        try:
            if rule.pairs is not None and self.second is not None:
                case = with_pairs(rule, case, split, rows, self.second)
            silent = True
            execution.rows += len(index)
            seconds_left = (
                _RULE_SECONDS
                + _ROW_SECONDS * execution.rows
                - (time.process_time() - execution.began)
            )
            # Samples may hold the largest numbers, so arithmetic may overflow.
            with limited_time(max(seconds_left, _MIN_SECONDS)), np.errstate(all="ignore"):
                case = replace(case, notes=_not_waived(execution, notes))
                for result in rule.judge(rows, case) if len(index) or case.notes else ():
                    self._record_result(execution, split, case.name, index, result)
                    silent = False
            if silent and rule.per == "field" and rows.found_nothing:
                execution.checked[index] = earlier
        except DamagedRunError:  # columns are read on demand, so a damaged run shows up here
            raise
        # Crafted samples can exhaust memory or time; they must not end the scan.
        except (MemoryError, OutOfTimeError) as error:
            execution.checked[index] = earlier | execution.failed[index]
            self._record(execution, split, case.name, index, _aborted(index, error))
        except Exception:  # noqa: BLE001  a rule that raises gets a crash verdict; the others go on
            execution.crashes.append(_crash(rule, case, split))

    def _judgeable(self, rule: Rule, name: str, index: Array) -> Array:
        if rule.sees == "checked":
            index = _select(index, self.checked)
        return _select(index, self._present(name)) if rule.per == "field" else index

    def _record_result(
        self,
        execution: _RuleExecution,
        split: str,
        name: str,
        index: Array,
        result: Failure | Skip | Info | DriftResult,
    ) -> None:
        if isinstance(result, Skip):
            self._skip(execution, index, result)
        elif isinstance(result, DriftResult):
            execution.compared.append(replace(result, split=split))
        elif isinstance(result, Info):
            execution.infos.append(" ".join(part for part in (name, split, result.words) if part))
        else:
            self._record(execution, split, name, index, result)

    def _present(self, name: str) -> Array:
        if name not in self.present:
            self.present[name] = self.table.present(name)
        return self.present[name]

    def _without_suppressed(self, execution: _RuleExecution, name: str, index: Array) -> Array:
        for code in execution.choice.rule.suppressed_by:
            failing = self._failing(code, name)
            if failing is None or not (suppressed := failing[index]).any():
                continue
            fresh = self._mark_suppressed(execution, code, index[suppressed])
            for finding, hidden in self.findings[code].with_rows(fresh):
                finding.hides[execution.choice.rule.code] = (
                    finding.hides.get(execution.choice.rule.code, 0) + hidden
                )
            index = index[~suppressed]
        return index

    def _mark_suppressed(self, execution: _RuleExecution, code: str, rows: Array) -> Array:
        """Mark rows as not judged because they fail `code`; return the newly marked ones."""
        mask = execution.skipped.setdefault(code, np.zeros(len(self.table), bool))
        fresh = rows[~mask[rows]]
        mask[rows] = True
        return fresh

    def _failing(self, code: str, name: str) -> Array | None:
        """Return the rows that fail `code` for the field, its parent field or as whole samples."""
        by_field = self.failing.get(code, {})
        wanted = [n for n in by_field if not name or n in {"", name, name.rpartition(".")[0]}]
        return np.logical_or.reduce([by_field[n] for n in wanted]) if wanted else None

    def _skip(self, execution: _RuleExecution, index: Array, skip: Skip) -> None:
        rows = index[_mask(skip.mask, index)]
        execution.checked[rows] = False
        execution.unseen.setdefault(skip.reason, np.zeros(len(self.table), bool))[rows] = True

    def _record(
        self, execution: _RuleExecution, split: str, name: str, index: Array, failure: Failure
    ) -> None:
        mask = _mask(failure.mask, index)
        order, ranges = (
            None if array is None else np.asarray(array)[mask]
            for array in (failure.order, failure.ranges)
        )
        rows = index[mask]
        if execution.waivers and len(rows):
            keep = np.array([self.table.keys[int(i)] not in execution.waivers for i in rows])
            execution.waived += int((~keep).sum())
            rows, (order, ranges) = (
                rows[keep],
                (None if array is None else array[keep] for array in (order, ranges)),
            )
            if not len(rows):
                return
        finding = _finding(
            execution.choice,
            self.table,
            split,
            name,
            index,
            rows,
            order,
            replace(failure, ranges=ranges),
        )
        # Only errors suppress later rules: a warning must not hide an error.
        if (failure.severity or execution.choice.rule.severity) is Severity.ERROR:
            by_field = self.failing.setdefault(execution.choice.rule.code, {})
            for affected in {name, *failure.extra}:
                by_field.setdefault(affected, np.zeros(len(self.table), bool))[rows] = True
        if finding.severity is not Severity.INFO:
            allow = execution.choice.settings.allow
            if len(rows) and len(rows) <= allow * len(index):
                execution.allowed.append(
                    f"{len(rows):,} of {len(index):,} fail, {allow:.3g} of them allowed"
                )
                return
            execution.failed[rows] = True
        execution.findings.append(finding)


def _select(index: Array, mask: Array) -> Array:
    """Return the rows of `index` where a mask over all rows is true.

    Mostly all of them are: then `index` itself, without a copy.
    """
    return index if mask.all() else index[mask[index]]


def _is_required(case: RuleContext) -> bool:
    part = case.schema.part_of(case.name)
    spec = case.spec if part is None else case.schema.fields[part[0]]
    return case.name != ANY and not spec.optional


def _by_split(table: Table, notes: Sequence[Note]) -> dict[str, Array]:
    places = {note.split: np.zeros(0, np.int64) for note in notes} | dict(
        Texts.of(table.splits).places()
    )
    return {split: places[split] for split in sorted(places)}


def _smallest_splits(by_split: Mapping[str, Array], schema: Schema) -> set[str]:
    """Return the smallest splits, those beyond the number that is judged separately."""
    most = max(1, _MAX_JUDGE_CALLS // max(1, len(schema.fields)))
    if len(by_split) <= most:
        return set()
    named_splits = {condition.removeprefix("split=") for condition in schema.when}
    named_splits |= schema.tokenizer.lengths.keys() if schema.tokenizer is not None else set()
    order = sorted(
        by_split, key=lambda split: (split not in named_splits, -len(by_split[split]), split)
    )
    small = set(order[most - 1 :])
    return small | ({_SMALL_SPLITS} & by_split.keys())


def _not_waived(execution: _RuleExecution, notes: Sequence[Note]) -> tuple[Note, ...]:
    kept = (
        [note for note in notes if note.key not in execution.waivers]
        if execution.waivers
        else notes
    )
    execution.waived += sum(not note.missing for note in notes) - sum(
        not note.missing for note in kept
    )
    return tuple(kept)


def _finding(
    choice: Choice,
    table: Table,
    split: str,
    name: str,
    index: Array,
    rows: Array,
    order: Array | None,
    failure: Failure,
) -> Finding:
    worst = rows if order is None else rows[np.argsort(-order.astype(np.float64), kind="stable")]
    rule = choice.rule
    fields = tuple(dict.fromkeys(part for part in (name, *failure.extra) if part))
    severity = choice.severity if choice.settings.severity else failure.severity or rule.severity
    return Finding(
        rule.code,
        rule.name,
        severity,
        rule.level,
        fields,
        failure.message,
        rows,
        len(index),
        tuple(table.keys[int(i)] for i in worst[:_EXAMPLES]),
        failure.measured,
        failure.expected,
        failure.cause,
        failure.fix,
        failure.kind,
        split=split,
        worst=() if order is None else tuple(worst[:_MAX_DRAWN].tolist()),
        ranges=failure.ranges,
    )


def _aborted(index: Array, error: Exception) -> Failure:
    why = "needs more memory than there is" if isinstance(error, MemoryError) else "takes too long"
    return Failure(
        np.zeros(len(index), bool),
        f"not judged: the rule {why} for these {len(index):,} samples.",
        fix="If some samples are unlike all others (in shapes, names or texts), leave them out; "
        "else report it.",
        severity=Severity.ERROR,
        kind=_ABORTED,
    )


def _crash(rule: Rule, case: RuleContext, split: str) -> dict[str, str]:
    where = " ".join(part for part in (case.name, split) if part) or "the dataset"
    return {"rule": rule.code, "at": where, "traceback": traceback.format_exc()}
