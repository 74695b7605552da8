"""Measures items in child processes; cuts large files into parts and merges the parts' results.

Each part of a packed file is unpacked from the start of the file, or read on from where the child's
last part ended. So the parts of a packed file come as a few series, each for one child.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import StorageError
from datacheck.formats.base import format_of
from datacheck.model.finding import Progress, Tick
from datacheck.model.sample import Depth
from datacheck.model.table import Table
from datacheck.rules.chat_turns import FAILED
from datacheck.runtime.machine import usable_cpus
from datacheck.runtime.sandbox import Sandbox, sandbox_parts
from datacheck.scan.row_reuse import share_keys
from datacheck.scan.run_dir import Journal
from datacheck.scan.run_state import Slot
from datacheck.scan.unlisted import BoundedTables
from datacheck.scan.worker import is_plain, unread_rows
from datacheck.schema.model import Schema
from datacheck.sources import open_source
from datacheck.sources.base import Item, Source, Unread
from datacheck.sources.listing import Listing, stat_entry
from datacheck.sources.roots import NOT_WHOLE, Entries, Entry, encoded_digest, sandbox_of
from datacheck.workers.parallel import Death, Limits, TaskResult, Tasks, ordered_map

Payload = dict[str, Any]

_LISTS = ("items", "entries", "crashes", "undeclared", "deaths")
# Series of one packed file: unpacking the bytes before a part takes a quarter of the part's time.
_SERIES = 4
_CHANGED = "it changed while it was read; scan again when nothing writes to it"


@dataclass(eq=False)
class _FileParts:
    """A file that is read in parts.

    Args:
        seen: the file's entry when cutting began.
        parts: how many there are; 0 until all are cut.
        digest: of the whole file.
        done: how many parts came back.
        payloads: the results of the parts (see `worker.measure_items`).
        of_rows: reading the first part determines the others.
    """

    seen: Entry | None
    parts: int = 0
    digest: str = ""
    done: int = 0
    payloads: list[Payload] = field(default_factory=list)
    of_rows: bool = False


class FileCutter:
    """The files of a scan that are read in parts.

    Args:
        source: cuts them.
        root, roots: where they are.
        workers: how many children there are; None: those of a cluster.
    """

    def __init__(
        self, source: Source, root: Path, roots: Mapping[str, Path], workers: int | None
    ) -> None:
        self._source, self._root, self._roots = source, root, roots
        self._series = min(workers or _SERIES, _SERIES)
        self._files: dict[Slot, _FileParts] = {}
        # The other parts of files whose first part has been read.
        self._told: deque[Item | list[Item]] = deque()

    def items(self, items: Iterable[Item]) -> Iterator[Item | list[Item] | None]:
        """Yield the items; a large file of lines as its parts, in order, each as soon as it is cut.

        Notes:
            A large file of rows, and a packed file, yields its first part in the item's place. Only
            reading that part determines how many others there are. They come after `whole` has
            received the first result: those of a packed file as lists, each for one child. None
            means that only such parts are left, and that they are not known yet.
        """
        for item in items:
            cut = self._source.cut(item)
            if cut is None:
                yield self._first_part(item) if self._source.cut_when_read(item) else item
            else:
                yield from self._parts(item, cut)
            while self._told:
                yield self._told.popleft()
        while any(file.of_rows and not file.parts for file in self._files.values()):
            yield None  # the first part of a file is being read
            while self._told:
                yield self._told.popleft()

    def _first_part(self, item: Item) -> Item:
        self._files[item.path, item.split] = _FileParts(
            stat_entry(self._root, item.path, self._roots), of_rows=True
        )
        return replace(item, rows=(0, -1))

    def _parts(self, item: Item, cut: Iterator[tuple[tuple[int, int, int], str]]) -> Iterator[Item]:
        file = _FileParts(stat_entry(self._root, item.path, self._roots))
        self._files[item.path, item.split] = file
        count = 0
        try:
            for part, digest in cut:
                count += 1
                if digest:
                    file.parts, file.digest = count, digest
                yield replace(item, part=part)
        except OSError:  # the file vanished: `rest` reports the parts that were read
            if not count:
                del self._files[item.path, item.split]
                yield item  # reading it reports why it cannot be read

    def whole(self, item: Item, payloads: Sequence[Payload]) -> Iterator[list[Payload]]:
        """Yield the results of whole files: of an item at once, of parts with the last part."""
        if item.whole:
            yield from ([payload] for payload in payloads)
            return
        file = self._files[item.path, item.split]
        file.payloads += payloads
        file.done += 1
        if not file.parts and file.of_rows:
            total, step = next((payload["cut"] for payload in payloads if "cut" in payload), (0, 0))
            starts = range(step, total, step) if step else ()
            file.parts = 1 + len(starts)
            later_parts = [
                replace(item, rows=(start, min(start + step, total))) for start in starts
            ]
            self._told += (
                _cut_series(later_parts, self._series)
                if self._source.is_packed(item)
                else later_parts
            )
        if file.done == file.parts:
            del self._files[item.path, item.split]
            yield _merged_payloads(item.path, item.split, file)

    def rest(self) -> Iterator[list[Payload]]:
        """Yield the results of files whose parts could not all be cut."""
        for (path, split), file in self._files.items():
            yield _merged_payloads(path, split, file)
        self._files = {}


def _cut_series(parts: list[Item], count: int) -> Iterator[list[Item]]:
    """Cut a file's parts, in order, into at most `count` series of about equal length."""
    bounds = [len(parts) * place // count for place in range(count + 1)]
    return (parts[start:stop] for start, stop in pairwise(bounds) if start < stop)


def _merged_payloads(path: str, split: str, file: _FileParts) -> list[Payload]:
    """Return the payloads of a file's parts as those of one file.

    Items come from the first part; the others add rows.
    """
    merged: Payload = {name: [] for name in _LISTS}
    for payload in file.payloads:
        for name in ("crashes", "undeclared", "deaths"):
            merged[name] += payload.get(name, [])
    if not file.parts or not all(
        _is_same_file(payload, path, file.seen) for payload in file.payloads
    ):
        keys = [
            key
            for payload in file.payloads
            for key in Table.from_wire(payload["table"]).keys
            if key != path
        ]
        unread = [Unread(key, "DC101", _CHANGED) for key in keys or [path]]
        return [merged | {"table": unread_rows(unread, path, split).as_wire()}]
    if all(payload["items"] for payload in file.payloads):
        merged["items"] = file.payloads[0]["items"]
    merged["entries"] = _entries(path, file)
    tables = _tables(path, file)
    if not tables:
        tables = [unread_rows([Unread(path, "DC101", "holds no line")], path, split).as_wire()]
    return [
        merged | {"table": tables[0]},
        *({name: [] for name in _LISTS} | {"table": table} for table in tables[1:]),
    ]


def _entries(path: str, file: _FileParts) -> list[Any]:
    """Return the entries of a file and its companions.

    Cutting the file, or reading its first part, has computed its digest.
    """
    entries = {
        entry[0]: entry for payload in reversed(file.payloads) for entry in payload["entries"]
    }
    if path in entries and not file.of_rows:
        entries[path] = list(Entry(*entries[path])._replace(digest=file.digest))
    return list(entries.values())


def _tables(path: str, file: _FileParts) -> list[Any]:
    """Return the rows of a file's parts; one row stands for the parts that cannot be read.

    Notes:
        A broken line leaves the other lines whole. An array that cannot be read in one place cannot
        be read at all.
    """
    tables = [payload["table"] for payload in file.payloads if len(payload["table"]["status"])]
    unread_tables = [table for table in tables if table["texts"]["keys"][0] == [path]]
    if unread_tables and file.of_rows:
        return unread_tables[:1]
    return [table for table in tables if not any(table is unread for unread in unread_tables[1:])]


def _is_same_file(payload: Payload, path: str, cut_entry: Entry | None) -> bool:
    """Tell whether a part was read from the same state of the file that was cut."""
    if payload.get("deaths"):
        return True  # datacheck's own code failed before it could look at the file
    return cut_entry is not None and any(
        e[0] == path and tuple(e[1:5]) == cut_entry[1:5] for e in payload["entries"]
    )


Array = np.ndarray[Any, Any]


TASK_BYTES = 64 << 20
TASK_ITEMS = 512
SMALL_BYTES = 256 << 20
SMALL_ITEMS = 40_000

NOT_HERE = "not read on this machine"  # prefix of reasons that say nothing about the file

_UNDECLARED_KEPT = 1000  # names, each of at most 1,000 characters

_MEASURE = "datacheck.scan.worker:measure_items"


@dataclass(frozen=True)
class ScanJob:
    """The part of a scan that all of its tasks share.

    Args:
        schema, root, roots: what to read and how.
        measures: names of the measurements.
        level: how deep to read.
        workers: processes; None: one for small data, one per core for large.
        scheduler: address of a Dask scheduler to use instead.
        limits: of time and memory, per item.
        paths: folders in which a user's own modules are found.
    """

    schema: Schema
    root: Path
    roots: Mapping[str, Path]
    measures: Sequence[str]
    level: Depth = "numeric"
    workers: int | None = None
    scheduler: str | None = None
    limits: Limits = field(default_factory=Limits)
    paths: Sequence[str] = ()

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox of the children; None where the schema names the user's own functions."""
        return sandbox_of(self.root, self.roots, self.schema)

    @property
    def sandbox_text(self) -> str:
        """The parts of the sandbox, for the record."""
        return "off (own checks)" if self.sandbox is None else sandbox_parts()


@dataclass(eq=False)
class MeasureResult:
    """The results of the children.

    Args:
        rows: of the finished tasks.
        done: bool (items): items whose rows may be kept for the next scan.
        companions: by place, all files of a done item that has more than one file.
        entries: the listed files as they were when they were read, with digests.
        crashes: the first failure of each measurement.
        deaths: items on which the reading code itself failed: file and traceback.
        undeclared: fields in the data that the schema does not list.
    """

    entries: Entries
    done: Array
    rows: BoundedTables
    companions: dict[int, tuple[str, ...]] = field(default_factory=dict)
    crashes: dict[str, dict[str, str]] = field(default_factory=dict)
    deaths: list[dict[str, str]] = field(default_factory=list)
    undeclared: set[str] = field(default_factory=set)


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
    listed = listing.entries
    entries = Entries(listed.paths, listed.numbers.copy(), listed.digests.copy())
    done = MeasureResult(entries, np.zeros(len(items), bool), BoundedTables(job.schema))
    total = sum(item.nbytes for item in items)
    files = nbytes = samples = 0

    def tell(note: str = "") -> None:
        if progress is not None:
            progress(Tick(files, len(items), nbytes, total, samples, kept, note=note))

    tell()
    workers = _workers(job.workers, total, len(items), _tasks(items))
    cuts = FileCutter(source, job.root, job.roots, workers if job.scheduler is None else None)
    plain = is_plain(job.schema)
    groups = batches(cuts.items(items))
    tasks = (_tasks_of(job, group, plain=plain) for group in groups)
    limits = replace(job.limits, own_code=bool(job.schema.checks))
    # Absolute paths, because workers of a cluster run in other folders.
    places = {name: path.absolute() for name, path in job.roots.items()}
    # A source of its own, because other threads call it.
    content_key = partial(item_bytes, open_source(job.schema, job.root.absolute(), places))
    outcomes = ordered_map(
        _MEASURE,
        tasks,
        workers=workers,
        scheduler=job.scheduler,
        limits=limits,
        sandbox=job.sandbox,
        same=content_key,
        told=tell,
    )
    try:
        with closing(outcomes):  # type: ignore[type-var]
            for outcome in outcomes:
                if job.scheduler is not None:
                    _check_visible(job, outcome, listing)
                read_items = [Item.from_dict(record) for record in outcome.task["items"]]
                complete = list(cuts.whole(read_items[0], list(_parts(job, source, outcome))))
                samples += sum(
                    _store_payloads(done, parts, listing, journal, items) for parts in complete
                )
                files += len(read_items) if read_items[0].whole else len(complete)
                nbytes += sum(
                    item.nbytes
                    for item in read_items
                    if item.whole or (item.rows is not None and complete)
                )
                nbytes += sum(
                    item.part[1] - item.part[0] for item in read_items if item.part is not None
                )
                tell()
        for parts in cuts.rest():
            samples += _store_payloads(done, parts, listing, journal, items)
    except KeyboardInterrupt as stop:
        stop.add_note(
            f"{files + kept:,} of {len(items) + kept:,} files are done and kept: the same command "
            f"goes on."
        )
        raise
    return done


def item_bytes(source: Source, said: dict[str, Any]) -> Hashable:
    """Return a key of the bytes that an item reads.

    Equal for links to one file, if the item's other files are equal too.

    Args:
        source: maps an item to its files.
        said: `Item.as_dict`.
    """
    item = Item.from_dict(said)
    identities = list[Hashable]()
    for path in source.files(item):
        entry = stat_entry(source.root, path, source.roots)
        file_format = format_of(path)
        # A file that cannot be seen is equal to no other: its path stands for it.
        identities.append((file_format and file_format.name, path if entry is None else entry[1:5]))
    return item.split, item.part, item.rows, tuple(identities)


def _check_visible(job: ScanJob, outcome: TaskResult, listing: Listing) -> None:
    """Raise where a worker of a cluster does not see a file that this machine sees.

    Its samples are not broken.

    Raises:
        StorageError: the file is missing there, or is another one.
    """
    for part in outcome.payloads:
        visible = {record[0] for record in part["entries"]}
        for file in (file for *_, files in part["items"] for file in files if file not in visible):
            place = listing.entries.find(file)
            local_entry = stat_entry(job.root, file, job.roots)
            if (
                place >= 0
                and local_entry is not None
                and local_entry[1:3] == listing.entries[place][1:3]
            ):
                msg = (
                    f"{(job.root / file).absolute()}: is there, but not on {part['host']}, or "
                    f"another one. "
                    "Every worker must see the data under the path that this command sees: in a "
                    "folder that is shared."
                )
                raise StorageError(msg)


def _tasks(items: Sequence[Item]) -> int:
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
    groups = [[item] for item in items] if not items[0].whole else [items]
    tasks = [_task(job, group) | {"plain": plain} for group in groups]
    return tasks if len(tasks) > 1 else tasks[0]


def _task(job: ScanJob, items: Sequence[Item]) -> dict[str, Any]:
    return {
        "schema": job.schema.as_dict(),
        "root": str(job.root.absolute()),
        "roots": {name: str(path.absolute()) for name, path in job.roots.items()},
        "measures": list(job.measures),
        "level": job.level,
        "items": [item.as_dict() for item in items],
        "paths": list(job.paths),
        "without": _without_tokenizer(job.schema),
    }


def _without_tokenizer(schema: Schema) -> dict[str, Any]:
    """Return the task arguments for one more try of files that killed their child.

    The tokenizer may be the cause, so the retry runs without it.
    """
    spec = schema.tokenizer
    if spec is None or spec.path is None:
        return {}
    less = spec.model_copy(update={"path": spec.path + FAILED})
    return {"schema": schema.model_copy(update={"tokenizer": less}).as_dict()}


def _workers(requested: int | None, nbytes: int, items: int, tasks: int) -> int:
    if requested is None:
        # Small data are done before a cluster has started.
        small = nbytes < SMALL_BYTES and items < SMALL_ITEMS
        requested = 1 if small else usable_cpus()
    return max(1, min(requested, tasks))


def _parts(job: ScanJob, source: Source, outcome: TaskResult) -> Iterator[dict[str, Any]]:
    yield from outcome.payloads
    for death in outcome.deaths:
        yield _dead(job, source, death)


def _dead(job: ScanJob, source: Source, death: Death) -> dict[str, Any]:
    """Return the payload of an item that killed its child.

    The next scan tries the item again, as the machine may be to blame.
    """
    item = Item.from_dict(death.item)
    part: dict[str, Any] = {
        "items": [],
        "entries": [],
        "crashes": [],
        "undeclared": [],
        "deaths": [],
    }
    reason = f"{NOT_HERE}: {death.how}" if death.machine else death.how
    if death.crash:
        part["deaths"] = [{"rule": "", "at": item.path, "traceback": death.how}]
        reason = "datacheck failed on it: " + death.how.strip().splitlines()[-1]
    else:
        part["entries"] = _undigested_entries(job, source.files(item))
    return part | {
        "table": unread_rows([Unread(item.path, "DC101", reason)], item.path, item.split).as_wire()
    }


def _undigested_entries(job: ScanJob, files: Sequence[str]) -> list[list[Any]]:
    """Return the entries of files that killed a child, without digests.

    Reading the files here could take as long as it did in the child.
    """
    entries = (stat_entry(job.root, file, job.roots) for file in files)
    return [list(entry._replace(digest=NOT_WHOLE)) for entry in entries if entry is not None]


def _store_payloads(
    done: MeasureResult,
    parts: Sequence[Mapping[str, Any]],
    listing: Listing,
    journal: Journal,
    items: Sequence[Item],
) -> int:
    """Store the results of one task, or of all tasks of one file; return the number of rows.

    Items, entries and crashes come from the first payload; the others add rows.
    """
    part = parts[0]
    entries = listing.entries
    if part["items"]:
        journal.add(part, [payload["table"] for payload in parts[1:]])
    tables = [Table.from_wire(task_part["table"]) for task_part in parts]
    for table in tables:
        share_keys(table, listing)
        done.rows.add(table)
    for path, split, files in part["items"]:
        place = _place(items, (path, split))
        done.done[place] = True
        if len(files) > 1:
            file_places = [(file, entries.find(file)) for file in files]
            done.companions[place] = tuple(
                entries.paths[i] if i >= 0 else file for file, i in file_places
            )
    for record in part["entries"]:
        entry = Entry(*record)
        place = entries.find(record[0])
        if place >= 0:
            done.entries.numbers[place] = entry[1:6]
            done.entries.digests[place] = encoded_digest(entry.digest)
    # The first names in order, whichever task came first.
    done.undeclared = set(sorted(done.undeclared.union(part["undeclared"]))[:_UNDECLARED_KEPT])
    done.deaths += part.get("deaths", [])
    for crash in part["crashes"]:
        done.crashes.setdefault(crash["measure"], crash)
    return sum(map(len, tables))


def _place(items: Sequence[Item], slot: Slot) -> int:
    place = bisect_left(items, slot[0], key=lambda item: item.path)
    while (items[place].path, items[place].split) != slot:
        place += 1
    return place
