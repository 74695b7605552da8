"""Token ids and labels: thresholds on both sides, with numbers from arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.sample import Block, Column, Origin, Piece
from datacheck.rules.families.tokens import agreement
from tests.rules.harness import judged, measured, schema_of

LABELS = {
    "ids": {"role": "tokens", "shape": ["L"]},
    "y": {"role": "labels", "shape": ["L"], "label_of": "ids"},
}


def findings(schema, samples):
    schema = schema_of(schema)
    pieces = [
        ("", Piece(f"s{i:03d}", {k: np.asarray(v) for k, v in s.items()}, Origin("")))
        for i, s in enumerate(samples)
    ]
    found = judged(schema, measured(schema, pieces))
    return {(f.code, f.kind): f.rows.tolist() for f in found.findings}


def block(ids, labels):
    def column(rows):
        return Column(
            np.concatenate([np.asarray(r, np.int64) for r in rows]),
            np.array([len(r) for r in rows]),
        )

    count = len(ids)
    return Block(
        [str(i) for i in range(count)],
        {"ids": column(ids), "y": column(labels)},
        [Origin("")] * count,
    )


def by_hand(ids, labels):
    agree, compared = [0] * 3, [0] * 3
    for lag in range(3):
        for i, label in enumerate(labels):
            if label != -100 and i + lag < len(ids):
                compared[lag] += 1
                agree[lag] += label == ids[i + lag]
    run = 0
    while run < len(ids) and ids[len(ids) - 1 - run] == ids[-1]:
        run += 1
    taught = sum(label != -100 for label in labels[len(labels) - run :]) if ids else 0
    return agree, compared, ids[-1] if run > 1 else -1, taught


rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-100, 0, 1, 2, 3])), max_size=12)


@given(st.lists(rows, min_size=1, max_size=5))
def test_agreement_is_that_of_the_plain_loop(samples):
    ids = [[a for a, _ in sample] for sample in samples]
    labels = [[b for _, b in sample] for sample in samples]
    found = agreement.function(block(ids, labels), schema_of({"fields": LABELS}))
    for i, (one, two) in enumerate(zip(ids, labels, strict=True)):
        agree, compared, tail, taught = by_hand(one, two)
        assert found["y:agree"][i].tolist() == agree
        assert found["y:compared"][i].tolist() == compared
        assert (found["y:tail"][i], found["y:tail_trained"][i]) == (tail, taught)


def test_labels_of_another_length_are_not_compared():
    assert agreement.function(block([[1, 2, 3]], [[1, 2]]), schema_of({"fields": LABELS})) == {}


@pytest.mark.parametrize(
    ("declared", "lag", "found"),
    [(0, 0, []), (1, 1, []), (0, 1, [0]), (0, 2, [0]), (1, 0, [0]), (1, 2, [0])],
)
def test_another_lag_than_the_declared_one_is_named(declared, lag, found):
    ids = np.random.default_rng(0).integers(5, 5000, 40)
    labels = np.concatenate([ids[lag:], np.full(lag, -100)])
    schema = {"fields": LABELS | {"y": LABELS["y"] | {"shift": declared}}}
    said = findings(schema, [{"ids": ids, "y": labels}])
    assert said == ({("DC710", f"lag {lag}"): found} if found else {})


@pytest.mark.parametrize(("wrong", "kind"), [(0, None), (1, None), (2, None), (50, "none")])
def test_labels_that_are_other_tokens_are_an_error_and_a_few_are_not(wrong, kind):
    ids = np.arange(5, 1005)
    labels = ids.copy()
    labels[:wrong] = 4
    said = findings({"fields": LABELS}, [{"ids": ids, "y": labels}])
    assert said == ({("DC710", kind): [0]} if kind else {})


def test_too_few_supervised_tokens_say_nothing():
    ids = np.arange(5, 45)
    labels = np.full(40, -100)
    labels[3:10] = ids[4:11]
    assert findings({"fields": LABELS}, [{"ids": ids, "y": labels}]) == {}
    labels[3:11] = ids[4:12]
    assert findings({"fields": LABELS}, [{"ids": ids, "y": labels}]) == {("DC710", "lag 1"): [0]}


def test_one_learnt_padding_may_be_the_end_and_the_usual_tail_is_a_guess():
    rng = np.random.default_rng(1)
    samples = []
    for number in range(12):
        ids = np.concatenate([rng.integers(5, 99, 20), np.zeros(6, int)])
        labels = np.where(np.arange(26) < 20 + number, ids, -100)
        samples.append({"ids": ids, "y": labels})
    assert findings({"fields": LABELS}, samples) == {("DC711", "padding"): list(range(2, 12))}
    schema = schema_of({"fields": LABELS})
    pieces = [("", Piece(f"s{i:03d}", s, Origin(""))) for i, s in enumerate(samples)]
    (guess,) = judged(schema, measured(schema, pieces)).findings
    assert guess.severity == "warning"
    assert findings({"fields": LABELS, "rules": {"DC711": {"pad": 7}}}, samples) == {}


@pytest.mark.parametrize(
    ("ids", "dtype", "kinds"),
    [
        ([0, 6399], "int64", []),
        ([6400], "int64", ["above"]),
        ([-1], "int64", ["below"]),
        ([-1, 7000], "int32", ["above", "below"]),
        ([3], "uint8", ["wrapped uint8"]),
        ([6399], "float32", []),
        ([3], "int16", []),
    ],
)
def test_ids_lie_in_the_vocabulary_and_in_their_dtype(ids, dtype, kinds):
    schema = {"fields": {"ids": LABELS["ids"]}, "tokenizer": {"vocab": 6400}}
    said = findings(schema, [{"ids": np.array(ids, dtype)}])
    assert sorted(kind for _, kind in said) == kinds


def test_ids_of_a_large_vocabulary_do_not_fit_16_bits():
    schema = {"fields": {"ids": LABELS["ids"]}, "tokenizer": {"vocab": 65_537}}
    assert findings(schema, [{"ids": np.array([3], "uint16")}]) == {
        ("DC704", "wrapped uint16"): [0]
    }
    schema["tokenizer"]["vocab"] = 65_536
    assert findings(schema, [{"ids": np.array([3], "uint16")}]) == {}


def test_ids_of_which_each_second_is_0_are_of_twice_the_width():
    schema = {"fields": {"ids": LABELS["ids"]}, "tokenizer": {"vocab": 6400}}
    ids = np.arange(1, 33, dtype=np.uint32)
    found = findings(schema, [{"ids": ids.view(np.uint16)}, {"ids": np.repeat(ids, 2)}])
    assert found == {("DC704", "halves"): [0]}
    assert findings(schema, [{"ids": ids[:31].view(np.uint16)}]) == {}  # 62 ids
    assert findings(schema, [{"ids": np.zeros(64, np.uint16)}]) == {}
    padded = np.zeros(128, np.int32)
    padded[0] = 1  # the end of an empty text, then padding
    assert findings(schema, [{"ids": padded}]) == {}


@pytest.mark.parametrize(("long", "found"), [(5, False), (6, True)])
def test_one_sample_in_twenty_may_be_cut(long, found):
    schema = {"fields": {"ids": LABELS["ids"]}, "tokenizer": {"max_length": 10}}
    samples = [{"ids": np.arange(5, 16 if i < long else 15) + i} for i in range(100)]
    assert findings(schema, samples) == ({("DC703", "samples"): list(range(long))} if found else {})
