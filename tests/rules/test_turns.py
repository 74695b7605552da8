"""Chats are measured together where they are plain, one by one where one of them is not: the rows are the same."""

from __future__ import annotations

import re

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.sample import Block, Column, Origin
from datacheck.rules.chat_turns import SPELLED, order_of, turns_of
from datacheck.rules.families.conversations import speakers
from datacheck.rules.families.tokens import turns
from datacheck.rules.families.writing import MARKERS, markers, spelling
from datacheck.schema.load import parse_schema

_SAID = st.sampled_from(
    [
        "",
        " ",
        "None",
        "nan",
        "Hello there.",
        " leading",
        "北方的河流",
        "x" * 80,
        '"\\\n',
        "},{",
        'a},{"b',
        "}",
    ]
)
_ROLES = st.sampled_from(["user", "assistant", "system", "tool", "human", "usr", ""])
_MORE = st.sampled_from(
    [{}, {}, {"tools": "[1]"}, {"tool_calls": "{broken"}, {"reasoning_content": "so"}]
)
_MESSAGE = st.builds(
    lambda role, said, more: {"role": role, "content": said} | more, _ROLES, _SAID, _MORE
)
_CHAT = st.lists(_MESSAGE, max_size=6)
_ODD = [{"role": "user", "content": None}]  # no text: chats beside it are heard one by one


def _measured(chats: list) -> dict[str, list]:
    text = "datacheck: 1\nname: t\nsamples: {files: '*.jsonl', each: line}\nfields:\n"
    schema = parse_schema(text + "  c: {role: chat, speakers: [system, user, assistant, tool]}\n")
    column = Column.of(chats)
    keys = [f"k{i}" for i in range(len(chats))]
    block = Block(keys, {"c": column}, [Origin("f")] * len(chats))
    found = dict(speakers.function(column, schema.fields["c"])) | dict(
        turns.function(block, schema)
    )
    return {name: list(np.asarray(values, dtype=object)) for name, values in found.items()}


@given(st.lists(_CHAT, min_size=1, max_size=5))
def test_chats_together_are_what_they_are_one_by_one(chats: list) -> None:
    assert turns_of(Column.of(chats)) is not None
    assert turns_of(Column.of([*chats, _ODD])) is None
    together, apart = _measured(chats), _measured([*chats, _ODD])
    assert together == {name: values[:-1] for name, values in apart.items()}


@given(st.lists(_MESSAGE, min_size=1, max_size=6))
def test_the_prompt_is_what_stands_before_the_first_answer(chat: list) -> None:
    answers = [i for i, message in enumerate(chat) if message["role"] == "assistant"]
    found = _measured([chat])
    assert found["c:answers"] == [len(answers)]
    if answers and chat[answers[0]]["content"][:1].strip():
        start, around = len("<|im_start|>assistant\n"), len("<|im_start|>assistant\n<|im_end|>\n")
        before = sum(len(orjson.dumps(message)) + around for message in chat[: answers[0]])
        assert found["c:prompt_bytes"] == [start + before]


def test_of_no_messages_nothing_is_heard() -> None:
    found = _measured([[], []])
    assert found["order"] == [0, 0]
    assert found["c:answers"] == [0, 0]
    assert found["strange"] == ["", ""]


_TEXTS = st.lists(
    st.text(
        st.sampled_from("a<|im_end>[INST]\x00\x08\t\n\x0b\x0c\r\x1f\x7f\x85\ufffd\u3000北方"),
        max_size=40,
    )
)


@given(_TEXTS.filter(bool))
def test_control_characters_and_replaced_ones_are_counted_in_each_text(texts: list[str]) -> None:
    column = Column.of(texts)
    found = spelling.function(column, None)["broken"]
    odd = {chr(i) for i in [*range(32), 127]} - set("\t\n\f\r")
    assert found[:, 2].tolist() == [sum(sign in odd for sign in text) for text in texts]
    assert found[:, 0].tolist() == [text.count("\ufffd") for text in texts]


@given(_TEXTS.filter(bool))
def test_markers_are_found_in_each_text(texts: list[str]) -> None:
    texts = [f"{text}<|im_end|>{'<think>' * (len(text) % 3)}" for text in texts]
    found = markers.function(Column.of(texts), None)["markers"]
    held = [[marker in text for marker in MARKERS] for text in texts]
    assert found.tolist() == [sum(2**i for i, there in enumerate(one) if there) for one in held]


def _expanded(said: str) -> list[str]:
    """The roles that an order of speakers stands for."""
    parts = re.findall(r"\(([a-z ]+)\)\u00d7(\d+)|([a-z]+)(?:\u00d7(\d+))?", said)
    return [
        role
        for many, times, one, more in parts
        for role in (many or one).split() * int(times or more or 1)
    ]


@given(st.lists(st.sampled_from(["user", "tool", "system"]), max_size=24))
def test_an_order_of_speakers_is_that_of_the_first_turns(roles: list[str]) -> None:
    said = order_of(tuple(roles))
    assert _expanded(said.removesuffix(" …")) == roles[:SPELLED]
    assert said.endswith(" …") == (len(roles) > SPELLED)


def test_turns_that_come_again_are_counted() -> None:
    assert order_of(("system", *("user", "assistant") * 3)) == "system (user assistant)\u00d73"
    assert order_of(("user",) * 4) == "user\u00d74"
    assert order_of(()) == ""
    order_of(("\ud800",)).encode()
    assert len(order_of(("x" * 999,) * 2)) < 40


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=20), min_size=1, max_size=8))
def test_orders_of_many_chats_are_those_of_each(chats: list[list[str]]) -> None:
    turns = turns_of(
        Column.of([[{"role": role, "content": "x"} for role in roles] for roles in chats])
    )
    assert turns is not None
    assert turns.orders() == [order_of(tuple(roles)) for roles in chats]
