"""``--format sarif``: SARIF 2.1.0 for code scanning; one result for each finding, never for a sample.

What GitHub takes is kept to: 25,000 results and rules, 20 tags of a rule, names of 255 and texts of 1,024 characters.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from datacheck.digest import digest_value
from datacheck.finding import Severity
from datacheck.report import pages
from datacheck.report.words import clean, last_line
from datacheck.rules import catalogue

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PROBLEM = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "recommendation"}
_HERE, _DATA = "%SRCROOT%", "DATAROOT"
_NAME, _TEXT = 255, 1024  # UTF-16 units
_LINK = re.compile(r"\[(?=[^\[\]]*\]\()")


def sarif(said: Mapping[str, Any], places: Mapping[str, Path], here: Path) -> dict[str, Any]:
    """Return a result as a SARIF log, a JSON value.

    Args:
        said: ``datacheck.result/1``.
        places: of the examples that lie in a file, that file.
        here: the working folder, an absolute path; code scanning takes it for the repository's root.
    """
    codes = {code: number for number, code in enumerate(said["rules"])}
    root = _Root(said["dataset"]["root"], here)
    found = [*said["findings"], *said.get("suppressed", [])]
    # of a finding that a baseline knows in part there are two results: what is new, and after it what is known
    prints, often = [], Counter[str]()
    for name in (_spelled(finding["id"]) for finding in found):
        often[name] += 1
        prints.append(_fingerprints(name, often[name]))
    run = {
        "tool": {
            "driver": {
                "name": "datacheck", "version": _text(said["run"]["version"], _NAME),
                "rules": [_rule(code, rule) for code, rule in said["rules"].items()],
            }
        },
        "automationDetails": {"id": f"datacheck/{_text(said['dataset']['name'], _NAME)}/"},
        "invocations": [_invocation(said)],
        "originalUriBaseIds": root.bases,
        "columnKind": "unicodeCodePoints",
        "results": [
            _result(finding, codes, places, root) | {"partialFingerprints": marks}
            for finding, marks in zip(found, prints, strict=True)
        ],
    }  # fmt: skip
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _text(text: str, most: int = _TEXT) -> str:
    """Return a text that is not empty, holds no control character and has at most so many UTF-16 units."""
    words = clean(text) or "-"
    units = words.encode("utf-16-le")
    return words if len(units) <= 2 * most else f"{units[: 2 * most - 4].decode('utf-16-le', 'ignore')} …"


def _spelled(text: str) -> str:
    return clean(text, spaces=True)


# -------------------------------------------------------------------------------------------------- rules


def _rule(code: str, said: Mapping[str, Any]) -> dict[str, Any]:
    severity, rule = Severity(said["severity"]), catalogue().get(code)
    what = _text(said["name"] if rule is None else pages.first_sentence(rule))
    page = (
        {"text": what}
        if rule is None
        else {"text": pages.plain(rule, pages.english(rule)), "markdown": pages.markdown(rule)}
    )
    return {
        "id": _spelled(code),
        "name": _text(said["name"], _NAME),
        "shortDescription": {"text": what},
        "fullDescription": {"text": what},
        "help": page,
        **({"helpUri": f"{pages.RULE_PAGES}/{code}.md"} if pages.RULE_PAGES and rule is not None else {}),
        "defaultConfiguration": {"level": _LEVELS[severity], "enabled": said["status"] != "off"},
        "properties": {
            "tags": ["data", f"per-{said['level']}"], "problem.severity": _PROBLEM[severity], "status": said["status"],
        },
    }  # fmt: skip


def _invocation(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the scan went; what crashed is told as a notification."""
    notes = [
        {
            "level": "error",
            "message": _message(
                f"{crash['rule'] or 'reader'} crashed on {crash['at']}: {last_line(crash['traceback'])}"
            ),
            **({"associatedRule": {"id": _spelled(crash["rule"])}} if crash["rule"] else {}),
        }
        for crash in said["crashes"]
    ]
    return {
        "executionSuccessful": not notes,
        "exitCode": said["verdict"]["exit_code"],
        "startTimeUtc": _spelled(said["run"]["started"]),
        **({"toolExecutionNotifications": notes} if notes else {}),
    }


