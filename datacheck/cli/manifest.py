"""``datacheck manifest``: record every file of a dataset with its digest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.options import json_option, root_option
from datacheck.cli.output import echo, say, say_notes

if TYPE_CHECKING:
    from datacheck.repro.manifest import DatasetManifest
    from datacheck.schema.model import Schema


def manifest_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that make manifests."""
    for option in (
        json_option,
        click.option(
            "--workers",
            type=click.IntRange(1),
            metavar="N",
            show_default="none for small data, else one per core",
            help="Start N worker processes.",
        ),
        click.option(
            "--deep",
            is_flag=True,
            help="Hash every file, even if its size, times and inode are unchanged.",
        ),
        root_option,
        click.option(
            "--schema",
            metavar="NAME|FILE",
            help="Digest each field of each sample, too, as read by this schema.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the manifest to FILE; without it, only print its root digest.",
)
@manifest_options
def manifest(
    data: Path,
    output: Path | None,
    schema: str | None,
    roots: dict[str, Path],
    form: str,
    **options: Any,
) -> None:
    """Record path, size and xxh3_128 of every file of DATA, and one root digest.

    DATA is a folder or a file. Equal data have equal manifests, wherever they are stored. Digests
    are kept in .datacheck/manifests, so that the next call reads changed files only.
    """
    from datacheck.report.progress import progress_bar
    from datacheck.repro import manifest as manifests

    if output is not None:
        manifests.check_output(output, [data, *roots.values()])
    with progress_bar() as progress:
        data_manifest = manifests.make(
            data, roots=roots, schema=load_schema_of(data, schema), progress=progress, **options
        )
    if output is not None:
        manifests.write(data_manifest, output)
    say_notes(data_manifest.notes)
    if form == "json":
        from datacheck.report.words import json_of

        echo(json_of(_manifest_json(data_manifest, output)))
    else:
        say(*_manifest_lines(data_manifest, output))


def load_schema_of(data: Path, name: str | None) -> Schema | None:
    """Return the schema of ``--schema``; None without that option."""
    if name is None:
        return None
    from datacheck.scan import schema_for

    return schema_for(data, name)


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
    samples = data_manifest.samples
    if samples is not None:
        record["samples"] = {
            "schema": samples.schema,
            "digest": samples.digest,
            "read": len(samples.rows),
            "unread": dict(samples.unread),
        }
    return record


def _manifest_lines(data_manifest: DatasetManifest, output: Path | None) -> Iterator[str]:
    from datacheck.report.words import format_bytes
    from datacheck.rules.base import pluralize

    files = data_manifest.files
    yield f"root {data_manifest.root}"
    yield (
        f"{len(files):,} files, {format_bytes(files.nbytes)}: {data_manifest.read:,} read, "
        f"{data_manifest.kept:,} unchanged"
    )
    samples = data_manifest.samples
    if samples is not None:
        unread = f", {len(samples.unread):,} cannot be read" if samples.unread else ""
        yield f"{len(samples.rows):,} samples of schema {samples.schema}{unread}"
    if data_manifest.skipped:
        path, reason = data_manifest.skipped[0]
        left_out = pluralize(len(data_manifest.skipped), "name")
        yield f"{left_out} left out of the manifest, such as {path}: {reason}"
    if output is not None:
        yield f"written to {output}"
