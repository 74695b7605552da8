"""The mask of TRL: the parts that the template marks as generated, or the completion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from datacheck.masks.base import (
    ANSWERERS,
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
    spans_of,
)
from datacheck.tokenization import Rendered, TemplateCosts, Tokenizer, parsed_json

NO_MARKS = (
    "the chat template has no {% generation %} parts. TRL replaces it by a training template for "
    "the model families that it knows, and stops with an error for others; put the training "
    "template beside the tokenizer as chat_template.jinja"
)


def masked(
    tokenizer: Tokenizer, conversations: Iterable[Conversation], settings: MaskSettings
) -> Iterator[MaskedChat | ValueError]:
    """Yield the tokens of each conversation as ``SFTTrainer`` makes them.

    With `assistant_only_loss`, the generated parts of the template are trained on. Of a chat with a
    prompt, the tokens are from the first on that differs from the prompt followed by the start of
    an answer. Else every token is.

    Reference:
        trl 1.16, ``SFTTrainer._prepare_dataset``; transformers, ``apply_chat_template`` with
        ``return_assistant_tokens_mask``.
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
    prompt, answers = (
        aliased(openai_messages(messages, {})) for messages in (chat.prompt, chat.messages)
    )
    tools = parsed_json(chat.tools, "tools") or None
    whole = tokenizer.render([*prompt, *answers], costs=costs, tools=tools)
    ids, places = tokenizer.placed(whole.text)
    trained = np.ones(len(ids), bool)
    mismatch = 0
    if settings.assistant_only_loss:
        if not tokenizer.marks_answers:
            raise UnjudgedError(NO_MARKS)
        trained &= _generated(whole, places)
    if prompt:
        start = tokenizer.render(prompt, costs=costs, tools=tools, generation_prompt=True)
        before, _ = tokenizer.placed(start.text)
        both = min(len(before), len(ids))
        common = _first(ids[:both] != before[:both])
        trained &= np.arange(len(ids)) >= common
        mismatch = len(before) - common
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
        foreign=_foreign(whole.text, [*prompt, *answers], places, trained),
        prompt_mismatch=mismatch,
    )


def _first(mask: Array) -> int:
    """Return the first place that is true; the length if there is none."""
    return int(mask.argmax()) if mask.any() else len(mask)


def _generated(whole: Rendered, places: Array) -> Array:
    """Return bool (tokens): inside a generated part.

    Notes:
        transformers trains on the tokens from that of the part's first character to that of its
        last one. Of several tokens for one character, the first counts, so the last of them may be
        left out.
    """
    mask = np.zeros(len(places), bool)
    for begin, end in whole.generated:
        first, last = _token_at(places, begin), _token_at(places, end - 1)
        if first is None:
            break
        mask[first : last + 1 if last else len(mask)] = True
    return mask


def _token_at(places: Array, character: int) -> int | None:
    """Return the first token that covers a character, or None."""
    token = int(np.searchsorted(places[:, 1], character, side="right"))
    return token if token < len(places) and places[token, 0] <= character else None


def _foreign(text: str, messages: list[dict[str, Any]], places: Array, trained: Array) -> int:
    """Return the characters of other speakers' messages that are trained on (see `spans_of`)."""
    count = 0
    for role, first, stop in spans_of(text, messages):
        if role not in ANSWERERS:
            inside = trained & (places[:, 0] < stop) & (places[:, 1] > first)
            count += int(
                (np.minimum(places[inside, 1], stop) - np.maximum(places[inside, 0], first)).sum()
            )
    return count
