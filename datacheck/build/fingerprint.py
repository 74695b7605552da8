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
VALUES = 1  # one more whenever datacheck makes other values of the same files: no older cache is taken for a new one


def fingerprint(
    pipeline: str, schema: Schema, steps: Sequence[Transform], plan: Plan, sources: Mapping[str, str]
) -> str:
    """Return the key of a cache: the first 16 hex digits of xxh3_128 over the canonical JSON of its inputs.

    Args:
        pipeline: its name.
        schema: the declarations in force for the split.
        steps: the bound transforms, in order.
        plan: the samples with the gate's verdict on each, the layout and the cut.
        sources: digest of every file that is read, by path.

    Raises:
        TypeError, ValueError: something has no canonical form: an error, never a random key.

    Notes:
        Paths of extra roots and of a tokenizer say where things lie on this machine, not what they are: left out. The
        verdict is over (key, readable, valid, codes), so a new threshold makes a new cache.
    """
    said = {
        "format": layout.FORMAT,
        "values": VALUES,
        "pipeline": pipeline,
        "schema": _said(schema),
        "split": plan.split,
        "transforms": [step.identity() for step in steps],
        "layout": [[n, s.dtype, list(s.item), s.dim, s.kind, s.optional, dict(s.attrs)] for n, s in plan.specs.items()],
        "shard_samples": plan.k,
        "sources": sorted(sources.items()),
        "samples": _verdict(plan.samples),
    }
    return digest_value(said)[:KEY_DIGITS]


def _verdict(samples: Samples) -> list[Any]:
    """Return digests of the keys and of who is readable and valid, and the codes of those that are not."""
    masks = (digest_array(np.asarray(mask, dtype=bool)) for mask in (samples.readable, samples.valid))
    codes = [[key, list(codes)] for key, codes in zip(samples.keys, samples.codes, strict=True) if codes]
    return [digest_bytes("\0".join(samples.keys).encode()), *masks, digest_value(codes)]


def _said(schema: Schema) -> dict[str, Any]:
    said = schema.as_dict()
    said.pop("roots", None)
    if "tokenizer" in said:
        said["tokenizer"].pop("path", None)
    if schema.loader is not None:  # the order of its steps matters, and canonical JSON sorts keys
        said["loader"] = [list(step) for step in schema.loader.steps]
    return said
