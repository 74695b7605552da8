"""What the page draws of drift: all that was held against the reference, the largest effects first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from datacheck.report.measures import LABELS, label
from datacheck.schema.model import Schema

_PART = " of component "
# of measures that no histogram of the page is of
_LABELS = {
    "top": "highest class", "middle": "middle of the box", "centroid": "centroid", "first": "first point",
    "behind": "share behind", "count": "numbers",
    "placed": "finite points",
}  # fmt: skip


def drifts(rules: Mapping[str, Mapping[str, Any]], schema: Schema) -> Iterator[dict[str, Any]]:
    """Yield of each rule that compared something its code, name, limits and measures, as the rule has recorded them.

    Args:
        rules: ``rules`` of a result.json.
        schema: that of the run.
    """
    for code, rule in rules.items():
        compared = rule.get("compared")
        if compared:
            measures = [one | {"label": _label(schema, one["field"], one["measure"])} for one in compared["measures"]]
            limits = {name: rule["options"].get(name) for name in ("effect", "false_discoveries")}
            yield {"code": code, "name": rule["name"]} | compared | {"measures": measures} | limits


def _label(schema: Schema, field: str, measure: str) -> str:
    """Return what the page calls a measure of a rule's: "max of component 0" is the highest value there."""
    stat, _, part = measure.partition(_PART)
    stat = {"length": "dims"}.get(stat, stat)
    said = label(schema.spec(field), stat) if stat in LABELS else _LABELS.get(stat, stat)
    return f"{said}, component {part}" if part else said
