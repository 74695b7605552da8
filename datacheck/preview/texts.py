"""Texts, chats and tokens as segments: supervised, masked, template, padding, cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.masks import Conversation, masked_chats
from datacheck.preview.drawings import Array, NotDrawableError, numeric, truncated_text
from datacheck.schema.model import FieldSpec, TokenizerSpec
from datacheck.tokenization import Tokenizer, content_of, messages_of, role_of

LETTERS = 300  # characters shown of a segment
SEGMENTS = 80
# text tokenized for a picture; templates and tokenizers are slow
_TEXT_BYTES = 200_000
_IGNORED = -100
# Kinds of tokens; as one byte each, because a row of tokens may have tens of millions.
_KINDS = ("plain", "supervised", "masked", "padding")
_PLAIN, _SUPERVISED, _MASKED, _PADDING = range(len(_KINDS))


def plain(text: object) -> dict[str, Any]:
    """Return the preview of a text of which it is not known what is trained on.

    Raises:
        NotDrawableError: it is not a text, or empty.
    """
    if not isinstance(text, str):
        msg = f"holds {type(text).__name__}, no text"
        raise NotDrawableError(msg)
    return _text_preview([_segment("plain", text)], f"{len(text):,} characters")


def tokenized(text: object, how: TokenizerSpec, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the preview of a text that is trained on as a whole, up to the model's maximum length.

    Raises:
        NotDrawableError: it is not a text, or empty.
    """
    if not isinstance(text, str) or not text:
        return plain(text)
    part, omitted = truncated_text(text, _TEXT_BYTES)
    ids, places = tokenizer.placed(part)
    kept = np.arange(len(ids)) < (how.max_length or len(ids))
    return _token_preview(part, places, np.ones(len(ids), bool), [], kept, omitted)


def chat(
    value: object,
    spec: FieldSpec,
    how: TokenizerSpec | None,
    tokenizer: Tokenizer | None,
    *,
    prompt: object = None,
    tools: object = None,
) -> dict[str, Any]:
    """Return the preview of a conversation.

    Args:
        value: messages, or a mapping that holds them.
        spec: names the role that is trained on, if there is no tokenizer.
        how: the schema's tokenizer settings, or None.
        tokenizer: with its chat template, or None.
        prompt: the messages that the conversation continues, if it does.
        tools: the tools that the model may call, or None.

    Raises:
        NotDrawableError: it holds no message.
    """
    messages = messages_of(value)
    if not messages:
        msg = f"holds {type(value).__name__} without a message"
        raise NotDrawableError(msg)
    if tokenizer is not None and how is not None:
        conversation = Conversation(messages, messages_of(prompt), tools)
        try:
            return _chat_preview(conversation, how, tokenizer)
        except (ValueError, UsageError) as error:
            preview = _untokenized_chat(messages, spec)
            return preview | {
                "about": f"{preview['about']} The reason: {truncated_text(str(error), 200)[0]}"
            }
    return _untokenized_chat(messages, spec)


def _untokenized_chat(messages: Sequence[Mapping[str, Any]], spec: FieldSpec) -> dict[str, Any]:
    segments = []
    for message in messages:
        role = role_of(message)
        content = content_of(message)
        kind = (
            "plain"
            if spec.train_on is None
            else "supervised"
            if role == spec.train_on
            else "masked"
        )
        text = content if isinstance(content, str) else repr(content)
        segments.append(_segment(kind, text, truncated_text(role, 40)[0]))
    return _text_preview(
        segments,
        f"{len(messages)} {'message' if len(messages) == 1 else 'messages'}, not tokenized",
    )


def _chat_preview(
    conversation: Conversation, how: TokenizerSpec, tokenizer: Tokenizer
) -> dict[str, Any]:
    messages = [*conversation.prompt, *conversation.messages]
    letters = sum(len(str(content_of(message))) for message in messages)
    if letters > _TEXT_BYTES:
        msg = (
            f"it has {letters:,} characters, more than the {_TEXT_BYTES:,} that are tokenized here"
        )
        raise ValueError(msg)
    (made,) = masked_chats(tokenizer, [conversation], how.mask_settings())
    if isinstance(made, ValueError):
        raise made
    places = made.places
    if places is None:
        _, places = tokenizer.placed(made.text, around=True)
    contents = list(_content_spans(made.text, messages))
    return _token_preview(made.text, places, made.trained & made.kept, contents, made.kept, 0)


