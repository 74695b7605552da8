"""The rows of a scan: those of samples that are not there."""

import tracemalloc

from datacheck.model.table import UNREADABLE, Note
from datacheck.scan.rows import missing_rows
from datacheck.sources import Work


def test_each_sample_that_is_not_there_takes_little_memory():
    """100,000 lines of a list that named no file took 5 kB each: a table of one row."""
    names = [f"train/{i:06d}.npy" for i in range(5000)]
    notes = [
        Note("DC105", name, f"{name} is gone", missing=True, split=f"s{i % 2}")
        for i, name in enumerate(names)
    ]
    notes.append(Note("DC107", "a.tmp", "left over"))
    tracemalloc.start()
    table = missing_rows(Work([], notes))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1500 * len(names)
    assert list(table.keys) == list(table.files) == names
    assert list(table.splits)[:3] == ["s0", "s1", "s0"]
    assert list(table.reasons)[-1] == "DC105 train/004999.npy is gone"
    assert (table.status == UNREADABLE).all()


def test_nothing_missing_is_no_row():
    assert len(missing_rows(Work([]))) == 0
