"""Write files and folders of results: whole or not at all, and never through a link."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from pathlib import Path
from typing import IO

from datacheck.errors import (
    DatacheckError,
    OutOfSpaceError,
    StorageError,
    SyncFailedError,
    UsageError,
    check_name,
)
from datacheck.runtime.beneath import File, check_holes

_EXCHANGE = 2  # RENAME_EXCHANGE
_AT_FDCWD = -100  # AT_FDCWD


class System:
    """One method for each call that changes files; `fsops.SYSTEM` is the instance in use."""

    def create(self, path: Path, mode: int, folder: int | None = None) -> int:
        """Create a file that does not exist yet and open it for writing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(_in(folder, path), flags, mode, dir_fd=folder)

    def open(self, path: Path, flags: int) -> int:
        """Open an existing file, to write into it or to sync it; for writing, a link is refused."""
        return os.open(
            path, flags | os.O_CLOEXEC | (os.O_NOFOLLOW if flags & (os.O_WRONLY | os.O_RDWR) else 0)
        )

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write at the current position; return the number of bytes written."""
        return os.write(descriptor, data)

    def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write at an offset; return the number of bytes written."""
        return os.pwrite(descriptor, data, offset)

    def copy_range(self, source: int, descriptor: int, size: int) -> int:
        """Copy at most `size` bytes between two positions; return the number of bytes copied.

        File systems that can share blocks (Btrfs, XFS) do so.
        """
        return os.copy_file_range(source, descriptor, size)

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate a file to `size` bytes."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Flush a file's bytes, or a folder's entries, to the device."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a file; a network file system may report an earlier failed write here."""
        os.close(descriptor)

    def rename(
        self, source: Path, target: Path, folder: int | None = None, to: int | None = None
    ) -> None:
        """Rename a file; an existing target is replaced.

        `folder` holds the source, `to` the target.
        """
        os.replace(_in(folder, source), _in(to, target), src_dir_fd=folder, dst_dir_fd=to)

    def exchange(
        self, one: Path, other: Path, folder: int | None = None, to: int | None = None
    ) -> None:
        """Swap two names atomically.

        `folder` holds `one`, `to` holds `other`.
        """
        import ctypes  # noqa: PLC0415  takes milliseconds; most commands never need it

        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "renameat2"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        one_in, other_in = (_AT_FDCWD if where is None else where for where in (folder, to))
        names = os.fsencode(_in(folder, one)), os.fsencode(_in(to, other))
        if libc.renameat2(one_in, names[0], other_in, names[1], _EXCHANGE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def link(self, source: Path, target: Path, folder: int | None = None) -> None:
        """Give a file, or a symbolic link itself, a second name.

        `folder` holds the target.
        """
        os.link(source, _in(folder, target), dst_dir_fd=folder, follow_symlinks=False)

    def symlink(self, said: str, link: Path, folder: int | None = None) -> None:
        """Make a symbolic link."""
        os.symlink(said, _in(folder, link), dir_fd=folder)

    def unlink(self, path: Path, folder: int | None = None) -> None:
        """Remove a file's name."""
        os.unlink(_in(folder, path), dir_fd=folder)

    def mkdir(self, path: Path, mode: int = 0o777, folder: int | None = None) -> None:
        """Create a folder in an existing one."""
        os.mkdir(_in(folder, path), mode, dir_fd=folder)

    def rmdir(self, path: Path, folder: int | None = None) -> None:
        """Remove an empty folder."""
        os.rmdir(_in(folder, path), dir_fd=folder)

    def chmod(self, path: Path, mode: int, descriptor: int) -> None:
        """Change the permissions of an open file; `path` is its name."""
        del path
        os.fchmod(descriptor, mode)

    def utime(self, path: Path) -> None:
        """Set a file's times to now; of a symbolic link, the link's own."""
        os.utime(path, follow_symlinks=False)


def _in(folder: int | None, path: Path) -> Path | str:
    return path if folder is None else path.name


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_HINTS = {
    errno.EIO: "Check the disk, then run the same command again.",
    errno.EROFS: "Choose another folder, or mount the disk for writing.",
}
_NO_LINK = {errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS}
_NO_EXCHANGE = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}
_PIECE = 1 << 20
_RANGE = 1 << 30
_TRIES = 1000  # to make a folder while other processes keep removing its parents

SYSTEM = System()


