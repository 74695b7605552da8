"""Pictures of texts: segments that say what is trained on, as the training code has it."""

import json
import shutil
import tracemalloc
from functools import partial
from itertools import groupby

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.sample import Origin, Piece, stack
from datacheck.preview.drawings import NotDrawableError
from datacheck.preview.texts import LETTERS, SEGMENTS, chat, decoded, plain, tokenized, tokens
from datacheck.schema.model import FieldSpec, TokenizerSpec
from datacheck.testing import synth
from datacheck.tokenization import Tokenizer
from datacheck.transforms.tokenize import Tokenize

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a valley?"},
    {"role": "assistant", "content": "A low place."},
    {"role": "user", "content": "And a hill?"},
    {"role": "assistant", "content": "A high one."},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("talk")
    synth.write("minimind", place, seed=0)
    return place / "model"


def kinds(made):
    return [segment["is"] for segment in made["segments"]]


def test_a_chat_is_cut_where_its_template_its_mask_and_its_labels_change(folder):
    made = chat(TALK, FieldSpec(role="chat"), TokenizerSpec(), Tokenizer(folder))
    joined = "".join(segment["text"] for segment in made["segments"])
    assert joined == Tokenizer(folder).chat(TALK)
    trained = [segment["text"] for segment in made["segments"] if segment["is"] == "supervised"]
    assert trained == ["A low place.<|im_end|>\n", "A high one.<|im_end|>\n"]
    masked = [segment["text"] for segment in made["segments"] if segment["is"] == "masked"]
    assert masked == ["Be brief.", "What is a valley?", "And a hill?"]
    assert set(kinds(made)) == {"template", "masked", "supervised"}


@pytest.mark.parametrize("most", [None, 12, 30])
def test_as_many_tokens_are_trained_on_as_the_transform_labels(folder, most):
    made = chat(TALK, FieldSpec(role="chat"), TokenizerSpec(max_length=most), Tokenizer(folder))
    counted = sum(
        segment["tokens"] for segment in made["segments"] if segment["is"] == "supervised"
    )
    step = Tokenize(field="c", tokenizer=str(folder), max_length=most)
    blocks, _ = step.apply(stack([Piece("t", {"c": TALK}, Origin(""))])[0])
    # without a block nothing is left to train on
    labels = blocks[0].fields["labels"].values if blocks else np.array([-100])
    assert counted == int((labels != -100).sum())
    length = sum(segment["tokens"] for segment in made["segments"])
    assert ("cut" in kinds(made)) == (most is not None and most < length)


def test_without_a_tokenizer_the_speaker_says_what_is_trained_on():
    made = chat(TALK, FieldSpec(role="chat", train_on="assistant"), None, None)
    assert kinds(made) == ["masked", "masked", "supervised", "masked", "supervised"]
    assert [segment["who"] for segment in made["segments"]] == [message["role"] for message in TALK]
    assert kinds(chat(TALK, FieldSpec(role="chat"), None, None)) == ["plain"] * 5
    # As ShareGPT names them
    shared = [{"from": message["role"], "value": message["content"]} for message in TALK]
    assert chat(shared, FieldSpec(role="chat", train_on="assistant"), None, None) == made
    with pytest.raises(NotDrawableError, match="without a message"):
        chat([], FieldSpec(role="chat"), None, None)


def test_a_text_is_trained_on_up_to_the_length_of_the_model(folder):
    text = "one two three " * 100
    made = tokenized(text, TokenizerSpec(max_length=20), Tokenizer(folder))
    assert kinds(made) == ["supervised", "cut"]
    assert made["segments"][0]["tokens"] == 20
    assert text.startswith(made["segments"][0]["text"])
    assert len(made["segments"][1]["text"]) == LETTERS
    assert sum(len(s["text"]) + s["left_out"] for s in made["segments"]) == len(text)


