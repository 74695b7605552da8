"""The folder of an unfinished build: private to one builder, taken over by others if it is gone.

Correctness never depends on a lock: a folder is private, digests prove its content, and one rename
makes it a cache. Locks only show whether a builder is still at work, so that its shards are not
made twice.

    .building/<key>.<uuid>
        OWNER          locked while the builder lives
        work
            records    the record of each finished shard
            finished   a line for each of them: the shard, the size and the digest of its record. No
                       task may write there, so no task can vouch for the shard of another
            shards     becomes the cache; named `whole` once no task may write there any more
            linked     shards of an earlier cache under a second name, where no task may write;
                       moved into the cache at the end
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import socket
import stat
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from datacheck.build import provenance
from datacheck.build.plan import BuildPlan
from datacheck.build.provenance import ShardRecord
from datacheck.cache import layout
from datacheck.cache.manifest import OUTSIDE
from datacheck.errors import (
    LostStagingError,
    NondeterministicBuildError,
    StorageError,
    SyncFailedError,
    UsageError,
)
from datacheck.runtime import folders, fsops, machine
from datacheck.runtime.beneath import open_regular, read_file
from datacheck.runtime.hashing import canonical_json, digest_head
from datacheck.runtime.machine import usable_cpus

OWNER = "OWNER"
_FINISHED = "finished"
_FINISHED_LINE = re.compile(r"([0-9]{1,18}) ([0-9]{1,18}) ([0-9a-f]{32})")
_FINISHED_BYTES = 1_000  # for each shard: a few tries
_WORK = "work"
_AGAIN = "again"  # folder of the records of shards that are made a second time
GONE = ".gone"  # suffix of a hidden folder that is being removed
# Where locks cannot be trusted: how often an owner touches its OWNER, and after how long without it
# counts as gone.
_BEAT_S = 60.0
_STALE_S = 1800.0
_TRIES = 20
_SOON_S = 0.01
_DOCUMENTS = {layout.SOURCES, layout.INPUTS, layout.FINDINGS, *OUTSIDE}
# The temporary name that `fsops.write_file` gives a file.
_UNFINISHED = re.compile(r"(.*/)?\.([^/]+)\.[0-9a-f]+\.partial", re.DOTALL)
_BESIDE = re.compile(rf"{OWNER}|({_WORK}/records|{_AGAIN})/[0-9]+|{_WORK}/({_FINISHED}|attempt)")
_SHARDS = re.compile(rf"{_WORK}/(shards|whole|linked)/", re.DOTALL)
# After these errors no shard may be kept: the request changed, the bytes are not reproducible, or
# the device may not have stored them.
_SPOILED = (UsageError, NondeterministicBuildError, SyncFailedError)


class LinkedShard(NamedTuple):
    """What was read of a linked shard file.

    Args:
        digest, head_digest: of the file with its index, and without it.
        index_part: the bytes of the index.
    """

    digest: str
    head_digest: str
    index_part: bytes


class Staging:
    """The folder of an unfinished build.

    Args:
        folder: this builder's own.

    Attributes:
        shards: where tasks write the shards of every field.
        linked: where shards of an earlier cache are linked; a process that writes there would
            change that cache. Its files are proven, and take precedence over files of the same name
            in `shards`.
        records: where tasks write the record of each shard.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / _WORK
        self.records = self.work / "records"
        self.shards = self.work / "shards"
        self.linked = self.work / "linked"
        self._whole = self.work / "whole"

    def kept(self, plan: BuildPlan) -> dict[int, ShardRecord]:
        """Create every folder that tasks write to; return the records of finished shards.

        Notes:
            Tasks create no folders, so that none of them can revive a removed build. A shard counts
            as finished if its record is the one that its task reported, and every file has the size
            and the digest in the record.
        """
        self._create_folders(plan)
        reported = self._reported(plan.shards, plan.shards)
        with ThreadPoolExecutor(min(8, usable_cpus())) as threads:
            records = threads.map(lambda one: self._finished(plan, *one), reported)
            kept = {record.g: record for record in records if record is not None}
        self._remove_unproven_links(plan, kept)
        return kept

    def note_finished(self, reported: Iterable[Sequence[Any]]) -> None:
        """Note [number, size, digest] of the records of finished shards, for `kept`."""
        lines = "".join(f"{g} {size} {digest}\n" for g, size, digest in reported)
        fsops.append(self.work / _FINISHED, lines.encode())

    def _reported(self, records: int, shards: float = math.inf) -> list[tuple[int, int, str]]:
        """Return [number, size, digest] of each noted record; the last one of a shard counts.

        Args:
            records: number of records, more or less; notes of many more are not read.
            shards: number of shards of the build.
        """
        path = self.work / _FINISHED
        try:
            notes = read_file(path, _FINISHED_BYTES * (records + 1)).decode("ascii", "replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            if error.errno == errno.EFBIG:  # no build writes so much: all shards are made again
                return []
            raise fsops.as_storage_error(error, path) from error
        last = {}
        for line in notes.splitlines():
            match = _FINISHED_LINE.fullmatch(line)  # None: torn
            if match is not None and int(match[1]) < shards:
                last[int(match[1])] = int(match[2]), match[3]
        return [(g, *record) for g, record in sorted(last.items())]

    def second_records(self) -> Path:
        """Create the folder of the records of shards that are made a second time; return it."""
        folder = self.folder / _AGAIN
        fsops.make_directory(folder, sync=False)
        return folder

    def _create_folders(self, plan: BuildPlan) -> None:
        if self._whole.is_dir():  # the previous builder was already finishing the cache
            _renamed(self._whole, self.shards)
        fsops.make_directory(self.records, sync=False)
        fsops.append(self.work / _FINISHED, b"")  # exists before several threads add to it
        for name in plan.specs:
            field = layout.field_path(name)
            fsops.make_directory(self.shards / field, sync=False)
            fsops.make_directory(self.linked / field, sync=False)
            self._move_linked(field)

    def _remove_unproven_links(self, plan: BuildPlan, kept: Iterable[int]) -> None:
        """Remove linked files of shards without a valid record."""
        for name, spec in plan.specs.items():
            folder = self.linked / layout.field_path(name)
            proven = {self.linked / layout.shard_file(name, spec, g) for g in kept}
            for path in [folder / file for file in _names(folder)]:
                if path not in proven:
                    fsops.remove_file(path)

    def clear(self, file: str) -> None:
        """Remove a shard file that an earlier run left, written or linked."""
        for place in (self.shards, self.linked):
            fsops.remove_file(place / file)

    def link(self, source: Path, file: str) -> None:
        """Give a shard file of an earlier cache a second name here; copy where links are refused.

        Raises:
            OutOfSpaceError: a copy does not fit on the disk.
            SyncFailedError: the device did not store a copy.
            StorageError: `source` is missing or unreadable.
        """
        fsops.link_or_copy(source, self.linked / file)

    def read_linked(self, file: str, size: int, index_bytes: int) -> LinkedShard:
        """Return the digests of a linked shard and its index; all empty if it has another size.

        The file's content is read once.
        """
        path = self.linked / file
        with os.fdopen(open_regular(path), "rb", buffering=0) as opened:
            if os.fstat(opened.fileno()).st_size != size:
                return LinkedShard("", "", b"")
            opened.seek(size - index_bytes)
            index = opened.read()
        hasher = digest_head(path, size - index_bytes)
        head_digest = hasher.hexdigest()
        hasher.update(index)
        return LinkedShard(hasher.hexdigest(), head_digest, index)

    def drop_linked(self, plan: BuildPlan, shards: Iterable[int]) -> None:
        """Remove the linked files of shards that are made again."""
        for g in shards:
            for name, spec in plan.specs.items():
                fsops.remove_file(self.linked / layout.shard_file(name, spec, g))

    def _finished(self, plan: BuildPlan, g: int, nbytes: int, digest: str) -> ShardRecord | None:
        try:
            record = provenance.read(self.records, g, nbytes, digest)
        except StorageError:
            return None
        if record is None or not provenance.fits(record, plan):
            return None
        for name, spec in plan.specs.items():
            size, digest = record.whole.get(name, record.files[name])
            file = layout.shard_file(name, spec, g)
            path = self.linked / file
            if not path.exists():
                path = self.shards / file
            # A ragged shard may already have its index, which is written again.
            may_be_longer = spec.dim is not None and name not in record.whole
            if not _holds(path, size, digest, longer=may_be_longer):
                return None
        return record

    def fence(self) -> tuple[Path, frozenset[str]]:
        """Rename the folder of the shards; return it, and its linked files, which are proven.

        Notes:
            A task that Dask runs twice can then no longer find the folder.
        """
        _renamed(self.shards, self._whole)
        with fsops.guarded(self._whole):
            folders.drop_links(self._whole)
        linked = [
            path.relative_to(self.linked) for path in self.linked.rglob("*") if path.is_file()
        ]
        for path in linked:
            if folders.is_real(self._whole / path):
                folders.remove_tree(self._whole / path)
            _renamed(self.linked / path, self._whole / path)
        return self._whole, frozenset(path.as_posix() for path in linked)

    def _move_linked(self, field: str) -> None:
        """Move the shards of a field with a second name out of the folder where tasks write."""
        for name in _names(self.shards / field):
            path = self.shards / field / name
            with fsops.guarded(path):
                status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                _renamed(path, self.linked / field / name)

    def keep_or_remove(self, error: BaseException) -> None:
        """Keep finished shards for the next run, or remove everything, depending on the error.

        Raises:
            LostStagingError: the folder is gone.
        """
        if isinstance(error, Exception) and not self.work.is_dir():
            msg = (
                f"{self.folder}: another builder took this build over, or somebody removed it. "
                "Run the same command again."
            )
            raise LostStagingError(msg) from error
        shard_count = len(self._reported(len(_numbers(self.records))))
        if isinstance(error, _SPOILED) or not shard_count:
            discard(self.folder)
        else:
            phrase = "1 shard is" if shard_count == 1 else f"{shard_count:,} shards are"
            error.add_note(f"{phrase} done and kept: the same command goes on.")


def _names(folder: Path) -> list[str]:
    """Return the names in a folder; empty if it is gone, as another builder may remove it."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []


def _numbers(records: Path) -> list[int]:
    return sorted(int(name) for name in _names(records) if name.isdecimal())


def _holds(path: Path, size: int, digest: str, *, longer: bool) -> bool:
    """Return whether the first `size` bytes of a file have this digest.

    More bytes may follow only if it may be `longer`.
    """
    try:
        if path.stat().st_size > size and not longer:
            return False
        return digest_head(path, size).hexdigest() == digest
    except OSError:
        return False


# -------------------------------------------------------------------------------------- one builder


@contextlib.contextmanager
def claim(place: Path, key: str) -> Iterator[Staging]:
    """Create the folder of a build, and take over the work of builders of this key that are gone.

    Args:
        place: the parent folder of the finished cache.
        key: the fingerprint.

    Raises:
        LostStagingError: another builder took the folder over during the build.
        StorageError: the folder of unfinished builds is a link.

    Notes:
        Where locks work, a builder is gone when its process is. On a network file system it is gone
        when it has not touched its OWNER for half an hour; a builder that was only suspended finds
        its paths gone, and stops.
    """
    building = place / layout.BUILDING
    fsops.make_directory(place)
    folders.check_real(building, " and run the same command again")
    staging = Staging(building / f"{key}.{uuid.uuid4().hex}")
    with contextlib.ExitStack() as stack:
        since = stack.enter_context(_lock_folder(staging.folder))
        _clear(building, key)
        for leftover in _abandoned(building, key, since):
            if _is_work(leftover):
                with contextlib.suppress(OSError), folders.open_folder(leftover) as descriptor:
                    # Fails if another builder was faster, or if this one has work already.
                    fsops.rename(leftover / _WORK, staging.work, descriptor)
            discard(leftover)
        with fsops.guarded(staging.work):
            folders.drop_links(staging.work)
        try:
            yield staging
        except BaseException as error:
            staging.keep_or_remove(error)
            raise
        discard(staging.folder)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[float | None]:
    """Create a folder that becomes visible only once locked, and keep it marked as in use.

    Returns:
        If locks cannot be trusted: the time before which a living owner cannot have been last seen
        [s of the server's clock]; else None.
    """
    private = folder.with_name(f".{folder.name}")
    local = machine.is_local(folder.parent)
    lock = None
    ended = threading.Event()
    try:
        # Empty, so that a rename of another builder's work can replace it.
        fsops.make_directory(private / _WORK, sync=False)
        owner_info = {"host": socket.gethostname(), "pid": os.getpid()}
        fsops.write_file(private / OWNER, canonical_json(owner_info), sync=False, mode=0o644)
        for _ in range(_TRIES if local else 0):
            lock = fsops.hold(private / OWNER, shared=False)
            if lock is not None:
                break
            time.sleep(_SOON_S)  # `cache gc` locks it for an instant to see whether it is in use
        _renamed(private, folder)
        # A power loss must not leave work under the private name, which no builder takes over.
        fsops.sync_directory(folder.parent)
        since = None
        if not local:
            threading.Thread(target=_beat, args=(folder / OWNER, ended), daemon=True).start()
            since = (folder / OWNER).stat().st_mtime - _STALE_S
        yield since
    finally:
        ended.set()
        if lock is not None:
            lock.close()
        if private.exists():
            discard(private)


def _beat(owner: Path, ended: threading.Event) -> None:
    while not ended.wait(_BEAT_S):
        with contextlib.suppress(StorageError):
            fsops.touch(owner)


def _abandoned(building: Path, key: str, since: float | None) -> list[Path]:
    """Return the folders of builders of this key that are gone, the one with most shards first.

    Args:
        building: the folder of unfinished builds.
        key: the fingerprint.
        since: an owner that has not touched its OWNER since then [s of the server's clock] is gone;
            None: locks decide.
    """
    candidates = [building / name for name in _names(building) if name.startswith(f"{key}.")]
    abandoned = [
        path for path in candidates if folders.is_real(path) and is_gone(path / OWNER, since)
    ]
    return sorted(abandoned, key=lambda path: -len(_numbers(Staging(path).records)))


def is_gone(owner: Path, since: float | None) -> bool:
    """Return whether the builder of this OWNER is gone; a builder without OWNER is.

    Args:
        owner: the file.
        since: an owner that has not touched it since then [s of the server's clock] is gone; None:
            locks decide.
    """
    try:
        if since is not None:
            return owner.stat().st_mtime < since
        lock = fsops.hold(owner, shared=False)
    except FileNotFoundError:
        return True  # lost in a power loss, or the whole folder is gone
    except (OSError, StorageError):
        return False
    if lock is None:
        return False
    lock.close()
    return True


def remove_abandoned(place: Path, key: str) -> None:
    """Remove leftovers of builders of this key that are gone, because its cache exists."""
    building = place / layout.BUILDING
    if folders.is_real(building):
        _clear(building, key)
    if folders.is_real(building) and machine.is_local(place):
        for leftover in _abandoned(building, key, None):
            discard(leftover)


def _is_work(folder: Path) -> bool:
    """Return whether the work of a builder that is gone holds only files that a build writes.

    Links do not count: they are dropped.
    """
    for place, names, files in os.walk(folder / _WORK):
        inner = Path(place).relative_to(folder)
        if len(inner.parts) > folders.DEEPEST:
            return False
        for name in names:  # a folder in the place of a file
            if is_ours(f"{inner}/{name}"):
                return False
        for name in files:
            if not is_ours(f"{inner}/{name}") and stat.S_ISREG(os.lstat(Path(place, name)).st_mode):
                return False
    return True


def is_ours(name: str) -> bool:
    """Return whether a build writes a file of this name, relative to its folder."""
    unfinished = _UNFINISHED.fullmatch(name)
    if unfinished is not None:
        name = (unfinished[1] or "") + unfinished[2]
    shards = _SHARDS.match(name)
    return _BESIDE.fullmatch(name) is not None or (
        shards is not None and is_of_cache(name[shards.end() :])
    )


def is_of_cache(name: str) -> bool:
    """Return whether a cache may hold a file of this name, relative to it."""
    return (
        name in _DOCUMENTS
        or name.rpartition("/")[2] == layout.ZARR
        or layout.shard_of(name) is not None
    )


def discard(folder: Path) -> tuple[bool, list[Path]]:
    """Remove a folder of a build; renames it first.

    Without its name no builder writes there, or takes it over half removed.

    Returns:
        Whether it is completely removed, and the files that stay because no build writes such
        files.
    """
    hidden = folder.with_name(f".{folder.name.lstrip('.').removesuffix(GONE)}{GONE}")
    with contextlib.suppress(OSError):
        fsops.rename(folder, hidden)
    strange: list[Path] = []
    for place in dict.fromkeys((folder, hidden)):
        with contextlib.suppress(StorageError):
            strange += folders.remove_tree(place, is_ours)
    remaining = [place for place in (folder, hidden) if os.path.lexists(place)]
    fsops.remove_empty(folder.parent)  # only where no other builder is at work
    return not remaining, strange


def _clear(building: Path, key: str) -> None:
    """Remove folders of builders of this key that were killed while they removed them."""
    for name in _names(building):
        if name.startswith(f".{key}.") and name.endswith(GONE):
            with contextlib.suppress(StorageError):
                folders.remove_tree(building / name, is_ours)
    fsops.remove_empty(building)


def _renamed(source: Path, target: Path) -> None:
    try:
        fsops.rename(source, target)
    except OSError as error:
        raise fsops.as_storage_error(error, source) from error
