"""``datacheck split``: write split lists that keep related samples together."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.options import root_option, run_path, schema_option, workers_option
from datacheck.cli.output import say
from datacheck.errors import UsageError
from datacheck.runtime.hashing import shortened

if TYPE_CHECKING:
    import numpy as np

    from datacheck.model.table import Table
    from datacheck.schema.model import Schema

_SPLITS = ("train", "val", "test")
_MOST_NAME_BYTES = 200  # in a message
_UNLISTABLE = "no list can hold a name with a line break, or with a space at an end"

_share = click.FloatRange(0, 1)


@click.command("split")
@click.argument("data", type=run_path, metavar="DATA|RUN")
@click.option("--by", required=True, metavar="KEY", help="Keep samples with the same KEY together.")
@click.option(
    "--train",
    type=_share,
    required=True,
    metavar="SHARE",
    help="Put SHARE of the samples in train.",
)
@click.option(
    "--val",
    type=_share,
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Put SHARE of the samples in val.",
)
@click.option(
    "--test",
    type=_share,
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Put SHARE of the samples in test.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="N",
    help="Seed the hash that assigns groups.",
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Write the lists into DIR.",
)
@schema_option
@click.option("--invalid", is_flag=True, default=False, help="List invalid samples, too.")
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
    """Write split lists for DATA, which is scanned first, or for a finished RUN.

    KEY is group, file, key (each sample on its own), split_key (see splits in the schema) or a
    placeholder of the schema's file patterns, such as scene. Samples with the same KEY form a
    group; groups that share an exact copy of a sample are joined. Only valid samples are listed.

    Groups are ordered by a hash of KEY and seed, and each group goes to the split that its midpoint
    falls into. So the lists do not depend on the order of the data, and new groups move only those
    next to the boundaries.
    """
    from datacheck.scan.run_documents import reading
    from datacheck.scan.split import assign_splits, merged_units, units, write_lists

    shares = {name: float(options.pop(name)) for name in _SPLITS}
    if abs(sum(shares.values()) - 1) > 1e-9:
        msg = (
            f"--train, --val and --test add up to {sum(shares.values()):g}; write shares that "
            f"add up to 1"
        )
        raise UsageError(msg)
    scanned = _scanned_samples(data, schema, options)
    table = scanned.table if invalid else scanned.valid_rows()
    if not len(table):
        msg = f"{data}: no sample is fit for training; datacheck scan says why"
        raise UsageError(msg)
    with reading(data):
        listable, entries, unlistable = _listable(table, scanned.schema)
        keys = units(listable, by, scanned.schema)
        groups = merged_units(listable, keys)
        splits = assign_splits(keys, groups, shares, seed)
    lists: dict[str, list[str]] = {name: [] for name, share in shares.items() if share}
    for entry, name in zip(entries, splits, strict=True):
        lists[name].append(entry)
    paths = write_lists(to, lists)
    group_counts = Counter(name for name, _ in set(zip(splits, groups.tolist(), strict=True)))
    for name, path in paths.items():
        say(_list_line(path, len(lists[name]), len(entries), group_counts[name], by))
    say(*_unlisted_lines(len(scanned.table) - len(table), unlistable))


@dataclass(frozen=True)
class _ScannedSamples:
    table: Table
    valid: np.ndarray[Any, Any]  # bool per row of the table
    schema: Schema

    def valid_rows(self) -> Table:
        import numpy as np

        return self.table.take(np.flatnonzero(self.valid))


def _scanned_samples(
    data: Path, schema_name: str | None, options: dict[str, Any]
) -> _ScannedSamples:
    """Return the samples of a finished run, or of data that are scanned now."""
    from datacheck.report.progress import progress_bar
    from datacheck.scan import Request, paths_of, run_scan, schema_for
    from datacheck.scan.run_documents import run_in
    from datacheck.scan.split import read_run
    from datacheck.schema.load import load_schema

    finished_run = run_in(data)
    if finished_run is not None:
        table, valid, schema = read_run(finished_run)
        return _ScannedSamples(
            table, valid, schema if schema_name is None else load_schema(schema_name)
        )
    schema = schema_for(data, schema_name)
    request = Request(
        data,
        command=shlex.join(["datacheck", *sys.argv[1:]]),
        paths=paths_of(schema, schema_name),
        **options,
    )
    with progress_bar() as progress:
        run = run_scan(schema, request, progress)
    return _ScannedSamples(run.table, run.valid, schema)


def _listable(table: Table, schema: Schema) -> tuple[Table, list[str], list[str]]:
    """Return the rows whose names a list can hold, their names, and the other names.

    Raises:
        UsageError: a list can hold none of the names.
    """
    import numpy as np

    from datacheck.scan.split import can_be_listed, list_lines

    entries = list_lines(table, schema)
    listable = np.array([can_be_listed(entry) for entry in entries], dtype=bool)
    if listable.all():
        return table, entries, []
    if not listable.any():
        msg = (
            f"{_short_name(entries[0])}: {_UNLISTABLE}, and all samples have such names. Rename "
            f"the files."
        )
        raise UsageError(msg)
    kept = np.flatnonzero(listable)
    refused = np.flatnonzero(~listable)
    return (table.take(kept), [entries[row] for row in kept], [entries[row] for row in refused])


def _list_line(path: Path, samples: int, of: int, groups: int, by: str) -> str:
    from datacheck.rules.base import pluralize

    share = f"{pluralize(samples, 'sample')} ({samples / of:.1%})"
    return f"{path}: {share} of {pluralize(groups, 'group')} by {by}"


def _unlisted_lines(invalid: int, unlistable: list[str]) -> Iterator[str]:
    from datacheck.rules.base import pluralize

    if invalid:
        yield f"{pluralize(invalid, 'invalid sample')} left out"
    if unlistable:
        left_out = f"{pluralize(len(unlistable), 'sample')} left out"
        yield f"{left_out} ({_short_name(unlistable[0])}): {_UNLISTABLE}. Rename the file"


def _short_name(name: str) -> str:
    return shortened(repr(name), _MOST_NAME_BYTES)
