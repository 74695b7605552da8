"""Compares two recorded runs: what differs, likely causes first, and where their steps diverge."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datacheck.repro.recorded import Line, RecordedRun, is_flat, read_run
from datacheck.repro.sections import ORDER, RunDifference, Section, start_sections, weights_equal
from datacheck.repro.steps import (
    CAUSES,
    COLUMNS,
    ColumnDivergence,
    Divergence,
    began,
    compare_ranks,
    first_column,
    meaning,
)

_LISTED = 1000  # limit of differences per section in JSON
_RANKS = 10  # limit of ranks named in a message


@dataclass
class RunDiff:
    """The differences between two runs.

    Args:
        a, b: the runs.
        sections: the sections of `ORDER` that apply, in that order.
        divergences: the comparison of the traces of each rank.
        column: the column that diverges first, over all ranks.
        meaning: its interpretation, in one sentence.
        warnings: sentences that cast doubt on the figures, by run ("A", "B", "both").
    """

    a: RecordedRun
    b: RecordedRun
    sections: list[Section]
    divergences: list[Divergence]
    column: ColumnDivergence | None = None
    meaning: str = ""
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.first is not None

    @property
    def first(self) -> Section | None:
        """The first section that differs; among sections with steps, the earliest to diverge."""
        differing = [section for section in self.sections if section]
        if not differing or differing[0].name != "order" or differing[0].step is None:
            return differing[0] if differing else None
        start = min(
            (parting.first for parting in self.divergences if parting.first is not None), default=0
        )
        began = {"initial weights": start}  # initial weights differ before any order can
        return min(
            differing,
            key=lambda candidate: began.get(
                candidate.name, math.inf if candidate.step is None else candidate.step
            ),
        )

    @property
    def compared(self) -> int:
        """Number of steps that both runs have, over all ranks."""
        return sum(parting.compared for parting in self.divergences)

    @property
    def nothing(self) -> bool:
        """Whether no step and no evaluation could be compared."""
        compared_sections = [
            section for section in self.sections if section.name in {"step trace", "evaluations"}
        ]
        return bool(compared_sections) and all(
            section.unknown and not section for section in compared_sections
        )

    @property
    def cut(self) -> list[str]:
        """The runs (A, B) that were killed or are still running."""
        return [
            name for name, run in (("A", self.a), ("B", self.b)) if {*run.traces} - {*run.ended}
        ]

    @property
    def lacks(self) -> list[str]:
        """What only one run has, or what cannot be compared.

        Ranks, the environment, steps on damaged lines, digests made on a device, columns.
        """
        known_ranks = {rank for run in (self.a, self.b) for rank in (*run.traces, *run.missing)}
        ranks = sorted(known_ranks - ({*self.a.traces} & {*self.b.traces}))
        listed = ", ".join(map(str, ranks[:_RANKS])) + ", ..." * (len(ranks) > _RANKS)
        phrases = [f"rank{'s' if len(ranks) > 1 else ''} {listed}"] if ranks else []
        captured_sides = [name for name, run in (("A", self.a), ("B", self.b)) if run.environment]
        phrases += (
            [f"the environment, which only {captured_sides[0]} has"]
            if len(captured_sides) == 1
            else []
        )
        missing_count = sum(
            sum(_missing_steps(self.a, self.b, divergence).values())
            for divergence in self.divergences
        )
        phrases += [
            f"{missing_count:,} step{'s' if missing_count > 1 else ''} that one of them lacks"
        ] * bool(missing_count)
        unlike_names = sorted(
            {
                name
                for divergence in self.divergences
                for name in divergence.unlike - divergence.known
            }
        )
        phrases += [f"{', '.join(unlike_names)}, of which one was made on a device"] * bool(
            unlike_names
        )
        phrases += [
            f"{', '.join(names)}, which only {side} has"
            for side, names in self._alone.items()
            if names
        ]
        return phrases + _unread_parts(self.a, self.b, self.divergences)

    @property
    def _alone(self) -> dict[str, list[str]]:
        """Columns and evaluations that only one run recorded, though both have the step."""
        recorded_alone = {
            (side, name)
            for divergence in self.divergences
            for name, side in divergence.alone.items()
            if name not in divergence.known
        }
        steps = {
            side: [name for name in COLUMNS if (side, name) in recorded_alone]
            for side in ("A", "B")
        }
        return {side: names + _extra_evaluations(self, side) for side, names in steps.items()}

    @property
    def code(self) -> int:
        """The exit code: 1 differences; 2 none found but not all was compared; 0 equal."""
        return 1 if self else 2 if self.nothing or self.cut or self.lacks else 0

    @property
    def headline(self) -> str:
        """The most important fact, in one sentence."""
        if self.first is None and self.nothing:
            return "nothing can be said: no step and no evaluation was recorded in both"
        if self.first is None and self.cut:
            end_steps = [
                max(began(run, rank) + count for rank, count in run.steps.items())
                for run in (self.a, self.b)
            ]
            shorter_run = (
                "both"
                if end_steps[0] == end_steps[1] and len(self.cut) > 1
                else min(self.cut, key=lambda x: end_steps["AB".index(x)])
            )
            return (
                f"equal as far as {shorter_run} came, step {min(end_steps):,} of {max(end_steps):,}: killed, or "
                f"still running"
            )
        steps = f"{self.compared:,} steps" if self.compared else "no step"
        if self.first is None and self.lacks:
            return (
                f"equal in what could be compared, {steps}; not compared: {'; '.join(self.lacks)}"
            )
        if self.first is None:
            return f"no difference: what was recorded is equal, {steps} compared"
        if self.first.name == "step trace" and self.first.note:
            return self.first.note
        weights = self.first.name == "order" and _differing_section(
            self.sections, "initial weights"
        )
        weights_remark = ". The initial weights differ, too" if weights else ""
        return f"{self.first.name} differs first: {_section_summary(self.first)}{weights_remark}"

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as JSON values."""
        column = None if self.column is None else _column_json(self.column)
        return {
            "a": str(self.a.path),
            "b": str(self.b.path),
            "equal": {0: True, 1: False, 2: None}[self.code],
            "headline": self.headline,
            "first": None if self.first is None else self.first.name,
            "sections": [_section_json(section) for section in self.sections],
            "steps": {
                "compared": self.compared,
                "first": column,
                "meaning": self.meaning,
                "ranks": [_rank_json(parting) for parting in self.divergences],
            },
            "warnings": self.warnings,
        }


