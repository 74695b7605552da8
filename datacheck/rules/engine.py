"""The rule engine: runs the chosen rules over a table and turns their results into verdicts.

`judge` evaluates one rule after another, so that a rule can leave out the rows that fail an earlier
one (`suppression`). A rule is a series of judge calls, one for each group of rows (`row_groups`)
and each field. The engine prepares each call, runs the judge under a limit of time, and records
what it yields; the sum of the calls is the rule's `Evaluation`, which knows the verdict.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from datacheck.errors import DamagedRunError, UsageError
from datacheck.model.finding import Failure, Finding, RuleVerdict, Severity, Verdict
from datacheck.model.table import CHECKED, Measured, Note, Rows, Table, Texts
from datacheck.rules.base import Info, Pairs, Rule, RuleContext, Skip
from datacheck.rules.comparison import DriftResult
from datacheck.rules.evaluation import CallResult, Ending, Evaluation, RecordedFailure
from datacheck.rules.row_groups import ReferenceRows, RowGroup, RowGroups
from datacheck.rules.selection import Choice, by_dependency, targets
from datacheck.rules.suppression import FailingRows, FindingsByRow
from datacheck.schema.globs import Globs, StepLimit
from datacheck.schema.model import ANY, FieldSpec, Schema, is_pattern
from datacheck.workers.budget import OutOfTimeError, limited_time

Array = np.ndarray[Any, Any]


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
        UsageError: a waiver matches no failing sample, or the waivers take too long.
    """
    limit = StepLimit()
    waivers = {
        choice.rule.code: _Waivers(
            choice.settings.ignore, f"schema {schema.name}, rules.{choice.rule.code}.ignore", limit
        )
        for choice in choices
    }
    engine = _RuleEngine(table, RowGroups(table, schema, notes, rates), waivers, reference, second)
    evaluations: dict[str, Evaluation] = {}
    seconds: dict[str, float] = {}
    for choice in by_dependency(choices):
        began = time.perf_counter()
        evaluation = engine.evaluate(choice)
        evaluation.crashes += _measurement_crashes(evaluation.choice, crashes)
        evaluations[choice.rule.code] = evaluation
        seconds[choice.rule.code] = time.perf_counter() - began
    _check_waivers(schema, evaluations, waivers)
    return _rule_results(table, evaluations, seconds)


def _measurement_crashes(
    choice: Choice, crashes: Sequence[Mapping[str, str]]
) -> Iterator[dict[str, str]]:
    """Yield the failed measurements that a rule needs as crashes of the rule."""
    if choice.verdict is not None:
        return
    needed = {measure.name for measure in choice.rule.measures}
    for crash in crashes:
        if crash["measure"] in needed:
            yield {
                "rule": choice.rule.code,
                "at": f"measurement {crash['measure']} of {crash['key']}",
                "traceback": crash["traceback"],
            }


def _rule_results(
    table: Table, evaluations: Mapping[str, Evaluation], seconds: Mapping[str, float]
) -> RuleResults:
    in_code_order = [evaluations[code] for code in sorted(evaluations)]
    findings = sorted(
        (finding for evaluation in evaluations.values() for finding in evaluation.findings),
        key=_worst_first,
    )
    errors = _failing_codes(table, [f for f in findings if f.severity is Severity.ERROR])
    checked = table.status == CHECKED
    without_error = np.array([not text for text in errors.words])[errors.rows]
    codes: list[tuple[str, ...]] = [()] * len(table)
    for row in np.flatnonzero(errors.rows).tolist():
        codes[row] = tuple(errors[row].split())
    readable = bool(checked.any())
    return RuleResults(
        verdicts=[evaluation.verdict(readable=readable) for evaluation in in_code_order],
        findings=findings,
        crashes=[crash for evaluation in in_code_order for crash in evaluation.crashes],
        valid=without_error & checked,
        codes=codes,
        failing=_failing_codes(table, findings),
        seconds={code: seconds[code] for code in sorted(seconds)},
    )


_SEVERITY_ORDER = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


def _worst_first(finding: Finding) -> tuple[Any, ...]:
    concerned = finding.failed or finding.of
    return (
        _SEVERITY_ORDER[finding.severity],
        -concerned,
        finding.code,
        finding.fields,
        finding.kind,
        finding.split,
    )


def _failing_codes(table: Table, findings: Sequence[Finding]) -> Texts:
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


# -------------------------------------------------------------------------------- inputs of a judge


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


MOST_PAIRS = 10_000  # per judge call: each is two samples that are read again


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


# ------------------------------------------------------------------------------------------ waivers


