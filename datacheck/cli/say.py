"""What commands print: lines in which no name, key or message is a command to a terminal."""

from __future__ import annotations

import click

from datacheck.errors import escape_ci_commands


def say(*lines: str, err: bool = False) -> None:
    r"""Print lines in which all that a terminal or GitHub Actions acts on is spelled out (``\x1b``), line breaks, too.

    Args:
        lines: any text: it may come from a file; without any nothing is printed.
        err: to standard error.
    """
    from datacheck.report.words import clean

    if lines:
        click.echo(
            "\n".join(escape_ci_commands(clean(line, spaces=True)) for line in lines), err=err
        )