def as_storage_error(error: OSError, path: str | os.PathLike[str]) -> StorageError:
    """Return the typed exception for an error of the operating system while writing `path`."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return OutOfSpaceError(
            f"{os.fspath(path)}: cannot write, {reason.lower()}. Free some space or choose another "
            f"folder, "
            "then run the same command again."
        )
    hint = _HINTS.get(error.errno or 0, "Check the path and its permissions.")
    return StorageError(f"{os.fspath(path)}: {reason.lower()}. {hint}")


@contextlib.contextmanager
def guarded(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise errors of the operating system as typed exceptions that name `path`."""
    try:
        yield
    except OSError as error:
        raise as_storage_error(error, path) from error


def refuse_holes(source: File) -> None:
    """Refuse to copy a file with more than 16 GiB of holes.

    Raises:
        UsageError: it has more.
        OSError: it is missing.
    """
    try:
        check_holes(source)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        msg = f"{source}: {error.strerror}. Remove it, or write it without holes."
        raise UsageError(msg) from error


@contextlib.contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        SYSTEM.close(descriptor)


# -------------------------------------------------------------------------------------------- files


def write_file(
    path: Path,
    parts: bytes | memoryview | Iterable[bytes | memoryview],
    *,
    sync: bool = True,
    mode: int = 0o444,
    folder: int | None = None,
) -> None:
    """Write a new file so that it appears whole or not at all: temporary name, sync, rename.

    Args:
        path: the final name; an existing file is replaced.
        parts: the content, in order.
        sync: flush the bytes to the device before the rename; otherwise call `sync_files` later.
        mode: permissions, less the process's umask. Builds write read-only files (a guard-rail, not
            a proof).
        folder: descriptor of the parent folder; None: use the parent in `path`.

    Raises:
        OutOfSpaceError: the device or quota is full; the temporary file is removed.
        SyncFailedError: the device did not take the bytes; the temporary file is removed.
        StorageError: any other refusal of the operating system.
    """
    # random, not the pid: two containers that write the same shard may have the same pid
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.partial")
    try:
        with guarded(path):
            with _opened(SYSTEM.create(temporary, mode, folder)) as descriptor:
                for part in [parts] if isinstance(parts, bytes | memoryview) else parts:
                    _write_all(descriptor, memoryview(part).cast("B"))
                if sync:
                    _sync(descriptor, path)
            SYSTEM.rename(temporary, path, folder, folder)
    except DatacheckError:
        with contextlib.suppress(OSError):
            SYSTEM.unlink(temporary, folder)
        raise


def _write_all(descriptor: int, view: memoryview) -> None:
    while len(view):
        view = view[SYSTEM.write(descriptor, view) :]


def append(path: Path, data: bytes) -> None:
    """Write at the end of a file, which is created where it is missing; the bytes are not synced.

    Raises:
        StorageError: the operating system refuses, or the file is a link.
    """
    with guarded(path):
        try:
            descriptor = SYSTEM.open(path, os.O_WRONLY | os.O_APPEND)
        except FileNotFoundError:
            descriptor = SYSTEM.create(path, 0o644)
        with _opened(descriptor):
            _write_all(descriptor, memoryview(data))


def write_tail(path: Path, offset: int, data: bytes) -> None:
    """Make `data` the end of a file from byte `offset` on; an identical tail is left untouched.

    The bytes are not synced: call `sync_files`.

    Args:
        path: a file written by `write_file`, with at least `offset` bytes; read-only afterwards.
        offset: start of the tail [bytes]; everything from there on is replaced.
        data: the tail.

    Raises:
        OutOfSpaceError: the device or quota is full.
        StorageError: any other refusal of the operating system.

    Notes:
        A file that is read-only or has another name may belong to a published cache. Such a file is
        never modified; a copy with the new tail replaces it.
    """
    with guarded(path):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        if not mode & stat.S_IWUSR or status.st_nlink > 1:
            with _reading(path) as file:
                file.seek(offset)
                if status.st_size != offset + len(data) or file.read() != data:
                    file.seek(0)
                    write_file(path, chain(_pieces(file, offset), [data]), sync=False)
            return
        view = memoryview(data)
        position = offset
        with _opened(SYSTEM.open(path, os.O_WRONLY)) as descriptor:
            while len(view):
                written = SYSTEM.write_at(descriptor, view, position)
                view, position = view[written:], position + written
            if os.fstat(descriptor).st_size > position:
                SYSTEM.truncate(descriptor, position)
            SYSTEM.chmod(path, mode & 0o555, descriptor)


