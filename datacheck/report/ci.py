"""Results in the formats of test and CI tools: rule outcomes, GitHub, JUnit XML, SARIF, badges.

A rule has failed if one of its findings counts for the exit code, so that both agree.
"""

from __future__ import annotations

import html
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from xml.etree import ElementTree as ET

import orjson

from datacheck.errors import COLONS, COMMAND, escape_ci_commands
from datacheck.model.finding import Severity, Verdict
from datacheck.report import rule_pages
from datacheck.report.fitness import dataset_sentence, error_codes
from datacheck.report.words import clean, finding_lines, finding_title, last_line
from datacheck.rules import catalogue
from datacheck.runtime.beneath import read_file
from datacheck.runtime.hashing import digest_value
from datacheck.scan.run_documents import RESULT, RESULT_BYTES

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
    message, text, trace = map(escape_ci_commands, (outcome.message, outcome.text, outcome.trace))
    return replace(outcome, message=message, text=text, trace=trace)


def outcomes(said: Mapping[str, Any]) -> Iterator[RuleOutcome]:
    """Yield the outcome of every rule, then that of the readers if one crashed.

    Args:
        said: ``datacheck.result/1``.
    """
    for code, rule in said["rules"].items():
        findings = [finding for finding in said["findings"] if finding["rule"] == code]
        crashes = [crash for crash in said["crashes"] if crash["rule"] == code]
        yield _outcome(said, code, rule, findings, crashes)
    readers = [crash for crash in said["crashes"] if crash["rule"] not in said["rules"]]
    if readers:
        yield _outcome(said, "reader", {"name": "", "status": Verdict.CRASH}, [], readers)


def _outcome(
    result: Mapping[str, Any],
    code: str,
    rule: Mapping[str, Any],
    findings: Sequence[Mapping[str, Any]],
    crashes: Sequence[Mapping[str, str]],
) -> RuleOutcome:
    head = clean(code), clean(rule["name"])
    text = "\n\n".join("\n".join(finding_lines(finding)) for finding in findings)
    counting = _FAILING_SEVERITIES[result["run"]["fail_on"]]
    counted = [finding for finding in findings if finding["severity"] in counting]
    if crashes or rule["status"] == Verdict.CRASH:
        crash_message = (
            clean("; ".join(last_line(crash["traceback"]) for crash in crashes)) or "crashed"
        )
        trace = "\n".join(line for crash in crashes for line in _traceback(crash))
        return RuleOutcome(*head, "error", "crash", crash_message, text, trace)
    if counted:
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        return RuleOutcome(
            *head, "failed", counted[0]["severity"], clean(counted[0]["message"]) + more, text
        )
    if (
        rule["status"] == Verdict.FAIL
        and not findings
        and rule["severity"] in counting
        and "left_out" in result
    ):
        # result.json holds only the worst of very many findings; this rule's are not among them
        return RuleOutcome(*head, "failed", rule["severity"], _LEFT_OUT)
    if rule["status"] in _NOT_RUN:
        why = clean(rule.get("why") or "; ".join(rule.get("unseen", [])))
        return RuleOutcome(
            *head, "skipped", "", _NOT_RUN[rule["status"]] + (f": {why}" if why else ""), text
        )
    return RuleOutcome(*head, text=text)


def _traceback(crash: Mapping[str, str]) -> list[str]:
    lines = crash["traceback"].strip().splitlines()
    return [f"on {clean(crash['at'], spaces=True)}", *(clean(line, spaces=True) for line in lines)]


MAX_ANNOTATIONS = 10  # annotations of each kind
MAX_SUMMARY_BYTES = 512 * 1024  # of a summary; GitHub accepts 1 MiB for each step
_ANNOTATION_KINDS = {"error": "error", "warning": "warning", "info": "notice"}
_TITLE = 200


