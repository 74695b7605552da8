"""The run that a scan is compared with: ``--reference RUN``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datacheck.errors import StorageError, UsageError
from datacheck.rules.forms import in_form
from datacheck.scan import store
from datacheck.scan.documents import read_result
from datacheck.scan.samples import read_table
from datacheck.scan.worker import is_plain
from datacheck.schema.model import Schema
from datacheck.table import Table


def read_reference(folder: Path, schema: Schema) -> Table:
    """Return the rows of a finished run.

    Args:
        folder: what a scan has left behind: ``.datacheck/<run>``, or ``.datacheck/latest``.
        schema: the schema in force; another one measures other things.

    Raises:
        UsageError: there is no finished run, it cannot be read, or it was made with a schema of another name.
    """
    place = store.run_in(folder)
    if place is None:
        msg = f"{folder}: is no finished run. --reference names the folder of one, for example .datacheck/latest"
        raise UsageError(msg)
    try:
        name = read_result(place)["schema"]["name"]
        table = read_table(place / store.SAMPLES) if name == schema.name else None
        if table is not None and is_plain(schema) and not in_form(table.columns):
            msg = "its columns have another form than those of a scan"
            raise ValueError(msg)  # noqa: TRY301  as of a file that is damaged otherwise
    except Exception as error:
        raise store.unread(folder, error) from error
    if table is None:
        msg = f"{folder}: was made with schema {name}, not {schema.name}: their rows cannot be compared."
        raise UsageError(msg)
    return table


def named_reference(folder: Path | None) -> dict[str, dict[str, str]]:
    """Return ``reference`` of a report's run: id and folder (relative to the working folder); nothing without one.

    Notes:
        ``.datacheck/latest`` is another run as soon as this one has its name, so the folder is that behind the link.
    """
    place = None if folder is None else store.run_in(folder)
    if place is None:
        return {}
    try:
        run = read_result(place)["run"]["id"]
    except (OSError, ValueError) as error:
        raise store.unread(place, error) from error
    return {"reference": {"run": run, "folder": os.path.relpath(place.resolve())}}


def reference_of(run: Mapping[str, Any], schema: Schema) -> Table | None:
    """Return the rows that a finished run was compared with; None where there are none, or they are gone or damaged.

    Args:
        run: ``run`` of its result.json.
        schema: that of the run.
    """
    said = run.get("reference")
    if said is None:
        return None
    folder = Path(said["folder"])
    try:
        same = named_reference(folder).get("reference", {}).get("run") == said["run"]
        return read_reference(folder, schema) if same else None
    except (UsageError, StorageError, OSError, LookupError, TypeError, ValueError):
        # damaged or closed since: the page is drawn without it
        return None
