"""Turn one switch of a training at a time: which of them changes its result, and from which step on."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from datacheck.errors import UsageError
from datacheck.repro.diff.steps import compare_steps, leading, meaning
from datacheck.repro.runs.read import Line, Trace, trace_name
from datacheck.repro.trials import flips

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_GRACE = 120.0  # seconds for the start and the end of a process
_STATES = ("steady", "parts", "noise", "same", "failed", "not tried")  # as they are ranked
_WEIGHTS, _LENGTH = "initial weights", "number of steps"


@dataclass(frozen=True)
class Switch:
    """What is turned: one of `flips.NAMES`, or the user's own.

    Args:
        name: of the switch, of an environment variable (in capitals), or of a word of the command line.
        old, new: its values in the baseline and in the trial; of a variable or word "": it is not there.
        given: it is the user's.
    """

    name: str
    old: Any
    new: Any
    given: bool = True

    @classmethod
    def parse(cls, text: str) -> Switch:
        """Return the switch that ``name=OLD:NEW`` says; OLD ends at the first colon."""
        name, equals, values = text.partition("=")
        old, colon, new = values.partition(":")
        if not (name.strip("-") and equals and colon) or old == new:
            msg = f"--switch {text}: name=OLD:NEW is wanted, with two values that differ"
            raise UsageError(msg)
        return cls(name, old, new)

    @property
    def variable(self) -> bool:
        """It is an environment variable."""
        return _VARIABLE.fullmatch(self.name) is not None


@dataclass(frozen=True)
class Row:
    """What came of one switch.

    Args:
        state: "parts": the trial differs from the baseline; "same"; "steady": the baseline differs from itself, and two
            runs with the switch do not; "noise": it differs no sooner than the baseline does from itself;
            "failed": the trial could not be run; "not tried".
        step, column: where it parts first; steps count from 0.
        compared: steps that both have.
        said: what that means, or why there is nothing to say.
    """

    name: str
    old: Any
    new: Any
    state: str
    step: int | None = None
    column: str = ""
    compared: int = 0
    said: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """The sooner it parts, the further up."""
        return _STATES.index(self.state), -1 if self.step is None else self.step


@dataclass
class Bisection:
    """What came of all.

    Args:
        steps: that were asked for, and that the baseline made.
        noise: where the baseline differs from itself; None: it does not.
        rows: in the order of `Row.order`.
    """

    steps: tuple[int, int]
    repeats: int
    noise: Row | None = None
    rows: list[Row] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code: 1 something differs, 2 nothing does and something could not be run, 0 nothing does."""
        if self.noise is not None or any(row.state == "parts" for row in self.rows):
            return 1
        return 2 if any(row.state == "failed" for row in self.rows) else 0

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "steps": {"asked": self.steps[0], "made": self.steps[1]},
            "baseline": {"runs": self.repeats, "noise": None if self.noise is None else asdict(self.noise)},
            "switches": [asdict(row) for row in self.rows],
        }


@dataclass(frozen=True)
class _Outcome:
    trace: Trace
    start: Line
    seen: dict[str, Any]
    failed: str = ""


@dataclass
class Training:
    """A command that trains, and how it is run.

    Args:
        python: the interpreter with its options.
        words: a script or -m and a module, and arguments.
        environment: its variables.
        steps: after how many steps of an optimizer it is stopped.
        seconds: after how many it is stopped wherever it is; 0: never.
        folder: where traces are written.
        given: the user's switches.
    """

    python: Sequence[str]
    words: Sequence[str]
    environment: Mapping[str, str]
    steps: int
    seconds: float
    folder: Path
    given: Sequence[Switch] = ()

    def run(self, name: str, turned: Switch | None = None) -> _Outcome:
        """Run it to the end of its steps, as the baseline or with one switch turned."""
        words, environment = list(self.words), dict(self.environment)
        for switch in self.given:
            _settle(words, environment, switch, switch.new if switch is turned else switch.old)
        inside = {} if turned is None or turned.given else {turned.name: turned.new}
        if inside.get("deterministic"):
            environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else older versions give no determinism
        place = self.folder / name
        place.mkdir()
        trace, out, log = place / trace_name(0), place / "found.json", place / "log"
        asked = {
            "trace": str(trace), "out": str(out), "set": inside, "steps": self.steps, "seconds": self.seconds,
            "probe": False, "data": [],
        }  # fmt: skip
        command = [*self.python, "-m", "datacheck.repro.trials.trial", json.dumps(asked), *words]
        limit = self.seconds + _GRACE if self.seconds else None
        with log.open("wb") as file:
            try:
                code = subprocess.run(
                    command, env=environment, check=False, timeout=limit, stdout=file, stderr=file,
                    stdin=subprocess.DEVNULL,
                ).returncode  # fmt: skip
            except OSError as error:
                msg = f"{self.python[0]}: cannot be started: {error.strerror}"
                raise UsageError(msg) from error
            except subprocess.TimeoutExpired:
                code = 1
        return _outcome(Trace(trace), out, log, code)


def _outcome(trace: Trace, out: Path, log: Path, code: int) -> _Outcome:
    seen = json.loads(out.read_bytes()) if out.is_file() else {}
    start: Line = next(trace.of("start"), {}) if trace.path.is_file() else {}
    failed = ""
    if code or not seen:
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
        died = f"signal {-code}" if code < 0 else f"exit code {code}"
        failed = f"{died}: {lines[-1].strip()}" if lines else died
    elif not start or next(trace.of("step"), None) is None:
        failed = f"it took no step of an optimizer of torch.optim; it was stopped {seen['stopped']}"
    return _Outcome(trace, start, seen, failed)


