"""Byte patterns in the texts of a block: one search of the whole buffer, samples only where something was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def beginning(octets: Array, data: bytes, needles: Sequence[bytes]) -> Array:
    """Return where one of several needles of three bytes or more may begin: int64, ascending.

    Args:
        octets, data: the bytes of all texts, twice.
        needles: what is looked for; only their first three bytes are compared.

    Notes:
        A first byte that no text holds costs a look at many GB/s, another one comparison per byte; `bytes.find` of a
        short needle takes several times as long in text that is not ASCII.
    """
    found = []
    for byte in sorted({needle[0] for needle in needles}):
        if byte not in data:
            continue
        mine = [needle for needle in needles if needle[0] == byte]
        if len({needle[1:3] for needle in mine}) == 1:  # no list is made of all that begin alike
            both = (octets[1:-1] == mine[0][1]) & (octets[2:] == mine[0][2])
            places = np.flatnonzero(both) if both.any() else np.zeros(0, np.int64)
            found.append(places[octets[places] == byte])
            continue
        places = np.flatnonzero(octets[:-2] == byte)
        second, third = (np.zeros(256, bool) for _ in range(2))
        second[[needle[1] for needle in mine]] = third[[needle[2] for needle in mine]] = True
        places = places[second[octets[places + 1]]]  # few are left: half of all Chinese characters share a first byte
        places = places[third[octets[places + 2]]]
        heads = {needle[:3] for needle in mine}
        found.append(places[[data[at : at + 3] in heads for at in places.tolist()]] if len(places) else places)
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
