"""Finish a cache: complete its ragged shards, write tables and documents, and the manifest last.

`CacheFinisher` works on the records of all shards, in the builder's own folder, where no task may
write any more. It reads every shard that a parsing process could have changed, and compares it with
its record. The manifest makes the folder a cache: everything else is durable before it is written.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import datacheck
from datacheck.build.prepare import PreparedBuild
from datacheck.build.provenance import NOT_MADE, ShardRecord, origin_text
from datacheck.build.shard import chunk_digests
from datacheck.cache import layout, parsing
from datacheck.cache.manifest import Manifest, content_root, write_manifest
from datacheck.errors import StorageError, UsageError
from datacheck.model.sample import ArraySpec, Origin
from datacheck.runtime import fsops, numerics
from datacheck.runtime.hashing import canonical_json, digest_bytes, digest_head
from datacheck.runtime.machine import usable_cpus

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class FinishedCache:
    """A complete folder that can be published.

    Shapes:
        made, valid: bool (samples)

    Args:
        folder: where it is.
        manifest: of all its files.
        not_made: key and reason of each readable sample that could not be made.
    """

    folder: Path
    manifest: Manifest
    made: Array
    valid: Array
    not_made: list[tuple[str, str]]


class CacheFinisher:
    """Completes an unfinished cache.

    Args:
        folder: the folder of the shards; no other process writes there any more.
        prepared: what is built.
        records: of every shard of the plan.
        linked: shard files that are already proven, because no parsing process could write to them.
    """

    def __init__(
        self,
        folder: Path,
        prepared: PreparedBuild,
        records: Mapping[int, ShardRecord],
        linked: Collection[str],
    ) -> None:
        self.folder = folder
        self.prepared = prepared
        self.plan = prepared.plan
        self.records = [records[g] for g in range(self.plan.shards)]
        self._linked = linked
        self._files: dict[str, tuple[int, str]] = {}  # size and digest, by path
        self._digests: dict[str, Array] = {}  # of inner chunks, by path of the array
        self._rows: dict[str, int] = {}  # of a shard, by ragged dimension
        self._unsynced: list[str] = []  # files that the writers have not synced

    def run(self) -> FinishedCache:
        """Write everything, the manifest last, and make it durable."""
        self._write_row_tables()
        for name, spec in self.plan.specs.items():
            self._write_field(name, spec)
        made = np.concatenate([record.made for record in self.records])
        valid = made & self.plan.samples.valid
        root_digest = self._write_sample_tables(made, valid)
        for path in sorted(self._digests):
            self._write_table(
                layout.digests_path(path), self._digests[path], first=None, digested=False
            )
        self._write_documents(made, valid)
        not_made = self._not_made()
        self._write_build_document(dict(not_made))
        return FinishedCache(self.folder, self._seal(root_digest), made, valid, not_made)

    def _write_sample_tables(self, made: Array, valid: Array) -> str:
        """Write masks, digests, keys and origins of the samples; return the digest of the content.

        The digest is `content_root`.
        """
        digests = np.concatenate([record.digest for record in self.records])
        self._write_table(layout.sample_path("made"), made)
        self._write_table(layout.sample_path("valid"), valid)
        self._write_table(layout.sample_path("digest"), digests)
        keys, key_lengths = _concatenate([key.encode() for key in self.plan.samples.keys])
        self._write_texts("key", layout.KEY_DIM, "text", keys, key_lengths)
        self._write_texts("origin", layout.ORIGIN_DIM, "json", *self._origins())
        content = [(name, spec.dtype, spec.item) for name, spec in self.plan.specs.items()]
        return content_root(content, key_lengths, [keys], digests)

    def _write_row_tables(self) -> None:
        """Set the rows of a shard for each ragged dimension, and write the row tables."""
        for dim, names in self.plan.dims.items():
            lengths = [record.lengths[dim] for record in self.records]
            most_rows = max(int(rows.sum()) for rows in lengths)
            shard_rows = layout.ragged_rows([self.plan.specs[name] for name in names], most_rows)
            starts = [g * shard_rows + np.cumsum(rows) - rows for g, rows in enumerate(lengths)]
            self._rows[dim] = shard_rows
            self._write_table(layout.rows_path(dim, "start"), np.concatenate(starts))
            self._write_table(layout.rows_path(dim, "length"), np.concatenate(lengths))

    def _write_field(self, name: str, spec: ArraySpec) -> None:
        path = layout.field_path(name)
        grid = layout.field_grid(spec, len(self.plan.samples), self.plan.shard_samples, self._rows)
        _check_shard_chunks(name, grid)
        digests = np.zeros(grid.shards * grid.chunks_per_shard, np.uint64)
        for g, record in enumerate(self.records):
            shard_digests = record.chunks[name]
            digests[g * grid.chunks_per_shard :][: len(shard_digests)] = shard_digests
        self._complete_shards(name, path, grid, ragged=spec.dim is not None)
        self._digests[path] = digests[: -(-grid.shape[0] // grid.chunk)]
        names = _names(grid, spec.dim or "sample")
        self._write_array_document(
            path, layout.array_document(grid, layout.field_attributes(spec), names, self.plan.codec)
        )
        if spec.optional:
            present = np.concatenate([record.present[name] for record in self.records])
            self._write_table(layout.present_path(name), present)

    def _complete_shards(self, name: str, path: str, grid: layout.Grid, *, ragged: bool) -> None:
        """Check each shard of a field against its record, and complete ragged shards.

        A process that parses could have changed the shards of others.

        Notes:
            A ragged shard gets its index here, because its writer could not know how many rows the
            fullest shard has.
        """
        unchecked = {}  # the index that each of these files gets here
        for g, record in enumerate(self.records):
            file = f"{path}/{grid.shard_file(g)}"
            size, _ = record.files[name]
            index = layout.pack_index(grid, record.sizes[name]) if ragged else b""
            whole_size, _ = record.whole.get(name, (0, ""))
            if index and whole_size == size + len(index):
                # A shard of an earlier cache has an index; of equal size, it is this one.
                self._files[file] = record.whole[name]
                index = b""
            else:
                self._files[file] = record.files[name]
            if index:
                fsops.write_tail(self.folder / file, size, index)
                self._unsynced.append(file)
            if index or file not in self._linked:
                unchecked[file] = index
        with ThreadPoolExecutor(usable_cpus()) as threads:
            checked = threads.map(self._check_shard, unchecked, unchecked.values())
            self._files.update(zip(unchecked, checked, strict=True))

    def _check_shard(self, file: str, index: bytes) -> tuple[int, str]:
        """Return size and digest of a shard with its index; raise if the file was changed."""
        size, digest = self._files[file]
        path = self.folder / file
        try:
            hasher = digest_head(path, size)
            full_size = path.lstat().st_size
        except OSError as error:
            raise fsops.as_storage_error(error, path) from error
        if hasher.hexdigest() != digest or full_size != size + len(index):
            msg = (
                f"{path}: not what was written: the disk or another process changed it. Run the "
                f"same command again."
            )
            raise StorageError(msg)
        hasher.update(index)
        return full_size, hasher.hexdigest()

    def _write_table(
        self,
        path: str,
        values: Array,
        attributes: Mapping[str, Any] | None = None,
        first: str | None = "sample",
        *,
        digested: bool = True,
    ) -> None:
        """Write a small array as one shard."""
        grid = layout.table_grid(values.dtype.name, len(values))
        if len(values):
            used = -(-len(values) // grid.chunk)
            rows = layout.fill_array(grid.dtype, (used * grid.chunk,))
            rows[: len(values)] = values
            payload = rows.view(np.uint8).data
            index = layout.pack_index(grid, layout.plain_sizes(grid, used))
            self._write(f"{path}/{grid.shard_file(0)}", bytes(payload) + index)
            if digested:
                self._digests[path] = chunk_digests(payload, grid.chunk_bytes)
        elif digested:
            self._digests[path] = np.zeros(0, np.uint64)
        self._write_array_document(
            path, layout.array_document(grid, attributes or {}, _names(grid, first))
        )

    def _write_texts(self, what: str, dim: str, kind: Any, values: Array, lengths: Array) -> None:
        self._write_table(layout.rows_path(dim, "start"), np.cumsum(lengths) - lengths)
        self._write_table(layout.rows_path(dim, "length"), lengths)
        attributes = layout.field_attributes(ArraySpec("uint8", (), dim, kind))
        self._write_table(layout.sample_path(what), values, attributes, dim)

    def _origins(self) -> tuple[Array, Array]:
        parts = [self._origins_of(record) for record in self.records]
        values, lengths = zip(*parts, strict=True)
        return np.concatenate(values), np.concatenate(lengths)

    def _origins_of(self, record: ShardRecord) -> tuple[Array, Array]:
        """Return the origins of a shard; for a sample never read, only its file is known."""
        samples, lengths = self.plan.samples, record.origin_lengths
        if lengths.all():
            return record.origins, lengths
        ends = np.cumsum(lengths).tolist()
        raw = record.origins.tobytes()
        texts = [
            raw[end - length : end] for end, length in zip(ends, lengths.tolist(), strict=True)
        ]
        for place in np.flatnonzero(lengths == 0).tolist():
            i = record.g * self.plan.shard_samples + place
            origin = Origin(samples.items[int(samples.item_of[i])].path, samples.inner[i])
            texts[place] = origin_text(origin).encode()
        return _concatenate(texts)

    def _not_made(self) -> list[tuple[str, str]]:
        samples = self.plan.samples
        places = [
            (record.g * self.plan.shard_samples + place, why)
            for record in self.records
            for place, why in record.reasons
        ]
        return [(samples.keys[i], why) for i, why in places if samples.readable[i]]

    def _write_documents(self, made: Array, valid: Array) -> None:
        samples = self.plan.samples
        refused = samples.readable & ~made
        codes = {}
        for i in np.flatnonzero(~valid).tolist():
            own = [NOT_MADE] if refused[i] else []
            codes[samples.keys[i]] = sorted({*samples.codes[i], *own})
        self._write(layout.FINDINGS, canonical_json(codes))
        self._write(layout.INPUTS, canonical_json(self.prepared.fingerprint.as_dict()))
        sources = {path: list(entry) for path, entry in self.prepared.job.digests().items()}
        self._write(layout.SOURCES, canonical_json({"files": sources}))
        root = self._root()
        arrays = [
            path.removesuffix(f"/{layout.ZARR}")
            for path in self._files
            if path.endswith(f"/{layout.ZARR}")
        ]
        for path in layout.group_paths(arrays):
            self._write_array_document(path, layout.group_document({} if path else root.attributes))

    def _root(self) -> layout.Root:
        schema = self.prepared.job.split_schema
        return layout.Root(
            self.prepared.key,
            self.prepared.job.pipeline,
            schema.name,
            self.plan.split,
            len(self.plan.samples),
            self.plan.shard_samples,
            self._rows,
            self.prepared.windows,
        )

    def _write_array_document(self, path: str, document: Mapping[str, Any]) -> None:
        self._write(f"{path}/{layout.ZARR}".lstrip("/"), canonical_json(document))

    def _write(self, path: str, data: bytes) -> None:
        place = self.folder / path
        fsops.make_directory(place.parent, sync=False)  # `_seal` syncs every folder
        fsops.write_file(place, data, sync=False)
        self._unsynced.append(path)
        self._files[path] = (len(data), digest_bytes(data))

    def _write_build_document(self, not_made: Mapping[str, str]) -> None:
        document = {
            "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": socket.gethostname(),
            "datacheck": datacheck.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "numerics": numerics.computation_digest(),
            "not_made": dict(not_made),
            layout.STAMPS: self.prepared.job.stamps(),
        }
        fsops.write_file(self.folder / layout.BUILD, canonical_json(document), sync=False)
        self._unsynced.append(layout.BUILD)

    def _seal(self, root: str) -> Manifest:
        """Remove files that late tasks left, sync everything, then write the manifest."""
        ours = {*self._files, layout.BUILD}
        for place, _, names, folder in os.fwalk(self.folder):
            relative = Path(place).relative_to(self.folder).as_posix()
            for name in names:
                if (name if relative == "." else f"{relative}/{name}") not in ours:
                    fsops.remove_file(Path(place, name), folder)
        fsops.sync_files(self.folder / path for path in self._unsynced)
        for place, _, _ in os.walk(self.folder, topdown=False):
            fsops.sync_directory(Path(place))
        manifest = write_manifest(self.folder, self._files, root)
        fsops.sync_directory(self.folder)
        return manifest


def _concatenate(texts: Sequence[bytes]) -> tuple[Array, Array]:
    """Return the concatenated bytes of texts, and the length of each."""
    return np.frombuffer(b"".join(texts), np.uint8), np.array(
        [len(text) for text in texts], np.int64
    )


def _check_shard_chunks(name: str, grid: layout.Grid) -> None:
    """Raise `UsageError` for a field whose shards have more inner chunks than readers accept.

    Only samples of a ragged field that are much larger than the others make so many.
    """
    if grid.chunks_per_shard > parsing.SHARD_CHUNKS:
        msg = (
            f"{name}: a shard of {grid.chunks_per_shard:,} inner chunks; a cache has "
            f"{parsing.SHARD_CHUNKS:,} at most. Cut the largest samples into several, or leave the "
            f"field out (transforms: select)."
        )
        raise UsageError(msg)


def _names(grid: layout.Grid, first: str | None) -> list[str | None]:
    return [first, *(None for _ in grid.item)]
