"""Byte patterns in the texts of a block: one search of the whole buffer, samples only where something was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_FEW = 500  # bytes that are sooner found one by one


def places(octets: Array, data: bytes, byte: int) -> Array:
    """Return where a byte stands: int64, ascending; of one that is rare no mask is made.

    Args:
        octets, data: the bytes, twice.
        byte: which.
    """
    found: list[int] = []
    sign = bytes([byte])
    at = data.find(sign)
    while at >= 0 and len(found) < _FEW:
        found.append(at)
        at = data.find(sign, at + 1)
    return np.array(found, np.int64) if at < 0 else np.flatnonzero(octets == byte)


def beginning(octets: Array, data: bytes, needles: Sequence[bytes]) -> Array:
    """Return where one of several needles of three bytes or more may begin: int64, ascending.

    Args:
        octets, data: the bytes of all texts, twice.
        needles: what is looked for; only their first three bytes are compared.

    Notes:
        A byte that no text holds costs a look at many GB/s, a frequent one a comparison per byte; `bytes.find` of a
        short needle takes several times as long in text that is not ASCII.
    """
    found = []
    held = dict.fromkeys(b"".join(needle[:3] for needle in needles), False)
    held |= {byte: byte in data for byte in {needle[0] for needle in needles}}
    held |= {byte: byte in data for needle in needles if held[needle[0]] for byte in needle[1:3]}
    needles = [needle for needle in needles if all(held[byte] for byte in needle[:3])]
    for byte in sorted({needle[0] for needle in needles}):
        mine = [needle for needle in needles if needle[0] == byte]
        if len({needle[1:3] for needle in mine}) == 1:  # no list is made of all that begin alike
            both = (octets[1:-1] == mine[0][1]) & (octets[2:] == mine[0][2])
            starts = np.flatnonzero(both) if both.any() else np.zeros(0, np.int64)
            found.append(starts[octets[starts] == byte])
            continue
        starts = places(octets, data, byte)
        starts = starts[: np.searchsorted(starts, len(octets) - 2)]
        second, third = (np.zeros(256, bool) for _ in range(2))
        second[[needle[1] for needle in mine]] = third[[needle[2] for needle in mine]] = True
        starts = starts[second[octets[starts + 1]]]  # few are left: half of all Chinese characters share a first byte
        starts = starts[third[octets[starts + 2]]]
        heads = {needle[:3] for needle in mine}
        found.append(starts[[data[at : at + 3] in heads for at in starts.tolist()]] if len(starts) else starts)
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)


def counts(octets: Array, data: bytes, stops: Array, needles: Sequence[bytes]) -> Array:
    """Return how often each needle stands in each text: int64 (samples, needles).

    Args:
        octets, data: the bytes of all texts, twice.
        stops: where each text ends.
        needles: of three bytes or more.
    """
    found = np.zeros((len(stops), len(needles)), np.int64)
    begins = beginning(octets, data, needles)
    for at, owner in zip(begins.tolist(), np.searchsorted(stops, begins, side="right").tolist(), strict=True):
        for number, needle in enumerate(needles):
            if data.startswith(needle, at, stops[owner]):
                found[owner, number] += 1
    return found
