"""What a process holds of a cache: no pages of tables that were read whole, and nothing more from epoch to epoch."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from datacheck.cache import layout
from datacheck.cache.maps import MappedRows


def resident(path):
    """Return the bytes of a mapped file that count as this process's."""
    lines, found = Path("/proc/self/smaps").read_text().splitlines(), 0
    for at, line in enumerate(lines):
        if line.endswith(str(path)):
            found += next(int(more.split()[1]) << 10 for more in lines[at:] if more.startswith("Rss:"))
    return found


def test_a_table_that_was_read_whole_leaves_no_pages(tmp_path):
    rows = 8_000_000
    grid = layout.table_grid("bool", rows)
    written = np.random.Generator(np.random.Philox(0)).random(rows, np.float32) < 0.5
    path = tmp_path / "c.0"
    used = -(-rows // grid.chunk)
    path.write_bytes(written.tobytes().ljust(used * grid.chunk_bytes, b"\0"))
    table = MappedRows(grid, [path], [used])
    out = np.empty(rows, bool)
    table.span(0, rows // 2, out[: rows // 2])
    assert resident(path) > rows // 4
    table.span(0, rows, out)
    assert resident(path) < rows // 100
    assert (out == written).all()
    some = np.empty(3, bool)
    table.take(np.array([5, rows - 1, 7]), some)  # they come back
    assert some.tolist() == written[[5, rows - 1, 7]].tolist()


@pytest.fixture(scope="module")
def script(repository):
    return runpy.run_path(str(repository / "scripts/bench/opening.py"))


@pytest.mark.slow
def test_workers_hold_no_more_from_epoch_to_epoch_and_a_leak_is_told(script, tmp_path):
    (tmp_path / "data").mkdir()
    cache = script["clouds"](tmp_path, 400)
    grown, before, after = script["epochs"](cache, 5, "fork")
    assert grown < 1e6
    assert before == after
    kept, before, after = script["epochs"](cache, 5, "fork", script["leaking"])
    assert kept > grown + 2e5  # a clone of 400 clouds of 3 KB, by two workers
    assert before == after
    *_, before, after = script["epochs"](cache, 5, "fork", script["leaving"])
    assert after >= before + 3  # two an epoch, in either worker