def test_tokens_tell_labels_and_padding_apart():
    ids, labels = np.array([5, 6, 7, 8, 0, 0]), np.array([-100, -100, 7, 8, -100, -100])
    made = tokens(ids, labels, pad=0)
    assert [(s["is"], s["text"]) for s in made["segments"]] == [
        ("masked", "5 6"),
        ("supervised", "7 8"),
        ("padding", "0 0"),
    ]
    assert "6 tokens, 2 of them trained on, 2 padding" in made["about"]
    # A fault that padding must not hide
    kept = tokens(ids, np.array([-100, -100, 7, 8, 0, -100]), pad=0)
    assert [(s["is"], s["text"]) for s in kept["segments"]][1:] == [
        ("supervised", "7 8 0"),
        ("padding", "0"),
    ]
    assert "3 of them trained on, 2 padding (1 of it trained on)" in kept["about"]
    long = tokens(np.full(5000, 7))["segments"][0]
    assert (long["tokens"], long["left_out"] > 4900) == (5000, True)
    shifted = tokens(ids, np.array([-100, 7, 8, -100, -100, -100]), shift=1)
    assert [s["text"] for s in shifted["segments"] if s["is"] == "supervised"] == ["7 8"]
    assert kinds(tokens(ids)) == ["plain"]
    many = tokens(np.arange(1000), np.where(np.arange(1000) % 2, 1, -100))
    assert (len(many["segments"]), many["more"]) == (SEGMENTS, 1000 - SEGMENTS)
    for bad in (np.zeros((2, 2), int), np.zeros(3), np.zeros(0, int)):
        with pytest.raises(NotDrawableError):
            tokens(bad)


@pytest.mark.parametrize("every", [1, 2])
def test_many_tokens_take_a_few_bytes_each(every):
    """A name of its kind for each token took 40 bytes, a list of the runs 100."""
    count = 1 << 21
    ids = np.zeros(count, np.uint8)
    labels = np.zeros(count, np.int8)
    labels[::every] = -100
    tracemalloc.start()
    made = tokens(ids, labels, pad=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    runs = 1 if every == 1 else count
    trained = 0 if every == 1 else count // 2
    assert f"{count:,} tokens, {trained:,} of them trained on" in made["about"]
    assert made["more"] == max(0, runs - SEGMENTS)
    assert kinds(made) == (["masked", "supervised"] * SEGMENTS)[: min(runs, SEGMENTS)]
    assert peak < 16 * count


@given(st.lists(st.sampled_from([-100, 7]), min_size=1, max_size=300), st.integers(0, 5))
def test_runs_of_tokens_are_those_that_a_loop_counts(labels, padded):
    ids = np.array([5] * len(labels) + [0] * padded)
    made = tokens(ids, np.array(labels + [-100] * padded), pad=0)
    each = ["masked" if label == -100 else "supervised" for label in labels]
    expected = [(kind, len(list(run))) for kind, run in groupby(each + ["padding"] * padded)]
    assert [(s["is"], s["tokens"]) for s in made["segments"]] == expected[:SEGMENTS]
    assert made["more"] == max(0, len(expected) - SEGMENTS)


def test_ids_that_are_of_no_token_are_named(folder):
    tokenizer = Tokenizer(folder)
    ids = np.concatenate(
        [tokenizer.encode(["hello"])[0], [tokenizer.size, -3], tokenizer.encode(["you"])[0]]
    )
    assert decoded(tokenizer, ids) == f"hello[no token {tokenizer.size}][no token -3]you"
    assert (
        tokens(np.array([-3]), decode=partial(decoded, tokenizer))["segments"][0]["text"]
        == "[no token -3]"
    )


def test_without_a_chat_template_the_messages_are_shown_as_they_are(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "model")
    config = tmp_path / "model/tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": None}))
    made = chat(
        TALK,
        FieldSpec(role="chat", train_on="assistant"),
        TokenizerSpec(),
        Tokenizer(tmp_path / "model"),
    )
    assert kinds(made) == ["masked", "masked", "supervised", "masked", "supervised"]
    assert "the tokenizer has no chat template" in made["about"]


@given(st.text(st.characters(exclude_categories=()), max_size=1000))
def test_any_text_becomes_json_of_at_most_300_characters_a_segment(text):
    try:
        made = plain(text)
    except NotDrawableError:
        assert text == ""
        return
    assert orjson.loads(orjson.dumps(made)) == made
    assert all(len(segment["text"]) <= LETTERS for segment in made["segments"])
    assert made["segments"][0]["left_out"] == max(0, len(text) - LETTERS)


def test_a_completion_is_shown_behind_its_prompt_and_a_long_chat_without_tokens(folder):
    how = TokenizerSpec(trainer="trl")
    made = chat(TALK[-1:], FieldSpec(role="chat"), how, Tokenizer(folder), prompt=TALK[:-1])
    trained = [segment["text"] for segment in made["segments"] if segment["is"] == "supervised"]
    assert "".join(trained) == "A high one.<|im_end|>\n"
    long = [TALK[1], {"role": "assistant", "content": "word " * 50_000}]
    made = chat(long, FieldSpec(role="chat", train_on="assistant"), how, Tokenizer(folder))
    assert kinds(made) == ["masked", "supervised"]
    assert "more than the 200,000 that are tokenized here" in made["about"]
