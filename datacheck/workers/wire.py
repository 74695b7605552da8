"""Wire format between processes: frames of JSON and arrays, and the declared shape of answers.

A parser that a hostile file has compromised may answer anything. The parent checks an answer's
shape once, on arrival, so that later code can trust it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from math import isfinite, prod
from types import UnionType
from typing import Any, NamedTuple, TypeVar

import numpy as np

Function = TypeVar("Function", bound=Callable[..., Any])

# A type or a union of types; [shape]: a list; (shape, ...): a list of exactly these values; {"key":
# shape}: a dict with at least these keys; {str: shape} or {text: shape}: a dict with any keys; or a
# function that returns whether a value has the shape.
Shape = Any


def _always(answer: Any, task: Any) -> bool:
    del answer, task
    return True


def answers(
    shape: Shape,
    fits: Callable[[Any, Any], bool] = _always,
    *,
    raises: tuple[type[Exception], ...] = (),
    of_items: bool = False,
) -> Callable[[Function], Function]:
    """Declare the answers of a function for `Child.run`.

    Args:
        shape: of its answers.
        fits: called with an answer of this shape and its task; returns whether they match.
        raises: kinds of errors that end the whole command. After other kinds, only the item is
            lost.
        of_items: whether an item alone may cause such an error. Otherwise the parent accepts the
            error only if the task also raises it without its items, or if the library that it
            reports as missing is missing.
    """

    def check_answer(answer: Any, task: Any) -> None:
        check(answer, shape)
        _require(fits(answer, task), "the answer")

    def declared(function: Function) -> Function:
        function.check_answer = check_answer  # type: ignore[attr-defined]
        function.raises, function.of_items = raises, of_items  # type: ignore[attr-defined]
        return function

    return declared


def check_answer(function: Any, answer: Any, task: Any) -> None:
    """Check an answer against its function's declaration.

    Raises:
        Exception: the answer does not match.
    """
    declared = getattr(function, "check_answer", None)
    if declared is not None:
        declared(answer, task)


def may_raise(function: Any, error: Exception) -> bool:
    """Return whether a function declares this kind of error."""
    return isinstance(error, getattr(function, "raises", ()))


def may_be_of_items(function: Any) -> bool:
    """Return whether an item alone may cause the declared errors."""
    return bool(getattr(function, "of_items", False))


def text(value: Any) -> bool:
    """Return whether a value is a text that UTF-8 can encode; it raises on lone surrogates."""
    return isinstance(value, str) and (value.isascii() or bool(value.encode()))


def int64(value: Any) -> bool:
    """Return whether a value is an integer in the range of int64."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def natural(value: Any) -> bool:
    """Return whether a value is a count in the range of int64."""
    return int64(value) and value >= 0


def finite(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, float | int) and not isinstance(value, bool) and isfinite(value)


def check(value: Any, shape: Shape, at: str = "the answer") -> None:
    """Check a value against a shape.

    Raises:
        ValueError: the value has another shape.
    """
    if isinstance(shape, type | UnionType):
        _require(
            isinstance(value, shape) and (not isinstance(value, bool) or shape in {bool, object}),
            at,
        )
    elif isinstance(shape, list):
        _require(isinstance(value, list), at)
        _check_each(value, shape[0], at)
    elif isinstance(shape, tuple):
        _require(isinstance(value, list) and len(value) == len(shape), at)
        for element, part in zip(value, shape, strict=True):
            check(element, part, at)
    elif isinstance(shape, dict):
        any_key = next((key for key in shape if not isinstance(key, str)), None)
        _require(
            isinstance(value, dict) and (any_key is not None or shape.keys() <= value.keys()), at
        )
        for key in value if any_key is not None else shape:
            if any_key is not None:
                check(key, any_key, at)
            check(value[key], shape[key if any_key is None else any_key], str(key))
    else:
        _require(shape(value), at)


def _check_each(values: list[Any], shape: Shape, at: str) -> None:
    """Check the values of a list against one shape, by columns: lists may be very long."""
    if isinstance(shape, tuple):
        _require(all(isinstance(value, list) and len(value) == len(shape) for value in values), at)
        for column, part in zip(zip(*values, strict=True), shape, strict=bool(values)):
            _check_each(list(column), part, at)
    elif isinstance(shape, type | UnionType | list | dict):
        for value in values:
            check(value, shape, at)
    else:
        _require(all(map(shape, values)), at)


def _require(true: bool, at: str) -> None:  # noqa: FBT001
    if not true:
        msg = f"{at} has another shape"
        raise ValueError(msg)


Json = Any
_MIN_ROWS = 64  # arrays with fewer rows are sent whole
_LONGEST = 40  # characters of a dtype's name
FRAME = struct.Struct("<QQ")  # bytes of JSON, bytes of arrays