class _Waivers:
    """The keys and key patterns in a rule's ``ignore``, and which of its entries matched."""

    def __init__(self, ignore: Sequence[str], where: str, limit: StepLimit) -> None:
        self._entries = ignore
        self._patterns = Globs(filter(is_pattern, ignore), where, limit)
        self._matched: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._entries)

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(self._entries)

    def waives(self, key: str) -> bool:
        """Return whether an entry exempts the sample of this key."""
        entries = {*self._patterns.matching(key), *({key} & self._keys)}
        self._matched |= entries
        return bool(entries)

    @property
    def unmatched(self) -> list[str]:
        """The entries that matched no key so far."""
        return [entry for entry in self._entries if entry not in self._matched]


def _check_waivers(
    schema: Schema, evaluations: Mapping[str, Evaluation], waivers: Mapping[str, _Waivers]
) -> None:
    for code, settings in schema.rules.items():
        # Without waivers the rule may be missing from `evaluations`: a batch, for example, has no files.
        if not settings.ignore:
            continue
        evaluation = evaluations[code]
        stopped = any(finding.kind == _STOPPED for finding in evaluation.findings)
        if stopped or evaluation.choice.verdict in {Verdict.OFF, Verdict.SKIP}:
            continue
        unmatched = waivers[code].unmatched
        if unmatched:
            others = f" (nor do {len(unmatched) - 1} more)" if len(unmatched) > 1 else ""
            msg = (
                f"schema {schema.name}, rules.{code}.ignore: {unmatched[0]!r} matches no sample "
                f"that fails {code}{others}. Remove the waiver."
            )
            raise UsageError(msg)


# ------------------------------------------------------------------------------------------- engine


@dataclass(frozen=True, eq=False)
class _JudgeCall:
    """One call of a judge: a group of rows, seen through one field.

    Args:
        split: of the rows; "" for a rule over all splits.
        context: of the judge, as yet without reference, pairs and notes.
        rows: int64: the rows to judge.
        suppressed: by code, the rows left out because they fail that rule.
        notes: those of the rule in this split.
    """

    choice: Choice
    split: str
    context: RuleContext
    rows: Array
    suppressed: Mapping[str, Array]
    notes: Sequence[Note]

    @property
    def field(self) -> str:
        return self.context.name

    @property
    def is_empty(self) -> bool:
        return not len(self.rows) and not self.notes


# CPU time [s] that a rule may use, and the extra time for each row.
_RULE_SECONDS = 60.0
_ROW_SECONDS = 1e-4
_MIN_SECONDS = 1.0  # for each further call, when a rule has used up its time


class _RuleClock:
    """The CPU time that a rule may still use; it starts when the evaluation of the rule starts."""

    def __init__(self) -> None:
        self._began = time.process_time()
        self._rows = 0

    def seconds_left(self, rows: int) -> float:
        """Return the time for the next call, which judges so many rows."""
        self._rows += rows
        granted = _RULE_SECONDS + _ROW_SECONDS * self._rows
        used = time.process_time() - self._began
        return max(granted - used, _MIN_SECONDS)


