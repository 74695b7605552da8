"""What of a damaged cache is still right: whole shards, linked into an unfinished build with what is known of them."""

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
from datacheck.cache.shard_maps import MemoryRows
from datacheck.cache.sharded_array import StoredArray, chunk_sizes, table_bytes
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
    """Link the shards of a damaged cache that are whole into an unfinished build; return the records of finished ones.

    Args:
        cache: its folder; nothing in it changes.
        files: what its manifest says of its files, as far as that is known.
        intact: those that are what it says.
        plan: the plan of the cache; the build has made the folders that shards go into.
        stage: the unfinished build; what lies there of a shard that is whole is replaced.
        kept: records of the shards that are finished there already.

    Notes:
        A shard is taken where the files of all its fields are whole and every table still knows all
        its samples. Each is read once more, behind its link. Where links are refused it is copied.
    """
    found = _DamagedCache(cache, files, frozenset(intact), plan)
    with ThreadPoolExecutor(min(8, usable_cpus())) as threads:
        records = dict(
            zip(
                found.whole(),
                threads.map(lambda g: found.take(stage, g), found.whole()),
                strict=True,
            )
        )
    return {g: one for g, one in {**kept, **records}.items() if one is not None}


class _DamagedCache:
    def __init__(self, cache: Path, files: Files, intact: frozenset[str], plan: BuildPlan) -> None:
        self._cache, self._files, self._intact, self._plan = cache, files, intact, plan
        self._place = CacheFiles(open_store(cache), files, mapped=False, verify="manifest")
        self._sound = np.ones(len(plan.samples), bool)  # the samples that every table still knows
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
        """Return the shards of which every file is whole and every table still knows all samples."""
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
        """Link the files of shard `g` and write its record; None where something of it is lost meanwhile."""
        found = self._found(stage, g)
        if found is None or not provenance.fits(found, self._plan):
            stage.drop_linked(self._plan, [g])
            return None
        provenance.write(stage.records, found)
        return found

    def _found(self, stage: Staging, g: int) -> ShardRecord | None:
        files, chunks, sizes = {}, {}, {}
        for name in self._plan.specs:
            try:
                files[name], chunks[name], sizes[name] = self._linked(
                    stage, name, self._file(name, g), g
                )
            except OutOfSpaceError:
                raise
            except (
                CorruptionError,
                StorageError,
                OSError,
            ):  # damaged or gone since it was looked at
                return None
        return self._record(g, files, chunks, sizes)

    def _linked(
        self, stage: Staging, name: str, file: str, g: int
    ) -> tuple[tuple[int, str], Array, Array]:
        """Link a shard; return size and digest as its writer knew them, digests and stored sizes of its chunks.

        Raises:
            CorruptionError: it is not what the manifest says.
        """
        grid, spec, (size, digest) = self._grid(name), self._plan.specs[name], self._files[file]
        sizes, _ = chunk_sizes(self._place, self._place.store, layout.field_path(name), grid, g)
        target = stage.linked / file
        for path in (stage.shards / file, target):
            fsops.remove_file(path)
        fsops.link_or_copy(self._cache / file, target)
        head, whole, chunks = self._measured(target, grid, sizes)
        if whole != digest:
            raise CorruptionError(file)
        return (
            (size, digest) if spec.dim is None else (size - layout.index_bytes(grid), head),
            chunks,
            sizes,
        )

    def _measured(self, path: Path, grid: layout.Grid, sizes: Array) -> tuple[str, str, Array]:
        """Return the digest of a shard without its index, of all of it, and of each inner chunk."""
        hasher, chunks = Digester(), np.zeros(len(sizes), np.uint64)
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
        part, samples = self._plan.shard(g), self._plan.samples
        made, ends = self._made[part], self._ends[part]
        first = int(self._ends[part.start - 1]) if part.start else 0
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
            self._origins[first : int(ends[-1])],
            np.diff(ends, prepend=first),
            [(place, self._reasons.get(samples.keys[part.start + place], "")) for place in refused],
        )

    @cached_property
    def _reasons(self) -> Mapping[str, str]:
        """Why samples were not made, as far as ``build.json`` still says."""
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
        """The rows of a shard of each ragged dimension: as the root says, else as the lengths do."""
        with suppress(*_READ_ERRORS):
            return layout.Root.of(parse_document(self._place.read(layout.ZARR))).dims
        parts = [self._plan.shard(g) for g in range(self._plan.shards)]
        fullest = {
            dim: max(int(n[part].sum()) for part in parts) for dim, n in self._lengths.items()
        }
        dims = self._plan.dims.items()
        return {
            dim: layout.ragged_rows([self._plan.specs[n] for n in names], fullest[dim])
            for dim, names in dims
        }

    def _of_samples(self, path: str, dtype: str) -> Array:
        values, good = self._table(path, dtype, len(self._plan.samples))
        self._sound &= good
        return values

    def _texts(self, what: str, dim: str) -> tuple[Array, Array]:
        """Return the bytes of a text per sample, one behind the other, and where each ends."""
        lengths, good = self._table(
            layout.rows_path(dim, "length"), "int64", len(self._plan.samples)
        )
        try:
            ends = layout.ends_of(lengths, self._bytes(layout.sample_path(what)))
        except ValueError:
            good[:] = False
        if not good.all():
            self._sound[:] = False  # nobody knows where the texts behind begin
            return np.zeros(0, np.uint8), np.zeros(len(lengths), np.int64)
        values, good = self._table(layout.sample_path(what), "uint8", int(ends[-1]))
        bad = np.concatenate([[0], np.cumsum(~good)])
        self._sound &= bad[ends] == bad[ends - lengths]
        return values, ends

    def _bytes(self, path: str) -> int:
        """Return the bytes that a table's file has: more rows of one byte it cannot hold."""
        with suppress(*_READ_ERRORS):
            return max(
                0,
                self._place.store.size(f"{path}/{layout.table_grid('uint8', 1).shard_file(0)}")
                or 0,
            )
        return 0

    def _table(self, path: str, dtype: str, rows: int) -> tuple[Array, Array]:
        """Return a table and which of its rows are right: all, those in whole chunks, or none."""
        grid = layout.table_grid(dtype, rows)
        good = np.ones(rows, bool)
        file = f"{path}/{grid.shard_file(0)}"
        with suppress(*_READ_ERRORS):
            raw = self._place.store.read(
                file, table_bytes(dtype, rows)
            )  # once: what is believed is what was checked
            held, values = (
                MemoryRows(grid, raw),
                np.empty(grid.shape, np.dtype(dtype).newbyteorder("<")),
            )
            held.span(0, rows, values)
            if file not in self._intact or digest_bytes(raw) != self._files[file][1]:
                array = StoredArray(
                    self._place, path, layout.array_document(grid, {}), lambda *_: ""
                )
                found = np.array([digest64(held.chunk(j)) for j in range(array.chunks)], np.uint64)
                good = np.repeat(found == array.expected, grid.chunk)[:rows]
            return values, good
        return np.zeros(rows, np.dtype(dtype).newbyteorder("<")), ~good


