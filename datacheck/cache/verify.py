"""Verify a finished cache: quickly (names, sizes, the manifest itself) or every byte and every sample."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from datacheck.cache import layout
from datacheck.cache.manifest import OUTSIDE, Manifest, content_root, read_manifest
from datacheck.cache.reader import Cache
from datacheck.cache.store import Store, open_store
from datacheck.cache.stored import Problem
from datacheck.digest import digest_sample
from datacheck.errors import CorruptionError

Array = np.ndarray[Any, Any]
Depth = Literal["quick", "full"]

_BLOCK_BYTES = 64 << 20


def verify(where: str | os.PathLike[str], depth: Depth = "full") -> list[Problem]:
    """Return everything that is wrong with a finished cache; an empty list where it is what was written.

    Args:
        where: the cache's folder.
        depth: "quick": the manifest's own digest, the set of files, their sizes. "full": also every file's digest,
            every inner chunk's, every sample's, the row tables and the content root.

    Raises:
        UsageError: there is no manifest, or it is of a newer format.
        StorageError: the operating system refuses to read.
    """
    store = open_store(where)
    try:
        manifest = read_manifest(store)
    except CorruptionError as error:
        return [Problem(layout.MANIFEST, str(error))]
    problems = list(_files(store, manifest))
    if depth == "full":
        problems += _contents(where, store, manifest, {problem.file for problem in problems})
    return problems


def _files(store: Store, manifest: Manifest) -> Iterator[Problem]:
    found = {name: size for name, size in store.files() if name not in OUTSIDE}
    for name, size in found.items():
        if size < 0:
            yield Problem(name, "a symbolic link, or no file; a cache holds plain files only")
        elif name not in manifest.files:
            yield Problem(name, "not in the manifest; a cache holds no other files")
        elif size != manifest.files[name][0]:
            yield Problem(name, f"{size:,} bytes, the manifest says {manifest.files[name][0]:,}")
    yield from (Problem(name, "missing") for name in manifest.files if name not in found)


def _contents(where: str | os.PathLike[str], store: Store, manifest: Manifest, known: set[str]) -> list[Problem]:
    names = [name for name in manifest.files if name not in known]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        digests = pool.map(store.digest, names)
        wrong = {n: d for n, d in zip(names, digests, strict=True) if d != manifest.files[n][1]}
    cache: Cache | None = None
    problems: list[Problem] = []
    try:
        cache = Cache(where, verify="manifest")
    except CorruptionError as error:
        if not wrong and not known:
            problems.append(Problem(layout.ZARR, str(error)))
    for name, found in wrong.items():
        plain = Problem(name, f"expected xxh3_128 {manifest.files[name][1]}, found {found}")
        problems += _blamed(cache, name) or [plain]
    if cache is None or wrong or known:
        return problems
    try:
        return problems + list(_samples(cache))
    except CorruptionError as error:
        return [*problems, Problem("", str(error))]


def _blamed(cache: Cache | None, name: str) -> list[Problem]:
    try:
        return [] if cache is None else cache.blame(name)
    except CorruptionError:  # its index or its digests are damaged, too: the file is all that can be named
        return []


def _samples(cache: Cache) -> Iterator[Problem]:
    """Check what the files say against each other: chunks, masks, keys, row tables, samples, content root."""
    for name in cache.shard_files():
        yield from cache.blame(name)
    if (cache.valid & ~cache.made).any():
        yield Problem(layout.sample_path("valid"), "a sample is valid and was not made")
    for dim in cache.dims:
        yield from _dense(cache, dim)
    whole = np.arange(len(cache))
    digests, keys = cache.digests(whole), [key.encode("utf-8", "surrogatepass") for key in cache.keys(whole)]
    if any(a >= b for a, b in pairwise(keys)):
        yield Problem(layout.sample_path("key"), "the keys do not ascend")
    yield from _decoded(cache, digests)
    fields = [(name, spec.dtype, spec.item) for name, spec in cache.fields.items()]
    joined = np.frombuffer(b"".join(keys), dtype=np.uint8)
    root = content_root(fields, cache.lengths(layout.KEY_DIM), joined, digests)
    if root != cache.manifest.content_root:
        yield Problem(layout.MANIFEST, f"content root {cache.manifest.content_root}, found {root}")


def _dense(cache: Cache, dim: str) -> Iterator[Problem]:
    """Check that the rows of a dimension lie one behind the other, shard by shard."""
    start, length = cache.row_table(dim)
    r = cache.root.dims.get(dim, 0)
    k = cache.root.shard_samples if dim in cache.root.dims else max(1, len(cache))
    for g, first in enumerate(range(0, len(cache), k)):
        lengths = length[first : first + k]
        expected = g * r + np.cumsum(lengths) - lengths
        if (start[first : first + k] != expected).any() or (lengths < 0).any():
            yield Problem(layout.rows_path(dim, "start"), "rows do not lie one behind the other", g)


def _decoded(cache: Cache, digests: Array) -> Iterator[Problem]:
    """Compute each sample's digest again from what is served."""
    size = sum(n for n, _ in cache.manifest.files.values())
    made = cache.made
    block = max(1, _BLOCK_BYTES * len(cache) // max(1, size))
    for first in range(0, len(cache), block):
        numbers = np.arange(first, min(len(cache), first + block))
        columns = [(name, *_column(cache, name, numbers)) for name in sorted(cache.fields)]
        for i, number in enumerate(numbers.tolist()):
            fields = [(name, values[i]) for name, values, present in columns if present[i]]
            found = digest_sample(fields) if made[number] else 0
            if found != digests[number]:
                what = f"expected xxh3_64 {int(digests[number]):016x}, found {found:016x}"
                yield Problem(layout.sample_path("digest"), what, None, f"sample {number}, {cache.key(number)}")


def _column(cache: Cache, name: str, numbers: Array) -> tuple[list[Array], Array]:
    present = cache.present(name, numbers)
    mask = np.ones(len(numbers), dtype=bool) if present is None else present
    if cache.fields[name].dim is None:
        return [np.asarray(value) for value in cache.gather(name, numbers)], mask
    values, lengths = cache.gather_ragged(name, numbers)
    return np.split(values, np.cumsum(lengths)[:-1]), mask
