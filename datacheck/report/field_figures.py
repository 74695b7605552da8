"""Measures of a field on a run's page: which columns, their labels, limits and histograms."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.table import Measured, Table, Texts
from datacheck.rules.base import Rule
from datacheck.rules.families.episodes import fps_mismatch
from datacheck.rules.families.rotations import bad_rotation
from datacheck.rules.families.tokens import UNKNOWN_LENGTH
from datacheck.rules.label_counts import loader_steps
from datacheck.rules.selection import options_of, variants
from datacheck.rules.series import time_field
from datacheck.schema.grammar import LENGTH, factor
from datacheck.schema.model import ANY, FieldSpec, Schema

MOST = 6  # measures shown of one field

# most informative first: the table of fields draws the first one that varies
LABELS = {
    "box": "size (diagonal)",
    "bone": "median bone",
    "near": "distance",
    "norm": "length",
    "spacing": "distance to the nearest point (median)",
    "p99": "99th percentile of |x|",
    "tokens": "tokens",
    "trained": "supervised tokens",
    "trained/tokens": "share of supervised tokens",
    "ignored/count": "share ignored",
    "step": "time step (median)",
    "min": "lowest value",
    "max": "highest value",
    "angle": "angle",
    "dims": "length (first axis)",
    "steps": "steps",
    "reach": "reach",
    "shortest": "shortest quaternion",
    "longest": "longest quaternion",
    "largest": "points of the largest instance",
    "objects": "objects",
    "front": "share in front",
    "copies": "repeated points",
    "flatness": "flatness",
    "lowest": "lowest",
    "highest": "highest",
    "peak": "largest |x|",
    "leap": "largest step",
    "prompt_bytes": "bytes before the first answer",
    "answers": "answers",
    "same": "share of commands as the one before",
    "noop": "share of commands that ask for nothing",
    "nonfinite": "NaN or infinite values",
    "zeros": "rows of zeros",
    "bytes": "bytes",
}
_IN_UNIT = frozenset(
    {
        "box",
        "bone",
        "near",
        "norm",
        "spacing",
        "p99",
        "peak",
        "min",
        "max",
        "lowest",
        "highest",
        "leap",
        "reach",
        "step",
    }
)
_BANDS = {
    "box": "size",
    "bone": "size",
    "near": "distance",
    "min": "range",
    "max": "range",
    "lowest": "rests",
}
_UNIT_STATS = frozenset({"box", "bone", "near", "norm"})  # they reveal a wrong unit
VECTORS = frozenset({"min", "max", "dims"})  # shown as the lowest, highest and first component


class ShownMeasure(NamedTuple):
    """A measure on the page: one column, or the ratio of two.

    Args:
        column: name of the column; for a ratio, "/" and the statistic of the denominator follow.
        field, stat: the field and the statistic.
    """

    column: str
    field: str
    stat: str


def shown_measures(columns: Iterable[str]) -> dict[str, list[ShownMeasure]]:
    """Return the measures to show, by field ("": the sample as a whole), most informative first.

    Args:
        columns: names of measured columns, ``field:stat`` or ``:field:stat``.
    """
    field_measures: dict[str, list[ShownMeasure]] = {}
    names = dict.fromkeys(columns)
    for name in names:
        head, _, stat = name.rpartition(":")
        field = head.removeprefix(":")
        field_measures.setdefault(field, []).extend(
            ShownMeasure(f"{head}:{one}", field, one)
            for one in LABELS
            if _has_columns(one, stat, head, names)
        )
    rank = {stat: place for place, stat in enumerate(LABELS)}
    return {
        f: sorted(measures, key=lambda one: (rank[one.stat], one.column))
        for f, measures in field_measures.items()
        if measures
    }


def _has_columns(shown_stat: str, stat: str, head: str, names: Container[str]) -> bool:
    numerator, _, denominator = shown_stat.partition("/")
    return numerator == stat and (not denominator or f"{head}:{denominator}" in names)


def measured_column(columns: Mapping[str, Measured], name: str) -> Measured | None:
    """Return the column of a `ShownMeasure` name; None if it is missing.

    A ratio has values where the denominator is not 0.
    """
    head, _, stat = name.rpartition(":")
    numerator, _, denominator = stat.partition("/")
    if stat not in LABELS or not denominator:
        return columns.get(name)
    numerator_column = columns.get(f"{head}:{numerator}")
    denominator_column = columns.get(f"{head}:{denominator}")
    if (
        numerator_column is None
        or denominator_column is None
        or {numerator_column.values.dtype.kind, denominator_column.values.dtype.kind} - set("biuf")
    ):
        return None
    if numerator_column.values.ndim != 1 or denominator_column.values.ndim != 1:
        return None
    has_ratio = (
        numerator_column.present & denominator_column.present & (denominator_column.values > 0)
    )
    return Measured(
        np.divide(
            numerator_column.values,
            denominator_column.values,
            out=np.zeros(len(has_ratio)),
            where=has_ratio,
            dtype=np.float64,
        ),
        has_ratio,
    )


def label(spec: FieldSpec, stat: str) -> str:
    """Return the label of a measure."""
    return "points" if stat == "dims" and spec.role == "points" else LABELS[stat]


def unit(spec: FieldSpec, stat: str) -> str:
    """Return the unit of a measure; "" if it has none."""
    return (
        "B" if stat in {"bytes", "prompt_bytes"} else (spec.unit or "") if stat in _IN_UNIT else ""
    )


def band(schema: Schema, one: ShownMeasure) -> list[float | None] | None:
    """Return the lowest and the highest value that the schema allows; an open end is None."""
    spec = schema.spec(one.field)
    least, most = _count_limits(schema, spec, one)
    if least is not None or most is not None:
        return [least, most]
    limits: Any = getattr(spec, _BANDS[one.stat]) if one.stat in _BANDS else None
    if one.stat in {"box", "bone"} and (one.stat == "bone") != (spec.role == "joints"):
        limits = None  # the size of joints is that of their bones
    if schema.episode is not None and is_episode_length(schema, one):
        limits = schema.episode.length
    return None if limits is None else [limits.low, limits.high]


def _count_limits(
    schema: Schema, spec: FieldSpec, measure: ShownMeasure
) -> tuple[float | None, float | None]:
    """Return the limits of counts, quaternion lengths and time steps; None for an open end."""
    least: float | None = None
    most: float | None = None
    if measure.stat == "tokens" and schema.tokenizer is not None:
        most = schema.tokenizer.max_length
    elif measure.stat == "trained":
        least = spec.min_trained_tokens
    elif measure.stat == "dims" and spec.role == "points":
        least = spec.min_points
    elif measure.stat == "largest":
        least = dict(loader_steps(schema)).get("min_points")
    elif measure.stat in {"shortest", "longest"}:
        tolerance = option(schema, bad_rotation, "off")
        least = 1 - tolerance
        most = 1 + tolerance
    elif measure.stat == "step" and schema.episode is not None and schema.episode.fps is not None:
        tolerance = option(schema, fps_mismatch, "tolerance")
        seconds = 1 / schema.episode.fps / factor(spec.unit or "s")
        least, most = (seconds / end if end > 0 else None for end in (1 + tolerance, 1 - tolerance))
    return _finite_end(least), _finite_end(most)


def _finite_end(end: float | None) -> float | None:
    return end if end is not None and math.isfinite(end) else None


def common_schema(schema: Schema) -> Schema:
    """Return the schema without properties that ``when: split=...`` changes.

    Such properties do not hold for all splits together.
    """
    all_variants = variants(schema)
    default_spec = FieldSpec()
    fields = dict(schema.fields)
    for name, spec in schema.fields.items():
        others = [variant.spec(name) for variant in all_variants[1:]]
        differing_keys = [
            key
            for key in FieldSpec.model_fields
            if any(getattr(other, key) != getattr(spec, key) for other in others)
        ]
        if differing_keys:
            fields[name] = spec.model_copy(
                update={key: getattr(default_spec, key) for key in differing_keys if key != "role"}
            )
    return schema.model_copy(update={"fields": fields})


def option(schema: Schema, of: Rule, name: str) -> float:
    """Return the value of a rule's numeric option."""
    return float(options_of(schema, of)[name])


