"""``--format`` and ``--badge`` of scan and rescore."""

import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tests.cli.conftest import COMMAND

SCAN = ("scan", "data", "--schema", "plain.yaml")


@pytest.fixture
def broken(place):
    np.save(place / "data/3.npy", np.array([1, np.nan, 2, 3], np.float32))
    return place


def both(here, *options):
    """What scan and then rescore print; the exit code is the same."""
    said = []
    for command in (SCAN, ("rescore", ".datacheck/latest")):
        code, out, err = here(*command, *options)
        assert (code, err) == (1, "")
        said.append(out)
    return said


def test_sarif_names_the_file_below_the_working_folder(here, broken):
    for out in both(here, "--format", "sarif"):
        (result,) = [r for r in json.loads(out)["runs"][0]["results"] if r["ruleId"] == "DC221"]
        place = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert place == {"uri": "data/3.npy", "uriBaseId": "%SRCROOT%"}


def test_sarif_of_one_file_names_it(here, broken):
    out = here("scan", "data/3.npy", "--schema", "plain.yaml", "--format", "sarif")[1]
    results = json.loads(out)["runs"][0]["results"]
    places = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in results}
    assert places == {"data/3.npy"}


def test_junit_is_xml_alone(here, broken):
    for out in both(here, "--format", "junit"):
        assert ET.fromstring(out).find("testsuite/testcase/failure").get("type") == "error"


def test_github_prints_commands_and_appends_the_summary_of_the_job(here, broken, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(broken / "summary.md"))
    (broken / "summary.md").write_text("before\n\n")
    for out in both(here, "--format", "github"):
        assert out.startswith("::error title=DC221 non-finite · x (1 of 10 samples)::")
    text = (broken / "summary.md").read_text()
    assert text.startswith("before\n\n### ❌ FAIL: 9 of 10 samples are fit for training\n")
    assert text.count("### ") == 2


def test_without_a_job_there_is_no_summary(here, broken, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    before = {path.name for path in broken.iterdir()}
    assert here(*SCAN, "--format", "github")[0] == 1
    assert {path.name for path in broken.iterdir()} - before == {".datacheck"}


def test_a_summary_that_cannot_be_written_is_one_message(here, broken, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(broken / "nowhere/summary.md"))
    code, _, err = here(*SCAN, "--format", "github")
    assert code == 3
    assert "summary.md" in err
    assert "Traceback" not in err


def test_a_badge_is_written_beside_what_is_printed_and_again_by_the_next_run(here, broken):
    code, out, _ = here(*SCAN, "--badge", "badge.json")
    assert code == 1
    assert out.splitlines()[-1] == "FAIL  1 error, 0 warnings · exit 1"
    assert json.loads((broken / "badge.json").read_text())["message"] == "9 of 10 samples valid"
    np.save(broken / "data/3.npy", np.zeros(4, np.float32))
    here(*SCAN, "--badge", "badge.json", "--format", "json")
    assert json.loads((broken / "badge.json").read_text())["message"] == "10 of 10 samples valid"
    assert here("rescore", ".datacheck/latest", "--badge", "other.json")[0] == 0
    assert json.loads((broken / "other.json").read_text()) == json.loads(
        (broken / "badge.json").read_text()
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("plain.yaml", "exists and was not written by datacheck scan --badge"),
        ("nowhere/badge.json", "there is no folder nowhere"),
    ],
)
def test_a_badge_never_replaces_another_file_and_is_refused_before_the_scan(
    here, broken, name, said
):
    before = (broken / "plain.yaml").read_bytes()
    code, out, err = here(*SCAN, "--badge", name)
    assert (code, out) == (2, "")
    assert said in err
    assert (broken / "plain.yaml").read_bytes() == before
    assert not (broken / ".datacheck").exists()


LOADED = """
import numpy as np

class Served:
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return {"x": np.full(4, np.nan if index == 3 else index, np.float32)}
"""

FORMATS = ["text", "json", "sarif", "junit", "github"]


@pytest.fixture
def both_runs(here, broken):
    """The arguments of a scan of files, and of one of a loader."""
    (broken / "own.py").write_text(LOADED)
    return [SCAN, ("scan", "--loader", "own:Served", "--fail-on", "warning")]


