"""The outcome of each rule as that of a test, for test frameworks.

A rule has failed if one of its findings counts for the exit code, so that both agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from datacheck.errors import escape_ci_commands
from datacheck.model.finding import Verdict
from datacheck.report.words import clean, finding_lines, last_line

# By --fail-on, the severities that count for the exit code.
_FAILING_SEVERITIES = {"error": {"error"}, "warning": {"error", "warning"}, "never": set[str]()}
_LEFT_OUT = "its findings did not fit into result.json; samples.parquet names the samples"
_NOT_RUN = {
    Verdict.SKIP: "had nothing to look at",
    Verdict.NOT_APPLICABLE: "does not apply",
    Verdict.OFF: "is off",
}


@dataclass(frozen=True)
class RuleOutcome:
    """The outcome of one rule; all texts are escaped.

    Args:
        code, name: of the rule; "reader" and "" for the readers.
        state: passed, failed, skipped or error (it crashed).
        kind: severity of the first finding that counts, or "crash"; "" if it passed or was skipped.
        message: the reason for the state, in one line; "" if it passed.
        text: its findings, block by block, including those that do not count; "" without findings.
        trace: where it crashed, with the tracebacks.
    """

    code: str
    name: str
    state: Literal["passed", "failed", "skipped", "error"] = "passed"
    kind: str = ""
    message: str = ""
    text: str = ""
    trace: str = ""


def without_ci_commands(outcome: RuleOutcome) -> RuleOutcome:
    """Return an outcome whose lines contain no command for a CI runner."""
    return replace(
        outcome,
        message=escape_ci_commands(outcome.message),
        text=escape_ci_commands(outcome.text),
        trace=escape_ci_commands(outcome.trace),
    )


def outcomes(result: Mapping[str, Any]) -> Iterator[RuleOutcome]:
    """Yield the outcome of every rule, then that of the readers if one crashed.

    Args:
        result: ``datacheck.result/1``.
    """
    for code, rule in result["rules"].items():
        findings = [finding for finding in result["findings"] if finding["rule"] == code]
        crashes = [crash for crash in result["crashes"] if crash["rule"] == code]
        outcome = RuleOutcome(clean(code), clean(rule["name"]), text=_text(findings))
        if crashes or rule["status"] == Verdict.CRASH:
            yield _crashed(outcome, crashes)
        else:
            yield _judged(outcome, rule, findings, result)
    readers = [crash for crash in result["crashes"] if crash["rule"] not in result["rules"]]
    if readers:
        yield _crashed(RuleOutcome("reader", ""), readers)


def _text(findings: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join("\n".join(finding_lines(finding)) for finding in findings)


def _crashed(outcome: RuleOutcome, crashes: Sequence[Mapping[str, str]]) -> RuleOutcome:
    message = clean("; ".join(last_line(crash["traceback"]) for crash in crashes))
    trace = "\n".join(line for crash in crashes for line in _trace(crash))
    return replace(outcome, state="error", kind="crash", message=message or "crashed", trace=trace)


def _trace(crash: Mapping[str, str]) -> Iterator[str]:
    yield f"on {clean(crash['at'], spaces=True)}"
    for line in crash["traceback"].strip().splitlines():
        yield clean(line, spaces=True)


def _judged(
    outcome: RuleOutcome,
    rule: Mapping[str, Any],
    findings: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any],
) -> RuleOutcome:
    """Return the outcome of a rule that did not crash: failed, skipped or passed."""
    failing = _FAILING_SEVERITIES[result["run"]["fail_on"]]
    counting = [finding for finding in findings if finding["severity"] in failing]
    if counting:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        message = clean(counting[0]["message"]) + more
        return replace(outcome, state="failed", kind=counting[0]["severity"], message=message)
    status = rule["status"]
    # result.json holds only the worst of very many findings; this rule's are not among them.
    is_cut = status == Verdict.FAIL and not findings and "left_out" in result
    if is_cut and rule["severity"] in failing:
        return replace(outcome, state="failed", kind=rule["severity"], message=_LEFT_OUT)
    if status in _NOT_RUN:
        reason = clean(rule.get("why") or "; ".join(rule.get("unseen", [])))
        message = f"{_NOT_RUN[status]}: {reason}" if reason else _NOT_RUN[status]
        return replace(outcome, state="skipped", message=message)
    return outcome
