"""Runs the measurements on blocks: assigns fields to measurements and records failures."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from datacheck.model.row_keys import storable
from datacheck.model.sample import Block, Column
from datacheck.model.table import WIDEST, Measured
from datacheck.rules.base import Columns, Measure
from datacheck.schema.model import ANY, FieldSpec, Schema

Array = np.ndarray[Any, Any]

_UNLISTED = FieldSpec()
_NUMERIC = "biuf"
_KEPT = "biufOUM"  # kinds of dtypes that samples.parquet can hold
# Fields missing from the schema whose measurements a scan keeps: the first by name.
MOST_UNLISTED = 64
# Suffix of the name of an undeclared field of which only shape and dtype are known.
NOT_READ = " (not read)"


class UnmeasurableError(Exception):
    """A built-in measurement fails on a block; the message names the measurement and the error."""


class _NameTakenError(ValueError):
    """Two measurements name a column alike: no sample is at fault."""


class MeasurementRunner:
    """The measurements of a run, ready to be applied to blocks of any split.

    Args:
        schema: the schema in force.
        measures: the measurements to run.

    Attributes:
        crashes: the first failure of each measurement: measure, key, traceback.
        undeclared: names of fields found that the schema does not list.
        failed: files with samples that lack a measurement because it failed.
    """

    def __init__(self, schema: Schema, measures: Sequence[Measure]) -> None:
        self._measures = [(measure, _unsilenced(measure)) for measure in measures]
        self._schema_of = cache(schema.for_split)
        self._listed = {
            *schema.fields,
            *(name for fields in schema.when.values() for name in fields),
        }
        self._plans: dict[tuple[Any, ...], dict[str, list[int]]] = {}
        self.crashes: dict[str, dict[str, str]] = {}
        self.undeclared: set[str] = set()
        self.failed: set[str] = set()

    # Silenced once per block: errstate takes as long as a small measurement does.
    @np.errstate(all="ignore")
    def measure(self, block: Block, *, strict: bool = False) -> dict[str, Measured]:
        """Return the columns of a block, ``field:stat`` and ``:stat``.

        The columns of a measurement that fails are left out.

        Raises:
            UnmeasurableError: a built-in measurement fails and `strict` is set.
        """
        schema = self._schema_of(block.split)
        columns: dict[str, Measured] = {}
        fields = list(_declared(block, schema))
        read = {name: column for name, column in block.fields.items() if not column.peeked}
        seen = (
            block
            if len(read) == len(block.fields)
            else replace(block, fields=read, unread=frozenset(block.fields.keys() - read))
        )
        every = np.broadcast_to(np.True_, len(block))
        like = (block.split, *((name, c.kind, c.peeked, _is_numeric(c)) for name, c, _ in fields))
        plan = self._plans.setdefault(like, {})
        for measure, function in self._measures:
            try:
                if measure.per == "sample":
                    given = block if measure.depth == "structure" else seen
                    _merge_columns(columns, _full_columns("", function(given, schema), every))
                    continue
                if measure.name not in plan:  # decided once for all blocks with the same columns
                    plan[measure.name] = [
                        i for i, (_, c, spec) in enumerate(fields) if _applies(measure, c, spec)
                    ]
                for place in plan[measure.name]:
                    name, column, spec = fields[place]
                    _merge_columns(columns, _full_columns(name, function(column, spec), every))
            except MemoryError:
                raise
            except Exception as error:
                if strict and is_ours(measure) and not isinstance(error, _NameTakenError):
                    msg = (
                        f"the measurement {measure.name} fails on it ({type(error).__name__}: "
                        f"{error})"
                    )
                    raise UnmeasurableError(msg) from error
                # The rules that need this measurement get a crash verdict; the others go on.
                self._crashed(measure, block)
        columns |= self._undeclared(block, schema)
        return columns

    def parted(self, block: Block) -> tuple[Block, Block]:
        """Return the block with the fields that the schema lists, and the block with the others."""
        schema = self._schema_of(block.split)
        others = {
            name: column for name, column in block.fields.items() if name not in schema.fields
        }
        if not others:
            return block, replace(block, fields={})
        listed = {name: column for name, column in block.fields.items() if name not in others}
        return replace(block, fields=listed), replace(block, fields=others)

    @np.errstate(all="ignore")
    def measure_unlisted(self, block: Block) -> dict[str, Measured]:
        """Return the columns of a block that holds only fields missing from the schema."""
        return self._undeclared(block, self._schema_of(block.split))

    def _crashed(self, measure: Measure, block: Block) -> None:
        self.failed.update(origin.file for origin in block.origins)
        crash = {"measure": measure.name, "key": block.keys[0], "traceback": traceback.format_exc()}
        texts = dict(zip(crash, storable(list(crash.values())), strict=True))
        self.crashes.setdefault(measure.name, texts)

    def _undeclared(self, block: Block, schema: Schema) -> dict[str, Measured]:
        rest = {name: column for name, column in block.fields.items() if name not in schema.fields}
        if not rest:
            return {}
        self.undeclared.update(
            name + NOT_READ if column.peeked else name for name, column in rest.items()
        )
        spec = schema.fields.get(ANY, FieldSpec())
        columns: dict[str, Measured] = {}
        every = np.broadcast_to(np.True_, len(block))
        numeric_fields = self._numeric_fields(rest) if schema.reads_unlisted else {}
        for measure, function in self._measures:
            if measure.unlisted and numeric_fields:
                columns |= self._unlisted(block, measure, function, numeric_fields, every)
            if not measure.undeclared or measure.per == "sample" or spec.absent:
                continue
            try:
                by_field = {
                    name: _full_columns("", function(column, spec), every)
                    for name, column in sorted(rest.items())
                    if _applies(measure, column, spec)
                }
                columns |= _summed(measure, by_field, len(block))
            except MemoryError:
                raise
            except Exception:  # noqa: BLE001  as above
                self._crashed(measure, block)
        return columns

    def _numeric_fields(self, rest: Mapping[str, Column]) -> dict[str, Column]:
        """Return the numeric fields that are measured individually.

        Notes:
            At most one field more than a scan keeps is measured, which shows that there are more: a
            file may name any number of fields.
        """
        numeric = {
            name: column
            for name, column in rest.items()
            if _is_numeric(column) and not column.peeked
        }
        unlisted = sorted(numeric.keys() - self._listed)
        return {name: numeric[name] for name in numeric if name in self._listed} | {
            name: numeric[name] for name in unlisted[: MOST_UNLISTED + 1]
        }

    def _unlisted(
        self,
        block: Block,
        measure: Measure,
        function: Callable[..., Columns],
        rest: Mapping[str, Column],
        every: Array,
    ) -> dict[str, Measured]:
        columns: dict[str, Measured] = {}
        try:
            for name, column in rest.items():
                columns |= _full_columns(name, function(column, _UNLISTED), every)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  as above
            self._crashed(measure, block)
        return columns


def is_ours(measure: Measure) -> bool:
    """Tell a built-in measurement from those of plug-ins and of the user."""
    return str(getattr(measure.function, "__module__", "")).startswith("datacheck.rules.")


def _unsilenced(measure: Measure) -> Callable[..., Columns]:
    """Return a measurement's function without the `np.errstate` around it."""
    inner: Callable[..., Columns] = getattr(measure.function, "__wrapped__", measure.function)
    return inner


