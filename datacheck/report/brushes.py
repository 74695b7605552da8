"""Brushes of the page: what a reader needs to select a range of a histogram.

The page marks the rows of its table that lie in the range, by the bin of each row, and shows a
pyarrow expression that selects the same samples in samples.parquet.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from datacheck.model.table import Measured, Table
from datacheck.report.histograms import BINS, bins_of
from datacheck.report.rendering import size_of
from datacheck.report.shown_measures import VECTORS, measured_column
from datacheck.rules.families.tokens import UNKNOWN_LENGTH

Array = np.ndarray[Any, Any]

# As `page/brush.js` reads them: a sign for each bin; then below and above the bins, not finite, and
# missing (the last of `_SIGNS`, index -1).
SIGNS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
EXTRA_SIGNS = "-_!"
_SIGNS = np.frombuffer(f"{SIGNS}{EXTRA_SIGNS}.".encode(), np.uint8)
_ENTRY_BYTES = 32  # of the page, for the names in an entry


def brushes(
    table: Table, fields: Iterable[Mapping[str, Any]], rows: Array, room: int
) -> dict[str, dict[str, Any]]:
    """Return, by measured column, the data for selecting a range of its histogram.

    Args:
        table: of the run.
        fields: as in the page.
        rows: the rows of the sample table, in its order.
        room: bytes of the page.

    Returns:
        ``value`` (an expression of `pyarrow.compute`), ``whole`` (each bin is one integer) and, for
        as many columns as fit, ``bins`` (a sign for each row). The first measure of each field
        comes first.
    """
    assert len(SIGNS) == BINS
    entries: dict[str, dict[str, Any]] = {}
    drawn = list(_drawn_columns(table, fields))
    for measure, column in drawn:
        name = measure["column"]
        entry = {
            "value": expression(table.columns, name),
            "whole": _has_integer_bins(measure, column),
        }
        room -= size_of({name: entry}) + _ENTRY_BYTES
        if room < 0:
            return entries
        entries[name] = entry
    for measure, column in drawn:
        room -= len(rows)  # a sign each
        if room < 0:
            break
        signs = _SIGNS[bins_of(column, measure, rows)]
        entries[measure["column"]]["bins"] = signs.tobytes().decode()
    return entries


def _drawn_columns(
    table: Table, fields: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Measured]]:
    """Yield the first histogram of every field with its column, then the second, ..."""
    histograms = [
        [measure for measure in field["measures"] if measure["edges"]] for field in fields
    ]
    for turn in range(max(map(len, histograms), default=0)):
        for measures in histograms:
            if turn >= len(measures):
                continue
            column = measured_column(table.columns, measures[turn]["column"])
            if column is not None:
                yield measures[turn], column


def _has_integer_bins(measure: Mapping[str, Any], column: Measured) -> bool:
    low, high = measure["edges"][:2]
    return column.values.dtype.kind in "biu" and high - low == 1 and low % 1 == 0.5


# -------------------------------------------------------------------------------------- expressions


def expression(columns: Mapping[str, Measured], name: str) -> str:
    """Return Python code of a pyarrow expression for the values that a measure's histogram counts.

    Notes:
        Always float64, as the histogram counts: pyarrow would otherwise round a limit to the
        column's type.
    """
    head, _, stat = name.rpartition(":")
    numerator, _, denominator = stat.partition("/")
    if denominator:
        return _of_ratio(columns, f"{head}:{numerator}", f"{head}:{denominator}")
    values = columns[name].values
    if values.ndim == 2 and stat in VECTORS:
        return _of_vector(_field(name), stat, values)
    value = _double(_field(name), values)
    if stat == "prompt_bytes":
        return f"pc.if_else({value} < {UNKNOWN_LENGTH}, {value}, None)"
    if stat in {"shortest", "longest"}:  # rounded as in the histogram
        return f"pc.round({value} * 1e5) / 1e5"
    return value


def _of_ratio(columns: Mapping[str, Measured], numerator: str, denominator: str) -> str:
    dividend = _double(_field(numerator), columns[numerator].values)
    divisor = _double(_field(denominator), columns[denominator].values)
    return f"pc.if_else({_field(denominator)} > 0, pc.divide({dividend}, {divisor}), None)"


def _of_vector(field: str, stat: str, values: Array) -> str:
    """Return the code for the lowest, the highest or the first component.

    The lowest or highest is infinite, and so not counted, if a component is NaN.
    """
    if stat == "dims":
        return _double(f"pc.list_element({field}, 0)", values)
    end = "float('-inf')" if stat == "min" else "float('inf')"
    element = _double(f"pc.list_element({field}, n)", values)
    components = f"{element} for n in range({values.shape[1]})"
    return f"pc.{stat}_element_wise(*[pc.if_else(pc.is_nan(x), {end}, x) for x in ({components})])"


def _field(name: str) -> str:
    return f"pc.field({name!r})"


def _double(value: str, values: Array) -> str:
    return value if values.dtype == np.float64 else f"{value}.cast('double', safe=False)"
