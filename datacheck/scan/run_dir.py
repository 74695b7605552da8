"""Folders of runs: ``.datacheck/<run>/``, and working folders with the parts of unfinished scans.

A working folder (``.work-<dataset>.<random>/``, next to the runs) belongs to one user and has an
unpredictable name; its file `lock` marks it as datacheck's. It is found, locked, written and
emptied by descriptor, so anything put in its place, such as a link, is not touched.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from datacheck.errors import StorageError, UsageError, check_name
from datacheck.model.table import Slot, Table
from datacheck.runtime import beneath, folders, fsops
from datacheck.runtime.documents import check_values
from datacheck.runtime.hashing import digest_value
from datacheck.scan import run_documents
from datacheck.scan.run_documents import NAMES, PAGE, PREVIEWS, RESULT
from datacheck.schema.model import Schema
from datacheck.sources.roots import Entry
from datacheck.workers.wire import FRAME, check, decode, encode, int64, text

_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_LOCK = "lock"
_MARK = b"datacheck: the parts of an unfinished scan\n"
# of one part, and of all parts
PART_BYTES = 256 << 20
PARTS_BYTES = 1 << 30
_PART = {  # the form of a part without its tables
    "items": [(text, text, [text])],
    "entries": [(text, *[int64] * 5, str | None)],
    "undeclared": [text],
}
_TRIES = 100  # a try fails where another scan has just ended
_RESULT_BYTES = 16 << 20


@dataclass(frozen=True)
class RunLocation:
    """The place of a scan's results and, until it is done, of its parts.

    Args:
        base: the folder of all runs.
        slot: name of dataset and schema in it.
        output: the folder that the user chose for the result, or None.
    """

    base: Path
    slot: str
    output: Path | None = None

    @property
    def beside(self) -> Path:
        """The folder that holds the working folders and the finished result."""
        return self.base if self.output is None else self.output.absolute().parent

    @property
    def work(self) -> str:
        """The prefix of the names of its working folders."""
        return (
            f".work-{self.slot}" if self.output is None else f".{self.output.absolute().name}.work"
        )

    def finished(self) -> list[Path]:
        """Return folders of finished scans of this dataset, newest first.

        A folder that is a link, or has one among its files, is skipped.
        """
        runs = (
            sorted(self.base.glob(f"*-{self.slot}*/{RESULT}"), reverse=True)
            if folders.is_real(self.base)
            else []
        )
        output_results = [] if self.output is None else [self.output / RESULT]
        run_folders = [
            path.parent
            for path in [*output_results, *runs]
            if folders.is_real(path.parent) and path.is_file()
        ]
        return [run for run in run_folders if not any((run / name).is_symlink() for name in NAMES)]

    def publish(self, staged: Path, name: str) -> Path:
        """Give a staged run its final name; return its folder.

        Raises:
            UsageError: `output` now holds something that no scan has written; it is left unchanged.
            StorageError: the file system refuses.
        """
        with fsops.guarded(staged), contextlib.ExitStack() as open_folders:
            work = open_folders.enter_context(folders.open_folder(staged.parent))
            parent = open_folders.enter_context(
                folders.open_folder(Path(os.path.realpath(self.beside)))
            )
            if self.output is not None:
                _replace(staged, self.output.absolute(), work, parent)
                return self.output
            target = self.base / f"{name}-{self.slot}"
            number = 2
            while os.path.lexists(target) or not _rename(staged, target, work, parent):
                target = self.base / f"{name}-{self.slot}-{number}"
                number += 1
            _link_to(self.base / run_documents.LATEST, target.name, parent)
            return target


def _replace(staged: Path, target: Path, work: int, parent: int) -> None:
    """Rename a staged run to the name of an earlier one, which is removed."""
    old = staged.with_name("old")
    while not _rename(staged, target, work, parent):
        _check_run(target, target, parent)
        with contextlib.suppress(FileNotFoundError):  # another scan removed the old run: look again
            if fsops.exchange(staged, target, work, parent):
                _check_moved(
                    staged, target, work, lambda: fsops.exchange(staged, target, work, parent)
                )
                folders.remove_tree(staged, within=work)
                return
        folders.remove_tree(old, within=work)
        if _rename(target, old, parent, work, {errno.ENOENT}):
            _check_moved(old, target, work, lambda: fsops.rename(old, target, work, parent))
    folders.remove_tree(old, within=work)


def _check_moved(moved: Path, target: Path, work: int, move_back: Callable[[], object]) -> None:
    """Move a folder back that is not a run: it took the place of the run between two calls."""
    try:
        _check_run(moved, target, work)
    except UsageError:
        move_back()
        raise


def _link_to(link: Path, name: str, folder: int) -> None:
    """Point `link` to `name`, replacing an older link; do nothing where links are refused."""
    temporary = link.with_name(f".{link.name}.{os.urandom(6).hex()}.partial")
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISLNK(os.stat(link.name, dir_fd=folder, follow_symlinks=False).st_mode):
                return
        fsops.SYSTEM.symlink(name, temporary, folder)
        fsops.rename(temporary, link, folder, folder)


def _rename(
    source: Path, target: Path, folder: int, to: int, other: AbstractSet[int] = _TAKEN
) -> bool:
    """Rename a folder; return False for an error in `other`: another scan may have been faster."""
    try:
        fsops.rename(source, target, folder, to)
    except OSError as error:
        if error.errno in other:
            return False
        raise fsops.as_storage_error(error, target) from error
    return True


def run_location(
    schema: Schema, root: Path, only: str | None, roots: Mapping[str, Path], output: Path | None
) -> RunLocation:
    """Return the place of the results of a scan of this data.

    Raises:
        UsageError: `output` holds something that no scan has written, or is the data folder.
    """
    identity = [
        str(root.resolve()),
        only,
        {name: str(path.resolve()) for name, path in roots.items()},
        schema.name,
    ]
    words = re.sub(r"[^A-Za-z0-9_.]+", "-", schema.name).strip("-.") or "schema"
    if output is not None:
        _check_output(output, root)
    return RunLocation(
        Path.cwd() / run_documents.RUNS, f"{words}-{digest_value(identity)[:8]}", output
    )


def _check_output(output: Path, root: Path) -> None:
    check_name(output)
    if output.is_symlink():
        msg = (
            f"{output}: is a link, and --output replaces what is there. Name the folder itself, "
            f"or a new one."
        )
        raise UsageError(msg)
    if output.exists() and not output.is_dir():
        msg = f"{output}: is a file. --output names a folder for the results."
        raise UsageError(msg)
    # realpath, because `resolve` raises an error for circular links.
    target, data = (Path(os.path.realpath(path)) for path in (output, root))
    if data.is_relative_to(target) or target.is_relative_to(data):
        reason = (
            "holds the data"
            if data.is_relative_to(target)
            else "lies in the data, and the next scan would read it"
        )
        msg = f"{output}: {reason}. --output names a folder of its own for the results."
        raise UsageError(msg)
    if output.is_dir():
        _check_run(output, output)


def _check_run(path: Path, output: Path, within: int | None = None) -> None:
    """Raise unless a folder is empty, or holds a run and nothing else.

    Args:
        path: the folder.
        output: its name in messages.
        within: a descriptor of the parent folder; None: the one in its path.

    Raises:
        UsageError: it holds something else.
        FileNotFoundError: it does not exist (any more), which the caller handles.
    """
    try:
        with folders.open_folder(path, within) as folder:
            names = folders.names(folder)
            strange = [name for name in names if name not in {*NAMES, PAGE, PREVIEWS}]
            problem = (
                f"{strange[0]!r}, which no scan has written"
                if strange
                else _result_problem(folder)
                if names
                else ""
            )
    except FileNotFoundError:
        raise
    except OSError as error:
        problem = f"what cannot be listed ({(error.strerror or str(error)).lower()})"
    if problem:
        msg = (
            f"{output}: holds {problem}, and --output replaces what is there. "
            f"Name a new folder, or one that an earlier scan made."
        )
        raise UsageError(msg)


def _result_problem(folder: int) -> str:
    """Return what is wrong with the result of a run, "" where a scan has written it."""
    try:
        document = orjson.loads(beneath.read_in(folder, RESULT, _RESULT_BYTES))
    except (OSError, ValueError):
        document = None
    stored_format = document.get("format") if isinstance(document, dict) else None
    return (
        ""
        if str(stored_format).startswith(run_documents.RESULT_FAMILY)
        else f"no {RESULT} that a scan has written"
    )


# ------------------------------------------------------------------------------------------ journal


@dataclass(frozen=True, eq=False)
class StoredPart:
    """A finished part of a scan in progress.

    Args:
        tables: the rows.
        items: the files that each item's rows came from, by path and split.
        entries: the files by path as they were when they were read, with digests.
        undeclared: fields in the data that the schema does not list.
    """

    tables: Sequence[Table]
    items: Mapping[Slot, Sequence[str]]
    entries: Mapping[str, Entry]
    undeclared: AbstractSet[str]


class Journal:
    """The finished parts of a scan in progress; the same command, run again, resumes from them.

    Args:
        place: where the parts are.
        key: parts with another key are of a scan that measured otherwise.
        purpose: part of the folder's name, so that other commands have folders of their own.
    """

    def __init__(self, place: RunLocation, key: str, purpose: str = "") -> None:
        self._beside, self._stem = place.beside, f"{place.work}{purpose}"
        self._runs = place.output is None
        self.key = key
        self._number = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold a working folder: that of an interrupted scan of the same data, or a new one.

        No other process uses it meanwhile.

        Raises:
            StorageError: it cannot be made, or the folder of runs is a link or another user's.
        """
        instead = " to work in (a scan also takes --output DIR)"
        fsops.check_writable(self._beside, instead)
        if self._runs:
            folders.check_own(self._beside, ", or name a folder for the results: --output DIR")
        fsops.make_directory(self._beside)
        with contextlib.ExitStack() as resources:
            with fsops.guarded(self._beside):
                self._within = resources.enter_context(
                    folders.open_folder(Path(os.path.realpath(self._beside)))
                )
            self._find(resources)
            yield

    def _find(self, held: contextlib.ExitStack) -> None:
        """Lock a working folder that no other process has; keep it and the lock open in `held`."""
        for _ in range(_TRIES):
            new = self._beside / f"{self._stem}.{os.urandom(6).hex()}"
            with fsops.guarded(new):
                fsops.SYSTEM.mkdir(new, 0o700, self._within)
                # Another scan may have taken and removed the new folder.
                with contextlib.suppress(FileNotFoundError):
                    owner = os.stat(new.name, dir_fd=self._within, follow_symlinks=False).st_uid
                    for folder in [*self._left(new), new]:
                        if self._locked(folder, owner, held, new=folder == new):
                            if folder != new:
                                fsops.remove_empty(new, self._within)
                            return
        msg = (
            f"{self._beside}: {_TRIES} working folders went as soon as they were made. Run the "
            f"same command again."
        )
        raise StorageError(msg)

    def _left(self, new: Path) -> list[Path]:
        """Return the possible working folders of scans that have ended, the oldest first."""
        name_pattern = re.compile(rf"{re.escape(self._stem)}\.[0-9a-f]{{12}}")
        candidates = []
        for name in folders.names(self._within):
            if name_pattern.fullmatch(name) and name != new.name:
                # The folder itself, because a scan killed right at the start has made no lock.
                for path in (f"{name}/{_LOCK}", name):
                    with contextlib.suppress(OSError):
                        status = os.stat(path, dir_fd=self._within, follow_symlinks=False)
                        candidates.append((status.st_mtime_ns, name))
                        break
        return [self._beside / name for _, name in sorted(candidates)]

    def _locked(self, folder: Path, owner: int, held: contextlib.ExitStack, *, new: bool) -> bool:
        """Open and lock a working folder; return False where another scan or user has it.

        Args:
            folder: may be a working folder, or anything else of that name.
            owner: the user id that this file system gives to new files of this user.
            held: keeps it open.
            new: it was just made; it is used without a lock where the file system has none.
        """
        self.folder = folder
        with contextlib.ExitStack() as resources:
            try:
                self._here = resources.enter_context(folders.open_folder(folder, self._within))
                if os.fstat(self._here).st_uid != owner:
                    return False
                lock = self._open_lock()
            except OSError:  # it is gone, a link, or another user's
                return False
            resources.callback(os.close, lock)
            if not stat.S_ISREG(os.fstat(lock).st_mode):
                return False
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if isinstance(error, BlockingIOError) or not new:
                    return False
            # The lock was removed between the two calls, or it is not datacheck's.
            if not os.fstat(lock).st_nlink or not self._marked(lock):
                return False
            held.enter_context(resources.pop_all())
        return True

    def _open_lock(self) -> int:
        """Open the lock file; create it only in an empty folder."""
        with contextlib.suppress(FileNotFoundError):
            return self._old_lock()
        if folders.names(self._here):
            raise FileNotFoundError
        with contextlib.suppress(FileExistsError):
            os.close(fsops.SYSTEM.create(self.folder / _LOCK, 0o600, self._here))
        return self._old_lock()

    def _old_lock(self) -> int:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(_LOCK, flags, dir_fd=self._here)

    def _marked(self, lock: int) -> bool:
        """Tell whether the lock file has the mark.

        Writes the mark in a new folder, or where a scan was killed before it wrote the mark.
        """
        mark = os.pread(lock, len(_MARK) + 1, 0)
        if mark != _MARK and _MARK.startswith(mark) and folders.names(self._here) == [_LOCK]:
            fsops.SYSTEM.write_at(lock, memoryview(_MARK), 0)
            return True
        return mark == _MARK

    def parts(self) -> Iterator[StoredPart]:
        """Yield the finished parts of an interrupted scan with the same key.

        Unreadable parts count as not done.
        """
        bytes_left = PARTS_BYTES
        for name in (name for name in folders.names(self._here) if name.startswith("part-")):
            self._number += 1
            part = None
            # Any error: a damaged part counts as not done.
            with contextlib.suppress(Exception):
                data = beneath.read_in(self._here, name, min(bytes_left, PART_BYTES))
                bytes_left -= len(data)
                part = self._decoded(data)
            if part is not None:
                yield part

    def _decoded(self, data: bytes) -> StoredPart | None:
        """Return a part, or None if it has another key.

        Raises:
            Exception: of many kinds, where the part is damaged.
        """
        head, _ = FRAME.unpack_from(data)
        check_values(data[: FRAME.size + head])
        part = decode(data, most=len(data))  # each row has its own key, so bytes bound rows
        if part["key"] != self.key:
            return None
        tables = list(map(Table.from_wire, part["tables"]))
        check(part, _PART)
        return StoredPart(
            tables,
            {(path, split): files for path, split, files in part["items"]},
            {entry[0]: Entry(*entry) for entry in part["entries"]},
            set(part["undeclared"]),
        )

    def add(self, part: Mapping[str, Any], more: Sequence[Any] = ()) -> None:
        """Store a finished part (table, items, entries, undeclared), and more tables of it."""
        record = {"key": self.key, "tables": [part["table"], *more]}
        record |= {name: part[name] for name in ("items", "entries", "undeclared")}
        data = b"".join(encode(record))  # one write: most of its pieces have a few bytes
        fsops.write_file(
            self.folder / f"part-{self._number:08d}", data, mode=0o666, folder=self._here
        )
        self._number += 1

    def stage(self, files: Mapping[str, bytes | memoryview | Path]) -> Path:
        """Write a run's files into the working folder; return the folder for `RunLocation.publish`.

        Raises:
            OutOfSpaceError: the disk is full.
            StorageError: any other refusal.
        """
        staged = self.folder / "run"
        folders.remove_tree(staged, within=self._here)
        with fsops.guarded(staged):
            fsops.SYSTEM.mkdir(staged, 0o777, self._here)
            with folders.open_folder(staged, self._here) as folder:
                run_documents.write_run(staged, files, folder)
        return staged

    def clear(self) -> None:
        """Remove all parts: the scan is finished."""
        folders.empty(self.folder, self._here, keep=_LOCK)
        # Without its lock, the folder may become another scan's.
        fsops.remove_file(self.folder / _LOCK, self._here)
        fsops.remove_empty(self.folder, self._within)
