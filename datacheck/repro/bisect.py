"""Turns one switch of a training at a time: which one changes its result, and from which step.

`TrainingCommand` runs the training for some steps in a process of its own that writes their digests.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from datacheck.errors import UsageError
from datacheck.repro import switches
from datacheck.repro.inner import child_command
from datacheck.repro.recorded import Line, Trace, trace_name
from datacheck.repro.steps import compare_steps, first_column, meaning
from datacheck.repro.switches import Switch, find_word, set_word, toggle_caches

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


# ---------------------------------------------------------------------------------------- bisection

# In the order of the report
_STATES = ("steady", "parts", "sometimes", "noise", "same", "failed", "not tried")
_WEIGHTS = "initial weights"
_LENGTH = "number of steps"
# Runs on which an effect of a switch must rest: one may diverge by chance.
_CONFIRMING_RUNS = 3
# A switch counts as the cause of noise only if runs of a random training are all equal by chance
# with at most this probability.
_MAX_CHANCE = 0.05


@dataclass(frozen=True)
class Effect:
    """The effect of one switch.

    Args:
        state: "parts": each run with it differs from each baseline run, before baseline runs differ
            from one another; "sometimes": only some do; "same"; "steady": baseline runs differ from
            one another, and runs with the switch do not; "noise": runs with it diverge no sooner
            than baseline runs from one another; "failed": it could not be run; "not tried".
        step, column: the first divergence; steps count from 0.
        compared: number of steps that both have.
        said: an interpretation, or why there is none.
        pairs, parted: pairs of a baseline run and a run with the switch, and how many of them
            diverge.
    """

    name: str
    old: Any
    new: Any
    state: str
    step: int | None = None
    column: str = ""
    compared: int = 0
    said: str = ""
    pairs: int = 0
    parted: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Sort key: the state, then the step of the first divergence."""
        return _STATES.index(self.state), -1 if self.step is None else self.step


