"""Split lists: groups stay whole, the lists depend on names and seed alone, nothing is overwritten."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.errors import UsageError
from datacheck.model.table import Measured
from datacheck.scan import split
from datacheck.schema import patterns
from tests.scan.conftest import make_schema, make_table

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}


def grouped(sizes):
    names = [f"g{i:04d}" for i, size in enumerate(sizes) for _ in range(size)]
    return names, split.merged_units(make_table([f"k{i:05d}" for i in range(len(names))]), names)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 5), min_size=60, max_size=80), st.integers(0, 5), st.randoms())
def test_groups_stay_whole_and_order_does_not_matter(sizes, seed, random):
    names, unit = grouped(sizes)
    found = split.assign_splits(names, unit, SHARES, seed)
    by_name = {}
    for name, where in zip(names, found, strict=True):
        assert by_name.setdefault(name, where) == where
    order = list(range(len(names)))
    random.shuffle(order)
    again = split.assign_splits([names[i] for i in order], unit[order], SHARES, seed)
    assert [found[i] for i in order] == again


def test_shares_are_met_and_a_new_group_moves_few():
    names, unit = grouped([5] * 400)
    found = split.assign_splits(names, unit, SHARES, 0)
    assert [found.count(s) for s in SHARES] == [1600, 200, 200]
    more, units = grouped([5] * 404)
    after = split.assign_splits(more, units, SHARES, 0)
    moved = {name for name, a, b in zip(names, found, after[:2000], strict=True) if a != b}
    assert len(moved) <= 8  # one percent more groups, two boundaries
    assert split.assign_splits(names, unit, SHARES, 1) != found


def test_a_split_that_would_be_empty_is_refused():
    names, unit = grouped([50, 2, 2])
    with pytest.raises(UsageError, match="would be empty: 3 groups, the largest with 50 of 54"):
        split.assign_splits(names, unit, SHARES, 0)
    assert set(split.assign_splits(names, unit, {"train": 1.0, "val": 0.0}, 0)) == {"train"}


def test_groups_that_share_a_copy_are_one():
    table = make_table(list("abcdef"))
    table.columns[":content"] = Measured(
        np.array([1, 2, 2, 3, 3, 0]), np.array([True] * 5 + [False])
    )
    unit = split.merged_units(table, ["g0", "g1", "g2", "g2", "g3", "g4"])
    assert unit.tolist() == [0, 1, 1, 1, 1, 5 - 1]
    table.columns[":content"] = Measured(np.zeros(6, int), np.zeros(6, bool))
    assert split.merged_units(table, list("uvwxyz")).tolist() == list(range(6))


def test_a_name_that_a_list_would_change_is_not_listed():
    listed = ["a", "a b", "\ufeffa", " a", "a ", "a\nb", "a\x85b", "a\u2028b", "b\ufeff"]
    assert [name for name in listed if split.can_be_listed(name)] == ["a", "a b", "b\ufeff"]


def test_keys_come_from_columns_and_file_patterns():
    schema = make_schema(samples={"files": "{scene}_{take}.npy"})
    table = make_table(["a_0.npy", "a_1.npy", "b_0.npy"])
    assert split.units(table, "scene", schema) == ["a", "a", "b"]
    assert split.units(table, "file", None) == table.files
    with pytest.raises(UsageError, match="there is no such key; known are file, key, scene, take"):
        split.units(table, "room", schema)
    with pytest.raises(UsageError, match="no such key; known are file, key"):
        split.units(table, "scene", None)
    with pytest.raises(UsageError, match="--by group: the samples have none"):
        split.units(table, "group", None)
    table.groups = ["x", "", "x"]
    with pytest.raises(UsageError, match="1 of 3 samples have none, such as a_1"):
        split.units(table, "group", None)


def test_lines_have_the_form_of_the_lists():
    files, lists = "{split:train|val}/{seq}/{frame}.npy", "{split}.txt"  # noqa: RUF027
    table = make_table(["train/a/0.npy", "val/b/7.npy"])
    listed = make_schema(samples={"files": files, "list": lists})
    assert split.list_lines(table, listed) == ["a/0", "b/7"]
    assert split.list_lines(table, make_schema(samples={"files": files})) == table.keys
    assert split.list_lines(table, None) == table.keys
    named = make_schema(samples={"files": files, "list": {"train": "a.txt", "val": "b.txt"}})
    assert split.list_lines(table, named) == ["a/0", "b/7"]


def test_patterns_that_take_too_long_are_one_message(monkeypatch):
    """Each name takes a thousand steps at each of 4,000 letters: an hour for all of them."""
    monkeypatch.setattr(patterns, "_MATCHING_SECONDS", 0.5)
    monkeypatch.setattr(patterns, "_NAME_SECONDS", 0)
    monkeypatch.setattr(patterns, "_PATTERN_SECONDS", 0)
    samples = {"files": "{id:(?:x*){1000}y}.npy", "list": {"train": "a.txt"}}
    schema = make_schema(samples=samples)
    table = make_table(["x" * 4000 + f"{number}.npy" for number in range(1000)])
    for run in (lambda: split.units(table, "id", schema), lambda: split.list_lines(table, schema)):
        with pytest.raises(UsageError, match=r"samples.files: matching .* 1,000 names takes more"):
            run()


def test_lists_are_never_overwritten(tmp_path):
    (tmp_path / "val.txt").write_text("mine\n")
    with pytest.raises(UsageError, match="exists already"):
        split.write_lists(tmp_path, {"train": ["a"], "val": ["b"]})
    assert [p.name for p in tmp_path.iterdir()] == ["val.txt"]
    paths = split.write_lists(tmp_path / "new", {"train": ["a", "b"], "val": []})
    assert [path.read_text() for path in paths.values()] == ["a\nb\n", ""]
