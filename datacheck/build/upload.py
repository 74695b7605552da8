"""Publish a finished folder in an object store: upload an attempt, then commit it by one request.

A store has no rename. Every file goes below a prefix of this attempt, and one small commit document
then names the attempt that is the cache. Files of attempts without a commit are never read.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from datacheck.build import staging
from datacheck.build.publish import PublishOutcome, check_same
from datacheck.cache import Cache, layout, open_cache
from datacheck.cache.bucket import ATTEMPT, Bucket, commit_document, newest_buckets
from datacheck.cache.concurrent_map import concurrent_map
from datacheck.cache.manifest import Manifest, read_manifest
from datacheck.cache.parsing import most_bytes, parse_document
from datacheck.errors import StorageError, UsageError
from datacheck.runtime import fsops
from datacheck.runtime.beneath import read_file
from datacheck.runtime.hashing import canonical_json, digest_bytes

UploadProgress = Callable[[int, int], None]  # bytes sent so far, bytes in total

_ATTEMPT = "attempt"  # file next to the uploaded folder: the attempt and the URL
_DIGEST = "xxh3"  # attribute of an object: the digest of its bytes
_ALONGSIDE = 4  # concurrent uploads of files
_LOCK_TRIES = 3


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
        uploaded = self._uploaded(prefix, files) if known else set()
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

    def _uploaded(self, prefix: str, files: Mapping[str, tuple[int, str]]) -> set[str]:
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
        """Raise if the store has another size of a file than was sent."""
        sizes = self._sizes(prefix)
        for path in sorted(files):
            sent, stored = files[path][0], sizes.get(path)
            if stored != sent:
                msg = (
                    f"{self.path}: the store took {path} and now says {stored or 0:,} bytes, not "
                    f"{sent:,}. Nothing was published; run the same command again."
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
