"""The types of data in memory: Container (an open file), Block (stacked samples), Sample, Origin.

A Block holds samples of one signature: the same fields, each with one dtype and one item shape.
Only the first axis may differ from sample to sample. Samples of another signature go into another
Block, so no measurement ever receives a list of arrays of mixed shapes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from glob import escape
from math import prod
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import orjson

Array = np.ndarray[Any, Any]
Kind = Literal["array", "text", "json"]
# What a rule needs: headers; values; pixels and second reads as well.
Depth = Literal["structure", "numeric", "deep"]
DEPTHS: tuple[Depth, ...] = ("structure", "numeric", "deep")


class Origin(NamedTuple):
    """Where a sample comes from: file (relative to the root), path inside the file, rows."""

    file: str
    inner: str = ""
    rows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Origins(Sequence[Origin]):
    """The origins of numbered samples of one file, created on access."""

    file: str
    rows: Sequence[tuple[int, int]]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Origin: ...
    @overload
    def __getitem__(self, place: slice) -> Origins: ...
    def __getitem__(self, place: int | slice) -> Origin | Origins:
        """Return one origin, or the origins of a slice of samples."""
        if isinstance(place, slice):
            return Origins(self.file, self.rows[place])
        return Origin(self.file, "", self.rows[place])


class Container(ABC):
    """An open file that maps names to values. Formats implement it; it knows no schema.

    A value is an array, a `str` (text) or a JSON value (dict, list), and nothing else.
    """

    # Names of entries whose type is not a value type, where the format knows them.
    passed: Sequence[str] = ()
    opaque: bool = False  # some of the `passed` entries hold bytes: pictures, sounds
    # The file does not say what its bytes mean: it can be read, but not evaluated.
    untyped: bool = False

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of all values, sorted; ``/`` separates levels."""

    @abstractmethod
    def read(self, name: str) -> Any:
        """Return one value whole.

        Raises:
            KeyError: no such name.
            FormatError: the bytes are damaged or refused.
        """

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        """Return (shape, dtype) of one array, from the header alone where the format allows it."""
        return (value := np.asarray(self.read(name))).shape, value.dtype.str

    def stores_text(self, name: str) -> bool:
        """Return whether the header says that a value is text; byte strings count as text.

        Raises:
            KeyError: no such name.
        """
        del name
        return False

    def read_rows(self, name: str, start: int, stop: int) -> Any:
        """Return rows [start, stop) of one array; reads only them where the format can."""
        return self.read(name)[start:stop]

    def sliced(self, name: str) -> int | None:
        """Return the row count of a value that `read_rows` reads in part; None where it reads all.

        Raises:
            KeyError: no such name.
        """
        del name
        return None

    def assume_uniform(self, name: str) -> None:  # noqa: B027  most formats have it in a header
        """Assume without a check that all rows of a value have one shape.

        Valid only if an earlier read of the whole file has found one shape.

        Raises:
            KeyError: no such name.
        """

    def seek_points(self, name: str) -> Array | None:
        """Return the rows where a read can begin, ascending from 0; None where any row is cheap.

        Returns:
            int64 (points). A read from another row starts at the point before it. A read that
            begins where the last call ended continues there.

        Raises:
            KeyError: no such name.
        """
        del name
        return None

    def attrs(self, name: str = "") -> dict[str, Any]:
        """Return the attributes of a group or array: numbers, text, small arrays."""
        del name
        return {}

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match ``/data/demo_*``, without the leading slash.

        ``*`` matches within one level.
        """
        levels = [escape(level).replace("[*]", "*") for level in pattern.strip("/").split("/")]
        candidates = {
            tuple(name.split("/")[: len(levels)])
            for name in self.names()
            if name.count("/") >= len(levels)
        }
        return sorted(
            "/".join(group) for group in candidates if all(map(fnmatchcase, group, levels))
        )

    def unmatched(self) -> Mapping[str, str]:
        """Return entries that belong to no group although they should, by name, and the reasons."""
        return {}

    def keys(self) -> list[str]:
        """Return the groups that the format defines as samples (shards), in bytewise order."""
        return []

    def close(self) -> None:  # noqa: B027  many formats hold nothing open
        """Release the file."""

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Peeked:
    """An array whose values were not read: shape and dtype only."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Peeked:
        """Return a slice of the first axis."""
        return Peeked((len(range(*rows.indices(len(self)))), *self.shape[1:]), self.dtype)

    @property
    def array(self) -> Array:
        """Zeros of this shape and dtype; they take no memory."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


@dataclass(frozen=True, eq=False)
class Column:
    """One field of every sample of a block.

    Shapes:
        values: any (rows, *item), the rows of all samples concatenated; (samples,) where `lengths`
            is None
        lengths: int64 (samples) [rows], None for a scalar per sample

    Args:
        kind: how to interpret the values.
        peeked: only shapes and dtype are known; the values are zeros that take no memory.
    """

    values: Array
    lengths: Array | None = None
    kind: Kind = "array"
    peeked: bool = False

    @cached_property
    def starts(self) -> Array:
        """Int64 (samples): the first row of each sample."""
        if self.lengths is None:
            return np.arange(len(self.values), dtype=np.int64)
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    @cached_property
    def planes(self) -> Array:
        """The values with the components first, each contiguous: any (components, rows).

        Notes:
            Reductions along the last axis are fast. The copy is made once, and skipped where the
            values already have this layout.
        """
        planes = self.values.reshape(len(self.values), prod(self.values.shape[1:])).T
        return planes if planes.strides[1] == planes.itemsize else np.ascontiguousarray(planes)

    @cached_property
    def uniform(self) -> int | None:
        """The common length of all samples, or None where lengths differ."""
        lengths = np.zeros(0, np.int64) if self.lengths is None else self.lengths
        return int(lengths[0]) if len(lengths) and bool((lengths == lengths[0]).all()) else None

    @cached_property
    def objects(self) -> list[Any]:
        """The parsed values of a text or JSON column, one per sample; parsed once."""
        parse = orjson.loads if self.kind == "json" else lambda data: bytes(data).decode("utf-8")
        return [parse(self[i].tobytes()) for i in range(len(self))]

    def __len__(self) -> int:
        return len(self.values) if self.lengths is None else len(self.lengths)

    def __getitem__(self, i: int) -> Array:
        """Return the array of sample `i` as a view."""
        if self.lengths is None:
            return self.values[i]  # type: ignore[no-any-return]
        start = int(self.starts[i])
        return self.values[start : start + int(self.lengths[i])]

    def stacked(self) -> Array:
        """Return [samples, length, *item] as a view; requires `uniform` or a scalar column."""
        if self.lengths is None:
            return self.values
        if self.uniform is None and len(self):
            msg = "the samples of this column differ in length"
            raise ValueError(msg)
        length = self.uniform or 0
        return self.values.reshape(len(self), length, *self.values.shape[1:])

    def shape(self, i: int) -> tuple[int, ...]:
        """Return the shape of sample `i`."""
        if self.lengths is None:
            return tuple(self.values.shape[1:])
        return (int(self.lengths[i]), *self.values.shape[1:])

    def slice_items(self, start: int, stop: int) -> Column:
        """Return items [start, stop) of the last axis; a view where there are rows.

        Notes:
            Where each sample is a vector itself ([7], no rows), it takes these items of each
            vector.
        """
        if self.lengths is not None and self.values.ndim == 1:
            place = np.arange(len(self.values)) - np.repeat(self.starts, self.lengths)
            lengths = np.clip(self.lengths, start, stop) - start
            values = self.values[(place >= start) & (place < stop)]
            is_single = stop - start == 1 and bool((lengths == 1).all())
            return Column(values, None if is_single else lengths, self.kind, self.peeked)
        values = self.values[..., start:stop]
        values = values[..., 0] if stop - start == 1 and values.ndim > 1 else values
        return Column(values, self.lengths, self.kind, self.peeked)

    def take(self, indices: Sequence[int] | Array) -> Column:
        """Return the column of the samples at `indices`, in that order."""
        index = np.asarray(indices, dtype=np.int64)
        if self.peeked:
            return _peeked_column(
                self.values, None if self.lengths is None else self.lengths[index], len(index)
            )
        if self.lengths is None:
            return Column(self.values[index], None, self.kind)
        parts = [self[int(i)] for i in index]
        return Column(
            np.concatenate(parts) if parts else self.values[:0], self.lengths[index], self.kind
        )

    @staticmethod
    def of(samples: Sequence[Any]) -> Column:
        """Stack the values of one field, from samples that share a `signature`."""
        first_sample = samples[0]
        if isinstance(first_sample, str):
            return _texts(samples)
        if isinstance(first_sample, Peeked):
            rows = (
                None
                if first_sample.ndim == 0
                else np.array([len(s) for s in samples], dtype=np.int64)
            )
            return _peeked_column(
                (Peeked((0,), first_sample.dtype) if rows is None else first_sample[:0]).array,
                rows,
                len(samples),
            )
        if not isinstance(first_sample, np.ndarray):
            json_bytes = bytearray()
            sizes = []
            # Serialize at once: parsed values would take 4 kB each, however short.
            for sample in samples:
                json_bytes += (encoded := orjson.dumps(sample, option=orjson.OPT_SORT_KEYS))
                sizes.append(len(encoded))
            return _filled(bytes(json_bytes), sizes, "json", samples)
        if first_sample.ndim == 0:
            return Column(np.stack(samples))
        lengths = np.fromiter((len(s) for s in samples), dtype=np.int64, count=len(samples))
        return Column(_concatenated(samples), lengths)


def _concatenated(arrays: Sequence[Array]) -> Array:
    """Return the rows of all arrays concatenated: a view where they are adjacent in one array."""
    first = arrays[0]
    step, base = first.strides, first.base
    if (
        len(arrays) > 1
        and base is not None
        and all(a.base is base and a.strides == step for a in arrays)
    ):
        begins = [a.ctypes.data for a in arrays]
        if begins[1:] == [
            begin + len(a) * step[0] for begin, a in zip(begins, arrays[:-1], strict=False)
        ]:
            return np.lib.stride_tricks.as_strided(
                first, (sum(map(len, arrays)), *first.shape[1:]), step
            )
    return first if len(arrays) == 1 else np.concatenate(arrays)


def _peeked_column(like: Array, lengths: Array | None, count: int) -> Column:
    """Return a peeked column of `count` samples with the dtype and row shape of `like`."""
    rows = count if lengths is None else int(lengths.sum())
    return Column(Peeked((rows, *like.shape[1:]), like.dtype).array, lengths, peeked=True)


def _texts(samples: Sequence[str]) -> Column:
    if not all(map(str.isascii, samples)):
        parts = [s.encode("utf-8", "surrogatepass") for s in samples]
        return _filled(b"".join(parts), map(len, parts), "text", samples)
    # ASCII has one byte per character: one call encodes all texts.
    return _filled("".join(samples).encode(), map(len, samples), "text", samples)


def _filled(data: bytes, lengths: Iterable[int], kind: Kind, objects: Sequence[Any]) -> Column:
    rows = np.fromiter(lengths, dtype=np.int64, count=len(objects))
    column = Column(np.frombuffer(data, dtype=np.uint8), rows, kind)
    column.__dict__["objects"] = list(objects)  # already parsed: fill the cached property
    return column


def signature(value: Any) -> tuple[Any, ...]:
    """Return what values need in common to stack into one column: kind, dtype, item shape."""
    if isinstance(value, np.ndarray):
        dtype = value.dtype.str if value.dtype.names is None else str(value.dtype)
        return ("array", dtype, value.ndim, value.shape[1:])
    if isinstance(value, Peeked):
        return ("peeked", value.dtype.str, value.ndim, value.shape[1:])
    return ("text",) if isinstance(value, str) else ("json",)


def value_bytes(value: Any) -> int:
    """Return the approximate size of a plain value in bytes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Peeked):
        return 0
    return len(orjson.dumps(value)) if isinstance(value, dict | list) else 8


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The layout of one field in a cache and between transforms: dtype, item shape, ragged axis.

    Args:
        dtype: NumPy name, little-endian ("float32"); "uint8" for text and JSON.
        item: shape of one item: of a sample for a fixed field, of a row for a ragged one.
        dim: name of the ragged first axis; fields that share it share their row table. None: fixed.
        kind: "array", or how to interpret the uint8 rows ("text", "json").
        optional: whether samples may lack the field.
        attrs: unit, frame, role and so on, for people and foreign readers; JSON values.
    """

    dtype: str
    item: tuple[int, ...] = ()
    dim: str | None = None
    kind: Kind = "array"
    optional: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def item_bytes(self) -> int:
        """Bytes of one item."""
        return prod(self.item) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Sample:
    """Named values under one key, for a user's check or transform."""

    key: str
    fields: Mapping[str, Any]
    origin: Origin


