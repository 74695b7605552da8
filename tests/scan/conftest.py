"""Tables and rules made by hand: what a judge says is then known from arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.finding import Failure, Level, Severity
from datacheck.rules.base import Rule
from datacheck.schema.model import Schema
from datacheck.table import Measured, Table


def make_table(keys, *, splits=None, status=None, reasons=None, **columns):
    n = len(keys)
    made = {}
    for name, values in columns.items():
        field, _, stat = name.rpartition("__")
        present = np.array([v is not None for v in values])
        filled = np.array([0 if v is None else v for v in values])
        made[f"{field}:{stat}"] = Measured(filled, present)
    return Table(
        keys=list(keys), files=list(keys), inner=[""] * n, splits=splits or [""] * n, groups=[""] * n,
        status=np.array(status or [0] * n, np.int8), reasons=reasons or [""] * n, nbytes=np.zeros(n, np.int64),
        columns=made,
    )  # fmt: skip


def above(limit_name="limit", **options):
    """A judge that fails rows whose ``max`` is above an option."""

    def judge(rows, case):
        """The largest value is too large."""
        mask = rows["max"] > case.options[limit_name]
        if mask.any():
            yield Failure(mask, f"above {case.options[limit_name]}", order=rows["max"], **options)

    return judge


def make_rule(code="DC900", name="too-large", judge=None, severity=Severity.ERROR, **options):
    options.setdefault("defaults", {"limit": 10.0})
    return Rule(code, name, severity, Level.SAMPLE, judge or above(), **options)


def make_schema(fields=None, **keys):
    base = {"datacheck": 1, "name": "made", "samples": {"files": "*.npy"}, "fields": fields or {"x": {}}}
    return Schema.model_validate(base | keys)


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    """A working folder of its own: scans leave .datacheck behind."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
