"""The calls of the operating system that change files, as they are: no typed exceptions, no retries, no order.

A test that fails, loses or reorders the N-th call puts a subclass of `System` at `fsops.SYSTEM`.

Where a method takes `folder`, the descriptor of the folder that holds the path, only the last part of the path is
resolved, and in that folder: a link that somebody puts in the way leads nowhere.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_EXCHANGE = 2  # RENAME_EXCHANGE
_HERE = -100  # AT_FDCWD


class System:
    """One method for each call that changes files; `fsops.SYSTEM` is the one in use."""

    def create(self, path: Path, mode: int, folder: int | None = None) -> int:
        """Make a file that is not there yet and open it for writing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(_in(folder, path), flags, mode, dir_fd=folder)

    def open(self, path: Path, flags: int) -> int:
        """Open what is there: to write into it, which no link may lead to, or to sync it."""
        return os.open(path, flags | os.O_CLOEXEC | (os.O_NOFOLLOW if flags & (os.O_WRONLY | os.O_RDWR) else 0))

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write at the current position; return how many bytes were taken."""
        return os.write(descriptor, data)

    def write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        """Write at a position; return how many bytes were taken."""
        return os.pwrite(descriptor, data, offset)

    def truncate(self, descriptor: int, size: int) -> None:
        """Cut a file to `size` bytes."""
        os.ftruncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Flush a file's bytes, or a folder's names, to the device."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a file; a network file system may refuse here what it took before."""
        os.close(descriptor)

    def rename(self, source: Path, target: Path, folder: int | None = None, to: int | None = None) -> None:
        """Rename; a file that is there is replaced. `folder` holds the source, `to` the target."""
        os.replace(_in(folder, source), _in(to, target), src_dir_fd=folder, dst_dir_fd=to)

    def exchange(self, one: Path, other: Path, folder: int | None = None, to: int | None = None) -> None:
        """Let two names change places in one step. `folder` holds the one, `to` the other."""
        import ctypes  # noqa: PLC0415  milliseconds that every start of the command would pay

        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "renameat2"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        one_in, other_in = (_HERE if where is None else where for where in (folder, to))
        names = os.fsencode(_in(folder, one)), os.fsencode(_in(to, other))
        if libc.renameat2(one_in, names[0], other_in, names[1], _EXCHANGE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def link(self, source: Path, target: Path, folder: int | None = None) -> None:
        """Give a file a second name; of a link, the link itself. `folder` holds the target."""
        os.link(source, _in(folder, target), dst_dir_fd=folder, follow_symlinks=False)

    def symlink(self, said: str, link: Path, folder: int | None = None) -> None:
        """Make a symbolic link."""
        os.symlink(said, _in(folder, link), dir_fd=folder)

    def unlink(self, path: Path, folder: int | None = None) -> None:
        """Remove a file's name."""
        os.unlink(_in(folder, path), dir_fd=folder)

    def mkdir(self, path: Path, mode: int = 0o777, folder: int | None = None) -> None:
        """Make a folder in one that is there."""
        os.mkdir(_in(folder, path), mode, dir_fd=folder)

    def rmdir(self, path: Path, folder: int | None = None) -> None:
        """Remove a folder that holds nothing."""
        os.rmdir(_in(folder, path), dir_fd=folder)

    def chmod(self, path: Path, mode: int, descriptor: int) -> None:
        """Change the permissions of an open file; `path` is its name."""
        del path
        os.fchmod(descriptor, mode)

    def utime(self, path: Path) -> None:
        """Set a file's times to now; of a link, the link's own."""
        os.utime(path, follow_symlinks=False)


def _in(folder: int | None, path: Path) -> Path | str:
    return path if folder is None else path.name
