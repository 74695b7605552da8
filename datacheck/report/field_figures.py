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
    found: dict[str, list[ShownMeasure]] = {}
    names = dict.fromkeys(columns)
    for name in names:
        head, _, stat = name.rpartition(":")
        field = head.removeprefix(":")
        found.setdefault(field, []).extend(
            ShownMeasure(f"{head}:{one}", field, one)
            for one in LABELS
            if _has_columns(one, stat, head, names)
        )
    rank = {stat: place for place, stat in enumerate(LABELS)}
    return {
        f: sorted(some, key=lambda one: (rank[one.stat], one.column))
        for f, some in found.items()
        if some
    }


def _has_columns(one: str, stat: str, head: str, names: Container[str]) -> bool:
    part, _, whole = one.partition("/")
    return part == stat and (not whole or f"{head}:{whole}" in names)


def measured_column(columns: Mapping[str, Measured], name: str) -> Measured | None:
    """Return the column of a `ShownMeasure` name; None if it is missing.

    A ratio has values where the denominator is not 0.
    """
    head, _, stat = name.rpartition(":")
    part, _, whole = stat.partition("/")
    if stat not in LABELS or not whole:
        return columns.get(name)
    few = columns.get(f"{head}:{part}")
    all_ = columns.get(f"{head}:{whole}")
    if few is None or all_ is None or {few.values.dtype.kind, all_.values.dtype.kind} - set("biuf"):
        return None
    if few.values.ndim != 1 or all_.values.ndim != 1:
        return None
    known = few.present & all_.present & (all_.values > 0)
    return Measured(
        np.divide(few.values, all_.values, out=np.zeros(len(known)), where=known, dtype=np.float64),
        known,
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
    wanted: Any = getattr(spec, _BANDS[one.stat]) if one.stat in _BANDS else None
    if one.stat in {"box", "bone"} and (one.stat == "bone") != (spec.role == "joints"):
        wanted = None  # the size of joints is that of their bones
    if schema.episode is not None and is_episode_length(schema, one):
        wanted = schema.episode.length
    return None if wanted is None else [wanted.low, wanted.high]


def _count_limits(
    schema: Schema, spec: FieldSpec, one: ShownMeasure
) -> tuple[float | None, float | None]:
    """Return the limits of counts, quaternion lengths and time steps; None for an open end."""
    least: float | None = None
    most: float | None = None
    if one.stat == "tokens" and schema.tokenizer is not None:
        most = schema.tokenizer.max_length
    elif one.stat == "trained":
        least = spec.min_trained_tokens
    elif one.stat == "dims" and spec.role == "points":
        least = spec.min_points
    elif one.stat == "largest":
        least = dict(loader_steps(schema)).get("min_points")
    elif one.stat in {"shortest", "longest"}:
        off = option(schema, bad_rotation, "off")
        least = 1 - off
        most = 1 + off
    elif one.stat == "step" and schema.episode is not None and schema.episode.fps is not None:
        off = option(schema, fps_mismatch, "tolerance")
        seconds = 1 / schema.episode.fps / factor(spec.unit or "s")
        least, most = (seconds / end if end > 0 else None for end in (1 + off, 1 - off))
    return _finite_end(least), _finite_end(most)


def _finite_end(end: float | None) -> float | None:
    return end if end is not None and math.isfinite(end) else None


def common_schema(schema: Schema) -> Schema:
    """Return the schema without properties that ``when: split=...`` changes.

    Such properties do not hold for all splits together.
    """
    every = variants(schema)
    none = FieldSpec()
    fields = dict(schema.fields)
    for name, spec in schema.fields.items():
        others = [one.spec(name) for one in every[1:]]
        apart = [
            key
            for key in FieldSpec.model_fields
            if any(getattr(o, key) != getattr(spec, key) for o in others)
        ]
        if apart:
            fields[name] = spec.model_copy(
                update={key: getattr(none, key) for key in apart if key != "role"}
            )
    return schema.model_copy(update={"fields": fields})


def option(schema: Schema, of: Rule, name: str) -> float:
    """Return the value of a rule's numeric option."""
    return float(options_of(schema, of)[name])


def alternative_units(schema: Schema, one: ShownMeasure) -> list[tuple[str, float]]:
    """Return (unit, factor) for every other unit of length.

    If a field is stored in that unit, its numbers are those in the declared unit times the factor.
    """
    own = LENGTH.get(schema.spec(one.field).unit or "")
    if own is None or one.stat not in _UNIT_STATS:
        return []
    return [(name, own / other) for name, other in LENGTH.items() if other != own]


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
        known = table.columns[f"{name}:ndim"].present if f"{name}:ndim" in table.columns else None
        drawn = _field_measures(table, schema, measures.get(name, []), groups)
        if spec.absent or (known is None and not drawn and name not in schema.fields):
            continue
        yield {
            "name": name,
            "role": spec.role or "",
            "unit": spec.unit or "",
            "shape": _shape(spec.shape),
            "dtype": _dtype(table, name) or spec.dtype or "",
            "declared": name in schema.fields,
            "present": None if known is None else int(np.count_nonzero(known)),
            "measures": drawn,
        }


def _field_measures(
    table: Table, schema: Schema, measures: Iterable[ShownMeasure], groups: _Groups
) -> list[dict[str, Any]]:
    """Return the first measures that vary, followed by those that do not."""
    drawn: list[dict[str, Any]] = []
    same: list[dict[str, Any]] = []
    for one in sorted(measures, key=lambda one: not is_episode_length(schema, one)):
        if len(drawn) == MOST:
            break
        if (made := _measure(table, schema, one, groups)) is not None:
            (drawn if made["edges"] else same).append(made)
    # measures with limits in the schema come first
    drawn.sort(key=lambda measure: measure["band"] is None and not measure["marks"])
    return [*drawn, *same[: MOST - len(drawn)]]


def _shape(shape: Any) -> str:
    return "" if shape is None else "[" + ", ".join(map(str, shape)) + "]"


def _dtype(table: Table, name: str) -> str:
    """Return the first three dtypes found in rows spread over the dataset."""
    if f"{name}:dtype" not in table.columns:
        return ""
    column = table.columns[f"{name}:dtype"]
    met = sorted(
        {str(word) for word in column.values[:: 1 + len(table) // _DTYPE_ROWS].tolist()} - {""}
    )
    return ", ".join(met[:3]) + (" …" if len(met) > 3 else "")


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
    apart = 2 <= len(present) <= _SPLITS
    places = {name: place if apart else 0 for place, name in enumerate(present)}
    then = np.zeros(0, np.int64) if reference is None else _split_numbers(reference, places)
    return _Groups(
        present if apart else [""], 2 * _split_numbers(table, places) + unfit, reference, then
    )


def _split_numbers(table: Table, places: dict[str, int]) -> Array:
    """Return the index of each row's split; -1 if it has none."""
    splits = Texts.of(table.splits)
    return np.array([places.get(word, -1) for word in splits.words], np.int64)[splits.rows]


def _measure(
    table: Table, schema: Schema, one: ShownMeasure, groups: _Groups
) -> dict[str, Any] | None:
    column = measured_column(table.columns, one.column)
    if column is None or not _is_drawn(column, one):
        return None  # a user's check may have written a column of this name
    values, rows, known = _finite_values(column, one.stat, groups.rows)
    if not len(values) or (one.stat in {"nonfinite", "zeros", "copies"} and not values.any()):
        return None
    then = _reference_values(one, groups)
    spec = schema.spec(one.field)
    whole = is_episode_length(schema, one)
    allowed = band(schema, one)
    return {
        "column": one.column,
        "stat": one.stat,
        "label": "episode length" if whole else label(spec, one.stat),
        "unit": "steps" if whole else unit(spec, one.stat),
        "band": allowed,
        "units": _counts_in_other_units(
            values, rows, allowed, alternative_units(schema, one), len(groups.names)
        ),
        "n": len(values),
        "marks": [
            mark | {"many": int(np.count_nonzero(values < mark["at"]))}
            for mark in marks(schema, one)
        ],
        "nonfinite": known - len(values),
        **histogram(
            values, rows, 2 * len(groups.names), whole=column.values.dtype.kind in "biu", then=then
        ),
        "groups": groups.names,
    }


def _counts_in_other_units(
    values: Array,
    rows: Array,
    allowed: list[float | None] | None,
    others: list[tuple[str, float]],
    splits: int,
) -> list[dict[str, Any]]:
    """Return the units in which values outside the limits would be allowed.

    Each has ``unit``, ``band`` (the limits in that unit), and ``many``, the values by split.
    """
    low, high = allowed or (None, None)
    if low is None or high is None:
        return []
    beside = (values < low) | (values > high)
    found = values[beside]
    split = rows[beside] // 2
    made = []
    for name, by in others:
        many = np.bincount(split[(found >= low * by) & (found <= high * by)], minlength=splits)
        if many.any():
            made.append({"unit": name, "band": [low * by, high * by], "many": many.tolist()})
    return made


def _is_drawn(column: Measured, one: ShownMeasure) -> bool:
    return column.values.dtype.kind in "biuf" and (column.values.ndim == 1 or one.stat in VECTORS)


def _finite_values(column: Measured, stat: str, rows: Array) -> tuple[Array, Array, int]:
    """Return the finite values of a column, their rows, and the number of all its values."""
    values = _scalar(column.values, stat)
    present = column.present
    present = present & (values < UNKNOWN_LENGTH) if stat == "prompt_bytes" else present
    if not present.all():
        values, rows = values[present], rows[present]
    known = len(values)
    if known and not (np.isfinite(values.min()) and np.isfinite(values.max())):
        finite = np.isfinite(values)
        values, rows = values[finite], rows[finite]
    return values, rows, known


def _reference_values(one: ShownMeasure, groups: _Groups) -> ReferenceValues | None:
    """Return the reference's values in splits that this run has, too."""
    column = (
        None if groups.reference is None else measured_column(groups.reference.columns, one.column)
    )
    if column is None or not _is_drawn(column, one):
        return None
    values, rows, _ = _finite_values(column, one.stat, groups.then)
    here = rows >= 0
    return ReferenceValues(values[here], rows[here], len(groups.names)) if here.any() else None


def _scalar(values: Array, stat: str) -> Array:
    """Return one number per row, as float64: a vector's lowest, highest or first component."""
    if values.ndim == 2:
        ufunc = {"min": np.minimum, "max": np.maximum}.get(stat)
        one = values[:, 0]
        for component in range(1, values.shape[1] if ufunc is not None else 0):
            one = np.asarray(ufunc and ufunc(one, values[:, component]))
        values = one
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
    said: dict[str, Any] = {
        "low": low,
        "high": high,
        "p": p,
        "log": False,
        "edges": [],
        "counts": [],
    }
    drawn = values if then is None else np.concatenate([values, then.values])
    first, last, places = (low, high, p) if then is None else _extent(drawn)
    if first == last:
        return said
    edges, log = _edges(drawn, first, last, places, whole=whole)
    if not edges[-1] - edges[0] > _NARROW:
        return said
    said |= {"log": log, "edges": edges.tolist()} | _bin_counts(
        values, groups, count, edges, log=log
    )
    if then is not None:
        median = _extent(then.values)[2][1]
        said["then"] = {"median": median} | _bin_counts(
            then.values, then.splits, then.groups, edges, log=log
        )
    return said


def _extent(values: Array) -> tuple[float, float, list[float]]:
    """Return the lowest and the highest value, and the percentiles."""
    few = (
        values
        if len(values) <= SORTED
        else values[np.random.Generator(np.random.PCG64(0)).integers(0, len(values), SORTED)]
    )
    first, last = (min(len(few) - 1, int(share * len(few))) for share in _SHARES)
    before = (len(few) - 1) // 2
    behind = len(few) // 2
    ordered = np.partition(few, [first, before, behind, last]).tolist()
    median = ordered[behind] if before == behind else ordered[before] / 2 + ordered[behind] / 2
    return float(values.min()), float(values.max()), [ordered[first], median, ordered[last]]


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
    first, last = (np.log(edges[[0, -1]]) if log else edges[[0, -1]]).tolist()
    at = ((np.log(values) if log else values) - first) * (bins / (last - first))
    places: Array = at.astype(np.int64)
    # next to an edge, arithmetic is not exact enough
    beside = np.flatnonzero(np.abs(at - np.rint(at)) < 1e-6)
    places[beside] = _searched_bins(values[beside], edges)
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
    found = np.where(
        part.present & ~np.isfinite(_scalar(part.values, measure["stat"])), NONFINITE, -1
    )
    values, at, _ = _finite_values(part, measure["stat"], np.arange(len(rows)))
    beside = np.where(values < edges[0], BELOW, ABOVE)
    within = (values >= edges[0]) & (values <= edges[-1])
    beside[within] = _bin_numbers(values[within], edges, log=measure["log"])
    found[at] = beside
    return found


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
