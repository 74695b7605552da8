"""Printing for all commands.

No name, key or message from data can act as a command to a terminal or a CI log: `say` escapes
every line, and `first_lines` and `counted_lines` shorten long lists.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click

from datacheck.errors import escape_ci_commands

Item = TypeVar("Item")

_MOST_ITEMS = 20
_MOST_LETTERS = 10_000  # of one line; keys and values from data have any length


def say(*lines: str, err: bool = False) -> None:
    r"""Print lines with everything that a terminal or GitHub Actions acts on escaped (``\x1b``).

    Line breaks within a line are escaped, too.

    Args:
        lines: any text; it may come from a file. Without lines, nothing is printed.
        err: print to standard error.
    """
    from datacheck.report.words import clean

    if lines:
        echo("\n".join(escape_ci_commands(clean(line, spaces=True)) for line in lines), err=err)


def echo(
    text: str | bytes, *, err: bool = False, nl: bool = True, color: bool | None = None
) -> None:
    """Print as `click.echo` does, to a reader that may have gone.

    If it has closed the pipe, this text and all later ones are dropped: the command goes on, and
    ends with its own exit code.
    """
    try:
        click.echo(text, err=err, nl=nl, color=color)
    except BrokenPipeError:
        drop_output(sys.stderr if err else sys.stdout)


def drop_output(stream: TextIO) -> None:
    """Send what a stream still holds, and what it will be given, to /dev/null."""
    with Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


def say_notes(notes: Iterable[str]) -> None:
    """Print notes for the user on standard error, which keeps standard output parsable."""
    for note in notes:
        say(note, err=True)


def say_result(value: Mapping[str, Any], lines: Iterable[str], form: str) -> None:
    """Print a result as JSON (``form`` is json) or as lines."""
    if form == "json":
        from datacheck.report.words import json_of

        echo(json_of(value))
        return
    for line in lines:
        say(line)


def first_lines(
    items: Collection[Item],
    line_of: Callable[[Item], str] = str,
    *,
    most: int = _MOST_ITEMS,
    indent: str = "    ",
    more: str = "",
) -> Iterator[str]:
    """Yield a line for each of the first items, and the number of further ones.

    Args:
        items: any number of items.
        line_of: returns the line of an item; called for the first ones only.
        most: the number of items that get a line.
        indent: put before each line.
        more: put after the number of further items.
    """
    for item in islice(items, most):
        line = line_of(item)
        if len(line) > _MOST_LETTERS:
            line = f"{line[:_MOST_LETTERS]} ..."
        yield f"{indent}{line}"
    if len(items) > most:
        yield f"{indent}... and {len(items) - most:,} more{more}"


def counted_lines(
    what: str, items: Collection[Item], line_of: Callable[[Item], str] = str
) -> Iterator[str]:
    """Yield the number of items and their `first_lines`; nothing without items."""
    if items:
        yield f"{len(items):,} {what}"
    yield from first_lines(items, line_of)
