"""The page's drawings of a field besides histograms: each a kind, a title and a few numbers.

The drawn shapes come from a fixed random sample of at most 50,000 fit and 50,000 unfit samples.
Counts and lowest and highest values come from all samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.table import Measured, Table
from datacheck.preview.drawings import names_of
from datacheck.report.bar_charts import bar_charts
from datacheck.report.shown_measures import option
from datacheck.rules.families.joints import bone_length
from datacheck.rules.families.motion import LAGS
from datacheck.rules.skeletons import skeleton_of
from datacheck.schema.grammar import SPATIAL_ROLES, factor
from datacheck.schema.model import ANY, FieldSpec, Schema

Array = np.ndarray[Any, Any]
Plot = dict[str, Any]

MOST_DRAWN = 50_000  # rows of fit samples, and of unfit ones
_CHUNK_ROWS = 32_768
_RIDGE = 40  # bins of a component
_GRID = 32  # cells of a plane along an axis
_MAX_COMPONENTS = 16  # components that are measured separately
_MAX_SHARED_RATIO = 12.0  # widest over narrowest component for which they share an axis
_NEAR = 4.0  # times the spread: up to this width, a drawing includes the origin and unfit samples
_TYPICAL_QUANTILES = (0.02, 0.98)  # the typical range
_MIN_TYPICAL_SAMPLES = 8  # samples needed for a typical range
_CENTRE_TOLERANCE = 0.05  # allowed offset of a centre, as a share of the size (DC301)
_WIDE = 1e300
_NARROW = 1e-290


class DrawnRows(NamedTuple):
    """The drawn rows, ascending, and the mask of unfit samples.

    Args:
        fit, unfit, alike: rows of fit samples, of unfit ones, and of all.
        mask: bool (all rows): unfit.
    """

    fit: Array
    unfit: Array
    alike: Array
    mask: Array

    def row_values(self, column: Measured) -> tuple[Array, Array]:
        """Return a column's drawn rows, of fit and of unfit samples.

        Shapes:
            returns: float64 (rows, components), NaN where not finite
        """
        return _rows(column, self.fit), _rows(column, self.unfit)

    def complete_rows(self, column: Measured) -> tuple[Array, Array]:
        """Return the drawn rows whose values are all finite."""
        fit, unfit = self.row_values(column)
        return _complete_rows(fit), _complete_rows(unfit)

    def complete_counts(self, column: Measured) -> list[int]:
        """Return the numbers of rows with only finite values, drawn or not: fit, and unfit."""
        complete = _is_complete(column)
        return [
            int(np.count_nonzero(complete & ~self.mask)),
            int(np.count_nonzero(complete & self.mask)),
        ]

    def median(self, column: Measured) -> Array:
        """Return the median of each component over all samples; not finite if there is none."""
        rows = _complete_rows(_rows(column, self.alike))
        if not len(rows):
            return np.full(column.values.shape[1:] or 1, np.nan)
        return np.asarray(np.median(rows, axis=0))


def _rows(column: Measured, rows: Array) -> Array:
    rows = rows[column.present[rows]]
    values = np.asarray(column.values[rows], np.float64)
    if values.ndim == 1:
        values = values[:, None]
    # Clipped, so that differences stay finite.
    return np.where(np.isfinite(values), np.clip(values, -_WIDE, _WIDE), np.nan)


def _complete_rows(values: Array) -> Array:
    return values[~np.isnan(values).any(axis=1)]


def _is_complete(column: Measured) -> Array:
    """Return bool (rows): the row has a value, and all of it is finite."""
    return np.asarray(column.present & np.isfinite(column.values).all(axis=1))


def _drawn_rows(unfit: Array) -> DrawnRows:
    return DrawnRows(
        fit=_subsample(np.flatnonzero(~unfit)),
        unfit=_subsample(np.flatnonzero(unfit)),
        alike=_subsample(np.arange(len(unfit))),
        mask=unfit,
    )


def _subsample(rows: Array) -> Array:
    if len(rows) <= MOST_DRAWN:
        return rows
    generator = np.random.Generator(np.random.PCG64(0))
    return np.sort(rows[generator.integers(0, len(rows), MOST_DRAWN)])


def plots(table: Table, schema: Schema, unfit: Array) -> Iterator[Plot]:
    """Yield the drawings of each field, most informative first: ``field``, ``kind``, ``title``, ...

    Args:
        table: rows; each column is read when needed, then released.
        schema: the schema in force.
        unfit: bool (rows): samples that are not fit for training.

    Notes:
        Kinds: ``lags``, ``ridges``, ``centroids``, ``boxes``, ``bars``, ``approach``;
        `page/plots.js` draws them.
    """
    drawn = _drawn_rows(unfit)
    others = sorted(schema.fields.keys() - {ANY})
    for name in dict.fromkeys([*sorted(schema.stored), *others, *_unlisted(table, schema)]):
        spec = schema.spec(name)
        if spec.absent:
            continue
        field_plots = (
            _lags(table, name, spec),
            _ridges(table, name, schema, drawn),
            _centroids(table, name, spec, drawn),
            _bones(table, name, schema, drawn),
            *bar_charts(table, name, schema, unfit),
        )
        for plot in field_plots:
            if plot is not None:
                yield {"field": name} | plot


def _unlisted(table: Table, schema: Schema) -> list[str]:
    """Return the measured fields that the schema does not list, then "" for whole samples."""
    measured_fields = {name.rpartition(":")[0] for name in table.columns if name.endswith(":min")}
    return [*sorted(measured_fields - schema.fields.keys()), ""]


def _numeric(table: Table, name: str, width: int = 0) -> Measured | None:
    """Return a numeric column with `width` components per row (0: any); None if there is none."""
    column = table.columns.get(name)
    if column is None or column.values.dtype.kind not in "biuf" or column.values.ndim != 2:
        return None
    has_width = width in {0, column.values.shape[1]}
    return column if has_width and len(column.values) else None


# ----------------------------------------------------------------------------------------- episodes


def _lags(table: Table, name: str, spec: FieldSpec) -> Plot | None:
    """Return the correlation of a command with the change of the state it drives, by lag (DC507).

    Quartiles over the episodes.
    """
    readings: dict[str, _LagReading] = {}
    for kind in ("delta", "absolute"):
        reading = _lag_reading(table, f":{name}:{kind}", spec)
        if reading is not None:
            readings[kind] = reading
    if not readings:
        return None
    best = max(readings, key=lambda kind: readings[kind].peak)
    others = [reading.peak for kind, reading in readings.items() if kind != best]
    return {
        "kind": "lags",
        "title": f"How {spec.drives} follows {name}",
        "lags": list(LAGS),
        "n": readings[best].episodes,
        "quartiles": _short(readings[best].quartiles),
        "expected": [0, 1] if spec.lag is None else [spec.lag],
        "declared": spec.lag is not None,
        "reading": best,
        "other": _short(others[0]) if others else None,
    }


class _LagReading(NamedTuple):
    """The correlations of a command, read as a change or as a target, with the state.

    Args:
        quartiles: float64 (3, lags), over the episodes.
        episodes: number of episodes.
    """

    quartiles: Array
    episodes: int

    @property
    def peak(self) -> float:
        """The highest median."""
        return float(self.quartiles[1].max())


def _lag_reading(table: Table, column_name: str, spec: FieldSpec) -> _LagReading | None:
    column = _numeric(table, column_name, len(LAGS))
    if column is None:
        return None
    episodes = np.flatnonzero(_is_complete(column))
    if not len(episodes):
        return None
    quartiles = np.quantile(_rows(column, _subsample(episodes)), [0.25, 0.5, 0.75], axis=0)
    if spec.role == "gripper":  # its sign convention is not the question here
        falls = quartiles[1] < 0
        quartiles[:, falls] = -quartiles[::-1, falls]
    return _LagReading(quartiles, len(episodes))


def _short(values: Any) -> Any:
    """Return numbers with five significant digits, as lists."""
    if values is None:
        return None
    return [_short(item) for item in values] if np.ndim(values) else float(f"{float(values):.5g}")


# --------------------------------------------------------------------------------------- components


def _ridges(table: Table, name: str, schema: Schema, drawn: DrawnRows) -> Plot | None:
    """Return the distributions of each component's lowest and highest value, over all samples."""
    low = _numeric(table, f"{name}:min")
    high = None if low is None else _numeric(table, f"{name}:max", low.values.shape[1])
    if low is None or high is None or not 2 <= low.values.shape[1] <= _MAX_COMPONENTS:
        return None
    fit_low, unfit_low = drawn.row_values(low)
    fit_high, unfit_high = drawn.row_values(high)
    parts = [fit_low, unfit_low, fit_high, unfit_high]
    rows = _component_rows(table, name, schema, low, high, parts)
    if all(row["low"] is None for row in rows):
        return None
    shared = _share_axis([row for row in rows if row["edges"]])
    # Samples of one step have equal lowest and highest values: one distribution shows both.
    several = not (
        np.array_equal(fit_low, fit_high, equal_nan=True)
        and np.array_equal(unfit_low, unfit_high, equal_nan=True)
    )
    counted_parts = parts if several else parts[:2]
    outside = _outside_counts(low, high, rows)
    for n, row in enumerate(rows):
        if row["edges"]:
            row["counts"] = [_counted(part[:, n], *row["edges"]) for part in counted_parts]
            row["outside"] = outside[n]
    return {
        "kind": "ridges",
        "title": f"Each component: where its {'lowest and highest ' if several else ''}values lie",
        "unit": schema.spec(name).unit or "",
        "shared": shared,
        "several": several,
        "rows": rows,
    }


