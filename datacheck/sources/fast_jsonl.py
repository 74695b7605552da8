"""Parse uniform JSON lines by their quotes: a few passes over the bytes prove what each line holds.

A general parser inspects every byte. Lines that a program wrote differ only between quotes; the
rest can be compared for all lines at once. Lines without such a proof are left to a parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from datacheck.model.chats import Messages, column_of, strings_of
from datacheck.model.sample import Column
from datacheck.sources.fields import FieldMap

Array = np.ndarray[Any, Any]

_EIGHT = 8  # bytes compared as one number
_THREE = 3  # a UTF-8 lead byte can be up to three bytes back
_QUOTE = ord('"')
_BACKSLASH = ord("\\")
_SPACE = ord(" ")
_GONE = 0xFF  # marks a backslash for removal; UTF-8 has no such byte
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_EIGHT + 1)], np.uint64)
_UNESCAPED = np.zeros(256, np.uint8)
_UNESCAPED[[*b'"\\/bfnrt']] = [*b'"\\/\b\f\n\r\t']


# The default of Python's json, and the format of most other writers.
_SPACING = ((b", ", b": "), (b",", b":"))


@dataclass(frozen=True, eq=False)
class Strings:
    """The texts between the quotes of some lines.

    Shapes:
        begins, ends: int64 (strings), indices into `octets`
        eight: as in `eights`

    Args:
        octets: the bytes of the lines; an escape is 0xFF in place of the backslash, then the byte
            that it means.
        gone: int64, ascending: indices of these 0xFF.
    """

    octets: Array
    eight: Array
    begins: Array
    ends: Array
    gone: Array

    def eight_bytes(self, at: int) -> Array:
        """Return bytes [at, at + 8) of each string as uint64 (strings), zeros after its end."""
        words: Array = (
            self.eight[self.begins + at] & _MASKS[np.clip(self.ends - self.begins - at, 0, _EIGHT)]
        )
        return words

    def array(self) -> Any:
        """Return the texts without escape marks: Arrow's binary (strings), contiguous."""
        import pyarrow as pa  # noqa: PLC0415  only for large files

        begins = self.begins
        ends = self.ends
        lengths = self.ends - self.begins
        if len(self.gone):  # the kept bytes of a string are in several pieces
            owners = np.searchsorted(begins, self.gone, side="right") - 1
            inside = (owners >= 0) & (self.gone < ends[owners])
            escape_marks = self.gone[inside]
            lengths = lengths - np.bincount(owners[inside], minlength=len(begins))
            begins, ends = (
                np.sort(np.concatenate(both), kind="stable")
                for both in ((begins, escape_marks + 1), (ends, escape_marks))
            )
        # Every second piece lies between two kept ones.
        places = np.zeros(2 * len(begins) + 1, np.int32)
        places[1::2], places[2::2] = begins, ends
        pieces = _binary(pa, places, pa.py_buffer(self.octets))
        kept_pieces = _kernel()("array_take", [pieces, pa.array(np.arange(1, len(pieces), 2))])
        return _binary(
            pa, np.append(0, np.cumsum(lengths)).astype(np.int32), kept_pieces.buffers()[2]
        )


@cache
def _kernel() -> Any:
    """Return Arrow's `call_function`.

    The import of its public module creates 300 Python functions first, in 0.05 s.
    """
    try:
        from pyarrow._compute import call_function  # noqa: PLC0415  only for large files
    except ImportError:  # the private module may change
        from pyarrow.compute import call_function  # noqa: PLC0415
    return call_function


def _binary(pa: Any, places: Array, octets: Any) -> Any:
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(places) - 1, [None, pa.py_buffer(places), octets]
    )


def text_strings(data: bytes, count: int, names: Sequence[str]) -> dict[str, Strings] | None:
    """Return the texts of lines that hold these keys only, in one order.

    Args:
        data: whole lines; the last one needs no line feed.
        count: number of lines.
        names: the keys of a line.

    Returns:
        Texts of the lines by key; None if the lines are not proven to have this form, or are
        invalid.
    """
    lines = _QuotedLines.of(data, count, names)
    if lines is None or len(lines.quotes) != 4 * len(names) * count:
        return None
    quotes = lines.quotes.reshape(count, -1)
    keys = [data[begin + 1 : end] for begin, end in quotes[0].reshape(-1, 4)[:, :2].tolist()]
    if sorted(keys) != sorted(map(_encoded, names)):
        return None
    begins = quotes[:, 2::4]
    ends = quotes[:, 3::4]
    colon, comma = lines.colon, lines.comma
    line_start = b'{"' + keys[0] + b'"' + colon + b'"'
    is_uniform = all(
        lines.between(
            ends[:, place - 1], begins[:, place], b'"' + comma + b'"' + key + b'"' + colon + b'"'
        )
        for place, key in enumerate(keys)
        if place
    )
    is_uniform = is_uniform and lines.between(ends[:-1, -1], begins[1:, 0], b'"}\n' + line_start)
    if not (is_uniform and data.startswith(line_start) and lines.ends_with(b'"}')):
        return None
    strings_by_key = {
        key: lines.strings(begins[:, place] + 1, ends[:, place]) for place, key in enumerate(keys)
    }
    return {name: strings_by_key[_encoded(name)] for name in names}


