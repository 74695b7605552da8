"""Each probe on the fault that it is for, on a healthy control, and where nothing may be claimed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from datacheck.errors import UsageError
from datacheck.torch import (
    probe_centering,
    probe_constant_metric,
    probe_coverage,
    probe_label_shift,
    probe_units,
    probes,
)
from datacheck.torch.order import pack


def rng():
    return np.random.default_rng(7)


# ----------------------------------------------------------------------------------------- coverage


def test_every_sample_once_is_coverage():
    said = probe_coverage(rng().permutation(8332), 8332)
    assert (said.ok, said.seen, said.missing, said.doubled, said.outside) == (True, 8332, 0, 0, 0)


def test_the_quarter_of_one_rank_is_named():
    said = probe_coverage(range(0, 8332, 4), 8332)
    assert (said.ok, said.seen, said.missing) == (False, 2083, 6249)
    assert "2,083 of 8,332" in said.verdict
    assert "one rank of 4" in said.verdict
    assert "0 to 2,082" in probe_coverage(torch.arange(2083), 8332).verdict


def test_doubled_and_foreign_indices_are_counted():
    said = probe_coverage([0, 1, 1, 2, 7, -1], 3)
    assert (said.ok, said.seen, said.missing, said.doubled, said.outside) == (False, 3, 0, 1, 2)


def test_nothing_of_nothing_is_covered_and_numbers_with_fractions_are_refused():
    assert probe_coverage([], 0).ok
    assert not probe_coverage([], 3).ok
    with pytest.raises(UsageError, match="float64"):
        probe_coverage([0.5, 1.0], 3)
    with pytest.raises(UsageError, match="no array"):
        probe_coverage([[0, 1], [2]], 3)
    with pytest.raises(UsageError, match="n=-1"):
        probe_coverage([], -1)


def test_indices_with_their_epoch_are_those_of_the_samples():
    assert probe_coverage(pack(6, np.arange(9)).tolist(), 9).ok
    assert probe_coverage([*pack(0, np.arange(8)), -1], 8).outside == 1


# ---------------------------------------------------------------------------------- constant metric


def test_a_metric_that_stands_still_is_told():
    said = probe_constant_metric([102.152] * 8)
    assert (said.ok, said.sure, said.repeats) == (False, True, 8)
    assert "8 evaluations" in said.verdict
    assert probe_constant_metric([140.0, 120.0] + [102.152] * 5).repeats == 5
    assert not probe_constant_metric([torch.tensor(0.25, requires_grad=True)] * 5).ok
    assert probe_constant_metric([0.25] * 5, least=6).ok
    with pytest.raises(UsageError, match="least=1"):
        probe_constant_metric([0.25], least=1)


@pytest.mark.parametrize(
    ("history", "sure"),
    [
        ([9.0, 8.0, 7.5, 7.4, 7.39, 7.39], True),
        ([], False),
        ([3.0, 3.0], False),
        ([float("nan")] * 9, False),
        ([1.0] * 9, False),
        ([0.0] * 9, False),
        ([float("nan"), *[2.0] * 4], True),
    ],
)
def test_of_other_metrics_nothing_is_claimed(history, sure):
    said = probe_constant_metric(history)
    assert (said.ok, said.sure) == (True, sure)


# -------------------------------------------------------------------------------------- label shift


def model(ids, lag, vocabulary=50, strength=6.0):
    """Logits that know the id at this lag and nothing else: its loss is log(1 + 49 exp(-6)), about 0.115 nat."""
    logits = np.zeros((*ids.shape, vocabulary), np.float32)
    for row, line in zip(logits, ids, strict=True):
        for t in range(len(line)):
            if 0 <= t + lag < len(line):
                row[t, line[t + lag]] = strength
    return torch.from_numpy(logits)


@pytest.mark.parametrize("lag", [0, 2])
def test_labels_that_are_off_by_one_are_told(lag):
    ids = rng().integers(0, 50, (4, 64))
    said = probe_label_shift(model(ids, lag), torch.from_numpy(ids))
    assert (said.ok, said.sure, said.best, said.expected) == (False, True, lag, 1)
    assert said.losses[lag] == pytest.approx(np.log1p(49 * np.exp(-6)), rel=1e-4)
    assert f"lag {lag}" in said.verdict


def test_labels_in_their_place_are_not_told():
    ids = rng().integers(0, 50, (4, 64))
    assert probe_label_shift(model(ids, 1), ids).ok
    assert probe_label_shift(model(ids, 0), ids, expected=0).ok
    half = model(ids, 1).bfloat16().requires_grad_()
    assert probe_label_shift(half, ids).best == 1


def test_of_a_model_that_repeats_what_it_is_given_untrained_no_shift_is_claimed():
    """Tied embeddings are better at lag 0; the shift of a model that learns is seen all the same."""
    ids = rng().integers(0, 50, (4, 64))
    tied = model(ids, 0, strength=2.0)
    losses = {0: np.log1p(49 * np.exp(-2)), 1: np.log(49 + np.exp(2)) - 2 / 50}
    said = probe_label_shift(tied, ids)
    assert said.losses[0] == pytest.approx(losses[0], rel=1e-4)
    assert said.losses[1] == pytest.approx(losses[1], rel=0.02)
    assert said.losses[1] - said.losses[0] > 1
    assert said.ok
    assert probe_label_shift(tied, np.roll(ids, -1, axis=1), expected=0).ok
    assert probe_label_shift(tied + model(ids, 2, strength=1.0), ids).best == 2
    assert not probe_label_shift(model(ids, 0, strength=6.0), ids).ok


def test_the_cross_entropy_is_that_of_torch():
    ids = torch.from_numpy(rng().integers(0, 50, (1, 80)))
    logits = torch.from_numpy(rng().normal(0, 3, (1, 80, 50)))
    said = probe_label_shift(logits, ids, lags=(1,))
    wanted = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    assert said.tokens == 79
    assert said.losses == {1: pytest.approx(float(wanted), rel=1e-12)}


def test_logits_are_taken_a_part_at_a_time(monkeypatch):
    ids = rng().integers(0, 50, (4, 64))
    logits = torch.from_numpy(rng().normal(0, 3, (4, 64, 50)))
    ids[1, 10:30] = -100
    whole = probe_label_shift(logits, ids)
    monkeypatch.setattr(probes, "_NUMBERS_AT_ONCE", 7 * 50)
    parts = probe_label_shift(logits, ids)
    assert parts.tokens == whole.tokens == 60 * 4 - 24
    assert parts.losses == {
        lag: pytest.approx(loss, rel=1e-12) for lag, loss in whole.losses.items()
    }


def test_of_logits_that_know_nothing_no_shift_is_claimed():
    ids = rng().integers(0, 50, (4, 64))
    assert probe_label_shift(np.zeros((4, 64, 50)), ids).ok
    assert probe_label_shift(rng().normal(size=(4, 64, 50)), ids).ok
    same = np.full((4, 64), 3)
    assert probe_label_shift(model(same, 0), same).ok
    for few in (model(ids, 0)[:1, :20], torch.full((1, 20, 50), float("nan"))):
        said = probe_label_shift(few, ids[:1, :20])
        assert (said.ok, said.sure) == (True, False)
    masked = np.full((4, 64), -100)
    assert not probe_label_shift(model(ids, 0), masked).sure
    assert not probe_label_shift(np.full((4, 64, 50), np.nan), ids).sure
    for batch, positions, vocabulary in ((0, 64, 50), (4, 0, 50), (4, 64, 0)):
        nothing = np.zeros((batch, positions, vocabulary))
        assert not probe_label_shift(nothing, np.zeros((batch, positions), int)).sure
    with pytest.raises(UsageError, match="logits are"):
        probe_label_shift(np.zeros((4, 63, 50)), ids)


# ------------------------------------------------------------------------------------------ poses


def hands(count=64):
    """Joints in metres, camera frame, about 0.6 m away."""
    shape = rng().normal(0, 0.04, (21, 3))
    shape[0] = 0
    place = np.array([0.0, 0.0, 0.6]) + rng().normal(0, 0.05, (count, 1, 3))
    return shape + rng().normal(0, 0.01, (count, 21, 3)) + place


def relative(joints, joint=0):
    return joints - joints[:, joint : joint + 1]


def noisy(joints):
    return joints + np.random.default_rng(8).normal(0, 0.005, joints.shape)


def test_truth_about_the_root_and_absolute_predictions_are_told():
    said = probe_centering(torch.from_numpy(noisy(hands())), relative(hands()))
    assert (said.ok, said.sure, said.pred, said.gt) == (False, True, "", "joint 0")
    assert said.offset > 5
    assert "joint 0" in said.verdict
    other = probe_centering(relative(noisy(hands())), hands())
    assert (other.ok, other.pred, other.gt) == (False, "joint 0", "")


@pytest.mark.parametrize(
    "centre", [lambda joints: joints, relative, lambda j: j - j.mean(axis=1, keepdims=True)]
)
def test_one_centre_for_both_is_not_told(centre):
    gt = centre(hands())
    assert probe_centering(noisy(gt), gt).ok
    assert probe_centering(centre(noisy(hands())), gt).ok


def test_two_centres_near_each_other_are_two():
    """A root that lies less than half a size from the mean."""
    gt = rng().normal(0, 1 / 3**0.5, (21, 3)) + rng().normal(0, 0.01, (64, 21, 3))
    gt -= gt.mean(axis=1, keepdims=True)
    gt[:, 1:] -= gt[:, :1] / 20
    gt[:, 0] = [0.3, 0, 0]
    gt -= gt.mean(axis=1, keepdims=True)
    said = probe_centering(relative(gt + rng().normal(0, 0.01, gt.shape)), gt)
    assert 0.2 < said.offset < 0.45
    assert (said.ok, said.pred, said.gt) == (False, "joint 0", "mean")


def test_predictions_that_have_learned_nothing_have_no_other_centre():
    gt = relative(hands())
    far = gt.copy()
    far[:, 1:] += [0.2, 0, 0]  # the wrist is far from all other joints
    for noise in (1e-3, 1e-2, 1.0):
        assert probe_centering(noise * rng().normal(size=gt.shape), far).ok
    assert not probe_centering(noisy(far) + 1, far).ok


def test_a_wrong_unit_is_told_with_its_factor():
    gt = hands()
    for factor, words in ((1000, "1000"), (0.001, "1000"), (100, "100"), (0.01, "100")):
        said = probe_units(noisy(gt) * factor, gt)
        assert (said.ok, said.sure) == (False, True)
        assert said.ratio == pytest.approx(factor, rel=0.05)
        assert words in said.verdict
    angles = rng().uniform(-3, 3, (100, 7))
    assert "57.3" in probe_units(np.degrees(angles), angles).verdict
    assert not probe_units(np.degrees(angles[:, 0]), angles[:, 0]).ok


def test_a_wrong_unit_is_told_of_predictions_with_errors():
    """An error of half the spread: correlation 1 / sqrt(1.25) = 0.89, and a ratio of 1118; cautious ones have less."""
    gt = hands()
    about = gt - gt.mean(axis=1, keepdims=True)
    error = np.random.default_rng(8).normal(0, about.std() / 2, gt.shape)
    for pred, wanted in ((1000 * (gt + error), 1118), ((gt + error) / 1000, 0.001118)):
        said = probe_units(pred, gt)
        assert said.correlation == pytest.approx(1.25**-0.5, abs=0.02)
        assert said.ratio == pytest.approx(wanted, rel=0.03)
        assert not said.ok
        assert "metres and millimetres" in said.verdict
    for factor in (600, 1400):
        assert probe_units(factor * noisy(gt), gt).ok
    assert probe_units((gt + error) * 10.5, gt).ok


def test_what_is_no_number_is_refused():
    words, gt = ["a"] * 9, np.zeros((9, 3))
    for probe in (probe_units, probe_centering):
        for wrong in (words, [object()] * 9, {"a": 1}, gt + 1j):
            with pytest.raises(UsageError, match="no real numbers"):
                probe(wrong, gt)
    for wrong in ([{"loss": 1.0}] * 5, words, [1j] * 5):
        with pytest.raises(UsageError, match="no real numbers"):
            probe_constant_metric(wrong)
    assert not probe_constant_metric([None] * 5).sure
    for wrong in (5, None):
        with pytest.raises(UsageError, match="one by one"):
            probe_coverage(wrong, 3)
    with pytest.raises(UsageError, match="no real numbers"):
        probe_label_shift(np.full((1, 64, 5), "a"), np.zeros((1, 64), int))


def test_one_unit_is_not_told_whatever_the_error():
    gt = hands()
    for pred in (noisy(gt), gt * 0.8, gt * 3, relative(gt), rng().normal(0, 50, gt.shape)):
        assert probe_units(pred, gt).ok


@pytest.mark.parametrize("probe", [probe_centering, probe_units])
def test_where_there_is_little_to_see_nothing_is_claimed(probe):
    gt, wrong = relative(hands()), 1000 * hands()
    constant = np.broadcast_to(wrong[:1], wrong.shape)
    for pred, truth in (
        (wrong[:7], gt[:7]),
        (constant, gt),
        (np.zeros_like(gt), gt),
        (np.full_like(gt, np.nan), gt),
        (np.full_like(gt, np.inf), gt),
        (wrong, np.zeros_like(gt)),
        (wrong[:0], gt[:0]),
    ):
        said = probe(pred, truth)
        assert (said.ok, said.sure) == (True, False)
        assert said.verdict.startswith("Cannot tell")
    for pred, truth in ((wrong, gt[:5]), (wrong[:, :0], gt[:, :0]), (1.0, 1.0)):
        with pytest.raises(UsageError, match="equal"):
            probe(pred, truth)


def test_samples_with_nan_are_left_out():
    gt = relative(hands())
    pred = noisy(hands())
    pred[3, 2, 1] = np.nan
    said = probe_centering(pred, gt)
    assert (said.ok, said.samples) == (False, 63)


def test_the_manual_shows_what_is_printed(repository):
    gt, ids = hands(), rng().integers(0, 50, (4, 64))
    manual = (repository / "docs/training.md").read_text(encoding="utf-8")
    for said in (
        probe_coverage(range(0, 8332, 4), 8332),
        probe_constant_metric([140.2] + [102.152] * 8),
        probe_label_shift(model(ids, 2), ids),
        probe_centering(noisy(gt), relative(gt)),
        probe_units(noisy(gt) * 1000, gt),
    ):
        assert f"`{said}`" in manual


def test_a_record_is_frozen_and_printed_as_its_verdict():
    said = probe_coverage([0], 1)
    assert f"{said}" == said.verdict == "Each of 1 samples was seen exactly once."
    with pytest.raises(dataclasses.FrozenInstanceError):
        said.ok = False
