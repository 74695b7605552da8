"""The page of a cache: its contents and sizes, unserved samples and their substitutes, provenance.

User text enters the page as JSON only, as in a run's page.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datacheck.cache import Cache, open_cache
from datacheck.cache.problem import Problem
from datacheck.cache.reader import Provenance, provenance
from datacheck.cache.verify import Depth, verify
from datacheck.errors import CorruptionError
from datacheck.model.sample import ArraySpec
from datacheck.preview.cache_samples import samples_of_cache
from datacheck.preview.drawings import spread_indices
from datacheck.report.cache_changes import ComparedCache, cache_to_compare, changes
from datacheck.report.rendering import (
    PageKind,
    items_within,
    render_page,
    samples_within,
    shortened,
    size_of,
)
from datacheck.report.unserved_samples import shown_substitutes, unserved_samples

Array = np.ndarray[Any, Any]

COMMAND = "datacheck cache report"
_CACHE_PAGE = PageKind(
    command=COMMAND,
    top="Verdict",
    contents="contents",
    without="datacheck cache info, verify and diff print much of it.",
    scripts=("parts.js", "cache.js"),
)
_MAX_PICTURED = 6  # valid samples, and as many substitutes
_PICTURE_BYTES = 600_000
_PAGE_BYTES = 2_800_000
_BYTE_BUDGETS = {"fields": 350_000, "shards": 500_000, "problems": 200_000, "steps": 100_000}
_MAX_CELLS = 200  # of the strip that shows all shards
_MAX_SHARDS = 5_000  # in the table
# Most characters of a text, a path and a schema.
_MAX_TEXT = 1_000
_MAX_PATH = 8_000
_MAX_SCHEMA = 16_000


def cache_page(cache: Mapping[str, Any]) -> bytes:
    """Return the bytes of a cache's page.

    Args:
        cache: the result of `cache_summary`.
    """
    return render_page(_CACHE_PAGE, cache, pictured=cache.get("previews") is not None)


def cache_summary(place: Path | str, depth: Depth = "quick") -> dict[str, Any]:
    """Return the data of a finished cache's page, as JSON values of at most 2.8 MB.

    Args:
        place: its folder or URL.
        depth: how it is checked, see `verify`.

    Raises:
        UsageError: it is not a finished cache, or of a newer format.
        StorageError: a disk or server refuses.

    Notes:
        For a damaged cache, ``checked.problems`` lists the damage; the rest is included as far as
        it can be read.
    """
    problems = verify(place, depth)
    contents: dict[str, Any] = {}
    try:
        cache = open_cache(place)
        cache_provenance = provenance(cache)
        contents = _cache_contents(cache, cache_provenance)
        room = min(_PICTURE_BYTES, _PAGE_BYTES - size_of(contents))
        substitutes = shown_substitutes(contents["unserved"])
        contents["previews"], damage = _previews(cache, cache_provenance, substitutes, room)
        problems = problems or [Problem("", str(error)) for error in damage]
    except CorruptionError as error:
        problems = problems or [Problem("", str(error))]
    shown_problems = items_within(map(_problem_json, problems), _BYTE_BUDGETS["problems"])
    checked = {
        "depth": depth,
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "problems": shown_problems,
        "all_problems": len(problems),
    }
    return {
        "place": shortened(str(place), _MAX_TEXT),
        "quoted": shortened(shlex.quote(str(place)), _MAX_PATH),
        "checked": checked,
        "cache": None,
    } | contents


def _problem_json(problem: Problem) -> dict[str, str]:
    field = f"field {problem.field}" if problem.field else ""
    concerned = ", ".join(part for part in (field, problem.samples) if part)
    return {
        "file": shortened(problem.file, _MAX_TEXT),
        "what": shortened(problem.what, _MAX_TEXT),
        "whom": shortened(concerned, _MAX_TEXT),
    }


def _cache_contents(cache: Cache, cache_provenance: Provenance) -> dict[str, Any]:
    """Return the data of an opened cache.

    Raises:
        CorruptionError: a part that it reads is damaged.
    """
    other_cache = cache_to_compare(cache)
    root = cache.root
    # Fields share dimensions, and the lengths of each are read once.
    rows = {dim: _rows(cache, dim) for dim in {spec.dim for spec in cache.fields.values()}}
    all_fields = [
        _field(cache, name, cache_provenance, rows[spec.dim]) for name, spec in cache.fields.items()
    ]
    shards = _shards(cache, other_cache)
    summary = {
        "pipeline": shortened(root.pipeline, _MAX_TEXT),
        "schema": shortened(root.schema, _MAX_TEXT),
        "split": shortened(root.split, _MAX_TEXT),
        "key": shortened(root.key, _MAX_TEXT),
        "samples": len(cache),
        "made": int(cache.made.sum()),
        "valid": int(cache.usable.sum()),
        "shard_samples": root.shard_samples,
        "shards": len(shards),
        "windows": _short(root.windows),
        "format": cache.manifest.format,
        "digest": cache.manifest.digest,
        "content_root": cache.manifest.content_root,
        "compression": shortened(cache.compression, _MAX_TEXT),
        "files": len(cache.manifest.files),
        "bytes": sum(size for size, _ in cache.manifest.files.values()),
        "stored": sum(field["stored"] for field in all_fields),
        "raw": sum(field["raw"] for field in all_fields),
    }
    return {
        "cache": summary,
        "fields": items_within(all_fields, _BYTE_BUDGETS["fields"]),
        "all_fields": len(all_fields),
        "shards": items_within(map(list, shards[:_MAX_SHARDS]), _BYTE_BUDGETS["shards"]),
        "strip": list(_shard_cells(shards)),
        "unserved": unserved_samples(cache, cache_provenance.build.get("not_made")),
        "provenance": _provenance(cache_provenance),
        "changed": changes(cache, other_cache),
    }


# ------------------------------------------------------------------------------------------ fields


def _field(
    cache: Cache, name: str, cache_provenance: Provenance, rows: _RowCounts
) -> dict[str, Any]:
    spec = cache.fields[name]
    stored = sum(cache.manifest.files[file][0] for file in cache.shard_files(name))
    present = cache.present(name)
    attributes = [
        f"{key} {value}"
        for key, value in sorted(spec.attrs.items())
        if isinstance(value, str | int | float)
    ]
    return {
        "name": shortened(name, _MAX_TEXT),
        "dtype": spec.dtype if spec.kind == "array" else spec.kind,
        "shape": shortened(_shape(spec, _declared_axes(cache_provenance, name)), _MAX_TEXT),
        "about": shortened(", ".join(attributes), _MAX_TEXT),
        "present": None if present is None else int(present.sum()),
        "stored": stored,
        "raw": rows.total * spec.item_bytes,
        "rows": rows.of_samples,
    }


def _declared_axes(cache_provenance: Provenance, name: str) -> list[Any]:
    """Return the axes of a field as the schema names them; [] if it does not."""
    try:
        return list(cache_provenance.said["schema"]["fields"][name]["shape"])
    except (LookupError, TypeError):  # a field added by a transform
        return []


def _shape(spec: ArraySpec, declared: list[Any]) -> str:
    """Return the stored axes, with the schema's names if it names the same number of axes."""
    if spec.kind != "array":
        return ""
    sizes = [str(size) for size in spec.item]
    if spec.dim is not None:
        sizes.insert(0, spec.dim)
    names = declared if len(declared) == len(sizes) else sizes
    axes = [
        f"{name} = {size}" if isinstance(name, str) and name != size else size
        for name, size in zip(names, sizes, strict=True)
    ]
    return f"[{', '.join(axes)}]"


