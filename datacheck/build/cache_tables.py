"""The tables and documents of an earlier cache, as a build reads them to take over what is equal."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build.plan import BuildPlan
from datacheck.build.provenance import NOT_MADE
from datacheck.cache import layout
from datacheck.cache.manifest import CacheFiles
from datacheck.cache.parsing import parse_document
from datacheck.cache.sharded_array import table_bytes
from datacheck.cache.store import open_store
from datacheck.errors import DatacheckError
from datacheck.runtime import numerics

Array = np.ndarray[Any, Any]

# What a document or a table may raise that somebody damaged or wrote by hand.
UNUSABLE = (DatacheckError, OSError, ValueError, LookupError, TypeError, AttributeError)


def has_recipe(folder: Path, recipe: str) -> bool:
    """Return whether a cache was made by this recipe, where numbers come out the same.

    A cache that does not say where it was made counts as the same.

    Raises:
        Exception: one of `UNUSABLE`, for a cache whose documents are damaged.
    """
    files = CacheFiles.of_files(open_store(folder))
    if parse_document(files.read(layout.INPUTS))["recipe"] != recipe:
        return False
    here = numerics.computation_digest()
    return bool(_build_document(files).get("numerics", here) == here)


def _build_document(files: CacheFiles) -> dict[str, Any]:
    """Return the content of ``build.json``, which may be missing and is covered by no digest."""
    with suppress(*UNUSABLE):
        return parse_document(files.store.read(layout.BUILD))
    return {}


class CacheTables:
    """The tables of an earlier cache; each file is checked against the manifest.

    Shapes:
        made, readable: bool (samples)
        digests: uint64 (samples)
        lengths[dim]: int64 (samples)
        present[field]: bool (samples), of optional fields

    Args:
        folder: the cache.
        plan: its fields are those of the cache.

    Attributes:
        files: the files of the cache.
        root: the attributes of its root group.
        keys, origins: of each sample.
        reasons: why readable samples were not made, by number.

    Raises:
        Exception: one of `UNUSABLE`, for a cache with a damaged table or document.

    Notes:
        Opens no shard of a field, so a cache with damaged or missing shards can still provide the
        others.
    """

    def __init__(self, folder: Path, plan: BuildPlan) -> None:
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
            if NOT_MADE in codes.get(key, ()) and key in reasons:
                refused[number] = str(reasons[key])
        return refused
