"""Repair damaged caches: link their intact shards into a build and rebuild the others.

The repaired cache must come out with the manifest that the damaged one had. Only then the two
folders are exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from datacheck.build import publish, staging
from datacheck.build.builder import finish_build
from datacheck.build.damaged_cache import examine
from datacheck.build.input_differences import explain
from datacheck.build.job import BuildJob, Execution
from datacheck.build.prepare import PreparedBuild, prepare
from datacheck.build.salvage import salvage
from datacheck.build.target import FolderTarget, folder_of
from datacheck.cache.problem import Problem
from datacheck.errors import CorruptionError, ManyLines, NondeterministicBuildError, UsageError
from datacheck.model.finding import Progress

_SHOWN = 10  # differences in a message
_LONGEST = 160  # characters of a value in a message


@dataclass(frozen=True, eq=False)
class RepairedCache:
    """A cache that was checked, and repaired if needed.

    Args:
        path: its folder.
        problems: its problems; empty if it is intact, and was not touched.
        shards: shards of every field.
        rebuilt: how many of them were rebuilt.
        moved: where the damaged cache was moved, or None.
    """

    path: Path
    problems: list[Problem]
    shards: int = 0
    rebuilt: int = 0
    moved: Path | None = None


def repair_caches(
    jobs: Sequence[BuildJob],
    out: Path,
    *,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[RepairedCache]:
    """Check the caches of some splits byte by byte, and rebuild damaged shards only.

    Args:
        jobs: the jobs of the splits; splits without a cache are skipped.
        out: the folder that holds caches.
        workers, scheduler: as in `parallel.ordered_map`.
        progress: called after every task.

    Raises:
        UsageError: the sources, the schema or the pipeline give another key than that of the newest
            cache; the message says which part differs, and nothing is changed. Or there is no cache
            at all, or a source changed in between.
        OutOfSpaceError: the disk is full.
        NondeterministicBuildError: the rebuilt shards differ from the content of the cache.

    Notes:
        Intact shards are linked, damaged ones are made from the sources, tables and documents are
        written again; the manifest must come out the same. Only then the two folders are exchanged;
        readers of the damaged cache continue with its files.
    """
    execution = Execution(workers, scheduler, progress)
    caches = []
    for job in jobs:
        prepared = prepare(job)
        place = _cache_of(prepared, out)
        if place is not None:
            caches.append((prepared, place))
    if not caches:
        where = out / jobs[0].pipeline if jobs else out
        msg = f"{where}: no cache of these data. Build it: datacheck cache build"
        raise UsageError(msg)
    return [_repair(prepared, place, execution) for prepared, place in caches]


def _cache_of(prepared: PreparedBuild, out: Path) -> Path | None:
    """Return the cache that a build makes; None if the split has no cache at all.

    Raises:
        UsageError: the split has only caches of other inputs, or an unfinished build of these
            inputs.
        StorageError: the folder of the pipeline or of the split is a link.
    """
    target = FolderTarget(folder_of(out, prepared.address))
    if target.exists():
        return target.path
    if target.is_begun():
        msg = (
            f"{target.path}: not there, but a build or repair of it was begun. Go on with it: "
            f"datacheck cache build"
        )
        raise UsageError(msg)
    newest = target.newest()
    if newest is None or newest == target.path:  # a build has published it in between
        return newest
    msg = (
        f"{newest}: made from other data, another schema or pipeline than these, so they cannot "
        f"repair it:"
    )
    raise UsageError(ManyLines.of([msg, *_describe_differences(prepared, newest)]))


def _describe_differences(prepared: PreparedBuild, cache: Path) -> list[str]:
    try:
        differences = explain(prepared, cache)
    except CorruptionError as error:
        return [f"    what differs cannot be told: {error}"]
    lines = [
        f"    {d.where}: {d.before[:_LONGEST]} -> {d.now[:_LONGEST]}" for d in differences[:_SHOWN]
    ]
    if len(differences) > _SHOWN:
        lines.append(f"    ... and {len(differences) - _SHOWN} more")
    return lines


def _repair(prepared: PreparedBuild, target: Path, execution: Execution) -> RepairedCache:
    examined = examine(target)
    if not examined.problems:
        publish.acknowledge(target)  # the builder that renamed it may not have synced it
        return RepairedCache(target, [])
    plan = prepared.plan
    with staging.claim(target.parent, target.name) as stage:
        finished_before = stage.kept(plan)
        kept = salvage(target, examined, plan, stage, finished_before)
        finished = finish_build(prepared, stage, kept, None, execution)
        differing = publish.first_difference(*examined.comparable(finished.manifest))
        if differing is not None:
            aside = publish.set_aside(finished.folder, target.parent, target.name)
            raise _not_reproduced(target, differing, aside)
        moved = publish.replace(finished.folder, target, finished.manifest, examined.status)
    return RepairedCache(target, examined.problems, plan.shards, plan.shards - len(kept), moved)


def _not_reproduced(target: Path, differing: str, aside: Path) -> NondeterministicBuildError:
    return NondeterministicBuildError(
        f"{target}: made again, {differing} is not what the cache held. A transform is not "
        f"deterministic, or the "
        f"cache is none that this datacheck built. It was not changed; what was made lies in "
        f"{aside}"
    )
