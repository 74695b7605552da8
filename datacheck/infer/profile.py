"""The child's side of ``datacheck init``: reads a few files and profiles their fields."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import DatacheckError, FormatError, MissingDependencyError, UsageError
from datacheck.formats.base import format_of, open_container
from datacheck.formats.jsonl import BOM
from datacheck.model.row_keys import storable
from datacheck.model.sample import Block, Column
from datacheck.rules.measures import positions, reduced
from datacheck.runtime.beneath import File
from datacheck.schema.model import MOST_FIELDS, Schema
from datacheck.sources import open_source
from datacheck.sources.base import Item, Source, Unread, limit_files, limit_item
from datacheck.sources.roots import Roots
from datacheck.tokenization import MESSAGE_NAMES, role_of
from datacheck.workers.wire import answers, finite, int64, natural, text

Array = np.ndarray[Any, Any]

# Below this, float64 does not represent every whole number; NaN as an int64 is -2**63.
LEAST_LABEL = -(2**53)
DISTINCT = 64  # most different whole numbers that are kept
_BYTES = 32 << 20  # bytes of samples from which a few are drawn, since files are rarely shuffled
_LENGTHS = 200  # samples whose lengths are kept, to find fields that share an axis
_KEYS = 12
_TABLE = range(4, 14)  # columns of tables that may have coordinates, colours, normals and labels
_MOST_SEEN = 5 * MOST_FIELDS  # fields; beyond MOST_FIELDS a draft declares none
_NAMES = 50  # of values that are not read, or keys of a record
_KEY = 100  # characters of a name or key
RECORDS = "records"
LINES = "lines"  # field name for the lines of a text file
_HEAD = 1 << 10
_ROWS = 1000  # rows of a table that are compared with one another
_EPISODE = re.compile(r"/(?:demo|episode|ep|traj|trajectory)_?\*$")  # even if a file has only one


@dataclass(eq=False)
class FieldProfile:
    """The profile of one field in a few samples; sent as JSON between processes.

    Args:
        samples: how many have the field.
        dtypes, ndims: how often each occurs ("text" and "json" among the dtypes).
        item: sizes of the axes after the first, None where they differ.
        lengths: size of the first axis in the first samples.
        low, high: of all finite numbers.
        unfinite: how many samples have NaN or infinity.
        holes: share of NaN and infinity among the numbers of such a block, at most.
        whole: all values are whole numbers.
        distinct: different values if they are few whole numbers, else [].
        negative: different negative whole numbers, `LEAST_LABEL` or more; of many the lowest
            `DISTINCT` and one.
        norms: smallest and largest length of the rows along the last axis, for 3 and 4 numbers.
        sizes: smallest and largest diagonal of the bounding box, for rows of 3.
        rising: most values in the samples rise: many rows with the same time are no clock.
        falls: in how many samples a value falls.
        ends: fewest and most nonzero steps at the end of a sample.
        keys: the keys of JSON objects, or of the first element of lists.
        chats: how many are messages, or lists of them.
        speakers: the speakers in these, and in how many samples each speaks.
        told: how many are lists of texts most of which differ, or lists of lists of several
            lengths: a row of such a table is no step of an episode.
        longest, empty: bytes of the longest text; how many texts are empty.
        climbs: how often a sample's number was compared with the one before, if it is larger each
            time; -1 if not.
        columns: for tables of 4 to 13 columns, of each column: smallest and largest number, whether
            all are whole (1, 0).
        unit: in these, the positions from which on three columns are rows of length 1.
        thinned: there are more samples than were read.
    """

    samples: int = 0
    dtypes: dict[str, int] = field(default_factory=dict)
    ndims: dict[str, int] = field(default_factory=dict)
    item: list[int] | None = None
    lengths: list[int] = field(default_factory=list)
    low: float | None = None
    high: float | None = None
    unfinite: int = 0
    holes: float = 0.0
    whole: bool = True
    distinct: list[int] = field(default_factory=list)
    negative: list[int] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    rising: bool = True
    falls: int = 0
    ends: list[int] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    chats: int = 0
    speakers: dict[str, int] = field(default_factory=dict)
    told: int = 0
    longest: int = 0
    empty: int = 0
    climbs: int = 0
    columns: list[list[float]] = field(default_factory=list)
    unit: list[int] = field(default_factory=list)
    thinned: bool = False

    def like(self, other: FieldProfile) -> bool:
        """Tell whether two fields have the same kind of values; images may have several sizes."""
        pairs = [(self.dtypes, other.dtypes), (self.ndims, other.ndims)]
        if any(one.keys().isdisjoint(two) for one, two in pairs if one or two):
            return False
        pictures = all(
            "uint8" in one.dtypes and max(map(int, one.ndims), default=0) > 1
            for one in (self, other)
        )
        return pictures or None in (self.item, other.item) or self.item == other.item


@answers({"found": {text: text}}, raises=(UsageError, MissingDependencyError))
def inner_groups(task: dict[str, Any], beat: Callable[[int], None]) -> dict[str, Any]:
    """Return, for each file of a task, the pattern of the samples inside it.

    Args:
        task: root, items (`Item.as_dict`).
        beat: called with an item's number before it is touched.

    Returns:
        found: by path: a pattern of groups ("/data/demo_*", "" for a file without similar groups);
            "ends:meta/episode_ends"; "key"; for a JSON document that is a list of records the
            lines `RECORDS`, their number, and the keys of the first; for a text the lines `LINES`
            and their number.
    """
    patterns = {}
    folders = Roots(task["root"], {})
    for number, data in enumerate(task["items"]):
        beat(number)
        limit_files(beat, [data["path"]], task["root"], {})
        try:
            with closing(open_container(folders.file(data["path"]))) as container:
                names = container.names()
                if names == [LINES] and format_of(data["path"]) is None:
                    patterns[data["path"]] = f"{LINES}\n{len(container.read(LINES))}"
                    continue
                is_list = names == ["records"] and _is_list(folders.file(data["path"]))
                records = _record_summary(container.read("records")) if is_list else []
                pattern = "key" if container.keys() else _inner_pattern(storable(names))
                patterns[data["path"]] = "\n".join([RECORDS, *records]) if records else pattern
        except DatacheckError:
            continue
    return {"found": patterns}


def _is_list(place: File) -> bool:
    """Tell whether a document begins as a list; an object may have its records under that name."""
    with place.open(buffering=0) as file:
        return file.read(_HEAD).removeprefix(BOM).lstrip().startswith(b"[")


def _record_summary(value: Any) -> list[str]:
    """Return the length of a list of several objects, and the keys of the first, else []."""
    if (
        not isinstance(value, list)
        or len(value) < 2
        or not all(isinstance(record, Mapping) for record in value)
    ):
        return []
    return [str(len(value)), *storable([key[:_KEY] for key in list(value[0])[:_NAMES]])]


def _inner_pattern(names: list[str]) -> str:
    if "meta/episode_ends" in names:
        return "ends:meta/episode_ends"
    counted: Counter[str] = Counter()
    groups = {head for name in names for head in _parent_groups(name)}
    for group in groups:
        counted["/" + re.sub(r"\d+$", "*", group)] += bool(re.search(r"\d+$", group))
    candidates = [
        (n, -len(pattern), pattern)
        for pattern, n in counted.items()
        if n > 1 or _EPISODE.search(pattern)
    ]
    if candidates:
        return max(candidates)[2]
    root_groups = (
        {name.partition("/")[0] for name in names} if all("/" in name for name in names) else set()
    )
    return f"/{root_groups.pop()}" if len(root_groups) == 1 else ""


def _parent_groups(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:size]) for size in range(1, len(parts))]


def _is_dtype(name: Any) -> bool:
    return text(name) and (name in {"text", "json"} or np.dtype(name[:40]).name == name)


def _is_rank(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch("[0-9]{1,2}", name, re.ASCII) is not None


def _are_sizes(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(natural, value)))


def _is_number(value: Any) -> bool:
    return value is None or finite(value)


_PROFILE_WIRE = {
    "samples": natural,
    "dtypes": {_is_dtype: natural},
    "ndims": {_is_rank: natural},
    "item": _are_sizes,
    "lengths": [natural],
    "low": _is_number,
    "high": _is_number,
    "unfinite": natural,
    "holes": finite,
    "whole": bool,
    "distinct": [int64],
    "negative": [int64],
    "norms": [finite],
    "sizes": [finite],
    "rising": bool,
    "falls": natural,
    "ends": [natural],
    "keys": [text],
    "chats": natural,
    "speakers": {text: natural},
    "told": int64,
    "longest": int64,
    "empty": int64,
    "climbs": int64,
    "columns": [[finite]],
    "unit": [natural],
    "thinned": bool,
}


@answers(
    {
        "fields": {text: _PROFILE_WIRE},
        "samples": natural,
        "unread": [text],
        "failed": natural,
        "passed": [text],
        "taken": {text: text},
    },
    lambda answer, _: all(
        seen.keys() == _PROFILE_WIRE.keys() for seen in answer["fields"].values()
    ),
    raises=(UsageError, MissingDependencyError),
)
def look(task: dict[str, Any], beat: Callable[[int], None]) -> dict[str, Any]:
    """Return profiles of the fields in a few samples.

    Args:
        task: schema (`Schema.as_dict`), root, items (`Item.as_dict`), most (samples in all).
        beat: called with an item's number before it is touched and after each of its blocks.

    Returns:
        fields (`FieldProfile` by name, of very many the first), samples, unread (up to 3 reasons),
        failed (how many could not be read), passed (names of values of an unsupported kind), taken
        (near names by the field that they were read for).
    """
    source = open_source(Schema.model_validate(task["schema"]), Path(task["root"]))
    profiles: dict[str, FieldProfile] = {}
    near_names: dict[str, str] = {}
    samples = 0
    failed = 0
    unread = list[str]()
    thinned = False
    for number, data in enumerate(task["items"]):
        remaining = len(task["items"]) - number
        # Samples of every file, because files may have different fields.
        reservoir = _SampleReservoir(
            max(1, (task["most"] - samples) // remaining), _BYTES // len(task["items"])
        )
        item = Item.from_dict(data)
        beat(number)
        limit_item(beat, source, item)
        reasons, lost = _read(source, item, reservoir, profiles, near_names, partial(beat, number))
        unread, failed = [*unread, *reasons][:3], failed + lost
        for block in reservoir.blocks():
            samples += len(block)
            for name, column in block.fields.items():
                _add(profiles[name], column)
        thinned |= reservoir.thinned
    for profile in profiles.values():
        profile.thinned = thinned
    field_names = [name for name, profile in profiles.items() if profile.samples]
    fields = {name: asdict(profiles[name]) for name in field_names[:_MOST_SEEN]}
    passed = storable(sorted(source.passed)[:_NAMES])
    return {
        "fields": fields,
        "samples": samples,
        "unread": storable(unread[:3]),
        "failed": failed,
        "passed": passed,
        "taken": near_names,
    }


def _read(
    source: Source,
    item: Item,
    reservoir: _SampleReservoir,
    profiles: dict[str, FieldProfile],
    near_names: dict[str, str],
    beat: Callable[[], None],
) -> tuple[list[str], int]:
    """Draw a few samples of a file; return up to three reasons why others failed, and how many.

    A failed sample cannot be read.
    """
    unread = list[str]()
    failed = 0
    beat()
    try:
        for block in source.read(item):
            beat()
            if isinstance(block, Unread):
                unread, failed = [*unread, f"{block.key}: {block.reason}"][:3], failed + 1
                continue
            for name, column in block.fields.items():
                _add_order(profiles.setdefault(name, FieldProfile()), column)
            near_columns = {
                name: column for name, column in block.facts.items() if name.startswith("near/")
            }
            near_names |= {
                name.removeprefix("near/"): str(column.objects[0])
                for name, column in near_columns.items()
            }
            reservoir.add(block)
            if reservoir.full:
                break
    except FormatError as error:
        unread, failed = [*unread, f"{item.path}: {error}"], failed + 1
    return unread, failed


class _SampleReservoir:
    """Draws a few samples from a stream of any length, with equal chances and reproducibly.

    Args:
        room: how many samples.
        most: bytes of the stream that are read.

    Notes:
        Not every hundredth sample: left and right hands, or two cameras, may alternate.
    """

    def __init__(self, room: int, most: int) -> None:
        self._room, self._most = room, most
        self._met = self._nbytes = 0
        self._draw = np.random.Philox(0)  # NumPy guarantees its stream of words
        # Blocks with the number that each sample drew; the lowest stay.
        self._kept: list[tuple[Array, Block]] = []

    @property
    def full(self) -> bool:
        """Whether enough of the stream was read."""
        return self._nbytes > self._most

    @property
    def thinned(self) -> bool:
        """Whether the stream has more samples than were kept, or may have."""
        return self._met > self._room or self.full

    def add(self, block: Block) -> None:
        """Draw for the next samples; keep the lowest draws."""
        self._kept.append((self._draw.random_raw(len(block)), block))
        self._met += len(block)
        self._nbytes += sum(
            column.values.nbytes for column in block.fields.values() if not column.peeked
        )
        drawn = np.concatenate([drawn for drawn, _ in self._kept])
        if len(drawn) > self._room:
            threshold = np.partition(drawn, self._room - 1)[self._room - 1]
            candidates = [
                (drawn, block, np.flatnonzero(drawn <= threshold)) for drawn, block in self._kept
            ]
            self._kept = [
                (drawn[rows], _take_rows(block, rows))
                for drawn, block, rows in candidates
                if len(rows)
            ]

    def blocks(self) -> list[Block]:
        """Return the kept samples, in the order of the stream."""
        return [block for _, block in self._kept]


def _take_rows(block: Block, few: Array) -> Block:
    fields = {name: column.take(few) for name, column in block.fields.items()}
    return Block([block.keys[i] for i in few], fields, [block.origins[i] for i in few], block.split)


def _add_order(profile: FieldProfile, column: Column) -> None:
    """Track whether a field rises from sample to sample, as a sample number or a time does."""
    if (
        column.kind == "array"
        and column.lengths is None
        and column.values.dtype.kind in "iuf"
        and not column.peeked
    ):
        rising = profile.climbs >= 0 and bool((column.values[1:] > column.values[:-1]).all())
        profile.climbs = profile.climbs + len(column) - 1 if rising else -1


def _add(profile: FieldProfile, column: Column) -> None:
    profile.samples += len(column)
    kind = column.kind if column.kind != "array" else column.values.dtype.name
    profile.dtypes[kind] = profile.dtypes.get(kind, 0) + len(column)
    if column.kind != "array":
        _add_text(profile, column)
        return
    ndim = column.values.ndim - (column.lengths is None)
    is_first = str(ndim) not in profile.ndims and not profile.ndims
    profile.ndims[str(ndim)] = profile.ndims.get(str(ndim), 0) + len(column)
    item = list(column.values.shape[1:])
    profile.item = item if is_first or profile.item == item else None
    if column.lengths is not None:
        profile.lengths += [
            int(n) for n in column.lengths[: max(0, _LENGTHS - len(profile.lengths))]
        ]
    if column.values.dtype.kind in "biuf" and column.values.size and not column.peeked:
        _add_numbers(profile, column)


def _add_text(profile: FieldProfile, column: Column) -> None:
    if column.lengths is not None and len(column):
        profile.longest = max(profile.longest, int(column.lengths.max()))
        profile.empty += int(np.count_nonzero(column.lengths == 0))
    for value in column.objects[:20] if column.kind == "json" else []:
        profile.told += _tells(value[:_ROWS]) if isinstance(value, list) else False
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, Mapping):
            profile.keys = list(dict.fromkeys([*profile.keys, *storable(list(map(str, inner)))]))[
                :_KEYS
            ]
            names = dict.fromkeys(storable(_speakers(value)))
            profile.chats += bool(names)
            for name in names:
                if name in profile.speakers or len(profile.speakers) < _KEYS:
                    profile.speakers[name] = profile.speakers.get(name, 0) + 1


def _speakers(value: Any) -> list[str]:
    """Return the speakers in a message, or in the first messages of a list."""
    messages = [
        message
        for message in (value if isinstance(value, list) else [value])[:_KEYS]
        if isinstance(message, Mapping)
    ]
    return [
        role_of(message)[:_KEY]
        for message in messages
        if any(name in message for name, _ in MESSAGE_NAMES)
    ]


def _tells(rows: list[Any]) -> bool:
    texts = {row for row in rows if isinstance(row, str)}
    return (
        2 * len(texts) > max(2, len(rows))
        or len({len(row) for row in rows if isinstance(row, list)}) > 1
    )


def _add_numbers(profile: FieldProfile, column: Column) -> None:
    values = column.values.astype(np.float64)
    is_finite = np.isfinite(values)
    if not is_finite.all():
        nonfinite = np.any(~is_finite.reshape(len(is_finite), -1), axis=1)
        profile.unfinite += int(np.count_nonzero(reduced(np.logical_or, nonfinite, column.lengths)))
        profile.holes = max(profile.holes, 1 - float(is_finite.mean()))
    numbers = values[is_finite]
    if not len(numbers):
        return
    low = float(numbers.min())
    high = float(numbers.max())
    profile.low = low if profile.low is None else min(profile.low, low)
    profile.high = high if profile.high is None else max(profile.high, high)
    profile.whole &= bool((numbers == np.floor(numbers)).all())
    if profile.whole:
        _add_whole(profile, numbers, first=profile.samples == len(column))
    if values.ndim == 1 and column.lengths is not None:
        series = [np.asarray(column[i]) for i in range(len(column))]
        # Compared, because the difference of unsigned numbers can wrap.
        profile.falls += sum(bool((steps[1:] < steps[:-1]).any()) for steps in series)
        rises = sum(int(np.count_nonzero(steps[1:] > steps[:-1])) for steps in series)
        profile.rising &= 2 * rises >= sum(max(0, len(steps) - 1) for steps in series)
        ends = [int(np.cumprod(steps[::-1] != 0).sum()) for steps in series]
        profile.ends = [min([*profile.ends, *ends]), max([*profile.ends, *ends])]
    if column.lengths is not None and values.ndim == 2 and values.shape[1] in _TABLE:
        _add_columns(profile, column, values)
    width = values.shape[-1] if values.ndim > 1 else int(column.uniform or 0)
    if width in {3, 4}:
        norms = np.sqrt((values.reshape(-1, width) ** 2).sum(axis=1))
        _span(profile.norms, norms[np.isfinite(norms)])
    placed = positions(column) if width == 3 or profile.columns else None
    if placed is not None and placed[1] is not None:
        xyz, lengths = placed
        low3 = reduced(np.minimum, xyz, lengths)
        high3 = reduced(np.maximum, xyz, lengths)
        sizes = np.sqrt(((high3.astype(np.float64) - low3) ** 2).sum(axis=0))
        _span(profile.sizes, sizes[np.isfinite(sizes)])


def _add_whole(profile: FieldProfile, numbers: Array, *, first: bool) -> None:
    if profile.distinct or first:
        every = sorted({*profile.distinct, *np.unique(numbers[:100_000]).astype(np.int64).tolist()})
        profile.distinct = every if len(every) <= DISTINCT else []
    negative = np.unique(numbers[(numbers < 0) & (numbers >= LEAST_LABEL)])[: DISTINCT + 1]
    profile.negative = sorted({*profile.negative, *negative.astype(np.int64).tolist()})[
        : DISTINCT + 1
    ]


def _add_columns(profile: FieldProfile, column: Column, values: Array) -> None:
    rows = values[np.isfinite(values).all(axis=1)]
    if not len(rows):
        return
    is_first = not profile.columns
    ends = zip(
        rows.min(axis=0).tolist(),
        rows.max(axis=0).tolist(),
        (rows == np.floor(rows)).all(axis=0),
        strict=True,
    )
    ranges = [[low, high, float(integral)] for low, high, integral in ends]
    if is_first or len(ranges) != len(profile.columns):
        profile.columns = ranges
    else:
        pairs = zip(profile.columns, ranges, strict=True)
        profile.columns = [[min(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2])] for a, b in pairs]
    norms = {
        start: np.sqrt((rows[:, start : start + 3] ** 2).sum(axis=1))
        for start in (3, 6)
        if start + 3 <= rows.shape[1]
    }
    unit = [start for start, norm in norms.items() if norm.min() >= 0.98 and norm.max() <= 1.02]
    profile.unit = unit if is_first else [start for start in profile.unit if start in unit]


def _span(extremes: list[float], values: Array) -> None:
    if len(values):
        extremes[:] = [
            min([*extremes[:1], float(values.min())]),
            max([*extremes[1:], float(values.max())]),
        ]