def chat_strings(data: bytes, count: int, name: str) -> tuple[Array, Strings, Strings] | None:
    """Return the messages of lines with a single chat, each message a role and a content.

    Shapes:
        returns: int64 (lines) [messages]; (messages) roles; (messages) contents

    Args:
        data, count: as for `text_strings`.
        name: the key of a line.

    Returns:
        None if the lines are not proven to have this form, or are invalid.
    """
    lines = _QuotedLines.of(data, count, [name])
    if lines is None or len(lines.quotes) < 10 * count:
        return None
    colon, comma = lines.colon, lines.comma
    role = b'{"role"' + colon + b'"'
    line_start = b'{"' + _encoded(name) + b'"' + colon + b"[" + role
    # The end of each line, counted in strings.
    stops = (
        np.flatnonzero(lines.octets[np.minimum(lines.quotes[1::2] + 2, len(data) - 1)] == ord("]"))
        + 1
    )
    sizes = np.diff(stops, prepend=0)
    if (
        len(stops) != count
        or 2 * stops[-1] != len(lines.quotes)
        or not bool(((sizes % 4 == 1) & (sizes > 1)).all())
    ):
        return None
    counts = sizes // 4
    # Index of each key's first quote.
    place = 8 * np.arange(int(counts.sum())) + 2 * np.repeat(np.arange(count), counts)
    roles, contents = (
        (lines.quotes[place + offset], lines.quotes[place + offset + 1]) for offset in (4, 8)
    )
    begins = np.cumsum(counts) - counts
    inner = np.ones(len(place), bool)
    inner[begins] = False
    inner, outer = np.flatnonzero(inner), begins[1:]
    is_uniform = (
        lines.between(roles[1], contents[0], b'"' + comma + b'"content"' + colon + b'"')
        and lines.between(contents[1][inner - 1], roles[0][inner], b'"}' + comma + role)
        and lines.between(contents[1][outer - 1], roles[0][outer], b'"}]}\n' + line_start)
    )
    if not (is_uniform and data.startswith(line_start) and lines.ends_with(b'"}]}')):
        return None
    return (
        counts,
        lines.strings(roles[0] + 1, roles[1]),
        lines.strings(contents[0] + 1, contents[1]),
    )


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, eq=False)
class _QuotedLines:
    """UTF-8 lines without control characters in strings, and the positions of their quotes.

    Shapes:
        quotes: int64 (quotes), those that begin and end strings

    Args:
        data: their bytes; `octets` and `gone` as in `Strings`, `eight` as in `eights`.
        comma, colon: the separators with their spacing, from the first line.
    """

    data: bytes
    octets: Array
    eight: Array
    gone: Array
    quotes: Array
    comma: bytes
    colon: bytes

    @staticmethod
    def of(data: bytes, count: int, names: Sequence[str]) -> _QuotedLines | None:
        """Return lines split at their quotes; None for invalid or unusually written JSON.

        Notes:
            There are as many control characters, line feeds included, as lines. So if each line
            ends with one, no string contains any.
        """
        spacing = next((two for two in _SPACING if _head(data).startswith(two[1] + b'"', 1)), None)
        spacing = spacing or next(
            (two for two in _SPACING if _head(data).startswith(two[1] + b"[", 1)), None
        )
        if spacing is None or any(character in '"\\' for name in names for character in name):
            return None
        around = _zero_padded(data)
        octets = around[_THREE : _THREE + len(data)]
        padded = around[_THREE:]
        if np.count_nonzero(octets < _SPACE) != count - (not data.endswith(b"\n")) or not _is_utf8(
            around, data
        ):
            return None
        escape_marks = np.zeros(0, np.int64)
        if b"\\" in data:
            escapes = _escapes(padded)
            if escapes is None:
                return None
            escape_marks, unescaped = escapes
            # A quote after a backslash does not end a string.
            padded[escape_marks], padded[escape_marks + 1] = (_GONE, _SPACE)
        quotes = np.flatnonzero(octets == _QUOTE)
        if len(escape_marks):
            padded[escape_marks + 1] = unescaped
        return (
            None
            if len(quotes) % 2
            else _QuotedLines(data, octets, eights(padded), escape_marks, quotes, *spacing)
        )

    def strings(self, begins: Array, ends: Array) -> Strings:
        """Return the strings at these positions."""
        return Strings(self.octets, self.eight, begins, ends, self.gone)

    def between(self, ends: Array, begins: Array, word: bytes) -> bool:
        """Return whether `word` covers the bytes from each end quote to its begin quote."""
        if not bool((begins - ends == len(word) - 1).all()):
            return False
        pieces = (
            (offset, word[offset : offset + _EIGHT]) for offset in range(0, len(word), _EIGHT)
        )
        return all(
            bool(
                (
                    self.eight[ends + offset] & _MASKS[len(piece)]
                    == np.uint64(int.from_bytes(piece, "little"))
                ).all()
            )
            for offset, piece in pieces
        )

    def ends_with(self, word: bytes) -> bool:
        """Return whether `word` is the data from the last quote on, without a line feed."""
        return self.data[self.quotes[-1] :].removesuffix(b"\n") == word