def _rank_json(parting: Divergence) -> dict[str, Any]:
    columns = [_column_json(column) for column in parting.columns]
    return {
        "rank": parting.rank,
        "compared": parting.compared,
        "only": parting.only,
        "columns": columns,
    }


def _section_json(section: Section) -> dict[str, Any]:
    state = "different" if section else "unknown" if section.unknown else "same"
    listed = [
        {"name": difference.name, "a": difference.a, "b": difference.b}
        for difference in section.differences[:_LISTED]
    ]
    return {
        "name": section.name,
        "state": state,
        "count": len(section.differences),
        "differences": listed,
        "note": section.note or section.unknown,
    }


def _column_json(column: ColumnDivergence) -> dict[str, Any]:
    return {
        "name": column.name,
        "step": column.step,
        "equal_at": column.after,
        "epoch": column.epoch,
        "rank": column.rank,
        "a": column.a,
        "b": column.b,
    }


def _section_summary(section: Section) -> str:
    if section.note:
        return section.note
    difference = section.differences[0]
    extra_count = len(section.differences) - 1
    a, b = short_pair(difference)
    return f"{difference.name} is {a} in A and {b} in B" + (
        f", and {extra_count:,} more" if extra_count else ""
    )


def short_pair(one: RunDifference) -> tuple[str, str]:
    """Return both values of a difference in few characters; of two records only what differs."""
    if not (isinstance(one.a, dict) and isinstance(one.b, dict)):
        return short(one.a), short(one.b)
    names = [name for name in sorted({*one.a, *one.b}) if one.a.get(name) != one.b.get(name)]
    texts = [
        ", ".join(f"{name} {short(side.get(name))}" for name in names) for side in (one.a, one.b)
    ]
    return texts[0], texts[1]


def short(value: Any) -> str:
    """Return a value in few characters."""
    if value is None:
        return "none"
    if isinstance(value, dict) and isinstance(value.get("digest"), str):
        value = f"{value.get('kind', 'digest')} {value['digest']}"
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= 48 else f"{text[:45]}..."


