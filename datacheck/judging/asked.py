"""What a judge asked its rows for: one that found nothing there has judged nothing, and passes nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Asked(Rows):
    """Rows that remember whether there was any column that a judge asked for.

    Args:
        columns: whether there is one of each name: filled by what is asked.
    """

    columns: dict[str, bool] = field(default_factory=dict)

    def _column(self, name: str) -> Measured | None:
        column = super()._column(name)
        self.columns[name] = column is not None
        return column

    def where(self, mask: Array) -> Rows:
        """Return only the rows at which `mask` is true."""
        return Asked(self.table, self.index[mask], self.field, self.columns)

    @property
    def in_vain(self) -> bool:
        """Whether nothing of it was there: of values of such a shape nothing is measured that the rule could judge."""
        return bool(self.columns) and not any(self.columns.values())