_ENTRY = re.compile(
    rb'":\[(\d{1,19}),"([0-9a-f]{32})"\]'
)  # of a file in a manifest, behind its name
_LONGEST_NAME = 4096
_SHOWN, _LONGEST = 10, 160
_TRIES = 5


@dataclass(frozen=True, eq=False)
class RepairedCache:
    """A cache that was looked at, and mended where it had to be.

    Args:
        path: its folder.
        problems: what was wrong with it; nothing where it is as it was written, and was not
            touched.
        shards: how many it has of every field.
        rebuilt: how many of them were made anew.
        moved: where the damaged cache lies now, or None.
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
    """Check the caches of some splits byte by byte, and make anew what is damaged.

    Args:
        jobs: what they are built from; splits of which there is no cache are left out.
        out: the folder that holds caches.
        workers, scheduler: as `parallel.ordered_map`.
        progress: called after every task.

    Raises:
        UsageError: the sources, the schema or the pipeline give another key than the newest cache
            has; which part of it differs is said, and nothing is changed. Or there is no cache at
            all, or a source changed meanwhile.
        OutOfSpaceError: the disk is full.
        NondeterministicBuildError: what was made anew is not what the cache held.

    Notes:
        Whole shards are linked, damaged ones are made from the sources, tables and documents are
        written anew; the manifest must come out as it was. Only then the two folders change places;
        who reads the damaged one goes on with its files.
    """
    found = [(job, place) for job in jobs if (place := _cache_of(job, out)) is not None]
    if not found:
        where = out / jobs[0].pipeline if jobs else out
        msg = f"{where}: no cache of these data. Build it: datacheck cache build"
        raise UsageError(msg)
    return [_repair(job, place, workers, scheduler, progress) for job, place in found]


def _cache_of(job: BuildJob, out: Path) -> Path | None:
    """Return the cache that a job is the build of, or None where the split has no cache at all.

    Raises:
        UsageError: the split has caches, but of other inputs; or only an unfinished build of these.
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
    if newest in {None, target}:  # a build may just have named it
        return newest
    try:
        told = [
            f"{d.where}: {d.before[:_LONGEST]} -> {d.now[:_LONGEST]}"
            for d in explain(inputs["said"], digests(job), job.samples, newest)
        ]
    except CorruptionError as error:
        told = [f"what differs cannot be told: {error}"]
    more = [f"... and {len(told) - _SHOWN} more"] if len(told) > _SHOWN else []
    msg = (
        f"{newest}: made from other data, another schema or pipeline than these, so they cannot "
        f"repair it:"
    )
    raise UsageError(ManyLines.of([msg, *(f"    {line}" for line in told[:_SHOWN] + more)]))


