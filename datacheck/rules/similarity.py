"""Compact sketches of similarity: MinHash of shingles or voxels, courses of episodes, digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from datacheck.model.chats import Messages, joined_bytes
from datacheck.model.sample import Block, Column
from datacheck.model.table import Measured, Rows
from datacheck.rules.base import Columns, measure
from datacheck.rules.chat_turns import Turns, is_plain, of_messages, turns_in
from datacheck.rules.measures import is_numeric, positions
from datacheck.rules.point_spacing import content_keys, mixed
from datacheck.rules.series import states
from datacheck.rules.text_bytes import single_spaced
from datacheck.runtime.hashing import digest64, digests64
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]
Kind = Literal["", "text", "points", "course"]

HASHES = 64
STEPS = 64  # steps to which every episode is resampled
_GRAM = 5  # characters
_MULTIPLIERS = np.array(
    [
        0x9E3779B97F4A7C15,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0xD6E8FEB86659FD93,
    ],
    np.uint64,
)
_BATCH = 1 << 20  # characters decoded at a time
_PIECE = 1 << 16  # characters hashed at a time: they stay in the cache of a core
# From so many points on: cells along the longest side.
_GRIDS = ((20_000, 24), (8192, 16), (2048, 10), (1024, 8))
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_BIN_BITS = np.uint64(58)
_TRIES = 256
_STILL = 1e-3  # share of a column's size; a column that changes by less stands still
_LEAST_ROWS = 16
_HUGE = 1e30  # float32 still holds a millionth of 1 / _HUGE, and the inverse of that


def alike_by(schema: Schema) -> tuple[Kind, list[str]]:
    """Return how samples are compared and by which fields.

    The fields are actions, else states, else points, else texts.
    """
    stored = {n: s for n, s in sorted(schema.stored.items()) if not s.absent}
    actions = [n for n, s in stored.items() if s.role == "action" and s.ragged is not None]
    points = [n for n, s in stored.items() if s.role == "points"]
    texts = [n for n, s in stored.items() if s.is_text]
    if actions or states(schema):
        return "course", actions or states(schema)
    return ("points", points) if points else ("text" if texts else "", texts)


# --------------------------------------------------------------------------------------------- sets


def elements(
    block: Block, kind: Kind, names: Sequence[str], cells: int = 0
) -> Iterator[tuple[Array, Array]]:
    """Yield the elements of each sample's set: shingles of texts, or voxels that hold points.

    Shapes:
        returns: int64 (elements) sample; uint64 (elements), hashed; an element may occur more than
            once

    Args:
        kind, names: as of `alike_by`.
        cells: along the longest side of a cloud; 0: as many as its points can fill.
    """
    for name in names:
        column = block.fields.get(name)
        salt = np.uint64(digest64(name.encode()))
        if column is None:
            continue
        if kind == "text" and column.kind != "array":
            batches = _shingles(column)
        elif kind == "points" and is_numeric(column):
            batches = _voxels(column, cells)
        else:
            continue
        for owner, keys in batches:
            yield owner, mixed(keys ^ salt)


def _shingles(column: Column) -> Iterator[tuple[Array, Array]]:
    """Yield the runs of five characters of each text, in lower case with single spaces."""
    texts = single_spaced(column)
    stops = np.cumsum([len(text) for text in texts]) if texts else np.zeros(0, np.int64)
    start = 0
    while start < len(texts):
        before = stops[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(stops, before + _BATCH, side="right")))
        parts = [bytes(text).lower().decode("utf-8", "surrogatepass") for text in texts[start:stop]]
        codes = np.frombuffer("".join(parts).encode("utf-32-le", "surrogatepass"), np.uint32)
        owner = np.repeat(np.arange(start, stop), [len(part) for part in parts])
        for offset in range(0, len(codes) - _GRAM + 1, _PIECE):
            yield _grams(
                codes[offset : offset + _PIECE + _GRAM - 1],
                owner[offset : offset + _PIECE + _GRAM - 1],
            )
        start = stop


def _grams(codes: Array, owner: Array) -> tuple[Array, Array]:
    count = len(codes) - _GRAM + 1
    wide = codes.astype(np.uint64)
    keys = np.zeros(count, np.uint64)
    for place, multiplier in enumerate(_MULTIPLIERS):
        keys += wide[place : place + count] * multiplier
    whole = owner[:count] == owner[_GRAM - 1 :]
    return owner[:count][whole], keys[whole]


def grid_of(points: int) -> int:
    """Return how many cells along its longest side a cloud's points can fill, 0 for too few."""
    return next((cells for least, cells in _GRIDS if points >= least), 0)


