"""What choosing samples by a histogram takes: the bin of each row that the page shows, and how pyarrow reads the value.

A sign of one character for each row and measure is all that a range from one edge to another needs: it is exact, and
5,000 rows of fifty measures take 250 kB.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from datacheck.report.aggregates import BINS, bins_of
from datacheck.report.measures import VECTORS, read
from datacheck.rules.families.tokens import UNTOLD
from datacheck.table import Measured, Table

Array = np.ndarray[Any, Any]

# as `page/brush.js` reads them: of the bins, of what is below and above them, not finite, and not there
SIGNS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
BESIDE = "-_!"
_SIGNS = np.frombuffer(f"{SIGNS}{BESIDE}.".encode(), np.uint8)
_ENTRY = 32  # bytes of the page for an entry's names


def brushes(
    table: Table, fields: Iterable[Mapping[str, Any]], rows: Array, room: int, size_of: Callable[[Any], int]
) -> dict[str, dict[str, Any]]:
    """Return by column of the fields' measures what choosing a range of them takes.

    Args:
        table: of the run.
        fields: as the page has them.
        rows: the rows of the sample table, in its order.
        room: bytes of the page.
        size_of: how many of them a value takes.

    Returns:
        ``value`` (an expression of `pyarrow.compute`), ``whole`` (each bin is one whole number) and, of as many as
        there is room for, ``bins`` (a sign for each row). The first measure of each field comes first.
    """
    assert len(SIGNS) == BINS
    said: dict[str, dict[str, Any]] = {}
    drawn = [(measure, column) for measure in _in_turn(fields) if (column := read(table.columns, measure["column"]))]
    for measure, column in drawn:
        entry = {"value": expression(table.columns, measure["column"]), "whole": _whole(measure, column)}
        room -= size_of({measure["column"]: entry}) + _ENTRY
        if room < 0:
            return said
        said[measure["column"]] = entry
    for measure, column in drawn:
        room -= len(rows)
        if room < 0:
            break
        said[measure["column"]]["bins"] = _SIGNS[bins_of(column, measure, rows)].tobytes().decode()
    return said


def _in_turn(fields: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the first histogram of every field, then the second, ..."""
    drawn = [[measure for measure in field["measures"] if measure["edges"]] for field in fields]
    for turn in range(max(map(len, drawn), default=0)):
        yield from (measures[turn] for measures in drawn if turn < len(measures))


def _whole(measure: Mapping[str, Any], column: Measured) -> bool:
    low, high = measure["edges"][:2]
    return column.values.dtype.kind in "biu" and high - low == 1 and low % 1 == 0.5


def expression(columns: Mapping[str, Measured], name: str) -> str:
    """Return what gives the numbers that are counted of a column of samples.parquet, as Python that pyarrow runs.

    Notes:
        Always float64, which is what is counted: pyarrow would round a number to the type of the column.
    """
    head, _, stat = name.rpartition(":")
    part, _, whole = stat.partition("/")
    if whole:
        few, every = (_double(_field(one), columns[one].values) for one in (f"{head}:{part}", f"{head}:{whole}"))
        return f"pc.if_else({_field(f'{head}:{whole}')} > 0, pc.divide({few}, {every}), None)"
    values = columns[name].values
    if values.ndim == 2 and stat in VECTORS:
        return _of_vector(_field(name), stat, values)
    value = _double(_field(name), values)
    if stat == "prompt_bytes":
        return f"pc.if_else({value} < {UNTOLD}, {value}, None)"
    return f"pc.round({value} * 1e5) / 1e5" if stat in {"shortest", "longest"} else value


def _field(name: str) -> str:
    return f"pc.field({name!r})"


def _double(value: str, values: Array) -> str:
    return value if values.dtype == np.float64 else f"{value}.cast('double', safe=False)"


def _of_vector(field: str, stat: str, values: Array) -> str:
    """Return the lowest or the highest component, which is none where one is NaN, or the first."""
    if stat == "dims":
        return _double(f"pc.list_element({field}, 0)", values)
    end = "float('-inf')" if stat == "min" else "float('inf')"
    each = f"{_double(f'pc.list_element({field}, n)', values)} for n in range({values.shape[1]})"
    return f"pc.{stat}_element_wise(*[pc.if_else(pc.is_nan(x), {end}, x) for x in ({each})])"
