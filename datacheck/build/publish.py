"""The rename that makes a finished folder a cache, and what becomes of what stood in its place.

.trash/<key>.<uuid>    damaged caches, builds that were not deterministic; never read again
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path
from typing import Literal

from datacheck import fsops
from datacheck.cache import layout
from datacheck.cache.manifest import Manifest, read_manifest
from datacheck.cache.store import open_store
from datacheck.errors import CorruptionError, LostStagingError, NondeterministicBuildError, UsageError

_TRIES = 20


def publish(folder: Path, target: Path, manifest: Manifest) -> Literal["new", "theirs"]:
    """Rename a finished folder to its place, and make the name durable.

    Args:
        folder: complete and synced.
        target: the cache's name; another builder may have been faster.
        manifest: of `folder`.

    Returns:
        "new", or "theirs" where another builder was first with the same content.

    Raises:
        NondeterministicBuildError: it was first with other content; ours is kept in the trash.
        LostStagingError: another builder took `folder` over.
        SyncFailedError: the device did not take the name.
    """
    came: Literal["new", "theirs"] = "new"
    try:
        fsops.rename(folder, target)
    except OSError as error:
        if not target.exists():
            if error.errno == errno.ENOENT:
                msg = f"{folder}: another builder took this build over. Run the same command again."
                raise LostStagingError(msg) from error
            raise fsops.refused(error, target) from error
        try:
            theirs = read_manifest(open_store(target))
        except (CorruptionError, UsageError):  # damaged since this build began
            with contextlib.suppress(FileNotFoundError):
                set_aside(target, target.parent)
            return publish(folder, target, manifest)
        agree(folder, target, target.parent, manifest, theirs)
        came = "theirs"
    else:
        fsops.sync_directory(folder.parent)
    acknowledge(target)
    return came


def replace(folder: Path, target: Path, manifest: Manifest, damaged: os.stat_result) -> Path | None:
    """Put a finished folder in the place of a damaged cache, and make the name durable.

    Args:
        folder: complete and synced.
        target: the cache's name.
        manifest: of `folder`.
        damaged: what `stat` says of the damaged cache.

    Returns:
        Where the damaged cache lies now; None where it is gone, or another builder replaced it with the same content.

    Raises:
        NondeterministicBuildError: with other content.
        SyncFailedError: the device did not take the name.

    Notes:
        At any moment one of the two has the name. Where the file system cannot let two names change places, for a
        moment none has: who is killed then leaves both, and a build goes on where this ended.
    """
    aside = None
    with contextlib.suppress(FileNotFoundError):  # the damaged one is gone
        if os.path.samestat(target.stat(), damaged):
            if fsops.exchange(folder, target):
                fsops.sync_directory(folder.parent)
                acknowledge(target)
                return set_aside(folder, target.parent, target.name)
            aside = set_aside(target, target.parent)
    publish(folder, target, manifest)
    return aside


def acknowledge(target: Path) -> None:
    """Make the name of a published cache durable; also for one that another builder renamed a moment ago.

    Raises:
        SyncFailedError: the device did not take it.
    """
    fsops.sync_directory(target.parent)  # the names above have been since `staging.claimed`


def agree(folder: Path, target: Path | str, place: Path, ours: Manifest, theirs: Manifest) -> None:
    """Raise unless two caches hold the same.

    Args:
        folder: ours; kept in the trash of `place` where they differ.
        target: theirs.
        place: where ours grew.
        ours, theirs: the manifests.

    Raises:
        NondeterministicBuildError: they differ.
    """
    path = differing(ours, theirs)
    if path is None:
        return
    aside = set_aside(folder, place)
    msg = (
        f"{target}: another build of the same inputs published other content; the first file that differs: "
        f"{path}. A transform is not deterministic. What this build made lies in {aside}"
    )
    raise NondeterministicBuildError(msg)


def differing(ours: Manifest, theirs: Manifest) -> str | None:
    """Return the first file in which two caches differ, or None where they hold the same.

    Notes:
        Shards of fields may be compressed by another version of the codec: of them the digests of the decoded chunks
        must agree, which are files, too.
    """
    paths = sorted({*ours.files, *theirs.files})
    found = next((path for path in paths if _differs(path, ours, theirs)), None)
    return layout.MANIFEST if found is None and ours.content_root != theirs.content_root else found


def _differs(path: str, ours: Manifest, theirs: Manifest) -> bool:
    one, other = ours.files.get(path), theirs.files.get(path)
    if one is not None and other is not None and path.startswith("fields/") and layout.shard_of(path) is not None:
        return False
    return one != other


def set_aside(folder: Path, place: Path, name: str = "") -> Path:
    """Move what is not to be used but may be looked at to the trash in `place`; return where it is now.

    Args:
        folder: what is moved.
        place: the folder of a split.
        name: of the cache that it is, where the folder has another one.

    Raises:
        FileNotFoundError: it is gone: an answer, not a fault.
        StorageError: the operating system refuses.
    """
    aside = place / layout.TRASH / f"{name or folder.name}.{uuid.uuid4().hex}"
    for tries in reversed(range(_TRIES)):
        fsops.make_directory(aside.parent, sync=False)
        try:
            fsops.rename(folder, aside)
        except OSError as error:
            # `cache gc` removes the trash when it is empty, also at this moment
            if error.errno == errno.ENOENT and not folder.exists():
                raise
            if error.errno != errno.ENOENT or not tries:
                raise fsops.refused(error, folder) from error
        else:
            break
    return aside
