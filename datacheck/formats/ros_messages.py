"""Numbers of ROS messages, read with the definition that the recording stores beside them.

A definition is interpreted, never compiled. Only numbers are kept: raw bytes of each field, one
after the other. Text is passed over, and of a list of bytes (a picture, a cloud) only the length is
kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.limits import DEPTH, FIELDS
from datacheck.model.sample import Array

_DEFINITION = 1 << 20  # characters
_PRIMITIVES = {
    "bool": "?",
    "byte": "u1",
    "char": "u1",
    "int8": "i1",
    "uint8": "u1",
    "int16": "<i2",
    "uint16": "<u2",
    "int32": "<i4",
    "uint32": "<u4",
    "int64": "<i8",
    "uint64": "<u8",
    "float32": "<f4",
    "float64": "<f8",
}
_TIMES = {
    "time": "<u4",
    "duration": "<i4",
    "builtin_interfaces/Time": "<i4",
    "builtin_interfaces/Duration": "<i4",
}
# Python refuses to convert thousands of digits.
_FIELD = re.compile(r"([\w/]+)(?:<=\d+)?(?:\[(<=)?(\d{0,20})\])?\s+(\w+)\s*(=?)")
_SEPARATOR = re.compile(r"^=+\s*\nMSG:[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_BYTES = frozenset({"byte", "char", "uint8", "int8"})


class Message:
    """The bytes of one message and the place of the next value.

    Args:
        data: the bytes.
        cdr: whether values are aligned (CDR, ROS 2); ROS 1 packs them.
    """

    __slots__ = ("_cdr", "data", "place")

    def __init__(self, data: bytes, *, cdr: bool) -> None:
        self._cdr = cdr
        self.data = data
        self.place = 0
        if cdr:
            if data[:2] != b"\0\1":
                msg = f"CDR of kind {data[:2].hex() or 'none'}; plain little-endian CDR (0001) is read"
                raise FormatError(msg)
            self.data = data[4:]

    def take(self, count: int, size: int) -> bytes:
        """Return `count` values of `size` bytes each."""
        if self._cdr and count:
            self.place += -self.place % size
        start, self.place = self.place, self.place + count * size
        if self.place > len(self.data):
            msg = f"{count:,} values of {size} bytes from byte {start:,} of {len(self.data):,}"
            raise FormatError(msg)
        return self.data[start : self.place]

    def count(self) -> int:
        """Return the length of a list: at most one entry for each byte of the message."""
        count = int.from_bytes(self.take(1, 4), "little")
        if count > len(self.data) - self.place:
            msg = f"a list of {count:,} entries with {len(self.data) - self.place:,} bytes left"
            raise FormatError(msg)
        return count


@dataclass(eq=False)
class Leaf:
    """All values of one field, in the order of the messages.

    Args:
        dtype: type of the values.
        item: shape of one value.
        is_list: whether the count of values differs between messages.
        counts: the count of values of each message, for a list.
    """

    dtype: np.dtype[np.void] | np.dtype[np.generic]
    item: tuple[int, ...] = ()
    is_list: bool = False
    data: bytearray = field(default_factory=bytearray)
    counts: list[int] = field(default_factory=list)

    def values(self, order: Array) -> tuple[Array, Array | None]:
        """Return the values in an order of the messages, and their counts where they differ.

        Shapes:
            order: int64 (messages)
            values: any (messages, *item), (messages, count, *item), or (all values, *item) where
                the counts differ
            counts: int64 (messages)
        """
        flat = np.frombuffer(self.data, self.dtype).reshape(-1, *self.item)
        if flat.dtype.names is not None:
            flat = flat["s"] + flat["n"] * 1e-9
        if not self.is_list:
            return flat[order], None
        counts = np.asarray(self.counts, np.int64)
        if len(counts) and (counts == counts[0]).all():
            return flat.reshape(len(counts), counts[0], *self.item)[order], None
        rows = np.split(flat, np.cumsum(counts)[:-1])
        return np.concatenate([rows[place] for place in order]), counts[order]


_Step = Callable[[Message], None]


class Decoder:
    """Reads the messages of one type.

    Args:
        name: the type, ``sensor_msgs/msg/JointState``.
        definition: its definition and those of the types inside.
        cdr: whether the messages are CDR.

    Raises:
        FormatError: the definition is damaged, or has a type that is not read.
    """

    def __init__(self, name: str, definition: str, *, cdr: bool) -> None:
        if len(definition) > _DEFINITION:
            msg = (
                f"a definition of {len(definition):,} characters; at most {_DEFINITION:,} are read"
            )
            raise FormatError(msg)
        self._cdr = cdr
        self.leaves: dict[str, Leaf] = {}
        self.passed: list[str] = []
        self._fields = 0
        first, *rest = _SEPARATOR.split(definition)
        self._types = {_short(name): first}
        self._types |= {_short(n): text for n, text in zip(rest[::2], rest[1::2], strict=True)}
        self._steps = self._compile(_short(name), "", is_list=False, depth=0)

    def add(self, data: bytes) -> None:
        """Read one message.

        Raises:
            FormatError: the bytes do not fit the definition.
        """
        message = Message(data, cdr=self._cdr)
        lists = [leaf for leaf in self.leaves.values() if leaf.is_list]
        before = [len(leaf.data) for leaf in lists]
        for step in self._steps:
            step(message)
        if not self._cdr and message.place != len(message.data):
            msg = f"{len(message.data) - message.place:,} bytes are left after the last field"
            raise FormatError(msg)
        for leaf, start in zip(lists, before, strict=True):
            size = leaf.dtype.itemsize * int(np.prod(leaf.item, dtype=np.int64))
            leaf.counts.append((len(leaf.data) - start) // size)

    def _compile(self, name: str, prefix: str, *, is_list: bool, depth: int) -> list[_Step]:
        if name not in self._types:
            msg = f"the type {name[:200]} is not defined"
            raise FormatError(msg)
        if depth > DEPTH // 2:
            msg = f"the type {name[:200]} lies more than {DEPTH // 2} types deep"
            raise FormatError(msg)
        steps: list[_Step] = []
        for line in self._types[name].splitlines():
            text = line.partition("#")[0].strip()
            match = _FIELD.match(text)
            if match is None and text:
                msg = f"{name[:200]}: {text[:80]!r} is no field"
                raise FormatError(msg)
            if match is None or match[5]:  # an empty line or a constant
                continue
            self._fields += 1
            if self._fields > FIELDS:
                msg = f"more than {FIELDS:,} fields"
                raise FormatError(msg)
            open_end = match[3] is not None and (match[3] == "" or match[2] is not None)
            fixed = None if match[3] is None or open_end else int(match[3])
            if fixed == 0:
                continue
            full = f"{prefix}{match[4]}"
            steps += self._step(match[1], full, (fixed, open_end), (name, is_list, depth))
        return steps

    def _step(
        self, kind: str, full: str, size: tuple[int | None, bool], place: tuple[str, bool, int]
    ) -> list[_Step]:
        """Return the step that reads a field; none where the field takes no bytes."""
        fixed, open_end = size
        outer, is_list, depth = place
        if kind in {"string", "wstring"}:
            return [self._text(kind, full, fixed, open_end=open_end)]
        kind = kind if kind in _PRIMITIVES else _resolved(kind, outer)
        if kind in _TIMES:
            pair = np.dtype([("s", _TIMES[kind]), ("n", "<u4")])
            return [self._numbers(full, pair, 4, (fixed, open_end, is_list))]
        if kind in _PRIMITIVES:
            if kind in _BYTES and (open_end or (fixed or 0) > DEPTH):
                return [self._sizes(full, fixed, is_list=is_list)]
            dtype = np.dtype(_PRIMITIVES[kind])
            return [self._numbers(full, dtype, dtype.itemsize, (fixed, open_end, is_list))]
        return self._nested(kind, full, size, (is_list, depth))

    def _nested(
        self, kind: str, full: str, size: tuple[int | None, bool], place: tuple[bool, int]
    ) -> list[_Step]:
        fixed, open_end = size
        is_list, depth = place
        many = open_end or fixed is not None
        inner = self._compile(kind, f"{full}/", is_list=is_list or many, depth=depth + 1)
        if not inner and many:
            msg = f"{full}: a list of {kind}, which has no fields"
            raise FormatError(msg)
        if (
            not inner
        ):  # one byte in ROS 2, none in ROS 1, where a list of its parents would only take time
            return [self._passed_byte] if self._cdr else []

        def step(message: Message) -> None:
            for _ in range(message.count() if open_end else fixed or 1):
                for one in inner:
                    one(message)

        return [step]

    @staticmethod
    def _passed_byte(message: Message) -> None:
        message.take(1, 1)

    def _leaf(self, name: str, leaf: Leaf) -> Leaf:
        if name in self.leaves:
            msg = f"two fields {name[:200]}"
            raise FormatError(msg)
        self.leaves[name] = leaf
        return leaf

    def _numbers(
        self, name: str, dtype: np.dtype[np.generic], unit: int, size: tuple[int | None, bool, bool]
    ) -> _Step:
        fixed, open_end, is_list = size
        item = () if fixed is None else (fixed,)
        data = self._leaf(name, Leaf(dtype, item, is_list or open_end)).data
        parts = dtype.itemsize // unit

        def step(message: Message) -> None:
            nonlocal data
            data += message.take((message.count() if open_end else fixed or 1) * parts, unit)

        return step

    def _sizes(self, name: str, fixed: int | None, *, is_list: bool) -> _Step:
        data = self._leaf(f"{name}.size", Leaf(np.dtype("<i8"), (), is_list)).data
        self.passed.append(name)

        def step(message: Message) -> None:
            nonlocal data
            count = message.count() if fixed is None else fixed
            message.take(count, 1)
            data += count.to_bytes(8, "little")

        return step

    def _text(self, kind: str, name: str, fixed: int | None, *, open_end: bool) -> _Step:
        if kind == "wstring":
            msg = f"{name}: wide text (wstring) is not read"
            raise FormatError(msg)
        self.passed.append(name)

        def step(message: Message) -> None:
            for _ in range(message.count() if open_end else fixed or 1):
                message.take(message.count(), 1)

        return step


def _short(name: str) -> str:
    """Return ``sensor_msgs/JointState`` for ``sensor_msgs/msg/JointState``."""
    return name.replace("/msg/", "/")


def _resolved(kind: str, outer: str) -> str:
    """Return the full name of a type that a definition in the package of `outer` names."""
    if kind in {"string", "wstring", *_TIMES} or "/" in kind:
        return _short(kind)
    return "std_msgs/Header" if kind == "Header" else f"{outer.rpartition('/')[0]}/{kind}"
