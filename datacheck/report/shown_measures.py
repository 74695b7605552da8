"""The measures that the page shows of a field: their columns, labels, units and limits.

A measure is one statistic of a field, from one column of the run's table or the ratio of two.
`STATISTICS` lists those that the page knows; a rule or a check of the user may have others.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from datacheck.model.table import Measured
from datacheck.rules.base import Rule
from datacheck.rules.families.episodes import fps_mismatch
from datacheck.rules.families.rotations import bad_rotation
from datacheck.rules.families.tokens import UNKNOWN_LENGTH
from datacheck.rules.label_counts import loader_steps
from datacheck.rules.selection import options_of, variants
from datacheck.rules.series import time_field
from datacheck.schema.grammar import LENGTH, Range, factor
from datacheck.schema.model import FieldSpec, Schema, WindowsSpec

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Statistic:
    """A statistic of a field as the page names it."""

    label: str
    unit: Literal["", "of the field", "B"] = ""


# Most informative first: the table of fields draws the first one that varies. A name with a slash
# is the ratio of two columns.
STATISTICS = {
    "box": Statistic("size (diagonal)", unit="of the field"),
    "bone": Statistic("median bone", unit="of the field"),
    "near": Statistic("distance", unit="of the field"),
    "norm": Statistic("length", unit="of the field"),
    "spacing": Statistic("distance to the nearest point (median)", unit="of the field"),
    "p99": Statistic("99th percentile of |x|", unit="of the field"),
    "tokens": Statistic("tokens"),
    "trained": Statistic("supervised tokens"),
    "trained/tokens": Statistic("share of supervised tokens"),
    "ignored/count": Statistic("share ignored"),
    "step": Statistic("time step (median)", unit="of the field"),
    "min": Statistic("lowest value", unit="of the field"),
    "max": Statistic("highest value", unit="of the field"),
    "angle": Statistic("angle"),
    "dims": Statistic("length (first axis)"),
    "steps": Statistic("steps"),
    "reach": Statistic("reach", unit="of the field"),
    "shortest": Statistic("shortest quaternion"),
    "longest": Statistic("longest quaternion"),
    "largest": Statistic("points of the largest instance"),
    "objects": Statistic("objects"),
    "front": Statistic("share in front"),
    "copies": Statistic("repeated points"),
    "flatness": Statistic("flatness"),
    "lowest": Statistic("lowest", unit="of the field"),
    "highest": Statistic("highest", unit="of the field"),
    "peak": Statistic("largest |x|", unit="of the field"),
    "leap": Statistic("largest step", unit="of the field"),
    "prompt_bytes": Statistic("bytes before the first answer", unit="B"),
    "answers": Statistic("answers"),
    "same": Statistic("share of commands as the one before"),
    "noop": Statistic("share of commands that ask for nothing"),
    "nonfinite": Statistic("NaN or infinite values"),
    "zeros": Statistic("rows of zeros"),
    "bytes": Statistic("bytes", unit="B"),
}
VECTORS = frozenset({"min", "max", "dims"})  # shown as the lowest, highest and first component
_LENGTHS = frozenset({"box", "bone", "near", "norm"})  # they reveal a wrong unit


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
    names = dict.fromkeys(columns)
    by_field: dict[str, list[ShownMeasure]] = {}
    for name in names:
        head, _, column_stat = name.rpartition(":")
        field = head.removeprefix(":")
        for stat in STATISTICS:
            if _has_columns(stat, column_stat, head, names):
                measure = ShownMeasure(f"{head}:{stat}", field, stat)
                by_field.setdefault(field, []).append(measure)
    rank = {stat: place for place, stat in enumerate(STATISTICS)}
    return {
        field: sorted(measures, key=lambda measure: (rank[measure.stat], measure.column))
        for field, measures in by_field.items()
    }


def _has_columns(stat: str, column_stat: str, head: str, names: Container[str]) -> bool:
    """Return whether a statistic comes from a column, or begins with it and has the other one."""
    numerator, _, denominator = stat.partition("/")
    return numerator == column_stat and (not denominator or f"{head}:{denominator}" in names)


# ------------------------------------------------------------------------------------------- values


def measured_column(columns: Mapping[str, Measured], name: str) -> Measured | None:
    """Return the column of a `ShownMeasure` name; None if it is missing.

    A ratio has values where the denominator is not 0.
    """
    head, _, stat = name.rpartition(":")
    numerator, _, denominator = stat.partition("/")
    if stat not in STATISTICS or not denominator:
        return columns.get(name)
    dividend = columns.get(f"{head}:{numerator}")
    divisor = columns.get(f"{head}:{denominator}")
    if dividend is None or divisor is None:
        return None
    if not (_is_scalar(dividend) and _is_scalar(divisor)):
        return None
    has_ratio = dividend.present & divisor.present & (divisor.values > 0)
    ratio = np.divide(
        dividend.values,
        divisor.values,
        out=np.zeros(len(has_ratio)),
        where=has_ratio,
        dtype=np.float64,
    )
    return Measured(ratio, has_ratio)


def _is_numeric(column: Measured) -> bool:
    return column.values.dtype.kind in "biuf"


def _is_scalar(column: Measured) -> bool:
    return _is_numeric(column) and column.values.ndim == 1


def has_histogram(column: Measured, measure: ShownMeasure) -> bool:
    """Return whether the values of a column are of the form that the statistic has.

    A check of the user may have written a column of the same name.
    """
    return _is_numeric(column) and (column.values.ndim == 1 or measure.stat in VECTORS)


class FiniteValues(NamedTuple):
    """The finite values of a column.

    Args:
        values: float64 (values).
        rows: int64 (values): the row, or the group of the row, of each.
        measured: number of all values, finite or not.
    """

    values: Array
    rows: Array
    measured: int


def finite_values(column: Measured, stat: str, rows: Array) -> FiniteValues:
    """Return the finite values of a statistic.

    Args:
        column: of the statistic.
        stat: its name.
        rows: int64 (rows): a number for each row, which the values keep.
    """
    values = scalars(column.values, stat)
    present = column.present
    if stat == "prompt_bytes":
        present = present & (values < UNKNOWN_LENGTH)
    if not present.all():
        values, rows = values[present], rows[present]
    measured = len(values)
    if measured and not (np.isfinite(values.min()) and np.isfinite(values.max())):
        finite = np.isfinite(values)
        values, rows = values[finite], rows[finite]
    return FiniteValues(values, rows, measured)


_DIGITS = 5  # of a length that should be 1: rounding errors are not a distribution


def scalars(values: Array, stat: str) -> Array:
    """Return one number per row, as float64: a vector's lowest, highest or first component."""
    if values.ndim == 2:
        values = _component(values, stat)
    if stat in {"shortest", "longest"}:
        return np.round(values.astype(np.float64), _DIGITS)
    return np.ascontiguousarray(values, dtype=np.float64)