@dataclass(frozen=True, eq=False)
class Block:
    """Samples of one signature: columns by field, and facts about their files.

    Args:
        keys: the samples' keys, in reading order.
        fields: columns by field name.
        facts: columns by name that are not data: attributes, sizes, counts of companions.
        origins: one per sample.
        split: the split that all samples of the block belong to, or "".
        groups: the group of each sample (a sequence, a room), or "".
        unread: fields that the samples have but whose values were not read.
    """

    keys: Sequence[str]
    fields: dict[str, Column]
    origins: Sequence[Origin]
    split: str = ""
    groups: list[str] = field(default_factory=list)
    facts: dict[str, Column] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, i: int) -> Sample:
        values = {
            name: column[i] if column.kind == "array" else column.objects[i]
            for name, column in self.fields.items()
        }
        return Sample(self.keys[i], values, self.origins[i])

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def take(self, index: Sequence[int] | Array) -> Block:
        """Return the block of the samples at `index`, in that order."""
        if len(index) == len(self) and all(i == place for place, i in enumerate(index)):
            return self
        return replace(
            self,
            keys=[self.keys[i] for i in index],
            fields={name: column.take(index) for name, column in self.fields.items()},
            origins=[self.origins[i] for i in index],
            groups=[self.groups[i] for i in index] if self.groups else [],
            facts={name: column.take(index) for name, column in self.facts.items()},
        )


@dataclass(frozen=True, slots=True)
class Piece:
    """One sample as a source reads it, before it joins a block."""

    key: str
    fields: Mapping[str, Any]
    origin: Origin
    group: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def stack(pieces: Sequence[Piece], split: str = "") -> list[Block]:
    """Stack pieces into blocks, one per signature; samples keep their order.

    Args:
        pieces: samples with values that are arrays, `str`, or JSON values.
        split: the split of all pieces.

    Returns:
        Blocks in the order in which their first sample appears.
    """
    groups: dict[tuple[Any, ...], list[Piece]] = {}
    for piece in pieces:
        values = sorted(piece.fields.items())
        facts = sorted(piece.facts.items())
        shape = (
            tuple((n, signature(v)) for n, v in values),
            tuple((n, signature(v)) for n, v in facts),
        )
        groups.setdefault(shape, []).append(piece)
    return [
        Block(
            keys=[p.key for p in group],
            fields={
                name: Column.of([p.fields[name] for p in group]) for name in sorted(group[0].fields)
            },
            origins=[p.origin for p in group],
            split=split,
            groups=[p.group for p in group],
            facts={
                name: Column.of([p.facts[name] for p in group]) for name in sorted(group[0].facts)
            },
        )
        for group in groups.values()
    ]
