"""Digests of many files: small data in this process, else in one child per core.

A small file costs an open, a read, a look at its times and a close, and nothing else; threads would take turns at
the interpreter's lock for each of these.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datacheck.digest import Digester, digest_raw
from datacheck.errors import DatacheckError, StorageError
from datacheck.finding import Progress, Tick

if TYPE_CHECKING:
    from datacheck.sources.listing import Listing

Array = np.ndarray[Any, Any]

SMALL_BYTES = 512 << 20  # sooner read than a child has started
SMALL_FILES = 10_000
TASK_BYTES = 128 << 20
TASK_FILES = 2_000
_BUFFER = 1 << 19
_BEAT_BYTES = 1 << 28  # of a large file between two signs of life
_SILENCE_S = 600.0  # of a disk that sleeps, a network that stalls
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in a file's place would wait for its writer
_TASK = "datacheck.repro.hashing:digest_files"
_STAMP = 4
_LARGEST = 2**63 - 1

Beat = Callable[[int], None]


def digests_of(listing: Listing, places: Array, workers: int | None, progress: Progress | None) -> Array:
    """Return the digests of some files of a listing: bytes (places) of 32 hex digits.

    Shapes:
        places: int64 (places)

    Args:
        listing: the files as they were listed.
        places: which of them.
        workers: children of this process that read; None: none for small data, one per core for large.
        progress: called after each part.

    Raises:
        StorageError: a file cannot be read, or is no longer what was listed.
    """
    digests: Array = np.zeros(len(places), "S32")
    numbers: Array = np.zeros((len(places), _STAMP), np.int64)
    sizes = listing.entries.sizes[places]
    tasks = list(_tasks(sizes))
    done, total, nbytes = 0, int(sizes.sum()), 0
    refused: list[tuple[str, str]] = []
    for order, payloads in _read(listing, places, tasks, _workers(workers, total, len(places), len(tasks))):
        place = 0
        for payload in payloads:
            count = len(payload["numbers"])
            here = order[place : place + count]
            digests[here] = np.frombuffer(payload["digests"].tobytes().hex().encode(), "S32")
            numbers[here] = payload["numbers"]
            refused += [(path, reason) for path, reason in payload["refused"]]
            place += count
        done, nbytes = done + len(order), nbytes + int(sizes[order].sum())
        if progress is not None:
            progress(Tick(done, len(places), nbytes, total, 0, 0, "reading"))
    _check(listing, places, numbers, refused)
    return digests


def _check(listing: Listing, places: Array, numbers: Array, refused: Sequence[tuple[str, str]]) -> None:
    if refused:
        path, reason = min(refused)
        more = f" (and {len(refused) - 1:,} more)" if len(refused) > 1 else ""
        msg = (
            f"{listing.root}: {path} cannot be read{more}: {reason}. A manifest names every file; make it readable, "
            f"or move it out of the folder."
        )
        raise StorageError(msg)
    other = (numbers != listing.entries.numbers[places, :_STAMP]).any(axis=1)
    if other.any():
        count = int(other.sum())
        path = listing.entries.paths[int(places[int(other.argmax())])]
        many = f"{count:,} files changed while they were read, the first is" if count > 1 else "a file changed:"
        msg = f"{listing.root}: {many} {path}. Run the same command again when nothing writes to the data."
        raise StorageError(msg)


def _workers(asked: int | None, nbytes: int, files: int, tasks: int) -> int:
    """Return how many children are worth their start; 0: none."""
    if asked is None:
        small = nbytes < SMALL_BYTES and files < SMALL_FILES
        asked = 0 if small else os.cpu_count() or 1
    return min(asked, tasks)


def _tasks(sizes: Array) -> Iterator[Array]:
    """Yield the places of the files of each task: those that take longest first, so that all children end together."""
    large = np.flatnonzero(sizes >= TASK_BYTES)
    yield from large[np.argsort(-sizes[large], kind="stable")].reshape(-1, 1)
    small = np.flatnonzero(sizes < TASK_BYTES)
    first = 0
    ends = np.cumsum(sizes[small])
    while first < len(small):
        before = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, before + TASK_BYTES, side="right"))
        stop = max(first + 1, min(stop, first + TASK_FILES))
        yield small[first:stop]
        first = stop


def _read(
    listing: Listing, places: Array, tasks: list[Array], workers: int
) -> Iterator[tuple[Array, list[dict[str, Any]]]]:
    paths = listing.entries.paths
    shared = {
        "root": str(listing.root.absolute()),
        "roots": {name: str(path.absolute()) for name, path in listing.roots.items()},
    }
    todo = (shared | {"items": [paths[i] for i in places[order].tolist()]} for order in tasks)
    if not workers:
        yield from ((order, [digest_files(task, lambda _: None)]) for order, task in zip(tasks, todo, strict=True))
        return
    from datacheck.parallel import Limits, ordered_map  # noqa: PLC0415  small data need no child

    for order, outcome in zip(
        tasks, ordered_map(_TASK, todo, workers=workers, limits=Limits(item_s=_SILENCE_S)), strict=True
    ):
        for death in outcome.deaths:
            msg = f"{listing.root}: {death.item}: reading it failed: {death.how.strip().splitlines()[-1]}"
            raise DatacheckError(msg) if death.crash else StorageError(msg)
        yield order, outcome.payloads


# ------------------------------------------------------------------------------------------ in the child


def digest_files(task: dict[str, Any], beat: Beat) -> dict[str, Any]:
    """Digest files (see `parallel.run_task`).

    Args:
        task: root, roots, items (listing paths).
        beat: called with an item's number before it is touched, and while a large one is read.

    Returns:
        digests (uint8 [items, 16]), numbers (int64 [items, 4]: size, mtime, ctime and inode when it had been read),
        refused (path, reason).
    """
    root, roots = task["root"], task["roots"]
    reader = _Reader()
    digests, numbers, refused = bytearray(), array("q"), []
    for number, path in enumerate(task["items"]):
        beat(number)
        try:
            raw, stamp = reader.read(_place(root, roots, path), beat, number)
        except IsADirectoryError:
            raw, stamp = _store(root, roots, path)
        except OSError as error:
            refused.append([path, (error.strerror or str(error)).lower()])
            raw, stamp = bytes(16), (0, 0, 0, 0)
        digests += raw
        numbers.extend(stamp)
    return {
        "digests": np.frombuffer(digests, np.uint8).reshape(-1, 16),
        "numbers": np.frombuffer(numbers, np.int64).reshape(-1, _STAMP),
        "refused": refused,
    }


def _place(root: str, roots: Mapping[str, str], path: str) -> str:
    if path[0] == "@":
        name, _, rest = path[1:].partition("/")
        if name in roots:
            return f"{roots[name]}/{rest}"
    return f"{root}/{path}"


class _Reader:
    """Reads files into one buffer: fresh memory for each takes longer than the digest."""

    def __init__(self) -> None:
        self._buffer = bytearray(_BUFFER)
        self._view = memoryview(self._buffer)

    def read(self, place: str, beat: Beat, number: int) -> tuple[bytes, tuple[int, ...]]:
        """Return the digest of a file, and its size, mtime, ctime and inode after the last byte.

        Raises:
            OSError: it cannot be read.
        """
        descriptor = os.open(place, _FLAGS)
        try:
            size = os.readv(descriptor, (self._buffer,))
            status = os.fstat(descriptor)
            if size == status.st_size:
                raw = digest_raw(self._view[:size])
            else:
                raw = self._rest(descriptor, size, beat, number)
                status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        mtime, ctime, inode = status.st_mtime_ns, status.st_ctime_ns, status.st_ino
        if inode > _LARGEST or mtime > _LARGEST or ctime > _LARGEST:  # as the listing says it
            mtime, ctime, inode = min(mtime, _LARGEST), min(ctime, _LARGEST), min(inode, _LARGEST)
        return raw, (status.st_size, mtime, ctime, inode)

    def _rest(self, descriptor: int, size: int, beat: Beat, number: int) -> bytes:
        hasher = Digester()
        since = 0
        while size:
            hasher.update(self._view[:size])
            since += size
            if since >= _BEAT_BYTES:
                beat(number)
                since = 0
            size = os.readv(descriptor, (self._buffer,))
        return hasher.digest()


def _store(root: str, roots: Mapping[str, str], path: str) -> tuple[bytes, tuple[int, ...]]:
    """Return the digest of a Zarr folder, and how it looks."""
    from datacheck.sources.listing import digest_entry, stat_entry  # noqa: PLC0415  few datasets have such folders

    extra = {name: Path(folder) for name, folder in roots.items()}
    digest = digest_entry(Path(root), path, extra)
    entry = stat_entry(Path(root), path, extra)
    return bytes.fromhex(digest), (0, 0, 0, 0) if entry is None else entry[1:5]
