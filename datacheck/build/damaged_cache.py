"""Examine a damaged cache: which files match its manifest, and which rows of its tables are intact.

`examine` checks every byte. Of a damaged manifest the readable entries count: an entry and a file
that agree prove each other. `DamagedTables` has the rows of the tables that can still be read, and
which samples have intact rows in all of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build.plan import BuildPlan
from datacheck.cache import layout
from datacheck.cache.damage import changed_files
from datacheck.cache.manifest import CacheFiles, Manifest, read_manifest
from datacheck.cache.parsing import parse_document
from datacheck.cache.problem import Problem
from datacheck.cache.row_readers import MemoryRows
from datacheck.cache.sharded_array import StoredArray, table_bytes
from datacheck.cache.store import Store, open_store
from datacheck.cache.verify import verify
from datacheck.errors import DatacheckError, UsageError
from datacheck.runtime.hashing import digest64, digest_bytes

Array = np.ndarray[Any, Any]

_READ_ERRORS = (DatacheckError, OSError, ValueError, LookupError, TypeError)
# The entry of a file in a manifest, after its name.
_ENTRY = re.compile(rb'":\[(\d{1,19}),"([0-9a-f]{32})"\]')
_LONGEST_NAME = 4096  # bytes
_TRIES = 5  # as a build may replace the cache while it is examined


@dataclass(frozen=True, eq=False)
class Examination:
    """The state of a cache before its repair.

    Args:
        status: the `stat` result of its folder.
        problems: its problems; empty if it is intact.
        manifest: as it was written; of a damaged one the readable entries, with a `digest` of "".
        intact: the files that match.
    """

    status: os.stat_result
    problems: list[Problem]
    manifest: Manifest
    intact: set[str]

    def comparable(self, repaired: Manifest) -> tuple[Manifest, Manifest]:
        """Return the manifest of a repaired cache and the original one, as far as it is known.

        Of a damaged manifest only proven entries are compared.
        """
        original = self.manifest
        if original.digest:
            return repaired, original
        proven = {path: entry for path, entry in repaired.files.items() if path in self.intact}
        repaired = replace(repaired, files=proven)
        return repaired, replace(repaired, files={path: original.files[path] for path in proven})


def examine(target: Path) -> Examination:
    """Check a cache byte by byte; start again if another build replaced it in between.

    Raises:
        UsageError: it is gone, because another build is replacing it.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            status = target.stat()
            try:
                examined = _examine_once(target, status)
            except (OSError, DatacheckError):
                if os.path.samestat(status, target.stat()):
                    raise
                continue
            if os.path.samestat(status, target.stat()):
                return examined
    msg = f"{target}: another build is just replacing it. Run the same command again."
    raise UsageError(msg)


def _examine_once(target: Path, status: os.stat_result) -> Examination:
    store = open_store(target)
    if store.size(layout.MANIFEST) is None:
        problems = [Problem(layout.MANIFEST, "missing", samples="all samples")]
    else:
        problems = verify(target, "full")
    if not any(problem.file == layout.MANIFEST for problem in problems):
        manifest = read_manifest(store)
        damaged = {problem.file for problem in problems}
        return Examination(status, problems, manifest, set(manifest.files) - damaged)
    manifest = Manifest(_manifest_entries(store), "", "")
    listed = dict(store.files())
    candidates = [path for path, (size, _) in manifest.files.items() if listed.get(path) == size]
    intact = set(candidates) - set(changed_files(store, manifest, candidates))
    return Examination(status, problems, manifest, intact)


def _manifest_entries(store: Store) -> dict[str, tuple[int, str]]:
    """Return the entries of files that are readable in a damaged manifest."""
    if dict(store.files()).get(layout.MANIFEST, -1) < 0:  # a link or a pipe is never opened
        return {}
    text = store.read(layout.MANIFEST)
    entries: dict[str, tuple[int, str]] = {}
    end = 0
    for entry in _ENTRY.finditer(text):
        name = _name_at_end(text[max(end, entry.start() - _LONGEST_NAME) : entry.start()])
        if name:
            entries[name] = int(entry[1]), entry[2].decode()
        end = entry.end()
    return entries


def _name_at_end(text: bytes) -> str:
    """Return what follows the last quote that is not escaped; "" without such a quote."""
    quote = text.rfind(b'"')
    while quote > 0 and _is_escaped(text, quote):
        quote = text.rfind(b'"', 0, quote)
    return text[quote + 1 :].decode("utf-8", "replace") if quote >= 0 else ""


def _is_escaped(text: bytes, place: int) -> bool:
    """Return whether the byte at `place` follows an odd number of backslashes."""
    start = place
    while start and text[start - 1] == ord("\\"):
        start -= 1
    return (place - start) % 2 == 1


