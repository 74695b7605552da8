"""Make the shards of a build: link equal ones of an earlier cache, send the others to children.

`make_shards` goes in at most two passes. The first makes what an earlier cache cannot give, while
its equal shards are linked and verified; the second makes what the earlier cache should have given
and could not, because it is damaged. `shard_tasks` describes shards to the children
(`shard_worker.write_shards`), which answer with records.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build.job import BuildJob, Execution, absolute, even_fields
from datacheck.build.plan import seek_points
from datacheck.build.prepare import PreparedBuild
from datacheck.build.provenance import ShardRecord, read_records
from datacheck.build.reuse import ReusableCache
from datacheck.build.shard_task import FileRead, ShardOrder, TaskSetup
from datacheck.build.staging import Staging
from datacheck.model.finding import note_reporter
from datacheck.runtime import numerics
from datacheck.runtime.hashing import digest_value
from datacheck.sources.base import Item
from datacheck.workers.parallel import TaskResult, Tasks, ordered_map

Array = np.ndarray[Any, Any]

_WRITE = "datacheck.build.shard_worker:write_shards"


def make_shards(
    prepared: PreparedBuild,
    stage: Staging,
    kept: Mapping[int, ShardRecord],
    earlier: ReusableCache | None,
    execution: Execution,
) -> dict[int, ShardRecord]:
    """Make all shards that are not kept; return the records of all.

    Args:
        prepared: what is built.
        stage: the unfinished build.
        kept: the records of the shards that a previous run finished.
        earlier: a cache whose shards may be linked, and whose samples may be copied.
        execution: where the shards are made.
    """
    maker = _ShardMaker(prepared, stage, kept, execution)
    if earlier is not None:
        linkable = [g for g in earlier.shared if g not in kept]
        # A step that sees several samples at once may give others with other neighbours.
        independent = all(step.by_sample for step in prepared.steps)
        with earlier.linking(stage, linkable) as linked:
            maker.make_missing(linkable, earlier if independent else None)
            maker.add_linked(linked())
    maker.make_missing()
    return maker.records


class _ShardMaker:
    """The shards of one build, as they are finished.

    Attributes:
        records: of the finished shards.
    """

    def __init__(
        self,
        prepared: PreparedBuild,
        stage: Staging,
        kept: Mapping[int, ShardRecord],
        execution: Execution,
    ) -> None:
        self.records = dict(kept)
        self._prepared = prepared
        self._stage = stage
        self._execution = execution
        plan = prepared.plan
        # A single child makes all shards in order, and reads every file from its start anyway.
        several = execution.parallel and len(kept) < plan.shards
        self._points = seek_points(prepared.job, plan) if several else {}
        tick = plan.after(plan.before("building", range(plan.shards)), kept)
        self._tick = tick._replace(kept=len(kept))

    def add_linked(self, records: Mapping[int, ShardRecord]) -> None:
        """Take over the records of shards that were linked."""
        self.records.update(records)
        tick = self._prepared.plan.after(self._tick, records)
        self._tick = tick._replace(kept=tick.kept + len(records))
        if records:
            self._execution.report(self._tick)

    def make_missing(
        self, excluded: Collection[int] = (), earlier: ReusableCache | None = None
    ) -> None:
        """Make every shard without a record in children.

        Args:
            excluded: shards that are not made now.
            earlier: the cache that samples are copied from; a shard whose samples it has lost gets
                no record.
        """
        series = self._missing_series(excluded)
        with closing(self._run(series, earlier)) as outcomes:
            for outcome in outcomes:
                records = self._records_of(outcome)
                self.records.update(records)
                if earlier is not None:
                    ordered = [order["g"] for order in outcome.task["items"]]
                    earlier.note_copied(records)
                    earlier.note_lost([g for g in ordered if g not in records])
                self._tick = self._prepared.plan.after(self._tick, records)
                self._execution.report(self._tick)

    def _missing_series(self, excluded: Collection[int]) -> list[list[list[int]]]:
        """Return the series of tasks of the plan, without the shards that are not to be made."""
        done = {*self.records, *excluded}
        missing = []
        for batches in self._prepared.plan.series(self._points):
            remaining = [[g for g in batch if g not in done] for batch in batches]
            if any(remaining):
                missing.append([batch for batch in remaining if batch])
        return missing

    def _run(
        self, series: Sequence[Sequence[Sequence[int]]], earlier: ReusableCache | None
    ) -> Generator[TaskResult]:
        stage, execution = self._stage, self._execution
        batches = chain.from_iterable(series)
        tasks = shard_tasks(self._prepared, batches, stage.shards, stage.records, earlier)
        yield from ordered_map(
            _WRITE,
            _in_series(tasks, map(len, series)),
            # No idle processes: starting one takes longer than making a few shards.
            workers=min(execution.workers, len(series)),
            scheduler=execution.scheduler,
            limits=self._prepared.job.limits,
            told=note_reporter(execution.progress, self._tick),
            sandbox=self._prepared.job.sandbox(
                read=[] if earlier is None else [earlier.folder],
                write=[stage.shards, stage.records],
            ),
        )

    def _records_of(self, outcome: TaskResult) -> dict[int, ShardRecord]:
        records = read_records(outcome, self._stage.records, self._prepared.plan)
        reported = chain.from_iterable(outcome.payloads)
        self._stage.note_finished([shard for shard in reported if shard[1]])
        return {record.g: record for record in records}


def _in_series(tasks: Iterator[dict[str, Any]], lengths: Iterable[int]) -> Iterator[Tasks]:
    """Yield tasks one by one, and those of a longer series as a list, for one child."""
    for length in lengths:
        yield next(tasks) if length == 1 else list(islice(tasks, length))


def shard_tasks(
    prepared: PreparedBuild,
    batches: Iterable[Sequence[int]],
    shards: Path | None,
    records: Path,
    earlier: ReusableCache | None = None,
    *,
    again: bool = False,
) -> Iterator[dict[str, Any]]:
    """Return the tasks for `shard_worker.write_shards`, as JSON values.

    Args:
        prepared: what is built.
        batches: the numbers of the shards of each task; empty ones are skipped.
        shards: where the tasks write the shards of every field; None: nowhere.
        records: where they write the record of each shard.
        earlier: an earlier cache whose samples are copied.
        again: see `TaskSetup`.

    Notes:
        Each task is made on demand; the parts that they share are fixed now.
    """
    job, plan = prepared.job, prepared.plan
    setup = TaskSetup(
        source=job.source_setup(),
        steps=[step.as_dict() for step in prepared.steps],
        identities=[digest_value(step.identity()) for step in prepared.steps],
        paths=job.paths,
        specs=plan.specs,
        codec=plan.codec,
        samples=len(plan.samples),
        shard_samples=plan.shard_samples,
        folder=None if shards is None else absolute(shards),
        records=absolute(records),
        numerics=numerics.numeric_environment(),
        again=again,
    ).as_dict()
    even = even_fields(job)
    return (
        setup | {"items": [_order(prepared, g, earlier, even).as_dict() for g in batch]}
        for batch in batches
        if batch
    )


def _order(
    prepared: PreparedBuild,
    g: int,
    earlier: ReusableCache | None,
    even: Mapping[int, tuple[str, ...]],
) -> ShardOrder:
    job = prepared.job
    part = prepared.plan.shard(g)
    keys = job.samples.keys[part]
    to_read = job.samples.readable[part]
    if earlier is not None:
        to_read = to_read & (earlier.numbers[part] < 0)
    keys_by_item: dict[int, list[str]] = {}
    for key, item, read in zip(
        keys, job.samples.item_of[part].tolist(), to_read.tolist(), strict=True
    ):
        if read:
            keys_by_item.setdefault(item, []).append(key)
    reads = [
        FileRead(_item_with_keys(job, item, item_keys, even), job.entries(item))
        for item, item_keys in keys_by_item.items()
    ]
    return ShardOrder(g, keys, reads, None if earlier is None else earlier.copies(g))


def _item_with_keys(
    job: BuildJob, number: int, keys: Sequence[str], even: Mapping[int, tuple[str, ...]]
) -> Item:
    """Return an item that reads these samples only, and of a file of lines only their part."""
    item = job.samples.items[number]
    item = replace(item, keys=tuple(keys), even=even.get(number, ()))
    marks = job.marks.get(item.path)
    return item if marks is None else replace(item, part=_part_of_lines(marks, keys))


def _part_of_lines(marks: Array, keys: Sequence[str]) -> tuple[int, int, int]:
    """Return the part of a file of lines (`Item.part`) that holds the lines of ascending keys."""
    first, last = (int(key.rpartition(":")[2]) for key in (keys[0], keys[-1]))
    before, after = np.searchsorted(marks[:, 1], [first, last], side="right").tolist()
    start, line = marks[before - 1].tolist() if before else (0, 0)
    stop = int(marks[after, 0]) if after < len(marks) else -1
    return start, stop, line
