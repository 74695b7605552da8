"""Columnar listing entries, and the folders that contain the files.

A million entries are a few arrays and a list of paths instead of a million objects.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from datacheck import tokenization
from datacheck.runtime.beneath import SMALL_BYTES, ConfinedFolder, File, Stamp, allocated_bytes
from datacheck.runtime.sandbox import Sandbox, wanted

if TYPE_CHECKING:
    # Imported for types only: digest workers need no schema.
    from datacheck.schema.model import Schema


Array = np.ndarray[Any, Any]

MOST_ROOTS = 1_000  # extra folders of one dataset; each is resolved and walked by itself
# A file that changed less than this before it was seen may have changed again since.
SETTLED_NS = 2_000_000_000
NOT_WHOLE = ""  # in place of a digest
LARGEST = 2**63 - 1  # limit of a column; some file systems have times before 1677 and after 2262
_PARTLY = "-"  # column value for `NOT_WHOLE`
# The first four of the five numbers of a file tell whether it is unchanged.
STAMP = 4


class Entry(NamedTuple):
    """One file, or one Zarr folder.

    Args:
        path: POSIX path relative to the root; ``@name/path`` below an extra root.
        size: bytes; for a Zarr folder the sum over its files.
        mtime_ns, ctime_ns: times; for a Zarr folder the newest of its contents.
        seen_ns: start of the walk that found it.
        digest: xxh3_128 of its bytes, `NOT_WHOLE` where a scan read only a part of it, None until
            it is read.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    seen_ns: int
    digest: str | None = None


def encoded_digest(digest: str | None) -> bytes:
    """Return a digest in the form that a column stores."""
    return (_PARTLY if digest == NOT_WHOLE else digest or "").encode()