def _component_rows(
    table: Table, name: str, schema: Schema, low: Measured, high: Measured, parts: list[Array]
) -> list[Plot]:
    """Return the name, the ends, the limits and the drawn range of each component."""
    width = low.values.shape[1]
    names = _names(schema, name, width)
    bands = _bands(table, name, schema.spec(name), width)
    rows: list[Plot] = []
    for n, (lowest, highest) in enumerate(
        zip(_ends(low, np.fmin), _ends(high, np.fmax), strict=True)
    ):
        row: Plot = {
            "name": names[n],
            "low": lowest,
            "high": highest,
            "band": bands[n],
            "edges": None,
        }
        if lowest is not None and highest is not None and highest - lowest > _NARROW:
            typical = _typical_values([part[:, n] for part in parts])
            first, last = _drawn_range(typical, lowest, highest, bands[n])
            # None if all values lie outside of the drawn range
            row["edges"] = [first, last] if last - first > _NARROW else None
        rows.append(row)
    return rows


def _names(schema: Schema, name: str, width: int) -> list[str]:
    spec = schema.spec(name)
    names = list(names_of(schema, name))
    if not names and spec.role == "quaternion":
        names = list(spec.order or "")
    elif not names and spec.role == "color":
        names = list("rgba")
    elif not names and spec.role in SPATIAL_ROLES | {"normal"} and width == 3:
        names = list("xyz")
    numbers = [str(number) for number in range(len(names), width)]
    return [*names[:width], *numbers]


