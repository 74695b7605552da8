"""Files opened by handle below a folder that no path or link leaves; checks for sparse files.

A file that is mostly holes is refused before terabytes of zeros are read, and its size justifies
no memory.
"""

from __future__ import annotations

import ctypes
import errno
import io
import math
import os
import stat
import sys
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, overload

HOLE_BYTES = 16 << 30  # preallocated arrays have holes; a second or two of zeros harms no scan

SMALL_BYTES = 16 << 20  # up to this size, `is_mostly_holes` accepts any share of holes


def check_holes(file: int | str | os.PathLike[str]) -> None:
    """Refuse a file with more than 16 GiB of holes.

    Args:
        file: a descriptor, or a path whose links are followed.

    Raises:
        OSError: the file has more holes (EFBIG), or is missing.

    Notes:
        A compressing file system also stores fewer bytes than the file's size. There, the extents
        distinguish holes from data.
    """
    status = os.stat(file)  # noqa: PTH116  of a descriptor, too
    if status.st_size - 512 * status.st_blocks <= HOLE_BYTES:
        return
    descriptor = (
        file if isinstance(file, int) else os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    )
    try:
        refused = _has_holes(descriptor, status.st_size, HOLE_BYTES)
    finally:
        if descriptor != file:
            os.close(descriptor)
    if refused:
        stored = 512 * status.st_blocks
        msg = (
            f"a sparse file: {status.st_size:,} bytes, {stored:,} of them stored; at most "
            f"{HOLE_BYTES:,} may be holes"
        )
        raise OSError(errno.EFBIG, msg)


def is_mostly_holes(descriptor: int, status: os.stat_result) -> bool:
    """Return whether more than half of a file larger than 16 MiB was never written.

    Args:
        descriptor: the file; its position does not change.
        status: the file's status.
    """
    size = status.st_size
    half = status.st_size // 2
    return (
        size > SMALL_BYTES
        and size - 512 * status.st_blocks > half
        and _has_holes(descriptor, size, half)
    )


def allocated_bytes(descriptor: int) -> int:
    """Return the bytes of a file, or of all files below a folder, that are not holes.

    Raises:
        OSError: the folder cannot be read.
    """
    status = os.fstat(descriptor)
    if stat.S_ISDIR(status.st_mode):
        walked = os.fwalk(dir_fd=descriptor)
        return sum(_allocated_in(folder, name) for _, _, names, folder in walked for name in names)
    has_holes = 512 * status.st_blocks < status.st_size
    return status.st_size - (_holes(descriptor, status.st_size) if has_holes else 0)


def _allocated_in(folder: int, name: str) -> int:
    """Return the bytes of a file in a folder that are not holes; 0 for anything but a file."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode) or status.st_size <= 512 * status.st_blocks:
        return status.st_size if stat.S_ISREG(status.st_mode) else 0
    opened = os.open(
        name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder
    )
    try:
        return status.st_size - _holes(opened, status.st_size)
    finally:
        os.close(opened)


def _has_holes(descriptor: int, size: int, most: int) -> bool:
    return _holes(descriptor, size, most) > most


def _holes(descriptor: int, size: int, most: float = math.inf) -> int:
    """Return how many of a file's `size` bytes are holes; the file's position does not change.

    Counting stops once the total exceeds `most`.

    Notes:
        A file system that cannot report holes counts as having none.
    """
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    data_start = total = 0
    try:
        while total <= most and data_start < size:
            hole = os.lseek(descriptor, data_start, os.SEEK_HOLE)
            try:
                data_start = os.lseek(descriptor, hole, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:  # ENXIO: no data after the hole
                    raise
                data_start = size
            total += data_start - hole
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}:
            raise
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)
    return total


_OPENAT2 = 437  # the same number on every architecture
_NO_MAGICLINKS = 0x02
_NO_SYMLINKS = 0x04
_BENEATH = 0x08
# O_NONBLOCK: opening a pipe in a file's place would block
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_OUTSIDE = "a link out of the data folder; copy the file in the place of the link"
_LINKED = "a link, which is not followed here; copy the file in the place of the link"
_NO_FILE = "not a regular file (a device, a socket or a pipe)"
_PIECE = 1 << 20
_TRIES = 16
_LARGEST = 2**63 - 1


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _kernel() -> ctypes.CDLL | None:
    """Return the C library if ``openat2`` works; None on old kernels and if seccomp forbids it."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, 0)
    descriptor = libc.syscall(_OPENAT2, -100, b"/", ctypes.byref(how), ctypes.sizeof(how))
    if descriptor < 0:
        return None
    os.close(descriptor)
    return libc


