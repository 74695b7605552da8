"""What the page is given of drift: all that a rule has compared, by the names that the page uses, bounded."""

import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from datacheck.report.html import run_summary
from datacheck.report.split_tables import drifts
from datacheck.rules.comparison import DriftResult, comparison_json, cumulative
from datacheck.scan import scan
from datacheck.scan.run_state import finished
from datacheck.schema.load import parse_schema
from tests.report.conftest import SCHEMA_TEXT
from tests.report.made_drift import compared_rules, one


def test_measures_are_called_as_elsewhere_in_the_page():
    names = ["box", "max of component 2", "length", "rows", "min", "middle of component 0"]
    rules = compared_rules(
        [one("xyz", name, 1.0 + n, drifted=False) for n, name in enumerate(names)]
    )
    (said,) = drifts(rules, parse_schema(SCHEMA_TEXT))
    assert {each["measure"]: each["label"] for each in said["measures"]} == {
        "box": "size (diagonal)",
        "max of component 2": "highest value, component 2",
        "length": "points",
        "rows": "rows",
        "min": "lowest value",
        "middle of component 0": "middle of the box, component 0",
    }
    assert (said["code"], said["count"], said["drifted"]) == ("DC902", 6, 0)
    assert (said["effect"], said["false_discoveries"]) == (0.2, 0.05)


def test_rules_that_compared_nothing_are_not_drawn(made_run):
    said = run_summary(made_run())
    assert said["drifts"] == []
    assert not any("compared" in rule for rule in said["rules"])


def test_what_the_page_holds_of_it_is_bounded(made_run):
    values = [float(n) ** 9 / 7 for n in range(1000)]
    long = "\x01" * 300
    many = [
        DriftResult(
            long,
            f"{long}{n}",
            long,
            1.0 + n,
            True,
            (10**6, 10**6),
            (10**6, 10**6),
            0.01,
            0.1,
            (1.5, 2.5),
            cumulative(values, values[:77]),
            split=long,
        )
        for n in range(500)
    ]
    rules = compared_rules([]) | {
        "DC902": compared_rules([])["DC902"] | {"compared": comparison_json(many)}
    }
    (said,) = run_summary(made_run(rules=rules))["drifts"]
    assert (said["count"], said["drifted"]) == (500, 500)
    assert len(said["measures"]) > 5
    assert len(json.dumps(said)) < 100_000


SCHEMA = parse_schema("""
datacheck: 1
name: drifts
samples: {files: "*.npz"}
fields:
  x: {role: points, shape: [P, 3], unit: m}
  label: {role: class, shape: [P], classes: 4}
rules: {DC901: off}
""")


@pytest.fixture(scope="module")
def drifted(tmp_path_factory):
    """A run that drifted in x and label, compared with another."""
    place = tmp_path_factory.mktemp("drifted")
    for name, move, classes in (("old", 0.0, [0, 0, 1, 2, 3]), ("new", 3.0, [0, 1, 2, 3, 3])):
        (place / name).mkdir()
        for n in range(20):
            rng = np.random.default_rng([n, int(move)])
            x = rng.uniform([move, 0, 0], [move + 1 + n / 40, 1, 1], (50, 3))
            np.savez(place / name / f"{n}.npz", x=x, label=rng.choice(classes, 50))
    scan(place / "old", SCHEMA, output=place / "then")
    return Path(
        scan(place / "new", SCHEMA, output=place / "now", reference=place / "then").report.folder
    )


def test_a_real_run_says_what_was_compared(drifted, repository):
    result = json.loads((drifted / "result.json").read_bytes())
    schema = json.loads((repository / "docs/result.schema.json").read_text())
    assert [error.message for error in Draft202012Validator(schema).iter_errors(result)] == []
    measures = result["rules"]["DC902"]["compared"]["measures"]
    told = [one["field"] for one in measures if one["drifted"]]
    assert {f["fields"][0] for f in result["findings"] if f["rule"] == "DC902"} == {*told} == {"x"}
    # Y and z lie as they did
    assert any(one["field"] == "x" and not one["drifted"] for one in measures)
    (label,) = result["rules"]["DC903"]["compared"]["measures"]
    assert label["drifted"]
    assert sum("curve" in one for one in measures) == min(6, len(told)) > 1
    said = {each["code"]: each for each in run_summary(drifted)["drifts"]}
    assert [each["effect"] for each in said["DC902"]["measures"]] == [
        each["effect"] for each in measures
    ]
    assert said["DC903"]["measures"][0]["classes"] == label["classes"]


def test_what_was_compared_is_read_back(drifted):
    before = json.loads((drifted / "result.json").read_bytes())["rules"]["DC902"]["compared"]
    report = finished(drifted, lambda report, past: report)
    (verdict,) = [one for one in report.verdicts if one.code == "DC902"]
    assert verdict.compared == before
