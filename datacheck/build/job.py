"""The job of a build: its inputs, the tasks that make its shards, and the records of tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build import provenance
from datacheck.build.field_stats import FieldStats
from datacheck.build.plan import BuildPlan, SplitSamples
from datacheck.build.provenance import ShardRecord
from datacheck.build.reuse import File, ReusableCache
from datacheck.build.shard_worker import spec_as
from datacheck.cache.codec import PLAIN, Codec
from datacheck.errors import (
    DatacheckError,
    FormatError,
    MissingDependencyError,
    StorageError,
    UsageError,
)
from datacheck.model.row_keys import keys_from_runs, keys_to_runs
from datacheck.runtime import numerics
from datacheck.runtime.hashing import digest_value
from datacheck.runtime.sandbox import Sandbox
from datacheck.schema.model import Schema
from datacheck.sources import open_source
from datacheck.sources.base import Item
from datacheck.sources.roots import Entry, sandbox_of
from datacheck.sources.row_slices import LEAST_BYTES
from datacheck.transforms.base import Transform
from datacheck.workers.parallel import Limits, TaskResult, ordered_map
from datacheck.workers.wire import answers

Array = np.ndarray[Any, Any]

LIMITS = Limits(item_s=600.0)  # an item is a whole shard


@dataclass(frozen=True, eq=False)
class BuildJob:
    """The inputs of a build of one split: plain data, including the verdicts of the scan.

    Args:
        pipeline: its name: the folder below the output.
        schema: the whole schema; `Schema.for_split` is applied here.
        split: the split, "" for a dataset without splits.
        root, roots: the folders of the files.
        steps: the pipeline's transforms, unbound.
        samples: in key order, with the verdict on each.
        seen: the statistics of each field before the transforms.
        files: per item the listing paths of all files that reading it opens.
        sources: their entries, digests included.
        paths: folders of the user's functions.
        codec: the codec of the fields' chunks.
        hashed: the sources without a digest from a scan.
        marks: by path, where lines of large files begin, see `Listing.marks`.
        too_many: how many rare fields are left out because a cache holds only so many.
    """

    pipeline: str
    schema: Schema
    split: str
    root: Path
    roots: Mapping[str, Path]
    steps: Sequence[Transform]
    samples: SplitSamples
    seen: Mapping[str, FieldStats]
    files: Sequence[Sequence[str]]
    sources: Mapping[str, Entry]
    paths: Sequence[str] = ()
    codec: Codec = PLAIN
    hashed: Sequence[str] = ()
    marks: Mapping[str, Array] = field(default_factory=dict)
    too_many: int = 0

    @property
    def limits(self) -> Limits:
        """The limits of one child that makes shards."""
        return replace(LIMITS, own_code=any(step.own_code for step in self.steps))

    def sandbox(self, *, read: Iterable[Path] = (), write: Iterable[Path] = ()) -> Sandbox | None:
        """Return the sandbox of a child that makes shards; None if a step is a user's function.

        Args:
            read, write: further folders that it may read, or write into.
        """
        if any(step.own_code for step in self.steps):
            return None
        more = [*map(str, read), *(file for step in self.steps for file in step.files)]
        return sandbox_of(self.root, self.roots, read=more, write=map(str, write))


def digests(job: BuildJob) -> dict[str, tuple[int, str]]:
    """Return size and digest of every source file, by path."""
    return {path: (entry.size, entry.digest or "") for path, entry in sorted(job.sources.items())}


def files_of(job: BuildJob) -> list[list[File]]:
    """Return, per item, path, size and digest of all files that reading it opens."""
    items = range(len(job.files))
    return [
        [(entry.path, entry.size, entry.digest or "") for entry in _entries(job, item)]
        for item in items
    ]


def tasks_of(
    job: BuildJob,
    plan: BuildPlan,
    steps: Sequence[Transform],
    batches: Iterable[Sequence[int]],
    shards: Path | None,
    records: Path,
    old: ReusableCache | None = None,
) -> Iterator[dict[str, Any]]:
    """Return the tasks for `shard_worker.write_shards`.

    Args:
        job, plan, steps: what is built, from `builder.prepare`.
        batches: the numbers of the shards of each task; empty ones are skipped.
        shards: where the tasks write the shards of every field; None: nowhere.
        records: where they write the record of each shard.
        old: an earlier cache whose samples are copied.

    Notes:
        Each task is made on demand; the parts that they share are fixed now.
    """
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
        "folder": None if shards is None else os.path.abspath(shards),  # noqa: PTH100
        "records": os.path.abspath(records),  # noqa: PTH100
        "earlier": os.path.abspath(old.folder) if old is not None else "",  # noqa: PTH100
        "numerics": numerics.numeric_environment(),
    }
    even = even_fields(job)
    return (
        shared | {"items": [_order(job, plan, g, old, even) for g in batch]}
        for batch in batches
        if batch
    )


def even_fields(job: BuildJob) -> dict[int, tuple[str, ...]]:
    """Return, by item of a large file, the fields that the scan found to be arrays.

    See `Item.even`.
    """
    readable = np.flatnonzero(job.samples.readable)
    items, first_samples = np.unique(job.samples.item_of[readable], return_index=True)
    fields = {}
    for item, place in zip(items.tolist(), readable[first_samples].tolist(), strict=True):
        if job.samples.items[item].nbytes >= LEAST_BYTES:
            kinds = {
                name: stats.signatures[stats.which[place]].kind
                for name, stats in job.seen.items()
                if stats.which[place] >= 0
            }
            fields[item] = tuple(sorted(name for name, kind in kinds.items() if kind == "array"))
    return fields


def _order(
    job: BuildJob,
    plan: BuildPlan,
    g: int,
    old: ReusableCache | None,
    even: Mapping[int, tuple[str, ...]],
) -> dict[str, Any]:
    """Return the order for one shard: its keys, the keys to read by file, and the copies."""
    part = plan.shard(g)
    keys = job.samples.keys[part]
    to_read = (
        job.samples.readable[part]
        if old is None
        else job.samples.readable[part] & (old.numbers[part] < 0)
    )
    keys_by_item: dict[int, list[str]] = {}
    for key, item, read in zip(
        keys, job.samples.item_of[part].tolist(), to_read.tolist(), strict=True
    ):
        if read:
            keys_by_item.setdefault(item, []).append(key)
    reads = []
    runs = keys_to_runs(keys)
    for item, item_keys in keys_by_item.items():
        files = [[entry.path, *entry[1:5], entry.digest or ""] for entry in _entries(job, item)]
        source_item = replace(job.samples.items[item], even=even.get(item, ()))
        read = source_item.as_dict() | {
            "keys": runs if len(item_keys) == len(keys) else keys_to_runs(item_keys)
        }
        marks = job.marks.get(job.samples.items[item].path)
        reads.append(
            {
                "item": read if marks is None else read | {"part": _between(marks, item_keys)},
                "files": files,
            }
        )
    return {
        "g": g,
        "keys": runs,
        "reads": reads,
        "copies": old.copies(g) if old is not None else None,
    }


def _between(marks: Array, keys: Sequence[str]) -> list[int]:
    """Return the part of a file of lines (`Item.part`) that holds some lines.

    The lines are given by ascending keys.
    """
    first, last = (int(key.rpartition(":")[2]) for key in (keys[0], keys[-1]))
    before, after = np.searchsorted(marks[:, 1], [first, last], side="right").tolist()
    start, line = marks[before - 1].tolist() if before else (0, 0)
    return [start, int(marks[after, 0]) if after < len(marks) else -1, line]


def _entries(job: BuildJob, item: int) -> list[Entry]:
    return [job.sources[path] for path in job.files[item] if path in job.sources]


def read_records(outcome: TaskResult, folder: Path, plan: BuildPlan) -> list[ShardRecord]:
    """Return the records of a task's shards, checked against the task's answer and the plan.

    Raises:
        StorageError: a record is not the one that the task reported, or its process died.
        DatacheckError: the task failed unexpectedly.

    Notes:
        A shard that an earlier cache should have provided, and could not, has no record.
    """
    for death in outcome.deaths:
        keys = keys_from_runs(death.item["keys"])
        last_line = death.how.strip().splitlines()[-1]
        msg = f"samples {keys[0]} to {keys[-1]}: {last_line}. Nothing was published."
        raise (DatacheckError if death.crash else StorageError)(msg)
    records = []
    for g, size, digest in (report for payload in outcome.payloads for report in payload):
        if not size:
            continue
        record = provenance.read(folder, g, size, digest)
        if record is None:
            msg = (
                f"{folder / str(g)}: not what a worker wrote. Do all workers see this folder? "
                f"Nothing was published."
            )
            raise StorageError(msg)
        if not provenance.fits(record, plan):
            msg = (
                f"{folder / str(g)}: does not fit the plan of this build. A worker wrote it or "
                f"somebody changed it; no "
                "damaged source file does this: please report it. Nothing was published."
            )
            raise StorageError(msg)
        records.append(record)
    return records


_LOOK = "datacheck.build.job:look"


def seek_points(job: BuildJob, plan: BuildPlan) -> dict[int, Array]:
    """Return, by item, the numbers of the samples at which reading of its file can begin.

    Notes:
        Asks `look` only about large files that several tasks read; skips files of lines with known
        offsets.
    """
    starts = range(plan.k * plan.per_task, len(plan.samples), plan.k * plan.per_task)
    before, after = (
        plan.samples.item_of[[place + by for place in starts]].tolist() for by in (-1, 0)
    )
    parted = sorted(
        {
            previous
            for previous, following in zip(before, after, strict=True)
            if previous == following
        }
    )
    even = even_fields(job)
    items = [
        (number, replace(plan.samples.items[number], even=even.get(number, ())))
        for number in parted
    ]
    candidates = [
        (n, item) for n, item in items if item.nbytes >= LEAST_BYTES and item.path not in job.marks
    ]
    if not candidates:
        return {}
    task: dict[str, Any] = {
        "schema": job.schema.as_dict(),
        "root": str(job.root.absolute()),
        "roots": {name: str(path.absolute()) for name, path in sorted(job.roots.items())},
        "items": [item.as_dict() for _, item in candidates],
    }
    item_points: dict[int, Array] = {}
    numbers = {(item.path, item.split): number for number, item in candidates}
    for outcome in ordered_map(_LOOK, [task], limits=job.limits, sandbox=job.sandbox()):
        for path, split, points in (report for payload in outcome.payloads for report in payload):
            item_points[numbers[path, split]] = points
    # A file that kills the child has no points; the task that reads it reports why.
    return item_points


def _points(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype == np.int64
        and value.ndim == 1
        and value[:1].tolist() == [0]
        and bool((np.diff(value) > 0).all())
    )


def _of_items(answer: list[Any], task: dict[str, Any]) -> bool:
    return {(path, split) for path, split, _ in answer} <= {
        (item["path"], item["split"]) for item in task["items"]
    }


@answers([(str, str, _points)], _of_items, raises=(UsageError, MissingDependencyError))
def look(task: dict[str, Any], beat: Callable[[int], None]) -> list[list[Any]]:
    """Return path, split and `Source.seek_points` of each file that cannot be entered anywhere.

    Args:
        task: schema (`Schema.as_dict`), root, roots, items (`Item.as_dict`).
        beat: called with an item's number before it is touched.
    """
    schema = Schema.model_validate(task["schema"])
    roots = {name: Path(path) for name, path in task["roots"].items()}
    source = open_source(schema, Path(task["root"]), roots)
    results = []
    for number, item in enumerate(map(Item.from_dict, task["items"])):
        beat(number)
        try:
            points = source.seek_points(item)
        except FormatError:  # the task that reads the file reports it
            continue
        if points is not None:
            results.append([item.path, item.split, points])
    return results
