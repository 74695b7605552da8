"""Repair damaged caches: link their intact shards into a build and rebuild the others."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build import fingerprint, provenance, publish, staging
from datacheck.build.builder import finish_build, prepare
from datacheck.build.fingerprint import explain
from datacheck.build.job import BuildJob, digests
from datacheck.build.plan import BuildPlan
from datacheck.build.provenance import ShardRecord
from datacheck.build.staging import Staging
from datacheck.cache import layout
from datacheck.cache.damage import changed_files
from datacheck.cache.find import find_builds, newest_caches
from datacheck.cache.manifest import CacheFiles, Manifest, read_manifest
from datacheck.cache.parsing import parse_document
from datacheck.cache.problem import Problem
from datacheck.cache.shard_index import read_shard_chunks
from datacheck.cache.shard_maps import MemoryRows
from datacheck.cache.sharded_array import StoredArray, table_bytes
from datacheck.cache.store import Store, open_store
from datacheck.cache.verify import verify
from datacheck.errors import (
    CorruptionError,
    DatacheckError,
    ManyLines,
    NondeterministicBuildError,
    OutOfSpaceError,
    StorageError,
    UsageError,
)
from datacheck.model.finding import Progress
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
    with ThreadPoolExecutor(min(8, usable_cpus())) as threads:
        records = dict(
            zip(
                damaged.whole(),
                threads.map(lambda g: damaged.take(stage, g), damaged.whole()),
                strict=True,
            )
        )
    return {g: record for g, record in {**kept, **records}.items() if record is not None}


class _DamagedCache:
    def __init__(self, cache: Path, files: Files, intact: frozenset[str], plan: BuildPlan) -> None:
        self._cache, self._files, self._intact, self._plan = cache, files, intact, plan
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

    def whole(self) -> list[int]:
        """Return the shards with intact files whose samples have intact rows in every table."""
        return [
            g
            for g in range(self._plan.shards)
            if self._sound[self._plan.shard(g)].all() and self._is_intact(g)
        ]

    def _is_intact(self, g: int) -> bool:
        return all(self._file(name, g) in self._intact for name in self._plan.specs)

    def _file(self, name: str, g: int) -> str:
        return f"{layout.field_path(name)}/{self._grid(name).shard_file(g)}"

    def take(self, stage: Staging, g: int) -> ShardRecord | None:
        """Link the files of shard `g` and write its record; None if a file was lost in between."""
        record = self._found(stage, g)
        if record is None or not provenance.fits(record, self._plan):
            stage.drop_linked(self._plan, [g])
            return None
        provenance.write(stage.records, record)
        return record

    def _found(self, stage: Staging, g: int) -> ShardRecord | None:
        files = {}
        chunks = {}
        sizes = {}
        for name in self._plan.specs:
            try:
                files[name], chunks[name], sizes[name] = self._linked(
                    stage, name, self._file(name, g), g
                )
            except OutOfSpaceError:
                raise
            except (CorruptionError, StorageError, OSError):  # damaged or removed since the check
                return None
        return self._record(g, files, chunks, sizes)

    def _linked(
        self, stage: Staging, name: str, file: str, g: int
    ) -> tuple[tuple[int, str], Array, Array]:
        """Link a shard; return its size and digest, and the digests and sizes of its chunks.

        Size and digest are those of the file as its writer knew it: without the index if it is
        ragged.

        Raises:
            CorruptionError: it does not match the manifest.
        """
        grid, spec, (size, digest) = self._grid(name), self._plan.specs[name], self._files[file]
        field = layout.field_path(name)
        sizes = read_shard_chunks(self._place, self._place.store, field, grid, g).sizes
        target = stage.linked / file
        for path in (stage.shards / file, target):
            fsops.remove_file(path)
        fsops.link_or_copy(self._cache / file, target)
        head, whole_digest, chunks = self._measured(target, grid, sizes)
        if whole_digest != digest:
            raise CorruptionError(file)
        return (
            (size, digest) if spec.dim is None else (size - layout.index_bytes(grid), head),
            chunks,
            sizes,
        )

    def _measured(self, path: Path, grid: layout.Grid, sizes: Array) -> tuple[str, str, Array]:
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
            head = hasher.hexdigest()
            hasher.update(file.read())
        return head, hasher.hexdigest(), chunks

    def _record(self, g: int, files: Any, chunks: Any, sizes: Any) -> ShardRecord:
        part = self._plan.shard(g)
        samples = self._plan.samples
        made = self._made[part]
        ends = self._ends[part]
        origin_start = int(self._ends[part.start - 1]) if part.start else 0
        refused = np.flatnonzero(samples.readable[part] & ~made).tolist()
        return ShardRecord(
            g,
            made,
            self._digest[part],
            {name: values[part] for name, values in self._present.items()},
            {dim: values[part] for dim, values in self._lengths.items()},
            files,
            chunks,
            sizes,
            self._origins[origin_start : int(ends[-1])],
            np.diff(ends, prepend=origin_start),
            [(place, self._reasons.get(samples.keys[part.start + place], "")) for place in refused],
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
            self._plan.specs[name], len(self._plan.samples), self._plan.k, self._rows
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


# The entry of a file in a manifest, after its name.
_ENTRY = re.compile(rb'":\[(\d{1,19}),"([0-9a-f]{32})"\]')
_LONGEST_NAME = 4096
_SHOWN = 10
_LONGEST = 160
_TRIES = 5


@dataclass(frozen=True, eq=False)
class RepairedCache:
    """A cache that was checked, and repaired if needed.

    Args:
        path: its folder.
        problems: its problems; empty if it is intact, and was not touched.
        shards: shards of every field.
        rebuilt: how many of them were rebuilt.
        moved: where the damaged cache was moved, or None.
    """

    path: Path
    problems: list[Problem]
    shards: int = 0
    rebuilt: int = 0
    moved: Path | None = None


def repair_caches(
    jobs: Sequence[BuildJob],
    out: Path,
    *,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[RepairedCache]:
    """Check the caches of some splits byte by byte, and rebuild damaged shards only.

    Args:
        jobs: the jobs of the splits; splits without a cache are skipped.
        out: the folder that holds caches.
        workers, scheduler: as in `parallel.ordered_map`.
        progress: called after every task.

    Raises:
        UsageError: the sources, the schema or the pipeline give another key than that of the newest
            cache; the message says which part differs, and nothing is changed. Or there is no cache
            at all, or a source changed in between.
        OutOfSpaceError: the disk is full.
        NondeterministicBuildError: the rebuilt shards differ from the content of the cache.

    Notes:
        Intact shards are linked, damaged ones are made from the sources, tables and documents are
        written again; the manifest must come out the same. Only then the two folders are exchanged;
        readers of the damaged cache continue with its files.
    """
    caches = [(job, place) for job in jobs if (place := _cache_of(job, out)) is not None]
    if not caches:
        where = out / jobs[0].pipeline if jobs else out
        msg = f"{where}: no cache of these data. Build it: datacheck cache build"
        raise UsageError(msg)
    return [_repair(job, place, workers, scheduler, progress) for job, place in caches]


def _cache_of(job: BuildJob, out: Path) -> Path | None:
    """Return the cache that a job builds; None if the split has no cache at all.

    Raises:
        UsageError: the split has only caches of other inputs, or an unfinished build of these
            inputs.
    """
    plan, _, inputs = prepare(job)
    folder = out / job.pipeline / plan.split
    target = folder / fingerprint.key(inputs["said"])
    if target.exists():
        return target
    if any(build.name.startswith(f"{target.name}.") for build in find_builds(folder)):
        msg = (
            f"{target}: not there, but a build or repair of it was begun. Go on with it: "
            f"datacheck cache build"
        )
        raise UsageError(msg)
    newest = next(iter(newest_caches(folder)), None)
    if newest in {None, target}:  # `target`: a build has published it in between
        return newest
    try:
        lines = [
            f"{d.where}: {d.before[:_LONGEST]} -> {d.now[:_LONGEST]}"
            for d in explain(inputs["said"], digests(job), job.samples, newest)
        ]
    except CorruptionError as error:
        lines = [f"what differs cannot be told: {error}"]
    more = [f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    msg = (
        f"{newest}: made from other data, another schema or pipeline than these, so they cannot "
        f"repair it:"
    )
    raise UsageError(ManyLines.of([msg, *(f"    {line}" for line in lines[:_SHOWN] + more)]))


def _repair(
    job: BuildJob, target: Path, workers: int, scheduler: str | None, progress: Progress | None
) -> RepairedCache:
    damaged, problems, manifest, intact = _examine(target)
    if not problems:
        publish.acknowledge(target)  # the builder that renamed it may not have synced it
        return RepairedCache(target, [])
    plan, steps, inputs = prepare(job)
    with staging.claim(target.parent, target.name) as stage:
        kept = salvage(target, manifest.files, intact, plan, stage, stage.kept(plan))
        folder, finished = finish_build(
            job, plan, steps, inputs, stage, kept, None, workers, scheduler, progress
        )
        _check_repaired(folder, target, finished.manifest, manifest, intact)
        moved = publish.replace(folder, target, finished.manifest, damaged)
    return RepairedCache(target, problems, plan.shards, plan.shards - len(kept), moved)


def _examine(target: Path) -> tuple[os.stat_result, list[Problem], Manifest, set[str]]:
    """Return the status of a cache's folder, its problems, its manifest, and its intact files.

    Raises:
        UsageError: it is gone, because another build is replacing it.

    Notes:
        Starts again if another build replaced the cache in between.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            status = target.stat()
            try:
                damage = _find_damage(target)
            except (OSError, DatacheckError):
                if os.path.samestat(status, target.stat()):
                    raise
                continue
            if os.path.samestat(status, target.stat()):
                return status, *damage
    msg = f"{target}: another build is just replacing it. Run the same command again."
    raise UsageError(msg)


