"""What came of each rule in the words of test reports: passed, failed, skipped or an error (JUnit XML, pytest).

A rule has failed where one of its findings counts for the exit code, so that both say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from datacheck.errors import inert
from datacheck.finding import Verdict
from datacheck.report.words import clean, finding_lines, last_line

_COUNTED = {"error": {"error"}, "warning": {"error", "warning"}, "never": set[str]()}
_LEFT_OUT = "its findings did not fit into result.json; samples.parquet names the samples"
_NOT_RUN = {Verdict.SKIP: "had nothing to look at", Verdict.NOT_APPLICABLE: "does not apply", Verdict.OFF: "is off"}


@dataclass(frozen=True)
class Outcome:
    """What came of one rule; all texts are harmless.

    Args:
        code, name: of the rule; of the readers "reader" and "".
        state: passed, failed, skipped or error (it crashed).
        kind: severity of the first finding that counts, or "crash"; "" where it passed or was skipped.
        message: why it is in this state, one line; "" where it passed.
        text: its findings, block by block, also those that do not count; "" where there are none.
        trace: where it crashed, with the tracebacks.
    """

    code: str
    name: str
    state: Literal["passed", "failed", "skipped", "error"] = "passed"
    kind: str = ""
    message: str = ""
    text: str = ""
    trace: str = ""


def harmless(outcome: Outcome) -> Outcome:
    """Return an outcome in whose lines a runner of CI finds no command."""
    message, text, trace = map(inert, (outcome.message, outcome.text, outcome.trace))
    return replace(outcome, message=message, text=text, trace=trace)


def outcomes(said: Mapping[str, Any]) -> Iterator[Outcome]:
    """Yield the outcome of every rule, and after them that of the readers where one crashed.

    Args:
        said: ``datacheck.result/1``.
    """
    for code, rule in said["rules"].items():
        found = [finding for finding in said["findings"] if finding["rule"] == code]
        crashes = [crash for crash in said["crashes"] if crash["rule"] == code]
        yield _outcome(said, code, rule, found, crashes)
    readers = [crash for crash in said["crashes"] if crash["rule"] not in said["rules"]]
    if readers:
        yield _outcome(said, "reader", {"name": "", "status": Verdict.CRASH}, [], readers)


def _outcome(
    said: Mapping[str, Any], code: str, rule: Mapping[str, Any], found: Sequence[Mapping[str, Any]],
    crashes: Sequence[Mapping[str, str]],
) -> Outcome:  # fmt: skip
    head = clean(code), clean(rule["name"])
    text = "\n\n".join("\n".join(finding_lines(finding)) for finding in found)
    counting = _COUNTED[said["run"]["fail_on"]]
    counted = [finding for finding in found if finding["severity"] in counting]
    if crashes or rule["status"] == Verdict.CRASH:
        last = clean("; ".join(last_line(crash["traceback"]) for crash in crashes)) or "crashed"
        trace = "\n".join(line for crash in crashes for line in _traceback(crash))
        return Outcome(*head, "error", "crash", last, text, trace)
    if counted:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return Outcome(*head, "failed", counted[0]["severity"], clean(counted[0]["message"]) + more, text)
    if rule["status"] == Verdict.FAIL and not found and rule["severity"] in counting and "left_out" in said:
        # result.json has the worst findings of a dataset with very many; those of this rule are not among them
        return Outcome(*head, "failed", rule["severity"], _LEFT_OUT)
    if rule["status"] in _NOT_RUN:
        why = clean(rule.get("why") or "; ".join(rule.get("unseen", [])))
        return Outcome(*head, "skipped", "", _NOT_RUN[rule["status"]] + (f": {why}" if why else ""), text)
    return Outcome(*head, text=text)


def _traceback(crash: Mapping[str, str]) -> list[str]:
    lines = crash["traceback"].strip().splitlines()
    return [f"on {clean(crash['at'], spaces=True)}", *(clean(line, spaces=True) for line in lines)]
