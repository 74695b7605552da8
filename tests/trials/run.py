"""Run a trial once: what a scan says of clean data and of the same data with the fault planted."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from datacheck.model.finding import Finding, Severity
from tests.trials.base import Samples, Size, Trial
from tests.trials.memory import scan_pieces, schema_of


@dataclass(frozen=True)
class Outcome:
    """What came of one run of a trial.

    Args:
        planted: how many samples were broken; 0 for a fault of the dataset as a whole.
        found: how many of them the rule names; of a fault of the dataset 1 where the rule fails.
        wanted: `planted`, or 1 for a fault of the dataset.
        named: the right cause is named (True where none is promised).
        wrongly: codes of errors and warnings that are not explained by the fault.
        untouched: samples that were not broken but are named by the rule.
    """

    planted: int
    found: int
    wanted: int
    named: bool
    wrongly: tuple[str, ...]
    untouched: int


def _generator(trial: Trial, seed: int, part: int) -> np.random.Generator:
    return np.random.default_rng([seed, part, zlib.crc32(trial.name.encode())])


def _told(trial: Trial, samples: Samples, seed: int) -> tuple[list[Finding], list[str]]:
    """Return findings and keys of the rows that they number."""
    schema = schema_of(trial.schema)
    reference = None if trial.reference is None else trial.reference(_generator(trial, seed, 2))
    found = scan_pieces(schema, samples, reference=reference)
    return found.findings, sorted(piece.key for _, piece in samples)


def clean(trial: Trial, seed: int) -> tuple[str, ...]:
    """Return the codes of errors and warnings on the clean data of a trial, sorted."""
    findings, _ = _told(trial, trial.clean(_generator(trial, seed, 0)), seed)
    return tuple(
        sorted({f"{f.code} {f.severity}" for f in findings if f.severity is not Severity.INFO})
    )


def planted(trial: Trial, size: Size, seed: int) -> Outcome:
    """Return what a scan says of a trial's data with the fault planted.

    Args:
        trial: what is broken.
        size: how much.
        seed: 0 or more; of data and fault.
    """
    samples = trial.clean(_generator(trial, seed, 0))
    keys = set(trial.plant(samples, size.value, _generator(trial, seed, 1)))
    findings, order = _told(trial, samples, seed)
    cause = trial.cause(size.value) if callable(trial.cause) else trial.cause
    return outcome(findings, order, keys, trial.code, cause, trial.also)


def outcome(
    findings: Sequence[Finding],
    order: Sequence[str],
    keys: Collection[str],
    code: str,
    cause: str = "",
    also: Collection[str] = (),
) -> Outcome:
    """Return how findings answer a planted fault.

    Args:
        findings: what a scan says.
        order: the key of each row that a finding may name.
        keys: the samples that were broken; none for a fault of the dataset as a whole.
        code: the rule that must name them.
        cause: `Cause.kind` or `Failure.kind` that must be named, "" where none is promised.
        also: codes that may rightly be raised with it.
    """
    broken = set(keys)
    mine = [f for f in findings if f.code == code]
    named = {order[int(row)] for f in mine for row in f.rows}
    others = {
        f.code
        for f in findings
        if f.code != code and f.code not in also and f.severity is not Severity.INFO
    }
    return Outcome(
        len(broken),
        len(broken & named) if broken else int(bool(mine)),
        len(broken) or 1,
        not cause or any(_names(f, cause) for f in mine),
        tuple(sorted(others)),
        len(named - broken) if broken else 0,
    )


def _names(finding: Finding, cause: str) -> bool:
    """Tell whether a finding names a cause; one of several that fit equally well is named too."""
    said = finding.cause
    if said is None:
        return finding.kind == cause
    return cause in {said.kind, finding.kind} or any(cause in other for other in said.alternatives)
