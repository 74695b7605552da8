"""The files of a listing in columns: a million of them are arrays and a list of paths, not a million objects."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

Array = np.ndarray[Any, Any]

SETTLED_NS = 2_000_000_000  # a file that changed less than this before it was seen may have changed again since
NOT_WHOLE = ""  # in place of a digest
LARGEST = 2**63 - 1  # what a column holds; some file systems know times before 1677 and after 2262
_PARTLY = "-"  # what a column holds for it
STAMP = 4  # of the five numbers of a file those that say whether it is still the same


class Entry(NamedTuple):
    """One file, or one Zarr folder.

    Args:
        path: POSIX path relative to the root; ``@name/path`` below an extra root.
        size: bytes; of a Zarr folder the sum over its files.
        mtime_ns, ctime_ns: times; of a Zarr folder the newest of everything in it.
        seen_ns: when the walk that found it began.
        digest: xxh3_128 of its bytes, `NOT_WHOLE` where a scan read only a part of it, None until someone has read it.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    seen_ns: int
    digest: str | None = None


def coded(digest: str | None) -> bytes:
    """Return a digest as a column holds it."""
    return (_PARTLY if digest == NOT_WHOLE else digest or "").encode()


class Entries(Sequence[Entry]):
    """Files sorted by the bytes of their paths.

    Shapes:
        paths: list of text (files)
        numbers: int64 (files, 5): size, mtime_ns, ctime_ns, inode, seen_ns
        digests: bytes (files) of 32 hex digits, b"-" where only a part was read, b"" where none is known
    """

    def __init__(self, paths: list[str], numbers: Array, digests: Array) -> None:
        self.paths = paths
        self.numbers = numbers
        self.digests = digests

    @staticmethod
    def of(entries: Iterable[Entry]) -> Entries:
        """Return the columns of some files."""
        if isinstance(entries, Entries):
            return entries
        rows = sorted(entries)
        numbers = np.array([row[1:6] for row in rows], dtype=np.int64).reshape(-1, 5)
        digests = np.array([coded(row.digest) for row in rows], dtype="S32")
        return Entries([row.path for row in rows], numbers, digests)

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        """Return one file, or some of them."""
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        size, mtime, ctime, inode, seen = self.numbers[place].tolist()
        digest = self.digests[place].decode()
        return Entry(
            self.paths[place], size, mtime, ctime, inode, seen, NOT_WHOLE if digest == _PARTLY else digest or None
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[Entry]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def find(self, path: str) -> int:
        """Return the place of a path, -1 where it is not."""
        place = bisect_left(self.paths, path)
        return place if place < len(self.paths) and self.paths[place] == path else -1

    @property
    def sizes(self) -> Array:
        """Bytes of each file, int64."""
        return self.numbers[:, 0]

    def settled(self) -> Array:
        """Return bool (files): seen at least 2 s after its mtime; sooner, a second write could leave the same times."""
        return self.numbers[:, 4] - SETTLED_NS >= self.numbers[:, 1]

    def places_in(self, other: Entries) -> Array:
        """Return where each file is in other entries, int64, -1 where it is not."""
        if self.paths == other.paths:
            return np.arange(len(self), dtype=np.int64)
        places = np.full(len(self), -1, np.int64)
        known = dict(zip(other.paths, range(len(other)), strict=True))
        for place, path in enumerate(self.paths):
            places[place] = known.get(path, -1)
        return places

    def same(self, other: Entries, places: Array) -> Array:
        """Return bool (files): whether size, times and inode are those at `places` of other entries."""
        found = places >= 0
        if len(other):
            found &= (self.numbers[:, :STAMP] == other.numbers[places, :STAMP]).all(axis=1)
        return found

    def take(self, index: Array) -> Entries:
        """Return some of the files, in their order."""
        return Entries([self.paths[i] for i in index.tolist()], self.numbers[index], self.digests[index])


def root_of(roots: Mapping[str, object], path: str) -> tuple[str, str]:
    """Return (name of the extra root, path below it) of a listing's path; the name is "" below the data folder."""
    name, _, rest = path[1:].partition("/") if path.startswith("@") else ("", "", "")
    return (name, rest) if name and name in roots else ("", path)


def locate(root: str | Path, roots: Mapping[str, str | Path], path: str) -> Path:
    """Return where a listing's path is on disk: below the root, or for ``@name/path`` below an extra root."""
    name, inner = root_of(roots, path)
    return Path(roots[name] if name else root, inner)


def real_root(root: str | Path, roots: Mapping[str, str | Path], path: str) -> str:
    """Return the folder, named without links, that no link on a listing's path may leave."""
    name, _ = root_of(roots, path)
    return os.path.realpath(roots[name] if name else root)


class ByPath(Mapping[str, Entry]):
    """Entries by path."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    def __getitem__(self, path: str) -> Entry:
        place = self._entries.find(path)
        if place < 0:
            raise KeyError(path)
        return self._entries[place]

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self._entries.find(path) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries.paths)

    def __len__(self) -> int:
        return len(self._entries)
