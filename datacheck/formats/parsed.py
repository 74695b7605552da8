"""Turn objects parsed from JSON, YAML and pickles into field values.

Numbers and rectangular lists of numbers become arrays.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from datacheck.errors import FormatError
from datacheck.formats.limits import DEPTH, strings
from datacheck.model.sample import Array

# Lists and mappings of a document: this many, and one for each 6 bytes, as pairs of small numbers have.
# Each takes 72 bytes and more. Brackets inside of texts count, too.
_CONTAINERS = 4_000_000
_CONTAINER_BYTES = 6
_JSON_DEPTH = 250  # orjson writes 254 levels at most


def from_json(item: Any) -> Any:
    """Return a parsed JSON value as a field value.

    Numbers and rectangular lists of numbers become arrays; other values stay as they are.
    """
    if isinstance(item, bool | int | float):
        return _number(item)
    if isinstance(item, list):
        array = _number_list(item)
        return item if array is None else array
    return item


def from_python(item: Any) -> Any:
    """Return an object of a pickle or YAML file as a field value; None stays None (absent).

    Raises:
        FormatError: it holds something that is neither number, text, list nor mapping.
    """
    if item is None or isinstance(item, np.ndarray):
        return item
    if isinstance(item, bool | int | float):
        return _number(item)
    if isinstance(item, bytes | bytearray):
        return np.frombuffer(bytes(item), dtype=np.uint8)
    if isinstance(item, list | tuple):
        array = _number_list(item)
        return to_json(item) if array is None else array
    return to_json(item)


def to_json(item: Any, depth: int = DEPTH) -> Any:
    """Return nested Python values as JSON values.

    Tuples and arrays become lists, and keys that are numbers become text.

    Raises:
        FormatError: too deep, or a value that JSON cannot express (NaN, bytes, sets, integers
            beyond 64 bits).
    """
    if depth == 0:
        msg = f"nested more than {DEPTH} deep"
        raise FormatError(msg)
    if item is None or isinstance(item, bool):
        return item
    if isinstance(item, str):
        return _text_of(item)
    if isinstance(item, np.ndarray | np.generic):
        array = np.asarray(item)
        return to_json(strings(array) if array.dtype.kind in "SU" else array.tolist(), depth - 1)
    if isinstance(item, list | tuple):
        return [to_json(value, depth - 1) for value in item]
    if isinstance(item, Mapping):
        return {_key(key): to_json(value, depth - 1) for key, value in item.items()}
    return _json_scalar(item)


def _text_of(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        msg = f"text with half of a surrogate pair at character {error.start}"
        raise FormatError(msg) from error
    return value


def _json_scalar(item: Any) -> Any:
    if isinstance(item, int) and -(1 << 63) <= item < 1 << 64:
        return item
    if isinstance(item, float) and math.isfinite(item):
        return item
    if isinstance(item, datetime.date):
        return item.isoformat()
    shown = repr(item)[:40] if isinstance(item, int | float) else type(item).__name__
    msg = (
        f"{shown} inside a list or mapping: only text, finite numbers, lists and mappings are "
        f"read there"
    )
    raise FormatError(msg)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return _text_of(key)
    if isinstance(key, bool | int | float | datetime.date):
        return str(key)
    msg = f"a mapping key of type {type(key).__name__}; text and numbers are read"
    raise FormatError(msg)


def _number(item: float) -> Array:
    array = np.asarray(item)
    if array.dtype.kind not in "biuf":
        msg = f"an integer of {int(item).bit_length()} bits; at most 64 are read"
        raise FormatError(msg)
    return array


def _number_list(items: Any) -> Array | None:
    """Return a rectangular list of numbers as an array, None for any other or empty list."""
    leaf = items
    while isinstance(leaf, list | tuple) and leaf:
        leaf = leaf[0]
    try:
        return None if isinstance(leaf, list | tuple) else rectangular(items)
    except FormatError:
        return None


def rectangular(items: list[Any] | tuple[Any, ...]) -> Array:
    """Return nested lists of numbers as an array.

    Raises:
        FormatError: the lists differ in length, or hold something other than numbers of at most 64
            bits.
    """
    msg = "a list that holds more than numbers where an array is declared"
    # Checked first: one long text would make NumPy give every number as much room.
    if not _only_numbers(items):
        raise FormatError(msg)
    try:
        array = np.array(items)
    except (ValueError, OverflowError) as error:
        uneven = "a list of lists of different lengths where an array is declared"
        raise FormatError(uneven) from error
    if array.dtype.kind not in "biuf":
        raise FormatError(msg)
    return array


def _only_numbers(items: list[Any] | tuple[Any, ...]) -> bool:
    if set(map(type, items)) <= {bool, int, float}:
        return True
    return all(
        _only_numbers(item) if isinstance(item, list | tuple) else _is_number(item)
        for item in items
    )


def _is_number(item: Any) -> bool:
    if isinstance(item, np.ndarray | np.generic):
        return item.dtype.kind in "biuf"
    return isinstance(item, bool | int | float)


def conflict(data: bytes) -> str:
    """Return where the markers of a git merge conflict are in a text, "" without a conflict."""
    start = 0 if data.startswith(b"<<<<<<< ") else data.find(b"\n<<<<<<< ") + 1
    middle = data.find(b"\n=======", start)
    end = data.find(b"\n>>>>>>> ", middle) + 1
    if middle < 0 or not end or not data.startswith(b"<<<<<<< ", start):
        return ""
    lines = [data.count(b"\n", 0, position) + 1 for position in (start, end)]
    return "lines {:,} to {:,} are a git merge conflict (<<<<<<<, =======, >>>>>>>): keep one side".format(
        *lines
    )


def parse_json(data: bytes, *, deep: bool = False) -> Any:
    """Return one JSON document, strict: UTF-8, no NaN, at most 250 levels.

    Args:
        data: the document.
        deep: whether deeper nesting is allowed, for a caller that serialises the value itself and
            finds out then.

    Raises:
        FormatError: not JSON; the message says where. Or it has too many lists and mappings.
    """
    brackets = data.count(b"[") + data.count(b"{")
    most = _CONTAINERS + len(data) // _CONTAINER_BYTES
    if brackets > most:
        msg = (
            f"{brackets:,} lists and mappings in {len(data):,} bytes of JSON; at most {most:,} are "
            f"read. Store so many short lists as an array (npy, Parquet)"
        )
        raise FormatError(msg)
    try:
        value = orjson.loads(data)
        if not deep and brackets > _JSON_DEPTH:
            # orjson reads deeper than it writes, and every value must be written again.
            orjson.dumps([[value]])
    except orjson.JSONDecodeError as error:
        msg = f"not JSON: {conflict(data) or error}"
        raise FormatError(msg) from error
    except TypeError as error:
        msg = f"not JSON that is read here: nested more than {_JSON_DEPTH} deep"
        raise FormatError(msg) from error
    return value
