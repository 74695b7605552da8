"""Measure items in child processes, and collect the rows in path order.

Small files are grouped into tasks of about 64 MB; a large file is cut into parts (`file_parts`).
Each finished task is stored in the journal, so that an interrupted scan goes on from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from datacheck.errors import StorageError
from datacheck.formats.base import format_of
from datacheck.model.finding import Progress, Tick
from datacheck.runtime.hashing import shortened
from datacheck.scan.file_parts import FileCutter
from datacheck.scan.measure_tasks import MeasuredItems, ScanJob, task_wire
from datacheck.scan.rows import BoundedTables, share_keys, unread_rows
from datacheck.scan.run_dir import Journal
from datacheck.sources.base import LONGEST_PASSED, MOST_PASSED, Item, Source, Unread
from datacheck.sources.listing import Listing, stat_entry
from datacheck.sources.roots import NOT_WHOLE, Entries, Entry, encoded_digest
from datacheck.workers.parallel import Death, TaskResult, Tasks, ordered_map

Array = np.ndarray[Any, Any]

TASK_BYTES = 64 << 20
TASK_ITEMS = 512
# Smaller data are measured by one process, before a second one has started.
SMALL_BYTES = 256 << 20
SMALL_ITEMS = 40_000

NOT_HERE = "not read on this machine"  # prefix of reasons that say nothing about the file

_MEASURE = "datacheck.scan.worker:measure_items"


@dataclass(eq=False)
class MeasureResult:
    """What the children have measured.

    Args:
        listing: the files as they were listed.
        todo: what is read, in path order.
        entries: the listed files as they were when they were read, with digests.
        done: bool (items): items whose rows may be kept for the next scan.
        rows: of the finished tasks.
        companions: by place, all files of a done item that has more than one file.
        crashes: the first failure of each measurement.
        deaths: items on which the reading code itself failed: file and traceback.
        undeclared: fields in the data that the schema does not list.
    """

    listing: Listing
    todo: Sequence[Item]
    entries: Entries
    done: Array
    rows: BoundedTables
    companions: dict[int, tuple[str, ...]] = field(default_factory=dict)
    crashes: dict[str, dict[str, str]] = field(default_factory=dict)
    deaths: list[dict[str, str]] = field(default_factory=list)
    undeclared: set[str] = field(default_factory=set)

    @classmethod
    def empty(cls, job: ScanJob, listing: Listing, todo: Sequence[Item]) -> MeasureResult:
        """Return the result before the first task."""
        listed = listing.entries
        entries = Entries(listed.paths, listed.numbers.copy(), listed.digests.copy())
        return cls(
            listing, todo, entries, np.zeros(len(todo), bool), BoundedTables(job.source.schema)
        )

    def add(self, answers: Sequence[MeasuredItems]) -> int:
        """Add the answer to a task, or the answers about one file; return the number of rows.

        Items, entries and faults come from the first answer; the others add rows.
        """
        first = answers[0]
        tables = [answer.rows() for answer in answers]
        for table in tables:
            share_keys(table, self.listing)
            self.rows.add(table)
        for path, split, files in first.items:
            self._set_done(_place(self.todo, path, split), files)
        for entry in first.entries:
            place = self.listing.entries.find(entry.path)
            if place >= 0:
                self.entries.numbers[place] = entry[1:6]
                self.entries.digests[place] = encoded_digest(entry.digest)
        # The first names in order, whichever task came first.
        names = (shortened(name, LONGEST_PASSED) for name in first.undeclared)
        self.undeclared = set(sorted(self.undeclared.union(names))[:MOST_PASSED])
        self.deaths += first.deaths
        for crash in first.crashes:
            self.crashes.setdefault(crash["measure"], crash)
        return sum(map(len, tables))

    def _set_done(self, place: int, files: Sequence[str]) -> None:
        self.done[place] = True
        if len(files) > 1:
            entries = self.listing.entries
            file_places = [(file, entries.find(file)) for file in files]
            # The text of the listing, so that each path is stored once.
            self.companions[place] = tuple(
                entries.paths[i] if i >= 0 else file for file, i in file_places
            )


@dataclass(eq=False)
class _Counts:
    """How far the measuring is.

    Args:
        report: called with each tick, or None.
        todo_files, todo_bytes: how much there is to read.
        kept: how many items need not be read.
        files, nbytes, samples: how much has been read.
    """

    report: Progress | None
    todo_files: int
    todo_bytes: int
    kept: int
    files: int = 0
    nbytes: int = 0
    samples: int = 0

    def tell(self, note: str = "") -> None:
        if self.report is not None:
            tick = Tick(
                self.files,
                self.todo_files,
                self.nbytes,
                self.todo_bytes,
                self.samples,
                self.kept,
                note=note,
            )
            self.report(tick)

    def add(self, items: Sequence[Item], complete_files: int) -> None:
        """Count the items of a finished task, and the files that have come to their end with it."""
        self.files += len(items) if items[0].whole else complete_files
        for item in items:
            if item.part is not None:
                self.nbytes += item.part[1] - item.part[0]
            elif item.whole or complete_files:
                self.nbytes += item.nbytes


def measure(
    job: ScanJob,
    source: Source,
    listing: Listing,
    items: Sequence[Item],
    journal: Journal,
    progress: Progress | None,
    kept: int,
) -> MeasureResult:
    """Measure items in expendable children.

    Args:
        job: what all tasks share.
        source: maps an item to its files.
        listing: the files as they were listed.
        items: what to read, in path order.
        journal: stores each finished part.
        progress: called after each task.
        kept: how many items need not be read.

    Raises:
        KeyboardInterrupt: with a note that says what is kept.
        StorageError: a worker of a cluster does not see the data.
    """
    result = MeasureResult.empty(job, listing, items)
    counts = _Counts(progress, len(items), sum(item.nbytes for item in items), kept)
    counts.tell()
    workers = _workers(job, counts.todo_bytes, len(items), _most_tasks(items))
    cutter = FileCutter(
        source, job.source.root, job.source.roots, workers if job.scheduler is None else None
    )
    outcomes = _run_tasks(job, cutter, items, workers, counts)
    try:
        with closing(outcomes):  # type: ignore[type-var]
            for outcome in outcomes:
                if job.scheduler is not None:
                    _check_visible(job, outcome, listing)
                task_items = [Item.from_dict(record) for record in outcome.task["items"]]
                complete = list(cutter.complete(task_items[0], _answers(job, source, outcome)))
                for answers in complete:
                    counts.samples += _store(result, answers, journal)
                counts.add(task_items, len(complete))
                counts.tell()
        for answers in cutter.rest():
            _store(result, answers, journal)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{counts.files + kept:,} of {len(items) + kept:,} files are done and kept: the same "
            f"command goes on."
        )
        raise
    return result


def _store(result: MeasureResult, answers: Sequence[MeasuredItems], journal: Journal) -> int:
    if answers[0].items:
        journal.add(answers[0].as_wire(), [answer.table for answer in answers[1:]])
    return result.add(answers)


# ------------------------------------------------------------------------------------------- tasks


def _run_tasks(
    job: ScanJob, cutter: FileCutter, items: Sequence[Item], workers: int, counts: _Counts
) -> Iterator[TaskResult]:
    """Send the items to children; yield what came of each task, in order."""
    plain = job.plain
    tasks = (_tasks_of(job, batch, plain=plain) for batch in batches(cutter.items(items)))
    # A source of its own, because other threads call it.
    content_key = partial(item_bytes, job.source.absolute().open())
    return ordered_map(
        _MEASURE,
        tasks,
        workers=workers,
        scheduler=job.scheduler,
        limits=replace(job.limits, own_code=bool(job.source.schema.checks)),
        sandbox=job.sandbox,
        same=content_key,
        told=counts.tell,
    )


def _workers(job: ScanJob, nbytes: int, items: int, tasks: int) -> int:
    """Return how many processes measure the items; small data need one."""
    return job.worker_count(tasks, small=nbytes < SMALL_BYTES and items < SMALL_ITEMS)


def _most_tasks(items: Sequence[Item]) -> int:
    """Return an upper bound of the number of tasks that the items make."""
    return sum(1 + item.nbytes // TASK_BYTES for item in items)


def batches(items: Iterable[Item | list[Item] | None]) -> Iterator[list[Item] | None]:
    """Group items, in order, into batches of about 64 MB and at most 512 items.

    A part, a series and None are a batch of their own.
    """
    group: list[Item] = []
    size = 0
    for item in items:
        if not isinstance(item, Item) or not item.whole:
            if group:
                yield group
                group = []
                size = 0
            yield [item] if isinstance(item, Item) else item
            continue
        if group and (size + item.nbytes > TASK_BYTES or len(group) == TASK_ITEMS):
            yield group
            group = []
            size = 0
        group.append(item)
        size += item.nbytes
    if group:
        yield group


def _tasks_of(job: ScanJob, items: list[Item] | None, *, plain: bool) -> Tasks | None:
    """Return the task of some items; for the parts of one file a series, one task per part."""
    if items is None:
        return None
    if items[0].whole:
        return task_wire(job, items, plain=plain)
    tasks = [task_wire(job, [part], plain=plain) for part in items]
    return tasks if len(tasks) > 1 else tasks[0]


def item_bytes(source: Source, record: dict[str, Any]) -> Hashable:
    """Return a key of the bytes that an item reads.

    Equal for links to one file, if the item's other files are equal too.

    Args:
        source: maps an item to its files.
        record: `Item.as_dict`.
    """
    item = Item.from_dict(record)
    identities = list[Hashable]()
    for path in source.files(item):
        entry = stat_entry(source.root, path, source.roots)
        file_format = format_of(path)
        # A file that cannot be seen is equal to no other: its path stands for it.
        identities.append((file_format and file_format.name, path if entry is None else entry[1:5]))
    return item.split, item.part, item.rows, tuple(identities)


# ----------------------------------------------------------------------------------------- answers


def _check_visible(job: ScanJob, outcome: TaskResult, listing: Listing) -> None:
    """Raise where a worker of a cluster does not see a file that this machine sees.

    Its samples are not broken.

    Raises:
        StorageError: the file is missing there, or is another one.
    """
    for answer in map(MeasuredItems.from_wire, outcome.payloads):
        visible = {entry.path for entry in answer.entries}
        read_files = (file for _, _, files in answer.items for file in files)
        for file in (file for file in read_files if file not in visible):
            place = listing.entries.find(file)
            local_entry = stat_entry(job.source.root, file, job.source.roots)
            if (
                place >= 0
                and local_entry is not None
                and local_entry[1:3] == listing.entries[place][1:3]
            ):
                msg = (
                    f"{(job.source.root / file).absolute()}: is there, but not on {answer.host}, or "
                    f"another one. "
                    "Every worker must see the data under the path that this command sees: in a "
                    "folder that is shared."
                )
                raise StorageError(msg)


def _answers(job: ScanJob, source: Source, outcome: TaskResult) -> list[MeasuredItems]:
    answers = [MeasuredItems.from_wire(answer) for answer in outcome.payloads]
    return answers + [_answer_for(death, job, source) for death in outcome.deaths]


def _answer_for(death: Death, job: ScanJob, source: Source) -> MeasuredItems:
    """Return the answer about an item that killed its child: one unreadable sample.

    The next scan tries the item again, as the machine may be to blame.
    """
    item = Item.from_dict(death.item)
    reason = f"{NOT_HERE}: {death.how}" if death.machine else death.how
    if death.crash:
        reason = "datacheck failed on it: " + death.how.strip().splitlines()[-1]
    rows = unread_rows([Unread(item.path, "DC101", reason)], item.path, item.split)
    if death.crash:
        traceback = {"rule": "", "at": item.path, "traceback": death.how}
        return MeasuredItems(rows.as_wire(), deaths=[traceback])
    return MeasuredItems(rows.as_wire(), entries=_undigested_entries(job, source.files(item)))


def _undigested_entries(job: ScanJob, files: Sequence[str]) -> list[Entry]:
    """Return the entries of files that killed a child, without digests.

    Reading the files here could take as long as it did in the child.
    """
    entries = (stat_entry(job.source.root, file, job.source.roots) for file in files)
    return [entry._replace(digest=NOT_WHOLE) for entry in entries if entry is not None]


def _place(items: Sequence[Item], path: str, split: str) -> int:
    place = bisect_left(items, path, key=lambda item: item.path)
    while (items[place].path, items[place].split) != (path, split):
        place += 1
    return place
