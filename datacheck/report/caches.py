"""The page of a cache: what it holds, of what size, what is not served and what is in its place, where it came from.

Text of the user's goes into the page as JSON only, as that of a run's page does.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.cache import Cache, open_cache
from datacheck.cache.about import About, about
from datacheck.cache.problem import Problem
from datacheck.cache.verify import Depth, verify
from datacheck.errors import CorruptionError
from datacheck.preview.cached import of_cache
from datacheck.preview.numbers import thinned
from datacheck.report.changes import Earlier, changes, earlier_of
from datacheck.report.html import Kind, cut, joined, size_of, within
from datacheck.report.pictures import kept_within
from datacheck.report.served import codes
from datacheck.sample import ArraySpec

Array = np.ndarray[Any, Any]

COMMAND = "datacheck cache report"
_OF_CACHE = Kind(
    COMMAND, "Verdict", "contents",
    "datacheck cache info, verify and diff print much of it.", ("parts.js", "cache.js"),
)  # fmt: skip
_PICTURED = 6  # valid samples, and as many that stand in for others
_PICTURES, _ALL = 600_000, 2_800_000  # bytes of the page
_ROOM = {"fields": 350_000, "shards": 500_000, "problems": 200_000, "steps": 100_000}
_STRIP = 200  # cells of the drawing of all shards
_ROWS = 5_000  # shards in the table
_TEXT, _PATH, _SCHEMA = 1_000, 8_000, 16_000  # characters
_ENVIRONMENT = ("built", "host", "machine", "datacheck", "python", "numpy", "numerics")


def cache_page(cache: Mapping[str, Any]) -> bytes:
    """Return the bytes of the page of a cache.

    Args:
        cache: as `cache_said` gives it.
    """
    return joined(_OF_CACHE, cache, pictured=cache.get("previews") is not None)


def cache_said(place: Path | str, depth: Depth = "quick") -> dict[str, Any]:
    """Return what the page says of a finished cache, as JSON values of at most 2.8 MB.

    Args:
        place: its folder or URL.
        depth: how it is checked, see `verify`.

    Raises:
        UsageError: it is no finished cache, or of a newer format.
        StorageError: a disk or server refuses.

    Notes:
        Of a damaged cache ``checked.problems`` says what was found, and the rest is there as far as it can be read.
    """
    problems = verify(place, depth)
    said: dict[str, Any] = {}
    try:
        cache = open_cache(place)
        known = about(cache)
        said = _said(cache, known)
        said["previews"], damage = _previews(cache, known, said["unserved"], min(_PICTURES, _ALL - size_of(said)))
        problems = problems or [Problem("", str(error)) for error in damage]
    except CorruptionError as error:
        problems = problems or [Problem("", str(error))]
    shown = within(map(_problem, problems), _ROOM["problems"])
    checked = {
        "depth": depth, "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), "problems": shown,
        "all_problems": len(problems),
    }  # fmt: skip
    return {
        "place": cut(str(place), _TEXT),
        "quoted": cut(shlex.quote(str(place)), _PATH),
        "checked": checked,
        "cache": None,
    } | said


def _problem(problem: Problem) -> dict[str, str]:
    whom = [f"field {problem.field}" if problem.field else "", problem.samples]
    return {
        "file": cut(problem.file, _TEXT), "what": cut(problem.what, _TEXT),
        "whom": cut(", ".join(filter(None, whom)), _TEXT),
    }  # fmt: skip


def _said(cache: Cache, known: About) -> dict[str, Any]:
    """Return what an opened cache says.

    Raises:
        CorruptionError: a part that is asked for is damaged.
    """
    before, root = earlier_of(cache), cache.root
    rows = {dim: _rows(cache, dim) for dim in {spec.dim for spec in cache.fields.values()}}
    all_fields = [_field(cache, name, known, *rows[spec.dim]) for name, spec in cache.fields.items()]
    shards = _shards(cache, before)
    texts = {name: cut(getattr(root, name), _TEXT) for name in ("pipeline", "schema", "split", "key")}
    summary = texts | {
        "samples": len(cache), "made": int(cache.made.sum()), "valid": int(cache.usable.sum()),
        "shard_samples": root.shard_samples, "shards": len(shards), "windows": _short(root.windows),
        "format": cache.manifest.format, "digest": cache.manifest.digest, "content_root": cache.manifest.content_root,
        "compression": cut(cache.compression, _TEXT), "files": len(cache.manifest.files),
        "bytes": sum(size for size, _ in cache.manifest.files.values()),
        "stored": sum(one["stored"] for one in all_fields), "raw": sum(one["raw"] for one in all_fields),
    }  # fmt: skip
    return {
        "cache": summary,
        "fields": within(all_fields, _ROOM["fields"]), "all_fields": len(all_fields),
        "shards": within(shards[:_ROWS], _ROOM["shards"]), "strip": list(_strip(shards)),
        "unserved": codes(cache, known.build.get("not_made")),
        "provenance": _provenance(known),
        "changed": changes(cache, before),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------ fields


def _field(cache: Cache, name: str, known: About, rows: int, of_samples: list[int] | None) -> dict[str, Any]:
    spec, stored = cache.fields[name], sum(cache.manifest.files[file][0] for file in cache.shard_files(name))
    present = cache.present(name)
    words = [(key, value) for key, value in sorted(spec.attrs.items()) if isinstance(value, str | int | float)]
    return {
        "name": cut(name, _TEXT), "dtype": spec.dtype if spec.kind == "array" else spec.kind,
        "shape": cut(_shape(spec, _declared(known, name)), _TEXT),
        "about": cut(", ".join(f"{key} {value}" for key, value in words), _TEXT),
        "present": None if present is None else int(present.sum()),
        "stored": stored, "raw": rows * spec.item_bytes, "rows": of_samples,
    }  # fmt: skip


def _declared(known: About, name: str) -> list[Any]:
    """Return the axes of a field as the schema names them, [] where it does not."""
    try:
        return list(known.said["schema"]["fields"][name]["shape"])
    except (LookupError, TypeError):  # a field that a transform has made
        return []


def _shape(spec: ArraySpec, declared: list[Any]) -> str:
    """Return the axes as they are stored, those with the name that the schema gives them where it names so many."""
    if spec.kind != "array":
        return ""
    sizes = [*([spec.dim] if spec.dim is not None else []), *map(str, spec.item)]
    names = declared if len(declared) == len(sizes) else sizes
    axes = [
        f"{name} = {size}" if isinstance(name, str) and name != size else size
        for name, size in zip(names, sizes, strict=True)
    ]
    return f"[{', '.join(axes)}]"


def _rows(cache: Cache, dim: str | None) -> tuple[int, list[int] | None]:
    """Return how many rows a dimension has; the fewest, the median and the most of a sample that was made.

    The latter are None of a fixed field.
    """
    if dim is None:
        return len(cache), None
    lengths = cache.lengths(dim)
    total, lengths = int(lengths.sum()), lengths[cache.made]
    return total, [int(lengths.min()), int(np.median(lengths)), int(lengths.max())] if lengths.size else None


# ------------------------------------------------------------------------------------------ shards


def _shards(cache: Cache, before: Earlier | None) -> list[list[Any]]:
    """Return of each shard: number, first sample, the one behind the last, how many valid, bytes, whether it was there.

    The last is None where there is no earlier cache; else whether that has the same file of every field. A field that
    another writer has cut into another number of files counts for no bytes, and no shard as one that was there.
    """
    k, samples, files = cache.root.shard_samples, len(cache), cache.manifest.files
    starts = np.arange(0, samples, k)
    valid = np.add.reduceat(cache.usable.astype(np.int64), starts).tolist() if samples else []
    sizes, there = np.zeros(len(starts), np.int64), np.ones(len(starts), bool)
    for name, names in ((name, cache.shard_files(name)) for name in cache.fields):
        if len(names) != len(starts):
            there[:] = False
            continue
        sizes += np.array([files[file][0] for file in names], np.int64)
        if before is not None:
            same = before.digests(name)
            there &= np.array([files[file][1] in same for file in names], bool)
    known = [None] * len(starts) if before is None else there.tolist()
    rows = zip(range(len(starts)), starts.tolist(), valid, sizes.tolist(), known, strict=True)
    return [[g, first, min(samples, first + k), good, size, same] for g, first, good, size, same in rows]


def _strip(shards: list[list[Any]]) -> Iterator[list[Any]]:
    """Yield runs of shards of one drawn cell: first, last, share of samples not served, how many were there before."""
    per = max(1, -(-len(shards) // _STRIP))
    for first in range(0, len(shards), per):
        some = shards[first : first + per]
        samples = sum(stop - start for _, start, stop, *_ in some)
        unfit = samples - sum(row[3] for row in some)
        yield [first, first + len(some) - 1, unfit / samples, sum(row[5] is True for row in some)]


# ---------------------------------------------------------------------------------------- pictures


def _previews(
    cache: Cache, known: About, unserved: Mapping[str, Any], room: int
) -> tuple[dict[str, Any] | None, list[CorruptionError]]:
    """Return pictures of some samples that are served, and what of them is damaged; None where none is served."""
    usable = np.flatnonzero(cache.usable)
    valid = usable[thinned(len(usable), _PICTURED)].tolist()
    others = [row[5][0] for group in unserved["codes"] for row in group["rows"] if row[5] is not None]
    instead = list(dict.fromkeys(others))[:_PICTURED]
    numbers = list(dict.fromkeys([*valid, *instead]))
    if not numbers:
        return None, []
    drawn, said, damage = of_cache(cache, known.said.get("schema"), numbers)
    samples = [one | {"key": cut(one["key"], _TEXT), "why": cut(one["why"], _TEXT)} for one in drawn]
    at = {number: place for place, number in enumerate(numbers)}
    rows = {"valid": [at[number] for number in valid], "instead": [at[number] for number in instead]}
    return kept_within({"samples": samples, "findings": rows, "left_out": said}, room, size_of), damage


# -------------------------------------------------------------------------------------- provenance


def _provenance(known: About) -> dict[str, Any]:
    said = known.said
    steps = [_step(step) for step in known.transforms]
    return {
        "build": {name: cut(str(known.build[name]), _TEXT) for name in _ENVIRONMENT if name in known.build},
        "recipe": cut(known.recipe, _TEXT), "files": known.files, "nbytes": known.nbytes,
        "sources": cut(str(said.get("sources", "")), _TEXT), "values": cut(str(said.get("values", "")), _TEXT),
        "codec": cut(str(said.get("codec", "")), _TEXT), "steps": within(steps, _ROOM["steps"]),
        "all_steps": len(steps),
        "schema": cut(json.dumps(said.get("schema", {}), indent=1, ensure_ascii=False), _SCHEMA),
    }  # fmt: skip


def _step(step: Any) -> dict[str, str]:
    """Return a transform: its name, the code that it is made of, its options."""
    if not isinstance(step, Mapping):
        return {"name": cut(str(step), _TEXT), "code": "", "options": ""}
    name = step.get("use", step.get("function", ""))
    name = ":".join(map(str, name)) if isinstance(name, list) else name
    code = f"version {step['version']}" if "version" in step else _short(step.get("source"))
    return {"name": cut(str(name), _TEXT), "code": code, "options": _short(step.get("options"))}


def _short(value: Any) -> str:
    return "" if not value else cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _TEXT)
