"""Rules against another run of the same schema, sample by sample: what was added, removed or changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from datacheck.finding import Failure, Level, Severity
from datacheck.rules.base import Case, counted, rule
from datacheck.rules.content import content
from datacheck.rules.measures import form
from datacheck.table import Rows

Array = np.ndarray[Any, Any]


@rule(
    "DC901", "version-change", Severity.INFO, Level.DATASET, per="sample", measures=(form, content), span="all",
    sees="all", compares=True, defaults={"removed": 0.05},
)  # fmt: skip
def version_change(rows: Rows, case: Case) -> Iterator[Failure]:
    """The dataset is not the one of the reference run.

    What:
        Samples that are new, gone, or hold something else under the same key; fields that appeared, vanished, or have
        another dtype or item shape.
    Why it matters:
        Results of two versions are not comparable, and nobody remembers which one a model has seen.
    Measure:
        Keys; the digest of the content (as DC801: points in any order, of episodes the actions); dtypes and axes
        behind the first.
    When it is wrong:
        Never; it tells what changed. Keys hold the path: a moved folder makes every sample new.
    Options:
        removed: share of the reference's samples that may be gone before it is a warning (0.05).
    Bad::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}}}
        samples:
          - {key: a, xyz: {box: [50, 3]}}
          - {key: b, xyz: {box: [50, 3]}}
        reference:
          - {key: a, xyz: {box: [50, 3]}}

    Good::

        schema: {fields: {xyz: {role: points, shape: [P, 3]}}}
        samples:
          - {key: a, xyz: {box: [50, 3]}}
        reference:
          - {key: a, xyz: {box: [50, 3]}}

    Fix:
        Record the version, and name it with every result.
    Reference:
        DVC and lakeFS version files by digest; neither says which samples differ.
    """
    before = case.reference
    if before is None:
        return
    yield from _samples(rows, before, float(case.options["removed"]))
    for name in sorted(case.schema.stored):
        told = [_form(side, name) for side in (before, rows)]
        if told[0] != told[1] and len(rows) and len(before):
            text = f"{name} was {' and '.join(told[0]) or 'absent'}, it is {' and '.join(told[1]) or 'absent'}."
            yield Failure(
                np.zeros(len(rows), bool),
                text,
                measured={"before": told[0], "now": told[1]},
                fix="Convert one of the versions, or say in the schema which one is meant.",
                kind="form",
                extra=(name,),
            )


def _samples(rows: Rows, before: Rows, most: float) -> Iterator[Failure]:
    then = dict(zip(before.keys, range(len(before)), strict=True))
    at = np.array([then.pop(key, -1) for key in rows.keys], dtype=np.int64)
    gone = sorted(then)
    fix = "Record the version, and name it with every result."
    added = at < 0
    if added.any():
        text = f"{counted(int(added.sum()))} not in the reference."
        yield Failure(added, text, measured={"added": int(added.sum())}, fix=fix, kind="added")
    if gone:
        share = len(gone) / len(before)
        text = f"{len(gone):,} of {counted(len(before))} of the reference {'are' if len(gone) > 1 else 'is'} gone"
        yield Failure(
            np.zeros(len(rows), bool),
            f"{text} ({share:.1%}), such as {gone[0]}; {most:.1%} may be.",
            measured={"removed": len(gone), "of": len(before)},
            expected={"removed": most},
            severity=Severity.WARNING if share > most else None,
            fix="Find out why they are gone, then record the version.",
            kind="removed",
        )
    changed = np.zeros(len(rows), bool)
    both = rows.measured("content") & ~added
    both[both] &= before.measured("content")[at[both]]
    if both.any():
        changed[both] = rows["content"][both] != before["content"][at[both]]
    if changed.any():
        text = f"{int(changed.sum()):,} of {counted(int(both.sum()))} under the same key hold something else."
        yield Failure(changed, text, measured={"changed": int(changed.sum())}, fix=fix, kind="changed")


def _form(rows: Rows, name: str) -> list[str]:
    """Return the dtypes and item shapes that a field has, sorted: ``float32 [*, 3]``."""
    present = rows.measured(f"{name}:dtype", f"{name}:ndim")
    if not present.any():
        return []
    ndim, dtype = rows[f"{name}:ndim"][present], rows[f"{name}:dtype"][present]
    dims = rows[f"{name}:dims"][present] if f"{name}:dims" in rows else np.zeros((len(ndim), 0), np.int64)
    dims = np.where(np.arange(dims.shape[1])[None, :] < ndim[:, None], dims, -1)
    words, number = np.unique(dtype.astype(str), return_inverse=True)
    kinds = np.unique(np.column_stack([number.reshape(-1), ndim, dims[:, 1:]]), axis=0)
    return sorted(_shape(str(words[word]), axes, sizes) for word, axes, *sizes in kinds.tolist())


def _shape(word: str, axes: int, sizes: list[int]) -> str:
    return f"{word} [{', '.join(['*', *map(str, sizes[: axes - 1])])}]" if axes > 0 else word
