"""Expressions of schemas: what `re` finds, for texts on which `re` would never end as well."""

import random
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from datacheck.errors import SchemaError
from datacheck.schema import linear_regex
from datacheck.schema.linear_regex import Expression, Growth, Program, growth_of, parse_tree
from datacheck.schema.load import load_schema, parse_schema
from datacheck.schema.patterns import parse

ATOMS = [
    "a",
    "b",
    "_",
    r"\d",
    r"\w",
    ".",
    "[^_/]",
    "[a-c0]",
    "1",
    r"\b",
    "^",
    "$",
    r"\B",
    "(?i:A)",
    "(?=b)",
    "(?!a)",
    "(?<=a)",
]
PIECES = [
    "*",
    "{a}",
    "{b}",
    r"{c:\d+}",
    "{d:a|ab|b}",
    r"{e:(?:\w_?)+}",
    "{f:.+}",
    "_",
    "a",
    "b/",
    "1",
    "-",
    "/",
]


def expression(rng, depth=3):
    """A random regular expression."""
    kind = rng.random()
    if depth == 0 or kind < 0.4:
        return rng.choice(ATOMS)
    inner = expression(rng, depth - 1)
    if kind < 0.6:
        return inner + expression(rng, depth - 1)
    if kind < 0.75:
        return f"({inner}|{expression(rng, depth - 1)})"
    return f"(?:{inner}){rng.choice(['*', '+', '?', '*?', '+?', '??', '{2}', '{1,3}', '{0,2}?', '{2,}'])}"


def word(rng, letters="ab_1A/\n", most=7):
    return "".join(rng.choice(letters) for _ in range(rng.randrange(most)))


@pytest.mark.parametrize("seed", range(20))
def test_the_matcher_finds_what_re_finds(seed):
    rng = random.Random(seed)
    for _ in range(150):
        text = f"({expression(rng)})(?P<last>b?)"
        regex = re.compile(text)
        program, last = Program(text, {regex.groups}), regex.groups
        for _ in range(10):
            said = word(rng)
            for whole, find in ((True, regex.fullmatch), (False, regex.match)):
                found, spans = find(said), program.spans(said, [0], whole=whole)
                assert (found is None) == (spans is None), (text, said)
                assert found is None or (spans[0], spans[last]) == (
                    found.span(),
                    found.span(last),
                ), (text, said)


@pytest.mark.parametrize("seed", range(10))
def test_a_pattern_of_paths_means_the_same_by_both_ways(seed, monkeypatch):
    rng = random.Random(seed)
    tried = 0
    while tried < 60:
        text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 7))) + rng.choice(
            ["", "/*", "/{a}.npy"]
        )
        try:
            template = parse(("**/" * rng.randrange(2)) + text, "")
        except SchemaError:
            continue
        tried += 1
        for _ in range(20):
            path = word(rng, "ab_1-/", 12) + rng.choice(["", "/a.npy", "/b.npy"])
            quick = template.match(path)
            slow = template._match_slowly(path)
            assert quick == (
                None if slow is None or any("/" in v for v in slow.values()) else slow
            ), (text, path)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.sampled_from(["*", "{a}", "{b}", "_", "a", "b", "ab", "_a", "/", "\n"]), max_size=9
    ),
    st.lists(st.text("ab_/\n", max_size=12), min_size=1, max_size=20),
)
def test_names_and_stars_mean_the_same_without_backtracking(pieces, paths):
    try:
        template = parse("".join(pieces), "")
    except SchemaError:
        assume(False)
    for path in paths:
        result = template.regex.fullmatch(path)
        names = None if result is None else result.groupdict()
        assert names == template._match_slowly(path), path


def test_names_with_many_gaps_are_matched_by_re():
    """Step by step, each of these 100,000 names took a third of a second."""
    ends = ["b", "c"]
    pattern = parse("{id}" + "a*" * 300 + "b", "")
    found = [pattern.match("a" * 4000 + ends[n % 2]) for n in range(20_000)]
    assert found == [{"id": "a"}, None] * 10_000


