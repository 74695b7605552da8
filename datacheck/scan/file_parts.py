"""Cut large files into parts that different children read, and merge the answers about the parts.

Each part of a packed file is unpacked from the start of the file, or read on from where the child's
last part ended. So the parts of a packed file come as a few series, each for one child.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from datacheck.model.table import Slot
from datacheck.scan.measure_tasks import MeasuredItems
from datacheck.scan.rows import unread_rows
from datacheck.sources.base import Item, Source, Unread
from datacheck.sources.listing import stat_entry
from datacheck.sources.roots import Entry

# Series of one packed file: unpacking the bytes before a part takes a quarter of the part's time.
_SERIES = 4
_CHANGED = "it changed while it was read; scan again when nothing writes to it"


@dataclass(eq=False)
class _FileParts:
    """A file that is read in parts.

    Args:
        entry: of the file when cutting began.
        parts: how many there are; 0 until all are cut.
        digest: of the whole file.
        done: how many parts came back.
        answers: about the parts.
        of_rows: reading the first part determines the others.
    """

    entry: Entry | None
    parts: int = 0
    digest: str = ""
    done: int = 0
    answers: list[MeasuredItems] = field(default_factory=list)
    of_rows: bool = False


class FileCutter:
    """The files of a scan that are read in parts.

    Args:
        source: cuts them.
        root, roots: where they are.
        workers: how many children there are; None: those of a cluster.
    """

    def __init__(
        self, source: Source, root: Path, roots: Mapping[str, Path], workers: int | None
    ) -> None:
        self._source, self._root, self._roots = source, root, roots
        self._series = min(workers or _SERIES, _SERIES)
        self._files: dict[Slot, _FileParts] = {}
        # The other parts of files whose first part has been read.
        self._later_parts: deque[Item | list[Item]] = deque()

    def items(self, items: Iterable[Item]) -> Iterator[Item | list[Item] | None]:
        """Yield the items; a large file of lines as its parts, in order, each as soon as it is cut.

        Notes:
            A large file of rows, and a packed file, yields its first part in the item's place. Only
            reading that part determines how many others there are. They come after `complete` has
            received the first result: those of a packed file as lists, each for one child. None
            means that only such parts are left, and that they are not known yet.
        """
        for item in items:
            cut = self._source.cut(item)
            if cut is None:
                yield self._first_part(item) if self._source.cut_when_read(item) else item
            else:
                yield from self._parts(item, cut)
            while self._later_parts:
                yield self._later_parts.popleft()
        while any(file.of_rows and not file.parts for file in self._files.values()):
            yield None  # the first part of a file is being read
            while self._later_parts:
                yield self._later_parts.popleft()

    def _first_part(self, item: Item) -> Item:
        self._files[item.path, item.split] = _FileParts(
            stat_entry(self._root, item.path, self._roots), of_rows=True
        )
        return replace(item, rows=(0, -1))

    def _parts(self, item: Item, cut: Iterator[tuple[tuple[int, int, int], str]]) -> Iterator[Item]:
        file = _FileParts(stat_entry(self._root, item.path, self._roots))
        self._files[item.path, item.split] = file
        count = 0
        try:
            for part, digest in cut:
                count += 1
                if digest:
                    file.parts, file.digest = count, digest
                yield replace(item, part=part)
        except OSError:  # the file vanished: `rest` reports the parts that were read
            if not count:
                del self._files[item.path, item.split]
                yield item  # reading it reports why it cannot be read

    def complete(
        self, item: Item, answers: Sequence[MeasuredItems]
    ) -> Iterator[list[MeasuredItems]]:
        """Yield the answers about whole files: of an item at once, of parts with the last part."""
        if item.whole:
            yield from ([answer] for answer in answers)
            return
        file = self._files[item.path, item.split]
        file.answers += answers
        file.done += 1
        if not file.parts and file.of_rows:
            samples, step = answers[0].cut if answers else (0, 0)
            file.parts = 1 + self._cut_rows(item, samples, step)
        if file.done == file.parts:
            del self._files[item.path, item.split]
            yield _merged(item.path, item.split, file)

    def _cut_rows(self, item: Item, samples: int, step: int) -> int:
        """Cut the rows of a file after its first part; return the number of these parts."""
        starts = range(step, samples, step) if step else ()
        parts = [replace(item, rows=(start, min(start + step, samples))) for start in starts]
        packed = self._source.is_packed(item)
        self._later_parts += _cut_series(parts, self._series) if packed else parts
        return len(parts)

    def rest(self) -> Iterator[list[MeasuredItems]]:
        """Yield the answers about files whose parts could not all be cut."""
        for (path, split), file in self._files.items():
            yield _merged(path, split, file)
        self._files = {}


def _cut_series(parts: list[Item], count: int) -> Iterator[list[Item]]:
    """Cut a file's parts, in order, into at most `count` series of about equal length."""
    bounds = [len(parts) * place // count for place in range(count + 1)]
    return (parts[start:stop] for start, stop in pairwise(bounds) if start < stop)


def _merged(path: str, split: str, file: _FileParts) -> list[MeasuredItems]:
    """Return the answers about a file's parts as those about one file.

    Items, entries and faults come in the first answer; the others add rows.
    """
    merged = MeasuredItems(
        table={},
        crashes=[crash for part in file.answers for crash in part.crashes],
        undeclared=[name for part in file.answers for name in part.undeclared],
        deaths=[death for part in file.answers for death in part.deaths],
    )
    if not file.parts or not all(_is_same_file(part, path, file.entry) for part in file.answers):
        keys = [key for part in file.answers for key in part.rows().keys if key != path]
        unread = [Unread(key, "DC101", _CHANGED) for key in keys or [path]]
        return [replace(merged, table=unread_rows(unread, path, split).as_wire())]
    complete = all(part.items for part in file.answers)
    tables = _tables(path, file)
    if not tables:
        tables = [unread_rows([Unread(path, "DC101", "holds no line")], path, split).as_wire()]
    first = replace(
        merged,
        table=tables[0],
        items=file.answers[0].items if complete else (),
        entries=_entries(path, file),
    )
    return [first, *(MeasuredItems(table) for table in tables[1:])]


def _entries(path: str, file: _FileParts) -> list[Entry]:
    """Return the entries of a file and its companions.

    Cutting the file, or reading its first part, has computed its digest.
    """
    entries = {entry.path: entry for part in reversed(file.answers) for entry in part.entries}
    if path in entries and not file.of_rows:
        entries[path] = entries[path]._replace(digest=file.digest)
    return list(entries.values())


def _tables(path: str, file: _FileParts) -> list[Any]:
    """Return the rows of a file's parts; one row stands for the parts that cannot be read.

    Notes:
        A broken line leaves the other lines whole. An array that cannot be read in one place cannot
        be read at all.
    """
    tables = [part.table for part in file.answers if len(part.table["status"])]
    unread_tables = [table for table in tables if table["texts"]["keys"][0] == [path]]
    if unread_tables and file.of_rows:
        return unread_tables[:1]
    return [table for table in tables if not any(table is unread for unread in unread_tables[1:])]


def _is_same_file(part: MeasuredItems, path: str, cut_entry: Entry | None) -> bool:
    """Tell whether a part was read from the same state of the file that was cut."""
    if part.deaths:
        return True  # datacheck's own code failed before it could look at the file
    return cut_entry is not None and any(
        entry.path == path and entry[1:5] == cut_entry[1:5] for entry in part.entries
    )