class Entries(Sequence[Entry]):
    """Files sorted by path.

    Shapes:
        paths: list of text (files)
        numbers: int64 (files, 5): size, mtime_ns, ctime_ns, inode, seen_ns
        digests: bytes (files) of 32 hex digits, b"-" where only a part was read, b"" where unknown
    """

    def __init__(self, paths: list[str], numbers: Array, digests: Array) -> None:
        self.paths = paths
        self.numbers = numbers
        self.digests = digests

    @staticmethod
    def of(entries: Iterable[Entry]) -> Entries:
        """Return these files as columns."""
        if isinstance(entries, Entries):
            return entries
        rows = sorted(entries)
        numbers = np.array([row[1:6] for row in rows], dtype=np.int64).reshape(-1, 5)
        digests = np.array([encoded_digest(row.digest) for row in rows], dtype="S32")
        return Entries([row.path for row in rows], numbers, digests)

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        """Return one file, or a slice of them."""
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        size, mtime, ctime, inode, seen = self.numbers[place].tolist()
        digest = self.digests[place].decode()
        return Entry(
            self.paths[place],
            size,
            mtime,
            ctime,
            inode,
            seen,
            NOT_WHOLE if digest == _PARTLY else digest or None,
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
        """Return the index of a path, -1 if it is absent."""
        place = bisect_left(self.paths, path)
        return place if place < len(self.paths) and self.paths[place] == path else -1

    @property
    def sizes(self) -> Array:
        """Bytes of each file, int64."""
        return self.numbers[:, 0]

    def settled(self) -> Array:
        """Return bool (files): seen at least 2 s after the mtime.

        A second write within that time could leave the same times.
        """
        return self.numbers[:, 4] - SETTLED_NS >= self.numbers[:, 1]

    def places_in(self, other: Entries) -> Array:
        """Return int64 (files): the index of each file in other entries, -1 if absent."""
        if self.paths == other.paths:
            return np.arange(len(self), dtype=np.int64)
        places = np.full(len(self), -1, np.int64)
        path_indexes = dict(zip(other.paths, range(len(other)), strict=True))
        for place, path in enumerate(self.paths):
            places[place] = path_indexes.get(path, -1)
        return places

    def same(self, other: Entries, places: Array) -> Array:
        """Return bool (files): same size, times and inode as at `places` in other entries."""
        is_same = places >= 0
        if len(other):
            is_same &= (self.numbers[:, :STAMP] == other.numbers[places, :STAMP]).all(axis=1)
        return is_same

    def take(self, index: Array) -> Entries:
        """Return the files at `index`, in that order."""
        return Entries(
            [self.paths[i] for i in index.tolist()], self.numbers[index], self.digests[index]
        )


def root_of(roots: Mapping[str, object], path: str) -> tuple[str, str]:
    """Return (extra root, path below it) of a listing path; ("", path) below the data folder."""
    name, _, rest = path[1:].partition("/") if path.startswith("@") else ("", "", "")
    return (name, rest) if name and name in roots else ("", path)


def locate(root: str | Path, roots: Mapping[str, str | Path], path: str) -> Path:
    """Return where a listing path is on disk; ``@name/path`` is below an extra root."""
    name, inner = root_of(roots, path)
    return Path(roots[name] if name else root, inner)


def real_root(root: str | Path, roots: Mapping[str, str | Path], path: str) -> str:
    """Return the resolved folder that no link on a listing path may leave."""
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


HOLE = "\0"  # in a pattern: any text within one level; no file name contains it

_Inode = tuple[int, int]  # device and number
# A path that ends in "/", and the folders listed on the way to it.
_Way = tuple[str, tuple[_Inode, ...]]


class Roots:
    """The data folder and the extra ones; confines every listing path to its folder.

    Args:
        root, roots: the data folder and the extra ones by name.

    Attributes:
        expected: by listing path, the status that a file must have when it is opened; other files
            may have any status.
    """

    def __init__(self, root: str | Path, roots: Mapping[str, str | Path]) -> None:
        self._root, self._roots = root, dict(roots)
        self._folders: dict[str, ConfinedFolder] = {}
        self.expected: dict[str, Stamp] = {}

    def file(self, path: str) -> File:
        """Return the file of a listing path.

        Raises:
            OSError: its folder cannot be opened.
        """
        name, inner = root_of(self._roots, path)
        return File(self._folder(name), inner.rstrip("/"), self.expected.get(path))

    def descriptor(self, path: str) -> int:
        """Return a new descriptor of a listing path; see `File.descriptor`."""
        return self.file(path).descriptor()

    def written(self, path: str) -> int:
        """Return the allocated bytes of a file or Zarr folder; 0 if it cannot be opened."""
        try:
            descriptor = self.descriptor(path)
        except OSError:  # reading the file reports the reason
            return 0
        try:
            return allocated_bytes(descriptor)
        except OSError:
            return 0
        finally:
            os.close(descriptor)

    def budget_bytes(self, entry: Entry) -> int:
        """Return the bytes that justify a memory budget: allocated bytes if the file is large."""
        if entry.size <= SMALL_BYTES:
            return entry.size
        return max(SMALL_BYTES, self.written(entry.path))

    def matching(self, pattern: str, most: int) -> list[str]:
        """Return the listing paths that match a pattern, sorted; hidden names do not match.

        Args:
            pattern: levels separated by "/"; ``HOLE`` stands for any text within one level.
            most: how many links to folders to follow; links that lead out of the folder or form a
                cycle are never followed.
        """
        *upper, last = pattern.split("/")
        paths: list[_Way] = [("", ())]
        for level in upper:
            paths, most = self._below(paths, level, most, folders=True)
        return sorted(
            path.removesuffix("/") for path, _ in self._below(paths, last, most, folders=False)[0]
        )

    def _below(
        self, paths: list[_Way], level: str, link_limit: int, *, folders: bool
    ) -> tuple[list[_Way], int]:
        if HOLE not in level:
            return [(f"{path}{level}/", outer_inodes) for path, outer_inodes in paths], link_limit
        # Takes linear time.
        fits = re.compile(fnmatch.translate(glob.escape(level).replace(HOLE, "*"))).fullmatch
        next_paths: list[_Way] = []
        for path, outer_inodes in paths:
            with suppress(OSError), self._opened(path, outer_inodes) as (entries, inode):
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.name[0] == "." or not fits(entry.name):
                        continue
                    if folders and entry.is_symlink():
                        link_limit -= 1
                        if link_limit < 0:
                            continue
                    next_paths.append((f"{path}{entry.name}/", (*outer_inodes, inode)))
        return next_paths, link_limit

    @contextmanager
    def _opened(
        self, path: str, above: Container[_Inode]
    ) -> Iterator[tuple[Iterable[os.DirEntry[str]], _Inode]]:
        opened = self.descriptor(path or ".")
        try:
            status = os.fstat(opened)
            inode = status.st_dev, status.st_ino
            with os.scandir(opened) as entries:
                yield () if inode in above else entries, inode
        finally:
            os.close(opened)

    def _folder(self, name: str) -> ConfinedFolder:
        if name not in self._folders:
            self._folders[name] = ConfinedFolder(self._roots[name] if name else self._root)
        return self._folders[name]

    def __reduce__(self) -> tuple[type[Roots], tuple[object, ...]]:
        """A copy in another process opens the folders again."""
        return Roots, (self._root, self._roots)


def sandbox_of(
    root: Path,
    roots: Mapping[str, Path],
    schema: Schema | None = None,
    *,
    read: Iterable[str] = (),
    write: Iterable[str] = (),
) -> Sandbox | None:
    """Return the sandbox of a child that reads a dataset.

    None if the user turned sandboxes off, or if the schema has user checks.

    Args:
        root, roots: the data folder and the extra ones by name.
        schema: the schema of the dataset; its tokenizer becomes readable.
        read: further files and folders that may be read.
        write: folders that may be written to.
    """
    # Evaluated here, because a Dask worker may not know the user's setting.
    if not wanted() or (schema is not None and schema.checks):
        return None
    tokenizer = (
        schema.tokenizer.path if schema is not None and schema.tokenizer is not None else None
    )
    places = [
        *map(str, (root, *roots.values())),
        *read,
        *(tokenization.tokenizer_places(tokenizer) if tokenizer is not None else []),
    ]
    return Sandbox(tuple(map(os.path.abspath, places)), tuple(map(os.path.abspath, write)))
