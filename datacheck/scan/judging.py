"""Judge the rows of a run: by the rules, against a reference, and without known findings.

A scan and a rescore judge in the same way. They differ in the pairs of samples that a rule may want
to compare: a scan reads them again, a rescore has no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from datacheck.model.sample import Depth
from datacheck.plugins import add_module_folders
from datacheck.rules import rules_for
from datacheck.rules.base import Measure
from datacheck.rules.engine import PairReader, RuleResults, judge
from datacheck.rules.selection import (
    UNREAD,
    Choice,
    choose_rules,
    comparable,
    for_files,
    measures_of,
    without_unread_rule,
)
from datacheck.scan.coverage import ReadCoverage, coverage, notes_with_unread
from datacheck.scan.measurement_settings import MeasurementSettings
from datacheck.scan.prior_results import PriorResults
from datacheck.scan.run_documents import check_crashes
from datacheck.scan.run_state import RunState
from datacheck.sources.lerobot import StepRates


@dataclass(frozen=True, eq=False)
class Criteria:
    """What rows are judged by.

    Args:
        rates: the schema in force, with the step rates of LeRobot datasets.
        level: how deep the scan reads.
        choices: all rules, each with its options, or with the reason why it does not run.
        prior: the reference and the baseline.
        allow_unread: most of the bytes may be in files that are not opened (DC113 is off).
    """

    rates: StepRates
    level: Depth
    choices: Sequence[Choice]
    prior: PriorResults
    allow_unread: bool

    @cached_property
    def measures(self) -> list[Measure]:
        """The measurements that the rules need."""
        return measures_of(self.choices, self.level)

    @cached_property
    def settings(self) -> MeasurementSettings:
        """Everything besides the files' bytes that decides what rows hold."""
        return MeasurementSettings.of(self.rates.schema, self.measures, self.level)


def choose_criteria(
    rates: StepRates,
    level: Depth,
    prior: PriorResults,
    own_modules: Sequence[str] | None,
    *,
    allow_unread: bool,
) -> Criteria:
    """Choose the rules that judge a dataset.

    Args:
        rates: has the schema in force.
        level: how deep the scan reads.
        prior: the reference and the baseline.
        own_modules: folders in which the schema's own checks are found; None: the schema has none
            that may run, and folders of earlier scans in this process stay.
        allow_unread: as in `Criteria`.

    Raises:
        UsageError: an option of a rule is wrong.
    """
    if own_modules is not None:
        add_module_folders(own_modules)
    schema = rates.schema
    choices = choose_rules(schema, rules_for(schema), level)
    return Criteria(rates, level, choices, prior, allow_unread)


@dataclass(frozen=True, eq=False)
class Judged:
    """The judged rows of a run.

    Args:
        results: verdicts, and findings that no baseline knows.
        silenced: what the baseline hides, and which of its entries no longer match anything.
        coverage: how much of the files was read.
    """

    results: RuleResults
    silenced: Sequence[str]
    coverage: ReadCoverage


def judge_run(
    state: RunState, criteria: Criteria, read_pairs: PairReader, rows_of: Path | None
) -> Judged:
    """Judge all rows of a run.

    Args:
        state: the rows.
        criteria: what they are judged by.
        read_pairs: compares the samples that a rule names in pairs.
        rows_of: the earlier run that some rows come from, or None.

    Raises:
        UsageError: a waiver matches no failing sample.
        DamagedRunError: a built-in rule crashes on rows of the earlier run.
    """
    schema = criteria.rates.schema
    choices = [
        for_files(comparable(choice, compared=state.compared)) for choice in criteria.choices
    ]
    unread_options = next(choice.options for choice in choices if choice.rule.code == UNREAD)
    read_coverage = coverage(state, schema, criteria.level, unread_options)
    results = judge(
        state.table,
        schema,
        without_unread_rule(choices, unread=criteria.allow_unread),
        notes_with_unread(state.notes, read_coverage),
        state.crashes,
        criteria.prior.reference,
        read_pairs,
        criteria.rates.of(state.table.files),
    )
    if rows_of is not None:
        check_crashes(results.crashes, state.crashes, rows_of)
    results, silenced = criteria.prior.without_known(results, state.table)
    return Judged(results, silenced, read_coverage)
