"""Lines of a JSON-lines file are the samples, read as a stream: files of many gigabytes are fine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from datacheck.errors import FormatError
from datacheck.formats import jsonl
from datacheck.sample import Block, Column, signature
from datacheck.sources.base import BLOCK_BYTES, BLOCK_SAMPLES, Item, Part, Source, Unread, unchanged
from datacheck.sources.facts import About
from datacheck.sources.fields import Shelf, Values
from datacheck.sources.listing import locate
from datacheck.sources.values import weigh


def numbered(path: str, number: int) -> str:
    """Return the key of a line, row or episode: 12 digits, so that bytewise order is reading order."""
    return f"{path}:{number:012d}"


def runs(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Cut numbers into ascending runs: each is one pass over a file."""
    run: list[int] = []
    for number in numbers:
        if run and number <= run[-1]:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def numbers_of(item: Item) -> tuple[list[int], list[Unread]]:
    """Return the numbers in the item's keys, and the keys that are none of this file."""
    found: list[int] = []
    strange: list[Unread] = []
    for key in item.keys or ():
        digits = key.removeprefix(item.path + ":")
        if digits.isdecimal() and numbered(item.path, int(digits)) == key:
            found.append(int(digits))
        else:
            strange.append(Unread(key, "DC101", f"not a sample of {item.path}"))
    return found, strange


class LineSource(Source):
    """Samples that are lines; keys are ``sft.jsonl:000000000012``, counted from 0."""

    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the file's lines as blocks; a bad line is one unread sample.

        Raises:
            FormatError: the file cannot be read, or holds no line.
        """
        path = locate(self.root, self.roots, item.path)
        with unchanged(path, item.nbytes):
            gathered = _Gathered(self, item, shelf)
            if item.keys is None:
                for number, record in jsonl.lines(path):
                    yield from gathered.add(number, record)
                if not gathered.seen:
                    msg = "holds no line"
                    raise FormatError(msg)
            else:
                wanted, strange = numbers_of(item)
                yield from strange
                for run in runs(wanted):
                    yield from _some(path, run, gathered)
            yield from gathered.blocks()


def _some(path: Path, run: list[int], gathered: _Gathered) -> Iterator[Part]:
    missing = set(run)
    for number, record in jsonl.lines(path, run[0], run[-1] + 1):
        if number in missing:
            missing.discard(number)
            yield from gathered.add(number, record)
    for number in sorted(missing):
        msg = f"no line {number + 1} (any more)"
        yield from gathered.add(number, FormatError(msg))
    yield from gathered.blocks()


class _Gathered:
    """Lines on their way into blocks, by signature.

    Args:
        source, item: what is read.
        shelf: where the companions of the file stand; they are the same for all its lines.

    Raises:
        FormatError: a companion is damaged.
    """

    def __init__(self, source: Source, item: Item, shelf: Shelf) -> None:
        self.seen = 0
        self._source = source
        self._item = item
        self._fields, facts = source.way(item.split)
        self._companions: Values = {}
        self._absent = source.with_companions(self._companions, item, item.names, shelf)
        self._group = facts.group(About(item.path, item.path, "", item.names, item.nbytes))
        self._waiting: dict[tuple[object, ...], list[tuple[int, Values]]] = {}
        self._count, self._nbytes = 0, 0

    def add(self, number: int, record: object) -> Iterator[Part]:
        """Take one line; yield what it makes full, or that it cannot be read."""
        self.seen += 1
        try:
            if isinstance(record, FormatError):
                raise record
            values = self._fields.of_record(record) | self._companions
        except FormatError as error:
            yield Unread(numbered(self._item.path, number), error.code, str(error), self._group)
            return
        weight = sum(map(weigh, values.values()))
        if self._count >= BLOCK_SAMPLES or (self._count and self._nbytes + weight > BLOCK_BYTES):
            yield from self.blocks()
        kind = tuple((name, signature(values[name])) for name in sorted(values))
        self._waiting.setdefault(kind, []).append((number, values))
        self._count += 1
        self._nbytes += weight

    def blocks(self) -> Iterator[Block]:
        """Yield what waits."""
        for lines in self._waiting.values():
            fields = {name: Column.of([values[name] for _, values in lines]) for name in sorted(lines[0][1])}
            keys = [numbered(self._item.path, number) for number, _ in lines]
            spans = [(number, number + 1) for number, _ in lines]
            yield self._source.block(self._item, keys, spans, fields, self._absent)
        self._waiting = {}
        self._count, self._nbytes = 0, 0
