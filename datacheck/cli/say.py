"""Print lines in which no name, key or message can act as a command to a terminal."""

from __future__ import annotations

import click

from datacheck.errors import escape_ci_commands


def say(*lines: str, err: bool = False) -> None:
    r"""Print lines with everything that a terminal or GitHub Actions acts on escaped (``\x1b``).

    Line breaks within a line are escaped, too.

    Args:
        lines: any text; it may come from a file. Without lines, nothing is printed.
        err: print to standard error.
    """
    from datacheck.report.words import clean

    if lines:
        click.echo(
            "\n".join(escape_ci_commands(clean(line, spaces=True)) for line in lines), err=err
        )
