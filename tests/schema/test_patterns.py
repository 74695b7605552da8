"""Patterns: what matches, what is filled in, what is refused."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import FormatError, SchemaError
from datacheck.schema.patterns import parse

PATTERN = r"{split}/{seq}/meta/{frame:\d{4}}.pkl"


def match(pattern, path):
    return parse(pattern, "samples.files").match(path)


def test_placeholders_stand_for_one_level_each():
    pattern = r"{split}/{seq}/meta/{frame:\d{4}}.pkl"
    assert match(pattern, "train/ABF10/meta/0007.pkl") == {
        "split": "train",
        "seq": "ABF10",
        "frame": "0007",
    }
    assert match(pattern, "train/ABF10/meta/007.pkl") is None
    assert match(pattern, "train/a/b/meta/0007.pkl") is None
    assert match(pattern, "train/ABF10/meta/0007.pklx") is None


def test_a_placeholder_never_crosses_folders_even_where_its_constraint_could():
    assert match("{a:.+}/{b}.npy", "x/y/z.npy") is None
    assert match("{a:.+}/{b}.npy", "x/z.npy") == {"a": "x", "b": "z"}


def test_earlier_placeholders_are_shortest():
    assert match("{split}_{scene}.npy", "train_scene0000_00.npy") == {
        "split": "train",
        "scene": "scene0000_00",
    }


def test_a_constraint_settles_where_a_name_ends():
    uid = "0123456789abcdef0123456789abcdef"
    found = match("{object}_{uid:[0-9a-f]{32}}.npy", f"red_mug_{uid}.npy")
    assert found == {"object": "red_mug", "uid": uid}


def test_a_name_that_stands_twice_must_be_equal():
    assert match("{seq}/{seq}_0.npy", "a/a_0.npy") == {"seq": "a"}
    assert match("{seq}/{seq}_0.npy", "a/b_0.npy") is None


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.npy", ["a.npy", ".npy"], ["d/a.npy", "a.npz"]),
        ("**/*.npy", ["a.npy", "d/a.npy", "d/e/a.npy"], ["a.npz"]),
        ("d/**", ["d/a", "d/e/a"], ["e/a", "d"]),
        ("libero_*/*.hdf5", ["libero_10/t.hdf5"], ["libero_10/x/t.hdf5"]),
        ("a[0]?.npy", ["a[0]?.npy"], ["a0.npy", "a[0]x.npy"]),
        (
            "data/**/{id}/points.ply",
            ["data/7/points.ply", "data/x/y/7/points.ply"],
            ["7/points.ply"],
        ),
    ],
)
def test_wildcards(pattern, yes, no):
    assert [path for path in yes if match(pattern, path) is None] == []
    assert [path for path in no if match(pattern, path) is not None] == []


def test_newlines_in_names_do_not_end_a_match():
    assert match("{id}.npy", "a\nb.npy") == {"id": "a\nb"}
    assert match("*.npy", "a.npy\n") is None


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("", "empty"),
        ("{a", "never closed"),
        ("a}", "a '}' has no '{'"),
        ("{}", "is not a name"),
        ("{1a}", "is not a name"),
        ("{a:}", "empty"),
        ("{a:x/y}", "crosses"),
        ("{a:(}", "malformed"),
        ("{a:(?P<b>x)}", "groups of its own"),
        ("{frame:04d}.npy", r"\d+"),
        ("{a}{b}", "is not clear; constrain the name"),
        ("{split}*.h5", "is not clear; constrain the name"),
        ("/a.npy", "relative"),
        ("../a.npy", "relative"),
        ("a//b", "relative"),
        ("a/", "relative"),
        ("a\\b", "separated by '/'"),
        ("a**/b", "whole folders"),
    ],
)
def test_malformed_patterns_name_the_key_and_what_to_do(pattern, says):
    with pytest.raises(SchemaError, match=re.escape("mine, samples.files")) as error:
        parse(pattern, "mine, samples.files")
    assert says in str(error.value)
    assert "Patterns look like" in str(error.value)


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "a\0b"])
def test_names_from_inside_files_cannot_leave_the_folder(value):
    with pytest.raises(FormatError, match="cannot be part of a path"):
        parse("x/{a}/y", "file").fill({"a": value})


def test_a_missing_name_is_a_key_error():
    with pytest.raises(KeyError):
        parse("x/{a}", "file").fill({})


def test_the_tail_and_wildness_of_a_pattern():
    assert parse("**/*.npy", "f").tail == ".npy"
    assert parse("**/*", "f").tail == ""
    assert parse("{a}", "f").tail == ""
    assert parse("{a}/*.npy", "f").wild
    assert not parse("{a}/x.npy", "f").wild


segments = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1
).filter(lambda s: s not in {".", ".."})


@given(split=segments, seq=segments, frame=st.from_regex(r"\d{4}", fullmatch=True))
def test_filling_and_matching_are_inverse(split, seq, frame):
    template = parse(PATTERN, "f")
    names = {"split": split, "seq": seq, "frame": frame}
    assert template.match(template.fill(names)) == names


@given(st.lists(segments, min_size=1, max_size=4).map("/".join))
def test_what_matches_fills_to_the_same_path(path):
    for text in ("{a}", "{a}/{b}", "{a}_{b}/{c}", "{a}/{a}"):
        template = parse(text, "f")
        names = template.match(path)
        if names is not None:
            assert template.fill(names) == path


def test_placeholders_with_values_stand_for_them():
    template = parse(r"{split}/**/{id:\d+}_{split}.npy", "").given({"split": "t.*", "other": "x"})
    assert template.names == ("id",)
    assert template.match("t.*/a/b/12_t.*.npy") == {"id": "12"}
    assert template.match("txx/a/b/12_t.*.npy") is None
    assert template.match("t.*/a/12_txx.npy") is None


LEVELS = [
    r"**/*{digest:[0-9a-f]{4}}{rest:[\w-]*}.x",
    r"{split:a|b}/**/{name:\d*[a-c]}.x",
    r"{a}/**/{b}_{c:\d+}.x",
    r"a/{b}/*{c}.x",
    "**/*.x",
    "{a}/{b}.x",
]


@pytest.mark.parametrize("pattern", LEVELS)
@given(st.lists(st.text("ab1_.", min_size=1, max_size=6), min_size=1, max_size=5), st.booleans())
def test_levels_that_are_matched_one_by_one_give_what_the_whole_path_gives(pattern, levels, ended):
    path = "/".join(levels) + (".x" if ended else "")
    template = parse(pattern, "samples.files")
    assert template.levels
    whole = template.regex.fullmatch(path)
    names = None if whole is None else whole.groupdict()
    assert template._match_by_level(path) == names


@pytest.mark.parametrize("pattern", LEVELS[:3])
def test_a_long_path_of_short_names_needs_no_slow_matcher(monkeypatch, pattern):
    """A path of 3,800 hexadecimal digits took 60 ms with each pattern."""
    template = parse(pattern, "samples.files")
    monkeypatch.setattr(type(template), "_match_slowly", lambda self, path: 1 / 0)
    folders = "/".join(f"{number:x}" * 250 for number in range(14))
    assert template.match(f"a/{folders}/{'a' * 240}~.x") is None


@pytest.mark.parametrize(
    "pattern",
    [
        "**/a/**/{b}.x",  # any number of folders twice
        "{a}/{a}_{b}.x",  # the same name twice
        r"{a:(?<=c)b*}/{c}.x",  # what lies before it
        "{a}.x",
    ],
)
def test_levels_that_depend_on_each_other_are_matched_together(pattern):
    assert parse(pattern, "samples.files").levels == ()
