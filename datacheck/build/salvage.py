"""Link the intact shards of a damaged cache into a build, so that only the others are made.

A record says what the tables of the cache say of a shard. A shard is intact if the files of all its
fields match the manifest, and if every table still has the rows of its samples.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datacheck.build import provenance
from datacheck.build.damaged_cache import DamagedTables, Examination
from datacheck.build.plan import BuildPlan
from datacheck.build.provenance import ShardRecord
from datacheck.build.staging import Staging
from datacheck.cache import layout
from datacheck.cache.shard_index import read_shard_chunks
from datacheck.errors import CorruptionError, OutOfSpaceError, StorageError
from datacheck.runtime.beneath import open_regular
from datacheck.runtime.hashing import Digester, digest64
from datacheck.runtime.machine import usable_cpus

Array = np.ndarray[Any, Any]


def salvage(
    cache: Path,
    examined: Examination,
    plan: BuildPlan,
    stage: Staging,
    kept: Mapping[int, ShardRecord],
) -> dict[int, ShardRecord]:
    """Link the intact shards of a damaged cache into a build; return the finished records.

    Args:
        cache: the folder of the damaged cache, which is not changed.
        examined: its manifest, as far as it is known, and the files that match.
        plan: the plan of the cache; the build has created the folders for shards.
        stage: the unfinished build; its files of intact shards are replaced.
        kept: records of the shards that are already finished there.

    Notes:
        A shard is taken if the files of all its fields are intact and every table still has rows
        for all its samples. Each file is read again, through its link. Where links are refused it
        is copied.
    """
    damaged = _DamagedShards(cache, DamagedTables(cache, examined, plan), plan)
    intact_shards = damaged.intact()
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


class _DamagedShards:
    """The shards of a damaged cache, with what its tables say of them."""

    def __init__(self, cache: Path, tables: DamagedTables, plan: BuildPlan) -> None:
        self._cache = cache
        self._tables = tables
        self._plan = plan

    def intact(self) -> list[int]:
        """Return the shards with intact files whose samples have intact rows in every table."""
        return [
            g
            for g in range(self._plan.shards)
            if self._tables.sound[self._plan.shard(g)].all() and self._is_intact(g)
        ]

    def _is_intact(self, g: int) -> bool:
        return all(self._file(name, g) in self._tables.intact for name in self._plan.specs)

    def _file(self, name: str, g: int) -> str:
        return layout.shard_file(name, self._plan.specs[name], g)

    def take(self, stage: Staging, g: int) -> ShardRecord | None:
        """Link the files of shard `g` and write its record; None if a file was lost in between."""
        record = self._found(stage, g)
        if record is None or not provenance.fits(record, self._plan):
            stage.drop_linked(self._plan, [g])
            return None
        stage.note_finished([provenance.write(stage.records, record)])
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
        grid = self._tables.grid(name)
        size, digest = self._tables.files[file]
        cache_files = self._tables.cache_files
        field = layout.field_path(name)
        sizes = read_shard_chunks(cache_files, cache_files.store, field, grid, g).sizes
        stage.clear(file)
        stage.link(self._cache / file, file)
        head_digest, whole_digest, chunks = self._digests(stage.linked / file, grid, sizes)
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
        tables = self._tables
        part = self._plan.shard(g)
        keys = self._plan.samples.keys[part]
        made = tables.made[part]
        ends = tables.origin_ends[part]
        first_origin = int(tables.origin_ends[part.start - 1]) if part.start else 0
        refused = np.flatnonzero(self._plan.samples.readable[part] & ~made).tolist()
        return ShardRecord(
            g=g,
            made=made,
            digest=tables.digest[part],
            present={name: values[part] for name, values in tables.present.items()},
            lengths={dim: values[part] for dim, values in tables.lengths.items()},
            files={name: file.entry for name, file in linked.items()},
            chunks={name: file.chunks for name, file in linked.items()},
            sizes={name: file.sizes for name, file in linked.items()},
            origins=tables.origins[first_origin : int(ends[-1])],
            origin_lengths=np.diff(ends, prepend=first_origin),
            reasons=[(place, tables.reasons.get(keys[place], "")) for place in refused],
        )
