"""Many parsed JSON records at once to columns: what `FieldMap.of_record` makes of them one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.sample import Column
from datacheck.schema.model import FieldSpec
from datacheck.sources.fields import FieldMap
from datacheck.sources.values import cast_all, is_rows

Record = dict[str, Any]
Columns = dict[str, Column]


def grouped(fields: FieldMap, records: Sequence[Record]) -> Iterator[tuple[list[int] | None, Columns | None]]:
    """Yield (positions, columns) for every group of records whose fields are of one signature.

    Args:
        fields: which key is which field.
        records: parsed objects.

    Yields:
        The positions within `records` (None: all of them), ascending, and their columns by field in name order. None
        for columns: these must be read one by one, because they hold lists of numbers, or what no column can hold.
    """
    specs, values = {}, {}
    try:
        for name, spec, found in fields.of_records(records):
            specs[name], values[name] = spec, found
    except FormatError:
        yield list(range(len(records))), None
        return
    kinds = [list(map(type, values[name])) for name in sorted(values)]
    if all(len(set(kind)) == 1 for kind in kinds):
        yield None, _columns(specs, values)
        return
    together: dict[tuple[type, ...], list[int]] = {}
    for place, kind in enumerate(zip(*kinds, strict=True)):
        together.setdefault(kind, []).append(place)
    for places in together.values():
        yield places, _columns(specs, {name: [found[i] for i in places] for name, found in values.items()})


def _columns(specs: dict[str, FieldSpec], values: dict[str, list[Any]]) -> Columns | None:
    """Return the columns of values that are of one type for each field; fields that are None throughout are absent."""
    columns = {}
    for name in sorted(values):
        found, spec = values[name], specs[name]
        if found[0] is None:
            continue
        if isinstance(found[0], list) and is_rows(spec):
            return None
        try:
            column = _column(found, spec)
        except (FormatError, OverflowError, TypeError):
            return None
        if column is None:
            return None
        columns[name] = column
    return columns


def _column(values: list[Any], spec: FieldSpec) -> Column | None:
    if isinstance(values[0], bool | int | float) and not spec.is_text:
        dtype = {bool: np.bool_, int: np.int64, float: np.float64}[type(values[0])]
        array = cast_all(np.array(values, dtype=dtype), spec)
        return None if array is None else Column(array)
    return Column.of(values)
