"""``datacheck view``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from datacheck.cli.say import say
from datacheck.cli.scan import root_option, run_path
from datacheck.errors import UsageError

_HELP = """Show one sample: all of its fields as pictures, and what was found.

KEY is the sample's name as a scan prints it, or the end of it where no other one ends so. The page holds all that it
shows and loads nothing.

\b
  datacheck view train/0007.npy                       of the newest scan
  datacheck view train/0007.npy --run .datacheck/RUN  of another one
  datacheck view train/0007.npy --data DATA           of data that were not scanned
"""
_PAGE = Path(".datacheck") / "view.html"


@click.command("view", help=_HELP)
@click.argument("key")
@click.option(
    "--run", type=run_path, metavar="DIR", help="A finished scan. Default: .datacheck/latest."
)
@click.option(
    "--data", type=click.Path(path_type=Path), metavar="DATA", help="Data, in the place of a scan."
)
@click.option(
    "--schema",
    metavar="NAME|FILE",
    help="With --data: the schema. Default: the built-in one that fits.",
)
@root_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"Where the page goes. Default: {_PAGE}. With --rerun: a recording, in the place of the "
    f"viewer.",
)
@click.option(
    "--open/--no-open", "show", default=True, show_default=True, help="Open the page in a browser."
)
@click.option(
    "--rerun",
    is_flag=True,
    default=False,
    help="Log to the Rerun viewer instead (pip install rerun-sdk).",
)
def view(
    key: str,
    run: Path | None,
    data: Path | None,
    schema: str | None,
    roots: dict[str, Path],
    out: Path | None,
    show: bool,  # noqa: FBT001
    rerun: bool,  # noqa: FBT001
) -> None:
    """Read the sample, write its page, and open it."""
    from datacheck.report.sample_page import log_to_rerun, write_view
    from datacheck.runtime import folders

    sample_view = _sample_view(key, run, data, schema, roots)
    for note in sample_view.pop("notes", []):
        say(note, err=True)
    if rerun:
        log_to_rerun(sample_view, out)
        say(str(out) if out else "shown in Rerun")
        return
    if out is None:
        folders.check_own(_PAGE.parent, ", or name a file: --out FILE")
    path = out or _PAGE
    write_view(path, sample_view)
    say(str(path))
    if show:
        _open(path)


def _sample_view(
    key: str, run: Path | None, data: Path | None, schema: str | None, roots: dict[str, Path]
) -> dict[str, Any]:
    from datacheck.preview.single import sample_of_data, sample_of_run
    from datacheck.runtime import folders
    from datacheck.scan import schema_for
    from datacheck.scan.run_documents import RUNS

    if data is None and (schema is not None or roots):
        msg = "--schema and --root go with --data; a scan knows its own"
        raise UsageError(msg)
    if data is not None and run is not None:
        msg = "name a scan (--run) or data (--data), not both"
        raise UsageError(msg)
    if data is None:
        if run is None:
            folders.check_own(Path(RUNS), ", or name a scan: --run DIR")
        return sample_of_run(run or Path(RUNS), key)
    return sample_of_data(data, key, schema_for(data, schema), roots)


def _open(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        click.echo("no browser could be opened: open the file yourself", err=True)