def _reading(path: Path) -> IO[bytes]:
    """Open a file for reading; a link is refused."""
    return open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0)  # noqa: PTH123


def _pieces(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield the first `size` bytes of a file, or all of a shorter file."""
    while size and (piece := file.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece


def link(source: Path, target: Path, folder: int | None = None) -> bool:
    """Give a file that is no longer written a second name.

    Args:
        source: the file.
        target: its second name.
        folder: descriptor of the folder that holds `target`; None: use the parent in `target`.

    Returns:
        False if the file system refuses hard links.

    Raises:
        OutOfSpaceError: the device or quota is full.
        StorageError: `source` is missing, `target` exists, or any other refusal.
    """
    try:
        SYSTEM.link(source, target, folder)
    except OSError as error:
        if error.errno in _NO_LINK:
            return False
        raise as_storage_error(error, target) from error
    return True


def link_or_copy(source: Path, target: Path, folder: int | None = None) -> None:
    """Give a file a second name, or make a read-only copy.

    A copy is made if links are refused or the file is writable. A symbolic link as the source is
    neither linked nor copied. Arguments: see `link`.
    """
    with guarded(source):
        mode = stat.S_IMODE(source.lstat().st_mode)
        if mode & 0o222 or not link(source, target, folder):
            with _reading(source) as file:
                write_file(
                    target, iter(lambda: file.read(_PIECE), b""), mode=mode & 0o555, folder=folder
                )


def copy_file(source: int, target: Path, *, mode: int = 0o666) -> int:
    """Copy an open file into a new one that shares its blocks where the file system can.

    The bytes are not synced: call `sync_files`.

    Args:
        source: descriptor of a file; its position is 0.
        target: the new file, which must not exist.
        mode: permissions, less the process's umask.

    Returns:
        The number of bytes.

    Raises:
        OutOfSpaceError: the device or quota is full; an incomplete file stays.
        StorageError: any other refusal of the operating system.
    """
    size = 0
    with guarded(target), _opened(SYSTEM.create(target, mode)) as descriptor:
        with contextlib.suppress(OSError):  # the loop below meets every error again
            while copied := SYSTEM.copy_range(source, descriptor, _RANGE):
                size += copied
        while piece := os.pread(source, _PIECE, size):
            _write_all(descriptor, memoryview(piece))
            size += len(piece)
    return size


def touch(path: Path) -> None:
    """Set a file's times to now."""
    with guarded(path):
        SYSTEM.utime(path)


def remove_file(path: Path, folder: int | None = None) -> None:
    """Delete a file that datacheck created; absent is fine.

    `folder`: see `write_file`.
    """
    with guarded(path), contextlib.suppress(FileNotFoundError):
        SYSTEM.unlink(path, folder)


# --------------------------------------------------------------------------------------- durability


def _sync(descriptor: int, path: Path) -> None:
    try:
        SYSTEM.sync(descriptor)
    except OSError as error:
        # EINVAL: the file system has no sync, such as a read-only image
        if error.errno == errno.EINVAL:
            return
        reason = (error.strerror or str(error)).lower()
        msg = (
            f"{path}: the disk did not take what was written, {reason}. What this run wrote cannot "
            f"be relied on. "
            "Check the disk and its free space, then run the same command again."
        )
        raise SyncFailedError(msg) from error


def sync_files(paths: Iterable[Path]) -> None:
    """Make files durable that were written without `sync`.

    Raises:
        SyncFailedError: the device did not take the bytes. Never retry: the kernel then considers
            the pages written.
        StorageError: any other refusal of the operating system.
    """
    for path in paths:
        with guarded(path), _opened(SYSTEM.open(path, os.O_RDONLY)) as descriptor:
            _sync(descriptor, path)


def sync_directory(path: Path) -> None:
    """Make the entries of `path` durable; see `sync_files`."""
    sync_files([path])


# ------------------------------------------------------------------------------------------ folders


def check_writable(path: Path, instead: str = "") -> None:
    """Raise if `path` cannot be created or written into.

    Args:
        path: the folder.
        instead: inserted in the message after "another folder".

    Raises:
        StorageError: `path` or its first existing parent is not a writable folder.
    """
    check_name(path)
    modes = ((place, _mode(place)) for place in (path, *path.absolute().parents))
    place, mode = next((place, mode) for place, mode in modes if mode is not None)
    if not stat.S_ISDIR(mode):
        what = "is a link that leads nowhere" if stat.S_ISLNK(mode) else "not a directory"
        msg = f"{place}: {what}. Choose another folder{instead}, or move it away."
        raise StorageError(msg)
    # `exists`: another scan that just ended may have removed its folder
    if not os.access(place, os.W_OK | os.X_OK) and place.exists():
        msg = (
            f"{place}: nothing can be written there. Choose another folder{instead}, or change "
            f"its permissions."
        )
        raise StorageError(msg)


def _mode(place: Path) -> int | None:
    """Return the mode of a path, of a dangling link its own; None if neither can be read."""
    for look in (place.stat, place.lstat):
        with contextlib.suppress(OSError):
            return look().st_mode
    return None


def make_directory(path: Path, *, sync: bool = True) -> None:
    """Create `path` and its parents.

    Args:
        path: the folder; may exist.
        sync: make the names of the new folders durable, and that of an existing one, whose creator
            may have been killed before its sync. Not needed below a folder that is synced whole or
            thrown away.
    """
    check_name(path)
    for tries_left in reversed(range(_TRIES)):
        try:
            with guarded(path):
                return _make_missing(path, sync=sync)
        except StorageError as error:
            if not tries_left or not isinstance(error.__cause__, FileNotFoundError):
                raise
    return None


def _make_missing(path: Path, *, sync: bool) -> None:
    """Create missing folders.

    Raises:
        FileNotFoundError: another process removed a parent meanwhile.
    """
    missing = list(takewhile(lambda place: not place.is_dir(), (path, *path.parents)))
    if sync:
        _sync_name(missing[-1].parent if missing else path)
    for place in reversed(missing):
        try:
            SYSTEM.mkdir(place)
        except FileExistsError as error:
            if not stat.S_ISDIR(place.lstat().st_mode) and not place.is_dir():
                raise as_storage_error(error, place) from error
        if sync:
            sync_directory(place.parent)


def rename(source: Path, target: Path, folder: int | None = None, to: int | None = None) -> None:
    """Rename `source` to `target`.

    Args:
        source, target: the names.
        folder, to: descriptors of their parent folders; None: use the parents in the paths.

    Raises:
        OSError: the unmodified error, because losing a race is an answer here, not a fault.
    """
    SYSTEM.rename(source, target, folder, to)


def _sync_name(path: Path) -> None:
    """Make the name of a folder durable, unless its parent is not ours to read or to write."""
    try:
        sync_directory(path.parent)
    except StorageError as error:
        if getattr(error.__cause__, "errno", None) not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise


def exchange(one: Path, other: Path, folder: int | None = None, to: int | None = None) -> bool:
    """Swap two names (also of folders) atomically; return False if the file system cannot.

    Args:
        one, other: the names.
        folder, to: see `rename`.

    Raises:
        FileNotFoundError: one of the names does not exist: an answer, not a fault.
        StorageError: any other refusal.
    """
    try:
        SYSTEM.exchange(one, other, folder, to)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_EXCHANGE:
            return False
        raise as_storage_error(error, one) from error
    return True


def remove_empty(path: Path, folder: int | None = None) -> None:
    """Delete an empty folder; a folder with contents stays.

    `folder`: see `write_file`.
    """
    with contextlib.suppress(OSError):
        SYSTEM.rmdir(path, folder)


# ------------------------------------------------------------------------------------- who is there


# O_NONBLOCK: opening a pipe would wait for its writer
_LOCK_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class FileLock:
    """A lock on a file; freed when closed, or when the last process that holds it ends.

    Notes:
        Forked children share the lock; newly started programs do not.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        """Release the lock; safe to call twice."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def hold(path: Path, *, shared: bool) -> FileLock | None:
    """Lock a file without waiting; return None if another process holds it.

    Args:
        path: an existing file.
        shared: many holders may share the lock; otherwise it has one holder.

    Raises:
        FileNotFoundError: the file does not exist: an answer, not a fault.
        StorageError: any other refusal; some network file systems have no locks.

    Notes:
        Every process and container of this machine sees the lock. Do not rely on it on a network
        file system (`machine.is_local`).
    """
    try:
        descriptor = os.open(path, _LOCK_FLAGS)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise as_storage_error(error, path) from error
    lock = FileLock(descriptor)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except OSError as error:
        lock.close()
        raise as_storage_error(error, path) from error
    return lock
