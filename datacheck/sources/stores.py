"""What lies in a Zarr folder: one entry of a listing, with the size, times and digest of all in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator

from datacheck.digest import digest_file, digest_value
from datacheck.runtime.beneath import clamped
from datacheck.sources.entries import Entry
from datacheck.sources.roots import Roots

DEPTH = 64  # folders within one another
LINKED = 10_000  # folders that may be reached by links: a few that link to one another have millions of paths


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
    for _, _, status in _inside(folder, real, beat):
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
    files = sorted(inner for inner, _, status in _inside(folder, real, beat) if stat.S_ISREG(status.st_mode))
    return digest_value([[inner, digest_file(folders.file(f"{path}/{inner}"), beat)] for inner in files])


def _inside(folder: str, real: str, beat: Callable[[], object] | None) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield path below the folder, place on disk and status of a Zarr folder and all in it; of a link what it leads to.

    Notes:
        An entry says nothing of parts that it lacks: what cannot be listed or followed is an error.
    """
    waiting: list[tuple[str, str, tuple[str, ...]]] = [(os.path.realpath(folder), "", ())]
    linked = 0
    while waiting:
        place, path, links = waiting.pop()
        found = _listed(place, path)
        yield path, place, os.stat(place)  # noqa: PTH116  a store may hold a million chunks
        for entry in found:
            if beat is not None:
                beat()
            here = f"{path}/{entry.name}" if path else entry.name
            if entry.is_symlink():
                goal = _goal(entry, here, real, links)
                linked += entry.is_dir()
                if linked > LINKED:
                    msg = f"links in it lead to more than {LINKED:,} folders"
                    raise OSError(msg)
            else:
                goal = entry.path
            if entry.is_dir():
                waiting.append((goal, here, links if goal == entry.path else (*links, goal)))
            else:
                yield here, entry.path, entry.stat()


def _listed(place: str, path: str) -> list[os.DirEntry[str]]:
    if path.count("/") > DEPTH:
        msg = f"{path} in it is more than {DEPTH} folders deep"
        raise OSError(msg)
    try:
        with os.scandir(place) as scan:
            return list(scan)
    except OSError as error:
        msg = f"folder {path} in it cannot be read: {reason(error)}" if path else reason(error)
        raise OSError(msg) from error


def _goal(entry: os.DirEntry[str], path: str, real: str, links: tuple[str, ...]) -> str:
    goal, fault = led(entry, entry.path, real, links)
    if fault:
        msg = f"{path} in it is {fault}"
        raise OSError(msg)
    return goal
