"""Guesses the columns of a table of points: coordinates, colours, normals, labels and others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from datacheck.infer.base import Guess
from datacheck.infer.profile import LEAST_LABEL, FieldProfile
from datacheck.infer.ranges import class_range, guess_cloud
from datacheck.infer.roles import MOST_CLASSES

# Field names that formats give to the only array, or to the only table, of a file. The names of the
# files then say more than the name of the field.
ONE_ARRAY = "array"
ONE_TABLE = "table"

# Names of clouds and of sensors that record them.
_CLOUD_NAMES = r"point|xyz|cloud|^pc|_pc|lidar|velodyne|scan|\.pts|\.xyz"
# Coordinates beyond it are no shares of 1, such as probabilities.
_MOST_SHARE = 1.5
# Colours of 0..255 reach this value; columns with a smaller maximum are classes.
_FEWEST_COLORS = 64
# Columns of a cloud with a name and coordinates, but without colours and normals: one or two more.
_MEASURED_TABLE_WIDTHS = {4, 5}


class _PointColumn(NamedTuple):
    low: float
    high: float
    is_whole: bool


@dataclass(frozen=True)
class _ColumnGroup:
    """Consecutive columns of the table that are one thing."""

    name: str
    start: int
    width: int
    spec: dict[str, Any]
    why: tuple[str, ...] = ("from its values",)


def guess_point_table(
    name: str, profile: FieldProfile, table: Guess, files: str = ""
) -> dict[str, Guess]:
    """Return the guesses for a table of points and for its columns, by name.

    Args:
        name: name of the field.
        profile: its profile.
        table: the guess for the whole field.
        files: names of folder and files.

    Returns:
        {} where the values do not show that the first three columns are coordinates.
    """
    columns = [_PointColumn(low, high, bool(whole)) for low, high, whole in profile.columns]
    if not _is_plain_table(table) or not columns or all(c.is_whole for c in columns[:3]):
        return {}
    is_only = name in {ONE_ARRAY, ONE_TABLE}
    is_named = re.search(_CLOUD_NAMES, (files if is_only else name).lower()) is not None
    triples: list[_ColumnGroup] = []
    if is_named or (is_only and not _are_shares(columns[:3])):
        triples = _find_triples(columns, profile.unit_triples)
    if not triples and not (is_named and _has_measured_column(columns)):
        return {}
    parts = [
        _coordinates(profile),
        *triples,
        *_other_columns(columns, 3 + 3 * len(triples), has_labels=bool(triples)),
    ]
    words = [part.name if part.width == 1 else f"{part.name}:{part.width}" for part in parts]
    cut = Guess(
        table.without("range").spec | {"columns": " ".join(words)}, ("columns from their values",)
    )
    return {name: cut} | {f"{name}.{part.name}": Guess(part.spec, part.why) for part in parts}


def _is_plain_table(table: Guess) -> bool:
    """Tell whether nothing but shape and range is known of a field of two axes without time."""
    shape = table.spec.get("shape") or []
    is_table = len(shape) == 2 and shape[0] != "T"
    return is_table and table.spec.keys() <= {"shape", "range", "finite", "optional"}


def _are_shares(columns: Sequence[_PointColumn]) -> bool:
    return min(c.low for c in columns) >= 0 and max(c.high for c in columns) <= _MOST_SHARE


def _has_measured_column(columns: Sequence[_PointColumn]) -> bool:
    """Tell whether an intensity or the like follows the coordinates."""
    return len(columns) in _MEASURED_TABLE_WIDTHS and columns[3].low >= 0


def _coordinates(profile: FieldProfile) -> _ColumnGroup:
    cloud = guess_cloud(profile)
    return _ColumnGroup("xyz", 0, 3, {"role": "points"} | cloud.spec, cloud.why)


def _find_triples(
    columns: Sequence[_PointColumn], unit_triples: Sequence[int]
) -> list[_ColumnGroup]:
    """Return the colours and normals that follow the coordinates without a gap."""
    triples: list[_ColumnGroup] = []
    for start in (3, 6):
        triple = columns[start : start + 3]
        if len(triple) < 3:
            break
        if start in unit_triples:
            part = _ColumnGroup("normal", start, 3, {"role": "normal"})
        elif color_range := _color_range(triple):
            part = _ColumnGroup("rgb", start, 3, {"role": "color", "range": color_range})
        else:
            break
        if part.name in {known.name for known in triples}:
            break
        triples.append(part)
    return triples


def _color_range(triple: Sequence[_PointColumn]) -> str:
    """Return the range of three columns of colours, "" if they are none."""
    high = max(c.high for c in triple)
    if min(c.low for c in triple) < 0:
        return ""
    if not all(c.is_whole for c in triple):
        return "0..1" if high <= 1 else ""
    class_columns = sum(c.high < _FEWEST_COLORS for c in triple)
    return "0..255" if _FEWEST_COLORS < high <= 255 and class_columns < 2 else ""


def _other_columns(
    columns: Sequence[_PointColumn], start: int, *, has_labels: bool
) -> Iterator[_ColumnGroup]:
    """Yield the columns behind colours and normals: labels first, then measurements.

    Args:
        columns: all columns of the table.
        start: where the others begin.
        has_labels: whole numbers are labels, because the table has colours or normals.
    """
    free_names = ["label", "instance"] if has_labels else []
    for number, column in enumerate(columns[start:], start):
        is_label = column.is_whole and column.low >= LEAST_LABEL and column.high < MOST_CLASSES
        if is_label and free_names:
            yield _label_column(free_names.pop(0), number, column)
        elif number == 3 and not column.is_whole and column.low >= 0 and column.high <= 1:
            yield _ColumnGroup("intensity", number, 1, {"role": "value", "range": "0..1"})
        else:
            yield _ColumnGroup(f"column{number}", number, 1, {})


def _label_column(name: str, number: int, column: _PointColumn) -> _ColumnGroup:
    spec: dict[str, Any] = {"role": "class" if name == "label" else "instance"}
    if column.low < 0:
        spec["ignore"] = [int(column.low)]
    if name == "label":
        spec["classes"] = class_range(column.low, column.high)
    return _ColumnGroup(name, number, 1, spec)
