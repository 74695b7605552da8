"""The noise floor of repeated runs, and whether another run lies outside of it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from datacheck.repro.recorded import Line, RecordedRun, read_run
from datacheck.repro.run_diff import by_step, number, warnings_of
from datacheck.repro.sections import json_differences, start_sections
from datacheck.repro.steps import began

LEAST = 3  # repeats, at least
# A step, and the count at it; None: the count over the whole run
Place: TypeAlias = tuple[int | None, int]
Series: TypeAlias = dict[Place, float]
_COMPARED_SECTIONS = {"config", "code", "packages", "native", "hardware", "flags", "data"}


@dataclass(frozen=True)
class MetricRange:
    """The range of one metric over the repeats, and its value in run B.

    Args:
        name: of the metric ("val loss").
        at: which evaluation of B, from 0; None: the last evaluation, or step, that as many repeats
            as possible have.
        low, high: the range over the repeats; NaN if one of them is not finite.
        value: in B.
        repeats: how many repeats have it.
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

    @property
    def enough(self) -> bool:
        """Whether enough repeats have it, with finite numbers, to judge B."""
        return self.repeats >= LEAST and math.isfinite(self.low)


@dataclass
class Noise:
    """The noise floor.

    Args:
        runs: the repeats, without duplicates.
        b: the run that is compared with them.
        final: the last value of each metric.
        each: every evaluation of each metric.
        warnings: why runs may not be repeats, and reasons to doubt figures, by run.
    """

    runs: list[RecordedRun]
    b: RecordedRun
    final: list[MetricRange]
    each: list[MetricRange]
    warnings: dict[str, list[str]]

    @property
    def enough(self) -> bool:
        """Whether B can be judged at all."""
        return len(self.runs) >= LEAST and bool(self.judged) and not self.itself

    @property
    def itself(self) -> str:
        """The name of the repeat that B is; empty if it is none of them."""
        return next((f"A{i}" for i, run in enumerate(self.runs, 1) if _same_run(run, self.b)), "")

    @property
    def judged(self) -> list[MetricRange]:
        """Final metrics that enough repeats have."""
        return [spread for spread in self.final if spread.enough]

    @property
    def outside(self) -> list[MetricRange]:
        """Final metrics of B outside of the repeats' range."""
        return [spread for spread in self.judged if not spread.inside]

    @property
    def headline(self) -> str:
        """The result, in one or two sentences."""
        count = len(self.runs)
        if count < LEAST:
            statement = "1 repeat" if count == 1 else f"{count} repeats"
            return (
                f"nothing can be said: {statement} of A; with fewer than {LEAST} their spread is not "
                f"known"
            )
        if self.itself:
            return (
                f"nothing can be said: B is {self.itself} itself, and lies within its own repeats"
            )
        if not self.final:
            return "nothing can be said: the runs have no metric and no loss in common"
        if not self.judged:
            return f"nothing can be said: no metric has finite numbers in {LEAST} repeats or more"
        count = min(spread.repeats for spread in self.judged)
        chance = 2 / (count + 1)
        names = ", ".join(spread.name for spread in self.outside)
        statement = (
            f"B lies outside of the {count} repeats in {names}"
            if names
            else f"B lies within the {count} repeats"
        )
        rule = (
            f"of two equal versions one lies outside of {count} repeats in {chance:.0%} of "
            f"cases, for each metric"
        )
        return f"{statement}. By chance alone {rule}"

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "repeats": [str(run.path) for run in self.runs],
            "b": str(self.b.path),
            "enough": self.enough,
            "headline": self.headline,
            "final": [_range_json(spread) for spread in self.final],
            "evaluations": [_range_json(spread) for spread in self.each],
            "warnings": self.warnings,
        }


def _range_json(spread: MetricRange) -> dict[str, Any]:
    low, high, value = (
        figure if math.isfinite(figure) else str(figure)
        for figure in (spread.low, spread.high, spread.value)
    )
    return {
        "name": spread.name,
        "evaluation": spread.at,
        "low": low,
        "high": high,
        "b": value,
        "inside": spread.inside if spread.enough else None,
        "repeats": spread.repeats,
    }


