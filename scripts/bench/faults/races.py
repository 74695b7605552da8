"""Builders that race for one cache: is anything partial ever seen, and does each end as it should?

    python scripts/bench/faults/races.py [--count 100] [--commands 10] [--seed 0] [--folder DIR]

Four processes build the same cache at once, each after a random delay of a few milliseconds. Each
round starts with an empty folder, or with what a killed builder left. Every one must return the
same cache, or say that another took its build over. Rows: four builders; four of which one is
killed at a random moment; four with a reader that opens the cache all the time and reads every file
of it; and four real commands. After each round the folder must show the golden cache byte for byte
with nothing beside it (after a kill: when one more has run).

Two broken builds must be told: one that publishes file by file, and one that is not deterministic.
Ends with 1 where anything was wrong, or a control was not.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

from calls import FAULTS, Faulty
from subject import MEMORY, KilledError, Subject, again, by_file, command, machine, subject, write

from datacheck.build import finish, publish
from datacheck.cache import open_cache
from datacheck.errors import DatacheckError, LostStagingError
from datacheck.runtime import fsops

BUILDERS = 4
LOST = 40  # exit code of a builder whose build another took over
_BROKEN = 41
# How often the reader of this round has looked; -1 where none is running
_LOOKS = multiprocessing.RawValue("q", -1)
_PATIENCE = 120.0  # seconds that a control waits for a look of the reader


@dataclass
class Tally:
    """What came of the rounds of one kind."""

    rounds: int = 0
    returned: int = 0
    lost: int = 0
    killed: int = 0
    opened: int = 0
    wrong: list[str] = field(default_factory=list)


def forked(work: Callable[[], None], said: Path) -> int:
    """Run `work` in a process of its own; return its number. What goes wrong there is written to `said`."""
    process = os.fork()
    if process:
        return process
    code = 0
    try:
        work()
    except LostStagingError:
        code = LOST
    except DatacheckError as error:
        code = error.exit_code
        said.write_text(f"{type(error).__name__}: {error}")
    except BaseException as error:  # noqa: BLE001  told by the parent
        code = _BROKEN
        said.write_text(f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def builder(one: Subject, out: Path, delay: float) -> None:
    """Build after a delay; the cache must be there when the build returns."""
    time.sleep(delay)
    one.build(out)
    if (shown := one.shown(out)) != "right":
        msg = f"returned, and the folder shows {shown}"
        raise AssertionError(msg)


def reader(one: Subject, out: Path, ended: Path) -> None:
    """Look at the folder until a file says that all have ended; every look must be right."""
    seen, target = Counter(), one.place(out) / one.key
    try:
        while not ended.exists():
            seen[one.shown(out)] += 1
            _LOOKS.value += 1
            if target.exists():
                open_cache(target, verify="manifest")
    finally:
        _LOOKS.value = -1
    ended.write_text(str(seen["right"]))
    if seen.keys() - {"nothing", "right"}:
        msg = f"the reader saw {seen}"
        raise AssertionError(msg)


def left_by_a_kill(one: Subject, out: Path, rng: random.Random) -> None:
    """Leave what a killed build leaves."""
    with contextlib.suppress(KilledError):
        one.build(out, Faulty(FAULTS[0], rng.randrange(1, 1000)))


@dataclass
class Round:
    """One race.

    Args:
        one: what is built.
        place: where.
        rng: of everything random.
        kills: one of the builders.
        reads: all the time.
    """

    one: Subject
    place: Path
    rng: random.Random
    kills: bool = False
    reads: bool = False

    def run(self, tally: Tally) -> None:
        """Race once."""
        with tempfile.TemporaryDirectory(dir=self.place) as name:
            out, ended = Path(name, "out"), Path(name, "ended")
            if self.rng.random() < 0.3:
                left_by_a_kill(self.one, out, self.rng)
            _LOOKS.value = 0 if self.reads else -1
            started = [self._start(Path(name), i, out) for i in range(BUILDERS)]
            watches = partial(reader, self.one, out, ended)
            watching = [forked(watches, Path(name, "said reader")) for _ in range(self.reads)]
            victim = self._killed(started) if self.kills else 0
            codes = {
                process: os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in started
            }
            ended.write_text("")
            watched = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in watching]
            tally.opened += int(ended.read_text() or 0)
            said = "; ".join(path.read_text() for path in Path(name).glob("said*"))
            self._judge(tally, out, codes, victim, said)
            tally.wrong += [f"round {tally.rounds}: {said}"] if any(watched) else []

    def _start(self, place: Path, number: int, out: Path) -> int:
        delay = self.rng.random() * self.rng.choice((0, 0.01, 0.1))
        return forked(lambda: builder(self.one, out, delay), place / f"said {number}")

    def _killed(self, started: Sequence[int]) -> int:
        victim = self.rng.choice(started)
        time.sleep(self.rng.uniform(0, 0.3))
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        return victim

    def _judge(
        self, tally: Tally, out: Path, codes: dict[int, int], victim: int, said: str
    ) -> None:
        dead = victim and codes[victim] == -signal.SIGKILL
        count = Counter(code for process, code in codes.items() if not (dead and process == victim))
        tally.rounds += 1
        tally.killed += bool(dead)
        tally.returned += count.pop(0, 0)
        tally.lost += count.pop(LOST, 0)
        wrong = f"exit codes {dict(count)}: {said}" if count else ""
        shown, left = self.one.shown(out), self.one.left(out)
        if shown != "right" or (left and not dead):
            wrong = wrong or f"the folder shows {shown}, beside it {left}"
        wrong = wrong or again(self.one, out)
        tally.wrong += [f"round {tally.rounds}: {wrong}"] if wrong else []


def commands(one: Subject, place: Path, rng: random.Random, count: int) -> Tally:
    """Race real commands."""
    tally = Tally()
    for _ in range(count):
        with tempfile.TemporaryDirectory(dir=place) as name:
            out, running = Path(name), []
            shutil.rmtree(place / ".datacheck", ignore_errors=True)
            options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            for _ in range(BUILDERS):
                running.append(subprocess.Popen(command(place, out), cwd=place, **options))
                time.sleep(rng.choice((0, 0.05, 0.4)))
            said = {process.communicate(timeout=300)[0]: process.returncode for process in running}
            tally.rounds += 1
            tally.returned += sum(process.returncode == 0 for process in running)
            lost = [
                text
                for text, code in said.items()
                if code == 3 and "another builder took this build over" in text
            ]
            tally.lost += len(lost)
            wrong = [text for text, code in said.items() if code and text not in lost]
            shown, left = one.shown(out), one.left(out)
            if wrong or shown != "right" or left:
                tally.wrong.append(
                    f"round {tally.rounds}: shows {shown}, beside it {left}: {wrong}"
                )
    return tally


# ----------------------------------------------------------------------------------------- controls


def other_root(*arguments: object) -> str:
    """Return another content root in every process."""
    return f"{os.getpid():032x}"


def by_file_seen(folder: Path, target: Path, manifest: object) -> str:
    """Publish file by file, and wait until the reader looked while only the folder was there, or has found a fault."""
    fsops.make_directory(target)
    looks, end = _LOOKS.value, time.monotonic() + _PATIENCE
    # The second look begins after the folder was made
    while 0 <= _LOOKS.value < looks + 2 and time.monotonic() < end:
        time.sleep(0.001)
    return by_file(folder, target, manifest)


def races(
    one: Subject, place: Path, rng: random.Random, count: int, *, kills: bool, reads: bool
) -> Tally:
    """Race so many times."""
    tally = Tally()
    for _ in range(count):
        Round(one, place, rng, kills, reads).run(tally)
    return tally


def controls(one: Subject, place: Path, rng: random.Random, count: int) -> list[str]:
    """Return the broken builds that were not told."""
    tried = {
        "one that publishes file by file": patch.object(publish, "publish", by_file_seen),
        "one that is not deterministic": patch.object(finish, "content_root", other_root),
    }
    believed = []
    for name, broken in tried.items():
        with broken:
            tally = races(one, place, rng, count, kills=False, reads=True)
        line(f"control: {name}", tally)
        believed += [] if tally.wrong else [name]
    return believed


HEAD = ("rounds", "returned", "lost", "killed", "opened", "wrong")


def line(name: str, tally: Tally) -> None:
    """Print what came of one kind."""
    cells = [len(tally.wrong) if what == "wrong" else getattr(tally, what) for what in HEAD]
    print(f"{name:44}" + "".join(f"{cell:>10,}" for cell in cells), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run all races; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--commands", type=int, default=10, help="rounds of real commands")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=MEMORY, help="where to write; removed afterwards")
    asked = parser.parse_args(arguments)
    start, bad = time.perf_counter(), 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        place, rng = Path(name), random.Random(asked.seed)
        write(place)
        one = subject(place)
        print(f"{'':44}" + "".join(f"{what:>10}" for what in HEAD))
        kinds = {
            "four builders": {},
            "one of them killed": {"kills": True},
            "and a reader": {"reads": True},
        }
        for what, how in kinds.items():
            tally = races(one, place, rng, asked.count, **{"kills": False, "reads": False} | how)
            line(what, tally)
            print(*(f"    {wrong}\n" for wrong in tally.wrong[:8]), sep="", end="")
            bad += len(tally.wrong)
        tally = commands(one, place, rng, asked.commands)
        line("four commands", tally)
        print(*(f"    {wrong}\n" for wrong in tally.wrong[:8]), sep="", end="")
        believed = controls(one, place, rng, max(2, asked.count // 20))
    print(*(f"a build {name} was believed\n" for name in believed), sep="", end="")
    print(machine(time.perf_counter() - start))
    return int(bool(bad or tally.wrong or believed))


if __name__ == "__main__":
    sys.exit(main())
