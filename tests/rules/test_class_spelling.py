"""Classes that are words: other spellings of a frequent one are named, other classes are not."""

from timeit import timeit

import numpy as np
import pytest

from datacheck.model.sample import Column, Origin, Piece
from datacheck.rules.families.labels import class_words
from datacheck.schema.model import FieldSpec
from tests.trials.memory import scan_pieces, schema_of


def found(often, spec=None):
    """(kind, keys of samples) of each DC413 among samples that hold each text so many times."""
    texts = [text for text, count in often.items() for _ in range(count)]
    pieces = [
        ("", Piece(f"{i:05d}", {"c": text, "x": np.arange(3.0) + i}, Origin("f")))
        for i, text in enumerate(texts)
    ]
    fields = {"c": spec or {"dtype": "text"}, "x": {"role": "value", "shape": [3]}}
    told = [
        f for f in scan_pieces(schema_of({"fields": fields}), pieces).findings if f.code == "DC413"
    ]
    return [(f.kind, {texts[row] for row in f.rows.tolist()}, f.failed) for f in told]


@pytest.mark.parametrize(
    "other",
    [
        "Clearly Fair ",
        "clearly fair",
        "CLEARLY_FAIR",
        "clearly-fair",
        "clearlyFair",
        " clearly_fair",
        "clearly_fair.",
    ],
)
def test_another_form_of_a_frequent_class_is_named(other):
    assert found({"clearly_fair": 90, "unfair": 20, other: 30}) == [("form", {other}, 30)]
    # Both are how these data write it
    assert found({"clearly_fair": 89, "unfair": 20, other: 30}) == []


@pytest.mark.parametrize("other", ["Dog", "dog ", "DOG", "dog."])
def test_another_form_of_three_letters_is_named_if_it_is_rare(other):
    assert found({"dog": 300, "cat": 140, other: 3}) == [("form", {other}, 3)]
    assert found({"dog": 300, "cat": 140, other: 4}) == []  # 75 times as frequent, not 100


def test_capitals_within_three_letters_are_another_word():
    """Megapascal, millipascal; a blank behind one is another form of it."""
    for usual, other in (("MPa", "mPa"), ("mPa", "MPA"), ("kWh", "KWH"), ("Dog", "dOG")):
        assert found({usual: 355, "kPa": 340, other: 2}) == []
    assert found({"MPa": 355, "kPa": 340, "MPa ": 2}) == [("form", {"MPa "}, 2)]


@pytest.mark.parametrize(
    ("other", "most"),
    [
        ("boaat", 3),
        ("bot", 0),
        ("bost", 3),
        ("boats", 3),
        ("Boats", 3),
        ("baot", 100),
        ("Baot", 100),
    ],
)
def test_a_rare_class_with_one_wrong_letter_is_named(other, most):
    often = {"boat": 300, "bicycle": 140}
    for count in (3, most, most + 1):
        told = [("letter", {other}, count)] if 0 < count <= most else []
        assert found(often | {other: count}) == told
    assert found(often | {other: 3, "truck": 2}) == []  # other classes are as rare


def test_classes_of_lists_of_objects_are_read_from_their_lines():
    """As label files beside clouds have it: place, size, heading, class."""
    boats = "".join(f"{i}.5 1e1 -3 0.25 boat\n" for i in range(3))
    often = {boats: 18, boats + "1 2 3 4 car\n": 4, boats.replace("boat", "baot", 1): 3}
    assert found(often, {"role": "text"}) == [("letter", {boats.replace("boat", "baot", 1)}, 3)]
    for text in (
        "three numbers 1 2 3",
        "1 2 boat",
        "1 2 3 4 a boat",
        "a 1 2 3\n1 2 3 a",
        "1 2 3 4",
        "",
        "1 2 3 x" * 5000,
    ):
        spec = FieldSpec.model_validate({"role": "text"})
        assert class_words.function(Column.of([text]), spec) == {"spelled": [""]}


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("boat", "goat"),
        ("typical", "atypical"),
        ("class_1", "class_2"),
        ("v1.0", "v10"),
        ("AA", "Aa"),
        ("-1", "1"),
        ("C", "C++"),
        ("A+", "A-"),
        ("person", "person?"),
        ("rotate_90", "rotate_-90"),
        ("C1CCCCC1", "c1ccccc1"),
        ("2-10", "21-0"),
        ("left", "right"),
        ("fair", "unfair"),
        ("左边的人", "右边的人"),
    ],
)
def test_other_classes_are_no_other_spelling(one, two):
    assert found({one: 500, two: 2}) == []


