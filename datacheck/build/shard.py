"""One shard in memory: takes samples in any order, returns packed, padded and digested rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import orjson

from datacheck.cache import layout
from datacheck.model.row_keys import storable
from datacheck.model.sample import ArraySpec, Block, Column
from datacheck.runtime.aligned import empty
from datacheck.runtime.hashing import canonical_json, digest_rows, digest_sample, digests64
from datacheck.transforms.base import samples_of
from datacheck.transforms.cast import cast, fits, lost

Array = np.ndarray[Any, Any]

MOST_REASON = 100_000  # characters of the reason why a sample was not made

# Digesting joined samples beats a call for each: up to _SMALL bytes of a sample with its frames,
# _AT_ONCE samples at a time.
_SMALL = 1 << 13
_AT_ONCE = 1024

# The only places where orjson's text (sorted keys) differs from canonical JSON: exponents, 0.00001,
# negative zero.
_NOT_CANONICAL = re.compile(rb"[0-9][eE]|0\.0000|-0\.0")


class BufferPool:
    """Memory that successive shards reuse, because fresh pages cost more than filling them."""

    def __init__(self) -> None:
        self._kept: dict[str, Array] = {}

    def take(self, name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Return an uninitialised array; an earlier one of the same name is no longer valid."""
        size = prod(shape) * dtype.itemsize
        if name not in self._kept or len(self._kept[name]) < size:
            self._kept[name] = empty([size], np.uint8)
        return self._kept[name][:size].view(dtype).reshape(shape)


