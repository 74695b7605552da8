"""The child's side of a scan: read items, measure their blocks, digest their files.

Only rows return to the parent.
"""

from __future__ import annotations

import re
import socket
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import FormatError, MissingDependencyError, UsageError
from datacheck.formats.limits import SAMPLES
from datacheck.model.row_keys import storable, storable_keys
from datacheck.model.sample import Block, Origins
from datacheck.model.table import (
    CHECKED,
    FAULT,
    SKIPPED,
    UNREADABLE,
    Measured,
    Table,
    Texts,
    concatenate,
)
from datacheck.plugins import add_module_folders
from datacheck.rules import rules_for
from datacheck.rules.base import Measure
from datacheck.rules.measurement import NOT_READ, MeasurementRunner, UnmeasurableError, is_ours
from datacheck.rules.measures import in_form
from datacheck.scan.unlisted import BoundedTables
from datacheck.schema.model import Schema
from datacheck.sources import open_source
from datacheck.sources.base import Item, Source, Unread, size_in
from datacheck.sources.listing import digest_entry, stat_entry
from datacheck.sources.roots import NOT_WHOLE, Entry
from datacheck.workers.child import Pulse
from datacheck.workers.wire import answers, int64, natural, text

Array = np.ndarray[Any, Any]

_NAMES = 1000  # undeclared fields that are reported; a name has at most 1,000 characters
_MOST_PARTS = 1 << 16  # of one file
_DIGEST = re.compile("[0-9a-f]{32}")


def known_measures(schema: Schema) -> dict[str, Measure]:
    """Return every measurement that a rule needs, by name."""
    return {m.name: m for rule in rules_for(schema).values() for m in rule.measures}


def is_plain(schema: Schema) -> bool:
    """Tell whether all measurements are datacheck's own.

    Those of plug-ins and of the user may give any columns.
    """
    return all(map(is_ours, known_measures(schema).values())) and not schema.checks


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
        and _covers_items(items, whole_items, table)
        and all(crash["measure"] in task["measures"] for crash in answer["crashes"])
        and (not task.get("plain") or in_form(table.columns))
        and "deaths" not in answer  # the parent adds these
    )


def _can_be_cut(total: int, step: int) -> bool:
    """Tell whether a file may have `total` samples in parts of `step`."""
    return total <= SAMPLES and total <= step * _MOST_PARTS