def open_method() -> str:
    """Return how files are opened on this machine, for display."""
    return "folder by folder" if _kernel() is None else "openat2"


class ConfinedFolder:
    """A folder held open; files are opened by relative path, and no path or link leads out of it.

    Args:
        path: the folder; links in its parents and at `path` itself are followed.

    Raises:
        OSError: the folder is missing or cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.path.abspath(path)  # noqa: PTH100  a Path takes ten times as long
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    @cached_property
    def real(self) -> str:
        """The folder's path without links."""
        return os.path.realpath(self._path)

    def open(self, path: str, *, links: bool = True) -> int:
        """Return a descriptor of a regular file or a folder below this one.

        Args:
            path: relative to the folder; "" for the folder itself.
            links: follow links that stay inside the folder; otherwise refuse every link.

        Raises:
            OSError: the file is missing, lies outside, or is a device, a socket or a pipe.
        """
        opened = self._opened(path or ".", links=links)
        # ``openat2`` bypasses `os.open`, which raises this audit event itself
        sys.audit("open", f"{self.real}/{path}", None, _READ)
        kind = os.fstat(opened).st_mode
        if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
            return opened
        os.close(opened)
        raise OSError(errno.EINVAL, _NO_FILE)

    def listed(self, path: str) -> int:
        """Return a descriptor of a folder below this one, for `os.scandir`.

        Raises:
            OSError: the folder is missing, lies outside, or is not a folder.
        """
        opened = self._opened(path or ".", links=True)
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            os.close(opened)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return opened

    def open_plain(self, path: str) -> int:
        """Return a descriptor as `open` does, without following links."""
        return self.open(path, links=False)

    def _opened(self, path: str, *, links: bool) -> int:
        kernel = _kernel()
        if kernel is not None:
            resolve = _BENEATH | _NO_MAGICLINKS | (0 if links else _NO_SYMLINKS)
            descriptor, code = _openat2(kernel, self._descriptor, path, resolve)
            if descriptor >= 0:
                return descriptor
            # EXDEV: the path leaves the folder, or passes an absolute link, which may lead back in
            if not (links and code == errno.EXDEV):
                messages = {
                    errno.EXDEV: _OUTSIDE,
                    errno.ELOOP: os.strerror(code) if links else _LINKED,
                }
                raise OSError(code, messages.get(code, os.strerror(code)))
        inner = self._inner(path) if links else path
        if kernel is None:
            return self._walked(inner)
        descriptor, code = _openat2(kernel, self._descriptor, inner, _BENEATH | _NO_SYMLINKS)
        if descriptor < 0:
            raise OSError(code, os.strerror(code))
        return descriptor

    def _inner(self, path: str) -> str:
        """Resolve all links of a path; return it relative to the folder.

        Raises:
            OSError: the path leads out of the folder.
        """
        resolved = os.path.realpath(f"{self.real}/{path}")
        if resolved != self.real and not resolved.startswith(self.real.rstrip("/") + "/"):
            raise OSError(errno.EXDEV, _OUTSIDE)
        return os.path.relpath(resolved, self.real)

    def _walked(self, path: str) -> int:
        """Open a path folder by folder; a link put in the way meanwhile is an error."""
        parts = [part for part in path.split("/") if part not in {"", "."}]
        if ".." in parts or path.startswith("/"):
            raise OSError(errno.EXDEV, _OUTSIDE)
        descriptor = os.dup(self._descriptor)
        try:
            for part in parts[:-1]:
                child = os.open(
                    part,
                    os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
                    dir_fd=descriptor,
                )
                os.close(descriptor)
                descriptor = child
            return os.open(parts[-1] if parts else ".", _READ | os.O_NOFOLLOW, dir_fd=descriptor)
        finally:
            os.close(descriptor)

    def stat(self, path: str) -> os.stat_result:
        """Return the status of a regular file or a folder below this one.

        Raises:
            OSError: see `open`.
        """
        opened = self.open(path)
        try:
            return os.fstat(opened)
        finally:
            os.close(opened)

    def read(self, path: str, limit: int, *, links: bool = True) -> bytes:
        """Return the bytes of a file below this folder; see `read_file`, and `open` for `links`."""
        return _read(self.open(path, links=links), limit)

    def close(self) -> None:
        """Close the folder; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> ConfinedFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            self.close()


Stamp = tuple[int, ...]  # size, mtime, ctime and inode, as a listing holds them


class File(os.PathLike[str]):
    """A file or folder below a `ConfinedFolder`, opened by handle.

    It has the `Path` methods that readers use.

    Args:
        folder: the folder that `path` is relative to.
        path: relative to the folder.
        expected: the required status of a regular file when it is opened; None: any.
        links: follow links that stay inside the folder.

    Notes:
        As a path (`os.fspath`) it is ``/proc/self/fd/N``, which a library can open again as long as
        this object lives.
    """

    __slots__ = ("_descriptor", "_expected", "_folder", "_links", "_path", "name")

    def __init__(
        self,
        folder: ConfinedFolder,
        path: str,
        expected: Stamp | None = None,
        *,
        links: bool = True,
    ) -> None:
        self._folder, self._path, self._expected, self._links = folder, path, expected, links
        self._descriptor = -1
        self.name = path.rpartition("/")[2]

    def __fspath__(self) -> str:
        """Return a path that opens the current file, even if another one takes its place later."""
        if self._descriptor < 0:
            self._descriptor = self.descriptor()
        return os.fspath(descriptor_path(self._descriptor))

    def __str__(self) -> str:
        """Return the file's location, for display."""
        return f"{self._folder.real}/{self._path}"

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def descriptor(self) -> int:
        """Return a new descriptor of the file or folder.

        Raises:
            OSError: the file is missing, leads out of the folder, is a device, a socket or a pipe,
                or is not the expected one (ESTALE).
        """
        opened = self._folder.open(self._path, links=self._links)
        if self._expected is not None:
            status = os.fstat(opened)
            if stat.S_ISREG(status.st_mode) and stamp_of(status) != self._expected:
                os.close(opened)
                raise OSError(errno.ESTALE, "changed after it was listed")
        return opened

    @overload
    def open(self, mode: str = "rb", *, buffering: Literal[0]) -> io.FileIO: ...
    @overload
    def open(self, mode: str = "rb") -> io.BufferedReader: ...
    def open(self, mode: str = "rb", *, buffering: int = -1) -> io.FileIO | io.BufferedReader:
        """Open the file for reading bytes; see `descriptor`."""
        assert mode == "rb", mode
        opened = self.descriptor()
        if stat.S_ISDIR(os.fstat(opened).st_mode):
            os.close(opened)
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return os.fdopen(opened, "rb", buffering=buffering)  # type: ignore[return-value]

    def read_bytes(self) -> bytes:
        """Return all bytes of the file."""
        with self.open(buffering=0) as file:
            return file.read()

    def stat(self) -> os.stat_result:
        """Return the file's status."""
        if self._descriptor >= 0:
            return os.fstat(self._descriptor)
        opened = self.descriptor()
        try:
            return os.fstat(opened)
        finally:
            os.close(opened)

    def _is(self, kind: int) -> bool:
        try:
            return stat.S_IFMT(self.stat().st_mode) == kind
        except OSError:
            return False

    def is_file(self) -> bool:
        """Return whether this is a regular file that may be opened."""
        return self._is(stat.S_IFREG)

    def is_dir(self) -> bool:
        """Return whether this is a folder that may be opened."""
        return self._is(stat.S_IFDIR)

    def names(self) -> list[str]:
        """Return the sorted names in the folder."""
        opened = self.descriptor()
        try:
            return sorted(os.listdir(opened))  # noqa: PTH208  of a descriptor
        finally:
            os.close(opened)

    @property
    def suffix(self) -> str:
        """The last suffix of the name, with its dot."""
        return os.path.splitext(self.name)[1]  # noqa: PTH122

    @property
    def parent(self) -> File:
        """The folder that contains the file."""
        return File(self._folder, self._path.rpartition("/")[0], links=self._links)

    def with_name(self, name: str) -> File:
        """Return another file of the same folder."""
        return self.parent / name

    def __truediv__(self, inner: str) -> File:
        """Return a file below this folder."""
        return File(
            self._folder, f"{self._path}/{inner}" if self._path else inner, links=self._links
        )

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same path."""
        return isinstance(other, File) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def without_links(self) -> File:
        """Return this folder under its own handle; links below it are not followed."""
        return File(ConfinedFolder(self), "", links=False)


AnyPath = Path | File


def stamp_of(status: os.stat_result) -> Stamp:
    """Return size, mtime, ctime and inode, in the form that a listing stores."""
    return clamp_stamp((status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))


def clamp_stamp(stamp: Stamp) -> Stamp:
    """Return a stamp with each number clamped to the range of int64."""
    if min(stamp) >= -_LARGEST and max(stamp) <= _LARGEST:
        return stamp
    return tuple(max(-_LARGEST - 1, min(number, _LARGEST)) for number in stamp)


def _openat2(kernel: ctypes.CDLL, folder: int, path: str, resolve: int) -> tuple[int, int]:
    """Return (descriptor, 0), or (-1, errno)."""
    how = _OpenHow(_READ, 0, resolve)
    for _ in range(_TRIES):
        descriptor = kernel.syscall(
            _OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)
        )
        code = 0 if descriptor >= 0 else ctypes.get_errno()
        # EAGAIN: a concurrent rename while ".." is resolved, or a lease on the file
        if code not in {errno.EAGAIN, errno.EINTR}:
            break
    else:
        how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, resolve)
        descriptor = kernel.syscall(
            _OPENAT2, folder, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)
        )
        code = 0 if descriptor >= 0 else ctypes.get_errno()
        if descriptor >= 0:
            descriptor = _open_leased(descriptor)
    return descriptor, code


def _open_leased(descriptor: int) -> int:
    """Open a regular file that another program holds a lease on; wait until the lease is broken."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, _NO_FILE)
        return os.open(descriptor_path(descriptor), _READ & ~os.O_NONBLOCK)
    finally:
        os.close(descriptor)


