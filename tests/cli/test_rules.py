"""``datacheck explain``, ``rules`` and ``schema check``."""

import json

import pytest

from datacheck.rules import catalogue


@pytest.mark.parametrize("name", ["DC201", "dc201", "length-unit"])
def test_a_rule_is_explained_by_code_or_name(here, name):
    code, out, err = here("explain", name)
    assert (code, err) == (0, "")
    assert out.startswith("DC201 length-unit   error; per sample")
    assert "rescue: share of the offenders" in out


def test_an_unknown_rule_is_named_with_what_was_meant(here):
    code, out, err = here("explain", "lenght-unit")
    assert (code, out) == (2, "")
    assert "Did you mean 'length-unit'" in err


def test_the_table_lists_every_rule_and_can_be_narrowed(here):
    code, out, _ = here("rules")
    assert code == 0
    assert [line[:5] for line in out.splitlines() if line.startswith("DC")] == sorted(catalogue())
    assert max(map(len, out.splitlines())) <= 110
    units = [line[:5] for line in here("rules", "--family", "units")[1].splitlines() if line.startswith("DC")]
    assert units == [c for c, r in catalogue().items() if r.judge.__module__.endswith(".units")]
    assert {line[:4] for line in here("rules", "--family", "DC60")[1].splitlines() if line[:2] == "DC"} == {"DC60"}
    joints = here("rules", "--role", "joints")[1]
    assert "DC602" in joints
    assert "DC702" not in joints


def test_a_schema_says_what_it_makes_of_each_rule(here):
    rows = {row["code"]: row for row in json.loads(here("rules", "--schema", "ho3d", "--format", "json")[1])}
    assert rows["DC601"]["runs"] == "runs on handJoints3D"
    assert rows["DC702"]["runs"].startswith("not applicable: ")
    assert rows["DC101"]["runs"] == "runs on whole samples"


@pytest.mark.parametrize("args", [["--family", "unitz"], ["--role", "pionts"], ["--schema", "ho3e"]])
def test_a_wrong_filter_is_refused_with_what_was_meant(here, args):
    code, out, err = here("rules", *args)
    assert (code, out) == (2, "")
    assert "Did you mean" in err


def test_a_schema_file_is_checked_with_every_fault_at_its_line(here, place):
    assert here("schema", "check", place / "plain.yaml")[0] == 0
    (place / "bad.yaml").write_text(
        "datacheck: 1\nname: x\nsamples: {files: '*'}\nfields: {a: {role: points}}\n"
        "rules:\n  DC999: off\n  DC201: {resque: 0.5}\n  DC221: {allow: 2}\n".replace("  DC221: {allow: 2}\n", "")
    )
    code, out, err = here("schema", "check", place / "bad.yaml")
    assert (code, out) == (2, "")
    assert "bad.yaml:6, rules.DC999: there is no rule" in err
    assert "bad.yaml:7, rules.DC201.resque: length-unit has no option 'resque'. Did you mean 'rescue'" in err