def _voxels(column: Column, cells: int) -> Iterator[tuple[Array, Array]]:
    """Yield the occupied cells of each cloud's bounding box, each once.

    They depend on neither the place nor the size of the cloud.
    """
    xyz, lengths = positions(column) or (np.zeros((3, 0)), None)
    stops = np.zeros(0, np.int64) if lengths is None else np.cumsum(lengths)
    for i, stop in enumerate(stops.tolist()):
        points = xyz[:, stop - int(lengths[i]) : stop].astype(np.float64)  # type: ignore[index]
        points = points[:, np.isfinite(points).all(axis=0)]
        grid = cells or grid_of(points.shape[1])
        if not grid or not points.shape[1]:
            continue
        low = points.min(axis=1, keepdims=True)
        high = points.max(axis=1, keepdims=True)
        side = float((high - low).max())
        if not 0 < side < np.inf:
            continue
        place = np.floor((points - (low / 2 + high / 2)) * (grid / side) + grid / 2)
        x, y, z = np.clip(place, 0, grid - 1).astype(np.int64)
        filled = np.flatnonzero(np.bincount((x * grid + y) * grid + z, minlength=grid**3))
        yield np.full(len(filled), i), filled.astype(np.uint64) + np.uint64(grid << 32)


def signatures(found: Iterator[tuple[Array, Array]], count: int) -> tuple[Array, Array]:
    """Return the MinHash of sets.

    The share of equal numbers of two sets estimates their Jaccard similarity.

    Shapes:
        found: as of `elements`
        returns: uint16 (samples, 64); int64 (samples): elements, repeated ones too

    Notes:
        One hash per element: its first bits choose one of 64 bins, and each bin keeps its smallest
        hash. An empty bin takes the hash of another one, in an order that depends on the bin alone.

    Reference:
        Shrivastava, Optimal Densification for Fast and Accurate Minwise Hashing, ICML 2017.
    """
    table = np.full((count, HASHES), _EMPTY)
    size = np.zeros(count, np.int64)
    for owner, keys in found:
        np.minimum.at(
            table.reshape(-1), owner * HASHES + (keys >> _BIN_BITS).astype(np.int64), keys
        )
        size += np.bincount(owner, minlength=count)
    sparse = np.flatnonzero((size > 0) & (table == _EMPTY).any(axis=1))
    table[sparse] = _densified(table[sparse])
    return (table & np.uint64(0xFFFF)).astype(np.uint16), size


def shared(first: Block, second: Block, kind: Kind, names: Sequence[str]) -> float:
    """Return the Jaccard similarity of two samples' sets, 0 for two empty ones.

    Each sample is in a block of its own.
    """
    both = either = 0
    for name in names:
        blocks = [block for block in (first, second) if name in block.fields]
        cells = (
            min((_grid(block.fields[name]) for block in blocks), default=0)
            if kind == "points"
            else 0
        )
        sets: list[Array] = [
            np.unique(
                np.concatenate(
                    [np.zeros(0, np.uint64), *(k for _, k in elements(b, kind, [name], cells))]
                )
            )
            for b in (first, second)
        ]
        same = int(np.isin(sets[0], sets[1], assume_unique=True).sum())
        both, either = both + same, either + len(sets[0]) + len(sets[1]) - same
    return both / max(1, either)