def _settle(words: list[str], environment: dict[str, str], switch: Switch, value: str) -> None:
    """Give a variable, or a word of the command line, its value; what is empty is not there."""
    if switch.variable:
        environment.pop(switch.name, None)
        if value:
            environment[switch.name] = value
        return
    at = _place(words, switch.name)
    if at is None:
        words += [f"{switch.name}={value}"] * bool(value)
    elif "=" in words[at]:
        words[at : at + 1] = [f"{words[at].partition('=')[0]}={value}"] * bool(value)
    else:
        words[at : at + 2] = [words[at], value] * bool(value)


def _place(words: Sequence[str], name: str) -> int | None:
    """Return where ``name=value`` stands, or ``--name value``."""
    for at, word in enumerate(words):
        if word.startswith(f"{name}=") or (name.startswith("-") and word == name and at + 1 < len(words)):
            return at
    return None


def bisect(
    training: Training, *, repeats: int = 2, only: Sequence[str] = (), told: Callable[[str], None] = lambda _: None
) -> Bisection:
    """Run a training as it is, then with one switch turned at a time.

    Args:
        training: the command, the user's switches with it.
        repeats: runs of the baseline, 2 or more.
        only: names of switches to turn; none: all.
        told: is called with the name of each run before it starts.

    Returns:
        A row for each switch, the one that parts first on top.

    Raises:
        UsageError: a switch is not there or is said twice; the training cannot be run, or takes no step.

    Notes:
        Where the baseline differs from itself each switch is run twice, for what makes it steady is its cause.
    """
    known = [*flips.NAMES, *(switch.name for switch in training.given)]
    _check(training, known, only)
    runs = []
    for i in range(repeats):
        told(f"baseline {i + 1}")
        runs.append(training.run(f"baseline-{i}"))
        if runs[-1].failed:
            msg = f"the training as it is could not be run: {runs[-1].failed}"
            raise UsageError(msg)
    base = runs[0]
    parted = [row for other in runs[1:] if (row := _compare(base, other, Switch("baseline", "", ""))).state == "parts"]
    noise = min(parted, key=lambda row: row.order, default=None)
    found = Bisection((training.steps, sum(1 for _ in base.trace.of("step"))), repeats, noise)
    for switch, why in _planned(training, base):
        if only and switch.name not in only:
            continue
        if why:
            found.rows.append(Row(switch.name, switch.old, switch.new, "not tried", said=why))
            continue
        told(f"{switch.name} {switch.old} -> {switch.new}")
        found.rows.append(_tried(training, base, switch, noise))
    found.rows.sort(key=lambda row: row.order)
    return found


def _check(training: Training, known: Sequence[str], only: Sequence[str]) -> None:
    for name in only:
        if name not in known:
            msg = f"--only {name}: no such switch. There are {', '.join(known)}"
            raise UsageError(msg)
    for name in known:
        if known.count(name) > 1:
            msg = f"--switch {name}: there are two of that name"
            raise UsageError(msg)
    for switch in training.given:
        at = None if switch.variable else _place(training.words, switch.name)
        if at is not None:
            word = training.words[at]
            value = word.partition("=")[2] if "=" in word else training.words[at + 1]
            if value != switch.old:
                asked = f"--switch {switch.name}={switch.old}:{switch.new}"
                msg = f"{asked}: the command says {value}, and not {switch.old}"
                raise UsageError(msg)


def _planned(training: Training, base: _Outcome) -> list[tuple[Switch, str]]:
    """Return the switches, and of those that cannot be turned why."""
    planned = [(switch, "") for switch in training.given]
    for name in flips.NAMES:
        value = base.start["held"][name]
        if isinstance(value, dict):
            planned.append((Switch(name, None, None, given=False), value["missing"]))
        elif name == flips.WORKERS and not value:
            planned.append((Switch(name, None, None, given=False), "no DataLoader was iterated before the first step"))
        else:
            planned.append((Switch(name, value, flips.turned(name, value), given=False), ""))
    return planned


def _tried(training: Training, base: _Outcome, switch: Switch, noise: Row | None) -> Row:
    trial = training.run(f"trial-{switch.name.replace('/', '_')}", switch)
    row = _compare(base, trial, switch)
    if row.state == "failed" or noise is None or noise.step is None:
        return row
    again = training.run(f"again-{switch.name.replace('/', '_')}", switch)
    if not again.failed and _compare(trial, again, switch).state == "same":
        said = "the training differs from itself without it, and two runs with it are equal"
        return replace(row, state="steady", said=said)
    if row.step is not None and row.step < noise.step:
        return row
    said = f"the training differs from itself from step {noise.step} on, with it as well"
    return replace(row, state="noise", said=said)


def _compare(base: _Outcome, trial: _Outcome, switch: Switch) -> Row:
    row = Row(switch.name, switch.old, switch.new, "same")
    if trial.failed:
        return replace(row, state="failed", said=trial.failed)
    held = trial.start["held"].get(switch.name)
    if not switch.given and any(one != switch.new for one in (held if isinstance(held, list) else [held])):
        return replace(row, state="failed", said=f"the script has set it to {held} again")
    parting = compare_steps(base.trace, trial.trace, 0)
    row = replace(row, compared=parting.compared)
    if base.start["weights"] != trial.start["weights"]:
        return replace(row, state="parts", step=0, column=_WEIGHTS, said="the weights differ before the first step")
    column = leading(parting)
    if column is not None:
        said = meaning(parting, column, weights_equal=True)
        return replace(row, state="parts", step=column.step, column=column.name, said=said)
    whole = all(one.seen["stopped"] == "at its end" or " step" in one.seen["stopped"] for one in (base, trial))
    if any(parting.only.values()) and whole:
        return replace(row, state="parts", step=parting.compared, column=_LENGTH, said="one of them ends sooner")
    short = "" if whole else "one of them was stopped by --seconds"
    return replace(row, said=short)
