"""The fingerprint of a build: a digest over everything that decides the bytes of a cache.

Also explains how the inputs of two builds differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build.finish import NOT_MADE
from datacheck.build.plan import BuildPlan, SplitSamples
from datacheck.cache import layout, open_cache
from datacheck.cache.manifest import CacheFiles
from datacheck.cache.parsing import parse_document
from datacheck.cache.store import open_store
from datacheck.runtime.hashing import digest_array, digest_bytes, digest_value
from datacheck.schema.model import Schema
from datacheck.transforms.base import Transform

KEY_DIGITS = 16
# Keys that only judge samples, and never change how a sample is read or made. A missing key costs
# reuse; a wrongly listed one would serve stale data. `when` is safe to list: the declarations are
# already those of one split.
_JUDGES = frozenset(
    {"rules", "checks", "duplicates", "splits", "windows", "episode", "loader", "attrs", "when"}
)
_JUDGES_OF_FIELDS = frozenset(
    {
        "range",
        "size",
        "distance",
        "centered",
        "centered_on",
        "up",
        "max_speed",
        "robot",
        "drives",
        "lag",
        "values",
        "near",
        "posed_by",
        "rests",
        "indexes",
        "encloses",
        "pixels_of",
        "annotates",
        "encodes",
        "share",
        "stats",
        "ignore",
        "classes",
        "min_points",
        "min_instances",
        "must_be",
        "speakers",
        "train_on",
        "preferred_over",
        "label_of",
        "shift",
        "min_trained_tokens",
    }
)
# Increment whenever datacheck makes other values from the same files, so that older caches are not
# taken for new ones.
VALUES = 2


def key_inputs(
    pipeline: str,
    schema: Schema,
    steps: Sequence[Transform],
    plan: BuildPlan,
    sources: Mapping[str, str],
) -> dict[str, Any]:
    """Return the inputs of a build as JSON values; ``inputs.json`` of the cache keeps them.

    Args:
        pipeline: its name.
        schema: the declarations in force for the split.
        steps: the bound transforms, in order.
        plan: the samples with the verdict on each, the layout and the cut.
        sources: digest of every file that is read, by path.

    Notes:
        Leaves out the paths of extra roots and of a tokenizer: they name places on this machine,
        not content. The verdict covers (key, readable, valid, codes), so a new threshold makes a
        new cache.
    """
    return {
        **_recipe(schema, steps, plan),
        "pipeline": pipeline,
        "split": plan.split,
        "shard_samples": plan.k,
        "sources": digest_value(sorted(sources.items())),
        "samples": _verdict(plan.samples),
    }


def key(inputs: Mapping[str, Any]) -> str:
    """Return the key of a cache from `key_inputs`, 16 hex digits.

    It is the start of the xxh3_128 of the canonical JSON.

    Raises:
        TypeError, ValueError: a value has no canonical form.
    """
    return digest_value(inputs)[:KEY_DIGITS]


def recipe(schema: Schema, steps: Sequence[Transform], plan: BuildPlan) -> str:
    """Return a digest of how the arrays of a sample are made, 32 hex digits.

    Caches of equal recipes have equal shards for equal samples.

    Notes:
        Declarations that only judge samples do not count: after a change of a threshold the arrays
        of an earlier cache are reused.
    """
    parts = _recipe(schema, steps, plan)
    declared = {name: value for name, value in parts["schema"].items() if name not in _JUDGES}
    declared["fields"] = {
        name: {key: value for key, value in spec.items() if key not in _JUDGES_OF_FIELDS}
        for name, spec in declared.get("fields", {}).items()
    }
    return digest_value({**parts, "schema": declared})


def _recipe(schema: Schema, steps: Sequence[Transform], plan: BuildPlan) -> dict[str, Any]:
    return {
        "format": layout.FORMAT,
        "values": VALUES,
        "codec": str(plan.codec),
        "schema": _declared(schema),
        "transforms": [step.identity() | _of_vectors(step, plan) for step in steps],
        "layout": [
            [n, s.dtype, list(s.item), s.dim, s.kind, s.optional, dict(s.attrs)]
            for n, s in plan.specs.items()
        ],
    }


def _of_vectors(step: Transform, plan: BuildPlan) -> dict[str, int]:
    """Return a version mark for a step that changes parts of a field of one vector per sample.

    Such a step once changed only the first sample of each block. Caches of that time must get
    another key; all others keep theirs.
    """
    specs = [plan.specs[name] for name in step.partly_changed_fields if name in plan.specs]
    return {"vectors": 2} if any(spec.dim is None and len(spec.item) == 1 for spec in specs) else {}


def _verdict(samples: SplitSamples) -> dict[str, str]:
    """Return digests of the keys, of the masks readable and valid, and of the finding codes."""
    codes = [
        [key, list(codes)] for key, codes in zip(samples.keys, samples.codes, strict=True) if codes
    ]
    return {
        "keys": digest_bytes("\0".join(samples.keys).encode()),
        "readable": digest_array(np.asarray(samples.readable, dtype=bool)),
        "valid": digest_array(np.asarray(samples.valid, dtype=bool)),
        "codes": digest_value(codes),
    }


def _declared(schema: Schema) -> dict[str, Any]:
    declared = schema.as_dict()
    declared.pop("roots", None)
    if "tokenizer" in declared:
        declared["tokenizer"].pop("path", None)
    # As a list, because the order of the steps matters and canonical JSON sorts keys.
    if schema.loader is not None:
        declared["loader"] = [list(step) for step in schema.loader.steps]
    return declared


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


def explain(
    said: Mapping[str, Any],
    sources: Mapping[str, tuple[int, str]],
    samples: SplitSamples,
    cache: Path | str,
) -> list[InputDifference]:
    """Return the differences between a build's inputs and those of a finished cache, by path.

    Args:
        said: the inputs of the build, see `key_inputs`.
        sources: size and digest of its files, by path.
        samples: its samples, with the verdict on each.
        cache: the folder or URL of the cache.

    Raises:
        CorruptionError: the documents of the cache are damaged.
    """

    def judged() -> dict[str, Codes]:
        return {
            key: tuple(sorted(codes))
            for key, codes in zip(samples.keys, samples.codes, strict=True)
        }

    return _compare(_by_name(said), lambda: sources, judged, cache)


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
    names = opened.keys(np.arange(len(opened)))
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
