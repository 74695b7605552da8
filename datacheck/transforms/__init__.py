"""Pure, versioned steps from block to block; a pipeline lists them, `step` parses one."""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from pydantic import ValidationError

from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec, Block, Column
from datacheck.plugins import discover
from datacheck.schema.grammar import suggestion
from datacheck.transforms.base import Array, Refusal, Result, Specs, Transform, refuse, samples_of
from datacheck.transforms.custom import Custom


@cache
def transforms() -> dict[str, type[Transform]]:
    """Return every transform by name, built-in and from plug-ins."""
    classes = [
        t
        for t in discover("datacheck.transforms", type)
        if issubclass(t, Transform) and not inspect.isabstract(t) and t is not Custom
    ]
    return {t.name: t for t in sorted(classes, key=lambda t: t.name)}


def parse_step(entry: object) -> tuple[type[Transform], dict[str, Any]]:
    """Return the transform that an entry of a pipeline names, and its options as written.

    Args:
        entry: ``name``, or ``{name: options}``; a name with a colon is a function
            ``module:function``.

    Raises:
        UsageError: no transform has this name.
    """
    if isinstance(entry, str):
        entry = {entry: None}
    if not isinstance(entry, Mapping) or len(entry) != 1 or not isinstance(next(iter(entry)), str):
        msg = f"{entry!r} is not a step; write name: {{option: value}}"
        raise UsageError(msg)
    ((name, options),) = entry.items()
    if ":" in name:
        return Custom, {"use": name, **(options or {})}
    if name not in transforms():
        near = suggestion(name, transforms())
        msg = f"no transform {name!r}" + (
            near or f"; known are {', '.join(transforms())}, or module:function"
        )
        raise UsageError(msg)
    kind = transforms()[name]
    if options is not None and not isinstance(options, Mapping):
        if not kind.short:
            msg = f"{name}: found {options!r}; options are written {name}: {{option: value}}"
            raise UsageError(msg)
        options = {kind.short: options}
    return kind, dict(options or {})


def step(entry: object) -> Transform:
    """Return one step of a pipeline; see `parse_step`.

    Raises:
        UsageError: no transform has this name, or the options are wrong.
    """
    kind, options = parse_step(entry)
    try:
        return kind.model_validate(options)
    except ValidationError as error:
        problems = [
            ": ".join([*map(str, detail["loc"]), detail["msg"]]) for detail in error.errors()
        ]
        msg = f"{kind.name}: {'; '.join(problems)}"
        raise UsageError(msg) from error


def bind(
    steps: Sequence[Transform], specs: Specs, absent: Collection[str] = ()
) -> tuple[list[Transform], dict[str, ArraySpec]]:
    """Bind each step to the schema; return the steps and the specs after the last one.

    Args:
        steps: as listed in the pipeline.
        specs: the fields before the first step.
        absent: fields that the schema declares but the data do not have; steps that list them
            leave them out.

    Raises:
        UsageError: a step cannot process the fields before it.
    """
    bound: list[Transform] = []
    current_specs = dict(specs)
    for transform in steps:
        reduced = transform.without(absent)
        if reduced is not None:
            bound.append(reduced.bind(current_specs))
            current_specs = bound[-1].derive(current_specs)
    return bound, current_specs


def run(steps: Sequence[Transform], block: Block) -> tuple[list[Block], list[Refusal]]:
    """Return the blocks after all steps, and every sample that was refused on the way.

    Notes:
        A sample whose values were finite and no longer are is refused: no scan checks the output of
        a step.
    """
    blocks = [block]
    refused = []
    for transform in steps:
        results = [transform.apply(b) for b in blocks]
        blocks = [b for made, _ in results for b in made]
        refused += [r for _, refusals in results for r in refusals]
    if steps:
        allowed = {
            n
            for transform in steps
            if isinstance(transform, Custom)
            for n, spec in transform.fields.items()
            if not spec.finite
        }
        results = [_finite(made, block, allowed) for made in blocks]
        blocks = [b for made, _ in results for b in made]
        refused += [r for _, refusals in results for r in refusals]
    return blocks, refused


def _finite(made: Block, source: Block, allowed: Collection[str]) -> Result:
    """Return the block without the samples in which the steps created NaN or infinity."""
    own = {id(column) for column in source.fields.values()}
    fresh = {n: c for n, c in made.fields.items() if n not in allowed and id(c) not in own}
    spoiled = {name: bad for name, column in fresh.items() if (bad := _not_finite(column)).any()}
    if not spoiled:
        return [made], []
    before = np.logical_or.reduce([_not_finite(column) for column in source.fields.values()])
    already_broken = {key for key, bad in zip(source.keys, before, strict=True) if bad}
    new = np.logical_or.reduce([*spoiled.values()]) & [
        key not in already_broken for key in made.keys
    ]

    def reason(i: int) -> str:
        name = next(name for name, bad in spoiled.items() if bad[i])
        return (
            f"{name}: holds NaN or infinity, which the data do not: a step of the pipeline made it"
        )

    return refuse(made, new, reason)


def _not_finite(column: Column) -> Array:
    """Return bool (samples): whether a sample has a float that is not finite."""
    values = column.values
    if values.dtype.kind not in "fc":
        return np.zeros(len(column), bool)
    # A finite sum proves that all values are finite, and needs no array of flags.
    with np.errstate(all="ignore"):
        total = values.sum(dtype=np.result_type(values.dtype, np.float64))
    if np.isfinite(total):
        return np.zeros(len(column), bool)
    bad: Array = ~np.isfinite(values)
    return samples_of(
        np.logical_or.reduce(bad.reshape(len(values), math.prod(bad.shape[1:])), axis=1), column
    )
