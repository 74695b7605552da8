"""Results as JUnit XML: one test suite per scan, one test case per rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

from datacheck.errors import COLONS, COMMAND
from datacheck.report.exports.outcomes import RuleOutcome, outcomes
from datacheck.report.words import clean


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
