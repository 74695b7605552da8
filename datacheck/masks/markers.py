"""The mask of minimind: the tokens between two markers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from datacheck.masks.base import Array, Conversation, MaskedChat, MaskSettings, ending, kept_tokens
from datacheck.tokenization import Tokenizer

# Characters that are tokenized at once; each takes about 100 bytes during that.
_AT_ONCE = 1 << 20


def masked(
    tokenizer: Tokenizer, conversations: Iterable[Conversation], settings: MaskSettings
) -> Iterator[MaskedChat | ValueError]:
    """Yield the tokens of each conversation; those between the markers are trained on.

    Reference:
        minimind, ``SFTDataset.generate_labels``. The tokenizer adds its own tokens around the text.
    """
    start, end = tokenizer.encode([settings.start, settings.end], around=False)
    last = ending(tokenizer, end, np.ones(len(end), bool))
    waiting: list[str | ValueError] = []
    letters = 0

    def done() -> Iterator[MaskedChat | ValueError]:
        ids = tokenizer.encode([text if isinstance(text, str) else "" for text in waiting])
        for text, tokens in zip(waiting, ids, strict=True):
            yield (
                text
                if isinstance(text, ValueError)
                else MaskedChat(
                    tokens,
                    **between(tokens, start, end, settings.max_length),
                    text=text,
                    ending=last,
                    eos=tokenizer.special.get("eos_token", ""),
                )
            )

    for text in tokenizer.chats([*chat.prompt, *chat.messages] for chat in conversations):
        waiting.append(text)
        letters += len(text) if isinstance(text, str) else 0
        if letters > _AT_ONCE:
            yield from done()
            waiting, letters = [], 0
    yield from done()


def between(ids: Array, start: Array, end: Array, most: int | None) -> dict[str, Any]:
    """Return `trained`, `kept`, `first` and `closed` of a `MaskedChat` of these tokens."""
    trained = np.zeros(len(ids), bool)
    for first, stop in spans(ids, start, end):
        trained[first:stop] = True
    begins = places(ids, start)
    answers = list(spans(ids[:most], start, end))
    last = answers[-1] if answers else (0, 0)
    ends = last[1] - last[0] >= len(end) and bool((ids[last[1] - len(end) : last[1]] == end).all())
    return {
        "trained": trained,
        "kept": kept_tokens(len(ids), most),
        "first": int(begins[0]) + len(start) if len(begins) else -1,
        "closed": ends or not answers,
    }


def spans(ids: Array, start: Array, end: Array) -> Iterator[tuple[int, int]]:
    """Yield (first, stop) of each trained part.

    A part starts after a start marker and includes the next end marker.

    Shapes:
        ids: int (tokens), without padding
        start, end: int (tokens of the marker)

    Notes:
        As minimind's ``generate_labels``: an answer that was cut off is trained on to its last
        token.
    """
    ends = places(ids, end)
    stop = 0
    for begin in places(ids, start).tolist():
        if begin < stop:
            continue
        first = begin + len(start)
        place = int(np.searchsorted(ends, first))
        stop = int(ends[place]) + len(end) if place < len(ends) else len(ids)
        yield first, stop


def places(ids: Array, marker: Array) -> Array:
    """Return the positions where `marker` begins in `ids`: int64, ascending."""
    if not len(marker) or len(ids) < len(marker):
        return np.zeros(0, np.int64)
    hits: Array = np.ones(len(ids) - len(marker) + 1, bool)
    for offset, token in enumerate(marker.tolist()):
        hits &= ids[offset : offset + len(hits)] == token
    return np.flatnonzero(hits)
