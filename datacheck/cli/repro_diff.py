"""``datacheck repro diff``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.repro import show

if TYPE_CHECKING:
    from datacheck.repro.noise import MetricRange, Noise
    from datacheck.repro.recorded import RecordedRun
    from datacheck.repro.run_diff import RunDiff
    from datacheck.repro.sections import Section

_SHOWN = 3  # differences of a section, so that the report fits on a screen
_WARNINGS = 6
_METRICS = 12
_REPEATS_KEY = "datacheck.repro.repeats"


class _WithRepeats(click.Command):
    """A command for which ``--`` separates repeats from the run that is compared with them.

    Click would treat ``--`` as the end of options.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            separator = args.index("--")
            ctx.meta[_REPEATS_KEY] = args[separator + 1 :]
            args = args[:separator]
        return super().parse_args(ctx, args)


@click.command(cls=_WithRepeats, options_metavar="[OPTIONS]")
@click.argument(
    "runs",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    metavar="A B | A1 A2 A3 ... -- B",
)
@click.option(
    "--ignore", multiple=True, metavar="NAME", help="What may differ: config.out, or packages."
)
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.pass_context
def diff(ctx: click.Context, runs: tuple[Path, ...], ignore: tuple[str, ...], form: str) -> None:
    """Say what differs between two recorded runs, and at which step they part.

    With repeats of A before -- say whether B lies outside of how far those lie apart; three or more
    are wanted. The exit code is 1 where anything differs, or B lies outside; 2 where nothing can be
    said, or nothing differs and not all of both could be compared: a run was killed, a rank left no
    trace.
    """
    if (after := ctx.meta.get(_REPEATS_KEY)) is not None:
        if len(after) != 1:
            msg = "one run is wanted behind --: datacheck repro diff A1 A2 A3 -- B"
            raise click.UsageError(msg, ctx)
        _diff_repeats(ctx, runs, Path(after[0]), ignore, form)
        return
    if len(runs) != 2:
        msg = (
            "two runs are compared: datacheck repro diff A B. Of repeats: datacheck repro diff "
            "A1 A2 A3 -- B"
        )
        raise click.UsageError(msg, ctx)
    from datacheck.repro.run_diff import diff_runs

    difference = diff_runs(*runs, ignore=ignore)
    show(difference.as_json(), run_diff_lines(difference), form)
    if difference.code:
        ctx.exit(difference.code)


def _diff_repeats(
    ctx: click.Context, runs: tuple[Path, ...], b: Path, ignore: tuple[str, ...], form: str
) -> None:
    from datacheck.repro.noise import noise_floor

    noise = noise_floor(runs, b, ignore=ignore)
    show(noise.as_json(), _noise_lines(noise), form)
    if not noise.enough:
        ctx.exit(2)
    if noise.outside:
        ctx.exit(1)


# ----------------------------------------------------------------------------------------- two runs


def run_diff_lines(found: RunDiff) -> Iterator[str]:
    """Yield the lines on two runs, at most a screen."""
    yield found.headline
    yield ""
    yield f"A  {_run(found.a)}"
    yield f"B  {_run(found.b)}"
    yield ""
    for section in found.sections:
        yield from _section_lines(section, head=section is found.first)
    yield from _column_lines(found)
    yield from _warning_lines(found.warnings)


def _run(run: RecordedRun) -> str:
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
    for difference in section.differences[:_SHOWN]:
        yield f"    {difference.name}: {', then '.join(short_pair(difference))}"
    if count > _SHOWN:
        yield f"    ... and {count - _SHOWN:,} more"
    if section.name == "data":
        yield "    datacheck diff of these data, or of manifests, names the files"


def _column_lines(difference: RunDiff) -> Iterator[str]:
    """Yield the step at which each column diverges, for the rank that diverges first."""
    if difference.column is None:
        return
    parting = next(
        divergence
        for divergence in difference.divergences
        if divergence.rank == difference.column.rank
    )
    yield ""
    yield "column          parts at"
    for column in parting.columns:
        if column.name in {"random python", "random numpy"} and column.step == parting.first:
            # usually not seeded, and models do not draw from them; seeded ones are among the seeds
            continue
        since = (
            ""
            if column.after in (None, column.step - 1)
            else f" (equal at {column.after}, not written in between)"
        )
        yield f"{column.name:<16}step {column.step:,}{since}"


def _warning_lines(warnings: dict[str, list[str]]) -> Iterator[str]:
    lines = [f"{whose}: {message}" for whose, messages in warnings.items() for message in messages]
    if lines:
        yield ""
    yield from (f"warning  {line}" for line in lines[:_WARNINGS])
    if len(lines) > _WARNINGS:
        yield f"         ... and {len(lines) - _WARNINGS:,} more"


# ------------------------------------------------------------------------------------------ repeats


def _noise_lines(noise: Noise) -> Iterator[str]:
    yield noise.headline
    yield ""
    for i, run in enumerate(noise.runs[:_METRICS], 1):
        yield f"A{i}  {_run(run)}"
    yield f"B   {_run(noise.b)}"
    if noise.final:
        yield ""
        yield f"{'last value':<24}{'lowest A':>14}{'highest A':>14}{'B':>14}"
    for spread in noise.final[:_METRICS]:
        within = [evaluation for evaluation in noise.each if evaluation.name == spread.name]
        inside = sum(evaluation.inside for evaluation in within)
        every = f", {inside} of {len(within)} evaluations inside" if within else ""
        verdict = "inside" if spread.inside else "outside"
        yield (
            f"{spread.name:<24}{_figures(spread)}  {verdict if spread.enough else 'not known'}{every}"
        )
    if len(noise.final) > _METRICS:
        yield f"... and {len(noise.final) - _METRICS:,} more"
    yield from _warning_lines(noise.warnings)


def _figures(spread: MetricRange) -> str:
    return "".join(f"{value:>14.6g}" for value in (spread.low, spread.high, spread.value))
