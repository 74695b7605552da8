"""Exceptions, sorted by what the caller can do about them.

A fault in the *data* is never an exception that ends a run: parsers raise `FormatError` and the
scanner turns it into a finding. Everything else here is a fault in the request or in the machine.
Every class takes one string, because PyTorch rebuilds the exceptions of its workers as
``Type(message)``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
COMMAND = re.compile(
    r"##(?=\w*\[)"
)  # for what prints a log of CI: ##[error] (GitHub), ##vso[ (Azure), ##teamcity[
COLONS = re.compile(
    r"^([^\S\n]*)::", re.MULTILINE
)  # for GitHub Actions, at the start of a line, also behind blanks


class ManyLines(str):
    """The message of an error that has several lines; any other is told as one, whatever a name in it would break."""

    __slots__ = ()

    @staticmethod
    def of(lines: Iterable[str]) -> ManyLines:
        """Return lines as a message; a line break within one of them is spelled out."""
        return ManyLines("\n".join(line.replace("\n", r"\n") for line in lines))


def escape_controls(text: str) -> str:
    """Return a text in which whatever a terminal or a log of CI acts on is spelled out; line breaks stay."""
    if not text.isprintable():
        text = _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return escape_ci_commands(text)


def escape_ci_commands(text: str) -> str:
    """Return a text in which no runner of CI finds a command: each reads the output of every step for them.

    Notes:
        A step may run in a container, which does not know whose log it writes.
    """
    text = COMMAND.sub(r"\\x23#", text) if "##" in text else text
    return COLONS.sub(r"\1\\x3a:", text) if "::" in text else text


class DatacheckError(Exception):
    """Anything datacheck raises on purpose; `exit_code` is what the command line returns for it.

    Notes:
        Messages may hold names from data: `str` spells them out. Python prints a cause as it is, so
            raise ``from None``
        where the cause holds such a name.
    """

    exit_code = 4

    def __str__(self) -> str:
        """Return the message, spelled out."""
        return escape_controls(super().__str__())


class UsageError(DatacheckError):
    """The request is wrong: change the command, the path or the option."""

    exit_code = 2


class DamagedRunError(UsageError):
    """The folder of a finished run cannot be read; for a scan it is as good as none."""


class SchemaError(UsageError):
    """A schema or pipeline file is wrong: the message names file, line and key."""


class StorageError(DatacheckError):
    """A disk, a file system or a server refused: retry or change the machine."""

    exit_code = 3


class MissingDependencyError(DatacheckError):
    """An optional library is absent: the message names the extra that brings it."""

    exit_code = 3


class LostStagingError(StorageError):
    """The folder of an unfinished build is gone: another builder took it over, or somebody removed it."""


class SyncFailedError(StorageError):
    """The device did not take what was written; nothing written before can be relied on, so it is written anew."""


class OutOfSpaceError(StorageError):
    """The disk or quota is full."""

    exit_code = 5


class NondeterministicBuildError(DatacheckError):
    """Two builds of one fingerprint gave different bytes."""

    exit_code = 6


class CorruptionError(DatacheckError):
    """Stored bytes are not the bytes that were written."""

    exit_code = 7


class EvictedError(CorruptionError):
    """A cache was removed while it was being read."""


class BatchError(DatacheckError):
    """A batch breaks the promises of the schema, on whichever rank; the same error on all of them."""

    exit_code = 1


class IncompleteError(DatacheckError):
    """The results of an evaluation are not one per sample; the same error on all ranks."""


class FormatError(DatacheckError):
    """Bytes of a source file are damaged or refused; the scanner records it for that sample and goes on.

    `code` is the rule that reports it (DC101 unless the parser knows better).
    """

    exit_code = 1

    def __init__(self, message: str, code: str = "DC101") -> None:
        super().__init__(message)
        self.code = code


class TooManySamplesError(FormatError):
    """A file gives more samples than its bytes can honestly hold: none of them counts."""


class BudgetExceededError(DatacheckError):
    """More samples failed while a model was trained than was allowed; the message lists them."""

    exit_code = 1


class InvalidSample(Exception):  # noqa: N818  raised by users, who say a word and mean no error of ours
    """Raise it in a transform: this sample cannot be used, take another one. The text is the reason that is counted."""


def check_name(path: str | os.PathLike[str]) -> None:
    """Raise `UsageError` where no file can have this name: a shell cannot write it, a program can."""
    name = os.fspath(path)
    if "\0" in name:
        said = name.replace("\0", r"\x00")
        msg = f"{said}: holds the character NUL, which no name of a file can have. Leave it out."
        raise UsageError(msg)
    if not isinstance(path, str) and re.match(
        r"[a-z][a-z0-9+.-]+:/", name
    ):  # Path makes s3:/bucket of s3://bucket
        msg = (
            f"{name.replace(':/', '://', 1)}: is an address; only caches lie in object stores. "
            f"Name a local path."
        )
        raise UsageError(msg)
