"""From a job to a published cache: plan, write shards in expendable children, finish, rename once.

Nothing is visible before the rename. Whatever ends the build before it (an error, a full disk, Ctrl-C) removes what
this builder wrote and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from datacheck import fsops, transforms
from datacheck.build import fingerprint, record
from datacheck.build.finish import Facts, Finish
from datacheck.build.plan import Plan, Samples, cut, estimate, resolve, stored
from datacheck.build.record import Record
from datacheck.build.seen import Seen
from datacheck.build.writer import spec_as
from datacheck.cache import Cache, layout, open_cache
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.manifest import Manifest, read_manifest
from datacheck.cache.store import open_store
from datacheck.digest import digest_value
from datacheck.errors import CorruptionError, DatacheckError, NondeterministicBuildError, StorageError, UsageError
from datacheck.finding import Tick
from datacheck.parallel import Limits, Outcome, ordered_map
from datacheck.registry import find_in
from datacheck.schema.model import Schema
from datacheck.sources.entries import Entry
from datacheck.transforms.base import Transform

Array = np.ndarray[Any, Any]
Progress = Callable[[Tick], None]

_WRITE = "datacheck.build.writer:write_shards"
_SHARDS, _RECORDS = "shards", "records"  # below the staging: what becomes the cache, and what is known of each shard
_LIMITS = Limits(item_s=600.0)  # for a whole shard


@dataclass(frozen=True, eq=False)
class Job:
    """Everything a build of one split is made from: plain data, the scan's verdict included.

    Args:
        pipeline: its name: the folder below the output.
        schema: the whole schema; `Schema.for_split` is applied here.
        split: the split, "" for a dataset without splits.
        root, roots: where the files are.
        steps: the pipeline's transforms, unbound.
        samples: in key order, with the verdict on each.
        seen: what is known of each field before the transforms.
        files: per item the listing paths of all files that reading it opens.
        sources: their entries, digests included.
        paths: folders in which the functions of a user are found.
        codec: what the chunks of the fields go through.
    """

    pipeline: str
    schema: Schema
    split: str
    root: Path
    roots: Mapping[str, Path]
    steps: Sequence[Transform]
    samples: Samples
    seen: Mapping[str, Seen]
    files: Sequence[Sequence[str]]
    sources: Mapping[str, Entry]
    paths: Sequence[str] = ()
    codec: Codec = PLAIN


@dataclass(frozen=True, eq=False)
class Built:
    """A published cache.

    Args:
        path: its folder.
        split: the split's folder name.
        samples, made, valid: how many.
        nbytes: of all its files.
        reused: it was there already: equal inputs, equal bytes.
        not_made: (key, reason) of readable samples that could not be made.
        moved: where a damaged cache that stood in its place lies now, or None.
    """

    path: Path
    split: str
    samples: int
    made: int
    valid: int
    nbytes: int
    reused: bool = False
    not_made: list[tuple[str, str]] = field(default_factory=list)
    moved: Path | None = None


def prepare(job: Job) -> tuple[Plan, list[Transform], dict[str, Any]]:
    """Return the plan, the bound transforms and what ``inputs.json`` says; reads no data.

    Raises:
        UsageError: no sample can be read, or a transform does not fit the fields.
    """
    samples, split = job.samples, job.split or layout.WHOLE
    if not samples.readable.any():
        msg = f"split {split}: none of {len(samples)} samples can be read. See why: datacheck scan"
        raise UsageError(msg)
    find_in(job.paths)
    schema = job.schema.for_split(job.split)
    before = resolve(schema, job.seen, samples.valid & samples.readable)
    absent = {name for name, spec in schema.stored.items() if name not in before and (spec.absent or spec.optional)}
    steps, after = transforms.bind(job.steps, before, absent)
    if not after:
        msg = f"split {split}: no field is left to store. Look at the transforms and at fields: in the schema"
        raise UsageError(msg)
    specs = stored(after)
    plan = cut(split, samples, specs, estimate(before, specs, job.seen, samples), job.codec)
    said = fingerprint.said(job.pipeline, schema, steps, plan, {p: e.digest or "" for p, e in job.sources.items()})
    return plan, steps, {"said": said, "recipe": fingerprint.recipe(schema, steps, plan)}


def build_cache(
    job: Job, out: Path, *, workers: int = 1, scheduler: str | None = None, progress: Progress | None = None
) -> Built:
    """Build the cache of one split, or find it built.

    Args:
        job: what to build.
        out: the folder that holds caches; the new one is ``out/<pipeline>/<split>/<key>``.
        workers, scheduler: as `parallel.ordered_map`.
        progress: called after every task.

    Raises:
        UsageError: nothing can be made, or a source changed since the scan.
        OutOfSpaceError: the disk is full.
        NondeterministicBuildError: another builder of the same inputs published other content.

    Notes:
        The bytes depend on the job alone: not on workers, machines, or the order in which they end.
    """
    plan, steps, inputs = prepare(job)
    key = fingerprint.key(inputs["said"])
    target = out / job.pipeline / plan.split / key
    finished, moved = _finished(target)
    if finished is not None:
        return _found(target, plan, finished)
    building = target.parent / layout.BUILDING
    with _staging(building, key) as staging:
        _skeleton(staging, plan)
        records = _written(job, plan, steps, staging, workers, scheduler, progress)
        # A task that Dask runs a second time may still be writing: from here on it meets a folder that is gone.
        folder = _renamed(staging / _SHARDS, staging / "whole")
        facts = Facts(job.pipeline, job.schema.for_split(job.split), key, inputs, digests(job))
        done = Finish(folder, plan, facts, records).run()
        if not done.made.any():
            reason = done.not_made[0] if done.not_made else ("", "")
            msg = f"split {plan.split}: no sample could be made; the first: {reason[0]}: {reason[1]}"
            raise UsageError(msg)
        other = _publish(folder, target, done.manifest)
    size = sum(n for n, _ in done.manifest.files.values())
    count = (len(plan.samples), int(done.made.sum()), int(done.valid.sum()))
    return Built(target, plan.split, *count, size, other, done.not_made, moved)


def digests(job: Job) -> dict[str, tuple[int, str]]:
    """Return size and digest of every source file, by path."""
    return {path: (entry.size, entry.digest or "") for path, entry in sorted(job.sources.items())}


def _finished(target: Path) -> tuple[Cache | None, Path | None]:
    """Return the whole cache at `target`; a damaged one is moved aside and kept as evidence."""
    if not target.exists():
        return None, None
    with contextlib.suppress(CorruptionError, UsageError):
        return open_cache(target, verify="manifest"), None
    aside = target.parent / layout.BUILDING / f"{target.name}.damaged.{uuid.uuid4().hex}"
    fsops.make_directory(aside.parent)
    return None, _renamed(target, aside)


def _found(target: Path, plan: Plan, cache: Cache) -> Built:
    made, valid = int(cache.made.sum()), int((cache.made & cache.valid).sum())
    size = sum(n for n, _ in cache.manifest.files.values())
    return Built(target, plan.split, len(cache), made, valid, size, reused=True)


@contextlib.contextmanager
def _staging(building: Path, key: str) -> Iterator[Path]:
    """Make a folder that is this builder's own, and remove it whatever happens."""
    staging = building / f"{key}.{uuid.uuid4().hex}"
    fsops.make_directory(building.parent)
    fsops.make_directory(staging, sync=False)  # what is not published need not survive
    try:
        yield staging
    finally:
        for _ in range(3):  # a task that comes late may put one more file there
            with contextlib.suppress(StorageError):
                fsops.remove_tree(staging)
        fsops.remove_empty(building)  # only where no other builder is at work