def _grid(column: Column) -> int:
    return grid_of(0 if column.lengths is None else int(column.lengths[0]))


def _densified(table: Array) -> Array:
    given = table.copy()
    bins = np.arange(HASHES, dtype=np.uint64)
    rest = np.flatnonzero((table != _EMPTY).any(axis=1))  # a row without any hash stays empty
    for attempt in range(_TRIES):
        if not len(rest):
            break
        other = (mixed(bins + np.uint64(HASHES * (attempt + 1))) >> _BIN_BITS).astype(np.int64)
        part = table[rest]
        part = np.where(part == _EMPTY, given[rest][:, other], part)
        table[rest] = part
        rest = rest[(part == _EMPTY).any(axis=1)]
    return table


# ------------------------------------------------------------------------------------------ courses


def courses(block: Block, names: Sequence[str]) -> tuple[Array, Array, Array]:
    """Return episodes of any length resampled to 64 rows, and the range of each column.

    Shapes:
        course: float64 (samples, 64, columns of all fields)
        reach: float64 (samples, columns), > 0; a thousandth of its size where a column stands still
        fits: bool (samples): those of at least 16 finite rows that move
    """
    columns = [block.fields[n] for n in names if n in block.fields and is_numeric(block.fields[n])]
    columns = [c for c in columns if c.lengths is not None]
    fits = np.full(len(block), bool(columns))
    parts = []
    for column in columns:
        assert column.lengths is not None
        fits &= column.lengths >= _LEAST_ROWS
        if not len(column.values):
            continue
        values = column.values.reshape(len(column.values), -1)
        positions = np.maximum(column.lengths - 1, 0)[:, None] * np.linspace(0, 1, STEPS)
        low = np.floor(positions).astype(np.int64)
        first = np.minimum(column.starts[:, None] + low, len(values) - 1)
        second = np.minimum(first + (low + 1 < column.lengths[:, None]), len(values) - 1)
        share = (positions - low)[:, :, None]
        parts.append(values[first] * (1 - share) + values[second] * share)
    course = np.concatenate(parts, axis=2) if parts else np.zeros((len(block), STEPS, 1))
    course = course.astype(np.float64, copy=False)
    reach = course.max(axis=1) - course.min(axis=1)
    most = reach.max(axis=1, initial=0.0)
    size = np.abs(course).max(axis=1)
    fits &= (most > 1 / _HUGE) & (size < _HUGE).all(axis=1)  # False for NaN too
    reach = np.maximum(reach, np.maximum(_STILL * size, 1e-6 * most[:, None]))
    return course, reach, fits


