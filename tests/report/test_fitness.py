"""Every report begins with the same sentence: whether one can train on the data."""

import json
from pathlib import Path

import pytest

from datacheck.report.exports.github import summary
from datacheck.report.fitness import fitness
from datacheck.report.html import run_summary
from tests.report.conftest import finding


@pytest.mark.parametrize(
    ("listed", "valid", "errors", "code", "said"),
    [
        (1, 1, [], 0, "the sample is fit for training"),
        (1, 0, ["DC201"], 1, "the sample is not fit for training"),
        (1, 1, ["DC401"], 1, "the dataset as a whole is not fit for training, its sample is"),
        (1, 1, ["DC113"], 1, "most of the data was not read"),
        (9, 9, ["DC401"], 4, "the dataset as a whole is not fit for training, its 9 samples are"),
        (9, 9, ["DC401", "DC113"], 1, "most of the data was not read"),
        (9, 9, [], 4, "all 9 samples are fit for training"),
        (9, 8, ["DC201"], 1, "1 of 9 samples is not fit for training"),
        (9, 0, ["DC201"], 1, "none of 9 samples is fit for training"),
    ],
)
def test_the_sentence_says_what_is_not_fit(listed, valid, errors, code, said):
    assert fitness(listed, valid, errors, code) == said


@pytest.mark.parametrize(
    ("rule", "code", "said"),
    [
        ("DC113", 1, "most of the data was not read"),
        ("DC401", 1, "the dataset as a whole is not fit for training, its 10 samples are"),
        ("DC401", 4, "the dataset as a whole is not fit for training, its 10 samples are"),
    ],
)
def test_a_job_summary_says_it_of_data_as_a_whole(runs, rule, code, said):
    """It said "10 of 10 samples are fit for training" where most was not read, and where a rule crashed."""
    document = json.loads(Path(runs["faults"].report.folder, "result.json").read_bytes())
    document["findings"] = [{**document["findings"][0], "rule": rule, "severity": "error"}]
    document["dataset"]["samples"]["listed"] = 10
    document["verdict"] |= {"valid": 10, "exit_code": code, "status": {1: "fail", 4: "crash"}[code]}
    assert said in summary(document).splitlines()[0]


def test_a_page_of_one_sample_says_that_the_data_as_a_whole_are_not_fit(made_run):
    """It said "The sample is fit for training" beside FAIL."""
    folder = made_run(rows=1, failed=0, splits=("train",), findings=[finding(failed=0, of=1)])
    assert (
        run_summary(folder)["fitness"]
        == "the dataset as a whole is not fit for training, its sample is"
    )
