"""``datacheck repro``: `capture` and `check`; its other commands have modules of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.lazy import LazyGroup
from datacheck.cli.say import say

if TYPE_CHECKING:
    from datacheck.repro.checks import CheckRow

_COMMANDS = {  # name: its module in datacheck.cli, its line in the help
    "bisect": (
        "repro_bisect",
        "Turn one switch at a time and say at which step the training parts from what it was.",
    ),
    "capture": (
        "repro",
        "Write down what a training process is: packages, libraries, code, machine, switches.",
    ),
    "check": (
        "repro",
        "Say what of a training process is not pinned, why it matters and what mends it.",
    ),
    "diff": (
        "repro_diff",
        "Say what differs between two recorded runs, and at which step they part.",
    ),
}
_GRACE = 300.0  # seconds for capture and probes


@click.group("repro", cls=LazyGroup, table=_COMMANDS)
def repro() -> None:
    """Tell why the same code gives another result."""


_script = click.argument("script", nargs=-1, type=click.UNPROCESSED, metavar="[-- SCRIPT.py ...]")
_data = click.option(
    "--data",
    multiple=True,
    metavar="PATH",
    help="A cache, manifest or folder of data, to be digested.",
)
_steps = click.option(
    "--steps",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Stop the script after so many steps of an optimizer; 0: at its end.",
)
_seconds = click.option(
    "--seconds",
    type=click.FloatRange(0),
    default=300.0,
    show_default=True,
    help="Stop it after so long, wherever it is; 0: never.",
)
_own = {"ignore_unknown_options": False, "allow_interspersed_args": False}


@click.command(context_settings=_own)
@_data
@_steps
@_seconds
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file."
)
@_script
def capture(
    data: tuple[str, ...], steps: int, seconds: float, output: Path | None, script: tuple[str, ...]
) -> None:
    """Write down what a process of this environment is, as JSON; after -- a training script and its arguments.

    The script runs unchanged, up to a first step of an optimizer. Secrets are left out. The exit
    code is 2 where the script failed: what is written is what it was then.
    """
    from datacheck.runtime import outputs

    if output is not None:
        _check_output(output)
    result = _run(
        script, data=data, steps=steps, seconds=seconds, probe=False, quiet=output is None
    )
    text = json.dumps(result["capture"], indent=1) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        outputs.write_output(
            output, text.encode(), _CAPTURE, outputs.begins_with(_HEAD), mode=0o644
        )
        say(*_summary(output, result))
    _check_ended(result["seen"], "captured")


def _check_ended(observation: Mapping[str, Any], verb: str) -> None:
    """Raise if the script failed: its state then is not its normal state."""
    from datacheck.errors import UsageError

    if observation["code"]:
        msg = (
            f"the script ended with exit code {observation['code']}; it was {verb} as it was then. Mend "
            f"it first."
        )
        raise UsageError(msg)


@click.command(context_settings=_own)
@click.option(
    "--profile",
    type=click.Choice(["fast", "same-machine", "strict"]),
    default="same-machine",
    show_default=True,
    help="fast: the same data and random numbers; same-machine: the same bits; strict: elsewhere, "
    "too.",
)
@_data
@_steps
@_seconds
@click.option(
    "--loader",
    metavar="MODULE:FUNCTION",
    help="Ask two workers of the DataLoader that this returns.",
)
@click.option(
    "--probe/--no-probe",
    default=True,
    help="Also compute a few things three times and ask loaders' workers.",
)
@click.option("--print-fix", is_flag=True, help="Print the lines that mend it, and nothing else.")
@click.option(
    "--format", "shape", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@_script
@click.pass_context
def check(
    ctx: click.Context,
    profile: str,
    data: tuple[str, ...],
    steps: int,
    seconds: float,
    loader: str | None,
    probe: bool,  # noqa: FBT001
    print_fix: bool,  # noqa: FBT001
    shape: str,
    script: tuple[str, ...],
) -> None:
    """Say what of a process is not pinned; after -- a training script and its arguments, as python takes them.

    The script runs unchanged, up to a first step of an optimizer, and is judged as it was then;
    without one, what a script of this environment would start with. The exit code is 0 where all is
    pinned, 1 where there are risks, 2 where it could not be looked at, or there is no risk and
    something could not be told. Nothing is changed.
    """
    from datacheck.errors import UsageError
    from datacheck.repro.risks import judge

    if loader and script:
        msg = (
            "--loader is for a check without a script; of a script the loaders that it iterates "
            "are asked"
        )
        raise UsageError(msg)
    quiet = shape == "json" or print_fix
    result = _run(
        script, data=data, steps=steps, seconds=seconds, probe=probe, quiet=quiet, loader=loader
    )
    rows = judge(result["capture"], profile, result["seen"])
    risks = sum(row.state == "risk" for row in rows)
    if shape == "json":
        document = {
            "profile": profile,
            "risks": risks,
            "rows": [row.as_json() for row in rows],
            **result,
        }
        click.echo(json.dumps(document, indent=1))
    else:
        lines = _fixes(rows) if print_fix else _table(rows, profile, result["seen"])
        say(*lines)
    _check_ended(result["seen"], "judged")
    if risks:
        ctx.exit(1)
    if any(row.state == "unknown" for row in rows):
        ctx.exit(2)


def show(value: Mapping[str, Any], lines: Iterable[str], form: str) -> None:
    """Print results: as JSON, or as lines in which control characters are escaped."""
    if form == "json":
        click.echo(json.dumps(value, indent=1))
        return
    for line in lines:
        say(line)


_HEAD = b'{\n "process": {'
_CAPTURE = "datacheck repro capture"


def _check_output(path: Path) -> None:
    """Refuse to replace a file that is not a capture.

    It is easy to type the name of a script after -o.
    """
    from datacheck.errors import UsageError
    from datacheck.runtime import outputs

    if not path.absolute().parent.is_dir():
        msg = f"{path}: its folder does not exist"
        raise UsageError(msg)
    outputs.check_output(path, _CAPTURE, outputs.begins_with(_HEAD))


def _summary(output: Path, result: dict[str, Any]) -> Iterator[str]:
    from datacheck.report.words import clean
    from datacheck.repro.hardware import unowned

    captured = result["capture"]
    counts = {
        name: len(captured[name])
        for name in ("packages", "native", "code")
        if "missing" not in captured[name]
    }
    words = {
        "packages": ("package", "packages"),
        "native": ("compiled library", "compiled libraries"),
        "code": ("file of code", "files of code"),
    }
    seconds = sum(captured["process"]["volatile"]["seconds"].values())
    counted = ", ".join(f"{count:,} {words[name][count != 1]}" for name, count in counts.items())
    yield clean(
        f"{output}: {counted}, as it was {result['seen']['stopped']}; it took {seconds:.1f} s"
    )
    own = list(unowned(captured["native"])) if "native" in counts else []
    if own:
        yield clean(f"of no package: {', '.join(own)}")
    yield from (
        clean(f"not there: {name}: {captured[name]['missing']}")
        for name in captured
        if "missing" in captured[name]
    )


# ---------------------------------------------------------------------------------------- the child


def _run(script: Sequence[str], *, quiet: bool, **request: Any) -> dict[str, Any]:
    """Run a script (or none) in a separate process; return what was found there."""
    from datacheck.errors import UsageError
    from datacheck.repro.inner import child_command

    python, words = command_of(script)
    with tempfile.TemporaryDirectory(prefix="datacheck-") as folder:
        out = Path(folder, "found.json")
        request_json = json.dumps({"loader": None, **request, "out": str(out)})
        limit = request["seconds"] + _GRACE if request["seconds"] and script else None
        try:
            run = subprocess.run(
                [*python, *child_command("inner"), request_json, *words],
                env=own_environment(),
                check=False,
                timeout=limit,
                stdout=sys.stderr.fileno() if quiet else None,
            )
        except OSError as error:
            msg = f"{python[0]}: cannot be started: {error.strerror}"
            raise UsageError(msg) from error
        except subprocess.TimeoutExpired as error:
            msg = f"the script could not be looked at: it did not answer within {limit:.0f} s"
            raise UsageError(msg) from error
        exit_text = (
            f"signal {-run.returncode}" if run.returncode < 0 else f"exit code {run.returncode}"
        )
        if not out.is_file():
            msg = f"the process could not be looked at: it ended with {exit_text} before it said anything"
            raise UsageError(msg)
        result: dict[str, Any] = json.loads(out.read_bytes())
        # the result was written before the probes ran, which may end the process
        if request["probe"] and run.returncode != result["seen"]["code"] & 0xFF:
            result["seen"]["died"] = exit_text
        return result


def command_of(script: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the interpreter with its options, and the words after it.

    The words are a script, or -m and a module, and arguments.
    """
    from datacheck.errors import UsageError

    words = list(script)
    python = [sys.executable]
    if words and Path(words[0]).name.startswith("python") and not words[0].endswith(".py"):
        python = [words.pop(0)]
        while words and words[0].startswith("-") and words[0] != "-m":
            python.append(words.pop(0))
            if python[-1] in {"-W", "-X"} and words:
                python.append(words.pop(0))
    if words and words[0] != "-m" and not Path(words[0]).is_file():
        msg = (
            f"{words[0]}: no such script. After -- comes what python takes: train.py ..., or -m "
            f"package.train ..."
        )
        raise UsageError(msg)
    if words[:1] == ["-m"] and len(words) < 2:
        msg = "-m: which module?"
        raise UsageError(msg)
    return python, words


