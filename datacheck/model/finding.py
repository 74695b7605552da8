"""The results of a scan: Severity, Level, Verdict, Failure, Finding, RuleVerdict, Report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Severity(StrEnum):
    """How bad a finding is.

    An error makes the sample invalid for training, a warning calls for a look, info needs no
    action.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Level(StrEnum):
    """The unit that a rule evaluates; it decides how rows are grouped."""

    FILE = "file"
    SAMPLE = "sample"
    GROUP = "group"
    DATASET = "dataset"
    PAIR = "pair"


class Verdict(StrEnum):
    """The result of a rule; a rule that could not evaluate never counts as passed."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    CRASH = "crash"
    NOT_APPLICABLE = "not_applicable"
    OFF = "off"


@dataclass(frozen=True)
class Cause:
    """The likely cause, and how many of the failing samples it explains."""

    text: str
    kind: str = ""
    factor: float | None = None
    explains: int | None = None
    alternatives: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Failure:
    """The result of a judge function: which of its rows fail, and why.

    Args:
        mask: bool (rows): the failing rows; all False for a statement about the dataset as a whole.
        message: one sentence: the measured value and the allowed value, with units.
        measured, expected: the numbers in the sentence, JSON values.
        fix: what to do.
        severity: overrides the rule's own severity; None keeps it.
        kind: distinguishes two failures of one rule and field ("mm", "short"); part of the
            finding's id.
        order: numbers (rows): sort key for examples, worst first; None keeps key order.
        extra: further fields that the failure concerns.
        ranges: int64 (rows, n, 2): which steps of a failing episode to train on, as [first, stop)
            in order; first equals stop for an unused range. None: the failure concerns whole
            samples.
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
    """One violation of one rule by one field (one root cause), with the affected rows.

    Args:
        rows: int64 positions in the run's table; empty for a statement about the dataset as a
            whole.
        of: how many rows were evaluated.
        examples: up to three keys, worst first.
        worst: up to twelve of `rows`, worst first; empty without an order.
        hides: by code of a later rule, how many of these samples that rule skipped because of this
            finding.
        split: the evaluated split; "" for a dataset without splits or a rule over all splits.
        suppressed: why the finding is not reported again; "" where it is reported.
        ranges: as in `Failure`, one entry per element of `rows`.
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
        """Stable name: rule, fields, kind, split; contains no counts and no paths."""
        return ":".join(
            part for part in (self.code, "+".join(self.fields), self.kind, self.split) if part
        )

    @property
    def failed(self) -> int:
        """Number of failing samples."""
        return len(self.rows)


@dataclass(frozen=True)
class RuleVerdict:
    """The result of one rule over the whole run.

    Args:
        checked, failed: number of samples evaluated, and number of failing samples.
        skipped: number of samples not evaluated, by the code that they fail already.
        unseen: further data that the rule could not evaluate, one sentence each.
        why: the reason for a verdict that is neither pass nor fail, what is allowed or waived, and
            what the rule observed.
        options: the options in force.
        compared: for a rule against a reference, what it compared: ``count``, ``measures`` (the
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
    """The complete result of a scan; `datacheck.report` prints it.

    Args:
        run: id, started, seconds, version, command, fail_on (error, warning, never), kept_files,
            kept_samples, rule_seconds {code: seconds, for rules that took 1 ms or more},
            allow_unread if given, rescored and reference {run, folder} if any, and since {run,
            started, new, gone, other} if an earlier run scanned the same data.
        dataset: name, root, digest, files, bytes, samples {listed, checked, unreadable, skipped},
            splits {name: {samples, valid}}, and for files read what `ReadCoverage` states.
        schema: name, digest.
        verdicts: every rule, including passed ones.
        findings: worst first.
        valid: number of samples fit for training.
        unchecked: what the scan did not check, one sentence each.
        crashes: rules and measurements that raised: rule, at, traceback.
        folder: the directory of result.json, samples.parquet, valid.json and report.html.
        suppressed: findings that the baseline lists; they affect only which samples are valid.
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
        """Exit code: 4 after a crash, 1 for findings at or above `run["fail_on"]`, else 0."""
        if self.crashes:
            return 4
        threshold = {"error": [Severity.ERROR], "warning": [Severity.ERROR, Severity.WARNING]}
        failing = threshold.get(self.run.get("fail_on", "error"), [])
        return int(any(f.severity in failing for f in self.findings))

    def counts(self) -> dict[str, int]:
        """Return the number of findings per severity."""
        return {s.value: sum(f.severity is s for f in self.findings) for s in Severity}


class Tick(NamedTuple):
    """Progress of a scan or a build: files and bytes done and in total, samples done, files kept.

    A build counts shards instead of files. `note` is a line to print at once, for example what a
    cluster is waiting for.
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
    """Return a function that reports a line through `progress`, with the counts of `tick`."""
    return lambda note: None if progress is None else progress(tick._replace(note=note))
