"""Which measured columns the page shows of a field, what they are called, and what is expected of them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from datacheck.judging.select import options_of, variants
from datacheck.rules.base import Rule
from datacheck.rules.families.clocks import fps_mismatch
from datacheck.rules.families.rotations import bad_rotation
from datacheck.rules.funnel import loader_steps
from datacheck.rules.series import time_field
from datacheck.schema.model import FieldSpec, Schema
from datacheck.schema.units import LENGTH, factor
from datacheck.table import Measured

MOST = 6  # measures shown of one field

# in the order in which they tell most: the first that varies is drawn in the table of fields
LABELS = {
    "box": "size (diagonal)", "bone": "median bone", "near": "distance", "norm": "length",
    "spacing": "distance to the nearest point (median)",
    "p99": "99th percentile of |x|", "tokens": "tokens", "trained": "supervised tokens",
    "trained/tokens": "share of supervised tokens", "ignored/count": "share ignored", "step": "time step (median)",
    "min": "lowest value",
    "max": "highest value", "angle": "angle", "dims": "length (first axis)", "steps": "steps", "reach": "reach",
    "shortest": "shortest quaternion", "longest": "longest quaternion", "largest": "points of the largest instance",
    "objects": "objects", "front": "share in front", "copies": "repeated points", "flatness": "flatness",
    "lowest": "lowest", "highest": "highest", "peak": "largest |x|", "leap": "largest step",
    "prompt_bytes": "bytes before the first answer",
    "answers": "answers", "same": "share of commands as the one before",
    "noop": "share of commands that ask for nothing", "nonfinite": "NaN or infinite values",
    "zeros": "rows of zeros", "bytes": "bytes",
}  # fmt: skip
_IN_UNIT = frozenset(
    {"box", "bone", "near", "norm", "spacing", "p99", "peak", "min", "max", "lowest", "highest", "leap", "reach",
     "step"}
)  # fmt: skip
_BANDS = {"box": "size", "bone": "size", "near": "distance", "min": "range", "max": "range", "lowest": "rests"}
_OF_SIZE = frozenset({"box", "bone", "near", "norm"})  # what a unit is told by
VECTORS = frozenset({"min", "max", "dims"})  # shown by their lowest, highest and first component


class Shown(NamedTuple):
    """What the page shows of one column, or of one over another: its name, of which field, which statistic.

    Args:
        column: of the numbers, and where they are shares of others, behind "/" the statistic that holds those.
        field, stat: what it is of.
    """

    column: str
    field: str
    stat: str


def shown(columns: Iterable[str]) -> dict[str, list[Shown]]:
    """Return what can be shown of each field ("": of the sample as a whole), best first.

    Args:
        columns: names of measured columns, ``field:stat`` or ``:field:stat``.
    """
    found: dict[str, list[Shown]] = {}
    names = dict.fromkeys(columns)
    for name in names:
        head, _, stat = name.rpartition(":")
        field = head.removeprefix(":")
        found.setdefault(field, []).extend(
            Shown(f"{head}:{one}", field, one) for one in LABELS if _told(one, stat, head, names)
        )
    rank = {stat: place for place, stat in enumerate(LABELS)}
    return {f: sorted(some, key=lambda one: (rank[one.stat], one.column)) for f, some in found.items() if some}


def _told(one: str, stat: str, head: str, names: Container[str]) -> bool:
    part, _, whole = one.partition("/")
    return part == stat and (not whole or f"{head}:{whole}" in names)


def read(columns: Mapping[str, Measured], name: str) -> Measured | None:
    """Return the column that `Shown` names, None where there is none; of a share where the whole is not 0."""
    head, _, stat = name.rpartition(":")
    part, _, whole = stat.partition("/")
    if stat not in LABELS or not whole:
        return columns.get(name)
    few, all_ = columns.get(f"{head}:{part}"), columns.get(f"{head}:{whole}")
    if few is None or all_ is None or {few.values.dtype.kind, all_.values.dtype.kind} - set("biuf"):
        return None
    if few.values.ndim != 1 or all_.values.ndim != 1:
        return None
    known = few.present & all_.present & (all_.values > 0)
    return Measured(np.divide(few.values, all_.values, out=np.zeros(len(known)), where=known, dtype=np.float64), known)


def label(spec: FieldSpec, stat: str) -> str:
    """Return what a measure is called."""
    return "points" if stat == "dims" and spec.role == "points" else LABELS[stat]


def unit(spec: FieldSpec, stat: str) -> str:
    """Return the unit of a measure, "" where it has none."""
    return "B" if stat in {"bytes", "prompt_bytes"} else (spec.unit or "") if stat in _IN_UNIT else ""


def band(schema: Schema, one: Shown) -> list[float | None] | None:
    """Return the lowest and the highest value that the schema allows; an open end is None."""
    spec = schema.spec(one.field)
    least, most = _counts(schema, spec, one)
    if least is not None or most is not None:
        return [least, most]
    wanted: Any = getattr(spec, _BANDS[one.stat]) if one.stat in _BANDS else None
    if one.stat in {"box", "bone"} and (one.stat == "bone") != (spec.role == "joints"):
        wanted = None  # the size of joints is that of their bones
    if schema.episode is not None and of_episodes(schema, one):
        wanted = schema.episode.length
    return None if wanted is None else [wanted.low, wanted.high]


def _counts(schema: Schema, spec: FieldSpec, one: Shown) -> tuple[float | None, float | None]:
    """Return the least and the most of what is counted, and of lengths and steps of time; None where it is open."""
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
        least, most = 1 - off, 1 + off
    elif one.stat == "step" and schema.episode is not None and schema.episode.fps is not None:
        off, seconds = option(schema, fps_mismatch, "tolerance"), 1 / schema.episode.fps / factor(spec.unit or "s")
        least, most = (seconds / end if end > 0 else None for end in (1 + off, 1 - off))
    return _finite(least), _finite(most)


def _finite(end: float | None) -> float | None:
    return end if end is not None and math.isfinite(end) else None


def agreed(schema: Schema) -> Schema:
    """Return the schema without what ``when: split=...`` says otherwise: of all splits together it is not true."""
    every = variants(schema)
    none, fields = FieldSpec(), dict(schema.fields)
    for name, spec in schema.fields.items():
        others = [one.spec(name) for one in every[1:]]
        apart = [key for key in FieldSpec.model_fields if any(getattr(o, key) != getattr(spec, key) for o in others)]
        if apart:
            fields[name] = spec.model_copy(update={key: getattr(none, key) for key in apart if key != "role"})
    return schema.model_copy(update={"fields": fields})


def option(schema: Schema, of: Rule, name: str) -> float:
    """Return what a number among a rule's options is."""
    return float(options_of(schema, of)[name])