class _RuleEngine:
    """Evaluates one rule after another, and remembers which rows fail for the later ones."""

    def __init__(
        self,
        table: Table,
        groups: RowGroups,
        waivers: Mapping[str, _Waivers],
        reference: Table | None,
        second: PairReader | None,
    ) -> None:
        self._table = table
        self._groups = groups
        self._waivers = waivers
        self._reference = None if reference is None else ReferenceRows(reference)
        self._read_pairs = second
        self._checked = table.status == CHECKED
        self._present: dict[str, Array] = {}
        self._failing = FailingRows(len(table))
        self._findings: dict[str, FindingsByRow] = {}

    def evaluate(self, choice: Choice) -> Evaluation:
        """Run a rule on every group of rows and every field that it judges."""
        rule = choice.rule
        if rule.needs_reference and self._reference is None and choice.verdict is None:
            choice = replace(choice, verdict=Verdict.NOT_APPLICABLE, why="no --reference given")
        evaluation = Evaluation(choice, len(self._table))
        if choice.verdict is None:
            self._judge_all(choice, evaluation)
        self._findings[rule.code] = FindingsByRow(evaluation.findings)
        for code, mask in evaluation.coverage.suppressed.items():
            self._findings[code].count_hidden(rule.code, np.flatnonzero(mask))
        return evaluation

    def _judge_all(self, choice: Choice, evaluation: Evaluation) -> None:
        rule = choice.rule
        if self._groups.merged and rule.span != "all":
            evaluation.infos.append(
                f"the {self._groups.merged:,} splits with the fewest samples are judged as one"
            )
        clock = _RuleClock()
        for group in self._groups.of(rule):
            if group.unjudged:
                evaluation.add(_unjudged(_select(group.rows, self._checked), group.unjudged))
                continue
            for name, spec in targets(rule, group.schema, choice.level):
                call = self._prepare(choice, group, name, spec)
                evaluation.expected |= rule.per == "sample" or _is_required(call.context)
                result = self._run(call, clock)
                for failure in result.failures:
                    if failure.is_error:
                        self._failing.add(rule.code, failure.fields, failure.finding.rows)
                evaluation.add(result)

    def _prepare(self, choice: Choice, group: RowGroup, name: str, spec: FieldSpec) -> _JudgeCall:
        """Return the call of a judge for one field, without the rows that other rules suppress."""
        rule = choice.rule
        rows = group.rows
        if rule.sees == "checked":
            rows = _select(rows, self._checked)
        if rule.per == "field":
            rows = _select(rows, self._present_rows(name))
        suppressed: dict[str, Array] = {}
        for code in rule.suppressed_by:
            failing = self._failing.of(code, name)
            if failing is None:
                continue
            hidden = failing[rows]
            if hidden.any():
                suppressed[code] = rows[hidden]
                rows = rows[~hidden]
        context = RuleContext(group.schema, name, spec, choice.options)
        notes = self._groups.notes(rule, group.split)
        return _JudgeCall(choice, group.split, context, rows, suppressed, notes)

    def _present_rows(self, name: str) -> Array:
        if name not in self._present:
            self._present[name] = self._table.present(name)
        return self._present[name]

    def _run(self, call: _JudgeCall, clock: _RuleClock) -> CallResult:
        """Run the judge; a rule that raises, or that needs too much, does not end the scan."""
        result = CallResult(call.rows, call.suppressed)
        if call.is_empty:
            return result
        rows = TrackedRows(self._table, call.rows, call.field)
        try:
            context = self._complete_context(call, rows)
            # Samples may hold the largest numbers, so arithmetic may overflow.
            with limited_time(clock.seconds_left(len(rows))), np.errstate(all="ignore"):
                self._run_judge(call, context, rows, result)
        # Columns are read on demand, so a damaged run shows up here; an option may be wrong.
        except (DamagedRunError, UsageError):
            raise
        # Crafted samples can exhaust memory or time; they must not end the scan.
        except (MemoryError, OutOfTimeError) as error:
            result.ending = Ending.STOPPED
            self._record(call, result, _stopped(len(rows), error))
        except Exception:  # noqa: BLE001  a rule that raises gets a crash verdict; the others go on
            result.crash = _crash(call)
        return result

    def _run_judge(
        self, call: _JudgeCall, context: RuleContext, rows: TrackedRows, result: CallResult
    ) -> None:
        """Run the judge to its end; record each thing that it yields at once, in case it fails."""
        rule = call.choice.rule
        notes = self._without_waived(call, result)
        if not len(rows) and not notes:
            return
        is_silent = True
        for judged in rule.judge(rows, replace(context, notes=notes)):
            self._record(call, result, judged)
            is_silent = False
        if is_silent and rule.per == "field" and rows.found_nothing:
            result.ending = Ending.NOTHING_FOUND

    def _complete_context(self, call: _JudgeCall, rows: Rows) -> RuleContext:
        """Return the context with the rows of the reference run and the values of pairs."""
        rule = call.choice.rule
        context = call.context
        if rule.needs_reference and self._reference is not None:
            reference = self._reference.rows(rule, call.field, call.split)
            context = replace(context, reference=reference)
        if rule.pairs is not None and self._read_pairs is not None:
            context = with_pairs(rule, context, call.split, rows, self._read_pairs)
        return context

    def _without_waived(self, call: _JudgeCall, result: CallResult) -> tuple[Note, ...]:
        """Return the notes that no waiver exempts; count the others in the result."""
        waivers = self._waivers[call.choice.rule.code]
        if not waivers:
            return tuple(call.notes)
        kept: list[Note] = []
        for note in call.notes:
            if not waivers.waives(note.key):
                kept.append(note)
            elif not note.missing:  # a missing sample has a row, which is counted
                result.waived += 1
        return tuple(kept)

    def _record(
        self, call: _JudgeCall, result: CallResult, judged: Failure | Skip | Info | DriftResult
    ) -> None:
        """Add what a judge yielded to the result of its call."""
        match judged:
            case Skip():
                result.skipped.append(
                    (judged.reason, call.rows[_checked_mask(judged.mask, call.rows)])
                )
            case DriftResult():
                result.drifts.append(replace(judged, split=call.split))
            case Info():
                parts = (call.field, call.split, judged.words)
                result.infos.append(" ".join(part for part in parts if part))
            case _:
                self._record_failure(call, result, judged)

    def _record_failure(self, call: _JudgeCall, result: CallResult, failure: Failure) -> None:
        choice = call.choice
        failing = _checked_mask(failure.mask, call.rows)
        waived = self._waived_rows(call, failing)
        reported = failing & ~waived
        if waived.any():
            result.waived += int(np.count_nonzero(waived))
            if not reported.any():
                return
        finding = _finding(self._table, call, failure, reported)
        own_severity = failure.severity or choice.rule.severity
        most_allowed = choice.settings.allow * len(call.rows)
        result.failures.append(
            RecordedFailure(
                finding,
                fields=(call.field, *failure.extra),
                is_error=own_severity is Severity.ERROR,
                is_allowed=finding.severity is not Severity.INFO
                and 0 < finding.failed <= most_allowed,
            )
        )

    def _waived_rows(self, call: _JudgeCall, failing: Array) -> Array:
        """Return bool (rows of the call): failing, and exempted by a waiver."""
        waived = np.zeros(len(failing), bool)
        waivers = self._waivers[call.choice.rule.code]
        if waivers:
            for place in np.flatnonzero(failing).tolist():
                waived[place] = waivers.waives(self._table.keys[int(call.rows[place])])
        return waived


