"""``datacheck demo``."""

from __future__ import annotations

import os
import shutil
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datacheck.cli.say import say
from datacheck.errors import UsageError

if TYPE_CHECKING:
    from datacheck.demo.course import DemoResult, FaultAnswer

_SYSTEMS = ("sceneleap", "ho3d", "scannetpp", "libero", "minimind")
_WHAT = 45
_WHERE = 38
_OTHERS_SHOWN = 4  # findings shown that do not follow from a planted fault


@click.command("demo")
@click.argument("system", required=False, type=click.Choice(_SYSTEMS))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Put data, results and caches there and keep them.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Of data, faults and training.",
)
@click.option(
    "--keep",
    is_flag=True,
    default=False,
    help="Keep the temporary folder that is used without --out.",
)
@click.pass_context
def demo(ctx: click.Context, system: str | None, out: Path | None, seed: int, keep: bool) -> None:  # noqa: FBT001
    """See the whole way on small synthetic datasets with planted faults.

    Writes a dataset in the layout of SYSTEM (default: all five), breaks some samples on purpose,
    scans it, builds a cache, verifies it, and trains a small PyTorch model. The exit code is 0 only
    if every planted fault was found with its code, nothing else was called an error, and no broken
    sample reached the model.
    """
    from datacheck.demo.course import require_extras

    systems = [system] if system else list(_SYSTEMS)
    require_extras(systems)
    folder = _folder(out, systems)
    try:
        differs = _run_courses(folder, systems, seed)
    finally:
        if out is None and not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if out is None and not keep:
        click.echo("Look closer: datacheck demo --out demo, then datacheck scan demo/ho3d/data")
    else:
        say(f"Kept in {folder}: data, scan and cache of each system")
    ctx.exit(int(differs))


def _run_courses(folder: Path, systems: list[str], seed: int) -> bool:
    from datacheck.demo.course import run

    color = False if "NO_COLOR" in os.environ else None
    began = time.monotonic()
    courses = []
    for name in systems:
        courses.append(run(name, folder / name, seed))
        for line in course_lines(courses[-1]):
            click.echo(line, color=color)
    click.echo(_summary_line(courses, time.monotonic() - began), color=color)
    return any(course.differs for course in courses)


def _folder(out: Path | None, systems: list[str]) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="datacheck-demo-"))
    existing = [out / name for name in systems if (out / name).exists()]
    if existing:
        msg = (
            f"{existing[0]}: exists already, and the demo starts from nothing. Choose another --out "
            f"or remove it."
        )
        raise UsageError(msg)
    return out


def course_lines(course: DemoResult) -> Iterator[str]:
    """Yield the lines on one system: the planted faults and whether they were found; the stages."""
    size = f"synthetic, in the real layout: {course.files:,} files, {course.nbytes / 1e6:.1f} MB"
    yield f"{click.style(course.system, bold=True)}  {size}"
    yield click.style(f"  {'planted':<{_WHAT}} {'in':<{_WHERE}} {'must be':<8} found", dim=True)
    yield from (_answer_line(answer) for answer in course.answers)
    yield from _stage_lines(course)
    missed = sum(not answer.found for answer in course.answers)
    seconds = f"{sum(course.seconds.values()):.1f} s"
    if course.differs:
        fail = click.style("FAIL", fg="red", bold=True)
        yield f"  {fail}    {missed} of {len(course.answers)} faults not found  {seconds}"
        yield from (f"          {line}" for line in course.differs)
    else:
        success_text = "every fault found with its code, no other error, no broken sample served"
        yield f"  {click.style('PASS', fg='green', bold=True)}    {success_text}  {seconds}"
    yield ""


def _answer_line(answer: FaultAnswer) -> str:
    planted = answer.planted
    mark = (
        click.style("yes", fg="green") if answer.found else click.style("NO", fg="red", bold=True)
    )
    note = "" if answer.severity in {"error", ""} else f" ({answer.severity})"
    return (
        f"  {planted.what:<{_WHAT}} {_keys_text(planted.keys):<{_WHERE}} {planted.code:<8} "
        f"{mark}{note}"
    )


def _keys_text(keys: tuple[str, ...]) -> str:
    if not keys:
        return "every sample"
    name, rest = (
        (keys[0], "") if len(keys) == 1 else (keys[0].rpartition("/")[0], f" ({len(keys)} samples)")
    )
    room = _WHERE - len(rest)
    half = (room - 3) // 2
    return (name if len(name) <= room else f"{name[:half]}...{name[-half:]}") + rest


def _stage_lines(course: DemoResult) -> Iterator[str]:
    counts, seconds = course.samples, course.seconds
    checked_text = (
        f"{counts['checked']:,} checked, {counts['unreadable']:,} unreadable, "
        f"{counts['skipped']:,} skipped"
    )
    fit = f"{counts['valid']:,} fit for training"
    yield f"  scan    {counts['listed']:,} samples: {checked_text}; {fit}  {seconds['scan']:.1f} s"
    others = [
        (severity, code, message)
        for severity, code, message in course.others
        if severity != "error"
    ]
    for severity, code, message in others[:_OTHERS_SHOWN]:  # errors are listed below, as failures
        yield " " * 10 + textwrap.shorten(
            f"and {code} ({severity}): {message}", 110, placeholder=" …"
        )
    if len(others) > _OTHERS_SHOWN:
        yield f"          and {len(others) - _OTHERS_SHOWN} more warnings and notes"
    if (cache := course.cache) is not None:
        state = "every byte verified" if not cache.problems else f"{len(cache.problems)} PROBLEMS"
        usable_text = (
            f"{cache.usable:,} of {cache.samples:,} samples usable, {cache.nbytes / 1e6:.1f} MB"
        )
        yield f"  cache   {' and '.join(cache.splits)}: {usable_text}; {state}  {seconds['build']:.1f} s"
    if (training := course.training) is not None:
        loss_text = f"loss {training.first:.3g} -> {training.last:.3g} {training.unit}".rstrip()
        yield (
            f"  train   {training.title}, {training.steps} steps of {training.batch}: {loss_text}  "
            f"{seconds['train']:.1f} s"
        )
        served = f"{training.distinct:,} samples, {len(training.broken)} of them broken"
        yield (
            f"  served  {served}; a valid one stood in for a broken one {training.substituted:,} times"
        )


def _summary_line(courses: list[DemoResult], seconds: float) -> str:
    planted = sum(len(c.answers) for c in courses)
    found_count = sum(answer.found for c in courses for answer in c.answers)
    failed = [c.system for c in courses if c.differs]
    verdict = (
        click.style("PASS", fg="green", bold=True)
        if not failed
        else click.style("FAIL", fg="red", bold=True)
    )
    failed_text = f" ({', '.join(failed)})" if failed else ""
    summary = (
        f"{found_count} of {planted} planted faults found in {len(courses)} "
        f"system{'s' * (len(courses) > 1)}"
    )
    return f"{verdict}{failed_text}  {summary}, {seconds:.0f} s in all"