def _renamed(source: Path, target: Path) -> Path:
    try:
        fsops.rename(source, target)
    except OSError as error:
        raise fsops.refused(error, source) from error
    return target


def _skeleton(staging: Path, plan: Plan) -> None:
    """Make every folder that tasks write into, so that none of them makes one (and none can revive a removed build)."""
    fsops.make_directory(staging / _RECORDS, sync=False)
    for name in plan.specs:
        fsops.make_directory(staging / _SHARDS / layout.field_path(name), sync=False)


def _written(
    job: Job, plan: Plan, steps: Sequence[Transform], staging: Path, workers: int, scheduler: str | None,
    progress: Progress | None,
) -> dict[int, Record]:  # fmt: skip
    """Run all tasks; return the record of every shard."""
    tasks = list(_tasks(job, plan, steps, staging))
    records: dict[int, Record] = {}
    with contextlib.closing(
        ordered_map(_WRITE, tasks, workers=workers, scheduler=scheduler, limits=_LIMITS)  # type: ignore[type-var]
    ) as outcomes:
        for outcome in outcomes:
            for g, size, digest in _reports(outcome):
                records[g] = _record(staging / _RECORDS, g, size, digest)
            if progress is not None:
                progress(_tick(plan, len(records)))
    return records


def _record(folder: Path, g: int, size: int, digest: str) -> Record:
    found = record.read(folder, g, size, digest)
    if found is None:
        msg = f"{folder / str(g)}: not what a worker wrote. Do all workers see this folder? Nothing was published."
        raise StorageError(msg)
    return found


