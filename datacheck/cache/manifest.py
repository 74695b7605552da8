"""The manifest: every file of a cache with its size and digest, and the digest of what the cache holds.

It is written last, so its presence means that the cache is complete.
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
OUTSIDE = frozenset({layout.MANIFEST, layout.BUILD})  # the files that it does not list
_HEX = re.compile("[0-9a-f]{32}")
_OUTSIDE = re.compile(r"\0|(?:^|/)\.{0,2}(?:/|$)")  # an absolute path, an empty part, "." or ".."
_DIGEST = re.compile(rb'"digest":"([0-9a-f]{32})",')


@dataclass(frozen=True, slots=True)
class Manifest:
    """What ``manifest.json`` says.

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
    keys: Array,
    digests: Array,
) -> str:
    """Return the digest of what a cache holds, whatever its chunks, codec or format version.

    Shapes:
        key_lengths: int64 (samples) [bytes]
        keys: uint8 (bytes), the keys one after another
        digests: uint64 (samples)

    Args:
        fields: name, dtype and item shape of each field, in any order.
        key_lengths: the length of each key.
        keys: the bytes of all keys.
        digests: samples/digest.

    Returns:
        32 hex digits.
    """
    hasher = xxhash.xxh3_128(
        canonical_json([[n, d, list(item)] for n, d, item in sorted(fields)]) + b"\0"
    )
    for array, dtype in ((key_lengths, "<i8"), (keys, "u1"), (digests, "<u8")):
        hasher.update(np.ascontiguousarray(array, dtype=dtype).data)
    return hasher.hexdigest()


def measure_files(folder: Path) -> dict[str, tuple[int, str]]:
    """Return size and xxh3_128 of every file that a manifest lists, reading each once."""
    store = open_store(folder)
    return {path: (size, store.digest(path)) for path, size in store.files() if path not in OUTSIDE}


def write_manifest(folder: Path, files: Mapping[str, tuple[int, str]], root: str) -> Manifest:
    """Write ``manifest.json``: call it when everything else is written and synced.

    Args:
        folder: the cache.
        files: size and xxh3_128 of every other file (build.json left out), as `measure_files` gives
            it.
        root: the `content_root`.

    Raises:
        OutOfSpaceError: the disk is full.
        StorageError: the operating system refuses.
    """
    said = {
        "format": layout.FORMAT,
        "content_root": root,
        "files": {p: list(files[p]) for p in files},
    }
    manifest = Manifest(dict(files), root, digest_bytes(canonical_json(said)))
    fsops.write_file(folder / layout.MANIFEST, canonical_json(said | {"digest": manifest.digest}))
    return manifest


def read_manifest(store: Store) -> Manifest:
    """Read and check the manifest of a cache.

    Raises:
        UsageError: there is none, or it is of a newer format.
        CorruptionError: it is not what was written.
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
        Canonical JSON sorts its keys, so taking ``"digest":"...",`` out leaves exactly the bytes
        that were digested.
    """
    found = _DIGEST.search(raw)
    said = _json(raw)
    if (
        said is None
        or found is None
        or digest_bytes(raw[: found.start()] + raw[found.end() :]) != found[1].decode()
    ):
        msg = f"{origin}: damaged, its own digest does not match. Repair it: datacheck cache repair"
        raise CorruptionError(msg)
    version = said.get("format")
    if type(version) is int and version > layout.FORMAT:
        msg = (
            f"{origin}: cache format {version}; this datacheck reads format {layout.FORMAT}. "
            f"Update datacheck."
        )
        raise UsageError(msg)
    try:
        files = {path: _entry(path, entry) for path, entry in said["files"].items()}
        parse_size(sum(size for size, _ in files.values()))
        root = _check_type(str, said["content_root"])
        version = _check_type(int, version)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"its digest matches, but it is not the manifest of a cache ({short_repr(error)})"
        msg = f"{origin}: {what}. Delete the folder."
        raise CorruptionError(
            msg
        ) from None  # its text holds a name from the cache: see `DatacheckError`
    outside = next((path for path in files if _OUTSIDE.search(path)), None)
    if outside is not None:
        what = f"it names a file outside the cache, {outside[:200]!r}"
        msg = f"{origin}: {what}. Delete the folder, it is none of datacheck's."
        raise CorruptionError(msg)
    return Manifest(files, root, found[1].decode(), version)


