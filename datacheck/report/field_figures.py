"""The fields on a run's page: each with its declaration, its presence and its histograms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.model.table import Table, Texts
from datacheck.report.histograms import ReferenceValues, histogram
from datacheck.report.shown_measures import (
    ShownMeasure,
    alternative_units,
    band,
    finite_values,
    has_histogram,
    is_episode_length,
    label,
    marks,
    measured_column,
    shown_measures,
    unit,
)
from datacheck.schema.model import ANY, Schema

Array = np.ndarray[Any, Any]

MOST = 6  # measures shown of one field
_SPLITS = 6  # most splits that a histogram separates
_DTYPE_ROWS = 10_000  # rows whose dtype is looked up; rules report rare dtypes
# A measure of these says nothing while all its values are 0.
_COUNTS_OF_DEFECTS = frozenset({"nonfinite", "zeros", "copies"})


def fields(
    table: Table, schema: Schema, unfit: Array, reference: Table | None = None
) -> Iterator[dict[str, Any]]:
    """Yield each field's declaration, the number of samples that have it, and its measures.

    Args:
        table: rows; each column is read when needed, then released.
        schema: the schema in force.
        unfit: bool (rows): samples that are not fit for training.
        reference: the rows of the run that this one is compared with; they are counted in the same
            bins.
    """
    measures = shown_measures(table.columns)
    groups = _groups(table, unfit, reference)
    others = {*schema.fields, *measures} - {ANY, ""}
    # Stored fields first; last "", the measures of the sample as a whole.
    for name in dict.fromkeys([*sorted(schema.stored), *sorted(others), ""]):
        spec = schema.spec(name)
        drawn = _field_measures(table, schema, measures.get(name, []), groups)
        present = _samples_with(table, name)
        is_declared = name in schema.fields
        if spec.absent or (present is None and not drawn and not is_declared):
            continue
        yield {
            "name": name,
            "role": spec.role or "",
            "unit": spec.unit or "",
            "shape": _shape(spec.shape),
            "dtype": _dtype(table, name) or spec.dtype or "",
            "declared": is_declared,
            "present": present,
            "measures": drawn,
        }


def _samples_with(table: Table, name: str) -> int | None:
    """Return the number of samples that have a field; None if that was not measured."""
    if f"{name}:ndim" not in table.columns:
        return None
    return int(np.count_nonzero(table.columns[f"{name}:ndim"].present))


def _shape(shape: Any) -> str:
    return "" if shape is None else f"[{', '.join(map(str, shape))}]"


def _dtype(table: Table, name: str) -> str:
    """Return the first three dtypes found in rows spread over the dataset."""
    if f"{name}:dtype" not in table.columns:
        return ""
    column = table.columns[f"{name}:dtype"]
    step = 1 + len(table) // _DTYPE_ROWS
    dtypes = sorted({str(dtype) for dtype in column.values[::step].tolist()} - {""})
    return ", ".join(dtypes[:3]) + (" …" if len(dtypes) > 3 else "")


def _field_measures(
    table: Table, schema: Schema, measures: Iterable[ShownMeasure], groups: _Groups
) -> list[dict[str, Any]]:
    """Return the first measures that vary, followed by those that do not."""
    varying: list[dict[str, Any]] = []
    constant: list[dict[str, Any]] = []
    for measure in sorted(measures, key=lambda one: not is_episode_length(schema, one)):
        if len(varying) == MOST:
            break
        drawn = _measure(table, schema, measure, groups)
        if drawn is not None:
            (varying if drawn["edges"] else constant).append(drawn)
    # Measures with limits in the schema come first.
    varying.sort(key=lambda measure: measure["band"] is None and not measure["marks"])
    return [*varying, *constant[: MOST - len(varying)]]


def _measure(
    table: Table, schema: Schema, measure: ShownMeasure, groups: _Groups
) -> dict[str, Any] | None:
    """Return a measure with its histogram; None if there is nothing to draw."""
    column = measured_column(table.columns, measure.column)
    if column is None or not has_histogram(column, measure):
        return None
    values, rows, measured = finite_values(column, measure.stat, groups.rows)
    if not len(values) or (measure.stat in _COUNTS_OF_DEFECTS and not values.any()):
        return None
    spec = schema.spec(measure.field)
    is_length = is_episode_length(schema, measure)
    limits = band(schema, measure)
    others = alternative_units(schema, measure)
    counted = histogram(
        values,
        rows,
        2 * len(groups.names),
        whole=column.values.dtype.kind in "biu",
        then=_reference_values(measure, groups),
    )
    return {
        "column": measure.column,
        "stat": measure.stat,
        "label": "episode length" if is_length else label(spec, measure.stat),
        "unit": "steps" if is_length else unit(spec, measure.stat),
        "band": limits,
        "units": _counts_in_other_units(values, rows, limits, others, len(groups.names)),
        "n": len(values),
        "marks": [
            mark | {"many": int(np.count_nonzero(values < mark["at"]))}
            for mark in marks(schema, measure)
        ],
        "nonfinite": measured - len(values),
        **counted,
        "groups": groups.names,
    }


def _counts_in_other_units(
    values: Array,
    rows: Array,
    limits: list[float | None] | None,
    others: list[tuple[str, float]],
    splits: int,
) -> list[dict[str, Any]]:
    """Return the units in which values outside the limits would be allowed.

    Each has ``unit``, ``band`` (the limits in that unit), and ``many``, the values by split.
    """
    low, high = limits or (None, None)
    if low is None or high is None:
        return []
    is_outside = (values < low) | (values > high)
    outside = values[is_outside]
    split = rows[is_outside] // 2
    matching = []
    for name, unit_factor in others:
        low_there = low * unit_factor
        high_there = high * unit_factor
        fits = (outside >= low_there) & (outside <= high_there)
        counts = np.bincount(split[fits], minlength=splits)
        if counts.any():
            matching.append(
                {"unit": name, "band": [low_there, high_there], "many": counts.tolist()}
            )
    return matching


# ------------------------------------------------------------------------------------------- groups


@dataclass(frozen=True, eq=False)
class _Groups:
    """The group of every row: for each split, fit samples and then unfit ones.

    Args:
        names: of the splits; [""] if there are none or too many to separate.
        rows: int64 (rows): twice the number of the split, plus one for unfit samples.
        reference: the run compared with.
        reference_rows: int64 (its rows): the number of the split; -1 if this run does not have it.
    """

    names: list[str]
    rows: Array
    reference: Table | None
    reference_rows: Array


def _groups(table: Table, unfit: Array, reference: Table | None) -> _Groups:
    present = Texts.of(table.splits).present()
    if 2 <= len(present) <= _SPLITS:
        names = present
        numbers = {name: number for number, name in enumerate(present)}
    else:
        names = [""]
        numbers = dict.fromkeys(present, 0)
    reference_rows = np.zeros(0, np.int64)
    if reference is not None:
        reference_rows = _split_numbers(reference, numbers)
    return _Groups(names, 2 * _split_numbers(table, numbers) + unfit, reference, reference_rows)


def _split_numbers(table: Table, numbers: dict[str, int]) -> Array:
    """Return the number of each row's split; -1 if it has none."""
    splits = Texts.of(table.splits)
    return np.array([numbers.get(word, -1) for word in splits.words], np.int64)[splits.rows]


def _reference_values(measure: ShownMeasure, groups: _Groups) -> ReferenceValues | None:
    """Return the reference's values in splits that this run has, too."""
    if groups.reference is None:
        return None
    column = measured_column(groups.reference.columns, measure.column)
    if column is None or not has_histogram(column, measure):
        return None
    values, rows, _ = finite_values(column, measure.stat, groups.reference_rows)
    has_split = rows >= 0
    if not has_split.any():
        return None
    return ReferenceValues(values[has_split], rows[has_split], len(groups.names))
