"""How often each class stands in a sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.rules.base import Columns, measure
from datacheck.rules.histograms import distinct
from datacheck.rules.measures import is_numeric, of_role
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec, Range
from datacheck.table import Measured

Array = np.ndarray[Any, Any]

PLACES = 64
_NAMED = 10_000  # of a wider range of classes nobody knows the names


@measure("shares", applies=of_role("class"), uses=("ignore",))
def shares(column: Column, spec: FieldSpec) -> Columns:
    """How often each class stands in a sample: `classes` (64), class numbers modulo 64; ``ignore`` left out.

    Classes that share a place are added up: whatever differs between two such counts differs between the classes.
    """
    if not is_numeric(column):
        return {}
    values, often, lengths = distinct(column)
    with np.errstate(invalid="ignore"):
        known: Array = np.abs(values.astype(np.float64)) < 2.0**31
        labels = np.where(known, values, 0).astype(np.int64)
    for ignored in spec.ignore:
        known &= labels != ignored
    slots = np.repeat(np.arange(len(lengths)), lengths) * PLACES + labels % PLACES
    counts = np.bincount(slots[known], often[known], minlength=len(lengths) * PLACES).reshape(-1, PLACES)
    return {"classes": Measured(counts.astype(np.int32), counts.sum(axis=1) > 0)}


def class_names(spec: FieldSpec) -> list[str]:
    """Return what to call each of the 64 places: the declared classes that share it."""
    said = spec.classes
    declared = said if isinstance(said, tuple) else range(said) if isinstance(said, int) else range(0)
    if isinstance(said, Range) and (said.high or 0) - (said.low or 0) < _NAMED:
        declared = range(int(said.low or 0), int(said.high or 0) + 1)
    found = [[str(c) for c in declared if c % PLACES == place] for place in range(PLACES)]
    return [" or ".join(words[:3]) or str(place) for place, words in enumerate(found)]
