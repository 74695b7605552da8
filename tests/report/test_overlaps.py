"""The table of what splits share, against sets."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.table import CHECKED, Measured, Table, Texts
from datacheck.report.html import run_summary
from datacheck.report.split_tables import MOST_SPLITS, overlaps
from datacheck.scan import scan
from datacheck.schema.load import parse_schema
from datacheck.testing.faults import faults_of, plant
from datacheck.testing.synth import write

SCHEMA = parse_schema(
    'datacheck: 1\nname: s\nsamples: {files: "{split}/{file}"}\nfields: {x: {role: value, shape: '
    "[4]}}\n"
    "splits: {key: file, disjoint: [train, val, test]}\n"
)


def made(splits, content=None, keys=None, codes=None):
    rows = len(splits)
    columns = {}
    if content is not None:
        known = np.array([value is not None for value in content], bool)
        columns[":content"] = Measured(np.array([value or 0 for value in content], np.int64), known)
    if keys is not None:
        columns[":split_key"] = Measured(np.array(keys, object), np.ones(rows, bool))
    table = Table(
        [f"{n}.npy" for n in range(rows)],
        [""] * rows,
        [""] * rows,
        splits,
        [""] * rows,
        [""] * rows,
        np.full(rows, CHECKED, np.int8),
        np.full(rows, 9),
        columns,
    )
    return overlaps(table, SCHEMA, Texts.of(codes or [""] * rows))


def test_samples_of_one_split_that_stand_in_another_are_counted_on_both_sides():
    splits = ["train", "train", "train", "val", "val", "test"]
    said = made(splits, content=[7, 7, 8, 7, 9, 9])
    assert said["splits"] == ["train", "val", "test"]
    assert said["samples"]["of"] == [3, 2, 1]
    assert said["samples"]["shared"] == [[0, 2, 0], [1, 0, 1], [0, 1, 0]]
    assert said["samples"]["pairs"] == [
        {"splits": [0, 1], "name": "", "rows": [0, 3]},
        {"splits": [1, 2], "name": "", "rows": [4, 5]},
    ]


def test_groups_are_counted_once_and_named_with_their_first_samples():
    said = made(["train"] * 3 + ["val"] * 3, keys=["a", "a", "b", "b", "b", ""])
    assert said["groups"] == {
        "of": [2, 1],
        "shared": [[0, 1], [1, 0]],
        "pairs": [{"splits": [0, 1], "name": "b", "rows": [2, 3]}],
    }


def test_placeholders_and_what_nobody_measured_are_no_copies():
    said = made(
        ["train", "train", "val", "val"], [1, None, 1, None], codes=["DC109 DC221", "", "DC109", ""]
    )
    assert said is None
    assert made(["train", "train", "val"], [1, 2, 1], codes=["DC109", "", ""])["samples"][
        "shared"
    ] == [[0, 0], [0, 0]]


def test_without_two_splits_or_with_too_many_there_is_no_table():
    assert made(["train"] * 3, [1, 1, 1]) is None
    assert made(["", "", ""], [1, 1, 1]) is None
    free = [f"s{n}" for n in range(MOST_SPLITS + 1)]
    table = Table(
        free,
        free,
        [""] * 13,
        free,
        [""] * 13,
        [""] * 13,
        np.zeros(13, np.int8),
        np.ones(13, np.int64),
        {":content": Measured(np.ones(13, np.int64), np.ones(13, bool))},
    )
    other = parse_schema(
        'datacheck: 1\nname: s\nsamples: {files: "*"}\nfields: {x: {role: value}}\n'
    )
    assert overlaps(table, other, Texts.of([""] * 13)) is None


@given(
    st.lists(st.tuples(st.sampled_from(["train", "val", "test"]), st.integers(0, 5)), min_size=1)
)
def test_counts_are_those_of_sets(rows):
    splits, values = [split for split, _ in rows], [value for _, value in rows]
    said = made(
        splits, content=[value + 1 for value in values], keys=[f"g{value}" for value in values]
    )
    order = [name for name in ("train", "val", "test") if name in splits]
    if len(order) < 2:
        assert said is None
        return
    mine = {name: [value for split, value in rows if split == name] for name in order}
    for one, name in enumerate(order):
        for two, other in enumerate(order):
            copies = 0 if one == two else sum(value in mine[other] for value in mine[name])
            assert said["samples"]["shared"][one][two] == copies
            both = 0 if one == two else len({*mine[name]} & {*mine[other]})
            assert said["groups"]["shared"][one][two] == both
    for what in ("samples", "groups"):
        for pair in said[what]["pairs"]:
            assert [splits[row] for row in pair["rows"]] == [order[n] for n in pair["splits"]]
            assert len({values[row] for row in pair["rows"]}) == 1


@pytest.mark.parametrize(
    ("system", "code", "what"), [("sceneleap", "DC801", "samples"), ("ho3d", "DC802", "groups")]
)
def test_the_table_of_a_real_run_says_what_the_rule_says(tmp_path, system, code, what):
    write(system, tmp_path / "data", seed=0)
    fault = next(fault for fault in faults_of(system) if fault.code == code)
    plant(system, tmp_path / "data", [fault.name])
    run = scan(tmp_path / "data", system, output=tmp_path / "run")
    found = [finding for finding in run.report.findings if finding.code == code]
    said = json.loads(json.dumps(run_summary(tmp_path / "run")["overlaps"]))
    for finding in found:
        split = said["splits"].index(finding.measured["split"])
        if what == "samples":
            assert max(said[what]["shared"][split]) == finding.measured["shared"]
        assert any(said[what]["shared"][split])
    assert found
    keys = set(run.table.keys)
    assert all(keys.issuperset(pair["keys"]) for pair in said[what]["pairs"])
