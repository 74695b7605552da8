"""Locate damage: the damaged files of a cache, their chunks, and the samples concerned.

`changed_files` finds files whose bytes do not match the manifest. `DamageLocator` narrows each of
them down to chunks by their digests, and names field, shard and samples; `RowToSample` maps rows of
an array to samples. The tables that this needs may be damaged too: the answer is then wider.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from datacheck.cache import layout
from datacheck.cache.concurrent_map import concurrent_map
from datacheck.cache.manifest import CacheFiles, Manifest
from datacheck.cache.parsing import check_document_values, parse_document, parse_spec
from datacheck.cache.problem import Problem, describe_fields
from datacheck.cache.sharded_array import StoredArray, table_bytes
from datacheck.cache.store import Store
from datacheck.errors import DatacheckError, StorageError
from datacheck.model.sample import ArraySpec
from datacheck.runtime.documents import count_json
from datacheck.runtime.machine import usable_cpus

Array = np.ndarray[Any, Any]

# Printed bytes of a key: each damaged file of a shard repeats the same two keys.
MOST_KEY_BYTES = 1_000
# In memory: start, length and bytes of the keys, and the bounds of two dimensions.
_CACHED_TABLES = 3
_CACHED_DIMS = 2
_CACHED_ARRAYS = 64  # neighbouring files belong to one array


class RowToSample:
    """Maps rows of an array to samples.

    Args:
        table: returns an array of the cache; raises if that array is damaged.
        fields: the fields of the cache.

    Notes:
        Reads without checks, because the cache is known to be damaged. Every method raises the
        exceptions of reading a damaged cache (`DatacheckError`, `OSError`, `ValueError`,
        `LookupError`).
    """

    def __init__(
        self, table: Callable[[str], StoredArray], fields: Mapping[str, ArraySpec]
    ) -> None:
        self._table = table
        self._read = lru_cache(_CACHED_TABLES)(lambda path: table(path).unchecked())
        self._bounds = lru_cache(_CACHED_DIMS)(self._read_bounds)
        self._dims = {layout.field_path(name): spec.dim for name, spec in fields.items()}
        self._dims |= {
            layout.sample_path("key"): layout.KEY_DIM,
            layout.sample_path("origin"): layout.ORIGIN_DIM,
        }

    def of(self, path: str, first: int, stop: int) -> tuple[int, int]:
        """Return the samples [low, high) with rows in [first, stop) of an array; (0, 0) if none.

        The range is wider if the rows of the samples do not ascend.
        """
        dim = self._dims.get(path)
        if dim is None:
            return first, stop
        starts, ends = self._bounds(dim)
        low = int(np.searchsorted(ends, first, side="right"))
        high = int(np.searchsorted(starts, stop, side="left"))
        return (low, high) if high > low else (0, 0)

    def _read_bounds(self, dim: str) -> tuple[Array, Array]:
        """Return the least start at or after, and the largest end up to, each sample.

        Both ascend, so that the samples of a range of rows are found without a pass over all.
        """
        starts = self._table(layout.rows_path(dim, "start")).unchecked()
        ends = self._table(layout.rows_path(dim, "length")).unchecked()
        empty = ends <= 0
        ends += starts
        starts[empty] = np.iinfo(np.int64).max
        ends[empty] = np.iinfo(np.int64).min
        np.minimum.accumulate(starts[::-1], out=starts[::-1])
        np.maximum.accumulate(ends, out=ends)
        return starts, ends

    def describe(self, low: int, high: int) -> str:
        """Return the numbers and keys of the samples [low, high), in words."""
        if high <= low:
            msg = "no samples"
            raise LookupError(msg)
        keys = self._key(low)
        if high - low > 1:
            keys += f" to {self._key(high - 1)}"
        return f"{describe_range(low, high)}, {keys}"

    def _key(self, index: int) -> str:
        start = int(self._read(layout.rows_path(layout.KEY_DIM, "start"))[index])
        length = int(self._read(layout.rows_path(layout.KEY_DIM, "length"))[index])
        values = self._read(layout.sample_path("key"))
        shown = values[start : start + min(length, MOST_KEY_BYTES)]
        text = shown.tobytes().decode("utf-8", "replace")
        return text if length <= MOST_KEY_BYTES else f"{text}..."


def describe_range(low: int, high: int) -> str:
    """Return the numbers of the samples [low, high), in words."""
    return f"sample {low}" if high - low == 1 else f"samples {low} to {high - 1}"


def describe_samples(
    arrays: Mapping[str, StoredArray],
    fields: Mapping[str, ArraySpec],
    path: str,
    first: int,
    stop: int,
) -> str:
    """Return a description of the samples of rows [first, stop) of an array, for a message.

    The tables are read without checks, because the cache is damaged.
    """
    row_to_sample = RowToSample(arrays.__getitem__, fields)
    try:
        return row_to_sample.describe(*row_to_sample.of(path, first, stop))
    # The tables that map rows to samples are damaged, too.
    except (DatacheckError, OSError, ValueError, LookupError):
        return "samples unknown"


# Raised while locating damage, if the tables needed for that are damaged, too.
_READ_ERRORS = (DatacheckError, OSError, ValueError, LookupError, TypeError, MemoryError)
_CHUNK_WORD = "chunk"
_DIGEST_WORD = "digest of chunk"
# Damaged parts of a cache that are named one by one, with keys: each takes up to 1.5 kB.
MOST_RUNS = 1_000
_FIELDS = "fields/"
_DIGESTS = "digests/"
_DOCUMENT_SUFFIX = "/" + layout.ZARR


def changed_files(store: Store, manifest: Manifest, names: Iterable[str]) -> dict[str, str]:
    """Return the files whose bytes do not match the manifest, and how, sorted by name.

    Args:
        store: the cache.
        manifest: its manifest.
        names: the files to read; each is read once, on every core, the largest first.

    Raises:
        StorageError: the operating system refuses. An input/output error of the disk (EIO) counts
            as damage instead.
    """
    order = sorted(names, key=lambda name: (-manifest.files[name][0], name))
    digests = list(concurrent_map(lambda name: _digest(store, name), order, usable_cpus()))
    changed: dict[str, str] = {}
    for name, digest in zip(order, digests, strict=True):
        _, expected = manifest.files[name]
        if digest != expected:
            changed[name] = f"expected xxh3_128 {expected}, found {digest}"
    return dict(sorted(changed.items()))


def _digest(store: Store, name: str) -> str:
    try:
        return store.digest(name)
    except StorageError as error:
        if getattr(error.__cause__, "errno", None) != errno.EIO:
            raise
        return "an input/output error"


def consecutive_runs(numbers: Array, most: int) -> list[tuple[int, int, int]]:
    """Return first, last and count of the numbers of each run of consecutive numbers.

    The input ascends. Beyond `most` runs the rest is returned as one.
    """
    if not numbers.size:
        return []
    gaps = np.flatnonzero(np.diff(numbers) > 1)[: max(0, most)]
    begins = np.concatenate([[0], gaps + 1])
    ends = np.append(begins[1:], len(numbers))
    return list(
        zip(
            numbers[begins].tolist(),
            numbers[ends - 1].tolist(),
            (ends - begins).tolist(),
            strict=True,
        )
    )


class DamageLocator:
    """Locates damage: the chunks, fields, shards and samples of damaged files.

    Args:
        store: the cache.
        manifest: its manifest, which is intact.
        damaged: every file that does not match the manifest; none of them is trusted.

    Notes:
        Reads the given files and the tables that name samples, and maps nothing. If those tables
        are damaged themselves, the result is wider (the whole shard, all samples), never too
        narrow. The first `MOST_RUNS` problems are located and name keys; each later file gives one
        problem.
    """

    def __init__(self, store: Store, manifest: Manifest, damaged: Collection[str]) -> None:
        self._store = store
        self._manifest = manifest
        self._damaged = frozenset(damaged)
        self._place = CacheFiles(store, manifest.files, mapped=False, verify="manifest")
        self._document_values = 0  # of all documents that were parsed
        self._array = lru_cache(_CACHED_ARRAYS)(self._open_array)
        self._field_names = lru_cache(None)(self._fields_of)
        self._row_to_sample = RowToSample(self._table, self._fields)
        self._left = MOST_RUNS  # problems that are still to be located

    def problems(self, file: str, what: str, *, inside: bool) -> list[Problem]:
        """Return the problems of a file of the manifest.

        Args:
            file: its path.
            what: the damage to report if it cannot be traced to a part of the file.
            inside: whether the file has its expected size, so that the damage lies in some chunks.
        """
        path, g = layout.shard_of(file) or ("", 0)
        if inside and path and self._left > 0:
            with suppress(*_READ_ERRORS):
                chunk_problems = list(self._chunks(file, path, g))
                if chunk_problems:
                    return chunk_problems
        if path.startswith(_FIELDS):
            return [self._problem(file, what, self._shard_samples(g), g)]
        return [self._problem(file, what, (0, self._samples))]

    def chunks(self, file: str) -> list[Problem]:
        """Return the runs of chunks of a shard file that do not match their digests.

        Raises:
            CorruptionError: the index or the digests are damaged.
        """
        path, g = layout.shard_of(file) or ("", 0)
        return list(self._chunks(file, path, g))

    # -------------------------------------------------------------------------------------- reading

    def _document(self, path: str) -> dict[str, Any]:
        name = f"{path}{_DOCUMENT_SUFFIX}" if path else layout.ZARR
        if name in self._damaged:  # it may be a pipe, and reading a pipe can block for ever
            raise LookupError(name)
        with self._place.checked_content(name):
            raw = self._place.read(name)
            self._document_values += count_json(raw)
            check_document_values(self._document_values)
            return parse_document(raw)

    @cached_property
    def _root(self) -> layout.Root | None:
        with suppress(*_READ_ERRORS):
            return layout.Root.of(self._document(""))
        return None

    @cached_property
    def _samples(self) -> int:
        """The number of samples; 0 if no intact document states it."""
        with suppress(*_READ_ERRORS):
            shape = self._document(layout.sample_path("made"))["shape"]
            return self._root.samples if self._root is not None else int(shape[0])
        return self._root.samples if self._root is not None else 0

    @cached_property
    def _fields(self) -> dict[str, ArraySpec]:
        """The fields whose documents are intact."""
        fields: dict[str, ArraySpec] = {}
        for name in self._manifest.files:
            if not name.startswith(_FIELDS) or not name.endswith(_DOCUMENT_SUFFIX):
                continue
            path = name.removesuffix(_DOCUMENT_SUFFIX)
            with suppress(*_READ_ERRORS):
                spec = parse_spec(path, self._document(path))
                if spec is not None:
                    fields[layout.field_name(path)] = spec
        return fields

    def _open_array(self, path: str) -> StoredArray:
        spec = self._fields.get(layout.field_name(path)) if path.startswith(_FIELDS) else None
        ragged = spec is not None and spec.dim is not None
        return StoredArray(self._place, path, self._document(path), lambda *_: "", ragged=ragged)

    def _table(self, path: str) -> StoredArray:
        array = self._array(path)
        if any(
            f"{path}/{array.grid.shard_file(g)}" in self._damaged for g in range(array.grid.shards)
        ):
            raise LookupError(path)
        return array

    # --------------------------------------------------------------------------------------- naming

    def _field(self, file: str) -> str:
        """Return the names of the fields that a file belongs to."""
        path = file.removesuffix(_DOCUMENT_SUFFIX).removeprefix(_DIGESTS)
        return self._field_names((layout.shard_of(path) or (path, 0))[0])

    @cached_property
    def _names(self) -> list[str]:
        return sorted(self._fields)

    @cached_property
    def _fields_by_table(self) -> dict[str, list[str]]:
        """The fields of each row table, by the folder of the table."""
        by_table: dict[str, list[str]] = {}
        for name in self._names:
            dim = self._fields[name].dim
            if dim is not None:
                by_table.setdefault(layout.rows_path(dim, ""), []).append(name)
        return by_table

    def _fields_of(self, path: str) -> str:
        """Return the names of the fields that an array or a folder of arrays belongs to."""
        family, _, escaped_name = path.partition("/")
        if family == "rows":
            parts = f"{path}/".split("/")
            folders = ("/".join(parts[:depth]) + "/" for depth in range(1, len(parts)))
            return describe_fields(
                sorted(name for folder in folders for name in self._fields_by_table.get(folder, ()))
            )
        if family not in {"fields", "present"} or not escaped_name:
            return ""
        name = layout.field_name(_FIELDS + escaped_name)
        # The names that begin with "{name}/": "0" is the character after "/".
        nested = slice(bisect_left(self._names, f"{name}/"), bisect_left(self._names, f"{name}0"))
        return describe_fields(self._names[nested]) or name

    def _shard_samples(self, g: int) -> tuple[int, int]:
        if self._root is None:
            return 0, self._samples
        return g * self._root.shard_samples, min(self._samples, (g + 1) * self._root.shard_samples)

    def _problem(
        self, file: str, what: str, samples: tuple[int, int], shard: int | None = None
    ) -> Problem:
        low, high = samples
        if shard is None and self._root is not None and high > low:
            shards = {low // self._root.shard_samples, (high - 1) // self._root.shard_samples}
            shard = shards.pop() if len(shards) == 1 else None
        if samples == (0, self._samples):
            description = f"all {high:,} samples" if high else "all samples"
        else:
            description = describe_range(low, high)
            if self._left >= 0:
                with suppress(*_READ_ERRORS):
                    description = self._row_to_sample.describe(low, high)
        self._left -= 1
        return Problem(file, what, self._field(file), shard, description, low, high)

    # --------------------------------------------------------------------------------------- chunks

    def _chunks(self, file: str, path: str, g: int) -> Iterator[Problem]:
        """Yield each run of damaged chunks of a shard, or of digests that match no chunk."""
        if path.startswith(_DIGESTS):
            array = self._array(path.removeprefix(_DIGESTS))
            raw = self._store.read(file, table_bytes("uint64", array.chunks))
            recorded = np.frombuffer(raw, dtype="<u8", count=array.chunks)
            for shard in range(array.grid.shards):
                name = f"{array.path}/{array.grid.shard_file(shard)}"
                if name not in self._damaged:
                    yield from self._runs(file, array, shard, recorded, _DIGEST_WORD)
        else:
            array = self._array(path)
            self._table(layout.digests_path(path))
            yield from self._runs(file, array, g, array.expected, _CHUNK_WORD)

    def _runs(
        self, file: str, array: StoredArray, shard: int, recorded: Array, kind: str
    ) -> Iterator[Problem]:
        """Yield each run of chunks of a shard whose bytes do not match the recorded digests.

        If `kind` is "digest of chunk", the chunks are intact and the records are damaged.
        """
        per_shard = array.grid.chunks_per_shard
        first_chunk = shard * per_shard
        used = array.used_chunks[shard]
        recorded = recorded[first_chunk : first_chunk + per_shard].astype(np.uint64)
        computed = np.zeros(len(recorded), np.uint64)
        computed[:used] = [array.digest(first_chunk + chunk) for chunk in range(used)]
        expected, found = recorded, computed
        if kind == _DIGEST_WORD:
            expected, found = computed, recorded
        wrong = np.flatnonzero(computed != recorded)
        for first, last, count in consecutive_runs(wrong, self._left):
            what = f"{kind}s {first} to {last}: other xxh3_64 than expected"
            if count < last - first + 1:
                what = f"{count:,} of {what}"
            if first == last:
                what = (
                    f"{kind} {first}: expected xxh3_64 {int(expected[first]):016x}, found "
                    f"{int(found[first]):016x}"
                )
            samples = self._samples_of_rows(
                array,
                (first_chunk + first) * array.grid.chunk,
                (first_chunk + last + 1) * array.grid.chunk,
                shard,
            )
            of_field = array.path.startswith(_FIELDS)
            yield self._problem(file, what, samples, shard if of_field else None)

    def _samples_of_rows(
        self, array: StoredArray, first: int, stop: int, g: int
    ) -> tuple[int, int]:
        """Return the samples of rows of an array.

        Falls back to the samples of the whole shard if the tables are damaged or no sample has the
        rows.
        """
        low, high = self._shard_samples(g) if array.path.startswith(_FIELDS) else (0, self._samples)
        if self._left < 0:
            return low, high
        with suppress(*_READ_ERRORS):
            first_sample, stop_sample = self._row_to_sample.of(
                array.path, first, min(array.grid.shape[0], stop)
            )
            if stop_sample > first_sample:
                return max(low, first_sample), min(high, stop_sample)
        return low, high
