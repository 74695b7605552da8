"""Digests of source files that a scan does not read whole: a build takes them, and the next one finds them.

What a file looked like when it was hashed stands in ``build.json``, the digest in ``sources.json`` of the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from datacheck.cache import layout
from datacheck.cache.documents import parsed
from datacheck.cache.find import newest_caches
from datacheck.cache.place import Place
from datacheck.cache.store import open_store
from datacheck.errors import DatacheckError
from datacheck.sources.entries import SETTLED_NS, Entry

STAMPS = "stamps"  # in build.json: size, mtime, ctime, inode and time of listing, by path


def stamps(sources: Mapping[str, Entry], hashed: Iterable[str]) -> dict[str, list[int]]:
    """Return what ``build.json`` says of the files that a build hashed itself."""
    return {path: list(sources[path][1:6]) for path in sorted(hashed)}


def hashed_before(out: Path | str, pipeline: str, split: str) -> dict[str, Entry]:
    """Return the files that the build of the newest cache of a split hashed itself, with their digests.

    Args:
        out: the folder of caches; of a URL nothing is known.
        pipeline, split: whose caches; "" for a dataset without splits.

    Notes:
        Files that had just been written when they were listed are left out: a second write may leave the same times.
    """
    caches = newest_caches(out / pipeline / (split or layout.WHOLE)) if isinstance(out, Path) else []
    for cache in caches[:1]:
        with suppress(DatacheckError, OSError, ValueError, LookupError, TypeError, AttributeError):
            place = Place.of_files(open_store(cache))
            said = parsed(place.store.read(layout.BUILD))[STAMPS]
            files = parsed(place.read(layout.SOURCES))["files"] if said else {}
            entries = [_entry(path, stamp, files[path][1]) for path, stamp in said.items()]
            return {one.path: one for one in entries if one.seen_ns - SETTLED_NS >= one.mtime_ns}
    return {}


def _entry(path: str, stamp: Sequence[int], digest: str) -> Entry:
    size, mtime, ctime, inode, seen = map(int, stamp)
    return Entry(path, size, mtime, ctime, inode, seen, digest)
