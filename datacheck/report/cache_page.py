"""The page of a cache: its contents and sizes, unserved samples and their substitutes, provenance.

User text enters the page as JSON only, as in a run's page.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build.input_differences import compare_caches
from datacheck.build.provenance import NOT_MADE
from datacheck.cache import Cache, open_cache
from datacheck.cache.diff import Diff, diff, same_digest_scheme
from datacheck.cache.find import neighbouring_caches
from datacheck.cache.problem import Problem
from datacheck.cache.reader import Provenance, provenance
from datacheck.cache.verify import Depth, verify
from datacheck.cache.windows import WindowIndex, Windows
from datacheck.errors import CorruptionError, DatacheckError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.preview.encoding import spread_indices
from datacheck.preview.single import samples_of_cache
from datacheck.report.html import (
    PageKind,
    items_within,
    pictures_within,
    render_page,
    shortened,
    size_of,
)
from datacheck.report.words import relative_to_cwd
from datacheck.rules import catalogue
from datacheck.torch.resampling import Items

Array = np.ndarray[Any, Any]

COMMAND = "datacheck cache report"
_CACHE_PAGE = PageKind(
    COMMAND,
    "Verdict",
    "contents",
    "datacheck cache info, verify and diff print much of it.",
    ("parts.js", "cache.js"),
)
_MAX_PICTURED = 6  # valid samples, and as many substitutes
# bytes of the page
_PICTURE_BYTES = 600_000
_PAGE_BYTES = 2_800_000
_CACHE_BUDGET = {"fields": 350_000, "shards": 500_000, "problems": 200_000, "steps": 100_000}
_STRIP = 200  # cells of the strip that shows all shards
_ROWS = 5_000  # shards in the table
# characters
_TEXT = 1_000
_PATH = 8_000
_SCHEMA = 16_000
_ENVIRONMENT = ("built", "host", "machine", "datacheck", "python", "numpy", "numerics")


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
        contents["previews"], damage = _previews(
            cache,
            cache_provenance,
            contents["unserved"],
            min(_PICTURE_BYTES, _PAGE_BYTES - size_of(contents)),
        )
        problems = problems or [Problem("", str(error)) for error in damage]
    except CorruptionError as error:
        problems = problems or [Problem("", str(error))]
    shown_problems = items_within(map(_problem_json, problems), _CACHE_BUDGET["problems"])
    checked = {
        "depth": depth,
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "problems": shown_problems,
        "all_problems": len(problems),
    }
    return {
        "place": shortened(str(place), _TEXT),
        "quoted": shortened(shlex.quote(str(place)), _PATH),
        "checked": checked,
        "cache": None,
    } | contents


def _problem_json(problem: Problem) -> dict[str, str]:
    whom = [f"field {problem.field}" if problem.field else "", problem.samples]
    return {
        "file": shortened(problem.file, _TEXT),
        "what": shortened(problem.what, _TEXT),
        "whom": shortened(", ".join(filter(None, whom)), _TEXT),
    }


def _cache_contents(cache: Cache, cache_provenance: Provenance) -> dict[str, Any]:
    """Return the data of an opened cache.

    Raises:
        CorruptionError: a part that it reads is damaged.
    """
    other_cache = cache_to_compare(cache)
    root = cache.root
    rows = {dim: _rows(cache, dim) for dim in {spec.dim for spec in cache.fields.values()}}
    all_fields = [
        _field(cache, name, cache_provenance, *rows[spec.dim])
        for name, spec in cache.fields.items()
    ]
    shards = _shards(cache, other_cache)
    texts = {
        name: shortened(getattr(root, name), _TEXT)
        for name in ("pipeline", "schema", "split", "key")
    }
    summary = texts | {
        "samples": len(cache),
        "made": int(cache.made.sum()),
        "valid": int(cache.usable.sum()),
        "shard_samples": root.shard_samples,
        "shards": len(shards),
        "windows": _short(root.windows),
        "format": cache.manifest.format,
        "digest": cache.manifest.digest,
        "content_root": cache.manifest.content_root,
        "compression": shortened(cache.compression, _TEXT),
        "files": len(cache.manifest.files),
        "bytes": sum(size for size, _ in cache.manifest.files.values()),
        "stored": sum(field["stored"] for field in all_fields),
        "raw": sum(field["raw"] for field in all_fields),
    }
    return {
        "cache": summary,
        "fields": items_within(all_fields, _CACHE_BUDGET["fields"]),
        "all_fields": len(all_fields),
        "shards": items_within(shards[:_ROWS], _CACHE_BUDGET["shards"]),
        "strip": list(_shard_cells(shards)),
        "unserved": codes(cache, cache_provenance.build.get("not_made")),
        "provenance": _provenance(cache_provenance),
        "changed": changes(cache, other_cache),
    }


# ------------------------------------------------------------------------------------------ fields


def _field(
    cache: Cache, name: str, cache_provenance: Provenance, rows: int, of_samples: list[int] | None
) -> dict[str, Any]:
    spec = cache.fields[name]
    stored = sum(cache.manifest.files[file][0] for file in cache.shard_files(name))
    present = cache.present(name)
    words = [
        (key, value)
        for key, value in sorted(spec.attrs.items())
        if isinstance(value, str | int | float)
    ]
    return {
        "name": shortened(name, _TEXT),
        "dtype": spec.dtype if spec.kind == "array" else spec.kind,
        "shape": shortened(_shape(spec, _declared_axes(cache_provenance, name)), _TEXT),
        "about": shortened(", ".join(f"{key} {value}" for key, value in words), _TEXT),
        "present": None if present is None else int(present.sum()),
        "stored": stored,
        "raw": rows * spec.item_bytes,
        "rows": of_samples,
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
    sizes = [*([spec.dim] if spec.dim is not None else []), *map(str, spec.item)]
    names = declared if len(declared) == len(sizes) else sizes
    axes = [
        f"{name} = {size}" if isinstance(name, str) and name != size else size
        for name, size in zip(names, sizes, strict=True)
    ]
    return f"[{', '.join(axes)}]"


def _rows(cache: Cache, dim: str | None) -> tuple[int, list[int] | None]:
    """Return a dimension's rows, and the fewest, the median and the most rows of a made sample.

    The latter are None for a fixed field.
    """
    if dim is None:
        return len(cache), None
    lengths = cache.lengths(dim)
    total, lengths = int(lengths.sum()), lengths[cache.made]
    return total, [
        int(lengths.min()),
        int(np.median(lengths)),
        int(lengths.max()),
    ] if lengths.size else None


# ------------------------------------------------------------------------------------------ shards


def _shards(cache: Cache, before: ComparedCache | None) -> list[list[Any]]:
    """Return, per shard: number, first sample, end, valid samples, bytes, unchanged.

    `unchanged` is None without an earlier cache; otherwise it tells whether the earlier cache has
    the same file of every field. If another writer split a field into another number of files, the
    field counts no bytes and no shard is unchanged.
    """
    k = cache.root.shard_samples
    samples = len(cache)
    files = cache.manifest.files
    starts = np.arange(0, samples, k)
    valid = np.add.reduceat(cache.usable.astype(np.int64), starts).tolist() if samples else []
    sizes = np.zeros(len(starts), np.int64)
    unchanged = np.ones(len(starts), bool)
    for name, names in ((name, cache.shard_files(name)) for name in cache.fields):
        if len(names) != len(starts):
            unchanged[:] = False
            continue
        sizes += np.array([files[file][0] for file in names], np.int64)
        if before is not None:
            same = before.digests(name)
            unchanged &= np.array([files[file][1] in same for file in names], bool)
    unchanged_values = [None] * len(starts) if before is None else unchanged.tolist()
    rows = zip(
        range(len(starts)), starts.tolist(), valid, sizes.tolist(), unchanged_values, strict=True
    )
    return [
        [g, start, min(samples, start + k), good, size, same] for g, start, good, size, same in rows
    ]


def _shard_cells(shards: list[list[Any]]) -> Iterator[list[Any]]:
    """Yield runs of shards, one per drawn cell.

    Each is [first, last, share of unserved samples, number of unchanged shards].
    """
    per = max(1, -(-len(shards) // _STRIP))
    for first in range(0, len(shards), per):
        cell_shards = shards[first : first + per]
        samples = sum(stop - start for _, start, stop, *_ in cell_shards)
        unfit = samples - sum(row[3] for row in cell_shards)
        yield [
            first,
            first + len(cell_shards) - 1,
            unfit / samples,
            sum(row[5] is True for row in cell_shards),
        ]


# ---------------------------------------------------------------------------------------- pictures


def _previews(
    cache: Cache, cache_provenance: Provenance, unserved: Mapping[str, Any], room: int
) -> tuple[dict[str, Any] | None, list[CorruptionError]]:
    """Return pictures of some served samples, and the damage found in them.

    The pictures are None if no sample is served.
    """
    usable = np.flatnonzero(cache.usable)
    valid = usable[spread_indices(len(usable), _MAX_PICTURED)].tolist()
    others = [
        row[5][0] for group in unserved["codes"] for row in group["rows"] if row[5] is not None
    ]
    substitutes = list(dict.fromkeys(others))[:_MAX_PICTURED]
    numbers = list(dict.fromkeys([*valid, *substitutes]))
    if not numbers:
        return None, []
    drawn, omissions, damage = samples_of_cache(cache, cache_provenance.said.get("schema"), numbers)
    samples = [
        sample | {"key": shortened(sample["key"], _TEXT), "why": shortened(sample["why"], _TEXT)}
        for sample in drawn
    ]
    positions = {number: place for place, number in enumerate(numbers)}
    rows = {
        "valid": [positions[number] for number in valid],
        "instead": [positions[number] for number in substitutes],
    }
    return pictures_within(
        {"samples": samples, "findings": rows, "left_out": omissions}, room, size_of
    ), damage


# -------------------------------------------------------------------------------------- provenance


def _provenance(cache_provenance: Provenance) -> dict[str, Any]:
    inputs = cache_provenance.said
    steps = [_step(step) for step in cache_provenance.transforms]
    return {
        "build": {
            name: shortened(str(cache_provenance.build[name]), _TEXT)
            for name in _ENVIRONMENT
            if name in cache_provenance.build
        },
        "recipe": shortened(cache_provenance.recipe, _TEXT),
        "files": cache_provenance.files,
        "nbytes": cache_provenance.nbytes,
        "sources": shortened(str(inputs.get("sources", "")), _TEXT),
        "values": shortened(str(inputs.get("values", "")), _TEXT),
        "codec": shortened(str(inputs.get("codec", "")), _TEXT),
        "steps": items_within(steps, _CACHE_BUDGET["steps"]),
        "all_steps": len(steps),
        "schema": shortened(
            json.dumps(inputs.get("schema", {}), indent=1, ensure_ascii=False), _SCHEMA
        ),
    }


def _step(step: Any) -> dict[str, str]:
    """Return a transform: its name, the version or source of its code, its options."""
    if not isinstance(step, Mapping):
        return {"name": shortened(str(step), _TEXT), "code": "", "options": ""}
    name = step.get("use", step.get("function", ""))
    name = ":".join(map(str, name)) if isinstance(name, list) else name
    code = f"version {step['version']}" if "version" in step else _short(step.get("source"))
    return {
        "name": shortened(str(name), _TEXT),
        "code": code,
        "options": _short(step.get("options")),
    }


def _short(value: Any) -> str:
    return (
        ""
        if not value
        else shortened(
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), _TEXT
        )
    )


_MAX_COMPARED_BYTES = 16_000_000  # bytes of values of each cache that are compared
_CHANGES_SHOWN = 20
# characters
_CHANGE_TEXT = 600
_CHANGE_KEY = 300
_CHANGE_BUDGET = {"parts": 150_000, "fields": 100_000, "shown": 100_000}


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
            other_root, own_root = other.root, cache.root
            if other_root.key != own_root.key and (other_root.pipeline, other_root.split) == (
                own_root.pipeline,
                own_root.split,
            ):
                return ComparedCache(other, before)
    return None


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
    summary: dict[str, Any] = {
        "before": other.before,
        "path": shortened(_display_path(other.cache), _CHANGE_TEXT),
    }
    older, newer = (other.cache, cache) if other.before else (cache, other.cache)
    try:
        return summary | {
            "pair": [_cache_counts(compared_cache) for compared_cache in (older, newer)],
            "alike": same_digest_scheme(older, newer),
            "read": _MAX_COMPARED_BYTES,
            **_changed_parts(older, newer),
            **_diff_json(diff(older, newer, most=_MAX_COMPARED_BYTES)),
        }
    except DatacheckError as error:
        if isinstance(error, CorruptionError) and str(error).startswith(f"{cache.path}: "):
            raise  # the damage is in the page's own cache
        return summary | {"failed": shortened(str(error), _CHANGE_TEXT)}


def _display_path(cache: Cache) -> str:
    return relative_to_cwd(cache.path) if isinstance(cache.path, Path) else cache.path


def _cache_counts(cache: Cache) -> dict[str, Any]:
    return {
        "key": shortened(cache.root.key, _CHANGE_KEY),
        "built": shortened(str(provenance(cache).build.get("built", "")), _CHANGE_KEY),
        "samples": len(cache),
        "valid": int(cache.usable.sum()),
        "bytes": sum(size for size, _ in cache.manifest.files.values()),
        "content_root": cache.manifest.content_root,
    }


def _changed_parts(older: Cache, newer: Cache) -> dict[str, Any]:
    rows = [
        [
            shortened(difference.where, _CHANGE_TEXT),
            shortened(difference.before, _CHANGE_TEXT),
            shortened(difference.now, _CHANGE_TEXT),
        ]
        for difference in compare_caches(newer.path, older.path)
    ]
    return {"parts": items_within(rows, _CHANGE_BUDGET["parts"]), "all_parts": len(rows)}


def _diff_json(cache_diff: Diff) -> dict[str, Any]:
    fields = [
        [shortened(text or "none", _CHANGE_TEXT) for text in (name, *pair)]
        for name, pair in cache_diff.fields.items()
    ]
    return {
        "fields": items_within(fields, _CHANGE_BUDGET["fields"]),
        "all_fields": len(fields),
        "unread": cache_diff.unread,
        "added": _first_rows(cache_diff.added, lambda key: [key]),
        "removed": _first_rows(cache_diff.removed, lambda key: [key]),
        "changed": _first_rows(cache_diff.changed.items(), _change_row),
        "verdicts": _first_rows(cache_diff.verdicts.items(), _verdict_row),
    }


def _change_row(item: tuple[str, Mapping[str, Any]]) -> list[str]:
    key, fields = item
    return [key, "; ".join(f"{name}: {change}" for name, change in fields.items())]


def _verdict_row(item: tuple[str, tuple[Iterable[str], Iterable[str]]]) -> list[str]:
    key, verdicts = item
    return [key, *(", ".join(codes) or "valid" for codes in verdicts)]


def _first_rows(items: Any, row: Callable[[Any], list[str]]) -> dict[str, Any]:
    """Return the number of items, and the first rows."""
    listed = list(items)
    rows = [
        [shortened(text, _CHANGE_TEXT) for text in row(item)] for item in listed[:_CHANGES_SHOWN]
    ]
    return {"all": len(listed), "rows": items_within(rows, _CHANGE_BUDGET["shown"])}


_SEED = _EPOCH = 0
_SAMPLES_PER_CODE = 10  # samples of each code
_MAX_CODES = 200
_CACHE_CODE_NAMES = {NOT_MADE: "read, but refused by a transform or by the layout"}
_SERVED_BUDGET = 500_000  # bytes of the page
_SERVED_KEY = 300  # characters of a key or a reason


def codes(cache: Cache, not_made: Any) -> dict[str, Any]:
    """Return the unserved samples by the code that refused them, the most frequent code first.

    Args:
        cache: the cache.
        not_made: reasons by key of samples that could not be made, from ``build.json``.

    Raises:
        CorruptionError: the stored bytes differ from what was written.

    Notes:
        Substitutes are those of `CachedDataset` with the windows of the cache, seed 0 and epoch 0.
        For an episode cut into windows, the substitute of its first window.
    """
    numbers = np.flatnonzero(~cache.usable)
    made = cache.made
    found_codes = cache.findings()
    keys = cache.keys(numbers)
    of_code: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        for code in found_codes.get(key) or [""]:
            of_code.setdefault(code, []).append(place)
    ordered = sorted(of_code.items(), key=lambda item: (-len(item[1]), item[0]))
    chosen = sorted(
        {place for _, places in ordered[:_MAX_CODES] for place in places[:_SAMPLES_PER_CODE]}
    )
    substitutes, why = _substitutes(cache, numbers[chosen])
    reasons = not_made if isinstance(not_made, Mapping) else {}
    rows = {
        place: [
            int(numbers[place]),
            shortened(keys[place], _SERVED_KEY),
            bool(made[numbers[place]]),
            shortened(" ".join(found_codes.get(keys[place], [])), _SERVED_KEY),
            shortened(str(reasons.get(keys[place], "")), _SERVED_KEY),
            substitute,
        ]
        for place, substitute in zip(chosen, substitutes, strict=True)
    }
    known_rules = catalogue()
    groups = (
        {
            "code": shortened(code, _SERVED_KEY),
            "name": known_rules[code].name
            if code in known_rules
            else _CACHE_CODE_NAMES.get(code, ""),
            "rule": code in known_rules,
            "samples": len(places),
            "rows": [rows[place] for place in places[:_SAMPLES_PER_CODE]],
        }
        for code, places in ordered[:_MAX_CODES]
    )
    return {
        "codes": items_within(groups, _SERVED_BUDGET),
        "all_codes": len(ordered),
        "why": why,
        "seed": _SEED,
        "epoch": _EPOCH,
        "windows": cache.root.windows is not None,
    }


def _substitutes(cache: Cache, numbers: Array) -> tuple[list[Any], str]:
    """Return each sample's substitute (number, key and step, or None), and why there is none."""
    nothing = [None] * len(numbers)
    if not len(numbers):
        return nothing, ""
    try:
        index, first_items, has_item = _windows(cache, numbers)
        items = Items(cache.usable, "resample", _SEED, index)
    except (UsageError, TypeError) as error:  # no sample is valid, or no episode fits a window
        return nothing, shortened(str(error), _SERVED_KEY)
    served = items.substituted(first_items[has_item], _EPOCH)
    samples = items.samples(served)
    steps: Iterable[int | None] = (
        [None] * len(served) if index is None else items.steps(served)[0].tolist()
    )
    rows = zip(samples.tolist(), cache.keys(samples), steps, strict=True)
    substitutes = iter([[number, shortened(key, _SERVED_KEY), step] for number, key, step in rows])
    return [
        next(substitutes) if has_substitute else None for has_substitute in has_item.tolist()
    ], ""


def _windows(cache: Cache, numbers: Array) -> tuple[WindowIndex | None, Array, Array]:
    """Return the windows of a cache, the first item of each sample, and whether it has one."""
    if cache.root.windows is None:
        return None, numbers, np.ones(len(numbers), bool)
    windows = Windows.of(cache.root.windows)
    lengths = cache.lengths(windows.dim)
    counts = windows.counts(lengths)
    first_items = np.cumsum(counts) - counts
    return WindowIndex(windows, lengths, cache.usable), first_items[numbers], counts[numbers] > 0