class DamagedTables:
    """The tables of a damaged cache, as far as they are intact.

    Shapes:
        sound: bool (samples), whether the rows of a sample are intact in every table
        made: bool (samples)
        digest: uint64 (samples)
        lengths[dim]: int64 (samples)
        present[field]: bool (samples), of optional fields
        origins: uint8 (bytes), the concatenated texts
        origin_ends: int64 (samples), where each ends

    Args:
        cache: the folder of the damaged cache.
        examined: its manifest, as far as it is known, and the files that match.
        plan: the plan of the cache.

    Attributes:
        files: size and digest of the cache's files, as far as its manifest is known.
        intact: the files that match.
        cache_files: reads them.
    """

    def __init__(self, cache: Path, examined: Examination, plan: BuildPlan) -> None:
        self.files = examined.manifest.files
        self.intact = examined.intact
        store = open_store(cache)
        self.cache_files = CacheFiles(store, self.files, mapped=False, verify="manifest")
        self._plan = plan
        self.sound = np.ones(len(plan.samples), bool)
        self.made = self._of_samples(layout.sample_path("made"), "bool")
        self.digest = self._of_samples(layout.sample_path("digest"), "uint64")
        self.lengths = {
            dim: self._of_samples(layout.rows_path(dim, "length"), "int64") for dim in plan.dims
        }
        optional = [name for name, spec in plan.specs.items() if spec.optional]
        self.present = {
            name: self._of_samples(layout.present_path(name), "bool") for name in optional
        }
        self.origins, self.origin_ends = self._texts("origin", layout.ORIGIN_DIM)

    @cached_property
    def reasons(self) -> Mapping[str, str]:
        """Why samples were not made, as far as ``build.json`` is readable."""
        with suppress(*_READ_ERRORS):
            document = parse_document(self.cache_files.store.read(layout.BUILD))
            return {str(key): str(reason) for key, reason in document["not_made"].items()}
        return {}

    def grid(self, name: str) -> layout.Grid:
        """Return how a field is cut."""
        return layout.field_grid(
            self._plan.specs[name], len(self._plan.samples), self._plan.shard_samples, self._rows
        )

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        """The rows of a shard of each ragged dimension: from the root group, else the lengths."""
        with suppress(*_READ_ERRORS):
            return layout.Root.of(parse_document(self.cache_files.read(layout.ZARR))).dims
        parts = [self._plan.shard(g) for g in range(self._plan.shards)]
        most_rows = {
            dim: max(int(n[part].sum()) for part in parts) for dim, n in self.lengths.items()
        }
        dims = self._plan.dims.items()
        return {
            dim: layout.ragged_rows([self._plan.specs[n] for n in names], most_rows[dim])
            for dim, names in dims
        }

    def _of_samples(self, path: str, dtype: str) -> Array:
        values, good = self._table(path, dtype, len(self._plan.samples))
        self.sound &= good
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
            self.sound[:] = False  # without all lengths the later texts cannot be located
            return np.zeros(0, np.uint8), np.zeros(len(lengths), np.int64)
        values, intact = self._table(layout.sample_path(what), "uint8", int(ends[-1]))
        bad_count = np.concatenate([[0], np.cumsum(~intact)])
        self.sound &= bad_count[ends] == bad_count[ends - lengths]
        return values, ends

    def _bytes(self, path: str) -> int:
        """Return the size of a table's file: an upper bound for its rows of one byte."""
        with suppress(*_READ_ERRORS):
            file = f"{path}/{layout.table_grid('uint8', 1).shard_file(0)}"
            return max(0, self.cache_files.store.size(file) or 0)
        return 0

    def _table(self, path: str, dtype: str, rows: int) -> tuple[Array, Array]:
        """Return a table, and which of its rows are intact: all, those in intact chunks, none."""
        grid = layout.table_grid(dtype, rows)
        intact = np.ones(rows, bool)
        file = f"{path}/{grid.shard_file(0)}"
        with suppress(*_READ_ERRORS):
            # Read once, so that the values used are the ones that were checked.
            raw = self.cache_files.store.read(file, table_bytes(dtype, rows))
            memory_rows = MemoryRows(grid, raw)
            values = np.empty(grid.shape, np.dtype(dtype).newbyteorder("<"))
            memory_rows.span(0, rows, values)
            if file not in self.intact or digest_bytes(raw) != self.files[file][1]:
                array = StoredArray(
                    self.cache_files, path, layout.array_document(grid, {}), lambda *_: ""
                )
                digests = np.array(
                    [digest64(memory_rows.chunk(j)) for j in range(array.chunks)], np.uint64
                )
                intact = np.repeat(digests == array.expected, grid.chunk)[:rows]
            return values, intact
        return np.zeros(rows, np.dtype(dtype).newbyteorder("<")), ~intact
