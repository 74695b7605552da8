"""The folders of a dataset, held open: the one door to the files below them."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from datacheck import tokens
from datacheck.runtime.beneath import File, Folder, Stamp
from datacheck.runtime.sandbox import Sandbox, wanted
from datacheck.runtime.sparse import written_bytes
from datacheck.sources.entries import root_of

if TYPE_CHECKING:
    from datacheck.schema.model import Schema  # a process that only digests files need not load it

HOLE = "\0"  # in a pattern: anything within one level, as no name holds it

_Inode = tuple[int, int]  # device and number
_Way = tuple[str, tuple[_Inode, ...]]  # a path with "/" at its end, and the folders that were listed on the way to it


class Roots:
    """The data folder and the extra ones; a listing's path leads to a file below one of them, never out of it.

    Args:
        root, roots: the data folder and the extra ones by name.

    Attributes:
        expected: what the status of a file must be when it is opened, by listing path; of others it may be anything.
    """

    def __init__(self, root: str | Path, roots: Mapping[str, str | Path]) -> None:
        self._root, self._roots = root, dict(roots)
        self._folders: dict[str, Folder] = {}
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
            return written_bytes(descriptor)
        except OSError:
            return 0
        finally:
            os.close(descriptor)

    def matching(self, pattern: str, most: int) -> list[str]:
        """Return the listing's paths that a pattern fits, sorted; names with a dot in front do not.

        Args:
            pattern: levels with "/" between them; ``HOLE`` stands for anything within one of them.
            most: links to folders that are followed on the way; those that lead out or back to where they are never.
        """
        *upper, last = pattern.split("/")
        paths: list[_Way] = [("", ())]
        for level in upper:
            paths, most = self._below(paths, level, most, folders=True)
        return sorted(path.removesuffix("/") for path, _ in self._below(paths, last, most, folders=False)[0])

    def _below(self, paths: list[_Way], level: str, most: int, *, folders: bool) -> tuple[list[_Way], int]:
        if HOLE not in level:
            return [(f"{path}{level}/", above) for path, above in paths], most
        fits = re.compile(fnmatch.translate(glob.escape(level).replace(HOLE, "*"))).fullmatch  # in linear time
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
    def _opened(self, path: str, above: Container[_Inode]) -> Iterator[tuple[Iterable[os.DirEntry[str]], _Inode]]:
        opened = self.descriptor(path or ".")
        try:
            status = os.fstat(opened)
            here = status.st_dev, status.st_ino
            with os.scandir(opened) as entries:
                yield () if here in above else entries, here
        finally:
            os.close(opened)

    def _folder(self, name: str) -> Folder:
        if name not in self._folders:
            self._folders[name] = Folder(self._roots[name] if name else self._root)
        return self._folders[name]

    def __reduce__(self) -> tuple[type[Roots], tuple[object, ...]]:
        """A copy in another process opens the folders anew."""
        return Roots, (self._root, self._roots)


def sandbox_of(
    root: Path, roots: Mapping[str, Path], schema: Schema | None = None, *, read: Iterable[str] = (),
    write: Iterable[str] = (),
) -> Sandbox | None:  # fmt: skip
    """Return what a child that reads a dataset may reach; None where its user wants no sandbox, or names own functions.

    Args:
        root, roots: the data folder and the extra ones by name.
        schema: the dataset's promise; its tokenizer may be read, too.
        read: more files and folders that may be read.
        write: folders that may be written into.
    """
    if not wanted() or (schema is not None and schema.checks):  # asked here: a Dask worker may not know what is wanted
        return None
    tokenizer = schema.tokenizer.path if schema is not None and schema.tokenizer is not None else None
    places = [
        *map(str, (root, *roots.values())),
        *read,
        *(tokens.tokenizer_places(tokenizer) if tokenizer is not None else []),
    ]
    return Sandbox(tuple(map(os.path.abspath, places)), tuple(map(os.path.abspath, write)))
