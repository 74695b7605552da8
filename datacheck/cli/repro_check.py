"""``datacheck repro check``: report what is not pinned in a training process, and how to pin it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.options import json_option
from datacheck.cli.output import echo, say
from datacheck.cli.repro_process import (
    SCRIPT_SETTINGS,
    check_ended,
    run_script,
    script_argument,
    script_options,
)
from datacheck.errors import UsageError

if TYPE_CHECKING:
    from datacheck.repro.checks import CheckRow


@click.command(context_settings=SCRIPT_SETTINGS)
@click.option(
    "--profile",
    type=click.Choice(["fast", "same-machine", "strict"]),
    default="same-machine",
    show_default=True,
    help="Require equal data and random numbers (fast), equal bits on this machine (same-machine) "
    "or on any machine (strict).",
)
@script_options
@click.option(
    "--loader",
    metavar="MODULE:FUNCTION",
    help="Without a script: probe the DataLoader that FUNCTION() returns with two workers.",
)
@click.option(
    "--probe/--no-probe",
    default=True,
    show_default=True,
    help="Repeat a few computations, and compare samples from workers of the loaders.",
)
@click.option(
    "--print-fix", is_flag=True, help="Print only the lines that pin everything, to copy and paste."
)
@json_option
@script_argument
@click.pass_context
def check(
    ctx: click.Context,
    profile: str,
    data: tuple[str, ...],
    steps: int,
    seconds: float,
    loader: str | None,
    probe: bool,  # noqa: FBT001
    print_fix: bool,  # noqa: FBT001
    form: str,
    script: tuple[str, ...],
) -> None:
    """Report what is not pinned in a training process, why it matters and how to pin it.

    Write a training script and its arguments after --. It runs unchanged up to its first optimizer
    step, and its state at that moment is judged. Without a script, the initial state of a new
    Python process of this environment is judged. Nothing is changed.

    The exit code is 0 if everything is pinned and 1 if there are risks. It is 2 if the process
    could not be examined, or if there are no risks, but unknowns.
    """
    from datacheck.repro.risks import judge

    if loader and script:
        msg = "--loader goes without a script; the loaders of a script are probed as it uses them"
        raise UsageError(msg)
    quiet = form == "json" or print_fix
    result = run_script(
        script, data=data, steps=steps, seconds=seconds, probe=probe, quiet=quiet, loader=loader
    )
    rows = judge(result["capture"], profile, result["seen"])
    states = Counter(row.state for row in rows)
    if form == "json":
        document = {
            "profile": profile,
            "risks": states["risk"],
            "rows": [row.as_json() for row in rows],
            **result,
        }
        from datacheck.report.words import json_of

        echo(json_of(document))
    elif print_fix:
        say(*_fix_lines(rows))
    else:
        say(*_report_lines(rows, states, profile, result["seen"]))
    check_ended(result["seen"])
    if states["risk"]:
        ctx.exit(1)
    if states["unknown"]:
        ctx.exit(2)


def _report_lines(
    rows: Sequence[CheckRow], states: Counter[str], profile: str, observation: dict[str, Any]
) -> Iterator[str]:
    yield f"profile {profile} · judged {observation['stopped']}"
    yield ""
    for row in rows:
        if row.state != "ok":
            yield from _row_lines(row)
    pinned = [f"{row.name} = {row.value}" for row in rows if row.state == "ok"]
    if pinned:
        yield f"ok      {'; '.join(pinned)}"
    yield ""
    yield _verdict_line(states)
    if states["risk"]:
        yield f"datacheck repro check --profile {profile} --print-fix prints the fixes."


def _row_lines(row: CheckRow) -> Iterator[str]:
    yield f"{row.state:8}{row.name} = {row.value}"
    if row.why:
        yield f"        {row.why}"
    if row.state == "unknown":
        return
    if row.shell:
        yield f"   fix  {row.shell}    (before Python starts)"
    if row.python:
        yield f"   fix  {row.python}    (in the script)"
    if row.do:
        yield f"   fix  {row.do}"


def _verdict_line(states: Counter[str]) -> str:
    risks = states["risk"]
    unknown = states["unknown"]
    verdict = "no risk seen" if unknown else "pinned"
    if risks:
        verdict = f"{risks} risk{'s' if risks != 1 else ''}"
    unknown_text = f", {unknown} unknown" if unknown else ""
    return f"{verdict}{unknown_text}, {states['note']} notes, {states['ok']} fine"


def _fix_lines(rows: Sequence[CheckRow]) -> Iterator[str]:
    risks = [row for row in rows if row.state == "risk"]
    yield "# before Python starts"
    yield from dict.fromkeys(row.shell for row in risks if row.shell)
    yield "# in the script, before the model is made and CUDA starts"
    lines = list(dict.fromkeys(row.python for row in risks if row.python))
    for module in ("random", "numpy", "torch"):
        if any(f"{module}." in line for line in lines):
            yield f"import {module}"
    yield from lines
    for row in risks:
        if row.do and not (row.shell or row.python):
            yield f"# {row.name}: {row.do}"
