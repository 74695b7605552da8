"""SIGKILL at random moments: is anything partial ever seen, does anybody survive, does the next run go on?

    python scripts/bench/faults/kills.py [--count 500] [--seed 0] [--folder DIR]

The real command builds a small dataset, with one worker (at every tenth kill: with two), and its
process group is killed: at a moment drawn evenly over the time that a build takes (less the first
tenth, in which Python starts), or shortly after its work is seen to become a cache. The same build
is killed one to six times, so that what goes on was itself going on. After every kill the folder
must show nothing or the golden cache byte for byte, and no process of the command may live on;
after the last a plain run must complete with the golden bytes and leave nothing beside them. A
third of the builds start without the scan's index.

Two broken commands must be told: one that publishes file by file, and one whose child outlives it.
Ends with 1 where anything was wrong, or a control was not.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from subject import Subject, command, machine, subject, write

BY_FILE = """
from pathlib import Path
from datacheck.build import publish
def by_file(folder, target, manifest):
    import os, shutil, time
    for place, _, names in os.walk(folder):
        to = target / Path(place).relative_to(folder)
        to.mkdir(exist_ok=True)
        for name in names:
            shutil.copyfile(Path(place, name), to / name)
            time.sleep(0.01)
    return "new"
publish.publish = by_file
"""
OUTLIVED = """
import subprocess
subprocess.Popen(["sleep", "60"], start_new_session=True)
"""


@dataclass
class Tally:
    """What came of the kills of one kind of command."""

    kills: int = 0
    at_publish: int = 0
    late: int = 0
    nothing: int = 0
    right: int = 0
    builds: int = 0
    went_on: int = 0
    wrong: list[str] = field(default_factory=list)


@dataclass
class Killer:
    """Kills the command.

    Args:
        one: what it builds.
        place: where the data are.
        workers: of the command.
        rng: draws the moments.
        more: code that breaks the command.
    """

    one: Subject
    place: Path
    workers: int
    rng: random.Random
    more: str = ""
    grace: float = 10.0  # seconds in which the kernel ends the children of who was killed
    usual: float = 2.0  # seconds that the last whole run took

    def start(self, out: Path) -> tuple[subprocess.Popen[bytes], str]:
        """Start the command; return it and what marks its processes."""
        call, mark = command(self.place, out, "--workers", str(self.workers)), uuid.uuid4().hex
        call[2] = self.more + call[2]
        environment = os.environ | {"FAULTS_MARK": mark}
        with self.said.open("wb") as file:  # a pipe would be held open by who lives on
            options = {"stdout": file, "stderr": subprocess.STDOUT, "start_new_session": True}
            return subprocess.Popen(call, cwd=self.place, env=environment, **options), mark

    @property
    def said(self) -> Path:
        """Where what the command says is written."""
        return self.place / "said"

    def kill(self, out: Path, tally: Tally, when: Callable[[str], object] | None = None) -> None:
        """Start a build, kill it at some moment or when something is the case, look."""
        process, mark = self.start(out)
        began, at_publish = time.monotonic(), self.rng.random() < 0.4
        if when is not None:
            wait(process, lambda: when(mark))
        elif at_publish:
            wait(process, lambda: glob(f"{self.one.place(out)}/.building/*/*/whole/fields"))  # noqa: PTH207  a Path's trips over what vanishes
            time.sleep(self.rng.uniform(0, 0.06))
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(
                    max(0.0, self.rng.uniform(0.1, 1) * self.usual - (time.monotonic() - began))
                )
        late = process.poll() is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        tally.kills += 1
        tally.at_publish += at_publish and not late
        tally.late += late
        shown = self.one.shown(out)
        tally.nothing += shown == "nothing"
        tally.right += shown == "right"
        if shown not in {"nothing", "right"}:
            tally.wrong.append(f"kill {tally.kills}: {shown}")
        if late and (process.returncode or shown != "right"):
            tally.wrong.append(
                f"kill {tally.kills} came late, exit {process.returncode}, shows {shown}: "
                f"{self.said.read_text()}"
            )
        if alive := survivors(mark, self.grace):
            tally.wrong.append(f"kill {tally.kills}: still alive after {self.grace:g} s: {alive}")

    def complete(self, out: Path, tally: Tally) -> None:
        """Run the command to its end, and look."""
        began = time.monotonic()
        process, mark = self.start(out)
        process.wait(300)
        said = self.said.read_text()
        self.usual = max(self.usual / 2, time.monotonic() - began)  # what went on was quicker
        shown, left = self.one.shown(out), self.one.left(out)
        tally.builds += 1
        tally.went_on += "kept from an unfinished build" in said
        if process.returncode or shown != "right" or left:
            tally.wrong.append(
                f"plain run: exit {process.returncode}, shows {shown}, beside it {left}: {said}"
            )
        if alive := survivors(mark, self.grace):
            tally.wrong.append(f"plain run: still alive: {alive}")


def wait(process: subprocess.Popen[bytes], case: Callable[[], object]) -> None:
    """Wait until something is the case, or the process ends."""
    while process.poll() is None and not case():
        time.sleep(0.001)


def survivors(mark: str, grace: float) -> list[str]:
    """Return the processes that bear a mark after a grace [s]; they are ended."""
    until = time.monotonic() + grace
    while (alive := marked(mark) or again(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    for process in alive:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return [str(process) for process in alive]


def again(mark: str) -> list[int]:
    """Look once more: while one becomes another program the kernel shows no environment of it."""
    time.sleep(0.05)
    return marked(mark)


def marked(mark: str) -> list[int]:
    """Return the living processes with this mark in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ended = (folder / "stat").read_text().rpartition(") ")[2].startswith(("Z", "X"))
            if not ended and mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def kills(killer: Killer, count: int) -> Tally:
    """Kill builds so many times."""
    tally = Tally()
    with tempfile.TemporaryDirectory(dir=killer.place) as name:
        killer.complete(Path(name), Tally())
    while tally.kills < count:
        with tempfile.TemporaryDirectory(dir=killer.place) as name:
            if killer.rng.random() < 1 / 3:
                shutil.rmtree(killer.place / ".datacheck", ignore_errors=True)
            for _ in range(min(killer.rng.randint(1, 6), count - tally.kills)):
                killer.kill(Path(name), tally)
            killer.complete(Path(name), tally)
    return tally


