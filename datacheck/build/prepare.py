"""Prepare a build: decide the fields, the steps, the cut into shards and the key; read no data.

`prepare` turns a job into a `PreparedBuild`. Everything after it only makes what is decided here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck import transforms
from datacheck.build.field_layout import (
    count_unfit,
    default_windows,
    estimate_sample_bytes,
    resolve,
    storage_specs,
    without_unstorable,
)
from datacheck.build.fingerprint import Fingerprint, key_inputs, recipe
from datacheck.build.job import BuildJob
from datacheck.build.plan import BuildPlan, make_plan
from datacheck.cache import layout, parsing
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.plugins import add_module_folders
from datacheck.transforms.base import Transform

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class PreparedBuild:
    """A build of one split, decided.

    Args:
        job: what it is made from.
        plan: the fields of the cache, and the cut of its samples into shards and tasks.
        steps: the transforms, bound to the fields.
        fingerprint: what the bytes of the cache follow from.
    """

    job: BuildJob
    plan: BuildPlan
    steps: Sequence[Transform]
    fingerprint: Fingerprint

    @property
    def key(self) -> str:
        """The key of the cache."""
        return self.fingerprint.key

    @property
    def address(self) -> tuple[str, str, str]:
        """Pipeline, split and key: the path of the cache below the folder of caches."""
        return self.job.pipeline, self.plan.split, self.key

    @property
    def windows(self) -> dict[str, Any] | None:
        """The default windows over episodes."""
        return default_windows(self.job.split_schema, self.plan.specs)

    def unfit_counts(self, made: Array) -> dict[str, tuple[int, str]]:
        """Return, by field, how many valid samples have other sizes than the cache, and its sizes.

        Shapes:
            made: bool (samples)

        Args:
            made: the samples that are made; each other one counts for its first such field.
        """
        plan = self.plan
        specs = {name: plan.specs[name] for name in sorted(plan.unchanged_axes)}
        not_made = plan.samples.readable & plan.samples.valid & ~made
        return count_unfit(specs, self.job.field_stats, not_made)

    def certain_bytes(self, existing: Collection[int]) -> int:
        """Return the bytes that the shards which do not exist yet need at least.

        Certain are fixed fields, and ragged rows as read where no transform changes them; nothing
        is certain of compressed fields.
        """
        job, plan = self.job, self.plan
        if plan.compressed:
            return 0
        missing = np.ones(len(plan.samples), bool)
        for g in existing:
            missing[plan.shard(g)] = False
        rows = missing & plan.samples.readable & plan.samples.valid
        needed = 0
        for name, spec in plan.specs.items():
            if spec.dim is None:
                needed += int(missing.sum()) * spec.item_bytes
            elif spec.kind == "array" and not job.steps:
                needed += int(job.field_stats[name].length[rows].sum()) * spec.item_bytes
        return needed


def prepare(job: BuildJob) -> PreparedBuild:
    """Return the plan, the bound transforms and the fingerprint of a build; reads no data.

    Raises:
        UsageError: no sample can be read, or a transform does not fit the fields.
    """
    samples = job.samples
    split = job.split or layout.NO_SPLIT
    if not samples.readable.any():
        msg = f"split {split}: none of {len(samples)} samples can be read. See why: datacheck scan"
        raise UsageError(msg)
    add_module_folders(job.paths)
    fields_read, left_out = _fields_as_read(job)
    steps, fields_made = _bind_steps(job, fields_read)
    if not fields_made:
        msg = (
            f"split {split}: no field is left to store. Look at the transforms and at fields: in "
            f"the schema"
        )
        raise UsageError(msg)
    specs = storage_specs(fields_made)
    _check_sizes(job, specs)
    plan = make_plan(
        split,
        samples,
        specs,
        estimate_sample_bytes(fields_read, specs, job.field_stats, samples),
        job.codec,
        left_out=left_out,
        unchanged_axes=_unchanged_axes(storage_specs(fields_read), specs),
    )
    return PreparedBuild(job, plan, steps, _fingerprint(job, plan, steps))


def _fields_as_read(job: BuildJob) -> tuple[dict[str, ArraySpec], list[str]]:
    """Return the fields before the first step, and a sentence for each that is left out."""
    schema = job.split_schema
    usable = job.samples.valid & job.samples.readable
    resolved = resolve(schema, job.field_stats, usable, own_code=job.own_code)
    fields, left_out = without_unstorable(resolved, schema, job.field_stats, job.samples)
    if job.excess_fields:
        left_out.append(
            f"{job.excess_fields:,} fields more than a cache has. List those that it should hold"
        )
    return fields, left_out


def _bind_steps(
    job: BuildJob, fields: Mapping[str, ArraySpec]
) -> tuple[list[Transform], dict[str, ArraySpec]]:
    """Return the bound steps, and the fields after the last one."""
    absent = {
        name
        for name, spec in job.split_schema.stored.items()
        if name not in fields and (spec.absent or spec.optional)
    }
    return transforms.bind([step.below(job.root) for step in job.steps], fields, absent)


def _check_sizes(job: BuildJob, specs: Mapping[str, ArraySpec]) -> None:
    """Raise for a cache that readers would refuse, before anything is made.

    Raises:
        UsageError: too many files, or samples or windows that are too large.
    """
    if len(job.sources) > parsing.SOURCES:
        msg = (
            f"{len(job.sources):,} files; a cache is made of {parsing.SOURCES:,} at most. "
            "Pack small files into shards (tar), or build a cache of each part."
        )
        raise UsageError(msg)
    try:
        parsing.check_sizes(default_windows(job.split_schema, specs), specs)
    except ValueError as error:
        msg = (
            f"{error}. Leave fields out (transforms: select), or make windows shorter (windows: "
            f"in the schema)."
        )
        raise UsageError(msg) from error


def _unchanged_axes(read: Mapping[str, ArraySpec], made: Mapping[str, ArraySpec]) -> frozenset[str]:
    """Return the fields whose axes no step changes."""
    return frozenset(
        name
        for name in read.keys() & made.keys()
        if (read[name].kind, read[name].dim, read[name].item)
        == (made[name].kind, made[name].dim, made[name].item)
    )


def _fingerprint(job: BuildJob, plan: BuildPlan, steps: Sequence[Transform]) -> Fingerprint:
    schema = job.split_schema
    digest_of = {path: entry.digest or "" for path, entry in job.sources.items()}
    inputs = key_inputs(job.pipeline, schema, steps, plan, digest_of)
    return Fingerprint(inputs, recipe(schema, steps, plan))
