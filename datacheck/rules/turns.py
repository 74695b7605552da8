"""Who says what in the chats of a block: one pass over all their messages, for the families that measure chats."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from datacheck.sample import Column
from datacheck.tokens import messages_of

Array = np.ndarray[Any, Any]
Chat = list[dict[str, Any]]

_ROLE, _CONTENT = itemgetter("role"), itemgetter("content")


@dataclass(frozen=True, eq=False)
class Turns:
    """The messages of plain chats, one after another: each has a role and a content that are text.

    Shapes:
        counts: int64 (chats) [messages]
        roles: int64 (messages), places in `words`
        wide: int64 (chats): entries of its messages besides role and content

    Args:
        chats: the messages of each chat.
        words: the different roles.
        said: the content of each message.
        bare: a chat is a list of its messages, not an object that holds one.
    """

    chats: list[Chat]
    counts: Array
    words: list[str]
    roles: Array
    said: list[str]
    wide: Array
    bare: bool

    @property
    def starts(self) -> Array:
        """Int64 (chats): the first message of each chat."""
        return np.cumsum(self.counts) - self.counts

    def where(self, *words: str) -> Array:
        """Return bool (messages): whose role is one of these."""
        return np.array([word in words for word in self.words], dtype=bool)[self.roles]

    def first(self, mask: Array) -> Array:
        """Return the first message of each chat at which `mask` is true; of none, the number of all messages.

        Shapes:
            mask: bool (messages)
            returns: int64 (chats)
        """
        found = np.full(len(self.counts), len(self.roles), np.int64)
        places = np.flatnonzero(mask)
        owners = np.searchsorted(np.cumsum(self.counts), places, side="right")
        found[owners[::-1]] = places[::-1]  # the last to be written is the first
        return found


def chats_in(column: Column) -> list[Chat]:
    """Return the messages of each chat of a column, what is no message left out."""
    values = column.objects
    if set(map(type, values)) == {list} and set(map(type, chain.from_iterable(values))) <= {dict}:
        return values
    return [messages_of(value) for value in values]


def turns_of(column: Column) -> Turns | None:
    """Return the messages of a column of chats, None where some are not plain: those are heard one by one.

    Notes:
        Kept with the column, because several families ask.
    """
    if "_turns" not in column.__dict__:
        chats = chats_in(column)
        column.__dict__["_turns"] = _heard(chats, bare=chats is column.objects)
    known: Turns | None = column.__dict__["_turns"]
    return known


def _heard(chats: list[Chat], *, bare: bool) -> Turns | None:
    flat = list(chain.from_iterable(chats))
    try:
        roles, said = list(map(_ROLE, flat)), list(map(_CONTENT, flat))
        numbers = {role: number for number, role in enumerate(dict.fromkeys(roles))}
    except (KeyError, TypeError):
        return None
    if not set(map(type, said)) <= {str} or not set(map(type, numbers)) <= {str}:
        return None
    counts = np.fromiter(map(len, chats), np.int64, len(chats))
    stops = np.cumsum(counts)
    sizes = np.concatenate([[0], np.cumsum(np.fromiter(map(len, flat), np.int64, len(flat)))])
    wide = sizes[stops] - sizes[stops - counts] - 2 * counts
    codes = np.fromiter(map(numbers.__getitem__, roles), np.int64, len(roles))
    return Turns(chats, counts, list(numbers), codes, said, wide, bare)
