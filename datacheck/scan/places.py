"""Where runs lie: ``.datacheck/<run>/``, and ``.datacheck/.work-<dataset>/`` with the parts of an unfinished scan."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck import fsops
from datacheck.digest import digest_value
from datacheck.errors import UsageError, check_name
from datacheck.scan.state import Past, Slot, Slots
from datacheck.scan.store import NAMES, PAGE, PREVIEWS, RESULT
from datacheck.schema.model import Schema
from datacheck.sources.entries import Entries, Entry
from datacheck.sources.listing import Listing
from datacheck.table import Table, concatenate
from datacheck.wire import decode, encode

_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST})
_LOCK = "lock"
_TRIES = 100  # each of which met the end of another scan


@dataclass(frozen=True)
class Place:
    """Where a scan keeps its results and, until it is done, its parts.

    Args:
        base: the folder of all runs.
        slot: name of dataset and schema in it.
        output: the folder that the user chose for the result, or None.
    """

    base: Path
    slot: str
    output: Path | None = None

    @property
    def work(self) -> Path:
        """The folder of an unfinished scan."""
        if self.output is not None:
            return self.output.absolute().with_name(f".{self.output.absolute().name}.work")
        return self.base / f".work-{self.slot}"

    def finished(self) -> list[Path]:
        """Return folders of finished scans of this dataset, newest first."""
        runs = sorted(self.base.glob(f"*-{self.slot}*/{RESULT}"), reverse=True) if self.base.is_dir() else []
        mine = [self.output / RESULT] if self.output is not None and (self.output / RESULT).is_file() else []
        return [path.parent for path in [*mine, *runs]]

    def publish(self, staged: Path, name: str) -> Path:
        """Give a staged run its final name; return its folder.

        Raises:
            StorageError: the file system refuses.
        """
        if self.output is not None:
            self._replace(staged, self.output)
            return self.output
        target = self.base / f"{name}-{self.slot}"
        number = 2
        while target.exists() or not _renamed(staged, target):
            target = self.base / f"{name}-{self.slot}-{number}"
            number += 1
        fsops.point(self.base / "latest", target.name)
        return target

    def _replace(self, staged: Path, target: Path) -> None:
        old = staged.with_name("old")
        while not _renamed(staged, target):
            fsops.remove_tree(old)
            _renamed(target, old, {errno.ENOENT})
        fsops.remove_tree(old)


def _renamed(source: Path, target: Path, other: AbstractSet[int] = _TAKEN) -> bool:
    """Rename a folder; return False where another scan may have been faster: an error of `other`."""
    try:
        fsops.rename(source, target)
    except OSError as error:
        if error.errno in other:
            return False
        raise fsops.refused(error, target) from error
    return True


def place_of(schema: Schema, root: Path, only: str | None, roots: Mapping[str, Path], output: Path | None) -> Place:
    """Return where a scan of this data keeps its results.

    Raises:
        UsageError: `output` holds something that no scan has written, or is the data folder.
    """
    said = [str(root.resolve()), only, {name: str(path.resolve()) for name, path in roots.items()}, schema.name]
    words = re.sub(r"[^A-Za-z0-9_.]+", "-", schema.name).strip("-.") or "schema"
    if output is not None:
        _check_output(output, root)
    return Place(Path.cwd() / ".datacheck", f"{words}-{digest_value(said)[:8]}", output)


def _check_output(output: Path, root: Path) -> None:
    check_name(output)
    if output.is_symlink():
        msg = f"{output}: is a link, and --output replaces what is there. Name the folder itself, or a new one."
        raise UsageError(msg)
    if output.exists() and not output.is_dir():
        msg = f"{output}: is a file. --output names a folder for the results."
        raise UsageError(msg)
    here, data = output.resolve(), root.resolve()
    if data.is_relative_to(here) or here.is_relative_to(data):
        how = "holds the data" if data.is_relative_to(here) else "lies in the data, and the next scan would read it"
        msg = f"{output}: {how}. --output names a folder of its own for the results."
        raise UsageError(msg)
    strange = (
        sorted(p.name for p in output.iterdir() if p.name not in {*NAMES, PAGE, PREVIEWS}) if output.is_dir() else []
    )
    if strange:
        msg = (
            f"{output}: holds {strange[0]!r}, which no scan has written, and --output replaces what is there. "
            f"Name a new folder, or one that an earlier scan made."
        )
        raise UsageError(msg)


# ---------------------------------------------------------------------------------------------- journal


class Journal:
    """The finished parts of a scan under way; a later run of the same command goes on from them."""

    def __init__(self, place: Place, key: str, purpose: str = "") -> None:
        self.folder = place.work.with_name(place.work.name + purpose)
        self._key = key
        self._number = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder for one process; a second scan of the same data works in a folder of its own."""
        fsops.check_writable(self.folder, " to work in (a scan also takes --output DIR)")
        lock = self._locked()
        try:
            yield
        finally:
            os.close(lock)

    def _locked(self) -> int:
        """Lock the folder, or where other processes have it the next that is free; return the open lock."""
        plain, number = self.folder, 1
        for _ in range(_TRIES):
            fsops.make_directory(self.folder)
            with contextlib.suppress(FileNotFoundError):  # a scan that ends removes its folder
                lock = self._open_lock()
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.fstat(lock).st_nlink:  # else it was removed between the two calls
                        return lock
                except BlockingIOError:
                    number += 1
                    self.folder = plain.with_name(f"{plain.name}-{number}")
                except OSError:  # nothing can be locked here
                    os.close(lock)
                    break
                os.close(lock)
        self.folder = plain.with_name(f"{plain.name}-{os.urandom(6).hex()}")
        fsops.make_directory(self.folder)
        return self._open_lock()

    def _open_lock(self) -> int:
        return os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)

    def parts(self, root: Path) -> Past | None:
        """Return what an interrupted scan has done, or None; parts that cannot be read count as not done."""
        entries: dict[str, Entry] = {}
        items: dict[Slot, Sequence[str]] = {}
        tables: list[Table] = []
        undeclared: set[str] = set()
        for path in sorted(self.folder.glob("part-*")):
            with contextlib.suppress(Exception):  # whatever is wrong with it: a damaged part is as good as none
                part = decode(path.read_bytes())
                if part["key"] == self._key:
                    rows = list(map(Table.from_wire, part["tables"]))
                    read = {entry[0]: Entry(*entry) for entry in part["entries"]}
                    done = {(path, split): files for path, split, files in part["items"]}
                    undeclared |= set(part["undeclared"])
                    tables += rows  # nothing can fail any more: rows without their items would come twice
                    entries |= read
                    items |= done
            self._number += 1
        if not items:
            return None
        listing = Listing(root, Entries.of(entries.values()))
        return Past(listing, self._key, Slots.of(items), concatenate(tables), sorted(undeclared))

    def add(self, part: Mapping[str, Any], more: Sequence[Any] = ()) -> None:
        """Keep one finished part: table, items, entries, undeclared; and more tables of the same items."""
        said = {"key": self._key, "tables": [part["table"], *more]}
        said |= {name: part[name] for name in ("items", "entries", "undeclared")}
        data = b"".join(encode(said))  # most of its pieces are a few bytes
        fsops.write_file(self.folder / f"part-{self._number:08d}", data, mode=0o666)
        self._number += 1

    def clear(self) -> None:
        """Forget all parts: the scan is finished."""
        with os.scandir(self.folder) as entries:
            found = [(Path(entry.path), entry.is_dir()) for entry in entries if entry.name != _LOCK]
        for path, folder in found:
            fsops.remove_tree(path) if folder else fsops.remove_file(path)
        fsops.remove_file(self.folder / _LOCK)  # from here on the folder may be another scan's
        fsops.remove_empty(self.folder)
