"""Vectorized operations on the bytes of many texts, for the families that measure text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from datacheck.model.chats import Messages, joined_bytes, text_at, text_bytes
from datacheck.model.sample import Column
from datacheck.rules.base import Columns, measure
from datacheck.rules.chat_turns import chats_in, turns_of
from datacheck.schema.model import FieldSpec
from datacheck.tokenization import content_of

Array = np.ndarray[Any, Any]

_OTHERS = [
    c.encode()
    for c in "\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"
    + "".join(map(chr, range(0x2000, 0x200B)))
]
_TWO = np.array([int.from_bytes(c) for c in _OTHERS if len(c) == 2])
_THREE = np.array([int.from_bytes(c) for c in _OTHERS if len(c) == 3])
LEADS = sorted({c[0] for c in _OTHERS})
_IDEOGRAPHIC = 0xE38080
# Without the lead byte of U+3000, which half of all Chinese texts contain.
_RARE_LEADS = [byte for byte in LEADS if byte != _IDEOGRAPHIC >> 16]


def single_spaced(column: Column) -> list[bytes]:
    """Return each text in UTF-8 with single spaces between words: ``" ".join(text.split())``.

    Notes:
        White space is as in `str.isspace`. A few passes over the bytes of all texts find the texts
        with other white space than single spaces within; only these are split, which takes ten
        times as long.
    """
    octets = np.ascontiguousarray(column.values)
    data = joined_bytes(column)
    stops = column.starts + (0 if column.lengths is None else column.lengths)
    texts = text_bytes(column)
    untidy = np.concatenate([_untidy(octets, column.starts, stops), _other_spaces(octets, data)])
    for i in np.unique(np.searchsorted(stops, untidy, side="right")).tolist():
        text = texts[i].decode("utf-8", "surrogatepass")
        texts[i] = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return texts


def blank(column: Column) -> Array:
    """Return bool (samples): texts of white space alone, or empty; cached on the column."""
    if "_blank" not in column.__dict__:
        column.__dict__["_blank"] = _blank(column)
    return column.__dict__["_blank"].copy()  # type: ignore[no-any-return]


def _blank(column: Column) -> Array:
    lengths = np.zeros(0, np.int64) if column.lengths is None else column.lengths
    is_blank: Array = lengths == 0
    firsts = column.values[column.starts[~is_blank]]
    doubtful = np.flatnonzero(~is_blank)[(firsts <= ord(" ")) | np.isin(firsts, LEADS)]
    is_blank[doubtful] = [not text_at(column, i).strip() for i in doubtful.tolist()]
    return is_blank


def _untidy(octets: Array, starts: Array, stops: Array) -> Array:
    """Return bytes of texts with spaces at an edge or in a row, or control characters: int64."""
    if not len(octets):
        return np.zeros(0, np.int64)
    space = octets <= ord(" ")
    filled = stops > starts
    first = starts[filled]
    last = stops[filled] - 1
    hits = [first[space[first]], last[space[last]]]
    # Also across the border of two texts: both are then untidy at that edge anyway.
    pairs = space[1:] & space[:-1]
    if pairs.any():
        hits.append(np.flatnonzero(pairs) + 1)
    if octets.min() < ord(" "):
        hits.append(np.flatnonzero(octets < ord(" ")))
    return np.concatenate(hits)


def _other_spaces(octets: Array, data: bytes) -> Array:
    """Return where white space begins that is not ASCII: int64."""
    if data.isascii():
        return np.zeros(0, np.int64)
    hits = []
    for byte in _RARE_LEADS:
        begins = places(octets, data, byte)
        if len(begins):
            narrow, wide = (_code(octets, begins, size) for size in (2, 3))
            hits.append(begins[np.isin(narrow, _TWO) | np.isin(wide, _THREE)])
    last = octets == 0x80  # U+3000 ends in two of these; hardly any other character does
    pairs = last[2:] & last[1:-1]
    if pairs.any():
        begins = np.flatnonzero(pairs)
        hits.append(begins[_code(octets, begins, 3) == _IDEOGRAPHIC])
    return np.concatenate(hits) if hits else np.zeros(0, np.int64)


def _code(octets: Array, places: Array, size: int) -> Array:
    """Return the `size` bytes at each place as one number; bytes after the end count as 0."""
    code = np.zeros(len(places), np.int64)
    for offset in range(size):
        inside = np.minimum(places + offset, len(octets) - 1)
        code = code << 8 | np.where(places + offset < len(octets), octets[inside], 0)
    return code


_FEW = 500  # up to so many hits, `bytes.find` is faster than a mask


def places(octets: Array, data: bytes, byte: int) -> Array:
    """Return the places of a byte: int64, ascending.

    A rare byte is found without a mask over all bytes.

    Args:
        octets, data: the same bytes as an array and as an object.
        byte: the byte to find.
    """
    hits: list[int] = []
    sign = bytes([byte])
    position = data.find(sign)
    while position >= 0 and len(hits) < _FEW:
        hits.append(position)
        position = data.find(sign, position + 1)
    return np.array(hits, np.int64) if position < 0 else np.flatnonzero(octets == byte)


def beginning(octets: Array, data: bytes, needles: Sequence[bytes]) -> Array:
    """Return the places where any of several needles of three bytes or more may begin.

    They are int64, ascending.

    Args:
        octets, data: the bytes of all texts, as an array and as an object.
        needles: the byte strings to find; only their first three bytes are compared.

    Notes:
        The test for a byte that no text holds runs at many GB/s; a frequent one costs a comparison
        per byte. `bytes.find` of a short needle takes several times as long in text that is not
        ASCII.
    """
    hits = []
    occurring = dict.fromkeys(b"".join(needle[:3] for needle in needles), False)
    occurring |= {byte: byte in data for byte in {needle[0] for needle in needles}}
    occurring |= {
        byte: byte in data for needle in needles if occurring[needle[0]] for byte in needle[1:3]
    }
    needles = [needle for needle in needles if all(occurring[byte] for byte in needle[:3])]
    for byte in sorted({needle[0] for needle in needles}):
        mine = [needle for needle in needles if needle[0] == byte]
        # One needle: no list of all places with its first byte.
        if len({needle[1:3] for needle in mine}) == 1:
            both = (octets[1:-1] == mine[0][1]) & (octets[2:] == mine[0][2])
            starts = np.flatnonzero(both) if both.any() else np.zeros(0, np.int64)
            hits.append(starts[octets[starts] == byte])
            continue
        starts = places(octets, data, byte)
        starts = starts[: np.searchsorted(starts, len(octets) - 2)]
        second, third = (np.zeros(256, bool) for _ in range(2))
        second[[needle[1] for needle in mine]] = third[[needle[2] for needle in mine]] = True
        # Byte by byte, as few are left: half of all Chinese characters share a first byte.
        starts = starts[second[octets[starts + 1]]]
        starts = starts[third[octets[starts + 2]]]
        heads = {needle[:3] for needle in mine}
        hits.append(
            starts[[data[start : start + 3] in heads for start in starts.tolist()]]
            if len(starts)
            else starts
        )
    return np.sort(np.concatenate(hits)) if hits else np.zeros(0, np.int64)


def needle_counts(octets: Array, data: bytes, stops: Array, needles: Sequence[bytes]) -> Array:
    """Return how often each needle occurs in each text: int64 (samples, needles).

    Args:
        octets, data: the bytes of all texts, as an array and as an object.
        stops: where each text ends.
        needles: of three bytes or more.
    """
    counts = np.zeros((len(stops), len(needles)), np.int64)
    begins = beginning(octets, data, needles)
    for begin, owner in zip(
        begins.tolist(), np.searchsorted(stops, begins, side="right").tolist(), strict=True
    ):
        for number, needle in enumerate(needles):
            if data.startswith(needle, begin, stops[owner]):
                counts[owner, number] += 1
    return counts


LETTERS = {  # column: name in messages
    "latin": "Latin",
    "han": "Han (Chinese)",
    "kana": "kana",
    "hangul": "Hangul",
    "cyrillic": "Cyrillic",
    "greek": "Greek",
    "arabic": "Arabic",
    "hebrew": "Hebrew",
    "indic": "Indic",
    "thai": "Thai",
    "letters": "other letters",
}
SCRIPTS = LETTERS | {
    "digits": "digits",
    "punctuation": "punctuation and symbols",
    "emoji": "emoji and pictographs",
}

# Where each class begins: the blocks of Unicode 15.1 (Blocks.txt), in which digits and punctuation
# are separate only where they are frequent. Not counted ("-") are spaces, controls, combining
# accents and code points that are no characters.
_BEGINS = """
    0 - 21 punctuation 30 digits 3A punctuation 41 latin 5B punctuation 61 latin 7B punctuation 7F - A1 punctuation
    AA latin AB punctuation B5 letters B6 punctuation BA latin BB punctuation C0 latin D7 punctuation D8 latin
    F7 punctuation F8 latin 2B0 letters 300 - 370 greek 400 cyrillic 530 letters 590 hebrew 600 arabic 60C punctuation
    60D arabic 61B punctuation 620 arabic 660 digits 66A punctuation 66E arabic 6D4 punctuation 6D5 arabic 6F0 digits
    6FA arabic 700 letters 750 arabic 780 letters 870 arabic 900 indic 964 punctuation 966 digits 970 indic 9E6 digits
    9F0 indic A66 digits A70 indic AE6 digits AF0 indic B66 digits B70 indic BE6 digits BF0 indic C66 digits C70 indic
    CE6 digits CF0 indic D66 digits D70 indic DE6 digits DF0 indic E00 thai E3F punctuation E40 thai E50 digits
    E5A thai E80 letters 1100 hangul 1200 letters 1680 - 1681 letters 1C80 cyrillic 1C90 letters 1CD0 indic 1D00 latin
    1D26 greek 1D2B cyrillic 1D2C latin 1DC0 - 1E00 latin 1F00 greek 2000 - 2010 punctuation 2028 - 2030 punctuation
    205F - 2070 punctuation 20D0 - 2100 punctuation 2183 latin 2185 punctuation 2600 emoji 27C0 punctuation
    2C00 letters 2C60 latin 2C80 letters 2DE0 cyrillic 2E00 punctuation 2E80 han 2FF0 punctuation 3000 -
    3001 punctuation 3005 han 3008 punctuation 3040 kana 3100 letters 3130 hangul 3190 punctuation 31A0 letters
    31C0 punctuation 31F0 kana 3200 punctuation 3400 han 4DC0 punctuation 4E00 han A000 letters A640 cyrillic
    A6A0 letters A720 latin A800 letters A8E0 indic A900 letters A960 hangul A980 letters AB30 latin AB65 greek
    AB66 latin AB70 letters AC00 hangul D800 - F900 han FB00 latin FB10 letters FB1D hebrew FB50 arabic FE00 -
    FE10 punctuation FE20 - FE30 punctuation FE70 arabic FEFF - FF01 punctuation FF10 digits FF1A punctuation
    FF21 latin FF3B punctuation FF41 latin FF5B punctuation FF66 kana FFA0 hangul FFE0 punctuation FFF0 - 10000 letters
    1AFF0 kana 1B170 letters 1D000 punctuation 1D7CE digits 1D800 letters 1DF00 latin 1E000 letters 1EE00 arabic
    1EF00 letters 1F000 emoji 1FB00 punctuation 20000 han 40000 -
