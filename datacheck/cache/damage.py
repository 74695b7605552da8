"""Which samples the rows of an array belong to, for messages: read without a check, as something is damaged."""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from datacheck.cache import layout
from datacheck.cache.concurrent_map import alongside
from datacheck.cache.manifest import Manifest, Place
from datacheck.cache.parsing import parsed, spec_of
from datacheck.cache.problem import Problem, fields_said
from datacheck.cache.sharded_array import StoredArray
from datacheck.cache.store import Store
from datacheck.errors import DatacheckError, StorageError
from datacheck.model.sample import ArraySpec
from datacheck.runtime.machine import usable_cpus

Array = np.ndarray[Any, Any]

KEY = 1_000  # bytes of a key that are told: each damaged file of a shard tells the same two
_KEPT = 8  # tables in memory: a cache may have a thousand damaged shards


class Owners:
    """The samples of rows.

    Args:
        table: returns an array of the cache; raises where it is damaged itself.
        fields: the fields of the cache.

    Notes:
        Every method raises what reading a damaged cache raises (`DatacheckError`, `OSError`, `ValueError`,
        `LookupError`), and trusts what it reads.
    """

    def __init__(self, table: Callable[[str], StoredArray], fields: Mapping[str, ArraySpec]) -> None:
        self._read = lru_cache(_KEPT)(lambda path: table(path).unchecked())
        self._dims = {layout.field_path(name): spec.dim for name, spec in fields.items()}
        self._dims |= {layout.sample_path("key"): layout.KEY_DIM, layout.sample_path("origin"): layout.ORIGIN_DIM}

    def of(self, path: str, first: int, stop: int) -> tuple[int, int]:
        """Return the samples [low, high) that have rows in [first, stop) of an array; (0, 0) where none has."""
        dim = self._dims.get(path)
        if dim is None:
            return first, stop
        start, length = (self._read(layout.rows_path(dim, what)) for what in ("start", "length"))
        inside = np.flatnonzero((length > 0) & (start < stop) & (start + length > first))
        return (int(inside[0]), int(inside[-1]) + 1) if inside.size else (0, 0)

    def named(self, low: int, high: int) -> str:
        """Return the numbers and keys of the samples [low, high), in words."""
        if high <= low:
            msg = "no samples"
            raise LookupError(msg)
        ends = [self._key(low), self._key(high - 1)]
        return f"{numbered(low, high)}, {ends[0]}" + (f" to {ends[1]}" if high - low > 1 else "")

    def _key(self, index: int) -> str:
        tables = [self._read(layout.rows_path(layout.KEY_DIM, what)) for what in ("start", "length")]
        start, length = (int(table[index]) for table in tables)
        values = self._read(layout.sample_path("key"))
        told = values[start : start + min(length, KEY)].tobytes().decode("utf-8", "replace")
        return told if length <= KEY else f"{told}..."


def numbered(low: int, high: int) -> str:
    """Return the numbers of the samples [low, high), in words."""
    return f"sample {low}" if high - low == 1 else f"samples {low} to {high - 1}"


def samples_of(arrays: Mapping[str, StoredArray], fields: Mapping[str, ArraySpec], path: str, a: int, b: int) -> str:
    """Name the samples of rows [a, b) of an array, for a message; unchecked, something is damaged."""
    owners = Owners(arrays.__getitem__, fields)
    try:
        return owners.named(*owners.of(path, a, b))
    except (DatacheckError, OSError, ValueError, LookupError):  # the tables that would tell are damaged, too
        return "samples unknown"


_HIDDEN = (DatacheckError, OSError, ValueError, LookupError, TypeError, MemoryError)  # what would tell is damaged, too
_OF_CHUNKS, _OF_DIGESTS = "chunk", "digest of chunk"
RUNS = 1_000  # of one file that are told one by one
_FIELDS, _DIGESTS, _END = "fields/", "digests/", "/" + layout.ZARR


def changed(store: Store, manifest: Manifest, names: Iterable[str]) -> dict[str, str]:
    """Return the files whose bytes are not what the manifest says, and what was found, in order of their names.

    Args:
        store: the cache.
        manifest: its manifest.
        names: the files to read; each is read once, on every core, the largest first.

    Raises:
        StorageError: the operating system refuses; a disk that fails while it reads (EIO) is damage and no refusal.
    """
    order = sorted(names, key=lambda name: (-manifest.files[name][0], name))
    found = list(alongside(lambda name: _digest(store, name), order, usable_cpus()))
    pairs = [(name, manifest.files[name][1], digest) for name, digest in zip(order, found, strict=True)]
    wrong = {name: f"expected xxh3_128 {said}, found {digest}" for name, said, digest in pairs if digest != said}
    return {name: wrong[name] for name in sorted(wrong)}


