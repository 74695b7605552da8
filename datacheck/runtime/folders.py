"""Folders by handle: opened, emptied and removed so that no link that stands or is put in the way leads outside."""

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
NO_FOLDER = {errno.ENOTDIR, errno.ELOOP}  # a link or a file stands in a folder's place
DEEPEST = (
    200  # each level holds a descriptor, and no folder that datacheck makes is nested like that
)
_TOO_DEEP = f"folders are nested more than {DEEPEST} deep, which datacheck never does; remove them"

IsOurs = Callable[[str], bool]


@contextlib.contextmanager
def open_folder(path: Path, within: int | None = None) -> Iterator[int]:
    """Hold a folder open; yield its descriptor.

    Args:
        path: the folder; a link in its place is refused, links on the way to it are followed.
        within: a descriptor of the folder that holds it; None: the one that its path leads to.

    Raises:
        OSError: the plain refusal of the operating system; `ENOTDIR` for a link.
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
    """Tell whether a path is a folder and no link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def check_real(path: Path, instead: str) -> None:
    """Raise where a link stands in the place of a folder of datacheck; `instead` ends "Remove it".

    Raises:
        StorageError: it is a link.
    """
    if os.path.islink(path):  # noqa: PTH114  of a folder that cannot be looked into: False
        msg = (
            f"{path}: is a link, and what is written and removed there would be elsewhere. "
            f"Remove it{instead}."
        )
        raise StorageError(msg)


def check_own(path: Path, instead: str) -> None:
    """Raise where a folder of datacheck is a link, or another user's in a folder where all may write, such as /tmp.

    Args:
        path: the folder; absent is fine.
        instead: ends "Remove it".

    Raises:
        StorageError: it is.

    Notes:
        The rule is the kernel's for files in such folders (``fs.protected_regular``): elsewhere who
        may write beside the folder is trusted, so that a container's root and the people of a
        project share one.
    """
    check_real(path, instead)
    try:
        owner, above = path.lstat().st_uid, path.parent.stat()
    except OSError:
        return
    shared = stat.S_ISVTX | stat.S_IWOTH
    if above.st_mode & shared == shared and owner not in {os.geteuid(), above.st_uid, 0}:
        msg = (
            f"{path}: is user {owner}'s, in a folder where everybody may write. Remove it{instead}."
        )
        raise StorageError(msg)


def remove_tree(path: Path, ours: IsOurs | None = None, within: int | None = None) -> list[Path]:
    """Delete a folder with all that is in it; absent is fine, of a link only the link goes.

    Args:
        path: the folder.
        ours: tells by its path in the folder which file may go; all others stay, and so do links;
            None: all goes.
        within: as of `open_folder`.

    Returns:
        The files that stay.

    Raises:
        StorageError: the operating system refuses.
    """
    with (
        fsops.guarded(path),
        contextlib.suppress(FileNotFoundError),
        contextlib.ExitStack() as held,
    ):
        if within is None:
            within = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, within)
        return _removed(path, within, ours, "", DEEPEST)
    return []


def empty(path: Path, descriptor: int, ours: IsOurs | None = None, keep: str = "") -> list[Path]:
    """Delete what is in an open folder; return the files that stay.

    Args:
        path: what it is called.
        descriptor: the folder.
        ours: as of `remove_tree`.
        keep: the name of what stays in any case.

    Raises:
        StorageError: the operating system refuses.
    """
    with fsops.guarded(path):
        return _emptied(path, descriptor, ours, "", DEEPEST, keep)


def drop_links(path: Path) -> None:
    """Delete what is neither a file nor a folder in a folder and all below it: whoever writes there may follow links.

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
    """Return the name of each entry of an open folder, whether it is a folder, and whether it is a regular file."""
    with os.scandir(descriptor) as entries:
        return [
            (one.name, one.is_dir(follow_symlinks=False), one.is_file(follow_symlinks=False))
            for one in entries
        ]


def _removed(path: Path, within: int, ours: IsOurs | None, name: str, deeper: int) -> list[Path]:
    try:
        descriptor = _open(path, within)
    except OSError as error:
        if error.errno not in NO_FOLDER:
            raise
        if ours is not None:  # it was a folder a moment ago
            return [path]
        fsops.SYSTEM.unlink(path, within)
        return []
    try:
        left = _emptied(path, descriptor, ours, f"{name}/" if name else "", deeper)
    finally:
        os.close(descriptor)
    if not left:
        fsops.SYSTEM.rmdir(path, within)
    return left


def _emptied(
    path: Path, descriptor: int, ours: IsOurs | None, base: str, deeper: int, keep: str = ""
) -> list[Path]:
    if not deeper:
        if ours is not None:
            return [path]
        raise OSError(errno.ELOOP, _TOO_DEEP)
    left: list[Path] = []
    for name, folder, file in _entries(descriptor):
        if name == keep:
            continue
        with contextlib.suppress(FileNotFoundError):  # another process may have been faster
            if folder:
                left += _removed(path / name, descriptor, ours, base + name, deeper - 1)
            elif ours is None or (file and ours(base + name)):
                fsops.SYSTEM.unlink(path / name, descriptor)
            else:
                left.append(path / name)
    return left
