"""Window arithmetic against enumeration by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.cache.windows import WindowIndex, Windows
from datacheck.errors import UsageError


def enumerate_windows(lengths, usable, cut, *, skip):
    """Every window as (episode, steps): the definition, written as loops."""
    found = []
    for episode, steps in enumerate(lengths):
        if (
            steps == 0
            or (skip and not usable[episode])
            or (steps < cut.length and cut.short != "pad")
        ):
            continue
        for first in range(0, steps, cut.stride):
            whole = first + cut.length <= steps
            if whole or cut.pad != "none" or (steps < cut.length and first == 0):
                found.append((episode, list(range(first, min(steps, first + cut.length)))))
    return found


@given(
    st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=8),
    st.integers(1, 6),
    st.integers(1, 4),
    st.sampled_from(["none", "edge", "zero"]),
    st.sampled_from(["drop", "pad"]),
    st.booleans(),
)
def test_windows_are_those_of_the_enumeration(episodes, length, stride, pad, short, skip):
    lengths = np.array([steps for steps, _ in episodes], dtype=np.int64)
    usable = np.array([ok for _, ok in episodes], dtype=bool)
    cut = Windows(length, stride, pad, short)
    expected = enumerate_windows(lengths.tolist(), usable, cut, skip=skip)
    index = WindowIndex(cut, lengths, usable, skip=skip)
    assert len(index) == len(expected)
    located = [x.tolist() for x in index.locate(np.arange(len(index)))]
    got = [
        (e, list(range(at, min(at + length, lengths[e])))) for e, at in zip(*located, strict=True)
    ]
    assert got == expected
    of_usable = [i for i, (episode, _) in enumerate(expected) if usable[episode]]
    assert index.usable == len(of_usable)
    assert [index.nth_usable(n, usable) for n in range(len(of_usable))] == of_usable


def test_a_demo_of_50_steps_has_no_window_of_64():
    index = WindowIndex(Windows(64), np.array([50, 64, 70]), np.ones(3, bool))
    assert len(index) == 0 + 1 + 7
    assert [x.tolist() for x in index.locate(np.array([0, 1, 7]))] == [[1, 2, 2], [0, 0, 6]]


def test_short_episodes_can_be_refused():
    with pytest.raises(UsageError, match=r"1 episodes are shorter: 0 \(50 steps\)"):
        WindowIndex(
            Windows(64, short="raise"), np.array([50, 64, 3]), np.array([True, True, False])
        )


@pytest.mark.parametrize(
    "said",
    [
        {"length": 0},
        {"length": 2, "stride": 0},
        {"length": 2, "pad": "wrap"},
        {"length": 2, "short": "ignore"},
    ],
)
def test_wrong_windows_are_refused(said):
    with pytest.raises(UsageError, match="windows:"):
        Windows.of(said)
