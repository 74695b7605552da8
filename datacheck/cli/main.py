"""The command ``datacheck``: run a command, turn every exception into a message and an exit code."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType

import click

from datacheck import __version__
from datacheck.cli.lazy import LazyGroup
from datacheck.cli.say import say
from datacheck.errors import DatacheckError, ManyLines, UsageError
from datacheck.runtime.fsops import as_storage_error

_COMMANDS = {  # name: its module in datacheck.cli, its line in the help
    "scan": ("scan", "Find the broken samples of a dataset."),
    "view": ("view", "Show one sample: all of its fields as pictures, and what was found."),
    "report": ("rescore", "Print what a finished run found, in any format."),
    "rescore": ("rescore", "Judge a finished run again, with other thresholds."),
    "baseline": ("rescore", "Write down a run's findings, so that only new ones are told."),
    "init": ("init", "Draft a schema from data; every guess is marked."),
    "explain": ("rules", "Say what a rule checks, why it matters and what to do."),
    "rules": ("rules", "List the rules, or what a schema makes of them."),
    "schema": ("schema", "Check a schema file."),
    "fix": ("fix", "Write a copy in which what a rule finds is repaired."),
    "cache": ("cache", "Build, check and list caches."),
    "card": ("card", "Write the card of a scanned dataset as Croissant."),
    "manifest": ("manifest", "Write down every file of a dataset with its digest."),
    "diff": ("diff", "Show what differs between two datasets, manifests, caches or recorded runs."),
    "repro": (
        "repro",
        "Say what a training run really was, what of it is not pinned, and what differs.",
    ),
    "split": ("split", "Write split lists that keep together what belongs together."),
    "demo": ("demo", "See the whole way on synthetic data with planted faults."),
}

OWN_VARIABLES = {
    "OPENBLAS_NUM_THREADS": "1",  # starting idle threads took a tenth of a short scan
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # Arrow's own takes 2 MiB that the kernel must zero
}


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a run as Ctrl-C does, with its own exit code."""


