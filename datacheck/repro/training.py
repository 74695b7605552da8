"""Runs a training command for some steps in a process of its own that writes their digests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.errors import UsageError
from datacheck.repro import switches
from datacheck.repro.inner import child_command
from datacheck.repro.recorded import Line, Trace, trace_name
from datacheck.repro.switches import Switch, set_word, toggle_caches

_GRACE_SECONDS = 120.0  # seconds for the start and the end of a process


@dataclass(frozen=True)
class TrainingOutcome:
    """The result of one run.

    Args:
        trace: a line for each step.
        start: the line before the first step; empty if there was no step.
        seen: observations of the script, and how it was stopped.
        failed: why there is nothing to compare; empty if there is.
    """

    trace: Trace
    start: Line
    seen: dict[str, Any]
    failed: str = ""


@dataclass
class TrainingCommand:
    """A training command, and how to run it.

    Args:
        python: the interpreter with its options.
        words: a script or -m and a module, and arguments.
        environment: environment variables.
        steps: stop after this many steps of an optimizer.
        seconds: stop after this time, wherever it is; 0: never.
        folder: the folder of the traces.
        given: the user's switches.
    """

    python: Sequence[str]
    words: Sequence[str]
    environment: Mapping[str, str]
    steps: int
    seconds: float
    folder: Path
    given: Sequence[Switch] = ()

    def run(self, name: str, turned: Switch | None = None) -> TrainingOutcome:
        """Run the command to the end of its steps, as the baseline or with one switch turned."""
        words = list(self.words)
        environment = dict(self.environment)
        for switch in self.given:
            set_word(words, environment, switch, switch.new if switch is turned else switch.old)
        cache = turned is not None and turned.name == switches.CACHE and not turned.given
        if cache:
            words = toggle_caches(words)
        inside = {} if turned is None or turned.given or cache else {turned.name: turned.new}
        if inside.get("deterministic"):
            # Without it, older versions are not deterministic.
            environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        place = self.folder / name
        place.mkdir()
        trace = place / trace_name(0)
        out = place / "found.json"
        log = place / "log"
        request = {
            "trace": str(trace),
            "out": str(out),
            "set": inside,
            "steps": self.steps,
            "seconds": self.seconds,
            "probe": False,
            "data": [],
        }
        command = [*self.python, *child_command("trial"), json.dumps(request), *words]
        limit = self.seconds + _GRACE_SECONDS if self.seconds else None
        with log.open("wb") as file:
            try:
                code = subprocess.run(
                    command,
                    env=environment,
                    check=False,
                    timeout=limit,
                    stdout=file,
                    stderr=file,
                    stdin=subprocess.DEVNULL,
                ).returncode
            except OSError as error:
                msg = f"{self.python[0]}: cannot be started: {error.strerror}"
                raise UsageError(msg) from error
            except subprocess.TimeoutExpired:
                code = 1
        return _outcome(Trace(trace), out, log, code)


def _outcome(trace: Trace, out: Path, log: Path, code: int) -> TrainingOutcome:
    observations = json.loads(out.read_bytes()) if out.is_file() else {}
    start: Line = next(trace.of("start"), {}) if trace.path.is_file() else {}
    failed = ""
    if code or not observations:
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        died = f"signal {-code}" if code < 0 else f"exit code {code}"
        failed = f"{died}: {lines[-1].strip()}" if lines else died
    elif not start or next(trace.of("step"), None) is None:
        failed = f"it took no step of an optimizer of torch.optim; it was stopped {observations['stopped']}"
    return TrainingOutcome(trace, start, observations, failed)
