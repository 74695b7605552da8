"""Exceptions, grouped by what the caller can do about them.

A fault in the *data* never ends a run with an exception: parsers raise `FormatError`, and the
scanner turns it into a finding. Every other class here is a fault in the request or in the machine.
Every class takes one string, because PyTorch rebuilds the exceptions of its workers as
``Type(message)``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Commands in the log of a CI system: ##[error] (GitHub), ##vso[ (Azure), ##teamcity[.
COMMAND = re.compile(r"##(?=\w*\[)")
# Commands of GitHub Actions: at the start of a line, also after blanks.
COLONS = re.compile(r"^([^\S\n]*)::", re.MULTILINE)


class ManyLines(str):
    """An error message of several lines.

    Every other message is printed as one line, whatever line breaks the names in it have.
    """

    __slots__ = ()

    @staticmethod
    def of(lines: Iterable[str]) -> ManyLines:
        """Return the lines as a message; a line break within a line is escaped."""
        return ManyLines("\n".join(line.replace("\n", r"\n") for line in lines))


def escape_controls(text: str) -> str:
    """Return the text with all characters escaped that a terminal or a CI log acts on.

    Line breaks stay.
    """
    if not text.isprintable():
        text = _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
    return escape_ci_commands(text)


def escape_ci_commands(text: str) -> str:
    """Return the text with the commands of CI runners escaped.

    Notes:
        A runner looks for commands in the output of every step. A step may run in a container,
        which does not know which runner reads its log, so the text is escaped everywhere.
    """
    text = COMMAND.sub(r"\\x23#", text) if "##" in text else text
    return COLONS.sub(r"\1\\x3a:", text) if "::" in text else text


class DatacheckError(Exception):
    """Base of the errors that datacheck raises on purpose.

    `exit_code` is what the command line returns for the error.

    Notes:
        A message may hold names from the data: `str` escapes them. Python prints the cause of an
        error unescaped, so raise ``from None`` where the cause holds such a name.
    """

    exit_code = 4

    def __str__(self) -> str:
        """Return the message with control characters and CI commands escaped."""
        return escape_controls(super().__str__())


class UsageError(DatacheckError):
    """The request is wrong: change the command, the path or the option."""

    exit_code = 2


class DamagedRunError(UsageError):
    """The folder of a finished run cannot be read; a scan ignores such a run."""


class SchemaError(UsageError):
    """A schema or pipeline file is wrong: the message names file, line and key."""


class StorageError(DatacheckError):
    """A disk, a file system or a server refused a request: retry, or change the machine."""

    exit_code = 3


class MissingDependencyError(DatacheckError):
    """An optional library is missing: the message names the extra that installs it."""

    exit_code = 3


class LostStagingError(StorageError):
    """The folder of an unfinished build is gone: removed, or taken over by another builder."""


class SyncFailedError(StorageError):
    """The device did not store what was written.

    Nothing written before can be relied on, so it has to be written again.
    """


class OutOfSpaceError(StorageError):
    """The disk or quota is full."""

    exit_code = 5


class NondeterministicBuildError(DatacheckError):
    """Two builds with one fingerprint gave different bytes."""

    exit_code = 6


class CorruptionError(DatacheckError):
    """Stored bytes are not the bytes that were written."""

    exit_code = 7


class EvictedError(CorruptionError):
    """A cache was removed while it was being read."""


class BatchError(DatacheckError):
    """A batch breaks the promises of the schema on some rank; all ranks raise the same error."""

    exit_code = 1


class IncompleteError(DatacheckError):
    """An evaluation does not have one result per sample; all ranks raise the same error."""


class FormatError(DatacheckError):
    """Bytes of a source file are damaged or refused.

    The scanner records the error for the sample and goes on. `code` is the rule that reports it
    (DC101 unless the parser knows better).
    """

    exit_code = 1

    def __init__(self, message: str, code: str = "DC101") -> None:
        super().__init__(message)
        self.code = code


class TooManySamplesError(FormatError):
    """A file yields more samples than its bytes can plausibly hold: none of them counts."""


class BudgetExceededError(DatacheckError):
    """More samples failed during training than allowed; the message lists them."""

    exit_code = 1


class InvalidSample(Exception):  # noqa: N818  rejects a sample, reports no error
    """Raise it in a transform, of a pipeline or of a dataset: this sample cannot be used.

    The text is the reason: a cache keeps it, and training counts it and takes another sample.
    """


def check_name(path: str | os.PathLike[str]) -> None:
    """Raise `UsageError` where no file can have this name.

    A shell cannot pass a NUL character, but a program can.
    """
    name = os.fspath(path)
    if "\0" in name:
        escaped = name.replace("\0", r"\x00")
        msg = f"{escaped}: holds the character NUL, which no name of a file can have. Leave it out."
        raise UsageError(msg)
    # Path turns s3://bucket into s3:/bucket, so one slash is enough for an address.
    if not isinstance(path, str) and re.match(r"[a-z][a-z0-9+.-]+:/", name):
        msg = (
            f"{name.replace(':/', '://', 1)}: is an address; only caches lie in object stores. "
            f"Name a local path."
        )
        raise UsageError(msg)
