"""Results as tests, one for each rule: outcomes for test frameworks, and JUnit XML.

A rule has failed if one of its findings counts for the exit code, so that both agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from xml.etree import ElementTree as ET

from datacheck.errors import COLONS, COMMAND, escape_ci_commands
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


# ---------------------------------------------------------------------------------------- JUnit XML


def junit(result: Mapping[str, Any]) -> bytes:
    """Return a result as JUnit XML in UTF-8; control characters are escaped.

    Args:
        result: ``datacheck.result/1``.
    """
    suite = _suite(result)
    suites = ET.Element("testsuites", {"name": "datacheck"})
    suites.append(suite)
    _set_counts(suites, suite)
    ET.indent(suites)
    text: str = ET.tostring(suites, encoding="unicode")
    # Character references keep the text, and are no commands for a CI runner that prints the file.
    text = COMMAND.sub("&#35;#", COLONS.sub(r"\1&#58;:", text))
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n".encode()


def _suite(result: Mapping[str, Any]) -> ET.Element:
    suite = ET.Element(
        "testsuite",
        {
            "name": f"datacheck {clean(result['dataset']['name'])}".strip(),
            "timestamp": clean(result["run"]["started"]).removesuffix("Z"),
            "time": f"{result['run']['seconds']:.3f}",
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(result).items():
        ET.SubElement(properties, "property", {"name": name, "value": clean(str(value))})
    # A dot would begin a package in the class name.
    schema_name = clean(result["schema"]["name"]).replace(".", "_") or "-"
    for outcome in outcomes(result):
        _add_testcase(suite, f"datacheck.{schema_name}", outcome)
    return suite


def _properties(result: Mapping[str, Any]) -> dict[str, Any]:
    properties = {
        "version": result["run"]["version"],
        "schema": result["schema"]["name"],
        "root": result["dataset"]["root"],
        "digest": result["dataset"]["digest"],
    }
    for status, count in result["dataset"]["samples"].items():
        properties[f"samples.{status}"] = count
    properties["samples.valid"] = result["verdict"]["valid"]
    return properties


def _add_testcase(suite: ET.Element, class_name: str, outcome: RuleOutcome) -> None:
    name = f"{outcome.code} {outcome.name}".strip()
    case = ET.SubElement(suite, "testcase", {"name": name, "classname": class_name})
    reason = {"type": outcome.kind, "message": outcome.message}
    if outcome.state == "failed":
        ET.SubElement(case, "failure", reason).text = outcome.text
        return
    if outcome.state == "error":
        ET.SubElement(case, "error", reason).text = outcome.trace
    elif outcome.state == "skipped":
        ET.SubElement(case, "skipped", {"message": outcome.message})
    if outcome.text:
        ET.SubElement(case, "system-out").text = outcome.text


def _set_counts(suites: ET.Element, suite: ET.Element) -> None:
    """Set the number of tests by state; the outer element has no attribute for skipped ones."""
    counts = {
        "tests": len(suite.findall("testcase")),
        "failures": len(suite.findall("testcase/failure")),
        "errors": len(suite.findall("testcase/error")),
    }
    for name, count in counts.items():
        suite.set(name, str(count))
        suites.set(name, str(count))
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
