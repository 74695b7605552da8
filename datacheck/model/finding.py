"""What a scan says: Severity, Level, Verdict, Failure (of a judge), Finding, RuleVerdict, Report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Severity(StrEnum):
    """How bad: an error makes the sample invalid for training, a warning asks for a look, info asks for nothing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Level(StrEnum):
    """What a rule is about; it says how rows are grouped."""

    FILE = "file"
    SAMPLE = "sample"
    GROUP = "group"
    DATASET = "dataset"
    PAIR = "pair"


class Verdict(StrEnum):
    """What came of a rule; one that could not look never counts as passed."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    CRASH = "crash"
    NOT_APPLICABLE = "not_applicable"
    OFF = "off"


@dataclass(frozen=True)
class Cause:
    """The likely reason, and how many of the failing samples it explains."""

    text: str
    kind: str = ""
    factor: float | None = None
    explains: int | None = None
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Failure:
    """What a judge yields: which of the rows it was given fail, and why.

    Args:
        mask: bool (rows): the failing ones; all False for a statement about the dataset as a whole.
        message: one sentence: what was measured, what is allowed, with units.
        measured, expected: the numbers behind the sentence, JSON values.
        fix: what to do.
        severity: other than the rule's own, or None.
        kind: tells two failures of one rule and field apart ("mm", "short"); part of the finding's
            id.
        order: numbers (rows): the worst first when examples are chosen; None keeps key order.
        extra: fields besides the judged one that the failure concerns.
        ranges: int64 (rows, n, 2): which steps of a failing episode to train on, first and behind
            the last, in order;
            where both are the same there is none. None: the failure is of whole samples.
    """

    mask: Array
    message: str
    measured: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    cause: Cause | None = None
    fix: str = ""
    severity: Severity | None = None
    kind: str = ""
    order: Array | None = None
    extra: tuple[str, ...] = ()
    ranges: Array | None = None


@dataclass(frozen=True, eq=False)
class Finding:
    """One violation of one rule by one field (one root cause), with the rows it concerns.

    Args:
        rows: int64 positions in the run's table; empty for a statement about the dataset as a
            whole.
        of: how many rows were judged.
        examples: up to three keys, worst first.
        worst: up to twelve of `rows`, worst first; empty where no order was kept.
        hides: how many of these samples each later rule (by code) did not judge because of this
            finding.
        split: the split that was judged, "" for a dataset without splits or a rule over all of
            them.
        suppressed: why it is not told again, "" where it is told.
        ranges: as of `Failure`, of `rows`.
    """

    code: str
    name: str
    severity: Severity
    level: Level
    fields: tuple[str, ...]
    message: str
    rows: Array
    of: int
    examples: tuple[str, ...] = ()
    measured: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)
    cause: Cause | None = None
    fix: str = ""
    kind: str = ""
    hides: dict[str, int] = field(default_factory=dict)
    split: str = ""
    suppressed: str = ""
    worst: tuple[int, ...] = ()
    ranges: Array | None = None

    @property
    def id(self) -> str:
        """Stable name: rule, field, kind, split; no counts, no paths."""
        return ":".join(
            part for part in (self.code, "+".join(self.fields), self.kind, self.split) if part
        )

    @property
    def failed(self) -> int:
        """How many samples fail."""
        return len(self.rows)


@dataclass(frozen=True)
class RuleVerdict:
    """What came of one rule over the whole run.

    Args:
        checked, failed: samples that it judged, and those that fail.
        skipped: samples that it did not judge, by the code that they fail already.
        unseen: what else it could not look at, a sentence each.
        why: the reason for a verdict that is neither pass nor fail, what was allowed or waived, and
            what the rule saw.
        options: the options in force.
        compared: of a rule against a reference, what it has compared: ``count``, ``measures`` (the
            largest effects).
    """

    code: str
    name: str
    verdict: Verdict
    severity: Severity
    level: Level
    checked: int = 0
    failed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()
    why: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    compared: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Report:
    """Everything a scan has to say; printing it is the business of `report/`.

    Args:
        run: id, started, seconds, version, command, fail_on (error, warning, never), kept_files,
            kept_samples,
            rule_seconds {code: judging it took 1 ms or more}, allow_unread where it was given,
            rescored and reference {run, folder} where there is one,
            and since {run, started, new, gone, other} where the same data were scanned before.
        dataset: name, root, digest, files, bytes, samples {listed, checked, unreadable, skipped},
            splits
            {name: {samples, valid}}, and of files read: what was looked at, as `Coverage` says it.
        schema: name, digest.
        verdicts: every rule, also those that passed.
        findings: worst first.
        valid: number of samples fit for training.
        unchecked: what was not looked at: one sentence each.
        crashes: rules and measurements that raised: rule, at, traceback.
        folder: where result.json, samples.parquet, valid.json and report.html are.
        suppressed: findings that a baseline knows; they count for nothing but what is valid.
    """

    run: dict[str, Any]
    dataset: dict[str, Any]
    schema: dict[str, Any]
    verdicts: list[RuleVerdict]
    findings: list[Finding]
    valid: int
    unchecked: list[str]
    crashes: list[dict[str, str]] = field(default_factory=list)
    folder: str = ""
    suppressed: list[Finding] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """What the command line returns: 4 for a crash, 1 for findings at or above `run["fail_on"]`, else 0."""
        if self.crashes:
            return 4
        threshold = {"error": [Severity.ERROR], "warning": [Severity.ERROR, Severity.WARNING]}
        failing = threshold.get(self.run.get("fail_on", "error"), [])
        return int(any(f.severity in failing for f in self.findings))

    def counts(self) -> dict[str, int]:
        """Return the number of findings by severity."""
        return {s.value: sum(f.severity is s for f in self.findings) for s in Severity}


class Tick(NamedTuple):
    """How far a scan or a build is: files and bytes done and in all, samples done, files kept from before.

    A build counts shards where a scan counts files; `note` is a line to be told at once: what a
    cluster is waited for.
    """

    files: int
    all_files: int
    nbytes: int
    all_nbytes: int
    samples: int
    kept: int
    doing: str = "scanning"
    unit: str = "files"
    note: str = ""


Progress = Callable[[Tick], None]


def note_reporter(progress: Progress | None, tick: Tick) -> Callable[[str], None]:
    """Return what tells a line by way of `progress`, where work has come as far as `tick` says."""
    return lambda note: None if progress is None else progress(tick._replace(note=note))
