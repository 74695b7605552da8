"""Reuse an earlier cache: link equal shards, copy samples that moved, make the rest.

A sample is the same if its key, the recipe that makes its arrays, and the digests of all files that
it is read from are the same; times and names prove nothing. Whatever the earlier cache cannot
provide is made from the sources.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.build import provenance
from datacheck.build.prepare import PreparedBuild
from datacheck.build.provenance import ShardRecord
from datacheck.build.shard_task import SampleCopies
from datacheck.build.staging import Staging
from datacheck.cache import layout
from datacheck.cache.manifest import CacheFiles, reader_lock
from datacheck.cache.parsing import parse_document
from datacheck.cache.sharded_array import table_bytes
from datacheck.cache.store import open_store
from datacheck.errors import DatacheckError, OutOfSpaceError, StorageError, SyncFailedError
from datacheck.runtime import machine, numerics

Array = np.ndarray[Any, Any]

# What a document or a table may raise that somebody damaged or wrote by hand.
_UNUSABLE = (DatacheckError, OSError, ValueError, LookupError, TypeError, AttributeError)
# Threads: one digests while the other makes a record; more would wait for the interpreter's lock.
_READERS = 2


@dataclass(eq=False)
class Reuse:
    """What a build reused of an earlier cache.

    Args:
        path: its folder.
        linked: how many shards were linked.
        copied: how many samples of other shards were copied.
        lost: shards that it should have provided and could not: they are damaged, or being removed.
    """

    path: Path
    linked: int = 0
    copied: int = 0
    lost: list[int] = field(default_factory=list)


def find_reusable(folders: Sequence[Path], prepared: PreparedBuild) -> ReusableCache | None:
    """Return the first cache of the same recipe whose tables are readable, or None.

    Args:
        folders: finished caches, or folders that were caches.
        prepared: the build that reuses one of them.
    """
    for folder in folders:
        with suppress(*_UNUSABLE):
            if _has_recipe(folder, prepared.fingerprint.recipe):
                return ReusableCache(folder, prepared)
    return None


def _has_recipe(folder: Path, recipe: str) -> bool:
    """Return whether a cache was made by this recipe, where numbers come out the same.

    A cache that does not say where it was made counts as the same.

    Raises:
        Exception: one of `_UNUSABLE`, for a cache whose documents are damaged.
    """
    files = CacheFiles.of_files(open_store(folder))
    if parse_document(files.read(layout.INPUTS))["recipe"] != recipe:
        return False
    here = numerics.computation_digest()
    return bool(_build_document(files).get("numerics", here) == here)


def _build_document(files: CacheFiles) -> dict[str, Any]:
    """Return the content of ``build.json``, which may be missing and is covered by no digest."""
    with suppress(*_UNUSABLE):
        return parse_document(files.store.read(layout.BUILD))
    return {}


class ReusableCache:
    """An earlier cache of the same recipe, matched with a plan.

    Shapes:
        numbers: int64 (samples of the plan): the sample of the earlier cache for each; -1: none

    Args:
        folder: the earlier cache.
        prepared: the build that reuses it.

    Raises:
        CorruptionError, LookupError, ValueError, TypeError: one of its tables or documents is
            damaged.

    Notes:
        Opens no shard of a field, so a cache with damaged or missing shards can still provide the
        others.
    """

    def __init__(self, folder: Path, prepared: PreparedBuild) -> None:
        self.folder = folder
        self.reuse = Reuse(folder)
        self._plan = prepared.plan
        # Keeps `cache gc` from removing the cache.
        self._lease = reader_lock(folder) if machine.is_local(folder) else None
        self._tables = _CacheTables(folder, prepared)
        self.numbers = self._matched(prepared)

    # ------------------------------------------------------------------------------------- matching

    def _matched(self, prepared: PreparedBuild) -> Array:
        """Return the value of `numbers`: equal keys, read from the same files with equal content.

        A sample that was readable in one of the two only is made again.
        """
        samples = self._plan.samples
        number_of = {key: i for i, key in enumerate(self._tables.keys)}
        was_readable = self._tables.readable.tolist()
        files_of = self._unchanged_files(prepared)
        matches = np.full(len(samples), -1, np.int64)
        for index, (key, readable, item) in enumerate(
            zip(samples.keys, samples.readable.tolist(), samples.item_of.tolist(), strict=True)
        ):
            number = number_of.get(key)
            if number is None or readable != was_readable[number]:
                continue
            if not readable or files_of[item] == self._origin_files(number):
                matches[index] = number
        return matches

    def _unchanged_files(self, prepared: PreparedBuild) -> list[list[str] | None]:
        """Return, per item, the files that reading it opens; None if one of them has changed."""
        job = prepared.job
        recorded = self._tables.sources()
        unchanged: list[list[str] | None] = []
        for item in range(len(job.files)):
            entries = job.entries(item)
            same = all(recorded.get(e.path) == (e.size, e.digest or "") for e in entries)
            unchanged.append([entry.path for entry in entries] if same else None)
        return unchanged

    def _origin_files(self, number: int) -> list[str]:
        return [part["file"] for part in orjson.loads(self._tables.origins[number])]

    @property
    def shared(self) -> list[int]:
        """The shards of the plan that equal shards of the earlier cache."""
        return [g for g in range(self._plan.shards) if self._shard(g) is not None]

    def _shard(self, g: int) -> int | None:
        """Return the shard of the earlier cache that equals shard `g` of the plan, or None."""
        root = self._tables.root
        if root.shard_samples != self._plan.shard_samples:
            return None
        numbers = self.numbers[self._plan.shard(g)]
        before, offset = divmod(int(numbers[0]), root.shard_samples)
        remaining = root.samples - before * root.shard_samples
        starts_a_shard = numbers[0] >= 0 and offset == 0
        if not starts_a_shard or len(numbers) != min(root.shard_samples, remaining):
            return None
        return before if (np.diff(numbers) == 1).all() else None

    # --------------------------------------------------------------------------------- whole shards

    @contextmanager
    def linking(
        self, stage: Staging, todo: Iterable[int]
    ) -> Iterator[Callable[[], dict[int, ShardRecord]]]:
        """Link shards into an unfinished build, and verify them in threads in the meantime.

        Args:
            stage: the build's folder.
            todo: shards that are `shared`.

        Returns:
            A function that returns the records of the shards that match the earlier manifest. The
            others count as lost, and their samples as not the same.

        Raises:
            OutOfSpaceError: a copy, made where links are refused, does not fit on the disk.
            SyncFailedError: the device did not store a copy.

        Notes:
            Links are not synced: the linked files were durable before their cache was published.
        """
        earlier_of = {g: before for g in todo if (before := self._shard(g)) is not None}
        linked = [g for g, before in earlier_of.items() if self._link(stage, g, before)]
        threads = ThreadPoolExecutor(_READERS)
        try:
            futures = [
                threads.submit(self._verified_record, stage, g, earlier_of[g]) for g in linked
            ]

            def records() -> dict[int, ShardRecord]:
                found = [future.result() for future in futures]
                verified = {record.g: record for record in found if record is not None}
                self.reuse.linked += len(verified)
                failed = [g for g in earlier_of if g not in verified]
                stage.drop_linked(self._plan, failed)
                self.note_lost(failed)
                return verified

            yield records
        finally:
            threads.shutdown(cancel_futures=True)

    def note_lost(self, shards: Sequence[int]) -> None:
        """Record that the earlier cache could not provide these shards of the plan."""
        for g in shards:
            self.numbers[self._plan.shard(g)] = -1
        self.reuse.lost += shards

    def _link(self, stage: Staging, g: int, before: int) -> bool:
        """Link the files of shard `before` as shard `g`; return False if one cannot be linked."""
        for name, spec in self._plan.specs.items():
            source, target = layout.shard_file(name, spec, before), layout.shard_file(name, spec, g)
            # A run may have been killed before it wrote the record.
            stage.clear(target)
            size, _ = self._tables.files.files[source]
            try:
                if self._tables.files.store.size(source) != size:  # a link, a pipe
                    return False
                stage.link(self.folder / source, target)
            except (OutOfSpaceError, SyncFailedError):
                raise
            except StorageError:  # missing or unreadable
                return False
        return True

    def _verified_record(self, stage: Staging, g: int, before: int) -> ShardRecord | None:
        """Write and return the record of a linked shard; None if its bytes are damaged.

        Raises:
            StorageError: the record cannot be written.
        """
        record = None
        with suppress(*_UNUSABLE):  # the shard, or the digests of its chunks, cannot be read
            record = self._record(stage, g, before)
        # Checked against the plan, because anybody may have written the earlier cache.
        if record is None or not provenance.fits(record, self._plan):
            return None
        stage.note_finished([provenance.write(stage.records, record)])
        return record

    def _record(self, stage: Staging, g: int, before: int) -> ShardRecord | None:
        """Return the record of a linked shard; None if its bytes are not those of the manifest."""
        tables = self._tables
        files = {}
        chunks = {}
        sizes = {}
        whole = {}
        for name, spec in self._plan.specs.items():
            grid = self._grid(name)
            size, digest = tables.files.files[layout.shard_file(name, spec, before)]
            file = layout.shard_file(name, spec, g)
            shard = stage.read_linked(file, size, layout.index_bytes(grid))
            sizes[name] = _stored_sizes(shard.index_part)
            if shard.digest != digest or shard.index_part != layout.pack_index(grid, sizes[name]):
                return None
            first_chunk = before * grid.chunks_per_shard
            digests = tables.chunk_digests(name)
            chunks[name] = digests[first_chunk : first_chunk + len(sizes[name])]
            files[name] = size, digest
            if spec.dim is not None:  # its index depends on other shards
                files[name] = size - len(shard.index_part), shard.head_digest
                whole[name] = size, digest
        shard_samples = tables.root.shard_samples
        part = slice(before * shard_samples, (before + 1) * shard_samples)
        readable, made = tables.readable[part], tables.made[part]
        origins = [
            text if ok else b"" for text, ok in zip(tables.origins[part], readable, strict=True)
        ]
        refused = np.flatnonzero(readable & ~made).tolist()
        return ShardRecord(
            g=g,
            made=made,
            digest=tables.digests[part],
            present={name: mask[part] for name, mask in tables.present.items()},
            lengths={dim: lengths[part] for dim, lengths in tables.lengths.items()},
            files=files,
            chunks=chunks,
            sizes=sizes,
            origins=np.frombuffer(b"".join(origins), np.uint8),
            origin_lengths=np.array([len(text) for text in origins], np.int64),
            reasons=[(place, tables.reasons[part.start + place]) for place in refused],
            whole=whole,
        )

    def _grid(self, name: str) -> layout.Grid:
        root = self._tables.root
        return layout.field_grid(
            self._plan.specs[name], root.samples, root.shard_samples, root.dims
        )

    # --------------------------------------------------------------------------- samples that moved

    def copies(self, g: int) -> SampleCopies | None:
        """Return the samples of shard `g` to copy, or None."""
        numbers = self.numbers[self._plan.shard(g)]
        places = np.flatnonzero(numbers >= 0)
        reasons = self._tables.reasons
        made = self._tables.made[numbers[places]]
        pairs = zip(places[~made].tolist(), numbers[places[~made]].tolist(), strict=True)
        refused = [(place, i, reasons[i]) for place, i in pairs if i in reasons]
        if not made.any() and not refused:
            return None
        folder = Path(os.path.abspath(self.folder))  # noqa: PTH100  links stay links
        return SampleCopies(folder, places[made], numbers[places[made]], refused)

    def note_copied(self, shards: Iterable[int]) -> None:
        """Record that the samples in `copies` of these shards were copied."""
        for g in shards:
            numbers = self.numbers[self._plan.shard(g)]
            self.reuse.copied += int(self._tables.readable[numbers[numbers >= 0]].sum())


def _stored_sizes(index: bytes) -> Array:
    """Return the stored sizes of the inner chunks present in an index: uint64 (chunks)."""
    entries = np.frombuffer(index[:-4], "<u8").reshape(-1, 2)
    sizes: Array = entries[entries[:, 0] != layout.ABSENT, 1]
    return sizes


class _CacheTables:
    """The tables of an earlier cache; each file is checked against the manifest.

    Shapes:
        made, readable: bool (samples)
        digests: uint64 (samples)
        lengths[dim]: int64 (samples)
        present[field]: bool (samples), of optional fields

    Args:
        folder: the cache.
        prepared: a build of the same recipe: its fields are those of the cache.

    Attributes:
        files: the files of the cache.
        root: the attributes of its root group.
        keys, origins: of each sample.
        reasons: why readable samples were not made, by number.

    Raises:
        Exception: one of `_UNUSABLE`, for a cache with a damaged table or document.

    Notes:
        Opens no shard of a field, so a cache with damaged or missing shards can still provide the
        others.
    """

    def __init__(self, folder: Path, prepared: PreparedBuild) -> None:
        plan = prepared.plan
        self.files = CacheFiles.of_files(open_store(folder))
        self.root = layout.Root.of(self._json(layout.ZARR))
        self.made = self._table(layout.sample_path("made"), "bool")
        self.digests = self._table(layout.sample_path("digest"), "<u8")
        self.lengths = {
            dim: self._table(layout.rows_path(dim, "length"), "<i8") for dim in plan.dims
        }
        optional = [name for name, spec in plan.specs.items() if spec.optional]
        self.present = {name: self._table(layout.present_path(name), "bool") for name in optional}
        self.origins = self._texts("origin", layout.ORIGIN_DIM)
        keys = self._texts("key", layout.KEY_DIM)
        self.keys = [key.decode("utf-8", "surrogatepass") for key in keys]
        self.reasons = self._refused()
        self.readable = self.made.copy()
        self.readable[list(self.reasons)] = True
        self._chunk_digests: dict[str, Array] = {}

    def chunk_digests(self, name: str) -> Array:
        """Return uint64 (inner chunks): the digests of the decoded chunks of a field."""
        if name not in self._chunk_digests:
            path = layout.digests_path(layout.field_path(name))
            self._chunk_digests[name] = self._table(path, "<u8")
        return self._chunk_digests[name]

    def sources(self) -> dict[str, tuple[Any, ...]]:
        """Return size and digest of every source file, by path."""
        entries = self._json(layout.SOURCES)["files"]
        return {path: tuple(entry) for path, entry in entries.items()}

    def _json(self, path: str) -> dict[str, Any]:
        return parse_document(self.files.read(path))

    def _table(self, path: str, dtype: str) -> Array:
        """Return a table, checked, without the padding of its last inner chunk."""
        document = self._json(f"{path}/{layout.ZARR}")
        rows = int(document["shape"][0])
        if not rows:
            return np.zeros(0, dtype)
        file = f"{path}/{layout.table_grid(document['data_type'], rows).shard_file(0)}"
        return np.frombuffer(self.files.read(file, table_bytes(dtype, rows)), dtype, rows)

    def _texts(self, what: str, dim: str) -> list[bytes]:
        joined = self._table(layout.sample_path(what), "u1").tobytes()
        lengths = self._table(layout.rows_path(dim, "length"), "<i8")
        ends = layout.ends_of(lengths, len(joined)).tolist()
        return [
            joined[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)
        ]

    def _refused(self) -> dict[int, str]:
        """Return why readable samples were not made, by number.

        Samples without a reason are not listed, so that they are tried again.
        """
        codes: dict[str, list[str]] = self._json(layout.FINDINGS)
        reasons = _build_document(self.files).get("not_made")
        if not isinstance(reasons, dict):
            return {}
        refused = {}
        for number in np.flatnonzero(~self.made).tolist():
            key = self.keys[number]
            if provenance.NOT_MADE in codes.get(key, ()) and key in reasons:
                refused[number] = str(reasons[key])
        return refused
