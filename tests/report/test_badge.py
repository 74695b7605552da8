"""The badge is what shields.io takes: https://shields.io/badges/endpoint-badge."""

import json
from pathlib import Path

import jsonschema
import pytest

from datacheck.report.exports.badge import badge
from tests.report.hostile import HOSTILE, hostile_result

ENDPOINT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schemaVersion", "label", "message"],
    "properties": {
        "schemaVersion": {"const": 1},
        "label": {"type": "string"},
        "message": {"type": "string", "minLength": 1},
        "color": {"enum": ["brightgreen", "yellow", "red", "lightgrey"]},
        "isError": {"type": "boolean"},
    },
}


def of(run):
    made = badge(json.loads(Path(run.report.folder, "result.json").read_bytes()))
    jsonschema.validate(made, ENDPOINT)
    return made["message"], made["color"], made["isError"]


def test_it_says_how_many_samples_are_valid_and_the_colour_whether_it_failed(runs):
    assert of(runs["clean"]) == ("10 of 10 samples valid", "brightgreen", False)
    assert of(runs["unreadable"])[:2] == ("7 of 11 samples valid", "red")
    assert of(runs["crash"]) == ("crashed", "lightgrey", True)


def test_what_is_known_or_warned_of_is_no_failure_and_not_all_well():
    document = hostile_result("x")
    document["verdict"] |= {
        "status": "pass",
        "valid": 2,
        "counts": {"error": 0, "warning": 0, "info": 0},
    }
    assert badge(document)["color"] == "yellow"
    document["verdict"] |= {"valid": 3, "counts": {"error": 0, "warning": 1, "info": 0}}
    assert badge(document)["color"] == "yellow"


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_of_the_data_is_in_it(name):
    assert badge(hostile_result(HOSTILE[name])) == badge(hostile_result("x"))
