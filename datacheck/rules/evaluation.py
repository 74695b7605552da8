"""The evaluation of one rule: from the results of single judge calls to the rule's verdict.

The engine calls a judge once for each group of rows and each field that the rule judges. What one
call came to is a `CallResult`. An `Evaluation` adds the results of all calls of a rule up, and
`Coverage` in it counts which rows were judged. The verdict follows from the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np

from datacheck.model.finding import Finding, RuleVerdict, Severity, Verdict
from datacheck.rules.comparison import DriftResult, comparison_json
from datacheck.rules.selection import Choice

Array = np.ndarray[Any, Any]


class Ending(Enum):
    """How a judge call ended; it decides which of its rows count as judged."""

    COMPLETE = auto()  # all rows, except those that the judge skipped
    NOTHING_FOUND = auto()  # none: no column that the judge asked for exists
    STOPPED = auto()  # out of time or memory: only rows that already failed


@dataclass(frozen=True, eq=False)
class RecordedFailure:
    """A failure that a judge yielded, as a finding without waived rows.

    Args:
        finding: with the severity that the schema may set for the rule.
        fields: the fields that it concerns; "" is the sample as a whole.
        is_error: by the rule's or the judge's own severity, so later rules leave its rows out.
        is_allowed: so few rows fail that the schema allows it; it is not reported.
    """

    finding: Finding
    fields: tuple[str, ...]
    is_error: bool
    is_allowed: bool


@dataclass(eq=False)
class CallResult:
    """The result of one judge call.

    Args:
        rows: int64: the rows that the judge was given.
        suppressed: by code, the rows that it was not given because they fail that rule.
        skipped: by reason, the rows that it was given and could not judge.
        waived: number of failing rows and notes that a waiver exempts.
    """

    rows: Array
    suppressed: Mapping[str, Array] = field(default_factory=dict)
    ending: Ending = Ending.COMPLETE
    failures: list[RecordedFailure] = field(default_factory=list)
    skipped: list[tuple[str, Array]] = field(default_factory=list)
    infos: list[str] = field(default_factory=list)
    drifts: list[DriftResult] = field(default_factory=list)
    crash: dict[str, str] | None = None
    waived: int = 0


class Coverage:
    """Which rows of the table a rule judged, and why it did not judge the others.

    Args:
        size: number of rows of the table.

    Attributes:
        checked, failed: bool (rows): judged; failing, by a finding that is reported.
        suppressed: by code, bool (rows): not judged because they fail that rule.
        skipped: by reason, bool (rows): the judge could not judge them.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.checked = np.zeros(size, bool)
        self.failed = np.zeros(size, bool)
        self.suppressed: dict[str, Array] = {}
        self.skipped: dict[str, Array] = {}

    def add(self, call: CallResult) -> None:
        """Add the rows of one judge call."""
        for code, rows in call.suppressed.items():
            self._mark(self.suppressed, code, rows)
        for failure in call.failures:
            if failure.finding.severity is not Severity.INFO and not failure.is_allowed:
                self.failed[failure.finding.rows] = True
        if call.ending is Ending.COMPLETE:
            self.checked[call.rows] = True
        elif call.ending is Ending.STOPPED:
            self.checked[call.rows] |= self.failed[call.rows]
        for reason, rows in call.skipped:
            self._mark(self.skipped, reason, rows)
            if call.ending is Ending.COMPLETE:
                self.checked[rows] = False

    def _mark(self, masks: dict[str, Array], key: str, rows: Array) -> None:
        masks.setdefault(key, np.zeros(self._size, bool))[rows] = True


class Evaluation:
    """The results of all judge calls of one rule.

    Args:
        choice: the rule with its settings.
        size: number of rows of the table.

    Attributes:
        findings: those that are reported.
        allowed: findings of so few rows that the schema allows them.
        expected: the schema requires the values that the rule judges.
    """

    def __init__(self, choice: Choice, size: int) -> None:
        self.choice = choice
        self.coverage = Coverage(size)
        self.findings: list[Finding] = []
        self.allowed: list[Finding] = []
        self.infos: list[str] = []
        self.drifts: list[DriftResult] = []
        self.crashes: list[dict[str, str]] = []
        self.waived = 0
        self.expected = False

    def add(self, call: CallResult) -> None:
        """Add the result of one judge call."""
        self.coverage.add(call)
        for failure in call.failures:
            findings = self.allowed if failure.is_allowed else self.findings
            findings.append(failure.finding)
        self.infos += call.infos
        self.drifts += call.drifts
        self.waived += call.waived
        if call.crash is not None:
            self.crashes.append(call.crash)

    def verdict(self, *, readable: bool) -> RuleVerdict:
        """Return the verdict of the rule.

        Args:
            readable: some sample of the run could be read.
        """
        rule = self.choice.rule
        verdict, reason = self._verdict(readable=readable)
        remarks = self._remarks()
        if verdict is Verdict.CRASH:
            remarks.insert(0, reason)
        elif reason:
            remarks.append(reason)
        return RuleVerdict(
            rule.code,
            rule.name,
            verdict,
            self.choice.severity,
            rule.level,
            checked=int(np.count_nonzero(self.coverage.checked)),
            failed=int(np.count_nonzero(self.coverage.failed)),
            skipped=_counts(self.coverage.suppressed),
            unseen=tuple(
                f"{count:,} samples not judged: {skip_reason}"
                for skip_reason, count in _counts(self.coverage.skipped).items()
            ),
            why="; ".join(remarks),
            options=dict(self.choice.options),
            compared=comparison_json(self.drifts) if self.drifts else {},
        )

    def _verdict(self, *, readable: bool) -> tuple[Verdict, str]:
        """Return the verdict, and the reason for one that is neither pass nor fail."""
        if self.crashes:
            return Verdict.CRASH, self.crashes[0]["traceback"].strip().splitlines()[-1]
        if any(finding.severity is not Severity.INFO for finding in self.findings):
            return Verdict.FAIL, ""
        if self.choice.verdict is not None:
            return self.choice.verdict, self.choice.why
        if self.coverage.checked.any():
            return Verdict.PASS, ""
        return self._verdict_without_rows(readable=readable)

    def _verdict_without_rows(self, *, readable: bool) -> tuple[Verdict, str]:
        """Return the verdict of a rule that judged no row, with the reason."""
        if self.coverage.skipped:
            return Verdict.SKIP, "; ".join(self.coverage.skipped)
        codes = [code for code, mask in sorted(self.coverage.suppressed.items()) if mask.any()]
        if codes:
            return Verdict.SKIP, f"every sample that it would judge fails {', '.join(codes)}"
        if not readable:
            return Verdict.SKIP, "no sample could be read"
        verdict = Verdict.SKIP if self.expected else Verdict.NOT_APPLICABLE
        return verdict, "no sample holds what it judges"

    def _remarks(self) -> list[str]:
        """Return what the judge observed, what the schema allows and what it waives."""
        settings = self.choice.settings
        remarks = list(self.infos)
        for finding in self.allowed:
            remarks.append(
                f"{finding.failed:,} of {finding.of:,} fail, {settings.allow:.3g} of them allowed"
            )
        if self.waived:
            remarks.append(f"{self.waived:,} failing samples waived: {settings.reason}")
        return remarks


def _counts(masks: Mapping[str, Array]) -> dict[str, int]:
    return {key: int(np.count_nonzero(mask)) for key, mask in sorted(masks.items())}
