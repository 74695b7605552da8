"""What a process holds of a cache: no pages of tables that were read whole, and nothing more from epoch to epoch."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from datacheck.cache import open_cache
from datacheck.model.sample import ArraySpec
from tests.cache.make import make_cache


def resident(path):
    """Return the bytes of a mapped file that count as this process's."""
    lines, found = Path("/proc/self/smaps").read_text().splitlines(), 0
    for at, line in enumerate(lines):
        if line.endswith(str(path)):
            found += next(
                int(more.split()[1]) << 10 for more in lines[at:] if more.startswith("Rss:")
            )
    return found


def test_a_table_that_was_read_whole_leaves_no_pages(tmp_path):
    samples = [{"label": np.int64(i)} for i in range(5000)]
    folder = make_cache(tmp_path, {"label": ArraySpec("int64")}, samples)
    cache = open_cache(folder, io="mmap")
    assert cache.usable.all()
    assert [resident(folder / f"samples/{table}/c.0") for table in ("made", "valid")] == [0, 0]
    cache.digests([4999])
    assert resident(folder / "samples/digest/c.0") > 0


@pytest.fixture(scope="module")
def script(repository):
    return runpy.run_path(str(repository / "scripts/bench/opening.py"))


@pytest.mark.slow
def test_workers_hold_no_more_from_epoch_to_epoch_and_a_leak_is_told(script, tmp_path):
    (tmp_path / "data").mkdir()
    cache = script["clouds"](tmp_path, 2000)
    # What a worker takes once to get warm, up to 3 MB, is shared out over the epochs; on a busy
    # machine some epochs have more. What leaks grows each time.
    for _ in range(3):
        grown, before, after = script["epochs"](cache, 10, "fork")
        assert before == after
        if grown < 1e6:
            break
    assert grown < 1e6
    kept, before, after = script["epochs"](cache, 5, "fork", script["leaking"])
    assert kept > 2e6  # a clone of 2,000 clouds of 3 KB, by two workers
    assert before == after
    *_, before, after = script["epochs"](cache, 5, "fork", script["leaving"])
    assert after >= before + 3  # two an epoch, in either worker