"""
_END = 0x110000
BITS = 16  # for `SCRIPTS`
_PIECE = 1 << 17  # bytes that fit into the caches; a multiple of 64


@measure("scripts", applies=lambda spec: spec.role in {"text", "chat", "captions"})
def scripts(column: Column, spec: FieldSpec) -> Columns:
    """Scripts of a text: `scripts`, one bit for each of `SCRIPTS` that it contains.

    The bits from `BITS` up hold the main script: the place in `LETTERS` of the script with most
    letters plus 1, the first of equal ones, 0 without letters. For chats it covers the content of
    messages, for other JSON the texts in its values. It is a single number because counts of each
    script took a fifth of the time of a scan.
    """
    if column.kind == "array" or column.lengths is None:
        return {}
    counts = character_counts(column, spec)
    size = len(column)
    bits = np.zeros(size, np.int32)
    main_script = np.zeros(size, np.int32)
    most = np.zeros(size, np.int32)
    for place, name in enumerate(SCRIPTS):
        if name not in counts:
            continue
        bits |= (counts[name] > 0).astype(np.int32) << place
        if name in LETTERS:
            main_script[counts[name] > most] = place + 1
            np.maximum(most, counts[name], out=most)
    return {"scripts": bits | main_script << BITS}


def character_counts(column: Column, spec: FieldSpec) -> dict[str, Array]:
    """Return the count of characters of each class that occurs: int32 (samples) by name."""
    texts, owners = _texts(column, spec)
    assert texts.lengths is not None
    stops = np.cumsum(texts.lengths)
    if owners is not None:  # the messages of a chat follow one another
        stops = np.concatenate([[0], stops])[np.cumsum(owners)]
    return _per_text(texts.values, stops)


def _texts(column: Column, spec: FieldSpec) -> tuple[Column, Array | None]:
    """Return the texts of a column, and how many belong to each sample: int64 (samples).

    None in place of the counts where each sample has one text.
    """
    if isinstance(column, Messages):
        return column.said, column.counts
    if column.kind == "text":
        return column, None
    if spec.role == "chat" and (turns := turns_of(column)) is not None:
        return turns.said, turns.counts
    values: Iterable[Any] = column.objects
    if spec.role == "chat":
        values = (list(map(content_of, chat)) for chat in chats_in(column))
    return Column.of(["".join(_json_texts(value)) for value in values]), None


def _json_texts(value: Any) -> Iterator[str]:
    """Yield the texts in a JSON value, without its keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _json_texts(item)


