"""Options and arguments that several commands share, and the types that parse them.

A help text begins with a verb and names the unit; click appends the default and the allowed range.
A default that click cannot know is given as ``show_default`` text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from datacheck.errors import UsageError


class PathOrUrl(click.ParamType[Path | str]):
    """A local path, or a URL in an object store."""

    name = "path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        """Keep a URL as text: a path would lose one of its slashes."""
        from datacheck.cache.store import is_url

        return value if is_url(value) else Path(value)


def _parse_roots(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, Path]:
    del ctx, param
    roots = {}
    for value in values:
        name, equals, folder = value.partition("=")
        if not (name and equals and folder):
            msg = f"--root {value}: write NAME=DIR, for example --root objects=/data/meshes"
            raise UsageError(msg)
        roots[name] = Path(folder)
    return roots


def _check_badge(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse, before the scan, a badge that cannot be written or would replace another file."""
    del ctx, param
    if value is None:
        return None
    from datacheck.report.exports.badge import check_badge_file

    check_badge_file(value)
    if not value.parent.is_dir():
        msg = f"--badge {value}: there is no folder {value.parent}. Make it, or name another file."
        raise UsageError(msg)
    return value


# --------------------------------------------------------------------------------------------- data

root_option = click.option(
    "--root",
    "roots",
    metavar="NAME=DIR",
    multiple=True,
    callback=_parse_roots,
    help="Read the extra folder NAME of the schema from DIR (meshes, for instance); repeatable.",
)
schema_option = click.option(
    "--schema",
    metavar="NAME|FILE",
    show_default="the built-in schema that fits the files",
    help="Use this built-in schema or YAML file.",
)

# ---------------------------------------------------------------------------------------- processes

workers_option = click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    show_default="one for small data, else one per core",
    help="Start N worker processes.",
)
scheduler_option = click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Use the workers of the Dask scheduler at ADDRESS (tcp://host:8786).",
)

# --------------------------------------------------------------------------- runs and their reports

# not checked by click: an unreadable folder is a storage error, not a wrong request
run_path = click.Path(path_type=Path, readable=False)
run_argument = click.argument("run", type=run_path)
output_option = click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    show_default="a new folder in .datacheck",
    help="Write the run into DIR.",
)
format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "sarif", "junit", "github"]),
    default="text",
    show_default=True,
    help="Print the report in this format. json is exactly result.json; github also writes the "
    "summary of the job.",
)
badge_option = click.option(
    "--badge",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_check_badge,
    help="Write the JSON of a shields.io badge to FILE.",
)
fail_on_option = click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "never"]),
    default="error",
    show_default=True,
    help="Exit with code 1 if there are findings of this severity or a higher one.",
)
reference_option = click.option(
    "--reference",
    type=run_path,
    metavar="RUN",
    help="Compare with a finished run of other or earlier data, such as .datacheck/latest (rules "
    "DC901 to DC903).",
)
baseline_option = click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Do not report the known findings in FILE (see datacheck baseline). Samples that are not "
    "in FILE are always reported.",
)
unread_option = click.option(
    "--allow-unread",
    is_flag=True,
    default=False,
    help="Do not fail if most bytes are in files that no reader opened (DC113).",
)
json_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Print the result in this format.",
)

# ------------------------------------------------------------------------------------------- caches

path_argument = click.argument("path", type=PathOrUrl())
split_option = click.option(
    "--split", metavar="NAME", help="Choose the split, if the folder holds several."
)
