"""The folders of a dataset, held open: the one door to the files below them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from datacheck import tokens
from datacheck.runtime.beneath import File, Folder, Stamp
from datacheck.runtime.sandbox import Sandbox, wanted
from datacheck.sources.entries import root_of

if TYPE_CHECKING:
    from datacheck.schema.model import Schema  # a process that only digests files need not load it


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
