"""What a recorded run shows that no comparison does: metrics that stand still, evaluations of a part, killed ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from datacheck.repro.runs.read import Line, Run, plain

_CONSTANT = 3  # evaluations
_CONSTANT_STEPS = 10
_SHOWN = 5


def warnings_of(run: Run) -> list[str]:
    """Return a sentence for each thing that makes a run's figures doubtful."""
    found = [*run.notes, *_ends(run), *_constant(run), *_partial(run), *_losses(run)]
    unseen = [why for line in run.loaders if isinstance(why := line.get("unseen"), str) and why]
    return [*found, *(f"sample indices were not seen: {why}" for why in unseen)]


def by_step(lines: Iterable[Line]) -> Iterator[tuple[tuple[int, int], Line]]:
    """Yield lines with their step, and their number at that step: a run that goes on has not the first ones."""
    times: Counter[int] = Counter()
    for line in lines:
        yield (line["step"], times[line["step"]]), line
        times[line["step"]] += 1


def number(said: Any) -> float | None:
    """Return the number that a trace writes as hex digits."""
    try:
        return float.fromhex(said) if isinstance(said, str) else None
    except (ValueError, OverflowError):
        return None


def _ends(run: Run) -> Iterator[str]:
    several = run.world > 1  # which goes over all ranks
    for rank in run.traces:
        whose = f" of rank {rank}" if several else ""
        if rank not in run.ended:
            yield f"the trace{whose} has no end: the run was killed, or still runs"
        elif run.ended[rank] != "done":
            yield f"the trace{whose} ends with {run.ended[rank]}"


def _constant(run: Run) -> Iterator[str]:
    """Tell metrics that are the same in all evaluations (102.152 mm for eight epochs)."""
    told = set()
    for (_, name), lines in run.evaluations.items():
        if len(lines) < _CONSTANT:
            continue
        for metric in lines[0]["values"]:
            said = [line["values"].get(metric) for line in lines[:_CONSTANT]]
            if len(set(map(str, said))) > 1:
                continue
            said = [line["values"].get(metric) for line in lines]
            if len(set(map(str, said))) == 1 and (name, metric) not in told:
                told.add((name, metric))
                value = number(said[0])
                what = "no number" if value is None else f"{value:.6g}"
                yield f"{name} {metric} is {what} in all {len(lines)} evaluations: is it the trained model?"


def _partial(run: Run) -> Iterator[str]:
    """Tell evaluations whose values are not made of every sample.

    Where all ranks wrote equal values they were put together, and what the ranks saw counts together.
    """
    several = run.world > 1
    by_name: dict[str, dict[int, list[Line]]] = defaultdict(dict)
    for (rank, name), lines in run.evaluations.items():
        by_name[name][rank] = lines
    for name, ranks in by_name.items():
        for lines in map(list, zip(*ranks.values(), strict=False)):
            counted = [(line["seen"], line["of"]) for line in lines if _counts(line)]
            if len(counted) < len(lines):
                continue
            alike = len(lines) > 1 and all(line["values"] == lines[0]["values"] for line in lines)
            of = max(of for _, of in counted)
            seen = sum(seen for seen, _ in counted) if alike else min(seen for seen, _ in counted)
            if seen < of:
                whose = f" on rank {min(ranks)}" if several and not alike else ""
                yield f"{name}{whose} is made of {seen:,} of {of:,} samples"
                break


def _counts(line: Line) -> bool:
    return type(line.get("seen")) is int and type(line.get("of")) is int


def _losses(run: Run) -> Iterator[str]:
    rank = min(run.traces)
    said, count, constant = None, 0, True
    broken = None
    for line in run.traces[rank].of("step"):
        loss = line.get("loss")
        loss = loss if plain(loss) else "no number"
        constant, said, count = constant and loss in (None, said or loss), said or loss, count + 1
        value = number(loss)
        if broken is None and (value is None or value - value != 0) and loss is not None:
            broken = line["step"]
    if broken is not None:
        yield f"the loss is not finite from step {broken} on"
    if constant and said is not None and count >= _CONSTANT_STEPS and broken is None:
        yield f"the loss is the same number in all {count:,} steps"
