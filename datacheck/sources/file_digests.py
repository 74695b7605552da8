"""Digest many files: small data in this process, otherwise in one child per core.

A small file costs little more than an open, a read, a stat and a close. Threads would compete for
the interpreter's lock at each of these.
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np

from datacheck.errors import DatacheckError, StorageError
from datacheck.runtime.aligned import empty
from datacheck.runtime.beneath import check_holes, clamp_stamp, stamp_of
from datacheck.runtime.hashing import READ_BYTES, Digester, digest_raw
from datacheck.runtime.machine import usable_cpus
from datacheck.sources.roots import STAMP, Roots, locate, real_root
from datacheck.workers.wire import answers, text

if TYPE_CHECKING:
    from datacheck.model.finding import Progress
    from datacheck.sources.listing import Listing, OnFound

Array = np.ndarray[Any, Any]
Beat = Callable[[int], None]
Many = tuple[list[str], list[int]]  # paths and sizes

SMALL_BYTES = 512 << 20  # read in less time than a child takes to start
SMALL_FILES = 10_000
TASK_BYTES = 128 << 20
TASK_FILES = 4_000
LINKED_BYTES = 16 << 20  # from this size on, links to one file are read once
_SILENCE_S = 600.0  # a disk may wake up, a network may stall
_TASK = "datacheck.sources.file_digests:digest_files"


@dataclass(frozen=True)
class _Task:
    """Files that one task reads: their positions in the result, their paths, their total bytes."""

    places: list[int]
    paths: list[str]
    nbytes: int


def digest_listed(
    listing: Listing, places: Array, workers: int | None, progress: Progress | None
) -> tuple[Array, StorageError | None]:
    """Return the digests of some files of a listing, and an error about files without one.

    Shapes:
        places: int64 (places)

    Args:
        listing: the files as they were listed.
        places: indices of the files.
        workers: number of child processes that read; None: no child for small data, one per core
            for large data.
        progress: called after each part.

    Returns:
        digests, bytes (places) of 32 hex digits, b"" for an unreadable or changed file; an error
        about such files, or None.

    Raises:
        StorageError: a child died while reading.
    """
    paths = [listing.entries.paths[i] for i in places.tolist()]
    files = [(paths, listing.entries.sizes[places].tolist())]
    return _matching(
        listing, places, *_digested(listing.root, listing.roots, files, workers, progress)
    )


def digest_while_listed(
    root: Path,
    roots: Mapping[str, Path],
    walk: Callable[[OnFound], Listing],
    workers: int | None,
    progress: Progress | None,
) -> tuple[Listing, Array, StorageError | None]:
    """Return a listing, the digests of all its files, and an error about files without one.

    Args:
        root, roots: as in a listing.
        walk: creates the listing in a thread; takes a callback for found files.
        workers, progress: as for `digest_listed`.

    Raises:
        UsageError: the data cannot be listed.
        StorageError: as for `digest_listed`.

    Notes:
        Children read while the walk still finds files. Reading begins after the walk for small data
        (`SMALL_FILES`, `SMALL_BYTES`), and for files of `TASK_BYTES` or more.
    """
    # Imported here, because children do not need it.
    from concurrent.futures import CancelledError, ThreadPoolExecutor  # noqa: PLC0415

    queue: SimpleQueue[Many | None] = SimpleQueue()
    stop = Event()

    def found(new_paths: list[str], sizes: list[int]) -> None:
        if stop.is_set():
            raise CancelledError
        if new_paths:
            queue.put((new_paths, sizes))

    def handed() -> Iterator[Many]:
        yield from iter(queue.get, None)
        walk_future.result()  # a failed walk makes the rest pointless

    with ExitStack() as exit_stack:
        walk_future = exit_stack.enter_context(ThreadPoolExecutor(1)).submit(walk, found)
        exit_stack.callback(stop.set)  # after an interrupt, do not wait for the rest of a long walk
        walk_future.add_done_callback(lambda _: queue.put(None))
        try:
            digests, numbers, fault = _digested(root, roots, handed(), workers, progress)
        except StorageError:
            if walk_future.done():
                walk_future.result()  # a failed walk explains more than a file that cannot be read
            raise
    listing = walk_future.result()
    order = listing.told
    return listing, *_matching(
        listing, np.arange(len(digests)), digests[order], numbers[order], fault
    )


class _Links:
    """Finds links to files that were named before, among files of `LINKED_BYTES` or more.

    Attributes:
        first_names: for the number of each such link, the number of the file's first name.
    """

    def __init__(self, root: Path, roots: Mapping[str, Path]) -> None:
        self._folders = Roots(root, roots)
        self._numbers: dict[tuple[int, ...], int] = {}
        self.first_names: dict[int, int] = {}

    def is_known(self, number: int, path: str) -> bool:
        """Return whether a file has been named before, and remember it otherwise."""
        try:
            status = self._folders.file(path).stat()
        except OSError:
            return False  # reading it raises the error
        if not stat.S_ISREG(status.st_mode):
            return False
        first = self._numbers.setdefault((status.st_dev, *stamp_of(status)), number)
        if first != number:
            self.first_names[number] = first
        return first != number


def _tasks(batches: Iterable[Many], links: _Links) -> Iterator[_Task]:
    """Yield tasks as files are found; large files at the end, links to one file once.

    Large files are in falling size, so that all children end at about the same time.
    """
    large: list[tuple[int, int, str]] = []
    places: list[int] = []
    paths: list[str] = []
    nbytes = 0
    for number, (path, size) in enumerate(
        chain.from_iterable(zip(*batch, strict=True) for batch in batches)
    ):
        if size >= LINKED_BYTES and links.is_known(number, path):
            continue
        if size >= TASK_BYTES:
            large.append((-size, number, path))
            continue
        places.append(number)
        paths.append(path)
        nbytes += size
        if len(paths) == TASK_FILES or nbytes >= TASK_BYTES:
            yield _Task(places, paths, nbytes)
            places = []
            paths = []
            nbytes = 0
    yield from (_Task([number], [path], -size) for size, number, path in sorted(large))
    if paths:
        yield _Task(places, paths, nbytes)


def _digested(
    root: Path,
    roots: Mapping[str, Path],
    files: Iterable[Many],
    workers: int | None,
    progress: Progress | None,
) -> tuple[Array, Array, StorageError | None]:
    """Return the digests and stamps of all files by position, and an error about unread files."""
    from datacheck.model.finding import Tick  # noqa: PLC0415  children do not need it

    seen_totals = [0, 0]
    done_totals = [0, 0]
    places: list[int] = []
    raws = []
    numbers = []
    refused = list[list[str]]()
    links = _Links(root, roots)
    tasks = _counted(_tasks(files, links), seen_totals)
    for task, payloads in _read(root, roots, tasks, workers):
        places += task.places
        for payload in payloads:
            raws.append(payload["digests"])
            numbers.append(payload["numbers"])
            refused += payload["refused"]
        done_totals = [done_totals[0] + len(task.paths), done_totals[1] + task.nbytes]
        if progress is not None:
            progress(
                Tick(
                    done_totals[0], seen_totals[0], done_totals[1], seen_totals[1], 0, 0, "hashing"
                )
            )
    fault = None
    if refused:
        path, reason = min(refused)
        more_text = f" (and {len(refused) - 1:,} more)" if len(refused) > 1 else ""
        msg = (
            f"{root}: {path} cannot be read{more_text}: {reason}. A manifest names every file: make "
            f"it readable."
        )
        fault = StorageError(msg)
    count = len(places) + len(links.first_names)
    digests: Array = np.zeros(count, "S32")
    stamps: Array = np.zeros((count, STAMP), np.int64)
    if places:
        digests[places] = np.frombuffer(np.concatenate(raws).tobytes().hex().encode(), "S32")
        stamps[places] = np.concatenate(numbers)
    for number, first in links.first_names.items():
        digests[number] = digests[first]
        stamps[number] = stamps[first]
    return digests, stamps, fault


def _counted(tasks: Iterator[_Task], seen_totals: list[int]) -> Iterator[_Task]:
    for task in tasks:
        seen_totals[:] = [seen_totals[0] + len(task.paths), seen_totals[1] + task.nbytes]
        yield task


def _read(
    root: Path, roots: Mapping[str, Path], tasks: Iterator[_Task], workers: int | None
) -> Iterator[tuple[_Task, list[dict[str, Any]]]]:
    shared = {
        "root": str(root.absolute()),
        "roots": {name: str(path.absolute()) for name, path in roots.items()},
    }
    first_tasks = list(_first_tasks(tasks)) if workers is None else []
    next_task = next(tasks, None) if workers is None else None
    if workers is None and next_task is None:
        yield from (
            (task, [digest_files(shared | {"items": task.paths}, lambda _: None)])
            for task in first_tasks
        )
        return
    from datacheck.sources.roots import sandbox_of  # noqa: PLC0415  only for large data
    from datacheck.workers.parallel import Limits, ordered_map  # noqa: PLC0415  only for large data

    sent_tasks: list[_Task] = []

    def sent() -> Iterator[dict[str, Any]]:
        for task in chain(first_tasks, [] if next_task is None else [next_task], tasks):
            sent_tasks.append(task)
            yield shared | {"items": task.paths, "file_bytes": task.nbytes}

    limits = Limits(item_s=_SILENCE_S)
    options: dict[str, Any] = {
        "workers": workers or usable_cpus(),
        "limits": limits,
        "sandbox": sandbox_of(root, roots),
    }
    for number, outcome in enumerate(ordered_map(_TASK, sent(), **options)):
        for death in outcome.deaths:
            msg = f"{root}: {death.item}: reading it failed: {death.how.strip().splitlines()[-1]}"
            raise DatacheckError(msg) if death.crash else StorageError(msg)
        yield sent_tasks[number], outcome.payloads


def _first_tasks(tasks: Iterator[_Task]) -> Iterator[_Task]:
    """Yield tasks until they exceed the limit for one process."""
    files = nbytes = 0
    for task in tasks:
        yield task
        files, nbytes = files + len(task.paths), nbytes + task.nbytes
        if files >= SMALL_FILES or nbytes >= SMALL_BYTES:
            return


def _matching(
    listing: Listing, places: Array, digests: Array, numbers: Array, fault: StorageError | None
) -> tuple[Array, StorageError | None]:
    """Return digests of files that are still as listed, b"" for others; an error about those."""
    changed = (numbers != listing.entries.numbers[places, :STAMP]).any(axis=1)
    digests[changed] = b""
    if changed.any() and fault is None:
        count = int(changed.sum())
        path = listing.entries.paths[int(places[int(changed.argmax())])]
        subject = (
            f"{count:,} files changed while they were read, the first is"
            if count > 1
            else "a file changed:"
        )
        msg = (
            f"{listing.root}: {subject} {path}. Run the same command again when nothing writes to "
            f"the data."
        )
        fault = StorageError(msg)
    return digests, fault


# ------------------------------------------------------------------------------------- in the child


def _of_files(answer: Mapping[str, Any], task: Mapping[str, Any]) -> bool:
    digests = answer["digests"]
    numbers = answer["numbers"]
    count = len(task["items"])
    fit = digests.dtype == np.uint8 and digests.shape == (count, 16)
    return bool(fit and numbers.dtype == np.int64 and numbers.shape == (count, STAMP))


@answers({"digests": np.ndarray, "numbers": np.ndarray, "refused": [(text, text)]}, _of_files)
def digest_files(task: dict[str, Any], beat: Beat) -> dict[str, Any]:
    """Digest files (see `parallel.run_task`).

    Args:
        task: root, roots, items (listing paths).
        beat: called with an item's number before the item is read, and while a large one is read.

    Returns:
        digests (uint8 [items, 16]), numbers (int64 [items, 4]: size, mtime, ctime and inode after
        the read), refused (path, reason).
    """
    root = task["root"]
    roots = task["roots"]
    folders = Roots(root, roots)
    # A single buffer: fresh memory for each file takes longer than its digest.
    view = empty([READ_BYTES], np.uint8).data
    buffers = (view,)
    digests = bytearray()
    numbers = array("q")
    refused = []
    for number, path in enumerate(task["items"]):
        beat(number)
        try:
            descriptor = folders.descriptor(path)
            try:
                size = os.readv(descriptor, buffers)
                status = os.fstat(descriptor)
                if size == status.st_size:
                    raw = digest_raw(view[:size])
                else:
                    raw, status = _digest_rest(descriptor, view, size, partial(beat, number))
            finally:
                os.close(descriptor)
            stamp: tuple[int, ...] = (
                status.st_size,
                status.st_mtime_ns,
                status.st_ctime_ns,
                status.st_ino,
            )
        except OSError as error:
            try:
                raw, stamp = _digest_store(folders, root, roots, path, error, partial(beat, number))
            except OSError as refusal:
                from datacheck.sources.listing import reason  # noqa: PLC0415  few files are refused

                raw = bytes(16)
                stamp = (0,) * STAMP
                refused.append([path, reason(refusal)])
        digests += raw
        try:
            numbers.extend(stamp)
        except OverflowError:
            del numbers[STAMP * number :]
            numbers.extend(clamp_stamp(stamp))  # in the form of the listing
    return {
        "digests": np.frombuffer(digests, np.uint8).reshape(-1, 16),
        "numbers": np.frombuffer(numbers, np.int64).reshape(-1, STAMP),
        "refused": refused,
    }


def _digest_rest(
    descriptor: int, view: memoryview, size: int, beat: Callable[[], None]
) -> tuple[bytes, os.stat_result]:
    """Return digest and status of a file whose first `size` bytes are in `view`.

    Raises:
        OSError: it cannot be read, or holds more bytes than its size.
    """
    status = os.fstat(descriptor)
    check_holes(descriptor)
    hasher = Digester()
    done = 0
    while size and done <= status.st_size:  # a file that grows as fast as it is read has no end
        hasher.update(view[:size])
        done += size
        beat()
        size = os.readv(descriptor, (view,))
    status = os.fstat(descriptor)
    if done > status.st_size:
        msg = f"holds more than the {status.st_size:,} bytes that its size says"
        raise OSError(msg)
    return hasher.digest(), status


def _digest_store(
    folders: Roots,
    root: str,
    roots: Mapping[str, str],
    path: str,
    error: OSError,
    beat: Callable[[], None],
) -> tuple[bytes, tuple[int, ...]]:
    """Return digest and stamp of a Zarr folder, whose read as a file failed.

    Raises:
        OSError: it cannot be read; `error` if it is not a folder.
    """
    if not isinstance(error, IsADirectoryError):
        raise error
    # Imported here, because few datasets have Zarr folders.
    from datacheck.sources.listing import store_digest, store_entry  # noqa: PLC0415

    place = str(locate(root, roots, path))
    real = real_root(root, roots, path)
    raw = bytes.fromhex(store_digest(folders, path, place, real, beat, links=False))
    entry = store_entry(path, place, real, 0, beat)
    return raw, (entry.size, entry.mtime_ns, entry.ctime_ns, entry.inode)
