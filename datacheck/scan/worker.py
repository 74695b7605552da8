"""The child's side of a scan: read items, measure their blocks, digest their files.

Only rows return to the parent.
"""

from __future__ import annotations

import re
import socket
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import FormatError, MissingDependencyError, UsageError
from datacheck.formats.limits import SAMPLES
from datacheck.model.table import Slot, Table, Texts, concatenate
from datacheck.plugins import add_module_folders
from datacheck.rules.measurement import NOT_READ, MeasurementRunner, known_measures
from datacheck.scan.measure_tasks import MeasuredItems, MeasureTask
from datacheck.scan.rows import BoundedTables, may_answer, measured_rows, slots_of, unread_rows
from datacheck.sources.base import Item, Source, Unread
from datacheck.sources.listing import digest_entry, stat_entry
from datacheck.sources.roots import NOT_WHOLE, Entry
from datacheck.workers.child import Pulse
from datacheck.workers.wire import answers, int64, natural, text

_NAMES = 1000  # undeclared fields that are reported; a name has at most 1,000 characters
_MOST_PARTS = 1 << 16  # of one file
_DIGEST = re.compile("[0-9a-f]{32}")


def _path(value: Any) -> bool:
    return text(value) and "\0" not in value


def _digest_or_none(value: Any) -> bool:
    return (
        value is None
        or value == NOT_WHOLE
        or (isinstance(value, str) and bool(_DIGEST.fullmatch(value)))
    )


def _of_task(answer: Mapping[str, Any], task: Mapping[str, Any]) -> bool:
    items = {(item["path"], item["split"]) for item in task["items"]}
    answered = [(path, split) for path, split, _ in answer["items"]]
    whole_items = {
        (item["path"], item["split"]) for item in task["items"] if Item.from_dict(item).whole
    }
    table = Table.from_wire(answer["table"])
    return (
        items.issuperset(answered)
        and _can_be_cut(*answer["cut"])
        and may_answer(table, items, whole_items, plain=bool(task.get("plain")))
        and all(crash["measure"] in task["measures"] for crash in answer["crashes"])
        and "deaths" not in answer  # the parent adds these
    )


def _can_be_cut(total: int, step: int) -> bool:
    """Tell whether a file may have `total` samples in parts of `step`."""
    return total <= SAMPLES and total <= step * _MOST_PARTS


@answers(
    {
        "table": dict,
        "items": [(text, text, [_path])],
        "entries": [(text, natural, *[int64] * 4, _digest_or_none)],
        "crashes": [{"measure": str, "key": text, "traceback": text}],
        "undeclared": [text],
        "host": text,
        "cut": (natural, natural),
    },
    _of_task,
    raises=(UsageError, MissingDependencyError),
)
def measure_items(task: dict[str, Any], beat: Callable[[int], None]) -> dict[str, Any]:
    """Read and measure items (see `parallel.run_task`).

    Args:
        task: from `task_wire`.
        beat: called with an item's number before it is touched and after each of its blocks.

    Returns:
        `MeasuredItems` as JSON values and arrays.
    """
    with warnings.catch_warnings():
        # Once for all: otherwise each format silences its libraries at every value.
        warnings.simplefilter("ignore")
        return _measured(MeasureTask.from_wire(task), beat).as_wire()


def _measured(task: MeasureTask, beat: Callable[[int], None]) -> MeasuredItems:
    schema = task.source.schema
    source = task.source.open(level=task.level)
    source.unlisted = schema.reads_unlisted and task.level != "structure"
    add_module_folders(task.paths)
    measures = known_measures(schema)
    runner = MeasurementRunner(schema, [measures[name] for name in task.measures])
    reading = _Reading(source, task, beat)
    rows = BoundedTables(schema)
    unread: dict[int, list[Unread]] = {}
    for block in source.read_all(task.items, reading.begin):
        beat(reading.place)
        reading.waiting_bytes = 0
        if isinstance(block, Unread):
            unread.setdefault(reading.place, []).append(block)
            if block.alone:
                rows = BoundedTables(schema, _rows_of_others(rows, block.key))
        else:
            for table in measured_rows(runner, block, unlisted=source.unlisted):
                rows.add(table)
    for number, failures in unread.items():
        item = task.items[number]
        rows.add(unread_rows(failures, item.path, item.split))
    spoiled = reading.spoiled_files()
    files = list(zip(task.items, reading.files, strict=True))
    table = _complete_rows(rows.table(), task, files, spoiled)
    # Names of a file that changed may be those of another one, which lies anywhere.
    undeclared = (
        set[str]()
        if spoiled
        else rows.named(runner.undeclared) | {name + NOT_READ for name in source.passed}
    )
    return MeasuredItems(
        table=table.as_wire(),
        items=[
            (item.path, item.split, paths)
            for item, paths in files
            if item.path not in runner.failed
        ],
        entries=reading.digested_entries(spoiled),
        crashes=list(runner.crashes.values()),
        undeclared=sorted(undeclared)[:_NAMES],
        host=socket.gethostname(),
        cut=next(iter(source.cuts.values()), (0, 0)),
    )


def _rows_of_others(rows: BoundedTables, path: str) -> list[Table]:
    return [table for table in rows.tables() if Texts.of(table.files).words != [path]]