def alternative_units(schema: Schema, one: ShownMeasure) -> list[tuple[str, float]]:
    """Return (unit, factor) for every other unit of length.

    If a field is stored in that unit, its numbers are those in the declared unit times the factor.
    """
    own_factor = LENGTH.get(schema.spec(one.field).unit or "")
    if own_factor is None or one.stat not in _UNIT_STATS:
        return []
    return [
        (name, own_factor / other_factor)
        for name, other_factor in LENGTH.items()
        if other_factor != own_factor
    ]


def is_episode_length(schema: Schema, one: ShownMeasure) -> bool:
    """Return whether a measure is the length of an episode, as DC501 counts it."""
    declared = schema.windows is not None or schema.episode is not None
    return declared and one.stat == "dims" and one.field == time_field(schema)


def marks(schema: Schema, one: ShownMeasure) -> list[dict[str, Any]]:
    """Return lines to draw in a histogram.

    Each has a position ``at``, its ``name``, the word ``less`` for samples below it, and what
    becomes of them, ``below``.

    Notes:
        Between integers, the position lies halfway.
    """
    windows = schema.windows
    if windows is not None and is_episode_length(schema, one):
        padded = windows.pad != "none" or windows.short == "pad"
        below = (
            "padded"
            if padded
            else "an error in the loader"
            if windows.short == "raise"
            else "without a window"
        )
        return [
            {
                "at": windows.length - 0.5,
                "name": f"window {windows.length:,}",
                "less": "shorter",
                "below": below,
            }
        ]
    edge = dict(loader_steps(schema)).get("voxel")
    if (
        edge is not None
        and one.stat == "spacing"
        and one.field == next(iter(schema.of_role("points")), ("",))[0]
    ):
        return [{"at": edge, "name": f"voxel {edge:g}", "less": "denser", "below": "thinned"}]
    return []


