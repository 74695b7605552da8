"""Read a finished cache: row tables, gathering of fields, columns and provenance."""

from __future__ import annotations

import mmap
import operator
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, get_args
from weakref import WeakValueDictionary

import numpy as np
import orjson

from datacheck.cache import layout, parsing
from datacheck.cache.damage import DamageLocator, changed_files, describe_samples
from datacheck.cache.manifest import (
    CacheFiles,
    Verify,
    opening_documents,
    read_manifest,
    reader_lock,
)
from datacheck.cache.row_readers import all_below, runs, sample_numbers, split_views
from datacheck.cache.sharded_array import StoredArray
from datacheck.cache.shards import ShardCache
from datacheck.cache.store import open_store
from datacheck.errors import DatacheckError, UsageError, escape_controls
from datacheck.model.sample import ArraySpec
from datacheck.runtime.documents import check_values, count_json
from datacheck.runtime.machine import is_local

Array = np.ndarray[Any, Any]

_TEXTS = {
    layout.KEY_DIM: layout.sample_path("key"),
    layout.ORIGIN_DIM: layout.sample_path("origin"),
}


class RowTables:
    """The row tables of a cache: the rows of each sample along each ragged dimension.

    Args:
        place: the files of the cache.
        arrays: its arrays by path.
        dims: rows per shard of each ragged dimension of the fields.
    """

    def __init__(
        self, place: CacheFiles, arrays: Mapping[str, StoredArray], dims: Mapping[str, int]
    ) -> None:
        self._place, self._arrays, self._dims = place, arrays, dims

    def __contains__(self, dim: str) -> bool:
        return layout.rows_path(dim, "length") in self._arrays

    def rows(self, dim: str, numbers: Array | None = None) -> tuple[Array, Array]:
        """Return the first row and the number of rows of samples, int64 (samples) each.

        `numbers` None stands for all samples.

        Raises:
            CorruptionError: the table is damaged, or its values exceed what a shard can hold.
        """
        return self._column(dim, "start", numbers), self.lengths(dim, numbers)

    def lengths(self, dim: str, numbers: Array | None = None) -> Array:
        """Return the number of rows of samples, int64 (samples); see `rows`."""
        lengths = self._column(dim, "length", numbers)
        limit = self._dims.get(dim, 0)
        if dim in _TEXTS:
            limit = self._arrays[_TEXTS[dim]].grid.shape[0]
        if not all_below(lengths, limit + 1):
            self._place.fail(
                f"{layout.rows_path(dim, 'length')}: a length is not between 0 and {limit:,} rows"
            )
        return lengths

    def check_no_overlap(self, dim: str, numbers: Array) -> None:
        """Raise if samples share rows: shared rows would take memory once per sample."""
        start, length = self.rows(dim, np.unique(numbers))
        start, length = start[length > 0], length[length > 0]
        order = np.argsort(start, kind="stable")
        if (start[order][1:] < (start + length)[order][:-1]).any():
            self._place.fail(f"{layout.rows_path(dim, 'start')}: rows belong to several samples")

    def _column(self, dim: str, what: str, numbers: Array | None) -> Array:
        array = self._arrays[layout.rows_path(dim, what)]
        return array.all() if numbers is None else array.take(numbers)


Io = Literal["auto", "mmap", "pread"]
Indices = Sequence[int] | Array
KEYS_AT_ONCE = 65_536
_MANY_VALUES = 10_000  # JSON values allowed per sample of a large batch


