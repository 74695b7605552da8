"""Which samples of a run are drawn: the worst of each finding; and whose joints are laid over the mean of which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from datacheck.finding import Finding, Severity
from datacheck.preview.numbers import Array
from datacheck.rules.base import counted
from datacheck.schema.model import Schema
from datacheck.table import CHECKED, Table, Texts

OF_FINDING, IN_ALL = 12, 60
FIT, FAILING = 48, 24  # samples whose joints are read


@dataclass(eq=False)
class Chosen:
    """A sample that is to be drawn, and the fields that its findings are about."""

    key: str
    split: str
    file: str
    why: str = ""
    first: list[str] = field(default_factory=list)


def choose(findings: Sequence[Finding], table: Table) -> tuple[list[Chosen], dict[str, list[int]], list[str]]:
    """Return the samples to draw: the worst of each finding, then the second of each, ...

    Returns:
        The samples, of each finding (by id) the places of its own among them, and what is to be said.
    """
    chosen: list[Chosen] = []
    at: dict[int, int] = {}
    places: dict[str, list[int]] = {}
    wanted = [worst_of(finding) for finding in findings]
    for rank in range(OF_FINDING):
        for finding, rows in zip(findings, wanted, strict=True):
            if rank >= len(rows):
                continue
            row = rows[rank]
            if row not in at and len(chosen) == IN_ALL:
                continue
            number = at.setdefault(row, len(chosen))
            if number == len(chosen):
                chosen.append(_chosen(table, row))
            mine = places.setdefault(finding.id, [])
            if number not in mine:
                mine.append(number)
            chosen[number].first += [name for name in finding.fields if name not in chosen[number].first]
    missing = len({row for rows in wanted for row in rows} - at.keys())
    said = [f"{counted(missing, 'sample')} not drawn: at most {IN_ALL} are"] if missing else []
    return chosen, places, said


def worst_of(finding: Finding) -> list[int]:
    """Return the rows of a finding's worst samples, then some more of it evenly."""
    rows, many = finding.rows, min(OF_FINDING, len(finding.rows))
    spread = [int(rows[place * len(rows) // many]) for place in range(many)]
    return list(dict.fromkeys([*finding.worst, *spread]))[:OF_FINDING]


def _chosen(table: Table, row: int) -> Chosen:
    why = "" if table.status[row] == CHECKED else table.reasons[row] or "it could not be read"
    return Chosen(table.keys[row], table.splits[row], table.files[row], why)


# -------------------------------------------------------------------------------------------------- joints


@dataclass(frozen=True)
class Overlaid:
    """Joints that are laid over one another.

    Args:
        field: of role joints.
        failing: samples of findings about it: (round, rule, sample), first the worst of each finding.
        fit: others, spread evenly over the table; every fourth comes first, so that a part of them is spread, too.
    """

    field: str
    failing: Sequence[tuple[int, str, Chosen]]
    fit: Sequence[Chosen]


def overlaid(findings: Sequence[Finding], table: Table, valid: Array, schema: Schema) -> Iterator[Overlaid]:
    """Yield of each field of joints with a finding what is laid over what.

    Args:
        valid: bool (rows): fit for training.
    """
    for name, _ in schema.of_role("joints"):
        about = [one for one in findings if name in one.fields and len(one.rows) and one.severity != Severity.INFO]
        ranks = [(rank, one.code, row) for one in about for rank, row in enumerate(worst_of(one))]
        first: dict[int, tuple[int, str]] = {}
        for rank, code, row in sorted(ranks, key=lambda place: place[0]):
            if table.status[row] == CHECKED:
                first.setdefault(row, (rank, code))
        failing = list(first.items())[:FAILING]
        if not failing:
            continue
        fit = valid & _of_splits(table, {table.splits[row] for row, _ in failing})
        for one in about:
            fit[one.rows] = False
        rows = np.flatnonzero(fit)
        many = min(FIT, len(rows))
        spread = rows[np.arange(many) * len(rows) // max(many, 1)]
        yield Overlaid(
            name,
            [(rank, code, _chosen(table, row)) for row, (rank, code) in failing],
            [_chosen(table, int(row)) for start in range(4) for row in spread[start::4]],
        )


def _of_splits(table: Table, splits: set[str]) -> Array:
    """Return bool (rows): of one of these splits."""
    texts = Texts.of(table.splits)
    return np.array([word in splits for word in texts.words], bool)[texts.rows]
