"""A local folder that keeps whole shards of remote caches, under a limit of bytes.

    <digest>    a shard, named by its xxh3_128, which was verified before it got this name
    LOCK        held by the one process that adds and removes; others read remotely meanwhile

Many processes may share the folder. A new shard replaces shards that were unused for ten minutes,
the longest unused first. While all are in use, a new shard is not kept: a pass over data larger
than the limit would otherwise fetch whole shards for single samples.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from datacheck.cache.addresses import map_file
from datacheck.errors import CorruptionError, DatacheckError, StorageError, UsageError
from datacheck.runtime import fsops, machine
from datacheck.runtime.hashing import Digester

LIMIT_BYTES = 64 << 30
# Environment variables.
FOLDER_VARIABLE = "DATACHECK_SHARDS_IN"
LIMIT_VARIABLE = "DATACHECK_SHARDS_BYTES"
_LOCK = "LOCK"
_NAME = re.compile(r"[0-9a-f]{32}")
_UNFINISHED = re.compile(r"\.(?:[0-9a-f]{32}|LOCK)\.[0-9a-f]{12}\.partial")
_IDLE_S = 600.0

Fetch = Callable[[], Iterable[memoryview]]


class ShardCache:
    """Shards in a local folder. Safe to share between threads, and with forked children.

    Args:
        folder: the folder; created if missing.
        limit: bytes of all files in it.

    Raises:
        UsageError: the folder lies on a network file system, where a mapped file may vanish, or
            holds other files.
        StorageError: the folder cannot be created.
    """

    def __init__(self, folder: str | os.PathLike[str], limit: int) -> None:
        self.folder, self.limit = Path(folder), limit
        self._maps: dict[str, memoryview] = {}
        # Shards not to add: damaged at the source, or dropped as damaged.
        self._useless: dict[str, bool] = {}
        self._refused = False
        fsops.make_directory(self.folder, sync=False)
        if not machine.is_local(self.folder):
            msg = (
                f"{self.folder}: lies on a network file system. Name a folder on a disk of this "
                f"machine."
            )
            raise UsageError(msg)
        if not (self.folder / _LOCK).exists():
            self._check_empty()
            fsops.write_file(self.folder / _LOCK, b"", sync=False, mode=0o644)

    def _check_empty(self) -> None:
        """Raise if the folder holds other files, which may look like shards and be removed."""
        with os.scandir(self.folder) as entries:
            names = [entry.name for entry in entries if not _UNFINISHED.fullmatch(entry.name)]
        # Look for the lock again: another process may have started to use the folder.
        if names and not (self.folder / _LOCK).exists():
            msg = (
                f"{self.folder}: holds other files, such as {min(names)}. Name a new or empty "
                f"folder for shards."
            )
            raise UsageError(msg)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ShardCache, (self.folder, self.limit))

    @classmethod
    def from_options(
        cls, folder: str | os.PathLike[str] | None, limit: float | None
    ) -> ShardCache | None:
        """Return the shard cache that the arguments or else the environment ask for; None for none.

        Raises:
            UsageError: the limit is no number of bytes, or the folder cannot be used.
            StorageError: the folder cannot be created.
        """
        folder = folder or os.environ.get(FOLDER_VARIABLE) or None
        if folder is None:
            return None
        limit_text = os.environ.get(LIMIT_VARIABLE) if limit is None else str(limit)
        try:
            count = LIMIT_BYTES if limit_text is None else int(float(limit_text))
        except (ValueError, OverflowError):
            count = -1
        if count < 0:
            msg = f"{limit_text!r} is not a number of bytes, as in 100e9 (shards_bytes, {LIMIT_VARIABLE})"
            raise UsageError(msg)
        return cls(folder, count)

    def get(self, digest: str, size: int, fetch: Fetch) -> memoryview | None:
        """Return a shard, mapped; None if it is not kept and cannot be added now.

        Args:
            digest: its xxh3_128.
            size: its size [bytes].
            fetch: yields its bytes, in order.

        Raises:
            StorageError: fetching it failed.
        """
        path = self.folder / digest
        mapped = self._maps.get(digest)
        if mapped is not None:
            if _mark_used(path):
                return mapped
            del self._maps[digest]  # evicted: the file's space is free once nothing maps it
        if not path.exists() and not self._add(path, size, fetch):
            return None
        try:
            shard = (
                map_file(path, size) if path.stat().st_size == size and _mark_used(path) else None
            )
        except OSError:  # just evicted, or the system grants no more maps
            return None
        if shard is not None:
            self._maps[digest] = shard
        return shard

    def discard(self, digest: str) -> bool:
        """Remove a damaged shard, and do not keep it again; return whether it was here."""
        self._maps.pop(digest, None)
        existed = (self.folder / digest).exists()
        with contextlib.suppress(StorageError):
            fsops.remove_file(self.folder / digest)
        self._useless[digest] = True
        return existed

    # --------------------------------------------------------------------------------------- adding

    def _add(self, path: Path, size: int, fetch: Fetch) -> bool:
        if self._refused or path.name in self._useless or size > self.limit:
            return False
        try:
            lock = fsops.hold(self.folder / _LOCK, shared=False)
        except (FileNotFoundError, StorageError) as error:
            return self._stop_adding(error)
        if lock is None:
            return path.exists()
        with lock:
            return path.exists() or (self._make_room(size) and self._fetched(path, fetch))

    def _fetched(self, path: Path, fetch: Fetch) -> bool:
        failed: list[DatacheckError] = []
        try:
            fsops.write_file(path, _verified_pieces(path.name, fetch, failed))
        except CorruptionError:  # reading by chunks will name the damaged ones
            self._useless[path.name] = True
            return False
        except StorageError as error:
            if failed:
                raise
            return self._stop_adding(error)
        return True

    def _stop_adding(self, error: Exception) -> bool:
        self._refused = True
        warnings.warn(
            f"no more shards are kept, each sample is fetched: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False

    def _make_room(self, size: int) -> bool:
        """Evict unused shards until there is room; the caller holds the lock."""
        for digest in [
            digest for digest in list(self._maps) if not (self.folder / digest).exists()
        ]:
            del self._maps[digest]
        shards = []
        used = 0
        with contextlib.suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name):
                    status = entry.stat()
                    shards.append((status.st_mtime, entry.name, status.st_size))
                    used += status.st_size
                # Left by a process that ended, because this process holds the lock.
                elif _UNFINISHED.fullmatch(entry.name):
                    fsops.remove_file(Path(entry.path))
        fsops.touch(self.folder / _LOCK)
        now = (self.folder / _LOCK).stat().st_mtime
        for since, name, bytes_ in sorted(shards):
            if used + size <= self.limit or since > now - _IDLE_S:
                break
            fsops.remove_file(self.folder / name)
            self._maps.pop(name, None)
            used -= bytes_
        return used + size <= self.limit


def _verified_pieces(
    digest: str, fetch: Fetch, failed: list[DatacheckError]
) -> Iterator[memoryview]:
    """Yield the fetched bytes; raise at the end if their digest is wrong.

    The file does not have its final name then.
    """
    hasher = Digester()
    try:
        for piece in fetch():
            hasher.update(piece)
            yield piece
    except DatacheckError as error:
        failed.append(error)
        raise
    if hasher.hexdigest() != digest:
        msg = f"expected xxh3_128 {digest}, found {hasher.hexdigest()}"
        raise CorruptionError(msg)


def _mark_used(path: Path) -> bool:
    """Update the modification time of a shard; return whether the shard exists."""
    try:
        fsops.touch(path)
    except StorageError:  # missing, or owned by another user
        return path.exists()
    return True
