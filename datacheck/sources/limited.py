"""What a child may take of memory and time, by the size of the files that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from datacheck.pulse import Pulse
from datacheck.runtime.sparse import SMALL_BYTES
from datacheck.sample import Block
from datacheck.sources.base import Item, Source, Unread
from datacheck.sources.entries import Entry
from datacheck.sources.listing import stat_entry
from datacheck.sources.roots import Roots


def size_in(folders: Roots, entry: Entry) -> int:
    """Return the bytes for which a file justifies memory: those that are no holes, where it is large."""
    return entry.size if entry.size <= SMALL_BYTES else max(SMALL_BYTES, folders.written(entry.path))


def size_of(root: Path, roots: Mapping[str, Path], path: str) -> int:
    """Return `size_in` of what is at a path now, 0 where no readable file is."""
    entry = stat_entry(root, path, roots)
    return 0 if entry is None else size_in(Roots(root, roots), entry)


def limit_item(beat: Callable[[int], None], source: Source, item: Item) -> None:
    """Limit what the item that `beat` is at may take, by the size of its files, as a scan does (`Pulse.files`)."""
    if isinstance(beat, Pulse):
        beat.files(_bytes(source, item))


def read_limited(beat: Callable[[int], None], source: Source, items: Sequence[Item]) -> Iterator[Block | Unread]:
    """Yield what `Source.read_all` reads, under limits by the size of the files that are read and not yielded yet."""
    place = waiting = 0

    def at(number: int) -> None:
        nonlocal place, waiting
        place = number
        beat(number)
        waiting += _bytes(source, items[number])
        if isinstance(beat, Pulse) and not source.schema.checks:  # a scan with checks of the user sets no limit either
            beat.files(waiting)

    for found in source.read_all(items, at):
        waiting = 0
        beat(place)
        yield found


def _bytes(source: Source, item: Item) -> int:
    return sum(size_of(source.root, source.roots, path) for path in source.files(item))


def limit_files(beat: Callable[[int], None], paths: Iterable[str], root: str, roots: Mapping[str, str]) -> None:
    """Limit what the item that `beat` is at may take, by the size of these files."""
    if isinstance(beat, Pulse):
        places = {name: Path(path) for name, path in roots.items()}
        beat.files(sum(size_of(Path(root), places, path) for path in paths))
