"""Files that the user names for a result: new ones, and in the place of older ones of the same kind.

Nothing is written through a link or into a device, and no file is replaced whose content does not
say that the same command has written it: the name of another file is soon written behind ``-o``.
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
    """Return what tells a file by its first bytes."""
    return lambda data: data.startswith(head)


def generated_by(command: str) -> IsOurs:
    """Return what tells a page of a command (``datacheck view``) by its generator."""
    mark = f'<meta name="generator" content="{command}">'.encode()
    return lambda data: data.startswith(b"<!doctype html>") and mark in data[:4096]


def check_output(path: Path, command: str, is_ours: IsOurs) -> None:
    """Raise unless a result may be written to a file: before hours of work.

    Args:
        path: the file.
        command: what writes it, as in "datacheck view".
        is_ours: tells by the first 64 KiB of a file whether this command has written it.

    Raises:
        UsageError: there is another file, a link or something that is no file.
        StorageError: it cannot be read.
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
    """Return how a file begins; a link or a pipe that came in its place is not waited for."""
    descriptor = beneath.open_regular(path, links=False)
    try:
        return os.read(descriptor, _HEAD)
    finally:
        os.close(descriptor)


def write_output(
    path: Path, data: bytes | Iterable[bytes], command: str, is_ours: IsOurs, mode: int = 0o666
) -> None:
    """Write a result so that it appears whole or not at all; arguments as of `check_output`, which is asked again.

    Raises:
        UsageError: as of `check_output`.
        OutOfSpaceError: the disk is full.
        StorageError: another refusal.
    """
    check_output(path, command, is_ours)
    fsops.write_file(path, data, mode=mode)