def _head(data: bytes) -> bytes:
    """Return the bytes after the first key of some lines, from its closing quote on."""
    end = data.find(b'"', 2)
    return data[end : end + _EIGHT]


def _escapes(octets: Array) -> tuple[Array, Array] | None:
    r"""Return the positions of backslashes that begin an escape, and the bytes they mean.

    Returns:
        int64 (escapes); uint8 (escapes). None if an escape is invalid, or a character number
        (``\u0041``).
    """
    places = np.flatnonzero(octets == _BACKSLASH)
    is_adjacent = np.diff(places) == 1
    if is_adjacent.any():  # in a run, every second one is escaped by the one before it
        order = np.arange(len(places))
        heads = np.maximum.accumulate(np.where(np.append(True, ~is_adjacent), order, 0))
        places = places[(order - heads) % 2 == 0]
    unescaped = _UNESCAPED[octets[places + 1]]
    return (places, unescaped) if unescaped.all() else None


def eights(padded: Array) -> Array:
    """Return the 8 bytes from each position on as a little-endian uint64 (bytes - 7), a view."""
    return np.ndarray(len(padded) - _EIGHT + 1, "<u8", padded.data, 0, (1,))


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 by RFC 3629.

    It allows the shortest forms only, no surrogates, and nothing above U+10FFFF.
    """
    return _is_utf8(_zero_padded(data), data)


def _zero_padded(data: bytes) -> Array:
    """Return bytes with zeros around them, so that neighbors of each byte can be read together."""
    around = np.empty(_THREE + len(data) + 2 * _EIGHT, np.uint8)
    around[:_THREE] = around[_THREE + len(data) :] = 0
    around[_THREE : _THREE + len(data)] = np.frombuffer(data, np.uint8)
    return around


def _is_utf8(around: Array, data: bytes) -> bool:
    if data.isascii():
        return True
    octets = around[: _THREE + len(data) + 1]
    top = int(octets.max())
    if top > 0xF4 or b"\xc0" in data or b"\xc1" in data:
        return False
    # Every byte after one of these is 0x80 to 0xBF.
    must_continue = octets[2:-1] >= 0xC0
    part = octets[1:-2] >= 0xE0
    np.logical_or(must_continue, part, out=must_continue)
    if top >= 0xF0:
        np.logical_or(
            must_continue, np.greater_equal(octets[:-3], 0xF0, out=part), out=must_continue
        )
    np.less(octets[3:].view(np.int8), -0x40, out=part)
    if np.not_equal(must_continue, part, out=part).any():  # and no other byte is
        return False
    edges = ((0xE0, 0xA0, 0xBF), (0xED, 0x80, 0x9F), (0xF0, 0x90, 0xBF), (0xF4, 0x80, 0x8F))
    return all(_followed_by(octets, *edge) for edge in edges if bytes(edge[:1]) in data)


def _followed_by(octets: Array, lead: int, low: int, high: int) -> bool:
    """Return whether every byte after a lead byte is in a range."""
    next_bytes = octets[np.flatnonzero(octets == lead) + 1]
    return bool(((next_bytes >= low) & (next_bytes <= high)).all())


_MOST_BYTES = 16 << 20  # longer data may contain an overlong line
_TRIES = 8  # failures after which a file is taken to be of another kind
_ROLES = 16  # limit for distinct roles, and for the bytes of one
_ROLE = re.compile(r"[A-Za-z0-9_-]+")


class BulkParser:
    """Parses lines that hold the fields of a schema and nothing else.

    Args:
        fields: maps keys to fields.
    """

    def __init__(self, fields: FieldMap) -> None:
        places = {place.at: place for place in fields.own}
        is_simple = all(
            "/" not in key and place.spec.role in {"text", "chat"} for key, place in places.items()
        )
        unique_keys = len(places) == len(fields.own)  # two fields may share a key
        fits = (
            places
            and is_simple
            and unique_keys
            and not fields.everything
            and not fields.columns
            and not fields.noted
        )
        self._names = (
            {key: (place.name, place.spec.role == "chat") for key, place in places.items()}
            if fits
            else {}
        )
        self._chats = [key for key, (_, chat) in self._names.items() if chat]
        self._tries = _TRIES if fits else 0
        self._cuts = _TRIES if fits and (not self._chats or len(self._names) == 1) else 0

    def columns(self, data: bytes, count: int) -> dict[str, Column] | None:
        """Return the columns of `count` whole lines by field; None to read them one by one."""
        if not self._names or len(data) > _MOST_BYTES:
            return None
        parsed = self._at_quotes(data, count) if self._cuts else None
        if parsed is None and self._tries:
            parsed = self._columns(data, count) if _objects(data, count) else None
            self._tries -= parsed is None
        return parsed

    def _at_quotes(self, data: bytes, count: int) -> dict[str, Column] | None:
        columns: dict[str, Column] | None = None
        if not self._chats:
            texts = text_strings(data, count, list(self._names))
            if texts is not None:
                columns = {
                    self._names[key][0]: column_of(strings.array())
                    for key, strings in texts.items()
                }
        elif (chats := chat_strings(data, count, self._chats[0])) is not None:
            counts, roles, contents = chats
            words = _words(roles)
            if words is not None:
                content_column = column_of(contents.array())
                name = self._names[self._chats[0]][0]
                plain = not len(contents.gone)
                columns = {name: Messages(counts, *words, content_column, plain=plain)}
        if columns is None:
            self._cuts -= 1
        return columns

    def _columns(self, data: bytes, count: int) -> dict[str, Column] | None:
        table = _parsed(data, self._names)
        if (
            table is None
            or table.num_rows != count
            or any(column.num_chunks != 1 for column in table.columns)
        ):
            return None
        columns: dict[str, Column] = {}
        for key, (name, chat) in self._names.items():
            array = table[key].chunk(0)
            column = None if array.null_count else _chats(array) if chat else column_of(array)
            if column is None:
                return None
            columns[name] = column
        return columns


def _objects(data: bytes, count: int) -> bool:
    """Return whether each line begins and ends like an object.

    Notes:
        No object can continue between ``}`` at a line's end and ``{`` at the next line's start:
        JSON needs a comma there. So if there are as many objects as lines, each line holds one.
    """
    if b"\r" in data:  # allowed at the end of a line, but not inside
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
    import pyarrow as pa  # noqa: PLC0415  takes 0.1 s, only for large files
    import pyarrow.json as pj  # noqa: PLC0415

    chat = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    schema = pa.schema(
        [(key, chat if is_chat else pa.string()) for key, (_, is_chat) in names.items()]
    )
    parse_options = pj.ParseOptions(
        explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
    )
    read_options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
    try:
        table = pj.read_json(
            pa.BufferReader(data), read_options=read_options, parse_options=parse_options
        )
        table.validate(full=True)  # the parser accepts bytes that are not UTF-8
    except pa.ArrowException:
        return None
    return table


def _chats(array: Any) -> Column | None:
    begins = np.frombuffer(array.buffers()[1], np.int32)[
        array.offset : array.offset + len(array) + 1
    ]
    messages = array.values
    role = messages.field(0)
    content = messages.field(1)
    is_complete = not (
        messages.null_count or role.null_count or content.null_count or messages.offset
    )
    if not is_complete or begins[0] or begins[-1] != len(messages):
        return None
    places, octets = strings_of(role)
    padded = np.concatenate([octets, np.zeros(_ROLES, np.uint8)])
    roles = _words(Strings(padded, eights(padded), places[:-1], places[1:], places[:0]))
    return (
        None
        if roles is None
        else Messages(np.diff(begins).astype(np.int64), *roles, column_of(content))
    )


def _words(roles: Strings) -> tuple[list[str], Array] | None:
    """Return the distinct strings and an index per string; None if many, long or unusual."""
    lengths = roles.ends - roles.begins
    if lengths.max(initial=0) > _ROLES:
        return None
    first_bytes = roles.eight_bytes(0)
    second_bytes = roles.eight_bytes(8)
    words: list[str] = []
    codes = np.full(len(lengths), -1, np.int64)
    while (uncoded := np.flatnonzero(codes < 0)).size:
        index = uncoded[0]
        word = roles.octets[roles.begins[index] : roles.ends[index]].tobytes().decode("latin-1")
        if len(words) == _ROLES or not _ROLE.fullmatch(word):
            return None
        codes[
            (first_bytes == first_bytes[index])
            & (second_bytes == second_bytes[index])
            & (lengths == lengths[index])
        ] = len(words)
        words.append(word)
    return words, codes
