"""``datacheck view``: write one sample as a page of pictures, and open it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from datacheck.cli.options import root_option, run_path
from datacheck.cli.output import say, say_notes
from datacheck.errors import UsageError

_PAGE = Path(".datacheck") / "view.html"


@click.command("view")
@click.argument("key")
@click.option(
    "--run",
    type=run_path,
    metavar="DIR",
    show_default=".datacheck/latest",
    help="Read the finished run in DIR.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DATA",
    help="Read the sample from DATA instead of a run.",
)
@click.option(
    "--schema",
    metavar="NAME|FILE",
    show_default="the built-in schema that fits the files",
    help="With --data: use this schema.",
)
@root_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    show_default=str(_PAGE),
    help="Write the page to FILE; with --rerun: write a recording instead of opening the viewer.",
)
@click.option(
    "--open/--no-open", "show", default=True, show_default=True, help="Open the page in a browser."
)
@click.option(
    "--rerun",
    is_flag=True,
    default=False,
    help="Log to the Rerun viewer instead of a page (pip install rerun-sdk).",
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
    """Show all fields of one sample as pictures, together with its findings.

    KEY is a sample name as printed by scan, or any unique suffix of it. The page is one
    self-contained file.

    \b
      datacheck view train/0007.npy                       from the newest run
      datacheck view train/0007.npy --run .datacheck/RUN  from another run
      datacheck view train/0007.npy --data DATA           from data without a scan
    """  # noqa: D301  \b keeps click from joining the lines
    from datacheck.report.sample_page import log_to_rerun, write_view
    from datacheck.runtime import folders

    sample_view = _sample_view(key, run, data, schema, roots)
    say_notes(sample_view.pop("notes", []))
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
        msg = "--schema and --root go with --data; a run has its own"
        raise UsageError(msg)
    if data is not None and run is not None:
        msg = "name a run (--run) or data (--data), not both"
        raise UsageError(msg)
    if data is not None:
        return sample_of_data(data, key, schema_for(data, schema), roots)
    if run is None:
        folders.check_own(Path(RUNS), ", or name a run: --run DIR")
        run = Path(RUNS)
    return sample_of_run(run, key)


def _open(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        say(f"no browser could be opened: open {path} yourself", err=True)
