"""The calls of the operating system that change files, as they are: no typed exceptions, no retries, no order.

A test that fails, loses or reorders the N-th call puts a subclass of `System` at `fsops.SYSTEM`.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

_EXCHANGE = 2  # RENAME_EXCHANGE
_HERE = -100  # AT_FDCWD


class System:
    """One method for each call that changes files; `fsops.SYSTEM` is the one in use."""

    def create(self, path: Path, mode: int) -> int:
        """Make a file that is not there yet and open it for writing."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    def open(self, path: Path, flags: int) -> int:
        """Open what is there: to write into it, or to sync it."""
        return os.open(path, flags | os.O_CLOEXEC)

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

    def rename(self, source: Path, target: Path) -> None:
        """Rename; a file that is there is replaced."""
        source.replace(target)

    def exchange(self, one: Path, other: Path) -> None:
        """Let two names change places in one step."""
        import ctypes  # noqa: PLC0415  milliseconds that every start of the command would pay

        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "renameat2"):
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        target.hardlink_to(source)

    def symlink(self, said: str, link: Path) -> None:
        """Make a symbolic link."""
        link.symlink_to(said)

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        path.unlink()

    def mkdir(self, path: Path) -> None:
        """Make a folder in one that is there."""
        path.mkdir()

    def rmdir(self, path: Path) -> None:
        """Remove a folder that holds nothing."""
        path.rmdir()

    def chmod(self, path: Path, mode: int) -> None:
        """Change a file's permissions."""
        path.chmod(mode)

    def utime(self, path: Path) -> None:
        """Set a file's times to now."""
        os.utime(path)