def _repair(
    job: BuildJob, target: Path, workers: int, scheduler: str | None, progress: Progress | None
) -> RepairedCache:
    damaged, problems, manifest, intact = _examine(target)
    if not problems:
        publish.acknowledge(target)  # who renamed it may not have come so far
        return RepairedCache(target, [])
    plan, steps, inputs = prepare(job)
    with staging.claim(target.parent, target.name) as stage:
        kept = salvage(target, manifest.files, intact, plan, stage, stage.kept(plan))
        folder, done = finish_build(
            job, plan, steps, inputs, stage, kept, None, workers, scheduler, progress
        )
        _check_repaired(folder, target, done.manifest, manifest, intact)
        moved = publish.replace(folder, target, done.manifest, damaged)
    return RepairedCache(target, problems, plan.shards, plan.shards - len(kept), moved)


def _examine(target: Path) -> tuple[os.stat_result, list[Problem], Manifest, set[str]]:
    """Return which folder a cache is, what is wrong with it, what its manifest says, and which files are what it says.

    Raises:
        UsageError: it is gone: another build puts a new one in its place.

    Notes:
        Looks again where another build put another cache in its place meanwhile.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            folder = target.stat()
            try:
                found = _find_damage(target)
            except (OSError, DatacheckError):
                if os.path.samestat(folder, target.stat()):
                    raise
                continue
            if os.path.samestat(folder, target.stat()):
                return folder, *found
    msg = f"{target}: another build is just replacing it. Run the same command again."
    raise UsageError(msg)


def _find_damage(target: Path) -> tuple[list[Problem], Manifest, set[str]]:
    """See `_examine`.

    Notes:
        Of a damaged manifest what is left counts (its `digest` is "" then): an entry and a file
        that agree prove each other.
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
    whole = [path for path, (size, _) in manifest.files.items() if listed.get(path) == size]
    return problems, manifest, set(whole) - set(changed_files(store, manifest, whole))


def _manifest_entries(store: Store) -> dict[str, tuple[int, str]]:
    """Return the entries of files that can be found in a damaged manifest."""
    if dict(store.files()).get(layout.MANIFEST, -1) < 0:  # a link or a pipe is never opened
        return {}
    text = store.read(layout.MANIFEST)
    found: dict[str, tuple[int, str]] = {}
    end = 0
    for entry in _ENTRY.finditer(text):
        before = text[max(end, entry.start() - _LONGEST_NAME) : entry.start()]
        place = len(before)
        while (place := before.rfind(b'"', 0, place)) > 0 and _is_escaped(before, place):
            pass
        if place >= 0 and place + 1 < len(before):
            found[before[place + 1 :].decode("utf-8", "replace")] = int(entry[1]), entry[2].decode()
        end = entry.end()
    return found


def _is_escaped(text: bytes, place: int) -> bool:
    """Tell whether the byte at `place` stands behind an odd number of backslashes."""
    first = place
    while first and text[first - 1] == ord("\\"):
        first -= 1
    return (place - first) % 2 == 1


def _check_repaired(
    folder: Path, target: Path, made: Manifest, said: Manifest, intact: set[str]
) -> None:
    """Raise unless a repaired cache is what the damaged one was."""
    if not said.digest:  # only what is proven counts
        known = {path: entry for path, entry in made.files.items() if path in intact}
        made = replace(made, files=known)
        said = replace(made, files={path: said.files[path] for path in known})
    differing = publish.first_difference(made, said)
    if differing is not None:
        aside = publish.set_aside(folder, target.parent, target.name)
        msg = (
            f"{target}: made again, {differing} is not what the cache held. A transform is not "
            f"deterministic, or the "
            f"cache is none that this datacheck built. It was not changed; what was made lies in "
            f"{aside}"
        )
        raise NondeterministicBuildError(msg)
