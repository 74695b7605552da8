"""The mask of axolotl: the content of each answer, and the end token behind it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from datacheck.masks.base import (
    Array,
    Conversation,
    MaskedChat,
    MaskSettings,
    UnjudgedError,
    aliased,
    ending,
    is_whole,
    kept_tokens,
    openai_messages,
)
from datacheck.tokenization import TemplateCosts, Tokenizer, parsed_json

_ROLES = {"human": "user", "gpt": "assistant"}
_TRAINED = "assistant"
_DUMMY = "[[dummy_message]]"
# A chat is rendered and tokenized up to each answer, twice: 2 seconds for so many letters.
_MOST_LETTERS = 2_000_000
_CHAT_S = 10.0  # processor time
_NEAR = 3  # tokens between the content and its end token


def masked(
    tokenizer: Tokenizer, conversations: Iterable[Conversation], settings: MaskSettings
) -> Iterator[MaskedChat | ValueError]:
    """Yield the tokens of each conversation as the dataset type ``chat_template`` makes them.

    Its defaults hold: ``roles_to_train: [assistant]``, ``train_on_eos: turn``, and the tokenizer's
    end token as ``eot_tokens``.

    Reference:
        axolotl, ``ChatTemplateStrategy``. A content is the part in which the text differs from one
        with another content.
    """
    costs = TemplateCosts()
    for chat in conversations:
        try:
            yield _masked(tokenizer, chat, settings, costs)
        except ValueError as error:
            yield error


def _masked(
    tokenizer: Tokenizer, chat: Conversation, settings: MaskSettings, costs: TemplateCosts
) -> MaskedChat:
    turns = aliased(_turns([*chat.prompt, *chat.messages]))
    tools = parsed_json(chat.tools, "tools") or None
    whole = tokenizer.render(turns, costs=costs, tools=tools)
    began = time.process_time()
    answers = sum(turn.get("role") == _TRAINED for turn in turns)
    if answers * len(whole.text) > _MOST_LETTERS:
        msg = (
            f"axolotl renders a chat twice for each answer, which takes too long here for "
            f"{answers:,} answers in {len(whole.text):,} letters"
        )
        raise UnjudgedError(msg)
    ids, places = tokenizer.placed(whole.text)
    trained = np.zeros(len(ids), bool)
    eos = tokenizer.id_of("eos_token")
    for number, turn in enumerate(turns):
        if turn.get("role") != _TRAINED:
            continue
        if time.process_time() - began > _CHAT_S:
            why = f"took more than {_CHAT_S:g} s"
            raise costs.refusal(why, len(whole.text))
        first, stop = _content(tokenizer, turns, number, tools, costs)
        if first >= 0:
            trained[first:stop] = True
        if (
            stop < 0 and len(ids) and ids[-1] == eos
        ):  # the search begins at the last token, and ends there
            continue
        begin = max(stop, 0)
        ends = begin + np.flatnonzero(ids[begin:] == eos) if eos is not None else ids[:0]
        if len(ends) and ends[0] - stop <= _NEAR:
            trained[ends[0]] = True
    kept = kept_tokens(len(ids), settings.max_length)
    return MaskedChat(
        ids,
        trained,
        kept,
        whole.text,
        first=int(trained.argmax()) if trained.any() else -1,
        closed=is_whole(trained, kept),
        ending=ending(tokenizer, ids, trained),
        eos=tokenizer.special.get("eos_token", ""),
        places=places,
    )


def _turns(messages: list[Any]) -> list[dict[str, Any]]:
    """Return the messages as the template reads them: arguments of calls as objects."""
    turns = openai_messages(messages, _ROLES)
    for turn in turns:
        if isinstance(turn.get("tool_calls"), list):
            turn["tool_calls"] = [_call(call) for call in turn["tool_calls"]]
    return turns


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    arguments = parsed_json(function["arguments"], "the arguments of a call")
    return {**call, "function": {**function, "arguments": arguments}}


def _content(
    tokenizer: Tokenizer, turns: list[dict[str, Any]], number: int, tools: Any, costs: TemplateCosts
) -> tuple[int, int]:
    """Return (first token, last + 1) of the content of a turn, or (-1, -1)."""
    versions = []
    for turn in ({"role": turns[number]["role"], "content": _DUMMY}, turns[number]):
        text = tokenizer.render(
            [*turns[:number], turn],
            costs=costs,
            tools=tools,
            variables={"real_last_index": len(turns) - 1} if len(turns) > 1 else {},
        ).text
        versions.append(tokenizer.placed(text)[0])
    dummy, full = versions
    common = min(len(dummy), len(full))
    ahead = _differ(dummy[:common], full[:common])
    behind = _differ(dummy[len(dummy) - common :][::-1], full[len(full) - common :][::-1])
    if ahead is None or behind is None or len(full) - behind <= ahead:
        return -1, -1
    return ahead, len(full) - behind


def _differ(left: Array, right: Array) -> int | None:
    """Return the first place at which two arrays of one length differ, or None."""
    places = np.flatnonzero(left != right)
    return int(places[0]) if len(places) else None
