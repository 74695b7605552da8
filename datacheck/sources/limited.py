"""What a child may take of memory and time, by the size of the files that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from datacheck.pulse import Pulse
from datacheck.runtime.sparse import SMALL_BYTES
from datacheck.sample import Block
from datacheck.sources.base import Item, Source, Unread
from datacheck.sources.listing import stat_entry


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
    found = {path: stat_entry(source.root, path, source.roots) for path in source.files(item)}
    sizes = {path: entry.size for path, entry in found.items() if entry is not None}
    return sum(size if size <= SMALL_BYTES else max(SMALL_BYTES, source.written(path)) for path, size in sizes.items())


def limit_files(beat: Callable[[int], None], paths: Iterable[str], root: str, roots: Mapping[str, str]) -> None:
    """Limit what the item that `beat` is at may take, by the size of these files."""
    places = {name: Path(path) for name, path in roots.items()}
    entries = (stat_entry(Path(root), path, places) for path in paths)
    if isinstance(beat, Pulse):
        beat.files(sum(entry.size for entry in entries if entry is not None))