class _RowCounts(NamedTuple):
    """The rows of a dimension in all samples, and the fewest, the median and the most in one.

    The latter count made samples; they are None for a fixed field, or without a made sample.
    """

    total: int
    of_samples: list[int] | None


def _rows(cache: Cache, dim: str | None) -> _RowCounts:
    if dim is None:
        return _RowCounts(len(cache), None)
    lengths = cache.lengths(dim)
    total = int(lengths.sum())
    made = lengths[cache.made]
    if not made.size:
        return _RowCounts(total, None)
    return _RowCounts(total, [int(made.min()), int(np.median(made)), int(made.max())])


# ------------------------------------------------------------------------------------------ shards


class _ShardRow(NamedTuple):
    """A shard of all fields.

    Args:
        first, stop: numbers of its first sample, and of the one after its last.
        valid: number of valid samples.
        nbytes: of its files.
        unchanged: whether the earlier cache has the same file of every field; None without one.
    """

    number: int
    first: int
    stop: int
    valid: int
    nbytes: int
    unchanged: bool | None


def _shards(cache: Cache, other: ComparedCache | None) -> list[_ShardRow]:
    """Return the shards of a cache.

    If another writer split a field into another number of files, the field counts no bytes and no
    shard is unchanged.
    """
    files = cache.manifest.files
    starts = np.arange(0, len(cache), cache.root.shard_samples)
    nbytes = np.zeros(len(starts), np.int64)
    unchanged = np.ones(len(starts), bool)
    for field in cache.fields:
        names = cache.shard_files(field)
        if len(names) != len(starts):
            unchanged[:] = False
            continue
        nbytes += np.array([files[name][0] for name in names], np.int64)
        if other is not None:
            other_digests = other.digests(field)
            unchanged &= np.array([files[name][1] in other_digests for name in names], bool)
    usable = cache.usable
    shards = []
    for number, first in enumerate(starts.tolist()):
        stop = min(len(cache), first + cache.root.shard_samples)
        valid = int(np.count_nonzero(usable[first:stop]))
        is_unchanged = None if other is None else bool(unchanged[number])
        shards.append(_ShardRow(number, first, stop, valid, int(nbytes[number]), is_unchanged))
    return shards


