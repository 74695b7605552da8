"""A point cloud as at most 2,048 points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.preview.numbers import Array, UnfitError, base64_of, floats, numeric, shown, thinned
from datacheck.rules.base import counted

MOST = 2048
_LABELS = 12  # colours that can be told apart; the rarest labels share the last one
_AXES = "xyz"


@dataclass(frozen=True, eq=False)
class Colour:
    """What the points are coloured by.

    Shapes:
        values: any (points, 3) of red, green, blue; any (points) of labels

    Args:
        name: of the field.
        ignored: labels that training leaves out.
        names: of labels that count from 0 on, where they have names.
        declared: which labels the schema knows, where it does; the others come first.
    """

    name: str
    values: Array
    ignored: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    declared: Callable[[Array], Array] | None = None


def cloud(
    value: object, unit: str = "", up: str | None = None, colour: Colour | None = None, most: int = MOST
) -> dict[str, Any]:
    """Return the preview of a cloud.

    Shapes:
        value: number (points, 3)

    Args:
        unit: of the coordinates, "" where it is not known.
        up: the axis that points up ("z", "-y"); None: z.
        colour: None: by height.
        most: points that are kept.

    Raises:
        UnfitError: it has no finite point, or is of another shape.
    """
    points = numeric(value)
    if points.ndim != 2 or points.shape[1] != 3:
        msg = f"has shape {list(points.shape)}; points are [P, 3]"
        raise UnfitError(msg)
    if not len(points):
        msg = "has no point"
        raise UnfitError(msg)
    finite = np.isfinite(points).all(axis=1)
    places = np.flatnonzero(finite)
    if not len(places):
        msg = f"has {len(points):,} points, none of them finite"
        raise UnfitError(msg)
    whole = points if len(places) == len(points) else points[places]
    low, high = floats(whole.min(axis=0)), floats(whole.max(axis=0))
    chosen = places[thinned(len(places), most)]
    kept = quantised(floats(points[chosen]), low, high)
    made = {
        "kind": "cloud", "points": len(points), "shown": len(chosen), "unfinite": len(points) - len(places),
        "box": [low.tolist(), high.tolist()], "unit": unit, "up": up or "z",
        "xyz": base64_of(kept), "colour": _coloured(colour, len(points), chosen),
    }  # fmt: skip
    return made | {"about": _about(made, low, high)}


def quantised(points: Array, low: Array, high: Array) -> Array:
    """Return points as uint16 between the corners of their box: 0 is `low`, 65535 is `high`."""
    span = high / 2 - low / 2  # the whole span may be more than a float64 holds
    share = np.divide(points / 2 - low / 2, span, out=np.zeros_like(points), where=span > 0)
    numbers: Array = np.rint(np.clip(share, 0, 1) * 65535).astype(np.uint16)
    return numbers


def _coloured(colour: Colour | None, points: int, chosen: Array) -> dict[str, Any]:
    if colour is None or colour.values.dtype.kind not in "biuf" or len(colour.values) != points:
        return {"by": "height"}
    values = colour.values
    if values.ndim == 2 and values.shape[1] == 3:
        return {"by": "rgb", "name": colour.name, "rgb": base64_of(_bytes(values, chosen))}
    if values.ndim != 1:
        return {"by": "height"}
    labels, counts = np.unique(values, return_counts=True)
    odd = _odd(labels, colour)
    order = np.lexsort((-counts, ~odd))  # a label that should not be there is what is looked for
    kept = order if len(labels) <= _LABELS else order[: _LABELS - 1]
    number = np.full(len(labels), len(kept), np.uint8)
    number[kept] = np.arange(len(kept))
    names = [_label(labels[i], colour) + (" (no class)" if odd[i] else "") for i in kept.tolist()]
    others = [f"{len(labels) - len(kept):,} others"] if len(kept) < len(labels) else []
    many = counts[kept].tolist() + ([int(counts.sum() - counts[kept].sum())] if others else [])
    return {
        "by": "label", "name": colour.name, "names": names + others, "counts": many,
        "label": base64_of(number[np.searchsorted(labels, values[chosen])]),
    }  # fmt: skip


def _odd(labels: Array, colour: Colour) -> Array:
    """Return which labels the schema does not know: bool (labels)."""
    if colour.declared is None:
        return np.zeros(len(labels), bool)
    return ~(colour.declared(labels) | np.isin(labels, list(colour.ignored)))


def _label(value: Any, colour: Colour) -> str:
    if colour.names:
        return colour.names[int(value)]
    text = str(int(value)) if float(value).is_integer() else f"{value:g}"
    return text + (" (ignored)" if value in colour.ignored else "")


def _bytes(values: Array, chosen: Array) -> Array:
    """Return red, green and blue as uint8: shares of 1 or of 255, whichever the values look like."""
    part = floats(values[chosen])
    known = part[np.isfinite(part)]
    most = 255.0 if len(known) and known.max() > 1 else 1.0
    if values.dtype.kind == "u":
        most = 255.0
    return np.rint(np.clip(np.nan_to_num(part / most, nan=0, posinf=1, neginf=0), 0, 1) * 255).astype(np.uint8)


def _about(made: dict[str, Any], low: Array, high: Array) -> str:
    with np.errstate(over="ignore"):
        edges = " x ".join(shown(float(edge)) for edge in high - low)
    corner = ", ".join(f"{axis} from {shown(float(at))}" for axis, at in zip(_AXES, low, strict=True))
    parts = [counted(made["points"], "point"), f"{edges} {made['unit'] or '(no unit declared)'} ({corner})"]
    if made["shown"] < made["points"] - made["unfinite"]:
        parts.insert(1, f"{made['shown']:,} drawn")
    if made["unfinite"]:
        parts.insert(1, f"{made['unfinite']:,} not finite and not drawn")
    colour = made["colour"]
    by = f"height along {made['up']}" if colour["by"] == "height" else colour["name"]
    return f"Point cloud: {'; '.join(parts)}; coloured by {by}."
