"""``datacheck manifest``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.say import say
from datacheck.cli.scan import root_option

if TYPE_CHECKING:
    from datacheck.repro.manifest import DatasetManifest
    from datacheck.schema.model import Schema

schema_option = click.option(
    "--schema",
    metavar="NAME|FILE",
    help="Digest samples, too, field by field, as this schema reads them.",
)
deep_option = click.option(
    "--deep",
    is_flag=True,
    help="Hash every file, also those whose size, times and inode are as they were.",
)
workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Worker processes. Default: none for small data, else one per core.",
)
format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What is printed.",
)


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it; else only its root is told.",
)
@schema_option
@root_option
@deep_option
@workers_option
@format_option
def manifest(
    data: Path,
    output: Path | None,
    schema: str | None,
    roots: dict[str, Path],
    form: str,
    **options: Any,
) -> None:
    """Write down every file of DATA, a folder or a file: path, size and xxh3_128, and one digest over all of them.

    Equal data have equal manifests, wherever they lie. What files looked like is kept in
    .datacheck/manifests, so that the next call reads only those that changed.
    """
    from datacheck.report.progress import progress_bar
    from datacheck.repro import manifest as manifests

    if output is not None:
        manifests.check_output(output, [data, *roots.values()])
    with progress_bar() as progress:
        data_manifest = manifests.make(
            data, roots=roots, schema=schema_of(data, schema), progress=progress, **options
        )
    if output is not None:
        manifests.write(data_manifest, output)
    print_notes(data_manifest.notes)
    if form == "json":
        from datacheck.report.words import json_of

        click.echo(json_of(_manifest_json(data_manifest, output)))
    else:
        _print(data_manifest, output)


def schema_of(data: Path, name: str | None) -> Schema | None:
    """Return the schema of ``--schema``, or None."""
    if name is None:
        return None
    from datacheck.scan import schema_for

    return schema_for(data, name)


def print_notes(notes: tuple[str, ...]) -> None:
    """Print notes for the user on standard error."""
    for note in notes:
        say(note, err=True)


def _manifest_json(data_manifest: DatasetManifest, output: Path | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "root": data_manifest.root,
        "files": len(data_manifest.files),
        "bytes": data_manifest.files.nbytes,
        "read": data_manifest.read,
        "kept": data_manifest.kept,
        "skipped": [list(pair) for pair in data_manifest.skipped],
        "output": None if output is None else str(output),
    }
    if data_manifest.samples is not None:
        record["samples"] = {
            "schema": data_manifest.samples.schema,
            "digest": data_manifest.samples.digest,
            "read": len(data_manifest.samples.rows),
            "unread": dict(data_manifest.samples.unread),
        }
    return record


def _print(data_manifest: DatasetManifest, output: Path | None) -> None:
    from datacheck.report.words import format_bytes

    say(f"root {data_manifest.root}")
    say(
        f"{len(data_manifest.files):,} files, {format_bytes(data_manifest.files.nbytes)}: {data_manifest.read:,} read, "
        f"{data_manifest.kept:,} unchanged"
    )
    if data_manifest.samples is not None:
        unread_text = (
            f", {len(data_manifest.samples.unread):,} cannot be made"
            if data_manifest.samples.unread
            else ""
        )
        say(
            f"{len(data_manifest.samples.rows):,} samples of schema {data_manifest.samples.schema}{unread_text}"
        )
    if data_manifest.skipped:
        path, reason = data_manifest.skipped[0]
        say(f"{len(data_manifest.skipped):,} names are not in it, such as {path}: {reason}")
    if output is not None:
        say(f"written to {output}")
