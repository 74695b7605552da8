"""Chats as columns: each message is a role and a text; Python objects are created on access."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import orjson

from datacheck.model.sample import Column

Array = np.ndarray[Any, Any]

_AROUND = len('{"content":"","role":""}')
# Characters that JSON writes in two bytes; other control characters take six (\u0000).
_SHORT = np.frombuffer(b'"\\\b\t\n\f\r', np.uint8)


class Messages(Column):
    """A JSON column of chats; `values`, their JSON text, is written on first access.

    Shapes:
        counts: int64 (chats) [messages]
        roles: int64 (messages), indices into `words`
        sizes: int64 (messages) [bytes of its JSON]
        lengths: int64 (chats) [bytes of its JSON]

    Args:
        words: the distinct roles: letters, digits, ``_`` and ``-``.
        said: the text of each message.
        plain: no text holds a character that JSON escapes.
    """

    counts: Array
    words: list[str]
    roles: Array
    said: Column
    sizes: Array

    def __init__(
        self,
        counts: Array,
        words: Sequence[str],
        roles: Array,
        said: Column,
        *,
        plain: bool = False,
    ) -> None:
        sizes = message_bytes(words, roles, said, plain=plain)
        self.__dict__.update(counts=counts, words=list(words), roles=roles, said=said, sizes=sizes)
        self.__dict__.update(kind="json", peeked=False)
        total = np.concatenate([[0], np.cumsum(sizes)])
        self.__dict__["lengths"] = (
            total[self._stops] - total[self._stops - counts] + 2 + np.maximum(counts - 1, 0)
        )

    @cached_property
    def _stops(self) -> Array:
        return np.cumsum(self.counts)

    @cached_property
    def objects(self) -> list[Any]:
        """The chats as JSON values."""
        return [self.chat(place) for place in range(len(self))]

    def chat(self, place: int) -> list[dict[str, Any]]:
        """Return one chat as JSON values."""
        stop = int(self._stops[place])
        messages = range(stop - int(self.counts[place]), stop)
        return [
            {"role": self.words[self.roles[i]], "content": text_at(self.said, i)} for i in messages
        ]

    def __getattr__(self, name: str) -> Any:
        if name != "values":
            raise AttributeError(name)
        written = bytearray()
        # Serialize chat by chat: parsed chats would take 4 kB each, however short.
        for chat in self.objects:
            written += orjson.dumps(chat, option=orjson.OPT_SORT_KEYS)
        values = self.__dict__["values"] = np.frombuffer(bytes(written), np.uint8)
        return values


def joined_bytes(column: Column) -> bytes:
    """Return the bytes of all texts of a column; cached, because several measurements use them."""
    if "_data" not in column.__dict__:
        column.__dict__["_data"] = column.values.tobytes()
    data: bytes = column.__dict__["_data"]
    return data


def text_bytes(column: Column) -> list[bytes]:
    """Return the bytes of each text of a column."""
    array = column.__dict__.get("_array")
    if array is not None:
        cached: list[bytes] = array.to_numpy(zero_copy_only=False).tolist()
        return cached
    data = joined_bytes(column)
    stops = column.starts + (0 if column.lengths is None else column.lengths)
    return [
        data[begin:stop] for begin, stop in zip(column.starts.tolist(), stops.tolist(), strict=True)
    ]


def column_of(array: Any) -> Column:
    """Return the column of an Arrow array of text or binary.

    Keeps the array, from which `text_bytes` takes the texts in half the time.
    """
    begins, octets = strings_of(array)
    column = Column(octets[begins[0] : begins[-1]], np.diff(begins), "text")
    column.__dict__["_array"] = array.view("binary")
    return column


def strings_of(array: Any) -> tuple[Array, Array]:
    """Return the offsets of strings, int64 (strings + 1), and their buffer, uint8 (bytes)."""
    _, offsets, data = array.buffers()
    begins = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(
        np.int64
    )
    return begins, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def text_at(column: Column, place: int) -> str:
    """Return one text of a column without decoding the others."""
    cached: list[str] | None = column.__dict__.get("objects")
    return (
        column[place].tobytes().decode("utf-8", "surrogatepass")
        if cached is None
        else cached[place]
    )


def message_bytes(
    words: Sequence[str], roles: Array, said: Column, *, plain: bool = False
) -> Array:
    """Return the size of each message as JSON: int64 (messages) [bytes].

    Args:
        words, roles, said, plain: as in `Messages`; here `words` may hold any text.
    """
    assert said.lengths is not None
    names = np.array([len(orjson.dumps(word)) - 2 for word in words] or [0], np.int64)
    sizes: Array = said.lengths + names[roles] + _AROUND
    if plain:
        return sizes
    octets = said.values
    escaped_places = np.flatnonzero(
        (octets < ord(" ")) | (octets == ord('"')) | (octets == ord("\\"))
    )
    owners = np.searchsorted(np.cumsum(said.lengths), escaped_places, side="right")
    extra_bytes = np.where(np.isin(octets[escaped_places], _SHORT), 1, 5)
    escaped = np.bincount(owners, extra_bytes, len(roles)).astype(np.int64)
    return sizes + escaped