class _Reading:
    """The files of a task while they are read: what they were before, and what waits to be measured.

    Args:
        source: opens them.
        task: its items; the memory and time of the schema's own checks are not the file's fault.
        beat: called with an item's number before it is touched.
    """

    def __init__(self, source: Source, task: MeasureTask, beat: Callable[[int], None]) -> None:
        self.place = 0  # the item that is being read
        self.waiting_bytes = 0  # of items that are read and not measured yet
        self.files = [source.files(item) for item in task.items]
        self._source, self._items, self._beat = source, task.items, beat
        self._pulse = beat if isinstance(beat, Pulse) and not task.source.schema.checks else None
        self._before: dict[str, Entry | None] = {}

    def begin(self, number: int) -> None:
        """Note the state of an item's files before it is read."""
        self.place = number
        self._beat(number)
        files = self.files[number]
        unknown = [file for file in files if file not in self._before]
        self._before.update(_current_entries(self._source, unknown))
        entries = [self._before[file] for file in files]
        self.waiting_bytes += sum(
            self._source.opener.folders.budget_bytes(entry)
            for entry in entries
            if entry is not None
        )
        if self._pulse is not None:
            part = self._items[number].part
            self._pulse.files(self.waiting_bytes if part is None else part[1] - part[0])

    def spoiled_files(self) -> set[str]:
        """Return the files that changed while they were read, or between listing and reading."""
        root, roots = self._source.root, self._source.roots
        spoiled = {
            file
            for file, entry in self._before.items()
            if _stamp(stat_entry(root, file, roots)) != _stamp(entry)
        }
        spoiled.update(
            item.path for item in self._items if _was_written(item, self._before.get(item.path))
        )
        return spoiled

    def digested_entries(self, spoiled: set[str]) -> list[Entry]:
        """Return the entries of all other files, with their digests."""
        # For later parts the digest is known: the file's cutter or its first part has it.
        parts = {item.path for item in self._items if not item.whole and not item.is_first}
        return [
            _with_digest(self._source, entry, parts)
            for file, entry in sorted(self._before.items())
            if entry is not None and file not in spoiled
        ]


# ------------------------------------------------------------------------------------------- files


def _current_entries(source: Source, files: Sequence[str]) -> dict[str, Entry | None]:
    """Return the current entries of files, and bind the source to exactly these files."""
    entries = {file: stat_entry(source.root, file, source.roots) for file in files}
    source.opener.folders.expected.update(
        (file, entry[1:5]) for file, entry in entries.items() if entry is not None
    )
    return entries


def _stamp(entry: Entry | None) -> tuple[int, ...] | None:
    return None if entry is None else entry[1:5]


def _was_written(item: Item, entry: Entry | None) -> bool:
    """Tell whether a file was written between listing and reading.

    Its rows say so, and the next scan does not reuse them.
    """
    return entry is not None and item.nbytes not in (0, entry.size)


def _with_digest(source: Source, entry: Entry, parts: Collection[str]) -> Entry:
    """Return the entry with the digest of its file; reading may have computed it already."""
    if entry.path in source.partly:
        return entry._replace(digest=NOT_WHOLE)
    if entry.path in source.digests:
        return entry._replace(digest=source.digests[entry.path])
    return digested(source.root, source.roots, entry, parts)


def digested(
    root: Path, roots: Mapping[str, Path], entry: Entry, others: Collection[str] = ()
) -> Entry:
    """Return the entry with the digest of its file.

    No digest for files in `others`, and for files that cannot be read.
    """
    if entry.path in others:
        return entry
    try:
        return entry._replace(
            digest=_digest(str(root), tuple(sorted(roots.items())), entry.path, entry[1:5])
        )
    except FormatError:  # the reading of the samples has reported the reason
        return entry


@lru_cache(maxsize=4096)
def _digest(
    root: str, roots: tuple[tuple[str, Path], ...], path: str, stamp: tuple[int, ...]
) -> str:
    """Digest a file once, however many samples have it as a companion."""
    del stamp  # part of the cache's key: a changed file is digested again
    return digest_entry(Path(root), path, dict(roots))


# ------------------------------------------------------------------------------------------- rows


def _complete_rows(
    table: Table, task: MeasureTask, items: Sequence[tuple[Item, Sequence[str]]], spoiled: set[str]
) -> Table:
    """Return the table without files that changed while they were read, and with missing rows.

    Every whole item without a row gets one, and so does every changed file's sample.
    """
    changed: dict[Slot, str] = {}
    extra: list[Table] = []
    have = slots_of(table)
    for item, files in items:
        slot = (item.path, item.split)
        if spoiled and (file := next((f for f in files if f in spoiled), "")):
            changed[slot] = file
        elif slot not in have and item.whole:
            extra.append(unread_rows([_no_sample(item, task.source.schema.samples.each)], *slot))
    if not changed:
        return concatenate([table, *extra]) if extra else table
    slots = list(zip(table.files, table.splits, strict=True))
    keys: dict[Slot, list[str]] = {slot: [] for slot in changed}
    for key, slot in zip(table.keys, slots, strict=True):
        if slot in keys:
            keys[slot].append(key)
    for slot, file in changed.items():
        message = (
            f"{'it' if file == slot[0] else file} changed while it was read; scan again when "
            f"nothing writes to it"
        )
        extra.append(
            unread_rows([Unread(key, "DC101", message) for key in keys[slot] or [slot[0]]], *slot)
        )
    return concatenate(
        [table.take(np.flatnonzero([slot not in changed for slot in slots])), *extra]
    )


def _no_sample(item: Item, each: str | None) -> Unread:
    if not item.nbytes:
        return Unread(item.path, "DC103", "the file is empty (0 bytes)")
    return Unread(
        item.path, "DC101", f"holds no sample (samples.each: {each})" if each else "holds no sample"
    )
