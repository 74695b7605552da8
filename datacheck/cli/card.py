"""``datacheck card``: describe a scanned dataset in Croissant (JSON-LD)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from datacheck.cli.options import run_argument
from datacheck.cli.output import say, say_notes
from datacheck.errors import UsageError


def _parse_properties(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
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


@click.command("card")
@run_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["croissant"]),
    default="croissant",
    show_default=True,
    help="Write the card in this format.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default="standard output",
    help="Write the card to FILE, which must not exist. Paths in the card are relative to its "
    "folder, so put it next to the data.",
)
@click.option(
    "--set",
    "properties",
    multiple=True,
    metavar="NAME=TEXT",
    callback=_parse_properties,
    help="Set a property that data do not show; repeatable. Names: name, description, license, "
    "url, creator, citeAs, datePublished, version.",
)
def card(run: Path, form: str, output: Path | None, properties: dict[str, str]) -> None:
    """Write a Croissant card (JSON-LD) for a scanned dataset, for dataset hosts and search engines.

    RUN is the folder that a scan wrote, such as .datacheck/latest. The card lists the files with
    their SHA-256 (each file is read once), the fields of the schema, the verdict and the digest of
    the dataset.
    """
    del form  # only one format so far
    from datacheck.report.croissant import card as make_card
    from datacheck.report.words import escaped_json
    from datacheck.runtime import fsops

    if output is not None:
        _check_output(output)  # before all of the data is read
    data_card = make_card(run, properties, None if output is None else output.parent)
    if output is None:
        sys.stdout.buffer.write(escaped_json(data_card.bytes))
    else:
        fsops.write_file(output, data_card.bytes, mode=0o666)
    say_notes(data_card.notes)
    if data_card.unsaid:
        say(
            f"missing in the card; set them with --set NAME=TEXT: {', '.join(data_card.unsaid)}",
            err=True,
        )


def _check_output(output: Path) -> None:
    from datacheck.runtime import fsops

    if output.exists() or output.is_symlink():
        msg = f"{output}: exists, and is not overwritten. Name another file: --output FILE."
        raise UsageError(msg)
    if not output.parent.is_dir():
        msg = f"{output}: there is no folder {output.parent}. Make it, or name another file."
        raise UsageError(msg)
    fsops.check_writable(output.parent)