def encode(value: Json) -> list[bytes | memoryview]:
    """Return a frame in pieces: JSON with the arrays taken out, then the bytes of the arrays.

    Notes:
        The first line names the key that marks an array; no dict of `value` has that key.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    mark = "$array"

    def default(item: object) -> object:
        if isinstance(item, np.ndarray) and not item.dtype.hasobject:
            constant = _is_constant(item)
            arrays.append(np.ascontiguousarray(item[:1] if constant else item))
            placeholder = {
                mark: len(arrays) - 1,
                "dtype": item.dtype.str,
                "shape": list(item.shape),
            }
            return placeholder | {"alike": True} if constant else placeholder
        if isinstance(item, np.generic):
            return item.item()
        msg = f"{type(item).__name__} cannot be sent between processes"
        raise TypeError(msg)

    text = json.dumps(value, default=default)
    while text.count(f'"{mark}"') != len(arrays):  # a name from the data may equal the mark
        mark += "$"
        arrays.clear()
        text = json.dumps(value, default=default)
    head = f"{mark}\n{text}".encode()
    body = [array.reshape(-1).view(np.uint8).data for array in arrays if array.nbytes]
    return [FRAME.pack(len(head), sum(map(len, body))), head, *body]


def _is_constant(array: np.ndarray[Any, Any]) -> bool:
    """Return whether an array has many rows that are all bitwise equal."""
    if (
        array.ndim == 0
        or len(array) < _MIN_ROWS
        or array.dtype.kind not in "biuf"
        or not array[0].size
    ):
        return False
    rows = (
        array.view(f"u{array.itemsize}")
        if array.dtype.kind == "f" and array.itemsize <= 8
        else array
    )
    return bool((rows[:_MIN_ROWS] == rows[0]).all() and (rows == rows[0]).all())


class TooLargeError(ValueError):
    """A frame exceeds its size limits."""


class FrameLimits(NamedTuple):
    """Size limits of a frame.

    Args:
        text: bytes of JSON.
        values: values in the JSON; each takes up to 72 bytes of memory.
        arrays: bytes of arrays.
        alike: expanded bytes of all constant arrays, which are sent as one row.
    """

    text: int
    values: int
    arrays: int
    alike: int

    def check_head(self, frame: bytes | bytearray) -> None:
        """Refuse a frame by the sizes in its first bytes.

        Raises:
            TooLargeError: a size exceeds its limit.
        """
        for size, most, what in zip(
            FRAME.unpack_from(frame), (self.text, self.arrays), ("text", "arrays"), strict=True
        ):
            if size > most:
                msg = f"{size:,} bytes of {what}; at most {most:,} are read"
                raise TooLargeError(msg)

    def check_text(self, frame: bytes | bytearray, end: int) -> None:
        """Refuse a frame whose JSON, which ends at `end`, has too many values.

        Raises:
            TooLargeError: the JSON has more commas and opening brackets than the limit.
        """
        values = sum(frame.count(sign, FRAME.size, end) for sign in b",[{")
        if values > self.values:
            msg = f"about {values:,} values; at most {self.values:,} are read"
            raise TooLargeError(msg)

    def check_alike(self, nbytes: int) -> None:
        """Refuse constant arrays that have `nbytes` expanded bytes together.

        Raises:
            TooLargeError: these are too many bytes.
        """
        if nbytes > self.alike:
            msg = (
                f"{nbytes:,} bytes of arrays whose rows are alike; at most {self.alike:,} are read"
            )
            raise TooLargeError(msg)


UNLIMITED = FrameLimits(2**63, 2**63, 2**63, 2**200)


def decode(
    frame: bytes | bytearray, most: int | None = None, room: FrameLimits = UNLIMITED
) -> Json:
    """Return the value of a frame made by `encode`.

    Args:
        frame: from another process, or from a file.
        most: maximum number of rows of a constant array; None: any number.
        room: size limits of the frame.

    Raises:
        ValueError: an array does not lie within the frame, is constant with too many rows, or has a
            dtype that `encode` never writes.
        TooLargeError: the frame exceeds its size limits.
        Exception: other kinds, for a frame that `encode` did not make.

    Notes:
        Arrays are copies, so that the frame can be freed. A constant array holds one row and is
        read-only: most columns of a million lines are constant, and eight bytes per value add up.
    """
    room.check_head(frame)
    head_size, size = FRAME.unpack_from(frame)
    room.check_text(frame, FRAME.size + head_size)
    if head_size + size != len(frame) - FRAME.size:
        msg = f"a frame of {len(frame):,} bytes that says {head_size:,} and {size:,}"
        raise ValueError(msg)
    view = memoryview(frame)[FRAME.size :]
    place, spread = head_size, 0
    line = frame.find(b"\n", FRAME.size, FRAME.size + head_size) - FRAME.size
    # ASCII, as `encode` writes: one other character would let each take four bytes of memory.
    mark, text = str(view[: max(line, 0)], "ascii"), str(view[line + 1 : head_size], "ascii")

    def hook(item: dict[str, Any]) -> Any:
        nonlocal place, spread
        if mark not in item:
            return item
        dtype = _dtype(item["dtype"])
        repeated = "alike" in item
        shape = [1, *item["shape"][1:]] if repeated else item["shape"]
        count = prod(shape)
        if min(item["shape"], default=0) < 0 or count * dtype.itemsize > len(view) - place:
            msg = f"an array of {item['shape']} {dtype.str} in {len(view) - place:,} bytes"
            raise ValueError(msg)
        if repeated and most is not None and item["shape"][0] > most:
            msg = f"{item['shape'][0]:,} rows that are alike; at most {most:,} are read"
            raise ValueError(msg)
        if repeated:
            spread += item["shape"][0] * max(1, count * dtype.itemsize)
            room.check_alike(spread)
        array = np.frombuffer(view, dtype=dtype, count=count, offset=place).reshape(shape).copy()
        place += count * dtype.itemsize
        return np.broadcast_to(array, item["shape"]) if repeated else array

    return json.loads(text, object_hook=hook)


def _dtype(name: Any) -> np.dtype[Any]:
    """Return a dtype by the name that `encode` writes.

    NumPy accepts many other names, some with items of arbitrary size.
    """
    dtype = np.dtype(str(name)[:_LONGEST])
    if dtype.str != name:
        msg = f"an array of dtype {dtype.str}"
        raise ValueError(msg)
    return dtype