def _per_text(octets: Array, stops: Array) -> dict[str, Array]:
    """Return how many characters of each occurring class each text holds: int32 (texts) by name.

    A text ends where the next one begins.

    Notes:
        Each class has a bit for each byte at which one of its characters begins. The count up to
        the end of a text is the count of set bits in whole words of 64 and in the beginning of one
        more. Sums text by text take twenty times as long.
    """
    bits: dict[str, Array] = {}
    for start in range(0, len(octets), _PIECE):
        for name, begins in _begins(octets, start):
            if name not in bits:
                bits[name] = np.zeros(8 * (len(octets) // 64 + 1), np.uint8)
            packed = np.packbits(begins, bitorder="little")
            bits[name][start // 8 : start // 8 + len(packed)] |= packed
    place = stops >> 6
    within = (1 << (stops & 63).astype(np.uint64)) - 1
    counts = {}
    for name, octets_ in bits.items():
        words = octets_.view("<u8")
        before = np.cumsum(np.bitwise_count(words), dtype=np.int64) - np.bitwise_count(words)
        counts[name] = np.diff(
            before[place] + np.bitwise_count(words[place] & within), prepend=0
        ).astype(np.int32)
    return counts


def _begins(octets: Array, start: int) -> Iterator[tuple[str, Array]]:
    """Yield where characters of a class begin in the piece at `start`: bool (bytes of the piece).

    A class may come more than once, in any order.
    """
    part = octets[start : start + _PIECE]
    latin = (part | 32) - np.uint8(97) < 26
    digits = part - np.uint8(48) < 10
    yield "latin", latin
    yield "digits", digits
    yield "punctuation", (part - np.uint8(33) < 94) & ~latin & ~digits
    if part.max() < 0x80:
        return
    rest = part >= 0xC0
    for name, begins in _dense(
        part, np.append(octets[start + 1 : start + _PIECE + 1], np.uint8(0))[: len(part)]
    ):
        if begins.any():
            rest &= ~begins
            yield name, begins
    places = np.flatnonzero(rest)
    kinds = _classes()[_codes(octets, start + places)]
    for kind in np.unique(kinds).tolist():
        if kind:
            begins = np.zeros(len(part), bool)
            begins[places[kinds == kind]] = True
            yield list(SCRIPTS)[kind - 1], begins


def _dense(part: Array, after: Array) -> Iterator[tuple[str, Array]]:
    """Yield where letters begin, for scripts that two bytes identify and that fill whole texts.

    `after` holds the next byte of each.
    """
    yield "han", (part - np.uint8(0xE5) < 5) | (part == 0xE4) & (after >= 0xB8)  # U+4E00 to U+9FFF
    yield "kana", (part == 0xE3) & (after - np.uint8(0x81) < 3)  # U+3040 to U+30FF
    yield (
        "hangul",
        (part - np.uint8(0xEB) < 2)
        | (part == 0xEA) & (after >= 0xB0)
        | (part == 0xED) & (after < 0xA0),
    )
    yield "cyrillic", part & 0xFE == 0xD0  # U+0400 to U+047F


@lru_cache(maxsize=1)
def _classes() -> Array:
    """Return the class of each code point: uint8, its place in `SCRIPTS` plus 1, 0 without one."""
    words = _BEGINS.split()
    sizes = np.diff([*(int(word, 16) for word in words[::2]), _END])
    numbers = {"-": 0} | {name: number for number, name in enumerate(SCRIPTS, 1)}
    return np.repeat(np.array([numbers[word] for word in words[1::2]], np.uint8), sizes)


def _codes(octets: Array, places: Array) -> Array:
    """Return the code points of the multi-byte characters that begin at these bytes: int32."""
    lead = octets[places].astype(np.int32)
    one, two, three = (
        octets[np.minimum(places + k, len(octets) - 1)].astype(np.int32) & 0x3F for k in (1, 2, 3)
    )
    short = (lead & 0x1F) << 6 | one
    middle = (lead & 0x0F) << 12 | one << 6 | two
    # Larger numbers are no UTF-8.
    long = np.minimum((lead & 0x07) << 18 | one << 12 | two << 6 | three, _END - 1)
    codes: Array = np.where(lead < 0xE0, short, np.where(lead < 0xF0, middle, long))
    return codes