Array = np.ndarray[Any, Any]

BINS = 64
# for values outside the bins
BELOW = BINS
ABOVE = BINS + 1
NONFINITE = BINS + 2
_DRAWN = 48  # bins, unless the values are few integers
_SHARES = (0.01, 0.99)  # percentiles besides the median
# Values further than this many spans (1st to 99th percentile) away are counted, not drawn.
_FAR = 6.0
_LOG = 50.0  # ratio of highest to lowest from which bins are logarithmic
_LEAST = 1e-9  # times the highest value: smaller ones do not count as lengths
SORTED = 100_000  # values from which percentiles are computed
_CHUNK_ROWS = 32_768
_WIDE = 1e300
_NARROW = 1e-290
_SPLITS = 6
_DIGITS = 5  # of a length that should be 1: rounding errors are not a distribution
_DTYPE_ROWS = 10_000  # rows whose dtype is looked up; rules report rare dtypes


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
    for name in dict.fromkeys(
        [*sorted(schema.stored), *sorted({*schema.fields, *measures} - {ANY, ""}), ""]
    ):
        spec = schema.spec(name)
        present_rows = (
            table.columns[f"{name}:ndim"].present if f"{name}:ndim" in table.columns else None
        )
        drawn = _field_measures(table, schema, measures.get(name, []), groups)
        if spec.absent or (present_rows is None and not drawn and name not in schema.fields):
            continue
        yield {
            "name": name,
            "role": spec.role or "",
            "unit": spec.unit or "",
            "shape": _shape(spec.shape),
            "dtype": _dtype(table, name) or spec.dtype or "",
            "declared": name in schema.fields,
            "present": None if present_rows is None else int(np.count_nonzero(present_rows)),
            "measures": drawn,
        }


def _field_measures(
    table: Table, schema: Schema, measures: Iterable[ShownMeasure], groups: _Groups
) -> list[dict[str, Any]]:
    """Return the first measures that vary, followed by those that do not."""
    drawn: list[dict[str, Any]] = []
    constant_measures: list[dict[str, Any]] = []
    for shown_measure in sorted(
        measures, key=lambda shown_measure: not is_episode_length(schema, shown_measure)
    ):
        if len(drawn) == MOST:
            break
        if (measure_data := _measure(table, schema, shown_measure, groups)) is not None:
            (drawn if measure_data["edges"] else constant_measures).append(measure_data)
    # measures with limits in the schema come first
    drawn.sort(key=lambda measure: measure["band"] is None and not measure["marks"])
    return [*drawn, *constant_measures[: MOST - len(drawn)]]


