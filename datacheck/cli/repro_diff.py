"""``datacheck repro diff``: compare two recorded runs, or one run with repeats of another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.options import json_option
from datacheck.cli.output import first_lines, say_result

if TYPE_CHECKING:
    from datacheck.repro.noise import MetricRange, Noise
    from datacheck.repro.recorded import RecordedRun
    from datacheck.repro.run_diff import RunDiff
    from datacheck.repro.sections import Section

# so that a report fits on a screen
_MOST_DIFFERENCES = 3  # of a section
_MOST_WARNINGS = 6
_MOST_METRICS = 12
_COMPARED_KEY = "datacheck.repro.compared"  # of the context: the arguments after --


class _RepeatsCommand(click.Command):
    """A command for which ``--`` separates repeats from the run that is compared with them.

    Click would treat ``--`` as the end of options.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            separator = args.index("--")
            ctx.meta[_COMPARED_KEY] = args[separator + 1 :]
            args = args[:separator]
        return super().parse_args(ctx, args)


@click.command(cls=_RepeatsCommand, options_metavar="[OPTIONS]")
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    metavar="A B | A1 A2 A3 ... -- B",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="NAME",
    help="Ignore differences in a section (packages) or an entry (config.out); repeatable.",
)
@json_option
@click.pass_context
def diff(ctx: click.Context, runs: tuple[Path, ...], ignore: tuple[str, ...], form: str) -> None:
    """Compare two recorded runs and find the step where they diverge.

    With repeats of A before --, report whether the metrics of B lie outside of the range of the
    repeats; this takes at least three repeats.

    The exit code is 1 if anything differs or B lies outside. It is 2 if the runs could not be
    compared, or if no difference was found but parts could not be compared, because a run was
    killed or a rank left no trace.
    """
    compared = ctx.meta.get(_COMPARED_KEY)
    if compared is not None:
        if len(compared) != 1:
            msg = "write one run after --: datacheck repro diff A1 A2 A3 -- B"
            raise click.UsageError(msg, ctx)
        _diff_repeats(ctx, runs, Path(compared[0]), ignore, form)
        return
    if len(runs) != 2:
        msg = (
            "write two runs: datacheck repro diff A B. With repeats of A: datacheck repro diff A1 "
            "A2 A3 -- B"
        )
        raise click.UsageError(msg, ctx)
    from datacheck.repro.run_diff import diff_runs

    difference = diff_runs(*runs, ignore=ignore)
    say_result(difference.as_json(), _run_diff_lines(difference), form)
    if difference.code:
        ctx.exit(difference.code)


def _diff_repeats(
    ctx: click.Context,
    repeats: tuple[Path, ...],
    compared: Path,
    ignore: tuple[str, ...],
    form: str,
) -> None:
    from datacheck.repro.noise import noise_floor

    noise = noise_floor(repeats, compared, ignore=ignore)
    say_result(noise.as_json(), _noise_lines(noise), form)
    if not noise.enough:
        ctx.exit(2)
    if noise.outside:
        ctx.exit(1)


# ----------------------------------------------------------------------------------------- two runs


def _run_diff_lines(difference: RunDiff) -> Iterator[str]:
    yield difference.headline
    yield ""
    yield f"A  {_run_text(difference.a)}"
    yield f"B  {_run_text(difference.b)}"
    yield ""
    for section in difference.sections:
        yield from _section_lines(section, head=section is difference.first)
    yield from _column_lines(difference)
    yield from _warning_lines(difference.warnings)


def _run_text(run: RecordedRun) -> str:
    from datacheck.repro.steps import began

    steps = max(run.steps.values())
    ranks = f", {len(run.traces)} of {run.world} ranks" if run.world > 1 else ""
    first_step = began(run, min(run.traces))
    since = f" from step {first_step:,} on" if first_step else ""
    return f"{run.path}: {steps:,} steps{since}{ranks}"


def _section_lines(section: Section, *, head: bool) -> Iterator[str]:
    from datacheck.repro.run_diff import short_pair

    if not section:
        status = f"not compared: {section.unknown}" if section.unknown else "same"
        yield f"{section.name:<16}{status}{f' ({section.note})' if section.note else ''}"
        return
    count = len(section.differences)
    if section.name == "step trace" and section.note:  # `_column_lines` lists its columns
        yield f"{section.name:<16}{'differs' if head else section.note}"
        return
    note = f": {section.note}" if section.note else ""
    yield f"{section.name:<16}{f'{count:,} differ' if count > 1 else 'differs'}{note}"
    yield from first_lines(
        section.differences,
        lambda each: f"{each.name}: {', then '.join(short_pair(each))}",
        most=_MOST_DIFFERENCES,
    )
    if section.name == "data":
        yield "    datacheck diff of these data, or of manifests, names the files"


def _column_lines(difference: RunDiff) -> Iterator[str]:
    """Yield the step at which each column diverges, for the rank that diverges first."""
    if difference.column is None:
        return
    rank = difference.column.rank
    divergence = next(each for each in difference.divergences if each.rank == rank)
    yield ""
    yield "column          parts at"
    for column in divergence.columns:
        if column.name in {"random python", "random numpy"} and column.step == divergence.first:
            # usually not seeded, and models do not draw from them; seeded ones are among the seeds
            continue
        gap = ""
        if column.after not in (None, column.step - 1):
            gap = f" (equal at {column.after}, not written in between)"
        yield f"{column.name:<16}step {column.step:,}{gap}"


def _warning_lines(warnings: dict[str, list[str]]) -> Iterator[str]:
    lines = [f"{whose}: {message}" for whose, messages in warnings.items() for message in messages]
    if lines:
        yield ""
    yield from (f"warning  {line}" for line in lines[:_MOST_WARNINGS])
    if len(lines) > _MOST_WARNINGS:
        yield f"         ... and {len(lines) - _MOST_WARNINGS:,} more"


# ------------------------------------------------------------------------------------------ repeats


def _noise_lines(noise: Noise) -> Iterator[str]:
    yield noise.headline
    yield ""
    for i, run in enumerate(noise.runs[:_MOST_METRICS], 1):
        yield f"A{i}  {_run_text(run)}"
    yield f"B   {_run_text(noise.b)}"
    if noise.final:
        yield ""
        yield f"{'last value':<24}{'lowest A':>14}{'highest A':>14}{'B':>14}"
    for spread in noise.final[:_MOST_METRICS]:
        within = [evaluation for evaluation in noise.each if evaluation.name == spread.name]
        inside = sum(evaluation.inside for evaluation in within)
        evaluations = f", {inside} of {len(within)} evaluations inside" if within else ""
        yield f"{spread.name:<24}{_figures(spread)}  {_verdict(spread)}{evaluations}"
    if len(noise.final) > _MOST_METRICS:
        yield f"... and {len(noise.final) - _MOST_METRICS:,} more"
    yield from _warning_lines(noise.warnings)


def _verdict(spread: MetricRange) -> str:
    if not spread.enough:
        return "not known"
    return "inside" if spread.inside else "outside"


def _figures(spread: MetricRange) -> str:
    return "".join(f"{value:>14.6g}" for value in (spread.low, spread.high, spread.value))
