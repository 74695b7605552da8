"""Rules about masks: neither empty nor full, and of the declared share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Failure, Level, Severity
from datacheck.rules.base import Case, Columns, counted, measure, rule, those
from datacheck.rules.measures import flat, is_numeric, of_role, one_of, reduced
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.table import Measured, Rows

Array = np.ndarray[Any, Any]


@measure("coverage", applies=of_role("mask"), uses=("ignore",))
def coverage(column: Column, spec: FieldSpec) -> Columns:
    """How much of a mask is set: `set`, the share of its values that are not 0, of those not ignored."""
    if not is_numeric(column):
        return {}
    values, lengths = flat(column)
    on = values != 0
    count = lengths
    if spec.ignore:
        ignored = one_of(values, spec.ignore)
        on &= ~ignored
        count = lengths - reduced(np.add, ignored, lengths)
    share = reduced(np.add, on, lengths) / np.maximum(count, 1)
    return {"set": Measured(share.astype(np.float64), count > 0)}


@rule(
    "DC407", "degenerate-mask", Severity.WARNING, Level.SAMPLE, measures=(coverage,),
    needs=("DC109", "DC122", "DC221"), applies=of_role("mask"), defaults={"most": 0.5},
)  # fmt: skip
def degenerate_mask(rows: Rows, case: Case) -> Iterator[Failure]:
    """A mask is empty or full, or covers another share than declared.

    What:
        The share of values that are set lies in ``share``; where none is declared, a mask is neither empty nor full.
    Why it matters:
        A loss over an empty mask is 0 / 0; a full one selects what it should leave out.
    Measure:
        Share of values that are not 0, without those in ``ignore``.
    When it is wrong:
        Empty masks have a meaning (no object in view): declare ``share: 0..1``.
    Options:
        most: where more than this share of all masks is empty, or full, that is how the data are (0.5).
    Bad::

        schema: {fields: {m: {role: mask, shape: [P]}}}
        samples:
          - {n: 3, m: {choice: [40], among: [0, 1]}}
          - {m: {full: [40], value: 0}}

    Good::

        schema: {fields: {m: {role: mask, shape: [P]}}}
        samples:
          - {n: 4, m: {choice: [40], among: [0, 1]}}

    Fix:
        Render the masks again, or leave the samples out.
    Reference:
        SceneLeapUltra puts zeros where the mesh of an object is empty: its mask then selects points that are none.
    """
    known = rows.measured("set")
    if not known.any():
        return
    share, allowed = rows["set"], case.spec.share
    if allowed is not None:
        low, high = allowed.low if allowed.low is not None else 0.0, allowed.high if allowed.high is not None else 1.0
        odd = known & ((share < low) | (share > high))
        if odd.any():
            yield _odd(odd, share, f"; {allowed} is allowed", {"share": str(allowed)}, "share")
        return
    for kind, value in (("empty", 0.0), ("full", 1.0)):
        odd = known & (share == value)
        if 0 < odd.sum() <= float(case.options["most"]) * known.sum():
            yield _odd(odd, share, f", {counted(int(odd.sum()), 'mask')} of {int(known.sum()):,}", {}, kind)


def _odd(odd: Array, share: Array, rest: str, expected: dict[str, Any], kind: str) -> Failure:
    low, high = 100 * float(share[odd].min()), 100 * float(share[odd].max())
    span = f"{low:.3g} %" if low == high else f"{low:.3g} to {high:.3g} %"
    return Failure(
        odd,
        f"{those(odd, 'have')} masks of which {span} is set{rest}.",
        measured={"low": low / 100, "high": high / 100},
        expected=expected,
        fix="Render the masks again, or declare share: low..high.",
        kind=kind,
        order=np.abs(share - 0.5),
    )
