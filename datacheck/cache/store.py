"""Access to the files of a cache: readers use a `Store`, so that a cache need not be a folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from datacheck.cache import layout
from datacheck.cache.parsing import most_bytes
from datacheck.cache.problem import corrupt, evicted
from datacheck.errors import DatacheckError, StorageError, check_name
from datacheck.runtime import beneath
from datacheck.runtime.aligned import empty
from datacheck.runtime.beneath import check_holes
from datacheck.runtime.hashing import digest_file

_GONE = {errno.ENOENT, errno.ESTALE}
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}
# A link, a folder, a pipe or a socket.
_NOT_REGULAR = {errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.EXDEV}
_NOT_REGULAR_TEXT = "no plain file (a link, a folder, a pipe or a device)"

if TYPE_CHECKING:
    from datacheck.cache.shards import ShardCache


class Store(Protocol):
    """The files of one cache; paths are relative to the cache and separated by ``/``."""

    @property
    def where(self) -> str:
        """The path or URL of the cache, for messages."""

    @property
    def folder(self) -> Path | None:
        """The folder whose files can be mapped; None for a store without a local folder."""

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it is missing, -1 if it is no plain file."""

    def read(self, path: str, most: int | None = None) -> bytes:
        """Return the content of a whole file.

        Args:
            path: the file.
            most: the largest size accepted [bytes]; None: the limit for a JSON document of this
                name (`parsing.most_bytes`).

        Raises:
            FileNotFoundError: the file is missing.
            CorruptionError: it is no plain file (reading a pipe would block), or larger than the
                limit.
            StorageError: the read fails for another reason.
        """

    def read_into(self, path: str, start: int, view: memoryview) -> None:
        """Fill `view` with the bytes of a file from offset `start` on.

        Raises:
            CorruptionError: the file ends too early, or is no plain file.
            StorageError: the file is missing, or the read fails for another reason.
        """

    def parts(self, wanted: Sequence[tuple[str, int, int]]) -> Iterable[memoryview]:
        """Return byte ranges of files, each given as (path, first byte, size), in the given order.

        Raises:
            CorruptionError: a file ends too early.
            StorageError: a file is missing, or the read fails for another reason.
        """

    def prefetch(self, paths: Iterable[str]) -> None:
        """Announce files that will each be read whole, once: a remote store can batch them."""

    def keep(self, shards: ShardCache, files: Mapping[str, tuple[int, str]]) -> None:
        """Keep whole shards in a local cache, where the store is remote.

        Args:
            shards: the local shard cache.
            files: size and digest of each file, from the manifest.
        """

    def discard(self, path: str) -> bool:
        """Drop the local copy of a remote file; return whether there was one."""

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield path and size of every file, sorted by the bytes of the path.

        The size is -1 for anything that is no plain file, such as a link.
        """

    def digest(self, path: str) -> str:
        """Return the xxh3_128 of a file as 32 hex digits.

        Raises:
            StorageError: the file is missing, or the read fails for another reason.
        """


def is_url(where: str | os.PathLike[str]) -> bool:
    """Return whether `where` is a URL rather than a path."""
    return isinstance(where, str) and "://" in where


def open_store(where: str | os.PathLike[str]) -> Store:
    """Return the store of a cache; reads nothing yet.

    Raises:
        UsageError: the URL has a scheme that no store supports, or the name is not a valid file
            name.
    """
    check_name(where)
    if is_url(where):
        from datacheck.cache.bucket import Bucket  # noqa: PLC0415  not needed for folders

        return Bucket(os.fspath(where))
    return FolderStore(Path(where))


class FolderStore:
    """A cache in a folder; opens plain files only and follows no links inside the folder.

    Args:
        folder: the cache folder; links on the way to it are followed.
        kept: how many files stay open for `read_into`; above 0 the folder stays open too. Forked
            children may share the descriptors, because every read passes its own position.

    Raises:
        StorageError, CorruptionError: files are to stay open, and the folder cannot be opened.
    """

    def __init__(self, folder: Path, kept: int = 0) -> None:
        self.where = str(folder)
        self.folder = folder
        self._real = {""}  # folders in the cache known to be no links
        # A reading thread holds a reference to its `Descriptor`: an eviction by another thread must
        # not close the number, which the system would then reuse for another file.
        self._held = root_folder = self._opened_folder() if kept else None
        self._opened = lru_cache(kept)(lambda path: Descriptor(f"{folder}", path, root_folder))

    def _opened_folder(self) -> beneath.ConfinedFolder:
        try:
            return beneath.ConfinedFolder(self.where)
        except OSError as error:
            raise self._refused(layout.MANIFEST, error) from error

    def size(self, path: str) -> int | None:
        """See `Store`."""
        try:
            status = os.lstat(self._at(path))
            parent = path.rpartition("/")[0]
            real = parent in self._real or self._is_real(parent)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise self._refused(path, error) from error
        return status.st_size if real and stat.S_ISREG(status.st_mode) else -1

    def _is_real(self, folder: str) -> bool:
        """Return whether no component of a path in the cache is a link; checks each folder once."""
        checked = []
        while folder not in self._real:
            if not stat.S_ISDIR(os.lstat(self._at(folder)).st_mode):
                return False
            checked.append(folder)
            folder = folder.rpartition("/")[0]
        self._real.update(checked)
        return True

    def descriptor(self, path: str) -> Descriptor:
        """Return an open file.

        Raises:
            CorruptionError: it is no plain file.
            StorageError: the file is missing, or the operating system refuses for another reason.
        """
        try:
            return Descriptor(self.where, path, self._held)
        except OSError as error:
            raise self._refused(path, error) from error

    def read(self, path: str, most: int | None = None) -> bytes:
        """See `Store`."""
        try:
            with beneath.ConfinedFolder(self.where) as folder:
                return folder.read(path, most_bytes(path) if most is None else most, links=False)
        except FileNotFoundError:
            raise
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error
        except OSError as error:
            raise self._refused(path, error) from error

    def read_into(self, path: str, start: int, view: memoryview) -> None:
        """See `Store`."""
        try:
            file = self._opened(path)
            while len(view):
                size = os.preadv(file.number, [view], start)
                if size == 0:
                    raise corrupt(self.where, path, "ends too early")
                view, start = view[size:], start + size
        except OSError as error:
            raise self._refused(path, error) from error

    def parts(self, wanted: Sequence[tuple[str, int, int]]) -> Iterator[memoryview]:
        """See `Store`."""
        for path, start, size in wanted:
            view = empty([size], "uint8").data
            self.read_into(path, start, view)
            yield view

    def prefetch(self, paths: Iterable[str]) -> None:
        """See `Store`."""

    def keep(self, shards: ShardCache, files: Mapping[str, tuple[int, str]]) -> None:
        """See `Store`."""

    def discard(self, path: str) -> bool:
        """See `Store`."""
        return False

    def files(self) -> Iterator[tuple[str, int]]:
        """See `Store`."""
        listing = []
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(self._at(folder)) as entries:
                    for entry in entries:
                        path = folder + entry.name
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(f"{path}/")
                            continue
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except OSError as error:
                            raise self._refused(path, error) from error
                        listing.append(
                            (path, status.st_size if stat.S_ISREG(status.st_mode) else -1)
                        )
            except OSError as error:  # just removed, or no permission to list or enter it
                raise self._refused(folder, error) from error
        yield from sorted(listing, key=lambda file: os.fsencode(file[0]))

    def digest(self, path: str) -> str:
        """See `Store`."""
        try:
            return digest_file(beneath.open_plain(self.where, path))
        except OSError as error:
            raise self._refused(path, error) from error

    def drop(self) -> None:
        """Ask the system to drop the page cache of the files, so that reads go to the disk.

        Notes:
            Best effort: the system may ignore it. It keeps mapped pages and pages not yet written.
        """
        for path, size in self.files() if hasattr(os, "posix_fadvise") else ():
            if size > 0:
                with suppress(OSError):  # a later read reports an unreadable file
                    descriptor = Descriptor(self.where, path)
                    os.posix_fadvise(descriptor.number, 0, 0, os.POSIX_FADV_DONTNEED)

    def _at(self, path: str) -> str:
        # A tenth of the time of building a Path, which takes half as long as asking for a size.
        return f"{self.where}/{path}"

    def _refused(self, path: str, error: OSError) -> DatacheckError:
        if error.errno in _GONE and not self.folder.exists():
            return evicted(self.folder)
        if error.errno in _NOT_REGULAR:
            return corrupt(self.where, path, _NOT_REGULAR_TEXT)
        if error.errno == errno.EFBIG:
            return corrupt(self.where, path, str(error.strerror))
        return StorageError(
            f"{self.folder / path}: {error.strerror}. Check the path and its permissions."
        )


class Descriptor:
    """An open file of a cache in a folder; closed when the last reference to it is dropped.

    Args:
        folder: the cache.
        path: the file in it; links are not followed.
        held: the folder, if it is open.

    Raises:
        CorruptionError: it is no plain file.
        OSError: the file is missing, or the operating system refuses for another reason.
    """

    def __init__(self, folder: str, path: str, held: beneath.ConfinedFolder | None = None) -> None:
        try:
            self.number = (
                beneath.open_plain(folder, path) if held is None else held.open_plain(path)
            )
        except OSError as error:
            if error.errno in _NOT_REGULAR:
                raise corrupt(folder, path, _NOT_REGULAR_TEXT) from error
            raise
        status = os.fstat(self.number)
        if not stat.S_ISREG(status.st_mode):
            raise corrupt(folder, path, _NOT_REGULAR_TEXT)
        try:
            # Some holes are fine, as a copy may keep zeros as holes; single reads have own limits.
            check_holes(self.number)
        except OSError as error:
            raise corrupt(folder, path, str(error.strerror)) from error

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)
