"""Find finished caches and unfinished builds below a folder, or finished caches below a URL."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import overload

from datacheck.cache import layout
from datacheck.cache.store import is_url
from datacheck.errors import UsageError

_DEPTH = 3  # root / pipeline / split / key
_KEY = re.compile(r"[0-9a-f]{16}")


def choose_cache(where: str | os.PathLike[str], split: str | None = None) -> Path | str:
    """Return the only finished cache at or below a folder or URL.

    Raises:
        UsageError: there is none (of that split), or there are several, which are listed.
    """
    folder = os.fspath(where) if is_url(where) else Path(where)
    every = list(find_caches(folder))
    found = [path for path in every if split in {None, split_of(path)}]
    if len(found) == 1:
        return found[0]
    wanted = f"{folder}" + (f", split {split!r}" if split is not None else "")
    if found:
        listed = "".join(f"\n    {path}" for path in found)
        msg = f"{wanted}: {len(found)} finished caches. Name one of them, or its split:{listed}"
    elif isinstance(folder, Path) and not folder.exists():
        msg = f"{wanted}: no such folder. Build a cache first: datacheck cache build"
    else:
        others = sorted({split_of(path) for path in every})
        have = f"; there is {', '.join(others)}" if others else ""
        msg = f"{wanted}: no finished cache{have}. Build it first: datacheck cache build"
    raise UsageError(msg)


def split_of(path: Path | str) -> str:
    """Return the split of a cache by its place."""
    return path.split("/")[-2] if isinstance(path, str) else path.resolve().parent.name


@overload
def find_caches(folder: Path, depth: int = ...) -> Iterator[Path]: ...
@overload
def find_caches(folder: Path | str, depth: int = ...) -> Iterator[Path | str]: ...
def find_caches(folder: Path | str, depth: int = _DEPTH) -> Iterator[Path | str]:
    """Yield the finished caches at and below a folder or URL, sorted; names that begin with a dot are left out."""
    if isinstance(folder, str):
        from datacheck.cache.bucket import find_buckets  # noqa: PLC0415  who reads folders need not load it

        yield from find_buckets(folder, depth)
    elif (folder / layout.MANIFEST).is_file():
        yield folder
    elif depth:
        for path in _folders(folder):
            if not path.name.startswith("."):
                yield from find_caches(path, depth - 1)


def find_headless(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield the folders below one that lie and look like a finished cache, and have lost their manifest, sorted."""
    for path in _folders(folder) if depth else ():
        if path.name.startswith(".") or (path / layout.MANIFEST).is_file():
            continue
        if _KEY.fullmatch(path.name) and (path / layout.ZARR).is_file():
            yield path
        else:
            yield from find_headless(path, depth - 1)


def newest_caches(place: Path) -> list[Path]:
    """Return the finished caches directly in a folder, the newest first."""
    return sorted(find_caches(place, 1), key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


def find_builds(folder: Path) -> Iterator[Path]:
    """Yield the unfinished builds below a folder, sorted."""
    yield from _inside(folder, layout.BUILDING, _DEPTH)


def find_trash(folder: Path) -> Iterator[Path]:
    """Yield what was moved aside below a folder, sorted."""
    yield from _inside(folder, layout.TRASH, _DEPTH)


def _inside(folder: Path, name: str, depth: int) -> Iterator[Path]:
    for path in _folders(folder):
        if path.name == name:
            yield from _folders(path)
        elif depth and not path.name.startswith(".") and not (path / layout.MANIFEST).is_file():
            yield from _inside(path, name, depth - 1)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir())
    except OSError:
        return []
