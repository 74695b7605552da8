"""Lines of JSON that are all alike, cut at their quotes: a few passes over the bytes prove what each line holds.

A parser looks at every byte and asks what it may be. Where programs have written the lines, all that differs is what
stands between quotes; the rest is told at once for all lines. What is not proven here is left to a parser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_EIGHT = 8  # bytes that are compared as one number
_THREE = 3  # bytes before the last one of a character have most to say of it
_QUOTE, _BACKSLASH, _SPACE = ord('"'), ord("\\"), ord(" ")
_GONE = 0xFF  # in the place of a backslash that is to go; UTF-8 has no such byte
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_EIGHT + 1)], np.uint64)
_MEANT = np.zeros(256, np.uint8)
_MEANT[[*b'"\\/bfnrt']] = [*b'"\\/\b\f\n\r\t']


def _number(word: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(word, "little"))


_BEGIN, _NEXT, _STOP = (_number(b"{"),), (_number(b"}\n{"),), (_number(b"}"), _number(b"}\n"))
_NEXT_CHAT, _STOP_CHAT = (_number(b"}]}\n{"),), (_number(b"}]}"), _number(b"}]}\n"))
_COLON, _COMMA = (_number(b": "), _number(b":")), (_number(b", "), _number(b","))
_FIRST, _FURTHER = (_number(b": [{"), _number(b":[{")), (_number(b"}, {"), _number(b"},{"))


@dataclass(frozen=True, eq=False)
class Strings:
    """What stands between the quotes of some lines.

    Shapes:
        begins, ends: int64 (strings), places in `octets`
        eight: as of `eights`

    Args:
        octets: the bytes of the lines; behind a backslash stands what it means, in its own place 0xFF.
        gone: where these are: int64, ascending.
    """

    octets: Array
    eight: Array
    begins: Array
    ends: Array
    gone: Array

    def take(self, index: Any) -> Strings:
        """Return some of them."""
        return Strings(self.octets, self.eight, self.begins[index], self.ends[index], self.gone)

    def are(self, word: bytes) -> bool:
        """Tell whether all of them are this word."""
        if not bool((self.ends - self.begins == len(word)).all()):
            return False
        pieces = ((at, word[at : at + _EIGHT]) for at in range(0, len(word), _EIGHT))
        return all(bool((self.eight[self.begins + at] & _MASKS[len(p)] == _number(p)).all()) for at, p in pieces)

    def eight_bytes(self, at: int) -> Array:
        """Return the bytes [at, at + 8) of each as one number, 0 for those behind its end: uint64 (strings)."""
        found: Array = self.eight[self.begins + at] & _MASKS[np.clip(self.ends - self.begins - at, 0, _EIGHT)]
        return found

    def parts(self) -> list[bytes]:
        """Return what they say, one by one."""
        data: bytes = self.octets.tobytes()
        found = [data[begin:end] for begin, end in zip(self.begins.tolist(), self.ends.tolist(), strict=True)]
        for place in np.flatnonzero(self._escapes()).tolist() if len(self.gone) else ():
            found[place] = found[place].translate(None, b"\xff")
        return found

    def joined(self) -> tuple[Array, Array]:
        """Return what they say, one behind the other: uint8 (bytes), and int64 (strings), how many of them each has."""
        runs = np.empty(2 * len(self.begins), np.int64)
        runs[::2], runs[1::2] = np.diff(self.begins, prepend=0), self.ends - self.begins
        runs[2::2] -= runs[1:-1:2]
        inside = np.zeros(len(runs), bool)
        inside[1::2] = True
        kept = np.repeat(inside, runs)
        lengths = runs[1::2]
        if len(self.gone):
            kept[self.gone[self.gone < len(kept)]] = False
            lengths = lengths - self._escapes()
        return self.octets[: len(kept)][kept], lengths

    def _escapes(self) -> Array:
        """Return how many backslashes of each are to go: int64 (strings)."""
        return np.searchsorted(self.gone, self.ends) - np.searchsorted(self.gone, self.begins)


def text_strings(data: bytes, count: int, names: Sequence[str]) -> dict[str, Strings] | None:
    """Return the texts of lines that hold nothing but these, all in one order.

    Args:
        data: whole lines; the last need not have an end.
        count: how many.
        names: the keys of a line.

    Returns:
        By key the texts of the lines; None where the lines are not proven to be such, or are no JSON.
    """
    cut = _cut(data, count)
    if cut is None:
        return None
    strings, gaps = cut
    width = 2 * len(names)
    if len(strings.begins) != width * count:
        return None
    between = gaps[:-1].reshape(count, width)
    alike = _among(between[1:, 0], _NEXT) and _among(gaps[:1], _BEGIN) and _among(gaps[-1:], _STOP)
    if not (alike and _among(between[:, 1::2], _COLON) and _among(between[:, 2::2], _COMMA)):
        return None
    found: dict[str, Strings] = {}
    for place in range(0, width, 2):
        keys = strings.take(slice(place, None, width))
        name = next((n for n in names if n not in found and keys.are(n.encode("utf-8", "surrogatepass"))), None)
        if name is None:
            return None
        found[name] = strings.take(slice(place + 1, None, width))
    return found


def chat_strings(data: bytes, count: int, name: str) -> tuple[Array, Strings, Strings] | None:
    """Return the messages of lines that hold one chat and nothing else, each message a role and a content.

    Shapes:
        returns: int64 (lines) [messages]; (messages) roles; (messages) contents

    Args:
        data, count: as for `text_strings`.
        name: the key of a line.

    Returns:
        None where the lines are not proven to be such, or are no JSON.
    """
    cut = _cut(data, count)
    if cut is None:
        return None
    strings, gaps = cut
    starts = np.append(0, np.flatnonzero(gaps[:-1] == _NEXT_CHAT[0]))
    sizes = np.diff(np.append(starts, len(strings.begins)))
    if len(starts) != count or not bool(((sizes % 4 == 1) & (sizes > 1)).all()):
        return None
    inner = np.ones(len(strings.begins), bool)
    inner[starts] = False
    messages, between = strings.take(inner), gaps[:-1][inner].reshape(-1, 4)
    further = np.ones(len(between), bool)
    further[(starts - np.arange(count)) // 4] = False
    alike = _among(gaps[:1], _BEGIN) and _among(gaps[-1:], _STOP_CHAT) and _among(between[:, 1::2], _COLON)
    alike = alike and _among(between[~further, 0], _FIRST) and _among(between[further, 0], _FURTHER)
    if not (
        alike and _among(between[:, 2], _COMMA) and strings.take(starts).are(name.encode("utf-8", "surrogatepass"))
    ):
        return None
    keys = [messages.take(slice(place, None, 4)) for place in range(4)]
    if not (keys[0].are(b"role") and keys[2].are(b"content")):
        return None
    return sizes // 4, keys[1], keys[3]


def _among(found: Array, allowed: tuple[np.uint64, ...]) -> bool:
    mask = found == allowed[0]
    for other in allowed[1:]:
        mask |= found == other
    return bool(mask.all())


def _cut(data: bytes, count: int) -> tuple[Strings, Array] | None:
    """Return the strings of some lines, and what stands before each and behind the last; None of what is no JSON.

    Shapes:
        returns: (strings); uint64 (strings + 1), at most 8 bytes as one number

    Notes:
        Line feeds and other control characters: as many as there are lines, so that none is in a string, if only each
        line ends with one.
    """
    ended = data.endswith(b"\n")
    around = _around(data)
    octets, padded = around[_THREE : _THREE + len(data)], around[_THREE:]
    if not data or np.count_nonzero(octets < _SPACE) != count - (not ended) or not _is_utf8(around, data):
        return None
    gone = np.zeros(0, np.int64)
    if b"\\" in data:
        found = _escapes(padded)
        if found is None:
            return None
        gone, meant = found
        padded[gone], padded[gone + 1] = _GONE, _SPACE  # a quote behind a backslash ends nothing
    quotes = np.flatnonzero(octets == _QUOTE)
    if len(gone):
        padded[gone + 1] = meant
    if len(quotes) % 2 or not len(quotes):
        return None
    begins, ends = quotes[::2] + 1, quotes[1::2]
    after, sizes = np.append(0, ends + 1), np.append(begins - 1, len(octets)) - np.append(0, ends + 1)
    if sizes.max() > _EIGHT:
        return None
    eight = eights(padded)
    return Strings(octets, eight, begins, ends, gone), eight[after] & _MASKS[sizes]


def _escapes(octets: Array) -> tuple[Array, Array] | None:
    r"""Return where the backslashes are that say something of the byte behind them, and what is meant by it.

    Returns:
        int64 (escapes); uint8 (escapes). None where one is no JSON, or the number of a character (``\u0041``).
    """
    places = np.flatnonzero(octets == _BACKSLASH)
    beside = np.diff(places) == 1
    if beside.any():  # in a row of them every second one is meant by the one before it
        order = np.arange(len(places))
        heads = np.maximum.accumulate(np.where(np.append(True, ~beside), order, 0))
        places = places[(order - heads) % 2 == 0]
    meant = _MEANT[octets[places + 1]]
    return (places, meant) if meant.all() else None


def eights(padded: Array) -> Array:
    """Return the 8 bytes from each place on, as one number, little-endian: uint64 (bytes - 7), a view."""
    return np.ndarray(len(padded) - _EIGHT + 1, "<u8", padded.data, 0, (1,))


def is_utf8(data: bytes) -> bool:
    """Tell whether bytes are UTF-8 as RFC 3629 has it: shortest forms only, no surrogates, nothing above U+10FFFF."""
    return _is_utf8(_around(data), data)


def _around(data: bytes) -> Array:
    """Return bytes with zeros around them, so that those beside each one can be looked at together."""
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
    wanted, part = octets[2:-1] >= 0xC0, octets[1:-2] >= 0xE0  # every byte behind such a one is 0x80 to 0xBF
    np.logical_or(wanted, part, out=wanted)
    if top >= 0xF0:
        np.logical_or(wanted, np.greater_equal(octets[:-3], 0xF0, out=part), out=wanted)
    np.less(octets[3:].view(np.int8), -0x40, out=part)
    if np.not_equal(wanted, part, out=part).any():  # and no other is
        return False
    edges = ((0xE0, 0xA0, 0xBF), (0xED, 0x80, 0x9F), (0xF0, 0x90, 0xBF), (0xF4, 0x80, 0x8F))
    return all(_follow(octets, *edge) for edge in edges if bytes(edge[:1]) in data)


def _follow(octets: Array, lead: int, low: int, high: int) -> bool:
    """Tell whether all bytes behind a lead lie in a range."""
    behind = octets[np.flatnonzero(octets == lead) + 1]
    return bool(((behind >= low) & (behind <= high)).all())
