"""A new file that is written at any position, through `fsops`: for libraries that write for themselves."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from datacheck import fsops

if TYPE_CHECKING:
    from typing_extensions import Buffer


class NewFile(io.RawIOBase):
    """A file that is made and opened for reading and writing.

    Args:
        path: where; nothing is there yet.

    Attributes:
        error: the first refusal of the system, or None. No exception says so, and what is written behind it is lost:
            HDF5 kills the process when it cannot write while it closes a file. Who writes must look.

    Raises:
        OutOfSpaceError: the disk is full.
        StorageError: another refusal.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        fsops.write_file(path, b"", sync=False, mode=0o644)
        self.error: OSError | None = None
        self._at = self._size = 0
        SYSTEM = fsops.SYSTEM  # noqa: N806
        self._descriptor = SYSTEM.open(path, os.O_RDWR)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """See `io.RawIOBase`."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at

    def readinto(self, buffer: Buffer, /) -> int:
        """See `io.RawIOBase`."""
        taken = os.preadv(self._descriptor, [buffer], self._at)
        self._at += taken
        return taken

    def write(self, data: Buffer, /) -> int:
        """Write all of `data`; see `error`."""
        view = memoryview(data).cast("B")
        size, at = len(view), self._at
        SYSTEM = fsops.SYSTEM  # noqa: N806
        try:
            while len(view) and self.error is None:
                taken = SYSTEM.write_at(self._descriptor, view, at)
                view, at = view[taken:], at + taken
        except OSError as error:
            self.error = error
        self._at += size
        self._size = max(self._size, self._at)
        return size

    def truncate(self, size: int | None = None, /) -> int:
        """See `io.RawIOBase`; see `error`."""
        self._size = self._at if size is None else size
        SYSTEM = fsops.SYSTEM  # noqa: N806
        try:
            if self.error is None:
                SYSTEM.truncate(self._descriptor, self._size)
        except OSError as error:
            self.error = error
        return self._size

    def close(self) -> None:
        """See `io.RawIOBase`; see `error`."""
        if not self.closed:
            super().close()
            SYSTEM = fsops.SYSTEM  # noqa: N806
            try:
                SYSTEM.close(self._descriptor)
            except OSError as error:
                self.error = self.error or error

    def readable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def writable(self) -> bool:
        """See `io.RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """See `io.RawIOBase`."""
        return True
