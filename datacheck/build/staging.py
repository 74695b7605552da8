"""Where a cache grows before it has its name: a folder of one builder, whose work others take over when it is gone.

Correctness never depends on a lock: a folder is private, what is found in it proves itself by
digests, and one rename makes it a cache. Locks only tell whether a builder is still at work, so
that its shards are not made twice.

    .building/<key>.<uuid>
        OWNER          locked while the builder lives
        work
            records    what is known of each finished shard
            shards     what becomes the cache; `whole` once no task may write there any more
            linked     shards of an earlier cache under a second name, where no task may write; they
            join at the end
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from datacheck.build import provenance
from datacheck.build.plan import BuildPlan
from datacheck.build.provenance import ShardRecord
from datacheck.build.shard_worker import shard_file
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
from datacheck.runtime.hashing import canonical_json, digest_head
from datacheck.runtime.machine import usable_cpus

OWNER, _WORK = "OWNER", "work"
AGAIN = "again"  # what is known of shards that are made a second time
GONE = ".gone"  # of a hidden folder that is being removed
_BEAT_S, _STALE_S = (
    60.0,
    1800.0,
)  # where locks cannot be trusted: how often an owner says that it lives, and until when
_TRIES = 20
_SOON_S = 0.01
_DOCUMENTS = {layout.SOURCES, layout.INPUTS, layout.FINDINGS, *OUTSIDE}
_UNFINISHED = re.compile(
    r"(.*/)?\.([^/]+)\.[0-9a-f]+\.partial", re.DOTALL
)  # as `fsops.write_file` calls a file
_BESIDE = re.compile(rf"{OWNER}|({_WORK}/records|{AGAIN})/[0-9]+|{_WORK}/attempt")
_SHARDS = re.compile(rf"{_WORK}/(shards|whole|linked)/", re.DOTALL)
# After these nothing may be kept: another request, other bytes, or bytes that the device may not
# hold.
_SPOILED = (UsageError, NondeterministicBuildError, SyncFailedError)


class Staging:
    """The folder of an unfinished build.

    Args:
        folder: this builder's own.

    Attributes:
        shards: where tasks write the shards of every field.
        linked: where shards of an earlier cache are linked; a process that writes there would
            change that cache. What lies here is proven, and comes before a file of the same name in
            `shards`.
        records: where they write what is known of each.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / _WORK
        self.shards, self.records = self.work / "shards", self.work / "records"
        self.linked, self._whole = self.work / "linked", self.work / "whole"

    def kept(self, plan: BuildPlan) -> dict[int, ShardRecord]:
        """Make every folder that tasks write into; return the record of each shard that is finished already.

        Notes:
            Tasks make no folders, so that none of them can revive a removed build. A shard counts
            as finished when its record proves itself and every file has the size and the digest
            that the record says.
        """
        if self._whole.is_dir():  # the builder before was already completing it
            _renamed(self._whole, self.shards)
        fsops.make_directory(self.records, sync=False)
        for name in plan.specs:
            for place in (self.shards, self.linked):
                fsops.make_directory(place / layout.field_path(name), sync=False)
            self._move_linked(layout.field_path(name))
        with ThreadPoolExecutor(min(8, usable_cpus())) as threads:
            found = threads.map(lambda g: self._finished(plan, g), _numbers(self.records))
            kept = {one.g: one for one in found if one is not None}
        for name, spec in plan.specs.items():
            folder, wanted = (
                self.linked / layout.field_path(name),
                {shard_file(g, spec) for g in kept},
            )
            for file in [file for file in _names(folder) if file not in wanted]:
                fsops.remove_file(folder / file)
        return kept

    def drop_linked(self, plan: BuildPlan, shards: Iterable[int]) -> None:
        """Remove the linked files of shards that are made again."""
        for g in shards:
            for name, spec in plan.specs.items():
                fsops.remove_file(self.linked / layout.field_path(name) / shard_file(g, spec))

    def _finished(self, plan: BuildPlan, g: int) -> ShardRecord | None:
        try:
            found = provenance.saved_record(self.records, g)
        except StorageError:
            return None
        if found is None or not provenance.fits(found, plan):
            return None
        for name, spec in plan.specs.items():
            size, digest = found.whole.get(name, found.files[name])
            file = f"{layout.field_path(name)}/{shard_file(g, spec)}"
            path = self.linked / file
            if not path.exists():
                path = self.shards / file
            # the index of a ragged shard may follow already; it will be written once more
            if not _holds(
                path, size, digest, longer=spec.dim is not None and name not in found.whole
            ):
                return None
        return found

    def fence(self) -> tuple[Path, frozenset[str]]:
        """Return the folder of the shards under a new name, and which of its files were linked: these are proven.

        Notes:
            A task that Dask ran twice meets a folder that is gone.
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
        """Move the shards of a field that have a second name out of the folder where tasks write."""
        for name in _names(self.shards / field):
            path = self.shards / field / name
            with fsops.guarded(path):
                status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                _renamed(path, self.linked / field / name)

    def keep_or_remove(self, error: BaseException) -> None:
        """Keep what is finished for the next run, or remove all of it, as the error has it.

        Raises:
            LostStagingError: the folder is not there any more.
        """
        if isinstance(error, Exception) and not self.work.is_dir():
            msg = (
                f"{self.folder}: another builder took this build over, or somebody removed it. "
                "Run the same command again."
            )
            raise LostStagingError(msg) from error
        done = len(_numbers(self.records))
        if isinstance(error, _SPOILED) or not done:
            discard(self.folder)
        else:
            what = "1 shard is" if done == 1 else f"{done:,} shards are"
            error.add_note(f"{what} done and kept: the same command goes on.")


def _names(folder: Path) -> list[str]:
    """Return the names in a folder; it may go while it is read: another builder removes an empty one."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []


