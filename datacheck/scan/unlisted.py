"""Bounds the memory of measurements of unlisted fields and of wide columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from datacheck.model.table import LEFT_OUT, WIDE_NUMBER, Measured, Table
from datacheck.rules.measurement import MOST_UNLISTED, NOT_READ
from datacheck.rules.measures import MOST_COMPONENTS, unlisted_fields
from datacheck.schema.model import Schema


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
