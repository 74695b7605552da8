"""What differs between two sets of named contents, against what was done to them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.cli.diff import _tree_lines
from datacheck.repro.compare import TreeDiff, tree_diff

NAMES = st.sampled_from(["a/1", "a/2", "a/3", "b/1", "b/2", "c", "d", "e"])
TREES = st.dictionaries(NAMES, st.integers(0, 5))  # few contents: many names have the same one
DISTINCT = st.lists(NAMES, unique=True).map(
    lambda names: {name: number for number, name in enumerate(names)}
)


def places(found):
    """Every name with each place in which it stands."""
    return [
        *found.added,
        *found.removed,
        *found.changed,
        *found.reordered,
        *(name for pair in found.renamed for name in pair),
        *(name for pair in found.swapped for name in pair),
    ]


@settings(max_examples=400, deadline=None)
@given(TREES, TREES)
def test_every_name_that_differs_stands_in_one_place_and_no_other_does(one, other):
    found = tree_diff(one, other)
    apart = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    assert sorted(places(found)) == sorted(apart)
    assert bool(found) == bool(apart)


@settings(max_examples=400, deadline=None)
@given(TREES, TREES)
def test_each_place_says_what_is_true(one, other):
    found = tree_diff(one, other)
    assert all(name not in one and name in other for name in found.added)
    assert all(name in one and name not in other for name in found.removed)
    assert all(name in one and name in other for name in [*found.changed, *found.reordered])
    for before, now in found.renamed:
        assert before not in other
        assert now not in one
        assert one[before] == other[now]
    for left, right in found.swapped:
        assert left < right
        assert (one[left], one[right]) == (other[right], other[left])
    assert all(
        other[name] == one[before] != other.get(before) for name, before in found.reordered.items()
    )
    assert len(set(found.reordered.values())) == len(found.reordered)
    assert all(other[name] == one[had] for name, had in found.copies.items())
    assert found.copies.keys() <= {*found.added, *found.changed}


@settings(max_examples=200, deadline=None)
@given(TREES, TREES)
def test_nothing_is_left_that_a_renaming_would_explain(one, other):
    found = tree_diff(one, other)
    assert not {one[name] for name in found.removed} & {other[name] for name in found.added}
    changed = {(one[name], other[name]) for name in found.changed}
    assert not {(now, before) for before, now in changed} & changed  # a swap


@given(TREES, TREES, st.randoms())
def test_the_order_of_names_changes_nothing(one, other, random):
    def mixed(tree):
        names = list(tree)
        random.shuffle(names)
        return {name: tree[name] for name in names}

    assert tree_diff(mixed(one), mixed(other)) == tree_diff(one, other)


@given(TREES)
def test_equal_trees_give_nothing(tree):
    assert not tree_diff(tree, dict(tree))
    assert tree_diff(tree, dict(tree)) == TreeDiff()


@given(TREES, TREES)
def test_the_other_way_round_what_came_is_what_went(one, other):
    there, back = tree_diff(one, other), tree_diff(other, one)
    assert (there.added, there.removed) == (back.removed, back.added)
    assert there.swapped == back.swapped
    assert there.renamed == sorted((now, before) for before, now in back.renamed)


@given(DISTINCT, st.data())
def test_of_different_contents_a_permutation_is_told_as_cycles(tree, data):
    """Cycles of two are swaps, longer ones are reordered, and nothing is called changed."""
    names = sorted(tree)
    goal = dict(zip(names, data.draw(st.permutations(names)), strict=True))
    found = tree_diff(tree, {name: tree[goal[name]] for name in names})
    pairs = {
        tuple(sorted((name, goal[name])))
        for name in names
        if goal[goal[name]] == name != goal[name]
    }
    assert set(found.swapped) == pairs
    assert found.reordered == {n: goal[n] for n in names if goal[n] != n and goal[goal[n]] != n}
    assert (found.added, found.removed, found.changed, found.renamed) == ([], [], [], [])


def test_a_folder_that_was_renamed_keeps_its_files_together():
    before = {"old/a": 0, "old/b": 0, "old/c": 1}
    after = {"new/a": 0, "new/b": 0, "new/c": 1, "x/b": 0}
    found = tree_diff(before, after)
    assert found.renamed == [("old/a", "new/a"), ("old/b", "new/b"), ("old/c", "new/c")]
    assert (found.added, found.copies) == (["x/b"], {"x/b": "old/a"})


def test_a_file_put_in_front_shifts_all_others():
    found = tree_diff({"0": "a", "1": "b", "2": "c"}, {"0": "new", "1": "a", "2": "b", "3": "c"})
    assert found.reordered == {"1": "0", "2": "1"}
    assert (found.changed, found.added, found.copies) == (["0"], ["3"], {"3": "2"})


@pytest.mark.parametrize("copied", [{"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}])
def test_a_copy_over_another_file_is_a_change_that_says_of_what(copied):
    found = tree_diff({"a": 1, "b": 2}, copied)
    assert found.changed == ["b"]
    assert found.copies["b"] == "a"


def test_a_name_that_is_too_long_to_be_repeated_is_no_origin_of_copies():
    """It was written for each copy: 2,000 files that have the content of a name of 1.5 MB took 3 GB."""
    copies = {"b": 1, "c": 1}
    assert tree_diff({"a" * 4096: 1}, {"a" * 4096: 1} | copies).copies == dict.fromkeys(
        copies, "a" * 4096
    )
    found = tree_diff({"a" * 4097: 1}, {"a" * 4097: 1} | copies)
    assert (found.added, found.copies) == (["b", "c"], {})
    assert tree_diff(
        {"a" * 4097: 1, "z": 1}, {"a" * 4097: 1, "z": 1} | copies
    ).copies == dict.fromkeys(copies, "z")


def test_the_origins_of_copies_are_repeated_up_to_eight_million_letters():
    """Two manifests of 6 MB were 480 MB of JSON: 8,388,608 letters are 2,048 times 4,096."""
    origin = "a" * 4096
    copies = [f"b{number:04}" for number in range(2050)]
    found = tree_diff({origin: 1}, {origin: 1} | dict.fromkeys(copies, 1))
    assert found.added == copies
    assert found.copies == dict.fromkeys(copies[:2048], origin)
    assert found.as_dict()["more_copies"] == 2
    assert list(_tree_lines("file", found, []))[-1] == (
        "2 more copies are listed without their origin"
    )
