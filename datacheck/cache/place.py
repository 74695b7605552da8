"""Where a cache lies: its files, how they are read, and what is raised where they are not what was written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NoReturn

from datacheck.cache.manifest import read_manifest
from datacheck.cache.problem import REPAIR, evicted, shortened
from datacheck.cache.store import Store
from datacheck.digest import digest_bytes
from datacheck.errors import CorruptionError, DatacheckError

Verify = Literal["manifest", "touch", "always", "full"]
Files = Mapping[str, tuple[int, str]]


@dataclass(frozen=True)
class Place:
    """Where a cache lies and how it is read.

    Args:
        store: the files of the cache.
        files: size and digest of each file, from the manifest.
        mapped: whether to map (else positioned reads).
        verify: which chunks to check: "manifest" none, "touch" each once, "always" each time.
    """

    store: Store
    files: Files
    mapped: bool
    verify: Verify

    @classmethod
    def of_files(cls, store: Store) -> Place:
        """Return a place whose files are read whole.

        Raises:
            UsageError, CorruptionError: there is no manifest that this version reads.
        """
        return cls(store, read_manifest(store).files, mapped=False, verify="manifest")

    @cached_property
    def size(self) -> int:
        """How many bytes the cache has, its manifest left out."""
        return sum(size for size, _ in self.files.values())

    def check_sizes(self) -> None:
        """Fail where a file is not there, or of another size than the manifest says."""
        for name, (size, _) in self.files.items():
            found = self.store.size(name)
            if found is None:
                self.fail(f"{name}: missing")
            if found != size:
                what = f"{found:,} bytes, the manifest says {size:,}"
                self.fail(f"{name}: {what if found >= 0 else 'no plain file'}")

    def fail(self, what: str) -> NoReturn:
        """Raise the exception for damage: the cache, what was found, what to do."""
        raise self._damage(what)

    def _damage(self, what: str) -> DatacheckError:
        if self.store.folder is not None and not self.store.folder.exists():
            return evicted(self.store.folder)
        return CorruptionError(f"{self.store.where}: {what}. {REPAIR}")

    @contextlib.contextmanager
    def sound(self, path: str) -> Iterator[None]:
        """Fail where what a file of the cache says is not what such a file may say, though it is whole."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            damage = self._damage(f"{path}: not what a cache of this format holds there ({shortened(error)})")
            raise damage from None  # its text holds a name from the cache: see `DatacheckError`

    def read(self, path: str, most: int | None = None) -> bytes:
        """Return a whole file, checked against the manifest.

        Args:
            path: the file.
            most: the most bytes that it may have; see `Store.read`.

        Raises:
            CorruptionError: it is not there, larger, or its bytes are others.
            StorageError: the operating system refuses.
        """
        try:
            raw = self.store.read(path, most)
        except FileNotFoundError:
            self.fail(f"{path}: missing")
        found = digest_bytes(raw)
        if path not in self.files or found != self.files[path][1]:
            expected = self.files[path][1] if path in self.files else "no such file"
            self.fail(f"{path}: expected xxh3_128 {expected}, found {found}")
        return raw
