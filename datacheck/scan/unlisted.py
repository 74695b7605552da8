"""What was measured of fields that the schema does not list, and of wide ones: as much as fits in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod

from datacheck.judging.bench import NOT_READ
from datacheck.rules.measures import MOST_COMPONENTS, unlisted_fields
from datacheck.scan.samples import NUMBER
from datacheck.schema.model import Schema
from datacheck.table import Measured, Table


@dataclass(frozen=True)
class Room:
    """How much is kept in memory: bytes for few rows, more for each row, bytes at most; names at most."""

    few: int
    row: int
    most: int
    names: int


UNLISTED = Room(16 << 20, 2048, 256 << 20, 64)
WIDE = Room(128 << 20, 1024, 256 << 20, 64)  # less than `footer.check_memory` allows, or a run could not be read again


class _Fitting:
    """The first names by order that fit into a room, when each takes some bytes of every row.

    Notes:
        Rows, widths and names only ever become more, and the room of a row less: a name that does not fit now would not
        fit later. So the names that are left do not depend on the order in which tables come.
    """

    def __init__(self, room: Room) -> None:
        self._room = room
        self._names: dict[str, dict[str, int]] = {}  # bytes of a row: by name that fits, and by column
        self._end = ""  # no name from this one on fits; "" while all do

    def holds(self, name: str) -> bool:
        """Tell whether a name fits, if it was met."""
        return not self._end or name < self._end

    def add(self, name: str, column: str, width: int) -> None:
        """Let a column of a name take so many bytes of each row."""
        if self.holds(name):
            widths = self._names.setdefault(name, {})
            widths[column] = max(widths.get(column, 0), width)

    def cut(self, rows: int) -> None:
        """Leave out the names that do not fit any more."""
        left = min(self._room.most, self._room.few + self._room.row * rows)
        for place, (name, widths) in enumerate(sorted(self._names.items())):
            left -= rows * sum(widths.values())
            if left < 0 or place == self._room.names:
                self._end = name
                self._names = {known: of for known, of in self._names.items() if known < name}
                return


class Kept:
    """Tables of rows, in which unlisted fields and wide columns are kept as far as they fit, the first by name.

    Args:
        schema: which fields are listed.
        tables: the first ones.

    Notes:
        All rows of all tables will have all columns, so a field costs the widest of its rows, times all rows. What is
        kept does not depend on the order in which tables come.
    """

    def __init__(self, schema: Schema, tables: Iterable[Table] = ()) -> None:
        self._schema = schema
        self._tables: list[Table] = []
        self._rows = 0
        self._unlisted, self._wide = _Fitting(UNLISTED), _Fitting(WIDE)
        self._grown = 0  # bytes of what may not fit any more
        for table in tables:
            self.add(table)

    def add(self, table: Table) -> None:
        """Add rows."""
        for fitting, column, measured in self._limited(table):
            numbers, width = prod(measured.values.shape[1:]), measured.values.dtype.itemsize
            width = (width + 1 + NUMBER) * numbers if fitting is self._wide else width * numbers + 1
            self._grown += len(table) * width
            fitting.add(_field_of(column), column, width)
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
        return {name if self.holds(name) or name.endswith(NOT_READ) else name + NOT_READ for name in names}

    def _limited(self, table: Table) -> Iterator[tuple[_Fitting, str, Measured]]:
        names = set(unlisted_fields(table, self._schema))
        for column, measured in table.columns.items():
            if _field_of(column) in names:
                yield self._unlisted, column, measured
            elif measured.values.ndim == 2 and measured.values.shape[1] > MOST_COMPONENTS:
                yield self._wide, column, measured

    def _without(self, table: Table) -> Table:
        gone = {column for fitting, column, _ in self._limited(table) if not fitting.holds(_field_of(column))}
        if not gone:
            return table
        return replace(table, columns={name: c for name, c in table.columns.items() if name not in gone})


def _field_of(column: str) -> str:
    return column.rpartition(":")[0]
