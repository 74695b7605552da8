"""The bytes of texts, many at a time, for the families that measure text."""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.messages import data_of, parts_of, text_at
from datacheck.rules.patterns import places
from datacheck.sample import Column

Array = np.ndarray[Any, Any]

_OTHERS = [
    c.encode() for c in "\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
]
_TWO = np.array([int.from_bytes(c) for c in _OTHERS if len(c) == 2])
_THREE = np.array([int.from_bytes(c) for c in _OTHERS if len(c) == 3])
LEADS = sorted({c[0] for c in _OTHERS})
_IDEOGRAPHIC = 0xE38080
_RARE_LEADS = [byte for byte in LEADS if byte != _IDEOGRAPHIC >> 16]  # half of all Chinese text holds that one


def words_apart(column: Column) -> list[bytes]:
    """Return each text of a column in UTF-8 with one space between its words: ``" ".join(text.split())``.

    Notes:
        White space is what `str.isspace` calls so. A few passes over the bytes of all texts tell most texts from those
        that have something else than single spaces within; only these are taken apart, which takes ten times as long.
    """
    octets, data = np.ascontiguousarray(column.values), data_of(column)
    stops = column.starts + (0 if column.lengths is None else column.lengths)
    texts = parts_of(column)
    untidy = np.concatenate([_untidy(octets, column.starts, stops), _other_spaces(octets, data)])
    for i in np.unique(np.searchsorted(stops, untidy, side="right")).tolist():
        text = texts[i].decode("utf-8", "surrogatepass")
        texts[i] = " ".join(text.split()).encode("utf-8", "surrogatepass")
    return texts


def blank(column: Column) -> Array:
    """Return bool (samples): texts without any character that is no white space; found once for all that ask."""
    if "_blank" not in column.__dict__:
        column.__dict__["_blank"] = _blank(column)
    return column.__dict__["_blank"].copy()  # type: ignore[no-any-return]


def _blank(column: Column) -> Array:
    lengths = np.zeros(0, np.int64) if column.lengths is None else column.lengths
    found: Array = lengths == 0
    firsts = column.values[column.starts[~found]]
    doubtful = np.flatnonzero(~found)[(firsts <= ord(" ")) | np.isin(firsts, LEADS)]
    found[doubtful] = [not text_at(column, i).strip() for i in doubtful.tolist()]
    return found


def _untidy(octets: Array, starts: Array, stops: Array) -> Array:
    """Return bytes of texts that begin or end with a space, hold two in a row, or a control character: int64."""
    if not len(octets):
        return np.zeros(0, np.int64)
    space = octets <= ord(" ")
    filled = stops > starts
    first, last = starts[filled], stops[filled] - 1
    found = [first[space[first]], last[space[last]]]
    pairs = space[1:] & space[:-1]  # of two texts beside one another, too: both are then untidy at their edge
    if pairs.any():
        found.append(np.flatnonzero(pairs) + 1)
    if octets.min() < ord(" "):
        found.append(np.flatnonzero(octets < ord(" ")))
    return np.concatenate(found)


def _other_spaces(octets: Array, data: bytes) -> Array:
    """Return at which bytes white space that is not ASCII begins: int64."""
    if data.isascii():
        return np.zeros(0, np.int64)
    found = []
    for byte in _RARE_LEADS:
        begins = places(octets, data, byte)
        if len(begins):
            narrow, wide = (_code(octets, begins, size) for size in (2, 3))
            found.append(begins[np.isin(narrow, _TWO) | np.isin(wide, _THREE)])
    last = octets == 0x80  # U+3000 ends in two of these, and hardly anything else does
    pairs = last[2:] & last[1:-1]
    if pairs.any():
        begins = np.flatnonzero(pairs)
        found.append(begins[_code(octets, begins, 3) == _IDEOGRAPHIC])
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _code(octets: Array, places: Array, size: int) -> Array:
    """Return the `size` bytes at each place as one number; what lies behind the end counts as 0."""
    code = np.zeros(len(places), np.int64)
    for offset in range(size):
        inside = np.minimum(places + offset, len(octets) - 1)
        code = code << 8 | np.where(places + offset < len(octets), octets[inside], 0)
    return code
