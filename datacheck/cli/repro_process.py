"""Start a training script in a process of its own, for ``repro capture``, ``check`` and ``bisect``.

The words behind ``--`` are a script and its arguments, as ``python`` takes them; they may begin
with another interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from datacheck.cli.main import OWN_VARIABLES
from datacheck.errors import UsageError

# the options of datacheck end where the script begins
SCRIPT_SETTINGS = {"ignore_unknown_options": False, "allow_interspersed_args": False}

_EXTRA_SECONDS = 300.0  # for imports before the script, the capture and the probes after it


script_argument = click.argument(
    "script", nargs=-1, type=click.UNPROCESSED, metavar="[-- SCRIPT.py ...]"
)


def script_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options on how far the script runs, and on the data to digest."""
    for option in (
        click.option(
            "--seconds",
            type=click.FloatRange(0),
            default=300.0,
            show_default=True,
            metavar="S",
            help="Stop the script after S seconds; 0 for no limit.",
        ),
        click.option(
            "--steps",
            type=click.IntRange(0),
            default=1,
            show_default=True,
            metavar="N",
            help="Stop the script after N optimizer steps; 0 to run it to its end.",
        ),
        click.option(
            "--data",
            multiple=True,
            metavar="PATH",
            help="Digest this cache, manifest or folder of data; repeatable.",
        ),
    ):
        command = option(command)
    return command


def run_script(script: Sequence[str], *, quiet: bool, **request: Any) -> dict[str, Any]:
    """Run a script, or only Python without one, in a process that captures itself.

    Args:
        script: the words behind ``--``; empty for none.
        quiet: send the output of the script to standard error.
        request: what the process does, as `datacheck.repro.inner` takes it.

    Returns:
        the capture, and under "seen" how the script ended.

    Raises:
        UsageError: there is no such script, or the process did not answer.
    """
    from datacheck.repro.inner import child_command

    python, words = command_of(script)
    limit = None
    if script and request["seconds"]:
        limit = request["seconds"] + _EXTRA_SECONDS
    with tempfile.TemporaryDirectory(prefix="datacheck-") as folder:
        answer = Path(folder, "found.json")
        request_json = json.dumps({"loader": None, **request, "out": str(answer)})
        returncode = _run_process(
            [*python, *child_command("inner"), request_json, *words], limit, quiet=quiet
        )
        ending = f"signal {-returncode}" if returncode < 0 else f"exit code {returncode}"
        if not answer.is_file():
            msg = f"the process ended with {ending} before it could be examined"
            raise UsageError(msg)
        result: dict[str, Any] = json.loads(answer.read_bytes())
    # the result was written before the probes ran, which may end the process
    if request["probe"] and returncode != result["seen"]["code"] & 0xFF:
        result["seen"]["died"] = ending
    return result


def _run_process(command: Sequence[str], limit: float | None, *, quiet: bool) -> int:
    try:
        process = subprocess.run(
            command,
            env=script_environment(),
            check=False,
            timeout=limit,
            stdout=sys.stderr.fileno() if quiet else None,
        )
    except OSError as error:
        msg = f"{command[0]}: cannot be started: {error.strerror}"
        raise UsageError(msg) from error
    except subprocess.TimeoutExpired as error:
        msg = f"the process did not answer within {limit:.0f} s, and could not be examined"
        raise UsageError(msg) from error
    return process.returncode


def check_ended(observation: Mapping[str, Any]) -> None:
    """Raise `UsageError` if the script failed: its state then is not its normal state."""
    if observation["code"]:
        msg = (
            f"the script ended with exit code {observation['code']}; the result shows its state at "
            f"that moment. Fix the script first."
        )
        raise UsageError(msg)


def command_of(script: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the interpreter with its options, and the words after it.

    The words are a script, or -m and a module, and arguments.
    """
    words = list(script)
    python = [sys.executable]
    if words and Path(words[0]).name.startswith("python") and not words[0].endswith(".py"):
        python = [words.pop(0)]
        while words and words[0].startswith("-") and words[0] != "-m":
            python.append(words.pop(0))
            if python[-1] in {"-W", "-X"} and words:
                python.append(words.pop(0))
    if words[:1] == ["-m"]:
        if len(words) < 2:
            msg = "-m: which module?"
            raise UsageError(msg)
    elif words and not Path(words[0]).is_file():
        msg = (
            f"{words[0]}: no such script. After -- write what python takes: train.py ..., or -m "
            f"package.train ..."
        )
        raise UsageError(msg)
    return python, words


def script_environment() -> dict[str, str]:
    """Return the variables that this command was started with, without those that it set itself.

    A script would otherwise inherit them, and they would be reported as its own.
    """
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
