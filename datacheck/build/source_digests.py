"""Digests of source files that a scan did not read whole.

The build hashes them itself. ``build.json`` records their size and times at that moment
(`BuildJob.stamps`), ``sources.json`` their digests, and the next build takes a digest over while
size and times are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from datacheck.cache import layout
from datacheck.cache.find import newest_caches
from datacheck.cache.manifest import CacheFiles
from datacheck.cache.parsing import parse_document
from datacheck.cache.store import open_store
from datacheck.errors import DatacheckError, UsageError
from datacheck.sources.listing import Listing, digest_entry
from datacheck.sources.roots import SETTLED_NS, STAMP, Entry


def digested_entries(
    paths: Iterable[str], listing: Listing, hashed: Mapping[str, Entry]
) -> dict[str, Entry]:
    """Return the entries of files as the scan saw them, each with its digest.

    Args:
        paths: the files.
        listing: of the scan.
        hashed: entries with digests from an earlier build, see `hashed_before`.

    Raises:
        UsageError: a file is not in the listing (it was written while the scan ran).
        FormatError: a file can no longer be read.
    """
    return {path: _digested_entry(path, listing, hashed.get(path)) for path in paths}


def _digested_entry(path: str, listing: Listing, earlier: Entry | None) -> Entry:
    entry = listing.by_path.get(path)
    if entry is None:
        msg = f"{path}: was not there when the data were listed. Run the same command again."
        raise UsageError(msg)
    if entry.digest:
        return entry
    if earlier is not None and earlier[1 : 1 + STAMP] == entry[1 : 1 + STAMP]:
        return entry._replace(digest=earlier.digest)
    return entry._replace(digest=digest_entry(listing.root, path, listing.roots))


def hashed_before(out: Path | str, pipeline: str, split: str) -> dict[str, Entry]:
    """Return the files, with digests, that the build of the newest cache of a split hashed itself.

    Args:
        out: the folder of caches; for a URL the result is empty.
        pipeline, split: of the cache; "" for a dataset without splits.

    Notes:
        Leaves out files that had just been written when they were listed: a second write may leave
        the same times.
    """
    if not isinstance(out, Path):
        return {}
    for cache in newest_caches(out / pipeline / (split or layout.NO_SPLIT))[:1]:
        # A damaged document costs only the time to hash the files again.
        with suppress(DatacheckError, OSError, ValueError, LookupError, TypeError, AttributeError):
            return {
                entry.path: entry
                for entry in _recorded_entries(cache)
                if entry.seen_ns - SETTLED_NS >= entry.mtime_ns
            }
    return {}


def _recorded_entries(cache: Path) -> list[Entry]:
    cache_files = CacheFiles.of_files(open_store(cache))
    file_stamps = parse_document(cache_files.store.read(layout.BUILD))[layout.STAMPS]
    if not file_stamps:
        return []
    files = parse_document(cache_files.read(layout.SOURCES))["files"]
    return [_entry(path, stamp, files[path][1]) for path, stamp in file_stamps.items()]


def _entry(path: str, stamp: Sequence[int], digest: str) -> Entry:
    size, mtime, ctime, inode, seen = map(int, stamp)
    return Entry(path, size, mtime, ctime, inode, seen, digest)