def _tick(plan: Plan, shards: int) -> Tick:
    samples = min(shards * plan.k, len(plan.samples))
    nbytes = plan.samples.nbytes
    done = int(nbytes[:samples].sum()), int(nbytes.sum())
    return Tick(shards, plan.shards, *done, samples, 0, f"building {plan.split}")


def _reports(outcome: Outcome) -> list[list[Any]]:
    """Return [g, size, xxh3_128] of the record of every shard of a task."""
    for death in outcome.deaths:
        keys = death.item["keys"]
        last = death.how.strip().splitlines()[-1]
        msg = f"samples {keys[0]} to {keys[-1]}: {last}. Nothing was published."
        raise (DatacheckError if death.crash else StorageError)(msg)
    return [report for payload in outcome.payloads for report in payload]


def _tasks(job: Job, plan: Plan, steps: Sequence[Transform], staging: Path) -> Iterator[dict[str, Any]]:
    shared = {
        "schema": job.schema.as_dict(),
        "root": os.path.abspath(job.root),  # noqa: PTH100  links stay links
        "roots": {name: os.path.abspath(path) for name, path in sorted(job.roots.items())},  # noqa: PTH100
        "steps": [step.as_dict() for step in steps],
        "identities": [digest_value(step.identity()) for step in steps],
        "paths": list(job.paths),
        "specs": {name: spec_as(spec) for name, spec in plan.specs.items()},
        "codec": str(plan.codec),
        "samples": len(plan.samples),
        "k": plan.k,
        "folder": os.path.abspath(staging / _SHARDS),  # noqa: PTH100
        "records": os.path.abspath(staging / _RECORDS),  # noqa: PTH100
    }
    for batch in plan.batches():
        yield shared | {"items": [_order(job, plan, g) for g in batch]}


def _order(job: Job, plan: Plan, g: int) -> dict[str, Any]:
    """Return the order for one shard: its keys, and which of them to read from which files."""
    part = plan.shard(g)
    keys = job.samples.keys[part]
    wanted: dict[int, list[str]] = {}
    for key, item, readable in zip(keys, job.samples.item_of[part], job.samples.readable[part], strict=True):
        if readable:
            wanted.setdefault(int(item), []).append(key)
    reads = [
        {
            "item": job.samples.items[item].as_dict() | {"keys": some},
            "files": [[path, *job.sources[path][1:5]] for path in job.files[item] if path in job.sources],
        }
        for item, some in wanted.items()
    ]
    return {"g": g, "keys": keys, "reads": reads}


def _publish(folder: Path, target: Path, manifest: Manifest) -> bool:
    """Rename the finished folder to its place; return whether another builder was first (with the same content)."""
    try:
        fsops.rename(folder, target)
    except OSError as error:
        if not target.exists():
            raise fsops.refused(error, target) from error
        theirs = read_manifest(open_store(target))
        if theirs.content_root != manifest.content_root:
            msg = (
                f"{target}: another build of the same inputs published other content "
                f"(content root {theirs.content_root}, here {manifest.content_root}). A transform is not deterministic."
            )
            raise NondeterministicBuildError(msg) from error
        return True
    for created in target.parents[:3]:  # split, pipeline, out
        fsops.sync_directory(created)
    return False