def _digest(store: Store, name: str) -> str:
    try:
        return store.digest(name)
    except StorageError as error:
        if getattr(error.__cause__, "errno", None) != errno.EIO:
            raise
        return "an input/output error"


def stretches(numbers: Array) -> list[tuple[int, int]]:
    """Return the first and the last of each run of ascending numbers; of more than `RUNS` the rest as one."""
    if not numbers.size:
        return []
    apart = np.flatnonzero(np.diff(numbers) > 1)
    firsts, lasts = numbers[[0, *(apart[:RUNS] + 1)]].tolist(), numbers[[*apart[:RUNS], -1]].tolist()
    return list(zip(firsts, lasts, strict=True))


class Damage:
    """Names what damaged files concern.

    Args:
        store: the cache.
        manifest: its manifest, which is intact.
        damaged: every file that is not what the manifest says; none of them is believed.

    Notes:
        Reads the files that are asked about and the tables that name samples, and maps nothing. Where those tables
        are damaged themselves the answer is wider (the whole shard, all samples), never too narrow.
    """

    def __init__(self, store: Store, manifest: Manifest, damaged: Collection[str]) -> None:
        self._store, self._manifest, self._damaged = store, manifest, frozenset(damaged)
        self._place = Place(store, manifest.files, mapped=False, verify="manifest")
        self._array = lru_cache(None)(self._opened)
        self._concerned = lru_cache(None)(self._fields_of)
        self._owners = Owners(self._table, self._fields)

    def problems(self, file: str, what: str, *, inside: bool) -> list[Problem]:
        """Return what is wrong with a file of the manifest.

        Args:
            file: its path.
            what: what is wrong with it, where no part of it can be blamed.
            inside: whether it is a file of its size, so that the damage lies in some of its chunks.
        """
        path, g = layout.shard_of(file) or ("", 0)
        if inside and path:
            with suppress(*_HIDDEN):
                if found := list(self._chunks(file, path, g)):
                    return found
        if path.startswith(_FIELDS):
            return [self._problem(file, what, self._of_shard(g), g)]
        return [self._problem(file, what, (0, self._samples))]

    def chunks(self, file: str) -> list[Problem]:
        """Return the runs of chunks of a shard file whose bytes do not fit their digests.

        Raises:
            CorruptionError: its index is damaged, or the digests are.
        """
        path, g = layout.shard_of(file) or ("", 0)
        return list(self._chunks(file, path, g))

    # ------------------------------------------------------------------------------------------ reading

    def _document(self, path: str) -> dict[str, Any]:
        name = f"{path}{_END}" if path else layout.ZARR
        if name in self._damaged:  # it may be a pipe: reading it could wait for ever
            raise LookupError(name)
        with self._place.sound(name):
            return parsed(self._place.read(name))

    @cached_property
    def _root(self) -> layout.Root | None:
        with suppress(*_HIDDEN):
            return layout.Root.of(self._document(""))
        return None

    @cached_property
    def _samples(self) -> int:
        """How many samples there are; 0 where nothing tells."""
        with suppress(*_HIDDEN):
            shape = self._document(layout.sample_path("made"))["shape"]
            return self._root.samples if self._root is not None else int(shape[0])
        return self._root.samples if self._root is not None else 0

    @cached_property
    def _fields(self) -> dict[str, ArraySpec]:
        """The fields whose documents are intact."""
        found: dict[str, ArraySpec] = {}
        for path in (n.removesuffix(_END) for n in self._manifest.files if n.startswith(_FIELDS) and n.endswith(_END)):
            with suppress(*_HIDDEN):
                spec = spec_of(path, self._document(path))
                found |= {} if spec is None else {layout.field_name(path): spec}
        return found

    def _opened(self, path: str) -> StoredArray:
        spec = self._fields.get(layout.field_name(path)) if path.startswith(_FIELDS) else None
        ragged = spec is not None and spec.dim is not None
        return StoredArray(self._place, path, self._document(path), lambda *_: "", ragged=ragged)

    def _table(self, path: str) -> StoredArray:
        array = self._array(path)
        if any(f"{path}/{array.grid.shard_file(g)}" in self._damaged for g in range(array.grid.shards)):
            raise LookupError(path)
        return array

    # ------------------------------------------------------------------------------------------ naming

    def _field(self, file: str) -> str:
        """Return the fields that a file belongs to."""
        path = file.removesuffix(_END).removeprefix(_DIGESTS)
        return self._concerned((layout.shard_of(path) or (path, 0))[0])

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self._fields)

    @cached_property
    def _by_rows(self) -> dict[str, list[str]]:
        """The fields of each row table, by the folder of the table."""
        found: dict[str, list[str]] = {}
        for name in self._names:
            dim = self._fields[name].dim
            if dim is not None:
                found.setdefault(layout.rows_path(dim, ""), []).append(name)
        return found

    def _fields_of(self, path: str) -> str:
        """Return the fields that an array or a folder of arrays belongs to."""
        family, _, rest = path.partition("/")
        if family == "rows":
            parts = f"{path}/".split("/")
            folders = ("/".join(parts[:depth]) + "/" for depth in range(1, len(parts)))
            return fields_said(sorted(name for folder in folders for name in self._by_rows.get(folder, ())))
        if family not in {"fields", "present"} or not rest:
            return ""
        name = layout.field_name(_FIELDS + rest)
        inside = slice(bisect_left(self._names, f"{name}/"), bisect_left(self._names, f"{name}0"))  # "0" follows "/"
        return fields_said(self._names[inside]) or name

    def _of_shard(self, g: int) -> tuple[int, int]:
        if self._root is None:
            return 0, self._samples
        return g * self._root.shard_samples, min(self._samples, (g + 1) * self._root.shard_samples)

    def _problem(self, file: str, what: str, samples: tuple[int, int], shard: int | None = None) -> Problem:
        low, high = samples
        if shard is None and self._root is not None and high > low:
            shards = {low // self._root.shard_samples, (high - 1) // self._root.shard_samples}
            shard = shards.pop() if len(shards) == 1 else None
        if samples == (0, self._samples):
            said = f"all {high:,} samples" if high else "all samples"
        else:
            said = numbered(low, high)
            with suppress(*_HIDDEN):
                said = self._owners.named(low, high)
        return Problem(file, what, self._field(file), shard, said, low, high)

    # ------------------------------------------------------------------------------------------ chunks

    def _chunks(self, file: str, path: str, g: int) -> Iterator[Problem]:
        """Yield each run of chunks of a shard that are not what was written, or of digests that fit no chunk."""
        if path.startswith(_DIGESTS):
            array = self._array(path.removeprefix(_DIGESTS))
            raw = self._store.read(file, self._manifest.files[file][0])
            said = np.frombuffer(raw, dtype="<u8", count=array.chunks)
            names = (f"{array.path}/{array.grid.shard_file(s)}" for s in range(array.grid.shards))
            for s in (s for s, name in enumerate(names) if name not in self._damaged):
                yield from self._runs(file, array, s, said, _OF_DIGESTS)
        else:
            array = self._array(path)
            self._table(layout.digests_path(path))
            yield from self._runs(file, array, g, array.expected, _OF_CHUNKS)

    def _runs(self, file: str, array: StoredArray, g: int, said: Array, kind: str) -> Iterator[Problem]:
        share = array.grid.chunks_per_shard
        held = array.used_chunks[g]
        said = said[g * share : (g + 1) * share].astype(np.uint64)
        found = np.zeros(len(said), np.uint64)
        found[:held] = [array.digest(g * share + j) for j in range(held)]
        wrong = np.flatnonzero(found != said)
        for a, b in stretches(wrong):
            sums = (found, said) if kind == _OF_DIGESTS else (said, found)
            what = f"{kind} {a}: expected xxh3_64 {int(sums[0][a]):016x}, found {int(sums[1][a]):016x}"
            if b > a:
                what = f"{kind}s {a} to {b}: other xxh3_64 than expected"
            rows = (g * share + a) * array.grid.chunk, (g * share + b + 1) * array.grid.chunk
            of_field = array.path.startswith(_FIELDS)
            yield self._problem(file, what, self._owned(array, *rows, g), g if of_field else None)

    def _owned(self, array: StoredArray, first: int, stop: int, g: int) -> tuple[int, int]:
        """Return the samples of rows of an array; of its whole shard where no table tells, or no sample has them."""
        low, high = self._of_shard(g) if array.path.startswith(_FIELDS) else (0, self._samples)
        with suppress(*_HIDDEN):
            inside = self._owners.of(array.path, first, min(array.grid.shape[0], stop))
            if inside[1] > inside[0]:
                return max(low, inside[0]), min(high, inside[1])
        return low, high
