"""Link the intact shards of a damaged cache into a build, so that only the others are made.

A record says what the tables of the cache say of a shard. A shard is intact if the files of all its
fields match the manifest, and if every table still has the rows of its samples.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datacheck.build import provenance
from datacheck.build.plan import BuildPlan
from datacheck.build.provenance import ShardRecord
from datacheck.build.staging import Staging
from datacheck.cache import layout
from datacheck.cache.manifest import CacheFiles
from datacheck.cache.parsing import parse_document
from datacheck.cache.shard_index import read_shard_chunks
from datacheck.cache.shard_maps import MemoryRows
from datacheck.cache.sharded_array import StoredArray, table_bytes
from datacheck.cache.store import open_store
from datacheck.errors import CorruptionError, DatacheckError, OutOfSpaceError, StorageError
from datacheck.runtime import fsops
from datacheck.runtime.beneath import open_regular
from datacheck.runtime.hashing import Digester, digest64, digest_bytes
from datacheck.runtime.machine import usable_cpus

Array = np.ndarray[Any, Any]
Files = Mapping[str, tuple[int, str]]

_READ_ERRORS = (DatacheckError, OSError, ValueError, LookupError, TypeError)


def salvage(
    cache: Path,
    files: Files,
    intact: Collection[str],
    plan: BuildPlan,
    stage: Staging,
    kept: Mapping[int, ShardRecord],
) -> dict[int, ShardRecord]:
    """Link the intact shards of a damaged cache into a build; return the finished records.

    Args:
        cache: the folder of the damaged cache, which is not changed.
        files: size and digest of its files, as far as its manifest is known.
        intact: the files that match.
        plan: the plan of the cache; the build has created the folders for shards.
        stage: the unfinished build; its files of intact shards are replaced.
        kept: records of the shards that are already finished there.

    Notes:
        A shard is taken if the files of all its fields are intact and every table still has rows
        for all its samples. Each file is read again, through its link. Where links are refused it
        is copied.
    """
    damaged = _DamagedCache(cache, files, frozenset(intact), plan)
    intact_shards = damaged.intact_shards()
    with ThreadPoolExecutor(min(8, usable_cpus())) as threads:
        taken = list(threads.map(lambda g: damaged.take(stage, g), intact_shards))
    records = dict(kept)
    for g, record in zip(intact_shards, taken, strict=True):
        # What a previous run has finished of it is replaced, or lost.
        records.pop(g, None)
        if record is not None:
            records[g] = record
    return records


class _LinkedFile(NamedTuple):
    """A linked shard of one field.

    Args:
        entry: size and digest as its writer knew them: without the index if it is ragged.
        chunks: uint64 (inner chunks), digests of the decoded chunks.
        sizes: uint64 (inner chunks) [bytes] as stored.
    """

    entry: tuple[int, str]
    chunks: Array
    sizes: Array


class _DamagedCache:
    """A damaged cache: the rows of its tables that are intact, and its intact shards."""

    def __init__(self, cache: Path, files: Files, intact: frozenset[str], plan: BuildPlan) -> None:
        self._cache = cache
        self._files = files
        self._intact = intact
        self._plan = plan
        self._place = CacheFiles(open_store(cache), files, mapped=False, verify="manifest")
        self._sound = np.ones(len(plan.samples), bool)  # samples whose rows are intact everywhere
        self._made = self._of_samples(layout.sample_path("made"), "bool")
        self._digest = self._of_samples(layout.sample_path("digest"), "uint64")
        self._lengths = {
            dim: self._of_samples(layout.rows_path(dim, "length"), "int64") for dim in plan.dims
        }
        optional = [name for name, spec in plan.specs.items() if spec.optional]
        self._present = {
            name: self._of_samples(layout.present_path(name), "bool") for name in optional
        }
        self._origins, self._ends = self._texts("origin", layout.ORIGIN_DIM)

    def intact_shards(self) -> list[int]:
        """Return the shards with intact files whose samples have intact rows in every table."""
        return [
            g
            for g in range(self._plan.shards)
            if self._sound[self._plan.shard(g)].all() and self._is_intact(g)
        ]

    def _is_intact(self, g: int) -> bool:
        return all(self._file(name, g) in self._intact for name in self._plan.specs)

    def _file(self, name: str, g: int) -> str:
        return layout.shard_file(name, self._plan.specs[name], g)

    def take(self, stage: Staging, g: int) -> ShardRecord | None:
        """Link the files of shard `g` and write its record; None if a file was lost in between."""
        record = self._found(stage, g)
        if record is None or not provenance.fits(record, self._plan):
            stage.drop_linked(self._plan, [g])
            return None
        provenance.write(stage.records, record)
        return record

    def _found(self, stage: Staging, g: int) -> ShardRecord | None:
        linked = {}
        for name in self._plan.specs:
            try:
                linked[name] = self._link(stage, name, g)
            except OutOfSpaceError:
                raise
            except (CorruptionError, StorageError, OSError):  # damaged or removed since the check
                return None
        return self._record(g, linked)

    def _link(self, stage: Staging, name: str, g: int) -> _LinkedFile:
        """Link a shard of a field, and read it.

        Raises:
            CorruptionError: it does not match the manifest.
        """
        file = self._file(name, g)
        grid = self._grid(name)
        size, digest = self._files[file]
        field = layout.field_path(name)
        sizes = read_shard_chunks(self._place, self._place.store, field, grid, g).sizes
        target = stage.linked / file
        for path in (stage.shards / file, target):
            fsops.remove_file(path)
        fsops.link_or_copy(self._cache / file, target)
        head_digest, whole_digest, chunks = self._digests(target, grid, sizes)
        if whole_digest != digest:
            raise CorruptionError(file)
        if self._plan.specs[name].dim is None:
            return _LinkedFile((size, digest), chunks, sizes)
        return _LinkedFile((size - layout.index_bytes(grid), head_digest), chunks, sizes)

    def _digests(self, path: Path, grid: layout.Grid, sizes: Array) -> tuple[str, str, Array]:
        """Return the digests of a shard without its index, of the whole file, and of each chunk."""
        hasher = Digester()
        chunks = np.zeros(len(sizes), np.uint64)
        decoded = bytearray(grid.chunk_bytes)
        with os.fdopen(open_regular(path), "rb") as file:
            for j, size in enumerate(sizes.tolist()):
                stored = file.read(size)
                hasher.update(stored)
                self._plan.codec.decode(memoryview(stored), memoryview(decoded))
                chunks[j] = digest64(decoded)
            head_digest = hasher.hexdigest()
            hasher.update(file.read())
        return head_digest, hasher.hexdigest(), chunks

    def _record(self, g: int, linked: Mapping[str, _LinkedFile]) -> ShardRecord:
        part = self._plan.shard(g)
        keys = self._plan.samples.keys[part]
        made = self._made[part]
        ends = self._ends[part]
        first_origin = int(self._ends[part.start - 1]) if part.start else 0
        refused = np.flatnonzero(self._plan.samples.readable[part] & ~made).tolist()
        return ShardRecord(
            g=g,
            made=made,
            digest=self._digest[part],
            present={name: values[part] for name, values in self._present.items()},
            lengths={dim: values[part] for dim, values in self._lengths.items()},
            files={name: file.entry for name, file in linked.items()},
            chunks={name: file.chunks for name, file in linked.items()},
            sizes={name: file.sizes for name, file in linked.items()},
            origins=self._origins[first_origin : int(ends[-1])],
            origin_lengths=np.diff(ends, prepend=first_origin),
            reasons=[(place, self._reasons.get(keys[place], "")) for place in refused],
        )

    @cached_property
    def _reasons(self) -> Mapping[str, str]:
        """Why samples were not made, as far as ``build.json`` is readable."""
        with suppress(*_READ_ERRORS):
            return {
                str(k): str(v)
                for k, v in parse_document(self._place.store.read(layout.BUILD))["not_made"].items()
            }
        return {}

    # --------------------------------------------------------------------------------------- tables

    def _grid(self, name: str) -> layout.Grid:
        return layout.field_grid(
            self._plan.specs[name], len(self._plan.samples), self._plan.shard_samples, self._rows
        )

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        """The rows of a shard of each ragged dimension: from the root group, else the lengths."""
        with suppress(*_READ_ERRORS):
            return layout.Root.of(parse_document(self._place.read(layout.ZARR))).dims
        parts = [self._plan.shard(g) for g in range(self._plan.shards)]
        most_rows = {
            dim: max(int(n[part].sum()) for part in parts) for dim, n in self._lengths.items()
        }
        dims = self._plan.dims.items()
        return {
            dim: layout.ragged_rows([self._plan.specs[n] for n in names], most_rows[dim])
            for dim, names in dims
        }

    def _of_samples(self, path: str, dtype: str) -> Array:
        values, good = self._table(path, dtype, len(self._plan.samples))
        self._sound &= good
        return values

    def _texts(self, what: str, dim: str) -> tuple[Array, Array]:
        """Return the concatenated texts of the samples, and where each ends."""
        lengths, intact = self._table(
            layout.rows_path(dim, "length"), "int64", len(self._plan.samples)
        )
        try:
            ends = layout.ends_of(lengths, self._bytes(layout.sample_path(what)))
        except ValueError:
            intact[:] = False
        if not intact.all():
            self._sound[:] = False  # without all lengths the later texts cannot be located
            return np.zeros(0, np.uint8), np.zeros(len(lengths), np.int64)
        values, intact = self._table(layout.sample_path(what), "uint8", int(ends[-1]))
        bad_count = np.concatenate([[0], np.cumsum(~intact)])
        self._sound &= bad_count[ends] == bad_count[ends - lengths]
        return values, ends

    def _bytes(self, path: str) -> int:
        """Return the size of a table's file: an upper bound for its rows of one byte."""
        with suppress(*_READ_ERRORS):
            return max(
                0,
                self._place.store.size(f"{path}/{layout.table_grid('uint8', 1).shard_file(0)}")
                or 0,
            )
        return 0

    def _table(self, path: str, dtype: str, rows: int) -> tuple[Array, Array]:
        """Return a table, and which of its rows are intact: all, those in intact chunks, none."""
        grid = layout.table_grid(dtype, rows)
        intact = np.ones(rows, bool)
        file = f"{path}/{grid.shard_file(0)}"
        with suppress(*_READ_ERRORS):
            # Read once, so that the values used are the ones that were checked.
            raw = self._place.store.read(file, table_bytes(dtype, rows))
            memory_rows = MemoryRows(grid, raw)
            values = np.empty(grid.shape, np.dtype(dtype).newbyteorder("<"))
            memory_rows.span(0, rows, values)
            if file not in self._intact or digest_bytes(raw) != self._files[file][1]:
                array = StoredArray(
                    self._place, path, layout.array_document(grid, {}), lambda *_: ""
                )
                digests = np.array(
                    [digest64(memory_rows.chunk(j)) for j in range(array.chunks)], np.uint64
                )
                intact = np.repeat(digests == array.expected, grid.chunk)[:rows]
            return values, intact
        return np.zeros(rows, np.dtype(dtype).newbyteorder("<")), ~intact
