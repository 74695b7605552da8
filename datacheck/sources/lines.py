"""Lines of a JSON-lines file are the samples, read as a stream: files of many gigabytes are fine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datacheck.errors import FormatError
from datacheck.formats import jsonl
from datacheck.sample import Origin, Piece
from datacheck.sources.base import Item, Part, Source, Unread, unchanged
from datacheck.sources.facts import About
from datacheck.sources.fields import Shelf
from datacheck.sources.listing import locate


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
        """Yield the file's lines; a bad line is one unread sample.

        Raises:
            FormatError: the file cannot be read, or holds no line.
        """
        path = locate(self.root, self.roots, item.path)
        with unchanged(path, item.nbytes):
            if item.keys is None:
                empty = True
                for number, record in jsonl.lines(path):
                    empty = False
                    yield self._part(item, number, record, shelf)
                if empty:
                    msg = "holds no line"
                    raise FormatError(msg)
                return
            wanted, strange = numbers_of(item)
            yield from strange
            for run in runs(wanted):
                yield from self._some(item, run, shelf)

    def _some(self, item: Item, run: list[int], shelf: Shelf) -> Iterator[Part]:
        path = locate(self.root, self.roots, item.path)
        missing = set(run)
        for number, record in jsonl.lines(path, run[0], run[-1] + 1):
            if number in missing:
                missing.discard(number)
                yield self._part(item, number, record, shelf)
        for number in sorted(missing):
            yield Unread(numbered(item.path, number), "DC101", f"{item.path} has no line {number + 1} (any more)")

    def _part(self, item: Item, number: int, record: object, shelf: Shelf) -> Part:
        key = numbered(item.path, number)
        fields, facts = self.way(item.split)
        about = About(key, item.path, f"{number:012d}", item.names, item.nbytes)
        try:
            if isinstance(record, FormatError):
                raise record
            values = fields.of_record(record)
            absent = self.with_companions(values, item, item.names, shelf)
            told, group = self.facts(item, about, values)
        except FormatError as error:
            return Unread(key, error.code, str(error), facts.group(about))
        origin = Origin(item.path, "", (number, number + 1))
        return Piece(key, fields.drop_unasked(values), origin, group, told | absent)
