"""A progress bar on standard error: on a terminal only, and not under CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from datacheck.finding import Tick
from datacheck.report.words import bytes_said

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Callable[[Tick], None] | None]:
    """Yield what a scan or a build calls after each task: samples, files, bytes, rate, time left, files kept.

    Args:
        console: where to draw; None: standard error.

    Notes:
        Yields None where nobody would see a bar.
    """
    here = sys.stderr is not None and sys.stderr.isatty()  # None: the caller has closed it
    seen = here if console is None else console.is_terminal
    if not seen or os.environ.get("CI") or os.environ.get("TERM") == "dumb":
        yield None
        return
    from rich.console import Console  # noqa: PLC0415  only who sees a bar should wait for it
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )  # fmt: skip

    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[said]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("scanning", total=None, said="listing files")

        def tell(tick: Tick) -> None:
            if tick.doing != bar.tasks[task].description:
                bar.reset(task, description=tick.doing)
            seconds = bar.tasks[task].elapsed or 1e-9
            total = tick.all_nbytes + tick.all_files  # an empty file is progress too
            bar.update(task, completed=tick.nbytes + tick.files, total=total or 1, said=said(tick, seconds))

        yield tell


def said(tick: Tick, seconds: float) -> str:
    """Return the words behind the bar; of a loader, which has neither files nor a known size, samples alone."""
    if tick.all_files and not tick.all_nbytes and tick.files == tick.samples:
        return f"{tick.samples:,}/{tick.all_files:,} samples"
    parts = [f"{tick.samples:,} samples", f"{tick.files:,}/{tick.all_files:,} files", bytes_said(tick.nbytes)]
    parts.append(f"{bytes_said(tick.nbytes / seconds)}/s")
    if tick.kept:
        parts.append(f"{tick.kept:,} files unchanged")
    return " · ".join(parts)
