"""Runs the measurements on blocks: assigns fields to measurements and records failures.

A measurement runs on each declared field that it applies to, or once on the block as a whole. Fields
that the schema does not list are measured too, one by one or added up under the name ``*``. A
measurement that fails costs its own columns only; the rules that need them get a crash verdict.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from datacheck.model.row_keys import storable
from datacheck.model.sample import Block, Column, Origin, Piece, stack
from datacheck.model.table import CHECKED, WIDEST, Measured, Table, concatenate
from datacheck.rules import rules_for
from datacheck.rules.base import Columns, Measure
from datacheck.schema.model import ANY, FieldSpec, Schema
from datacheck.tokenization import Tokenizer

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
        # By split and form of the fields: see `_BlockView.places`.
        self._places: dict[tuple[Any, ...], dict[str, list[int]]] = {}
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
        view = self._view(block)
        columns: dict[str, Measured] = {}
        every = np.broadcast_to(np.True_, len(block))
        for measure, function in self._measures:
            try:
                for name, measured in view.apply(measure, function):
                    _merge_columns(columns, _full_columns(name, measured, every))
            except MemoryError:
                raise
            except Exception as error:
                if strict and is_ours(measure) and not isinstance(error, _NameTakenError):
                    msg = (
                        f"the measurement {measure.name} fails on it ({type(error).__name__}: "
                        f"{error})"
                    )
                    raise UnmeasurableError(msg) from error
                self._record_crash(measure, block)
        return columns | self._measure_undeclared(block, view.schema)

    def measure_samples(
        self, keys: Sequence[str], samples: Sequence[Mapping[str, Any]], file: str
    ) -> Table:
        """Return the table of samples that lie in memory.

        Args:
            keys: the key of each sample, which is its id as well.
            samples: arrays, texts and JSON values by field.
            file: what the samples lie in; a row's `inner` is the position of its sample there.
        """
        pieces = [
            Piece(key, values, Origin(file, str(place)), facts={"id": key})
            for place, (key, values) in enumerate(zip(keys, samples, strict=True))
        ]
        tables = []
        for block in stack(pieces):
            count = len(block)
            tables.append(
                Table(
                    keys=block.keys,
                    files=[file] * count,
                    inner=[origin.inner for origin in block.origins],
                    splits=[""] * count,
                    groups=[""] * count,
                    status=np.full(count, CHECKED, np.int8),
                    reasons=[""] * count,
                    nbytes=np.zeros(count, np.int64),
                    columns=self.measure(block),
                )
            )
        return concatenate(tables)

    def _view(self, block: Block) -> _BlockView:
        schema = self._schema_of(block.split)
        read = {name: column for name, column in block.fields.items() if not column.peeked}
        without_peeked = block
        if len(read) < len(block.fields):
            unread = frozenset(block.fields.keys() - read)
            without_peeked = replace(block, fields=read, unread=unread)
        fields = list(_declared(block, schema))
        forms = (
            (name, column.kind, column.peeked, _is_numeric(column)) for name, column, _ in fields
        )
        places = self._places.setdefault((block.split, *forms), {})
        return _BlockView(block, without_peeked, schema, fields, places)

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
        return self._measure_undeclared(block, self._schema_of(block.split))

    def _record_crash(self, measure: Measure, block: Block) -> None:
        self.failed.update(origin.file for origin in block.origins)
        name, key, error = storable([measure.name, block.keys[0], traceback.format_exc()])
        self.crashes.setdefault(measure.name, {"measure": name, "key": key, "traceback": error})

    @contextmanager
    def _crash_recorded(self, measure: Measure, block: Block) -> Iterator[None]:
        try:
            yield
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001  as in `measure`
            self._record_crash(measure, block)

    def _measure_undeclared(self, block: Block, schema: Schema) -> dict[str, Measured]:
        """Return the columns of the fields that the schema does not list."""
        fields = {
            name: column for name, column in block.fields.items() if name not in schema.fields
        }
        if not fields:
            return {}
        self.undeclared.update(
            name + NOT_READ if column.peeked else name for name, column in fields.items()
        )
        every = np.broadcast_to(np.True_, len(block))
        single_fields = self._numeric_fields(fields) if schema.reads_unlisted else {}
        spec = schema.fields.get(ANY, FieldSpec())
        columns: dict[str, Measured] = {}
        for measure, function in self._measures:
            if measure.unlisted:
                with self._crash_recorded(measure, block):
                    for name, column in single_fields.items():
                        columns |= _full_columns(name, function(column, _UNLISTED), every)
            if measure.undeclared and measure.per == "field" and not spec.absent:
                with self._crash_recorded(measure, block):
                    by_field = {
                        name: _full_columns("", function(column, spec), every)
                        for name, column in sorted(fields.items())
                        if _applies(measure, column, spec)
                    }
                    columns |= _summed(measure, by_field, len(block))
        return columns

    def _numeric_fields(self, fields: Mapping[str, Column]) -> dict[str, Column]:
        """Return the numeric fields that are measured individually.

        Notes:
            At most one field more than a scan keeps is measured, which shows that there are more: a
            file may name any number of fields.
        """
        numeric = {
            name: column
            for name, column in fields.items()
            if _is_numeric(column) and not column.peeked
        }
        listed = [name for name in numeric if name in self._listed]
        unlisted = sorted(numeric.keys() - self._listed)[: MOST_UNLISTED + 1]
        return {name: numeric[name] for name in [*listed, *unlisted]}


def check_tokenizer(schema: Schema, measures: Sequence[Measure]) -> None:
    """Raise if a measurement needs the schema's tokenizer and there is none.

    Without it, the rules that need it report nothing.

    Raises:
        UsageError: there is no tokenizer at its path, or it is damaged.
        MissingDependencyError: the package that reads it is not installed.
    """
    path = None if schema.tokenizer is None else schema.tokenizer.path
    if path is not None and any("tokenizer" in measure.uses for measure in measures):
        Tokenizer(path)  # as text: a Path would drop the mark of a tokenizer inside the data


class _DeclaredField(NamedTuple):
    name: str
    column: Column
    spec: FieldSpec


@dataclass(frozen=True, eq=False)
class _BlockView:
    """A block as the measurements see it.

    Args:
        read: the block without fields of which only shape and dtype are known.
        schema: the schema of its split.
        fields: its declared fields.
        places: by measurement, the places in `fields` to which it applies: decided once for all
            blocks of the same split and form, and filled in by `apply`.
    """

    block: Block
    read: Block
    schema: Schema
    fields: list[_DeclaredField]
    places: dict[str, list[int]]

    def apply(
        self, measure: Measure, function: Callable[..., Columns]
    ) -> Iterator[tuple[str, Columns]]:
        """Yield the columns of a measurement, with the field that they belong to or ""."""
        if measure.per == "sample":
            block = self.block if measure.depth == "structure" else self.read
            yield "", function(block, self.schema)
            return
        if measure.name not in self.places:
            self.places[measure.name] = [
                place
                for place, field in enumerate(self.fields)
                if _applies(measure, field.column, field.spec)
            ]
        for place in self.places[measure.name]:
            field = self.fields[place]
            yield field.name, function(field.column, field.spec)


def is_ours(measure: Measure) -> bool:
    """Tell a built-in measurement from those of plug-ins and of the user."""
    return str(getattr(measure.function, "__module__", "")).startswith("datacheck.rules.")


def known_measures(schema: Schema) -> dict[str, Measure]:
    """Return every measurement that a rule needs, by name."""
    return {m.name: m for rule in rules_for(schema).values() for m in rule.measures}


def is_plain(schema: Schema) -> bool:
    """Tell whether all measurements are datacheck's own.

    Those of plug-ins and of the user may give any columns.
    """
    return all(map(is_ours, known_measures(schema).values())) and not schema.checks


def _unsilenced(measure: Measure) -> Callable[..., Columns]:
    """Return a measurement's function without the `np.errstate` around it."""
    inner: Callable[..., Columns] = getattr(measure.function, "__wrapped__", measure.function)
    return inner