def diff_runs(
    a: Path | RecordedRun, b: Path | RecordedRun, *, ignore: Sequence[str] = ()
) -> RunDiff:
    """Compare two recorded runs.

    Args:
        a, b: the runs, or their folders.
        ignore: names that may differ ("config.out", or "config" for all of it).

    Returns:
        A `RunDiff`, which is true if anything differs.

    Raises:
        UsageError: one of them is not a recorded run.
    """
    a, b = (one if isinstance(one, RecordedRun) else read_run(one) for one in (a, b))
    sections = start_sections(a, b, ignore)
    divergences = compare_ranks(a, b)
    column, explanation = _first_divergence(a, b, divergences)
    sections += [
        _order_section(divergences),
        _trace_section(a, b, divergences, column, explanation),
        _evaluation_section(a, b),
    ]
    seeds = _differing_section(sections, "seeds")
    if seeds and not any(
        _differing_section(sections, name) for name in ("order", "initial weights", "step trace")
    ):
        seeds.note, seeds.differences = (
            "other random states, on which nothing that was recorded depends",
            [],
        )
    sections = sorted(
        (one for one in sections if one.name not in ignore), key=lambda one: ORDER.index(one.name)
    )
    warned = {
        "A": warnings_of(a),
        "B": warnings_of(b),
        "both": _incomparable_parts(a, b, divergences),
    }
    return RunDiff(
        a,
        b,
        sections,
        divergences,
        column,
        explanation,
        {side: explanation for side, explanation in warned.items() if explanation},
    )


def _differing_section(sections: Iterable[Section], name: str) -> Section | None:
    named_section = next(section for section in sections if section.name == name)
    return named_section if named_section else None


def _first_divergence(
    a: RecordedRun, b: RecordedRun, divergences: list[Divergence]
) -> tuple[ColumnDivergence | None, str]:
    candidates = [
        (column, parting)
        for parting in divergences
        if (column := first_column(parting)) is not None
    ]
    if not candidates:
        return None, ""
    column, parting = min(candidates, key=lambda pair: pair[0].order)
    return column, meaning(parting, column, weights_equal=weights_equal(a, b, parting.rank))


def _order_section(divergences: list[Divergence]) -> Section:
    """Return the section of the order: different indices, or the same samples in other batches.

    The earliest divergence comes first.
    """
    section = Section("order")
    order_divergences = []
    for parting in divergences:
        values = parting.column("input")
        shuffled = values if values is not None and values.epoch in parting.shuffled else None
        columns = [column for column in (parting.column("indices"), shuffled) if column is not None]
        if columns:
            order_divergences.append((min(columns, key=lambda column: column.order), parting))
    order_divergences.sort(key=lambda pair: pair[0].order)
    section.differences = [
        RunDifference(_difference_name(column, divergences), column.a, column.b)
        for column, _ in order_divergences
    ]
    if order_divergences:
        column, parting = order_divergences[0]
        section.step = column.step
        section.note = (
            f"{_divergence_place(column, divergences)}: "
            f"{meaning(parting, column, weights_equal=None)}"
        )
    elif not any({"indices", "input"} & parting.known for parting in divergences):
        section.unknown = "not recorded"
    elif not any("indices" in parting.known for parting in divergences):
        section.unknown = "the indices of samples were not recorded"
    return section


def _difference_name(column: ColumnDivergence, divergences: list[Divergence]) -> str:
    rank = f" of rank {column.rank}" if len(divergences) > 1 else ""
    return f"step {column.step}{rank}, {column.name}"


def _divergence_place(column: ColumnDivergence, divergences: list[Divergence]) -> str:
    rank = f" of rank {column.rank}" if len(divergences) > 1 else ""
    epoch = "" if column.epoch is None else f" (epoch {column.epoch})"
    return f"from step {column.step}{rank}{epoch} on"


def _trace_section(
    a: RecordedRun,
    b: RecordedRun,
    divergences: list[Divergence],
    column: ColumnDivergence | None,
    explanation: str,
) -> Section:
    section = Section("step trace")
    diverging_columns = [
        one
        for parting in divergences
        for one in parting.columns
        if not one.name.startswith("random ")
    ]
    diverging_columns.sort(key=lambda one: one.order)
    section.differences = [
        RunDifference(_difference_name(one, divergences), one.a, one.b) for one in diverging_columns
    ]
    if column is not None:
        section.step = column.step
        section.note = (
            f"{column.name} differs first, {_divergence_place(column, divergences)}: {explanation}"
        )
        return section
    if not any(parting.known & {*CAUSES} for parting in divergences):
        section.unknown = "no step that both have"
        if any(parting.compared for parting in divergences):
            section.unknown = "nothing of a step that both have recorded"
    for one in divergences:
        ended = one.rank in a.ended and one.rank in b.ended  # a killed run is only shorter
        # One run resumes where the other ended
        follows = began(a, one.rank) != began(b, one.rank) and not one.compared
        if ended and not follows and not _equal_lengths(a, b, one):
            steps_a, steps_b = (one.compared + one.only[side] for side in ("A", "B"))
            section.differences.append(
                RunDifference(f"number of steps of rank {one.rank}", steps_a, steps_b)
            )
    return section


