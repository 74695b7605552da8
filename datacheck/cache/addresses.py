"""Files mapped into reserved address ranges, without keeping a descriptor for each file.

Python's mmap module cannot do this.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

_MAP_FIXED = 0x10  # the same on Linux and macOS; missing from the mmap module
_PROT_NONE = 0
_MADV_WILLNEED = 3  # madvise: the same on Linux and macOS
_MAP_FAILED = ctypes.c_void_p(-1).value


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_long]
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    libc.madvise.argtypes = [ctypes.c_void_p, size, number]
    return libc


class AddressRange:
    """A reserved range of addresses; unmapped when no array refers to it any more."""

    def __init__(self, size: int) -> None:
        self._libc = _libc()
        self.size = size
        self.address = self._map(None, size, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        end = weakref.finalize(self, self._libc.munmap, self.address, size)
        # At exit threads may still read, and the maps end with the process anyway.
        end.atexit = False
        self.__array_interface__ = {
            "data": (self.address, True),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def _map(self, address: int | None, size: int, protection: int, flags: int, file: int) -> int:
        mapped_address = self._libc.mmap(address, size, protection, flags, file, 0)
        if mapped_address is None or mapped_address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return int(mapped_address)

    def place(self, offset: int, size: int, file: int) -> None:
        """Map the first `size` bytes of an open file at `offset`."""
        self._map(self.address + offset, size, mmap.PROT_READ, mmap.MAP_SHARED | _MAP_FIXED, file)

    def forget(self) -> None:
        """Release the pages that were read; the next access reads them again."""
        self._libc.madvise(self.address, self.size, mmap.MADV_DONTNEED)

    def will_need(self, offset: int, size: int) -> None:
        """Ask the system to read this part of the map ahead (best effort)."""
        page_start = offset // mmap.PAGESIZE * mmap.PAGESIZE
        self._libc.madvise(self.address + page_start, offset + size - page_start, _MADV_WILLNEED)


def map_file(path: Path, size: int) -> memoryview:
    """Return a map of the first `size` bytes of a file; it outlives the file's name.

    Raises:
        OSError: there is no such file, or the operating system grants no (further) map.
    """
    span = AddressRange(size)
    with path.open("rb", buffering=0) as file:
        span.place(0, size, file.fileno())
    mapped: np.ndarray[Any, Any] = np.asarray(span)
    return mapped.data