def _declared(block: Block, schema: Schema) -> Iterator[tuple[str, Column, FieldSpec]]:
    """Yield the block's fields that the schema declares, and their declared parts."""
    for name, column in block.fields.items():
        if name not in schema.fields:
            continue
        yield name, column, schema.fields[name]
        for part, (start, stop) in schema.parts(name).items():
            spec = schema.fields.get(f"{name}.{part}")
            width = column.values.shape[-1] if column.values.ndim > 1 else column.uniform or 0
            if spec is not None and column.kind == "array" and width >= stop:
                yield f"{name}.{part}", column.slice_items(start, stop), spec


def _is_numeric(column: Column) -> bool:
    # The kind comes first: the values of a chat's JSON may not be encoded yet.
    return column.kind == "array" and column.values.dtype.kind in _NUMERIC


def _applies(measure: Measure, column: Column, spec: FieldSpec) -> bool:
    """Tell whether a measurement applies to both the declared and the actual kind of a column.

    Notes:
        A peeked column has only shapes and a dtype to measure. The rule about dtypes reports text
        where numbers are declared; arithmetic on its bytes would be noise.
    """
    if not measure.applies(spec) or (column.peeked and measure.depth != "structure"):
        return False
    numeric = _is_numeric(column)
    if numeric == (not spec.is_text):
        return True
    actual = (
        {"dtype": None, "role": None}
        if numeric
        else {"dtype": "json" if column.kind == "json" else "text"}
    )
    return measure.applies(spec.model_copy(update=actual))


