"""Compare the files that the rows of tables name with the files that are there.

`file_columns` finds the names. They are compared with the listing as texts; no named file is opened.

Rows write the folder of a file in many ways: from the folder of the table, from another computer, or
not at all. Names are looked for below the folder of the table first, then by the longest end of
their path that nearly all of them share with files. If these files lie below one folder, names that
it lacks are gone, and its other files are in no row. Otherwise only names that are nowhere are gone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# Fewest names that must be there, and share of them.
_FEWEST_THERE = 2
_SHARE_THERE = 2 / 3
# The same for names without an ending, which other texts may equal by chance.
_FEWEST_IDS = 10
_SHARE_IDS = 0.9
_NEARLY_ALL = 0.9
_MOST_DEPTH = 16  # folders in a name that are compared
_MOST_PLACES = 8  # files that one name may mean
# Fewest files of a folder that rows name, and the share of its files that no row may name: more are
# rather left out on purpose.
_FEWEST_NAMED = 10
_SHARE_UNNAMED = 0.1
# Rows for each file from which on rows are about objects: a picture without objects has none.
_ROWS_OF_OBJECTS = 1.1
_COMPANION_SIGNS = "_-."  # 0001_mask.png goes with 0001.png


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


@dataclass(eq=False)
class _Column:
    """A column whose cells name files.

    Args:
        table: the path of its table.
        names: in the order of the rows.
        conflicting: names with two rows that differ.
        is_complete: whether there is about a row for each file.
        has_endings: whether the names have the endings of their files.
        depth: how many last parts of the names are compared.
        folder: below which the files are, None if there is no such folder.
        files: paths by name.
    """

    table: str
    names: Sequence[str]
    conflicting: Sequence[str]
    is_complete: bool
    has_endings: bool
    depth: int = _MOST_DEPTH
    folder: str | None = None
    files: dict[str, list[str]] = field(default_factory=dict)

    @property
    def own_folder(self) -> str:
        """The folder of the table, with "/" at its end unless it is the root."""
        folder, slash, _ = self.table.rpartition("/")
        return folder + slash

    def of_kind(self, paths: Iterable[str], end: str) -> list[str]:
        """Return the paths that have this end, with or without the ending of a file, as names have."""
        return [path for path in paths if path.endswith(end) == self.has_endings]

    def is_found(self) -> bool:
        """Tell whether enough of the names are there."""
        fewest = _FEWEST_THERE if self.has_endings else _FEWEST_IDS
        share = _SHARE_THERE if self.has_endings else _SHARE_IDS
        return len(self.files) >= max(fewest, share * len(self.names))

    def choose_folder(self) -> None:
        """Set the one folder below which nearly all files are; of several, that of the table."""
        counts = Counter[str]()
        for name, paths in self.files.items():
            counts.update({self._above(path, name) for path in paths})
        most = max(counts.values(), default=0)
        near = [folder for folder, count in counts.items() if count >= _NEARLY_ALL * most]
        if self.own_folder in near:
            near = [self.own_folder]
        if len(near) == 1 and most >= _NEARLY_ALL * len(self.files):
            self.folder = near[0]
            inside = {
                name: [path for path in paths if self._above(path, name) == self.folder]
                for name, paths in self.files.items()
            }
            self.files = {name: paths for name, paths in inside.items() if paths}

    def _above(self, path: str, name: str) -> str:
        """Return the part of the path of a file that is no part of its name."""
        whole = path if self.has_endings else path.rpartition(".")[0]
        return whole.removesuffix(_end(name, self.depth))

    def path_of(self, name: str) -> str:
        """Return the path of the file of a name, also if it is gone."""
        if name in self.files:
            return self.files[name][0]
        path = (self.folder or "") + _end(name, self.depth)
        return path if self.has_endings else path + self._usual_ending

    @cached_property
    def _usual_ending(self) -> str:
        endings = Counter(
            path[path.rindex(".") :] for paths in self.files.values() for path in paths
        )
        return max(sorted(endings), key=endings.__getitem__, default="")


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
    listed = [(table, column) for table in sorted(tables) for column in tables[table]]
    columns = [
        _Column(
            table,
            column["names"],
            column["conflicting"],
            column["rows"] <= _ROWS_OF_OBJECTS * len(column["names"]),
            column["names"][0].lower().endswith(endings),
        )
        for table, column in listed
        if column["names"]
    ]
    if not columns:
        return
    _locate(columns, paths, endings)
    found: dict[str, list[_Column]] = defaultdict(list)
    for column in columns:
        if column.is_found():
            if column.folder is None:
                column.choose_folder()
            found[column.table].append(column)
        elif column.has_endings and len(column.files) >= _FEWEST_THERE:
            counts = f"{len(column.names):,} files, {len(column.files):,} of which are there"
            yield TableFault("partly", [column.table], f"a column names {counts}")
    for table, table_columns in found.items():
        yield from _gone(table, table_columns)
    if len(columns) == len(listed):  # no table has more names than are compared
        mentioned = {_stem(name) for column in columns for name in column.names}
        mentioned.update(map(_stem, others))
        yield from _unnamed([c for cs in found.values() for c in cs], mentioned, paths)


def _locate(columns: Sequence[_Column], paths: Sequence[str], endings: tuple[str, ...]) -> None:
    """Find the files that columns name.

    Ends are compared one length after the other: all at once would take memory for each folder of
    each name.
    """
    own = {column.own_folder + name for column in columns for name in column.names}
    by_path = _by_end(own, paths, endings)
    for column in columns:
        paths_of = {name: column.own_folder + name for name in column.names}
        files = {name: column.of_kind(by_path.get(p, ()), p) for name, p in paths_of.items()}
        column.files = {name: found for name, found in files.items() if found}
        if len(column.files) >= _NEARLY_ALL * len(column.names):
            column.folder = column.own_folder
    columns = [column for column in columns if column.folder is None]
    for column in columns:
        column.depth, column.files = 0, {}
    enough: dict[_Column, float] = {}
    for depth in range(1, _MOST_DEPTH + 1):
        wanted = {_end(name, depth) for column in columns for name in column.names}
        by_end = _by_end(wanted, paths, endings, depth)
        deeper = []
        for column in columns:
            files = dict(_files_by_name(column, by_end, depth))
            if len(files) >= enough.setdefault(column, max(1, _NEARLY_ALL * len(files))):
                column.depth, column.files = depth, files
                deeper.append(column)
        columns = [c for c in deeper if any(name.count("/") >= depth for name in c.names)]


def _files_by_name(
    column: _Column, by_end: Mapping[str, Sequence[str]], depth: int
) -> Iterator[tuple[str, list[str]]]:
    for name in column.names:
        if depth > 1 and name.count("/") < depth - 1:  # all of its parts are compared already
            files = column.files.get(name, [])
        else:
            end = _end(name, depth)
            files = column.of_kind(by_end.get(end, ()), end)
        if files:
            yield name, files


def _end(name: str, depth: int) -> str:
    """Return the last parts of a path."""
    return "/".join(name.rsplit("/", depth)[-depth:])


def _by_end(
    wanted: Container[str], paths: Iterable[str], endings: tuple[str, ...], depth: int = 0
) -> Mapping[str, list[str]]:
    """Return paths by their last parts, with and without ending; by the whole path if `depth` is 0."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        end = _end(path, depth) if depth else path
        stem = end.rpartition(".")[0] if path.lower().endswith(endings) else ""
        for name in (end, stem):
            if name in wanted and len(found[name]) < _MOST_PLACES:
                found[name].append(path)
    return found


