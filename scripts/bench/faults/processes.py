"""Faults at a call of the real command, whose coordinator and children count their calls together."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from subject import SETTINGS, Subject, command

from datacheck.runtime.fsops import System

CHANGES = sorted(name for name in vars(System) if not name.startswith("_"))
WRITES = ("write", "write_at")
NO_CHANGE = ("open", "close")  # may fail, but leave a file as it is


@dataclass
class Tally:
    """What came of the trials of one fault."""

    trials: int = 0
    came: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


SITE = f"""
import errno, fcntl, os, signal{SETTINGS}
import datacheck.runtime.fsops as _fsops
from datacheck.runtime.fsops import System as _System
_kind, _at = os.environ["FAULT_KIND"], int(os.environ["FAULT_AT"])
_file = os.open(os.environ["FAULT_FILE"], os.O_RDWR)
_group = int(os.environ.setdefault("FAULT_GROUP", str(os.getpid())))  # the command's: its children have others
def _number():
    fcntl.lockf(_file, fcntl.LOCK_EX)
    number = int(os.pread(_file, 20, 0) or b"0") + 1
    os.pwrite(_file, b"%d" % number, 0)
    fcntl.lockf(_file, fcntl.LOCK_UN)
    return number
def _wrapped(name):
    real = getattr(_System, name)
    def call(self, *arguments):
        number = _number()
        if number == _at and _kind == "group":
            os.killpg(_group, signal.SIGKILL)
        if number == _at and _kind in ("group", "process"):
            os.kill(os.getpid(), signal.SIGKILL)
        if (number == _at or number > _at > 0 and _kind.endswith("+")) and _kind[0] == "E":
            code = getattr(errno, _kind.rstrip("+"))
            raise OSError(code, os.strerror(code))
        return real(self, *arguments)
    return call
class Faulty(_System):
    pass
for _name in {[name for name in CHANGES if name not in NO_CHANGE]!r}:
    setattr(Faulty, _name, _wrapped(_name))
_fsops.SYSTEM = Faulty()
"""
REAL = {
    "kill of the group": "group",
    "kill of the process": "process",
    "ENOSPC once": "ENOSPC",
    "EIO from then on": "EIO+",
}
CODES = {"group": {-9}, "process": {-9, 3, 0}, "ENOSPC": {5, 3, 0}, "EIO+": {3, 0}}


def ran(place: Path, out: Path, kind: str, at: int, workers: int = 1) -> tuple[int, str, int]:
    """Run the command with a fault; return its exit code, what it said, and how many calls were counted."""
    (place / "site").mkdir(exist_ok=True)
    (place / "site/sitecustomize.py").write_text(SITE)
    count = place / "count"
    count.write_text("0")
    path = os.pathsep.join(filter(None, [str(place / "site"), os.environ.get("PYTHONPATH", "")]))
    said = {"PYTHONPATH": path, "FAULT_KIND": kind, "FAULT_AT": str(at), "FAULT_FILE": str(count)}
    done = subprocess.run(
        command(place, out, "--workers", str(workers)),
        cwd=place,
        env=os.environ | said,
        check=False,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=300,
    )
    return done.returncode, done.stdout + done.stderr, int(count.read_text() or 0)


def real(one: Subject, place: Path, points: int) -> dict[str, Tally]:
    """Try the real command at so many calls of all; the scan starts anew each time, too."""
    out, tallies = place / "real", {f"command: {name}": Tally() for name in REAL}
    code, said, total = ran(place, out, "none", 0)
    if code or one.shown(out) != "right":
        return {"command": Tally(1, wrong=[f"untouched, it ended with {code}: {said}"])}
    for (name, tally), kind in zip(tallies.items(), REAL.values(), strict=True):
        for at in sorted({max(1, round((i + 0.5) * total / points)) for i in range(points)}):
            shutil.rmtree(out, ignore_errors=True)
            shutil.rmtree(place / ".datacheck", ignore_errors=True)
            code, said, _ = ran(place, out, kind, at)
            shown, wrong = one.shown(out), ""
            tally.trials += 1
            tally.came[f"{'stopped' if code else 'went on'}, shows {shown}"] += 1
            if code not in CODES[kind] or "Traceback" in said:
                wrong = f"exit {code}: {said}"
            if shown not in {"nothing", "right"} or (code == 0 and shown != "right"):
                wrong = f"exit {code}, shows {shown}"
            code, said, _ = ran(place, out, "none", 0)
            if code or one.shown(out) != "right" or one.left(out):
                wrong = (
                    wrong
                    or f"the re-run ended with {code}, {one.shown(out)}, {one.left(out)}: {said}"
                )
            tally.wrong += [f"{name} at call {at} of {total}: {wrong}"] if wrong else []
    return tallies
