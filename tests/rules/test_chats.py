"""Chats: who may speak first, texts that may be empty, pairs that part with an answer."""

import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece
from tests.trials.memory import scan_pieces, schema_of


def chat(*turns):
    return [{"role": role, "content": content} for role, content in turns]


def told(fields, samples):
    pieces = [("", Piece(f"s{i}", sample, Origin("f"))) for i, sample in enumerate(samples)]
    found = scan_pieces(schema_of({"fields": fields}), pieces).findings
    return [(f.code, f.kind, f.failed) for f in found if f.severity.value != "info"]


PAIR = {"good": {"role": "chat", "preferred_over": "bad"}, "bad": {"role": "chat"}}
FIRST = (("user", "How are you today?"), ("assistant", "I am well, and you?"))
OTHER = (("user", "How are you today?"), ("assistant", "Tired, leave me alone."))


@pytest.mark.parametrize(
    ("good", "bad", "kinds"),
    [
        (FIRST, OTHER, []),
        (
            (*FIRST, ("user", "What did you do?"), ("assistant", "I ran.")),
            (*OTHER, ("user", "Do you like sports?"), ("assistant", "Not at all.")),
            [],
        ),
        (
            (*FIRST, ("user", "Why?"), ("assistant", "I slept.")),
            (*OTHER, ("user", "Why?"), ("assistant", "I slept.")),
            [],
        ),
        (FIRST, FIRST, ["same"]),
        (FIRST, (("user", "How old are you?"), OTHER[1]), ["prompts"]),
        (
            (("system", "Be kind to people."), *FIRST),
            (("system", "Be rude to people."), *OTHER),
            ["prompts"],
        ),
        (FIRST, (("system", "Be rude to people."), *OTHER), ["prompts"]),
        (FIRST, FIRST[:1], []),
    ],
)
def test_a_pair_may_go_on_as_it_likes_behind_the_first_answer_that_differs(good, bad, kinds):
    found = told(PAIR, [{"good": chat(*good), "bad": chat(*bad)}])
    assert [kind for code, kind, _ in found if code == "DC712"] == kinds


def test_whoever_is_learnt_from_may_ask_first():
    fields = {"c": {"role": "chat", "speakers": ["human", "gpt"], "train_on": "human"}}
    asked = [
        {"from": "human", "value": "Where is the station?"},
        {"from": "gpt", "value": "Down the road."},
    ]
    assert told(fields, [{"c": asked[:1]}]) == []
    assert [kind for _, kind, _ in told(fields, [{"c": asked}])] == ["last"]


def said(*names):
    return [{"from": name, "value": f"Turn {i} is said by {name}."} for i, name in enumerate(names)]


GOOD = [said("human", "gpt"), said("system", "human", "function_call", "observation", "gpt")] * 20


@pytest.mark.parametrize(
    ("turns", "kinds"),
    [
        (("human", "gpt", "human", "gpt"), []),
        (("human", "function_call"), []),  # the caller runs it
        (("gpt", "human", "human", "gpt"), ["no-user"]),
        (("gpt", "human"), ["no-user"]),
        (("function_call", "human", "observation", "gpt"), ["no-user"]),
        (("human", "human", "gpt"), ["twice"]),
        (("human", "gpt", "human"), ["last"]),
    ],
)
@pytest.mark.parametrize(
    "names", [("from", "value"), ("role", "content"), ("speaker", "utterance"), ("speaker", "text")]
)
def test_chats_of_sharegpt_and_dialogues_are_judged_as_others(turns, kinds, names):
    who, what = names
    chats = [[{who: m["from"], what: m["value"]} for m in chat] for chat in [*GOOD, said(*turns)]]
    found = told({"c": {"role": "chat", "train_on": "gpt"}}, [{"c": one} for one in chats])
    assert [(kind, failed) for code, kind, failed in found if code == "DC706"] == [
        (kind, 1) for kind in kinds
    ]
    assert {code for code, _, _ in found} <= {"DC706"} | {"DC803"}


def test_users_who_often_speak_twice_in_a_row_do_so_on_purpose():
    chats = [said("human", "gpt"), said("human", "human", "gpt")] * 10
    found = told({"c": {"role": "chat", "train_on": "gpt"}}, [{"c": one} for one in chats])
    assert [code for code, _, _ in found if code == "DC706"] == []


@pytest.mark.parametrize("aslist", [False, True])
def test_answers_of_a_pair_may_stand_alone_and_the_prompt_may_end_with_a_question(aslist):
    def answer(text):
        message = {"from": "gpt", "value": text}
        return [message] if aslist else message

    fields = {
        "chat": {"role": "chat", "train_on": "gpt"},
        "chosen": {"role": "chat", "train_on": "gpt", "preferred_over": "rejected"},
        "rejected": {"role": "chat", "train_on": "gpt"},
    }
    prompts = [said("human"), said("human", "gpt", "human"), said("system", "human")]
    samples = [
        {
            "chat": chat,
            "chosen": answer(f"Yes, as in chapter {i}."),
            "rejected": answer(f"No, see page {i}."),
        }
        for i, chat in enumerate(prompts)
    ]
    assert told(fields, samples) == []
    samples[1]["rejected"] = samples[1]["chosen"]
    assert told(fields, samples) == [("DC712", "same", 1)]
    fields = {name: spec | {"optional": True} for name, spec in fields.items()}
    kinds = [
        (kind, failed)
        for _, kind, failed in told(fields, [*samples, *({"chat": chat} for chat in prompts)])
    ]
    # Of those without answers beside them
    assert sorted(kinds) == [("last", 1), ("mute", 2), ("same", 1)]
    alone = {"chat": fields["chat"]}
    assert {kind for _, kind, _ in told(alone, samples)} == {"mute", "last"}


