"""Results as a SARIF 2.1.0 log, which code scanning (GitHub and others) reads.

A log has one run: the tool with its rules, the invocation with its crashes, and one result per
finding. Code scanning is made for source code, so every result needs a file and a line; datasets
have no lines, and every location is the first line of a sample's file.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from datacheck.model.finding import Severity
from datacheck.report import rule_pages
from datacheck.report.words import clean, last_line
from datacheck.rules import catalogue
from datacheck.rules.base import Rule
from datacheck.runtime.hashing import digest_value

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PROBLEM_SEVERITIES = {
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.INFO: "recommendation",
}
# Most UTF-16 units of a name and of a text that code scanning accepts.
_MAX_NAME = 255
_MAX_TEXT = 1024


def sarif(result: Mapping[str, Any], places: Mapping[str, Path], here: Path) -> dict[str, Any]:
    """Return a result as a SARIF log, a JSON value.

    Args:
        result: ``datacheck.result/1``.
        places: the file of each example that lies in a file.
        here: the working folder, an absolute path; code scanning treats it as the repository's
            root.
    """
    rule_numbers = {code: number for number, code in enumerate(result["rules"])}
    findings = [*result["findings"], *result.get("suppressed", [])]
    locator = _Locator(result["dataset"]["root"], here, places)
    run = {
        "tool": {"driver": _driver(result)},
        "automationDetails": {
            "id": f"datacheck/{_limited_text(result['dataset']['name'], _MAX_NAME)}/"
        },
        "invocations": [_invocation(result)],
        "originalUriBaseIds": {
            _WORKING_FOLDER: {"description": {"text": "the folder in which datacheck ran"}},
            _DATA_FOLDER: {"description": {"text": "the folder of the data"}},
        },
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(finding, rule_numbers, locator) | {"partialFingerprints": fingerprints}
            for finding, fingerprints in zip(findings, _fingerprints(findings), strict=True)
        ],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


# -------------------------------------------------------------------------------- tool, invocation


def _driver(result: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": "datacheck",
        "version": _limited_text(result["run"]["version"], _MAX_NAME),
        "rules": [_rule(code, rule_result) for code, rule_result in result["rules"].items()],
    }


def _rule(code: str, rule_result: Mapping[str, Any]) -> dict[str, Any]:
    severity = Severity(rule_result["severity"])
    rule = catalogue().get(code)
    name = rule_result["name"]
    description = {"text": _limited_text(rule_pages.first_sentence(rule) if rule else name)}
    descriptor = {
        "id": _cleaned(code),
        "name": _limited_text(name, _MAX_NAME),
        "shortDescription": description,
        "fullDescription": description,
        "help": _help(rule) if rule else description,
    }
    if rule and rule_pages.RULE_PAGES:
        descriptor["helpUri"] = f"{rule_pages.RULE_PAGES}/{code}.md"
    descriptor["defaultConfiguration"] = {
        "level": _LEVELS[severity],
        "enabled": rule_result["status"] != "off",
    }
    descriptor["properties"] = {
        "tags": ["data", f"per-{rule_result['level']}"],
        "problem.severity": _PROBLEM_SEVERITIES[severity],
        "status": rule_result["status"],
    }
    return descriptor


def _help(rule: Rule) -> dict[str, str]:
    return {
        "text": rule_pages.plain(rule, rule_pages.english(rule)),
        "markdown": rule_pages.markdown(rule),
    }


def _invocation(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the invocation object of the scan; crashes become notifications."""
    crashes = [_crash_notification(crash) for crash in result["crashes"]]
    invocation = {
        "executionSuccessful": not crashes,
        "exitCode": result["verdict"]["exit_code"],
        "startTimeUtc": _cleaned(result["run"]["started"]),
    }
    if crashes:
        invocation["toolExecutionNotifications"] = crashes
    return invocation


def _crash_notification(crash: Mapping[str, str]) -> dict[str, Any]:
    subject = f"{crash['rule'] or 'reader'} crashed on {crash['at']}"
    notification: dict[str, Any] = {
        "level": "error",
        "message": _message(f"{subject}: {last_line(crash['traceback'])}"),
    }
    if crash["rule"]:
        notification["associatedRule"] = {"id": _cleaned(crash["rule"])}
    return notification


# ------------------------------------------------------------------------------------------ results


