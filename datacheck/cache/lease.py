"""Who reads a cache holds a shared lock on its manifest, so that `cache gc` leaves the cache alone.

The lock belongs to the open file: forked loader workers have it, too, and the kernel frees it when the last of them
ends, however it ends. Nothing is written, so it works on read-only disks. On network file systems (`mounts.is_local`)
locks are not to be trusted and none is taken.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from datacheck import fsops
from datacheck.cache import layout
from datacheck.errors import EvictedError, StorageError
from datacheck.fsops import Hold

_TRIES, _PAUSE_S = 50, 0.02  # a look whether a cache is in use locks its manifest for an instant


def lease(folder: Path) -> Hold | None:
    """Return the lock of a reader, or None where there is no manifest, or nothing can be locked.

    Args:
        folder: a cache on a file system of this machine.

    Raises:
        EvictedError: the cache is just being removed.
    """
    for _ in range(_TRIES):
        try:
            held = _held(folder, shared=True)
        except (FileNotFoundError, StorageError):  # reading the manifest will say what is wrong
            return None
        if held is not None:
            return held
        time.sleep(_PAUSE_S)
    msg = f"{folder}: is just being removed. Build it again: datacheck cache build"
    raise EvictedError(msg)


def exclusive(folder: Path) -> Hold | None:
    """Return a lock that no reader shares, or None where one reads the cache, or another removes it.

    Raises:
        FileNotFoundError: there is no manifest.
        StorageError: the operating system refuses.
    """
    return _held(folder, shared=False)


def _held(folder: Path, *, shared: bool) -> Hold | None:
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