@click.group(
    cls=LazyGroup,
    table=_COMMANDS,
    invoke_without_command=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", "-V", is_flag=True, help="Show the version and exit.")
@click.option(
    "--verbose",
    is_flag=True,
    help="With --version: also show libraries and what the sandbox can do here.",
)
@click.option(
    "--no-sandbox",
    is_flag=True,
    help="Parse data without the sandbox, where it gets in the way; DATACHECK_SANDBOX=off does so, "
    "too.",
)
@click.pass_context
def datacheck(ctx: click.Context, /, version: bool, verbose: bool, no_sandbox: bool) -> None:  # noqa: FBT001
    """Find the broken samples of 3D, robot, hand-pose and language data, build a checksummed cache, feed PyTorch."""
    from datacheck.runtime import sandbox

    if no_sandbox:
        sandbox.disable()
    if version:
        from datacheck.cli.say import say

        say(*(_versions() if verbose else [f"datacheck {__version__}"]))
        ctx.exit(0)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        ctx.exit(2)


def _versions() -> list[str]:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from datacheck.runtime import beneath, sandbox

    versions = [f"datacheck {__version__}", f"Python {sys.version.split()[0]}"]
    for name in ("numpy", "h5py", "zarr", "numcodecs", "pyarrow", "torch"):
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {installed(name)}")
    return [
        *versions,
        f"sandbox: {sandbox.sandbox_parts()}",
        f"files by handle: {beneath.open_method()}",
    ]


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit.

    Notes:
        Exit codes: 0 clean; 1 findings; 2 the request or schema is wrong; 3 storage or a missing
        dependency; 4 internal error, or a rule crashed; 5 out of space; 6 the build is not
        deterministic; 7 verification failed; 130, 143 interrupted.
    """
    if args is None:
        _take_names_for_utf8()
    signal.signal(signal.SIGTERM, _terminate)
    # imports leave no cycles behind; the collector's search took a tenth of a short scan
    gc.set_threshold(100_000)
    for name, value in OWN_VARIABLES.items():
        os.environ.setdefault(name, value)
    _open_output()
    code = run(args)
    gc.freeze()  # otherwise Python searches all remaining objects for cycles before it exits
    sys.exit(code)


def run(args: list[str] | None = None) -> int:
    """Run the command line; always return an exit code."""
    arguments = sys.argv[1:] if args is None else list(args)
    code = 0
    try:
        _check_text(arguments)
        try:
            with datacheck.make_context("datacheck", arguments) as context:
                datacheck.invoke(context)
        except click.exceptions.Exit as done:
            code = done.exit_code
        # errors of a full disk or a closed pipe become our message here, not Python's at exit
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  turn every error into a message
        code = _exit_code(error, code)
    try:
        sys.stdout.flush()
    except OSError:  # already reported; /dev/null keeps Python's flush at exit from failing again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _take_names_for_utf8() -> None:
    """Restart in Python's UTF-8 mode if the locale is ASCII; other file names would be skipped."""
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        if sys.stdout is not None and sys.stdout.encoding:
            # output keeps the terminal's encoding
            os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
        if sys.executable:
            os.execv(sys.executable, sys.orig_argv)


def _open_output() -> None:
    """Make standard output write texts completely or raise; replace a closed one by /dev/null.

    With ``PYTHONUNBUFFERED``, it would drop the part of a text that the system does not take at
    once. Closed (``>&-``), it is None.
    """
    if getattr(sys, "stdout", None) is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  until the process ends
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        buffered = io.BufferedWriter(sys.stdout.buffer)
        sys.stdout = io.TextIOWrapper(
            buffered, sys.stdout.encoding, sys.stdout.errors, line_buffering=True
        )


def _check_text(args: list[str]) -> None:
    for arg in args:
        # a surrogate escape: a byte that is not UTF-8, which JSON cannot hold
        if any("\udc80" <= sign <= "\udcff" for sign in arg):
            msg = f"{os.fsencode(arg)!r}: is not UTF-8. Rename it, or name it through a link."
            raise UsageError(msg)


def _exit_code(error: BaseException, code: int) -> int:
    if isinstance(error, click.ClickException):
        error.show(message := io.StringIO())
        say(*message.getvalue().removesuffix("\n").split("\n"), err=True)
        return 2
    # the reader of a pipe has closed it; that is not an error
    if isinstance(error, BrokenPipeError):
        return code
    # an error of the system (a name too long, a full /dev/stdout), not of datacheck
    if isinstance(error, OSError):
        no_folder = isinstance(error, FileNotFoundError)  # only os.getcwd raises it without a name
        error = as_storage_error(
            error, error.filename or ("the working folder" if no_folder else "standard output")
        )
    if isinstance(error, DatacheckError):
        lines = (
            error.args[0].split("\n")
            if error.args and isinstance(error.args[0], ManyLines)
            else [str(error)]
        )
        return _print_error(_with_notes(lines, error), error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        return _print_error(
            _with_notes(["interrupted."], error), 143 if isinstance(error, Terminated) else 130
        )
    return _print_error([_internal_error(error)], 4)


def _with_notes(lines: list[str], error: BaseException) -> list[str]:
    return [*lines[:-1], " ".join([lines[-1], *getattr(error, "__notes__", [])])]


def _print_error(lines: list[str], code: int) -> int:
    with contextlib.suppress(OSError):
        say(f"datacheck: {lines[0]}", *lines[1:], err=True)
    return code


def _internal_error(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    message = f"internal error, {type(error).__name__}: {str(error).partition(chr(10))[0]}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="datacheck-", suffix=".txt", delete=False
        ) as file:
            file.write(text)
    except OSError:
        return f"{message}. Please report it."
    return f"{message}. Please report it with {Path(file.name)}"


def _terminate(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise Terminated
