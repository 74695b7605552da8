"""Open, empty and remove folders by descriptor, so that no link in their place leads outside.

A link that another process puts in the way during the operation is not followed either.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from datacheck.errors import StorageError
from datacheck.runtime import fsops

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NO_FOLDER = {errno.ENOTDIR, errno.ELOOP}  # the path is a link or a file
# Each level holds a descriptor open; datacheck's own folders are far less deep.
DEEPEST = 200
_TOO_DEEP = f"folders are nested more than {DEEPEST} deep, which datacheck never does; remove them"

IsOurs = Callable[[str], bool]


@contextlib.contextmanager
def open_folder(path: Path, within: int | None = None) -> Iterator[int]:
    """Hold a folder open; yield its descriptor.

    Args:
        path: the folder. A link at `path` is refused; links in its parents are followed.
        within: descriptor of the parent folder; None: use the parent in `path`.

    Raises:
        OSError: the unmodified error of the operating system; `ENOTDIR` for a link.
    """
    descriptor = _open(path, within)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path, within: int | None) -> int:
    return os.open(path if within is None else path.name, _FOLDER, dir_fd=within)


def names(descriptor: int) -> list[str]:
    """Return the names in an open folder, sorted."""
    return sorted(os.listdir(descriptor))


def is_real(path: Path) -> bool:
    """Return whether a path is a folder and not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def check_real(path: Path, instead: str) -> None:
    """Raise if a link stands in the place of a folder of datacheck.

    Args:
        path: the folder; absent is fine.
        instead: the end of the message, after "Remove it".

    Raises:
        StorageError: `path` is a link.
    """
    if os.path.islink(path):  # noqa: PTH114  returns False below an unreadable folder
        msg = (
            f"{path}: is a link, and what is written and removed there would be elsewhere. "
            f"Remove it{instead}."
        )
        raise StorageError(msg)


def check_own(path: Path, instead: str) -> None:
    """Raise if a folder of datacheck is a link, or another user's in a shared folder such as /tmp.

    Args:
        path: the folder; absent is fine.
        instead: the end of the message, after "Remove it".

    Raises:
        StorageError: `path` is such a folder.

    Notes:
        The kernel applies the same rule to files in sticky, world-writable folders
        (``fs.protected_regular``). Elsewhere, everyone who may write next to the folder is trusted,
        so that the root of a container and the members of a project can share a folder.
    """
    check_real(path, instead)
    try:
        owner = path.lstat().st_uid
        parent_status = path.parent.stat()
    except OSError:
        return
    shared_bits = stat.S_ISVTX | stat.S_IWOTH
    if parent_status.st_mode & shared_bits == shared_bits and owner not in {
        os.geteuid(),
        parent_status.st_uid,
        0,
    }:
        msg = (
            f"{path}: is user {owner}'s, in a folder where everybody may write. Remove it{instead}."
        )
        raise StorageError(msg)


def remove_tree(path: Path, ours: IsOurs | None = None, within: int | None = None) -> list[Path]:
    """Delete a folder and everything in it; absent is fine.

    If `path` is a link, only the link is removed.

    Args:
        path: the folder.
        ours: returns whether a file, given by its path in the folder, may be deleted. All other
            files stay, and so do links. None: everything is deleted.
        within: see `open_folder`.

    Returns:
        The files that stay.

    Raises:
        StorageError: the operating system refuses.
    """
    with (
        fsops.guarded(path),
        contextlib.suppress(FileNotFoundError),
        contextlib.ExitStack() as stack,
    ):
        if within is None:
            within = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, within)
        return _removed(path, within, ours, "", DEEPEST)
    return []


def empty(path: Path, descriptor: int, ours: IsOurs | None = None, keep: str = "") -> list[Path]:
    """Delete the contents of an open folder; return the files that stay.

    Args:
        path: the folder's path.
        descriptor: the folder.
        ours: see `remove_tree`.
        keep: the name of an entry that always stays.

    Raises:
        StorageError: the operating system refuses.
    """
    with fsops.guarded(path):
        return _emptied(path, descriptor, ours, "", DEEPEST, keep)


def drop_links(path: Path) -> None:
    """Delete every entry below a folder that is neither a file nor a folder.

    A later writer in the folder might follow such links.

    Raises:
        OSError: the operating system refuses.
    """
    with open_folder(path) as descriptor:
        _drop_links(path, descriptor, DEEPEST)


def _drop_links(path: Path, descriptor: int, deeper: int) -> None:
    if not deeper:
        raise OSError(errno.ELOOP, _TOO_DEEP)
    for name, folder, file in _entries(descriptor):
        if folder:
            with open_folder(path / name, descriptor) as inner:
                _drop_links(path / name, inner, deeper - 1)
        elif not file:
            fsops.SYSTEM.unlink(path / name, descriptor)


def _entries(descriptor: int) -> list[tuple[str, bool, bool]]:
    """Return (name, is a folder, is a regular file) for each entry of an open folder."""
    with os.scandir(descriptor) as entries:
        return [
            (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
            for entry in entries
        ]


def _removed(path: Path, within: int, ours: IsOurs | None, name: str, deeper: int) -> list[Path]:
    try:
        descriptor = _open(path, within)
    except OSError as error:
        if error.errno not in NO_FOLDER:
            raise
        if ours is not None:  # replaced since it was listed as a folder: not ours to delete
            return [path]
        fsops.SYSTEM.unlink(path, within)
        return []
    try:
        remaining = _emptied(path, descriptor, ours, f"{name}/" if name else "", deeper)
    finally:
        os.close(descriptor)
    if not remaining:
        fsops.SYSTEM.rmdir(path, within)
    return remaining


def _emptied(
    path: Path, descriptor: int, ours: IsOurs | None, base: str, deeper: int, keep: str = ""
) -> list[Path]:
    if not deeper:
        if ours is not None:
            return [path]
        raise OSError(errno.ELOOP, _TOO_DEEP)
    remaining: list[Path] = []
    for name, folder, file in _entries(descriptor):
        if name == keep:
            continue
        with contextlib.suppress(FileNotFoundError):  # another process may delete the same tree
            if folder:
                remaining += _removed(path / name, descriptor, ours, base + name, deeper - 1)
            elif ours is None or (file and ours(base + name)):
                fsops.SYSTEM.unlink(path / name, descriptor)
            else:
                remaining.append(path / name)
    return remaining
