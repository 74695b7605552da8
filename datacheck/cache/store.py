"""Where the files of a cache lie: readers ask a store, never a path, so that a cache need not be a folder."""

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
_NO_FILE = {
    errno.ELOOP,
    errno.EISDIR,
    errno.EINVAL,
    errno.ENXIO,
    errno.EXDEV,
}  # a link, a folder, a pipe, a socket
_NO_PLAIN = "no plain file (a link, a folder, a pipe or a device)"

if TYPE_CHECKING:
    from datacheck.cache.shards import ShardCache


_NO_SUCH_FILE = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}


class Store(Protocol):
    """The files of one cache; paths are relative to it, with ``/`` between their parts."""

    @property
    def where(self) -> str:
        """Where that is, for messages."""

    @property
    def folder(self) -> Path | None:
        """The folder whose files can be mapped; None where there is none."""

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None where it is not there, -1 where it is something else."""

    def read(self, path: str, most: int | None = None) -> bytes:
        """Return a whole file.

        Args:
            path: the file.
            most: the most bytes that it may have; None: as many as a JSON document of its name
                (`limits`).

        Raises:
            FileNotFoundError: it is not there.
            CorruptionError: it is no file (a pipe would be waited for), or has more bytes.
            StorageError: another refusal.
        """

    def read_into(self, path: str, start: int, view: memoryview) -> None:
        """Fill `view` with the bytes of a file from `start` on.

        Raises:
            CorruptionError: it ends before, or is no file.
            StorageError: it is not there, or another refusal.
        """

    def parts(self, wanted: Sequence[tuple[str, int, int]]) -> Iterable[memoryview]:
        """Return parts of files, in that order: of each (path, first byte, number of bytes).

        Raises:
            CorruptionError: a file ends before.
            StorageError: it is not there, or another refusal.
        """

    def prefetch(self, paths: Iterable[str]) -> None:
        """Say which files will be read whole, each once: a store that is far away fetches them together."""

    def keep(self, shards: ShardCache, files: Mapping[str, tuple[int, str]]) -> None:
        """Keep whole shards nearer than here, where that helps.

        Args:
            shards: where.
            files: size and digest of each file, from the manifest.
        """

    def discard(self, path: str) -> bool:
        """Forget a copy of a file that lies nearer than the file itself; return whether there was one."""

    def files(self) -> Iterator[tuple[str, int]]:
        """Yield path and size of every file, sorted by the bytes of the path; -1 for a link or another thing."""

    def digest(self, path: str) -> str:
        """Return xxh3_128 of a file as 32 hex digits.

        Raises:
            StorageError: it is not there, or another refusal.
        """


def is_url(where: str | os.PathLike[str]) -> bool:
    """Tell a URL from a path."""
    return isinstance(where, str) and "://" in where


def open_store(where: str | os.PathLike[str]) -> Store:
    """Return the store of a cache; nothing is read yet.

    Raises:
        UsageError: it is a URL of a kind that no store is there for, or a name that no file can
            have.
    """
    check_name(where)
    if is_url(where):
        from datacheck.cache.bucket import Bucket  # noqa: PLC0415  who reads folders need not load it

        return Bucket(os.fspath(where))
    return FolderStore(Path(where))


class FolderStore:
    """A cache in a folder; no link in it is followed, and nothing but plain files is opened.

    Args:
        folder: where; links on the way to it are followed.
        kept: how many files stay open for `read_into`, and with them the folder; forked children
            may share them, as each call says its position.

    Raises:
        StorageError, CorruptionError: files are to stay open, and the folder cannot be opened.
    """

    def __init__(self, folder: Path, kept: int = 0) -> None:
        self.where = str(folder)
        self.folder = folder
        self._real = {""}  # folders in it that are no links
        # a thread that reads holds what it reads, so that another's read cannot close (and reuse)
        # its descriptor
        self._held = held = self._opened_folder() if kept else None
        self._opened = lru_cache(kept)(lambda path: Descriptor(f"{folder}", path, held))

    def _opened_folder(self) -> beneath.ConfinedFolder:
        try:
            return beneath.ConfinedFolder(self.where)
        except OSError as error:
            raise self._refused(layout.MANIFEST, error) from error

    def size(self, path: str) -> int | None:
        """See `Store`."""
        try:
            found, above = os.lstat(self._at(path)), path.rpartition("/")[0]
            real = above in self._real or self._is_real(above)
        except OSError as error:
            if error.errno in _NO_SUCH_FILE:
                return None
            raise self._refused(path, error) from error
        return (
            found.st_size if real and stat.S_ISREG(found.st_mode) else -1
        )  # a pipe would be waited for

    def _is_real(self, folder: str) -> bool:
        """Tell whether no part of a path in the cache is a link; each folder is looked at once."""
        above = []
        while folder not in self._real:
            if not stat.S_ISDIR(os.lstat(self._at(folder)).st_mode):
                return False
            above.append(folder)
            folder = folder.rpartition("/")[0]
        self._real.update(above)
        return True

    def descriptor(self, path: str) -> Descriptor:
        """Return an open file.

        Raises:
            CorruptionError: it is no plain file.
            StorageError: it is not there, or another refusal.
        """
        try:
            return Descriptor(self.where, path, self._held)
        except OSError as error:
            raise self._refused(path, error) from error

    def read(self, path: str, most: int | None = None) -> bytes:
        """See `Store`."""
        try:
            with beneath.ConfinedFolder(self.where) as held:
                return held.read(path, most_bytes(path) if most is None else most, links=False)
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
        found, folders = [], [""]
        while folders:
            inside = folders.pop()
            try:
                with os.scandir(self._at(inside)) as entries:
                    for entry in entries:
                        path = inside + entry.name
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(f"{path}/")
                            continue
                        try:
                            mode = entry.stat(follow_symlinks=False)
                        except OSError as error:
                            raise self._refused(path, error) from error
                        found.append((path, mode.st_size if stat.S_ISREG(mode.st_mode) else -1))
            except (
                OSError
            ) as error:  # removed at this moment, or a folder that may not be listed or entered
                raise self._refused(inside, error) from error
        yield from sorted(found, key=lambda file: os.fsencode(file[0]))

    def digest(self, path: str) -> str:
        """See `Store`."""
        try:
            return digest_file(beneath.open_plain(self.where, path))
        except OSError as error:
            raise self._refused(path, error) from error

    def drop(self) -> None:
        """Ask the system to forget what it holds of the files in memory, so that they are read from the disk.

        Notes:
            It may refuse, and keeps what is mapped or not yet written.
        """
        for path, size in self.files() if hasattr(os, "posix_fadvise") else ():
            if size > 0:
                with suppress(OSError):  # what cannot be read is told where it is read
                    held = Descriptor(self.where, path)
                    os.posix_fadvise(held.number, 0, 0, os.POSIX_FADV_DONTNEED)

    def _at(self, path: str) -> str:
        return f"{self.where}/{path}"  # a tenth of the time of a Path, which is half of that of asking for a size

    def _refused(self, path: str, error: OSError) -> DatacheckError:
        if error.errno in _GONE and not self.folder.exists():
            return evicted(self.folder)
        if error.errno in _NO_FILE:
            return corrupt(self.where, path, _NO_PLAIN)
        if error.errno == errno.EFBIG:
            return corrupt(self.where, path, str(error.strerror))
        return StorageError(
            f"{self.folder / path}: {error.strerror}. Check the path and its permissions."
        )


class Descriptor:
    """An open file of a cache in a folder; closed when nobody holds it any more.

    Args:
        folder: the cache.
        path: the file in it; no link is followed.
        held: the folder, where it is open.

    Raises:
        CorruptionError: it is no plain file.
        OSError: it is not there, or another refusal.
    """

    def __init__(self, folder: str, path: str, held: beneath.ConfinedFolder | None = None) -> None:
        try:
            self.number = (
                beneath.open_plain(folder, path) if held is None else held.open_plain(path)
            )
        except OSError as error:
            if error.errno in _NO_FILE:
                raise corrupt(folder, path, _NO_PLAIN) from error
            raise
        status = os.fstat(self.number)
        if not stat.S_ISREG(status.st_mode):
            raise corrupt(folder, path, _NO_PLAIN)
        try:
            check_holes(
                self.number
            )  # a copy may keep zeros as holes: what is read at once has limits of its own
        except OSError as error:
            raise corrupt(folder, path, str(error.strerror)) from error

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)
