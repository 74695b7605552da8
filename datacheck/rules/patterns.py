"""Byte patterns in the texts of a block: one search of the whole buffer, samples only where something was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def beginning(octets: Array, needles: Sequence[bytes]) -> Array:
    """Return where one of several needles of three bytes or more may begin: int64, ascending.

    Notes:
        Only their first three bytes are compared. One comparison per byte and different first byte, which should be
        rare in text; `bytes.find` of a short needle takes several times as long.
    """
    known = np.array(sorted({int.from_bytes(needle[:3], "big") for needle in needles}))
    first = np.zeros(max(0, len(octets) - 2), bool)
    for byte in sorted({needle[0] for needle in needles}):
        first |= octets[: len(first)] == byte
    places = np.flatnonzero(first)
    codes = octets[places].astype(np.int64) << 16 | octets[places + 1].astype(np.int64) << 8 | octets[places + 2]
    found: Array = places[np.isin(codes, known)]
    return found


def counts(octets: Array, data: bytes, stops: Array, needles: Sequence[bytes]) -> Array:
    """Return how often each needle stands in each text: int64 (samples, needles).

    Args:
        octets, data: the bytes of all texts, twice.
        stops: where each text ends.
        needles: of three bytes or more; one across the border of two texts counts for the first.
    """
    found = np.zeros((len(stops), len(needles)), np.int64)
    begins = beginning(octets, needles)
    for at, owner in zip(begins.tolist(), np.searchsorted(stops, begins, side="right").tolist(), strict=True):
        for number, needle in enumerate(needles):
            if data.startswith(needle, at):
                found[owner, number] += 1
    return found
