"""Build a cache from a job: plan, write shards in child processes, finish, rename once.

Nothing is visible before the rename. If the build ends before it (a full disk, Ctrl-C, a kill), the
finished shards stay, and the same command continues with them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from datacheck import transforms
from datacheck.build import fingerprint
from datacheck.build.check import Share, checked
from datacheck.build.finish import CacheFinisher, CacheMetadata, FinishedCache, stamps, windows
from datacheck.build.job import BuildJob, digests, files_of, read_records, seek_points, tasks_of
from datacheck.build.plan import (
    BuildPlan,
    describe_shape,
    estimate_sample_bytes,
    make_plan,
    resolve,
    storage_specs,
    unfit,
    without_unstorable,
)
from datacheck.build.provenance import ShardRecord
from datacheck.build.reuse import ReusableCache, Reuse, find_reusable
from datacheck.build.staging import Staging, claim
from datacheck.build.target import Target, target_of
from datacheck.cache import Cache, layout, open_cache, parsing
from datacheck.cache.codec import PLAIN
from datacheck.errors import OutOfSpaceError, UsageError
from datacheck.model.finding import Progress, Tick, note_reporter
from datacheck.model.sample import ArraySpec
from datacheck.plugins import add_module_folders
from datacheck.schema.model import Schema
from datacheck.transforms.base import Transform
from datacheck.workers.parallel import ordered_map

Array = np.ndarray[Any, Any]

_WRITE = "datacheck.build.shard_worker:write_shards"


@dataclass(frozen=True, eq=False)
class Built:
    """A published cache.

    Args:
        path: its folder or URL.
        split: the split's folder name.
        samples, made, valid: numbers of samples.
        nbytes: size of all its files.
        reused: the cache existed already: equal inputs, equal bytes.
        not_made: (key, reason) of readable samples that could not be made.
        moved: where a damaged cache of the same name was moved, or None.
        kept: how many shards a previous run had finished.
        shards: shards of each field.
        reuse: what was reused of an earlier cache; None if there was none.
        checked: how many shards were made a second time, with equal results.
        unlisted: (path, reason) of folders that could not be listed: no cache has their samples.
        left_out: a sentence for each field that few samples have and no cache can hold.
        unfit: by field: how many samples that are valid in the scan are not made because their
            sizes of it differ, and the sizes that the cache holds, "[n, 259, 3]"; each sample
            counts for its first such field.
    """

    path: Path | str
    split: str
    samples: int
    made: int
    valid: int
    nbytes: int
    reused: bool = False
    not_made: list[tuple[str, str]] = field(default_factory=list)
    moved: Path | None = None
    kept: int = 0
    shards: int = 0
    reuse: Reuse | None = None
    checked: int = 0
    unlisted: Sequence[tuple[str, str]] = ()
    left_out: Sequence[str] = ()
    unfit: Mapping[str, tuple[int, str]] = field(default_factory=dict)


def prepare(job: BuildJob) -> tuple[BuildPlan, list[Transform], dict[str, Any]]:
    """Return the plan, the bound transforms and the content of ``inputs.json``; reads no data.

    Raises:
        UsageError: no sample can be read, or a transform does not fit the fields.
    """
    samples = job.samples
    split = job.split or layout.NO_SPLIT
    if not samples.readable.any():
        msg = f"split {split}: none of {len(samples)} samples can be read. See why: datacheck scan"
        raise UsageError(msg)
    add_module_folders(job.paths)
    schema = job.schema.for_split(job.split)
    own_code = any(step.own_code for step in job.steps)
    resolved = resolve(schema, job.seen, samples.valid & samples.readable, own_code=own_code)
    before, left_out = without_unstorable(resolved, schema, job.seen, samples)
    absent = {
        name
        for name, spec in schema.stored.items()
        if name not in before and (spec.absent or spec.optional)
    }
    steps, after = transforms.bind([step.below(job.root) for step in job.steps], before, absent)
    if not after:
        msg = (
            f"split {split}: no field is left to store. Look at the transforms and at fields: in "
            f"the schema"
        )
        raise UsageError(msg)
    specs = storage_specs(after)
    _check_sizes(job, schema, specs)
    plan = make_plan(
        split, samples, specs, estimate_sample_bytes(before, specs, job.seen, samples), job.codec
    )
    if job.too_many:
        left_out.append(
            f"{job.too_many:,} fields more than a cache has. List those that it should hold"
        )
    read = {name: (spec.kind, spec.dim, spec.item) for name, spec in storage_specs(before).items()}
    unchanged_axes = frozenset(
        n for n, spec in specs.items() if read.get(n) == (spec.kind, spec.dim, spec.item)
    )
    plan = replace(plan, left_out=left_out, unchanged_axes=unchanged_axes)
    key_inputs = fingerprint.key_inputs(
        job.pipeline, schema, steps, plan, {p: e.digest or "" for p, e in job.sources.items()}
    )
    return plan, steps, {"said": key_inputs, "recipe": fingerprint.recipe(schema, steps, plan)}


def _check_sizes(job: BuildJob, schema: Schema, specs: Mapping[str, ArraySpec]) -> None:
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
        parsing.check_sizes(windows(schema, specs), specs)
    except ValueError as error:
        msg = (
            f"{error}. Leave fields out (transforms: select), or make windows shorter (windows: "
            f"in the schema)."
        )
        raise UsageError(msg) from error


def build_cache(
    job: BuildJob,
    out: Path | str,
    *,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
    reuse: bool = True,
    staging: Path | None = None,
    check: Share | None = None,
) -> Built:
    """Build the cache of one split, or return the existing one.

    Args:
        job: what to build.
        out: the folder or URL that holds caches; the new one is ``out/<pipeline>/<split>/<key>``.
        workers, scheduler: as in `parallel.ordered_map`.
        progress: called after every task, and after each file of an upload.
        reuse: take equal shards and samples from the newest earlier cache, see `reuse`; else make
            everything. For a URL nothing is reused.
        staging: the folder in which caches for a URL are built; None: a folder in the user's cache
            directory (see `publish.target_of`).
        check: also make "some" or "all" shards a second time, and publish nothing if one differs.

    Raises:
        UsageError: nothing can be made, or a source changed since the scan.
        OutOfSpaceError: the disk is full.
        NondeterministicBuildError: another builder of the same inputs published other content, or
            the check failed.

    Notes:
        The bytes depend on the job alone: not on workers, machines, or the order in which workers
        finish.
    """
    plan, steps, inputs = prepare(job)
    key = fingerprint.key(inputs["said"])
    target = target_of(out, (job.pipeline, plan.split, key), staging)
    finished, moved = target.finished()
    recheck = partial(
        checked, job, plan, steps, workers=workers, scheduler=scheduler, progress=progress
    )
    if finished is not None:
        built = replace(
            _existing_cache(target, plan, finished), unfit=_unfit(job, plan, finished.made)
        )
        if check is None:
            return built
        with claim(target.place, key) as stage:
            return replace(built, checked=recheck(check, finished, stage.folder))
    with claim(target.place, key) as stage:
        kept_records = stage.kept(plan)
        folders = [*([moved] if moved is not None else []), *target.earlier()] if reuse else []
        reusable = find_reusable(folders, inputs["recipe"], plan, files_of(job))
        folder, finished_cache = finish_build(
            job, plan, steps, inputs, stage, kept_records, reusable, workers, scheduler, progress
        )
        checked_count = (
            0
            if check is None
            else recheck(check, open_cache(folder, verify="manifest"), stage.folder)
        )
        outcome = target.publish(folder, finished_cache.manifest, _upload_progress(plan, progress))
    size = sum(n for n, _ in finished_cache.manifest.files.values())
    count = (len(plan.samples), int(finished_cache.made.sum()), int(finished_cache.valid.sum()))
    reuse_counts = None if reusable is None else reusable.reuse
    theirs = outcome == "theirs"
    return Built(
        target.path,
        plan.split,
        *count,
        size,
        theirs,
        finished_cache.not_made,
        moved,
        len(kept_records),
        plan.shards,
        reuse_counts,
        checked_count,
        left_out=plan.left_out,
        unfit=_unfit(job, plan, finished_cache.made),
    )


def _unfit(job: BuildJob, plan: BuildPlan, made: Array) -> dict[str, tuple[int, str]]:
    """Return the value of `Built.unfit`.

    Shapes:
        made: bool (samples)
    """
    not_made = plan.samples.readable & plan.samples.valid & ~made
    summary: dict[str, tuple[int, str]] = {}
    for name, misfits in unfit({n: plan.specs[n] for n in plan.unchanged_axes}, job.seen).items():
        affected = not_made & misfits
        if affected.any():
            summary[name] = (int(affected.sum()), describe_shape(plan.specs[name]))
            not_made &= ~misfits
    return summary


def finish_build(
    job: BuildJob,
    plan: BuildPlan,
    steps: Sequence[Transform],
    inputs: Mapping[str, Any],
    stage: Staging,
    kept: Mapping[int, ShardRecord],
    old: ReusableCache | None,
    workers: int,
    scheduler: str | None,
    progress: Progress | None,
) -> tuple[Path, FinishedCache]:
    """Make the missing shards and everything else; return the folder and the finished cache.

    Args:
        job: what to build.
        plan, steps, inputs: the result of `prepare`.
        stage: the folder of this build.
        kept: the records of the shards that exist.
        old: an earlier cache whose shards may be linked or copied, or None.
        workers, scheduler, progress: as in `build_cache`.

    Raises:
        UsageError, OutOfSpaceError: as in `build_cache`.
    """
    _check_space(job, plan, {*kept, *([] if old is None else old.shared)}, stage.folder)
    records = _make_shards(job, plan, steps, stage, kept, old, workers, scheduler, progress)
    key = fingerprint.key(inputs["said"])
    file_stamps = stamps(job.sources, job.hashed)
    metadata = CacheMetadata(
        job.pipeline, job.schema.for_split(job.split), key, inputs, digests(job), file_stamps
    )
    folder, linked = stage.fence()
    finished = CacheFinisher(folder, plan, metadata, records, linked).run()
    if not finished.made.any():
        reason = finished.not_made[0] if finished.not_made else ("", "")
        msg = f"split {plan.split}: no sample could be made; the first: {reason[0]}: {reason[1]}"
        raise UsageError(msg)
    return folder, finished


def _existing_cache(target: Target, plan: BuildPlan, cache: Cache) -> Built:
    target.settle()
    made = int(cache.made.sum())
    valid = int((cache.made & cache.valid).sum())
    size = sum(n for n, _ in cache.manifest.files.values())
    return Built(
        target.path,
        plan.split,
        len(cache),
        made,
        valid,
        size,
        reused=True,
        shards=plan.shards,
        left_out=plan.left_out,
    )


def _check_space(job: BuildJob, plan: BuildPlan, kept: Collection[int], folder: Path) -> None:
    """Raise if the disk lacks space for the bytes that are certain to be written.

    Certain are fixed fields, and ragged rows as read where no transform changes them.

    Raises:
        OutOfSpaceError: it does.

    Notes:
        Checks nothing for compressed fields, whose sizes are unknown.
    """
    if plan.codec != PLAIN:
        return
    todo = np.ones(len(plan.samples), bool)
    for g in kept:
        todo[plan.shard(g)] = False
    needed = 0
    for name, spec in plan.specs.items():
        if spec.dim is None:
            needed += int(todo.sum()) * spec.item_bytes
        elif spec.kind == "array" and not job.steps:
            certain = todo & plan.samples.readable & plan.samples.valid
            needed += int(job.seen[name].length[certain].sum()) * spec.item_bytes
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and needed > free:  # some servers report no size
        msg = (
            f"{folder.parent.parent}: the cache needs {needed:,} bytes or more, {free:,} are free. "
            f"Free some space or "
            "choose another folder, then run the same command again."
        )
        raise OutOfSpaceError(msg)


def _make_shards(
    job: BuildJob,
    plan: BuildPlan,
    steps: Sequence[Transform],
    stage: Staging,
    kept: Mapping[int, ShardRecord],
    old: ReusableCache | None,
    workers: int,
    scheduler: str | None,
    progress: Progress | None,
) -> dict[int, ShardRecord]:
    """Make all shards except the kept ones; return the records of all."""
    records = dict(kept)
    several = (workers > 1 or scheduler is not None) and len(kept) < plan.shards
    points = seek_points(job, plan) if several else {}
    tick = plan.after(plan.before("building", range(plan.shards)), kept)._replace(kept=len(kept))

    def make(excluded: Collection[int], earlier: ReusableCache | None) -> None:
        nonlocal tick
        series = [
            [
                remaining
                for batch in batches
                if (remaining := [g for g in batch if g not in records and g not in excluded])
            ]
            for batches in plan.series(points)
        ]
        # No idle processes: starting one takes longer than making a few shards.
        needed = min(workers, sum(map(bool, series)))
        tasks = tasks_of(
            job, plan, steps, chain.from_iterable(series), stage.shards, stage.records, earlier
        )
        with contextlib.closing(
            ordered_map(  # type: ignore[type-var]
                _WRITE,
                (
                    next(tasks) if len(batches) == 1 else list(islice(tasks, len(batches)))
                    for batches in series
                    if batches
                ),
                workers=needed,
                scheduler=scheduler,
                limits=job.limits,
                told=note_reporter(progress, tick),
                sandbox=job.sandbox(
                    read=[] if earlier is None else [earlier.folder],
                    write=[stage.shards, stage.records],
                ),
            )
        ) as outcomes:
            for outcome in outcomes:
                new_records = {
                    record.g: record for record in read_records(outcome, stage.records, plan)
                }
                records.update(new_records)
                if earlier is not None:
                    earlier.note_copied(new_records)
                    earlier.note_lost(
                        [
                            g
                            for order in outcome.task["items"]
                            if (g := order["g"]) not in new_records
                        ]
                    )
                tick = plan.after(tick, new_records)
                if progress is not None:
                    progress(tick)

    if old is not None:
        # A step that sees several samples at once may give others with other neighbours.
        independent = all(step.by_sample for step in steps)
        linkable = [g for g in old.shared if g not in records]
        with old.linking(stage, linkable) as linked:
            make(linkable, old if independent else None)
            linked_records = linked()
        records |= linked_records
        tick = plan.after(tick, linked_records)._replace(kept=tick.kept + len(linked_records))
        if progress is not None and linked_records:
            progress(tick)
    make([], None)  # everything, or the shards that an earlier cache could not provide
    return records


def _upload_progress(plan: BuildPlan, progress: Progress | None) -> Callable[[int, int], None]:
    def said(done: int, total: int) -> None:
        if progress is not None:
            tick = Tick(
                plan.shards,
                plan.shards,
                done,
                total,
                len(plan.samples),
                0,
                f"uploading {plan.split}",
                "shards",
            )
            progress(tick)

    return said
