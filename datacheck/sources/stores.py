"""What lies in a Zarr folder: one entry of a listing, with the size, times and digest of all in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from datacheck.digest import digest_file, digest_value
from datacheck.runtime.beneath import Folder, clamped
from datacheck.sources.entries import Entry
from datacheck.sources.roots import Roots

DEPTH = 64  # folders within one another
LINKED = 10_000  # folders that may be reached by links: a few that link to one another have millions of paths
BEHIND = 100_000  # files behind links that may be listed beside as many as there are without


def reason(error: OSError) -> str:
    """Return why the system refused something, as the end of a sentence."""
    return error.strerror.lower() if error.strerror else str(error)  # what is said here may name a path


def led(entry: os.DirEntry[str], place: str, real: str, links: tuple[str, ...]) -> tuple[str, str]:
    """Return where a link leads, and why it is not followed, "" where it is.

    Args:
        entry: the link.
        place: where it is, in a folder that is named without links.
        real: the data folder, named without links; what lies outside of it is not followed.
        links: folders that links led to on the way here.
    """
    goal = os.path.realpath(place)
    if not os.path.exists(goal):  # noqa: PTH110  one call per link
        return goal, "a link to nothing"
    if goal != real and not goal.startswith(real + os.sep):
        return goal, "a link out of the data folder; copy the file, or name its folder as DATA or --root"
    if entry.is_file():
        return goal, ""
    if not entry.is_dir():
        return goal, "a link to a device, a socket or a pipe"
    back = goal in links or place.startswith(goal + os.sep)
    return goal, "a link that leads back to itself" if back else ""


def store_entry(
    path: str, folder: str, real: str, seen_ns: int, beat: Callable[[], object] | None = None
) -> Entry:  # fmt: skip
    """Return what a listing says of a Zarr folder.

    Raises:
        OSError: something in it cannot be looked at, or is a link that may not be followed.
    """
    size, mtime, ctime = 0, 0, 0
    for _, status in _inside(folder, real, beat):
        mtime, ctime = max(mtime, status.st_mtime_ns), max(ctime, status.st_ctime_ns)
        if stat.S_ISREG(status.st_mode):
            size += status.st_size
    size, mtime, ctime, inode = clamped((size, mtime, ctime, os.stat(folder).st_ino))  # noqa: PTH116
    return Entry(path, size, mtime, ctime, inode, seen_ns)


def store_digest(
    folders: Roots, path: str, folder: str, real: str, beat: Callable[[], object] | None = None
) -> str:  # fmt: skip
    """Return the digest over the sorted names and digests of a Zarr folder's files.

    Args:
        folders: opens the files.
        path: listing path of the Zarr folder.
        folder, real, beat: as of `store_entry`.

    Raises:
        OSError: as of `store_entry`, or a file cannot be read.
    """
    files = sorted(inner for inner, status in _inside(folder, real, beat) if stat.S_ISREG(status.st_mode))
    return digest_value([[inner, digest_file(folders.file(f"{path}/{inner}"), beat)] for inner in files])


def _inside(folder: str, real: str, beat: Callable[[], object] | None) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path below the folder and status of a Zarr folder and all in it; of a link of what it leads to.

    Notes:
        An entry says nothing of parts that it lacks: what cannot be listed or followed is an error.
    """
    waiting: list[tuple[str, str, tuple[str, ...]]] = [(os.path.realpath(folder), "", ())]
    linked, behind, root = 0, 0, Folder(real)
    while waiting:
        place, path, links = waiting.pop()
        opened = _opened(root, place, path)
        try:
            yield path, os.fstat(opened)
            for entry in _listed(opened, path):
                if beat is not None:
                    beat()
                behind += bool(links)
                if behind > BEHIND:
                    msg = f"links in it lead to more than {BEHIND:,} files"
                    raise OSError(msg)
                here = f"{path}/{entry.name}" if path else entry.name
                goal = at = f"{place}/{entry.name}"
                if entry.is_symlink():
                    goal = _goal(entry, at, here, real, links)
                    linked += entry.is_dir()
                    if linked > LINKED:
                        msg = f"links in it lead to more than {LINKED:,} folders"
                        raise OSError(msg)
                if entry.is_dir():
                    waiting.append((goal, here, links if goal == at else (*links, goal)))
                else:
                    yield here, entry.stat(follow_symlinks=goal != at)
        finally:
            os.close(opened)


def _opened(root: Folder, place: str, path: str) -> int:
    """Return a descriptor of a folder by its place on disk: a link that takes this place now leads nowhere."""
    if path.count("/") > DEPTH:
        msg = f"{path} in it is more than {DEPTH} folders deep"
        raise OSError(msg)
    try:
        return root.listed(os.path.relpath(place, root.real))
    except OSError as error:
        raise _unread(path, error) from error


def _listed(opened: int, path: str) -> Iterator[os.DirEntry[str]]:
    """Yield what lies in a folder; a list of it all would hold 0.7 kB for each file, with its status."""
    try:
        with os.scandir(opened) as scan:
            yield from scan
    except OSError as error:
        raise _unread(path, error) from error


def _unread(path: str, error: OSError) -> OSError:
    return OSError(f"folder {path} in it cannot be read: {reason(error)}" if path else reason(error))


def _goal(entry: os.DirEntry[str], place: str, path: str, real: str, links: tuple[str, ...]) -> str:
    goal, fault = led(entry, place, real, links)
    if fault:
        msg = f"{path} in it is {fault}"
        raise OSError(msg)
    return goal
