"""How often each class stands in a sample."""

from __future__ import annotations

from collections.abc import Iterable
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


def declared(spec: FieldSpec) -> list[int]:
    """Return the declared classes but for what is ignored; none where nobody knows their names, or they have no end."""
    said: Iterable[int] | int | Range | None = spec.classes
    if isinstance(said, Range):
        low, high = int(said.low or 0), -1 if said.high is None else int(said.high)
        said = range(low, high + 1) if high - low < _NAMED else ()
    elif isinstance(said, int):
        said = range(said) if said <= _NAMED else ()
    return [c for c in said or () if c not in spec.ignore]


def class_names(spec: FieldSpec) -> list[str]:
    """Return what to call each of the 64 places: the declared classes that share it."""
    classes = declared(spec)
    found = [[str(c) for c in classes if c % PLACES == place] for place in range(PLACES)]
    return [" or ".join(words[:3]) or str(place) for place, words in enumerate(found)]
