"""The fingerprint of a build: a digest over everything that decides the bytes of the cache, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datacheck.build.plan import Plan, Samples
from datacheck.cache import layout
from datacheck.digest import digest_array, digest_bytes, digest_value
from datacheck.schema.model import Schema
from datacheck.transforms.base import Transform

KEY_DIGITS = 16
# What only judges samples, and never changes what is read or made of one. A key that is not listed costs reuse where it
# might; one listed wrongly would serve stale data. `when` is settled before: declarations are those of one split.
_JUDGES = frozenset({"rules", "checks", "duplicates", "splits", "windows", "episode", "loader", "attrs", "when"})
_JUDGES_OF_FIELDS = frozenset({
    "range", "size", "distance", "centered", "centered_on", "up", "max_speed", "robot", "drives", "lag", "values",
    "near", "posed_by", "rests", "indexes", "encloses", "pixels_of", "annotates", "encodes", "share", "stats", "ignore",
    "classes", "min_points", "min_instances", "must_be", "speakers", "train_on", "preferred_over", "label_of", "shift",
    "min_trained_tokens",
})  # fmt: skip
VALUES = 2  # one more whenever datacheck makes other values of the same files: no older cache is taken for a new one


def said(
    pipeline: str, schema: Schema, steps: Sequence[Transform], plan: Plan, sources: Mapping[str, str]
) -> dict[str, Any]:
    """Return the inputs of a build as JSON values; ``inputs.json`` of the cache keeps them.

    Args:
        pipeline: its name.
        schema: the declarations in force for the split.
        steps: the bound transforms, in order.
        plan: the samples with the gate's verdict on each, the layout and the cut.
        sources: digest of every file that is read, by path.

    Notes:
        Paths of extra roots and of a tokenizer say where things lie on this machine, not what they are: left out. The
        verdict is over (key, readable, valid, codes), so a new threshold makes a new cache.
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
    """Return the key of a cache: the first 16 hex digits of xxh3_128 over the canonical JSON of `said`.

    Raises:
        TypeError, ValueError: something has no canonical form: an error, never a random key.
    """
    return digest_value(inputs)[:KEY_DIGITS]


def recipe(schema: Schema, steps: Sequence[Transform], plan: Plan) -> str:
    """Return a digest of what makes arrays of a sample: shards of equal samples and recipes are equal, 32 hex digits.

    Notes:
        What only judges samples does not count: with a new threshold the arrays of an earlier cache serve again.
    """
    made = _recipe(schema, steps, plan)
    declared = {name: value for name, value in made["schema"].items() if name not in _JUDGES}
    declared["fields"] = {
        name: {key: value for key, value in spec.items() if key not in _JUDGES_OF_FIELDS}
        for name, spec in declared.get("fields", {}).items()
    }
    return digest_value({**made, "schema": declared})


def _recipe(schema: Schema, steps: Sequence[Transform], plan: Plan) -> dict[str, Any]:
    return {
        "format": layout.FORMAT,
        "values": VALUES,
        "codec": str(plan.codec),
        "schema": _declared(schema),
        "transforms": [step.identity() | _of_vectors(step, plan) for step in steps],
        "layout": [[n, s.dtype, list(s.item), s.dim, s.kind, s.optional, dict(s.attrs)] for n, s in plan.specs.items()],
    }


def _of_vectors(step: Transform, plan: Plan) -> dict[str, int]:
    """Return a mark for a step that changes a part of a field of one vector each.

    It once changed the first sample of each block alone: caches of that time have another key, all others keep theirs.
    """
    specs = [plan.specs[name] for name in step.in_part if name in plan.specs]
    return {"vectors": 2} if any(spec.dim is None and len(spec.item) == 1 for spec in specs) else {}


def _verdict(samples: Samples) -> dict[str, str]:
    """Return digests of the keys, of who is readable and valid, and of the codes of those that are not."""
    codes = [[key, list(codes)] for key, codes in zip(samples.keys, samples.codes, strict=True) if codes]
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
    if schema.loader is not None:  # the order of its steps matters, and canonical JSON sorts keys
        declared["loader"] = [list(step) for step in schema.loader.steps]
    return declared