def _shard_cells(shards: list[_ShardRow]) -> Iterator[list[Any]]:
    """Yield runs of shards, one per drawn cell.

    Each is [first, last, share of unserved samples, number of unchanged shards].
    """
    shards_per_cell = max(1, -(-len(shards) // _MAX_CELLS))
    for start in range(0, len(shards), shards_per_cell):
        cell = shards[start : start + shards_per_cell]
        samples = cell[-1].stop - cell[0].first
        unserved = samples - sum(shard.valid for shard in cell)
        unchanged = sum(shard.unchanged is True for shard in cell)
        yield [cell[0].number, cell[-1].number, unserved / samples, unchanged]


# ---------------------------------------------------------------------------------------- pictures


def _previews(
    cache: Cache, cache_provenance: Provenance, substitutes: list[int], room: int
) -> tuple[dict[str, Any] | None, list[CorruptionError]]:
    """Return pictures of some served samples, and the damage found in them.

    The pictures are None if no sample is served.
    """
    usable = np.flatnonzero(cache.usable)
    valid = usable[spread_indices(len(usable), _MAX_PICTURED)].tolist()
    substitutes = substitutes[:_MAX_PICTURED]
    numbers = list(dict.fromkeys([*valid, *substitutes]))
    if not numbers:
        return None, []
    drawn, omissions, damage = samples_of_cache(cache, cache_provenance.said.get("schema"), numbers)
    samples = [
        sample
        | {"key": shortened(sample["key"], _MAX_TEXT), "why": shortened(sample["why"], _MAX_TEXT)}
        for sample in drawn
    ]
    places = {number: place for place, number in enumerate(numbers)}
    rows = {
        "valid": [places[number] for number in valid],
        "instead": [places[number] for number in substitutes],
    }
    previews = {"samples": samples, "findings": rows, "left_out": omissions}
    return samples_within(previews, room), damage


# -------------------------------------------------------------------------------------- provenance


_ENVIRONMENT = ("built", "host", "machine", "datacheck", "python", "numpy", "numerics")


def _provenance(cache_provenance: Provenance) -> dict[str, Any]:
    inputs = cache_provenance.said
    steps = [_step(step) for step in cache_provenance.transforms]
    return {
        "build": {
            name: shortened(str(cache_provenance.build[name]), _MAX_TEXT)
            for name in _ENVIRONMENT
            if name in cache_provenance.build
        },
        "recipe": shortened(cache_provenance.recipe, _MAX_TEXT),
        "files": cache_provenance.files,
        "nbytes": cache_provenance.nbytes,
        "sources": shortened(str(inputs.get("sources", "")), _MAX_TEXT),
        "values": shortened(str(inputs.get("values", "")), _MAX_TEXT),
        "codec": shortened(str(inputs.get("codec", "")), _MAX_TEXT),
        "steps": items_within(steps, _BYTE_BUDGETS["steps"]),
        "all_steps": len(steps),
        "schema": shortened(
            json.dumps(inputs.get("schema", {}), indent=1, ensure_ascii=False), _MAX_SCHEMA
        ),
    }


def _step(step: Any) -> dict[str, str]:
    """Return a transform: its name, the version or source of its code, its options."""
    if not isinstance(step, Mapping):
        return {"name": shortened(str(step), _MAX_TEXT), "code": "", "options": ""}
    name = step.get("use", step.get("function", ""))
    name = ":".join(map(str, name)) if isinstance(name, list) else name
    code = f"version {step['version']}" if "version" in step else _short(step.get("source"))
    return {
        "name": shortened(str(name), _MAX_TEXT),
        "code": code,
        "options": _short(step.get("options")),
    }


def _short(value: Any) -> str:
    if not value:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return shortened(text, _MAX_TEXT)