def own_environment() -> dict[str, str]:
    """Return the variables that this command was started with, without those that it set itself.

    A script would otherwise inherit them, and they would be reported as its own.
    """
    from datacheck.cli.main import OWN_VARIABLES

    try:
        initial_names = {
            part.partition(b"=")[0].decode()
            for part in Path("/proc/self/environ").read_bytes().split(b"\0")
        }
    except (OSError, UnicodeDecodeError):
        initial_names = set()
    own = {
        name
        for name, value in OWN_VARIABLES.items()
        if name not in initial_names and os.environ.get(name) == value
    }
    return {name: value for name, value in os.environ.items() if name not in own}


# ------------------------------------------------------------------------------------------ text


def _table(rows: Sequence[CheckRow], profile: str, observation: dict[str, Any]) -> Iterator[str]:
    from datacheck.report.words import clean

    counts = {
        state: sum(row.state == state for row in rows)
        for state in ("risk", "unknown", "note", "ok")
    }
    yield f"profile {profile} · judged {observation['stopped']}"
    yield ""
    for row in rows:
        if row.state == "ok":
            continue
        yield clean(f"{row.state:8}{row.name} = {row.value}", spaces=True)
        if row.why:
            yield clean(f"        {row.why}", spaces=True)
        fixes = [("before Python starts", row.shell), ("in the script", row.python), ("", row.do)]
        for place, line in fixes if row.state != "unknown" else []:
            if line:
                yield clean(f"   fix  {line}{f'    ({place})' if place else ''}", spaces=True)
    fine = [clean(f"{row.name} = {row.value}") for row in rows if row.state == "ok"]
    if fine:
        yield f"ok      {'; '.join(fine)}"
    yield ""
    unknown = f", {counts['unknown']} could not be told" if counts["unknown"] else ""
    none = "no risk seen" if counts["unknown"] else "pinned"
    verdict = (
        f"{counts['risk']} risk{'s' if counts['risk'] != 1 else ''}" if counts["risk"] else none
    )
    yield f"{verdict}{unknown}, {counts['note']} notes, {counts['ok']} fine"
    if counts["risk"]:
        yield (
            f"datacheck repro check --profile {profile} --print-fix prints the lines that mend "
            f"them."
        )


def _fixes(rows: Sequence[CheckRow]) -> Iterator[str]:
    from datacheck.report.words import clean

    risks = [row for row in rows if row.state == "risk"]
    yield "# before Python starts"
    yield from dict.fromkeys(row.shell for row in risks if row.shell)
    yield "# in the script, before the model is made and CUDA starts"
    lines = list(dict.fromkeys(row.python for row in risks if row.python))
    yield from (
        f"import {name}"
        for name in ("random", "numpy", "torch")
        if any(f"{name}." in line for line in lines)
    )
    yield from lines
    manual_fixes = [
        f"# {row.name}: {row.do}" for row in risks if row.do and not (row.shell or row.python)
    ]
    yield from (clean(line) for line in manual_fixes)