def _entry(path: str, entry: Any) -> tuple[int, str]:
    size, digest = entry
    os.fsencode(path)  # a name that no file can have
    if (
        _HEX.fullmatch(_check_type(str, digest)) is None
    ):  # shards that are kept nearby are files of this name
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
    """Where a cache lies and how it is read.

    Args:
        store: the files of the cache.
        files: size and digest of each file, from the manifest.
        mapped: whether to map (else positioned reads).
        verify: which chunks to check: "manifest" none, "touch" each once, "always" each time.
    """

    store: Store
    files: Files
    mapped: bool
    verify: Verify

    @classmethod
    def of_files(cls, store: Store) -> CacheFiles:
        """Return a place whose files are read whole.

        Raises:
            UsageError, CorruptionError: there is no manifest that this version reads.
        """
        return cls(store, read_manifest(store).files, mapped=False, verify="manifest")

    @cached_property
    def size(self) -> int:
        """How many bytes the cache has, its manifest left out."""
        return sum(size for size, _ in self.files.values())

    def check_sizes(self) -> None:
        """Fail where a file is not there, or of another size than the manifest says."""
        for name, (size, _) in self.files.items():
            found = self.store.size(name)
            if found is None:
                self.fail(f"{name}: missing")
            if found != size:
                what = f"{found:,} bytes, the manifest says {size:,}"
                self.fail(f"{name}: {what if found >= 0 else 'no plain file'}")

    def fail(self, what: str) -> NoReturn:
        """Raise the exception for damage: the cache, what was found, what to do."""
        raise self._damage(what)

    def _damage(self, what: str) -> DatacheckError:
        if self.store.folder is not None and not self.store.folder.exists():
            return evicted(self.store.folder)
        return CorruptionError(f"{self.store.where}: {what}. {REPAIR}")

    @contextlib.contextmanager
    def checked_content(self, path: str) -> Iterator[None]:
        """Fail where what a file of the cache says is not what such a file may say, though it is whole."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            damage = self._damage(
                f"{path}: not what a cache of this format holds there ({short_repr(error)})"
            )
            raise damage from None  # its text holds a name from the cache: see `DatacheckError`

    def read(self, path: str, most: int | None = None) -> bytes:
        """Return a whole file, checked against the manifest.

        Args:
            path: the file.
            most: the most bytes that it may have; see `Store.read`.

        Raises:
            CorruptionError: it is not there, larger, or its bytes are others.
            StorageError: the operating system refuses.
        """
        try:
            raw = self.store.read(path, most)
        except FileNotFoundError:
            self.fail(f"{path}: missing")
        found = digest_bytes(raw)
        if path not in self.files or found != self.files[path][1]:
            expected = self.files[path][1] if path in self.files else "no such file"
            self.fail(f"{path}: expected xxh3_128 {expected}, found {found}")
        return raw


_TRIES, _PAUSE_S = 50, 0.02  # a look whether a cache is in use locks its manifest for an instant


def reader_lock(folder: Path) -> FileLock | None:
    """Return the lock of a reader, or None where there is no manifest, or nothing can be locked.

    Args:
        folder: a cache on a file system of this machine.

    Raises:
        EvictedError: the cache is just being removed.
    """
    for _ in range(_TRIES):
        try:
            held = _lock_manifest(folder, shared=True)
        except (FileNotFoundError, StorageError):  # reading the manifest will say what is wrong
            return None
        if held is not None:
            return held
        time.sleep(_PAUSE_S)
    msg = f"{folder}: is just being removed. Build it again: datacheck cache build"
    raise EvictedError(msg)


def exclusive_lock(folder: Path) -> FileLock | None:
    """Return a lock that no reader shares, or None where one reads the cache, or another removes it.

    Raises:
        FileNotFoundError: there is no manifest.
        StorageError: the operating system refuses.
    """
    return _lock_manifest(folder, shared=False)


def _lock_manifest(folder: Path, *, shared: bool) -> FileLock | None:
    """Lock the manifest that has this path now, and had it when it was locked: folders change places."""
    path = folder / layout.MANIFEST
    for _ in range(_TRIES):
        before = path.stat()
        held = fsops.hold(path, shared=shared)
        if held is None:
            return None
        try:
            if os.path.samestat(before, path.stat()):
                return held
        except FileNotFoundError:
            held.close()
            raise
        held.close()
    return None
