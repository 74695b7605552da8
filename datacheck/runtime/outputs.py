"""Write result files that the user names: new ones, or replacements of the same kind of result.

datacheck never writes through a link or into a device, and replaces a file only if its content
shows that the same command wrote it: it is easy to type the name of a data file after ``-o``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from datacheck.errors import UsageError
from datacheck.runtime import beneath, fsops

_HEAD = 1 << 16

IsOurs = Callable[[bytes], bool]


def begins_with(head: bytes) -> IsOurs:
    """Return a predicate that accepts files starting with `head`."""
    return lambda data: data.startswith(head)


def generated_by(command: str) -> IsOurs:
    """Return a predicate that accepts pages whose generator is `command` (``datacheck view``)."""
    mark = f'<meta name="generator" content="{command}">'.encode()
    return lambda data: data.startswith(b"<!doctype html>") and mark in data[:4096]


def check_output(path: Path, command: str, is_ours: IsOurs) -> None:
    """Raise unless a result may be written to a file; call it before hours of work.

    Args:
        path: the file.
        command: the command that writes it, as in "datacheck view".
        is_ours: returns whether the first 64 KiB of a file show that this command wrote it.

    Raises:
        UsageError: `path` is a file of another origin, a link, or not a regular file.
        StorageError: the file cannot be read.
    """
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            why = "is a link"
        elif not stat.S_ISREG(mode):
            why = "is no regular file"
        elif not is_ours(_head(path)):
            why = f"was not written by {command}"
        else:
            return
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        msg = f"{path}: {path.parent} is no folder. Name another file."
        raise UsageError(msg) from error
    except OSError as error:
        raise fsops.as_storage_error(error, path) from error
    msg = f"{path}: exists and {why}, so it is not replaced. Name a new file, or remove it."
    raise UsageError(msg)


def _head(path: Path) -> bytes:
    """Return the first bytes of a file; a link is refused, and a pipe does not block."""
    descriptor = beneath.open_regular(path, links=False)
    try:
        return os.read(descriptor, _HEAD)
    finally:
        os.close(descriptor)


def write_output(
    path: Path, data: bytes | Iterable[bytes], command: str, is_ours: IsOurs, mode: int = 0o666
) -> None:
    """Write a result so that it appears whole or not at all.

    The arguments are those of `check_output`, which runs again.

    Raises:
        UsageError: see `check_output`.
        OutOfSpaceError: the disk is full.
        StorageError: any other refusal of the operating system.
    """
    check_output(path, command, is_ours)
    fsops.write_file(path, data, mode=mode)
