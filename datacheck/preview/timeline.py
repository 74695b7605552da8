"""Numbers over the steps of an episode: each dimension as at most 200 points, among them its lowest and highest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from datacheck.preview.numbers import Array, UnfitError, floats, numeric, short
from datacheck.rules.base import counted
from datacheck.rules.series import time_field
from datacheck.schema.model import Schema

POINTS = 200
DIMENSIONS = 24
RANGES = 1000  # that a timeline shows: they are written into each of a sample


def timeline(value: object, names: Sequence[str] = (), unit: str = "", fps: float | None = None) -> dict[str, Any]:
    """Return the preview of a series.

    Shapes:
        value: number (T) or (T, ...)

    Args:
        names: of the dimensions, as far as they are known.
        unit: of the values, "" where it is not known.
        fps: steps a second, None where it is not known.

    Raises:
        UnfitError: it has no step or no dimension.
    """
    values = numeric(value)
    if not values.ndim or not values.size:
        msg = f"has shape {list(values.shape)}: no step to draw"
        raise UnfitError(msg)
    flat = values.reshape(len(values), prod(values.shape[1:]))
    dims = [_dimension(flat[:, n], _name(names, n)) for n in range(min(flat.shape[1], DIMENSIONS))]
    unfinite = sum(dim["unfinite"] for dim in dims)
    said = [counted(len(flat), "step"), counted(flat.shape[1], "dimension")]
    if flat.shape[1] > DIMENSIONS:
        said.append(f"the first {DIMENSIONS} are drawn")
    if unfinite:
        said.append(f"{counted(unfinite, 'value')} not finite and not drawn")
    return {
        "kind": "timeline", "steps": len(flat), "fps": fps, "unit": unit, "dims": dims, "all_dims": flat.shape[1],
        "about": f"Timeline: {'; '.join(said)}.",
    }  # fmt: skip


def with_ranges(pictures: Sequence[dict[str, Any]], kept: object, schema: Schema) -> None:
    """Write into the timelines of a sample which of its steps are to be trained on.

    Args:
        pictures: as of `previews`.
        kept: ``[first, behind the last]`` of each range, as in ``valid.json``; None where the sample has none.
        schema: of the sample: the ranges count what the time axis of its episodes counts.
    """
    axis = schema.spec(time_field(schema)).ragged
    if not isinstance(kept, list):
        return
    joined = _joined(kept)
    for one in pictures:
        if one["kind"] == "timeline" and schema.spec(one["field"]).ragged == axis:
            _mark(one, joined, one["steps"])


def _joined(kept: Iterable[Any]) -> list[list[int]]:
    """Return ranges in order, of which none meets the next."""
    joined: list[list[int]] = []
    for first, stop in sorted((max(0, first), stop) for first, stop in kept):
        if joined and first <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], stop)
        elif first < stop:
            joined.append([first, stop])
    return joined


def _mark(one: dict[str, Any], joined: Sequence[list[int]], steps: int) -> None:
    count = bisect_left(joined, [steps])
    if count > RANGES:
        one["about"] += f" Steps not to be trained on are not shaded: valid.json has {count:,} ranges."
    else:
        one["ranges"] = [[first, min(stop, steps)] for first, stop in joined[:count]]


def names_of(schema: Schema, name: str) -> list[str]:
    """Return the names of a field's dimensions, where its columns have some."""
    names: list[str] = []
    for part, (start, stop) in sorted(schema.parts(name).items(), key=lambda pair: pair[1]):
        names += [str(n) for n in range(len(names), start)]
        names += [part] if stop - start == 1 else [f"{part} {n}" for n in range(stop - start)]
    return names


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if number < len(names) else str(number)


def _dimension(values: Array, name: str) -> dict[str, Any]:
    kept = floats(values)
    finite = np.isfinite(kept)
    places = _places(kept, finite)
    low, high = (kept[finite].min(), kept[finite].max()) if finite.any() else (np.nan, np.nan)
    with np.errstate(over="ignore"):
        span = float(high - low)
    return {
        "name": name, "at": places.tolist(), "values": [short(v, span) for v in kept[places]],
        "low": short(low, span), "high": short(high, span), "unfinite": int((~finite).sum()),
    }  # fmt: skip


def _places(values: Array, finite: Array) -> Array:
    """Return which steps to draw: of each of 100 equal parts the lowest and the highest value, in their order.

    Notes:
        A step that is not finite stands for its part where no other one does: the line has a gap there.
    """
    if len(values) <= POINTS:
        return np.arange(len(values))
    edges = np.arange(POINTS // 2 + 1) * len(values) // (POINTS // 2)
    low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    found = set()
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        found.update({start + int(low[start:stop].argmin()), start + int(high[start:stop].argmax())})
    return np.array(sorted(found))
