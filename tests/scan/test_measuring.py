from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.scan.measure_tasks import ScanJob
from datacheck.scan.measuring import (
    SMALL_BYTES,
    SMALL_ITEMS,
    TASK_BYTES,
    TASK_ITEMS,
    _workers,
    batches,
)
from datacheck.sources.base import Item
from datacheck.sources.kinds import SourceSetup
from tests.scan.conftest import make_schema


def items(sizes):
    return [Item(f"{i:06d}", nbytes=size) for i, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 3 * TASK_BYTES), max_size=40))
def test_batches_lose_nothing_keep_the_order_and_stay_small(sizes):
    every = items(sizes)
    groups = list(batches(every))
    assert [item for group in groups for item in group] == every
    for group in groups:
        assert len(group) == 1 or sum(item.nbytes for item in group) <= TASK_BYTES


def test_many_tiny_files_are_cut_by_number():
    assert [len(group) for group in batches(items([1] * (2 * TASK_ITEMS + 3)))] == [
        TASK_ITEMS,
        TASK_ITEMS,
        3,
    ]


@pytest.mark.parametrize(
    ("asked", "nbytes", "count", "tasks", "expected"),
    [
        (None, SMALL_BYTES - 1, SMALL_ITEMS - 1, 50, 1),
        (None, SMALL_BYTES, 10, 50, 7),
        (None, 1, SMALL_ITEMS, 50, 7),
        (None, SMALL_BYTES, 1, 1, 1),
        (3, 1, 1, 50, 3),
        (3, 1, 1, 2, 2),
        (1, 10 * SMALL_BYTES, 10, 50, 1),
        (None, 0, 0, 0, 1),
    ],
)
def test_small_data_need_no_workers_and_nobody_starts_more_than_there_are_tasks(
    monkeypatch, asked, nbytes, count, tasks, expected
):
    monkeypatch.setattr("datacheck.scan.measure_tasks.usable_cpus", lambda: 7)
    job = ScanJob(SourceSetup(make_schema(), Path(), {}), [], workers=asked)
    assert _workers(job, nbytes, count, tasks) == expected
