"""Find the columns of a table whose cells name files. A child does this; it opens no named file."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice
from typing import Any

# Signs between cells, the most usual ones first; LJSpeech has "|" in a .csv.
_SEPARATORS = (",", "\t", ";", "|")
# Rows behind the header that show which sign it is, and rows that show which columns name files.
_ROWS_SHOWN = 20
_FIRST_ROWS = 200
# Further columns count as the last one: a row that lists many files.
_MOST_COLUMNS = 64
_MOST_CELL = 400  # characters
_MOST_NAME = 300
_DRIVE = re.compile(r"\A[A-Za-z]:(?=[\\/])")
_PATH = re.compile(r'[^\x00-\x1f<>:"|?*]+')
_ID = re.compile(r"[\w./\\ ()+-]+")  # a name without its ending, which other texts may be, too
_BETWEEN_NAMES = re.compile(r"[\s;,|'\"\[\]]+")  # of several files in one cell
# Numbers alone are counts, labels and times, unless all have one width ("0001").
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)?(?:\.\d*)?(?:[eE][+-]?\d+)?")
_FEWEST_DIGITS = 3
_IDS = 0.9  # share of the cells that must be such names
# Fewest files of a table, and largest share of them, of which two rows are rather a mistake.
_FEWEST_FILES = 20
_REPEATS = 0.01
_MOST_ROWS = 3
# Most different values of a column of labels, and its fewest rows for each.
_MOST_LABELS = 200
_ROWS_PER_LABEL = 10


def file_columns(
    data: bytes, endings: tuple[str, ...], most: int, *, tabs: bool = False
) -> list[dict[str, Any]]:
    """Return the columns of a table that may name files.

    Args:
        data: the table.
        endings: of the files, in lower case.
        most: limit for the names of a column.
        tabs: whether tabs are the most likely sign between cells.

    Returns:
        Of each column its names, each once and in order, [] above the limit; rows: how many name a
        file; conflicting: names with two rows that differ only in a label. [] for a text that is no
        table.
    """
    try:
        body = data.decode("utf-8-sig")
        between = _separator(body, ("\t", *_SEPARATORS) if tabs else _SEPARATORS)
        first = _cells(islice(_rows(body, between), _FIRST_ROWS), range(_MOST_COLUMNS), most)
        columns = _cells(_rows(body, between), _named(first, endings), most)
        named = _named(columns, endings)
        repeated = {column: _repeated(columns[column], names) for column, names in named.items()}
        conflicting = _conflicting(_rows(body, between), repeated) if any(repeated.values()) else {}
    except (UnicodeDecodeError, csv.Error):
        return []
    return [
        {"names": [], "rows": 0, "conflicting": []}
        if len(columns[column]) > most
        else {
            "names": list(dict.fromkeys(chain.from_iterable(names.values()))),
            "rows": sum(columns[column][cell] for cell in names),
            "conflicting": sorted(
                {name for cell in conflicting.get(column, ()) for name in names[cell]}
            ),
        }
        for column, names in named.items()
    ]


def _named(
    columns: Mapping[int, Iterable[str]], endings: tuple[str, ...]
) -> dict[int, dict[str, list[str]]]:
    """Return the names of files by column and cell; names without an ending only if there are no others."""
    filled = {column: [cell for cell in cells if cell] for column, cells in columns.items()}
    named = {column: _with_ending(cells, endings) for column, cells in filled.items()}
    if not any(named.values()):
        named = {column: _without_ending(cells) for column, cells in filled.items()}
    return {column: names for column, names in named.items() if names}


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


def _separator(body: str, separators: Sequence[str]) -> str:
    """Return the sign that is equally often in each of the first rows behind the header."""
    lines = [line for line in islice(io.StringIO(body), _ROWS_SHOWN + 1) if line.strip()]
    for between in separators:
        counts = {line.count(between) for line in lines[1:] or lines}
        if len(counts) == 1 and counts != {0}:
            return between
    return max(separators, key=body[: 1 << 16].count)


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


def _with_ending(cells: Sequence[str], endings: tuple[str, ...]) -> dict[str, list[str]]:
    if not any(cell.lower().endswith(endings) for cell in cells):
        return {}
    named = {cell: _paths(cell, endings) for cell in cells}
    return {cell: paths for cell, paths in named.items() if paths}


def _without_ending(cells: Sequence[str]) -> dict[str, list[str]]:
    ids = {cell: [path] for cell in cells if _ID.fullmatch(cell) and (path := _path(cell))}
    widths = set(map(len, cells[1:]))  # the first one may be the name of the column
    has_one_width = len(widths) == 1 and min(widths) >= _FEWEST_DIGITS
    words = len(ids) if has_one_width else sum(not _NUMBER.fullmatch(cell) for cell in ids)
    return ids if words >= max(1, _IDS * len(cells)) else {}


def _paths(cell: str, endings: tuple[str, ...]) -> list[str]:
    """Return the paths that a cell names, most often one."""
    lowered = cell.lower()
    has_several = sum(map(lowered.count, endings)) > 1
    parts = _BETWEEN_NAMES.split(cell) if has_several else [cell]
    if not all(part.lower().endswith(endings) for part in parts if part):
        parts = [cell]  # "a.png.jpg", "my.jpg files/1.jpg"
    paths = map(_path, parts)
    return [path for path in paths if path.lower().endswith(endings)]


def _path(cell: str) -> str:
    """Return a cell as a path with "/" between its parts, "" if it is none."""
    text = _DRIVE.sub("", cell, count=1)
    if len(text) > _MOST_NAME or not _PATH.fullmatch(text):
        return ""
    parts = [part for part in text.replace("\\", "/").split("/") if part not in {"", "."}]
    # An ending alone is no name.
    return "/".join(parts) if parts and not parts[-1].startswith(".") else ""


def _repeated(counts: Counter[str], names: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the cells of two or three rows; none if they are many.

    A row then is about something else than a file, such as an object.
    """
    repeated = {cell for cell in names if counts[cell] > 1}
    few = max(1, _REPEATS * len(names))
    if len(names) < _FEWEST_FILES or len(repeated) > few:
        return set()
    return {cell for cell in repeated if counts[cell] <= _MOST_ROWS}


def _conflicting(
    rows: Iterable[list[str]], repeated: Mapping[int, Container[str]]
) -> dict[int, set[str]]:
    """Return the repeated cells, by column, two rows of which differ in one cell: a label."""
    groups: dict[tuple[int, str], list[list[str]]] = defaultdict(list)
    labels: dict[int, set[str]] = defaultdict(set)
    count = 0
    for row in islice(rows, 1, None):  # without the header
        count += 1
        for place, cell in enumerate(row):
            if cell in repeated.get(place, ()):
                groups[place, cell].append(row)
            if len(labels[place]) <= _MOST_LABELS:
                labels[place].add(cell)
    most = min(_MOST_LABELS, count / _ROWS_PER_LABEL)
    found: dict[int, set[str]] = defaultdict(set)
    for (column, cell), same in groups.items():
        pairs = [_differing(*pair) for pair in combinations(same, 2)]
        if any(len(places) == 1 and len(labels[places[0]]) <= most for places in pairs):
            found[column].add(cell)
    return found


def _differing(one: Sequence[str], other: Sequence[str]) -> list[int]:
    """Return the places at which two rows differ, [] for rows of two widths."""
    if len(one) != len(other):
        return []
    return [place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