def _numbers(records: Path) -> list[int]:
    return sorted(int(name) for name in _names(records) if name.isdecimal())


def _holds(path: Path, size: int, digest: str, *, longer: bool) -> bool:
    """Tell whether the first `size` bytes of a file have this digest, and none follow unless it may be `longer`."""
    try:
        if path.stat().st_size > size and not longer:
            return False
        return digest_head(path, size).hexdigest() == digest
    except OSError:
        return False


# -------------------------------------------------------------------------------------- one builder


@contextlib.contextmanager
def claim(place: Path, key: str) -> Iterator[Staging]:
    """Give a build a folder of its own, with the work of builders of this key that are gone.

    Args:
        place: where the finished cache goes.
        key: the fingerprint.

    Raises:
        LostStagingError: while it was at work another builder took the folder over.
        StorageError: the folder of unfinished builds is a link.

    Notes:
        Where locks hold, a builder is gone when its process is. On a network file system, when it
        has not touched its OWNER for half an hour; one that only slept finds its paths gone, and
        stops.
    """
    building = place / layout.BUILDING
    fsops.make_directory(place)
    folders.check_real(building, " and run the same command again")
    staging = Staging(building / f"{key}.{uuid.uuid4().hex}")
    with contextlib.ExitStack() as stack:
        since = stack.enter_context(_lock_folder(staging.folder))
        _clear(building, key)
        for left in _abandoned(building, key, since):
            if _is_work(left):
                with contextlib.suppress(OSError), folders.open_folder(left) as held:
                    fsops.rename(
                        left / _WORK, staging.work, held
                    )  # another was faster, or we have some work already
            discard(left)
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
    """Make a folder that others see only when it is locked, and say that it is in use as long as it is.

    Returns:
        Where locks cannot be trusted: since when no owner can have been silent that lives [s of the
            server's clock].
    """
    private = folder.with_name(f".{folder.name}")
    local = machine.is_local(folder.parent)
    held, ended = None, threading.Event()
    try:
        fsops.make_directory(private / _WORK, sync=False)  # empty, it can be replaced by another's
        said = {"host": socket.gethostname(), "pid": os.getpid()}
        fsops.write_file(private / OWNER, canonical_json(said), sync=False, mode=0o644)
        for _ in range(_TRIES if local else 0):
            held = fsops.hold(private / OWNER, shared=False)
            if held is not None:
                break
            time.sleep(_SOON_S)  # `cache gc` looks whether anybody has it
        _renamed(private, folder)
        fsops.sync_directory(
            folder.parent
        )  # no power loss may leave work under the name that nobody takes over
        since = None
        if not local:
            threading.Thread(target=_beat, args=(folder / OWNER, ended), daemon=True).start()
            since = (folder / OWNER).stat().st_mtime - _STALE_S
        yield since
    finally:
        ended.set()
        if held is not None:
            held.close()
        if private.exists():
            discard(private)


