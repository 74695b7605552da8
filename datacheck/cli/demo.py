"""``datacheck demo``: run the whole workflow on synthetic data, and print what it found."""

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

from datacheck.cli.output import echo, say
from datacheck.errors import UsageError

if TYPE_CHECKING:
    from datacheck.demo.course import CacheResult, DemoResult, FaultAnswer
    from datacheck.demo.training import TrainingResult

_SYSTEMS = ("sceneleap", "ho3d", "scannetpp", "libero", "minimind")
_FAULT_WIDTH = 45  # of the columns of planted faults
_KEYS_WIDTH = 38
_INDENT = " " * 10  # of the lines below a stage
_OTHERS_SHOWN = 4  # findings shown that do not follow from a planted fault


@click.command("demo")
@click.argument("system", required=False, type=click.Choice(_SYSTEMS))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    show_default="a temporary folder",
    help="Write data, results and caches into DIR and keep them.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Seed the data, the faults and the training.",
)
@click.option("--keep", is_flag=True, default=False, help="Keep the temporary folder.")
@click.pass_context
def demo(ctx: click.Context, system: str | None, out: Path | None, seed: int, keep: bool) -> None:  # noqa: FBT001
    """Run the whole workflow on small synthetic datasets with planted faults.

    For each system (default: all five), write a dataset in its layout, damage some samples, scan
    the data, build and verify a cache, and train a small PyTorch model.

    The exit code is 0 if every planted fault was found with its code, nothing else was reported as
    an error, and no damaged sample reached the model; otherwise 1.
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
        echo("Look closer: datacheck demo --out demo, then datacheck scan demo/ho3d/data")
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
            echo(line, color=color)
    echo(_summary_line(courses, time.monotonic() - began), color=color)
    return any(course.differs for course in courses)


def _folder(out: Path | None, systems: list[str]) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="datacheck-demo-"))
    existing = [out / name for name in systems if (out / name).exists()]
    if existing:
        msg = (
            f"{existing[0]}: exists already, but the demo needs a new folder. Choose another "
            f"--out, or remove it."
        )
        raise UsageError(msg)
    return out


def course_lines(course: DemoResult) -> Iterator[str]:
    """Yield the lines on one system: the planted faults and whether they were found; the stages."""
    size = f"synthetic, in the real layout: {course.files:,} files, {course.nbytes / 1e6:.1f} MB"
    yield f"{click.style(course.system, bold=True)}  {size}"
    columns = f"{'planted':<{_FAULT_WIDTH}} {'in':<{_KEYS_WIDTH}} {'must be':<8} found"
    yield click.style(f"  {columns}", dim=True)
    yield from (_answer_line(answer) for answer in course.answers)
    yield from _scan_lines(course)
    if course.cache is not None:
        yield _cache_line(course.cache, course.seconds["build"])
    if course.training is not None:
        yield from _training_lines(course.training, course.seconds["train"])
    seconds = f"{sum(course.seconds.values()):.1f} s"
    if course.differs:
        missed = sum(not answer.found for answer in course.answers)
        yield f"  {_fail()}    {missed} of {len(course.answers)} faults not found  {seconds}"
        yield from (f"{_INDENT}{line}" for line in course.differs)
    else:
        success = "every fault found with its code, no other error, no broken sample served"
        yield f"  {_pass()}    {success}  {seconds}"
    yield ""


def _pass() -> str:
    return click.style("PASS", fg="green", bold=True)


def _fail() -> str:
    return click.style("FAIL", fg="red", bold=True)


def _answer_line(answer: FaultAnswer) -> str:
    planted = answer.planted
    found = (
        click.style("yes", fg="green") if answer.found else click.style("NO", fg="red", bold=True)
    )
    severity = "" if answer.severity in {"error", ""} else f" ({answer.severity})"
    fault = f"{planted.what:<{_FAULT_WIDTH}} {_keys_text(planted.keys):<{_KEYS_WIDTH}}"
    return f"  {fault} {planted.code:<8} {found}{severity}"


def _keys_text(keys: tuple[str, ...]) -> str:
    """Return the key, or the common folder and the number of several keys, cut in the middle."""
    if not keys:
        return "every sample"
    if len(keys) == 1:
        return _cut(keys[0], _KEYS_WIDTH)
    count = f" ({len(keys)} samples)"
    return _cut(keys[0].rpartition("/")[0], _KEYS_WIDTH - len(count)) + count


def _cut(text: str, width: int) -> str:
    half = (width - 3) // 2
    return text if len(text) <= width else f"{text[:half]}...{text[-half:]}"


def _scan_lines(course: DemoResult) -> Iterator[str]:
    counts = course.samples
    checked = (
        f"{counts['checked']:,} checked, {counts['unreadable']:,} unreadable, "
        f"{counts['skipped']:,} skipped; {counts['valid']:,} fit for training"
    )
    yield f"  scan    {counts['listed']:,} samples: {checked}  {course.seconds['scan']:.1f} s"
    # `course.differs` lists errors
    others = [other for other in course.others if other[0] != "error"]
    for severity, code, message in others[:_OTHERS_SHOWN]:
        line = f"and {code} ({severity}): {message}"
        yield _INDENT + textwrap.shorten(line, 110, placeholder=" …")
    if len(others) > _OTHERS_SHOWN:
        yield f"{_INDENT}and {len(others) - _OTHERS_SHOWN} more warnings and notes"


def _cache_line(cache: CacheResult, seconds: float) -> str:
    usable = f"{cache.usable:,} of {cache.samples:,} samples usable, {cache.nbytes / 1e6:.1f} MB"
    state = f"{len(cache.problems)} PROBLEMS" if cache.problems else "every byte verified"
    return f"  cache   {' and '.join(cache.splits)}: {usable}; {state}  {seconds:.1f} s"


def _training_lines(training: TrainingResult, seconds: float) -> Iterator[str]:
    loss = f"loss {training.first:.3g} -> {training.last:.3g} {training.unit}".rstrip()
    steps = f"{training.steps} steps of {training.batch}"
    yield f"  train   {training.title}, {steps}: {loss}  {seconds:.1f} s"
    served = f"{training.distinct:,} samples, {len(training.broken)} of them broken"
    yield (
        f"  served  {served}; a valid one stood in for a broken one {training.substituted:,} times"
    )


def _summary_line(courses: list[DemoResult], seconds: float) -> str:
    planted = sum(len(course.answers) for course in courses)
    found = sum(answer.found for course in courses for answer in course.answers)
    failed = [course.system for course in courses if course.differs]
    verdict = f"{_fail()} ({', '.join(failed)})" if failed else _pass()
    systems = f"{len(courses)} system{'s' * (len(courses) > 1)}"
    return (
        f"{verdict}  {found} of {planted} planted faults found in {systems}, {seconds:.0f} s in all"
    )