def open_plain(folder: str | os.PathLike[str], path: str) -> int:
    """Return a descriptor of a file or folder below a folder, without following links below it."""
    with ConfinedFolder(folder) as confined:
        return confined.open_plain(path)


def open_regular(path: str | os.PathLike[str], *, links: bool = True) -> int:
    """Return a descriptor of a regular file, without waiting for the writer of a pipe.

    Args:
        path: the file.
        links: follow a link at `path`; links in its parents are always followed.

    Raises:
        OSError: the file is missing, or is a folder, a device, a socket or a pipe.
    """
    try:
        opened = os.open(path, _READ | (0 if links else os.O_NOFOLLOW))
    except BlockingIOError:
        opened = _open_leased(os.open(path, os.O_PATH | os.O_CLOEXEC))
    kind = os.fstat(opened).st_mode
    if stat.S_ISREG(kind):
        return opened
    os.close(opened)
    raise (
        IsADirectoryError(errno.EISDIR, "is a directory")
        if stat.S_ISDIR(kind)
        else OSError(errno.EINVAL, _NO_FILE)
    )


def read_file(path: str | os.PathLike[str], limit: int, *, links: bool = True) -> bytes:
    """Return the bytes of a regular file that has at most `limit` bytes.

    Args:
        path: the file.
        limit: bytes; checked before memory is allocated.
        links: follow a link at `path`.

    Raises:
        OSError: the file is missing, not a regular file, or larger than `limit` (EFBIG).
    """
    return _read(open_regular(path, links=links), limit)


def read_in(folder: int, name: str, limit: int) -> bytes:
    """Return the bytes of a regular file in an open folder; a link is refused.

    Limits and errors: see `read_file`.
    """
    opened = os.open(name, _READ | os.O_NOFOLLOW, dir_fd=folder)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return _read(opened, limit)
    os.close(opened)
    raise OSError(errno.EINVAL, _NO_FILE)


def _read(descriptor: int, limit: int) -> bytes:
    try:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"{size:,} bytes; at most {limit:,} are read")
        pieces = []
        remaining = limit + 1
        while remaining and (piece := os.read(descriptor, min(remaining, max(_PIECE, size + 1)))):
            pieces.append(piece)
            remaining -= len(piece)
            size = 0  # the file may have grown: read the rest in small pieces
        if not remaining:
            raise OSError(errno.EFBIG, f"more than {limit:,} bytes; at most {limit:,} are read")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    finally:
        os.close(descriptor)


def descriptor_path(descriptor: int) -> Path:
    """Return a path that opens the file of a descriptor of this process.

    It opens that file whatever its name leads to by now.
    """
    return Path(f"/proc/self/fd/{descriptor}")
