"""Progress of a run on standard error: a bar on a terminal, otherwise a line now and then."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from datacheck.errors import escape_ci_commands
from datacheck.model.finding import Tick
from datacheck.report.words import clean, format_bytes

if TYPE_CHECKING:
    from rich.console import Console

_LINE_S = 30.0  # between two lines, where there is no bar

OnTick = Callable[[Tick], None]


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[OnTick | None]:
    """Yield the callback that shows the progress of a scan or a build.

    It shows samples, files or shards, bytes, rate and time left.

    Args:
        console: where to draw; None: standard error.

    Notes:
        Where a bar is of no use (a file, a batch job, CI), a line is written every half a minute.
        Yields None if standard error is closed.
    """
    if console is None and sys.stderr is None:  # the caller has closed it
        yield None
        return
    on_terminal = sys.stderr.isatty() if console is None else console.is_terminal
    if not on_terminal or os.environ.get("CI") or os.environ.get("TERM") == "dumb":
        yield lines(sys.stderr if console is None else console.file)
        return
    from rich.console import Console  # noqa: PLC0415  slow to import, needed for a bar only
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
        TimeRemainingColumn(),
    )
    pace = ByteRate()
    noted = ""
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("scanning", total=None, text="listing files")

        def tell(tick: Tick) -> None:
            nonlocal noted
            doing = clean(tick.doing, spaces=True)
            if doing != bar.tasks[task].description:
                bar.reset(task, description=doing)
            if tick.note not in {"", noted}:
                noted = tick.note
                bar.console.print(clean(noted, spaces=True), markup=False, highlight=False)
            total = tick.all_nbytes + tick.all_files  # an empty file is progress too
            bar.update(
                task,
                completed=tick.nbytes + tick.files,
                total=total or 1,
                text=progress_text(tick, pace(tick)),
            )

        yield tell


class ByteRate:
    """Bytes per second since the first tick of a phase; bytes from before it do not count.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phase = ""
        self._began = 0.0
        self._nbytes_before = 0

    def __call__(self, tick: Tick) -> float | None:
        """Return the rate [byte/s]; None if it is not known yet."""
        now = self._clock()
        if tick.doing != self._phase:
            self._phase = tick.doing
            self._began = now
            self._nbytes_before = tick.nbytes
        done = tick.nbytes - self._nbytes_before
        seconds = now - self._began
        return done / seconds if done > 0 and seconds > 0 else None


def lines(file: IO[str], clock: Callable[[], float] = time.monotonic) -> OnTick:
    """Return a callback that writes a line every half a minute, and notes at once.

    The first line comes after half a minute.

    Args:
        file: where to write.
        clock: returns seconds.
    """
    pace = ByteRate(clock)
    noted = ""
    last = clock()

    def write(text: str) -> None:
        print(escape_ci_commands(clean(text, spaces=True)), file=file, flush=True)

    def tell(tick: Tick) -> None:
        nonlocal last, noted
        rate = pace(tick)
        if tick.note not in {"", noted}:
            noted = tick.note
            write(noted)
        if clock() - last >= _LINE_S:
            last = clock()
            text = f"{tick.doing}: {progress_text(tick, rate, ', ')}"
            if rate:
                text += f", {_duration((tick.all_nbytes - tick.nbytes) / rate)} left"
            write(text)

    return tell


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def progress_text(tick: Tick, rate: float | None, between: str = " · ") -> str:
    """Return the text after the bar.

    A loader has neither files nor a known size, so its text has samples only.

    Args:
        tick: the progress.
        rate: bytes per second, if known.
        between: separator of the parts.
    """
    if tick.all_files and not tick.all_nbytes and tick.files == tick.samples:
        return f"{tick.samples:,}/{tick.all_files:,} samples"
    parts = [f"{tick.files:,}/{tick.all_files:,} {tick.unit}", format_bytes(tick.nbytes)]
    if tick.doing != "hashing":  # hashing counts files, not samples
        parts.insert(0, f"{tick.samples:,} samples")
    if rate is not None:
        parts.append(f"{format_bytes(rate)}/s")
    if tick.kept:
        parts.append(
            f"{tick.kept:,} files unchanged" if tick.unit == "files" else f"{tick.kept:,} kept"
        )
    return between.join(parts)
