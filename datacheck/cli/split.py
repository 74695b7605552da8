"""``datacheck split``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from datacheck.cli.say import say
from datacheck.cli.scan import root_option, run_path, workers_option
from datacheck.errors import UsageError
from datacheck.runtime.hashing import shortened

_NAME = 200  # bytes of a name in a message
_UNLISTED = "no list can hold a name with a line break, or with a space at an end"

_HELP = """Write split lists of DATA (which is scanned first) or of a finished RUN.

Samples with the same KEY stay together: group, file, key (each sample on its own), split_key (what the schema's splits:
name), or a placeholder of the schema's file patterns, such as scene. Groups that share an exact copy of a sample stay
together too. Only valid samples are listed.

Groups are ordered by a hash of KEY and seed, and each goes to the split in whose part of that line its middle lies. So
the lists depend on the data alone, never on their order; new groups move others only next to the two boundaries.
"""


@click.command("split", help=_HELP)
@click.argument("data", type=run_path, metavar="DATA|RUN")
@click.option("--by", required=True, metavar="KEY", help="What keeps samples together.")
@click.option(
    "--train",
    type=click.FloatRange(0, 1),
    required=True,
    metavar="SHARE",
    help="Share of the samples.",
)
@click.option(
    "--val", type=click.FloatRange(0, 1), default=0.0, metavar="SHARE", help="Share of the samples."
)
@click.option(
    "--test",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="SHARE",
    help="Share of the samples.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed, another split.")
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder for the lists.",
)
@click.option(
    "--schema", metavar="NAME|FILE", help="Schema of the data. Default: the built-in one that fits."
)
@click.option(
    "--invalid", is_flag=True, default=False, help="List samples that are not fit for training too."
)
@root_option
@workers_option
def split(
    data: Path,
    by: str,
    seed: int,
    to: Path,
    schema: str | None,
    invalid: bool,  # noqa: FBT001
    **options: Any,
) -> None:
    """Assign splits, write the lists, and print their sizes."""
    import numpy as np

    from datacheck.rules.base import pluralize
    from datacheck.scan.run_documents import reading, run_in
    from datacheck.scan.split import assign_splits, merged_units, read_run, units, write_lists
    from datacheck.schema.load import load_schema

    shares = {name: float(options.pop(name)) for name in ("train", "val", "test")}
    if abs(sum(shares.values()) - 1) > 1e-9:
        msg = (
            f"--train, --val and --test add up to {sum(shares.values()):g}; write shares that "
            f"add up to 1"
        )
        raise UsageError(msg)
    if (run := run_in(data)) is not None:
        table, valid, chosen = read_run(run)
        chosen = chosen if schema is None else load_schema(schema)
    else:
        table, valid, chosen = _scanned(data, schema, options)
    rows = table if invalid else table.take(np.flatnonzero(valid))
    if not len(rows):
        msg = f"{data}: no sample is fit for training; datacheck scan says why"
        raise UsageError(msg)
    fit = len(rows)
    with reading(data):
        rows, entries, unlisted = _listable(rows, chosen)
        names = units(rows, by, chosen)
        unit = merged_units(rows, names)
        assigned = assign_splits(names, unit, shares, seed)
    lists = {
        name: [
            s for s, assigned_split in zip(entries, assigned, strict=True) if assigned_split == name
        ]
        for name, p in shares.items()
        if p
    }
    paths = write_lists(to, lists)
    groups = {
        name: len(
            {
                u
                for u, assigned_split in zip(unit.tolist(), assigned, strict=True)
                if assigned_split == name
            }
        )
        for name in lists
    }
    for name, path in paths.items():
        share = len(lists[name]) / len(rows)
        sample_text = pluralize(len(lists[name]), "sample")
        group_text = pluralize(groups[name], "group")
        say(f"{path}: {sample_text} ({share:.1%}) of {group_text} by {by}")
    if unfit_count := len(table) - fit:
        say(
            f"{pluralize(unfit_count, 'sample')} not fit for training {'is' if unfit_count == 1 else 'are'} in "
            f"no list"
        )
    if unlisted:
        sample_text = (
            f"{pluralize(len(unlisted), 'sample')} {'is' if len(unlisted) == 1 else 'are'} in "
            f"no list"
        )
        say(f"{sample_text} ({shortened(repr(unlisted[0]), _NAME)}): {_UNLISTED}. Rename the file")


def _listable(rows: Any, schema: Any) -> tuple[Any, list[str], list[str]]:
    """Return the rows whose names a list can hold, their names, and the other names.

    Raises:
        UsageError: a list can hold none of the names.
    """
    import numpy as np

    from datacheck.scan.split import can_be_listed, list_lines

    entries = list_lines(rows, schema)
    listable = np.array([can_be_listed(entry) for entry in entries], dtype=bool)
    if listable.all():
        return rows, entries, []
    if not listable.any():
        msg = (
            f"{shortened(repr(entries[0]), _NAME)}: {_UNLISTED}, and none of the samples has "
            f"another. Rename the files."
        )
        raise UsageError(msg)
    good = np.flatnonzero(listable)
    bad = np.flatnonzero(~listable)
    return rows.take(good), [entries[row] for row in good], [entries[row] for row in bad]


def _scanned(data: Path, schema: str | None, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    from datacheck.report.progress import progress_bar
    from datacheck.scan import Request, paths_of, run_scan, schema_for

    chosen = schema_for(data, schema)
    request = Request(
        data,
        command=shlex.join(["datacheck", *sys.argv[1:]]),
        paths=paths_of(chosen, schema),
        **options,
    )
    with progress_bar() as progress:
        run = run_scan(chosen, request, progress)
    return run.table, run.valid, chosen
