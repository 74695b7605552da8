"""How text is written and who speaks: each kind of damage alone, and what only looks like it."""

import numpy as np
import pytest

from datacheck.model.sample import Column, Origin, Piece
from datacheck.rules import chat_turns
from datacheck.rules.families import writing
from datacheck.rules.families.conversations import speakers
from datacheck.rules.families.writing import MARKERS, markers, repetition, spelling, text_ends
from datacheck.schema.model import FieldSpec
from datacheck.testing.minimind import TEMPLATE, write_tokenizer
from tests.rules.harness import judged, measured, schema_of

TEXT, CHAT = (
    FieldSpec(role="text"),
    FieldSpec(role="chat", speakers=("system", "user", "assistant", "tool")),
)


def latin(text, encoding="latin-1"):
    return text.encode().decode(encoding)


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        (
            "d\u00e9j\u00e0 \u00ab\u00a0vu\u00a0\u00bb \u00c3 \u00bf Ti\u1ebfng Vi\u1ec7t "
            "\U0001f600",
            [0, 0, 0, 0],
        ),
        ("one\ttwo\nthree\r\n\f \x85 \u4e2d\u6587\uff0c\u3002", [0, 0, 0, 0]),
        ("a\ufffdb\ufffd", [2, 0, 0, 0]),
        (latin("\u4e2d\u6587"), [0, 2, 0, 0]),
        (latin("caf\u00e9"), [0, 1, 0, 0]),
        (latin("it\u2019s", "cp1252"), [0, 1, 0, 0]),
        ("a\x00b\x1b[0m\x7f", [0, 0, 3, 0]),
        ("cafe\u0301 caf\u00e9", [0, 0, 0, 1]),
        ("", [0, 0, 0, 0]),
    ],
)
def test_broken_characters_are_counted_by_kind_in_text_and_in_chats(text, broken):
    around = ["before \ufffd", text, "after"]
    found = spelling.function(Column.of(around), TEXT)
    assert found["broken"][1].tolist() == broken
    assert found["signs"].tolist() == [8, len(text) if any(broken) else 0, 0]
    chats = [[{"role": "user", "content": one}] for one in around]
    assert spelling.function(Column.of(chats), CHAT)["broken"][1].tolist() == broken


def test_markers_are_found_in_the_text_that_holds_them():
    texts = ["a < b and [IN]", "x<|im_end|>y<|im_end|><think>", "", "</think", "<|im_start|>"]
    found = markers.function(Column.of(texts), TEXT)["markers"]
    held = [
        [marker for i, marker in enumerate(MARKERS) if bits >> i & 1] for bits in found.tolist()
    ]
    assert held == [[], ["<|im_end|>", "<think>"], [], [], ["<|im_start|>"]]


def test_repetition_by_hand():
    sentence = "one two three four five six seven eight nine ten eleven twelve "
    once = " ".join(f"word{i}" for i in range(60))
    found = repetition.function(
        Column.of([once, sentence * 10, "short", "\u4f60\u597d\u5417" * 100]), TEXT
    )
    again = found["again"]
    assert again.present.tolist() == [True, True, False, True]
    assert again.values[0] == 0
    # 111 grams of ten words, twelve different ones
    assert again.values[1] == pytest.approx(1 - 3 * 12 / 111)
    assert again.values[3] == pytest.approx(1 - 3 * 3 / 281)
    assert found["most"].values[1] == pytest.approx(10 * 2 / 120)


@pytest.mark.parametrize(
    ("sentence", "period", "gram"),
    [
        ("请总结北方的河流安静地等待桌上的红色盒子", 20, 20),
        ("the red box on the table waits for rivers", 9, 10),
    ],
)
def test_a_sentence_behind_counters_is_a_loop(sentence, period, gram):
    text = " ".join(f"{number}: {sentence}" for number in range(40))
    again = repetition.function(Column.of([text]), TEXT)["again"].values[0]
    # All grams but three of each
    assert again == pytest.approx(1 - 3 * period / (40 * period - gram + 1))


def test_formulas_without_their_numbers_are_no_loop():
    lines = [
        f"当 a = {a}， b = {a * a} 时， c = 12 - a - b = 12 - {a} - {a * a} = {12 - a - a * a}"
        for a in range(2, 14)
    ]
    found = repetition.function(Column.of(["\n".join(lines)]), TEXT)
    assert found["again"].values[0] < 0.1
    assert found["most"].values[0] < 0.3