@dataclass
class Bisection:
    """The result of a bisection.

    Args:
        steps: requested, and made by the baseline.
        repeats: baseline runs.
        noise: the divergence between baseline runs; None: there is none.
        rows: in the order of `Effect.order`.
    """

    steps: tuple[int, int]
    repeats: int
    noise: Effect | None = None
    rows: list[Effect] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The exit code: 1 something differs; 2 nothing does but a switch failed; 0 otherwise."""
        if self.noise is not None or any(row.state in {"parts", "sometimes"} for row in self.rows):
            return 1
        return 2 if any(row.state == "failed" for row in self.rows) else 0

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "steps": {"asked": self.steps[0], "made": self.steps[1]},
            "baseline": {
                "runs": self.repeats,
                "noise": None if self.noise is None else asdict(self.noise),
            },
            "switches": [asdict(row) for row in self.rows],
        }


@dataclass(frozen=True)
class _RunPair:
    """The comparison of two runs; step is None if they are equal."""

    step: int | None
    column: str = ""
    said: str = ""
    compared: int = 0


def bisect(
    training: TrainingCommand,
    *,
    repeats: int = 2,
    only: Sequence[str] = (),
    told: Callable[[str], None] = lambda _: None,
) -> Bisection:
    """Run a training as it is (the baseline), then with one switch turned at a time.

    Args:
        training: the command, including the user's switches.
        repeats: baseline runs, 2 or more.
        only: names of switches to turn; empty: all.
        told: called with the name of each run before it starts.

    Returns:
        A row for each switch, the earliest divergence first.

    Raises:
        UsageError: a switch does not exist or is given twice; the training fails, or takes no step.

    Notes:
        If any run diverges, the training runs at least three times as it is and with the switch,
        and each run of the one is compared with each run of the other: a script that is random by
        itself diverges by chance. If baseline runs differ from one another, every switch is
        repeated, since a switch that makes the training steady is the cause.
    """
    known_names = [*switches.NAMES, *(switch.name for switch in training.given)]
    _check_switches(training, known_names, only)
    baselines = [_run_baseline(training, i, told) for i in range(repeats)]
    planned = [
        (switch, reason)
        for switch, reason in _plan_switches(training, baselines[0])
        if not only or switch.name in only
    ]
    trial_runs = [
        (switch, [_run_trial(training, switch, 0, told)])
        for switch, reason in planned
        if not reason
    ]
    diverging = [
        switch
        for switch, (run,) in trial_runs
        if not _failure_reason(switch, run) and _compare_runs(baselines[0], run).step is not None
    ]
    runs = max(_CONFIRMING_RUNS, repeats)
    if diverging or _diverged(_compare_all(baselines)):
        baselines += [_run_baseline(training, i, told) for i in range(repeats, runs)]
    baseline_pairs = _compare_all(baselines)
    for switch, trials in trial_runs:
        if (switch in diverging or _diverged(baseline_pairs)) and not _failure_reason(
            switch, trials[0]
        ):
            trials += [_run_trial(training, switch, i, told) for i in range(1, runs)]
    bisection = Bisection(
        (training.steps, sum(1 for _ in baselines[0].trace.of("step"))),
        len(baselines),
        _baseline_noise(baseline_pairs),
    )
    bisection.rows += [
        Effect(
            skipped_switch.name, skipped_switch.old, skipped_switch.new, "not tried", said=reason
        )
        for skipped_switch, reason in planned
        if reason
    ]
    bisection.rows += [
        _switch_effect(switch, baselines, trials, baseline_pairs) for switch, trials in trial_runs
    ]
    bisection.rows.sort(key=lambda row: row.order)
    return bisection


def _run_baseline(
    training: TrainingCommand, i: int, progress: Callable[[str], None]
) -> TrainingOutcome:
    progress(f"baseline {i + 1}")
    run = training.run(f"baseline-{i}")
    if run.failed:
        msg = f"the training as it is could not be run: {run.failed}"
        raise UsageError(msg)
    return run


def _run_trial(
    training: TrainingCommand, switch: Switch, i: int, progress: Callable[[str], None]
) -> TrainingOutcome:
    progress(f"{switch.name} {switch.old} -> {switch.new}" + (f", run {i + 1}" if i else ""))
    return training.run(f"trial-{switch.name.replace('/', '_')}-{i}", switch)


def _check_switches(
    training: TrainingCommand, known_names: Sequence[str], only: Sequence[str]
) -> None:
    for name in only:
        if name not in known_names:
            msg = f"--only {name}: no such switch. There are {', '.join(known_names)}"
            raise UsageError(msg)
    for name in known_names:
        if known_names.count(name) > 1:
            msg = f"--switch {name}: there are two of that name"
            raise UsageError(msg)
    for switch in training.given:
        word_index = None if switch.variable else find_word(training.words, switch.name)
        if word_index is not None:
            word = training.words[word_index]
            value = word.partition("=")[2] if "=" in word else training.words[word_index + 1]
            if value != switch.old:
                option = f"--switch {switch.name}={switch.old}:{switch.new}"
                msg = f"{option}: the command says {value}, and not {switch.old}"
                raise UsageError(msg)


def _plan_switches(training: TrainingCommand, base: TrainingOutcome) -> list[tuple[Switch, str]]:
    """Return the switches, each with the reason why it cannot be turned, or ""."""
    planned = [(switch, "") for switch in training.given]
    for name in switches.NAMES:
        if name == switches.CACHE:
            planned.append(_cache_switch(training))
            continue
        value = base.start["held"][name]
        if isinstance(value, dict):
            planned.append((Switch(name, None, None, given=False), value["missing"]))
        elif name == switches.WORKERS and not value:
            planned.append(
                (
                    Switch(name, None, None, given=False),
                    "no DataLoader was iterated before the first step",
                )
            )
        else:
            planned.append(
                (Switch(name, value, switches.tried_value(name, value), given=False), "")
            )
    return planned


def _cache_switch(training: TrainingCommand) -> tuple[Switch, str]:
    words = list(training.words)
    toggled_words = toggle_caches(words)
    if words == toggled_words:
        return Switch(
            switches.CACHE, None, None, given=False
        ), "no word of the command line turns a cache on or off"
    old, new = (
        " ".join(word for word in one if word not in other)
        for one, other in ((words, toggled_words), (toggled_words, words))
    )
    return Switch(switches.CACHE, old, new, given=False), ""


# ------------------------------------------------------------------------------------------ effects


def _switch_effect(
    switch: Switch,
    baselines: Sequence[TrainingOutcome],
    trials: Sequence[TrainingOutcome],
    baseline_pairs: Sequence[_RunPair],
) -> Effect:
    """Return the row of a switch from all runs with it and all baseline runs."""
    names = switch.name, switch.old, switch.new
    failed = next((why for run in trials if (why := _failure_reason(switch, run))), "")
    if failed:
        return Effect(*names, "failed", said=failed)
    cross_pairs = [_compare_runs(base, run) for base in baselines for run in trials]
    trial_pairs = _compare_all(trials)
    diverging_pairs = _diverged(cross_pairs)
    noise = _earliest(baseline_pairs)
    earliest_pair = _earliest(cross_pairs) or cross_pairs[0]
    state, sentence = "same", earliest_pair.said
    if noise is not None:
        state, sentence = _noisy_state(baseline_pairs, trial_pairs, noise)
    diverges_sooner = len(diverging_pairs) == len(cross_pairs) and (
        noise is None or _latest_step(diverging_pairs) < (noise.step or 0)
    )
    if diverges_sooner and state != "steady":
        state, sentence = "parts", earliest_pair.said
        if (trial_divergence := _earliest(trial_pairs)) is not None:
            sentence = f"{sentence}. With it the training differs from itself, from step {trial_divergence.step} on"
    elif diverging_pairs and noise is None:
        sentence = (
            "the training is random by itself, or with the switch: a higher --repeats says more"
        )
        state = "sometimes"
    return Effect(
        *names,
        state,
        earliest_pair.step,
        earliest_pair.column,
        earliest_pair.compared,
        sentence,
        len(cross_pairs),
        len(diverging_pairs),
    )


def _noisy_state(
    baseline_pairs: Sequence[_RunPair], trial_pairs: Sequence[_RunPair], noise: _RunPair
) -> tuple[str, str]:
    """Return state and sentence of a switch if baseline runs differ from one another."""
    frequencies = (
        f"runs as it is differ in {_diverged_share(baseline_pairs)}, runs with it in "
        f"{_diverged_share(trial_pairs)}"
    )
    if _diverged(trial_pairs):
        return (
            "noise",
            f"the training differs from itself from step {noise.step} on, with it as well: {frequencies}",
        )
    runs = (1 + (1 + 8 * len(trial_pairs)) ** 0.5) / 2
    if (1 - len(_diverged(baseline_pairs)) / len(baseline_pairs)) ** (runs / 2) > _MAX_CHANCE:
        return "noise", f"{frequencies}, which may be chance: a higher --repeats says more"
    return "steady", f"the training differs from itself without it, and not with it: {frequencies}"


def _diverged_share(pairs: Sequence[_RunPair]) -> str:
    return f"{len(_diverged(pairs))} of {len(pairs)} pairs"


def _compare_all(runs: Sequence[TrainingOutcome]) -> list[_RunPair]:
    return [_compare_runs(one, other) for one, other in itertools.combinations(runs, 2)]


def _diverged(pairs: Iterable[_RunPair]) -> list[_RunPair]:
    return [pair for pair in pairs if pair.step is not None]


def _earliest(pairs: Iterable[_RunPair]) -> _RunPair | None:
    return min(_diverged(pairs), key=lambda pair: pair.step or 0, default=None)


def _latest_step(pairs: Iterable[_RunPair]) -> int:
    return max(pair.step or 0 for pair in pairs)


def _baseline_noise(baseline_pairs: Sequence[_RunPair]) -> Effect | None:
    earliest_pair = _earliest(baseline_pairs)
    if earliest_pair is None:
        return None
    effect = Effect(
        "baseline",
        "",
        "",
        "parts",
        earliest_pair.step,
        earliest_pair.column,
        earliest_pair.compared,
        earliest_pair.said,
    )
    return replace(effect, pairs=len(baseline_pairs), parted=len(_diverged(baseline_pairs)))


def _failure_reason(switch: Switch, trial: TrainingOutcome) -> str:
    """Return why a run says nothing about its switch; empty if it does."""
    if trial.failed or switch.given or switch.name == switches.CACHE:
        return trial.failed
    switch_values = trial.start["held"].get(switch.name)
    overwritten = any(
        value != switch.new
        for value in (switch_values if isinstance(switch_values, list) else [switch_values])
    )
    return f"the script has set it to {switch_values} again" if overwritten else ""


def _compare_runs(one: TrainingOutcome, other: TrainingOutcome) -> _RunPair:
    divergence = compare_steps(one.trace, other.trace, 0)
    if one.start["weights"] != other.start["weights"]:
        return _RunPair(
            0, _WEIGHTS, "the weights differ before the first step", divergence.compared
        )
    column = first_column(divergence)
    if column is not None:
        sentence = meaning(divergence, column, weights_equal=True)
        return _RunPair(column.step, column.name, sentence, divergence.compared)
    both_complete = all(
        run.seen["stopped"] == "at its end" or " step" in run.seen["stopped"]
        for run in (one, other)
    )
    if any(divergence.only.values()) and both_complete:
        return _RunPair(
            divergence.compared, _LENGTH, "one of them ends sooner", divergence.compared
        )
    return _RunPair(
        None,
        said="" if both_complete else "one of them was stopped by --seconds",
        compared=divergence.compared,
    )