def _covers_items(
    items: set[tuple[str, str]], whole_items: set[tuple[str, str]], table: Table
) -> bool:
    """Tell whether all rows belong to these items, and each whole item has at least one row.

    Notes:
        The words are compared first, so that there are not too many pairs to look at.
    """
    files, splits = ({item[i] for item in items} for i in (0, 1))
    words_fit = files.issuperset(Texts.of(table.files).words) and splits.issuperset(
        Texts.of(table.splits).words
    )
    return words_fit and items >= _slots(table) >= whole_items


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
        task: schema (`Schema.as_dict`), root, roots, level, items (`Item.as_dict`), measures
            (names), paths (of a user's own modules).
        beat: called with an item's number before it is touched and after each of its blocks.

    Returns:
        table (`Table.as_wire`), items (path, split, files that reading opens), entries (`Entry` of
        each file, with its digest), crashes (measure, key, traceback), undeclared (fields that the
        schema does not list), host, cut (of a first part: how many samples the file has, and how
        many make a part; else 0, 0).
    """
    with warnings.catch_warnings():
        # Once for all: otherwise each format silences its libraries at every value.
        warnings.simplefilter("ignore")
        return _measured(task, beat)


def _measured(task: dict[str, Any], beat: Callable[[int], None]) -> dict[str, Any]:
    schema = Schema.model_validate(task["schema"])
    root = Path(task["root"])
    roots = {name: Path(path) for name, path in task["roots"].items()}
    source = open_source(schema, root, roots, level=task["level"])
    source.unlisted = schema.reads_unlisted and task["level"] != "structure"
    add_module_folders(task.get("paths", ()))
    measures = known_measures(schema)
    bench = MeasurementRunner(schema, [measures[name] for name in task["measures"]])
    todo = [Item.from_dict(data) for data in task["items"]]
    files = [source.files(item) for item in todo]
    before: dict[str, Entry | None] = {}
    # The item being read; the bytes of the items that are read and not measured yet.
    place = waiting = 0

    def at(number: int) -> None:
        nonlocal place, waiting
        place = number
        beat(number)
        before.update(
            _current_entries(source, [file for file in files[number] if file not in before])
        )
        part = todo[number].part
        waiting += sum(
            size_in(source.folders, entry)
            for file in files[number]
            if (entry := before[file]) is not None
        )
        # Not with a user's own checks: their memory and time are not the file's fault.
        if isinstance(beat, Pulse) and not schema.checks:
            beat.files(waiting if part is None else part[1] - part[0])

    rows = BoundedTables(schema)
    unread: dict[int, list[Unread]] = {}
    for block in source.read_all(todo, at):
        beat(place)
        waiting = 0
        if isinstance(block, Unread):
            unread.setdefault(place, []).append(block)
            if block.alone:
                tables = [
                    table for table in rows.tables() if Texts.of(table.files).words != [block.key]
                ]
                rows = BoundedTables(schema, tables)
        else:
            for table in _rows(bench, block, unlisted=source.unlisted):
                rows.add(table)
    for number, failures in unread.items():
        rows.add(unread_rows(failures, todo[number].path, todo[number].split))
    table = concatenate(rows.tables())
    spoiled = {
        file
        for file, entry in before.items()
        if _stamp(stat_entry(root, file, roots)) != _stamp(entry)
    }
    spoiled.update(item.path for item in todo if _was_written(item, before.get(item.path)))
    table = _complete_rows(table, schema, list(zip(todo, files, strict=True)), spoiled)
    entries = [
        entry for file, entry in sorted(before.items()) if entry is not None and file not in spoiled
    ]
    # For other parts the digest is known: the file's cutter or the reader of its first part has it.
    parts = {item.path for item in todo if not item.whole and not item.is_first}
    return {
        "table": table.as_wire(),
        "items": [
            [i.path, i.split, f]
            for i, f in zip(todo, files, strict=True)
            if i.path not in bench.failed
        ],
        "entries": [list(_with_digest(source, root, roots, entry, parts)) for entry in entries],
        "crashes": list(bench.crashes.values()),
        "undeclared": sorted(
            rows.named(bench.undeclared) | {name + NOT_READ for name in source.passed}
        )[:_NAMES],
        "host": socket.gethostname(),
        "cut": list(next(iter(source.cuts.values()), (0, 0))),
    }


def _rows(bench: MeasurementRunner, block: Block, *, unlisted: bool) -> Iterator[Table]:
    """Yield the rows of a block.

    A sample on which a measurement of datacheck's own fails is unreadable; the others are judged.
    """
    try:
        table = _measured_rows(bench, block, unlisted=unlisted, strict=True)
    except UnmeasurableError:
        failing = {i: why for i in range(len(block)) if (why := _failure(bench, block.take([i])))}
    else:
        yield table
        return
    for i, why in failing.items():
        group = block.groups[i] if block.groups else ""
        origin = block.origins[i]
        yield unread_rows(
            [Unread(block.keys[i], "DC101", f"{why}, {FAULT}", group)], origin.file, block.split
        )
    if measurable := [i for i in range(len(block)) if i not in failing]:
        yield _measured_rows(bench, block.take(measurable), unlisted=unlisted, strict=False)


def _measured_rows(
    bench: MeasurementRunner, block: Block, *, unlisted: bool, strict: bool
) -> Table:
    """Return the rows of a block.

    Fields that the schema does not list are measured, but are not part of the samples.
    """
    if not unlisted:
        return checked_rows(block, bench.measure(block, strict=strict))
    listed, undeclared = bench.parted(block)
    return checked_rows(
        listed, bench.measure(listed, strict=strict) | bench.measure_unlisted(undeclared)
    )


def _failure(bench: MeasurementRunner, block: Block) -> str:
    try:
        bench.measure(block, strict=True)
    except UnmeasurableError as error:
        return str(error)
    return ""


# ------------------------------------------------------------------------------------------- files


def _current_entries(source: Source, files: Sequence[str]) -> dict[str, Entry | None]:
    """Return the current entries of files, and bind the source to exactly these files."""
    entries = {file: stat_entry(source.root, file, source.roots) for file in files}
    source.folders.expected.update(
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


def _with_digest(
    source: Source, root: Path, roots: Mapping[str, Path], entry: Entry, parts: Collection[str]
) -> Entry:
    """Return the entry with the digest of its file; reading may have computed it already."""
    if entry.path in source.partly:
        return entry._replace(digest=NOT_WHOLE)
    if entry.path in source.digests:
        return entry._replace(digest=source.digests[entry.path])
    return digested(root, roots, entry, parts)


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
    table: Table, schema: Schema, items: Sequence[tuple[Item, Sequence[str]]], spoiled: set[str]
) -> Table:
    """Return the table without files that changed while they were read, and with missing rows.

    Every whole item without a row gets one, and so does every changed file's sample.
    """
    changed: dict[tuple[str, str], str] = {}
    extra: list[Table] = []
    have = _slots(table)
    for item, files in items:
        slot = (item.path, item.split)
        if spoiled and (file := next((f for f in files if f in spoiled), "")):
            changed[slot] = file
        elif slot not in have and item.whole:
            extra.append(unread_rows([_no_sample(schema, item)], *slot))
    if not changed:
        return concatenate([table, *extra]) if extra else table
    slots = list(zip(table.files, table.splits, strict=True))
    keys: dict[tuple[str, str], list[str]] = {slot: [] for slot in changed}
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


def _slots(table: Table) -> set[tuple[str, str]]:
    """Return the (file, split) pairs of the rows."""
    files = Texts.of(table.files)
    splits = Texts.of(table.splits)
    pairs = np.flatnonzero(
        np.bincount(files.rows * np.int64(max(1, len(splits.words))) + splits.rows)
    )
    return {
        (files.words[pair // len(splits.words)], splits.words[pair % len(splits.words)])
        for pair in pairs.tolist()
    }


def _no_sample(schema: Schema, item: Item) -> Unread:
    each = schema.samples.each
    if not item.nbytes:
        return Unread(item.path, "DC103", "the file is empty (0 bytes)")
    return Unread(
        item.path, "DC101", f"holds no sample (samples.each: {each})" if each else "holds no sample"
    )


def unread_rows(
    unread: Sequence[Unread], file: str | Sequence[str], split: str | Sequence[str]
) -> Table:
    """Return the rows of samples that could not be read.

    Args:
        unread: the samples.
        file, split: one for all of them, or one for each.
    """
    count = len(unread)
    return Table(
        keys=storable([u.key for u in unread]),
        files=[file] * count if isinstance(file, str) else file,
        inner=_repeated("", count),
        splits=[split] * count if isinstance(split, str) else split,
        groups=storable([u.group for u in unread]),
        status=np.array([SKIPPED if u.skipped else UNREADABLE for u in unread], dtype=np.int8),
        reasons=storable([f"{u.code} {u.reason}" for u in unread]),
        nbytes=np.zeros(count, np.int64),
    )


def checked_rows(block: Block, columns: dict[str, Measured]) -> Table:
    """Return the rows of a measured block."""
    count = len(block)
    files: Sequence[str]
    inner: Sequence[str]
    if isinstance(block.origins, Origins):
        files = _repeated(storable([block.origins.file])[0], count)
        inner = _repeated("", count)
    else:
        files = storable([origin.file for origin in block.origins])
        inner = storable([origin.inner for origin in block.origins])
    return Table(
        keys=storable_keys(block.keys),
        files=files,
        inner=inner,
        splits=_repeated(block.split, count),
        groups=_groups(block),
        status=np.full(count, CHECKED, np.int8),
        reasons=_repeated("", count),
        nbytes=_sample_bytes(block),
        columns=columns,
    )


def _groups(block: Block) -> Sequence[str]:
    first_group = block.groups[0] if block.groups else ""
    constant = not block.groups or block.groups.count(first_group) == len(block)
    return _repeated(storable([first_group])[0], len(block)) if constant else storable(block.groups)


def _repeated(text: str, count: int) -> Texts:
    return Texts([text], np.zeros(count, np.int32))


def _sample_bytes(block: Block) -> Array:
    total = np.zeros(len(block), np.int64)
    for column in block.fields.values():
        item = 1  # text and JSON: lengths are bytes
        if column.kind == "array":
            item = prod(column.values.shape[1:]) * column.values.dtype.itemsize
        total += item if column.lengths is None else column.lengths * item
    return total
