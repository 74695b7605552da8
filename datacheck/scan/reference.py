"""The run that a scan is compared with: ``--reference RUN``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson

from datacheck.errors import UsageError
from datacheck.rules.base import Rule
from datacheck.scan import store
from datacheck.scan.samples import read_table
from datacheck.schema.model import Schema
from datacheck.table import CHECKED, Rows, Table


class Reference:
    """The rows of an earlier run, as rules about the new one see them.

    Args:
        table: all its rows.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._splits = np.array(table.splits, dtype=object)

    def rows(self, rule: Rule, name: str, split: str) -> Rows:
        """Return the rows that match those which the rule is given: of the same split, with the same field."""
        mask = np.ones(len(self._table), bool) if rule.span == "all" else self._splits == split
        if rule.sees == "checked":
            mask &= self._table.status == CHECKED
        if rule.per == "field":
            mask &= self._table.present(name)
        return self._table.rows(np.flatnonzero(mask), name)


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