@pytest.mark.parametrize("seed", range(10))
def test_a_search_finds_what_re_finds(seed, monkeypatch):
    rng = random.Random(seed)
    made = [expression(rng) for _ in range(60)]
    texts = [word(rng) for _ in range(10)]
    quick = [[Expression(one).search(text) for text in texts] for one in made]
    monkeypatch.setattr(linear_regex, "WAYS", -1)
    assert [[Expression(one).search(text) for text in texts] for one in made] == quick


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("{a:(x+x+)+y}", "x" * 3000),
        ("{a:(?:x|xx)+}.npy", "x" * 3000),
        ("*" + "a*" * 30 + "b", "a" * 255),
        ("*" + "a*" * 30 + "b/{n}", "a" * 255 + "/c"),
        (r"{a:(\w+\s?)*}$.npy", "a" * 200 + "!"),
        ("_".join(f"{{n{i}}}" for i in range(12)) + ".npy", "_" * 250 + ".npz"),
        ("**/" * 8 + "x.npy", "a/" * 1000 + "y.npy"),
        (r"{a:.*.*.*.*.*.*.*=.*}", "x" * 255),
    ],
)
def test_no_pattern_and_no_path_take_for_ever(pattern, path):
    assert parse(pattern, "").match(path) is None


def test_what_matches_is_found_where_re_would_not_end():
    assert parse("{a:(x+x+)+y}", "").match("x" * 500 + "y") == {"a": "x" * 500 + "y"}
    assert Expression(r"(?:a|aa)+$").search("b" + "a" * 3000 + "!" + "aa") == "aa"
    assert Expression("((x+x+)+)y").search("x" * 200) is None


def test_a_name_that_stands_twice_is_tried_in_all_ways():
    path = "a_" * 60 + "/" + "a_" * 60
    found = parse("{a}_{b}/{a}_{b}", "").match(path)
    assert found == {"a": "a", "b": path[2:120]}
    with pytest.raises(
        SchemaError, match="can be read in too many ways; say what its names look like"
    ):
        parse(
            "_".join(f"{{n{i}}}" for i in range(9))
            + "/x"
            + "_".join(f"{{n{i}}}" for i in range(9)),
            "",
        ).match("_a" * 120 + "/x" + "a_" * 119)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (r"(a)\1", "a back-reference"),
        ("(a)?(?(1)b|c)", "a conditional group"),
        ("(?>a+)", "an atomic group"),
        ("a++", "a possessive repeat"),
        ("(?=.*b)a", "looks ahead, or back, by more than 100"),
        ("(", "is malformed"),
        ("(" * 50 + "a" + ")" * 50, "has groups nested more than 50 deep"),
        ("(" * 90 + "x" + ")*" * 90, "has groups nested more than 50 deep"),
        ("(?:a{100}){100}", "longer than 4,000"),
    ],
)
def test_what_cannot_be_matched_in_linear_time_is_refused_with_its_line(rule, says):
    text = f"datacheck: 1\nname: mine\nsamples:\n  files: '{{a:{rule}}}.npy'\nfields: {{x: {{}}}}\n"
    with pytest.raises(SchemaError, match=r"mine.yaml:4.*regular expression") as error:
        parse_schema(text, "mine.yaml")
    assert says in str(error.value)
    text = "datacheck: 1\nname: mine\nsamples: {files: '{a}.npy'}\n"
    text += f"splits: {{key: a, match: '{rule}'}}\nfields: {{x: {{}}}}\n"
    with pytest.raises(SchemaError, match=r"mine.yaml:4.*regular expression") as error:
        parse_schema(text, "mine.yaml")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("abc", Growth()),
        (r"\d{4}", Growth()),
        ("a+", Growth(1)),
        ("a?b*", Growth(2)),
        ("ab|cd", Growth(0, 2)),
        ("(?:ab?)?", Growth(2)),
        ("(?:a|bc)x+", Growth(1, 2)),
    ],
)
def test_how_the_ways_grow(text, found):
    assert growth_of(parse_tree(text)) == found
    assert found.at(10) <= linear_regex.WAYS


@pytest.mark.parametrize("text", ["(?:a+)+", "(?:ab|c)*", "(?:a?){9}"])
def test_a_choice_in_a_loop_is_never_quick(text):
    assert growth_of(parse_tree(text)).at(1) > linear_regex.WAYS


@pytest.mark.parametrize("path", ["train/0001/meta/0007.pkl", "a" * 60 + "_" + "b" * 60 + "/x.npy"])
def test_ordinary_patterns_are_matched_by_re(path):
    for text in (
        r"{split}/{seq}/meta/{frame:\d{4}}.pkl",
        "**/*.npy",
        "{a}_{b}/{c}.npy",
        "**/{a:scene.*}_{b:\\d+}.h5",
    ):
        assert parse(text, "").growth.at(path) <= linear_regex.WAYS


def test_the_built_in_labels_of_splits_are_found():
    match = load_schema("ho3d").splits.match
    assert [Expression(match).search(name) for name in ("ABF12", "ABF1", "GPMF13", "other")] == [
        "ABF1",
        "ABF1",
        "GPMF1",
        "other",
    ]