def test_a_quoted_question_and_the_frames_of_a_table_are_no_repetition():
    question = " ".join(f"word{i}" for i in range(60))
    table = "\n+-------------------+\n|                   |\n".join(
        chr(0x4E00 + 9 * i) + chr(0x5E00 + 7 * i) for i in range(40)
    )
    found = repetition.function(Column.of([f"{question} {question}\n{question}", table]), TEXT)
    assert found["again"].values.tolist() == [0, 0]
    assert found["most"].values[0] == pytest.approx(3 * 2 / 180)
    assert found["most"].values[1] == 0  # of fewer than 200 characters


def test_of_a_text_of_millions_of_characters_the_first_million_are_looked_at_for_repetition():
    """Each takes a hundred bytes, and `guard` looks at texts in the process that trains."""
    plain = " ".join(str(i * 7919) + "x" for i in range(200_000))
    text = plain[:1_000_000] + "again and again " * 1_000_000
    found = repetition.function(Column.of([text, plain]), TEXT)
    assert len(plain) > 1_000_000
    assert found["again"].values.tolist() == [0, 0]
    assert found["most"].values[0] == found["most"].values[1] < 0.001


@pytest.mark.parametrize("first", [[], [{"role": "user", "content": "?", "x": 1}]])
def test_of_an_unknown_speaker_of_many_letters_a_beginning_is_kept(first):
    name = "q" * 100_000
    found = speakers.function(Column.of([[*first, {"role": name, "content": "a"}]] * 2), CHAT)
    assert all(word.startswith("qqq") and len(word.encode()) < 200 for word in found["strange"])


def said(*turns):
    return [{"role": role, "content": text} for role, text in turns]


ASK, ANSWER = ("user", "What is a voxel?"), ("assistant", "A small cube.")


@pytest.mark.parametrize(
    ("chat", "order"),
    [
        (said(ASK, ANSWER), 0),
        (said(("system", "Be brief."), ASK, ANSWER, ASK, ANSWER), 0),
        (said(("usr", "Hm?"), ASK, ANSWER), 1),
        (said(("system", "Be brief."), ANSWER, ASK, ANSWER), 2),
        (said(ASK, ANSWER, ASK), 4),
        (said(ASK, ("tool", "21"), ANSWER), 8),
        (
            [
                *said(ASK),
                {"role": "assistant", "content": "", "tool_calls": "[]"},
                *said(("tool", "21"), ANSWER),
            ],
            0,
        ),
        ([{"role": "system", "content": "Tools!", "tools": "{'a': 1}"}, *said(ASK, ANSWER)], 16),
        ([{"role": "system", "content": "Tools!", "tools": '{"a": 1}'}, *said(ASK, ANSWER)], 0),
        ([], 0),
        ({"conversations": said(ASK, ANSWER)}, 0),
        ([{"role": 7, "content": None}, *said(ASK, ANSWER)], 1),
    ],
)
def test_the_order_of_speakers(chat, order):
    assert speakers.function(Column.of([chat, said(ASK, ANSWER)]), CHAT)["order"].tolist() == [
        order,
        0,
    ]


def test_empty_turns_and_nones_are_counted_by_who_speaks():
    chats = [
        said(ASK, ("assistant", " \n")),
        said(("user", ""), ANSWER),
        said(ASK, ("assistant", "None")),
        [*said(ASK), {"role": "assistant", "content": "", "reasoning_content": "Hm."}],
        said(ASK, ("assistant", "No.")),
        [{"from": "human", "value": ""}, {"from": "gpt", "value": "nan"}],
    ]
    found = speakers.function(Column.of(chats), CHAT)
    assert found["hollow"].tolist() == [1, 0, 0, 0, 0, 0]
    assert found["mute"].tolist() == [0, 1, 0, 0, 0, 1]
    assert found["unsaid"].tolist() == [0, 0, 1, 0, 0, 1]


def chats_found(folder, chats, most=200):
    schema = schema_of(
        {
            "fields": {"c": {"role": "chat", "train_on": "assistant"}},
            "tokenizer": {"path": str(folder), "max_length": most},
        }
    )
    pieces = [("", Piece(f"s{i}", {"c": chat}, Origin(""))) for i, chat in enumerate(chats)]
    found = judged(schema, measured(schema, pieces))
    return {(f.code, f.kind): f.rows.tolist() for f in found.findings}


