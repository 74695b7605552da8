"""Who says what in the chats of a block: one pass over all their messages, for the families that measure chats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from datacheck.messages import Messages, message_bytes
from datacheck.sample import Column
from datacheck.schema.model import Schema
from datacheck.tokens import messages_of

Array = np.ndarray[Any, Any]
Chat = list[dict[str, Any]]

_ROLE, _CONTENT = itemgetter("role"), itemgetter("content")
CALLER = "function_call"  # ShareGPT's name of the turn in which the model calls a tool
SPELLED = 16  # messages that are spelled out
_LETTERS = 24  # of a role
_STEP = np.uint64(0x9E3779B97F4A7C15)  # an odd number: powers of it tell places apart


@dataclass(frozen=True, eq=False)
class Turns:
    """The messages of plain chats, one after another: each has a role and a content that are text.

    Shapes:
        counts: int64 (chats) [messages]
        roles: int64 (messages), places in `words`
        wide: int64 (chats): entries of its messages besides role and content
        sizes: int64 (messages) [bytes of role and content as JSON]

    Args:
        chat: gives the messages of one chat.
        words: the different roles.
        said: the content of each message.
    """

    chat: Callable[[int], Chat]
    counts: Array
    words: list[str]
    roles: Array
    said: Column
    wide: Array
    sizes: Array

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

    def orders(self) -> list[str]:
        """Return what `order_of` says of each chat, having asked once for each order of roles."""
        seen = np.minimum(self.counts, SPELLED + 1)
        place = np.arange(int(seen.sum())) - np.repeat(np.cumsum(seen) - seen, seen)
        roles = self.roles[np.repeat(self.starts, seen) + place]
        numbers = np.where(place < SPELLED, roles + 1, len(self.words) + 1).astype(np.uint64)
        sums = np.concatenate(
            [np.zeros(1, np.uint64), np.cumsum(numbers * np.cumprod(np.full(SPELLED + 1, _STEP))[place])]
        )
        stops = np.cumsum(seen)
        _, first, which = np.unique(sums[stops] - sums[stops - seen], return_index=True, return_inverse=True)
        said = [
            order_of(tuple(self.words[role] for role in roles[stops[i] - seen[i] : stops[i]])) for i in first.tolist()
        ]
        return [said[number] for number in which.tolist()]


@lru_cache(maxsize=65_536)
def order_of(roles: tuple[str, ...]) -> str:
    """Return who speaks, with what comes again at once counted: "system (user assistant)", 3 times; of 16 turns."""
    names = [role.encode("utf-8", "backslashreplace").decode()[:_LETTERS] for role in roles[:SPELLED]]
    said, i = [], 0
    while i < len(names):
        size, times = 1, 1
        for wide in range(1, 5):
            again = 1
            while names[i : i + wide] == names[i + again * wide : i + (again + 1) * wide]:
                again += 1
            if again > 1 and again * wide > size * times:
                size, times = wide, again
        turn = " ".join(names[i : i + size])
        said.append(turn if times == 1 else f"({turn})\u00d7{times}" if size > 1 else f"{turn}\u00d7{times}")
        i += size * times
    return " ".join([*said, "…"] if len(roles) > SPELLED else said)


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
    if isinstance(column, Messages):
        return of_messages(column)
    if "_turns" not in column.__dict__:
        column.__dict__["_turns"] = turns_in(chats_in(column))
    known: Turns | None = column.__dict__["_turns"]
    return known


def of_messages(column: Messages) -> Turns:
    """Return the messages of a column that holds them as such."""
    none = np.zeros(len(column), np.int64)
    return Turns(column.chat, column.counts, column.words, column.roles, column.said, none, column.sizes)


def pairs_of(schema: Schema) -> list[tuple[str, str]]:
    """Return the fields that hold preferred answers, each with that of the rejected ones."""
    return [(name, spec.preferred_over) for name, spec in schema.of_role("chat", "text") if spec.preferred_over]


def is_plain(chat: Any) -> bool:
    """Tell whether a chat is a list of messages that are a role and a text each, and nothing else."""
    return isinstance(chat, list) and all(
        isinstance(message, dict)
        and len(message) == 2
        and isinstance(message.get("role"), str)
        and isinstance(message.get("content"), str)
        for message in chat
    )


def turns_in(chats: list[Chat]) -> Turns | None:
    """Return the messages of chats, None where some are not plain."""
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
    texts = Column.of(said) if said else Column(np.zeros(0, np.uint8), counts[:0], "text")
    return Turns(
        chats.__getitem__, counts, list(numbers), codes, texts, wide, message_bytes(list(numbers), codes, texts)
    )