def _ends(column: Measured, ufunc: np.ufunc) -> list[float | None]:
    """Return the lowest or the highest finite value of each component; None if it has none."""
    values = column.values if column.present.all() else column.values[column.present]
    extremes = ufunc.reduce(values, axis=0, initial=np.nan, dtype=np.float64)
    if not np.isfinite(extremes).all():
        extremes = ufunc.reduce(
            np.where(np.isfinite(values), values, np.nan), axis=0, initial=np.nan
        )
    return [float(value) if np.isfinite(value) else None for value in extremes]


def _bands(table: Table, name: str, spec: FieldSpec, width: int) -> list[list[float | None] | None]:
    """Return each component's limits.

    These are the robot's, in the best-fitting joint order, or else the field's range.
    """
    robot = spec.robot
    if robot is None or robot.size != width:
        return [None if spec.range is None else [spec.range.low, spec.range.high]] * width
    orders = list(robot.columns.values())
    outside = _numeric(table, f"{name}:outside")
    order = 0
    if outside is not None and not outside.values.shape[1] % len(orders):
        steps = outside.values[outside.present].sum(axis=0)
        order = int(np.argmin(steps.reshape(len(orders), -1).sum(axis=1)))
    unit_factor = factor(spec.unit or "rad")
    return [
        [end / unit_factor if math.isfinite(end) else None for end in robot.limits[joint]]
        for joint in orders[order]
    ]


