"""``--format junit``: JUnit XML for CI servers; one test case for each rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from datacheck.errors import COLONS, COMMAND
from datacheck.report.outcomes import Outcome, outcomes
from datacheck.report.words import clean


def junit(said: Mapping[str, Any]) -> bytes:
    """Return a result as JUnit XML in UTF-8; control characters and the like are spelled out.

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
        _case(suite, said, outcome)
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


def _properties(said: Mapping[str, Any]) -> dict[str, Any]:
    samples = said["dataset"]["samples"]
    return {
        "version": said["run"]["version"], "schema": said["schema"]["name"], "root": said["dataset"]["root"],
        "digest": said["dataset"]["digest"], **{f"samples.{name}": count for name, count in samples.items()},
        "samples.valid": said["verdict"]["valid"],
    }  # fmt: skip


def _case(suite: ET.Element, said: Mapping[str, Any], outcome: Outcome) -> None:
    name = f"{outcome.code} {outcome.name}".strip()
    case = ET.SubElement(suite, "testcase", {"name": name, "classname": f"datacheck.{_class(said)}"})
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


def _class(said: Mapping[str, Any]) -> str:
    return clean(said["schema"]["name"]).replace(".", "_") or "-"