def _shape(shape: Any) -> str:
    return "" if shape is None else "[" + ", ".join(map(str, shape)) + "]"


def _dtype(table: Table, name: str) -> str:
    """Return the first three dtypes found in rows spread over the dataset."""
    if f"{name}:dtype" not in table.columns:
        return ""
    column = table.columns[f"{name}:dtype"]
    dtypes = sorted(
        {str(word) for word in column.values[:: 1 + len(table) // _DTYPE_ROWS].tolist()} - {""}
    )
    return ", ".join(dtypes[:3]) + (" …" if len(dtypes) > 3 else "")


# --------------------------------------------------------------------------------------- histograms


class _Groups:
    """The group of every row: for each split, fit samples and then unfit ones.

    Args:
        names: of the splits; [""] if there are none or too many to separate.
        rows: int64 (rows): twice the number of the split, plus one for unfit samples.
        reference: the run compared with.
        then: int64 (its rows): the number of the split; -1 if this run does not have it.
    """

    def __init__(self, names: list[str], rows: Array, reference: Table | None, then: Array) -> None:
        self.names, self.rows = names, rows
        self.reference, self.then = reference, then


def _groups(table: Table, unfit: Array, reference: Table | None) -> _Groups:
    present = Texts.of(table.splits).present()
    separate_splits = 2 <= len(present) <= _SPLITS
    places = {name: place if separate_splits else 0 for place, name in enumerate(present)}
    then = np.zeros(0, np.int64) if reference is None else _split_numbers(reference, places)
    return _Groups(
        present if separate_splits else [""],
        2 * _split_numbers(table, places) + unfit,
        reference,
        then,
    )


def _split_numbers(table: Table, places: dict[str, int]) -> Array:
    """Return the index of each row's split; -1 if it has none."""
    splits = Texts.of(table.splits)
    return np.array([places.get(word, -1) for word in splits.words], np.int64)[splits.rows]


def _measure(
    table: Table, schema: Schema, measure: ShownMeasure, groups: _Groups
) -> dict[str, Any] | None:
    column = measured_column(table.columns, measure.column)
    if column is None or not _is_drawn(column, measure):
        return None  # a user's check may have written a column of this name
    values, rows, value_count = _finite_values(column, measure.stat, groups.rows)
    if not len(values) or (measure.stat in {"nonfinite", "zeros", "copies"} and not values.any()):
        return None
    reference_values = _reference_values(measure, groups)
    spec = schema.spec(measure.field)
    is_length = is_episode_length(schema, measure)
    limits = band(schema, measure)
    return {
        "column": measure.column,
        "stat": measure.stat,
        "label": "episode length" if is_length else label(spec, measure.stat),
        "unit": "steps" if is_length else unit(spec, measure.stat),
        "band": limits,
        "units": _counts_in_other_units(
            values, rows, limits, alternative_units(schema, measure), len(groups.names)
        ),
        "n": len(values),
        "marks": [
            mark | {"many": int(np.count_nonzero(values < mark["at"]))}
            for mark in marks(schema, measure)
        ],
        "nonfinite": value_count - len(values),
        **histogram(
            values,
            rows,
            2 * len(groups.names),
            whole=column.values.dtype.kind in "biu",
            then=reference_values,
        ),
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
    outside = (values < low) | (values > high)
    outside_values = values[outside]
    split = rows[outside] // 2
    matching_units = []
    for name, unit_factor in others:
        many = np.bincount(
            split[(outside_values >= low * unit_factor) & (outside_values <= high * unit_factor)],
            minlength=splits,
        )
        if many.any():
            matching_units.append(
                {
                    "unit": name,
                    "band": [low * unit_factor, high * unit_factor],
                    "many": many.tolist(),
                }
            )
    return matching_units


def _is_drawn(column: Measured, measure: ShownMeasure) -> bool:
    return column.values.dtype.kind in "biuf" and (
        column.values.ndim == 1 or measure.stat in VECTORS
    )


def _finite_values(column: Measured, stat: str, rows: Array) -> tuple[Array, Array, int]:
    """Return the finite values of a column, their rows, and the number of all its values."""
    values = _scalar(column.values, stat)
    present = column.present
    present = present & (values < UNKNOWN_LENGTH) if stat == "prompt_bytes" else present
    if not present.all():
        values, rows = values[present], rows[present]
    value_count = len(values)
    if value_count and not (np.isfinite(values.min()) and np.isfinite(values.max())):
        finite = np.isfinite(values)
        values, rows = values[finite], rows[finite]
    return values, rows, value_count


def _reference_values(measure: ShownMeasure, groups: _Groups) -> ReferenceValues | None:
    """Return the reference's values in splits that this run has, too."""
    column = (
        None
        if groups.reference is None
        else measured_column(groups.reference.columns, measure.column)
    )
    if column is None or not _is_drawn(column, measure):
        return None
    values, rows, _ = _finite_values(column, measure.stat, groups.then)
    has_split = rows >= 0
    return (
        ReferenceValues(values[has_split], rows[has_split], len(groups.names))
        if has_split.any()
        else None
    )


def _scalar(values: Array, stat: str) -> Array:
    """Return one number per row, as float64: a vector's lowest, highest or first component."""
    if values.ndim == 2:
        ufunc = {"min": np.minimum, "max": np.maximum}.get(stat)
        scalars = values[:, 0]
        for component in range(1, values.shape[1] if ufunc is not None else 0):
            scalars = np.asarray(ufunc and ufunc(scalars, values[:, component]))
        values = scalars
    if stat in {"shortest", "longest"}:
        return np.round(values.astype(np.float64), _DIGITS)
    return np.ascontiguousarray(values, dtype=np.float64)


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
    low, high, p = _extent(values)
    histogram_data: dict[str, Any] = {
        "low": low,
        "high": high,
        "p": p,
        "log": False,
        "edges": [],
        "counts": [],
    }
    drawn = values if then is None else np.concatenate([values, then.values])
    lowest, highest, percentiles = (low, high, p) if then is None else _extent(drawn)
    if lowest == highest:
        return histogram_data
    edges, log = _edges(drawn, lowest, highest, percentiles, whole=whole)
    if not edges[-1] - edges[0] > _NARROW:
        return histogram_data
    histogram_data |= {"log": log, "edges": edges.tolist()} | _bin_counts(
        values, groups, count, edges, log=log
    )
    if then is not None:
        median = _extent(then.values)[2][1]
        histogram_data["then"] = {"median": median} | _bin_counts(
            then.values, then.splits, then.groups, edges, log=log
        )
    return histogram_data


def _extent(values: Array) -> tuple[float, float, list[float]]:
    """Return the lowest and the highest value, and the percentiles."""
    sample = (
        values
        if len(values) <= SORTED
        else values[np.random.Generator(np.random.PCG64(0)).integers(0, len(values), SORTED)]
    )
    low_index, high_index = (min(len(sample) - 1, int(share * len(sample))) for share in _SHARES)
    lower_middle = (len(sample) - 1) // 2
    upper_middle = len(sample) // 2
    ordered = np.partition(sample, [low_index, lower_middle, upper_middle, high_index]).tolist()
    median = (
        ordered[upper_middle]
        if lower_middle == upper_middle
        else ordered[lower_middle] / 2 + ordered[upper_middle] / 2
    )
    return (
        float(values.min()),
        float(values.max()),
        [ordered[low_index], median, ordered[high_index]],
    )


def _bin_counts(
    values: Array, groups: Array, count: int, edges: Array, *, log: bool
) -> dict[str, Any]:
    """Return ``counts`` by group and bin, and the numbers ``below`` and ``above``."""
    bins = len(edges) - 1
    counts = np.zeros(count * bins, np.int64)
    below = 0
    above = 0
    for start in range(0, len(values), _CHUNK_ROWS):  # fits into the CPU caches: half the time
        part = values[start : start + _CHUNK_ROWS]
        group = groups[start : start + _CHUNK_ROWS]
        under = part < edges[0]
        over = part > edges[-1]
        if under.any() or over.any():
            below, above = below + int(np.count_nonzero(under)), above + int(np.count_nonzero(over))
            within = ~(under | over)
            part, group = part[within], group[within]
        counts += np.bincount(
            group * bins + _bin_numbers(part, edges, log=log), minlength=count * bins
        )
    return {"counts": counts.reshape(count, bins).tolist(), "below": below, "above": above}


def _bin_numbers(values: Array, edges: Array, *, log: bool) -> Array:
    """Return the bin of values within the bins.

    Each bin exactly includes its lower edge; the last one also its upper edge.
    """
    bins = len(edges) - 1
    # the bins are so narrow that rounding errors matter
    if not log and edges[1] - edges[0] < 1e7 * np.spacing(np.abs(edges).max()):
        return _searched_bins(values, edges)
    low, high = (np.log(edges[[0, -1]]) if log else edges[[0, -1]]).tolist()
    positions = ((np.log(values) if log else values) - low) * (bins / (high - low))
    places: Array = positions.astype(np.int64)
    # next to an edge, arithmetic is not exact enough
    near_edges = np.flatnonzero(np.abs(positions - np.rint(positions)) < 1e-6)
    places[near_edges] = _searched_bins(values[near_edges], edges)
    return places


def _searched_bins(values: Array, edges: Array) -> Array:
    return np.asarray(np.minimum(np.searchsorted(edges, values, "right") - 1, len(edges) - 2))


def bins_of(column: Measured, measure: Mapping[str, Any], rows: Array) -> Array:
    """Return each row's bin in a measure's histogram, or `BELOW`, `ABOVE` or `NONFINITE`.

    Returns:
        int64 (rows), -1 for rows without a value.
    """
    part = Measured(column.values[rows], column.present[rows])
    edges = np.array(measure["edges"])
    row_bins = np.where(
        part.present & ~np.isfinite(_scalar(part.values, measure["stat"])), NONFINITE, -1
    )
    values, row_indices, _ = _finite_values(part, measure["stat"], np.arange(len(rows)))
    value_bins = np.where(values < edges[0], BELOW, ABOVE)
    within = (values >= edges[0]) & (values <= edges[-1])
    value_bins[within] = _bin_numbers(values[within], edges, log=measure["log"])
    row_bins[row_indices] = value_bins
    return row_bins


def _edges(
    values: Array, low: float, high: float, p: list[float], *, whole: bool
) -> tuple[Array, bool]:
    """Return the edges of the bins, and whether they are logarithmic."""
    if whole and high - low < BINS:
        return np.arange(low, high + 2) - 0.5, False
    # beyond that, sums overflow
    bottom = max(low, -_WIDE)
    top = min(high, _WIDE)
    if low >= 0 and p[1] > 0:  # some lengths may be zero: they count as below the bins
        least = low or float(values.min(where=values > 0, initial=high))
        least = max(least, top * _LEAST)
        if top / least >= _LOG:
            edges = np.geomspace(least, top, _DRAWN + 1)
            edges[[0, -1]] = least, top
            return edges, True
    span = p[2] - p[0] or abs(p[1]) or 1.0
    return np.linspace(
        max(bottom, p[0] - _FAR * span), min(top, p[2] + _FAR * span), _DRAWN + 1
    ), False


# ------------------------------------------------------------------------------------------ samples


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
    if len(bad) > most:  # take the first row of every combination of codes, then the second, ...
        kinds = failing.rows[bad]
        by_kind = np.argsort(kinds, kind="stable")
        _, starts, sizes = np.unique(kinds[by_kind], return_index=True, return_counts=True)
        turn = np.empty(len(bad), np.int64)
        turn[by_kind] = np.arange(len(bad)) - np.repeat(starts, sizes)
        bad = np.sort(bad[np.lexsort((bad, turn, ranks[bad]))[:most]])
    bad = bad[np.argsort(ranks[bad], kind="stable")]
    good = np.flatnonzero(ranks == 3)
    room = min(most - len(bad), len(good))
    return np.concatenate([bad, good[np.arange(room) * len(good) // max(room, 1)]])