def _select(rows: Array, mask: Array) -> Array:
    """Return those of `rows` where a mask over all rows is true.

    Mostly all of them are: then `rows` itself, without a copy.
    """
    return rows if mask.all() else rows[mask[rows]]


def _checked_mask(mask: Array, rows: Array) -> Array:
    """Return a judge's mask as booleans.

    Raises:
        ValueError: it does not have one value per row.
    """
    checked = np.asarray(mask, dtype=bool)
    if checked.shape != rows.shape:
        msg = f"the judge returned a mask of {checked.shape} for {len(rows)} rows"
        raise ValueError(msg)
    return checked


def _is_required(context: RuleContext) -> bool:
    """Return whether every sample must have the judged field; a part belongs to its field."""
    if context.name == ANY:
        return False
    part = context.schema.part_of(context.name)
    spec = context.spec if part is None else context.schema.fields[part[0]]
    return not spec.optional


_EXAMPLES = 3
_MAX_DRAWN = 12  # worst rows of a finding, for the pictures of the report


def _finding(table: Table, call: _JudgeCall, failure: Failure, reported: Array) -> Finding:
    """Return a failure as a finding about the reported rows, a mask over the rows of the call."""
    choice = call.choice
    rule = choice.rule
    rows = call.rows[reported]
    order = None if failure.order is None else np.asarray(failure.order)[reported]
    worst = rows
    if order is not None:
        worst = rows[np.argsort(-order.astype(np.float64), kind="stable")]
    severity = failure.severity or rule.severity
    if choice.settings.severity:
        severity = choice.severity
    fields = dict.fromkeys(name for name in (call.field, *failure.extra) if name)
    return Finding(
        rule.code,
        rule.name,
        severity,
        rule.level,
        tuple(fields),
        failure.message,
        rows,
        of=len(call.rows),
        examples=tuple(table.keys[int(row)] for row in worst[:_EXAMPLES]),
        measured=failure.measured,
        expected=failure.expected,
        cause=failure.cause,
        fix=failure.fix,
        kind=failure.kind,
        split=call.split,
        worst=() if order is None else tuple(worst[:_MAX_DRAWN].tolist()),
        ranges=None if failure.ranges is None else np.asarray(failure.ranges)[reported],
    )


def _unjudged(rows: Array, reason: str) -> CallResult:
    """Return the result for rows that a rule cannot judge, without a call of the judge."""
    return CallResult(rows, skipped=[(reason, rows)])


_STOPPED = "stopped"  # kind of the finding about a judge that used up its time or memory


def _stopped(rows: int, error: Exception) -> Failure:
    why = "needs more memory than there is" if isinstance(error, MemoryError) else "takes too long"
    return Failure(
        np.zeros(rows, bool),
        f"not judged: the rule {why} for these {rows:,} samples.",
        fix="If some samples are unlike all others (in shapes, names or texts), leave them out; "
        "else report it.",
        severity=Severity.ERROR,
        kind=_STOPPED,
    )


def _crash(call: _JudgeCall) -> dict[str, str]:
    """Return the exception in flight as a crash of the call's rule."""
    where = " ".join(part for part in (call.field, call.split) if part) or "the dataset"
    return {"rule": call.choice.rule.code, "at": where, "traceback": traceback.format_exc()}