def _component(vectors: Array, stat: str) -> Array:
    component: Array = vectors[:, 0]
    if stat not in {"min", "max"}:
        return component
    extreme = np.minimum if stat == "min" else np.maximum
    # Column by column: many times faster than a reduction along the short axis.
    for number in range(1, vectors.shape[1]):
        component = extreme(component, vectors[:, number])
    return component


# --------------------------------------------------------------------------- labels, units, limits


def label(spec: FieldSpec, stat: str) -> str:
    """Return the label of a measure."""
    return "points" if stat == "dims" and spec.role == "points" else STATISTICS[stat].label


def unit(spec: FieldSpec, stat: str) -> str:
    """Return the unit of a measure; "" if it has none."""
    own = STATISTICS[stat].unit
    return spec.unit or "" if own == "of the field" else own


def is_episode_length(schema: Schema, measure: ShownMeasure) -> bool:
    """Return whether a measure is the length of an episode, as DC501 counts it."""
    declared = schema.windows is not None or schema.episode is not None
    return declared and measure.stat == "dims" and measure.field == time_field(schema)


def band(schema: Schema, measure: ShownMeasure) -> list[float | None] | None:
    """Return the lowest and the highest value that the schema allows; an open end is None."""
    spec = schema.spec(measure.field)
    least, most = _count_limits(schema, spec, measure)
    if least is not None or most is not None:
        return [least, most]
    bounds = _declared_bounds(spec, measure.stat)
    if schema.episode is not None and is_episode_length(schema, measure):
        bounds = schema.episode.length
    return None if bounds is None else [bounds.low, bounds.high]


