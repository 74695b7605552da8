"""Trainings that are random by themselves: what parts by chance is not laid at a switch's door."""

from __future__ import annotations

import json

import pytest

from datacheck.repro.bisect import TrainingCommand, TrainingOutcome, bisect
from datacheck.repro.recorded import Trace
from datacheck.repro.switches import Switch, toggle_caches
from tests.repro.traces import step

SWITCH = Switch("UNUSED", "1", "2")


class Played(TrainingCommand):
    """A training whose runs are played: of each, in their order, from which step on its loss is another."""

    def play(self, bases, trials):
        self.left = {None: list(bases), SWITCH: list(trials)}
        return self

    def run(self, name, turned=None):
        first, mark = self.left[turned].pop(0)
        lines = [
            step(i, **({"loss": mark, "params": mark} if i >= first else {})) for i in range(5)
        ]
        path = self.folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return TrainingOutcome(
            Trace(path),
            {"weights": "w", "held": dict.fromkeys(HELD, MISSING)},
            {"stopped": "at its end"},
        )


MISSING = {"missing": "it is played"}
HELD = (
    "cudnn.benchmark",
    "cudnn.allow_tf32",
    "matmul.allow_tf32",
    "deterministic",
    "attention",
    "threads",
    "workers",
)
PLAIN = (9, "none")


@pytest.fixture
def play(tmp_path):
    def play(bases, trials, **options):
        training = Played(["python"], ["train.py"], {}, 5, 0, tmp_path, [SWITCH]).play(
            bases, trials
        )
        found = bisect(training, only=["UNUSED"], **options)
        (row,) = found.rows
        return found, row, training.left

    return play


def other(first, mark="x"):
    return first, mark


def test_one_trial_that_parts_by_chance_is_not_its_switch(play):
    found, row, _ = play([PLAIN] * 3, [other(2), PLAIN, PLAIN])
    assert row.state == "sometimes"
    assert (row.parted, row.pairs) == (3, 9)
    assert found.code == 1


def test_a_baseline_that_was_equal_by_chance_is_found_to_be_random(play):
    found, row, _ = play([PLAIN, PLAIN, other(2, "z")], [other(2), PLAIN, other(2, "y")])
    assert (found.noise.step, found.noise.parted, found.noise.pairs) == (2, 2, 3)
    assert row.state == "noise"


def test_a_switch_that_parts_in_all_pairs(play):
    found, row, left = play([PLAIN] * 3, [other(1)] * 3)
    assert (row.state, row.step, row.parted, row.pairs) == ("parts", 1, 9, 9)
    assert (found.repeats, left) == (3, {None: [], SWITCH: []})


def test_a_switch_that_makes_a_training_random(play):
    _, row, _ = play([PLAIN] * 3, [other(3, "x"), other(1, "y"), other(2, "z")])
    assert (row.state, row.step) == ("parts", 1)
    assert "With it the training differs from itself, from step 1 on" in row.said


def test_a_switch_that_parts_sooner_than_noise_in_each_pair(play):
    noisy = [other(3, mark) for mark in "abc"]
    _, row, _ = play(noisy, [other(1)] * 3)
    assert (row.state, row.step) == ("steady", 1)
    _, row, _ = play(noisy, [other(1, mark) for mark in "xyz"])
    assert (row.state, row.step) == ("parts", 1)
    _, row, _ = play(noisy, [other(1, "x"), other(3, "y"), other(3, "z")])
    assert row.state == "noise"


def test_equal_runs_prove_little_where_runs_as_it_is_are_often_equal(play):
    some = [PLAIN, other(2), PLAIN]
    _, row, _ = play(some, [PLAIN] * 3)
    assert row.state == "noise"
    assert "differ in 2 of 3 pairs, runs with it in 0 of 3 pairs, which may be chance" in row.said
    _, row, _ = play([*some] * 4, [PLAIN] * 12, repeats=12)
    assert row.state == "steady"


def test_what_is_equal_costs_one_trial(play):
    _, row, left = play([PLAIN] * 3, [PLAIN] * 3)
    assert (row.state, row.parted, row.pairs) == ("same", 0, 2)
    assert [len(runs) for runs in left.values()] == [1, 2]


@pytest.mark.parametrize(
    ("words", "turned"),
    [
        ("train.py data.use_cached=true lr=1", "train.py data.use_cached=false lr=1"),
        ("train.py --use-cache 0 --lr 1", "train.py --use-cache 1 --lr 1"),
        ("train.py --cached=True", "train.py --cached=False"),
        ("train.py --no-cache --lr 1", "train.py --lr 1"),
        ("train.py --no-cache", "train.py"),
        ("train.py --cache-dir /data cache=ram", "train.py --cache-dir /data cache=ram"),
        ("cache.py lr=1", "cache.py lr=1"),
    ],
)
def test_words_that_turn_a_cache_on_or_off(words, turned):
    assert toggle_caches(words.split()) == turned.split()


def test_a_cache_is_turned_by_itself(tmp_path):
    class Said(Played):
        def run(self, name, turned=None):
            self.left.setdefault(turned, [(1, "x")] * 3 if turned is not None else [PLAIN] * 3)
            return super().run(name, turned)

    training = Said(["python"], ["train.py", "data.use_cached=true"], {}, 5, 0, tmp_path).play(
        [PLAIN] * 3, []
    )
    (row,) = bisect(training, only=["cache"]).rows
    assert (row.state, row.step, row.old, row.new) == (
        "parts",
        1,
        "data.use_cached=true",
        "data.use_cached=false",
    )
    (row,) = bisect(
        Played(["python"], ["train.py"], {}, 5, 0, tmp_path).play([PLAIN] * 2, []), only=["cache"]
    ).rows
    assert (row.state, row.said) == (
        "not tried",
        "no word of the command line turns a cache on or off",
    )
