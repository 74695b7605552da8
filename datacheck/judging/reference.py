"""The rows of the run that a scan is compared with."""

from __future__ import annotations

import numpy as np

from datacheck.rules.base import Rule
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
