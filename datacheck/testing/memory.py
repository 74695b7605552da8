"""A scan without files: samples made in memory, measured in blocks and judged by the whole catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from datacheck.errors import DatacheckError
from datacheck.finding import Verdict
from datacheck.rules import catalogue
from datacheck.sample import Piece, stack
from datacheck.scan.bench import Bench
from datacheck.scan.judge import Judged, judge
from datacheck.scan.select import choose_rules, measures_of
from datacheck.schema.model import Schema
from datacheck.table import CHECKED, Note, Table, concatenate


def schema_of(said: Mapping[str, Any]) -> Schema:
    """Return a schema from its keys, with what every schema needs filled in."""
    return Schema.model_validate({"datacheck": 1, "name": "memory", "samples": {"files": "*"}} | dict(said))


def measure_pieces(schema: Schema, pieces: Sequence[tuple[str, Piece]]) -> Table:
    """Return the rows of (split, sample) pairs.

    Raises:
        DatacheckError: a measurement failed.
    """
    bench = Bench(schema, measures_of(choose_rules(schema, catalogue())))
    tables = []
    for split in sorted({split for split, _ in pieces}):
        for block in stack([piece for s, piece in pieces if s == split], split):
            count = len(block)
            tables.append(
                Table(
                    keys=block.keys, files=[origin.file for origin in block.origins], inner=[""] * count,
                    splits=[split] * count, groups=block.groups, status=np.full(count, CHECKED, np.int8),
                    reasons=[""] * count, nbytes=np.zeros(count, np.int64), columns=bench.measure(block),
                )
            )  # fmt: skip
    if bench.crashes:
        raise DatacheckError(next(iter(bench.crashes.values()))["traceback"])
    return concatenate(tables)


def scan_pieces(schema: Schema, pieces: Sequence[tuple[str, Piece]], notes: Sequence[Note] = ()) -> Judged:
    """Return what the whole catalogue says of samples in memory.

    Raises:
        DatacheckError: a measurement or a judge failed.
    """
    found = judge(measure_pieces(schema, pieces), schema, choose_rules(schema, catalogue()), notes)
    crashed = [v for v in found.verdicts if v.verdict is Verdict.CRASH]
    if crashed:
        raise DatacheckError(found.crashes[0]["traceback"])
    return found
