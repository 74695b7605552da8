"""``--format junit``: JUnit XML for CI servers; one test case for each rule.

A rule has failed where one of its findings counts for the exit code, so that the server says what the exit code says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from datacheck.finding import Verdict
from datacheck.report.words import clean, finding_lines, last_line

_COUNTED = {"error": {"error"}, "warning": {"error", "warning"}, "never": set[str]()}
_LEFT_OUT = "its findings did not fit into result.json; samples.parquet names the samples"
_NOT_RUN = {Verdict.SKIP: "had nothing to look at", Verdict.NOT_APPLICABLE: "does not apply", Verdict.OFF: "is off"}


def junit(said: Mapping[str, Any]) -> bytes:
    """Return a result as JUnit XML in UTF-8; control characters and the like are spelled out.

    Args:
        said: ``datacheck.result/1``.
    """
    suite = ET.Element("testsuite", {"name": f"datacheck {clean(said['dataset']['name'])}".strip()})
    suite.set("timestamp", said["run"]["started"].removesuffix("Z"))
    suite.set("time", f"{said['run']['seconds']:.3f}")
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(said).items():
        ET.SubElement(properties, "property", {"name": name, "value": clean(str(value))})
    for code, rule in said["rules"].items():
        found = [finding for finding in said["findings"] if finding["rule"] == code]
        crashes = [crash for crash in said["crashes"] if crash["rule"] == code]
        _case(suite, said, f"{code} {rule['name']}", rule, found, crashes)
    readers = [crash for crash in said["crashes"] if crash["rule"] not in said["rules"]]
    if readers:
        _case(suite, said, "reader", {"status": Verdict.CRASH}, [], readers)
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
    return f"<?xml version='1.0' encoding='utf-8'?>\n{text}\n".encode()


def _properties(said: Mapping[str, Any]) -> dict[str, Any]:
    samples = said["dataset"]["samples"]
    return {
        "version": said["run"]["version"], "schema": said["schema"]["name"], "root": said["dataset"]["root"],
        "digest": said["dataset"]["digest"], **{f"samples.{name}": count for name, count in samples.items()},
        "samples.valid": said["verdict"]["valid"],
    }  # fmt: skip


def _case(
    suite: ET.Element, said: Mapping[str, Any], name: str, rule: Mapping[str, Any], found: Sequence[Mapping[str, Any]],
    crashes: Sequence[Mapping[str, str]],
) -> None:  # fmt: skip
    case = ET.SubElement(suite, "testcase", {"name": clean(name), "classname": f"datacheck.{_class(said)}"})
    counting = _COUNTED[said["run"]["fail_on"]]
    counted = [f for f in found if f["severity"] in counting]
    if crashes or rule["status"] == Verdict.CRASH:
        last = "; ".join(last_line(crash["traceback"]) for crash in crashes)
        error = ET.SubElement(case, "error", {"type": "crash", "message": clean(last) or "crashed"})
        error.text = "\n".join(line for crash in crashes for line in _traceback(crash))
    elif counted:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        message = clean(counted[0]["message"]) + more
        failure = ET.SubElement(case, "failure", {"type": counted[0]["severity"], "message": message})
        failure.text = _blocks(found)
        return
    elif rule["status"] == Verdict.FAIL and not found and rule["severity"] in counting and "left_out" in said:
        # result.json has the worst findings of a dataset with very many; those of this rule are not among them
        ET.SubElement(case, "failure", {"type": rule["severity"], "message": _LEFT_OUT})
    elif rule["status"] in _NOT_RUN:
        why = clean(rule.get("why") or "; ".join(rule.get("unseen", [])))
        ET.SubElement(case, "skipped", {"message": _NOT_RUN[rule["status"]] + (f": {why}" if why else "")})
    if found:
        ET.SubElement(case, "system-out").text = _blocks(found)


def _class(said: Mapping[str, Any]) -> str:
    return clean(said["schema"]["name"]).replace(".", "_") or "-"


def _traceback(crash: Mapping[str, str]) -> list[str]:
    lines = crash["traceback"].strip().splitlines()
    return [f"on {clean(crash['at'], spaces=True)}", *(clean(line, spaces=True) for line in lines)]


def _blocks(found: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join("\n".join(finding_lines(finding)) for finding in found)
