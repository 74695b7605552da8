"""Draws samples of a cache: the fields as they are after the transforms."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import numpy as np

from datacheck.cache import Cache
from datacheck.errors import CorruptionError, DatacheckError
from datacheck.model.sample import ArraySpec
from datacheck.preview.pictures import POINTS, SAMPLE_BYTES, PreviewBuilder, draw_within
from datacheck.rules.base import pluralize
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

# For all samples. A started field is read to its end; one of 100,000 shards takes some seconds to
# open.
_CACHE_SECONDS = 10.0
_READ = 64_000_000  # bytes of values of one sample
_NO_TIME = "there was no more time"
# attributes that the cache stores for its fields
_KEPT_ATTRS = ("role", "unit", "frame", "columns", "order", "skeleton")


def samples_of_cache(
    cache: Cache, declared: object, numbers: Iterable[int], seconds: float = _CACHE_SECONDS
) -> tuple[list[dict[str, Any]], list[str], list[CorruptionError]]:
    """Return pictures of samples of a cache.

    Args:
        cache: the cache.
        declared: the schema that its data was read with, from its provenance.
        numbers: of served samples.
        seconds: after this, no further field is read.

    Returns:
        For each sample, an entry as in previews.json; notes on samples without pictures; the damage
        found.
    """
    numbers, schema, end = list(numbers), _schema(cache, declared), time.monotonic() + seconds
    samples = []
    damage = []
    late = 0
    for number, key in zip(numbers, cache.keys(numbers), strict=True):
        fields = []
        why = ""
        if time.monotonic() > end:
            late, why = late + 1, _NO_TIME
        else:
            try:
                fields = _draw_cached(cache, number, schema, end)
            except DatacheckError as error:
                why = f"it could not be read: {error}"
                damage += [error] if isinstance(error, CorruptionError) else []
        samples.append(
            {"key": key, "split": "", "fields": fields, "left_out": [], "why": why[:300]}
        )
    notes = (
        [f"{pluralize(late, 'sample')} not drawn: reading may take {seconds:g} s in all"]
        if late
        else []
    )
    return samples, notes, damage


def _schema(cache: Cache, declared: object) -> Schema:
    """Return the schema of the fields after the transforms; parts that are invalid are left out."""
    declaration = declared if isinstance(declared, Mapping) else {}
    declared_fields = declaration.get("fields")
    declared_fields = (
        {name: spec for name, spec in declared_fields.items() if isinstance(spec, Mapping)}
        if isinstance(declared_fields, Mapping)
        else {}
    )
    fields = {
        name: _declared(spec, declared_fields.get(name, {})) for name, spec in cache.fields.items()
    }
    about = {"datacheck": 1, "name": "cache", "samples": {"files": "*"}}
    full_schema = (
        about
        | {"fields": declared_fields | fields}
        | {name: declaration[name] for name in ("episode",) if name in declaration}
    )
    for candidate in (full_schema, about | {"fields": fields}, about):
        try:
            return Schema.model_validate(candidate)
        except (ValueError, TypeError, DatacheckError):
            continue
    raise AssertionError  # the last one holds only constants


def _declared(spec: ArraySpec, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field as the cache stores it: transforms may change its shape, unit or frame."""
    stored_attributes = {name: spec.attrs[name] for name in _KEPT_ATTRS if name in spec.attrs}
    replaced = {
        *_KEPT_ATTRS,
        "shape",
        "dtype",
        *({"up"} if before.get("frame") != stored_attributes.get("frame") else ()),
    }
    unchanged = {name: value for name, value in before.items() if name not in replaced}
    if spec.kind != "array":
        return unchanged | stored_attributes
    named = spec.dim if spec.dim is None or not spec.dim.startswith("fields.") else "N"
    return (
        unchanged | stored_attributes | {"shape": [*([] if named is None else [named]), *spec.item]}
    )


def _draw_cached(cache: Cache, number: int, schema: Schema, end: float) -> list[dict[str, Any]]:
    """Return the pictures of one sample, and notes on fields without one.

    Raises:
        DatacheckError: the sample cannot be read.
    """
    values, notes = _values(cache, number, end)
    drawn = draw_within(PreviewBuilder(values, schema, points=POINTS), SAMPLE_BYTES)
    notes |= dict.fromkeys(drawn["left_out"], "no room for its picture in this page")
    return [
        *drawn["fields"],
        *({"field": name, "kind": "note", "about": about} for name, about in notes.items()),
    ]


def _values(cache: Cache, number: int, end: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of a sample by field, and notes.

    Of long axes only the first rows are read, the same number for all fields of an axis.
    """
    values: dict[str, Any] = {}
    notes: dict[str, str] = {}
    sample_index = np.array([number])
    axes = {spec.dim: 0 for spec in cache.fields.values()}
    for spec in cache.fields.values():
        axes[spec.dim] += spec.item_bytes
    room = _READ // max(1, len(axes))
    for name, spec in cache.fields.items():
        if time.monotonic() > end:
            notes[name] = _NO_TIME
            continue
        present = cache.present(name, sample_index)
        if present is not None and not present[0]:
            continue
        rows = 1 if spec.dim is None else int(cache.lengths(spec.dim, sample_index)[0])
        read = int(min(rows, room / axes[spec.dim] if axes[spec.dim] else inf))
        if read < rows and (spec.kind != "array" or not read):
            notes[name] = f"{rows * spec.item_bytes:,} bytes: too large to be drawn here"
            continue
        values[name] = _read_field(cache, name, spec, sample_index, read if read < rows else None)
        if read < rows:
            notes[str(spec.dim)] = f"the first {read:,} of {rows:,} rows are drawn"
    return values, notes


def _read_field(
    cache: Cache, name: str, spec: ArraySpec, sample_index: Array, rows: int | None
) -> Any:
    """Return a field of one sample: its first `rows` rows, or all for None."""
    if spec.kind != "array":
        return cache.texts(name, sample_index)[0]
    if spec.dim is None:
        return cache.gather(name, sample_index)[0]
    if rows is None:
        return cache.gather_ragged(name, sample_index)[0]
    return cache.gather_steps(name, sample_index, np.zeros(1, np.int64), np.arange(rows), "edge")[0]