def _gone(table: str, columns: Sequence[_Column]) -> Iterator[TableFault]:
    """Yield the names of a table that are not there, and those with two rows."""
    there, gone, conflicting = set[str](), set[str](), set[str]()
    for column in columns:
        for place, name in enumerate(column.names):
            if name in column.files:
                there.add(column.path_of(name))
            elif column.has_endings or place:  # the first one may be the name of the column
                gone.add(column.path_of(name))
        conflicting.update(map(column.path_of, column.conflicting))
    if gone:
        reason = f"not there, but named by {table}, as are {len(there):,} that are there"
        yield TableFault("gone", sorted(gone), reason)
    if conflicting:
        reason = f"{table} has two rows for this file, which differ in a label"
        yield TableFault("rows", sorted(conflicting), reason)


def _unnamed(
    columns: Sequence[_Column], mentioned: Container[str], paths: Sequence[str]
) -> Iterator[TableFault]:
    """Yield the files that no row names in folders nearly all of whose files rows name.

    Args:
        columns: that were found.
        mentioned: names of files without folder and ending in all tables and documents; such a file
            counts as named, wherever it is.
        paths: of all files.
    """
    named = {path for column in columns for paths in column.files.values() for path in paths}
    tables = {
        path: column.table
        for column in columns
        if column.folder is not None and column.is_complete
        for paths in column.files.values()
        for path in paths
    }
    folders: dict[tuple[str, str], tuple[Counter[str], list[str]]] = defaultdict(
        lambda: (Counter(), [])
    )
    for path in paths:
        folder, _, file = path.rpartition("/")
        named_by, unnamed = folders[folder, file.rpartition(".")[2].lower()]
        if path in tables:
            named_by[tables[path]] += 1
        elif path not in named and not _is_mentioned(_stem(path), mentioned):
            unnamed.append(path)
    for (folder, _), (named_by, unnamed) in sorted(folders.items()):
        count = named_by.total()
        if unnamed and count >= _FEWEST_NAMED and len(unnamed) <= _SHARE_UNNAMED * count:
            where = f" of {folder}/" if folder else ""
            reason = f"in no row: {', '.join(sorted(named_by))} names {count:,} other files{where}"
            yield TableFault("unnamed", unnamed, reason)


def _stem(path: str) -> str:
    """Return the name of a file without its folder and ending."""
    name = path.rpartition("/")[2]
    return name.rpartition(".")[0] or name


def _is_mentioned(stem: str, mentioned: Container[str]) -> bool:
    """Tell whether a file or the one that it accompanies is mentioned."""
    return stem in mentioned or any(
        stem[:place] in mentioned for place, sign in enumerate(stem) if sign in _COMPANION_SIGNS
    )
