"""Give a finished folder the name of its cache, by one rename.

Another builder may have published the same inputs first: then both must have made the same content.
A damaged cache of that name, or a build that was not deterministic, moves to the trash:

    .trash/<key>.<uuid>    never read again
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from pathlib import Path
from typing import Literal

from datacheck.cache import layout
from datacheck.cache.manifest import Manifest, read_manifest
from datacheck.cache.store import open_store
from datacheck.errors import (
    CorruptionError,
    LostStagingError,
    NondeterministicBuildError,
    StorageError,
    UsageError,
)
from datacheck.runtime import folders, fsops

PublishOutcome = Literal["new", "theirs"]

# Only a process that writes damaged caches under this name needs a second try.
_PUBLISH_TRIES = 5
_SET_ASIDE_TRIES = 20


def publish(folder: Path, target: Path, manifest: Manifest) -> PublishOutcome:
    """Rename a finished folder to its place, and make the name durable.

    Args:
        folder: complete and synced.
        target: the cache's name; another builder may have taken it first.
        manifest: of `folder`.

    Returns:
        "new", or "theirs" if another builder published the same content first.

    Raises:
        NondeterministicBuildError: another builder published other content first; `folder` is kept
            in the trash.
        LostStagingError: another builder took `folder` over.
        StorageError: whenever this build moved a damaged cache aside, another one took its place.
        SyncFailedError: the device did not store the name.
    """
    for _ in range(_PUBLISH_TRIES):
        if _rename_to_free_name(folder, target):
            fsops.sync_directory(folder.parent)
            acknowledge(target)
            return "new"
        theirs = _readable_manifest(target)
        if theirs is not None:
            check_same(folder, target, target.parent, manifest, theirs)
            acknowledge(target)
            return "theirs"
        with contextlib.suppress(FileNotFoundError):  # damaged since this build began
            set_aside(target, target.parent)
    msg = (
        f"{target}: {_PUBLISH_TRIES} times this build moved a damaged cache of this name aside, "
        f"and each time another process wrote a new one. Stop that process, then run the same "
        f"command again."
    )
    raise StorageError(msg)


def _rename_to_free_name(folder: Path, target: Path) -> bool:
    """Rename a finished folder; return False if a cache has the name already."""
    try:
        fsops.rename(folder, target)
    except OSError as error:
        if target.exists():
            return False
        if error.errno == errno.ENOENT:
            msg = f"{folder}: another builder took this build over. Run the same command again."
            raise LostStagingError(msg) from error
        raise fsops.as_storage_error(error, target) from error
    return True


def _readable_manifest(cache: Path) -> Manifest | None:
    try:
        return read_manifest(open_store(cache))
    except (CorruptionError, UsageError):
        return None


def replace(folder: Path, target: Path, manifest: Manifest, damaged: os.stat_result) -> Path | None:
    """Replace a damaged cache by a finished folder, and make the name durable.

    Args:
        folder: complete and synced.
        target: the cache's name.
        manifest: of `folder`.
        damaged: the `stat` result of the damaged cache.

    Returns:
        The path of the damaged cache in the trash; None if it is gone, or if another builder
        replaced it with the same content.

    Raises:
        NondeterministicBuildError: another builder replaced it with other content.
        SyncFailedError: the device did not store the name.

    Notes:
        At any moment one of the two has the name. Where the file system cannot exchange two names,
        for a moment none has it: a process killed then leaves both folders, and a build continues
        from there.
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
    """Make the name of a published cache durable, even if another builder has just renamed it.

    Raises:
        SyncFailedError: the device did not store it.
    """
    fsops.sync_directory(target.parent)  # `staging.claim` has synced the names above


def check_same(
    folder: Path, target: Path | str, place: Path, ours: Manifest, theirs: Manifest
) -> None:
    """Raise unless two caches have the same content.

    Args:
        folder: our cache; moved to the trash of `place` if they differ.
        target: the other cache.
        place: the folder in which ours was built.
        ours, theirs: the manifests.

    Raises:
        NondeterministicBuildError: they differ.
    """
    path = first_difference(ours, theirs)
    if path is None:
        return
    aside = set_aside(folder, place)
    msg = (
        f"{target}: another build of the same inputs published other content; the first file that "
        f"differs: "
        f"{path}. A transform is not deterministic. What this build made lies in {aside}"
    )
    raise NondeterministicBuildError(msg)


def first_difference(ours: Manifest, theirs: Manifest) -> str | None:
    """Return the first file in which two caches differ; None if their content is the same.

    Notes:
        Another version of the codec may compress shards differently. For shards of fields the
        digests of the decoded chunks must agree, which are files, too.
    """
    paths = sorted({*ours.files, *theirs.files})
    difference = next((path for path in paths if _differs(path, ours, theirs)), None)
    return (
        layout.MANIFEST
        if difference is None and ours.content_root != theirs.content_root
        else difference
    )


def _differs(path: str, own_manifest: Manifest, other_manifest: Manifest) -> bool:
    our_entry = own_manifest.files.get(path)
    their_entry = other_manifest.files.get(path)
    if (
        our_entry is not None
        and their_entry is not None
        and path.startswith("fields/")
        and layout.shard_of(path) is not None
    ):
        return False
    return our_entry != their_entry


def set_aside(folder: Path, place: Path, name: str = "") -> Path:
    """Move a folder to the trash in `place`; return its new path.

    Args:
        folder: the folder to move.
        place: the folder of a split.
        name: name of its cache, if that differs from the folder's name.

    Raises:
        FileNotFoundError: the folder is gone, which is a valid outcome.
        StorageError: the trash is a link, or the operating system refuses.
    """
    aside = place / layout.TRASH / f"{name or folder.name}.{uuid.uuid4().hex}"
    for tries in reversed(range(_SET_ASIDE_TRIES)):
        folders.check_real(aside.parent, "")
        fsops.make_directory(aside.parent, sync=False)
        try:
            # A link that takes the place of the trash in between is not followed.
            with folders.open_folder(aside.parent) as trash:
                fsops.rename(folder, aside, None, trash)
        except OSError as error:
            # `cache gc` may have removed the empty trash in between.
            if error.errno == errno.ENOENT and not folder.exists():
                raise
            if error.errno != errno.ENOENT or not tries:
                raise fsops.as_storage_error(error, folder) from error
        else:
            break
    return aside