def _evaluation_section(a: RecordedRun, b: RecordedRun) -> Section:
    section = Section("evaluations")
    evaluations_a, evaluations_b = a.evaluations, b.evaluations
    compared = 0
    for rank, name in sorted({*evaluations_a} & {*evaluations_b}):
        lines_b = dict(by_step(evaluations_b[rank, name]))
        for i, (place, line_a) in enumerate(by_step(evaluations_a[rank, name])):
            line_b = lines_b.get(place, {"values": {}})
            for metric in sorted({*line_a["values"]} & {*line_b["values"]}):
                x = line_a["values"][metric]
                y = line_b["values"][metric]
                compared += 1
                if x != y:
                    section.differences.append(
                        RunDifference(
                            f"{name} {metric}, evaluation {i}",
                            _readable_number(x),
                            _readable_number(y),
                        )
                    )
    if not compared:
        section.unknown = "no metric that both have"
    return section


def _extra_evaluations(run_diff: RunDiff, side: str) -> list[str]:
    """Return the evaluations and metrics that only one run has, from where both had begun."""
    own_run, other_run = (run_diff.a, run_diff.b) if side == "A" else (run_diff.b, run_diff.a)
    own_evaluations, other_evaluations = own_run.evaluations, other_run.evaluations
    descriptions = []
    for (rank, name), lines in own_evaluations.items():
        if rank not in other_run.traces:
            continue
        start_step = began(other_run, rank) if began(other_run, rank) > began(own_run, rank) else -1
        other_lines = dict(by_step(other_evaluations.get((rank, name), [])))
        placed = [(place, line) for place, line in by_step(lines) if place[0] > start_step]
        if extra_count := sum(place not in other_lines for place, _ in placed):
            descriptions.append(
                f"{extra_count:,} evaluation{'s' if extra_count > 1 else ''} of {name}"
            )
        extra_metrics = (
            {*line["values"]} - {*other_lines[place]["values"]}
            for place, line in placed
            if place in other_lines
        )
        descriptions += [f"{name} {metric}" for metric in sorted(set().union(*extra_metrics))]
    return list(dict.fromkeys(descriptions))


def _readable_number(recorded: Any) -> Any:
    value = number(recorded)
    return recorded if value is None else repr(value)


def _incomparable_parts(a: RecordedRun, b: RecordedRun, divergences: list[Divergence]) -> list[str]:
    """Return sentences on the parts of the traces that could not be compared."""
    names = sorted(set().union(*(parting.unlike for parting in divergences)))
    sentences = [
        f"{', '.join(names)}: digested on a device in one run and in main memory in the other, not "
        f"comparable"
    ]
    start_steps = {(began(a, parting.rank), began(b, parting.rank)) for parting in divergences}
    later = [
        f"A began at step {one:,}, B at step {other:,}: nothing before step {max(one, other):,} "
        f"was compared"
        for one, other in sorted(start_steps)
        if one != other
    ]
    return (
        sentences * bool(names)
        + later
        + [
            _missing_steps_note(counts)
            for one in divergences
            if (counts := _missing_steps(a, b, one))
        ]
        + [f"not compared: {part}" for part in _unread_steps(divergences)]
    )


def _unread_parts(a: RecordedRun, b: RecordedRun, divergences: list[Divergence]) -> list[str]:
    """Return the parts that no Recorder writes and that are not compared, in phrases."""
    phrases = []
    for side, run in (("A", a), ("B", b)):
        if count := sum(trace.unread for trace in run.traces.values()):
            phrases.append(f"{_lines(count)} that could not be read in {side}")
        phrases += [f"{part} in {side}" for part in run.uncompared]
    return phrases + _unread_steps(divergences)


def _unread_steps(divergences: list[Divergence]) -> list[str]:
    phrases = []
    for side in ("A", "B"):
        if count := sum(one.dropped[side] for one in divergences):
            phrases.append(
                f"{_lines(count)} of {side} with a step that is there twice or does not rise"
            )
    nested = {name for one in divergences for name in one.nested}
    names = [name for name in COLUMNS if name in nested]
    return phrases + [f"nested values of {', '.join(names)}"] * bool(names)


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def _missing_steps(a: RecordedRun, b: RecordedRun, parting: Divergence) -> dict[str, int]:
    """Return by run how many steps only it has, if both must have made the same steps.

    A Recorder leaves out no step, so such lines are damaged.
    """
    return (
        {side: count for side, count in parting.only.items() if count}
        if _equal_lengths(a, b, parting)
        else {}
    )


def _missing_steps_note(counts: dict[str, int]) -> str:
    counts_text = ", ".join(f"{count:,} only {side} has" for side, count in counts.items())
    return (
        f"steps that were not compared: {counts_text}; the lines of the other are damaged, or it began "
        f"elsewhere"
    )


