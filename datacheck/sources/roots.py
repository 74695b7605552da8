"""The files of a listing in columns: a million of them are arrays and a list of paths, not a million objects."""

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
from datacheck.runtime.beneath import ConfinedFolder, File, Stamp, allocated_bytes
from datacheck.runtime.sandbox import Sandbox, wanted

if TYPE_CHECKING:
    from datacheck.schema.model import Schema  # a process that only digests files need not load it


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
        digest: xxh3_128 of its bytes, `NOT_WHOLE` where a scan read only a part of it, None until
            someone has read it.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    seen_ns: int
    digest: str | None = None


def encoded_digest(digest: str | None) -> bytes:
    """Return a digest as a column holds it."""
    return (_PARTLY if digest == NOT_WHOLE else digest or "").encode()


class Entries(Sequence[Entry]):
    """Files sorted by the bytes of their paths.

    Shapes:
        paths: list of text (files)
        numbers: int64 (files, 5): size, mtime_ns, ctime_ns, inode, seen_ns
        digests: bytes (files) of 32 hex digits, b"-" where only a part was read, b"" where none is
            known
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
        digests = np.array([encoded_digest(row.digest) for row in rows], dtype="S32")
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
        return Entries(
            [self.paths[i] for i in index.tolist()], self.numbers[index], self.digests[index]
        )


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


HOLE = "\0"  # in a pattern: anything within one level, as no name holds it

_Inode = tuple[int, int]  # device and number
_Way = tuple[
    str, tuple[_Inode, ...]
]  # a path with "/" at its end, and the folders that were listed on the way to it


class Roots:
    """The data folder and the extra ones; a listing's path leads to a file below one of them, never out of it.

    Args:
        root, roots: the data folder and the extra ones by name.

    Attributes:
        expected: what the status of a file must be when it is opened, by listing path; of others it
            may be anything.
    """

    def __init__(self, root: str | Path, roots: Mapping[str, str | Path]) -> None:
        self._root, self._roots = root, dict(roots)
        self._folders: dict[str, ConfinedFolder] = {}
        self.expected: dict[str, Stamp] = {}

    def file(self, path: str) -> File:
        """Return the file of a listing's path.

        Raises:
            OSError: the folder that it should be in cannot be opened.
        """
        name, inner = root_of(self._roots, path)
        return File(self._folder(name), inner.rstrip("/"), self.expected.get(path))

    def descriptor(self, path: str) -> int:
        """Return a new descriptor of a listing's path; see `File.descriptor`."""
        return self.file(path).descriptor()

    def written(self, path: str) -> int:
        """Return the bytes of a file or Zarr folder that are no holes, 0 where it cannot be opened."""
        try:
            descriptor = self.descriptor(path)
        except OSError:  # whoever reads it says why
            return 0
        try:
            return allocated_bytes(descriptor)
        except OSError:
            return 0
        finally:
            os.close(descriptor)

    def matching(self, pattern: str, most: int) -> list[str]:
        """Return the listing's paths that a pattern fits, sorted; names with a dot in front do not.

        Args:
            pattern: levels with "/" between them; ``HOLE`` stands for anything within one of them.
            most: links to folders that are followed on the way; those that lead out or back to
                where they are never.
        """
        *upper, last = pattern.split("/")
        paths: list[_Way] = [("", ())]
        for level in upper:
            paths, most = self._below(paths, level, most, folders=True)
        return sorted(
            path.removesuffix("/") for path, _ in self._below(paths, last, most, folders=False)[0]
        )

    def _below(
        self, paths: list[_Way], level: str, most: int, *, folders: bool
    ) -> tuple[list[_Way], int]:
        if HOLE not in level:
            return [(f"{path}{level}/", above) for path, above in paths], most
        fits = re.compile(
            fnmatch.translate(glob.escape(level).replace(HOLE, "*"))
        ).fullmatch  # in linear time
        found: list[_Way] = []
        for path, above in paths:
            with suppress(OSError), self._opened(path, above) as (entries, here):
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.name[0] == "." or not fits(entry.name):
                        continue
                    if folders and entry.is_symlink():
                        most -= 1
                        if most < 0:
                            continue
                    found.append((f"{path}{entry.name}/", (*above, here)))
        return found, most

    @contextmanager
    def _opened(
        self, path: str, above: Container[_Inode]
    ) -> Iterator[tuple[Iterable[os.DirEntry[str]], _Inode]]:
        opened = self.descriptor(path or ".")
        try:
            status = os.fstat(opened)
            here = status.st_dev, status.st_ino
            with os.scandir(opened) as entries:
                yield () if here in above else entries, here
        finally:
            os.close(opened)

    def _folder(self, name: str) -> ConfinedFolder:
        if name not in self._folders:
            self._folders[name] = ConfinedFolder(self._roots[name] if name else self._root)
        return self._folders[name]

    def __reduce__(self) -> tuple[type[Roots], tuple[object, ...]]:
        """A copy in another process opens the folders anew."""
        return Roots, (self._root, self._roots)


def sandbox_of(
    root: Path,
    roots: Mapping[str, Path],
    schema: Schema | None = None,
    *,
    read: Iterable[str] = (),
    write: Iterable[str] = (),
) -> Sandbox | None:
    """Return what a child that reads a dataset may reach; None where its user wants no sandbox, or names own functions.

    Args:
        root, roots: the data folder and the extra ones by name.
        schema: the dataset's promise; its tokenizer may be read, too.
        read: more files and folders that may be read.
        write: folders that may be written into.
    """
    if not wanted() or (
        schema is not None and schema.checks
    ):  # asked here: a Dask worker may not know what is wanted
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
