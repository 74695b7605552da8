r"""Rows of a table by the file that each names: ``labels.csv`` beside a folder of pictures.

``/filename/*`` gives the group ``filename/0001.jpg`` with the cells of the row whose column
``filename`` has that name. Paths of another computer are names, too: ``C:\sim\IMG\1.jpg`` is the
group ``center/sim/IMG/1.jpg``.

Where many rows name a file more than once, a group has the cells of all its rows: arrays [N], lists
of words. Corners of boxes in four columns become "boxes" [N, 4] (x_min, y_min, x_max, y_max); a table
with boxes has the columns width and height as "size" [width, height]. A row without a number in its
four corners says that a picture has no box.

Where the column holds numbers, ``/track/*`` gives a group for each of them: the rows of each track.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from datacheck.formats.limits import matching
from datacheck.model.sample import Array

BOXES, SIZE = "boxes", "size"
_CORNERS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x1", "y1", "x2", "y2"),
    ("left", "top", "right", "bottom"),
)
_SIDES = ("width", "height")
_DRIVE = re.compile(r"\A[A-Za-z]:(?=[\\/])")
_MOST_NAME = 500  # characters of a path
# Rows, and share of them, that may name a file once more by mistake.
_FEW_REPEATS = 1
_REPEATS = 0.02


def named_path(cell: str) -> str | None:
    """Return a cell as a path below some folder, None if it is none."""
    text = _DRIVE.sub("", cell.strip(" \"'"), count=1)
    if len(text) > _MOST_NAME or not text.isprintable():
        return None
    parts = [part for part in text.replace("\\", "/").split("/") if part not in {"", "."}]
    while parts[:1] == [".."]:
        del parts[0]
    return None if not parts or ".." in parts else "/".join(parts)


class RowsByFile(Mapping[str, Any]):
    """The values of a table by the file that the rows name.

    Args:
        columns: of the table, by name.
        column: that names the files.

    Attributes:
        unmatched: reasons for rows in no group, by name.
    """

    def __init__(self, columns: Mapping[str, Any], column: str) -> None:
        self._rows, self.unmatched = _rows_by_path(columns[column], column)
        repeats = sum(map(len, self._rows.values())) - len(self._rows)
        self._is_single = repeats <= max(_FEW_REPEATS, _REPEATS * len(columns[column]))
        if self._is_single:
            for group, (_, *others) in self._rows.items():
                reason = f"{group.removeprefix(f'{column}/')} was named before"
                self.unmatched |= {f"{column}[{row}]": reason for row in others}
        self._boxes = _together(columns, _corners(columns))
        self._sides = None if self._boxes is None else _together(columns, _find(columns, _SIDES))
        joined = {column}
        if self._boxes is not None:
            joined |= {*_corners(columns), *_find(columns, _SIDES), BOXES, SIZE}
        self._columns = {name: cells for name, cells in columns.items() if name not in joined}
        self._folders = _folders_of(self._rows)

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match a pattern; `unmatched` then has the others."""
        folders = self._folders
        found = matching(
            pattern,
            lambda path: folders.get(path, ()),
            lambda path: path in folders or path in self._rows,
        )
        groups = [group for group in found if group in self._rows]
        for group in self._rows.keys() - set(groups):
            self.unmatched[group] = f"its name does not fit {pattern[:_MOST_NAME]}"
        return groups

    def __getitem__(self, name: str) -> Any:
        group, column = self._split(name)
        rows = self._rows[group]
        if column == BOXES and self._boxes is not None:
            boxes = self._boxes[rows[:1] if self._is_single else rows]
            return boxes[~np.isnan(boxes).all(axis=1)]
        if column == SIZE and self._sides is not None:
            return self._sides[rows[0]]
        cells = self._columns[column]
        if self._is_single:
            return cells[rows[0]]
        if self._boxes is not None:
            rows = [row for row in rows if not np.isnan(self._boxes[row]).all()]
        return [cells[row] for row in rows] if isinstance(cells, list) else cells[rows]

    def _split(self, name: str) -> tuple[str, str]:
        group, _, column = name.rpartition("/")
        while group and group not in self._rows:
            group, _, outer = group.rpartition("/")
            column = f"{outer}/{column}"
        if not group:
            raise KeyError(name)
        return group, column

    def column_of(self, name: str) -> str:
        """Return the column of a value.

        Raises:
            KeyError: no value has this name.
        """
        return self._split(name)[1]

    @property
    def value_names(self) -> list[str]:
        """The names of the values of each group."""
        boxes = [] if self._boxes is None else [BOXES]
        return [*self._columns, *boxes, *([] if self._sides is None else [SIZE])]

    def __iter__(self) -> Iterator[str]:
        names = self.value_names
        for group in self._rows:
            for name in names:
                yield f"{group}/{name}"

    def __len__(self) -> int:
        return len(self._rows) * len(self.value_names)


