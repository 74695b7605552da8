"""Why a build has another key than a cache: how the inputs of the two differ, path by path."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from datacheck.build.job import BuildJob
from datacheck.build.prepare import PreparedBuild, prepare
from datacheck.build.provenance import NOT_MADE
from datacheck.build.target import target_of
from datacheck.cache import layout, open_cache
from datacheck.cache.manifest import CacheFiles
from datacheck.cache.parsing import parse_document
from datacheck.cache.store import open_store

Codes = tuple[str, ...]
Files = Mapping[str, tuple[Any, ...]]

_SHOWN = 3
_MOST = 10_000  # differences kept
_PATH = 1_000  # characters of a path
_NOTHING = "absent"


@dataclass(frozen=True)
class InputDifference:
    """One differing part of the inputs.

    Args:
        where: dotted path ("schema.fields.xyz.unit", "transforms.1 voxel.options.edge", "sources",
            "samples").
        before, now: its value in the cache and in the build; a sentence for files and samples.
    """

    where: str
    before: str
    now: str


@dataclass(frozen=True, eq=False)
class Explained:
    """The key of a split's build, compared with the split's newest cache.

    Args:
        path: where the cache is, or would be.
        newest: the newest finished cache of the split, or None.
        differences: how the build's inputs differ from those of `newest`; empty where `newest` is
            `path`.
        built: whether the cache at `path` exists.
    """

    path: Path | str
    newest: Path | str | None
    differences: list[InputDifference]
    built: bool


def explain_key(job: BuildJob, out: Path | str) -> Explained:
    """Compare the key of a job with the newest cache of its split in `out`; nothing is built."""
    prepared = prepare(job)
    target = target_of(out, prepared.address, None)
    newest = target.newest()
    if newest is None or newest == target.path:
        return Explained(target.path, newest, [], target.exists())
    return Explained(target.path, newest, explain(prepared, newest), target.exists())


def explain(prepared: PreparedBuild, cache: Path | str) -> list[InputDifference]:
    """Return the differences between a build's inputs and those of a finished cache, by path.

    Raises:
        CorruptionError: the documents of the cache are damaged.
    """
    samples = prepared.job.samples

    def judged() -> dict[str, Codes]:
        return {
            key: tuple(sorted(codes))
            for key, codes in zip(samples.keys, samples.codes, strict=True)
        }

    inputs = _by_name(prepared.fingerprint.inputs)
    return _compare(inputs, prepared.job.digests, judged, cache)


def compare_caches(cache: Path | str, before: Path | str) -> list[InputDifference]:
    """Return the differences between the inputs of two finished caches, as `explain` does.

    Args:
        cache: the folder or URL of a cache.
        before: the cache to compare it with.

    Raises:
        CorruptionError: the documents of a cache are damaged.
    """
    return _compare(_inputs(cache), partial(_sources, cache), partial(_verdicts, cache), before)


def _compare(
    inputs: Mapping[str, Any],
    sources: Callable[[], Files],
    judged: Callable[[], dict[str, Codes]],
    cache: Path | str,
) -> list[InputDifference]:
    """Return the differences of inputs to those of a cache, 10,000 at most.

    Files and samples are loaded only if their digests differ.
    """
    reported: list[InputDifference] = []
    large = set()
    for difference in differences(inputs, _inputs(cache)):
        if difference.where == "sources" or difference.where.startswith("samples"):
            large.add(difference.where[:7])
        elif len(reported) < _MOST:
            reported.append(difference)
    if "sources" in large:
        reported.append(_files(_sources(cache), sources()))
    if "samples" in large:
        reported.append(_samples(_verdicts(cache), judged()))
    return sorted(reported, key=lambda d: d.where)


def _inputs(cache: Path | str) -> dict[str, Any]:
    """Return the inputs of a cache in the form of `_by_name`."""
    place = CacheFiles.of_files(open_store(cache))
    with place.checked_content(layout.INPUTS):
        return _by_name(parse_document(place.read(layout.INPUTS))["said"])


def _sources(cache: Path | str) -> Files:
    place = CacheFiles.of_files(open_store(cache))
    with place.checked_content(layout.SOURCES):
        return {
            path: tuple(entry)
            for path, entry in parse_document(place.read(layout.SOURCES))["files"].items()
        }


def _verdicts(cache: Path | str) -> dict[str, Codes]:
    """Return the codes that the scan gave to each sample."""
    opened = open_cache(cache, verify="manifest")
    names = [key for keys in opened.key_blocks() for key in keys]
    codes = {
        key: tuple(sorted(set(codes) - {NOT_MADE})) for key, codes in opened.findings().items()
    }
    return dict.fromkeys(names, ()) | codes


def _by_name(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs as mappings: layout by field, transforms by place and name.

    Every part then has a path of its own.
    """
    parts = ("dtype", "item", "dim", "kind", "optional", "attrs")
    if not all(isinstance(name, str) for name, *_ in inputs["layout"]):
        msg = "a field without a name"
        raise TypeError(msg)
    layout_ = {name: dict(zip(parts, more, strict=True)) for name, *more in inputs["layout"]}
    steps = {f"{number} {_step(step)}": step for number, step in enumerate(inputs["transforms"], 1)}
    return {**inputs, "layout": layout_, "transforms": steps}


def _step(step: Mapping[str, Any]) -> str:
    return str(step["use"] if "use" in step else ":".join(step["function"]))


def differences(now: Any, before: Any, where: str = "") -> Iterator[InputDifference]:
    """Yield the leaves in which two JSON values differ; compares lists of equal length by place."""
    if isinstance(now, Mapping) and isinstance(before, Mapping):
        for key in sorted({*now, *before}):
            inner = _short(f"{where}.{key}" if where else key)
            if key not in now or key not in before:
                yield InputDifference(
                    inner, _shown(before.get(key, _NOTHING)), _shown(now.get(key, _NOTHING))
                )
            else:
                yield from differences(now[key], before[key], inner)
    elif isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        for place, (new, old) in enumerate(zip(now, before, strict=True)):
            yield from differences(new, old, _short(f"{where}[{place}]"))
    elif now != before or isinstance(now, bool) != isinstance(before, bool):
        yield InputDifference(where, _shown(before), _shown(now))


def _short(path: str) -> str:
    """Return a long path cut to its start and end: every leaf below a long name repeats it."""
    return path if len(path) <= _PATH else f"{path[: _PATH // 2]}...{path[-_PATH // 4 :]}"


def _shown(value: Any) -> str:
    return (
        value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    )


def _files(before: Files, now: Files) -> InputDifference:
    changed = [path for path in now if path in before and tuple(before[path]) != tuple(now[path])]
    return _sets("sources", "file", before, now, {"changed": changed})


def _samples(before: Mapping[str, Codes], now: Mapping[str, Codes]) -> InputDifference:
    judged = [key for key in now if key in before and set(before[key]) != set(now[key])]
    return _sets("samples", "sample", before, now, {"judged otherwise": judged})


def _sets(
    where: str,
    word: str,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    more: Mapping[str, Sequence[str]],
) -> InputDifference:
    parts = {
        "added": sorted(now.keys() - before.keys()),
        "gone": sorted(before.keys() - now.keys()),
        **more,
    }
    summary = "; ".join(
        f"{len(names):,} {label} ({_first_names(names)})" for label, names in parts.items() if names
    )
    counts = [
        f"{len(entries):,} {word}{'' if len(entries) == 1 else 's'}" for entries in (before, now)
    ]
    return InputDifference(where, counts[0], f"{counts[1]}: {summary or 'in another order'}")


def _first_names(names: Sequence[str]) -> str:
    rest = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
