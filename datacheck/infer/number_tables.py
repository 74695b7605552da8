"""What the rows of a table of numbers are: points of tracks, samples with a class, or neither.

Each finding needs evidence in the numbers, because other tables look alike: a cloud of points with
labels, a grid, a recording with a state for each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from datacheck.schema.patterns import PATTERN_SIGNS

Array = np.ndarray[Any, Any]

# Rows and columns that are looked at.
_MOST_ROWS = 100_000
_WIDTHS = range(4, 65)
_MOST_KEY_COLUMNS = 6
# Fewest rows, tracks, and rows of a track in the mean.
_FEWEST_ROWS = 50
_FEWEST_TRACKS = 3
_FEWEST_POINTS = 4
# Share of the steps in time within tracks that must be above 0, and that must equal the usual ones.
_RISING = 0.98
_REGULAR = 0.8
# Share of the steps in time up to which longer ones may be faults.
_FEW_GAPS = 0.001
# Largest share of the rows that have a time of their own: tracks share their times.
_OWN_TIMES = 0.8
# Largest step of a coordinate along a track, as a share of its spread over all tracks.
_NEAR = 0.25
_TRACK_NAMES = r"(?:^|_)(?:track|agent|player|ped|pedestrian|vehicle|object|obj)?_?id$|mmsi"
# Of samples with a class: fewest rows and columns, most classes, fewest rows of a class.
_FEWEST_SAMPLES = 100
_FEWEST_VALUES = 8
_MOST_CLASSES = 100
_FEWEST_OF_CLASS = 5
_MOST_ALIKE = 3  # other columns that could be the class
_LABEL_NAMES = r"^(?:class|label|target|y)(?:_?(?:id|index|no))?$"
# Share of the rows whose largest number is one and the same: each row is normalised by itself.
_NORMALISED = 0.9
# Last column at which normals or colours of points begin, largest numbers of colours, tolerance of
# the length of normals.
_LAST_OF_POINTS = 6
_MOST_OF_POINTS = 16  # columns
_FEWEST_COLORS, _MOST_COLOR = 64, 255
_UNIT = 0.05
# How near the share of rows with another class than the row before is to that of an order by chance.
_CHANCE = 0.1


class TableRows(NamedTuple):
    """What the rows of a table are.

    Args:
        pattern: `samples.each`.
        columns: of the field ``table``, as a schema names them.
        classes: the numbers of the classes.
        gaps: steps in time of tracks that are longer than the two usual ones: points are missing.
    """

    pattern: str
    columns: str
    classes: Sequence[int] = ()
    gaps: int = 0


def rows_of(table: Array, names: Sequence[str]) -> TableRows | None:
    """Return what the rows of a table are, None where the numbers do not show it.

    Args:
        table: rows of numbers.
        names: of the columns in its header; () without a header.
    """
    if table.ndim != 2 or not len(table) or len(set(names)) < len(names):
        return None
    rows = table[:_MOST_ROWS].astype(np.float64)
    return _tracks(rows, names) or _samples(rows, names, table)


# ------------------------------------------------------------------------------------------ tracks


def _tracks(rows: Array, names: Sequence[str]) -> TableRows | None:
    if len(rows) < _FEWEST_ROWS or rows.shape[1] not in _WIDTHS or not np.isfinite(rows).all():
        return None
    is_whole = (rows == np.floor(rows)).all(axis=0)
    keys = np.flatnonzero(is_whole)[:_MOST_KEY_COLUMNS].tolist()
    found = [pair for pair in permutations(keys, 2) if _are_tracks(rows, *pair, names)]
    if len(found) != 1:
        return None
    ((track, time),) = found
    coordinates = [
        index
        for index in range(rows.shape[1])
        if index not in {track, time} and _is_coordinate(rows, track, time, index)
    ]
    position = _position(coordinates, is_whole, names)
    if len(coordinates) < 2 or (position < 0 and not names):
        return None
    parts = [*names] if names else [f"column{index}" for index in range(rows.shape[1])]
    each = parts[track]
    if "/" in each or PATTERN_SIGNS.intersection(each):
        return None
    parts = [re.sub(r"[^A-Za-z0-9_]+", "_", part).strip("_") for part in parts]
    parts = [part if part[:1].isalpha() else f"column{n}" for n, part in enumerate(parts)]
    parts[time], parts[track] = "frame", "track"
    if position >= 0:
        parts[position : position + 2] = ["position:2"]
    if len({part.partition(":")[0] for part in parts}) < len(parts):
        return None
    steps = np.sort(np.unique(_steps(rows, track, time), return_counts=True)[1])
    gaps = int(steps[:-2].sum())
    return TableRows(
        f"/{each}/*", " ".join(parts), gaps=gaps if gaps > _FEW_GAPS * steps.sum() else 0
    )


def _are_tracks(rows: Array, track: int, time: int, names: Sequence[str]) -> bool:
    """Tell whether one column counts tracks and another one the time along each of them."""
    ids = np.unique(rows[:, track])
    times = np.unique(rows[:, time])
    if len(ids) < _FEWEST_TRACKS or len(rows) < _FEWEST_POINTS * len(ids):
        return False
    if len(times) > _OWN_TIMES * len(rows):
        return False
    is_named = bool(names) and re.search(_TRACK_NAMES, names[track].lower()) is not None
    if len(ids) * len(times) == len(rows) and not is_named:  # as the rows and columns of a grid
        return False
    steps = _steps(rows, track, time)
    # The two most frequent ones: the rate of a recording may change, which is a fault to find.
    usual = np.sort(np.unique(steps, return_counts=True)[1])[-2:].sum()
    if float((steps > 0).mean()) < _RISING or usual < _REGULAR * len(steps):
        return False
    others = (index for index in range(rows.shape[1]) if index not in {track, time})
    return sum(_is_coordinate(rows, track, time, index) for index in others) >= 2


def _steps(rows: Array, track: int, column: int) -> Array:
    """Return the differences of a column between neighbouring rows of each track."""
    order = np.argsort(rows[:, track], kind="stable")
    same = rows[order[1:], track] == rows[order[:-1], track]
    steps: Array = np.diff(rows[order, column])[same]
    return steps


def _is_coordinate(rows: Array, track: int, time: int, column: int) -> bool:
    """Tell whether a column moves little from step to step, but differs between tracks at a time."""
    spread = float(rows[:, column].std())
    if spread == 0 or len(np.unique(rows[:, column])) < _FEWEST_ROWS / 2:
        return False
    # Median, as tracks that exchange their ids are a fault to find.
    near = np.quantile(np.abs(_steps(rows, track, column)), 0.9) <= _NEAR * spread
    apart = np.median(np.abs(_steps(rows, time, column))) > 0
    return bool(near and apart)


def _position(coordinates: Sequence[int], is_whole: Array, names: Sequence[str]) -> int:
    """Return the first of two neighbouring columns that are x and y, -1 without them."""
    pairs = [index for index in coordinates if index + 1 in coordinates]
    if names:
        pairs = [index for index in pairs if _are_x_and_y(names[index], names[index + 1])]
    return pairs[0] if pairs else -1


def _are_x_and_y(first: str, second: str) -> bool:
    one, two = first.lower(), second.lower()
    return re.search(
        r"(?:^|[^a-z])(?:pos|c)?x(?:$|[^a-z])", one
    ) is not None and two == one.replace("x", "y")


# ------------------------------------------------------------------------------ samples with a class


def _samples(rows: Array, names: Sequence[str], table: Array) -> TableRows | None:
    """Return the place of the class in rows that are samples, None where they may be something else.

    Args:
        rows: the first rows of the table.
        names: of the columns.
        table: all rows.
    """
    width = rows.shape[1]
    if len(rows) < _FEWEST_SAMPLES or width <= _FEWEST_VALUES:
        return None
    for column, parts in (
        (0, f"label values:{width - 1}"),
        (width - 1, f"values:{width - 1} label"),
    ):
        is_named = not names or re.search(_LABEL_NAMES, names[column].lower()) is not None
        values = np.delete(rows, column, axis=1)
        if not is_named or not _are_classes(table[:, column]) or any(_clocks(values)):
            continue
        # A matrix, a picture or answers to questions: its columns are all alike.
        if sum(map(_are_classes, values.T)) > _MOST_ALIKE:
            continue
        if not _are_points(values) and (_is_shuffled(rows[:, column]) or _are_normalised(values)):
            return TableRows("row", parts, np.unique(table[:, column]).astype(np.int64).tolist())
    return None


def _are_classes(column: Array) -> bool:
    """Tell whether a column holds a few whole numbers without a gap, from 0 or 1 on."""
    if not np.isfinite(column).all():
        return False
    found, counts = np.unique(column, return_counts=True)
    return bool(
        2 <= len(found) <= _MOST_CLASSES
        and found[0] in {0, 1}
        and (np.diff(found) == 1).all()
        and (found == np.floor(found)).all()
        and counts.min() >= _FEWEST_OF_CLASS
    )


def _clocks(values: Array) -> Iterator[bool]:
    """Yield for each column whether it never falls, as the time of a recording or a row number."""
    for column in values.T:
        yield bool((np.diff(column) >= 0).all() and column[-1] > column[0])


def _are_points(values: Array) -> bool:
    """Tell whether three neighbouring columns are normals or colours, as in a cloud with labels."""
    if values.shape[1] > _MOST_OF_POINTS:  # pixels are whole numbers, too
        return False
    for start in range(3, values.shape[1] - 2):
        triple = values[:, start : start + 3]
        is_color = (triple == np.floor(triple)).all() and triple.min() >= 0
        if is_color and _FEWEST_COLORS <= triple.max() <= _MOST_COLOR:
            return True
        if (np.abs((triple**2).sum(axis=1) - 1) < _UNIT).all():
            return True
        if start >= _LAST_OF_POINTS:
            break
    return False


def _is_shuffled(column: Array) -> bool:
    """Tell whether the classes of neighbouring rows differ as often as in an order by chance."""
    _, counts = np.unique(column, return_counts=True)
    expected = 1 - float(((counts / len(column)) ** 2).sum())
    return abs(float((np.diff(column) != 0).mean()) - expected) <= _CHANCE * expected


def _are_normalised(values: Array) -> bool:
    """Tell whether the largest number of nearly all rows is the same one."""
    peak = np.abs(values).max(axis=1)
    usual = float(np.median(peak))
    return usual > 0 and float((np.abs(peak / usual - 1) < 1e-6).mean()) >= _NORMALISED