def _full_columns(name: str, columns: Mapping[str, Any], every: Array) -> dict[str, Measured]:
    """Return a measurement's columns by their full names; `every` is true for all samples."""
    named: dict[str, Measured] = {}
    for stat, values in columns.items():
        column = _checked(stat, values, every)
        if column.values.ndim == 1 or column.values.shape[1]:
            named[f"{name}:{stat}"] = column
    return named


def _merge_columns(columns: dict[str, Measured], more: dict[str, Measured]) -> None:
    """Add the columns of one measurement to those of others.

    Raises:
        _NameTakenError: two measurements name a column alike.
    """
    if not columns.keys().isdisjoint(more):
        msg = (
            f"{sorted(columns.keys() & more.keys())}: another measurement has columns of these "
            f"names"
        )
        raise _NameTakenError(msg)
    columns |= more


def _checked(stat: str, values: Any, every: Array) -> Measured:
    present = every
    if isinstance(values, Measured):
        present, values = np.asarray(values.present, dtype=bool), values.values
    if isinstance(values, list):
        values = _objects(values)
    if values.dtype.kind not in _KEPT or (
        values.dtype.kind in _NUMERIC and values.dtype.itemsize > 8
    ):
        msg = (
            f"{stat} is of {values.dtype}; samples.parquet holds numbers of at most 64 bits and "
            f"texts"
        )
        raise TypeError(msg)
    count = len(every)
    shape = values.shape
    if (
        len(present) != count
        or shape[:1] != (count,)
        or len(shape) > 2
        or (len(shape) == 2 and shape[1] > WIDEST)
    ):
        msg = (
            f"{stat} has shape {shape}; {count} samples need one scalar or vector of at most "
            f"{WIDEST} each"
        )
        raise ValueError(msg)
    return Measured(values, present)


def _objects(texts: list[str]) -> Array:
    # Most text columns hold one text for all samples: broadcasting stores it once.
    if texts and texts.count(texts[0]) == len(texts):
        return np.broadcast_to(np.array(storable(texts[:1]), dtype=object), len(texts))
    return np.array(storable(texts), dtype=object)


def _summed(
    measure: Measure, by_field: Mapping[str, Mapping[str, Measured]], count: int
) -> dict[str, Measured]:
    """Return a measurement's numbers summed over the undeclared fields, under the name ``*``."""
    columns: dict[str, Measured] = {}
    for stat in sorted({stat for field_stats in by_field.values() for stat in field_stats}):
        parts = [
            field_stats[stat]
            for field_stats in by_field.values()
            if stat in field_stats and field_stats[stat].values.dtype.kind in _NUMERIC
        ]
        if parts:
            columns[f"{ANY}{stat}"] = _sum(parts)
    if by_field and measure.worst:
        columns[f"{ANY}:worst"] = _worst(by_field, f":{measure.worst}", count)
    return columns


def _sum(parts: Sequence[Measured]) -> Measured:
    shape = max((p.values.shape for p in parts), key=len)
    width = max((p.values.shape[1] for p in parts if p.values.ndim > 1), default=1)
    total = np.zeros(
        (shape[0], width) if len(shape) > 1 else shape,
        np.result_type(np.int64, *[p.values for p in parts]),
    )
    present = np.zeros(shape[0], bool)
    for part in parts:
        values = np.where(
            part.present if part.values.ndim == 1 else part.present[:, None], part.values, 0
        )
        if total.ndim > 1:
            values = values.reshape(len(values), -1)
            total[:, : values.shape[1]] += values
        else:
            total += values
        present |= part.present
    return Measured(total, present)


def _worst(by_field: Mapping[str, Mapping[str, Measured]], stat: str, count: int) -> Measured:
    names = np.array([""] * count, dtype=object)
    most = np.zeros(count)
    for name, columns in by_field.items():
        if stat in columns:
            values = np.where(columns[stat].present, columns[stat].values, 0).astype(np.float64)
            names[values > most] = storable([name])[0]
            most = np.maximum(most, values)
    return Measured(names, np.ones(count, bool))
