"""The fingerprint of a build: what decides the bytes of a cache, and the key that is its digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.build.job import SplitSamples
from datacheck.build.plan import BuildPlan
from datacheck.cache import layout
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
        "areas",
        "pixels_of",
        "box_format",
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
        "continues",
        "tools",
        "images",
        "videos",
        "audios",
        "preferred_over",
        "spans_of",
        "unanswerable",
        "label_of",
        "shift",
        "min_trained_tokens",
    }
)
# Increment whenever datacheck makes other values from the same files, so that older caches are not
# taken for new ones.
VALUES = 2


@dataclass(frozen=True)
class Fingerprint:
    """The fingerprint of a build; ``inputs.json`` of its cache keeps it.

    Args:
        inputs: everything that decides the bytes, see `key_inputs`.
        recipe: a digest of the part that decides the arrays of one sample, see `recipe`.
    """

    inputs: Mapping[str, Any]
    recipe: str

    @property
    def key(self) -> str:
        """The key of the cache, 16 hex digits: the start of the xxh3_128 of the canonical JSON.

        Raises:
            TypeError, ValueError: a value has no canonical form.
        """
        return digest_value(self.inputs)[:KEY_DIGITS]

    def as_dict(self) -> dict[str, Any]:
        """Return the content of ``inputs.json``."""
        return {"said": dict(self.inputs), "recipe": self.recipe}


def key_inputs(
    pipeline: str,
    schema: Schema,
    steps: Sequence[Transform],
    plan: BuildPlan,
    sources: Mapping[str, str],
) -> dict[str, Any]:
    """Return the inputs of a build as JSON values.

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
        "shard_samples": plan.shard_samples,
        "sources": digest_value(sorted(sources.items())),
        "samples": _verdict(plan.samples),
    }


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
