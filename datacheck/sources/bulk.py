"""JSON lines of nothing but declared texts and chats, parsed into columns: no Python object is made of any line.

Lines as a program writes them are cut at their quotes. Of others, Arrow's parser is told what a line holds and refuses
everything else, so that what it returns is what `orjson` would have; lines that it refuses, and those beside them, are
read one by one.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from datacheck.messages import Messages, column_of, strings_of
from datacheck.sample import Column
from datacheck.sources.fields import FieldMap
from datacheck.sources.quoted import Strings, chat_strings, eights, text_strings

Array = np.ndarray[Any, Any]

_MOST_BYTES = 16 << 20  # one of more lines may be too long
_TRIES = 8  # refused pieces of a file that is probably of another kind
_ROLES = 16  # different ones, of as many bytes
_ROLE = re.compile(r"[A-Za-z0-9_-]+")


class Bulk:
    """A parser of lines that hold the fields of a schema and nothing else.

    Args:
        fields: which key is which field.
    """

    def __init__(self, fields: FieldMap) -> None:
        own = {place.at: place for place in fields.own}
        known = all("/" not in at and place.spec.role in {"text", "chat"} for at, place in own.items())
        alone = len(own) == len(fields.own)  # two fields may have one key
        fits = own and known and alone and not fields.everything and not fields.columns and not fields.noted
        self._names = {at: (place.name, place.spec.role == "chat") for at, place in own.items()} if fits else {}
        self._chats = [at for at, (_, chat) in self._names.items() if chat]
        self._tries = _TRIES if fits else 0
        self._cuts = _TRIES if fits and (not self._chats or len(self._names) == 1) else 0

    def columns(self, data: bytes, count: int) -> dict[str, Column] | None:
        """Return the columns of `count` whole lines by field, None where these must be read one by one."""
        if not self._names or len(data) > _MOST_BYTES:
            return None
        found = self._at_quotes(data, count) if self._cuts else None
        if found is None and self._tries:
            found = self._columns(data, count) if _objects(data, count) else None
            self._tries -= found is None
        return found

    def _at_quotes(self, data: bytes, count: int) -> dict[str, Column] | None:
        columns: dict[str, Column] | None = None
        if not self._chats:
            texts = text_strings(data, count, list(self._names))
            if texts is not None:
                columns = {self._names[at][0]: column_of(strings.array()) for at, strings in texts.items()}
        elif (chats := chat_strings(data, count, self._chats[0])) is not None:
            counts, roles, contents = chats
            words = _words(roles)
            if words is not None:
                said = column_of(contents.array())
                name, plain = self._names[self._chats[0]][0], not len(contents.gone)
                columns = {name: Messages(counts, *words, said, plain=plain)}
        if columns is None:
            self._cuts -= 1
        return columns

    def _columns(self, data: bytes, count: int) -> dict[str, Column] | None:
        table = _parsed(data, self._names)
        if table is None or table.num_rows != count or any(column.num_chunks != 1 for column in table.columns):
            return None
        columns: dict[str, Column] = {}
        for at, (name, chat) in self._names.items():
            array = table[at].chunk(0)
            column = None if array.null_count else _chats(array) if chat else column_of(array)
            if column is None:
                return None
            columns[name] = column
        return columns


def _objects(data: bytes, count: int) -> bool:
    """Tell whether each line begins and ends as an object does.

    Notes:
        Between ``}`` at the end of a line and ``{`` at the begin of the next no object can go on: JSON has a comma
        there. So as many objects as lines are one on each line.
    """
    if b"\r" in data:  # which a line may end with, and not hold
        return False
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    if not len(ends) or ends[-1] != len(octets) - 1:
        ends = np.append(ends, len(octets))
    begins = np.append(0, ends[:-1] + 1)
    if len(ends) != count or (ends == begins).any():
        return False
    return bool((octets[begins] == ord("{")).all() and (octets[ends - 1] == ord("}")).all())


def _parsed(data: bytes, names: dict[str, tuple[str, bool]]) -> Any:
    import pyarrow as pa  # noqa: PLC0415  0.1 s that only large files should pay
    import pyarrow.json as pj  # noqa: PLC0415

    chat = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    schema = pa.schema([(at, chat if is_chat else pa.string()) for at, (_, is_chat) in names.items()])
    how = pj.ParseOptions(explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error")
    all_at_once = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    try:
        table = pj.read_json(pa.BufferReader(data), read_options=all_at_once, parse_options=how)
        table.validate(full=True)  # the parser takes bytes that are no UTF-8
    except pa.ArrowException:
        return None
    return table


def _chats(array: Any) -> Column | None:
    begins = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    messages = array.values
    role, content = messages.field(0), messages.field(1)
    whole = not (messages.null_count or role.null_count or content.null_count or messages.offset)
    if not whole or begins[0] or begins[-1] != len(messages):
        return None
    places, octets = strings_of(role)
    padded = np.concatenate([octets, np.zeros(_ROLES, np.uint8)])
    roles = _words(Strings(padded, eights(padded), places[:-1], places[1:], places[:0]))
    return None if roles is None else Messages(np.diff(begins).astype(np.int64), *roles, column_of(content))


def _words(roles: Strings) -> tuple[list[str], Array] | None:
    """Return the different strings, and which of them each one is; None where they are many, long or strange."""
    lengths = roles.ends - roles.begins
    if lengths.max(initial=0) > _ROLES:
        return None
    first, second = roles.eight_bytes(0), roles.eight_bytes(8)
    words: list[str] = []
    codes = np.full(len(lengths), -1, np.int64)
    while (left := np.flatnonzero(codes < 0)).size:
        one = left[0]
        word = roles.octets[roles.begins[one] : roles.ends[one]].tobytes().decode("latin-1")
        if len(words) == _ROLES or not _ROLE.fullmatch(word):
            return None
        codes[(first == first[one]) & (second == second[one]) & (lengths == lengths[one])] = len(words)
        words.append(word)
    return words, codes
