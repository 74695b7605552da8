"""Source, the base class of all readers: the samples of an item of work, as blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import FormatError, MissingDependencyError, TooManySamplesError
from datacheck.formats.base import Hint
from datacheck.formats.limits import SAMPLES_FREE, check_path, check_samples
from datacheck.model.row_keys import keys_from_runs, storable
from datacheck.model.sample import (
    Block,
    Column,
    Container,
    Depth,
    Origins,
    Peeked,
    Piece,
    stack,
    value_bytes,
)
from datacheck.model.table import Note, Slot
from datacheck.runtime.hashing import shortened
from datacheck.schema.model import Schema, file_templates
from datacheck.sources.facts import Facts, SampleLocation
from datacheck.sources.fields import ContainerNames, FieldMap, Shelf, Values, check_roots
from datacheck.sources.opening import Opener
from datacheck.workers.child import Pulse

MOST_PASSED = 1_000  # names of values that are passed over, and bytes of one as JSON
LONGEST_PASSED = 1_000

Array = np.ndarray[Any, Any]

BLOCK_BYTES = 64 << 20
# Measurements pass over a block many times: it should stay in a core's cache.
SCAN_BYTES = 4 << 20
# Columns of large tables fit into no cache: make blocks large enough to cost little overhead.
COLUMN_BYTES = 6 << 20
TABLE_BYTES = 128 << 20  # limit for any number of columns
BLOCK_SAMPLES = 4096


@dataclass(frozen=True, slots=True)
class Item:
    """One file or store to read: the unit of work, of crash isolation and of reuse.

    Serializes to JSON and back.

    Args:
        path: relative POSIX path of the main file.
        split: the split it belongs to, or "".
        names: the values of the placeholders in the file pattern ({"seq": "ABF10", "frame":
            "0000"}).
        keys: read only these samples, in this order (a build); None reads all (a scan).
        nbytes: size of the file, for planning.
        part: read only these bytes [start, stop); a stop of -1 means the end of the file. The third
            number is the line number at the start. With `keys`, all keys lie in the part.
        rows: read only these samples [start, stop) of rows; a stop of -1: the first part, see
            `Source.cuts`.
        even: fields that a scan of this file found to be arrays, see `Container.assume_uniform`.
    """

    path: str
    split: str = ""
    names: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] | None = None
    nbytes: int = 0
    part: tuple[int, int, int] | None = None
    rows: tuple[int, int] | None = None
    even: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether the item is its whole file and not one of several parts."""
        return self.part is None and self.rows is None

    @property
    def is_first(self) -> bool:
        """Whether this is the first part, which determines the size of the others."""
        return self.rows is not None and self.rows[1] < 0

    @property
    def location(self) -> SampleLocation:
        """The location of the file as a sample of its own."""
        return self.location_of(self.path, "", self.names)

    def location_of(self, key: str, inner: str, names: Mapping[str, str]) -> SampleLocation:
        """Return the location of a sample inside the file; the arguments are the location's."""
        return SampleLocation(key, self.path, inner, names, self.nbytes)

    def as_dict(self) -> dict[str, Any]:
        """Return the item as JSON values."""
        keys = None if self.keys is None else list(self.keys)
        record = {
            "path": self.path,
            "split": self.split,
            "names": self.names,
            "keys": keys,
            "nbytes": self.nbytes,
        }
        parts = {"part": self.part, "rows": self.rows, "even": self.even or None}
        return record | {name: list(part) for name, part in parts.items() if part is not None}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Item:
        """Return the item of `as_dict`; keys may be encoded by `keys_to_runs`."""
        lists = {
            name: tuple(data[name])
            for name in ("part", "rows", "even")
            if data.get(name) is not None
        }
        if data.get("keys") is not None:
            lists["keys"] = tuple(keys_from_runs(data["keys"]))
        return Item(**(data | lists))


# Bytes of a key in JSON, characters of a reason; a path is always shorter.
_KEY = 32_768
_REASON = 1_000


@dataclass(frozen=True)
class Unread:
    """A sample that could not be read: its key, and a code and a sentence for the reason."""

    key: str
    code: str
    reason: str
    group: str = ""
    skipped: bool = False  # True: not read (a missing library); False: unreadable
    alone: bool = False  # the key is a file's; samples read from it before do not count

    def __post_init__(self) -> None:
        for name in ("key", "group"):  # each may quote a name from inside a file
            object.__setattr__(self, name, storable([shortened(getattr(self, name), _KEY)])[0])
        object.__setattr__(self, "reason", storable([self.reason[:_REASON]])[0])


@dataclass(frozen=True)
class Work:
    """The plan for a listing: items in path order, notes, and files that no pattern claims."""

    items: Sequence[Item]
    notes: Sequence[Note] = ()
    unclaimed: Sequence[str] = ()


