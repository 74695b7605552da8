"""The command ``datacheck``: entry point, error messages and exit codes.

`main` prepares the process and exits with the code of `run`. `run` runs one command and turns every
exception into one message on standard error and one exit code:

    0         success; nothing to report
    1         findings at or above the threshold, or differences: the help of a command says which
    2         the request or the schema is wrong: change the command, the path or the option
    3         a disk, a file system or a server refused, memory is short, or an optional dependency
              is missing
    4         internal error, or a rule crashed
    5         out of space
    6         the build is not deterministic
    7         a cache is damaged
    130, 143  interrupted: by Ctrl-C, by SIGTERM
    141       the reader of the output closed it before the result was known

A command that ran to its end chooses its code by ``ctx.exit``. Otherwise the code is the
``exit_code`` of the exception (`datacheck.errors`), see `_exit_code`.
"""

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
from datacheck.cli.commands import COMMANDS, LazyGroup
from datacheck.cli.output import drop_output, say
from datacheck.errors import DatacheckError, ManyLines, StorageError, UsageError
from datacheck.runtime.fsops import as_storage_error

OWN_VARIABLES = {
    "OPENBLAS_NUM_THREADS": "1",  # starting idle threads took a tenth of a short scan
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # Arrow's own takes 2 MiB that the kernel must zero
}


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends a run as Ctrl-C does, with its own exit code."""


# ------------------------------------------------------------------------------------- command line


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    invoke_without_command=True,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--version", "-V", is_flag=True, help="Show the version and exit.")
@click.option(
    "--verbose",
    is_flag=True,
    help="With --version: show the versions of libraries and the parts of the sandbox, too.",
)
@click.option(
    "--no-sandbox",
    is_flag=True,
    help="Parse data outside of the sandbox, like DATACHECK_SANDBOX=off.",
)
@click.pass_context
def datacheck(ctx: click.Context, /, version: bool, verbose: bool, no_sandbox: bool) -> None:  # noqa: FBT001
    """Find broken samples in 3D, robotics, hand-pose and language datasets, and serve only the good ones to PyTorch."""
    from datacheck.runtime import sandbox

    if no_sandbox:
        sandbox.disable()
    if version:
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


# ------------------------------------------------------------------------------------- entry points


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit; the module docstring lists the exit codes."""
    if args is None:
        _ensure_utf8_mode()
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
    """Run the command line and return an exit code, whatever happens."""
    arguments = sys.argv[1:] if args is None else list(args)
    code = 141  # as of a program that SIGPIPE ends
    try:
        _check_text(arguments)
        code = _run_command(arguments)
        # errors of a full disk or a closed pipe become our message here, not Python's at exit
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader has seen enough: not an error, and no reason to report another result
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  turn every error into a message
        code = _report_error(error)
    _drop_unwritten_output()
    return code


def _run_command(arguments: list[str]) -> int:
    try:
        with datacheck.make_context("datacheck", arguments) as context:
            datacheck.invoke(context)
    except click.exceptions.Exit as finished:
        return finished.exit_code
    return 0


def _drop_unwritten_output() -> None:
    """Send unwritable output to /dev/null, so that Python's flush at exit does not fail again."""
    try:
        sys.stdout.flush()
    except OSError:  # already reported
        drop_output(sys.stdout)


# ------------------------------------------------------------------------------- before the command


def _ensure_utf8_mode() -> None:
    """Restart Python in UTF-8 mode if the locale is ASCII, which hides other file names from it."""
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1":
        return
    os.environ["PYTHONUTF8"] = "1"
    if sys.stdout is not None and sys.stdout.encoding:
        # output keeps the terminal's encoding
        os.environ.setdefault("PYTHONIOENCODING", sys.stdout.encoding)
    if sys.executable:
        os.execv(sys.executable, sys.orig_argv)


def _terminate(number: int, frame: FrameType | None) -> None:
    del frame
    # A second signal, as `timeout` sends it, would interrupt the report of the first.
    signal.signal(number, signal.SIG_IGN)
    raise Terminated


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


def _check_text(arguments: list[str]) -> None:
    """Refuse an argument with bytes that are not UTF-8, which the JSON of a run cannot hold."""
    for argument in arguments:
        # Python decodes such bytes to lone surrogates
        if any("\udc80" <= letter <= "\udcff" for letter in argument):
            msg = f"{os.fsencode(argument)!r}: is not UTF-8. Rename it, or name it through a link."
            raise UsageError(msg)


# ------------------------------------------------------------------------------- after an exception


def _report_error(error: BaseException) -> int:
    """Print the message of an exception on standard error and return its exit code."""
    if isinstance(error, OSError):
        error = _as_datacheck_error(error)
    if isinstance(error, MemoryError):
        error = _out_of_memory(error)
    with contextlib.suppress(OSError):  # standard error is closed or full
        say(*_message_lines(error), err=True)
    return _exit_code(error)


def _as_datacheck_error(error: OSError) -> DatacheckError:
    """Return the error for a refusal of the system (a name too long, a full /dev/stdout)."""
    if error.filename:
        return as_storage_error(error, error.filename)
    if isinstance(error, FileNotFoundError):  # only os.getcwd raises it without a name
        return as_storage_error(error, "the working folder")
    return as_storage_error(error, "standard output")


def _out_of_memory(error: MemoryError) -> DatacheckError:
    reason = str(error).partition("\n")[0]
    return StorageError(
        f"out of memory{f': {reason}' if reason else ''}. End other programs, raise the limit of "
        f"memory, or use a machine with more."
    )


def _exit_code(error: BaseException) -> int:
    if isinstance(error, click.ClickException):
        return 2
    if isinstance(error, DatacheckError):
        return error.exit_code
    if isinstance(error, Terminated):
        return 143
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 4


def _message_lines(error: BaseException) -> list[str]:
    if isinstance(error, click.ClickException):
        usage = io.StringIO()
        error.show(usage)
        return usage.getvalue().removesuffix("\n").split("\n")
    if isinstance(error, DatacheckError):
        several = bool(error.args) and isinstance(error.args[0], ManyLines)
        lines = error.args[0].split("\n") if several else [str(error)]
    elif isinstance(error, KeyboardInterrupt):
        lines = ["interrupted."]
    else:
        return [f"datacheck: {_internal_error(error)}"]
    lines[0] = f"datacheck: {lines[0]}"
    lines[-1] = " ".join([lines[-1], *getattr(error, "__notes__", [])])
    return lines


def _internal_error(error: BaseException) -> str:
    """Return a message that names a file with the traceback, which a bug report needs."""
    first_line = str(error).partition("\n")[0]
    message = f"internal error, {type(error).__name__}: {first_line}. Please report it"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="datacheck-", suffix=".txt", delete=False
        ) as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return f"{message}."
    return f"{message} with {Path(file.name)}"