def test_texts_and_names_are_no_classes():
    names = {f"person {chr(97 + i // 26)}{chr(97 + i % 26)}": 1 for i in range(300)}
    assert found({"clearly_fair": 900, "Clearly Fair": 9} | names) == []
    assert found({"clearly fair": 60, "Clearly Fair": 3} | {"a long text " * 9: 20}) == []
    assert found({"clearly_fair": 90, "Clearly Fair": 9}, {"role": "text"}) == []
    assert found({"fair": 16, "Fair": 3}) == []  # too few samples


def test_of_many_different_texts_nothing_is_kept():
    """A million names would take as much memory as their keys."""
    spec = FieldSpec.model_validate({"dtype": "text"})
    words = [f"name {i}" for i in range(201)]
    assert class_words.function(Column.of(words), spec) == {"spelled": [""] * 201}
    assert class_words.function(Column.of([*words[:200], "x" * 65]), spec) == {
        "spelled": [*words[:200], ""]
    }


def test_many_sets_of_few_classes_are_kept():
    """Which of eight kinds of things a scene holds: 255 different sets, and eight classes."""
    kinds = "abcdefgh"
    scenes = [
        "".join(f"1 2 3 {kind}\n" for i, kind in enumerate(kinds) if n >> i & 1)
        for n in range(1, 256)
    ]
    spec = FieldSpec.model_validate({"role": "text"})
    found = class_words.function(Column.of(scenes), spec)["spelled"]
    assert found[0] == "a"
    assert found[-1] == "\n".join(kinds)


def test_digits_that_are_no_number_take_no_time():
    """Of 16,000 digits and a letter a pattern that may cut them anywhere tried 128 million ways: seven seconds."""
    spec = FieldSpec.model_validate({"role": "text"})
    text = f"1 2 3 a\n1 2 3 {'1' * 16_000}x"
    assert timeit(lambda: class_words.function(Column.of([text]), spec), number=1) < 0.5


def test_the_words_of_lists_are_classes():
    lists = [["horse", "zebra"], ["zebra"]] * 57 + [[]] * 6

    def named(values):
        pieces = [
            ("", Piece(f"{i:05d}", {"c": value, "x": np.arange(3.0) + i}, Origin("f")))
            for i, value in enumerate(values)
        ]
        fields = {"c": {"dtype": "json"}, "x": {"role": "value", "shape": [3]}}
        findings = scan_pieces(schema_of({"fields": fields}), pieces).findings
        return [f.rows.tolist() for f in findings if f.code == "DC413"]

    assert named(lists) == []
    assert named([*lists, ["zebra", "Horse"]]) == [[120]]
    # Values of another kind are no lists of words.
    assert named([[value, {"Horse": 1}] for value in lists]) == []


def lists_of_classes(*parts):
    """Return the kinds of DC413 among lists of three classes, drawn from each part in turn."""
    rng = np.random.default_rng(0)
    samples = [rng.choice(names, 3).tolist() for names, count in parts for _ in range(count)]
    pieces = [("", Piece(f"{i:05d}", {"c": names}, Origin("f"))) for i, names in enumerate(samples)]
    schema = schema_of({"fields": {"c": {"dtype": "json"}}, "rules": {"DC803": "off"}})
    return [f.kind for f in scan_pieces(schema, pieces).findings if f.code == "DC413"]


def test_a_block_of_another_source_is_no_renamed_class():
    usual = ["cat", "dog", "horse", "person"]
    assert lists_of_classes((usual, 600), (["cats", "dog", "horse", "person"], 100)) == ["block"]
    assert lists_of_classes((usual, 800), (["caterpillar", "ant", "bee", "leaf"], 150)) == []
    assert lists_of_classes((usual, 800), (["cats", "ant", "bee", "leaf"], 150)) == []
