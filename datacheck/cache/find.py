"""Find finished caches and unfinished builds below a folder or URL, and open the only cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import overload

from datacheck.cache import layout
from datacheck.cache.manifest import Verify
from datacheck.cache.reader import Cache, Io
from datacheck.cache.shards import ShardCache
from datacheck.cache.store import is_url
from datacheck.errors import ManyLines, StorageError, UsageError, check_name
from datacheck.runtime import fsops

_DEPTH = 3  # root / pipeline / split / key
_KEY = re.compile(r"[0-9a-f]{16}")
_DOCUMENTS = {
    *(layout.MANIFEST, layout.COMMIT, layout.BUILD, layout.SOURCES),
    *(layout.INPUTS, layout.FINDINGS, layout.ZARR),
}
_FOLDERS = ("fields/", "rows/", "present/", "samples/", "digests/")


def open_cache(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    verify: Verify = "touch",
    io: Io = "auto",
    shards_in: str | os.PathLike[str] | None = None,
    shards_bytes: float | None = None,
) -> Cache:
    """Open a finished cache for reading.

    Args:
        path: the cache, or a folder above it that holds no other finished cache (of that split); or
            the URL of either.
        split: the split; needed if the folder holds several.
        verify: "manifest" checks names and sizes; "touch" also each inner chunk the first time it
            is read; "always" each time; "full" everything now, then as "touch".
        io: "mmap", "pread", or "auto", which maps on local file systems only.
        shards_in: for a URL: the local folder in which to keep whole shards; None: the environment
            variable DATACHECK_SHARDS_IN, else nowhere.
        shards_bytes: the limit of that folder [bytes]; None: the environment variable
            DATACHECK_SHARDS_BYTES, else 64 GiB.

    Raises:
        UsageError: there is no such cache, or more than one; an option is unknown.
        StorageError: a disk or server refuses.
        CorruptionError: the cache is damaged.
    """
    shards = ShardCache.from_options(shards_in, shards_bytes) if is_url(path) else None
    return Cache(choose_cache(path, split), verify=verify, io=io, shards=shards)


def choose_cache(where: str | os.PathLike[str], split: str | None = None) -> Path | str:
    """Return the only finished cache at or below a folder or URL.

    Raises:
        UsageError: there is none (of that split), or there are several, which are listed.
        StorageError: none is found, and some folders cannot be listed.
    """
    folder = os.fspath(where) if is_url(where) else Path(where)
    unlisted: list[StorageError] = []
    caches = list(find_caches(folder, unlisted=unlisted))
    matching = [path for path in caches if split in {None, split_of(path)}]
    if len(matching) == 1:
        return matching[0]
    if unlisted and not matching:
        raise unlisted[0]
    request = f"{folder}" + (f", split {split!r}" if split is not None else "")
    if matching:
        msg = f"{request}: {len(matching)} finished caches. Name one of them, or its split:"
        raise UsageError(ManyLines.of([msg, *(f"    {path}" for path in matching)]))
    link = next(find_links(folder), None) if isinstance(folder, Path) else None
    if isinstance(folder, Path) and not folder.exists():
        msg = f"{request}: no such folder. Build a cache first: datacheck cache build"
    elif link is not None:
        msg = (
            f"{request}: no finished cache; {link} is a link, which is not followed. Name what "
            f"it leads to."
        )
    else:
        splits = sorted({split_of(path) for path in caches})
        hint = f"; there is {', '.join(splits)}" if splits else ""
        msg = f"{request}: no finished cache{hint}. Build it first: datacheck cache build"
    raise UsageError(msg)


def split_of(path: Path | str) -> str:
    """Return the split of a cache, the name of its parent folder."""
    return path.split("/")[-2] if isinstance(path, str) else path.resolve().parent.name


@overload
def find_caches(
    folder: Path, depth: int = ..., unlisted: list[StorageError] | None = ...
) -> Iterator[Path]: ...
@overload
def find_caches(
    folder: Path | str, depth: int = ..., unlisted: list[StorageError] | None = ...
) -> Iterator[Path | str]: ...
def find_caches(
    folder: Path | str, depth: int = _DEPTH, unlisted: list[StorageError] | None = None
) -> Iterator[Path | str]:
    """Yield the finished caches at and below a folder or URL, sorted; skips dot names.

    Args:
        folder: the folder, which may be a link, or the URL. Links below it are not followed: see
            `find_links`.
        depth: how many levels to search.
        unlisted: receives the errors of folders that cannot be listed; pass it if you need all
            caches.
    """
    if isinstance(folder, str):
        from datacheck.cache.bucket import find_buckets  # noqa: PLC0415  not needed for folders

        yield from find_buckets(folder, depth)
        return
    check_name(folder)
    try:
        finished = (folder / layout.MANIFEST).is_file()
        subfolders = [] if finished or not depth else _list_folders(folder)
    except OSError as error:
        if unlisted is not None:
            unlisted.append(fsops.as_storage_error(error, folder))
        return
    if finished:
        yield folder
    for path in subfolders:
        if not path.name.startswith("."):
            yield from find_caches(path, depth - 1, unlisted)


def is_cache_file(path: str) -> bool:
    """Return whether a path in the folder of a cache has a name that a build writes."""
    name = path.rpartition("/")[2]
    return path in _DOCUMENTS or (
        path.startswith(_FOLDERS) and (name == layout.ZARR or layout.shard_of(path) is not None)
    )


def find_without_manifest(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield folders with the place and look of a finished cache that lost their manifest."""
    if _has(folder, layout.MANIFEST):
        return
    if _KEY.fullmatch(folder.name) and _has(folder, layout.ZARR):
        yield folder
        return
    for path in _folders(folder) if depth else ():
        if not path.name.startswith("."):
            yield from find_without_manifest(path, depth - 1)


