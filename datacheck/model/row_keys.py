"""Keys of lines, rows and episodes: a file path and a 12-digit number, formatted on demand."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, overload

import numpy as np

from datacheck.errors import FormatError

Array = np.ndarray[Any, Any]

_DIGITS = 12
_MOST = 10**_DIGITS
_FOUR = 4  # digits per table lookup


class NumberedKeys(Sequence[str]):
    """A compact sequence of keys such as ``sft.jsonl:000000000012``.

    A million keys take 12 MB; their texts would take 100 MB.

    Shapes:
        rows: int32 (keys), indices into `heads`
        numbers: int64 (keys), at least 0 and below 10**12

    Args:
        heads: the prefixes before the numbers, with the colon; no head is a prefix of another.
    """

    def __init__(self, heads: Sequence[str], rows: Array, numbers: Array) -> None:
        self.heads = list(heads)
        self.rows = rows
        self.numbers = numbers

    @staticmethod
    def of(path: str, numbers: Sequence[int] | Array) -> Sequence[str]:
        """Return the keys of numbered samples of one file."""
        # `asarray` of a range converts number by number.
        if isinstance(numbers, range):
            number_array = np.arange(numbers.start, numbers.stop, numbers.step, dtype=np.int64)
        else:
            number_array = np.asarray(numbers, dtype=np.int64)
        # No file has that many samples, but every number must have a key.
        if len(number_array) and (number_array.min() < 0 or number_array.max() >= _MOST):
            return [f"{path}:{number:012d}" for number in number_array.tolist()]
        return NumberedKeys([f"{path}:"], np.zeros(len(number_array), np.int32), number_array)

    @staticmethod
    def joined(parts: Sequence[Sequence[str]]) -> Sequence[str]:
        """Return keys concatenated; as a list where some have another form."""
        any_numbered = any(isinstance(part, NumberedKeys) for part in parts)
        numbered_parts = [
            numbered for part in parts if any_numbered and (numbered := _numbered(part)) is not None
        ]
        heads = sorted({head for part in numbered_parts for head in part.heads})
        if (
            not numbered_parts
            or len(numbered_parts) < len(parts)
            or any(b.startswith(a) for a, b in pairwise(heads))
        ):
            return [key for part in parts for key in part]
        places = {head: place for place, head in enumerate(heads)}
        rows = [
            np.array([places[head] for head in part.heads], np.int32)[part.rows]
            for part in numbered_parts
        ]
        return NumberedKeys(
            heads, np.concatenate(rows), np.concatenate([part.numbers for part in numbered_parts])
        )

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> NumberedKeys: ...
    def __getitem__(self, place: int | slice) -> str | NumberedKeys:
        """Return one key, or the keys of a slice."""
        if isinstance(place, slice):
            return NumberedKeys(self.heads, self.rows[place], self.numbers[place])
        return f"{self.heads[self.rows[place]]}{self.numbers[place]:012d}"

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        heads = self.heads
        return (
            heads[row] + str(number).zfill(_DIGITS)  # three times as fast as a format string
            for row, number in zip(self.rows.tolist(), self.numbers.tolist(), strict=True)
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(map(operator.eq, self, other))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def take(self, index: Array) -> NumberedKeys:
        """Return the keys at `index`."""
        return NumberedKeys(self.heads, self.rows[index], self.numbers[index])

    def order(self) -> Array:
        """Return int64 (keys): the stable sort order of the keys by their bytes."""
        return np.lexsort([self.numbers, self._ranks()])

    def in_order(self) -> bool:
        """Return whether the keys are sorted."""
        ranks = self._ranks()
        is_greater = ranks[1:] > ranks[:-1]
        is_equal = ranks[1:] == ranks[:-1]
        return bool((is_greater | (is_equal & (self.numbers[1:] >= self.numbers[:-1]))).all())

    def octets(self) -> tuple[Array, Array]:
        """Return the UTF-8 bytes of all keys concatenated, and the end of each key.

        Shapes:
            returns: uint8 (bytes); int64 (keys)
        """
        heads = [head.encode() for head in self.heads]
        stops = np.cumsum(np.array([len(head) + _DIGITS for head in heads], np.int64)[self.rows])
        octets = np.empty(int(stops[-1]) if len(stops) else 0, np.uint8)
        for place, head in enumerate(heads):
            head_rows = np.flatnonzero(self.rows == place)
            texts = np.empty((len(head_rows), len(head) + _DIGITS), np.uint8)
            texts[:, : len(head)] = np.frombuffer(head, np.uint8)
            rest = self.numbers[head_rows]
            for column in range(texts.shape[1], len(head), -_FOUR):
                rest, digits = np.divmod(rest, 10**_FOUR) if rest.any() else (rest, rest)
                texts[:, column - _FOUR : column] = _four_digits().take(digits, axis=0)
            if len(head_rows) == len(self):
                return texts.reshape(-1), stops
            octets[(stops[head_rows] - texts.shape[1])[:, None] + np.arange(texts.shape[1])] = texts
        return octets, stops

    def _ranks(self) -> Array:
        ranks = np.empty(len(self.heads), np.int32)
        ranks[sorted(range(len(self.heads)), key=self.heads.__getitem__)] = np.arange(
            len(self.heads)
        )
        return ranks[self.rows]


@cache
def _four_digits() -> Array:
    """Return the digits of all numbers below 10,000: uint8 (numbers, 4)."""
    return np.frombuffer(
        b"".join(b"%04d" % number for number in range(10**_FOUR)), np.uint8
    ).reshape(-1, _FOUR)


def _numbered(keys: Sequence[str]) -> NumberedKeys | None:
    """Return keys as NumberedKeys; None where some have another form (bad lines have text keys)."""
    if isinstance(keys, NumberedKeys):
        return keys
    places: dict[str, int] = {}
    rows = []
    numbers = []
    for key in keys:
        head = key[:-_DIGITS]
        digits = key[-_DIGITS:]
        if not (head.endswith(":") and digits.isascii() and digits.isdecimal()):
            return None
        rows.append(places.setdefault(head, len(places)))
        numbers.append(int(digits))
    return NumberedKeys(list(places), np.array(rows, np.int32), np.array(numbers, np.int64))


def keys_to_runs(keys: Sequence[str]) -> list[Any]:
    """Return keys as JSON: per run of consecutive numbers its head, first number and length.

    Notes:
        Keys are returned unchanged unless all are numbered. Tasks name the samples of whole files:
        a million texts would take 150 MB in each process.
    """
    numbered = _numbered(keys)
    if numbered is None or not len(numbered):
        return list(keys)
    cuts = np.flatnonzero((np.diff(numbered.rows) != 0) | (np.diff(numbered.numbers) != 1)) + 1
    starts = [0, *cuts.tolist()]
    heads = [numbered.heads[row] for row in numbered.rows[starts].tolist()]
    counts = np.diff([*starts, len(numbered)]).tolist()
    return [list(run) for run in zip(heads, numbered.numbers[starts].tolist(), counts, strict=True)]


def keys_from_runs(runs: Iterable[Any]) -> list[str]:
    """Return the keys that `keys_to_runs` encoded."""
    keys: list[str] = []
    for run in runs:
        if isinstance(run, str):
            keys.append(run)
        else:
            head, first_number, count = run
            keys += [
                head + str(number).zfill(_DIGITS)
                for number in range(first_number, first_number + count)
            ]
    return keys


def storable_keys(keys: Sequence[str]) -> Sequence[str]:
    """Return keys in `storable` form."""
    if isinstance(keys, NumberedKeys):
        return NumberedKeys(storable(keys.heads), keys.rows, keys.numbers)
    return storable(list(keys))


def storable(texts: list[str]) -> list[str]:
    """Return texts with lone surrogates escaped, so that every file format can store them.

    Names come from files, which may hold lone surrogates.
    """
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return [text.encode("utf-8", "backslashreplace").decode() for text in texts]
    return texts


def storable_names(names: Iterable[str]) -> dict[str, str]:
    """Return a map from the `storable` form of names inside a file to the names.

    Raises:
        FormatError: two names have the same form.
    """
    raw = list(names)
    raw_names = dict(zip(storable(raw), raw, strict=True))
    if len(raw_names) < len(set(raw)):
        duplicate = next(
            name
            for name, raw_name in zip(storable(raw), raw, strict=True)
            if raw_names[name] != raw_name
        )
        msg = f"two names in it read {duplicate} once what is no Unicode in them is escaped; rename one"
        raise FormatError(msg)
    return raw_names
