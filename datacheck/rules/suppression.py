"""Suppression: a rule does not judge the rows that fail the rules in its `suppressed_by`.

`FailingRows` holds the rows that fail an error, for the rules that run later. `FindingsByRow` notes
in each finding how many of its rows a later rule left out because of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from datacheck.model.finding import Finding

Array = np.ndarray[Any, Any]


class FailingRows:
    """The rows that fail an error, by rule and field.

    Args:
        size: number of rows of the table.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._masks: dict[str, dict[str, Array]] = {}

    def add(self, code: str, fields: Iterable[str], rows: Array) -> None:
        """Record rows that fail a rule in some fields; "" is the sample as a whole."""
        masks = self._masks.setdefault(code, {})
        for field in set(fields):
            masks.setdefault(field, np.zeros(self._size, bool))[rows] = True

    def of(self, code: str, field: str) -> Array | None:
        """Return bool (rows): fails a rule in a field, its parent field or as a whole sample.

        None where no row fails it. For a rule about whole samples ("") every field counts.
        """
        masks = self._masks.get(code, {})
        fields_that_count = {"", field, field.rpartition(".")[0]}
        matching = [mask for name, mask in masks.items() if not field or name in fields_that_count]
        return np.logical_or.reduce(matching) if matching else None


class FindingsByRow:
    """The findings of one rule, indexed by row: a rule may have one for each split and field."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._findings = findings
        if not findings:
            self._rows = self._numbers = np.zeros(0, np.int64)
            return
        rows = np.concatenate([np.zeros(0, np.int64), *(finding.rows for finding in findings)])
        numbers = np.repeat(np.arange(len(findings)), [len(finding.rows) for finding in findings])
        order = np.argsort(rows, kind="stable")
        self._rows = rows[order]
        self._numbers = numbers[order]

    def count_hidden(self, code: str, rows: Array) -> None:
        """Set in `Finding.hides` how many of its rows the rule `code` left out.

        Args:
            code: of the later rule.
            rows: int64: the rows that it did not judge because of these findings, each once.
        """
        first = np.searchsorted(self._rows, rows, "left")
        many = np.searchsorted(self._rows, rows, "right") - first
        # The places first[i] to first[i] + many[i] of every row i, one after another.
        places = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many - first, many)
        numbers, counts = np.unique(self._numbers[places], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._findings[number].hides[code] = count
