"""A scan without files: samples made in memory, measured in blocks and judged by the whole catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datacheck.errors import DatacheckError
from datacheck.model.finding import Verdict
from datacheck.model.sample import Piece, Sample, stack
from datacheck.model.table import CHECKED, Note, Rows, Table, concatenate
from datacheck.rules import rules_for
from datacheck.rules.base import Rule, RuleContext
from datacheck.rules.engine import RuleResults, judge
from datacheck.rules.measurement import MeasurementRunner
from datacheck.rules.selection import choose_rules, measures_of
from datacheck.scan.pairs import value_columns
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]


def schema_of(said: Mapping[str, Any]) -> Schema:
    """Return a schema from its keys, with what every schema needs filled in."""
    return Schema.model_validate(
        {"datacheck": 1, "name": "memory", "samples": {"files": "*"}} | dict(said)
    )


def measure_pieces(schema: Schema, pieces: Sequence[tuple[str, Piece]]) -> Table:
    """Return the rows of (split, sample) pairs.

    Raises:
        DatacheckError: a measurement failed.
    """
    bench = MeasurementRunner(schema, measures_of(choose_rules(schema, rules_for(schema))))
    tables = []
    for split in sorted({split for split, _ in pieces}):
        for block in stack([piece for s, piece in pieces if s == split], split):
            count = len(block)
            tables.append(
                Table(
                    keys=block.keys,
                    files=[origin.file for origin in block.origins],
                    inner=[""] * count,
                    splits=[split] * count,
                    groups=block.groups,
                    status=np.full(count, CHECKED, np.int8),
                    reasons=[""] * count,
                    nbytes=np.zeros(count, np.int64),
                    columns=bench.measure(block),
                )
            )
    if bench.crashes:
        raise DatacheckError(next(iter(bench.crashes.values()))["traceback"])
    return concatenate(tables)


class Reader:
    """Compares samples in memory, as a scan's second read does with samples in files."""

    def __init__(self, pieces: Sequence[tuple[str, Piece]]) -> None:
        self._samples = {(split, p.key): Sample(p.key, p.fields, p.origin) for split, p in pieces}

    def __call__(
        self, rule: Rule, case: RuleContext, split: str, rows: Rows, pairs: Array
    ) -> dict[str, Array]:
        """Return what `Rule.compare` says of each pair."""
        del split
        assert rule.compare is not None
        both = [self._samples[slot] for slot in zip(rows.splits, rows.keys, strict=True)]
        told = [
            (n, rule.compare(both[a], both[b], case)) for n, (a, b) in enumerate(pairs.tolist())
        ]
        return value_columns(len(pairs), iter(told))


def scan_pieces(
    schema: Schema,
    pieces: Sequence[tuple[str, Piece]],
    notes: Sequence[Note] = (),
    *,
    reference: Sequence[tuple[str, Piece]] | None = None,
) -> RuleResults:
    """Return what the whole catalogue says of samples in memory, as the deepest scan would.

    Args:
        schema: what they promise.
        pieces: (split, sample).
        notes: what a listing would know of them.
        reference: the samples of an earlier version to compare with.

    Raises:
        DatacheckError: a measurement or a judge failed.
    """
    before = None if reference is None else measure_pieces(schema, reference)
    table, choices = measure_pieces(schema, pieces), choose_rules(schema, rules_for(schema))
    found = judge(table, schema, choices, notes, reference=before, second=Reader(pieces))
    crashed = [v for v in found.verdicts if v.verdict is Verdict.CRASH]
    if crashed:
        raise DatacheckError(found.crashes[0]["traceback"])
    return found
