"""Write a result that is a folder: it appears whole or not at all, and replaces nothing.

The folder grows beside its final name and gets it by one rename. Only a killed process leaves the
unfinished folder; the next result of that name removes it.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from datacheck.errors import StorageError, SyncFailedError, UsageError
from datacheck.runtime import folders, fsops, machine

_TRIES = 20


def check_new(to: Path) -> None:
    """Raise unless a result may get this name; call it before hours of work.

    Raises:
        UsageError: something is there that is not an empty folder, or it is the working folder.
    """
    # The working directory counts as full: a shell may be in it.
    full = to.exists() and (not to.is_dir() or any(to.iterdir()) or to.samefile(Path.cwd()))
    if full or to.is_symlink():
        msg = f"{to}: is there already, and nothing is overwritten. Name a new folder."
        raise UsageError(msg)


@contextlib.contextmanager
def staging(to: Path) -> Iterator[Path]:
    """Create the folder that becomes `to`, next to it; remove leftovers of killed processes.

    At the end the folder is removed, unless it was renamed (`publish`).

    Raises:
        StorageError: the operating system refuses.
    """
    parent = to.absolute().parent
    fsops.make_directory(parent)
    local = machine.is_local(parent)
    if local:
        _clear(parent, to.name)
    lock = None
    for _ in range(_TRIES if local else 1):
        folder = parent / f".{to.name}.{uuid.uuid4().hex}.partial"
        fsops.make_directory(folder, sync=False)
        if not local or (lock := _locked(folder)) is not None:
            break  # otherwise another process took it for a leftover
    try:
        yield folder
    finally:
        folders.remove_tree(folder)  # exists only if it was not renamed to `to`
        if lock is not None:
            lock.close()


def _clear(parent: Path, name: str) -> None:
    ours = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{32}}\.partial")
    for leftover in sorted(path for path in parent.glob(".*.partial") if ours.fullmatch(path.name)):
        with contextlib.suppress(StorageError):  # it belongs to another user
            if not leftover.is_symlink() and (lock := _locked(leftover)) is not None:
                with lock:
                    folders.remove_tree(leftover)


def _locked(folder: Path) -> fsops.FileLock | None:
    """Lock a folder; return None if another process holds it, or if it is gone."""
    try:
        lock = fsops.hold(folder, shared=False)
    except FileNotFoundError:
        return None
    if lock is not None and not folder.exists():
        lock.close()
        return None
    return lock


def publish(folder: Path, to: Path) -> tuple[int, int]:
    """Make a finished folder durable and rename it to `to`; return its files and their bytes.

    A folder that appeared in between stays unchanged.

    Raises:
        UsageError: `to` appeared in between.
        SyncFailedError: the device did not take the bytes.
        StorageError: any other refusal of the operating system.
    """
    files = sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)
    fsops.sync_files(files)
    for place, _, _ in os.walk(folder, topdown=False):
        fsops.sync_directory(Path(place))
    size = sum(path.stat().st_size for path in files)
    try:
        fsops.rename(folder, to)
    except OSError as error:
        if to.exists():
            msg = (
                f"{to}: was created in the meantime, and nothing is overwritten. Name a new folder."
            )
            raise UsageError(msg) from error
        raise fsops.as_storage_error(error, to) from error
    try:
        fsops.sync_directory(to.absolute().parent)
    except SyncFailedError:
        folders.remove_tree(to)
        raise
    return len(files), size