def units(schema: Schema, one: Shown) -> list[tuple[str, float]]:
    """Return what a length would be a multiple of, were it stored in another unit than declared: (unit, factor)."""
    own = LENGTH.get(schema.spec(one.field).unit or "")
    if own is None or one.stat not in _OF_SIZE:
        return []
    return [(name, own / other) for name, other in LENGTH.items() if other != own]


def of_episodes(schema: Schema, one: Shown) -> bool:
    """Tell whether a measure is how long an episode is, as DC501 counts it."""
    declared = schema.windows is not None or schema.episode is not None
    return declared and one.stat == "dims" and one.field == time_field(schema)


def marks(schema: Schema, one: Shown) -> list[dict[str, Any]]:
    """Return the lines to draw ``at`` a number: their ``name``, and how samples ``below`` are and what becomes of them.

    Notes:
        Of whole numbers it lies between two.
    """
    windows = schema.windows
    if windows is not None and of_episodes(schema, one):
        padded = windows.pad != "none" or windows.short == "pad"
        below = "padded" if padded else "an error in the loader" if windows.short == "raise" else "without a window"
        return [{"at": windows.length - 0.5, "name": f"window {windows.length:,}", "less": "shorter", "below": below}]
    edge = dict(loader_steps(schema)).get("voxel")
    if edge is not None and one.stat == "spacing" and one.field == next(iter(schema.of_role("points")), ("",))[0]:
        return [{"at": edge, "name": f"voxel {edge:g}", "less": "denser", "below": "thinned"}]
    return []