def _beat(owner: Path, ended: threading.Event) -> None:
    while not ended.wait(_BEAT_S):
        with contextlib.suppress(StorageError):
            fsops.touch(owner)


def _abandoned(building: Path, key: str, since: float | None) -> list[Path]:
    """Return the folders of builders of this key that are gone, the one with most work first.

    Args:
        building: the folder of unfinished builds.
        key: the fingerprint.
        since: who has not touched its OWNER since then [s of the server's clock] is gone; None:
            locks tell.
    """
    mine = [building / name for name in _names(building) if name.startswith(f"{key}.")]
    found = [path for path in mine if folders.is_real(path) and is_gone(path / OWNER, since)]
    return sorted(found, key=lambda path: -len(_numbers(Staging(path).records)))


def is_gone(owner: Path, since: float | None) -> bool:
    """Tell whether the builder is gone whose OWNER this is; who has none is.

    Args:
        owner: the file.
        since: who has not touched it since then [s of the server's clock] is gone; None: locks
            tell.
    """
    try:
        if since is not None:
            return owner.stat().st_mtime < since
        held = fsops.hold(owner, shared=False)
    except FileNotFoundError:
        return True  # a power loss took it, or the whole folder is gone
    except (OSError, StorageError):
        return False
    if held is None:
        return False
    held.close()
    return True


def remove_abandoned(place: Path, key: str) -> None:
    """Remove what builders of this key left that are gone: its cache is there."""
    building = place / layout.BUILDING
    if folders.is_real(building):
        _clear(building, key)
    if folders.is_real(building) and machine.is_local(place):
        for left in _abandoned(building, key, None):
            discard(left)


def _is_work(left: Path) -> bool:
    """Tell whether the work of a builder that is gone holds nothing but what a build writes, and what it drops."""
    for place, names, files in os.walk(left / _WORK):
        inner = Path(place).relative_to(left)
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
    """Tell whether a build writes a file of this name, relative to its folder."""
    unfinished = _UNFINISHED.fullmatch(name)
    if unfinished is not None:
        name = (unfinished[1] or "") + unfinished[2]
    shards = _SHARDS.match(name)
    return _BESIDE.fullmatch(name) is not None or (
        shards is not None and is_of_cache(name[shards.end() :])
    )


def is_of_cache(name: str) -> bool:
    """Tell whether a cache may hold a file of this name, relative to it."""
    return (
        name in _DOCUMENTS
        or name.rpartition("/")[2] == layout.ZARR
        or layout.shard_of(name) is not None
    )


def discard(folder: Path) -> tuple[bool, list[Path]]:
    """Remove a folder of a build: first its name, so that nobody writes there or takes it over half removed.

    Returns:
        Whether nothing of it is left, and the files that stay because no build writes such.
    """
    hidden = folder.with_name(f".{folder.name.lstrip('.').removesuffix(GONE)}{GONE}")
    with contextlib.suppress(OSError):
        fsops.rename(folder, hidden)
    strange: list[Path] = []
    for place in dict.fromkeys((folder, hidden)):
        with contextlib.suppress(StorageError):
            strange += folders.remove_tree(place, is_ours)
    left = [place for place in (folder, hidden) if os.path.lexists(place)]
    fsops.remove_empty(folder.parent)  # only where no other builder is at work
    return not left, strange


def _clear(building: Path, key: str) -> None:
    """Remove what builders of this key were about to remove when they were killed."""
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