def commands(said: Mapping[str, Any]) -> str:
    """Return a result as workflow commands, one per line: at most ten of a kind.

    The last notice counts the rest.

    Args:
        said: ``datacheck.result/1``.
    """
    lines: dict[str, list[str]] = {kind: [] for kind in _ANNOTATION_KINDS.values()}
    for crash in said["crashes"]:
        title = f"{crash['rule'] or 'reader'} crashed"
        lines["error"].append(
            _command(
                "error", title, f"{clean(last_line(crash['traceback']))}\non {clean(crash['at'])}"
            )
        )
    for finding in said["findings"]:
        kind = _ANNOTATION_KINDS[finding["severity"]]
        lines[kind].append(
            _command(kind, finding_title(finding), "\n".join(finding_lines(finding)[1:]))
        )
    beyond = {kind: max(0, len(kind_lines) - MAX_ANNOTATIONS) for kind, kind_lines in lines.items()}
    beyond["notice"] += sum(
        said.get("left_out", {}).get(name, 0) for name in ("findings", "crashes")
    )
    if any(beyond.values()):
        notices = lines["notice"][: MAX_ANNOTATIONS - 1]
        count = sum(beyond.values()) + len(lines["notice"][:MAX_ANNOTATIONS]) - len(notices)
        more = f"{count:,} more in the job's summary and in result.json"
        lines["notice"] = [*notices, _command("notice", "datacheck", more)]
    return "".join(line for kind_lines in lines.values() for line in kind_lines[:MAX_ANNOTATIONS])


def _command(kind: str, title: str, message: str) -> str:
    short_title = clean(title)
    short_title = short_title if len(short_title) <= _TITLE else f"{short_title[: _TITLE - 2]} …"
    name = _escaped(short_title).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={name}::{_escaped(message)}\n"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


# ------------------------------------------------------------------------------------------ summary


def summary(said: Mapping[str, Any]) -> str:
    """Return a result as a job summary: Markdown in which all foreign text is escaped HTML.

    Args:
        said: ``datacheck.result/1``.
    """
    listed = said["dataset"]["samples"]["listed"]
    valid = said["verdict"]["valid"]
    mark = {"pass": "✅ OK", "fail": "❌ FAIL", "crash": "💥 CRASH"}[said["verdict"]["status"]]
    counts = said["verdict"]["counts"]
    fit = f"{valid:,} of {listed:,} samples are fit for training"
    if valid == listed:
        fit = dataset_sentence(listed, error_codes(said), said["verdict"]["exit_code"]) or fit
    head = f"### {mark}: {fit}\n\n"
    count_text = ", ".join(f"{count:,} {_plural(name, count)}" for name, count in counts.items())
    about = [
        ("data", said["dataset"]["root"]),
        ("schema", said["schema"]["name"]),
        ("findings", count_text),
    ]
    rows = "".join(
        f"<tr><th>{name}</th><td><code>{_cell(text)}</code></td></tr>\n" for name, text in about
    )
    text = f"{head}<table>\n{rows}</table>\n\n"
    omitted = 0
    for block in _blocks(said):
        # a block is included whole or not at all: part of one would leave markup unclosed
        if omitted or len((text + block).encode()) > MAX_SUMMARY_BYTES:
            omitted += 1
        else:
            text += block
    omitted += sum(said.get("left_out", {}).get(name, 0) for name in ("findings", "crashes"))
    return text + (f"{omitted:,} more in result.json\n\n" if omitted else "")


def _blocks(result: Mapping[str, Any]) -> Iterator[str]:
    for crash in result["crashes"]:
        lines = [f"on {crash['at']}", *crash["traceback"].strip().splitlines()]
        yield _details(
            f"{crash['rule'] or 'reader'} crashed", "\n".join(_cell(line) for line in lines)
        )
    for finding in result["findings"]:
        title = f"{finding['severity']} {finding_title(finding)}"
        yield _details(title, "\n".join(html.escape(line) for line in finding_lines(finding)[1:]))
    if result["unchecked"]:
        yield _details("not looked at", "\n".join(_cell(line) for line in result["unchecked"]))


def _details(title: str, escaped: str) -> str:
    """Return a collapsible block.

    Inside ``pre``, Markdown and GitHub's @names and #numbers have no effect.
    """
    return f"<details><summary><code>{_cell(title)}</code></summary>\n\n<pre>{escaped}</pre>\n\n</details>\n\n"