def _declared_bounds(spec: FieldSpec, stat: str) -> Range | None:
    """Return the bounds that a field's declaration gives to a statistic."""
    is_joints = spec.role == "joints"
    match stat:
        case "box":
            return None if is_joints else spec.size
        case "bone":  # the size of joints is that of their bones
            return spec.size if is_joints else None
        case "near":
            return spec.distance
        case "min" | "max":
            return spec.range
        case "lowest":
            return spec.rests
        case _:
            return None


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
        step = 1 / schema.episode.fps / factor(spec.unit or "s")
        least = _quotient(step, 1 + tolerance)
        most = _quotient(step, 1 - tolerance)
    return _finite_end(least), _finite_end(most)


def _quotient(dividend: float, divisor: float) -> float | None:
    return dividend / divisor if divisor > 0 else None


def _finite_end(end: float | None) -> float | None:
    return end if end is not None and math.isfinite(end) else None


def common_schema(schema: Schema) -> Schema:
    """Return the schema without properties that ``when: split=...`` changes.

    Such properties do not hold for all splits together.
    """
    of_splits = variants(schema)[1:]
    undeclared = FieldSpec()
    fields = dict(schema.fields)
    for name, spec in schema.fields.items():
        others = [variant.spec(name) for variant in of_splits]
        differing_keys = [
            key
            for key in FieldSpec.model_fields
            if any(getattr(other, key) != getattr(spec, key) for other in others)
        ]
        if differing_keys:
            reset = {key: getattr(undeclared, key) for key in differing_keys if key != "role"}
            fields[name] = spec.model_copy(update=reset)
    return schema.model_copy(update={"fields": fields})


def option(schema: Schema, rule: Rule, name: str) -> float:
    """Return the value of a rule's numeric option."""
    return float(options_of(schema, rule)[name])


def alternative_units(schema: Schema, measure: ShownMeasure) -> list[tuple[str, float]]:
    """Return (unit, factor) for every other unit of length.

    If a field is stored in that unit, its numbers are those in the declared unit times the factor.
    """
    own_factor = LENGTH.get(schema.spec(measure.field).unit or "")
    if own_factor is None or measure.stat not in _LENGTHS:
        return []
    return [
        (name, own_factor / other_factor)
        for name, other_factor in LENGTH.items()
        if other_factor != own_factor
    ]


def marks(schema: Schema, measure: ShownMeasure) -> list[dict[str, Any]]:
    """Return lines to draw in a histogram.

    Each has a position ``at``, its ``name``, the word ``less`` for samples below it, and what
    becomes of them, ``below``.

    Notes:
        Between integers, the position lies halfway.
    """
    windows = schema.windows
    if windows is not None and is_episode_length(schema, measure):
        return [
            {
                "at": windows.length - 0.5,
                "name": f"window {windows.length:,}",
                "less": "shorter",
                "below": _fate_of_short_episodes(windows),
            }
        ]
    edge = dict(loader_steps(schema)).get("voxel")
    if edge is not None and measure.stat == "spacing" and measure.field == _first_points(schema):
        return [{"at": edge, "name": f"voxel {edge:g}", "less": "denser", "below": "thinned"}]
    return []


def _fate_of_short_episodes(windows: WindowsSpec) -> str:
    if windows.pad != "none" or windows.short == "pad":
        return "padded"
    return "an error in the loader" if windows.short == "raise" else "without a window"


def _first_points(schema: Schema) -> str:
    """Return the field of points that a loader's voxel grid thins: the first one."""
    for name, *_ in schema.of_role("points"):
        return name
    return ""
