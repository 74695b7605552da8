"""The run that a scan is compared with: ``--reference RUN``."""

from __future__ import annotations

from pathlib import Path

import orjson

from datacheck.errors import UsageError
from datacheck.scan import store
from datacheck.scan.samples import read_table
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
        name = orjson.loads((place / store.RESULT).read_bytes())["schema"]["name"]
        table = read_table(place / store.SAMPLES) if name == schema.name else None
    except Exception as error:
        msg = f"{folder}: this run cannot be read ({str(error)[:200]}). Scan that data again."
        raise UsageError(msg) from error
    if table is None:
        msg = f"{folder}: was made with schema {name}, not {schema.name}: their rows cannot be compared."
        raise UsageError(msg)
    return table