def test_an_answer_cut_off_is_truncated_and_one_without_end_marker_learns_padding(tmp_path):
    write_tokenizer(tmp_path)
    chats = [said(ASK, ANSWER), said(ASK, ("assistant", " ".join(f"voxel{i}" for i in range(200))))]
    assert chats_found(tmp_path, chats) == {
        ("DC703", "samples"): [1],
        ("DC703", "tokens"): [1],
        ("DC703", "open"): [1],
    }
    config = (tmp_path / "tokenizer_config.json").read_text()
    assert "'<|im_end|>'" in TEMPLATE
    (tmp_path / "tokenizer_config.json").write_text(config.replace("<|im_end|>' + '\\\\n'", "'"))
    chat_turns._tokenizer_or_reason.cache_clear()
    found = chats_found(tmp_path, chats[:1])
    assert found[("DC711", "padding")] == [0]


def test_counters_before_lines_without_spaces_change_no_share_of_repetition():
    """With counters a line had words, and its characters were taken ten at a time instead of twenty."""
    rng = np.random.default_rng(0)
    letters = ["".join(map(chr, rng.integers(0x4E00, 0x9000, count))) for count in (12, *[6] * 40)]
    lines = [letters[0] + one for one in letters[1:]]
    numbered = [f"{number}. {line}" for number, line in enumerate(lines, 1)]
    assert writing._repeated("\n".join(numbered))[0] == writing._repeated("\n".join(lines))[0] < 0.3


def test_lengths_and_last_characters_of_texts_are_counted():
    texts = ["a" * 49, "x" * 50, "word " * 12, "\u00e4" * 60 + " end\u3002", "b" * 60 + " ...", ""]
    found = text_ends.function(Column.of(texts), TEXT)
    assert found["characters"].present.tolist() == [False, True, True, True, True, False]
    assert found["characters"].values[1:5].tolist() == [50, 60, 65, 64]
    assert found["octets"].values[1:5].tolist() == [50, 60, 127, 64]
    assert found["word_count"].values[1:5].tolist() == [1, 12, 2, 2]
    assert list(map(chr, found["final"].values[1:5].tolist())) == ["x", " ", "\u3002", "\u2026"]


def stories(count=300, seed=0, low=60, high=900):
    """Return texts of complete sentences whose lengths are spread evenly."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        text, least = "", rng.integers(low, high)
        while len(text) < least:
            text += (
                " ".join(
                    "".join(map(chr, rng.integers(97, 123, rng.integers(1, 9)))) for _ in range(6)
                )
                + ". "
            )
        texts.append(text.strip())
    return texts


def cut_found(texts):
    schema = schema_of({"fields": {"t": {"role": "text"}}})
    pieces = [("", Piece(f"s{i:03d}", {"t": text}, Origin(""))) for i, text in enumerate(texts)]
    found = judged(schema, measured(schema, pieces))
    return {f.kind: f.rows.tolist() for f in found.findings if f.code == "DC718"}


@pytest.mark.parametrize(
    ("cut", "length"),
    [
        (lambda text: text[:512], "512 characters"),
        (lambda text: text.encode()[:512].decode(), "512 characters"),
        (
            lambda text: text.replace(" ", "\u3000").encode()[:510].decode("utf-8", "ignore"),
            "510 bytes",
        ),
        (lambda text: " ".join(text.split()[:80]), "80 words"),
        (lambda text: text if len(text) <= 509 else text[:509] + "...", "512 characters"),
    ],
)
def test_texts_that_were_cut_at_one_length_are_named(cut, length):
    texts = [cut(text) for text in stories()]
    kind = length.split()[1]
    sizes = {
        "characters": len,
        "bytes": lambda t: len(t.encode()),
        "words": lambda t: len(t.split()),
    }
    wanted = [i for i, text in enumerate(texts) if sizes[kind](text) == int(length.split()[0])]
    assert cut_found(texts)[length] == wanted
    assert len(wanted) > 60


@pytest.mark.parametrize(
    "texts",
    [
        stories(),
        [text.replace(".", "") for text in stories()],
        [text[:512] for text in stories()][:40],
        stories(240)
        + ["This text is not available in the language of your choice" + "!" * 20] * 30,
        stories(240, high=200) + [f"{i:064x}" for i in range(30)],
        [text.ljust(600, "!")[:599] + "." for text in stories()],
    ],
    ids=["complete", "no ends", "too few", "copies", "hashes", "filled"],
)
def test_texts_that_end_as_they_should_are_silent(texts):
    assert cut_found(texts) == {}
