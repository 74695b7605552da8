"""Causes: all that may have happened are held against one another, and the better one must be clearly better."""

import math

import numpy as np
import pytest

from datacheck.model.table import Texts
from datacheck.rules.causes import CandidateCause, explain, logarithms, range_from_limits
from tests.rules.test_recall import hands, sequence  # frames of hands that move, and their scan

COUNT = 40


def told(
    sizes, bad, *, factors=(0.001, 0.01, 0.0254), allowed=(0.01, 1.0), groups=None, beside=None
):
    """What explains sizes that are out of range; `beside` is a second quantity that a factor changes as well."""
    sizes, bad = np.asarray(sizes, float), np.asarray(bad)

    def looks(by):
        found = {"size": logarithms(sizes * by)}
        return found | ({} if beside is None else {"beside": logarithms(np.asarray(beside) * by)})

    changes = [
        CandidateCause(
            str(by),
            f"times {by}",
            by,
            looks(by),
            (sizes * by >= allowed[0]) & (sizes * by <= allowed[1]),
            common=by < 0.02,
        )
        for by in factors
    ]
    return explain(
        changes,
        looks(1.0),
        {"size": range_from_limits(allowed[0], allowed[1] if math.isfinite(allowed[1]) else None)},
        bad,
        ~bad,
        Texts.of(groups or [""] * len(sizes)),
    )


def some(count, factor, low=0.1, high=0.3):
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(math.log(low), math.log(high), COUNT))
    bad = np.arange(COUNT) < count
    return sizes * np.where(bad, factor, 1.0), bad


@pytest.mark.parametrize(("factor", "high"), [(1000.0, 0.2), (100.0, 0.2), (1 / 0.0254, 0.13)])
def test_the_factor_that_makes_offenders_look_like_the_good_ones_is_named(factor, high):
    """An inch is rarer than a millimetre: the samples must be more alike to say so."""
    cause = told(*some(10, factor, high=high))
    assert cause.factor == pytest.approx(1 / factor)
    assert (cause.explains, cause.alternatives) == (10, ())


def test_a_factor_that_nobody_knows_is_not_taken_for_the_nearest_one():
    """x200 is within the range times 0.001 and times 0.01: the range alone would name one of them."""
    sizes, bad = some(10, 200.0)
    assert bool((sizes[bad] * 0.001 >= 0.01).all())
    assert bool((sizes[bad] * 0.01 <= 1.0).all())
    assert told(sizes, bad) is None


def test_a_factor_must_fit_all_that_it_changes():
    """Things that moved are out of range, and as large as the others: no unit did that."""
    away, bad = some(10, 1000.0, high=0.2)
    size, _ = some(10, 1.0)
    assert told(away, bad).factor == 0.001
    assert told(away, bad, beside=size) is None


def test_few_offenders_of_many_sizes_decide_nothing():
    sizes, bad = some(1, 1000.0, low=0.01, high=1.0)
    cause = told(sizes, bad, allowed=(0.005, 2.0))
    assert (cause.kind, cause.factor) == ("", None)
    assert "x0.001 (0.001)" in cause.alternatives


def test_offenders_of_one_group_count_as_one():
    """The frames of one recording agree, and are no more evidence than one of them."""
    rng = np.random.default_rng(1)
    bad = np.arange(240) < 40
    sizes = np.exp(rng.uniform(-2.5, -0.9, 240)) * np.where(bad, 1000.0, 1.0)
    assert told(sizes, bad).factor == 0.001
    groups = ["a"] * 40 + [f"g{i}" for i in range(200)]
    assert told(sizes, bad, groups=groups).factor is None


def test_without_good_samples_the_range_names_what_lies_in_its_middle():
    sizes, bad = some(COUNT, 1000.0)
    assert told(sizes, bad, allowed=(0.08, 0.5)).factor == 0.001
    cause = told(sizes, bad, allowed=(0.05, 6.0))  # 0.01 gives 1 to 3: in range, too
    assert (cause.kind, cause.factor) == ("", None)
    assert told(sizes, bad, allowed=(0.05, math.inf)).kind == ""  # an open range has no middle


@pytest.mark.parametrize("share", [5, 20])
def test_a_frame_and_a_root_subtracted_twice_are_told_apart_by_the_frames_beside_them(share):
    """Both put hands behind the camera; mended by the right one they lie where the recording is."""
    ways = {"camera_opencv": lambda f: f * [1, -1, -1], "twice-root": lambda f: f - 2 * f[0]}
    for kind, change in ways.items():
        recordings = [
            [change(f) if i % (60 // share) == 0 else f for i, f in enumerate(sequence(n))]
            for n in range(3)
        ]
        (finding,) = hands(recordings).findings
        assert (finding.code, finding.kind, finding.cause.alternatives) == ("DC303", kind, ())
