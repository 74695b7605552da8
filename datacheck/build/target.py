"""Where a cache goes: a folder that one rename fills, or a prefix in an object store."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path
from typing import Protocol

from datacheck.build import publish, staging
from datacheck.build.publish import PublishOutcome
from datacheck.build.upload import BucketTarget, UploadProgress
from datacheck.cache import Cache, open_cache
from datacheck.cache.find import find_builds, newest_caches
from datacheck.cache.manifest import Manifest
from datacheck.cache.objects import Objects, parse_url
from datacheck.cache.store import is_url
from datacheck.errors import CorruptionError, StorageError, UsageError
from datacheck.runtime import folders, fsops


class Target(Protocol):
    """The destination of one cache."""

    @property
    def path(self) -> Path | str:
        """Its folder or URL."""

    @property
    def place(self) -> Path:
        """The folder whose subfolder the cache is built in."""

    def finished(self) -> tuple[Cache | None, Path | None]:
        """Return the existing cache; or the path to which a damaged one was moved."""

    def exists(self) -> bool:
        """Return whether there is a cache, damaged or not."""

    def newest(self) -> Path | str | None:
        """Return the newest finished cache of its split."""

    def earlier(self) -> list[Path]:
        """Return the finished caches of its split that a build may reuse, newest first."""

    def settle(self) -> None:
        """Make an existing cache durable, and remove leftovers of builders that are gone."""

    def publish(self, folder: Path, manifest: Manifest, sent: UploadProgress) -> PublishOutcome:
        """Publish the finished cache in `folder`; "theirs" if another builder was faster.

        Raises:
            NondeterministicBuildError: another builder published other content first; `folder` is
                kept in the trash.
        """


def parse_out(out: str | Path | None) -> Path | str:
    """Return the folder or the URL of caches; ``cache`` if none is given."""
    if out is None:
        return Path("cache")
    return out if is_url(out) else Path(out)


def parse_staging(staging: str | Path | None) -> Path | None:
    """Return the folder in which caches for a URL are built.

    Raises:
        UsageError: it is a URL itself.
    """
    if staging is None:
        return None
    if is_url(staging):
        msg = (
            f"{staging}: caches for a URL grow on a disk of this machine. Name a folder for "
            f"staging."
        )
        raise UsageError(msg)
    return Path(staging)


def check_writable(out: Path | str) -> None:
    """Raise if caches cannot be written to `out`; called before anything is scanned.

    Raises:
        UsageError: there is no such bucket.
        StorageError: `out` is not writable.
    """
    if isinstance(out, Path):
        return fsops.check_writable(out)
    place, prefix = parse_url(out)
    objects = Objects(place)
    probe = f"{prefix}/.{uuid.uuid4().hex}".lstrip("/")
    objects.create(probe, b"")
    with contextlib.suppress(StorageError):  # permission to write need not include to delete
        objects.remove([probe])
    return None


def target_of(out: Path | str, where: tuple[str, str, str], building: Path | None) -> Target:
    """Return the destination of a cache.

    Args:
        out: the folder or URL that holds caches.
        where: pipeline, split, key.
        building: the folder in which caches for a URL are built; None: ``datacheck/staging`` in the
            user's cache directory.
    """
    if is_url(out):
        return BucketTarget(
            "/".join([str(out).rstrip("/"), *where]), (building or _default()) / where[0] / where[1]
        )
    return FolderTarget(folder_of(Path(out), where))


def folder_of(out: Path, where: tuple[str, str, str]) -> Path:
    """Return the folder of a cache.

    Args:
        out: the folder that holds caches.
        where: pipeline, split, key.

    Raises:
        StorageError: the folder of the pipeline or of the split is a link.
    """
    path = Path(out, *where)
    for folder in (path.parents[1], path.parents[0]):
        folders.check_real(folder, ", or name another folder: --out DIR")
    return path


def _default() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else Path.home() / ".cache") / "datacheck" / "staging"  # noqa: PTH117


class FolderTarget:
    """A folder of caches; see `Target`."""

    def __init__(self, path: Path) -> None:
        self.path, self.place = path, path.parent

    def finished(self) -> tuple[Cache | None, Path | None]:
        """See `Target`."""
        if not self.exists():
            return None, None
        with contextlib.suppress(CorruptionError, UsageError):
            return open_cache(self.path, verify="manifest"), None
        try:
            return None, publish.set_aside(self.path, self.place)
        except FileNotFoundError:  # `cache gc` has just removed it
            return None, None

    def exists(self) -> bool:
        """See `Target`."""
        return self.path.exists()

    def is_begun(self) -> bool:
        """Return whether a build or a repair of the cache was begun and not finished."""
        return any(build.name.startswith(f"{self.path.name}.") for build in find_builds(self.place))

    def newest(self) -> Path | None:
        """See `Target`."""
        return next(iter(self.earlier()), None)

    def earlier(self) -> list[Path]:
        """See `Target`."""
        return newest_caches(self.place)

    def settle(self) -> None:
        """See `Target`."""
        publish.acknowledge(self.path)  # the builder that renamed it may not have synced it
        staging.remove_abandoned(self.place, self.path.name)

    def publish(self, folder: Path, manifest: Manifest, sent: UploadProgress) -> PublishOutcome:
        """See `Target`."""
        return publish.publish(folder, self.path, manifest)
