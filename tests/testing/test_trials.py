"""Every trial, reduced: clean data raise nothing, what is planted is found. In full: scripts/bench/detection.py."""

import pytest

from datacheck.rules import catalogue
from datacheck.testing.faults import FAULTS
from tests.trials import trials
from tests.trials.run import clean, planted

EVERY = pytest.mark.parametrize("trial", trials(), ids=lambda trial: f"{trial.code}-{trial.name}")


@EVERY
def test_clean_data_raise_no_error_and_no_warning(trial):
    assert [clean(trial, seed) for seed in (101, 102)] == [(), ()]


@EVERY
def test_what_is_planted_is_found_and_its_cause_is_named(trial):
    assert any(size.documented for size in trial.sizes)
    for size in trial.sizes:
        if size.documented:
            outcome = planted(trial, size, 103)
            assert (outcome.found, outcome.named) == (outcome.wanted, True), size.name


def test_trials_and_faults_name_rules_that_exist():
    assert {t.code for t in trials()} | {f.code for f in FAULTS} <= set(catalogue())
    assert len({(t.code, t.name) for t in trials()}) == len(trials())
