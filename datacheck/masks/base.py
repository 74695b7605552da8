"""Conversations with the tokens that are trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from datacheck.tokenization import Tokenizer, content_of, role_of

Array = np.ndarray[Any, Any]
Message = Mapping[str, Any]
Trainer = Literal["minimind", "trl", "axolotl", "llamafactory"]
ANSWERERS = frozenset({"assistant", "gpt", "model"})
_SPEAKERS = ANSWERERS | {"system", "user", "human"}
# Names of the reasoning of a message; the last is what templates of gpt-oss read.
_REASONING = ("reasoning_content", "reasoning", "thinking")


class UnjudgedError(ValueError):
    """The mask of a conversation is not known here; the trainer itself may make one."""


@dataclass(frozen=True)
class Conversation:
    """The messages of a chat, and the fields of its sample that decide its mask.

    Args:
        messages: the chat without `prompt`.
        prompt: the messages that the chat continues, of a field of their own.
        tools: the tools that the model may call, as the field holds them, or None.
    """

    messages: Sequence[Message]
    prompt: Sequence[Message] = ()
    tools: Any = None


@dataclass(frozen=True)
class MaskSettings:
    """How a trainer makes the mask.

    Args:
        trainer: minimind, trl, axolotl or llamafactory.
        start, end: minimind: the texts around a trained part.
        max_length: most tokens of a sample, or None.
        assistant_only_loss: TRL: the setting of this name.
        template: LLaMA-Factory: the name of its template; None reads the tokenizer's.
    """

    trainer: Trainer = "minimind"
    start: str = "<|im_start|>assistant\n"
    end: str = "<|im_end|>\n"
    max_length: int | None = None
    assistant_only_loss: bool = False
    template: str | None = None


@dataclass(frozen=True, eq=False)
class MaskedChat:
    """The tokens of a conversation, before truncation.

    Shapes:
        ids: int64 (tokens)
        trained: bool (tokens), trained on if the token is kept
        kept: bool (tokens), False where truncation removes the token
        places: int64 (tokens, 2) [first character, last + 1] in `text`; None where not needed

    Args:
        text: the text that was tokenized.
        first: the token at which the first answer begins (TRL and axolotl: the first trained one),
            -1 if none is found.
        closed: whether truncation cuts no trained part in two.
        ending: the special token that is trained on at the end of the answers; "" where an answer
            ends in none.
        eos: the end token of the tokenizer as the trainer sets it, "" if it has none.
        foreign: characters of other speakers that are trained on.
        prompt_mismatch: last tokens of the prompt alone that the whole conversation does not have.
    """

    ids: Array
    trained: Array
    kept: Array
    text: str
    first: int
    closed: bool
    ending: str
    eos: str
    places: Array | None = None
    foreign: int = 0
    prompt_mismatch: int = 0


def parts(trained: Array) -> Array:
    """Return the trained parts of a mask: int64 (parts, 2) [first token, last + 1]."""
    edges = np.diff(np.concatenate([[0], trained.astype(np.int8), [0]]))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], axis=1)


def ending(tokenizer: Tokenizer, ids: Array, trained: Array) -> str:
    """Return the added token that ends the trained parts; "" where one ends in none.

    White space after the token is passed over. If the parts end in several tokens, the last counts.

    Reference:
        trl, ``is_chat_template_stop_token_trained``.
    """
    found = ""
    for first, stop in parts(trained).tolist():
        last = stop - 1
        while last >= first and ids[last] not in tokenizer.added:
            if tokenizer.decode(ids[last : last + 1]).strip():
                return ""
            last -= 1
        if last < first:
            return ""
        found = tokenizer.decode(ids[last : last + 1])
    return found


def is_whole(trained: Array, kept: Array) -> bool:
    """Return whether no trained part loses tokens while others of it are kept."""
    return all(
        kept[first:stop].all() or not kept[first:stop].any() for first, stop in parts(trained)
    )


def openai_messages(messages: Sequence[Message], roles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return messages with ``role`` and ``content``, the roles renamed, and without null entries.

    Notes:
        Accepts the other names of the speaker and the text (see `MESSAGE_NAMES`).
    """
    names = {"from", "value", "speaker", "utterance"}
    made = []
    for message in messages:
        role = role_of(message)
        new = {
            "role": roles.get(role, role),
            "content": content_of(message),
            **{key: value for key, value in message.items() if key not in names},
        }
        new["role"] = roles.get(role, role)
        made.append({key: value for key, value in new.items() if value is not None})
    return made


def aliased(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages whose reasoning has the names that templates read, as transformers gives."""
    made = []
    for message in messages:
        reasoning = next((message[name] for name in _REASONING if name in message), None)
        made.append(
            message
            if reasoning is None
            else {"thinking": reasoning, **message, "reasoning_content": reasoning}
        )
    return made


def kept_tokens(count: int, max_length: int | None) -> Array:
    """Return bool (count): the first `max_length` tokens."""
    return np.arange(count) < (count if max_length is None else max_length)


def spans_of(text: str, messages: Sequence[Message]) -> list[tuple[str, int, int]]:
    """Return (role, first character, last + 1) of each message's content in a text.

    Returns:
        [] if a content is missing, or the contents stand in another order: it is not known then
        which message a part of the text belongs to.
    """
    found, position = [], 0
    for message in messages:
        content = content_of(message)
        content = content.strip() if isinstance(content, str) else ""
        first = text.find(content, position)
        if first < 0:
            return []
        position = first + len(content)
        found.append((role_of(message), first, position))
    return found


def dropped_role(text: str, chat: Conversation) -> str:
    """Return the role of the first message whose content is not in the text, "" if all are.

    Notes:
        Messages of tools are not looked for: templates write them in other forms. Nor is the
        thought before an answer, which many templates leave out of earlier turns.
    """
    for message in [*chat.prompt, *chat.messages]:
        role, content = role_of(message), content_of(message)
        if role in _SPEAKERS and isinstance(content, str):
            content = content.rpartition("</think>")[2].strip()
            if content and content not in text:
                return role
    return ""
