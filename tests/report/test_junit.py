"""JUnit XML: another library reads it as it is meant, and no text of the data is markup or breaks the file."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import junitparser
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.report.exports.junit import junit
from tests.report.hostile import HOSTILE, hostile_result, leaks


def said(run):
    return json.loads(Path(run.report.folder, "result.json").read_bytes())


def read(document):
    """The one suite, as junitparser has it, and its cases by the code of the rule."""
    (suite,) = junitparser.JUnitXml.fromstring(junit(document))
    return suite, {case.name.split(" ")[0]: case for case in suite}


def states(cases):
    kinds = {
        junitparser.Failure: "failed",
        junitparser.Error: "error",
        junitparser.Skipped: "skipped",
    }
    return {
        code: kinds[type(case.result[0])] if case.result else "passed"
        for code, case in cases.items()
    }


EXPECTED = {
    "pass": "passed",
    "skip": "skipped",
    "not_applicable": "skipped",
    "off": "skipped",
    "crash": "error",
}


@pytest.mark.parametrize(
    "name",
    [
        "clean",
        "broken",
        "unreadable",
        "baseline",
        "partly",
        "rescored",
        "reference",
        "faults",
        "crash",
        "loader",
    ],
)
def test_there_is_a_case_for_every_rule_in_its_state(runs, name):
    document = said(runs[name])
    suite, cases = read(document)
    counted = {"error": {"error"}, "warning": {"error", "warning"}}[document["run"]["fail_on"]]
    failing = {
        finding["rule"] for finding in document["findings"] if finding["severity"] in counted
    }
    expected = {
        code: "failed" if code in failing else EXPECTED.get(rule["status"], "passed")
        for code, rule in document["rules"].items()
    }
    assert states(cases) == expected
    assert suite.tests == len(expected)
    tally = list(expected.values())
    assert [suite.failures, suite.errors, suite.skipped] == [
        tally.count(k) for k in ("failed", "error", "skipped")
    ]
    assert bool(suite.failures) == (document["verdict"]["status"] == "fail")
    assert bool(suite.errors) == (document["verdict"]["status"] == "crash")
    assert suite.time == pytest.approx(document["run"]["seconds"], abs=0.001)


def test_a_failed_case_says_what_was_found_where_and_what_to_do(runs):
    _, cases = read(said(runs["broken"]))
    (failure,) = cases["DC224"].result
    (finding,) = [f for f in said(runs["broken"])["findings"] if f["rule"] == "DC224"]
    assert failure.message == finding["message"]
    assert failure.type == finding["severity"]
    lines = failure.text.splitlines()
    assert lines[0].endswith("DC224 out-of-range · x (2 of 10 samples)")
    assert lines[1] == finding["message"]
    assert [line for line in lines if line.endswith(".npy")] == ["  3.npy", "  5.npy"]
    assert lines[-1] == f"fix: {finding['fix']}"


def test_a_skipped_case_says_why(runs):
    _, cases = read(said(runs["clean"]))
    assert cases["DC225"].result[0].message == "is off: switched off in the schema"
    assert cases["DC901"].result[0].message == "does not apply: no --reference given"


def test_what_does_not_count_for_the_exit_code_is_told_and_no_failure():
    document = hostile_result("x")
    _, cases = read(document)
    assert states(cases)["DC902"] == "failed"
    document["run"]["fail_on"] = "never"
    _, cases = read(document)
    assert states(cases)["DC902"] == "passed"
    assert "error DC902 x" in cases["DC902"].system_out
    assert "warning DC902 x" in cases["DC902"].system_out


def test_a_rule_whose_findings_did_not_fit_has_failed_all_the_same():
    document = hostile_result("x")
    document |= {"findings": [], "left_out": {"findings": 2}}
    suite, cases = read(document)
    assert states(cases)["DC902"] == "failed"
    assert (suite.failures, cases["DC902"].result[0].type) == (1, "error")
    assert "did not fit into result.json" in cases["DC902"].result[0].message
    document["run"]["fail_on"] = "never"
    assert states(read(document)[1])["DC902"] == "passed"


def test_a_crash_is_an_error_with_its_traceback(runs):
    _, cases = read(said(runs["crash"]))
    (error,) = cases["own:raises"].result
    assert error.message == "KeyError: 'y'"
    assert "Traceback" in error.text
    document = said(runs["clean"])
    document["crashes"] = [{"rule": "", "at": "x.h5", "traceback": "Traceback\nOSError: x"}]
    suite, cases = read(document)
    assert (suite.errors, cases["reader"].result[0].message) == (1, "OSError: x")


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_the_data_is_markup_or_breaks_the_file(name):
    plain, evil = (
        ET.fromstring(junit(hostile_result("x"))),
        ET.fromstring(junit(hostile_result(HOSTILE[name]))),
    )
    ours = {
        "testsuites",
        "testsuite",
        "properties",
        "property",
        "testcase",
        "failure",
        "error",
        "skipped",
        "system-out",
    }
    assert {node.tag for node in evil.iter()} <= ours
    if HOSTILE[name].strip():
        assert [node.tag for node in evil.iter()] == [node.tag for node in plain.iter()]
    assert [sorted(node.attrib) for node in evil.iter()] == [
        sorted(node.attrib) for node in plain.iter()
    ]
    for node in evil.iter():
        assert leaks(node.text or "") == set()
        assert all(leaks(value, allowed="") == set() for value in node.attrib.values())
    read(hostile_result(HOSTILE[name]))


@pytest.mark.parametrize(
    "evil",
    ["::error::owned", "  ::add-mask::a", "x\n\t::stop-commands::y", "##[error]owned", "##vso[a]b"],
)
def test_no_line_is_a_command_to_github_and_the_text_is_the_same(evil):
    text = junit(hostile_result(evil)).decode()
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    assert not re.search(r"##\w*\[", text)
    values = [node.text or "" for node in ET.fromstring(text).iter()]
    assert any(evil.split("\n")[-1].strip() in value for value in values)


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_at_all_can_be_read_back(text):
    assert len(read(hostile_result(text))[1]) == 6


def test_characters_that_xml_does_not_have_are_spelled_out():
    (suite,) = junitparser.JUnitXml.fromstring(
        junit(hostile_result("a\x00\ud800\ufffe\x1b[0m]]><b>"))
    )
    assert r"a\x00\ud800\ufffe\x1b[0m]]><b>" in next(iter(suite)).name


def test_time_and_version_are_spelled_out_whoever_wrote_them():
    """A run is checked when it is read; this is what holds where it is not."""
    document = hostile_result("x")
    evil = "\x1b]0;owned\x07\x9b31m\0"
    document["run"] |= {"started": f"{document['run']['started']}{evil}", "version": evil}
    assert not leaks(junit(document).decode())
