"""The rows of a scan's table: how they are made, and how many of their columns fit in memory.

A sample that was measured has a row with its measurements; a sample that could not be read has a
row with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from datacheck.model.row_keys import storable, storable_keys
from datacheck.model.sample import Block, Origins
from datacheck.model.table import (
    CHECKED,
    FAULT,
    LEFT_OUT,
    SKIPPED,
    UNREADABLE,
    WIDE_NUMBER,
    Measured,
    Slot,
    Table,
    Texts,
    concatenate,
)
from datacheck.rules.measurement import (
    MOST_UNLISTED,
    NOT_READ,
    MeasurementRunner,
    UnmeasurableError,
)
from datacheck.rules.measures import MOST_COMPONENTS, in_form, unlisted_fields
from datacheck.schema.model import Schema
from datacheck.sources.base import Unread, Work
from datacheck.sources.listing import Listing

Array = np.ndarray[Any, Any]


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


def missing_rows(work: Work) -> Table:
    """Return a table with one row for each note on a sample without a readable file.

    One table for all notes, because there may be 100,000 of them.
    """
    notes = [note for note in work.notes if note.missing]
    unread = [Unread(note.key, note.code, note.reason) for note in notes]
    return unread_rows(unread, [note.key for note in notes], [note.split for note in notes])


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


def measured_rows(runner: MeasurementRunner, block: Block, *, unlisted: bool) -> Iterator[Table]:
    """Yield the rows of a block.

    A sample on which a measurement of datacheck's own fails is unreadable; the others are judged.
    """
    try:
        table = _measure_rows(runner, block, unlisted=unlisted, strict=True)
    except UnmeasurableError:
        failing = {i: why for i in range(len(block)) if (why := _failure(runner, block.take([i])))}
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
        yield _measure_rows(runner, block.take(measurable), unlisted=unlisted, strict=False)


def _measure_rows(
    runner: MeasurementRunner, block: Block, *, unlisted: bool, strict: bool
) -> Table:
    """Return the rows of a block.

    Fields that the schema does not list are measured, but are not part of the samples.
    """
    if not unlisted:
        return checked_rows(block, runner.measure(block, strict=strict))
    listed, undeclared = runner.parted(block)
    return checked_rows(
        listed, runner.measure(listed, strict=strict) | runner.measure_unlisted(undeclared)
    )


def _failure(runner: MeasurementRunner, block: Block) -> str:
    try:
        runner.measure(block, strict=True)
    except UnmeasurableError as error:
        return str(error)
    return ""


def slots_of(table: Table) -> set[Slot]:
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


def may_answer(table: Table, items: set[Slot], whole_items: set[Slot], *, plain: bool) -> bool:
    """Tell whether a child may answer a task with these rows.

    All rows belong to the task's items, and each whole item has at least one row.

    Args:
        table: the rows.
        items: path and split of the task's items.
        whole_items: the items that are no parts of a file.
        plain: all measurements are datacheck's own, so the form of their columns is known.

    Notes:
        The words are compared first, so that there are not too many pairs to look at.
    """
    files, splits = ({item[i] for item in items} for i in (0, 1))
    words_fit = files.issuperset(Texts.of(table.files).words) and splits.issuperset(
        Texts.of(table.splits).words
    )
    covered = words_fit and items >= slots_of(table) >= whole_items
    return covered and (not plain or in_form(table.columns))


def share_keys(table: Table, listing: Listing) -> None:
    """Replace a table's keys by equal texts of the listing, so that each path is stored once."""
    entries = listing.entries
    if table.files is table.keys:
        places = [entries.find(key) for key in table.keys]
        pairs = zip(places, table.keys, strict=True)
        table.keys = table.files = [
            entries.paths[place] if place >= 0 else key for place, key in pairs
        ]


# ------------------------------------------------------------------------------------------ memory


@dataclass(frozen=True)
class MemoryLimit:
    """Bytes kept in memory: `few`, plus `row` for each row, `most` at most; and at most `names`."""

    few: int
    row: int
    most: int
    names: int


UNLISTED = MemoryLimit(16 << 20, 2048, 256 << 20, MOST_UNLISTED)
# Less than `samples.check_memory` allows; otherwise a run could not be read again.
WIDE = MemoryLimit(128 << 20, 1024, 256 << 20, 64)


class _FittingNames:
    """The names, in order, that fit into a memory limit, where each takes some bytes of every row.

    Notes:
        Rows, widths and names only grow, and the room per row only shrinks: a name that does not
        fit now would not fit later. So the kept names do not depend on the order of the tables.
    """

    def __init__(self, room: MemoryLimit) -> None:
        self._room = room
        # By name that fits, and by column: bytes of a row.
        self._names: dict[str, dict[str, int]] = {}
        self._end = ""  # the first name that does not fit; "" while all fit

    def holds(self, name: str) -> bool:
        """Tell whether a name would fit."""
        return not self._end or name < self._end

    @property
    def end(self) -> str:
        """The first name that does not fit, "" while all fit."""
        return self._end

    def end_at(self, name: str) -> None:
        """Drop a name and all later ones: they did not fit when there were fewer rows."""
        if self.holds(name):
            self._end = name
            self._names = {
                kept_name: widths for kept_name, widths in self._names.items() if kept_name < name
            }

    def add(self, name: str, column: str, width: int) -> None:
        """Count a column of a name, with its bytes per row."""
        if self.holds(name):
            widths = self._names.setdefault(name, {})
            widths[column] = max(widths.get(column, 0), width)

    def cut(self, rows: int) -> None:
        """Drop the names that no longer fit."""
        bytes_left = min(self._room.most, self._room.few + self._room.row * rows)
        for place, (name, widths) in enumerate(sorted(self._names.items())):
            bytes_left -= rows * max(
                sum(widths.values()) - widths.get(LEFT_OUT, 0), widths.get(LEFT_OUT, 0)
            )
            if bytes_left < 0 or place == self._room.names:
                self.end_at(name)
                return


