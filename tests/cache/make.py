"""Write a small valid cache with NumPy and the layout alone: without a builder, so that the reader is judged alone."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.cache import layout
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.manifest import content_root, measure_files, write_manifest
from datacheck.model.sample import ArraySpec
from datacheck.runtime.hashing import canonical_json, digest64, digest_sample, digest_value

SAID = {"pipeline": "tiny"}
KEY = digest_value(SAID)[:16]


class HalfPair(str):
    """A key or text with half of a surrogate pair, in the bytes that another writer gives it."""

    __slots__ = ()

    def encode(self, *_):
        """Return the bytes that no strict UTF-8 has."""
        return str.encode(self, "utf-8", "surrogatepass")


def make_cache(
    root: Path,
    specs: Mapping[str, ArraySpec],
    samples: Sequence[Mapping[str, Any]],
    *,
    keys: Sequence[str] | None = None,
    made: Sequence[bool] | None = None,
    valid: Sequence[bool] | None = None,
    k: int = 4,
    pipeline: str = "tiny",
    split: str = layout.NO_SPLIT,
    key: str = KEY,
    windows: Mapping[str, Any] | None = None,
    codec: Codec = PLAIN,
) -> Path:
    """Write `samples` (field name to array, str or JSON value; a missing one is absent); return the cache."""
    folder = root / pipeline / split / key
    count = len(samples)
    made = np.ones(count, bool) if made is None else np.asarray(made, dtype=bool)
    valid = made.copy() if valid is None else np.asarray(valid, dtype=bool) & made
    keys = [f"sample/{i:06d}" for i in range(count)] if keys is None else list(keys)
    stored = [{n: _stored(specs[n], v) for n, v in sample.items()} for sample in samples]
    writer = _Writer(folder, codec)
    dims: dict[str, int] = {}
    for name in sorted(specs):
        if specs[name].dim is None:
            writer.fixed(name, specs[name], [s.get(name) for s in stored], k)
        if specs[name].optional:
            writer.table(
                layout.present_path(name), np.array([name in s for s in stored], dtype=bool)
            )
    for dim in sorted({s.dim for s in specs.values() if s.dim is not None}):
        of_dim = {n: s for n, s in specs.items() if s.dim == dim}
        dims[dim] = writer.ragged(dim, of_dim, stored, k)
    writer.ragged_table("key", layout.KEY_DIM, "text", [text.encode() for text in keys])
    origins = [canonical_json([{"file": f"{text}.npy"}]) for text in keys]
    writer.ragged_table("origin", layout.ORIGIN_DIM, "json", origins)
    digests = [
        digest_sample(sorted(s.items())) if ok else 0 for s, ok in zip(stored, made, strict=True)
    ]
    writer.table(layout.sample_path("digest"), np.array(digests, dtype=np.uint64))
    writer.table(layout.sample_path("made"), made)
    writer.table(layout.sample_path("valid"), valid)
    writer.digests()
    about = layout.Root(key, pipeline, "tiny", split, count, k, dims, windows)
    writer.groups(about)
    findings = {text: ["DC301"] for text, ok in zip(keys, valid, strict=True) if not ok}
    (folder / layout.FINDINGS).write_bytes(canonical_json(findings))
    (folder / layout.SOURCES).write_bytes(canonical_json({}))
    (folder / layout.INPUTS).write_bytes(canonical_json({"recipe": "0" * 32, "said": SAID}))
    raw = [text.encode() for text in keys]
    lengths = np.array([len(text) for text in raw], dtype=np.int64)
    shapes = [(n, s.dtype, s.item) for n, s in specs.items()]
    whole = content_root(
        shapes,
        lengths,
        [np.frombuffer(text, dtype=np.uint8) for text in raw],
        np.array(digests, dtype=np.uint64),
    )
    write_manifest(folder, measure_files(folder), whole)
    (folder / layout.MANIFEST).chmod(0o644)  # tests damage it
    return folder


def _stored(spec: ArraySpec, value: Any) -> np.ndarray:
    if spec.kind == "text":
        value = np.frombuffer(value.encode(), dtype=np.uint8)
    elif spec.kind == "json":
        value = np.frombuffer(canonical_json(value), dtype=np.uint8)
    return np.ascontiguousarray(value, dtype=np.dtype(spec.dtype)).reshape(np.shape(value))


class _Writer:
    def __init__(self, folder: Path, codec: Codec) -> None:
        self.folder = folder
        self.codec = codec  # of the fields
        self.arrays: dict[str, tuple[layout.Grid, list[int]]] = {}
        folder.mkdir(parents=True)

    def shard(
        self, path: str, grid: layout.Grid, g: int, rows: np.ndarray, codec: Codec
    ) -> list[int]:
        """Write one shard file; return the digests of all its inner chunks, 0 for absent ones."""
        used = -(-len(rows) // grid.chunk)
        padded = layout.fill_array(grid.dtype, (used * grid.chunk, *grid.item))
        padded[: len(rows)] = rows
        raw = padded.tobytes()
        file = self.folder / path / grid.shard_file(g)
        file.parent.mkdir(parents=True, exist_ok=True)
        parts, sizes = codec.encode(memoryview(raw), grid.chunk_bytes)
        file.write_bytes(b"".join([*parts, layout.pack_index(grid, sizes)]))
        chunks = [raw[j * grid.chunk_bytes : (j + 1) * grid.chunk_bytes] for j in range(used)]
        return [digest64(c) for c in chunks] + [0] * (grid.chunks_per_shard - used)

    def array(
        self,
        path: str,
        grid: layout.Grid,
        attributes: dict,
        shards: list[np.ndarray],
        first: str | None = None,
    ) -> None:
        """Write an array: its document and its shards."""
        codec = self.codec if path.startswith("fields/") else PLAIN
        found = [d for g, rows in enumerate(shards) for d in self.shard(path, grid, g, rows, codec)]
        (self.folder / path).mkdir(parents=True, exist_ok=True)
        names = [first, *(None for _ in grid.item)]
        document = layout.array_document(grid, attributes, names, codec)
        (self.folder / path / layout.ZARR).write_bytes(canonical_json(document))
        self.arrays[path] = (grid, found[: -(-grid.shape[0] // grid.chunk)])

    def table(
        self,
        path: str,
        values: np.ndarray,
        attributes: dict | None = None,
        first: str | None = "sample",
    ) -> None:
        grid = layout.table_grid(values.dtype.name, len(values))
        self.array(path, grid, attributes or {}, [values] if len(values) else [], first)

    def rows(self, dim: str, start: np.ndarray, length: np.ndarray) -> None:
        self.table(layout.rows_path(dim, "start"), np.asarray(start, dtype=np.int64))
        self.table(layout.rows_path(dim, "length"), np.asarray(length, dtype=np.int64))

    def fixed(self, name: str, spec: ArraySpec, values: list, k: int) -> None:
        grid = layout.fixed_grid(spec, len(values), k)
        whole = layout.fill_array(spec.dtype, grid.shape)
        for i, value in enumerate(values):
            if value is not None:
                whole[i] = value
        shards = [whole[g * k : (g + 1) * k] for g in range(grid.shards)]
        self.array(layout.field_path(name), grid, layout.field_attributes(spec), shards, "sample")

    def ragged(self, dim: str, specs: Mapping[str, ArraySpec], stored: list[dict], k: int) -> int:
        names = sorted(specs)
        lengths = np.array(
            [max((len(s[n]) for n in names if n in s), default=0) for s in stored], dtype=np.int64
        )
        shards = -(-len(stored) // k)
        totals = [int(lengths[g * k : (g + 1) * k].sum()) for g in range(shards)]
        r = layout.ragged_rows(list(specs.values()), max(totals, default=0))
        starts = [g * r + np.cumsum([0, *lengths[g * k : (g + 1) * k]])[:-1] for g in range(shards)]
        self.rows(dim, np.concatenate([*starts, np.zeros(0, np.int64)]), lengths)
        for name in names:
            spec = specs[name]
            parts = []
            for g in range(shards):
                rows = layout.fill_array(spec.dtype, (totals[g], *spec.item))
                for i in range(g * k, min(len(stored), (g + 1) * k)):
                    if name in stored[i]:
                        at = int(starts[g][i - g * k]) - g * r
                        rows[at : at + len(stored[i][name])] = stored[i][name]
                parts.append(rows)
            grid = layout.ragged_grid(spec, shards, r)
            self.array(layout.field_path(name), grid, layout.field_attributes(spec), parts, dim)
        return r

    def ragged_table(self, what: str, dim: str, kind: str, texts: list[bytes]) -> None:
        lengths = np.array([len(t) for t in texts], dtype=np.int64)
        self.rows(dim, np.cumsum([0, *lengths])[:-1], lengths)
        attributes = layout.field_attributes(ArraySpec("uint8", (), dim, kind))
        values = np.frombuffer(b"".join(texts), dtype=np.uint8)
        self.table(layout.sample_path(what), values, attributes, dim)

    def digests(self) -> None:
        for path, (_, found) in sorted(self.arrays.items()):
            self.table(layout.digests_path(path), np.array(found, dtype=np.uint64), first=None)

    def groups(self, about: layout.Root) -> None:
        for path in layout.group_paths(self.arrays):
            document = layout.group_document({} if path else about.attributes)
            (self.folder / path).mkdir(parents=True, exist_ok=True)
            (self.folder / path / layout.ZARR).write_bytes(canonical_json(document))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


@contextmanager
def unprivileged() -> Iterator[None]:
    """Let permissions count in this thread, whoever runs it: root gives up what passes them over."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # of version 3, of this thread
    before = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice
    assert libc.capget(header, before) == 0
    fewer = (ctypes.c_uint32 * 6)(*before)
    fewer[0] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(header, fewer) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before) == 0
