"""A cache in an object store: its objects, its commit, and its files as a `Store`.

    <root>/<pipeline>/<split>/<key>/commit.json     names the attempt that is the cache; created
                                                    last, once, by one request
    <root>/<pipeline>/<split>/<key>/<attempt>/...   the files of a cache

A folder that was copied to a bucket has no commit: its files lie at ``<key>/`` itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from datacheck.cache import layout
from datacheck.cache.objects import Objects, parse_url
from datacheck.cache.obstore_client import PART_BYTES
from datacheck.cache.parsing import most_bytes, parse_document
from datacheck.cache.shards import ShardCache
from datacheck.errors import CorruptionError, UsageError
from datacheck.runtime.hashing import Digester, canonical_json, digest_bytes

ATTEMPT = re.compile(r"[0-9a-f]{32}")
_DEPTH = 3  # root / pipeline / split / key
_CONCURRENT_FETCHES = 4  # parts fetched at a time when a file is read whole


def commit_document(attempt: str, manifest: bytes) -> bytes:
    """Return the content of ``commit.json``: the attempt, and the digest of its manifest file."""
    return canonical_json(
        {"attempt": attempt, "format": layout.FORMAT, "manifest": digest_bytes(manifest)}
    )


class Bucket:
    """A cache in an object store.

    Args:
        url: the URL of the cache, ``s3://bucket/prefix``; nothing is read yet.

    Notes:
        Sizes are listed once, because the files of a committed cache never change. Every other
        method makes requests; see `Objects` for the exceptions.
    """

    folder = None

    def __init__(self, url: str) -> None:
        place, self.prefix = parse_url(url)
        self.objects = Objects(place)
        self.where = f"{place}/{self.prefix}".rstrip("/")
        self._held: dict[str, bytes] = {}
        self._shards: ShardCache | None = None
        self._listed: Mapping[str, tuple[int, str]] = {}

    def keep(self, shards: ShardCache, files: Mapping[str, tuple[int, str]]) -> None:
        """See `Store`; keeps shards of fields, each once a sample of it is read."""
        self._shards, self._listed = shards, files

    # ----------------------------------------------------------------------------------- the commit

    def commit(self) -> dict[str, str] | None:
        """Return the commit as {"attempt", "manifest"}; None if nothing was committed.

        Raises:
            CorruptionError: the commit is damaged.
            UsageError: it is of a newer format.
        """
        return read_commit(self.objects, self.prefix)

    @cached_property
    def _committed(self) -> dict[str, str] | None:
        return self.commit()

    @cached_property
    def _base(self) -> str:
        """The prefix of the files, with a trailing slash."""
        if self._committed is not None:
            return f"{self.prefix}/{self._committed['attempt']}/".lstrip("/")
        parent, _, name = self.prefix.rpartition("/")
        if ATTEMPT.fullmatch(name):
            committed = read_commit(self.objects, parent)
            if committed is None or committed["attempt"] != name:
                msg = (
                    f"{self.where}: an attempt that was not committed, so this is no finished cache"
                )
                raise UsageError(msg)
        return f"{self.prefix}/".lstrip("/")

    # ------------------------------------------------------------------------------------ the files

    @cached_property
    def _sizes(self) -> dict[str, int]:
        sizes = self.objects.sizes(self._base.rstrip("/"))
        return {key.removeprefix(self._base): size for key, size in sizes.items()}

    def size(self, path: str) -> int | None:
        """See `Store`."""
        return self._sizes.get(path)

    def files(self) -> Iterator[tuple[str, int]]:
        """See `Store`."""
        yield from sorted(
            self._sizes.items(), key=lambda file: file[0].encode("utf-8", "surrogateescape")
        )

    def prefetch(self, paths: Iterable[str]) -> None:
        """See `Store`."""
        path_list = list(paths)
        # No more than is listed: the manifest limits the bytes of all documents together.
        most = [min(most_bytes(path), self._sizes.get(path, 0)) for path in path_list]
        self._fetch(path_list, most)

    def _fetch(self, paths: Sequence[str], most: Sequence[int]) -> None:
        contents = self.objects.get([self._base + path for path in paths], most)
        self._held |= {
            path: bytes(raw) for path, raw in zip(paths, contents, strict=True) if raw is not None
        }

    def read(self, path: str, most: int | None = None) -> bytes:
        """See `Store`."""
        if path not in self._held:
            self._fetch([path], [most_bytes(path) if most is None else most])
        if path not in self._held:
            raise FileNotFoundError(path)
        raw = self._held.pop(path)
        if (
            path == layout.MANIFEST
            and self._committed is not None
            and digest_bytes(raw) != self._committed["manifest"]
        ):
            msg = (
                f"{self.where}: {path} is not the one that was committed. Delete the cache and "
                f"build it again."
            )
            raise CorruptionError(msg)
        return raw

    def parts(self, wanted: Sequence[tuple[str, int, int]]) -> list[memoryview]:
        """See `Store`."""
        local_shards = {
            path: self._local_shard(path) for path in dict.fromkeys(path for path, _, _ in wanted)
        }
        remote_parts = iter(
            self._fetch_parts([request for request in wanted if local_shards[request[0]] is None])
        )
        ranges = [(local_shards[path], start, size) for path, start, size in wanted]
        return [
            next(remote_parts) if shard is None else shard[start : start + size]
            for shard, start, size in ranges
        ]

    def _local_shard(self, path: str) -> memoryview | None:
        """Return a shard from the local cache, fetched if needed; None if it is not kept there."""
        if self._shards is None or not path.startswith("fields/") or layout.shard_of(path) is None:
            return None
        size, digest = self._listed[path]
        return self._shards.get(digest, size, lambda: self.pieces(path, size))

    def _fetch_parts(self, wanted: Sequence[tuple[str, int, int]]) -> list[memoryview]:
        return self.objects.parts(
            [(self._base + path, start, size) for path, start, size in wanted]
        )

    def read_into(self, path: str, start: int, view: memoryview) -> None:
        """See `Store`; never fetches a whole shard, because this reads shard indices."""
        if len(view):
            view[:] = self._fetch_parts([(path, start, len(view))])[0]

    def pieces(self, path: str, size: int) -> Iterator[memoryview]:
        """Yield the first `size` bytes of a file, in order.

        Raises:
            CorruptionError: the file ends too early.
        """
        step = PART_BYTES * _CONCURRENT_FETCHES
        for start in range(0, size, step):
            ends = range(start, min(size, start + step), PART_BYTES)
            yield from self._fetch_parts(
                [(path, offset, min(PART_BYTES, size - offset)) for offset in ends]
            )

    def digest(self, path: str) -> str:
        """See `Store`."""
        hasher = Digester()
        for piece in self.pieces(path, self.size(path) or 0):
            hasher.update(piece)
        return hasher.hexdigest()

    def discard(self, path: str) -> bool:
        """See `Store`."""
        return (
            self._shards is not None
            and path in self._listed
            and self._shards.discard(self._listed[path][1])
        )


def read_commit(objects: Objects, prefix: str) -> dict[str, str] | None:
    """Return the commit at a prefix; see `Bucket.commit`."""
    key = f"{prefix}/{layout.COMMIT}".lstrip("/")
    (raw,) = objects.get([key], [most_bytes(layout.COMMIT)])
    if raw is None:
        return None
    try:
        document = parse_document(bytes(raw))
        newer = type(document["format"]) is int and document["format"] > layout.FORMAT
        commit = {"attempt": str(document["attempt"]), "manifest": str(document["manifest"])}
        damaged = not all(map(ATTEMPT.fullmatch, commit.values())) or document != commit | {
            "format": layout.FORMAT
        }
    except (ValueError, LookupError, TypeError):
        newer = False
        damaged = True
        commit = {}
    if newer:
        msg = (
            f"{objects.place}/{key}: format {document['format']}; this datacheck reads format "
            f"{layout.FORMAT}. Update it."
        )
        raise UsageError(msg)
    if damaged:
        msg = f"{objects.place}/{key}: damaged. Delete the cache and build it again."
        raise CorruptionError(msg)
    return commit


def find_attempts(url: str, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the URLs of uncommitted attempts below a URL, sorted.

    Their builders are at work, or gone.

    Notes:
        Skips a cache with a damaged commit, because its committed attempt is unknown.
    """
    place, prefix = parse_url(url)
    yield from _uncommitted(Objects(place), prefix, depth)


