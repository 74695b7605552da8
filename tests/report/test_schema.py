"""docs/result.schema.json says what result.json is: real runs fulfil it, a document that says more or less does not."""

import copy
import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.report.hostile import HOSTILE, hostile_result


@pytest.fixture(scope="module")
def validator(repository):
    schema = json.loads((repository / "docs/result.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def said(run):
    return json.loads(Path(run.report.folder, "result.json").read_bytes())


def wrong(validator, document):
    return [
        f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(document)
    ]


def test_every_real_run_fulfils_it(validator, runs):
    found = {name: wrong(validator, said(run)) for name, run in runs.items()}
    assert found == {name: [] for name in runs}


def test_the_runs_say_everything_that_the_schema_knows(runs):
    documents = {name: said(run) for name, run in runs.items()}
    assert documents["clean"]["verdict"]["status"] == "pass"
    assert documents["clean"]["findings"] == []
    assert documents["crash"]["verdict"] == {
        **documents["clean"]["verdict"],
        "status": "crash",
        "exit_code": 4,
    }
    assert documents["unreadable"]["dataset"]["samples"]["unreadable"] == 2
    assert "rescored" in documents["rescored"]["run"]
    assert documents["loader"]["dataset"]["files"] == 0
    assert documents["reference"]["rules"]["DC901"]["status"] == "pass"
    assert len({finding["rule"] for finding in documents["faults"]["findings"]}) >= 8
    assert {rule["status"] for name in runs for rule in documents[name]["rules"].values()} == {
        "pass",
        "fail",
        "skip",
        "crash",
        "not_applicable",
        "off",
    }
    assert any(
        finding["cause"] and finding["cause"]["factor"]
        for finding in documents["faults"]["findings"]
    )


def test_what_a_baseline_knows_is_named_and_not_counted(runs):
    (known,) = said(runs["baseline"])["suppressed"]
    assert (known["rule"], known["failed"], known["examples"]) == ("DC224", 2, ["3.npy", "5.npy"])
    assert known["suppressed"].endswith("baseline.json: the old rig")
    assert "DC224" not in {finding["rule"] for finding in said(runs["baseline"])["findings"]}
    (old,) = said(runs["partly"])["suppressed"]
    (new,) = [finding for finding in said(runs["partly"])["findings"] if finding["rule"] == "DC224"]
    assert (old["failed"], old["examples"]) == (2, ["3.npy", "5.npy"])
    assert (new["failed"], new["examples"]) == (1, ["9.npy"])
    assert "suppressed" not in new


@pytest.mark.parametrize("name", HOSTILE)
def test_any_text_may_stand_in_it(validator, name):
    assert [
        error
        for error in wrong(validator, hostile_result(HOSTILE[name]))
        if "non-empty" not in error
    ] == []


MISTAKES = {
    "another format": lambda d: d.update(format="datacheck.result/2"),
    "a key too many": lambda d: d.update(more=1),
    "a key too few": lambda d: d.pop("verdict"),
    "a key too many in the run": lambda d: d["run"].update(host="x"),
    "a negative count": lambda d: d["dataset"].update(files=-1),
    "a count that is a text": lambda d: d["verdict"].update(valid="3"),
    "half a count": lambda d: d["verdict"].update(valid=2.5),
    "a sample of another state": lambda d: d["dataset"]["samples"].update(lost=1),
    "a digest that is none": lambda d: d["dataset"].update(digest="xyz"),
    "a verdict and another exit code": lambda d: d["verdict"].update(exit_code=0),
    "an unknown status": lambda d: d["rules"]["DC224"].update(status="maybe"),
    "a rule that does not apply and has judged": lambda d: d["rules"]["DC224"].update(status="off"),
    "a rule that has judged and does not say how many": lambda d: d["rules"]["DC224"].pop(
        "checked"
    ),
    "a finding without its rule": lambda d: d["findings"][0].pop("rule"),
    "a finding with a key too many": lambda d: d["findings"][0].update(file="x"),
    "an unknown severity": lambda d: d["findings"][0].update(severity="fatal"),
    "more than all": lambda d: d["findings"][0].update(share=1.5),
    "too many examples": lambda d: d["findings"][0].update(examples=list("abcd")),
    "a cause that is a text": lambda d: d["findings"][0].update(cause="mm"),
    "a cause without its numbers": lambda d: d["findings"][0].update(cause={"text": "mm"}),
    "a finding that is told and not told": lambda d: d["findings"][0].update(suppressed="x"),
    "a known finding without a reason": lambda d: d.update(suppressed=[d["findings"][0]]),
    "a crash without its place": lambda d: d.update(crashes=[{"rule": "DC224"}]),
    "nothing left out": lambda d: d.update(left_out={}),
    "a start that is no time": lambda d: d["run"].update(started="yesterday"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_document_is_refused(validator, runs, mistake):
    document = copy.deepcopy(said(runs["broken"]))
    assert wrong(validator, document) == []
    MISTAKES[mistake](document)
    assert wrong(validator, document)
