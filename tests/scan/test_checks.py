"""A user's own checks are rules: they find, they crash as rules do, their thresholds are the schema's."""

import json
import os

import numpy as np
import pytest
import yaml

from datacheck.errors import UsageError
from datacheck.model.finding import Verdict
from datacheck.scan import Request, run_scan, scan
from datacheck.schema.load import parse_schema
from datacheck.workers import budget, parallel
from datacheck.workers.budget import ItemBudget

CHECKS = """
import time

def total(sample):
    return float(sample.fields["x"].sum())

def positive(sample):
    return None if (sample.fields["x"] > 0).all() else f"{int((sample.fields['x'] <= 0).sum())} values are not above 0"

def flag(sample):
    return bool(sample.fields["x"][0] < 5)

def nan(sample):
    return float("nan") if sample.fields["x"][0] > 6 else 1

def heavy(sample):
    if sample.fields["x"][0] > 1:
        return 0.0
    until = time.process_time() + 0.5
    while time.process_time() < until:
        pass
    return float(bytearray(300_000_000)[-1])

def raises(sample):
    return sample.fields["y"]

def strange(sample):
    return {"a": 1}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    for i in range(8):
        np.save(tmp_path / f"data/{i}.npy", np.array([i, 1.0 + i / 8, 2.0 - i / 8]))
    for path in (tmp_path / "data").iterdir():
        os.utime(path, (1e9, 1e9))  # written long ago: what was just written may be written again
    (tmp_path / "own.py").write_text(CHECKS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(place, checks, rules=None, fields="x: {role: value, shape: [3]}"):
    said = {
        "datacheck": 1,
        "name": "own",
        "samples": {"files": "*.npy"},
        "checks": checks,
        "rules": rules or {},
    }
    schema = parse_schema(yaml.safe_dump(said) + f"fields:\n  {fields}\n")
    return run_scan(schema, Request(place / "data", paths=[str(place)]))


def test_a_sentence_is_a_finding_and_none_is_not(place):
    (found,) = run(place, ["own:positive"]).report.findings
    assert (found.code, found.examples, found.failed) == ("own:positive", ("0.npy",), 1)
    assert found.message == "1 sample fails this check: 1 values are not above 0."


def test_a_bool_decides(place):
    (found,) = run(place, ["own:flag"]).report.findings
    assert found.rows.tolist() == [5, 6, 7]


def test_a_number_is_judged_by_the_schema_and_nan_is_never_good(place):
    assert run(place, ["own:total"]).report.findings == []
    # sums are 3 + i for i = 0..7
    (found,) = run(place, ["own:total"], {"own:total": {"high": 8.5}}).report.findings
    assert found.rows.tolist() == [6, 7]
    (found,) = run(
        place, ["own:total"], {"own:total": {"low": 4, "severity": "warning"}}
    ).report.findings
    assert (found.rows.tolist(), found.severity) == ([0], "warning")
    (found,) = run(place, ["own:nan"]).report.findings
    assert found.rows.tolist() == [7]


@pytest.mark.parametrize(("name", "said"), [("raises", "KeyError"), ("strange", "not dict")])
def test_a_check_that_fails_itself_is_a_crash_not_a_pass(place, name, said):
    run_ = run(place, [f"own:{name}"])
    assert run_.report.exit_code == 4
    assert next(v for v in run_.report.verdicts if v.code == f"own:{name}").verdict is Verdict.CRASH
    assert said in run_.report.crashes[0]["traceback"]


def test_a_sample_that_another_rule_fails_is_not_asked(place):
    np.save(place / "data/9.npy", np.array([np.nan, 1.5, 2.5]))
    (place / "own.py").write_text(
        "import numpy\n\ndef check(sample):\n    return int(sample.fields['x'][0]) >= 0\n"
    )
    (found,) = run(place, ["own:check"]).report.findings  # int(nan) raises
    assert found.code == "DC221"


def test_an_edited_check_measures_again_and_an_unchanged_one_does_not(place):
    run(place, ["own:flag"])
    assert run(place, ["own:flag"]).report.run["kept_samples"] == 8
    (place / "own.py").write_text(CHECKS + "\n# edited\n")
    assert run(place, ["own:flag"]).report.run["kept_samples"] == 0


def test_a_check_that_does_not_exist_is_a_wrong_request(place):
    with pytest.raises(UsageError, match="own:nothing"):
        run(place, ["own:nothing"])
    with pytest.raises(UsageError, match="no_such_module"):
        run(place, ["no_such_module:check"])


def test_what_a_check_takes_is_not_charged_to_the_file(place, monkeypatch):
    small = ItemBudget(128 << 20, 0.3, 1e9)
    monkeypatch.setattr(budget, "FIRST", small)
    monkeypatch.setattr(parallel, "WHOLE", small)
    assert run(place, ["own:heavy"]).report.findings == []


def test_checks_beside_the_schema_file_are_found(place, tmp_path):
    (place / "schemas").mkdir()
    (place / "own.py").rename(place / "schemas/beside.py")
    text = (
        "datacheck: 1\nname: b\nsamples: {files: '*.npy'}\nfields: {x: {shape: [3]}}\nchecks: "
        "[beside:flag]\n"
    )
    (place / "schemas/s.yaml").write_text(text)
    run_ = scan(place / "data", place / "schemas/s.yaml")
    assert [f.code for f in run_.report.findings] == ["beside:flag"]
    result = json.loads((place / ".datacheck/latest/result.json").read_text())
    assert result["rules"]["beside:flag"]["failed"] == 3