def _cell(text: str) -> str:
    return html.escape(clean(text, spaces=True))


def _plural(word: str, count: int) -> str:
    return "for information" if word == "info" else word if count == 1 else f"{word}s"


def junit(said: Mapping[str, Any]) -> bytes:
    """Return a result as JUnit XML in UTF-8; control characters are escaped.

    Args:
        said: ``datacheck.result/1``.
    """
    suite = ET.Element("testsuite", {"name": f"datacheck {clean(said['dataset']['name'])}".strip()})
    suite.set("timestamp", clean(said["run"]["started"]).removesuffix("Z"))
    suite.set("time", f"{said['run']['seconds']:.3f}")
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(said).items():
        ET.SubElement(properties, "property", {"name": name, "value": clean(str(value))})
    for outcome in outcomes(said):
        _add_testcase(suite, said, outcome)
    counts = {"tests": len(suite.findall("testcase"))}
    counts |= {f"{kind}s": len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "error")}
    counts |= {"skipped": len(suite.findall("testcase/skipped"))}
    suites = ET.Element("testsuites", {"name": "datacheck"})
    suites.append(suite)
    for name, count in counts.items():
        suite.set(name, str(count))
        if name != "skipped":
            suites.set(name, str(count))
    ET.indent(suites)
    text: str = ET.tostring(suites, encoding="unicode")
    text = COMMAND.sub("&#35;#", COLONS.sub(r"\1&#58;:", text))
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n".encode()


def _properties(result: Mapping[str, Any]) -> dict[str, Any]:
    samples = result["dataset"]["samples"]
    return {
        "version": result["run"]["version"],
        "schema": result["schema"]["name"],
        "root": result["dataset"]["root"],
        "digest": result["dataset"]["digest"],
        **{f"samples.{name}": count for name, count in samples.items()},
        "samples.valid": result["verdict"]["valid"],
    }


def _add_testcase(suite: ET.Element, result: Mapping[str, Any], outcome: RuleOutcome) -> None:
    name = f"{outcome.code} {outcome.name}".strip()
    case = ET.SubElement(
        suite, "testcase", {"name": name, "classname": f"datacheck.{_class_name(result)}"}
    )
    about = {"type": outcome.kind, "message": outcome.message}
    if outcome.state == "failed":
        ET.SubElement(case, "failure", about).text = outcome.text
        return
    if outcome.state == "error":
        ET.SubElement(case, "error", about).text = outcome.trace
    elif outcome.state == "skipped":
        ET.SubElement(case, "skipped", {"message": outcome.message})
    if outcome.text:
        ET.SubElement(case, "system-out").text = outcome.text


def _class_name(result: Mapping[str, Any]) -> str:
    return clean(result["schema"]["name"]).replace(".", "_") or "-"


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PROBLEM_SEVERITIES = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "recommendation",
}
_HERE = "%SRCROOT%"
_DATA = "DATAROOT"
# UTF-16 units
_NAME = 255
_TEXT = 1024
_LINK = re.compile(r"\[(?=[^\[\]]*\]\()")


def sarif(said: Mapping[str, Any], places: Mapping[str, Path], here: Path) -> dict[str, Any]:
    """Return a result as a SARIF log, a JSON value.

    Args:
        said: ``datacheck.result/1``.
        places: the file of each example that lies in a file.
        here: the working folder, an absolute path; code scanning treats it as the repository's
            root.
    """
    codes = {code: number for number, code in enumerate(said["rules"])}
    root = _ArtifactRoot(said["dataset"]["root"], here)
    findings = [*said["findings"], *said.get("suppressed", [])]
    # A finding that a baseline knows in part has two results with the same id: the new part, then
    # the known part.
    fingerprints = []
    occurrences = Counter[str]()
    for name in (_cleaned(finding["id"]) for finding in findings):
        occurrences[name] += 1
        fingerprints.append(_fingerprints(name, occurrences[name]))
    run = {
        "tool": {
            "driver": {
                "name": "datacheck",
                "version": _limited_text(said["run"]["version"], _NAME),
                "rules": [_rule(code, rule) for code, rule in said["rules"].items()],
            }
        },
        "automationDetails": {"id": f"datacheck/{_limited_text(said['dataset']['name'], _NAME)}/"},
        "invocations": [_invocation(said)],
        "originalUriBaseIds": root.bases,
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(finding, codes, places, root) | {"partialFingerprints": marks}
            for finding, marks in zip(findings, fingerprints, strict=True)
        ],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _limited_text(text: str, most: int = _TEXT) -> str:
    """Return a non-empty text without control characters, of at most `most` UTF-16 units."""
    words = clean(text) or "-"
    units = words.encode("utf-16-le")
    return (
        words
        if len(units) <= 2 * most
        else f"{units[: 2 * most - 4].decode('utf-16-le', 'ignore')} …"
    )


