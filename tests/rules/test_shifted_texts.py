"""DC720: which sample a text belongs to, and runs of samples whose texts moved by one row."""

from itertools import pairwise

import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece, stack
from datacheck.rules.families.answers import partners
from tests.trials.memory import scan_pieces, schema_of

FIELDS = {"answer": {"role": "text"}, "question": {"role": "text"}}
QUESTION = "How many of {} apples and {} pears are left?"
ANSWER = "Of {} and {} none is left."


def numbers(i):
    """Return two numbers that no other sample has."""
    return 1000 + i, 9000 + i


def rows(count, moved=range(0), step=1, question=QUESTION, answer=ANSWER):
    """Return (question, answer) of samples, those of `moved` with the answer of `step` samples on."""
    return [
        (question.format(*numbers(i)), answer.format(*numbers(i + step if i in moved else i)))
        for i in range(count)
    ]


def pieces(texts):
    return [
        Piece(f"{i:05}", {"question": question, "answer": answer}, Origin("f"))
        for i, (question, answer) in enumerate(texts)
    ]


def steps(texts):
    (block,) = stack(pieces(texts), "")
    (column,) = partners.function(block, schema_of({"fields": FIELDS})).values()
    return {i: int(column.values[i]) for i in np.flatnonzero(column.present).tolist()}


def found(texts, fields=FIELDS):
    scan = scan_pieces(schema_of({"fields": fields}), [("", piece) for piece in pieces(texts)])
    return [(f.cause.kind, f.rows) for f in scan.findings if f.code == "DC720"]


def test_each_text_is_found_where_its_words_are():
    # The first and the last sample have no neighbour on one side.
    moved = dict.fromkeys(range(10, 20), 1)
    assert steps(rows(30, range(10, 20))) == dict.fromkeys(range(1, 29), 0) | moved


def test_of_a_long_block_all_samples_near_the_ends_of_a_run_are_compared():
    found_steps = steps(rows(4000, range(1001, 2002), -1))
    assert {i for i, step in found_steps.items() if step} >= {1001, 1002, 2000, 2001}
    assert found_steps[1000] == found_steps[2002] == 0
    assert len(found_steps) <= 128 + 2 * 32


@pytest.mark.parametrize(("step", "kind"), [(1, "next"), (-1, "before")])
@pytest.mark.parametrize("moved", [range(20, 32), range(40, 90), range(100, 118)])
def test_a_run_of_moved_answers_is_named_from_end_to_end(moved, step, kind):
    ((cause, named),) = found(rows(120, moved, step))
    assert (cause, named.tolist()) == (kind, list(moved))


def test_two_runs_are_two_findings():
    texts = rows(300, range(30, 60))
    texts[100:150] = rows(300, range(100, 150), -1)[100:150]
    assert [(kind, len(named)) for kind, named in found(texts)] == [("before", 50), ("next", 30)]


def test_texts_that_all_belong_to_a_neighbour_are_silent():
    """By words alone, a dataset that moved as a whole is like one whose rows overlap."""
    assert found(rows(100, range(100))) == []


def test_overlapping_rows_of_a_dialogue_among_others_are_silent():
    """Each answer is the next question, word by word."""
    texts = rows(200)
    turns = [f"turn {1000 + i} of talk {7000 + i} begins here" for i in range(41)]
    texts[60:100] = list(pairwise(turns))
    assert found(texts) == []


def test_texts_without_letters_of_the_latin_alphabet_are_compared_by_their_characters():
    question, answer = "苹果{}和梨{}还剩多少", "苹果{}和梨{}没有剩下"
    ((kind, named),) = found(rows(100, range(50, 80), 1, question, answer))
    assert (kind, named.tolist()) == ("next", list(range(50, 80)))


def test_the_third_text_that_shows_the_same_run_is_no_second_finding():
    texts = rows(100, range(50, 80))
    schema = schema_of({"fields": FIELDS | {"title": {"role": "text"}}})
    samples = [
        ("", Piece(p.key, dict(p.fields) | {"title": QUESTION.format(*numbers(i))}, Origin("f")))
        for i, p in enumerate(pieces(texts))
    ]
    findings = [f for f in scan_pieces(schema, samples).findings if f.code == "DC720"]
    assert [f.rows.tolist() for f in findings] == [list(range(50, 80))]


@pytest.mark.parametrize("count", [3, 11])
def test_a_short_run_is_silent(count):
    assert found(rows(100, range(50, 50 + count))) == []


def test_texts_of_one_context_do_not_point_anywhere():
    """Five questions in a row about one paragraph: the neighbours share as many words."""
    texts = [
        (QUESTION.format(*numbers(i // 5)), ANSWER.format(*numbers(i // 5))) for i in range(60)
    ]
    assert set(steps(texts).values()) <= {0}
    assert found(texts) == []


def test_texts_that_share_no_words_are_silent():
    texts = [(f"Frage Nummer {i}", f"answer {10_000 + 7 * i}") for i in range(100)]
    assert steps(texts) == {}


def test_samples_that_point_in_every_direction_are_silent():
    """A third of all samples shares words with the next one, without a run: the texts are related so."""
    rng = np.random.default_rng(0)
    texts = rows(300, set(rng.choice(300, 100, replace=False).tolist()))
    texts[100:120] = rows(300, range(100, 120))[100:120]
    assert found(texts) == []


def test_runs_that_go_on_with_the_sample_before_by_chance_are_silent():
    """Of random directions no run of twelve has nine of ten in one direction while others have none."""
    rng = np.random.default_rng(1)
    texts = [
        (QUESTION.format(*numbers(i)), ANSWER.format(*numbers(i + int(rng.integers(-1, 2)))))
        for i in range(2000)
    ]
    assert found(texts) == []


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_block_of_few_samples_is_measured(count):
    assert found(rows(count)) == []


def test_lists_and_one_text_alone_do_not_count():
    fields = {"answer": {"role": "text"}, "question": {"dtype": "text"}}
    assert found(rows(100, range(50, 80)), fields) == []