def _drawn_range(
    values: Array, low: float, high: float, band: list[float | None] | None
) -> list[float]:
    """Return the drawn range of a component: without a few far values, with nearby limits."""
    if not len(values):  # the drawn rows have no finite value
        return [max(low, -_WIDE), min(high, _WIDE)]
    a, b = (float(quantile) for quantile in np.quantile(values, _TYPICAL_QUANTILES))
    room = max((b - a) or abs(a) or 1.0, 2 * _NARROW)
    near = [end for end in band or () if end is not None and a - 2 * room <= end <= b + 2 * room]
    return [
        max(-_WIDE, min(max(low, a - room), *near, b)),
        min(_WIDE, max(min(high, b + room), *near, a)),
    ]


def _typical_values(parts: list[Array]) -> Array:
    """Return the finite values of fit samples (every other part), or of all if too few."""
    fit = np.concatenate(parts[::2])
    values: Array = fit if len(fit) >= _MIN_TYPICAL_SAMPLES else np.concatenate(parts)
    return np.asarray(values[~np.isnan(values)])


def _share_axis(rows: list[Plot]) -> bool:
    """Give all components one axis if their ranges are similar; return whether they are."""
    wide = [row["edges"][1] - row["edges"][0] for row in rows]
    edges = [
        min((row["edges"][0] for row in rows), default=0.0),
        max((row["edges"][1] for row in rows), default=0.0),
    ]
    if rows and (max(wide) > _MAX_SHARED_RATIO * min(wide) or edges[1] - edges[0] > 2 * max(wide)):
        return False
    for row in rows:
        row["edges"] = edges
    return True


def _counted(values: Array, low: float, high: float) -> list[int]:
    within = values[(values >= low) & (values <= high)]
    bins = ((within - low) * (_RIDGE / (high - low))).astype(np.int64)
    bin_counts: list[int] = np.bincount(np.minimum(bins, _RIDGE - 1), minlength=_RIDGE).tolist()
    return bin_counts


def _outside_counts(low: Measured, high: Measured, rows: list[Plot]) -> list[int]:
    """Return, per component, the number of samples with values outside the drawn range."""
    edges = np.array([row["edges"] or [-np.inf, np.inf] for row in rows])
    outside_counts = np.zeros(len(rows), np.int64)
    if all(
        row["edges"] is None or row["edges"][0] <= row["low"] <= row["high"] <= row["edges"][1]
        for row in rows
    ):
        return outside_counts.tolist()
    for start in range(0, len(low.values), _CHUNK_ROWS):  # chunks that fit into the CPU caches
        part = slice(start, start + _CHUNK_ROWS)
        out = (low.values[part] < edges[:, 0]) & low.present[part, None]
        out |= (high.values[part] > edges[:, 1]) & high.present[part, None]
        outside_counts += np.count_nonzero(out, axis=0)
    return outside_counts.tolist()


# --------------------------------------------------------------------------------- where things lie


def _centroids(table: Table, name: str, spec: FieldSpec, drawn: DrawnRows) -> Plot | None:
    """Return the numbers of centroids in each cell of a grid, in the planes x-y and x-z."""
    column = _numeric(table, f"{name}:centroid", 3)
    sizes = table.columns.get(f"{name}:box")
    if column is None:
        return None
    fit, unfit = drawn.complete_rows(column)
    every = np.concatenate([fit, unfit])
    if len(every) < 2:
        return None
    half = _half_size(sizes, drawn)
    usual = fit if len(fit) >= _MIN_TYPICAL_SAMPLES else every
    low, high, has_origin = _drawn_cube(usual, unfit, half)
    within = [part[((part >= low) & (part <= high)).all(axis=1)] for part in (fit, unfit)]
    planes = [
        {"axes": axes, "counts": [_cells(part[:, axes], low[axes], high[axes]) for part in within]}
        for axes in ([0, 1], [0, 2])
    ]
    return {
        "kind": "centroids",
        "title": "Where the centroids lie",
        "unit": spec.unit or "",
        "cells": _GRID,
        "low": low.tolist(),
        "high": high.tolist(),
        "origin": has_origin,
        "half": _short(half),
        "planes": planes,
        "median": _short(drawn.median(column)),
        "of": drawn.complete_counts(column),
        "drawn": [len(fit), len(unfit)],
        "outside": _count_outside(column, low, high),
        "centered": spec.centered or "",
    }


