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
from datacheck.build.finish import NOT_MADE
from datacheck.build.plan import BuildPlan
from datacheck.build.provenance import ShardRecord
from datacheck.build.shard_worker import shard_file
from datacheck.build.staging import Staging
from datacheck.cache import layout
from datacheck.cache.manifest import CacheFiles, reader_lock
from datacheck.cache.parsing import parse_document
from datacheck.cache.sharded_array import table_bytes
from datacheck.cache.store import open_store
from datacheck.errors import DatacheckError, OutOfSpaceError, StorageError, SyncFailedError
from datacheck.runtime import fsops, machine, numerics
from datacheck.runtime.beneath import open_regular
from datacheck.runtime.hashing import digest_head

Array = np.ndarray[Any, Any]
File = tuple[str, int, str]  # path, size, digest

# Threads: one digests while the other makes a record; more would wait for the interpreter's lock.
_READERS = 2
_UNUSABLE = (DatacheckError, OSError, ValueError, LookupError, TypeError, AttributeError)


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


def find_reusable(
    folders: Sequence[Path], recipe: str, plan: BuildPlan, files: Sequence[Sequence[File]]
) -> ReusableCache | None:
    """Return the first cache of the same recipe whose tables are readable, or None.

    Args:
        folders: finished caches, or folders that were caches.
        recipe: `fingerprint.recipe` of the build.
        plan: the plan of the build.
        files: per item of the plan's samples, all files that reading it opens, the main one first.
    """
    for folder in folders:
        with suppress(*_UNUSABLE):
            cache_files = CacheFiles.of_files(open_store(folder))
            if parse_document(cache_files.read(layout.INPUTS))[
                "recipe"
            ] == recipe and _has_same_numerics(cache_files):
                return ReusableCache(folder, plan, files)
    return None


def _has_same_numerics(cache_files: CacheFiles) -> bool:
    """Return whether a cache was made where numbers come out the same, or does not say."""
    return bool(
        _build(cache_files).get("numerics", numerics.computation_digest())
        == numerics.computation_digest()
    )


def _build(cache_files: CacheFiles) -> dict[str, Any]:
    """Return the content of ``build.json``, which may be missing and is covered by no digest."""
    with suppress(*_UNUSABLE):
        return parse_document(cache_files.store.read(layout.BUILD))
    return {}


