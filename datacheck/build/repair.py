"""Repair damaged caches: link their intact shards into a build and rebuild the others.

The repaired cache must come out with the manifest that the damaged one had. Only then the two
folders are exchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from datacheck.build import publish, staging
from datacheck.build.builder import finish_build
from datacheck.build.input_differences import explain
from datacheck.build.job import BuildJob, Execution
from datacheck.build.prepare import PreparedBuild, prepare
from datacheck.build.salvage import salvage
from datacheck.build.target import folder_of
from datacheck.cache import layout
from datacheck.cache.damage import changed_files
from datacheck.cache.find import find_builds, newest_caches
from datacheck.cache.manifest import Manifest, read_manifest
from datacheck.cache.problem import Problem
from datacheck.cache.store import Store, open_store
from datacheck.cache.verify import verify
from datacheck.errors import (
    CorruptionError,
    DatacheckError,
    ManyLines,
    NondeterministicBuildError,
    UsageError,
)
from datacheck.model.finding import Progress

# The entry of a file in a manifest, after its name.
_ENTRY = re.compile(rb'":\[(\d{1,19}),"([0-9a-f]{32})"\]')
_LONGEST_NAME = 4096  # bytes
_SHOWN = 10  # differences in a message
_LONGEST = 160  # characters of a value in a message
_TRIES = 5  # as a build may replace the cache while it is examined


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
    target = folder_of(out, prepared.address)
    folder = target.parent
    if target.exists():
        return target
    if any(build.name.startswith(f"{target.name}.") for build in find_builds(folder)):
        msg = (
            f"{target}: not there, but a build or repair of it was begun. Go on with it: "
            f"datacheck cache build"
        )
        raise UsageError(msg)
    newest = next(iter(newest_caches(folder)), None)
    if newest is None or newest == target:  # a build has published `target` in between
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


@dataclass(frozen=True, eq=False)
class _Examination:
    """The state of a cache before its repair.

    Args:
        status: the `stat` result of its folder.
        problems: its problems; empty if it is intact.
        manifest: as it was written; of a damaged one the readable entries, with a `digest` of "".
        intact: the files that match.
    """

    status: os.stat_result
    problems: list[Problem]
    manifest: Manifest
    intact: set[str]


def _repair(prepared: PreparedBuild, target: Path, execution: Execution) -> RepairedCache:
    examined = _examine(target)
    if not examined.problems:
        publish.acknowledge(target)  # the builder that renamed it may not have synced it
        return RepairedCache(target, [])
    plan = prepared.plan
    with staging.claim(target.parent, target.name) as stage:
        finished_before = stage.kept(plan)
        kept = salvage(
            target, examined.manifest.files, examined.intact, plan, stage, finished_before
        )
        finished = finish_build(prepared, stage, kept, None, execution)
        _check_repaired(finished.folder, target, finished.manifest, examined)
        moved = publish.replace(finished.folder, target, finished.manifest, examined.status)
    return RepairedCache(target, examined.problems, plan.shards, plan.shards - len(kept), moved)


def _examine(target: Path) -> _Examination:
    """Check a cache byte by byte; start again if another build replaced it in between.

    Raises:
        UsageError: it is gone, because another build is replacing it.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            status = target.stat()
            try:
                examined = _examine_once(target, status)
            except (OSError, DatacheckError):
                if os.path.samestat(status, target.stat()):
                    raise
                continue
            if os.path.samestat(status, target.stat()):
                return examined
    msg = f"{target}: another build is just replacing it. Run the same command again."
    raise UsageError(msg)


def _examine_once(target: Path, status: os.stat_result) -> _Examination:
    store = open_store(target)
    if store.size(layout.MANIFEST) is None:
        problems = [Problem(layout.MANIFEST, "missing", samples="all samples")]
    else:
        problems = verify(target, "full")
    if not any(problem.file == layout.MANIFEST for problem in problems):
        manifest = read_manifest(store)
        damaged = {problem.file for problem in problems}
        return _Examination(status, problems, manifest, set(manifest.files) - damaged)
    # Of a damaged manifest the readable entries count: an entry and a file that agree prove each
    # other.
    manifest = Manifest(_manifest_entries(store), "", "")
    listed = dict(store.files())
    candidates = [path for path, (size, _) in manifest.files.items() if listed.get(path) == size]
    intact = set(candidates) - set(changed_files(store, manifest, candidates))
    return _Examination(status, problems, manifest, intact)


def _manifest_entries(store: Store) -> dict[str, tuple[int, str]]:
    """Return the entries of files that are readable in a damaged manifest."""
    if dict(store.files()).get(layout.MANIFEST, -1) < 0:  # a link or a pipe is never opened
        return {}
    text = store.read(layout.MANIFEST)
    entries: dict[str, tuple[int, str]] = {}
    end = 0
    for entry in _ENTRY.finditer(text):
        name = _name_at_end(text[max(end, entry.start() - _LONGEST_NAME) : entry.start()])
        if name:
            entries[name] = int(entry[1]), entry[2].decode()
        end = entry.end()
    return entries


def _name_at_end(text: bytes) -> str:
    """Return what follows the last quote that is not escaped; "" without such a quote."""
    quote = text.rfind(b'"')
    while quote > 0 and _is_escaped(text, quote):
        quote = text.rfind(b'"', 0, quote)
    return text[quote + 1 :].decode("utf-8", "replace") if quote >= 0 else ""


def _is_escaped(text: bytes, place: int) -> bool:
    """Return whether the byte at `place` follows an odd number of backslashes."""
    start = place
    while start and text[start - 1] == ord("\\"):
        start -= 1
    return (place - start) % 2 == 1


def _check_repaired(folder: Path, target: Path, repaired: Manifest, examined: _Examination) -> None:
    """Raise unless a repaired cache equals the damaged one as it was written."""
    original = examined.manifest
    if not original.digest:  # the manifest was damaged: compare proven entries only
        proven = {path: entry for path, entry in repaired.files.items() if path in examined.intact}
        repaired = replace(repaired, files=proven)
        original = replace(repaired, files={path: original.files[path] for path in proven})
    differing = publish.first_difference(repaired, original)
    if differing is not None:
        aside = publish.set_aside(folder, target.parent, target.name)
        msg = (
            f"{target}: made again, {differing} is not what the cache held. A transform is not "
            f"deterministic, or the "
            f"cache is none that this datacheck built. It was not changed; what was made lies in "
            f"{aside}"
        )
        raise NondeterministicBuildError(msg)
