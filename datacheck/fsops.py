"""Every call that changes files on the build and publish path: write, sync, rename, link, remove.

One module, so that a test can fail, lose or reorder the N-th operation by replacing it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from datacheck.errors import DatacheckError, OutOfSpaceError, StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def refused(error: OSError, path: str | os.PathLike[str]) -> StorageError:
    """Return the typed exception for an operating-system refusal while writing `path`."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return OutOfSpaceError(
            f"{os.fspath(path)}: cannot write, {reason.lower()}. Free some space or choose another folder, "
            "then run the same command again."
        )
    return StorageError(f"{os.fspath(path)}: {reason.lower()}. Check the path and its permissions.")


@contextlib.contextmanager
def _guarded(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise refused(error, path) from error


def check_writable(path: Path) -> None:
    """Raise `StorageError` where `path` could not be made or written into; changes nothing."""
    place = next(p for p in (path, *path.absolute().parents) if p.exists())
    if not place.is_dir():
        raise refused(NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)), place)
    if not os.access(place, os.W_OK | os.X_OK):
        msg = f"{place}: nothing can be written there. Choose another folder, or change its permissions."
        raise StorageError(msg)


def make_directory(path: Path, *, exist_ok: bool = True) -> None:
    """Create `path` and its parents."""
    with _guarded(path):
        path.mkdir(parents=True, exist_ok=exist_ok)


def write_file(path: Path, parts: bytes | memoryview | list[bytes | memoryview], *, sync: bool = True) -> None:
    """Write a new file so that it appears whole or not at all: temporary name, sync, rename.

    Args:
        path: the final name; an existing file is replaced.
        parts: the content, in order.
        sync: flush the bytes to the device before the rename.

    Raises:
        OutOfSpaceError: the device or quota is full; the temporary file is removed.
        StorageError: any other refusal of the operating system.
    """
    # not the process number: two containers that write the same shard may have the same
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.partial")
    try:
        with _guarded(path):
            with open(temporary, "wb", buffering=0) as file:  # noqa: PTH123  raw, so that short writes are ours
                for part in parts if isinstance(parts, list) else [parts]:
                    _write_all(file.fileno(), memoryview(part).cast("B"))
                if sync:
                    os.fsync(file.fileno())
            temporary.replace(path)
    except DatacheckError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _write_all(descriptor: int, view: memoryview) -> None:
    while len(view):
        view = view[os.write(descriptor, view) :]


def append(path: Path, data: bytes) -> None:
    """Append `data` to `path` and sync it (a journal line)."""
    with _guarded(path), open(path, "ab", buffering=0) as file:  # noqa: PTH123
        _write_all(file.fileno(), memoryview(data))
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in `path` durable."""
    with _guarded(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Rename `source` to `target`; raises the plain `OSError`, because losing the race is an answer, not a fault."""
    source.rename(target)


def point(link: Path, target: str) -> None:
    """Make `link` a symbolic link to `target`, in place of an older one; where links are refused there is none."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}.partial")
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(link)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file that nobody writes any more a second name; where links are refused a copy is made."""
    try:
        target.hardlink_to(source)
    except OSError:
        with _guarded(target):
            shutil.copyfile(source, target)


def make_read_only(path: Path) -> None:
    """Take the write permission away (a guard-rail, not a proof)."""
    with _guarded(path):
        path.chmod(0o444)


def remove_tree(path: Path) -> None:
    """Delete a folder that datacheck created; absent is fine."""
    with _guarded(path):
        shutil.rmtree(path, ignore_errors=False) if path.exists() else None
