"""What changed between a cache and the one that was built before it: inputs, samples, fields, shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.build.explain import between
from datacheck.cache import Cache, open_cache
from datacheck.cache.about import about
from datacheck.cache.diff import Diff, alike, diff
from datacheck.cache.find import beside
from datacheck.errors import CorruptionError, DatacheckError
from datacheck.report.html import cut, within
from datacheck.report.words import folder_said

_READ = 16_000_000  # bytes of values of each cache that are compared
_SHOWN = 20
_TEXT, _KEY = 600, 300  # characters
_ROOM = {"parts": 150_000, "fields": 100_000, "shown": 100_000}


@dataclass(frozen=True)
class Earlier:
    """Another finished cache of the same pipeline and split.

    Args:
        cache: opened.
        before: whether it was built before the one that it is held against.
    """

    cache: Cache
    before: bool

    def digests(self, field: str) -> set[str]:
        """Return the digests of the shard files of a field."""
        if field not in self.cache.fields:
            return set()
        return {self.cache.manifest.files[file][1] for file in self.cache.shard_files(field)}


def earlier_of(cache: Cache) -> Earlier | None:
    """Return the newest cache that was built before one, of the first the newest of the others; None where none is.

    Notes:
        Caches beside it that cannot be opened are passed over: `cache ls` tells of them.
    """
    try:
        older, newer = beside(cache.path)
    except DatacheckError:  # who may read a cache in a bucket may not be allowed to list what is beside it
        return None
    for paths, before in ((older, True), (newer, False)):
        for path in paths:
            try:
                other = open_cache(path)
            except DatacheckError:
                continue
            one, two = other.root, cache.root
            if one.key != two.key and (one.pipeline, one.split) == (two.pipeline, two.split):
                return Earlier(other, before)
    return None


def changes(cache: Cache, other: Earlier | None) -> dict[str, Any] | None:
    """Return what tells a cache from another one, None where there is none.

    Raises:
        CorruptionError: what is stored in `cache` is not what was written.

    Notes:
        Of values no more than 16 MB are compared; the samples behind those are counted by their digests.
    """
    if other is None:
        return None
    said: dict[str, Any] = {"before": other.before, "path": cut(_where(other.cache), _TEXT)}
    first, second = (other.cache, cache) if other.before else (cache, other.cache)
    try:
        return said | {
            "pair": [_counted(one) for one in (first, second)], "alike": alike(first, second), "read": _READ,
            **_parts(first, second), **_told(diff(first, second, most=_READ)),
        }  # fmt: skip
    except DatacheckError as error:
        if isinstance(error, CorruptionError) and str(error).startswith(f"{cache.path}: "):
            raise  # it is the one that the page is of
        return said | {"failed": cut(str(error), _TEXT)}


def _where(cache: Cache) -> str:
    return folder_said(cache.path) if isinstance(cache.path, Path) else cache.path


def _counted(cache: Cache) -> dict[str, Any]:
    return {
        "key": cut(cache.root.key, _KEY), "built": cut(str(about(cache).build.get("built", "")), _KEY),
        "samples": len(cache), "valid": int(cache.usable.sum()),
        "bytes": sum(size for size, _ in cache.manifest.files.values()), "content_root": cache.manifest.content_root,
    }  # fmt: skip


def _parts(first: Cache, second: Cache) -> dict[str, Any]:
    found = [[cut(d.where, _TEXT), cut(d.before, _TEXT), cut(d.now, _TEXT)] for d in between(second.path, first.path)]
    return {"parts": within(found, _ROOM["parts"]), "all_parts": len(found)}


def _told(found: Diff) -> dict[str, Any]:
    fields = [[cut(text or "none", _TEXT) for text in (name, *pair)] for name, pair in found.fields.items()]
    return {
        "fields": within(fields, _ROOM["fields"]), "all_fields": len(fields), "unread": found.unread,
        "added": _shown(found.added, lambda key: [key]),
        "removed": _shown(found.removed, lambda key: [key]),
        "changed": _shown(found.changed.items(), _changed),
        "verdicts": _shown(found.verdicts.items(), _judged),
    }  # fmt: skip


def _changed(item: tuple[str, Mapping[str, Any]]) -> list[str]:
    key, fields = item
    return [key, "; ".join(f"{name}: {change}" for name, change in fields.items())]


def _judged(item: tuple[str, tuple[Iterable[str], Iterable[str]]]) -> list[str]:
    key, verdicts = item
    return [key, *(", ".join(codes) or "valid" for codes in verdicts)]


def _shown(items: Any, row: Callable[[Any], list[str]]) -> dict[str, Any]:
    """Return how many there are, and the first of them."""
    listed = list(items)
    rows = [[cut(text, _TEXT) for text in row(item)] for item in listed[:_SHOWN]]
    return {"all": len(listed), "rows": within(rows, _ROOM["shown"])}
