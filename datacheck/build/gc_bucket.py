"""Remove uncommitted attempts from an object store, whose builders are gone.

Nothing shows which builders are at work there, so an attempt stays until a day after its last
object. Caches are never removed, because their readers are not visible.
"""

from __future__ import annotations

import re
import time

from datacheck.build.gc import SILENT_S, GcCandidate
from datacheck.build.staging import is_of_cache
from datacheck.cache.bucket import find_attempts
from datacheck.cache.objects import Objects, parse_url
from datacheck.errors import UsageError

_PROBE = re.compile(r"\.[0-9a-f]{32}")  # object of a builder that tested for write permission


def survey(url: str, keep: int | None = None, older: float | None = None) -> list[GcCandidate]:
    """Return the uncommitted attempts below a URL and whether to remove them; changes nothing.

    Args:
        url: of caches, of a pipeline, of a split or of a cache.
        keep: of caches; refused.
        older: attempts that were silent for less stay [s]; at least a day.

    Raises:
        UsageError: there is no such bucket, or `keep` is given.
        StorageError: the store refuses.
    """
    if keep is not None:
        msg = (
            f"{url}: --keep: caches in buckets are not collected. Delete one below its key, "
            f"commit.json first."
        )
        raise UsageError(msg)
    place, prefix = parse_url(url)
    objects = Objects(place)
    silent = max(SILENT_S, older or 0)
    now = time.time()
    names = [
        f"{prefix}/{name}".lstrip("/")
        for name in objects.below(prefix)[1]
        if _PROBE.fullmatch(name)
    ]
    candidates = []
    for path in [*find_attempts(url), *(f"{place}/{name}" for name in names)]:
        files = _files(objects, path)
        age = now - max((stored_at for *_, stored_at in files), default=0)
        abandoned = age >= silent
        why = (
            "its builder is gone"
            if abandoned
            else "something came a short time ago: its builder may be at work"
        )
        candidates.append(
            GcCandidate(
                path, "build", abandoned, why, age, {key: (1, 1, size) for key, size, _ in files}
            )
        )
    return candidates


def remove(found: GcCandidate) -> bool:
    """Remove an attempt of `survey`; return False if its builder went on, or if it is gone.

    Raises:
        StorageError: the store refuses.

    Notes:
        `found.strange` then holds the objects that were left, because no build writes such objects.
    """
    objects = Objects(parse_url(str(found.path))[0])
    parent, _, name = str(found.path).rpartition("/")
    attempts = [found.path] if _PROBE.fullmatch(name) else find_attempts(parent, 0)
    files = _files(objects, str(found.path))
    if found.path not in attempts or {key: size for key, size, _ in files} != {
        k: f[2] for k, f in found.files.items()
    }:
        return False
    if not files or time.time() - max(stored_at for *_, stored_at in files) < SILENT_S:
        return False
    prefix = parse_url(str(found.path))[1]
    ours = {
        key for key, *_ in files if key == prefix or is_of_cache(key.removeprefix(f"{prefix}/"))
    }
    objects.remove(sorted(ours))
    found.strange = [f"{objects.place}/{key}" for key, *_ in files if key not in ours]
    return True


def _files(objects: Objects, url: str) -> list[tuple[str, int, int]]:
    """Return the objects of an attempt, or the single object of this name."""
    key = parse_url(url)[1]
    if _PROBE.fullmatch(key.rpartition("/")[2]):
        siblings = objects.listed(key.rpartition("/")[0])
        return [entry for entry in siblings if entry[0] == key]
    return objects.listed(key)
