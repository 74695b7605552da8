"""Build the cache of one split: prepare, claim a folder, make shards, finish, publish by one rename.

Each stage hands a value to the next:

    BuildJob            what the split is made from                     job
    PreparedBuild       fields, steps, cut and key; no data are read    prepare
    Target, Staging     where the cache goes; the builder's own folder  target, staging
    ReusableCache       what an earlier cache can give                  reuse
    ShardRecord         one finished shard                              make_shards
    FinishedCache       a complete folder, with its manifest            finish
    Built               what was published

Nothing is visible before the rename. If the build ends before it (a full disk, Ctrl-C, a kill), the
finished shards stay, and the same command continues with them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from datacheck.build.check import Share, check_shards
from datacheck.build.finish import CacheFinisher, FinishedCache
from datacheck.build.job import BuildJob, Execution
from datacheck.build.make_shards import make_shards
from datacheck.build.prepare import PreparedBuild, prepare
from datacheck.build.provenance import ShardRecord
from datacheck.build.reuse import ReusableCache, Reuse, find_reusable
from datacheck.build.staging import Staging, claim
from datacheck.build.target import Target, target_of
from datacheck.cache import Cache, open_cache
from datacheck.errors import OutOfSpaceError, UsageError
from datacheck.model.finding import Progress


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
            directory (see `target.target_of`).
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
    execution = Execution(workers, scheduler, progress)
    prepared = prepare(job)
    target = target_of(out, prepared.address, staging)
    existing, moved = target.finished()
    if existing is None:
        return _build_new(prepared, target, moved, execution, reuse=reuse, check=check)
    built = _existing_cache(prepared, target, existing)
    if check is None:
        return built
    with claim(target.place, prepared.key) as stage:
        checked = check_shards(prepared, check, existing, stage.second_records(), execution)
    return replace(built, checked=checked)


def _existing_cache(prepared: PreparedBuild, target: Target, cache: Cache) -> Built:
    target.settle()
    return Built(
        target.path,
        prepared.plan.split,
        samples=len(cache),
        made=int(cache.made.sum()),
        valid=int((cache.made & cache.valid).sum()),
        nbytes=_total_bytes(cache.manifest.files),
        reused=True,
        shards=prepared.plan.shards,
        left_out=prepared.plan.left_out,
        unfit=prepared.unfit_counts(cache.made),
    )


def _build_new(
    prepared: PreparedBuild,
    target: Target,
    moved: Path | None,
    execution: Execution,
    *,
    reuse: bool,
    check: Share | None,
) -> Built:
    """Build and publish a cache that does not exist yet.

    Args:
        prepared: what is built.
        target: where it goes.
        moved: where a damaged cache of the same name was moved, or None: its shards may be reused.
        execution: how the work is carried out.
        reuse, check: as in `build_cache`.
    """
    plan = prepared.plan
    checked = 0
    with claim(target.place, prepared.key) as stage:
        kept = stage.kept(plan)
        earlier = None
        if reuse:
            damaged = [] if moved is None else [moved]
            earlier = find_reusable([*damaged, *target.earlier()], prepared)
        finished = finish_build(prepared, stage, kept, earlier, execution)
        if check is not None:
            unpublished = open_cache(finished.folder, verify="manifest")
            checked = check_shards(prepared, check, unpublished, stage.second_records(), execution)

        def report_upload(sent: int, total: int) -> None:
            execution.report(plan.uploading(sent, total))

        outcome = target.publish(finished.folder, finished.manifest, report_upload)
    return Built(
        target.path,
        plan.split,
        samples=len(plan.samples),
        made=int(finished.made.sum()),
        valid=int(finished.valid.sum()),
        nbytes=_total_bytes(finished.manifest.files),
        reused=outcome == "theirs",
        not_made=finished.not_made,
        moved=moved,
        kept=len(kept),
        shards=plan.shards,
        reuse=None if earlier is None else earlier.reuse,
        checked=checked,
        left_out=plan.left_out,
        unfit=prepared.unfit_counts(finished.made),
    )


def finish_build(
    prepared: PreparedBuild,
    stage: Staging,
    kept: Mapping[int, ShardRecord],
    earlier: ReusableCache | None,
    execution: Execution,
) -> FinishedCache:
    """Make the missing shards and everything else of a cache, in the builder's own folder.

    Args:
        prepared: what is built.
        stage: the folder of this build.
        kept: the records of the shards that exist.
        earlier: an earlier cache whose shards may be linked or copied, or None.
        execution: how the work is carried out.

    Raises:
        UsageError, OutOfSpaceError: as in `build_cache`.
    """
    linkable = [] if earlier is None else earlier.shared
    _check_space(prepared, {*kept, *linkable}, stage.folder)
    records = make_shards(prepared, stage, kept, earlier, execution)
    folder, linked = stage.fence()
    finished = CacheFinisher(folder, prepared, records, linked).run()
    if not finished.made.any():
        key, reason = finished.not_made[0] if finished.not_made else ("", "")
        msg = f"split {prepared.plan.split}: no sample could be made; the first: {key}: {reason}"
        raise UsageError(msg)
    return finished


def _total_bytes(files: Mapping[str, tuple[int, str]]) -> int:
    return sum(size for size, _ in files.values())


def _check_space(prepared: PreparedBuild, existing: Collection[int], folder: Path) -> None:
    """Raise if the disk lacks space for the bytes that are certain to be written.

    Args:
        prepared: what is built.
        existing: the shards that are kept or linked.
        folder: on the disk.

    Raises:
        OutOfSpaceError: it does.
    """
    needed = prepared.certain_bytes(existing)
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and needed > free:  # some servers report no size
        msg = (
            f"{folder.parent.parent}: the cache needs {needed:,} bytes or more, {free:,} are free. "
            f"Free some space or "
            "choose another folder, then run the same command again."
        )
        raise OutOfSpaceError(msg)
