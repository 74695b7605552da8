"""What a finished cache says of where it came from: the inputs of its key, its sources, and how it was built."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from datacheck.cache import documents, layout
from datacheck.cache.place import Place
from datacheck.cache.reader import Cache
from datacheck.cache.store import open_store
from datacheck.errors import DatacheckError


@dataclass(frozen=True)
class About:
    """Where a cache came from.

    Args:
        said: what the key is a digest of (see docs/cache-format.md).
        transforms: those of the build, in order.
        recipe: equal for caches whose shards of equal samples are equal.
        files: how many files it was made from.
        nbytes: bytes of those files.
        build: what ``build.json`` says: when, where, by which versions; nothing guards it, and it may be absent.
    """

    said: Mapping[str, Any]
    transforms: list[Any]
    recipe: str
    files: int
    nbytes: int
    build: Mapping[str, Any]


def about(cache: Cache) -> About:
    """Return where a cache came from.

    Raises:
        CorruptionError: what says so is damaged.
    """
    place = Place.of_files(open_store(cache.path))
    inputs, sources = cache.document(layout.INPUTS), cache.document(layout.SOURCES)
    with place.sound(layout.INPUTS):
        said, recipe = dict(inputs["said"]), str(inputs["recipe"])
        transforms = list(said.get("transforms", []))
    with place.sound(layout.SOURCES):
        sizes = [documents.size_of(size) for size, _ in sources.get("files", {}).values()]
        total = documents.size_of(sum(sizes))
    build: dict[str, Any] = {}
    with suppress(DatacheckError, FileNotFoundError, ValueError):
        build = documents.parsed(place.store.read(layout.BUILD), layout.BUILD)
    return About(said, transforms, recipe, len(sizes), total, build)
