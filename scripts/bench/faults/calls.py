"""Every call by which a build changes files, failed: is anything published that is not whole, does the next run go on?

    python scripts/bench/faults/calls.py [--only NAME] [--stride 1] [--others 5] [--real 40]
    [--folder DIR]

A small build (ragged, fixed, optional and text fields, an unreadable and a refused sample, two
shards) runs through a `System` that counts its calls. For each call and each fault the build is run
anew: the call kills it (before it, or in the middle of a write), fails once, fails as all after it
do, or takes a part of the bytes. Afterwards the folder must show nothing or the golden cache byte
for byte, the error must be of the right kind and say what to do, and a plain re-run must complete
with the golden bytes and leave nothing beside them. So at every call of a plain build (at every
fifth for faults that are much like another), and at every fifth, for each fault another, of one
with zstd, of one from what a build left that was killed between shards, and of one from what was
left while it wrote its tables.

Then the real command, whose coordinator and children count together: at `--real` calls spread over
all of them, those of the scan included, its process group is killed, the one process is killed, or
the call fails.

Four broken builds must be told: one whose writes lose bytes, one that publishes file by file, one
that lets errors through as they are, and one that leaves its work behind. Ends with 1 where
anything was wrong, or a control was not.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

from processes import CHANGES, NO_CHANGE, WRITES, Tally, real
from subject import MEMORY, KilledError, Subject, again, by_file, machine, subject, write

from datacheck.build import publish, staging
from datacheck.errors import DatacheckError, OutOfSpaceError, StorageError, SyncFailedError
from datacheck.runtime import fsops
from datacheck.runtime.fsops import System

CONTROLS = 100  # broken builds are tried at every so many calls at least: at every 500th one of them passed as right


@dataclass(frozen=True)
class Fault:
    """What happens at one call.

    Args:
        name: what it is called.
        error: the errno that the call raises; 0: none.
        lasting: every call after it fails, too.
        half: a write takes half of its bytes before.
        kills: the process is gone.
        calls: at which calls it can happen.
        rare: tried as in builds that are not plain: it is much like another.
    """

    name: str
    error: int = 0
    lasting: bool = False
    half: bool = False
    kills: bool = False
    calls: Sequence[str] = tuple(name for name in CHANGES if name not in NO_CHANGE)
    rare: bool = False


FAULTS = [
    Fault("kill", kills=True),
    Fault("kill in a write", kills=True, half=True, calls=WRITES),
    Fault("ENOSPC once", errno.ENOSPC),
    Fault("ENOSPC from then on", errno.ENOSPC, lasting=True),
    Fault("ENOSPC in a write", errno.ENOSPC, half=True, calls=WRITES),
    Fault("EIO once", errno.EIO),
    Fault("EIO from then on", errno.EIO, lasting=True),
    Fault("EIO at open or close", errno.EIO, calls=NO_CHANGE, rare=True),
    Fault("EDQUOT once", errno.EDQUOT, rare=True),
    Fault("EROFS from then on", errno.EROFS, lasting=True, rare=True),
    Fault("short write", half=True, calls=WRITES),
]


class Faulty(System):
    """Counts calls and has one of them fail.

    Args:
        fault: what happens.
        at: at which call [1, ...]; 0: at none.
    """

    def __init__(self, fault: Fault | None = None, at: int = 0) -> None:
        self.fault, self.at, self.gone = fault, at, False
        self.names: list[str] = []

    def _called(self, name: str, real: Callable, arguments: tuple) -> object:
        if self.gone:
            if name == "close":  # the kernel does
                real(*arguments)
            raise KilledError
        self.names.append(name)
        fault, struck = self.fault, self.at and len(self.names) - self.at
        if fault is None or not self.at or struck < 0 or (struck and not fault.lasting):
            return real(*arguments)
        taken = None
        if fault.half and name in WRITES:
            descriptor, data, *offset = arguments
            taken = real(descriptor, data[: (len(data) + 1) // 2], *offset)
        if name == "close":
            real(*arguments)
        if fault.kills:
            self.gone = True
            raise KilledError
        if fault.error:
            raise OSError(fault.error, os.strerror(fault.error))
        return taken


def _counted(name: str) -> Callable:
    real = getattr(System, name)

    def call(self: Faulty, *arguments: object) -> object:
        return self._called(name, lambda *some: real(self, *some), arguments)

    return call


for _name in CHANGES:
    setattr(Faulty, _name, _counted(_name))


# ---------------------------------------------------------------------------------------- one trial


def expected(fault: Fault, call: str) -> tuple[type[BaseException], ...]:
    """Return what a build may raise when a call fails so."""
    if fault.kills:
        return (KilledError,)
    full = fault.error in {errno.ENOSPC, errno.EDQUOT}
    kinds = (OutOfSpaceError if full else StorageError,) if fault.error else ()
    return (*kinds, SyncFailedError) if call == "sync" or fault.lasting else kinds


def run(one: Subject, out: Path, fault: Fault, at: int) -> tuple[str, str]:
    """Build with the fault at a call; return what came of it, and what is wrong with that or ""."""
    system = Faulty(fault, at)
    error: BaseException | None = None
    try:
        one.build(out, system)
    except (Exception, KilledError) as caught:  # noqa: BLE001  what is not right is reported
        error = caught
    call = system.names[at - 1]
    shown, wrong = one.shown(out), ""
    if error is None:
        came = "went on"
        wrong = (
            ""
            if shown == "right" and not fault.kills
            else f"returned, and the folder shows {shown}"
        )
    else:
        came = "stopped"
        wrong = judged(error, expected(fault, call), str(out))
    if shown not in {"nothing", "right"}:
        wrong = shown
    strange = [name for name in one.left(out) if not name.startswith(".")]
    if strange:
        wrong = f"left {strange}"
    return f"{came}, shows {shown}", wrong and f"{call} (call {at}), {fault.name}: {wrong}"


def judged(error: BaseException, kinds: tuple[type[BaseException], ...], out: str) -> str:
    """Return what is wrong with an error."""
    if not isinstance(error, kinds):
        return f"raised {type(error).__name__}: {error}"
    place, _, rest = str(error).partition(": ")
    near = place.startswith(out) or out.startswith(place + "/")
    if isinstance(error, DatacheckError) and not (near and ". " in rest and rest.endswith(".")):
        return f"said too little: {error}"
    return ""


def sweep(one: Subject, fault: Fault, place: Path, stride: int, base: Path | None = None) -> Tally:
    """Try a fault at every `stride`-th call of a build, from nothing or from what `base` holds."""
    tally, out = Tally(), place / "out"
    with started(out, base):
        names = counted(one, out)
    where = [n for n, name in enumerate(names, 1) if name in fault.calls]
    for at in where[FAULTS.index(fault) % stride :: stride]:
        with started(out, base):
            came, wrong = run(one, out, fault, at)
            after = f"{names[at - 1]} (call {at}): "
            wrong = wrong or ((said := again(one, out)) and after + said)
        tally.trials += 1
        tally.came[came] += 1
        tally.wrong += [wrong] if wrong else []
    return tally


@contextlib.contextmanager
def started(out: Path, base: Path | None) -> Iterator[None]:
    """Hold a folder of caches as it is before a trial."""
    if base is not None:
        shutil.copytree(base, out, symlinks=True)
    try:
        yield
    finally:
        shutil.rmtree(out, ignore_errors=True)


def counted(one: Subject, out: Path) -> list[str]:
    """Return the names of the calls of a whole build."""
    system = Faulty()
    one.build(out, system)
    return system.names


def killed(one: Subject, out: Path, share: float) -> Path:
    """Leave what a build leaves that was killed after a share of its calls."""
    with started(out, None):
        at = int(len(counted(one, out)) * share)
    with contextlib.suppress(KilledError):
        one.build(out, Faulty(FAULTS[0], at))
    return out


# ----------------------------------------------------------------------------------------- controls


class Losing(Faulty):
    """Says that it wrote all, and wrote half: once."""

    def write(self, descriptor: int, data: memoryview) -> int:
        if self.fault is not None and len(self.names) + 1 == self.at:
            super().write(descriptor, data[: len(data) // 2])
            return len(data)
        return super().write(descriptor, data)


def controls(one: Subject, place: Path, stride: int) -> list[str]:
    """Return the broken builds that were not told."""
    kill, full, short = FAULTS[0], FAULTS[2], FAULTS[-1]
    tried = {
        "one whose writes lose bytes": (short, [patch(f"{__name__}.Faulty", Losing)]),
        "one that publishes file by file": (kill, [patch.object(publish, "publish", by_file)]),
        "one that lets errors through": (
            full,
            [patch.object(fsops, "guarded", lambda _: contextlib.nullcontext())],
        ),
        "one that leaves its work": (full, [patch.object(staging, "discard", lambda _: None)]),
    }
    believed = []
    for name, (fault, broken) in tried.items():
        with contextlib.ExitStack() as stack:
            for one_patch in broken:
                stack.enter_context(one_patch)
            if not sweep(one, fault, place, stride).wrong:
                believed.append(name)
    return believed


# ---------------------------------------------------------------------------------------- the table


def line(name: str, tally: Tally) -> None:
    """Print what came of one fault."""
    came = [
        tally.came[f"{how}, shows {what}"]
        for how in ("stopped", "went on")
        for what in ("nothing", "right")
    ]
    cells = [tally.trials, *came, len(tally.wrong)]
    print(f"{name:36}" + "".join(f"{cell:>10,}" for cell in cells), flush=True)
    for wrong in tally.wrong[:12]:
        print(f"    {wrong}")


def main(arguments: list[str] | None = None) -> int:
    """Run all trials; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of the name of a row")
    parser.add_argument("--stride", type=int, default=1, help="try every so many calls only")
    parser.add_argument(
        "--others", type=int, default=5, help="so many times fewer in builds that are not plain"
    )
    parser.add_argument(
        "--real", type=int, default=40, help="calls at which the real command is tried"
    )
    parser.add_argument("--folder", default=MEMORY, help="where to write; removed afterwards")
    asked = parser.parse_args(arguments)
    start, bad = time.perf_counter(), 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        place = Path(name)
        write(place)
        plain = subject(place)
        packed = subject(place, "zstd")
        starts = {
            "plain": (plain, None),
            "zstd": (packed, None),
            "from shards": (plain, killed(plain, place / "at shards", 0.14)),
            "from tables": (plain, killed(plain, place / "at tables", 0.4)),
        }
        with started(place / "out", None):
            names = counted(plain, place / "out")
        print(
            f"{len(names):,} calls, {sum(n not in NO_CHANGE for n in names):,} of them change files"
        )
        print(f"{'':36}{'':>10}{'stopped: shows':>20}{'went on: shows':>20}")
        print(
            f"{'':36}{'trials':>10}{'nothing':>10}{'right':>10}{'nothing':>10}{'right':>10}{'wrong':>10}"
        )
        for what, (one, base) in starts.items():
            for fault in FAULTS:
                if asked.only in f"{what}: {fault.name}":
                    tally = sweep(
                        one,
                        fault,
                        place,
                        asked.stride * (asked.others if base or packed is one or fault.rare else 1),
                        base,
                    )
                    line(f"{what}: {fault.name}", tally)
                    bad += len(tally.wrong)
        if asked.real and asked.only in "command":
            for what, tally in real(plain, place, asked.real).items():
                line(what, tally)
                bad += len(tally.wrong)
        believed = controls(plain, place, min(max(asked.stride, 7), CONTROLS))
    print(
        "controls: "
        + ("; ".join(f"{one} was believed" for one in believed) or "four broken builds were told")
    )
    print(machine(time.perf_counter() - start))
    return int(bool(bad or believed))


if __name__ == "__main__":
    sys.exit(main())