def _result(
    finding: Mapping[str, Any], rule_numbers: Mapping[str, int], locator: _Locator
) -> dict[str, Any]:
    main_location, *other_locations = locator.locations(finding)
    result = {
        "ruleId": _cleaned(finding["rule"]),
        "ruleIndex": rule_numbers[finding["rule"]],
        "level": _LEVELS[Severity(finding["severity"])],
        "message": _message(_sentence(finding)),
        "locations": [main_location],
    }
    if other_locations:
        result["relatedLocations"] = [
            {"id": number, **location} for number, location in enumerate(other_locations, 1)
        ]
    if "suppressed" in finding:
        reason = _limited_text(finding["suppressed"])
        result["suppressions"] = [
            {"kind": "external", "status": "accepted", "justification": reason}
        ]
    result["properties"] = {
        "failed": finding["failed"],
        "of": finding["of"],
        "fields": [_cleaned(name) for name in finding["fields"]],
        "split": _cleaned(finding["split"]),
        "kind": _cleaned(finding["kind"]),
    }
    return result


def _sentence(finding: Mapping[str, Any]) -> str:
    scope = list(finding["fields"])
    if finding["split"]:
        scope.append(f"split {finding['split']}")
    head = finding["name"]
    if scope:
        head += f" of {', '.join(scope)}"
    if finding["failed"]:
        head += f" ({finding['failed']:,} of {finding['of']:,} samples)"
    # Shares of the room, so that neither many fields nor a long message displaces the fix.
    text = f"{_limited_text(head, _MAX_TEXT // 4)}: "
    text += _limited_text(finding["message"], _MAX_TEXT // 2)
    if finding["cause"] and finding["cause"]["text"]:
        text += f" Cause: {finding['cause']['text']}."
    return f"{text} {finding['fix']}"


def _fingerprints(findings: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield the fingerprints of each finding, stable across runs.

    A finding that a baseline knows in part has two results with the same id: the new part, then
    the known part. Their number keeps them apart.
    """
    occurrences = Counter[str]()
    for finding in findings:
        name = _cleaned(finding["id"])
        occurrences[name] += 1
        yield {
            # Code scanning reads this one only; without it, it would fingerprint the file's first
            # line.
            "primaryLocationLineHash": f"{digest_value(name)[:16]}:{occurrences[name]}",
            "datacheckFinding/v1": name,
        }


# ---------------------------------------------------------------------------------------- locations

_WORKING_FOLDER = "%SRCROOT%"
_DATA_FOLDER = "DATAROOT"


class _Locator:
    """Locates findings in files: below the working folder, else below the folder of the data.

    No path above these two enters the log.

    Args:
        root: the folder of the data.
        here: the working folder, an absolute path.
        places: the file of each example that lies in a file.
    """

    def __init__(self, root: str, here: Path, places: Mapping[str, Path]) -> None:
        self._here = here
        self._root = Path(os.path.normpath(here / root))
        self._places = places

    def locations(self, finding: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the locations of the examples.

        Findings without examples are located at the dataset, as are samples of a loader.
        """
        for key in finding["examples"]:
            name = {"fullyQualifiedName": _cleaned(key) or "-", "kind": "element"}
            yield {
                "physicalLocation": self._physical(self._places.get(key, self._root)),
                "logicalLocations": [name],
                "message": _message(key),
            }
        if not finding["examples"]:
            yield {
                "physicalLocation": self._physical(self._root),
                "message": {"text": "the dataset as a whole"},
            }

    def _physical(self, file: Path) -> dict[str, Any]:
        path = Path(os.path.normpath(file))
        if path.is_relative_to(self._here):
            base, below = _WORKING_FOLDER, path.relative_to(self._here)
        elif path.is_relative_to(self._root):
            base, below = _DATA_FOLDER, path.relative_to(self._root)
        else:
            base, below = _DATA_FOLDER, Path(path.name)
        return {
            "artifactLocation": {
                "uri": quote(str(below), safe="/", errors="surrogatepass"),
                "uriBaseId": base,
            },
            # Code scanning hides results without a line, and data has none.
            "region": {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1},
        }


# -------------------------------------------------------------------------------------------- texts

_LINK = re.compile(r"\[(?=[^\[\]]*\]\()")


def _message(text: str) -> dict[str, str]:
    r"""Return a message in which ``[text](target)`` is no link: SARIF escapes it as ``\[``."""
    return {"text": _limited_text(_LINK.sub(r"\\[", clean(text)))}


def _limited_text(text: str, most: int = _MAX_TEXT) -> str:
    """Return a non-empty text without control characters, of at most `most` UTF-16 units."""
    text = clean(text) or "-"
    units = text.encode("utf-16-le")  # two bytes each
    if len(units) <= 2 * most:
        return text
    return f"{units[: 2 * most - 4].decode('utf-16-le', 'ignore')} …"


def _cleaned(text: str) -> str:
    return clean(text, spaces=True)
