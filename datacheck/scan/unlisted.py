"""What was measured of fields that the schema does not list, and of wide ones: as much as fits in memory."""

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
    """How much is kept in memory: bytes for few rows, more for each row, bytes at most; names at most."""

    few: int
    row: int
    most: int
    names: int


UNLISTED = MemoryLimit(16 << 20, 2048, 256 << 20, MOST_UNLISTED)
WIDE = MemoryLimit(
    128 << 20, 1024, 256 << 20, 64
)  # less than `footer.check_memory` allows, or a run could not be read again


class _FittingNames:
    """The first names by order that fit into a room, when each takes some bytes of every row.

    Notes:
        Rows, widths and names only ever become more, and the room of a row less: a name that does
        not fit now would not fit later. So the names that are left do not depend on the order in
        which tables come.
    """

    def __init__(self, room: MemoryLimit) -> None:
        self._room = room
        self._names: dict[
            str, dict[str, int]
        ] = {}  # bytes of a row: by name that fits, and by column
        self._end = ""  # no name from this one on fits; "" while all do

    def holds(self, name: str) -> bool:
        """Tell whether a name fits, if it was met."""
        return not self._end or name < self._end

    @property
    def end(self) -> str:
        """The first name that does not fit, "" where all do."""
        return self._end

    def end_at(self, name: str) -> None:
        """Leave out a name and all behind it: they did not fit where there were fewer rows."""
        if self.holds(name):
            self._end = name
            self._names = {known: of for known, of in self._names.items() if known < name}

    def add(self, name: str, column: str, width: int) -> None:
        """Let a column of a name take so many bytes of each row."""
        if self.holds(name):
            widths = self._names.setdefault(name, {})
            widths[column] = max(widths.get(column, 0), width)

    def cut(self, rows: int) -> None:
        """Leave out the names that do not fit any more."""
        left = min(self._room.most, self._room.few + self._room.row * rows)
        for place, (name, widths) in enumerate(sorted(self._names.items())):
            left -= rows * max(
                sum(widths.values()) - widths.get(LEFT_OUT, 0), widths.get(LEFT_OUT, 0)
            )
            if left < 0 or place == self._room.names:
                self.end_at(name)
                return


class BoundedTables:
    """Tables of rows, in which unlisted fields and wide columns are kept as far as they fit, the first by name.

    Args:
        schema: which fields are listed.
        tables: the first ones.

    Notes:
        All rows of all tables will have all columns, so a field costs the widest of its rows, times
        all rows. What is kept does not depend on the order in which tables come, nor on what was
        cut to tables before. Rows say what of them was left out, so that a later scan of fewer
        samples does not judge the others alone: of wide columns how much they would take, of
            unlisted fields the first name, from which on there is none.
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
        self._grown = 0  # bytes of what may not fit any more
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
        """Return the tables, without what does not fit."""
        self._tables = [self._without(table) for table in self._tables]
        self._grown = 0
        return self._tables

    def holds(self, name: str) -> bool:
        """Tell whether what was measured of an unlisted field is kept, if it was measured."""
        return self._unlisted.holds(name)

    def named(self, names: Iterable[str]) -> set[str]:
        """Return names of unlisted fields; those of which nothing is kept are said not to be read."""
        return {
            name if self.holds(name) or name.endswith(NOT_READ) else name + NOT_READ
            for name in names
        }

    def lack(self, *, partly: bool = False) -> bool:
        """Tell whether rows of an earlier scan lack what fits now, or may fit: their files must be read again.

        Args:
            partly: not all rows of that scan are here; where all are, what did not fit then does
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
                    before, mark = (
                        measured._replace(values=np.zeros(len(table), np.int32)),
                        f"{name}:{LEFT_OUT}",
                    )
                    before = columns.get(mark, before)
                    columns[mark] = before._replace(
                        values=before.values + np.int32(_counted(measured))
                    )
        if end := self._unlisted.end:
            none = np.broadcast_to(np.int32(0), len(table))
            columns[f"{end}:{LEFT_OUT}"] = Measured(none, np.broadcast_to(np.True_, len(table)))
        return replace(table, columns=columns)


def _width(column: Measured) -> int:
    return _numbers(column) * int(column.values.dtype.itemsize) + 1


def _counted(column: Measured) -> int:
    """Return the bytes that a row of a wide column counts for."""
    return _numbers(column) * WIDE_NUMBER


def _numbers(column: Measured) -> int:
    return prod(column.values.shape[1:])
