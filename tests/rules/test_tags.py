"""Words and their tags: what is counted, and what only looks like a fault."""

import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece, stack
from datacheck.rules.families.tags import span_tags
from tests.trials.memory import scan_pieces, schema_of

FIELDS = {"fields": {"w": {"dtype": "json"}, "t": {"dtype": "json"}}, "rules": {"DC803": "off"}}


def counted(words, tags):
    schema = schema_of(FIELDS)
    (block,) = stack([Piece("s", {"w": words, "t": tags}, Origin("f"))], "")
    found = span_tags.function(block, schema)
    return {name: column.values.tolist()[0] for name, column in found.items() if column.values[0]}


@pytest.mark.parametrize(
    ("words", "tags", "expected"),
    [
        ("In New York .", "O B-LOC I-LOC O", {"tagged": 4, "span_starts": 1, "span_capitals": 1,
                                             "span_late": 1}),
        ("in Oslo ,", "O O B-LOC", {"tagged": 3, "span_starts": 1, "span_marks": 1, "span_late": 1}),
        ("a b c", "O I-X O", {"tagged": 3, "span_orphans": 1}),
        ("a b c", "B-X I-Y I-Y", {"tagged": 3, "span_starts": 1, "span_orphans": 1}),
        ("a b c", "B-X I-X E-X", {"tagged": 3, "span_starts": 1}),
        ("a b c", "S-X E-X L-X", {"tagged": 3, "span_starts": 1, "span_orphans": 2}),
        ("a b c", "O O", {"tagged": 2, "tags_short": 1}),
        ("a b", "O O O", {"tagged": 3, "tags_short": -1}),
        ("a b", "NOUN VERB", {}),
    ],
)  # fmt: skip
def test_what_is_counted(words, tags, expected):
    assert counted(words.split(), tags.split()) == expected


def test_empty_words_are_counted():
    assert counted(["a", "", " "], ["O", "O", "O"]) == {"tagged": 3, "words_empty": 2}


@pytest.mark.parametrize("value", [None, 3, [], ["B-X", 2], {"a": 1}])
def test_values_that_are_no_lists_of_words_are_not_counted(value):
    assert counted(value, value) == {}


def test_words_and_their_tags_are_taken_by_their_names_beside_other_columns():
    """CoNLL-2003: the word, its part of speech, its chunk, and the tag of the entity."""
    names = ("words", "column1", "column2", "tags")
    schema = schema_of({"fields": {name: {"dtype": "json"} for name in names}})
    rows = ["EU NNP B-NP B-ORG", "rejects VBZ B-VP O", "German JJ B-NP B-MISC", ", , O B-PER"]
    sample = dict(zip(names, map(list, zip(*map(str.split, rows), strict=True)), strict=True))
    (block,) = stack([Piece("s", sample, Origin("f"))], "")
    found = span_tags.function(block, schema)
    counts = {name: column.values.tolist()[0] for name, column in found.items()}
    assert (counts["tagged"], counts["span_starts"]) == (4, 3)
    assert (counts["span_marks"], counts["span_capitals"]) == (1, 2)


def found(often):
    """Return (kind, severity, samples) of each DC719 among sentences that occur so many times."""
    texts = [pair for pair, count in often for _ in range(count)]
    pieces = [
        (
            "",
            Piece(
                f"{i:05d}", {"w": [f"w{i}", *words.split()], "t": ["O", *tags.split()]}, Origin("f")
            ),
        )
        for i, (words, tags) in enumerate(texts)
    ]
    return [
        (f.kind, f.severity.value, len(f.rows))
        for f in scan_pieces(schema_of(FIELDS), pieces).findings
        if f.code == "DC719"
    ]


GOOD = ("lives in Oslo ,", "O O B-LOC O")


@pytest.mark.parametrize(
    ("often", "expected"),
    [
        ([(GOOD, 100)], []),
        ([(GOOD, 100), (("in Oslo ,", "O O B-LOC"), 6)], [("mark", "warning", 6)]),
        ([(GOOD, 2000), (("in Oslo ,", "O O B-LOC"), 1)], [("mark", "info", 1)]),
        ([(GOOD, 100), (("in New York", "O B-LOC I-PER"), 3)], [("orphan", "warning", 3)]),
        # The scheme IOB1: a span begins with I, unless another one of its class ends before it.
        ([(("in New York", "O I-LOC I-LOC"), 100), (("Oslo Lima ,", "I-LOC B-LOC O"), 3)], []),
        ([(GOOD, 60), (("in Oslo", "O B-LOC O"), 2)], [("number", "error", 2)]),
        ([(GOOD, 60), ((" ".join(["a"] * 38), " ".join(["O"] * 38)), 1)], []),
        ([(GOOD, 60), ((" ".join(["a"] * 39), " ".join(["O"] * 39)), 1)], [("long", "warning", 1)]),
    ],
    ids=["clean", "late", "a slip", "orphans", "IOB1", "number", "shorter", "long"],
)
def test_faults_are_named_and_schemes_are_not(often, expected):
    assert found(often) == expected


def test_the_cause_needs_capitals():
    late = [(("in Oslo ,", "O O B-LOC"), 6)]
    lower = [(("in oslo ,", "O O B-LOC"), 6)]
    for often, kind in ((late, "late"), (lower, None)):
        texts = [pair for pair, count in [(GOOD, 100), *often] for _ in range(count)]
        pieces = [
            (
                "",
                Piece(
                    f"{i:05d}", {"w": [f"w{i}", *w.split()], "t": ["O", *t.split()]}, Origin("f")
                ),
            )
            for i, (w, t) in enumerate(texts)
        ]
        findings = scan_pieces(schema_of(FIELDS), pieces).findings
        (finding,) = (f for f in findings if f.code == "DC719")
        assert (finding.cause.kind if finding.cause else None) == kind
        assert np.array_equal(finding.rows, np.arange(100, 106))
