"""Verify a finished cache: names and sizes only, every byte, or every value as well."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal

import numpy as np

from datacheck.cache import layout
from datacheck.cache.damage import (
    MOST_KEY_BYTES,
    MOST_RUNS,
    DamageLocator,
    changed_files,
    consecutive_runs,
)
from datacheck.cache.manifest import OUTSIDE, Manifest, content_root, read_manifest
from datacheck.cache.parsing import parse_document
from datacheck.cache.problem import Problem, describe_fields
from datacheck.cache.reader import KEYS_AT_ONCE, Cache, blocks, column, sample_bytes
from datacheck.cache.row_readers import split_bytes
from datacheck.cache.store import Store, open_store
from datacheck.errors import CorruptionError, UsageError
from datacheck.runtime.hashing import canonical_json, digest64, digest_bytes, digest_sample

Array = np.ndarray[Any, Any]
Depth = Literal["quick", "full", "values"]

_NO_FILE = "a symbolic link, a folder, or no file; a cache holds plain files only"
_NO_UTF8 = "a key is no UTF-8"
_KEY_DIGITS = 16
_MOST_REPORTED = 1_000  # samples with a wrong digest that are reported one by one
_AT_ONCE = 1 << 20  # samples


def verify(
    where: str | os.PathLike[str],
    depth: Depth = "full",
    *,
    subset: tuple[int, int] | None = None,
    expect: str | None = None,
) -> list[Problem]:
    """Return the problems of a finished cache; an empty list if it is intact.

    Args:
        where: the cache's folder or URL.
        depth: "quick": the manifest's own digest, the set of files, their sizes. "full": also every
            file's digest, and the tables, keys and content root against each other. "values": also
            the digest of every inner chunk and of every sample, computed from the values that are
            served; use it if you distrust the writer, not the disk.
        subset: (n, t), 1 <= n <= t: check only the n-th of t parts of the fields' shards, selected
            by their names, and everything else. All t parts together check everything.
        expect: the expected digest of the manifest, or content root; 32 hex digits each.

    Returns:
        The problems in order of their files. Each names the field, shard and samples it concerns.

    Raises:
        UsageError: there is no manifest, or it is of a newer format; an argument has an invalid
            value.
        StorageError: the operating system refuses to read.

    Notes:
        Reads each file once and maps none. Never opens anything but plain files. Files in the page
        cache are read from there.
    """
    _check_request(depth, subset, expect)
    store = open_store(where)
    try:
        listed = dict(store.files()) if store.size(layout.MANIFEST) is not None else {}
        if listed and listed.get(layout.MANIFEST, -1) < 0:
            return [Problem(layout.MANIFEST, _NO_FILE, samples="all samples")]
        manifest = read_manifest(store)
    except CorruptionError as error:
        return [Problem(layout.MANIFEST, str(error), samples="all samples")]
    return _checked(where, store, listed, manifest, depth, subset, expect)


def _check_request(depth: str, subset: tuple[int, int] | None, expect: str | None) -> None:
    if depth not in {"quick", "full", "values"}:
        msg = f"depth={depth!r} is not one of quick, full, values"
        raise UsageError(msg)
    if subset is not None and (depth != "full" or not 1 <= subset[0] <= subset[1]):
        msg = f"subset {subset[0]}/{subset[1]}: n/t with 1 <= n <= t, for a full check"
        raise UsageError(msg)
    if expect is not None and not (len(expect) == 32 and set(expect) <= set("0123456789abcdef")):
        msg = f"{expect!r} is no digest: 32 hex digits, as datacheck cache info prints them"
        raise UsageError(msg)


def _checked(
    where: str | os.PathLike[str],
    store: Store,
    listed: dict[str, int],
    manifest: Manifest,
    depth: Depth,
    subset: tuple[int, int] | None,
    expect: str | None,
) -> list[Problem]:
    unexpected = dict(_unexpected_files(listed, manifest))
    wrong_files = dict(_wrong_files(store, listed, manifest))
    problems = [Problem(name, what) for name, what in unexpected.items()]
    if expect not in {None, manifest.digest, manifest.content_root}:
        message = (
            f"digest {manifest.digest} and content root {manifest.content_root}, expected {expect}"
        )
        problems.append(Problem(layout.MANIFEST, message, samples="all samples"))
    changed: dict[str, str] = {}
    if depth != "quick":
        changed = changed_files(
            store,
            manifest,
            (n for n in manifest.files if n not in wrong_files and _chosen(n, subset)),
        )
    damage = DamageLocator(store, manifest, {*wrong_files, *changed})
    for name in sorted({*wrong_files, *changed}):
        problems += damage.problems(
            name, wrong_files.get(name) or changed[name], inside=name in changed
        )
    if depth != "quick" and not (wrong_files or changed):
        problems += _check_consistency(where, store, depth)
    return sorted(problems, key=lambda problem: problem.file)


def _unexpected_files(listed: dict[str, int], manifest: Manifest) -> Iterator[tuple[str, str]]:
    for name, size in listed.items():
        if name not in manifest.files and name not in OUTSIDE:
            yield name, "not in the manifest; a cache holds no other files"
        elif name in OUTSIDE and size < 0:
            yield name, _NO_FILE


def _wrong_files(
    store: Store, listed: dict[str, int], manifest: Manifest
) -> Iterator[tuple[str, str]]:
    """Yield the files of the manifest that are wrong by presence, type or size."""
    for name, (size, _) in manifest.files.items():
        if name not in listed:
            yield name, "missing" if store.size(name) is None else _NO_FILE
        elif listed[name] < 0:
            yield name, _NO_FILE
        elif listed[name] != size:
            yield name, f"{listed[name]:,} bytes, the manifest says {size:,}"


def _chosen(name: str, subset: tuple[int, int] | None) -> bool:
    if subset is None or not name.startswith("fields/") or layout.shard_of(name) is None:
        return True
    return digest64(name.encode("utf-8", "surrogatepass")) % subset[1] == subset[0] - 1


def _check_consistency(where: str | os.PathLike[str], store: Store, depth: Depth) -> list[Problem]:
    """Return contradictions between the files, each of which matches the manifest."""
    try:
        cache = Cache(where, verify="manifest", io="pread")
    except CorruptionError as error:
        return [Problem(layout.ZARR, str(error), samples="all samples")]
    problems: list[Problem] = []
    try:
        problems += _check_tables(cache)
        problems += _check_key(cache, store)
        if depth == "values":
            damage = DamageLocator(store, cache.manifest, ())
            for name in cache.shard_files():
                problems += damage.chunks(name)
            problems += _check_values(cache)
    except CorruptionError as error:
        problems.append(Problem("", str(error), samples="all samples"))
    return problems


def _check_tables(cache: Cache) -> Iterator[Problem]:
    """Check masks, row tables, keys, findings and content root."""
    made, valid = cache.made, cache.valid
    if (valid & ~made).any():
        number = int(np.flatnonzero(valid & ~made)[0])
        yield _of_sample(
            cache, layout.sample_path("valid"), number, "a sample is valid and was not made"
        )
    sparse: list[Problem] = []
    for dim in cache.dims:
        sparse += _check_packing(cache, dim, MOST_RUNS - len(sparse))
    if sparse:  # rows that overlap could expand to any amount of text
        yield from sparse
        return
    wrong_keys = _check_keys(cache)
    if wrong_keys:
        yield _of_all(cache, layout.sample_path("key"), wrong_keys)
    if wrong_keys == _NO_UTF8:
        return
    if not _findings_fit(cache, np.flatnonzero(~valid)):
        yield _of_all(
            cache, layout.FINDINGS, "its keys are not those of the samples that are not valid"
        )
    fields = [(name, spec.dtype, spec.item) for name, spec in cache.fields.items()]
    lengths = cache.lengths(layout.KEY_DIM)
    joined = (joined for joined, _ in _key_blocks(cache))
    root = content_root(fields, lengths, joined, cache.digests(np.arange(len(cache))))
    if root != cache.manifest.content_root:
        yield _of_all(
            cache, layout.MANIFEST, f"content root {cache.manifest.content_root}, found {root}"
        )


def _key_blocks(cache: Cache) -> Iterator[tuple[Array, Array]]:
    """Yield the bytes and lengths of the keys in blocks: as objects, all keys take 100 bytes each."""
    for start in range(0, len(cache), KEYS_AT_ONCE):
        yield cache.key_rows(np.arange(start, min(start + KEYS_AT_ONCE, len(cache))))


def _check_keys(cache: Cache) -> str:
    """Return what is wrong with the keys; "" if they are texts that ascend."""
    ascending = True
    last: list[bytes] = []
    for joined, lengths in _key_blocks(cache):
        keys = last + split_bytes(joined, lengths)
        try:
            b"\n".join(keys).decode("utf-8", "surrogatepass")  # a tenth of the time of single calls
        except UnicodeDecodeError:
            return _NO_UTF8
        ascending = ascending and not any(map(operator.ge, keys, keys[1:]))
        last = keys[-1:]
    return "" if ascending else "the keys do not ascend"


def _findings_fit(cache: Cache, invalid: Array) -> bool:
    """Return whether the keys of the findings are those of the samples that are not valid."""
    findings = cache.findings().keys()
    unseen = set(findings)
    for start in range(0, len(invalid), KEYS_AT_ONCE):
        keys = cache.keys(invalid[start : start + KEYS_AT_ONCE])
        if not findings >= set(keys):
            return False
        unseen.difference_update(keys)
    return not unseen


def _check_packing(cache: Cache, dim: str, most: int) -> Iterator[Problem]:
    """Yield each run of shards in which the rows of a dimension are not packed without gaps.

    Beyond `most` runs the rest is one.
    """
    start, length = cache.row_table(dim)
    r = cache.root.dims.get(dim, 0)
    k = cache.root.shard_samples if dim in cache.root.dims else max(1, len(cache))
    path = layout.rows_path(dim, "start")
    field = describe_fields(sorted(n for n, s in cache.fields.items() if s.dim == dim))
    unpacked = _unpacked_shards(start, length, k, r)
    for a, b, _ in consecutive_runs(unpacked, most):
        first = a * k
        stop = min(len(cache), (b + 1) * k)
        shard = a if a == b else None
        samples = f"samples {first} to {stop - 1}"
        yield Problem(
            path, "rows do not lie one behind the other", field, shard, samples, first, stop
        )


def _unpacked_shards(start: Array, length: Array, k: int, r: int) -> Array:
    """Return the shards of k samples whose rows are not packed from a multiple of `r` on."""
    unpacked = [np.zeros(0, np.int64)]
    step = max(1, _AT_ONCE // k) * k
    for low in range(0, len(start), step):
        starts = start[low : low + step]
        lengths = length[low : low + step]
        firsts = np.arange(0, len(starts), k)
        shards = low // k + np.arange(len(firsts))
        counts = np.diff(firsts, append=len(starts))
        offsets = np.cumsum(lengths) - lengths
        expected = offsets + np.repeat(shards * r - offsets[firsts], counts)
        unpacked.append(
            shards[np.logical_or.reduceat((starts != expected) | (lengths < 0), firsts)]
        )
    return np.concatenate(unpacked)


def _check_key(cache: Cache, store: Store) -> Iterator[Problem]:
    """Check that the key is the digest of the inputs, and that the folder is named by the key."""
    try:
        key = digest_bytes(canonical_json(parse_document(store.read(layout.INPUTS))["said"]))[
            :_KEY_DIGITS
        ]
    except (FileNotFoundError, ValueError, LookupError, TypeError, RecursionError):
        yield _of_all(cache, layout.INPUTS, "does not say what the key is a digest of")
        return
    if key != cache.root.key:
        yield _of_all(
            cache,
            layout.INPUTS,
            f"the key of these inputs is {key}, the root group says {cache.root.key}",
        )
    name = (
        store.folder.resolve().name if store.folder is not None else store.where.rpartition("/")[2]
    )
    is_key = len(name) == _KEY_DIGITS and set(name) <= set("0123456789abcdef")
    if is_key and name != cache.root.key:  # a copy under another kind of name is no damage
        yield _of_all(
            cache, layout.ZARR, f"the folder is named {name}, the key is {cache.root.key}"
        )


def _check_values(cache: Cache) -> Iterator[Problem]:
    """Recompute each sample's digest from the values served, and yield the mismatches.

    The first `_MOST_REPORTED` are single problems, the rest is one.
    """
    path = layout.sample_path("digest")
    mismatches = _digest_mismatches(cache)
    for number, expected, actual in islice(mismatches, _MOST_REPORTED):
        yield _of_sample(
            cache, path, number, f"expected xxh3_64 {expected:016x}, found {actual:016x}"
        )
    remaining = np.fromiter((number for number, *_ in mismatches), np.int64)
    if len(remaining):
        first = int(remaining[0])
        stop = int(remaining[-1]) + 1
        what = f"{len(remaining):,} more of another xxh3_64 than expected"
        yield Problem(path, what, samples=f"samples {first} to {stop - 1}", first=first, stop=stop)


def _digest_mismatches(cache: Cache) -> Iterator[tuple[int, int, int]]:
    """Yield each sample whose values do not match its digest: number, expected, found."""
    names = sorted(cache.fields)
    numbers = np.arange(len(cache))
    made = cache.made
    digests = cache.digests(numbers)
    for block in blocks(sample_bytes(cache, names, numbers), fields=len(names)):
        columns = [column(cache, name, numbers[block]) for name in names]
        for number, *values in zip(numbers[block].tolist(), *columns, strict=True):
            fields = [
                (name, value)
                for name, value in zip(names, values, strict=True)
                if value is not None
            ]
            actual = digest_sample(fields) if made[number] else 0
            if actual != digests[number]:
                yield number, int(digests[number]), actual


def _of_sample(cache: Cache, path: str, number: int, what: str) -> Problem:
    shard = number // cache.root.shard_samples
    key = cache.key(number)
    sample_text = (
        f"sample {number}, {key if len(key) <= MOST_KEY_BYTES else f'{key[:MOST_KEY_BYTES]}...'}"
    )
    return Problem(path, what, "", shard, sample_text, number, number + 1)


def _of_all(cache: Cache, path: str, what: str) -> Problem:
    return Problem(path, what, samples=f"all {len(cache):,} samples", stop=len(cache))
