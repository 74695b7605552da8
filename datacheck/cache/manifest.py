"""The manifest: size and digest of every file of a cache, and the digest of its content.

It is written last: a cache with a manifest is complete. `CacheFiles` checks files against it, and
the reader locks are locks on it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
import xxhash

from datacheck.cache import layout
from datacheck.cache.parsing import json_object, parse_size
from datacheck.cache.problem import REPAIR, evicted, short_repr
from datacheck.cache.store import Store, open_store
from datacheck.errors import CorruptionError, DatacheckError, EvictedError, StorageError, UsageError
from datacheck.runtime import fsops
from datacheck.runtime.fsops import FileLock
from datacheck.runtime.hashing import canonical_json, digest_bytes

Array = np.ndarray[Any, Any]
T = TypeVar("T")

# All documents of groups and arrays together: they are all fetched and parsed when a cache is
# opened, and names may share one file. datacheck writes 64 MiB of attributes of fields at most, and
# 600 bytes for each array.
DOCUMENTS_BYTES = 256 << 20
OUTSIDE = frozenset({layout.MANIFEST, layout.BUILD})  # files that the manifest does not list
_HEX = re.compile("[0-9a-f]{32}")
_OUTSIDE = re.compile(r"\0|(?:^|/)\.{0,2}(?:/|$)")  # an absolute path, an empty part, "." or ".."
_DIGEST = re.compile(rb'"digest":"([0-9a-f]{32})",')


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of ``manifest.json``.

    Args:
        files: size in bytes and xxh3_128 by path relative to the cache, for every file but the
            manifest and build.json.
        content_root: digest of the decoded content (see `content_root`).
        digest: xxh3_128 of the manifest's canonical JSON without this entry.
        format: version of the cache format.
    """

    files: Mapping[str, tuple[int, str]]
    content_root: str
    digest: str
    format: int = layout.FORMAT


def content_root(
    fields: Iterable[tuple[str, str, tuple[int, ...]]],
    key_lengths: Array,
    keys: Iterable[Array],
    digests: Array,
) -> str:
    """Return the digest of a cache's content, independent of chunks, codec and format version.

    Shapes:
        key_lengths: int64 (samples) [bytes]
        keys: uint8 (bytes) each, the keys one after another, in parts
        digests: uint64 (samples)

    Args:
        fields: name, dtype and item shape of each field, in any order.
        key_lengths: the length of each key.
        keys: the bytes of all keys; taken one part at a time.
        digests: samples/digest.

    Returns:
        32 hex digits.
    """
    hasher = xxhash.xxh3_128(
        canonical_json([[n, d, list(item)] for n, d, item in sorted(fields)]) + b"\0"
    )
    hasher.update(np.ascontiguousarray(key_lengths, dtype="<i8").data)
    for part in keys:
        hasher.update(np.ascontiguousarray(part, dtype="u1").data)
    hasher.update(np.ascontiguousarray(digests, dtype="<u8").data)
    return hasher.hexdigest()


def measure_files(folder: Path) -> dict[str, tuple[int, str]]:
    """Return size and xxh3_128 of every file that a manifest lists; reads each file once."""
    store = open_store(folder)
    return {path: (size, store.digest(path)) for path, size in store.files() if path not in OUTSIDE}


def write_manifest(folder: Path, files: Mapping[str, tuple[int, str]], root: str) -> Manifest:
    """Write ``manifest.json``; call it after everything else is written and synced.

    Args:
        folder: the cache.
        files: size and xxh3_128 of every other file except build.json, as `measure_files` returns
            them.
        root: the `content_root`.

    Raises:
        OutOfSpaceError: the disk is full.
        StorageError: the operating system refuses.
    """
    document = {
        "format": layout.FORMAT,
        "content_root": root,
        "files": {p: list(files[p]) for p in files},
    }
    manifest = Manifest(dict(files), root, digest_bytes(canonical_json(document)))
    fsops.write_file(
        folder / layout.MANIFEST, canonical_json(document | {"digest": manifest.digest})
    )
    return manifest