def _equal_lengths(a: RecordedRun, b: RecordedRun, parting: Divergence) -> bool:
    """Return whether both made equally many steps, as far as damaged lines allow to tell."""
    rank, last = parting.rank, parting.last
    return (
        last.get("A") == last.get("B")
        or began(a, rank) + a.steps[rank] == began(b, rank) + b.steps[rank]
    )


_CONSTANT = 3  # evaluations, at least
_CONSTANT_STEPS = 10
_SHOWN = 5


def warnings_of(run: RecordedRun) -> list[str]:
    """Return one sentence for each reason to doubt a run's figures."""
    sentences = [
        *run.notes,
        *_unfinished_traces(run),
        *_constant_metrics(run),
        *_partial_evaluations(run),
        *_loss_warnings(run),
    ]
    unseen = [
        reason for line in run.loaders if isinstance(reason := line.get("unseen"), str) and reason
    ]
    return [*sentences, *(f"sample indices were not seen: {reason}" for reason in unseen)]


def by_step(lines: Iterable[Line]) -> Iterator[tuple[tuple[int, int], Line]]:
    """Yield each line with its step and its count at that step.

    A count over the whole run would not match: a resumed run lacks the first lines.
    """
    times: Counter[int] = Counter()
    for line in lines:
        yield (line["step"], times[line["step"]]), line
        times[line["step"]] += 1


def number(said: Any) -> float | None:
    """Return the number that a trace holds as hex digits, None for anything else."""
    try:
        return float.fromhex(said) if isinstance(said, str) else None
    except (ValueError, OverflowError):
        return None


def _unfinished_traces(run: RecordedRun) -> Iterator[str]:
    several = run.world > 1  # the property loops over all ranks
    for rank in run.traces:
        rank_text = f" of rank {rank}" if several else ""
        if rank not in run.ended:
            yield f"the trace{rank_text} has no end: the run was killed, or still runs"
        elif run.ended[rank] != "done":
            yield f"the trace{rank_text} ends with {run.ended[rank]}"


def _constant_metrics(run: RecordedRun) -> Iterator[str]:
    """Warn of metrics that are equal in all evaluations (102.152 mm for eight epochs)."""
    reported = set()
    for (_, name), lines in run.evaluations.items():
        if len(lines) < _CONSTANT:
            continue
        # One pass: a line leaves no more metrics to compare than it has values.
        constant: dict[str, Any] = lines[0]["values"]
        for line in lines[1:]:
            values = line["values"]
            constant = {
                metric: value
                for metric, value in constant.items()
                if metric in values and str(values[metric]) == str(value)
            }
            if not constant:
                break
        for metric, recorded in constant.items():
            if (name, metric) in reported:
                continue
            reported.add((name, metric))
            value = number(recorded)
            value_text = "no number" if value is None else f"{value:.6g}"
            yield (
                f"{name} {metric} is {value_text} in all {len(lines)} evaluations: is it the "
                f"trained model?"
            )


def _partial_evaluations(run: RecordedRun) -> Iterator[str]:
    """Warn of evaluations that do not cover every sample.

    Equal values on all ranks are a combined result, so the samples of the ranks are added up.
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
            combined = len(lines) > 1 and all(
                line["values"] == lines[0]["values"] for line in lines
            )
            total = max(total for _, total in counted)
            seen_count = (
                sum(seen_count for seen_count, _ in counted)
                if combined
                else min(seen_count for seen_count, _ in counted)
            )
            if seen_count < total:
                rank_text = f" on rank {min(ranks)}" if several and not combined else ""
                yield f"{name}{rank_text} is made of {seen_count:,} of {total:,} samples"
                break


def _counts(line: Line) -> bool:
    return type(line.get("seen")) is int and type(line.get("of")) is int


def _loss_warnings(run: RecordedRun) -> Iterator[str]:
    rank = min(run.traces)
    first_loss = None
    count = 0
    constant = True
    broken = None
    for line in run.traces[rank].of("step"):
        loss = line.get("loss")
        loss = loss if is_flat(loss) else "no number"
        constant, first_loss, count = (
            constant and loss in (None, first_loss or loss),
            first_loss or loss,
            count + 1,
        )
        value = number(loss)
        if broken is None and (value is None or value - value != 0) and loss is not None:
            broken = line["step"]
    if broken is not None:
        yield f"the loss is not finite from step {broken} on"
    if constant and first_loss is not None and count >= _CONSTANT_STEPS and broken is None:
        yield f"the loss is the same number in all {count:,} steps"
