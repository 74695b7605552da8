"""DC717: answers that are spans of a text, each fault with what it must be called, and clean questions."""

import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece
from tests.trials.memory import scan_pieces, schema_of

# Two-byte characters before every answer, so that bytes and characters differ; the answer of question i
# is a word with the number i, so it stands in the text once.
CONTEXT = "Über Zürich fällt Schnee auf den Turm Nummer {} am Fluss 𝄞 und auf Haus {} dahinter."
FIELDS = {
    "id": {"role": "id", "dtype": "text"},
    "context": {"role": "text"},
    "answers": {"role": "answers", "dtype": "json", "spans_of": "context"},
}
FLAGGED = FIELDS | {
    "answers": FIELDS["answers"] | {"unanswerable": "impossible"},
    "impossible": {"role": "flag", "dtype": "bool"},
}


def question(i):
    text = CONTEXT.format(100 + i, 200 + i)
    answers = [f"Turm Nummer {100 + i}", f"Haus {200 + i}"]
    starts = [text.index(answer) for answer in answers]
    return {"id": f"q{i}", "context": text, "answers": {"text": answers, "answer_start": starts}}


def changed(change, fields=FIELDS, count=20):
    samples = [question(i) for i in range(count)]
    for i, sample in enumerate(samples):
        change(i, sample)
    pieces = [("", Piece(f"s{i:02}", sample, Origin("f"))) for i, sample in enumerate(samples)]
    return [
        finding
        for finding in scan_pieces(schema_of({"fields": fields}), pieces).findings
        if finding.code == "DC717"
    ]


def starts(count):
    """Return a change that counts each start by a function of (text before the answer)."""

    def change(_, sample):
        spans = sample["answers"]
        spans["answer_start"] = [
            count(sample["context"][:start]) for start in spans["answer_start"]
        ]

    return change


def as_list(_, sample):
    spans = sample["answers"]
    sample["answers"] = [
        {"text": text, "answer_start": start}
        for text, start in zip(spans["text"], spans["answer_start"], strict=True)
    ]


def as_one(_, sample):
    sample["answers"] = {key: values[0] for key, values in sample["answers"].items()}


@pytest.mark.parametrize("form", [lambda i, sample: None, as_list, as_one])
def test_answers_at_their_position_are_silent_in_each_form(form):
    assert changed(form) == []


@pytest.mark.parametrize(
    ("count", "cause", "factor", "answers"),
    [
        (lambda before: len(before) + 7, "offset", -7, 40),
        (lambda before: len(before) - 1, "offset", 1, 40),
        (lambda before: len(before.encode()), "bytes", None, 40),
        # Only the sign before the second answer takes two units of UTF-16.
        (lambda before: len(before.encode("utf-16-le")) // 2, "units", None, 20),
    ],
)
def test_positions_that_are_counted_in_another_way_are_named(count, cause, factor, answers):
    (found,) = changed(starts(count))
    assert (found.kind, found.failed, found.measured["answers"]) == ("span", 20, answers)
    assert (found.cause.kind, found.cause.factor, found.cause.explains) == (cause, factor, 20)
    assert found.measured["share"] == answers / 40


def lowered(_, sample):
    sample["context"] = sample["context"].lower()


def cut(_, sample):
    sample["context"] = sample["context"][:20]


def joined_wrongly(i, sample):
    sample["context"] = question((i + 1) % 20)["context"]


def spaced(i, sample):
    sample["context"] = " " * (i % 5 + 1) + sample["context"]


@pytest.mark.parametrize(
    ("change", "cause"),
    [(lowered, "case"), (cut, "cut"), (joined_wrongly, "other"), (spaced, "changed")],
)
def test_a_text_that_was_changed_is_named(change, cause):
    (found,) = changed(change)
    assert (found.kind, found.failed, found.cause.kind) == ("span", 20, cause)


def test_a_single_wrong_position_has_no_constant_offset():
    def change(i, sample):
        if i == 4:
            sample["answers"]["answer_start"][0] += 2

    (found,) = changed(change)
    assert (found.failed, found.examples, found.measured["answers"]) == (1, ("s04",), 1)
    assert found.cause.kind == "changed"


@pytest.mark.parametrize(
    "value",
    [
        {"text": ["Turm"], "answer_start": []},
        {"text": ["Turm"], "answer_start": ["4"]},
        {"text": ["Turm"], "answer_start": [2**63]},
        {"text": [None], "answer_start": [4]},
        {"text": "Turm"},
        ["Turm"],
        7.5,
    ],
)
def test_answers_of_another_form_are_named(value):
    def change(i, sample):
        sample["answers"] = value if i == 3 else sample["answers"]

    (found,) = changed(change)
    assert (found.kind, found.examples) == ("form", ("s03",))


NONE = {"text": [], "answer_start": []}
BLANK = {"text": [""], "answer_start": [-1]}


def without_answers(which, none=NONE, flags=None):
    def change(i, sample):
        if which(i):
            sample["answers"] = none
        if flags is not None:
            sample["impossible"] = np.array(flags(i))

    return change


@pytest.mark.parametrize("none", [NONE, BLANK, []])
def test_a_question_without_an_answer_is_named_where_its_flag_says_that_it_has_one(none):
    odd = lambda i: i % 2 == 1  # noqa: E731
    assert changed(without_answers(odd, none, odd), FLAGGED) == []
    (found,) = changed(without_answers(odd, none, lambda i: odd(i) and i != 5), FLAGGED)
    assert (found.kind, found.severity.value, found.examples) == ("none", "error", ("s05",))


def test_an_answer_of_an_unanswerable_question_is_named():
    (found,) = changed(without_answers(lambda i: i > 5, flags=lambda i: i > 4), FLAGGED)
    assert (found.kind, found.examples) == ("impossible", ("s05",))


def test_without_a_flag_few_questions_without_an_answer_are_named_and_many_are_not():
    few = changed(without_answers(lambda i: i == 5), count=50)  # 1 of 50: 2 %
    assert [(f.kind, f.severity.value, f.failed) for f in few] == [("none", "warning", 1)]
    assert changed(without_answers(lambda i: i in {5, 6}), count=50) == []
    assert changed(without_answers(lambda i: True), count=50) == []


def test_ids_that_two_questions_have_are_named():
    def change(i, sample):
        sample["id"] = f"q{i % 18}"  # 18 and 19 have the ids of 0 and 1

    (found,) = changed(change)
    assert (found.kind, found.failed, found.measured) == ("ids", 4, {"ids": 2})
    assert found.fields == ("answers", "id")
