"""Publish a finished folder as a cache: by a rename, or by the upload and commit of an attempt.

.trash/<key>.<uuid>    damaged caches, builds that were not deterministic; never read again
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from datacheck.build import staging
from datacheck.cache import Cache, layout, open_cache
from datacheck.cache.bucket import ATTEMPT, Bucket, commit_document, newest_buckets
from datacheck.cache.concurrent_map import concurrent_map
from datacheck.cache.find import newest_caches
from datacheck.cache.manifest import Manifest, read_manifest
from datacheck.cache.objects import Objects, parse_url
from datacheck.cache.parsing import most_bytes, parse_document
from datacheck.cache.store import is_url, open_store
from datacheck.errors import (
    CorruptionError,
    LostStagingError,
    NondeterministicBuildError,
    StorageError,
    UsageError,
)
from datacheck.runtime import folders, fsops
from datacheck.runtime.beneath import read_file
from datacheck.runtime.hashing import canonical_json, digest_bytes

_TRIES = 20


def publish(folder: Path, target: Path, manifest: Manifest) -> Literal["new", "theirs"]:
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
        SyncFailedError: the device did not store the name.
    """
    outcome: Literal["new", "theirs"] = "new"
    try:
        fsops.rename(folder, target)
    except OSError as error:
        if not target.exists():
            if error.errno == errno.ENOENT:
                msg = f"{folder}: another builder took this build over. Run the same command again."
                raise LostStagingError(msg) from error
            raise fsops.as_storage_error(error, target) from error
        try:
            theirs = read_manifest(open_store(target))
        except (CorruptionError, UsageError):  # damaged since this build began
            with contextlib.suppress(FileNotFoundError):
                set_aside(target, target.parent)
            return publish(folder, target, manifest)
        check_same(folder, target, target.parent, manifest, theirs)
        outcome = "theirs"
    else:
        fsops.sync_directory(folder.parent)
    acknowledge(target)
    return outcome


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
        StorageError: the operating system refuses.
    """
    aside = place / layout.TRASH / f"{name or folder.name}.{uuid.uuid4().hex}"
    for tries in reversed(range(_TRIES)):
        fsops.make_directory(aside.parent, sync=False)
        try:
            fsops.rename(folder, aside)
        except OSError as error:
            # `cache gc` may have removed the empty trash in between.
            if error.errno == errno.ENOENT and not folder.exists():
                raise
            if error.errno != errno.ENOENT or not tries:
                raise fsops.as_storage_error(error, folder) from error
        else:
            break
    return aside


PublishOutcome = Literal["new", "theirs"]
UploadProgress = Callable[[int, int], None]  # bytes sent so far, bytes in total

_ATTEMPT = "attempt"  # file next to the uploaded folder: the attempt and the URL
_DIGEST = "xxh3"  # attribute of an object: the digest of its bytes
_ALONGSIDE = 4  # concurrent uploads of files
_LOCK_TRIES = 3


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
    path = Path(out, *where)
    for folder in (path.parents[1], path.parents[0]):
        folders.check_real(folder, ", or name another folder: --out DIR")
    return FolderTarget(path)


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
            return None, set_aside(self.path, self.place)
        except FileNotFoundError:  # `cache gc` has just removed it
            return None, None

    def exists(self) -> bool:
        """See `Target`."""
        return self.path.exists()

    def newest(self) -> Path | None:
        """See `Target`."""
        return next(iter(self.earlier()), None)

    def earlier(self) -> list[Path]:
        """See `Target`."""
        return newest_caches(self.place)

    def settle(self) -> None:
        """See `Target`."""
        acknowledge(self.path)  # the builder that renamed it may not have synced it
        staging.remove_abandoned(self.place, self.path.name)

    def publish(self, folder: Path, manifest: Manifest, sent: UploadProgress) -> PublishOutcome:
        """See `Target`."""
        return publish(folder, self.path, manifest)


class BucketTarget:
    """A prefix in an object store; see `Target`."""

    def __init__(self, url: str, place: Path) -> None:
        self.path, self.place = url, place
        self._bucket = Bucket(url)
        self._objects = self._bucket.objects

    def finished(self) -> tuple[Cache | None, Path | None]:
        """See `Target`.

        Raises:
            CorruptionError: the cache is damaged. A store has no rename, so nothing can replace it.
        """
        if not self.exists():
            return None, None
        return open_cache(self.path, verify="manifest"), None

    def exists(self) -> bool:
        """See `Target`."""
        return self._bucket.commit() is not None

    def newest(self) -> str | None:
        """See `Target`."""
        return next(iter(newest_buckets(self.path.rpartition("/")[0])), None)

    def earlier(self) -> list[Path]:
        """See `Target`; empty, because shards are never fetched from a store to be reused."""
        return []

    def settle(self) -> None:
        """See `Target`."""
        staging.remove_abandoned(self.place, self.path.rpartition("/")[2])

    def publish(self, folder: Path, manifest: Manifest, sent: UploadProgress) -> PublishOutcome:
        """See `Target`."""
        attempt, resumed = self._attempt(folder.parent / _ATTEMPT)
        raw = (folder / layout.MANIFEST).read_bytes()
        try:
            self._upload(folder, manifest, f"{self._bucket.prefix}/{attempt}", sent, known=resumed)
        # The bucket is gone. A `StorageError` keeps the finished shards, a `UsageError` does not.
        except UsageError as error:
            raise StorageError(str(error)) from None
        committed = self._commit(attempt, commit_document(attempt, raw))
        if committed == attempt:
            return "new"
        try:
            check_same(folder, self.path, self.place, manifest, read_manifest(Bucket(self.path)))
        finally:
            with contextlib.suppress(StorageError):  # leftovers cost space but are never read
                leftovers = self._objects.sizes(f"{self._bucket.prefix}/{attempt}")
                self._objects.remove(sorted(leftovers))
        return "theirs"

    def _attempt(self, file: Path) -> tuple[str, bool]:
        """Return the attempt to upload to, and whether a previous run has begun to upload to it."""
        note = _read_note(file)
        if note.get("url") == self.path and ATTEMPT.fullmatch(str(note.get("attempt"))):
            return str(note["attempt"]), True
        attempt = uuid.uuid4().hex
        fsops.write_file(file, canonical_json({"attempt": attempt, "url": self.path}), sync=False)
        return attempt, False

    # ---------------------------------------------------------------------------------------- files

    def _upload(
        self, folder: Path, manifest: Manifest, prefix: str, sent: UploadProgress, *, known: bool
    ) -> None:
        """Upload every file of the cache below `prefix`, its manifest last; skip existing files."""
        files = {path: manifest.files[path] for path in manifest.files}
        for path in (layout.BUILD, layout.MANIFEST):
            raw = (folder / path).read_bytes()
            files[path] = len(raw), digest_bytes(raw)
        uploaded = self._there(prefix, files) if known else set()
        total = sum(size for size, _ in files.values())
        sent_bytes = sum(files[path][0] for path in uploaded)
        todo = sorted(
            files.keys() - uploaded - {layout.MANIFEST}, key=lambda path: (-files[path][0], path)
        )
        puts = concurrent_map(
            lambda path: self._put(folder, prefix, path, files[path][1]), todo, _ALONGSIDE
        )
        for path, _ in zip(todo, puts, strict=True):
            sent_bytes += files[path][0]
            sent(sent_bytes, total)
        self._put(folder, prefix, layout.MANIFEST, files[layout.MANIFEST][1])
        self._check(prefix, files)

    def _put(self, folder: Path, prefix: str, path: str, digest: str) -> None:
        self._objects.put(f"{prefix}/{path}".lstrip("/"), folder / path, {_DIGEST: digest})

    def _there(self, prefix: str, files: Mapping[str, tuple[int, str]]) -> set[str]:
        """Return the files that a previous run uploaded with the right size and digest."""
        sizes = self._sizes(prefix)
        candidates = [path for path, (size, _) in sorted(files.items()) if sizes.get(path) == size]
        attributes = self._objects.attributes(
            [f"{prefix}/{path}".lstrip("/") for path in candidates]
        )
        return {
            path
            for path, entry in zip(candidates, attributes, strict=True)
            if (entry or {}).get(_DIGEST) == files[path][1]
        }

    def _sizes(self, prefix: str) -> dict[str, int]:
        folder_prefix = f"{prefix}/".lstrip("/")
        return {
            key.removeprefix(folder_prefix): size
            for key, size in self._objects.sizes(folder_prefix.rstrip("/")).items()
        }

    def _check(self, prefix: str, files: Mapping[str, tuple[int, str]]) -> None:
        sizes = self._sizes(prefix)
        wrong_path = next(
            (path for path in sorted(files) if sizes.get(path) != files[path][0]), None
        )
        if wrong_path is not None:
            msg = (
                f"{self.path}: the store took {wrong_path} and now says {sizes.get(wrong_path, 0):,} bytes, "
                f"not "
                f"{files[wrong_path][0]:,}. Nothing was published; run the same command again."
            )
            raise StorageError(msg)

    # ----------------------------------------------------------------------------------- the commit

    def _commit(self, attempt: str, document: bytes) -> str:
        """Create the commit by one request; return the attempt that is committed now.

        Raises:
            StorageError: no attempt is committed, or it is unknown which.
        """
        key = f"{self._bucket.prefix}/{layout.COMMIT}".lstrip("/")
        refused: StorageError | None = None
        for _ in range(_LOCK_TRIES):
            try:
                if self._objects.create(key, document):
                    return attempt
            except StorageError as error:  # it may have succeeded, with the answer lost
                refused = error
            try:
                commit = self._bucket.commit()
            except StorageError as error:
                msg = (
                    f"{self.path}: it is not known whether it was published; the same command "
                    f"finds out. {error}"
                )
                raise StorageError(msg) from error
            if commit is not None:
                return commit["attempt"]
        msg = (
            f"{self.path}: it could not be published. "
            f"{refused or 'The store says that it is there, and is not.'}"
        )
        raise StorageError(msg)


def _read_note(file: Path) -> dict[str, Any]:
    try:
        return parse_document(read_file(file, most_bytes(file.name)))
    except (OSError, ValueError):
        return {}
