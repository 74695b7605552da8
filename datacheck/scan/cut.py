"""Large files that several tasks read, each a part: they are cut here, and what comes of the parts is put together.

Of a packed file each part is unpacked from the start of the file, or read on from where the child's last one ended: the
parts of such a file come as a few series, each for one child.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from datacheck.scan.state import Slot
from datacheck.scan.worker import unread_rows
from datacheck.sources.base import Item, Source, Unread
from datacheck.sources.entries import Entry
from datacheck.sources.listing import stat_entry
from datacheck.table import Table

Payload = dict[str, Any]

_LISTS = ("items", "entries", "crashes", "undeclared", "deaths")
_SERIES = 4  # of one packed file: to unpack what lies before takes a quarter of the time of a part
_CHANGED = "it changed while it was read; scan again when nothing writes to it"


@dataclass(eq=False)
class _File:
    """A file that is read in parts.

    Args:
        seen: the file when cutting began.
        parts: how many there are; 0 until all are cut.
        digest: of the whole file.
        done: how many parts came back.
        payloads: what came back (see `worker.measure_items`).
        of_rows: its first part tells what the others are.
    """

    seen: Entry | None
    parts: int = 0
    digest: str = ""
    done: int = 0
    payloads: list[Payload] = field(default_factory=list)
    of_rows: bool = False


class Cuts:
    """The files of a scan that are read in parts.

    Args:
        source: cuts them.
        root, roots: where they are.
        workers: how many children there are; None: those of a cluster.
    """

    def __init__(self, source: Source, root: Path, roots: Mapping[str, Path], workers: int | None) -> None:
        self._source, self._root, self._roots = source, root, roots
        self._series = min(workers or _SERIES, _SERIES)
        self._files: dict[Slot, _File] = {}
        self._told: deque[Item | list[Item]] = deque()  # the other parts of a file, as its first one has told

    def items(self, items: Iterable[Item]) -> Iterator[Item | list[Item] | None]:
        """Yield the items, the parts of a large file of lines in its place, in order; a part as soon as it is cut.

        Notes:
            Of a large file of rows, and of a packed one, the first part comes in its place. Only whoever reads it knows
            how many there are: the others come as soon as `whole` was told, those of a packed file as lists, each for
            one child; and None where no item is left but for these.
        """
        for item in items:
            cut = self._source.cut(item)
            if cut is None:
                yield self._begun(item) if self._source.cut_when_read(item) else item
            else:
                yield from self._parts(item, cut)
            while self._told:
                yield self._told.popleft()
        while any(file.of_rows and not file.parts for file in self._files.values()):
            yield None  # the first part of a file is under way
            while self._told:
                yield self._told.popleft()

    def _begun(self, item: Item) -> Item:
        self._files[item.path, item.split] = _File(stat_entry(self._root, item.path, self._roots), of_rows=True)
        return replace(item, rows=(0, -1))

    def _parts(self, item: Item, cut: Iterator[tuple[tuple[int, int, int], str]]) -> Iterator[Item]:
        file = _File(stat_entry(self._root, item.path, self._roots))
        self._files[item.path, item.split] = file
        count = 0
        try:
            for part, digest in cut:
                count += 1
                if digest:
                    file.parts, file.digest = count, digest
                yield replace(item, part=part)
        except OSError:  # it vanished: what was read of it is told by `rest`
            if not count:
                del self._files[item.path, item.split]
                yield item  # whoever reads it says why it cannot be read

    def whole(self, item: Item, payloads: Sequence[Payload]) -> Iterator[list[Payload]]:
        """Yield what came of whole files: of an item that is one at once, of a part with the last of its parts."""
        if item.whole:
            yield from ([payload] for payload in payloads)
            return
        file = self._files[item.path, item.split]
        file.payloads += payloads
        file.done += 1
        if not file.parts and file.of_rows:
            total, step = next((payload["cut"] for payload in payloads if "cut" in payload), (0, 0))
            starts = range(step, total, step) if step else ()
            file.parts = 1 + len(starts)
            others = [replace(item, rows=(start, min(start + step, total))) for start in starts]
            self._told += _in_series(others, self._series) if self._source.is_packed(item) else others
        if file.done == file.parts:
            del self._files[item.path, item.split]
            yield _together(item.path, item.split, file)

    def rest(self) -> Iterator[list[Payload]]:
        """Yield what came of files of which not all parts could be cut."""
        for (path, split), file in self._files.items():
            yield _together(path, split, file)
        self._files = {}


def _in_series(parts: list[Item], count: int) -> Iterator[list[Item]]:
    """Cut the parts of a file, in order, into at most so many series of about as many parts."""
    bounds = [len(parts) * place // count for place in range(count + 1)]
    return (parts[start:stop] for start, stop in pairwise(bounds) if start < stop)


def _together(path: str, split: str, file: _File) -> list[Payload]:
    """Return the payloads of a file's parts as those of one file: the first speaks for it, the others bring rows."""
    said: Payload = {name: [] for name in _LISTS}
    for payload in file.payloads:
        for name in ("crashes", "undeclared", "deaths"):
            said[name] += payload.get(name, [])
    if not file.parts or not all(_same(payload, path, file.seen) for payload in file.payloads):
        keys = [key for payload in file.payloads for key in Table.from_wire(payload["table"]).keys if key != path]
        unread = [Unread(key, "DC101", _CHANGED) for key in keys or [path]]
        return [said | {"table": unread_rows(unread, path, split).as_wire()}]
    if all(payload["items"] for payload in file.payloads):
        said["items"] = file.payloads[0]["items"]
    said["entries"] = _entries(path, file)
    tables = _tables(path, file)
    if not tables:
        tables = [unread_rows([Unread(path, "DC101", "holds no line")], path, split).as_wire()]
    return [said | {"table": tables[0]}, *({name: [] for name in _LISTS} | {"table": table} for table in tables[1:])]


def _entries(path: str, file: _File) -> list[Any]:
    """Return the entries of a file and its companions; its digest has who cut it, or who read its first part."""
    entries = {entry[0]: entry for payload in reversed(file.payloads) for entry in payload["entries"]}
    if path in entries and not file.of_rows:
        entries[path] = list(Entry(*entries[path])._replace(digest=file.digest))
    return list(entries.values())


def _tables(path: str, file: _File) -> list[Any]:
    """Return the rows of a file's parts; of those that cannot be read one row says it.

    Notes:
        A broken line leaves the others whole. An array that cannot be read in one place cannot be read.
    """
    tables = [payload["table"] for payload in file.payloads if len(payload["table"]["status"])]
    dead = [table for table in tables if table["texts"]["keys"][0] == [path]]
    if dead and file.of_rows:
        return dead[:1]
    return [table for table in tables if not any(table is other for other in dead[1:])]


def _same(payload: Payload, path: str, seen: Entry | None) -> bool:
    """Tell whether a part was read of the file that was cut."""
    if payload.get("deaths"):
        return True  # our own code failed: nobody looked at the file behind it
    return seen is not None and any(e[0] == path and tuple(e[1:5]) == seen[1:5] for e in payload["entries"])
