"""The changes that a cache's page shows: what differs from another cache of the same pipeline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from datacheck.build.input_differences import compare_caches
from datacheck.cache import Cache, open_cache
from datacheck.cache.diff import Diff, diff, same_digest_scheme
from datacheck.cache.find import neighbouring_caches
from datacheck.cache.reader import provenance
from datacheck.errors import CorruptionError, DatacheckError
from datacheck.report.rendering import items_within, shortened
from datacheck.report.words import relative_to_cwd

_MAX_COMPARED_BYTES = 16_000_000  # of values of each cache
_ROWS = 20  # shown of each kind of change
_MAX_TEXT = 600  # characters
_MAX_KEY = 300  # characters
_BYTE_BUDGETS = {"parts": 150_000, "fields": 100_000, "rows": 100_000}  # of the page


@dataclass(frozen=True)
class ComparedCache:
    """Another finished cache of the same pipeline and split.

    Args:
        cache: opened.
        before: whether it was built before the page's cache.
    """

    cache: Cache
    before: bool

    def digests(self, field: str) -> set[str]:
        """Return the digests of the shard files of a field."""
        if field not in self.cache.fields:
            return set()
        return {self.cache.manifest.files[file][1] for file in self.cache.shard_files(field)}


def cache_to_compare(cache: Cache) -> ComparedCache | None:
    """Return the newest cache built before `cache`, or else the newest later one; None without one.

    Notes:
        Neighbouring caches that cannot be opened are passed over; `cache ls` reports them.
    """
    try:
        older, newer = neighbouring_caches(cache.path)
    except DatacheckError:  # credentials that may read a bucket may not be allowed to list it
        return None
    for paths, before in ((older, True), (newer, False)):
        for path in paths:
            try:
                other = open_cache(path)
            except DatacheckError:
                continue
            if _is_other_build(cache, other):
                return ComparedCache(other, before)
    return None


def _is_other_build(cache: Cache, other: Cache) -> bool:
    same_data = (cache.root.pipeline, cache.root.split) == (other.root.pipeline, other.root.split)
    return same_data and cache.root.key != other.root.key


def changes(cache: Cache, other: ComparedCache | None) -> dict[str, Any] | None:
    """Return the differences between a cache and another one; None if there is no other one.

    Raises:
        CorruptionError: the stored bytes of `cache` differ from what was written.

    Notes:
        At most 16 MB of values are compared; further samples are compared by their digests and
        counted.
    """
    if other is None:
        return None
    path = other.cache.path
    shown_path = relative_to_cwd(path) if isinstance(path, Path) else path
    summary = {"before": other.before, "path": shortened(shown_path, _MAX_TEXT)}
    older, newer = (other.cache, cache) if other.before else (cache, other.cache)
    try:
        return summary | {
            "pair": [_counts(older), _counts(newer)],
            "alike": same_digest_scheme(older, newer),
            "read": _MAX_COMPARED_BYTES,
            **_changed_parts(older, newer),
            **_changed_samples(diff(older, newer, most=_MAX_COMPARED_BYTES)),
        }
    except DatacheckError as error:
        if isinstance(error, CorruptionError) and str(error).startswith(f"{cache.path}: "):
            raise  # the damage is in the page's own cache
        return summary | {"failed": shortened(str(error), _MAX_TEXT)}


def _counts(cache: Cache) -> dict[str, Any]:
    return {
        "key": shortened(cache.root.key, _MAX_KEY),
        "built": shortened(str(provenance(cache).build.get("built", "")), _MAX_KEY),
        "samples": len(cache),
        "valid": int(cache.usable.sum()),
        "bytes": sum(size for size, _ in cache.manifest.files.values()),
        "content_root": cache.manifest.content_root,
    }


def _changed_parts(older: Cache, newer: Cache) -> dict[str, Any]:
    rows = [
        _texts(difference.where, difference.before, difference.now)
        for difference in compare_caches(newer.path, older.path)
    ]
    return {"parts": items_within(rows, _BYTE_BUDGETS["parts"]), "all_parts": len(rows)}


def _changed_samples(cache_diff: Diff) -> dict[str, Any]:
    fields = [
        _texts(name, before or "none", now or "none")
        for name, (before, now) in cache_diff.fields.items()
    ]
    return {
        "fields": items_within(fields, _BYTE_BUDGETS["fields"]),
        "all_fields": len(fields),
        "unread": cache_diff.unread,
        "added": _first_rows(cache_diff.added, _texts),
        "removed": _first_rows(cache_diff.removed, _texts),
        "changed": _first_rows(cache_diff.changed.items(), _change_row),
        "verdicts": _first_rows(cache_diff.verdicts.items(), _verdict_row),
    }


def _change_row(item: tuple[str, Mapping[str, Any]]) -> list[str]:
    key, fields = item
    return _texts(key, "; ".join(f"{name}: {change}" for name, change in fields.items()))


def _verdict_row(item: tuple[str, tuple[Iterable[str], Iterable[str]]]) -> list[str]:
    key, (before, now) = item
    return _texts(key, ", ".join(before) or "valid", ", ".join(now) or "valid")


def _first_rows(items: Collection[Any], row: Callable[[Any], list[str]]) -> dict[str, Any]:
    """Return the number of items, and the first rows."""
    rows = [row(item) for item in islice(items, _ROWS)]
    return {"all": len(items), "rows": items_within(rows, _BYTE_BUDGETS["rows"])}


def _texts(*texts: str) -> list[str]:
    return [shortened(text, _MAX_TEXT) for text in texts]