def _find_damage(target: Path) -> tuple[list[Problem], Manifest, set[str]]:
    """Return the problems, the manifest and the intact files; see `_examine`.

    Notes:
        Of a damaged manifest the readable entries count (its `digest` is "" then): an entry and a
        file that agree prove each other.
    """
    store = open_store(target)
    if store.size(layout.MANIFEST) is None:
        problems = [Problem(layout.MANIFEST, "missing", samples="all samples")]
    else:
        problems = verify(target, "full")
    if not any(problem.file == layout.MANIFEST for problem in problems):
        manifest = read_manifest(store)
        return problems, manifest, set(manifest.files) - {problem.file for problem in problems}
    manifest = Manifest(_manifest_entries(store), "", "")
    listed = dict(store.files())
    candidates = [path for path, (size, _) in manifest.files.items() if listed.get(path) == size]
    return problems, manifest, set(candidates) - set(changed_files(store, manifest, candidates))


def _manifest_entries(store: Store) -> dict[str, tuple[int, str]]:
    """Return the entries of files that are readable in a damaged manifest."""
    if dict(store.files()).get(layout.MANIFEST, -1) < 0:  # a link or a pipe is never opened
        return {}
    text = store.read(layout.MANIFEST)
    entries: dict[str, tuple[int, str]] = {}
    end = 0
    for entry in _ENTRY.finditer(text):
        preceding = text[max(end, entry.start() - _LONGEST_NAME) : entry.start()]
        position = len(preceding)
        while (position := preceding.rfind(b'"', 0, position)) > 0 and _is_escaped(
            preceding, position
        ):
            pass
        if position >= 0 and position + 1 < len(preceding):
            entries[preceding[position + 1 :].decode("utf-8", "replace")] = (
                int(entry[1]),
                entry[2].decode(),
            )
        end = entry.end()
    return entries


def _is_escaped(text: bytes, place: int) -> bool:
    """Return whether the byte at `place` follows an odd number of backslashes."""
    start = place
    while start and text[start - 1] == ord("\\"):
        start -= 1
    return (place - start) % 2 == 1


def _check_repaired(
    folder: Path, target: Path, repaired: Manifest, original: Manifest, intact: set[str]
) -> None:
    """Raise unless a repaired cache equals the damaged one as it was written."""
    if not original.digest:  # the manifest was damaged: compare proven entries only
        proven = {path: entry for path, entry in repaired.files.items() if path in intact}
        repaired = replace(repaired, files=proven)
        original = replace(repaired, files={path: original.files[path] for path in proven})
    differing = publish.first_difference(repaired, original)
    if differing is not None:
        aside = publish.set_aside(folder, target.parent, target.name)
        msg = (
            f"{target}: made again, {differing} is not what the cache held. A transform is not "
            f"deterministic, or the "
            f"cache is none that this datacheck built. It was not changed; what was made lies in "
            f"{aside}"
        )
        raise NondeterministicBuildError(msg)
