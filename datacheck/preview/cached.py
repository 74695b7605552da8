"""The pictures of samples of a cache: what a training is given, so after the transforms of the build.

What is read is checked against its digests, and nothing of it is parsed but JSON: so it is drawn here, in no child.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import numpy as np

from datacheck.cache import Cache
from datacheck.errors import CorruptionError, DatacheckError
from datacheck.preview.reading import fitting
from datacheck.preview.run import POINTS, SAMPLE_BYTES
from datacheck.preview.sample import Sitter
from datacheck.rules.base import counted
from datacheck.sample import ArraySpec
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]

_SECONDS = 10.0  # for all samples; a field that has begun is read: of 100,000 shards each takes some seconds to open
_READ = 64_000_000  # bytes of values of one sample
_LATE = "there was no more time"
_CARRIED = ("role", "unit", "frame", "columns", "order", "skeleton")  # what the fields of a cache say of themselves


def of_cache(
    cache: Cache, declared: object, numbers: Iterable[int], seconds: float = _SECONDS
) -> tuple[list[dict[str, Any]], list[str], list[CorruptionError]]:
    """Return pictures of samples.

    Args:
        cache: whose.
        declared: the schema that its data were read with, as `about` gives it.
        numbers: of samples that are served.
        seconds: after which no further field is read.

    Returns:
        Of each sample what previews.json has of one; what is to be said of those without pictures; what is damaged.
    """
    numbers, schema, end = list(numbers), _schema(cache, declared), time.monotonic() + seconds
    samples, damage, late = [], [], 0
    for number, key in zip(numbers, cache.keys(numbers), strict=True):
        fields, why = [], ""
        if time.monotonic() > end:
            late, why = late + 1, _LATE
        else:
            try:
                fields = _drawn(cache, number, schema, end)
            except DatacheckError as error:
                why = f"it could not be read: {error}"
                damage += [error] if isinstance(error, CorruptionError) else []
        samples.append({"key": key, "split": "", "fields": fields, "left_out": [], "why": why[:300]})
    said = [f"{counted(late, 'sample')} not drawn: reading may take {seconds:g} s in all"] if late else []
    return samples, said, damage


def _schema(cache: Cache, declared: object) -> Schema:
    """Return what is known of the fields after the transforms: nothing where a document says what makes no sense."""
    said = declared if isinstance(declared, Mapping) else {}
    before = said.get("fields")
    before = (
        {name: spec for name, spec in before.items() if isinstance(spec, Mapping)}
        if isinstance(before, Mapping)
        else {}
    )
    fields = {name: _declared(spec, before.get(name, {})) for name, spec in cache.fields.items()}
    about = {"datacheck": 1, "name": "cache", "samples": {"files": "*"}}
    whole = about | {"fields": before | fields} | {name: said[name] for name in ("episode",) if name in said}
    for one in (whole, about | {"fields": fields}, about):
        try:
            return Schema.model_validate(one)
        except (ValueError, TypeError, DatacheckError):
            continue
    raise AssertionError  # the last one has nothing of anybody's


def _declared(spec: ArraySpec, before: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field as it is in the cache: a transform may have changed its shape, unit or frame."""
    own = {name: spec.attrs[name] for name in _CARRIED if name in spec.attrs}
    gone = {*_CARRIED, "shape", "dtype", *({"up"} if before.get("frame") != own.get("frame") else ())}
    kept = {name: value for name, value in before.items() if name not in gone}
    if spec.kind != "array":
        return kept | own
    named = spec.dim if spec.dim is None or not spec.dim.startswith("fields.") else "N"
    return kept | own | {"shape": [*([] if named is None else [named]), *spec.item]}


def _drawn(cache: Cache, number: int, schema: Schema, end: float) -> list[dict[str, Any]]:
    """Return the pictures of one sample, and of fields without one why.

    Raises:
        DatacheckError: it cannot be read.
    """
    values, notes = _values(cache, number, end)
    made = fitting(Sitter(values, schema, points=POINTS), SAMPLE_BYTES)
    notes |= dict.fromkeys(made["left_out"], "no room for its picture in this page")
    return [*made["fields"], *({"field": name, "kind": "note", "about": about} for name, about in notes.items())]


def _values(cache: Cache, number: int, end: float) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of a sample by field, and notes: of long axes the first rows are read, equally many of all."""
    values: dict[str, Any] = {}
    notes: dict[str, str] = {}
    one = np.array([number])
    axes = {spec.dim: 0 for spec in cache.fields.values()}
    for spec in cache.fields.values():
        axes[spec.dim] += spec.item_bytes
    room = _READ // max(1, len(axes))
    for name, spec in cache.fields.items():
        if time.monotonic() > end:
            notes[name] = _LATE
            continue
        present = cache.present(name, one)
        if present is not None and not present[0]:
            continue
        rows = 1 if spec.dim is None else int(cache.lengths(spec.dim, one)[0])
        read = int(min(rows, room / axes[spec.dim] if axes[spec.dim] else inf))
        if read < rows and (spec.kind != "array" or not read):
            notes[name] = f"{rows * spec.item_bytes:,} bytes: too large to be drawn here"
            continue
        values[name] = _read(cache, name, spec, one, read if read < rows else None)
        if read < rows:
            notes[str(spec.dim)] = f"the first {read:,} of {rows:,} rows are drawn"
    return values, notes


def _read(cache: Cache, name: str, spec: ArraySpec, one: Array, rows: int | None) -> Any:
    """Return a field of one sample: its first rows, None for all."""
    if spec.kind != "array":
        return cache.texts(name, one)[0]
    if spec.dim is None:
        return cache.gather(name, one)[0]
    if rows is None:
        return cache.gather_ragged(name, one)[0]
    return cache.gather_steps(name, one, np.zeros(1, np.int64), np.arange(rows), "edge")[0]
