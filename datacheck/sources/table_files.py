"""Compare the files that the rows of a table name with the files that are there.

A child finds the columns whose cells name files (`file_columns`). The coordinator compares them with
the listing (`table_notes`): names are compared as texts, and no named file is opened.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

# Signs between cells, the most usual ones first; LJSpeech has "|" in a .csv.
_SEPARATORS = (",", "\t", ";", "|")
# Rows behind the header that show which sign it is, and rows that show which columns name files.
_ROWS_SHOWN = 20
_FIRST_ROWS = 200
# Further columns count as the last one: a row that lists many files.
_MOST_COLUMNS = 64
_MOST_CELL = 400  # characters
_DRIVE = re.compile(r"\A[A-Za-z]:(?=[\\/])")
_NAME = re.compile(r"[\w./\\ ()+-]{1,300}")
# Names without an ending, "LJ001-0001", are no such numbers: those are counts, labels and times.
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)?(?:\.\d*)?(?:[eE][+-]?\d+)?")
_IDS = 0.9  # share of the cells that are such names
# Fewest files of a table, and share of its names, that show that two rows for one file are a fault.
_FEWEST = 20
_REPEATS = 0.01

_LEAST_THERE = 2
_SHARE_THERE = 2 / 3
# The same for names without an ending, which other texts may equal by chance.
_LEAST_IDS = 10
_SHARE_IDS = 0.9
# Share of the names found by their last part only that must be found by a longer part.
_AS_GOOD = 0.9
_MOST_DEPTH = 16  # of folders
# Fewest files of a folder that rows name, and the share of its files that no row may name: more are
# rather left out on purpose.
_LEAST_NAMED = 10
_SHARE_UNNAMED = 0.1


# ------------------------------------------------------------------------------------- in the child


def file_columns(data: bytes, endings: tuple[str, ...], most: int) -> list[dict[str, Any]]:
    """Return the columns of a table that may name files.

    Args:
        data: the table.
        endings: of the files, in lower case.
        most: limit for the names of a column.

    Returns:
        Of each column its names, each once and in order, [] above the limit; again: those with two
        rows that differ in one other cell, if few have two rows. [] for a text that is no table.
    """
    try:
        body = data.decode("utf-8-sig")
        between = _separator(body)
        first = _cells(islice(_rows(body, between), _FIRST_ROWS), range(_MOST_COLUMNS), most)
        chosen = [column for column, counts in first.items() if _names(counts, endings)]
        columns = list[dict[str, Any]]()
        for column, counts in _cells(_rows(body, between), chosen, most).items():
            named = _names(counts, endings)
            if named and len(counts) > most:
                columns.append({"names": [], "again": []})
            elif named:
                again = _again(_rows(body, between), column, counts, named)
                columns.append({"names": list(dict.fromkeys(named.values())), "again": again})
    except (UnicodeDecodeError, csv.Error):
        return []
    return columns


def _cells(
    rows: Iterable[list[str]], columns: Container[int], most: int
) -> dict[int, Counter[str]]:
    """Return how often each column has each cell; above the limit, only some of the cells."""
    cells: dict[int, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for number, cell in enumerate(row):
            column = min(number, _MOST_COLUMNS - 1)
            if column in columns and len(cell) <= _MOST_CELL and len(cells[column]) <= most:
                cells[column][cell] += 1
    return dict(sorted(cells.items()))


def _separator(body: str) -> str:
    """Return the sign that is equally often in each of the first rows behind the header."""
    lines = [line for line in islice(io.StringIO(body), _ROWS_SHOWN + 1) if line.strip()]
    for between in _SEPARATORS:
        counts = {line.count(between) for line in lines[1:] or lines}
        if len(counts) == 1 and counts != {0}:
            return between
    return max(_SEPARATORS, key=body[: 1 << 16].count)


def _rows(body: str, between: str) -> Iterator[list[str]]:
    # Texts of LJSpeech have quotes that do not close.
    has_quotes = between not in "|\t"
    limit = csv.field_size_limit(max(len(body), 1))
    try:
        for row in csv.reader(
            io.StringIO(body, newline=""),
            delimiter=between,
            quoting=csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE,
        ):
            yield [cell.strip(" \"'") for cell in row]
    finally:
        csv.field_size_limit(limit)


def _names(cells: Iterable[str], endings: tuple[str, ...]) -> dict[str, str]:
    """Return the names of files by cell, {} for a column of something else."""
    paths = {cell: _path(cell) for cell in cells if cell}
    named = {cell: path for cell, path in paths.items() if path.lower().endswith(endings)}
    if named:
        return named
    ids = {cell: path for cell, path in paths.items() if path and not _NUMBER.fullmatch(cell)}
    return ids if len(ids) >= max(1, _IDS * len(paths)) else {}


def _path(cell: str) -> str:
    """Return a cell as a path with "/" between its parts, "" if it is none."""
    text = _DRIVE.sub("", cell, count=1)
    if not _NAME.fullmatch(text):
        return ""
    parts = [part for part in text.replace("\\", "/").split("/") if part not in {"", "."}]
    # An ending alone is no name.
    return "/".join(parts) if parts and not parts[-1].startswith(".") else ""


def _again(
    rows: Iterable[list[str]], column: int, counts: Counter[str], named: Mapping[str, str]
) -> list[str]:
    repeated = {cell for cell in named if counts[cell] > 1}
    if len(named) < _FEWEST or len(repeated) > max(1, _REPEATS * len(named)):
        return []
    groups: dict[str, list[list[str]]] = defaultdict(list)
    for row in rows:
        if column < len(row) and row[column] in repeated:
            groups[row[column]].append(row)
    differing = [
        named[cell]
        for cell, (first, *others) in groups.items()
        if any(len(row) == len(first) and _unlike(first, row) == 1 for row in others)
    ]
    return sorted(differing)


def _unlike(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


# ------------------------------------------------------------------------------- in the coordinator


@dataclass(frozen=True)
class TableFault:
    """Names of one table, and what is wrong with them.

    Args:
        kind: "gone", "unnamed", "rows" or "partly".
        names: of the files, or the table.
        reason: what is wrong.
    """

    kind: str
    names: Sequence[str]
    reason: str


class _Column:
    """A column whose cells name files.

    Args:
        table: the path of its table.
        names: in the order of the rows.
        again: names with two rows.
        has_endings: whether the names have the endings of their files.
    """

    def __init__(
        self, table: str, names: Sequence[str], again: Sequence[str], *, has_endings: bool
    ) -> None:
        self.table = table
        self.again = again
        self.has_endings = has_endings
        self._ending = ""
        # Whole names: a list of the parts of each takes ten times their memory.
        self._names = names
        self._depth = 0
        self._there = set[int]()
        self._enough = 0.0

    def __len__(self) -> int:
        return len(self._names)

    @property
    def count(self) -> int:
        """The number of names that are there."""
        return len(self._there)

    def tails(self, depth: int) -> list[str]:
        """Return the last parts of the names that have so many, without the ending of the files."""
        tails = (_tail(name, depth) for name in self._names)
        return [tail for tail in tails if tail is not None]

    def deepen(self, ends: Mapping[str, set[str]], depth: int) -> bool:
        """Compare one part more of the names, if nearly as many of them are then there.

        Args:
            ends: the endings of the files by this many last parts of their paths.
            depth: number of parts.
        """
        if depth == 1 and not self.has_endings:
            endings = Counter(e for tail in self.tails(1) for e in sorted(ends.get(tail, ())) if e)
            self._ending = max(sorted(endings), key=endings.__getitem__, default="")
        there = {
            place
            for place, name in enumerate(self._names)
            if (
                place in self._there
                if (tail := _tail(name, depth)) is None
                else self._ending in ends.get(tail, ())
            )
        }
        if len(there) < self._enough:
            return False
        if depth == 1:
            self._enough = _AS_GOOD * len(there)
        self._there, self._depth = there, depth
        return bool(there)

    def files(self) -> Iterator[tuple[str, bool]]:
        """Yield the names with their ending, from the folder on that is there, and whether they are."""
        for place, name in enumerate(self._names):
            yield self.shown(name), place in self._there

    def shown(self, name: str) -> str:
        """Return a name as `files` has it."""
        return "/".join(name.rsplit("/", self._depth)[-self._depth :]) + self._ending


def _tail(name: str, depth: int) -> str | None:
    """Return the last parts of a name, None if it has fewer."""
    parts = name.rsplit("/", depth)
    return "/".join(parts[-depth:]) if len(parts) >= depth else None


def table_faults(
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    others: Iterable[str],
    paths: Sequence[str],
    endings: tuple[str, ...],
) -> Iterator[TableFault]:
    """Yield what is wrong with the files that tables name.

    Args:
        tables: their columns, as `file_columns` returns them, by path.
        others: names of files in other documents.
        paths: of all files.
        endings: of pictures and other files that rows name, in lower case.
    """
    columns = [
        _Column(
            table,
            column["names"],
            column["again"],
            has_endings=column["names"][0].lower().endswith(endings),
        )
        for table, table_columns in sorted(tables.items())
        for column in table_columns
        if column["names"]
    ]
    if not columns:
        return
    _locate(columns, paths, endings)
    found: dict[str, list[_Column]] = defaultdict(list)
    partly: dict[str, tuple[int, int]] = {}
    for column in columns:
        least, share = (
            (_LEAST_THERE, _SHARE_THERE) if column.has_endings else (_LEAST_IDS, _SHARE_IDS)
        )
        if column.count >= max(least, share * len(column)):
            found[column.table].append(column)
        elif column.has_endings and column.count >= _LEAST_THERE:
            partly[column.table] = column.count, len(column)
    for table, table_columns in found.items():
        yield from _gone(table, table_columns)
    for table, (count, size) in partly.items():
        reason = f"a column names {size:,} files, {count:,} of which are there"
        yield TableFault("partly", [table], reason)
    yield from _unnamed(found, others, paths)


def _locate(columns: Sequence[_Column], paths: Iterable[str], endings: tuple[str, ...]) -> None:
    """Find the files that columns name by the longest end of their paths.

    The ends are compared one length after the other: all at once would take memory for each folder
    of each name.
    """
    for depth in range(1, _MOST_DEPTH + 1):
        wanted = {tail for column in columns for tail in column.tails(depth)}
        ends = _ends_of(wanted, paths, endings, depth) if wanted else {}
        columns = [column for column in columns if column.deepen(ends, depth)]
        if not ends:
            return


def _ends_of(
    wanted: Container[str], paths: Iterable[str], endings: tuple[str, ...], depth: int
) -> Mapping[str, set[str]]:
    """Return the endings ("" for whole names) of the files by as many last parts of their paths."""
    ends: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        tail = "/".join(path.rsplit("/", depth)[-depth:])
        if tail in wanted:
            ends[tail].add("")
        stem, _, ending = tail.rpartition(".")
        if stem in wanted and path.lower().endswith(endings):
            ends[stem].add(f".{ending}")
    return ends


def _tails(path: str) -> Iterator[str]:
    """Yield the last part of a path, the last two, and so on."""
    start = len(path)
    for _ in range(_MOST_DEPTH):
        start = path.rfind("/", 0, start)
        yield path[start + 1 :]
        if start < 0:
            return


def _gone(table: str, columns: Sequence[_Column]) -> Iterator[TableFault]:
    """Yield the names of a table that are not there, and those with two rows."""
    there, gone = set[str](), set[str]()
    for column in columns:
        for place, (file, is_there) in enumerate(column.files()):
            if is_there:
                there.add(file)
            elif column.has_endings or place:  # the first one may be the name of the column
                gone.add(file)
    if gone:
        reason = f"not there, but named by {table}, as are {len(there):,} that are there"
        yield TableFault("gone", sorted(gone), reason)
    again = {column.shown(name) for column in columns for name in column.again}
    if again:
        yield TableFault("rows", sorted(again), f"has two rows that differ in one cell: {table}")


def _unnamed(
    found: Mapping[str, Sequence[_Column]], others: Iterable[str], paths: Sequence[str]
) -> Iterator[TableFault]:
    """Yield the files that no row names in folders nearly all of whose files rows name."""
    tables = {
        file: table
        for table, columns in found.items()
        for column in columns
        for file, _ in column.files()
    }
    other_names = set(others)
    folders: dict[tuple[str, str], tuple[Counter[str], list[str]]] = defaultdict(
        lambda: (Counter(), [])
    )
    for path in paths:
        folder, _, name = path.rpartition("/")
        named_by, unnamed = folders[folder, name.rpartition(".")[2].lower()]
        tails = list(_tails(path))
        table = next((tables[tail] for tail in tails if tail in tables), None)
        if table is not None:
            named_by[table] += 1
        elif other_names.isdisjoint(chain(tails, (t.rpartition(".")[0] for t in tails))):
            unnamed.append(path)
    for (folder, _), (named_by, unnamed) in sorted(folders.items()):
        count = named_by.total()
        if unnamed and count >= _LEAST_NAMED and len(unnamed) <= _SHARE_UNNAMED * count:
            where = f" of {folder}/" if folder else ""
            reason = f"in no row: {', '.join(sorted(named_by))} names {count:,} other files{where}"
            yield TableFault("unnamed", unnamed, reason)
