"""``datacheck repro bisect``: find the setting that changes the result of a training."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.options import json_option
from datacheck.cli.output import say, say_result
from datacheck.cli.repro_process import SCRIPT_SETTINGS, command_of, script_environment

if TYPE_CHECKING:
    from datacheck.repro.bisect import Bisection, Effect


@click.command(context_settings=SCRIPT_SETTINGS)
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    metavar="N",
    help="Stop each run after N optimizer steps.",
)
@click.option(
    "--switch",
    "given",
    multiple=True,
    metavar="NAME=OLD:NEW",
    help="Try this switch, too: an environment variable (in capitals) or a word of the command "
    "line; repeatable.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    show_default="all",
    help="Try this switch only; repeatable.",
)
@click.option(
    "--repeats",
    type=click.IntRange(2),
    default=2,
    show_default=True,
    metavar="N",
    help="Run the unchanged training N times.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=600.0,
    show_default=True,
    metavar="S",
    help="Stop a run after S seconds; 0 for no limit.",
)
@json_option
@click.argument(
    "script", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- SCRIPT.py ..."
)
@click.pass_context
def bisect(
    ctx: click.Context,
    steps: int,
    given: tuple[str, ...],
    only: tuple[str, ...],
    repeats: int,
    seconds: float,
    form: str,
    script: tuple[str, ...],
) -> None:
    """Run the first steps of a training several times, with one switch changed at a time.

    The script is not changed and needs no Recorder. The switch with the earliest divergence from
    the unchanged training is listed first.

    The exit code is 0 if no run diverges, 1 if one does, even the unchanged training from itself,
    and 2 if the training could not be run.
    """
    from datacheck.repro.bisect import TrainingCommand
    from datacheck.repro.bisect import bisect as run_bisection
    from datacheck.repro.switches import Switch

    switches = [Switch.parse(text) for text in given]
    python, words = command_of(script)
    with tempfile.TemporaryDirectory(prefix="datacheck-") as folder:
        training = TrainingCommand(
            python, words, script_environment(), steps, seconds, Path(folder), switches
        )
        bisection = run_bisection(
            training, repeats=repeats, only=only, told=lambda name: say(f"... {name}", err=True)
        )
    say_result(bisection.as_json(), _bisection_lines(bisection), form)
    if bisection.code:
        ctx.exit(bisection.code)


def _bisection_lines(bisection: Bisection) -> Iterator[str]:
    requested, completed = bisection.steps
    of_requested = f" of {requested:,} requested" if completed < requested else ""
    yield _headline(bisection)
    yield ""
    yield (
        f"{completed:,} steps{of_requested}, counted from 0; the unchanged training was run "
        f"{bisection.repeats} times"
    )
    if bisection.noise is not None:
        noise = bisection.noise
        position = f"step {noise.step:,}, {noise.column}"
        yield f"it differs from itself at {position}, in {_pairs(noise)}: {noise.said}"
    yield ""
    for row in bisection.rows:
        yield from _effect_lines(row)


def _headline(bisection: Bisection) -> str:
    top = bisection.rows[0] if bisection.rows else None
    if bisection.noise is not None:
        steady = [row.name for row in bisection.rows if row.state == "steady"]
        remedy = f"; they do not with {', or with '.join(steady)}" if steady else ""
        return (
            f"not deterministic by itself: two runs part at step {bisection.noise.step:,}{remedy}"
        )
    if top is not None and top.state == "sometimes":
        return f"{top.name} parts in {_pairs(top)}: is the training random by itself?"
    if top is not None and top.state == "parts":
        return f"{top.name} parts first: {_values(top)}, at step {top.step:,}"
    if bisection.code:
        return "nothing that could be run parts; see what failed"
    return "nothing parts: no switch that was tried changes a bit of these steps"


def _effect_lines(row: Effect) -> Iterator[str]:
    yield f"{row.name:<20}{_values(row):<28}{_outcome(row)}"
    parted = f"parts in {_pairs(row)}" if row.parted else ""
    if parted or row.said:
        yield f"    {': '.join(filter(None, (parted, row.said)))}"


def _outcome(row: Effect) -> str:
    if row.state == "same":
        return f"same, {row.compared:,} steps compared"
    if row.state == "parts":
        return "" if row.step is None else f"step {row.step:,}, {row.column}"
    return row.state


def _pairs(row: Effect) -> str:
    return f"{row.parted:,} of {row.pairs:,} pairs of runs"


def _values(row: Effect) -> str:
    if row.state == "not tried":
        return "-"
    return f"{_value(row.old)} -> {_value(row.new)}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value) if value != "" else "(not set)"
