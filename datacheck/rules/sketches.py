"""What makes samples alike, in a few numbers: sets of shingles or voxels and their MinHash, courses of episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from datacheck.digest import digest64
from datacheck.rules.measures import is_numeric, positions
from datacheck.rules.points import mixed
from datacheck.rules.series import states
from datacheck.rules.texts import words_apart
from datacheck.sample import Block, Column
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]
Kind = Literal["", "text", "points", "course"]

HASHES = 64
STEPS = 64  # of an episode, whatever its length
_GRAM = 5  # characters
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0xD6E8FEB86659FD93],
                np.uint64)  # fmt: skip
_BATCH = 1 << 20  # characters taken out of their texts at a time
_PIECE = 1 << 16  # characters hashed at a time: they stay in the cache of a core
_GRIDS = ((20_000, 24), (8192, 16), (2048, 10), (1024, 8))  # from so many points on: cells along the longest side
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_BIN_BITS = np.uint64(58)
_TRIES = 256
_STILL = 1e-3  # of its own size: a column that changes by less stands still
_LEAST_ROWS = 16
_HUGE = 1e30  # a float32 holds its millionth part, and the inverse of that


def alike_by(schema: Schema) -> tuple[Kind, list[str]]:
    """Return what samples are compared by, and in which fields: actions, else states, else points, else texts."""
    stored = {n: s for n, s in sorted(schema.stored.items()) if not s.absent}
    actions = [n for n, s in stored.items() if s.role == "action" and s.ragged is not None]
    points = [n for n, s in stored.items() if s.role == "points"]
    texts = [n for n, s in stored.items() if s.is_text]
    if actions or states(schema):
        return "course", actions or states(schema)
    return ("points", points) if points else ("text" if texts else "", texts)


# ------------------------------------------------------------------------------------------------ sets


def elements(block: Block, kind: Kind, names: Sequence[str], cells: int = 0) -> Iterator[tuple[Array, Array]]:
    """Yield what samples are sets of: characters that follow one another in texts, cells that points lie in.

    Shapes:
        returns: int64 (elements) sample; uint64 (elements), stirred; an element may come more than once

    Args:
        kind, names: as of `alike_by`.
        cells: along the longest side of a cloud; 0: as many as its points can fill.
    """
    for name in names:
        column, salt = block.fields.get(name), np.uint64(digest64(name.encode()))
        if column is None:
            continue
        if kind == "text" and column.kind != "array":
            found = _shingles(column)
        elif kind == "points" and is_numeric(column):
            found = _voxels(column, cells)
        else:
            continue
        for owner, keys in found:
            yield owner, mixed(keys ^ salt)


def _shingles(column: Column) -> Iterator[tuple[Array, Array]]:
    """Yield the runs of five characters of each text, in lower case and with one space between words."""
    texts = words_apart(column)
    stops = np.cumsum([len(text) for text in texts]) if texts else np.zeros(0, np.int64)
    start = 0
    while start < len(texts):
        before = stops[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(stops, before + _BATCH, side="right")))
        parts = [bytes(text).lower().decode("utf-8", "surrogatepass") for text in texts[start:stop]]
        codes = np.frombuffer("".join(parts).encode("utf-32-le", "surrogatepass"), np.uint32)
        owner = np.repeat(np.arange(start, stop), [len(part) for part in parts])
        for at in range(0, len(codes) - _GRAM + 1, _PIECE):
            yield _grams(codes[at : at + _PIECE + _GRAM - 1], owner[at : at + _PIECE + _GRAM - 1])
        start = stop


def _grams(codes: Array, owner: Array) -> tuple[Array, Array]:
    count = len(codes) - _GRAM + 1
    wide, keys = codes.astype(np.uint64), np.zeros(count, np.uint64)
    for place, odd in enumerate(_ODD):
        keys += wide[place : place + count] * odd
    whole = owner[:count] == owner[_GRAM - 1 :]
    return owner[:count][whole], keys[whole]


def grid_of(points: int) -> int:
    """Return how many cells along its longest side the points of a cloud can fill, 0 where they are too few."""
    return next((cells for least, cells in _GRIDS if points >= least), 0)


def _voxels(column: Column, cells: int) -> Iterator[tuple[Array, Array]]:
    """Yield the cells of the bounding box that each cloud lies in, each once; wherever it lies, however large it is."""
    xyz, lengths = positions(column) or (np.zeros((3, 0)), None)
    stops = np.zeros(0, np.int64) if lengths is None else np.cumsum(lengths)
    for i, stop in enumerate(stops.tolist()):
        points = xyz[:, stop - int(lengths[i]) : stop].astype(np.float64)  # type: ignore[index]
        points = points[:, np.isfinite(points).all(axis=0)]
        grid = cells or grid_of(points.shape[1])
        if not grid or not points.shape[1]:
            continue
        low, high = points.min(axis=1, keepdims=True), points.max(axis=1, keepdims=True)
        side = float((high - low).max())
        if not 0 < side < np.inf:
            continue
        place = np.floor((points - (low / 2 + high / 2)) * (grid / side) + grid / 2)
        x, y, z = np.clip(place, 0, grid - 1).astype(np.int64)
        filled = np.flatnonzero(np.bincount((x * grid + y) * grid + z, minlength=grid**3))
        yield np.full(len(filled), i), filled.astype(np.uint64) + np.uint64(grid << 32)


def signatures(found: Iterator[tuple[Array, Array]], count: int) -> tuple[Array, Array]:
    """Return the MinHash of sets: the share of equal numbers of two estimates what their sets share (Jaccard).

    Shapes:
        found: as of `elements`
        returns: uint16 (samples, 64); int64 (samples): elements, repeated ones too

    Notes:
        One hash per element: its first bits choose one of 64 bins, the smallest of a bin is kept. An empty bin takes
        what another one holds, in an order that depends on the bin alone.

    Reference:
        Shrivastava, Optimal Densification for Fast and Accurate Minwise Hashing, ICML 2017.
    """
    table, size = np.full((count, HASHES), _EMPTY), np.zeros(count, np.int64)
    for owner, keys in found:
        np.minimum.at(table.reshape(-1), owner * HASHES + (keys >> _BIN_BITS).astype(np.int64), keys)
        size += np.bincount(owner, minlength=count)
    sparse = np.flatnonzero((size > 0) & (table == _EMPTY).any(axis=1))
    table[sparse] = _densified(table[sparse])
    return (table & np.uint64(0xFFFF)).astype(np.uint16), size


def shared(first: Block, second: Block, kind: Kind, names: Sequence[str]) -> float:
    """Return the Jaccard similarity of the sets of two samples, each in a block of its own; 0 of two empty ones."""
    both = either = 0
    for name in names:
        blocks = [block for block in (first, second) if name in block.fields]
        cells = min((_grid(block.fields[name]) for block in blocks), default=0) if kind == "points" else 0
        sets: list[Array] = [
            np.unique(np.concatenate([np.zeros(0, np.uint64), *(k for _, k in elements(b, kind, [name], cells))]))
            for b in (first, second)
        ]
        same = int(np.isin(sets[0], sets[1], assume_unique=True).sum())
        both, either = both + same, either + len(sets[0]) + len(sets[1]) - same
    return both / max(1, either)


def _grid(column: Column) -> int:
    return grid_of(0 if column.lengths is None else int(column.lengths[0]))


def _densified(table: Array) -> Array:
    given, bins = table.copy(), np.arange(HASHES, dtype=np.uint64)
    rest = np.arange(len(table))
    for attempt in range(_TRIES):
        if not len(rest):
            break
        other = (mixed(bins + np.uint64(HASHES * (attempt + 1))) >> _BIN_BITS).astype(np.int64)
        part = table[rest]
        part = np.where(part == _EMPTY, given[rest][:, other], part)
        table[rest] = part
        rest = rest[(part == _EMPTY).any(axis=1)]
    return table


# --------------------------------------------------------------------------------------------- courses


def courses(block: Block, names: Sequence[str]) -> tuple[Array, Array, Array]:
    """Return episodes of any length as 64 rows each, interpolated, and the range of each column.

    Shapes:
        course: float64 (samples, 64, columns of all fields)
        reach: float64 (samples, columns), > 0; of what stands still a thousandth of its size
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
        at = np.maximum(column.lengths - 1, 0)[:, None] * np.linspace(0, 1, STEPS)
        low = np.floor(at).astype(np.int64)
        first = np.minimum(column.starts[:, None] + low, len(values) - 1)
        second = np.minimum(first + (low + 1 < column.lengths[:, None]), len(values) - 1)
        share = (at - low)[:, :, None]
        parts.append(values[first] * (1 - share) + values[second] * share)
    course = np.concatenate(parts, axis=2) if parts else np.zeros((len(block), STEPS, 1))
    course = course.astype(np.float64, copy=False)
    reach = course.max(axis=1) - course.min(axis=1)
    most = reach.max(axis=1, initial=0.0)
    size = np.abs(course).max(axis=1)
    fits &= (most > 1 / _HUGE) & (size < _HUGE).all(axis=1)  # and none of it NaN
    reach = np.maximum(reach, np.maximum(_STILL * size, 1e-6 * most[:, None]))
    return course, reach, fits


def averaged(course: Array) -> Array:
    """Return at most 64 numbers of each course: means over equal stretches of time, of at most 64 columns.

    Shapes:
        course: float64 (samples, 64, columns)
        returns: float64 (samples, stretches * columns), time first

    Notes:
        Means differ by no more than the largest difference of what they are means of.
    """
    width = min(course.shape[2], HASHES)
    stretches = 1 << max(0, (HASHES // max(width, 1)).bit_length() - 1)
    parts = course[:, :, :width].reshape(len(course), stretches, STEPS // stretches, width)
    out: Array = parts.mean(axis=2).reshape(len(course), stretches * width)
    return out