def newest_caches(place: Path) -> list[Path]:
    """Return the finished caches directly in a folder, newest first."""
    return newest_first(find_caches(place, 1))


def neighbouring_caches(cache: Path | str) -> tuple[list[Path | str], list[Path | str]]:
    """Return the other finished caches in a cache's folder: those built before it, and those after.

    Each list is sorted newest first.

    Args:
        cache: the folder or URL of a finished cache.

    Raises:
        StorageError: a server refuses.
    """
    caches: list[Path | str]
    if isinstance(cache, str):
        from datacheck.cache.bucket import newest_buckets  # noqa: PLC0415  not needed for folders

        caches = [*newest_buckets(cache.rpartition("/")[0])]
    else:
        cache = cache.resolve()
        caches = [*newest_caches(cache.parent)]
    position = caches.index(cache) if cache in caches else len(caches)
    return caches[position + 1 :], caches[:position]


def newest_first(folders: Iterable[Path]) -> list[Path]:
    """Return folders, newest first, without those that no longer exist."""
    times = []
    for path in folders:
        with suppress(OSError):
            times.append((path.stat().st_mtime_ns, path.name, path))
    return [path for *_, path in sorted(times, reverse=True)]


def find_builds(folder: Path) -> Iterator[Path]:
    """Yield the unfinished builds below a folder, sorted."""
    yield from _inside(folder, layout.BUILDING, _DEPTH)


def unfinished_builds(where: Path | str) -> list[str]:
    """Return the unfinished builds at or below a folder or URL, sorted.

    Raises:
        StorageError: a server refuses.
    """
    if isinstance(where, str):
        from datacheck.cache.bucket import find_attempts  # noqa: PLC0415  not needed for folders

        return list(find_attempts(where))
    own = [str(where)] if where.is_dir() and where.resolve().parent.name == layout.BUILDING else []
    return own or [str(path) for path in find_builds(where)]


def find_links(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield the links to folders below a folder, sorted; caches behind links are not searched."""
    if not depth or _has(folder, layout.MANIFEST):
        return
    with suppress(OSError), os.scandir(folder) as entries:
        linked = [
            e.name
            for e in entries
            if e.is_symlink() and not e.name.startswith(".") and _leads_to_folder(e)
        ]
        yield from (folder / name for name in sorted(linked))
    for path in _folders(folder):
        if not path.name.startswith("."):
            yield from find_links(path, depth - 1)


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a cycle of links
        return False


def find_trash(folder: Path) -> Iterator[Path]:
    """Yield the folders in the trash below a folder, sorted."""
    yield from _inside(folder, layout.TRASH, _DEPTH)


def _inside(folder: Path, name: str, depth: int) -> Iterator[Path]:
    for path in _folders(folder):
        if path.name == name:
            yield from _folders(path)
        elif depth and not path.name.startswith(".") and not _has(path, layout.MANIFEST):
            yield from _inside(path, name, depth - 1)


def _has(folder: Path, name: str) -> bool:
    """Return whether a folder has a file of this name; False if that cannot be determined."""
    with suppress(OSError):
        return (folder / name).is_file()
    return False


def _folders(folder: Path) -> list[Path]:
    try:
        return _list_folders(folder)
    except OSError:
        return []


def _list_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted, without links: a link could lead anywhere."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                folder / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