def _content_spans(text: str, messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Yield the spans of the messages' contents in a text; the rest comes from the template."""
    position = 0
    for message in messages:
        content = message.get("content")
        content_text = content.strip() if isinstance(content, str) else ""
        start = text.find(content_text, position) if content_text else -1
        if start >= 0:
            yield start, start + len(content_text)
            position = start + len(content_text)


def _token_preview(
    text: str,
    places: Array,
    trained: Array,
    contents: list[tuple[int, int]],
    kept: Array,
    omitted: int,
) -> dict[str, Any]:
    """Return the preview of a tokenized text.

    Shapes:
        places: int64 (tokens, 2): [first character, last + 1]
        trained, kept: bool (tokens)
    """
    inside = np.ones(len(places), bool)
    if contents:
        edges = np.array(contents).ravel()
        inside = np.searchsorted(edges, places[:, 0], side="right") % 2 == 1
    kinds = np.where(trained, "supervised", np.where(inside, "masked", "template"))
    kinds[~kept] = "cut"
    segments = []
    for first, stop in _runs(kinds):
        begin = int(places[first, 0])
        end = int(places[stop, 0]) if stop < len(places) else len(text)
        segments.append(_segment(str(kinds[first]), text[begin:end], tokens=stop - first))
    count = int(np.count_nonzero(trained & kept))
    summary = f"{len(places):,} tokens, {count:,} of them trained on"
    if not kept.all():
        summary += f"; {np.count_nonzero(~kept):,} are cut off to keep {np.count_nonzero(kept):,}"
    if omitted:
        summary += f"; only the first {_TEXT_BYTES:,} characters were tokenized"
    return _text_preview(segments, summary)


def tokens(
    ids: object,
    labels: object = None,
    *,
    ignored: Sequence[int] = (),
    shift: int = 0,
    pad: int | None = None,
    decode: Callable[[Array], str] | None = None,
) -> dict[str, Any]:
    """Return the preview of token ids.

    Shapes:
        ids, labels: int (tokens)

    Args:
        labels: None if there are none: it is not known what is trained on.
        ignored: labels that a loss leaves out; empty: -100.
        shift: 1 if labels[i] is the token after ids[i].
        pad: the padding token; None if unknown.
        decode: ids to text; None shows the numbers.

    Raises:
        NotDrawableError: it is not a row of integers, or empty.
    """
    values = numeric(ids)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        msg = (
            f"has shape {list(values.shape)} and type {values.dtype}; tokens are [L] whole numbers"
        )
        raise NotDrawableError(msg)
    kinds = np.full(len(values), _PLAIN, np.uint8)
    summary = f"{len(values):,} tokens"
    if (
        isinstance(labels, np.ndarray)
        and labels.shape == values.shape
        and labels.dtype.kind in "iu"
    ):
        supervised = ~np.isin(labels, list(ignored) or [_IGNORED])
        if shift:
            supervised = np.concatenate([[False], supervised[:-1]])
        kinds = np.where(supervised, np.uint8(_SUPERVISED), np.uint8(_MASKED))
        summary += f", {int(supervised.sum()):,} of them trained on"
    if pad is not None and len(values):
        padding_count = (
            len(values) if (values == pad).all() else int((values[::-1] != pad).argmax())
        )
        # padding that is trained on stays "supervised", as it is the fault to show
        trained = kinds[len(values) - padding_count :] == _SUPERVISED
        kinds[len(values) - padding_count :][~trained] = _PADDING
        summary += f", {padding_count:,} padding" if padding_count else ""
        summary += f" ({int(trained.sum()):,} of it trained on)" if trained.any() else ""
    show = decode or (lambda part: " ".join(map(str, part.tolist())))
    # Not `_runs`: a list of all runs would take far more memory than the tokens.
    runs, count = _first_runs(kinds, SEGMENTS)
    segments = []
    for first, stop in runs:
        end = min(stop, first + 4 * LETTERS)
        segment = _segment(_KINDS[kinds[first]], show(values[first:end]), tokens=stop - first)
        # count at least one character for each token that is not decoded
        segments.append(segment | {"left_out": segment["left_out"] + stop - end})
    return _text_preview(segments, summary, count)


def decoded(tokenizer: Tokenizer, ids: Array) -> str:
    """Return the text of ids; ids outside the vocabulary are shown as numbers."""
    in_vocabulary = (ids >= 0) & (ids < tokenizer.size)
    return "".join(
        tokenizer.decode(ids[a:b])
        if in_vocabulary[a]
        else "".join(f"[no token {number}]" for number in ids[a:b].tolist())
        for a, b in _runs(in_vocabulary)
    )


def _runs(kinds: Array) -> list[tuple[int, int]]:
    """Return (first, stop) of each run of equal kinds."""
    edges = [0, *(np.flatnonzero(kinds[1:] != kinds[:-1]) + 1).tolist(), len(kinds)]
    return [(a, b) for a, b in pairwise(edges) if a < b]


def _first_runs(kinds: Array, most: int) -> tuple[list[tuple[int, int]], int]:
    """Return (first, stop) of the first `most` runs of equal kinds, and the number of all runs."""
    changes = kinds[1:] != kinds[:-1]
    runs: list[tuple[int, int]] = []
    first = 0
    while first < len(kinds) and len(runs) < most:
        ahead = changes[first:]
        stop = first + int(ahead.argmax()) + 1 if ahead.any() else len(kinds)
        runs.append((first, stop))
        first = stop
    return runs, int(np.count_nonzero(changes)) + 1


def _segment(kind: str, text: str, who: str = "", tokens: int | None = None) -> dict[str, Any]:
    shown_text, omitted = truncated_text(text, LETTERS)
    return {"is": kind, "text": shown_text, "left_out": omitted, "who": who, "tokens": tokens}


def _text_preview(
    segments: list[dict[str, Any]], summary: str, count: int | None = None
) -> dict[str, Any]:
    if not any(segment["text"] for segment in segments):
        msg = "is empty"
        raise NotDrawableError(msg)
    more = max(0, (count or len(segments)) - SEGMENTS)
    return {
        "kind": "text",
        "segments": segments[:SEGMENTS],
        "more": more,
        "about": f"Text: {summary}" + (f"; {more:,} more segments are not shown." if more else "."),
    }
