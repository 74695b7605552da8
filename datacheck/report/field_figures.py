"""The fields on a run's page: each with its declaration, its presence and its histograms.

The bins of a histogram cover the bulk of the values in linear or logarithmic steps; values far
outside are counted below and above. A reference run is counted in the same bins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.table import Measured, Table, Texts
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
    scalars,
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


# --------------------------------------------------------------------------------------- histograms

BINS = 64  # at most
# Numbers that stand for values outside the bins.
BELOW = BINS
ABOVE = BINS + 1
NONFINITE = BINS + 2
_DRAWN_BINS = 48  # unless the values are few integers
# Values further than this many spans (1st to 99th percentile) away are counted, not drawn.
_FAR = 6.0
_LOG_RATIO = 50.0  # of highest to lowest value, from which bins are logarithmic
_LEAST_LENGTH = 1e-9  # times the highest value: smaller ones do not count as lengths
# Beyond these, sums and differences of edges overflow or vanish.
_WIDE = 1e300
_NARROW = 1e-290


class ReferenceValues(NamedTuple):
    """Measurements of a reference run: finite float64 values, their splits, the split count."""

    values: Array
    splits: Array
    groups: int


def histogram(
    values: Array,
    groups: Array,
    count: int,
    *,
    whole: bool = False,
    then: ReferenceValues | None = None,
) -> dict[str, Any]:
    """Return the percentiles of finite values, and their counts by group in at most 64 bins.

    Args:
        values: float64 (rows), at least one.
        groups: int64 (rows), below `count`.
        count: number of groups.
        whole: whether the values are integers.
        then: values to count in the same bins, which cover both.

    Returns:
        ``low`` and ``high`` of all values, ``p`` (1, 50, 99 %), ``log``, ``edges`` of the bins,
        ``counts`` by group, and the numbers of values ``below`` and ``above`` the bins. No edges if
        all values are equal. For the reference, ``then``: ``counts`` by split, ``below``,
        ``above``, ``median``.

    Notes:
        With more than 100,000 values, the percentiles are those of a fixed random sample of
        100,000.
    """
    extent = _extent(values)
    data: dict[str, Any] = {
        "low": extent.low,
        "high": extent.high,
        "p": list(extent.percentiles),
        "log": False,
        "edges": [],
        "counts": [],
    }
    if then is None:
        bins = _fit_bins(values, extent, whole=whole)
    else:
        both = np.concatenate([values, then.values])
        bins = _fit_bins(both, _extent(both), whole=whole)
    if bins is None:
        return data
    data |= {"log": bins.log, "edges": bins.edges.tolist()}
    data |= bins.counts(values, groups, count)
    if then is not None:
        _, median, _ = _extent(then.values).percentiles
        data["then"] = {"median": median} | bins.counts(then.values, then.splits, then.groups)
    return data


def bins_of(column: Measured, measure: Mapping[str, Any], rows: Array) -> Array:
    """Return each row's bin in a measure's histogram, or `BELOW`, `ABOVE` or `NONFINITE`.

    Returns:
        int64 (rows), -1 for rows without a value.
    """
    bins = _Bins(np.array(measure["edges"]), log=measure["log"])
    part = Measured(column.values[rows], column.present[rows])
    stat = measure["stat"]
    is_nonfinite = part.present & ~np.isfinite(scalars(part.values, stat))
    numbers = np.where(is_nonfinite, NONFINITE, -1)
    finite = finite_values(part, stat, np.arange(len(rows)))
    numbers[finite.rows] = bins.numbers_with_outside(finite.values)
    return numbers


# ---------------------------------------------------------------------------------------- statistics


class _Extent(NamedTuple):
    """The lowest and the highest value, and the 1st, the 50th and the 99th percentile."""

    low: float
    high: float
    percentiles: tuple[float, float, float]


SORTED = 100_000  # values from which percentiles are computed
_LOW_SHARE = 0.01
_HIGH_SHARE = 0.99


def _extent(values: Array) -> _Extent:
    sample = values
    if len(values) > SORTED:
        generator = np.random.Generator(np.random.PCG64(0))
        sample = values[generator.integers(0, len(values), SORTED)]
    last = len(sample) - 1
    low_index = min(last, int(_LOW_SHARE * len(sample)))
    high_index = min(last, int(_HIGH_SHARE * len(sample)))
    lower_middle = last // 2
    upper_middle = len(sample) // 2
    ordered = np.partition(sample, [low_index, lower_middle, upper_middle, high_index]).tolist()
    median = ordered[upper_middle]
    if lower_middle != upper_middle:
        median = ordered[lower_middle] / 2 + median / 2  # each half, as the sum may overflow
    return _Extent(
        float(values.min()), float(values.max()), (ordered[low_index], median, ordered[high_index])
    )


# --------------------------------------------------------------------------------------------- bins


_CHUNK_ROWS = 32_768  # values and bins of so many fit into the CPU caches: half the time


@dataclass(frozen=True, eq=False)
class _Bins:
    """The bins of a histogram, in equal steps.

    Args:
        edges: float64 (bins + 1), ascending.
        log: whether the steps are those of the logarithm.
    """

    edges: Array
    log: bool

    @property
    def count(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    def counts(self, values: Array, groups: Array, group_count: int) -> dict[str, Any]:
        """Return ``counts`` by group and bin, and the numbers ``below`` and ``above``."""
        counts = np.zeros(group_count * self.count, np.int64)
        below = 0
        above = 0
        for start in range(0, len(values), _CHUNK_ROWS):
            chunk = values[start : start + _CHUNK_ROWS]
            chunk_groups = groups[start : start + _CHUNK_ROWS]
            under = chunk < self.edges[0]
            over = chunk > self.edges[-1]
            if under.any() or over.any():
                below += int(np.count_nonzero(under))
                above += int(np.count_nonzero(over))
                within = ~(under | over)
                chunk, chunk_groups = chunk[within], chunk_groups[within]
            places = chunk_groups * self.count + self.numbers(chunk)
            counts += np.bincount(places, minlength=len(counts))
        by_group = counts.reshape(group_count, self.count)
        return {"counts": by_group.tolist(), "below": below, "above": above}

    def numbers_with_outside(self, values: Array) -> Array:
        """Return the bin of each value, `BELOW` or `ABOVE`."""
        numbers = np.where(values < self.edges[0], BELOW, ABOVE)
        within = (values >= self.edges[0]) & (values <= self.edges[-1])
        numbers[within] = self.numbers(values[within])
        return numbers

    def numbers(self, values: Array) -> Array:
        """Return the bin of values that lie within the bins.

        Each bin exactly includes its lower edge; the last one also its upper edge.
        """
        edges = self.edges
        # The bins are so narrow that rounding errors matter.
        if not self.log and edges[1] - edges[0] < 1e7 * np.spacing(np.abs(edges).max()):
            return self._searched(values)
        ends = edges[[0, -1]]
        on_axis = values
        if self.log:
            ends = np.log(ends)
            on_axis = np.log(values)
        low, high = ends.tolist()
        positions = (on_axis - low) * (self.count / (high - low))
        numbers: Array = positions.astype(np.int64)
        # Next to an edge, arithmetic is not exact enough.
        near_edges = np.flatnonzero(np.abs(positions - np.rint(positions)) < 1e-6)
        numbers[near_edges] = self._searched(values[near_edges])
        return numbers

    def _searched(self, values: Array) -> Array:
        numbers = np.searchsorted(self.edges, values, "right") - 1
        return np.asarray(np.minimum(numbers, self.count - 1))


def _fit_bins(values: Array, extent: _Extent, *, whole: bool) -> _Bins | None:
    """Return bins for these values; None where the values are equal or nearly so."""
    if extent.low == extent.high:
        return None
    if whole and extent.high - extent.low < BINS:
        bins = _Bins(np.arange(extent.low, extent.high + 2) - 0.5, log=False)
    else:
        bins = _log_bins(values, extent) or _linear_bins(extent)
    return bins if bins.edges[-1] - bins.edges[0] > _NARROW else None


def _log_bins(values: Array, extent: _Extent) -> _Bins | None:
    """Return logarithmic bins for lengths of very different size; None for other values."""
    # Some lengths may be zero: they count as below the bins.
    if extent.low < 0 or extent.percentiles[1] <= 0:
        return None
    highest = min(extent.high, _WIDE)
    least = extent.low or float(values.min(where=values > 0, initial=extent.high))
    least = max(least, highest * _LEAST_LENGTH)
    if highest / least < _LOG_RATIO:
        return None
    edges = np.geomspace(least, highest, _DRAWN_BINS + 1)
    edges[[0, -1]] = least, highest  # exactly
    return _Bins(edges, log=True)


def _linear_bins(extent: _Extent) -> _Bins:
    first, median, last = extent.percentiles
    span = last - first or abs(median) or 1.0
    low = max(extent.low, -_WIDE, first - _FAR * span)
    high = min(extent.high, _WIDE, last + _FAR * span)
    return _Bins(np.linspace(low, high, _DRAWN_BINS + 1), log=False)
