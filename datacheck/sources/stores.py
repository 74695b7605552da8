"""What lies in a Zarr folder: one entry of a listing, with the size, times and digest of all in it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator

from datacheck.digest import digest_file, digest_value
from datacheck.formats.base import store_markers
from datacheck.runtime.beneath import Folder, clamped
from datacheck.runtime.documents import parse_json
from datacheck.sources.entries import Entry
from datacheck.sources.roots import Roots

DEPTH = 64  # folders within one another
CHUNK = re.compile(r"(c|\d+)(\.\d+)*")  # what chunks of Zarr are called
_DOCUMENT, _DOCUMENT_BYTES = "zarr.json", 4 << 20
_PARTS = frozenset({".zattrs", ".zmetadata"})  # files of a Zarr folder that are neither markers nor chunks


def is_part(name: str, *, chunks: bool) -> bool:
    """Tell the name of a file of a Zarr folder from those of files that only lie in it.

    Args:
        name: of the file.
        chunks: as `has_chunks` says of its folder.
    """
    return name in store_markers() or name in _PARTS or (chunks and CHUNK.fullmatch(name) is not None)


def has_chunks(opened: int, of_chunks: bool = False) -> bool:  # noqa: FBT001, FBT002  as it is of the folder above
    """Tell whether files that are called by numbers are chunks in a folder of a Zarr folder: in a group they are not.

    Args:
        opened: descriptor of the folder.
        of_chunks: it is called as folders of chunks are, and lies in one or in an array.

    Notes:
        A document that is damaged or too large may be that of an array: reading the Zarr folder says so.
    """
    if _is_file(".zarray", opened):
        return True
    if _is_file(".zgroup", opened):
        return False
    return not _is_group(opened) if _is_file(_DOCUMENT, opened) else of_chunks


def _is_file(name: str, opened: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=opened, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_group(opened: int) -> bool:
    try:
        document = os.open(_DOCUMENT, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened)
        with os.fdopen(document, "rb") as file:
            said = parse_json(file.read(_DOCUMENT_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and said.get("node_type") == "group"


def reason(error: OSError) -> str:
    """Return why the system refused something, as the end of a sentence."""
    return error.strerror.lower() if error.strerror else str(error)  # what is said here may name a path


def store_entry(
    path: str, folder: str, real: str, seen_ns: int, beat: Callable[[], object] | None = None
) -> Entry:  # fmt: skip
    """Return what a listing says of a Zarr folder; its size is that of its own files, not of others that lie in it.

    Args:
        path: its listing path.
        folder: where it is.
        real: the data folder, named without links.
        seen_ns: when it is looked at.
        beat: called for each name in it.

    Raises:
        OSError: something in it cannot be looked at.
    """
    size, mtime, ctime = 0, 0, 0
    for inner, status, chunks in _inside(folder, real, beat):
        mtime, ctime = max(mtime, status.st_mtime_ns), max(ctime, status.st_ctime_ns)
        if stat.S_ISREG(status.st_mode) and is_part(inner.rpartition("/")[2], chunks=chunks):
            size += status.st_size
    size, mtime, ctime, inode = clamped((size, mtime, ctime, os.stat(folder).st_ino))  # noqa: PTH116
    return Entry(path, size, mtime, ctime, inode, seen_ns)


def store_digest(
    folders: Roots, path: str, folder: str, real: str, beat: Callable[[], object] | None = None, *, links: bool = True
) -> str:  # fmt: skip
    """Return the digest over the sorted names and digests of a Zarr folder's files, and the goals of its links.

    Args:
        folders: opens the files.
        path: listing path of the Zarr folder.
        folder, real, beat: as of `store_entry`.
        links: whether there may be links. No reader follows them, so nothing depends on the files behind them; but a
            digest that vouches for all of the data would not cover those.

    Raises:
        OSError: as of `store_entry`, a file cannot be read, or there is a link where none may be.
    """
    found = sorted((inner, status.st_mode) for inner, status, _ in _inside(folder, real, beat))
    files = [(inner, stat.S_ISLNK(mode)) for inner, mode in found if stat.S_ISREG(mode) or stat.S_ISLNK(mode)]
    linked = next((inner for inner, is_link in files if is_link), None)
    if linked is not None and not links:
        msg = f"{linked} in it is a link, which is not followed in a Zarr folder; copy the file in its place"
        raise OSError(msg)
    return digest_value([
        [inner, {"link": os.fsencode(os.readlink(f"{folder}/{inner}")).hex()}]  # noqa: PTH115  any bytes
        if is_link else [inner, digest_file(folders.file(f"{path}/{inner}"), beat)]
        for inner, is_link in files
    ])  # fmt: skip


def _inside(folder: str, real: str, beat: Callable[[], object] | None) -> Iterator[tuple[str, os.stat_result, bool]]:
    """Yield path below the folder, status, and `has_chunks` of its folder, of a Zarr folder and all in it.

    Notes:
        Links are not followed. An entry says nothing of parts that it lacks: what cannot be listed is an error.
    """
    waiting: list[tuple[str, str, bool]] = [(os.path.realpath(folder), "", False)]
    root = Folder(real)
    while waiting:
        place, path, of_chunks = waiting.pop()
        opened = _opened(root, place, path)
        try:
            chunks = has_chunks(opened, of_chunks)
            yield path, os.fstat(opened), False
            for entry in _listed(opened, path):
                if beat is not None:
                    beat()
                here = f"{path}/{entry.name}" if path else entry.name
                if entry.is_dir(follow_symlinks=False):
                    inner = chunks and CHUNK.fullmatch(entry.name) is not None
                    waiting.append((f"{place}/{entry.name}", here, inner))
                else:
                    yield here, entry.stat(follow_symlinks=False), chunks
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