class RowsByNumber(Mapping[str, Any]):
    """The values of a table by the whole number in one of its columns: tracks by their id.

    ``/id/*`` gives the group ``id/17`` with the rows whose column ``id`` is 17, in their order.

    Args:
        values: each with a first axis of rows, by name.
        column: the name of the column.
        numbers: its cells.

    Attributes:
        unmatched: the reason for rows in no group, by the first of them.
    """

    def __init__(self, values: Mapping[str, Any], column: str, numbers: Array) -> None:
        self._values = values
        self._column = column
        # Beyond 2^53 floats are no longer told apart.
        is_whole = (np.abs(numbers) <= 2.0**53) & (numbers == np.floor(numbers))
        rows = np.flatnonzero(is_whole)
        rows = rows[np.argsort(numbers[rows], kind="stable")]
        found, starts = np.unique(numbers[rows], return_index=True)
        parts = np.split(rows, starts[1:]) if len(found) else []
        self._rows = {
            f"{column}/{int(number)}": part for number, part in zip(found, parts, strict=True)
        }
        odd = np.flatnonzero(~is_whole)
        self.unmatched: dict[str, str] = {}
        if len(odd):
            others = f", and {len(odd) - 1:,} others hold none" if len(odd) > 1 else ""
            reason = f"row {odd[0]:,} holds {numbers[odd[0]]:g} in place of a whole number{others}"
            self.unmatched[f"{column}[{odd[0]}]"] = reason

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match a pattern."""
        inside = {"": [self._column], self._column: list(self._rows)}
        found = matching(pattern, lambda path: inside.get(path, ()), lambda _: True)
        return [group for group in found if group in self._rows]

    def __getitem__(self, name: str) -> Any:
        *group, value = name.split("/", 2)
        rows = self._rows["/".join(group)]
        cells = self._values[value]
        return [cells[row] for row in rows] if isinstance(cells, list) else cells[rows]

    def column_of(self, name: str) -> str:
        """Return the column of a value."""
        return name.split("/", 2)[-1]

    def __iter__(self) -> Iterator[str]:
        for group in self._rows:
            for name in self._values:
                yield f"{group}/{name}"

    def __len__(self) -> int:
        return len(self._rows) * len(self._values)


def _rows_by_path(
    cells: Sequence[str], column: str
) -> tuple[Mapping[str, Sequence[int]], dict[str, str]]:
    """Return the numbers of the rows by group, and the reasons for rows in none by name."""
    rows: dict[str, list[int]] = {}
    odd: dict[str, str] = {}
    for row, cell in enumerate(cells):
        path = named_path(cell)
        if path is None:
            odd[f"{column}[{row}]"] = f"{column} names no file"
        else:
            rows.setdefault(f"{column}/{path}", []).append(row)
    return rows, odd


def _folders_of(groups: Iterable[str]) -> Mapping[str, set[str]]:
    """Return the paths inside each path that leads to a group."""
    folders: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        inner = group
        while inner:
            outer = inner.rpartition("/")[0]
            if inner in folders[outer]:
                break
            folders[outer].add(inner)
            inner = outer
    return folders


def _corners(columns: Mapping[str, Any]) -> Sequence[str]:
    """Return the four columns with corners of boxes, () without any."""
    return next((found for names in _CORNERS if (found := _find(columns, names))), ())


def _find(columns: Mapping[str, Any], names: Sequence[str]) -> Sequence[str]:
    """Return the columns of numbers with these names, () if one is missing."""
    numbers = {_plain(name): name for name in columns if isinstance(columns[name], np.ndarray)}
    return [numbers[name] for name in names] if numbers.keys() >= set(names) else ()


def _together(columns: Mapping[str, Any], names: Sequence[str]) -> Array | None:
    """Return columns of numbers side by side, None without names."""
    return np.stack([columns[name].astype(np.float64) for name in names], axis=1) if names else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").strip()