def noise_floor(repeats: Sequence[Path], b: Path, *, ignore: Sequence[str] = ()) -> Noise:
    """Return the range of each metric over repeats of a run, and its value in B.

    Args:
        repeats: runs of one version; three or more are needed for an answer.
        b: the run that is compared with them.
        ignore: names that may differ between repeats ("config.seed").

    Raises:
        UsageError: one of them is not a recorded run.
    """
    all_runs = [read_run(path) for path in repeats]
    b_run = read_run(b)
    first_indices = [
        next(i for i, one in enumerate(all_runs) if _same_run(one, run)) for run in all_runs
    ]
    runs = [run for i, run in enumerate(all_runs) if first_indices[i] == i]
    warnings = _run_warnings(runs, b_run, ignore)
    notes = [
        f"{all_runs[i].path} is {all_runs[one].path} again, and counts once"
        for i, one in enumerate(first_indices)
        if one != i
    ]
    # Runs that began at the same step are matched by count: their epochs may differ in length.
    stepwise = len({began(run, min(run.traces)) for run in [*runs, b_run]}) > 1
    series = [_series(run, stepwise=stepwise) for run in runs]
    final = []
    per_evaluation = []
    for name, values in _series(b_run, stepwise=stepwise).items():
        repeat_series = [run_series[name] for run_series in series if run_series.get(name)]
        if not repeat_series:
            continue
        counts = {place: sum(place in one for one in repeat_series) for place in values}
        most = max(counts.values())
        places = {
            place: evaluation_index
            for evaluation_index, (place, count) in enumerate(counts.items())
            if count == most > 0
        }
        notes += _mismatches(name, repeat_series, values, next(reversed(places), None), len(runs))
        if places:
            final.append(_metric_range(name, None, repeat_series, next(reversed(places)), values))
        if name != "loss":
            per_evaluation += [
                _metric_range(name, evaluation_index, repeat_series, place, values)
                for place, evaluation_index in places.items()
            ]
    return Noise(runs, b_run, final, per_evaluation, warnings | ({"all": notes} if notes else {}))


def _mismatches(
    name: str, have: Sequence[Series], b: Series, last: Place | None, runs: int
) -> Iterator[str]:
    """Yield how the repeats and B differ in number of evaluations, and which are compared."""
    counts = [len(series) for series in have]
    if any(series.keys() != b.keys() for series in have):
        unit = "steps" if name == "loss" else "evaluations"
        in_a = (
            f"{min(counts):,}"
            if min(counts) == max(counts)
            else f"{min(counts):,} to {max(counts):,}"
        )
        compared = "they have no step in common"
        if last is not None:
            compared = (
                f"taken after {last[1] + 1:,}" if last[0] is None else f"taken at step {last[0]:,}"
            )
        yield f"{name}: {in_a} {unit} in A, {len(b):,} in B; {compared}"
    if len(have) < runs:
        yield f"{name}: only {len(have)} of {runs} repeats have it"


def _same_run(one: RecordedRun, other: RecordedRun) -> bool:
    """Return whether two folders hold the same run: one folder, or a copy.

    A copy is recognised by the start of its process.
    """
    if os.path.realpath(one.path) == os.path.realpath(other.path):
        return True
    moments = [_process_start(run) for run in (one, other)]
    return None not in moments and next(json_differences(*moments), None) is None


def _process_start(run: RecordedRun) -> Any:
    process = run.environment.get("process")
    volatile = process.get("volatile") if isinstance(process, Mapping) else None
    return (
        volatile
        if isinstance(volatile, Mapping) and {"pid", "host", "time", "seconds"} <= {*volatile}
        else None
    )


def _metric_range(
    name: str, evaluation_index: int | None, have: Sequence[Series], place: Place, b: Series
) -> MetricRange:
    repeats = [series[place] for series in have if place in series]
    value = b[place]
    finite = all(map(math.isfinite, repeats))
    low, high = (min(repeats), max(repeats)) if finite else (math.nan, math.nan)
    return MetricRange(name, evaluation_index, low, high, value, len(repeats))


def _series(run: RecordedRun, *, stepwise: bool) -> dict[str, Series]:
    """Return the series of each metric on the lowest rank, and the loss of each step."""
    rank = min(run.traces)
    metric_series: dict[str, Series] = {}
    for (line_rank, name), lines in run.evaluations.items():
        for place, line in _placed(lines, stepwise=stepwise) if line_rank == rank else ():
            for metric, recorded in line["values"].items():
                if (value := number(recorded)) is not None:
                    metric_series.setdefault(f"{name} {metric}", {})[place] = value
    for place, line in _placed(run.traces[rank].of("step"), stepwise=stepwise):
        if (value := number(line.get("loss"))) is not None:
            metric_series.setdefault("loss", {})[place] = value
    return metric_series


def _placed(lines: Iterable[Line], *, stepwise: bool) -> Iterator[tuple[Place, Line]]:
    return by_step(lines) if stepwise else (((None, i), line) for i, line in enumerate(lines))


def _run_warnings(
    runs: list[RecordedRun], b: RecordedRun, ignore: Sequence[str]
) -> dict[str, list[str]]:
    names = [f"A{i}" for i in range(1, len(runs) + 1)]
    run_notes = {
        name: warnings_of(run) for name, run in zip([*names, "B"], [*runs, b], strict=True)
    }
    for name, run in zip(names[1:], runs[1:], strict=True):
        unlike = [
            section.name
            for section in start_sections(runs[0], run, ignore)
            if section and section.name in _COMPARED_SECTIONS
        ]
        if unlike:
            run_notes[name].append(f"differs from A1 in {', '.join(unlike)}: is it a repeat?")
    return {name: notes for name, notes in run_notes.items() if notes}