def _uncommitted(objects: Objects, prefix: str, depth: int) -> Iterator[str]:
    folders, names = objects.below(prefix)
    attempts = [name for name in folders if ATTEMPT.fullmatch(name)]
    if attempts:
        try:
            committed = read_commit(objects, prefix) if layout.COMMIT in names else None
        except (CorruptionError, UsageError):
            return
        yield from (
            f"{objects.place}/{prefix}/{name}"
            for name in attempts
            if name != (committed or {}).get("attempt")
        )
    elif depth:
        for name in folders:
            if not name.startswith("."):
                yield from _uncommitted(objects, f"{prefix}/{name}".lstrip("/"), depth - 1)


def find_buckets(url: str, depth: int = _DEPTH) -> Iterator[str]:
    """Yield the URLs of finished caches at and below a URL, sorted; skips dot names."""
    place, prefix = parse_url(url)
    yield from _finished_prefixes(Objects(place), prefix, depth)


def newest_buckets(url: str) -> list[str]:
    """Return the URLs of finished caches directly below a URL, newest first.

    Copies without a commit come last.
    """
    urls = list(find_buckets(url, 1))
    commits = [f"{parse_url(path)[1]}/{layout.COMMIT}" for path in urls]
    attributes = Objects(parse_url(url)[0]).attributes(commits)
    times = [entry["modified"] if entry is not None else "" for entry in attributes]
    return [path for _, path in sorted(zip(times, urls, strict=True), reverse=True)]


def _finished_prefixes(objects: Objects, prefix: str, depth: int) -> Iterator[str]:
    folders, names = objects.below(prefix)
    if {layout.COMMIT, layout.MANIFEST} & set(names):
        yield f"{objects.place}/{prefix}".rstrip("/")
    elif depth:
        for name in folders:
            if not name.startswith(".") and not ATTEMPT.fullmatch(name):
                yield from _finished_prefixes(objects, f"{prefix}/{name}".lstrip("/"), depth - 1)
