"""A finished run read back: the Report that its result.json is, for whoever prints it anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from datacheck.errors import UsageError
from datacheck.finding import Cause, Finding, Level, Report, RuleVerdict, Severity, Verdict
from datacheck.rules.base import counted
from datacheck.scan import store
from datacheck.scan.documents import read_result
from datacheck.scan.state import Past, read_state

Read = TypeVar("Read")

_LEFT_OUT = {"findings": "more finding", "suppressed": "more known finding", "unchecked": "more sentence"}


@dataclass(frozen=True, eq=False)
class _Told(Finding):
    """A finding of a result.json, which has the number of its samples and not their rows."""

    count: int = 0

    @property
    def failed(self) -> int:
        """How many samples fail."""
        return self.count


@dataclass(frozen=True, eq=False)
class _Read(Report):
    """A report of which the last findings may be missing: the verdict is that of all."""

    verdict: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """What the command line returned."""
        return int(self.verdict["exit_code"])

    def counts(self) -> dict[str, int]:
        """Return the number of findings by severity."""
        return dict(self.verdict["counts"])


def finished(folder: Path, read: Callable[[Report, Past], Read]) -> Read:
    """Return what `read` makes of what a finished run says, and of what it keeps for the next one.

    Args:
        folder: of the run, or the folder of all runs for the newest.
        read: as for `read_run`.

    Raises:
        UsageError: there is no such run, or it cannot be read.
        StorageError: this user may not read it.
    """
    return read_run(folder, lambda place, said: read(_report(said, place.resolve()), read_state(place)))


def read_run(folder: Path, read: Callable[[Path, dict[str, Any]], Read]) -> Read:
    """Return what `read` makes of a finished run's folder and result.json.

    Args:
        folder: of the run, or the folder of all runs for the newest.
        read: whatever it raises is a fault of the run.

    Raises:
        UsageError: there is no such run, or it cannot be read.
        StorageError: this user may not read it.
    """
    place = store.run_in(folder)
    if place is None:
        msg = f"{folder}: is no finished run. Name the folder of one, for example .datacheck/latest"
        raise UsageError(msg)
    try:
        return read(place, read_result(place))
    except Exception as error:
        raise store.unread(folder, error) from error


def _report(said: Mapping[str, Any], place: Path) -> Report:
    counts = [(many, _LEFT_OUT[name]) for name, many in said.get("left_out", {}).items() if name in _LEFT_OUT]
    left_out = [f"{counted(many, what)}, for which result.json has no room" for many, what in counts]
    return _Read(
        said["run"], said["dataset"], said["schema"], [_verdict(code, rule) for code, rule in said["rules"].items()],
        [_finding(one) for one in said["findings"]], said["verdict"]["valid"], [*said["unchecked"], *left_out],
        said["crashes"], str(place), [_finding(one) for one in said.get("suppressed", [])], verdict=said["verdict"],
    )  # fmt: skip


def _verdict(code: str, rule: Mapping[str, Any]) -> RuleVerdict:
    return RuleVerdict(
        code, rule["name"], Verdict(rule["status"]), Severity(rule["severity"]), Level(rule["level"]),
        rule.get("checked", 0), rule.get("failed", 0), rule.get("skipped", {}), tuple(rule.get("unseen", ())),
        rule.get("why", ""), rule["options"], rule.get("compared", {}),
    )  # fmt: skip


def _finding(said: Mapping[str, Any]) -> Finding:
    cause = said["cause"]
    return _Told(
        said["rule"], said["name"], Severity(said["severity"]), Level(said["level"]), tuple(said["fields"]),
        said["message"], np.zeros(0, np.int64), said["of"], tuple(said["examples"]), said["measured"],
        said["expected"], cause and Cause(**cause | {"alternatives": tuple(cause["alternatives"])}), said["fix"],
        said["kind"], said["hides"], said["split"], said.get("suppressed", ""), count=said["failed"],
    )  # fmt: skip
