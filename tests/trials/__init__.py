"""Trials of every rule: faults of known size in data made in memory, for measuring recall and false alarms.

Like all generators of test data they import no rule and no threshold.
"""

from __future__ import annotations

from datacheck.plugins import discover
from tests.trials.base import Trial


def trials() -> list[Trial]:
    """Return every trial, by code and name."""
    return sorted(discover("tests.trials", Trial), key=lambda trial: (trial.code, trial.name))