class Shard:
    """The samples of one shard of all fields.

    Shapes:
        made: bool (samples)
        present[name]: bool (samples), of optional fields

    Args:
        keys: of the samples, in order.
        specs: the fields of the cache.
        room: memory of earlier shards, which are already written.
    """

    def __init__(
        self, keys: Sequence[str], specs: Mapping[str, ArraySpec], room: BufferPool | None = None
    ) -> None:
        self._room = room or BufferPool()
        self.keys = keys
        self.specs = dict(sorted(specs.items()))
        self.made = np.zeros(len(keys), bool)
        self.present = {n: np.zeros(len(keys), bool) for n, s in self.specs.items() if s.optional}
        self.reasons: dict[int, str] = {}
        self.origins: dict[str, str] = {}
        self._place = {key: place for place, key in enumerate(keys)}
        self._fixed: dict[str, Array] = {
            n: self._room.take(n, (len(keys), *s.item), _little(s.dtype))
            for n, s in self.specs.items()
            if s.dim is None
        }
        self._parts: dict[str, list[tuple[Array, Column]]] = {
            n: [] for n, s in self.specs.items() if s.dim is not None
        }
        self._lengths: dict[str, Array] = {
            s.dim: np.zeros(len(keys), np.int64) for s in self.specs.values() if s.dim is not None
        }

    def refuse(self, key: str, reason: str) -> None:
        """Record why a sample cannot be made."""
        if key in self._place:
            self.reasons[self._place[key]] = _storable_reason(reason)

    def put(self, block: Block, *, ours: bool = False) -> None:
        """Add the samples of a block that fit the specs; record a reason for each of the others.

        Args:
            block: the samples.
            ours: whether the caller gives up its arrays; arrays that fill the shard are not copied
                then.
        """
        columns = {name: block.fields[name] for name in self.specs if name in block.fields}
        reason = self._unfit(columns)
        if reason:
            for key in block.keys:
                self.refuse(key, reason)
            return
        columns = {
            name: _canonical(column) if column.kind == "json" else column
            for name, column in columns.items()
        }
        places = np.array([self._place[key] for key in block.keys], dtype=np.int64)
        reasons = self._unfit_samples(columns)
        if reasons:
            self.reasons |= {
                int(places[i]): _storable_reason(reason) for i, reason in reasons.items()
            }
            good = np.array([i for i in range(len(places)) if i not in reasons], dtype=np.int64)
            places, columns = (
                places[good],
                {name: column.take(good) for name, column in columns.items()},
            )
        for name, column in columns.items():
            self._store(name, column, places, ours=ours)
        self.made[places] = True

    def take(self, places: Array, has: Mapping[str, tuple[Array, Column]]) -> None:
        """Add samples from a cache with the same specs, without checks.

        Shapes:
            places: int64 (samples), ascending

        Args:
            places: the places of the samples in the shard.
            has: for every field, the ascending places of the samples that have it, and their
                column.
        """
        for name, (field_places, column) in has.items():
            self._store(name, column, field_places)
        self.made[places] = True

    def _unfit(self, columns: Mapping[str, Column]) -> str:
        """Return why no sample of a block fits, as they share one signature; "" if they may fit."""
        for name, spec in self.specs.items():
            column = columns.get(name)
            if column is None:
                if not spec.optional:
                    return f"{name}: missing"
                continue
            if column.kind != spec.kind:
                return (
                    f"{name}: found {_kind_words(column.kind)} where the cache holds "
                    f"{_kind_words(spec.kind)}"
                )
            shape = ["n" if column.lengths is not None else None, *column.values.shape[1:]]
            wanted = (
                ["n", *spec.item]
                if spec.dim is not None
                else ["n", *spec.item[1:]]
                if spec.item
                else [None]
            )
            if shape != wanted:
                return (
                    f"{name}: shape {_shape_text(shape)} does not fit "
                    f"{_shape_text(self._wanted(spec))}"
                )
        return ""

    def _wanted(self, spec: ArraySpec) -> list[Any]:
        if spec.dim is None:
            return list(spec.item)
        return ["n" if spec.dim.startswith("fields.") else spec.dim, *spec.item]

    def _unfit_samples(self, columns: Mapping[str, Column]) -> dict[int, str]:
        """Return why single samples do not fit, the first reason of each."""
        reasons: dict[int, str] = {}
        for i, reason in chain(self._unfit_lengths(columns), self._unfit_values(columns)):
            reasons.setdefault(i, reason)
        return reasons

    def _unfit_lengths(self, columns: Mapping[str, Column]) -> Iterator[tuple[int, str]]:
        first: dict[str, tuple[str, Array]] = {}
        for name, column in columns.items():
            spec = self.specs[name]
            if column.lengths is None:
                continue  # a scalar
            if spec.dim is None:
                expected: Array = np.full(len(column), spec.item[0])
                expectation = f"the cache holds {spec.item[0]}"
            else:
                other, expected = first.setdefault(spec.dim, (name, column.lengths))
                expectation = f"{other}, which shares the axis {spec.dim}, has another number"
            for i in np.flatnonzero(column.lengths != expected):
                yield int(i), f"{name}: {column.lengths[i]} rows; {expectation}"

    def _unfit_values(self, columns: Mapping[str, Column]) -> Iterator[tuple[int, str]]:
        for name, column in columns.items():
            dtype = self.specs[name].dtype
            if column.kind == "text":
                yield from _undecodable(name, column)
            elif column.kind == "array" and not np.can_cast(
                column.values.dtype, np.dtype(dtype), "safe"
            ):
                reason = (
                    f"{name}: {column.values.dtype} does not fit {dtype}; put a cast into the "
                    f"pipeline"
                )
                yield from ((i, reason) for i in range(len(column)))
            elif column.kind == "array" and not fits(column.values.dtype, dtype):
                rounded = samples_of(lost(column.values, cast(column.values, dtype)), column)
                yield from (
                    (int(i), f"{name}: values do not fit {dtype}; declare the dtype that they have")
                    for i in np.flatnonzero(rounded)
                )

    def _store(self, name: str, column: Column, places: Array, *, ours: bool = False) -> None:
        if not len(places):
            return
        if name in self.present:
            self.present[name][places] = True
        spec = self.specs[name]
        if spec.dim is None or column.lengths is None:
            in_row = _consecutive(places)
            values = column.values.reshape(len(places), *spec.item)
            if (
                ours
                and in_row
                and len(places) == len(self.keys)
                and _is_owned(column.values, spec.dtype)
            ):
                self._fixed[name] = values
            else:
                target = slice(int(places[0]), int(places[-1]) + 1) if in_row else places
                self._fixed[name][target] = values
        else:
            self._parts[name].append((places, column))
            self._lengths[spec.dim][places] = column.lengths

    def close(self) -> PackedRows:
        """Return the packed rows; nothing can be added afterwards."""
        for place in np.flatnonzero(~self.made):
            self.reasons.setdefault(int(place), "the source did not give it")
        values: dict[str, Array] = {}
        starts = {
            dim: np.concatenate([[0], np.cumsum(lengths)]) for dim, lengths in self._lengths.items()
        }
        for name, spec in self.specs.items():
            if spec.dim is None:
                values[name] = self._fixed.pop(name)
                gaps = ~(self.present[name] if spec.optional else self.made)
                values[name][gaps] = layout.fill_array(spec.dtype, ())
            else:
                values[name] = self._packed(name, spec, starts[spec.dim])
        return PackedRows(self, values, self._lengths, starts)

    def _packed(self, name: str, spec: ArraySpec, starts: Array) -> Array:
        chunk = layout.chunk_rows(spec.item_bytes)
        total = int(starts[-1])
        values = self._room.take(
            name, (-(-total // chunk) * chunk, *spec.item), _little(spec.dtype)
        )
        values[total:] = layout.fill_array(spec.dtype, ())
        for places, column in self._parts.pop(name):
            offset = 0
            for run in np.split(places, np.flatnonzero(np.diff(places) != 1) + 1):
                begin = int(starts[run[0]])
                end = int(starts[run[-1] + 1])
                values[begin:end] = column.values[offset : offset + end - begin]
                offset += end - begin
        if spec.optional:
            for place in np.flatnonzero(~self.present[name]):
                values[starts[place] : starts[place + 1]] = layout.fill_array(spec.dtype, ())
        return values


class PackedRows:
    """The packed rows of a shard.

    Shapes:
        values[name]: dtype (samples, *item) of a fixed field, (rows padded to whole chunks, *item)
            of a ragged one
        lengths[dim]: int64 (samples)
    """

    def __init__(
        self,
        shard: Shard,
        values: dict[str, Array],
        lengths: dict[str, Array],
        starts: Mapping[str, Array],
    ) -> None:
        self.lengths = lengths
        self._shard = shard
        self._values = values
        self._starts = starts

    def padded(self, name: str, chunk: int) -> memoryview:
        """Return the bytes of a field's used inner chunks, with the last one padded."""
        values = self._values[name]
        missing = -len(values) % chunk
        if missing:
            fill = layout.fill_array(values.dtype.name, (missing, *values.shape[1:]))
            values = np.concatenate([values, fill])
        return values.reshape(-1).view(np.uint8).data

    def sample_digests(self) -> Array:
        """Return uint64 (samples): each sample's digest over the fields it has; 0 if not made."""
        digests = np.zeros(len(self._shard.keys), np.uint64)
        present, specs = self._shard.present, self._shard.specs
        if (
            not present
            and not self._starts
            and sum(64 + len(n) + s.item_bytes for n, s in specs.items()) <= _SMALL
        ):
            for begin in range(0, len(digests), _AT_ONCE):
                part = slice(begin, begin + _AT_ONCE)
                digests[part] = digest_rows([(n, self._values[n][part]) for n in specs])
            digests[~self._shard.made] = 0
            return digests
        for i in np.flatnonzero(self._shard.made):
            names = (n for n in specs if n not in present or present[n][i])
            digests[i] = digest_sample((n, self._sample(n, specs[n].dim, int(i))) for n in names)
        return digests

    def _sample(self, name: str, dim: str | None, i: int) -> Array:
        if dim is None:
            return self._values[name][i : i + 1].reshape(self._values[name].shape[1:])
        return self._values[name][self._starts[dim][i] : self._starts[dim][i + 1]]


def chunk_digests(payload: memoryview, chunk_bytes: int) -> Array:
    """Return uint64 (chunks): xxh3_64 of each inner chunk."""
    count = len(payload) // max(1, chunk_bytes)
    return digests64(np.frombuffer(payload, np.uint8).reshape(count, chunk_bytes))


def _little(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")


def _consecutive(places: Array) -> bool:
    return len(places) > 0 and bool((np.diff(places) == 1).all())


def _is_owned(values: Array, dtype: str) -> bool:
    """Return whether an array can be written without a copy.

    A map of a file cannot: it would still change with the file.
    """
    flags = values.flags
    return bool(
        values.dtype == _little(dtype) and flags.owndata and flags.c_contiguous and flags.writeable
    )


def _storable_reason(reason: str) -> str:
    """Return a reason in the form that a record accepts, because a step may raise any text."""
    return storable([reason])[0][:MOST_REASON]


def _kind_words(kind: str) -> str:
    return {"array": "an array", "text": "text", "json": "JSON"}[kind]


def _shape_text(shape: Sequence[Any]) -> str:
    return "[" + ", ".join(str(n) for n in shape if n is not None) + "]"


def _canonical(column: Column) -> Column:
    """Return a JSON column as canonical JSON text."""
    if _NOT_CANONICAL.search(column.values.data) is None:
        return column
    texts = [canonical_json(orjson.loads(column[i].tobytes())) for i in range(len(column))]
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    return Column(np.frombuffer(b"".join(texts), dtype=np.uint8), lengths, "json")


def _undecodable(name: str, column: Column) -> Iterator[tuple[int, str]]:
    try:
        str(column.values.data, "utf-8")
    except UnicodeDecodeError:
        for i in range(len(column)):
            try:
                column[i].tobytes().decode()
            except UnicodeDecodeError as error:
                yield i, f"{name}: not Unicode text ({error.reason} at byte {error.start})"
