"""Builds to a bucket that end too early or meet, reduced. In full: scripts/bench/faults/buckets.py."""

from __future__ import annotations

import pytest

from tests.faults.test_ended import table


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_that_ends_a_build_leaves_anything_wrong(repository, forked_python):
    rows = table(repository, "buckets", "--count", "1", "--python", forked_python)
    told = {name: rows.pop(name)[-1] for name in list(rows) if name.startswith("control")}
    assert len(told) == 2
    assert all(told.values())
    assert len(rows) == 5
    assert all(
        trials and reruns and not wrong for trials, _, _, _, reruns, _, wrong in rows.values()
    )
    assert rows["two at once"][3] == rows["two at once"][0]  # whoever ended first: there is a cache
