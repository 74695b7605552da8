"""The page's drawings of a field besides histograms: each a kind, a title and a few numbers.

The drawn shapes come from a fixed random sample of at most 50,000 fit and 50,000 unfit samples.
Counts and lowest and highest values come from all samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.table import Measured, Table
from datacheck.preview.drawings import names_of
from datacheck.report.bar_charts import bar_charts
from datacheck.report.shown_measures import option
from datacheck.rules.families.joints import bone_length
from datacheck.rules.families.motion import LAGS
from datacheck.rules.skeletons import ROBOTS, skeleton_of
from datacheck.schema.grammar import SPATIAL_ROLES, factor
from datacheck.schema.model import ANY, FieldSpec, Schema

Array = np.ndarray[Any, Any]
Plot = dict[str, Any]

MOST_DRAWN = 50_000  # rows of fit samples, and of unfit ones
_CHUNK_ROWS = 32_768
_RIDGE = 40  # bins of a component
_GRID = 32  # cells along an axis
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
        return (
            np.median(rows, axis=0) if len(rows) else np.full(column.values.shape[1:] or 1, np.nan)
        )


def _rows(column: Measured, rows: Array) -> Array:
    rows = rows[column.present[rows]]
    values = np.asarray(column.values[rows], np.float64)
    values = values[:, None] if values.ndim == 1 else values
    # clipped, so that differences stay finite
    return np.where(np.isfinite(values), np.clip(values, -_WIDE, _WIDE), np.nan)


def _complete_rows(values: Array) -> Array:
    return values[~np.isnan(values).any(axis=1)]


def _is_complete(column: Measured) -> Array:
    """Return bool (rows): the row has a value, and all of it is finite."""
    return np.asarray(column.present & np.isfinite(column.values).all(axis=1))


def _drawn_rows(unfit: Array) -> DrawnRows:
    fit, others, all_rows = (
        _subsample(np.flatnonzero(mask)) for mask in (~unfit, unfit, unfit | True)
    )
    return DrawnRows(fit, others, all_rows, unfit)


def _subsample(rows: Array) -> Array:
    if len(rows) <= MOST_DRAWN:
        return rows
    return np.sort(rows[np.random.Generator(np.random.PCG64(0)).integers(0, len(rows), MOST_DRAWN)])


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
    for name in [
        *dict.fromkeys([*sorted(schema.stored), *sorted({*schema.fields} - {ANY})]),
        *_unlisted(table, schema),
    ]:
        spec = schema.spec(name)
        if not spec.absent:
            field_plots = (
                _lags(table, name, spec),
                _ridges(table, name, schema, drawn),
                _centroids(table, name, spec, drawn),
                _bones(table, name, schema, drawn),
                *bar_charts(table, name, schema, unfit),
            )
            yield from ({"field": name} | plot for plot in field_plots if plot is not None)


def _unlisted(table: Table, schema: Schema) -> list[str]:
    measured_fields = {name.rpartition(":")[0] for name in table.columns if name.endswith(":min")}
    return [*sorted(measured_fields - {*schema.fields}), ""]


def _numeric(table: Table, name: str, width: int = 0) -> Measured | None:
    """Return a numeric column with `width` components per row (0: any); None if there is none."""
    column = table.columns.get(name)
    if (
        column is None
        or column.values.dtype.kind not in "biuf"
        or column.values.ndim != 2
        or not len(column.values)
    ):
        return None
    return column if width in {0, column.values.shape[1]} else None


# ----------------------------------------------------------------------------------------- episodes


def _lags(table: Table, name: str, spec: FieldSpec) -> Plot | None:
    """Return the correlation of a command with the change of the state it drives, by lag (DC507).

    Quartiles over the episodes.
    """
    read: dict[str, Array] = {}
    count: dict[str, int] = {}
    for kind in ("delta", "absolute"):
        column = _numeric(table, f":{name}:{kind}", len(LAGS))
        complete_rows = (
            np.zeros(0, np.int64) if column is None else np.flatnonzero(_is_complete(column))
        )
        if column is not None and len(complete_rows):
            read[kind], count[kind] = (
                np.quantile(_rows(column, _subsample(complete_rows)), [0.25, 0.5, 0.75], axis=0),
                len(complete_rows),
            )
            if spec.role == "gripper":  # its sign convention is not the question here
                falls = read[kind][1] < 0
                read[kind][:, falls] = -read[kind][::-1, falls]
    if not read:
        return None
    kind = max(read, key=lambda reading: float(read[reading][1].max()))
    others = {
        reading: float(quartiles[1].max()) for reading, quartiles in read.items() if reading != kind
    }
    return {
        "kind": "lags",
        "title": f"How {spec.drives} follows {name}",
        "lags": list(LAGS),
        "n": count[kind],
        "quartiles": _short(read[kind]),
        "expected": [0, 1] if spec.lag is None else [spec.lag],
        "declared": spec.lag is not None,
        "reading": kind,
        "other": _short(others.get("absolute", others.get("delta"))),
    }


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
    ends = [*drawn.row_values(low), *drawn.row_values(high)]
    several = not all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(ends[:2], ends[2:], strict=True)
    )
    names = _names(schema, name, low.values.shape[1])
    bands = _bands(table, name, schema.spec(name), low.values.shape[1])
    lowest = _ends(low, np.fmin)
    highest = _ends(high, np.fmax)
    rows: list[Plot] = []
    for n, (a, b) in enumerate(zip(lowest, highest, strict=True)):
        row: Plot = {
            "name": names[n] if n < len(names) else str(n),
            "low": a,
            "high": b,
            "band": bands[n],
            "edges": None,
        }
        if a is not None and b is not None and b - a > _NARROW:
            edges = _drawn_range(_typical_values([part[:, n] for part in ends]), a, b, bands[n])
            # None if all values lie outside of the drawn range
            row["edges"] = edges if edges[1] - edges[0] > _NARROW else None
        rows.append(row)
    shared = _share_axis([row for row in rows if row["edges"]])
    outside_counts = _outside_counts(low, high, rows)
    for n, row in enumerate(rows):
        if row["edges"]:
            row["counts"] = [
                _counted(part[:, n], *row["edges"]) for part in (ends if several else ends[:2])
            ]
            row["outside"] = outside_counts[n]
    if all(row["low"] is None for row in rows):
        return None
    return {
        "kind": "ridges",
        "title": f"Each component: where its {'lowest and highest ' if several else ''}values lie",
        "unit": schema.spec(name).unit or "",
        "shared": shared,
        "several": several,
        "rows": rows,
    }


def _names(schema: Schema, name: str, width: int) -> list[str]:
    spec = schema.spec(name)
    component_names = names_of(schema, name)
    letters = {"quaternion": spec.order or "", "color": "rgba"}.get(spec.role or "", "")
    if spec.role in SPATIAL_ROLES | {"normal"} and width == 3:
        letters = "xyz"
    component_names = component_names or [*letters[:width]]
    return [*component_names[:width], *map(str, range(len(component_names), width))]


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
    robot = ROBOTS.get(spec.robot or "")
    if robot is None or robot.joints != width:
        return [None if spec.range is None else [spec.range.low, spec.range.high]] * width
    orders = list(robot.orders.values())
    outside = _numeric(table, f"{name}:outside")
    order = 0
    if outside is not None and not outside.values.shape[1] % len(orders):
        steps = outside.values[outside.present].sum(axis=0)
        order = int(np.argmin(steps.reshape(len(orders), -1).sum(axis=1)))
    unit_factor = factor(spec.unit or "rad")
    return [
        [robot.limits[joint][0] / unit_factor, robot.limits[joint][1] / unit_factor]
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
    parts = drawn.complete_rows(column)
    together = np.concatenate(parts)
    if len(together) < 2:
        return None
    has_sizes = sizes is not None and sizes.values.dtype.kind == "f" and sizes.values.ndim == 1
    half = (
        float(np.nan_to_num(drawn.median(sizes)[0])) / 2 if has_sizes and sizes is not None else 0.0
    )
    low, high, origin = _drawn_cube(
        parts[0] if len(parts[0]) >= _MIN_TYPICAL_SAMPLES else together, parts[1], half
    )
    within = [part[((part >= low) & (part <= high)).all(axis=1)] for part in parts]
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
        "origin": origin,
        "half": _short(half),
        "planes": planes,
        "median": _short(drawn.median(column)),
        "of": drawn.complete_counts(column),
        "drawn": [len(part) for part in parts],
        "outside": _count_outside(column, low, high),
        "centered": spec.centered or "",
    }


def _drawn_cube(usual: Array, others: Array, half: float) -> tuple[Array, Array, bool]:
    """Return a cube around the typical range, and whether it contains the origin.

    Notes:
        It includes the origin and the other samples if they are near. It is at least as large as
        the tolerance of a centre: otherwise rounding errors would look like a spread of places.
    """
    ends: Array = np.quantile(usual, _TYPICAL_QUANTILES, axis=0)
    wide = (
        max(float((ends[1] - ends[0]).max()), 2 * _CENTRE_TOLERANCE * half)
        or float(np.abs(ends).max())
        or 1.0
    )
    for extra_points in (np.zeros((1, 3)), others):
        combined_ends = (
            np.concatenate([ends, np.quantile(extra_points, _TYPICAL_QUANTILES, axis=0)])
            if len(extra_points)
            else ends
        )
        low = combined_ends.min(axis=0)
        high = combined_ends.max(axis=0)
        if float((high - low).max()) <= _NEAR * wide:
            ends = np.stack([low, high])
    edge = 0.6 * max(
        float((ends[1] - ends[0]).max()), wide, 1e-9 * float(np.abs(ends).max()), _NARROW
    )
    middle = ends.sum(axis=0) / 2
    origin = bool((np.abs(middle) < edge).all())
    return middle - edge, middle + edge, origin


def _count_outside(column: Measured, low: Array, high: Array) -> int:
    """Return the number of finite rows outside a cube."""
    outside_count = 0
    for start in range(0, len(column.values), _CHUNK_ROWS):
        part = Measured(
            column.values[start : start + _CHUNK_ROWS], column.present[start : start + _CHUNK_ROWS]
        )
        outside_count += int(
            np.count_nonzero(
                _is_complete(part) & ~((part.values >= low) & (part.values <= high)).all(axis=1)
            )
        )
    return outside_count


def _cells(values: Array, low: Array, high: Array) -> list[int]:
    """Return the non-empty cells and their counts, alternating."""
    places = np.minimum(((values - low) * (_GRID / (high - low))).astype(np.int64), _GRID - 1)
    cells, many = np.unique(places[:, 1] * _GRID + places[:, 0], return_counts=True)
    return np.stack([cells, many], axis=1).reshape(-1).tolist()


def _bones(table: Table, name: str, schema: Schema, drawn: DrawnRows) -> Plot | None:
    """Return the distribution of each bone's length, with limits around an average hand (DC601)."""
    spec = schema.spec(name)
    skeleton = skeleton_of(spec)
    column = None if skeleton is None else _numeric(table, f"{name}:pairs", len(skeleton.pairs))
    if skeleton is None or column is None:
        return None
    fit, unfit = (part[:, : len(skeleton.bones)] for part in drawn.complete_rows(column))
    if not len(fit) + len(unfit):
        return None
    shares = [0.01, 0.25, 0.5, 0.75, 0.99]
    quantiles = _short(np.quantile(fit if len(fit) else unfit, shares, axis=0).T)
    unfit_medians = (
        _short(np.median(unfit, axis=0)) if len(fit) and len(unfit) else [None] * len(quantiles)
    )
    unit_factor = factor(spec.unit or "m")
    wide = option(schema, bone_length, "band")
    bands = [
        _short([length / wide / unit_factor, length * wide / unit_factor]) if wide > 0 else None
        for length in skeleton.table
    ]
    rows = zip(skeleton.bone_names, quantiles, bands, unfit_medians, strict=True)
    return {
        "kind": "boxes",
        "title": "Length of each bone",
        "unit": spec.unit or "",
        "of": drawn.complete_counts(column),
        "rows": [
            {"name": bone, "p": p, "band": band, "unfit": unfit_median}
            for bone, p, band, unfit_median in rows
        ],
    }