@pytest.mark.parametrize("form", FORMATS)
def test_a_finished_run_is_printed_anew_as_its_scan_printed_it(here, both_runs, form):
    for arguments in both_runs:
        first = here(*arguments, "--format", form, "--badge", "first.json")
        files = {
            path: path.read_bytes() for path in Path(".datacheck").rglob("*") if path.is_file()
        }
        again = here("report", ".datacheck/latest", "--format", form, "--badge", "again.json")
        assert again == first
        assert (first[0], Path("again.json").read_bytes()) == (1, Path("first.json").read_bytes())
        assert {
            path: path.read_bytes() for path in Path(".datacheck").rglob("*") if path.is_file()
        } == files


def test_what_is_printed_anew_has_the_page_only_where_there_is_one(here, broken):
    here(*SCAN)
    (broken / ".datacheck/latest/report.html").unlink()
    assert "page  " not in here("report", ".datacheck")[1]


def test_a_run_that_result_json_has_no_room_for_is_printed_with_its_verdict(here, broken):
    here(*SCAN)
    path = broken / ".datacheck/latest/result.json"
    said = json.loads(path.read_text())
    said |= {"findings": [], "left_out": {"findings": 1, "splits": 2}}
    path.write_text(json.dumps(said))
    code, out, _ = here("report", ".datacheck/latest")
    assert (code, "1 of 10 samples is not fit for training: 1 error, 0 warnings" in out) == (
        1,
        True,
    )
    assert "1 more finding, for which result.json has no room" in out


def test_what_is_no_run_cannot_be_printed(here, broken):
    assert "data: is no finished run" in here("report", "data")[2]
    here(*SCAN)
    (broken / ".datacheck/latest/listing.npz").write_bytes(b"")
    code, _, err = here("report", ".datacheck/latest")
    assert (code, "this run cannot be read" in err) == (2, True)


def test_a_run_of_another_format_is_refused(here, broken):
    here(*SCAN)
    path = broken / ".datacheck/latest/result.json"
    path.write_text(path.read_text().replace('"datacheck.result/1"', '"datacheck.result/2"'))
    assert here("report", ".datacheck/latest") == (
        2,
        "",
        "datacheck: .datacheck/latest: this run cannot be read (result.json is of format "
        "'datacheck.result/2', "
        "and this datacheck reads 'datacheck.result/1'). Scan the data again.\n",
    )


@pytest.mark.parametrize(
    "part", ["run seconds", "dataset samples", "verdict", "findings 0 fields", "findings 0 failed"]
)
@pytest.mark.parametrize("form", ["text", "sarif", "junit", "github"])
def test_what_is_no_result_is_no_fault_of_ours_and_is_not_printed_in_part(here, broken, form, part):
    here(*SCAN)
    path = broken / ".datacheck/latest/result.json"
    result = inner = json.loads(path.read_text())
    *way, last = (int(word) if word.isdigit() else word for word in part.split())
    for word in way:
        inner = inner[word]
    inner[last] = None
    path.write_text(json.dumps(result))
    code, out, err = here("report", ".datacheck/latest", "--format", form)
    refused = (code, out) == (2, "") and err.startswith(
        "datacheck: .datacheck/latest: this run cannot be read ("
    )
    assert refused or (form != "text" and code == 1)  # what has nothing of that part says the rest


@pytest.mark.parametrize("form", FORMATS)
def test_the_exit_code_is_that_of_the_report_also_where_nobody_reads_it(here, place, form):
    for code in (0, 1):
        assert here(*SCAN)[0] == code
        reader, writer = os.pipe()
        os.close(reader)
        run = subprocess.run(
            [*COMMAND, "report", ".datacheck", "--format", form],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
        os.close(writer)
        assert (run.returncode, run.stderr) == (code, b"")
        np.save(place / "data/3.npy", np.array([1, np.nan, 2, 3], np.float32))


def test_of_a_loader_rescore_and_baseline_say_what_to_do(here, both_runs):
    here(*both_runs[1])
    for name in ("rescore", "baseline"):
        code, _, err = here(name, ".datacheck/latest")
        assert code == 2
        assert (
            "Scan it again: --loader own:Served; datacheck report .datacheck/latest prints what it "
            "found" in err
        )