def test_instructions_may_be_empty_and_questions_may_not():
    fields = {"c": {"role": "chat", "train_on": "assistant"}}
    whole = chat(("system", ""), *FIRST)
    assert told(fields, [{"c": whole}]) == []
    empty = chat(("user", " "), FIRST[1])
    assert [(code, kind) for code, kind, _ in told(fields, [{"c": whole}, {"c": empty}])] == [
        ("DC705", "mute")
    ]


@pytest.mark.parametrize(("optional", "codes"), [(False, ["DC705"]), (True, [])])
def test_a_text_that_need_not_be_there_may_be_empty(optional, codes):
    texts = ["Add the two numbers.", "", "Translate this line.", "   "]
    fields = {"input": {"role": "text", "optional": optional}, "x": {"role": "value", "shape": [3]}}
    samples = [{"input": text, "x": np.arange(3.0) + i} for i, text in enumerate(texts)]
    assert [code for code, _, _ in told(fields, samples) if code == "DC705"] == codes
    assert told(fields, [{"input": "None", "x": np.arange(3.0)}])[0][:2] == ("DC705", "none")


@pytest.mark.parametrize(("empty", "codes"), [(1, ["DC705"]), (2, ["DC705"]), (3, [])])
def test_an_optional_text_that_few_leave_empty_has_lost_it(empty, codes):
    """A draft calls a field optional that another table of the folder lacks: 5 % of the answers empty were passed."""
    fields = {"answer": {"role": "text", "optional": True}, "x": {"role": "value", "shape": [3]}}
    texts = [""] * empty + [f"The answer to question {i} is {i}." for i in range(20)]
    samples = [{"answer": text, "x": np.arange(3.0) + i} for i, text in enumerate(texts)]
    samples += [{"x": np.arange(3.0) - i} for i in range(1, 20)]
    assert [code for code, _, _ in told(fields, samples) if code == "DC705"] == codes


@pytest.mark.parametrize(
    ("empty", "where", "codes"), [(2, 150, ["DC705"]), (1, 150, []), (2, 90, [])]
)
def test_empty_texts_of_one_file_are_no_few_of_many(empty, where, codes):
    """3 % of one file of 45 were below a thousandth of all."""
    texts = [f"The answer to question {i} is {i}." for i in range(3000)]
    texts[:empty] = [""] * empty
    files = ["a" if i < where else f"b{i % 20}" for i in range(3000)]
    pieces = [
        ("", Piece(f"s{i}", {"t": t}, Origin(f)))
        for i, (t, f) in enumerate(zip(texts, files, strict=True))
    ]
    found = scan_pieces(schema_of({"fields": {"t": {"role": "text"}}}), pieces).findings
    assert [f.code for f in found if f.code == "DC705"] == codes


@pytest.mark.parametrize(
    ("turns", "kinds"), [(("SYSTEM", "USER"), ["no-user"]), (("USER", "USER", "SYSTEM"), ["twice"])]
)
def test_speakers_of_dialogues_ask_in_capitals_too(turns, kinds):
    chats = [
        [{"speaker": name, "utterance": f"Turn {i}"} for i, name in enumerate(order)]
        for order in [("USER", "SYSTEM")] * 40 + [turns]
    ]
    found = told({"c": {"role": "chat", "train_on": "SYSTEM"}}, [{"c": one} for one in chats])
    assert [(kind, failed) for code, kind, failed in found if code == "DC706"] == [
        (kind, 1) for kind in kinds
    ]


def marked(text, end, **more):
    frames = [{"slots": [{"slot": "city", "start": 3, "exclusive_end": end}]}]
    return [
        {"speaker": "USER", "utterance": text, "frames": frames} | more,
        {"speaker": "SYSTEM", "utterance": "Yes."},
    ]


@pytest.mark.parametrize(
    ("text", "end", "found"),
    [
        ("to San Jose", 11, False),
        ("to San Jose", 12, True),
        ("to 東京", 9, False),  # bytes in UTF-8
        ("to 東京", 10, True),
        ("to \U0001f600", 5, False),  # units of UTF-16, as JavaScript counts
        ("to San Jose", 12.5, False),  # seconds
        ("to San Jose", None, False),
    ],
)
def test_spans_behind_the_text_of_their_turn_are_named(text, end, found):
    fields = {"c": {"role": "chat", "train_on": "SYSTEM"}}
    chats = [marked("to Oslo", 7), marked("to Rome", 7), marked(text, end)]
    assert told(fields, [{"c": one} for one in chats]) == ([("DC706", "spans", 1)] if found else [])


def test_spans_that_count_from_the_start_of_the_dialogue_are_no_fault():
    fields = {"c": {"role": "chat", "train_on": "SYSTEM"}}
    chats = [marked("to Oslo", 60), marked("to Rome", 70), marked("to Paris", 8)]
    assert told(fields, [{"c": one} for one in chats]) == []