Part = Piece | Block | Unread


class Source(ABC):
    """Base class of the readers that turn files into samples; picklable.

    Args:
        schema: the schema of the dataset.
        root, roots: the data folder, and the extra ones by name.
        fields: read only these fields; None reads all fields of the schema.
        level: how deep a scan reads, see `FieldMap`.

    Attributes:
        opener: opens the files of the dataset.
        partly: listing paths of files whose values were not all read because of `level`, or whose
            bytes have no known meaning.
        passed: names that ``"*"`` in the schema covers but whose type is not read.
        marks: by path of a file that `cut` has split: byte offsets at which some of its lines
            begin, and their line numbers.
        cuts: by path and split of a file whose first part was read: its number of samples, and the
            number per part.
        unlisted: also return the numeric values that the schema does not list, as fields under
            their own names.

    Raises:
        SchemaError: the schema's patterns are inconsistent.
        UsageError: an extra folder that a field needs was not given.
    """

    def __init__(
        self,
        schema: Schema,
        root: Path,
        roots: Mapping[str, Path],
        fields: frozenset[str] | None = None,
        level: Depth | None = None,
    ) -> None:
        self.schema = schema.located(root, roots).placed(roots)
        self.root = root
        self.roots = dict(roots)
        self.partly: set[str] = set()
        self.passed: set[str] = set()
        self.marks: dict[str, list[tuple[int, int]]] = {}
        self.cuts: dict[Slot, tuple[int, int]] = {}
        self.unlisted = False
        self._unread: dict[str, dict[str, Any]] = {}  # of the file that was opened last
        self._fields = fields
        self._level = level
        self._maps: dict[str, tuple[FieldMap, Facts]] = {}
        check_roots(self.schema, self.roots)
        width = self.way("")[0].width
        together = COLUMN_BYTES if width and level is not None else 0
        self.opener = Opener(root, roots, whole=level != "structure", together=together)

    @property
    def is_scan(self) -> bool:
        """Whether a scan reads, and no build or draft."""
        return self._level is not None

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the files that were read whole, by listing path."""
        return self.opener.digests

    @cached_property
    def inner_names(self) -> tuple[str, ...]:
        """Placeholders that stand for paths inside a file."""
        return ()

    def way(self, split: str) -> tuple[FieldMap, Facts]:
        """Return the field map and the facts of a split."""
        if split not in self._maps:
            schema = self.schema.for_split(split)
            templates = file_templates(schema)
            names = {name for t in templates for name in t.names} | {*self.inner_names, "split"}
            facts = Facts(schema, names, unique=not any(t.wild for t in templates))
            self._maps[split] = FieldMap(schema, self._fields, self._level), facts
        return self._maps[split]

    # -------------------------------------------------------------------------------------- reading

    def read(self, item: Item) -> Iterator[Block | Unread]:
        """Yield the item's samples as blocks of one signature, and its unreadable samples.

        A block holds every schema field that the file has, by schema name. It has at most 4,096
        samples or 64 MB (a scan: 4 MB; tables: 6 MB a column and 128 MB in all).

        Raises:
            FormatError: the file as a whole cannot be read.
        """
        with Shelf(self.opener) as shelf:
            yield from blocks(self._parts(item, shelf), item.split, self._block_bytes(item.split))

    def read_all(
        self, items: Sequence[Item], beat: Callable[[int], None]
    ) -> Iterator[Block | Unread]:
        """Yield the samples of many items; samples of small files share blocks.

        Args:
            items: the items to read.
            beat: called with an item's number before the item is read.

        Notes:
            A file that cannot be read as a whole gives one `Unread` with the file's path as its
            key, or one per key of its item.
        """
        with Shelf(self.opener) as shelf:
            for split, run in groupby(enumerate(items), key=lambda pair: pair[1].split):
                yield from blocks(
                    self._item_parts(run, shelf, beat), split, self._block_bytes(split)
                )

    def _block_bytes(self, split: str) -> int:
        """Return the size limit of a block in bytes of fields."""
        if self._level is None:
            return BLOCK_BYTES
        return min(COLUMN_BYTES * self.way(split)[0].width_read, TABLE_BYTES) or SCAN_BYTES

    def _item_parts(
        self, run: Iterable[tuple[int, Item]], shelf: Shelf, beat: Callable[[int], None]
    ) -> Iterator[Part]:
        for number, item in run:
            beat(number)
            answered: set[str] = set()
            try:
                check_path(item.path)
                for part in self._parts(item, shelf):
                    if item.keys is not None:
                        answered.update(part.keys if isinstance(part, Block) else [part.key])
                    yield part
            except FormatError as error:
                for key in (
                    [item.path]
                    if item.keys is None
                    else [k for k in item.keys if k not in answered]
                ):
                    yield Unread(
                        key, error.code, str(error), alone=isinstance(error, TooManySamplesError)
                    )

    def _parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        try:
            yield from self.parts(item, shelf)
        except MissingDependencyError as error:
            for key in [item.path] if item.keys is None else item.keys:
                yield Unread(key, "DC101", str(error), skipped=True)

    def read_limited(
        self, items: Sequence[Item], beat: Callable[[int], None]
    ) -> Iterator[Block | Unread]:
        """Yield the results of `read_all` under a memory limit.

        The limit follows the size of the files read but not yet yielded.
        """
        place = waiting = 0

        def at(number: int) -> None:
            nonlocal place, waiting
            place = number
            beat(number)
            waiting += self.opener.budget_bytes(self.files(items[number]))
            # A scan with user checks sets no limit either.
            if isinstance(beat, Pulse) and not self.schema.checks:
                beat.files(waiting)

        for result in self.read_all(items, at):
            waiting = 0
            beat(place)
            yield result

    def limit_item(self, item: Item, beat: Callable[[int], None]) -> None:
        """Limit the memory of the current item by the size of its files, as a scan does.

        See `Pulse.files`.
        """
        if isinstance(beat, Pulse):
            beat.files(self.opener.budget_bytes(self.files(item)))

    @abstractmethod
    def parts(self, item: Item, shelf: Shelf) -> Iterator[Part]:
        """Yield the item's samples one by one or as blocks.

        Raises:
            FormatError: the file as a whole cannot be read.
            MissingDependencyError: the file's format needs an extra that is not installed.
        """

    def cut(self, item: Item) -> Iterator[tuple[tuple[int, int, int], str]] | None:
        """Split a large file into parts (see `Item.part`); None for a file that is read whole.

        Yields:
            A part and "", except for the last part, which comes with the digest of the whole file.

        Raises:
            OSError: the file cannot be read.
        """
        del item
        return None

    def marks_of(self, item: Item, known: Mapping[str, Array]) -> Array | None:
        """Return where lines of a large file begin (`Listing.marks`); None where lines are not cut.

        Args:
            item: the file.
            known: marks from a scan, by path; a file without an entry is read.
        """
        if item.path in known:
            return known[item.path]
        try:
            if (cut := self.cut(item)) is None:
                return None
            deque(cut, maxlen=0)
        except (OSError, FormatError):  # reading its lines reports the reason
            return None
        return np.array(self.marks[item.path], np.int64).reshape(-1, 2)

    def seek_points(self, item: Item) -> Array | None:
        """Return the sample numbers at which a read of a large file can begin, ascending from 0.

        Returns:
            int64 (points), or None where a read can begin at any sample, or always reads the whole
            file.

        Raises:
            FormatError: the file cannot be read.
            MissingDependencyError: its format needs an extra that is not installed.
        """
        del item
        return None

    def cut_when_read(self, item: Item) -> bool:
        """Return whether to read a first part (``rows=(0, -1)``) that determines the others."""
        del item
        return False

    def is_packed(self, item: Item) -> bool:
        """Return whether a part of the file is reachable only by reading everything before it."""
        del item
        return False

    def files(self, item: Item) -> list[str]:
        """Return the listing path of every file that reading the item may open.

        These are the item's file, its companions, and files that its format names. A file below an
        extra root has the path ``@name/path``.
        """
        paths = [item.path]
        for place in self.way(item.split)[0].companions:
            assert place.file is not None
            if set(place.file.names) <= item.names.keys():
                # The names make no valid path, or one that is too long: no such file exists.
                with suppress(FormatError, OSError):
                    path = place.file.fill(item.names)
                    paths += [path] if self.opener.is_inside(path) else []
            else:
                paths += self.opener.matching(place.file, item.names)
        return list(dict.fromkeys([*paths, *self.opener.beside(item.path)]))

    # ------------------------------------------------------------------------------- for subclasses

    @contextmanager
    def opened(
        self, item: Item, hint: Hint | None = None, *, whole: bool = True
    ) -> Iterator[Container]:
        """Open an item's file; check that it is the listed file and does not change meanwhile.

        Args:
            item: the item whose file to open.
            hint: what the schema expects.
            whole: True may read a file of ordinary size at once; False keeps it open for the next
                part.

        Raises:
            FormatError: it cannot be opened, or it changed.
        """
        file_format = self.opener.takes(item.path, item.nbytes) if whole else None
        with (
            self.opener.listed(item.path, item.nbytes, hint, whole=whole)
            if file_format is None
            else self.opener.parsed(file_format, item.path, item.nbytes, hint)
        ) as container:
            if container.untyped:
                self.partly.add(item.path)
            self.note_unread(item, container, container.passed)
            yield container

    def note_unread(self, item: Item, container: Container, passed: Sequence[str]) -> None:
        """Note the entries of a file that become no field.

        Args:
            item: the file.
            container: the open file.
            passed: names of these entries. Some formats know them only once all names are listed,
                so a source calls this again after it has listed them.
        """
        self._unread = {}
        if passed:
            facts = {"unread": np.array(len(passed))}
            self._unread[item.path] = facts | ({"opaque": np.array(1)} if container.opaque else {})
            if self.unlisted or self.way(item.split)[0].everything:
                self._note_passed(storable(list(passed)))

    def _note_passed(self, names: Iterable[str]) -> None:
        """Keep the first names in order, shortened: the coordinator shows some."""
        self.passed.update(shortened(name, LONGEST_PASSED) for name in names)
        if len(self.passed) > 2 * MOST_PASSED:
            self.passed = set(sorted(self.passed)[:MOST_PASSED])

    def with_companions(
        self, values: Values, item: Item, names: Mapping[str, str], shelf: Shelf
    ) -> dict[str, str]:
        """Add companion fields to `values`; return the facts about missing ones."""
        missing = {}
        for place in self.way(item.split)[0].companions:
            value, missing_name = shelf.read(place, names)
            if value is None:
                missing[f"absent/{place.name}"] = missing_name
            else:
                values[place.name] = value
                if isinstance(value, Peeked) and place.file is not None:
                    self.partly.add(place.file.fill(names))
        return missing

    def check_count(self, item: Item, count: int) -> None:
        """Refuse more samples than the bytes of a file and its companions can hold.

        Raises:
            TooManySamplesError: see `limits.check_samples`.
        """
        if count > SAMPLES_FREE:
            check_samples(count, sum(map(self.opener.folders.written, self.files(item))))

    def others(
        self,
        item: Item,
        container: Container,
        values: Values,
        prefix: str = "",
        known: ContainerNames | None = None,
    ) -> Values:
        """Return a sample's numeric values that the schema does not list, if `unlisted` is set."""
        if not self.unlisted:
            return {}
        listed = sum(value.nbytes for value in values.values() if isinstance(value, np.ndarray))
        unlisted_values, passed = self.way(item.split)[0].unlisted(
            container, (listed, 0), prefix, known
        )
        self._note_passed(passed)
        return unlisted_values

    def left_out(self, path: str, values: Values) -> None:
        """Mark a file as partly read if some of its values were only peeked at."""
        if self._level not in {None, "deep"} and any(
            isinstance(value, Peeked) for value in values.values()
        ):
            self.partly.add(path)

    def facts(
        self,
        item: Item,
        about: SampleLocation,
        values: Values,
        attrs: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], str]:
        """Return (facts, group) of one sample."""
        facts = self.way(item.split)[1]
        return facts.of(about, values, attrs or {}) | self._of_file(item), facts.group(about)

    def _of_file(self, item: Item) -> dict[str, Any]:
        """Return the facts that all samples of the file opened last share."""
        near_facts = {
            f"near/{field}": name for field, name in self.way(item.split)[0].taken.items()
        }
        return self._unread.get(item.path, {}) | near_facts

    def block(
        self,
        item: Item,
        keys: Sequence[str],
        spans: Sequence[tuple[int, int]],
        fields: dict[str, Column],
        extra: Values,
    ) -> Block:
        """Return the block of numbered samples of one file.

        Args:
            item: the file.
            keys: keys of the samples.
            spans: the rows or lines [start, stop) of each sample.
            fields: columns of the samples.
            extra: facts that all samples share.
        """
        fields_of, facts = self.way(item.split)
        about = item.location
        return Block(
            keys=keys,
            fields=fields_of.drop_unasked(fields),
            origins=Origins(item.path, spans),
            split=item.split,
            groups=[facts.group(about)] * len(keys),
            facts=facts.columns(about, keys, fields)
            | {n: Column.of([v] * len(keys)) for n, v in (extra | self._of_file(item)).items()},
        )


def blocks(parts: Iterable[Part], split: str, most: int = BLOCK_BYTES) -> Iterator[Block | Unread]:
    """Gather pieces into blocks of at most `most` bytes or 4,096 samples.

    Blocks and unread samples pass through.
    """
    waiting: list[Piece] = []
    nbytes = 0
    for part in parts:
        if isinstance(part, Unread):
            yield part
            continue
        weight = 0 if isinstance(part, Block) else sum(map(value_bytes, part.fields.values()))
        if waiting and (
            isinstance(part, Block) or nbytes + weight > most or len(waiting) >= BLOCK_SAMPLES
        ):
            yield from stack(waiting, split)
            waiting = []
            nbytes = 0
        if isinstance(part, Block):
            yield part
        else:
            waiting.append(part)
            nbytes += weight
    yield from stack(waiting, split)