HEAD = ("kills", "at publish", "late", "nothing", "right", "builds", "went on", "wrong")


def line(name: str, tally: Tally) -> None:
    """Print what came of one kind of command."""
    cells = [
        len(tally.wrong) if what == "wrong" else getattr(tally, what.replace(" ", "_"))
        for what in HEAD
    ]
    print(f"{name:34}" + "".join(f"{cell:>11,}" for cell in cells), flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run all kills; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=None, help="where to write; removed afterwards")
    asked = parser.parse_args(arguments)
    start, bad, believed = time.perf_counter(), 0, []
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        place = Path(name)
        write(place)
        one = subject(place)
        print(f"{'':34}" + "".join(f"{what:>11}" for what in HEAD))
        two = max(1, asked.count // 10)
        for workers, count in ((1, asked.count - two), (2, two)):
            killer = Killer(one, place, workers, random.Random(f"{asked.seed} {workers}"))
            tally = kills(killer, count)
            line(f"{workers} worker{'s' * (workers > 1)}", tally)
            print(*(f"    {wrong}\n" for wrong in tally.wrong[:8]), sep="", end="")
            bad += len(tally.wrong)
        for what, tally in controls(one, place).items():
            line(f"control: {what}", tally)
            believed += [] if tally.wrong else [what]
    print(*(f"a command that {one} was believed\n" for one in believed), sep="", end="")
    print(machine(time.perf_counter() - start))
    return int(bool(bad or believed))


def two_sessions(mark: str) -> bool:
    """Tell whether two processes with this mark lead a session: the command, and a child that a kill of it spares."""
    leading = 0
    for process in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            leading += os.getsid(process) == process
    return leading > 1


def controls(one: Subject, place: Path) -> dict[str, Tally]:
    """Kill two broken commands when it must show."""
    tallies = {"publishes file by file": Tally(), "has a child that outlives it": Tally()}
    with tempfile.TemporaryDirectory(dir=place) as name:
        out, rng, (partial, outlived) = Path(name), random.Random(0), tallies.values()
        Killer(one, place, 1, rng, BY_FILE).kill(
            out, partial, lambda _: one.shown(out) != "nothing"
        )
        Killer(one, place, 1, rng, OUTLIVED, 0.2).kill(out / "other", outlived, two_sessions)
    return tallies


if __name__ == "__main__":
    sys.exit(main())
