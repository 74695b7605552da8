"""The table of samples on a run's page, worst first, and the brushes that mark its rows.

A brush is what a reader needs to select a range of a histogram: the page marks the rows of its table
that lie in the range, by the bin of each row, and shows a pyarrow expression that selects the same
samples in samples.parquet.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.table import CHECKED, SKIPPED, UNREADABLE, Measured, Table, Texts
from datacheck.report.field_figures import BINS, bins_of
from datacheck.report.rendering import items_within, shortened, size_of
from datacheck.report.shown_measures import VECTORS, common_schema, measured_column
from datacheck.rules.families.tokens import UNKNOWN_LENGTH
from datacheck.scan.run_documents import SAMPLES, read_schema, read_valid
from datacheck.scan.samples import read_failing, read_table
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_STATUS = ("not fit", "warned", "fit", "fit")  # by rank
_UNREAD = {UNREADABLE: "unreadable", SKIPPED: "skipped"}
_MEASURES = 4  # columns of the sample table beside key, split, status, codes
MOST_KEY_CHARS = 500  # of a key, a reason or a split


@dataclass(frozen=True, eq=False)
class RunRows:
    """The rows of a run, and what is wrong with each.

    Args:
        failing: the codes that each row fails.
        unfit: bool (rows): not fit for training.
        ranks: int64 (rows), indices into `_STATUS`.
    """

    table: Table
    schema: Schema
    failing: Texts
    unfit: Array
    ranks: Array

    @cached_property
    def joint_schema(self) -> Schema:
        """The schema of all splits together."""
        return common_schema(self.schema)

    @property
    def failing_samples(self) -> int:
        """The number of rows that fail a rule."""
        return int(np.count_nonzero(_fails(self.failing)))


def read_rows(
    folder: Path, result: Mapping[str, Any], table: Table | None, unfit: Array | None
) -> RunRows:
    """Return the rows of a finished run.

    Args:
        folder: of the run.
        result: its result.json.
        table, unfit: its rows, and bool (rows): not fit for training; None: read from the folder.
    """
    if table is None:
        table = read_table(folder / SAMPLES)
    failing = read_failing(folder / SAMPLES)
    schema = read_schema(folder)
    if unfit is None:
        unfit = _unfit(folder, table, failing)
    findings = [*result["findings"], *result.get("suppressed", [])]
    return RunRows(table, schema, failing, unfit, _ranks(failing, findings, unfit))


def _unfit(folder: Path, table: Table, failing: Texts) -> Array:
    """Return bool (rows): samples that valid.json leaves out.

    The codes do not tell, because a rule can find both errors and warnings.
    """
    excluded = read_valid(folder, len(table))["excluded"]
    unfit: Array = table.status != CHECKED
    for row in np.flatnonzero(_fails(failing)).tolist() if excluded else ():
        unfit[row] |= table.keys[row] in excluded
    return unfit


def _ranks(failing: Texts, findings: Iterable[Mapping[str, Any]], unfit: Array) -> Array:
    """Return int64 (rows), indices into `_STATUS`.

    0 is not fit, 1 has a warning, 2 information, 3 nothing.
    """
    rule_severities: dict[str, set[str]] = {}
    for finding in findings:
        rule_severities.setdefault(finding["rule"], set()).add(finding["severity"])
    informs = {
        code
        for code, severities in rule_severities.items()
        if "info" in severities and "warning" not in severities
    }
    ranks = [
        min((2 if code in informs else 1 for code in word.split()), default=3)
        for word in failing.words
    ]
    return np.where(unfit, 0, np.array(ranks, np.int64)[failing.rows])


def _fails(failing: Texts) -> Array:
    fails: Array = np.array([bool(word) for word in failing.words], bool)[failing.rows]
    return fails


# --------------------------------------------------------------------------------------------- table


def order_of_rows(failing: Texts, ranks: Array, most: int) -> Array:
    """Return the rows to show, worst first: all with findings, or some of each kind if too many.

    Args:
        failing: per row, the codes that it fails; rows with equal codes are of one kind.
        ranks: int64 (rows): 0 not fit, 1 warning, 2 information, 3 nothing.
        most: rows.

    Returns:
        int64 rows by rank; rows without findings come last, evenly spread over the dataset.
    """
    bad = np.flatnonzero(ranks < 3)
    if len(bad) > most:
        turn = _turns(failing.rows[bad])
        bad = np.sort(bad[np.lexsort((bad, turn, ranks[bad]))[:most]])
    bad = bad[np.argsort(ranks[bad], kind="stable")]
    good = np.flatnonzero(ranks == 3)
    room = min(most - len(bad), len(good))
    evenly_spread = np.arange(room) * len(good) // max(room, 1)
    return np.concatenate([bad, good[evenly_spread]])


def _turns(kinds: Array) -> Array:
    """Return the turn of each row: 0 for the first one of its kind, 1 for the second, ..."""
    by_kind = np.argsort(kinds, kind="stable")
    _, starts, sizes = np.unique(kinds[by_kind], return_index=True, return_counts=True)
    turns = np.empty(len(kinds), np.int64)
    turns[by_kind] = np.arange(len(kinds)) - np.repeat(starts, sizes)
    return turns


class _MeasureColumn(NamedTuple):
    """A column of the sample table: its title (field, label, unit) and its values."""

    title: dict[str, str]
    values: Measured


def sample_table(
    rows: RunRows, order: Array, every_field: Iterable[Mapping[str, Any]], room: int
) -> dict[str, Any]:
    """Return the rows of the sample table that fit into `room`, and the titles of its measures."""
    table = rows.table
    measures = _measure_columns(table, every_field)
    numbers = order.tolist()
    columns: list[list[Any]] = [
        [shortened(table.keys[row], MOST_KEY_CHARS) for row in numbers],
        [shortened(table.splits[row], MOST_KEY_CHARS) for row in numbers],
        [_UNREAD.get(table.status[row]) or _STATUS[rows.ranks[row]] for row in numbers],
        [rows.failing[row] for row in numbers],
        [shortened(table.reasons[row], MOST_KEY_CHARS) for row in numbers],
    ]
    columns += [_rounded(measure.values, order) for measure in measures]
    return {
        "rows": items_within(zip(*columns, strict=True), room),
        "measures": [measure.title for measure in measures],
    }


def _measure_columns(
    table: Table, every_field: Iterable[Mapping[str, Any]]
) -> list[_MeasureColumn]:
    """Return the first measure of the first fields that have one that varies."""
    columns: list[_MeasureColumn] = []
    for field in every_field:
        if len(columns) == _MEASURES:
            break
        if not field["measures"] or not field["measures"][0]["edges"]:
            continue
        measure = field["measures"][0]
        column = measured_column(table.columns, measure["column"])
        if column is not None and column.values.ndim == 1:
            title = {"field": field["name"], "label": measure["label"], "unit": measure["unit"]}
            columns.append(_MeasureColumn(title, column))
    return columns


def _rounded(column: Measured, order: Array) -> list[float | None]:
    values = column.values[order].tolist()
    present = column.present[order].tolist()
    if column.values.dtype.kind != "f":
        return [v if is_present else None for v, is_present in zip(values, present, strict=True)]
    return [
        float(f"{v:.5g}") if is_present and math.isfinite(v) else None
        for v, is_present in zip(values, present, strict=True)
    ]


# ------------------------------------------------------------------------------------------- brushes

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