def _cleaned(text: str) -> str:
    return clean(text, spaces=True)


# -------------------------------------------------------------------------------------------- rules


def _rule(code: str, rule_result: Mapping[str, Any]) -> dict[str, Any]:
    severity = Severity(rule_result["severity"])
    rule = catalogue().get(code)
    description = _limited_text(
        rule_result["name"] if rule is None else rule_pages.first_sentence(rule)
    )
    page = (
        {"text": description}
        if rule is None
        else {
            "text": rule_pages.plain(rule, rule_pages.english(rule)),
            "markdown": rule_pages.markdown(rule),
        }
    )
    return {
        "id": _cleaned(code),
        "name": _limited_text(rule_result["name"], _NAME),
        "shortDescription": {"text": description},
        "fullDescription": {"text": description},
        "help": page,
        **(
            {"helpUri": f"{rule_pages.RULE_PAGES}/{code}.md"}
            if rule_pages.RULE_PAGES and rule is not None
            else {}
        ),
        "defaultConfiguration": {
            "level": _LEVELS[severity],
            "enabled": rule_result["status"] != "off",
        },
        "properties": {
            "tags": ["data", f"per-{rule_result['level']}"],
            "problem.severity": _PROBLEM_SEVERITIES[severity],
            "status": rule_result["status"],
        },
    }