def _declared(block: Block, schema: Schema) -> Iterator[_DeclaredField]:
    """Yield the block's fields that the schema declares, and their declared parts."""
    for name, column in block.fields.items():
        if name not in schema.fields:
            continue
        yield _DeclaredField(name, column, schema.fields[name])
        for part, (start, stop) in schema.parts(name).items():
            spec = schema.fields.get(f"{name}.{part}")
            width = column.values.shape[-1] if column.values.ndim > 1 else column.uniform or 0
            if spec is not None and column.kind == "array" and width >= stop:
                yield _DeclaredField(f"{name}.{part}", column.slice_items(start, stop), spec)


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
    is_numeric = _is_numeric(column)
    if is_numeric == (not spec.is_text):
        return True
    actual: dict[str, str | None] = {"dtype": "json" if column.kind == "json" else "text"}
    if is_numeric:
        actual = {"dtype": None, "role": None}
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
    """Return a column that samples.parquet can hold.

    Raises:
        TypeError: the values are of another kind.
        ValueError: there is not one value or vector per sample.
    """
    present = every
    if isinstance(values, Measured):
        present = np.asarray(values.present, dtype=bool)
        values = values.values
    if isinstance(values, list):
        values = _objects(values)
    kind = values.dtype.kind
    if kind not in _KEPT or (kind in _NUMERIC and values.dtype.itemsize > 8):
        msg = (
            f"{stat} is of {values.dtype}; samples.parquet holds numbers of at most 64 bits and "
            f"texts"
        )
        raise TypeError(msg)
    count = len(every)
    is_scalar = values.shape == (count,)
    is_vector = values.ndim == 2 and values.shape[0] == count and values.shape[1] <= WIDEST
    if len(present) != count or not (is_scalar or is_vector):
        msg = (
            f"{stat} has shape {values.shape}; {count} samples need one scalar or vector of at most "
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
    parts: dict[str, list[Measured]] = {}
    for field_columns in by_field.values():
        for stat, column in field_columns.items():
            if column.values.dtype.kind in _NUMERIC:
                parts.setdefault(stat, []).append(column)
    columns = {f"{ANY}{stat}": _sum(parts[stat]) for stat in sorted(parts)}
    if by_field and measure.worst:
        columns[f"{ANY}:worst"] = _worst(by_field, f":{measure.worst}", count)
    return columns


def _sum(parts: Sequence[Measured]) -> Measured:
    """Return the sum of columns; a scalar adds to the first component of vectors."""
    rows = len(parts[0].values)
    widths = [part.values.shape[1] for part in parts if part.values.ndim > 1]
    dtype = np.result_type(np.int64, *[part.values for part in parts])
    total = np.zeros((rows, max(widths)) if widths else (rows,), dtype)
    present = np.zeros(rows, bool)
    for part in parts:
        mask = part.present if part.values.ndim == 1 else part.present[:, None]
        values = np.where(mask, part.values, 0)
        if widths:
            values = values.reshape(rows, -1)
            total[:, : values.shape[1]] += values
        else:
            total += values
        present |= part.present
    return Measured(total, present)


def _worst(by_field: Mapping[str, Mapping[str, Measured]], stat: str, count: int) -> Measured:
    """Return for each sample the field with the largest value of a statistic; "" if all are 0."""
    names = np.array([""] * count, dtype=object)
    most = np.zeros(count)
    for name, columns in by_field.items():
        if stat in columns:
            values = np.where(columns[stat].present, columns[stat].values, 0).astype(np.float64)
            names[values > most] = storable([name])[0]
            most = np.maximum(most, values)
    return Measured(names, np.ones(count, bool))
