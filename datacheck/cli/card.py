"""``datacheck card``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from datacheck.cli.say import say
from datacheck.cli.scan import run_argument
from datacheck.errors import UsageError

_HELP = """Write the card of a scanned dataset as Croissant (JSON-LD), which dataset hosts and search engines read.

RUN is a folder that a scan has left behind (.datacheck/latest). The card has the files with their SHA-256, for which
each is read once more, the fields of the schema, the verdict and datacheck's digest.
"""


def _properties(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Parse the properties of ``--set NAME=TEXT``."""
    del ctx, param
    from datacheck.report.croissant import PROPERTIES

    properties = {}
    for value in values:
        name, equals, text = value.partition("=")
        if name not in PROPERTIES or not equals or not text.strip():
            msg = (
                f"--set {value}: write NAME=TEXT, for example --set license=CC-BY-4.0; names are "
                f"{', '.join(PROPERTIES)}"
            )
            raise UsageError(msg)
        properties[name] = text
    return properties


@click.command("card", help=_HELP)
@run_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["croissant"]),
    default="croissant",
    show_default=True,
    help="The format.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where it goes (beside the data: files are named as seen from there), else to standard "
    "output. A file that "
    "exists is never overwritten.",
)
@click.option(
    "--set",
    "said",
    multiple=True,
    metavar="NAME=TEXT",
    callback=_properties,
    help="What nobody can measure: name, description, license, url, creator, citeAs, "
    "datePublished, version.",
)
def card(run: Path, form: str, output: Path | None, said: dict[str, str]) -> None:
    """Write the card, and print what it leaves out."""
    del form  # only one format so far
    from datacheck.report.croissant import card as card_of
    from datacheck.report.words import escaped_json
    from datacheck.runtime import fsops

    if output is not None and (output.exists() or output.is_symlink()):
        msg = f"{output}: exists, and is not overwritten. Name another file: --output FILE."
        raise UsageError(msg)
    if output is not None:  # checked before all of the data is read
        if not output.parent.is_dir():
            msg = f"{output}: there is no folder {output.parent}. Make it, or name another file."
            raise UsageError(msg)
        fsops.check_writable(output.parent)
    data_card = card_of(run, said, None if output is None else output.parent)
    if output is None:
        sys.stdout.buffer.write(escaped_json(data_card.bytes))
    else:
        fsops.write_file(output, data_card.bytes, mode=0o666)
    for note in data_card.notes:
        say(note, err=True)
    if data_card.unsaid:
        say(
            f"not in the card, as nobody said it (--set NAME=TEXT): {', '.join(data_card.unsaid)}",
            err=True,
        )