class ReusableCache:
    """An earlier cache of the same recipe, matched with a plan.

    Shapes:
        numbers: int64 (samples of the plan): the sample of the earlier cache for each; -1: none

    Args:
        folder: the earlier cache.
        plan: the plan of the build.
        files: see `find_reusable`.

    Raises:
        CorruptionError, LookupError, ValueError, TypeError: one of its tables or documents is
            damaged.

    Notes:
        Opens no shard of a field, so a cache with damaged or missing shards can still provide the
        others.
    """

    def __init__(self, folder: Path, plan: BuildPlan, files: Sequence[Sequence[File]]) -> None:
        self.folder, self.reuse, self._plan = folder, Reuse(folder), plan
        # Keeps `cache gc` from removing the cache.
        self._lease = reader_lock(folder) if machine.is_local(folder) else None
        self._place = CacheFiles.of_files(open_store(folder))
        self._root = layout.Root.of(self._json(layout.ZARR))
        self._made = self._table(layout.sample_path("made"), "bool")
        self._digests = self._table(layout.sample_path("digest"), "<u8")
        self._lengths = {
            dim: self._table(layout.rows_path(dim, "length"), "<i8") for dim in plan.dims
        }
        self._present = {
            n: self._table(layout.present_path(n), "bool")
            for n, s in plan.specs.items()
            if s.optional
        }
        self._chunks: dict[str, Array] = {}
        self._origins = self._texts("origin", layout.ORIGIN_DIM)
        self._keys = [
            key.decode("utf-8", "surrogatepass") for key in self._texts("key", layout.KEY_DIM)
        ]
        self._reasons = self._refused()
        self._readable = self._made.copy()
        self._readable[list(self._reasons)] = True
        self.numbers = self._matched(files)

    # -------------------------------------------------------------------------------------- reading

    def _json(self, path: str) -> dict[str, Any]:
        return parse_document(self._place.read(path))

    def _table(self, path: str, dtype: str) -> Array:
        """Return a table, checked, without the padding of its last inner chunk."""
        document = self._json(f"{path}/{layout.ZARR}")
        rows = int(document["shape"][0])
        file = f"{path}/{layout.table_grid(document['data_type'], rows).shard_file(0)}"
        return np.frombuffer(
            self._place.read(file, table_bytes(dtype, rows)) if rows else b"", dtype, rows
        )

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
        reasons = _build(self._place).get("not_made")
        reasons = reasons if isinstance(reasons, dict) else {}
        missing = ((i, self._keys[i]) for i in np.flatnonzero(~self._made).tolist())
        return {
            i: str(reasons[key])
            for i, key in missing
            if NOT_MADE in codes.get(key, ()) and key in reasons
        }

    # ------------------------------------------------------------------------------------- matching

    def _matched(self, files: Sequence[Sequence[File]]) -> Array:
        samples = self._plan.samples
        sources = {
            path: tuple(entry) for path, entry in self._json(layout.SOURCES)["files"].items()
        }
        # The files of each item; None if one of them has changed.
        read = [
            [path for path, *_ in item_files]
            if all(sources.get(path) == tuple(entry) for path, *entry in item_files)
            else None
            for item_files in files
        ]
        number = {key: i for i, key in enumerate(self._keys)}
        readable = samples.readable.tolist()
        was_readable = self._readable.tolist()
        matches = np.full(len(samples), -1, np.int64)
        for index, (key, item) in enumerate(
            zip(samples.keys, samples.item_of.tolist(), strict=True)
        ):
            i = number.get(key)
            if i is None or readable[index] != was_readable[i]:
                continue
            if not readable[index] or read[item] == [
                part["file"] for part in orjson.loads(self._origins[i])
            ]:
                matches[index] = i
        return matches

    @property
    def shared(self) -> list[int]:
        """The shards of the plan that equal shards of the earlier cache."""
        return [g for g in range(self._plan.shards) if self._shard(g) is not None]

    def _shard(self, g: int) -> int | None:
        """Return the shard of the earlier cache that equals shard `g` of the plan, or None."""
        k = self._root.shard_samples
        numbers = self.numbers[self._plan.shard(g)]
        first = int(numbers[0])
        if (
            k != self._plan.k
            or first < 0
            or first % k
            or len(numbers) != min(k, self._root.samples - first)
        ):
            return None
        return first // k if (np.diff(numbers) == 1).all() else None

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
        pairs = [(g, earlier_shard) for g in todo if (earlier_shard := self._shard(g)) is not None]
        linked = [pair for pair in pairs if self._linked(stage, *pair)]
        threads = ThreadPoolExecutor(_READERS)
        try:
            read = [threads.submit(self._verified_record, stage, *pair) for pair in linked]

            def records() -> dict[int, ShardRecord]:
                verified = {
                    record.g: record for future in read if (record := future.result()) is not None
                }
                self.reuse.linked += len(verified)
                failed = [g for g, _ in pairs if g not in verified]
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

    def _files(self, g: int, before: int) -> Iterator[tuple[str, str]]:
        """Yield the path of each file of shard `before`, and its path as shard `g`."""
        for name, spec in self._plan.specs.items():
            path = layout.field_path(name)
            yield f"{path}/{shard_file(before, spec)}", f"{path}/{shard_file(g, spec)}"

    def _linked(self, stage: Staging, g: int, before: int) -> bool:
        for source, target in self._files(g, before):
            for place in (stage.shards, stage.linked):
                # Left by a run that was killed before it wrote the record.
                fsops.remove_file(place / target)
            try:
                if self._place.store.size(source) != self._place.files[source][0]:  # a link, a pipe
                    return False
                fsops.link_or_copy(self.folder / source, stage.linked / target)
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
            record = self._record(stage.linked, g, before)
        # Checked against the plan, because anybody may have written the earlier cache.
        if record is None or not provenance.fits(record, self._plan):
            return None
        provenance.write(stage.records, record)
        return record

    def _record(self, linked: Path, g: int, before: int) -> ShardRecord | None:
        part = slice(before * self._root.shard_samples, (before + 1) * self._root.shard_samples)
        files = {}
        chunks = {}
        sizes = {}
        ragged = {}
        for (name, spec), (source, target) in zip(
            self._plan.specs.items(), self._files(g, before), strict=True
        ):
            grid = self._grid(name)
            size, digest = self._place.files[source]
            whole_digest, head, index = _digests(linked / target, size, layout.index_bytes(grid))
            sizes[name] = _sizes(index)
            if whole_digest != digest or index != layout.pack_index(grid, sizes[name]):
                return None
            first_chunk = before * grid.chunks_per_shard
            if name not in self._chunks:
                self._chunks[name] = self._table(
                    layout.digests_path(layout.field_path(name)), "<u8"
                )
            chunks[name] = self._chunks[name][first_chunk : first_chunk + len(sizes[name])]
            files[name] = size, digest
            if spec.dim is not None:  # its index depends on other shards
                files[name], ragged[name] = (size - len(index), head), (size, digest)
        texts = [
            text if ok else b""
            for text, ok in zip(self._origins[part], self._readable[part], strict=True)
        ]
        refused = np.flatnonzero(self._readable[part] & ~self._made[part]).tolist()
        return ShardRecord(
            g,
            self._made[part],
            self._digests[part],
            {n: mask[part] for n, mask in self._present.items()},
            {dim: lengths[part] for dim, lengths in self._lengths.items()},
            files,
            chunks,
            sizes,
            np.frombuffer(b"".join(texts), np.uint8),
            np.array([len(text) for text in texts], np.int64),
            [(place, self._reasons[part.start + place]) for place in refused],
            ragged,
        )

    def _grid(self, name: str) -> layout.Grid:
        root = self._root
        return layout.field_grid(
            self._plan.specs[name], root.samples, root.shard_samples, root.dims
        )

    # --------------------------------------------------------------------------- samples that moved

    def copies(self, g: int) -> dict[str, Any] | None:
        """Return the samples of shard `g` to copy, in the form of a task, or None.

        Returns:
            made: places in the shard and numbers in the earlier cache of samples; refused: place,
                number
            and reason of samples that could not be made there either.
        """
        numbers = self.numbers[self._plan.shard(g)]
        places = np.flatnonzero(numbers >= 0)
        made = self._made[numbers[places]]
        pairs = zip(places[~made].tolist(), numbers[places[~made]].tolist(), strict=True)
        refused = [[place, i, self._reasons[i]] for place, i in pairs if i in self._reasons]
        if not made.any() and not refused:
            return None
        return {"made": [places[made].tolist(), numbers[places[made]].tolist()], "refused": refused}

    def note_copied(self, shards: Iterable[int]) -> None:
        """Record that the samples in `copies` of these shards were copied."""
        for g in shards:
            numbers = self.numbers[self._plan.shard(g)]
            self.reuse.copied += int(self._readable[numbers[numbers >= 0]].sum())


def _digests(path: Path, size: int, index: int) -> tuple[str, str, bytes]:
    """Return the digests of a shard with and without its index, and the index.

    The file's content is read once.
    """
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size != size:
            return "", "", b""
        file.seek(size - index)
        tail = file.read()
    hasher = digest_head(path, size - index)
    head = hasher.hexdigest()
    hasher.update(tail)
    return hasher.hexdigest(), head, tail


def _sizes(index: bytes) -> Array:
    """Return the stored sizes of the inner chunks present in an index: uint64 (chunks)."""
    entries = np.frombuffer(index[:-4], "<u8").reshape(-1, 2)
    sizes: Array = entries[entries[:, 0] != layout.ABSENT, 1]
    return sizes
