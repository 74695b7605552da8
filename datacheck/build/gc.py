"""Remove old caches, builds whose builder is gone, and the trash.

A cache is locked against readers, renamed into the trash, and only then removed: file by file as
its manifest lists them, the manifest last. A half-removed cache therefore has no name, and the next
run continues with it. Unknown files stay.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from datacheck.build import publish, staging
from datacheck.cache import layout
from datacheck.cache.find import newest_first
from datacheck.cache.manifest import OUTSIDE, exclusive_lock, read_manifest
from datacheck.cache.parsing import parse_document
from datacheck.cache.store import is_url, open_store
from datacheck.errors import CorruptionError, DatacheckError, StorageError, UsageError
from datacheck.runtime import folders, fsops, machine
from datacheck.runtime.beneath import ConfinedFolder, descriptor_path

Kind = Literal["cache", "build", "trash", "unknown"]

_DEPTH = 3  # root / pipeline / split / key
_KEY = re.compile(r"[0-9a-f]{16}")
_BUILD = re.compile(r"\.?[0-9a-f]{16}\.[0-9a-f]{32}(\.gone)?")
_TRASH = re.compile(r".+\.[0-9a-f]{32}")
_NEW_S = 3600.0  # a younger folder without an owner may just be in creation
# On a network file system an owner that was silent for this long is gone, even if clocks differ.
SILENT_S = 86400.0


@dataclass(eq=False)
class GcCandidate:
    """One entry below a folder of caches.

    Args:
        path: its folder, or its URL in an object store.
        kind: the kind of entry.
        goes: whether to remove it.
        why: the reason, in words.
        age: since its creation, or since it was moved to the trash [s]; 0 for "unknown".
        files: its plain files by device and inode (or key): the number of their names in it, their
            number of links, their size [bytes].
        strange: files left after the removal, because no cache or build has such files.
        root: the folder of caches that it was found in.
    """

    path: Path | str
    kind: Kind
    goes: bool
    why: str
    age: float
    files: Mapping[Any, tuple[int, int, int]] = field(default_factory=dict)
    strange: Sequence[Path | str] = field(default_factory=list)
    root: Path = Path()


def survey(
    root: str | os.PathLike[str],
    keep: int | None = None,
    older: float | None = None,
    *,
    unlocked: bool = False,
) -> list[GcCandidate]:
    """Return everything below a folder of caches and whether to remove it; changes nothing.

    Args:
        root: the folder of caches, or that of a pipeline or of a split; links in it are not
            followed.
        keep: how many of the newest caches of each split stay.
        older: younger entries stay [s]. If `keep` and `older` are None, every finished cache stays.
        unlocked: the caller guarantees that nothing reads the caches; used on network file systems,
            where readers are not visible.

    Raises:
        UsageError: there is no such folder, or it is a cache itself, or a URL.
        StorageError: the operating system refuses to list it. A folder below that cannot be listed
            is "unknown".
    """
    if is_url(root):
        msg = (
            f"{root}: caches in buckets are not collected. Delete one below its key, commit.json "
            f"first."
        )
        raise UsageError(msg)
    root = Path(root)
    if not root.is_dir():
        msg = f"{root}: no such folder"
        raise UsageError(msg)
    if (root / layout.MANIFEST).exists():
        msg = (
            f"{root}: a cache. Name the folder that holds its pipeline's caches, and say what "
            f"stays: --keep N"
        )
        raise UsageError(msg)
    if min(keep or 0, older or 0) < 0:
        msg = f"keep {keep}, older than {older} s: neither can be negative"
        raise UsageError(msg)
    try:
        _folders(root)
    except OSError as error:
        raise fsops.as_storage_error(error, root) from error
    candidates = list(
        _candidates(root, _Policy(keep, older, machine.is_local(root), unlocked), _DEPTH)
    )
    for candidate in candidates:
        candidate.root = root
    return candidates


def freed_bytes(found: Sequence[GcCandidate]) -> int:
    """Return how many bytes removal frees: those of files without a name elsewhere."""
    name_counts: Counter[Any] = Counter()
    inodes: dict[Any, tuple[int, int]] = {}
    for candidate in found:
        for inode, (names, links, size) in candidate.files.items():
            name_counts[inode] += names
            inodes[inode] = links, size
    return sum(size for inode, (links, size) in inodes.items() if name_counts[inode] >= links)


def remove(found: GcCandidate) -> bool:
    """Remove an entry of `survey`; return False if it is in use, gone, or a build that stays.

    Notes:
        `found.strange` then holds the files that were left.

    Raises:
        StorageError: the operating system refuses.
    """
    path = Path(found.path)
    try:
        # Held open, so that no folder on the path can be replaced by a link in between.
        with ConfinedFolder(found.root) as root:
            descriptor = root.open_plain(os.path.relpath(path.parent, found.root))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise fsops.as_storage_error(error, path.parent) from error
    parent_path = descriptor_path(descriptor)
    try:
        removed = _removed(found, parent_path / path.name)
    except StorageError as error:
        raise type(error)(str(error).replace(str(parent_path), str(path.parent))) from error
    finally:
        os.close(descriptor)
    found.strange = [
        path.parent / Path(strange_path).relative_to(parent_path) for strange_path in found.strange
    ]
    if path.parent.name in {layout.BUILDING, layout.TRASH}:
        fsops.remove_empty(path.parent)
    return removed


def _removed(candidate: GcCandidate, path: Path) -> bool:
    if candidate.kind == "build":
        removed, candidate.strange = staging.discard(path)
        return removed or bool(candidate.strange)
    with ExitStack() as stack:
        if _is_file(path / layout.MANIFEST) and machine.is_local(path):
            try:
                lock = exclusive_lock(path)
            except FileNotFoundError:
                return False
            if lock is None:
                return False
            stack.enter_context(lock)
        folder = path
        try:
            status = path.lstat()
        except FileNotFoundError:
            return False
        if candidate.kind == "cache":
            try:
                folder = publish.set_aside(folder, folder.parent)
            except FileNotFoundError:
                return False
            # A power loss must not restore the name after files are removed.
            fsops.sync_directory(folder.parent)
            fsops.sync_directory(path.parent)
        candidate.strange = _remove_files(folder, status)
        fsops.remove_empty(folder.parent)
    return True


@dataclass(frozen=True)
class _Policy:
    keep: int | None
    older: float | None
    local: bool
    unlocked: bool

    def of_age(self, age: float) -> str:
        """Return why an entry of this age stays, "" if it may be removed."""
        return "too young" if self.older is not None and age < self.older else ""

    def of_readers(self, path: Path) -> str:
        """Return why an entry that may have readers stays, "" if it may be removed."""
        if not self.local:
            return (
                ""
                if self.unlocked
                else "who reads it cannot be seen on this file system: --unlocked"
            )
        if not _is_file(path / layout.MANIFEST):
            return ""
        try:
            lock = exclusive_lock(path)
        except FileNotFoundError:
            return "just being removed"
        except StorageError:
            return "it cannot be locked"
        if lock is None:
            return "in use"
        lock.close()
        return ""


def _candidates(folder: Path, policy: _Policy, depth: int) -> Iterator[GcCandidate]:
    try:
        paths = _folders(folder)
    except OSError as error:
        why = f"cannot be listed: {(error.strerror or str(error)).lower()}"
        yield GcCandidate(folder, "unknown", goes=False, why=why, age=0.0)
        return
    if folder.name == layout.BUILDING:
        yield from _each(paths, lambda path: _build(path, policy))
    elif folder.name == layout.TRASH:
        yield from _each(paths, lambda path: _trash(path, policy))
    else:
        hidden = {path for path in paths if path.name.startswith(".")}
        caches = [
            path
            for path in paths
            if depth and path not in hidden and os.path.lexists(path / layout.MANIFEST)
        ]
        passed = {*hidden, *caches}
        for path in paths:
            if path.name in {layout.BUILDING, layout.TRASH} or (depth and path not in passed):
                yield from _candidates(path, policy, depth - 1)
        foreign = {path: why for path in caches if (why := _why_foreign(path))}
        yield from (
            GcCandidate(path, "unknown", goes=False, why=why, age=0.0)
            for path, why in foreign.items()
        )
        ours = newest_first(path for path in caches if path not in foreign)
        places = {path: place for place, path in enumerate(ours)}
        yield from _each(ours, lambda path: _cache(path, places[path], policy))


def _each(paths: Sequence[Path], describe: Callable[[Path], GcCandidate]) -> Iterator[GcCandidate]:
    for path in paths:
        try:
            candidate = describe(path)
        except FileNotFoundError:  # another process has removed it in between
            continue
        yield candidate


def _cache(path: Path, rank: int, policy: _Policy) -> GcCandidate:
    age = _age(path)
    if policy.keep is None and policy.older is None:
        why = "nothing says that it goes: --keep, --older-than"
    elif policy.keep is not None and rank < policy.keep:
        why = "the newest" if policy.keep == 1 else f"one of the {policy.keep} newest"
    else:
        why = policy.of_age(age) or policy.of_readers(path)
    return GcCandidate(path, "cache", not why, why or f"{rank} newer", age, _files(path))


def _why_foreign(path: Path) -> str:
    """Return why a folder with a manifest is no cache that a build published here, "" if it is."""
    store = open_store(path)
    try:
        read_manifest(store)
        key = layout.Root.of(parse_document(store.read(layout.ZARR))).key
    except (DatacheckError, FileNotFoundError, ValueError, LookupError, TypeError):
        return "its manifest or root is not that of a cache, damaged, or cannot be read"
    return "" if key == path.name else f"not named by its key, {key}"


def _build(path: Path, policy: _Policy) -> GcCandidate:
    owner = path / staging.OWNER
    age = _age(path)
    if _BUILD.fullmatch(path.name) is None:
        return GcCandidate(path, "unknown", goes=False, why="not named like a build", age=0.0)
    since = None if policy.local else time.time() - SILENT_S
    fresh = path.name.startswith(".") or not _is_file(owner)  # its owner may not hold the lock yet
    if fresh and not path.name.endswith(staging.GONE) and age < _NEW_S:
        why = "just being made"
    elif not staging.is_gone(owner, since):
        why = "at work"
    else:
        why = policy.of_age(age)
    return GcCandidate(path, "build", not why, why or "its builder is gone", age, _files(path))


def _trash(path: Path, policy: _Policy) -> GcCandidate:
    age = time.time() - path.stat().st_ctime  # the rename into the trash set ctime
    if _TRASH.fullmatch(path.name) is None:
        return GcCandidate(
            path, "unknown", goes=False, why="not named like what datacheck moves there", age=0.0
        )
    why = policy.of_age(age) or policy.of_readers(path)
    return GcCandidate(path, "trash", not why, why or "in the trash", age, _files(path))


# -------------------------------------------------------------------------------------------- files


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, sorted, without links."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return []


def _files(folder: Path) -> dict[tuple[int, int], tuple[int, int, int]]:
    inodes: dict[tuple[int, int], tuple[int, int, int]] = {}
    # Iterative, because folders may be nested a thousand deep and os.walk recurses.
    todo = [str(folder)]
    while todo:
        with suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                    continue
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    inode = status.st_dev, status.st_ino
                    inodes[inode] = inodes.get(inode, (0,))[0] + 1, status.st_nlink, status.st_size
    return inodes


def _remove_files(folder: Path, status: os.stat_result) -> list[Path]:
    """Remove the files of a cache, the manifest last, and empty folders; return the rest.

    Args:
        folder: its current path.
        status: the `stat` result of the intended folder; another folder in its place is not
            touched.
    """
    is_ours = _is_cache_file(folder)
    manifest = folder / layout.MANIFEST
    try:
        with folders.open_folder(folder) as descriptor:
            if not os.path.samestat(os.fstat(descriptor), status):
                return [folder]
            remaining = folders.empty(
                folder, descriptor, lambda name: name != layout.MANIFEST and is_ours(name)
            )
            strange = [path for path in remaining if path != manifest]
            # While files are left, the next run needs the manifest to tell which are a cache's.
            if not strange:
                strange = folders.empty(folder, descriptor, layout.MANIFEST.__eq__)
    except FileNotFoundError:
        return []
    except OSError as error:
        if error.errno not in folders.NO_FOLDER:
            raise fsops.as_storage_error(error, folder) from error
        return [folder]  # replaced by a link
    fsops.remove_empty(folder)
    return strange


def _is_cache_file(folder: Path) -> Callable[[str], bool]:
    """Return a predicate for the files of a cache: listed in its manifest.

    If the manifest is damaged, the names of the format decide.
    """
    try:
        return {*read_manifest(open_store(folder)).files, *OUTSIDE}.__contains__
    except (CorruptionError, UsageError):
        return staging.is_of_cache