def read_manifest(store: Store) -> Manifest:
    """Read and check the manifest of a cache.

    Raises:
        UsageError: the cache has no manifest, or one of a newer format.
        CorruptionError: the manifest is damaged, or not one of a cache.
        StorageError: the operating system refuses.
    """
    try:
        raw = store.read(layout.MANIFEST)
    except FileNotFoundError as error:
        msg = (
            f"{store.where}: no {layout.MANIFEST}, so this is no finished cache. Build it: "
            f"datacheck cache build"
        )
        raise UsageError(msg) from error
    return parse_manifest(raw, f"{store.where}/{layout.MANIFEST}")


def parse_manifest(raw: bytes, origin: str) -> Manifest:
    """Return the manifest in `raw`; see `read_manifest`.

    Notes:
        Canonical JSON sorts its keys, so removing ``"digest":"...",`` leaves exactly the bytes that
        were digested.
    """
    match = _DIGEST.search(raw)
    document = _json(raw)
    if (
        document is None
        or match is None
        or digest_bytes(raw[: match.start()] + raw[match.end() :]) != match[1].decode()
    ):
        msg = f"{origin}: damaged, its own digest does not match. Repair it: datacheck cache repair"
        raise CorruptionError(msg)
    version = document.get("format")
    if type(version) is int and version > layout.FORMAT:
        msg = (
            f"{origin}: cache format {version}; this datacheck reads format {layout.FORMAT}. "
            f"Update datacheck."
        )
        raise UsageError(msg)
    try:
        files = {path: _entry(path, entry) for path, entry in document["files"].items()}
        parse_size(sum(size for size, _ in files.values()))
        root = _check_type(str, document["content_root"])
        version = _check_type(int, version)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"its digest matches, but it is not the manifest of a cache ({short_repr(error)})"
        msg = f"{origin}: {what}. Delete the folder."
        # `from None`: the error's text holds a name from the cache; see `DatacheckError`.
        raise CorruptionError(msg) from None
    outside = next((path for path in files if _OUTSIDE.search(path)), None)
    if outside is not None:
        what = f"it names a file outside the cache, {outside[:200]!r}"
        msg = f"{origin}: {what}. Delete the folder, it is none of datacheck's."
        raise CorruptionError(msg)
    document_bytes = sum(files[path][0] for path in opening_documents(files))
    if document_bytes > DOCUMENTS_BYTES:
        msg = (
            f"{origin}: the {layout.ZARR} documents of the cache have {document_bytes:,} bytes; at "
            f"most {DOCUMENTS_BYTES:,} are read. Delete the folder, it is none of datacheck's."
        )
        raise CorruptionError(msg)
    return Manifest(files, root, match[1].decode(), version)


def opening_documents(files: Iterable[str]) -> Iterator[str]:
    """Yield the documents of groups and arrays, which are all read when a cache is opened."""
    for path in files:
        if path.endswith(layout.ZARR) and not path.startswith("digests/"):
            yield path


def _entry(path: str, entry: Any) -> tuple[int, str]:
    size, digest = entry
    os.fsencode(path)  # raises for a name that no file can have
    # A local shard cache uses the digest as a file name.
    if _HEX.fullmatch(_check_type(str, digest)) is None:
        msg = f"{digest[:40]!r} where a digest of 32 hexadecimal digits is expected"
        raise ValueError(msg)
    return parse_size(size), digest


def _check_type(kind: type[T], value: Any) -> T:
    if type(value) is not kind:  # a bool is an int
        msg = f"{type(value).__name__} where {kind.__name__} is expected"
        raise TypeError(msg)
    return value


def _json(raw: bytes) -> dict[str, Any] | None:
    try:
        return json_object(raw)
    except ValueError:
        return None


Verify = Literal["manifest", "touch", "always", "full"]
Files = Mapping[str, tuple[int, str]]