# ------------------------------------------------------------------------------------------------ results


def _result(
    finding: Mapping[str, Any], codes: Mapping[str, int], places: Mapping[str, Path], root: _Root
) -> dict[str, Any]:
    first, *others = list(_locations(finding, places, root))
    known = {"kind": "external", "status": "accepted", "justification": _text(finding.get("suppressed", ""))}
    return {
        "ruleId": _spelled(finding["rule"]),
        "ruleIndex": codes[finding["rule"]],
        "level": _LEVELS[Severity(finding["severity"])],
        "message": _message(_told(finding)),
        "locations": [first],
        **({"relatedLocations": [{"id": n, **other} for n, other in enumerate(others, 1)]} if others else {}),
        **({"suppressions": [known]} if "suppressed" in finding else {}),
        "properties": {
            "failed": finding["failed"], "of": finding["of"], "fields": [_spelled(name) for name in finding["fields"]],
            "split": _spelled(finding["split"]), "kind": _spelled(finding["kind"]),
        },
    }  # fmt: skip


def _fingerprints(name: str, number: int) -> dict[str, str]:
    """Return what makes the `number`-th result of a finding's id the same in every run."""
    # code scanning knows the first name alone; without it, it would make a fingerprint of the file's first line
    return {"primaryLocationLineHash": f"{digest_value(name)[:16]}:{number}", "datacheckFinding/v1": name}


def _message(text: str) -> dict[str, str]:
    r"""Return a message in which ``[text](target)`` is no link: SARIF has it escaped as ``\[``."""
    return {"text": _text(_LINK.sub(r"\\[", clean(text)))}


def _told(finding: Mapping[str, Any]) -> str:
    where = [*finding["fields"], *([f"split {finding['split']}"] if finding["split"] else [])]
    count = f" ({finding['failed']:,} of {finding['of']:,} samples)" if finding["failed"] else ""
    cause = f" Cause: {finding['cause']['text']}." if finding["cause"] and finding["cause"]["text"] else ""
    head = f"{finding['name']}{' of ' if where else ''}{', '.join(where)}{count}"
    return f"{_text(head, _TEXT // 4)}: {_text(finding['message'], _TEXT // 2)}{cause} {finding['fix']}"


def _locations(finding: Mapping[str, Any], places: Mapping[str, Path], root: _Root) -> Iterator[dict[str, Any]]:
    """Yield where the examples are; of a statement about the whole dataset, and of a loader's samples, the dataset."""
    for key in finding["examples"]:
        yield {
            "physicalLocation": root.physical(places.get(key)),
            "logicalLocations": [{"fullyQualifiedName": _spelled(key) or "-", "kind": "element"}],
            "message": _message(key),
        }
    if not finding["examples"]:
        yield {"physicalLocation": root.physical(None), "message": {"text": "the dataset as a whole"}}


class _Root:
    """Where the data are: below the working folder, or elsewhere, of which no more is told than what is below them."""

    def __init__(self, root: str, here: Path) -> None:
        self._here, self._root = here, Path(os.path.normpath(here / root))
        self.bases = {
            _HERE: {"description": {"text": "the folder in which datacheck ran"}},
            _DATA: {"description": {"text": "the folder of the data"}},
        }

    def physical(self, file: Path | None) -> dict[str, Any]:
        """Return a file, or the data as a whole, as a physical location."""
        path = self._root if file is None else Path(os.path.normpath(file))
        base, below = _DATA, Path(path.name)
        if path.is_relative_to(self._here):
            base, below = _HERE, path.relative_to(self._here)
        elif path.is_relative_to(self._root):
            below = path.relative_to(self._root)
        uri = quote(str(below), safe="/", errors="surrogatepass")
        # code scanning shows no result without a line, and data have none
        region = {"startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 1}
        return {"artifactLocation": {"uri": uri, "uriBaseId": base}, "region": region}
