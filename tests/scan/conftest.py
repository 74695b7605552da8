"""Tables and rules made by hand: what a judge says is then known from arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.formats import jsonl
from datacheck.model.finding import Failure, Level, Severity
from datacheck.model.table import Measured, Table
from datacheck.rules.base import Rule
from datacheck.scan import measuring
from datacheck.scan.worker import measure_items
from datacheck.schema.model import Schema
from datacheck.workers.parallel import TaskResult
from datacheck.workers.wire import check_answer, decode, encode


def make_table(keys, *, splits=None, status=None, reasons=None, **columns):
    n = len(keys)
    made = {}
    for name, values in columns.items():
        field, _, stat = name.rpartition("__")
        present = np.array([v is not None for v in values])
        filled = np.array([0 if v is None else v for v in values])
        made[f"{field}:{stat}"] = Measured(filled, present)
    return Table(
        keys=list(keys),
        files=list(keys),
        inner=[""] * n,
        splits=splits or [""] * n,
        groups=[""] * n,
        status=np.array(status or [0] * n, np.int8),
        reasons=reasons or [""] * n,
        nbytes=np.zeros(n, np.int64),
        columns=made,
    )


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
    base = {
        "datacheck": 1,
        "name": "made",
        "samples": {"files": "*.npy"},
        "fields": fields or {"x": {}},
    }
    return Schema.model_validate(base | keys)


@pytest.fixture
def in_tmp(tmp_path, monkeypatch):
    """A working folder of its own: scans leave .datacheck behind."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def here(monkeypatch):
    """Run the tasks of a scan in this process, and return the parts that they read; those of a series as a tuple."""
    read = []

    def outcome(task):
        answer = decode(b"".join(encode(measure_items(task, lambda place: None))))
        check_answer(measure_items, answer, task)
        return TaskResult(task, [answer])

    def in_turn(function, tasks, *, workers=1, **_):
        """Behave as children that have as many tasks under way as they may."""
        waiting = []
        for task in tasks:
            if task is None:
                assert waiting
            else:
                series = task if isinstance(task, list) else [task]
                parts = [[item.get("rows") for item in one["items"]] for one in series]
                read.append(tuple(parts) if isinstance(task, list) else parts[0])
                waiting.append(map(outcome, series))
            if task is None or len(waiting) == workers:
                yield from waiting.pop(0)
        for outcomes in waiting:
            yield from outcomes

    monkeypatch.setattr(measuring, "ordered_map", in_turn)
    # Which keeps a file open where its process ends
    monkeypatch.setattr(jsonl, "READ_ON", jsonl._ForwardReader())
    return read
