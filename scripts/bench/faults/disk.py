"""What a disk may hold after a power loss: a `System` that writes down what is done to files, and what was synced."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from subject import KilledError

from datacheck.runtime.fsops import System

Names = dict[int, dict[str, int]]  # folder: name: inode

# --------------------------------------------------------------------------------- what a build did


@dataclass
class Log:
    """What was done to the files below a folder, in order.

    Args:
        names, content, modes: what there was before, all of it on the disk.
        steps: ("names", [(folder, name, inode or None), ...]), ("write", inode, offset, bytes),
            ("size", inode, bytes), ("mode", inode, mode), ("sync", inode), ("returned",).
    """

    names: Names = field(default_factory=lambda: {0: {}})
    content: dict[int, bytes] = field(default_factory=dict)
    modes: dict[int, int] = field(default_factory=dict)
    steps: list[tuple[Any, ...]] = field(default_factory=list)


class Recorder(System):
    """Does what it is told, and writes it down.

    Args:
        top: the folder that survives; all is recorded below it.
        log: what was recorded before, of the same folder.
        without: a kind of sync (`kind`) that the disk does not take.
        dies: at which change the process is gone; 0: at none.
    """

    def __init__(self, top: Path, without: str = "", place: Path | None = None) -> None:
        self.top, self.without, self.place = top, without, place or top
        self.log, self.kinds = Log(), set()
        self._ids, self._paths, self._next, self._dies = {top.stat().st_ino: 0}, {}, 1, 0
        self._known(top, 0)

    def _known(self, folder: Path, number: int) -> None:
        """Take what is there for durable."""
        for path in sorted(folder.iterdir()):
            one = self._new(path.lstat())
            self.log.names[number][path.name] = one
            if path.is_dir():
                self._known(path, one)
            else:
                self.log.content[one] = path.read_bytes()

    def _new(self, status: os.stat_result) -> int:
        number, self._next = self._next, self._next + 1
        self._ids[status.st_ino] = number
        self.log.modes[number] = stat.S_IMODE(status.st_mode)
        if stat.S_ISDIR(status.st_mode):
            self.log.names.setdefault(number, {})
        return number

    def dies(self, at: int) -> None:
        """Let the process be gone at its `at`-th change from now; 0: let it live."""
        self._dies = at

    def _change(self) -> None:
        if self._dies == 1:
            raise KilledError
        self._dies = max(0, self._dies - 1)

    def _at(self, path: Path) -> tuple[int, str]:
        return self._ids[path.parent.stat().st_ino], path.name

    def _of(self, descriptor: int) -> int:
        return self._ids[os.fstat(descriptor).st_ino]

    def _named(self, *changes: tuple[Path, int | None]) -> None:
        self.log.steps.append(("names", [(*self._at(path), number) for path, number in changes]))

    def create(self, path: Path, mode: int, folder: int | None = None) -> int:
        self._change()
        descriptor = super().create(path, mode, folder)
        self._paths[descriptor] = path
        self._named((path, self._new(os.fstat(descriptor))))
        return descriptor

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        self._paths[descriptor] = path
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        return self.write_at(descriptor, data, os.lseek(descriptor, 0, os.SEEK_CUR), super().write)

    def write_at(
        self, descriptor: int, data: memoryview, offset: int, how: Callable[..., int] | None = None
    ) -> int:
        self._change()
        taken = how(descriptor, data) if how else super().write_at(descriptor, data, offset)
        self.log.steps.append(("write", self._of(descriptor), offset, bytes(data[:taken])))
        return taken

    def truncate(self, descriptor: int, size: int) -> None:
        self._change()
        super().truncate(descriptor, size)
        self.log.steps.append(("size", self._of(descriptor), size))

    def sync(self, descriptor: int) -> None:
        self._change()
        said = kind(self._paths[descriptor], self.place)
        self.kinds.add(said)
        if said != self.without and os.fstat(descriptor).st_ino in self._ids:  # not above the top
            self.log.steps.append(("sync", self._of(descriptor)))

    def rename(
        self, source: Path, target: Path, folder: int | None = None, to: int | None = None
    ) -> None:
        self._change()
        number = self._ids[source.lstat().st_ino]
        super().rename(source, target, folder, to)
        self._named((source, None), (target, number))

    def exchange(
        self, one: Path, other: Path, folder: int | None = None, to: int | None = None
    ) -> None:
        self._change()
        numbers = [self._ids[path.lstat().st_ino] for path in (one, other)]
        super().exchange(one, other, folder, to)
        self._named((one, numbers[1]), (other, numbers[0]))

    def link(self, source: Path, target: Path, folder: int | None = None) -> None:
        self._change()
        super().link(source, target, folder)
        self._named((target, self._ids[source.lstat().st_ino]))

    def unlink(self, path: Path, folder: int | None = None) -> None:
        self._change()
        super().unlink(path, folder)
        self._named((path, None))

    def mkdir(self, path: Path, mode: int = 0o777, folder: int | None = None) -> None:
        self._change()
        super().mkdir(path, mode, folder)
        self._named((path, self._new(path.stat())))

    def rmdir(self, path: Path, folder: int | None = None) -> None:
        self._change()
        super().rmdir(path, folder)
        self._named((path, None))

    def chmod(self, path: Path, mode: int, descriptor: int) -> None:
        self._change()
        super().chmod(path, mode, descriptor)
        self.log.steps.append(("mode", self._ids[path.stat().st_ino], mode))


KINDS = {  # what must be missed where the sync is taken out; of the last one nothing is lost where a rename is one step
    "bytes of shards": True,
    "bytes of tables and indices": True,
    "names in the cache": True,
    "bytes of the manifest": True,
    "name of the manifest": True,
    "name of the cache": True,
    "names of folders above": True,
    "names where it came from": False,
}


def kind(path: Path, place: Path) -> str:
    """Return which of the syncs of a build one is.

    Args:
        path: what is synced.
        place: where the cache goes.
    """
    if path.is_dir():
        if path in place.parents:
            return "names of folders above"
        if path == place:
            return "name of the cache"
        if path.name == "whole" and (path / "manifest.json").exists():
            return "name of the manifest"
        return "names in the cache" if "whole" in path.parts else "names where it came from"
    if path.name.startswith(".manifest.json."):
        return "bytes of the manifest"
    return "bytes of shards" if path.name.startswith(".c.") else "bytes of tables and indices"


# ----------------------------------------------------------------------------- what a disk may hold


class Disk:
    """What is on its way to the disk, and what has come there, while a log is done step by step."""

    def __init__(self, log: Log) -> None:
        self.log, self.returned = log, False
        self.changes: list[list[tuple[int, str, int | None]]] = []
        self.pending: dict[int, None] = {}  # changes of names that no sync has made durable
        self.synced: dict[int, bytes] = dict(log.content)
        self.unsynced: dict[int, list[tuple[Any, ...]]] = {}
        self.modes: dict[int, list[int]] = {}

    def do(self, step: tuple[Any, ...]) -> None:
        """Do one step."""
        what, *more = step
        if what == "names":
            self.pending[len(self.changes)] = None
            self.changes.append(more[0])
        elif what in {"write", "size"}:
            self.unsynced.setdefault(more[0], []).append((what, *more[1:]))
        elif what == "mode":
            self.modes.setdefault(more[0], []).append(more[1])
        elif what == "returned":
            self.returned = True
        else:
            self._sync(more[0])

    def _sync(self, number: int) -> None:
        for one in [i for i in self.pending if leads(self.changes[i]) == number]:
            del self.pending[one]
        if number in self.unsynced:
            self.synced[number] = filled(self.synced.get(number, b""), self.unsynced.pop(number))
        if number in self.modes:
            self.log.modes[number] = self.modes.pop(number)[-1]

    def after(self, names: float, content: float, rng: random.Random) -> Tree:
        """Return what a power loss leaves: with these shares of the names and of the writes that were not synced."""
        lost = {i for i in self.pending if rng.random() >= names}
        found = {folder: dict(some) for folder, some in self.log.names.items()}
        for i, change in enumerate(self.changes):
            if i in lost:
                continue
            for folder, name, number in change:
                if number is None:
                    found[folder].pop(name, None)
                else:
                    found[folder][name] = number
        data = dict(self.synced)
        for number, writes in self.unsynced.items():
            data[number] = filled(self.synced.get(number, b""), some_of(writes, content, rng))
        modes = {n: some[-1] for n, some in self.modes.items() if rng.random() < names}
        return Tree(found, data, self.log.modes | modes)


def leads(change: list[tuple[int, str, int | None]]) -> int:
    """Return the folder by whose sync a change becomes durable: of a rename the one that it leads into."""
    return next((folder for folder, _, number in change if number is not None), change[0][0])


def filled(content: bytes, writes: Sequence[tuple[Any, ...]]) -> bytes:
    """Return content with writes done to it."""
    made = bytearray(content)
    for what, at, *data in writes:
        if what == "size":
            del made[at:]
            continue
        made.extend(bytes(max(0, at - len(made))))
        made[at : at + len(data[0])] = data[0]
    return bytes(made)


def some_of(
    writes: Sequence[tuple[Any, ...]], share: float, rng: random.Random
) -> list[tuple[Any, ...]]:
    """Return what of writes came to the disk: each whole, cut off, as zeros, or not at all."""
    came = []
    for write_ in writes:
        if rng.random() < share:
            came.append(write_)
        elif share and write_[0] == "write" and (how := rng.randrange(3)):
            _, at, data = write_
            cut = data[: rng.randrange(len(data))] if data else b""
            came.append(("write", at, cut if how == 1 else bytes(len(data))))
    return came


@dataclass
class Tree:
    """What a disk holds."""

    names: Names
    content: dict[int, bytes]
    modes: dict[int, int]

    def folder(self, path: Path) -> int | None:
        """Return the inode of a folder below the top, or None."""
        number = 0
        for part in path.parts:
            found = self.names.get(number, {}).get(part)
            if found is None:
                return None
            number = found
        return number

    def below(self, number: int, base: str = "") -> Iterator[tuple[str, int]]:
        """Yield path and inode of everything below a folder, folders first."""
        for name, one in self.names[number].items():
            yield base + name, one
            if one in self.names:
                yield from self.below(one, f"{base}{name}/")

    def contents(self, number: int) -> dict[str, bytes | None]:
        """Return what `subject.contents` would."""
        return {
            path: None if one in self.names else self.content.get(one, b"")
            for path, one in self.below(number)
        }

    def digest(self) -> bytes:
        """Return what tells two trees apart."""
        found = hashlib.blake2b(digest_size=16)
        for path, one in sorted(self.below(0)):
            content = None if one in self.names else self.content.get(one, b"")
            found.update(repr((path, content, self.modes[one] & 0o200)).encode())
        return found.digest()

    def laid_out(self, top: Path) -> None:
        """Write it as files."""
        for path, one in self.below(0):
            if one in self.names:
                (top / path).mkdir()
            else:
                (top / path).write_bytes(self.content.get(one, b""))
                (top / path).chmod(self.modes[one])
