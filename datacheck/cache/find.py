"""Find finished caches and unfinished builds below a folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from datacheck.cache import layout
from datacheck.errors import UsageError

_DEPTH = 3  # root / pipeline / split / key


def choose_cache(folder: Path, split: str | None = None) -> Path:
    """Return the only finished cache at or below a folder.

    Raises:
        UsageError: there is none (of that split), or there are several, which are listed.
    """
    found = list(find_caches(folder))
    if split is not None:
        found = [f for f in found if f.resolve().parent.name == split]
    if len(found) == 1:
        return found[0]
    wanted = f"{folder}" + (f", split {split!r}" if split is not None else "")
    if found:
        listed = "".join(f"\n    {path}" for path in found)
        msg = f"{wanted}: {len(found)} finished caches. Name one of them, or its split:{listed}"
    elif not folder.exists():
        msg = f"{wanted}: no such folder. Build a cache first: datacheck cache build"
    else:
        others = sorted({f.resolve().parent.name for f in find_caches(folder)})
        have = f"; there is {', '.join(others)}" if others else ""
        msg = f"{wanted}: no finished cache{have}. Build it first: datacheck cache build"
    raise UsageError(msg)


def find_caches(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield the finished caches at and below a folder, sorted; folders whose name begins with a dot are left out."""
    if (folder / layout.MANIFEST).is_file():
        yield folder
    elif depth:
        for path in _folders(folder):
            if not path.name.startswith("."):
                yield from find_caches(path, depth - 1)


def newest_caches(place: Path) -> list[Path]:
    """Return the finished caches directly in a folder, the newest first."""
    return sorted(find_caches(place, 1), key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


def find_builds(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Yield the unfinished builds below a folder, sorted."""
    for path in _folders(folder):
        if path.name == layout.BUILDING:
            yield from _folders(path)
        elif depth and not (path / layout.MANIFEST).is_file():
            yield from find_builds(path, depth - 1)


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir())
    except OSError:
        return []
