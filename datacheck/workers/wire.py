"""The shape of what a function answers from a child process, held against each answer.

A parser that a hostile file has taken over may answer anything. Its answer is looked at once, where
it arrives, so that nothing behind that point has to doubt it.
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

# A type or a union of types; [shape] for a list; (shape, ...) for a list of so many values; {"key":
# shape} for a dict with these keys, {str: shape} or {text: shape} for one with any; or a function
# that tells whether a value has the shape.
# shape.
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
    """Declare what a function for `Child.run` returns.

    Args:
        shape: of its answers.
        fits: called with an answer of this shape and its task: whether it is one to that task.
        raises: kinds of errors that end the whole command. Of other kinds, only the item is lost.
        of_items: an item is enough for such an error. Else the task raises it without its items,
            too, or it says that a library is not installed which is not.
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
    """Hold an answer against what its function declares.

    Raises:
        Exception: it is no answer of that function to this task.
    """
    declared = getattr(function, "check_answer", None)
    if declared is not None:
        declared(answer, task)


def may_raise(function: Any, error: Exception) -> bool:
    """Tell whether a function declares that it raises errors of this kind."""
    return isinstance(error, getattr(function, "raises", ()))


def may_be_of_items(function: Any) -> bool:
    """Tell whether such an error may come from an item alone."""
    return bool(getattr(function, "of_items", False))


def text(value: Any) -> bool:
    """Tell whether a value is a text that every file can hold."""
    return isinstance(value, str) and (value.isascii() or bool(value.encode()))


def int64(value: Any) -> bool:
    """Tell whether a value is a whole number that a column can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def natural(value: Any) -> bool:
    """Tell whether a value is a count that a column can hold."""
    return int64(value) and value >= 0


def finite(value: Any) -> bool:
    """Tell whether a value is a number that a float64 can hold."""
    return isinstance(value, float | int) and not isinstance(value, bool) and isfinite(value)


def check(value: Any, shape: Shape, at: str = "the answer") -> None:
    """Hold a value against a shape.

    Raises:
        ValueError: it has another one.
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
        for one, part in zip(value, shape, strict=True):
            check(one, part, at)
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
    """Hold the values of a list against one shape: there may be a hundred thousand."""
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
_MIN_ROWS = 64  # rows
_LONGEST = 40  # letters of a dtype's name
FRAME = struct.Struct("<QQ")  # bytes of JSON, bytes of arrays


def encode(value: Json) -> list[bytes | memoryview]:
    """Return a frame in pieces: JSON with the arrays taken out, then their bytes.

    Notes:
        The first line names the key that stands for an array: one that no dict of `value` has.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    mark = "$array"

    def default(item: object) -> object:
        if isinstance(item, np.ndarray) and not item.dtype.hasobject:
            same = _is_constant(item)
            arrays.append(np.ascontiguousarray(item[:1] if same else item))
            said = {mark: len(arrays) - 1, "dtype": item.dtype.str, "shape": list(item.shape)}
            return said | {"alike": True} if same else said
        if isinstance(item, np.generic):
            return item.item()
        msg = f"{type(item).__name__} cannot be sent between processes"
        raise TypeError(msg)

    text = json.dumps(value, default=default)
    while text.count(f'"{mark}"') != len(arrays):  # names come from the data, too
        mark += "$"
        arrays.clear()
        text = json.dumps(value, default=default)
    head = f"{mark}\n{text}".encode()
    body = [array.reshape(-1).view(np.uint8).data for array in arrays if array.nbytes]
    return [FRAME.pack(len(head), sum(map(len, body))), head, *body]


def _is_constant(array: np.ndarray[Any, Any]) -> bool:
    """Tell whether all of many rows are the same, bit by bit."""
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
    """A frame that takes more memory than it may."""


class FrameLimits(NamedTuple):
    """How large a frame may be.

    Args:
        text: bytes of JSON.
        values: in the JSON: each takes up to 72 bytes of memory.
        arrays: bytes of arrays.
        alike: bytes of all arrays of which one row is sent for all, were each row sent.
    """

    text: int
    values: int
    arrays: int
    alike: int

    def check_head(self, frame: bytes | bytearray) -> None:
        """Refuse a frame by its first bytes.

        Raises:
            TooLargeError: it says that it has more bytes.
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
            TooLargeError: it has more commas and brackets than that.
        """
        values = sum(frame.count(sign, FRAME.size, end) for sign in b",[{")
        if values > self.values:
            msg = f"about {values:,} values; at most {self.values:,} are read"
            raise TooLargeError(msg)

    def check_alike(self, nbytes: int) -> None:
        """Refuse arrays of which one row stands for all, and that have so many bytes together.

        Raises:
            TooLargeError: they are too many.
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
        frame: of another process, or of a file.
        most: rows that an array may have of which one is sent for all; None: any number.
        room: how large the frame may be.

    Raises:
        ValueError: an array does not lie within the frame, has more such rows, or a dtype that
            `encode` never names.
        TooLargeError: the frame has no room.
        Exception: others, of a frame that `encode` has not made.

    Notes:
        Arrays are copies, so that the frame can go. One of many rows that are all the same holds
        one of them and cannot
        be written to: of a million lines most columns say nothing, and eight bytes each of that add
            up.
    """
    room.check_head(frame)
    head_size, size = FRAME.unpack_from(frame)
    room.check_text(frame, FRAME.size + head_size)
    if head_size + size != len(frame) - FRAME.size:
        msg = f"a frame of {len(frame):,} bytes that says {head_size:,} and {size:,}"
        raise ValueError(msg)
    view = memoryview(frame)[FRAME.size :]
    place, spread = head_size, 0
    mark, _, text = str(view[:head_size], "utf-8").partition("\n")

    def hook(item: dict[str, Any]) -> Any:
        nonlocal place, spread
        if mark not in item:
            return item
        dtype = _dtype(item["dtype"])
        alike = "alike" in item
        shape = [1, *item["shape"][1:]] if alike else item["shape"]
        count = prod(shape)
        if min(item["shape"], default=0) < 0 or count * dtype.itemsize > len(view) - place:
            msg = f"an array of {item['shape']} {dtype.str} in {len(view) - place:,} bytes"
            raise ValueError(msg)
        if alike and most is not None and item["shape"][0] > most:
            msg = f"{item['shape'][0]:,} rows that are alike; at most {most:,} are read"
            raise ValueError(msg)
        if alike:
            spread += item["shape"][0] * max(1, count * dtype.itemsize)
            room.check_alike(spread)
        array = np.frombuffer(view, dtype=dtype, count=count, offset=place).reshape(shape).copy()
        place += count * dtype.itemsize
        return np.broadcast_to(array, item["shape"]) if alike else array

    return json.loads(text, object_hook=hook)


def _dtype(name: Any) -> np.dtype[Any]:
    """Return the dtype that `encode` calls so; NumPy knows many other names, some of which take any memory."""
    dtype = np.dtype(str(name)[:_LONGEST])
    if dtype.str != name:
        msg = f"an array of dtype {dtype.str}"
        raise ValueError(msg)
    return dtype