@dataclass(frozen=True)
class CacheFiles:
    """The files of a cache and how to read them.

    Args:
        store: the files of the cache.
        files: size and digest of each file, from the manifest.
        mapped: whether to map files; otherwise reads are positioned.
        verify: which chunks to check: "manifest" none, "touch" each once, "always" each time.
    """

    store: Store
    files: Files
    mapped: bool
    verify: Verify

    @classmethod
    def of_files(cls, store: Store) -> CacheFiles:
        """Return a `CacheFiles` for reading whole files only.

        Raises:
            UsageError, CorruptionError: there is no manifest that this version reads.
        """
        return cls(store, read_manifest(store).files, mapped=False, verify="manifest")

    @cached_property
    def size(self) -> int:
        """The size of the cache in bytes, without its manifest."""
        return sum(size for size, _ in self.files.values())

    def check_sizes(self) -> None:
        """Raise if a file is missing or has another size than the manifest lists."""
        for name, (size, _) in self.files.items():
            actual = self.store.size(name)
            if actual is None:
                self.fail(f"{name}: missing")
            if actual != size:
                what = f"{actual:,} bytes, the manifest says {size:,}"
                self.fail(f"{name}: {what if actual >= 0 else 'no plain file'}")

    def fail(self, what: str) -> NoReturn:
        """Raise the exception for damage, with the cache, the damage and the remedy."""
        raise self._damage(what)

    def _damage(self, what: str) -> DatacheckError:
        if self.store.folder is not None and not self.store.folder.exists():
            return evicted(self.store.folder)
        return CorruptionError(f"{self.store.where}: {what}. {REPAIR}")

    @contextlib.contextmanager
    def checked_content(self, path: str) -> Iterator[None]:
        """Turn errors of parsing a file's content into damage of that file.

        The file itself matches the manifest; its content does not fit the format.
        """
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            damage = self._damage(
                f"{path}: not what a cache of this format holds there ({short_repr(error)})"
            )
            # `from None`: the error's text holds a name from the cache; see `DatacheckError`.
            raise damage from None

    def read(self, path: str, most: int | None = None) -> bytes:
        """Return the content of a whole file, checked against the manifest.

        Args:
            path: the file.
            most: the largest size accepted [bytes]; see `Store.read`.

        Raises:
            CorruptionError: the file is missing, too large, or does not match its digest.
            StorageError: the operating system refuses.
        """
        try:
            raw = self.store.read(path, most)
        except FileNotFoundError:
            self.fail(f"{path}: missing")
        digest = digest_bytes(raw)
        if path not in self.files or digest != self.files[path][1]:
            expected = self.files[path][1] if path in self.files else "no such file"
            self.fail(f"{path}: expected xxh3_128 {expected}, found {digest}")
        return raw


# Retries: a check whether a cache is in use holds its manifest's lock for an instant.
_TRIES = 50
_PAUSE_S = 0.02


def reader_lock(folder: Path) -> FileLock | None:
    """Return a shared lock on the manifest; None if there is no manifest or locking is impossible.

    Args:
        folder: a cache on a local file system.

    Raises:
        EvictedError: the cache is being removed.
    """
    for _ in range(_TRIES):
        try:
            lock = _lock_manifest(folder, shared=True)
        except (FileNotFoundError, StorageError):  # reading the manifest reports the problem
            return None
        if lock is not None:
            return lock
        time.sleep(_PAUSE_S)
    msg = f"{folder}: is just being removed. Build it again: datacheck cache build"
    raise EvictedError(msg)


def exclusive_lock(folder: Path) -> FileLock | None:
    """Return an exclusive lock on the manifest; None if a reader or another remover holds a lock.

    Raises:
        FileNotFoundError: there is no manifest.
        StorageError: the operating system refuses.
    """
    return _lock_manifest(folder, shared=False)


def _lock_manifest(folder: Path, *, shared: bool) -> FileLock | None:
    """Lock the manifest; retry if the path refers to another file after locking.

    Another process may replace the folder in between.
    """
    path = folder / layout.MANIFEST
    for _ in range(_TRIES):
        status = path.stat()
        lock = fsops.hold(path, shared=shared)
        if lock is None:
            return None
        try:
            if os.path.samestat(status, path.stat()):
                return lock
        except FileNotFoundError:
            lock.close()
            raise
        lock.close()
    return None