def _half_size(sizes: Measured | None, drawn: DrawnRows) -> float:
    """Return half the median size of the boxes; 0 if it was not measured."""
    if sizes is None or sizes.values.dtype.kind != "f" or sizes.values.ndim != 1:
        return 0.0
    return float(np.nan_to_num(drawn.median(sizes)[0])) / 2


def _drawn_cube(usual: Array, others: Array, half: float) -> tuple[Array, Array, bool]:
    """Return a cube around the typical range, and whether it contains the origin.

    Notes:
        It includes the origin and the other samples if they are near. It is at least as large as
        the tolerance of a centre: otherwise rounding errors would look like a spread of places.
    """
    ends: Array = np.quantile(usual, _TYPICAL_QUANTILES, axis=0)
    widest = max(float((ends[1] - ends[0]).max()), 2 * _CENTRE_TOLERANCE * half)
    largest = float(np.abs(ends).max())
    width = widest or largest or 1.0
    for points in (np.zeros((1, 3)), others):
        if not len(points):
            continue
        with_points = np.concatenate([ends, np.quantile(points, _TYPICAL_QUANTILES, axis=0)])
        low = with_points.min(axis=0)
        high = with_points.max(axis=0)
        if float((high - low).max()) <= _NEAR * width:
            ends = np.stack([low, high])
    drawn_width = float((ends[1] - ends[0]).max())
    # A tenth of the width is free on each side.
    half_edge = 0.6 * max(drawn_width, width, 1e-9 * float(np.abs(ends).max()), _NARROW)
    middle = ends.sum(axis=0) / 2
    has_origin = bool((np.abs(middle) < half_edge).all())
    return middle - half_edge, middle + half_edge, has_origin


def _count_outside(column: Measured, low: Array, high: Array) -> int:
    """Return the number of finite rows outside a cube."""
    count = 0
    for start in range(0, len(column.values), _CHUNK_ROWS):
        chunk = slice(start, start + _CHUNK_ROWS)
        part = Measured(column.values[chunk], column.present[chunk])
        is_inside = ((part.values >= low) & (part.values <= high)).all(axis=1)
        count += int(np.count_nonzero(_is_complete(part) & ~is_inside))
    return count


def _cells(values: Array, low: Array, high: Array) -> list[int]:
    """Return the non-empty cells and their counts, alternating."""
    places = np.minimum(((values - low) * (_GRID / (high - low))).astype(np.int64), _GRID - 1)
    cells, many = np.unique(places[:, 1] * _GRID + places[:, 0], return_counts=True)
    return np.stack([cells, many], axis=1).reshape(-1).tolist()


_BONE_QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


def _bones(table: Table, name: str, schema: Schema, drawn: DrawnRows) -> Plot | None:
    """Return the distribution of each bone's length, with limits around an average hand (DC601)."""
    spec = schema.spec(name)
    skeleton = skeleton_of(spec)
    column = None if skeleton is None else _numeric(table, f"{name}:pairs", len(skeleton.pairs))
    if skeleton is None or column is None:
        return None
    fit, unfit = (part[:, : len(skeleton.bones)] for part in drawn.complete_rows(column))
    usual = fit if len(fit) else unfit
    if not len(usual):
        return None
    quantiles = _short(np.quantile(usual, _BONE_QUANTILES, axis=0).T)
    unfit_medians = [None] * len(quantiles)
    if len(fit) and len(unfit):
        unfit_medians = _short(np.median(unfit, axis=0))
    unit_factor = factor(spec.unit or "m")
    tolerance = option(schema, bone_length, "band")
    rows = []
    for bone, length, p, unfit_median in zip(
        skeleton.bone_names, skeleton.table, quantiles, unfit_medians, strict=True
    ):
        band = None
        if tolerance > 0:
            band = _short([length / tolerance / unit_factor, length * tolerance / unit_factor])
        rows.append({"name": bone, "p": p, "band": band, "unfit": unfit_median})
    return {
        "kind": "boxes",
        "title": "Length of each bone",
        "unit": spec.unit or "",
        "of": drawn.complete_counts(column),
        "rows": rows,
    }