class BoundedTables:
    """Tables of rows with as many unlisted fields and wide columns as fit in memory, by name.

    Args:
        schema: has the listed fields.
        tables: the first ones.

    Notes:
        In the end all rows of all tables have all columns, so a field costs its widest row times
        the number of rows. The kept columns depend neither on the order of the tables nor on how
        rows were split into tables. Rows record what was left out (of wide columns the bytes, of
        unlisted fields the first name that does not fit), so that a later scan of fewer samples
        does not judge the remaining rows alone.
    """

    def __init__(self, schema: Schema, tables: Iterable[Table] = ()) -> None:
        self._schema = schema
        self._listed = {
            *schema.fields,
            *(name for fields in schema.when.values() for name in fields),
        }
        self._tables: list[Table] = []
        self._rows = 0
        self._unlisted, self._wide = _FittingNames(UNLISTED), _FittingNames(WIDE)
        self._grown = 0  # bytes added since the last cut of the tables
        for table in tables:
            self.add(table)

    def add(self, table: Table) -> None:
        """Add rows."""
        for fitting, name, stat, measured in self._limited(table):
            if stat == LEFT_OUT and fitting is self._unlisted:
                fitting.end_at(name)
                continue
            width = _counted(measured) if fitting is self._wide else _width(measured)
            if stat == LEFT_OUT:
                width = int(measured.values[measured.present].max(initial=0))
            self._grown += len(table) * width
            fitting.add(name, stat, width)
        self._rows += len(table)
        self._tables.append(table)
        self._unlisted.cut(self._rows)
        self._wide.cut(self._rows)
        if self._grown > UNLISTED.most:
            self.tables()

    def tables(self) -> list[Table]:
        """Return the tables, without the columns that do not fit."""
        self._tables = [self._without(table) for table in self._tables]
        self._grown = 0
        return self._tables

    def table(self) -> Table:
        """Return all rows as one table, without the columns that do not fit."""
        return concatenate(self.tables())

    def holds(self, name: str) -> bool:
        """Tell whether measurements of an unlisted field would be kept."""
        return self._unlisted.holds(name)

    def named(self, names: Iterable[str]) -> set[str]:
        """Return names of unlisted fields, marked as not read where no measurement is kept."""
        return {
            name if self.holds(name) or name.endswith(NOT_READ) else name + NOT_READ
            for name in names
        }

    def lack(self, *, partly: bool = False) -> bool:
        """Tell whether rows of an earlier scan lack columns that fit now, or may fit.

        Then their files must be read again.

        Args:
            partly: not all rows of that scan are here; if all are, columns that did not fit then do
                not fit now.
        """
        return (partly and self._unlisted.end != "") or any(
            stat == LEFT_OUT and fitting.holds(name)
            for table in self._tables
            for fitting, name, stat, _ in self._limited(table)
        )

    def _limited(self, table: Table) -> Iterator[tuple[_FittingNames, str, str, Measured]]:
        unlisted = set(unlisted_fields(table, self._schema))
        for column, measured in table.columns.items():
            name, _, stat = column.rpartition(":")
            if name in unlisted or (stat == LEFT_OUT and name not in self._listed):
                yield self._unlisted, name, stat, measured
            elif stat == LEFT_OUT or (
                measured.values.ndim == 2 and measured.values.shape[1] > MOST_COMPONENTS
            ):
                yield self._wide, name, stat, measured

    def _without(self, table: Table) -> Table:
        columns = dict(table.columns)
        for fitting, name, stat, measured in self._limited(table):
            if stat == LEFT_OUT and fitting is self._unlisted:
                del columns[f"{name}:{stat}"]
            elif stat != LEFT_OUT and not fitting.holds(name):
                del columns[f"{name}:{stat}"]
                if fitting is self._wide:
                    left_out = measured._replace(values=np.zeros(len(table), np.int32))
                    mark = f"{name}:{LEFT_OUT}"
                    left_out = columns.get(mark, left_out)
                    columns[mark] = left_out._replace(
                        values=left_out.values + np.int32(_counted(measured))
                    )
        if end := self._unlisted.end:
            zeros = np.broadcast_to(np.int32(0), len(table))
            columns[f"{end}:{LEFT_OUT}"] = Measured(zeros, np.broadcast_to(np.True_, len(table)))
        return replace(table, columns=columns)


def _width(column: Measured) -> int:
    return _numbers(column) * int(column.values.dtype.itemsize) + 1


def _counted(column: Measured) -> int:
    """Return the bytes that a row of a wide column counts for."""
    return _numbers(column) * WIDE_NUMBER


def _numbers(column: Measured) -> int:
    return prod(column.values.shape[1:])