def averaged(course: Array) -> Array:
    """Return at most 64 numbers of each course: means over equal periods, of at most 64 columns.

    Shapes:
        course: float64 (samples, 64, columns)
        returns: float64 (samples, periods * columns), time first

    Notes:
        Two means differ by at most the largest difference of the averaged values.
    """
    width = min(course.shape[2], HASHES)
    stretches = 1 << max(0, (HASHES // max(width, 1)).bit_length() - 1)
    parts = course[:, :, :width].reshape(len(course), stretches, STEPS // stretches, width)
    out: Array = parts.mean(axis=2).reshape(len(course), stretches * width)
    return out


MOST_PAIRS = 10_000
# Next neighbours in a bucket that a sample is compared with: equal samples make a chain, not all
# pairs.
_NEXT = 3
_CHUNK = 1 << 15  # pairs estimated at a time
_MISSED = 1e-3  # share of the pairs right at the threshold that may share no band
# of courses
_BANDS = 16
_AXES = 4
_WIDE = 4.0  # width of a course's cells along an axis, as a multiple of the largest difference
_SEED = 20_260_102
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def near_sets(hashes: Array, near: float) -> Array:
    """Return the pairs of sets whose Jaccard similarity is likely at least `near`.

    Shapes:
        hashes: uint16 (samples, 64), as of `signatures`
        returns: int64 (pairs, 2), the lower place first, the likeliest pair first, at most 10,000

    Notes:
        Bands of r numbers: a pair of similarity J shares one with probability
        1 - (1 - J^r)^(64 / r). r is the largest number that leaves 0.999 at `near` (4 at 0.8).
    """
    width = max([r for r in range(1, 9) if (1 - near**r) ** (HASHES // r) <= _MISSED], default=1)
    count = HASHES // width
    bands = np.zeros((len(hashes), count), np.uint64)
    for place in range(width):
        bands = bands * _MULTIPLIER + hashes[:, place : count * width : width]
    least = near - 3 * np.sqrt(near * (1 - near) / HASHES)

    def alike(first: Array, second: Array) -> Array:
        return np.asarray((hashes[first] == hashes[second]).mean(axis=1))

    return _likeliest(((bands[:, i], bands[:, i - 1]) for i in range(count)), alike, float(least))


def near_courses(course: Array, reach: Array, apart: float) -> Array:
    """Return the pairs of courses that are likely nowhere further apart than `apart`.

    Shapes:
        course: float (samples, numbers), as of `averaged`
        reach: float (samples, columns); 0 after the columns that a sample has
        returns: as of `near_sets`

    Args:
        apart: as a share of the range of a column.

    Notes:
        Bands of cells along four random axes; every band has its own axes and borders.
    """
    course, reach = course.astype(np.float64), reach.astype(np.float64)
    widths = np.count_nonzero(reach, axis=1)
    bands = np.zeros((len(course), _BANDS), np.uint64)
    ties = np.zeros((len(course), _BANDS))
    scaled = np.zeros_like(course)
    ranges = np.zeros_like(course)
    for width in np.unique(widths).tolist():
        mine = np.flatnonzero(widths == width)
        numbers = _numbers(width, course.shape[1])
        wide = np.tile(reach[mine, :width], (1, numbers // width))
        unit = np.median(wide, axis=0)
        scaled[mine, :numbers], ranges[mine, :numbers] = course[mine, :numbers] / unit, wide / unit
        rng = np.random.default_rng([_SEED, numbers])
        axes = rng.standard_normal((numbers, _BANDS * _AXES))
        along = scaled[mine, :numbers] @ (axes / np.linalg.norm(axes, axis=0)) / (_WIDE * apart)
        cells = np.clip(np.floor(along + rng.uniform(0, 1, _BANDS * _AXES)), -1e15, 1e15).astype(
            np.int64
        )
        key = np.full((len(mine), _BANDS), width, np.uint64)
        for place in range(_AXES):
            key = (key ^ cells[:, place::_AXES].view(np.uint64)) * _MULTIPLIER
            key ^= key >> np.uint64(29)
        bands[mine], ties[mine] = key, along[:, ::_AXES]

    def alike(first: Array, second: Array) -> Array:
        wide = np.maximum(ranges[first], ranges[second])
        gap = np.abs(scaled[first] - scaled[second])
        far = np.divide(gap, wide, out=np.zeros_like(gap), where=wide > 0).max(axis=1)
        return np.where(widths[first] == widths[second], 1 - far, -np.inf)

    return _likeliest(((bands[:, i], ties[:, i]) for i in range(_BANDS)), alike, 1 - apart - 1e-6)


def _numbers(width: int, most: int) -> int:
    """Return the count of numbers in a course of so many columns."""
    return min(most, width * (1 << max(0, (HASHES // max(width, 1)).bit_length() - 1)))


def _likeliest(
    bands: Iterator[tuple[Array, Array]], similarity: Callable[[Array, Array], Array], least: float
) -> Array:
    """Return the likeliest pairs that share a band.

    Args:
        bands: for each band the bucket of each sample, and a number that is close for close
            samples.
        alike: estimates the similarity of pairs.
        least: pairs below it are left out.
    """
    # A pair is one number: lower place times samples plus the other place.
    best = np.zeros(0, np.int64)
    likely = np.zeros(0)
    count = 0
    for bucket, tie in bands:
        count = len(bucket)
        order = np.lexsort((tie, bucket))
        for step in range(1, _NEXT + 1):
            meet = np.flatnonzero(bucket[order[:-step]] == bucket[order[step:]])
            for start in range(0, len(meet), _CHUNK):
                first, second = (order[meet[start : start + _CHUNK] + more] for more in (0, step))
                value = similarity(first, second)
                pairs = np.minimum(first, second) * count + np.maximum(first, second)
                good = value >= least
                best, likely = _kept(
                    np.concatenate([best, pairs[good]]), np.concatenate([likely, value[good]])
                )
    return np.stack(np.divmod(best, max(count, 1)), axis=1)


def _kept(pairs: Array, likely: Array) -> tuple[Array, Array]:
    """Return each pair once, the likeliest first, ties by place, at most 10,000."""
    pairs, once = np.unique(pairs, return_index=True)
    likely = likely[once]
    order = np.argsort(-likely, kind="stable")[:MOST_PAIRS]
    return pairs[order], likely[order]


_LEAST_BYTES = 24  # fewer bytes than two positions are no evidence of identity
_NOT_CONTENT = frozenset({"id", "flag", "timestamp", "intrinsics"})
_FIRST = ("train", "training")


def _cloud(column: Column) -> Array | None:
    """Return a digest of each cloud, independent of point order and coordinate dtype.

    Shapes:
        returns: uint64 (samples)
    """
    keys, lengths = content_keys(column) or (np.zeros(0, np.uint64), None)
    if lengths is None:
        return None
    sum_fold, xor_fold = (_folded(ufunc, keys, lengths) for ufunc in (np.add, np.bitwise_xor))
    return np.where(
        lengths > 0,
        mixed(sum_fold ^ mixed(xor_fold ^ mixed(lengths.astype(np.uint64)))),
        np.uint64(0),
    )


def _folded(ufunc: np.ufunc, keys: Array, lengths: Array) -> Array:
    """Reduce keys to one per sample, 0 for samples without any; sums wrap around."""
    if len(lengths) == 1:
        whole: Array = ufunc.reduce(keys, keepdims=True, dtype=np.uint64)
        return whole
    out = np.zeros(len(lengths), np.uint64)
    filled = lengths > 0
    if filled.any():
        out[filled] = ufunc.reduceat(keys, (np.cumsum(lengths) - lengths)[filled])
    return out


def _chats(column: Column) -> Array:
    """Return a digest per chat.

    It covers roles and texts where every message is just these, else the JSON of the chat.
    """
    if isinstance(column, Messages):
        return _message_digests(of_messages(column))
    out = np.zeros(len(column), np.uint64)
    plain = np.array([is_plain(chat) for chat in column.objects], dtype=bool)
    places = np.flatnonzero(plain)
    rest = np.flatnonzero(~plain)
    turns = turns_in([column.objects[i] for i in places.tolist()])
    assert turns is not None
    out[places] = _message_digests(turns)
    if len(rest):
        out[rest] = _plain(column.take(rest))
    return out


def _message_digests(turns: Turns) -> Array:
    """Return a digest of the messages of each chat."""
    contents = turns.said
    assert contents.lengths is not None
    words = digests64([word.encode("utf-8", "surrogatepass") for word in turns.words])
    place = np.arange(len(turns.roles)) - np.repeat(turns.starts, turns.counts)
    keys = mixed(place.astype(np.uint64) + (contents.lengths.astype(np.uint64) << np.uint64(32)))
    keys = mixed(keys ^ words[turns.roles]) if len(words) else keys
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(keys, dtype=np.uint64)])
    stops = np.cumsum(turns.counts)
    sizes = np.concatenate([[0], np.cumsum(contents.lengths)])
    begins = sizes[stops - turns.counts]
    ends = sizes[stops]
    data = joined_bytes(contents)
    texts = digests64(data[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True))
    return mixed(texts ^ (total[stops] - total[stops - turns.counts]))


def _plain(column: Column) -> Array:
    """Return a digest of each sample's bytes; texts count with single spaces."""
    if column.kind == "text":
        return digests64(single_spaced(column))
    values = np.ascontiguousarray(column.values)
    head = f"{values.dtype.str}{values.shape[1:]}".encode()
    lengths = np.ones(len(column), np.int64) if column.lengths is None else column.lengths
    row = values.nbytes // len(values) if len(values) else 0
    data: Any = values.reshape(-1).view(np.uint8).data if values.nbytes else b""
    stops = np.cumsum(lengths) * row
    starts = stops - lengths * row
    pieces = (data[a:b] for a, b in zip(starts.tolist(), stops.tolist(), strict=True))
    return digests64(pieces) ^ np.uint64(digest64(head))


@measure("content", version=5, per="sample", uses=("fields.role", "fields.shape", "fields.absent"))
def content(block: Block, schema: Schema) -> Columns:
    """Digest of a sample's content: `content`, int64.

    For episodes it covers the actions, else all fields. Points count in any order; fields along the
    points' axis are left out. Identifiers, flags, time stamps and intrinsics do not count. Samples
    of less than 24 bytes have no row, nor have samples whose pictures, or most of whose values,
    were not read.
    """
    stored = schema.stored
    fields = sorted({*block.fields, *block.unread})
    actions = [n for n in fields if n in stored and stored[n].role == "action"]
    names = actions or [n for n in fields if n not in stored or stored[n].role not in _NOT_CONTENT]
    clouds = [n for n in names if n in stored and stored[n].role == "points"]
    along = {stored[n].ragged for n in clouds} - {None}
    names = [n for n in names if n in clouds or n not in stored or stored[n].ragged not in along]
    if block.unread.intersection(names):
        return {}  # without pixels a digest would make different samples equal
    if not actions and _lacks_most(block, len(names)):
        return {}
    total = np.zeros(len(block), np.uint64)
    size = np.zeros(len(block), np.int64)
    for name in names:
        column = block.fields[name]
        if column.kind == "array" and not is_numeric(column):
            continue
        digests = _cloud(column) if name in clouds else None
        if digests is None:
            chat = column.kind == "json" and name in stored and stored[name].role == "chat"
            digests = _chats(column) if chat else _plain(column)
        total = mixed(total ^ digests ^ np.uint64(digest64(name.encode())))
        item = column.values.nbytes // max(1, len(column.values)) if column.kind == "array" else 1
        size += item * (1 if column.lengths is None else column.lengths)
    return {"content": Measured(total.view(np.int64), size >= _LEAST_BYTES)}


def _lacks_most(block: Block, read: int) -> bool:
    """Tell whether the file holds unreadable bytes, or as many unread values as read ones."""
    unread = block.facts.get("unread")
    return "opaque" in block.facts or (
        unread is not None and int(unread.values.max(initial=0)) >= read
    )


def ranks(rows: Rows, schema: Schema) -> tuple[list[str], Array]:
    """Return the splits to compare and each row's place among them.

    The split that keeps its samples comes first.

    Notes:
        -1 for rows of other splits. Without a declared order train comes first, then name order.
    """
    present = set(rows.splits.present()) - {""}
    declared = [s for s in (schema.splits.disjoint if schema.splits else ()) if s in present]
    order = declared or sorted(present, key=lambda s: (s.lower() not in _FIRST, s))
    places = {split: i for i, split in enumerate(order)}
    splits = rows.splits
    return order, np.array([places.get(split, -1) for split in splits.words], dtype=np.int64)[
        splits.rows
    ]
