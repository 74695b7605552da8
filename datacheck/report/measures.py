"""Which measured columns the page shows of a field, what they are called, and what is expected of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from datacheck.schema.model import FieldSpec, Schema

MOST = 6  # measures shown of one field

# in the order in which they tell most: the first that varies is drawn in the table of fields
LABELS = {
    "box": "size (diagonal)", "bone": "median bone", "near": "distance", "norm": "length",
    "p99": "99th percentile of |x|", "tokens": "tokens", "trained": "supervised tokens", "min": "lowest value",
    "max": "highest value", "angle": "angle", "dims": "length (first axis)", "steps": "steps", "reach": "reach",
    "objects": "objects", "front": "share in front", "copies": "repeated points", "flatness": "flatness",
    "lowest": "lowest", "highest": "highest", "peak": "largest |x|", "leap": "largest step", "prompt_bytes": "bytes",
    "answers": "answers", "same": "idle steps", "noop": "steps without motion", "nonfinite": "NaN or infinite values",
    "zeros": "rows of zeros", "bytes": "bytes",
}  # fmt: skip
_IN_UNIT = frozenset({"box", "bone", "near", "norm", "p99", "peak", "min", "max", "lowest", "highest", "leap", "reach"})
_BANDS = {"box": "size", "bone": "size", "near": "distance", "min": "range", "max": "range", "lowest": "rests"}
VECTORS = frozenset({"min", "max", "dims"})  # shown by their lowest, highest and first component


class Shown(NamedTuple):
    """One column that the page shows: its name in the table, of which field, which statistic."""

    column: str
    field: str
    stat: str


def shown(columns: Iterable[str]) -> dict[str, list[Shown]]:
    """Return what can be shown of each field ("": of the sample as a whole), best first.

    Args:
        columns: names of measured columns, ``field:stat`` or ``:field:stat``.
    """
    found: dict[str, list[Shown]] = {}
    for name in columns:
        field, _, stat = name.removeprefix(":").rpartition(":")
        if stat in LABELS:
            found.setdefault(field, []).append(Shown(name, field, stat))
    rank = {stat: place for place, stat in enumerate(LABELS)}
    return {field: sorted(some, key=lambda one: (rank[one.stat], one.column)) for field, some in found.items()}


def unit(spec: FieldSpec, stat: str) -> str:
    """Return the unit of a measure, "" where it has none."""
    return "B" if stat in {"bytes", "prompt_bytes"} else (spec.unit or "") if stat in _IN_UNIT else ""


def band(schema: Schema, one: Shown) -> list[float | None] | None:
    """Return the lowest and the highest value that the schema allows; an open end is None."""
    spec = schema.spec(one.field)
    wanted: Any = getattr(spec, _BANDS[one.stat]) if one.stat in _BANDS else None
    if one.stat in {"box", "bone"} and (one.stat == "bone") != (spec.role == "joints"):
        wanted = None  # the size of joints is that of their bones
    if one.stat == "steps" and schema.episode is not None:
        wanted = schema.episode.length
    return None if wanted is None else [wanted.low, wanted.high]
