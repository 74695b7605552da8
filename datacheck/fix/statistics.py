"""Statistics: the file in which a normaliser's mean, std, min and max stand, with those of the data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import UsageError
from datacheck.finding import Finding
from datacheck.fix import Asked, Edit, Plan, Repair
from datacheck.runtime.beneath import File
from datacheck.schema.model import StatsSpec
from datacheck.sources.statistics import stored_at

_FULL = 255.0

Found = tuple[StatsSpec, dict[str, Any]]  # where they stand, what they should be


def _recomputed(asked: Asked) -> Plan:
    files: dict[str, list[Found]] = {}
    for finding in asked.findings:
        stats = _stats_of(asked, finding)
        path = stats.file or ""
        if path not in asked.run.listing.by_path or not path.lower().endswith(".json"):
            msg = f"{finding.id}: {path} is no JSON file below the data folder. Write it again from result.json."
            raise UsageError(msg)
        colour = asked.run.schema.fields[finding.fields[0]].role == "color"
        files.setdefault(path, []).append((stats, _in_unit(finding.measured, stats, colour=colour)))
    said = {path: [[stats.at, values] for stats, values in found] for path, found in files.items()}
    return Plan({path: Edit("datacheck.fix.statistics:write", found) for path, found in said.items()})


def _stats_of(asked: Asked, finding: Finding) -> StatsSpec:
    stats = asked.run.schema.for_split(finding.split).fields[finding.fields[0]].stats
    if stats is None or stats.file is None:
        said = ", ".join(f"{name}: {[float(f'{v:.6g}') for v in values]}" for name, values in finding.measured.items())
        msg = f"{finding.id}: these statistics stand in the schema itself. Write there: {said}"
        raise UsageError(msg)
    return stats


def _in_unit(found: Mapping[str, Any], stats: StatsSpec, *, colour: bool) -> dict[str, Any]:
    """Return the statistics; of colours 0..255 as 0..1 where the file has them so."""
    stored = [value for values in (stats.mean, stats.max) for value in values]
    scale = _FULL if colour and stored and max(stored) <= 1 < max(found["max"]) else 1.0
    return {name: (np.array(values) / scale).tolist() for name, values in found.items()}


def write(found: list[list[Any]], source: File, goal: Path) -> None:
    """Write a JSON file with these statistics in their places."""
    held = json.loads(source.read_bytes())
    for at, values in found:
        place, names = stored_at(held, at)
        for name, key in names.items():
            place[key] = _shaped(values[name], place[key])  # type: ignore[index]  # what json.loads made is a dict
    goal.write_text(json.dumps(held, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _shaped(values: list[float], before: Any) -> Any:
    """Return the numbers in the shape in which the file has them, flat where that holds another count."""
    shape = np.shape(before)
    return np.array(values).reshape(shape).tolist() if int(np.prod(shape)) == len(values) else values


STATISTICS = Repair("DC228", "statistics in a JSON file, computed again", _recomputed)
