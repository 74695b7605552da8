"""The rows that a judge sees together: those of one split, of one frame rate, or of all splits.

`RowGroups` cuts a table once and yields the groups of a rule. A dataset may have more splits than
the rules could be called for, so the smallest splits form one group. `ReferenceRows` selects the
same rows of an earlier run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from datacheck.model.table import CHECKED, Note, Rows, Table, Texts
from datacheck.rules.base import Rule
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

# Most fields times splits to judge separately: each is one call of each rule, however few rows.
_MAX_JUDGE_CALLS = 20_000
_SMALL_SPLITS = "all others"  # the name under which the smallest splits are judged as one
_NO_RATE = "the dataset of their file does not tell its steps a second"


@dataclass(frozen=True, eq=False)
class RowGroup:
    """Rows that a judge sees together.

    Args:
        split: their split; "" for a rule over all splits.
        schema: the schema in force for them.
        rows: int64: row numbers in the table.
        unjudged: why the rule cannot judge them; "" where it can.
    """

    split: str
    schema: Schema
    rows: Array
    unjudged: str = ""


class RowGroups:
    """The rows and the notes of a table, grouped by split.

    Args:
        table: all rows of a run.
        schema: the schema in force.
        notes: the listing's notes; their splits count even without a row.
        rates: as in `datacheck.rules.engine.judge`.

    Attributes:
        merged: number of splits that are judged as one.
    """

    def __init__(
        self, table: Table, schema: Schema, notes: Sequence[Note], rates: Array | None
    ) -> None:
        every_split = _rows_by_split(table, notes)
        smallest = _smallest_splits(every_split, schema)
        self.merged = len(smallest)
        self._schema = schema
        self._rates = rates
        self._all_rows = np.arange(len(table), dtype=np.int64)
        self._rows = {split: rows for split, rows in every_split.items() if split not in smallest}
        if smallest:
            merged_rows = np.concatenate([every_split[split] for split in smallest])
            self._rows[_SMALL_SPLITS] = np.sort(merged_rows)
        self._schemas = {split: schema.for_split(split) for split in self._rows}
        self._notes: dict[tuple[str, str], list[Note]] = {}
        self._notes_of_all_splits: dict[str, list[Note]] = {}
        for note in notes:
            split = _SMALL_SPLITS if note.split in smallest else note.split
            self._notes.setdefault((note.code, split), []).append(note)
            self._notes_of_all_splits.setdefault(note.code, []).append(note)

    def of(self, rule: Rule) -> Iterator[RowGroup]:
        """Yield the groups of a rule; splits to which it does not apply are left out."""
        if rule.span == "all":
            yield RowGroup("", self._schema, self._all_rows)
            return
        for split, rows in self._rows.items():
            whole_split = RowGroup(split, self._schemas[split], rows)
            for group in self._by_rate(whole_split) if rule.paced else [whole_split]:
                if not rule.unless(group.schema):
                    yield group
                elif not rule.unless(whole_split.schema):
                    yield replace(group, unjudged=_NO_RATE)

    def notes(self, rule: Rule, split: str) -> Sequence[Note]:
        """Return the notes with a rule's code, in one split or for a rule over all splits in all."""
        if rule.span == "all":
            return self._notes_of_all_splits.get(rule.code, ())
        return self._notes.get((rule.code, split), ())

    def _by_rate(self, group: RowGroup) -> Iterator[RowGroup]:
        """Yield the rows of a group that share a rate, with the schema at that rate."""
        schema = group.schema
        if self._rates is None or schema.episode is None or not len(group.rows):
            yield group
            return
        rates, numbers = np.unique(self._rates[group.rows], return_inverse=True)
        for number, rate in enumerate(rates.tolist()):
            episode = schema.episode.model_copy(update={"fps": None if math.isnan(rate) else rate})
            schema_at_rate = schema.model_copy(update={"episode": episode})
            yield RowGroup(group.split, schema_at_rate, group.rows[numbers == number])


def _rows_by_split(table: Table, notes: Sequence[Note]) -> dict[str, Array]:
    rows = {note.split: np.zeros(0, np.int64) for note in notes}
    rows |= dict(Texts.of(table.splits).places())
    return {split: rows[split] for split in sorted(rows)}


def _smallest_splits(rows_by_split: Mapping[str, Array], schema: Schema) -> set[str]:
    """Return the smallest splits, those beyond the number that is judged separately."""
    most = max(1, _MAX_JUDGE_CALLS // max(1, len(schema.fields)))
    if len(rows_by_split) <= most:
        return set()
    # The schema has settings of their own for these, so they are merged last.
    named = {condition.removeprefix("split=") for condition in schema.when}
    if schema.tokenizer is not None:
        named |= schema.tokenizer.lengths.keys()
    order = sorted(
        rows_by_split, key=lambda split: (split not in named, -len(rows_by_split[split]), split)
    )
    smallest = set(order[most - 1 :])
    # A split of the dataset may have the name of the merged ones; its rows join them.
    return smallest | ({_SMALL_SPLITS} & rows_by_split.keys())


class ReferenceRows:
    """The rows of an earlier run, selected as a rule of the new run selects its own.

    Args:
        table: all rows of the earlier run.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._splits = np.array(table.splits, dtype=object)

    def rows(self, rule: Rule, name: str, split: str) -> Rows:
        """Return the counterparts of a judge's rows: the same split, with the same field."""
        mask = np.ones(len(self._table), bool) if rule.span == "all" else self._splits == split
        if rule.sees == "checked":
            mask &= self._table.status == CHECKED
        if rule.per == "field":
            mask &= self._table.present(name)
        return self._table.rows(np.flatnonzero(mask), name)