def _invocation(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the invocation object of the scan; crashes become notifications."""
    notes = [
        {
            "level": "error",
            "message": _message(
                f"{crash['rule'] or 'reader'} crashed on {crash['at']}: "
                f"{last_line(crash['traceback'])}"
            ),
            **({"associatedRule": {"id": _cleaned(crash["rule"])}} if crash["rule"] else {}),
        }
        for crash in result["crashes"]
    ]
    return {
        "executionSuccessful": not notes,
        "exitCode": result["verdict"]["exit_code"],
        "startTimeUtc": _cleaned(result["run"]["started"]),
        **({"toolExecutionNotifications": notes} if notes else {}),
    }


# ------------------------------------------------------------------------------------------ results


def _result(
    finding: Mapping[str, Any],
    codes: Mapping[str, int],
    places: Mapping[str, Path],
    root: _ArtifactRoot,
) -> dict[str, Any]:
    main_location, *other_locations = list(_locations(finding, places, root))
    suppression = {
        "kind": "external",
        "status": "accepted",
        "justification": _limited_text(finding.get("suppressed", "")),
    }
    return {
        "ruleId": _cleaned(finding["rule"]),
        "ruleIndex": codes[finding["rule"]],
        "level": _LEVELS[Severity(finding["severity"])],
        "message": _message(_result_message(finding)),
        "locations": [main_location],
        **(
            {
                "relatedLocations": [
                    {"id": n, **location} for n, location in enumerate(other_locations, 1)
                ]
            }
            if other_locations
            else {}
        ),
        **({"suppressions": [suppression]} if "suppressed" in finding else {}),
        "properties": {
            "failed": finding["failed"],
            "of": finding["of"],
            "fields": [_cleaned(name) for name in finding["fields"]],
            "split": _cleaned(finding["split"]),
            "kind": _cleaned(finding["kind"]),
        },
    }


def _fingerprints(name: str, number: int) -> dict[str, str]:
    """Return fingerprints of the `number`-th result of a finding's id, stable across runs."""
    # Code scanning reads only the first; without it, it would fingerprint the file's first line.
    return {
        "primaryLocationLineHash": f"{digest_value(name)[:16]}:{number}",
        "datacheckFinding/v1": name,
    }


def _message(text: str) -> dict[str, str]:
    r"""Return a message in which ``[text](target)`` is no link: SARIF escapes it as ``\[``."""
    return {"text": _limited_text(_LINK.sub(r"\\[", clean(text)))}


def _result_message(finding: Mapping[str, Any]) -> str:
    scope = [*finding["fields"], *([f"split {finding['split']}"] if finding["split"] else [])]
    count = f" ({finding['failed']:,} of {finding['of']:,} samples)" if finding["failed"] else ""
    cause = (
        f" Cause: {finding['cause']['text']}."
        if finding["cause"] and finding["cause"]["text"]
        else ""
    )
    head = f"{finding['name']}{' of ' if scope else ''}{', '.join(scope)}{count}"
    return (
        f"{_limited_text(head, _TEXT // 4)}: "
        f"{_limited_text(finding['message'], _TEXT // 2)}{cause} {finding['fix']}"
    )


def _locations(
    finding: Mapping[str, Any], places: Mapping[str, Path], root: _ArtifactRoot
) -> Iterator[dict[str, Any]]:
    """Yield the locations of the examples.

    Findings without examples are located at the dataset, as are samples of a loader.
    """
    for key in finding["examples"]:
        yield {
            "physicalLocation": root.physical(places.get(key)),
            "logicalLocations": [{"fullyQualifiedName": _cleaned(key) or "-", "kind": "element"}],
            "message": _message(key),
        }
    if not finding["examples"]:
        yield {
            "physicalLocation": root.physical(None),
            "message": {"text": "the dataset as a whole"},
        }


class _ArtifactRoot:
    """The folder of the data, below the working folder or elsewhere.

    If it lies elsewhere, only paths below it are written.
    """

    def __init__(self, root: str, here: Path) -> None:
        self._here, self._root = here, Path(os.path.normpath(here / root))
        self.bases = {
            _HERE: {"description": {"text": "the folder in which datacheck ran"}},
            _DATA: {"description": {"text": "the folder of the data"}},
        }

    def physical(self, file: Path | None) -> dict[str, Any]:
        """Return the physical location of a file, or of the dataset as a whole."""
        path = self._root if file is None else Path(os.path.normpath(file))
        base = _DATA
        below = Path(path.name)
        if path.is_relative_to(self._here):
            base = _HERE
            below = path.relative_to(self._here)
        elif path.is_relative_to(self._root):
            below = path.relative_to(self._root)
        uri = quote(str(below), safe="/", errors="surrogatepass")
        # code scanning hides results without a line, and data has none
        region = {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1}
        return {"artifactLocation": {"uri": uri, "uriBaseId": base}, "region": region}


def badge(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as an endpoint badge, a JSON value with numbers but no text of the data.

    Args:
        said: ``datacheck.result/1``.
    """
    listed = said["dataset"]["samples"]["listed"]
    valid = said["verdict"]["valid"]
    status = said["verdict"]["status"]
    warned = said["verdict"]["counts"]["warning"]
    share = f"{valid:,} of {listed:,} samples valid"
    colour = {"crash": "lightgrey", "fail": "red"}.get(status, "brightgreen")
    if status == "pass" and (warned or valid < listed):
        colour = "yellow"
    message = "crashed" if status == "crash" else share
    return {
        "schemaVersion": 1,
        "label": "datacheck",
        "message": message,
        "color": colour,
        "isError": status == "crash",
    }


def is_badge(data: bytes) -> bool:
    """Return whether a file's bytes are a badge, which the next run may replace."""
    try:
        document = orjson.loads(data)
    except ValueError:
        return False
    return (
        isinstance(document, dict)
        and document.get("schemaVersion") == 1
        and document.get("label") == "datacheck"
    )


def result_bytes(folder: str) -> bytes:
    """Return the bytes of the result.json in a run's folder."""
    return read_file(Path(folder, RESULT), RESULT_BYTES, links=False)
