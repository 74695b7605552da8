"""Rules over pairs of samples: which pairs they ask for, and what reads those again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from datacheck.rules.base import Case, Pairs, Rule
from datacheck.table import Rows

Array = np.ndarray[Any, Any]

MOST_PAIRS = 10_000


class SecondRead(Protocol):
    """Reads the samples of pairs again and compares them: values by name, float64 (pairs), NaN where that failed."""

    def __call__(self, rule: Rule, case: Case, split: str, rows: Rows, pairs: Array) -> Mapping[str, Array]:
        """Return what `Rule.compare` says of each pair."""


def second_read(rule: Rule, case: Case, split: str, rows: Rows, read: SecondRead) -> Case:
    """Return the case with the pairs that a rule asks for.

    Raises:
        ValueError: the rule names no pairs of rows.
    """
    assert rule.pairs is not None
    wanted = np.asarray(rule.pairs(rows, case), dtype=np.int64).reshape(-1, 2)[:MOST_PAIRS]
    if len(wanted) and (wanted.min() < 0 or wanted.max() >= len(rows)):
        msg = f"the rule asks for pair {wanted.max(axis=0).tolist()} of {len(rows)} rows"
        raise ValueError(msg)
    values = read(rule, case, split, rows, wanted) if len(wanted) else {}
    return replace(case, pairs=Pairs(wanted[:, 0], wanted[:, 1], values))