class Cache:
    """An open, finished cache. Create it with `open_cache`.

    Args:
        path: the cache's folder or URL.
        verify: see `open_cache`.
        io: see `open_cache`.
        shards: for a URL: where to keep whole shards; None: nowhere.

    Notes:
        Sample numbers are positions in key order, from 0; samples that were not made have numbers
        too. Forked children may use the cache; a pickled one is reopened where it is unpickled.
        Returned arrays are copies. While it exists in any process, `cache gc` does not remove the
        cache. From an object store, inner chunks are fetched one by one and each is checked each
        time ("touch" acts as "always" there).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        verify: Verify = "touch",
        io: Io = "auto",
        shards: ShardCache | None = None,
    ) -> None:
        _check_choice("verify", verify, get_args(Verify))
        _check_choice("io", io, get_args(Io))
        self.verify = verify
        self.io = io
        self._shards = shards
        store = open_store(path)
        self.path: Path | str = store.folder or store.where
        local = store.folder is not None and is_local(store.folder)
        self._lease = reader_lock(store.folder) if store.folder is not None and local else None
        self.manifest = read_manifest(store)
        # No manifest at the first try: another process may have just renamed the cache into place.
        if store.folder is not None and local and self._lease is None:
            self._lease = reader_lock(store.folder)
            self.manifest = read_manifest(store)
        mapped = store.folder is not None and (io == "mmap" or (io == "auto" and local))
        self._place = CacheFiles(
            store, self.manifest.files, mapped, "touch" if verify == "full" else verify
        )
        self._place.check_sizes()
        if shards is not None:
            store.keep(shards, self.manifest.files)
        store.prefetch(opening_documents(self.manifest.files))
        self._document_values = 0
        self.root = self._read_root()
        self.fields: dict[str, ArraySpec] = {}
        self._attribute_bytes = 0
        self._arrays: dict[str, StoredArray] = {}
        self._tables = RowTables(self._place, self._arrays, self.root.dims)
        self._open_arrays()
        if verify == "full":
            self.check()

    def __len__(self) -> int:
        return self.root.samples

    def __repr__(self) -> str:
        return escape_controls(
            f"<Cache {self.path}: {len(self):,} samples of {', '.join(self.fields)}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        verify = "touch" if self.verify == "full" else self.verify
        return (partial(Cache, verify=verify, io=self.io, shards=self._shards), (self.path,))

    # -------------------------------------------------------------------------------------- opening

    def document(self, path: str) -> dict[str, Any]:
        """Return a JSON document of the cache, checked against the manifest."""
        with self._place.checked_content(path):
            return parsing.parse_document(self._place.read(path), path)

    def _opening_document(self, path: str) -> dict[str, Any]:
        """Return a document as `document` does, and count its values towards those of opening."""
        with self._place.checked_content(path):
            raw = self._place.read(path)
            self._document_values += count_json(raw)
            parsing.check_document_values(self._document_values)
            return parsing.parse_document(raw, path)

    def _read_root(self) -> layout.Root:
        document = self._opening_document(layout.ZARR)
        with self._place.checked_content(layout.ZARR):
            return parsing.parse_root(document, len(self.manifest.files))

    def _open_arrays(self) -> None:
        end = "/" + layout.ZARR
        names = [path.removesuffix(end) for path in self.manifest.files if path.endswith(end)]
        # Weak, so that dropping the cache also drops its maps.
        alive: WeakValueDictionary[str, StoredArray] = WeakValueDictionary()
        owned = partial(describe_samples, alive, self.fields)
        for name in sorted(n for n in names if not n.startswith("digests")):
            document = self._opening_document(name + end)
            if document.get("node_type") != "array":
                continue
            with self._place.checked_content(name + end):
                spec = parsing.parse_spec(name, document)
            ragged = spec is not None and spec.dim is not None
            self._arrays[name] = alive[name] = array = StoredArray(
                self._place, name, document, owned, ragged=ragged
            )
            with self._place.checked_content(name + end):
                parsing.check_array(name, array.grid, spec, self.root)
            for file in array.files:
                if file not in self.manifest.files:
                    self._place.fail(f"{file}: missing in {layout.MANIFEST}")
            if spec is not None:
                self._add_field(layout.field_name(name), spec, name + end)
        tables = [layout.rows_path(dim, what) for dim in self.dims for what in ("start", "length")]
        for name in (
            *tables,
            *(layout.sample_path(what) for what in ("key", "origin", "made", "valid", "digest")),
        ):
            if name not in self._arrays:
                self._place.fail(f"{name}: missing")
        with self._place.checked_content(layout.ZARR):
            parsing.check_no_overlap(self.fields)
            parsing.check_sizes(self.root.windows, self.fields)
        self._share_checked_flags()

    def _add_field(self, name: str, spec: ArraySpec, path: str) -> None:
        self.fields[name] = spec
        self._attribute_bytes += parsing.attribute_bytes(spec.attrs)
        with self._place.checked_content(path):
            parsing.check_attributes(self._attribute_bytes)

    def _share_checked_flags(self) -> None:
        """Keep the flags of checked chunks in anonymous shared memory.

        Forked workers then do not check a chunk again.
        """
        arrays = list(self._arrays.values())
        ends = np.cumsum([0, *(array.chunks for array in arrays)])
        memory = np.frombuffer(mmap.mmap(-1, max(1, int(ends[-1]))), dtype=np.uint8)
        for array, start, stop in zip(arrays, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            array.seen = memory[start:stop]

    # ------------------------------------------------------------------------------------ gathering

    def gather(self, field: str, indices: Indices, out: Array | None = None) -> Array:
        """Return a fixed field of samples, stacked.

        Shapes:
            indices: int (samples)
            returns: (samples, *item)

        Args:
            field: name of a field without a ragged dimension.
            indices: sample numbers, in any order, repeats allowed.
            out: the array to fill, of the field's dtype, C-contiguous; None: allocate one.

        Raises:
            UsageError: there is no such field, or it is ragged.
            IndexError: a sample number is out of range.
            CorruptionError: the stored data is damaged.
        """
        if self._spec(field).dim is not None:
            msg = f"{field} is ragged ({self._spec(field).dim}): use gather_ragged"
            raise UsageError(msg)
        return self._arrays[layout.field_path(field)].take(self._numbers(indices), out)

    def gather_ragged(
        self, field: str, indices: Indices, out: Array | None = None
    ) -> tuple[Array, Array]:
        """Return a ragged field of samples, concatenated.

        Shapes:
            indices: int (samples)
            returns: values (rows, *item) and lengths int64 (samples) [rows]

        Args:
            field: name of a field with a ragged dimension.
            indices: sample numbers, in any order, repeats allowed.
            out: the array to fill, of the field's dtype and the total number of rows (see
                `lengths`), C-contiguous; None: allocate one.

        Raises:
            UsageError: there is no such field, it is not ragged, or `out` has another number of
                rows.
            IndexError: a sample number is out of range.
            CorruptionError: the stored data is damaged.
        """
        dim = self._dim(field)
        return self._rows(layout.field_path(field), dim, self._numbers(indices), out)

    def view(self, field: str, index: int) -> Array:
        """Return an array field of one sample, read-only and without a copy where possible.

        In a mapped cache the result is a view of the map, which stays alive with it; else a copy.

        Shapes:
            returns: (*item); of a ragged field (rows, *item)

        Args:
            field: name of a field.
            index: the sample's number.

        Raises:
            UsageError: there is no such field.
            IndexError: the sample number is out of range.
            CorruptionError: the stored data is damaged.
        """
        dim = self._spec(field).dim
        array = self._arrays[layout.field_path(field)]
        numbers = self._numbers([index])
        if dim is None:
            # `0, ...` rather than `0`: the result is an array even if an item is one number.
            value: Array = array.view(int(numbers[0]), int(numbers[0]) + 1)[0, ...]
            return value
        start, length = (int(column[0]) for column in self._tables.rows(dim, numbers))
        return array.view(start, start + length)

    def gather_steps(
        self,
        field: str,
        indices: Indices,
        at: Array,
        offsets: Array,
        fill: Literal["edge", "zero"],
        out: Array | None = None,
    ) -> Array:
        """Return steps at[i] + offsets of a ragged field; steps outside the sample are filled.

        Shapes:
            indices, at: int64 (samples), each `at` a step of its sample
            offsets: int64 (steps)
            returns: (samples, steps, *item)

        Args:
            field: name of a field with a ragged dimension.
            indices, at: the samples, and the step of each.
            offsets: the steps to return, relative to `at`.
            fill: "edge": repeat the nearest step of the sample; "zero": zeros.
            out: the array to fill, of the field's dtype, C-contiguous; None: allocate one.

        Raises:
            UsageError: there is no such field, it is not ragged, or `out` has another shape.
            CorruptionError: the stored data is damaged, or an `at` lies outside its sample.
        """
        dim = self._dim(field)
        array = self._arrays[layout.field_path(field)]
        start, size = self._tables.rows(dim, self._numbers(indices))
        if (at < 0).any() or (at >= size).any():
            self._place.fail(f"rows/{dim}: an episode is shorter than it was")
        requested = at[:, None] + offsets
        steps = np.clip(requested, 0, size[:, None] - 1)
        out = array.output_array(out, requested.shape)
        array.check_bounds(start, size)
        array.take((start[:, None] + steps).reshape(-1), out.reshape(-1, *array.grid.item))
        if fill == "zero":
            out[steps != requested] = 0
        return out

    def texts(self, field: str, indices: Indices) -> list[Any]:
        """Return a text field of samples as str, or a JSON field as values.

        Args:
            field: name of a text or JSON field.
            indices: sample numbers, in any order, repeats allowed.

        Raises:
            UsageError: there is no such field, a text has more than 512 MiB, or the samples hold
                more JSON values than are read at once.
            IndexError: a sample number is out of range.
            CorruptionError: the stored data is damaged.
        """
        path = layout.field_path(field)
        dim = self._dim(field)
        values, lengths = self._rows(path, dim, self._numbers(indices), most=parsing.TEXT_BYTES)
        if self._spec(field).kind == "json":
            self._check_json(field, values, lengths)
            return self._decoded(path, values, lengths, _json)
        return self._decoded(path, values, lengths, _text)

    def present(self, field: str, indices: Indices | None = None) -> Array | None:
        """Return which samples have an optional field; None if the field is required.

        `indices` None stands for all samples.
        """
        array = self._arrays.get(layout.present_path(field))
        if array is None:
            return None
        return array.all() if indices is None else array.take(self._numbers(indices))

    def lengths(self, dim: str, indices: Indices | None = None) -> Array:
        """Return the number of rows of samples along a ragged dimension, int64 (samples).

        `indices` None stands for all samples.

        Raises:
            UsageError: there is no such dimension.
            CorruptionError: the table is damaged, or all samples together have more rows than the
                files can hold.
        """
        if dim not in self._tables:
            msg = (
                f"{self.path}: no ragged dimension {dim!r}; there is "
                f"{', '.join(self.root.dims) or 'none'}"
            )
            raise UsageError(msg)
        if indices is not None:
            return self._tables.lengths(dim, self._numbers(indices))
        lengths = self._tables.lengths(dim)
        with self._place.checked_content(layout.rows_path(dim, "length")):
            layout.ends_of(lengths, self._most_rows(dim))
        return lengths

    def keys(self, indices: Indices) -> list[str]:
        """Return the keys of samples."""
        return self._table_texts("key", layout.KEY_DIM, indices)

    def key_blocks(self) -> Iterator[list[str]]:
        """Yield the keys of all samples in order, `KEYS_AT_ONCE` at a time.

        Raises:
            CorruptionError: the keys do not ascend. A table of holes claims any number of equal
                keys, and each would become an object.
        """
        last = None
        for start in range(0, len(self), KEYS_AT_ONCE):
            keys = self.keys(np.arange(start, min(start + KEYS_AT_ONCE, len(self))))
            if (last is not None and last >= keys[0]) or any(map(operator.ge, keys, keys[1:])):
                self._place.fail(f"{layout.sample_path('key')}: the keys do not ascend")
            yield keys
            last = keys[-1]

    def key_rows(self, indices: Indices) -> tuple[Array, Array]:
        """Return the UTF-8 keys of samples, concatenated, and the bytes of each."""
        return self._rows(layout.sample_path("key"), layout.KEY_DIM, self._numbers(indices))

    def key(self, index: int) -> str:
        """Return the key of one sample."""
        return self.keys([index])[0]

    def origin(self, index: int) -> Any:
        """Return the origin of a sample in its source files: a list of {file, inner, rows}."""
        return self._table_texts("origin", layout.ORIGIN_DIM, [index], _json)[0]

    def origins(self, indices: Indices) -> list[str]:
        """Return the origins of samples as JSON texts."""
        return self._table_texts("origin", layout.ORIGIN_DIM, indices)

    def row_table(self, dim: str) -> tuple[Array, Array]:
        """Return the whole row table of a dimension: start and length, int64 (samples) each."""
        return self._tables.rows(dim)

    def digests(self, indices: Indices) -> Array:
        """Return the content digests of samples, uint64 (samples)."""
        return self._arrays[layout.sample_path("digest")].take(self._numbers(indices))

    @property
    def made(self) -> Array:
        """Bool (samples): the samples that were made; never serve the others. Read at each use."""
        return self._arrays[layout.sample_path("made")].all()

    @property
    def valid(self) -> Array:
        """Bool (samples): the samples without error findings. Read at each use."""
        return self._arrays[layout.sample_path("valid")].all()

    @cached_property
    def usable(self) -> Array:
        """Bool (samples): the samples that may be served, made and valid."""
        usable = self.made
        usable &= self.valid
        return usable

    def findings(self) -> dict[str, list[str]]:
        """Return the codes of the findings that made samples invalid, by sample key."""
        with self._place.checked_content(layout.FINDINGS):
            raw = self._place.read(layout.FINDINGS, parsing.findings_bytes(len(self)))
            return parsing.parse_findings(raw, len(self))

    def codes(self, key: str) -> list[str]:
        """Return the codes of the findings that made a sample invalid."""
        return list(self.findings().get(key, []))

    # ------------------------------------------------------------------------------------- checking

    def check(self) -> None:
        """Check every byte once, in parallel.

        Raises:
            CorruptionError: the cache is damaged; the message names shard and samples where
                possible.
        """
        store, files = self._place.store, self.manifest.files
        changed = changed_files(store, self.manifest, files)
        for name, what in changed.items():
            self._place.fail(
                str(
                    DamageLocator(store, self.manifest, changed).problems(name, what, inside=True)[
                        0
                    ]
                )
            )
        for array in self._arrays.values():
            array.seen[:] = 1

    def shard_files(self, field: str | None = None) -> list[str]:
        """Return the shard files of a field, or of all arrays except the digests."""
        chosen = self._arrays if field is None else [layout.field_path(field)]
        return [file for path in chosen for file in self._arrays[path].files]

    @property
    def dims(self) -> list[str]:
        """The ragged dimensions, including those of keys and origins."""
        return [
            *sorted({s.dim for s in self.fields.values() if s.dim is not None}),
            layout.KEY_DIM,
            layout.ORIGIN_DIM,
        ]

    def load_codecs(self) -> None:
        """Load the libraries that decode the fields, before threads start.

        Otherwise the first chunk loads them.
        """
        for array in self._arrays.values():
            array.codec.load()

    @property
    def compression(self) -> str:
        """The compression of the fields: "none", or for example "zstd:3"."""
        codecs = {
            str(array.codec) for path, array in self._arrays.items() if path.startswith("fields/")
        }
        return ", ".join(sorted(codecs))

    # --------------------------------------------------------------------------------------- inside

    def _spec(self, field: str) -> ArraySpec:
        if field not in self.fields:
            msg = f"{self.path}: no field {field!r}; there are {', '.join(self.fields)}"
            raise UsageError(msg)
        return self.fields[field]

    def _dim(self, field: str) -> str:
        dim = self._spec(field).dim
        if dim is None:
            msg = f"{field} is not ragged: use gather"
            raise UsageError(msg)
        return dim

    def _most_rows(self, dim: str) -> int:
        """Return how many rows the files can store along a dimension.

        The lengths in a row table are untrusted and may claim any number.
        """
        paths = [layout.field_path(name) for name, spec in self.fields.items() if spec.dim == dim]
        text = {layout.KEY_DIM: "key", layout.ORIGIN_DIM: "origin"}.get(dim)
        paths += [] if text is None else [layout.sample_path(text)]
        return min((self._arrays[path].most_rows for path in paths), default=0)

    def _numbers(self, indices: Indices) -> Array:
        numbers = sample_numbers(indices)
        if not all_below(numbers, len(self)):
            msg = (
                f"{self.path}: samples are 0 to {len(self) - 1}; asked for {numbers.min()} to "
                f"{numbers.max()}"
            )
            raise IndexError(msg)
        return numbers

    def _rows(
        self,
        path: str,
        dim: str,
        numbers: Array,
        out: Array | None = None,
        most: int = parsing.SAMPLE_BYTES,
    ) -> tuple[Array, Array]:
        array, (start, length) = self._arrays[path], self._tables.rows(dim, numbers)
        array.check_bounds(start, length)
        array.check_size(int(length.max(initial=0)), most)
        offsets = np.cumsum(length) - length
        total = int(length.sum())
        if total > array.held_rows:  # repeated samples are fine, samples that share rows are not
            self._tables.check_no_overlap(dim, numbers)
        values = array.output_array(out, (total,))
        run_starts = runs(start, length, array.grid.shard)
        run_lengths = np.add.reduceat(length, run_starts) if run_starts.size else length
        array.copy_spans(start[run_starts], run_lengths, values, offsets[run_starts])
        return values, length

    def _check_json(self, field: str, values: Array, lengths: Array) -> None:
        """Raise if the texts hold more JSON values than fit into memory.

        A single sample over the limit is damage; a batch over it is a usage error.
        """
        count = len(lengths)
        limit = max(parsing.VALUES, _MANY_VALUES * count)
        if values.nbytes <= limit:
            return
        ends = np.cumsum(lengths).tolist()
        total = 0
        with self._place.checked_content(layout.field_path(field)):
            # One text at a time, to avoid a second copy of the batch.
            for length, end in zip(lengths.tolist(), ends, strict=True):
                text = values[end - length : end].tobytes()
                check_values(text, parsing.VALUES)
                total += count_json(text)
        if total > limit:
            msg = (
                f"{self.path}: {count:,} samples of {field} hold about {total:,} JSON values; at "
                f"most {limit:,} are "
                f"read at once. Use a smaller batch (about {parsing.VALUES * count // total:,})."
            )
            raise UsageError(msg)

    def _table_texts(
        self,
        what: str,
        dim: str,
        indices: Indices,
        decode: Callable[[memoryview], Any] | None = None,
    ) -> list[Any]:
        path = layout.sample_path(what)
        values, lengths = self._rows(path, dim, self._numbers(indices), most=parsing.TEXT_BYTES)
        return self._decoded(path, values, lengths, decode or _text)

    def _decoded(
        self, path: str, values: Array, lengths: Array, decode: Callable[[memoryview], Any]
    ) -> list[Any]:
        """Return the decoded texts of rows; None for a sample without a value in a JSON field."""
        with self._place.checked_content(path):
            return [
                decode(text) if text or decode is _text else None
                for text in split_views(values, lengths)
            ]


def _text(text: memoryview) -> str:
    """Decode a text straight from the buffer, without another copy of its bytes."""
    return str(text, "utf-8", "surrogatepass")


def _json(text: memoryview) -> Any:
    """Return a JSON value, nested no deeper than `parsing.LEVELS`.

    A loader's worker pickles the value, which needs bounded nesting.
    """
    data = bytes(text)
    check_values(data, parsing.VALUES)
    value = orjson.loads(data)
    if data.count(b"[") + data.count(b"{") > parsing.LEVELS:
        try:
            orjson.dumps(value)
        except TypeError as error:
            msg = f"nested deeper than {parsing.LEVELS} levels"
            raise ValueError(msg) from error
    return value


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        msg = f"{name}={value!r} is not one of {', '.join(choices)}"
        raise UsageError(msg)


BLOCK_BYTES = 64 << 20
_VALUE_BYTES = 128  # overhead of the array object of one value


def sample_bytes(cache: Cache, names: Collection[str], numbers: Array) -> Array:
    """Return the decoded size of these fields of samples [bytes], int64 (samples)."""
    specs = [cache.fields[name] for name in names]
    sizes = np.full(
        len(numbers), sum(spec.item_bytes for spec in specs if spec.dim is None), np.int64
    )
    for spec in specs:
        if spec.dim is not None:
            sizes += cache.lengths(spec.dim, numbers) * spec.item_bytes
    return sizes


def blocks(sizes: Array, most: int = BLOCK_BYTES, *, fields: int = 0) -> Iterator[slice]:
    """Yield runs of samples that fit into memory.

    Args:
        sizes: bytes of each sample, int64 (samples).
        most: bytes of a run; a single sample may have more.
        fields: fields per sample; each value becomes an array, whose object takes memory too.
    """
    ends = np.cumsum(sizes + fields * _VALUE_BYTES)
    start = 0
    while start < len(ends):
        offset = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, offset + most, side="right")))
        yield slice(start, stop)
        start = stop


def column(cache: Cache, name: str, numbers: Array) -> list[Array | None]:
    """Return a field of samples; None for samples that lack it or were not made."""
    return whole_column(cache, name, numbers).values()


@dataclass(frozen=True, eq=False)
class WholeColumn:
    """A field of several samples.

    Shapes:
        present: bool (samples)
        rows: (samples, *item); of a ragged field (rows of all samples, *item)
        ends: int64 (samples)

    Args:
        present: which samples have the field.
        rows: the values, stacked or concatenated.
        ends: where the rows of each sample end; None for a fixed field.
    """

    present: Array
    rows: Array
    ends: Array | None

    def value(self, i: int) -> Array | None:
        """Return the value of a sample; None if it lacks the field."""
        if not self.present[i]:
            return None
        if self.ends is None:
            return np.asarray(self.rows[i])
        start = self.ends[i - 1] if i else 0
        return self.rows[start : self.ends[i]]

    def values(self) -> list[Array | None]:
        """Return the values of all samples; None for samples that lack the field."""
        values: list[Array] = []
        if self.ends is None:
            values = list(self.rows)
        elif len(self.ends):
            values = np.split(self.rows, self.ends[:-1])
        return [
            np.asarray(value) if is_present else None
            for value, is_present in zip(values, self.present.tolist(), strict=True)
        ]


def whole_column(cache: Cache, name: str, numbers: Array) -> WholeColumn:
    """Return a field of samples; samples that were not made lack it."""
    present = cache.made[numbers]
    optional_present = cache.present(name, numbers)
    if optional_present is not None:
        present &= optional_present
    if cache.fields[name].dim is None:
        return WholeColumn(present, cache.gather(name, numbers), None)
    rows, lengths = cache.gather_ragged(name, numbers)
    return WholeColumn(present, rows, np.cumsum(lengths))


@dataclass(frozen=True)
class Provenance:
    """The inputs and the build that a cache came from.

    Args:
        said: the inputs that the key is a digest of (see docs/cache-format.md).
        transforms: the transforms of the build, in order.
        recipe: digest of how samples are made: caches of equal recipes have equal shards for equal
            samples.
        files: number of source files.
        nbytes: bytes of the source files.
        build: the content of ``build.json``: time, place and versions. No digest protects it, and
            it may be missing.
    """

    said: Mapping[str, Any]
    transforms: list[Any]
    recipe: str
    files: int
    nbytes: int
    build: Mapping[str, Any]


def provenance(cache: Cache) -> Provenance:
    """Return the provenance of a cache.

    Raises:
        CorruptionError: ``inputs.json`` or ``sources.json`` is damaged.
    """
    cache_files = CacheFiles.of_files(open_store(cache.path))
    inputs = cache.document(layout.INPUTS)
    sources = cache.document(layout.SOURCES)
    with cache_files.checked_content(layout.INPUTS):
        key_inputs = dict(inputs["said"])
        recipe = str(inputs["recipe"])
        transforms = list(key_inputs.get("transforms", []))
    with cache_files.checked_content(layout.SOURCES):
        sizes = [parsing.parse_size(size) for size, _ in sources.get("files", {}).values()]
        total = parsing.parse_size(sum(sizes))
    build: dict[str, Any] = {}
    with suppress(DatacheckError, FileNotFoundError, ValueError):
        build = parsing.parse_document(cache_files.store.read(layout.BUILD), layout.BUILD)
    return Provenance(key_inputs, transforms, recipe, len(sizes), total, build)
