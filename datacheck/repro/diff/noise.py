"""How far runs of one version lie apart, and whether another run lies outside of that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.repro.diff.doubts import evaluations, number, warnings_of
from datacheck.repro.diff.sections import of_start
from datacheck.repro.runs.read import Run, read_run

LEAST = 3  # repeats
_SAME = {"config", "code", "packages", "native", "hardware", "flags", "data"}


@dataclass(frozen=True)
class Spread:
    """One metric over the repeats, and in the run that is held against them.

    Args:
        name: of the metric ("val loss").
        at: which evaluation, from 0; None: the last one, or the last step.
        low, high: its range over the repeats; NaN where one of them is not finite.
        value: in B.
        repeats: how many have it.
    """

    name: str
    at: int | None
    low: float
    high: float
    value: float
    repeats: int

    @property
    def inside(self) -> bool:
        """Whether B lies within the range."""
        return self.low <= self.value <= self.high


@dataclass
class Noise:
    """The noise floor.

    Args:
        runs: the repeats.
        b: the run that is held against them.
        final: of each metric its last value.
        each: of each metric every evaluation.
        warnings: why the repeats may be none, and what makes figures doubtful, by run.
    """

    runs: list[Run]
    b: Run
    final: list[Spread]
    each: list[Spread]
    warnings: dict[str, list[str]]

    @property
    def enough(self) -> bool:
        """Whether anything can be said."""
        return len(self.runs) >= LEAST and bool(self.final)

    @property
    def outside(self) -> list[Spread]:
        """Final metrics of B that lie outside of the repeats."""
        return [spread for spread in self.final if not spread.inside]

    @property
    def headline(self) -> str:
        """What can be said, in one or two sentences."""
        count = len(self.runs)
        if count < LEAST:
            said = "1 repeat" if count == 1 else f"{count} repeats"
            return f"nothing can be said: {said} of A; with fewer than {LEAST} their spread is not known"
        if not self.final:
            return "nothing can be said: the runs have no metric and no loss in common"
        chance = 2 / (count + 1)
        names = ", ".join(spread.name for spread in self.outside)
        said = f"B lies outside of the {count} repeats in {names}" if names else f"B lies within the {count} repeats"
        rule = f"of two equal versions one lies outside of {count} repeats in {chance:.0%} of cases, for each metric"
        return f"{said}. By chance alone {rule}"

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "repeats": [str(run.path) for run in self.runs],
            "b": str(self.b.path),
            "enough": self.enough,
            "headline": self.headline,
            "final": [_spread(spread) for spread in self.final],
            "evaluations": [_spread(spread) for spread in self.each],
            "warnings": self.warnings,
        }


def _spread(spread: Spread) -> dict[str, Any]:
    low, high, value = (one if math.isfinite(one) else str(one) for one in (spread.low, spread.high, spread.value))
    return {
        "name": spread.name, "evaluation": spread.at, "low": low, "high": high, "b": value,
        "inside": spread.inside, "repeats": spread.repeats,
    }  # fmt: skip


def noise_floor(repeats: Sequence[Path], b: Path, *, ignore: Sequence[str] = ()) -> Noise:
    """Return the range of each metric over repeats of a run, and where B lies.

    Args:
        repeats: runs of one version, three or more for an answer.
        b: the run that is held against them.
        ignore: names in which repeats may differ ("config.seed").

    Raises:
        UsageError: one of them is no recorded run.
    """
    runs, other = [read_run(path) for path in repeats], read_run(b)
    series = [_series(run) for run in runs]
    final, each = [], []
    for name, values in _series(other).items():
        have = [found[name] for found in series if found.get(name)]
        if not have or not values:
            continue
        final.append(_of(name, None, [one[-1] for one in have], values[-1]))
        if name != "loss":
            for at in range(min(len(values), *(len(one) for one in have))):
                each.append(_of(name, at, [one[at] for one in have], values[at]))
    return Noise(runs, other, final, each, _warned(runs, other, ignore))


def _of(name: str, at: int | None, repeats: list[float], value: float) -> Spread:
    finite = all(map(math.isfinite, repeats))
    low, high = (min(repeats), max(repeats)) if finite else (math.nan, math.nan)
    return Spread(name, at, low, high, value, len(repeats))


def _series(run: Run) -> dict[str, list[float]]:
    """Return the numbers of each metric in order, of the lowest rank; the loss by its last step."""
    rank = min(run.traces)
    found: dict[str, list[float]] = {}
    for (of, name), lines in evaluations(run).items():
        for line in lines if of == rank else []:
            for metric, said in line["values"].items():
                if (value := number(said)) is not None:
                    found.setdefault(f"{name} {metric}", []).append(value)
    for line in run.traces[rank].of("step"):
        if (value := number(line.get("loss"))) is not None:
            found["loss"] = [value]
    return found


def _warned(runs: list[Run], b: Run, ignore: Sequence[str]) -> dict[str, list[str]]:
    names = [f"A{i}" for i in range(1, len(runs) + 1)]
    found = {name: warnings_of(run) for name, run in zip([*names, "B"], [*runs, b], strict=True)}
    for name, run in zip(names[1:], runs[1:], strict=True):
        unlike = [section.name for section in of_start(runs[0], run, ignore) if section and section.name in _SAME]
        if unlike:
            found[name].append(f"differs from A1 in {', '.join(unlike)}: is it a repeat?")
    if len({len(evaluations(run)) for run in runs}) > 1:
        found["A1"].append("the repeats do not have the same evaluations")
    return {name: said for name, said in found.items() if said}
