"""Hand a finished scan over to builds: one `BuildJob` per split, with the verdict on each sample.

Only this module and `pipeline` know the types of both `scan` and `build`. A job is made without
reading the data again, but for two things that a scan need not have: the statistics of fields that
the schema does not list, and digests of files that were not read whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build.field_stats import FieldStats, has_field_stats, measure_fields, stats_of_table
from datacheck.build.job import BuildJob, SplitSamples
from datacheck.build.source_digests import digested_entries, hashed_before
from datacheck.errors import UsageError
from datacheck.model.finding import Progress
from datacheck.model.table import CHECKED, Table
from datacheck.pipelinefile import Pipeline
from datacheck.runtime.machine import usable_cpus
from datacheck.scan import ScanRun
from datacheck.sources import open_source
from datacheck.sources.base import Item, Source
from datacheck.sources.roots import Entry

Array = np.ndarray[Any, Any]

_LARGE = 256 << 20  # bytes of source files from which on every core gets a worker


def workers_for(run: ScanRun) -> int:
    """Return how many processes build the caches of a scan, unless the user says it."""
    return 1 if run.listing.nbytes < _LARGE else usable_cpus()


def jobs_of(
    pipeline: Pipeline,
    run: ScanRun,
    splits: Sequence[str],
    workers: int = 1,
    scheduler: str | None = None,
    known_digests: Path | str | None = None,
    progress: Progress | None = None,
) -> list[BuildJob]:
    """Return the job of each split.

    Args:
        pipeline, run, workers, scheduler, progress: as in `job_of`.
        splits: their names.
        known_digests: the folder of caches whose digests of unchanged files are taken over; None:
            hash these files again.
    """
    jobs = []
    for split in splits:
        hashed: Mapping[str, Entry] = {}
        if known_digests is not None:
            hashed = hashed_before(known_digests, pipeline.name, split)
        jobs.append(job_of(pipeline, run, split, workers, scheduler, hashed, progress))
    return jobs


def job_of(
    pipeline: Pipeline,
    run: ScanRun,
    split: str,
    workers: int = 1,
    scheduler: str | None = None,
    hashed: Mapping[str, Entry] | None = None,
    progress: Progress | None = None,
) -> BuildJob:
    """Return the inputs of one split's build: the scan's rows and its verdict on each key.

    Args:
        pipeline: the schema, the transforms and the codec.
        run: the scan.
        split: the split's name.
        workers, scheduler, progress: of the second look at the fields, where one is needed.
        hashed: entries with digests from an earlier build, see `hashed_before`.

    Raises:
        UsageError: two samples have one key, or a file was written while the scan ran.
    """
    listing = run.listing
    schema = pipeline.schema.located(listing.root, listing.roots).placed(set(listing.roots))
    source = open_source(schema, listing.root, listing.roots)
    rows = np.array([i for i, name in enumerate(run.table.splits) if name == split], dtype=np.int64)
    table = run.table.take(rows)
    samples = _split_samples(run, rows, table, split)
    files = _files_read(source, samples)
    paths = sorted({path for item_files in files for path in item_files})
    field_stats, excess_fields = _field_stats(
        source, table, samples.items, split, workers, scheduler, progress
    )
    return BuildJob(
        pipeline=pipeline.name,
        schema=schema,
        split=split,
        root=listing.root,
        roots=listing.roots,
        steps=pipeline.steps,
        samples=samples,
        field_stats=field_stats,
        files=files,
        sources=digested_entries(paths, listing, hashed or {}),
        paths=pipeline.paths,
        codec=pipeline.codec,
        hashed=[path for path in paths if not listing.by_path[path].digest],
        marks=_marks(source, run, samples.items),
        excess_fields=excess_fields,
    )


def _split_samples(run: ScanRun, rows: Array, table: Table, split: str) -> SplitSamples:
    """Return the samples of a split; `table` has the `rows` of the scan's table."""
    _check_unique_keys(table.keys)
    items, item_of = _items(run.work.items, table, split)
    readable = table.status == CHECKED
    return SplitSamples(
        keys=list(table.keys),
        items=items,
        item_of=item_of,
        inner=list(table.inner),
        readable=readable,
        valid=run.valid[rows] & readable,
        codes=[run.codes[row] for row in rows.tolist()],
        nbytes=np.asarray(table.nbytes, dtype=np.int64),
    )


def _check_unique_keys(keys: Sequence[str]) -> None:
    for key, next_key in pairwise(keys):
        if key == next_key:
            msg = (
                f"two samples have the key {key}. List it once; if it is one file in two roles, "
                f"use two schemas."
            )
            raise UsageError(msg)


def _items(all_items: Sequence[Item], table: Table, split: str) -> tuple[list[Item], Array]:
    """Return the items of a split, and for each sample the position of its item.

    A sample whose listed file does not exist gets an item of its own.
    """
    items = [item for item in all_items if item.split == split]
    place = {item.path: number for number, item in enumerate(items)}
    item_of = np.zeros(len(table), np.int64)
    for i, path in enumerate(table.files):
        if path not in place:  # listed, but the file does not exist
            place[path] = len(items)
            items.append(Item(path, split))
        item_of[i] = place[path]
    return items, item_of


def _files_read(source: Source, samples: SplitSamples) -> list[list[str]]:
    """Return, per item, the files that reading it opens; none where no sample of it is readable."""
    items_read = set(samples.item_of[samples.readable].tolist())
    return [
        source.files(item) if number in items_read else []
        for number, item in enumerate(samples.items)
    ]


def _marks(source: Source, run: ScanRun, items: Sequence[Item]) -> dict[str, Array]:
    """Return where lines of large files begin, by path."""
    marks = {item.path: source.marks_of(item, run.listing.marks) for item in items}
    return {path: lines for path, lines in marks.items() if lines is not None}


def _field_stats(
    source: Source,
    table: Table,
    items: Sequence[Item],
    split: str,
    workers: int,
    scheduler: str | None,
    progress: Progress | None,
) -> tuple[dict[str, FieldStats], int]:
    """Return the statistics of each field, and how many fields exceed the limit and have none."""
    schema = source.schema.for_split(split)
    if has_field_stats(schema, table):
        return stats_of_table(schema, table), 0
    readable = {table.files[row] for row in np.flatnonzero(table.status == CHECKED).tolist()}
    readable_items = [item for item in items if item.path in readable]
    return measure_fields(
        source.schema,
        source.root,
        source.roots,
        readable_items,
        table.keys,
        workers=workers,
        scheduler=scheduler,
        progress=progress,
    )
