"""The `Transform` base class: options (JSON), `derive` (specs to specs), `apply` (block to block).

A transform is pure and versioned. The result for a sample depends on that sample alone, never on
its block. A transform uses only operations that give the same bits on every CPU: + - * /, sqrt,
sum, mean, einsum, stable sorts; never exp, sin, matmul or a default argsort.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict

from datacheck.errors import InvalidSample, UsageError
from datacheck.model.sample import ArraySpec, Block, Column

Array = np.ndarray[Any, Any]
Specs = Mapping[str, ArraySpec]
Refusal = tuple[str, str]  # (key, reason)
Result = tuple[list[Block], list[Refusal]]


class Transform(BaseModel, ABC):
    """One step of a pipeline; its fields are its options.

    Class attributes:
        name: name in a pipeline.
        version: part of the fingerprint of every cache that the transform makes; a changed result
            needs a new version.
        short: the option that a plain value sets (``select: [joints]`` for ``select: {fields:
            [joints]}``).
        own_code: whether the step runs a function of the user.
        lists: the options that list fields to work on; fields that a split does not have are left
            out of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)
    name: ClassVar[str]
    version: ClassVar[int]
    short: ClassVar[str] = ""
    lists: ClassVar[tuple[str, ...]] = ()
    own_code: ClassVar[bool] = False

    @property
    def by_sample(self) -> bool:
        """Whether no sample's result can depend on another, so that single samples can be reused.

        A step without this property reuses earlier results by whole shards only.

        Notes:
            No result may depend on another sample; a checked build detects it. Where this is False,
            the code could violate that, and datacheck does not rely on it.
        """
        return True

    def without(self, absent: Collection[str]) -> Transform | None:
        """Return the step for data without these declared fields, None if nothing remains."""
        kept = {
            option: tuple(n for n in getattr(self, option) if n not in absent)
            for option in self.lists
        }
        return None if kept.get("fields") == () else self.model_copy(update=kept) if kept else self

    def bind(self, specs: Specs) -> Transform:
        """Return the step with options that it left open filled in from the schema.

        Callers derive, apply and identify the returned step, not this one.

        Raises:
            UsageError: the schema does not provide a missing option.
        """
        del specs
        return self

    @property
    def partly_changed_fields(self) -> tuple[str, ...]:
        """The fields of which it changes some entries of the last axis only, see `with_entries`."""
        return ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the step reads."""
        return ()

    def placed(self, base: Path) -> Transform:
        """Return the step with paths made absolute that are relative to the pipeline's folder."""
        del base
        return self

    def below(self, data: Path) -> Transform:
        """Return the step with its files below the data folder opened so that no link leads out."""
        del data
        return self

    @abstractmethod
    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the specs of the fields after this step.

        Raises:
            UsageError: the step cannot process such fields.
        """

    @abstractmethod
    def apply(self, block: Block) -> Result:
        """Return the transformed samples, and refused ones with reasons; leaves `block` as is."""

    def options(self) -> dict[str, Any]:
        """Return the options as JSON values, without defaults."""
        return self.model_dump(mode="json", exclude_defaults=True, by_alias=True)

    def identity(self) -> dict[str, Any]:
        """Return what decides this step's result, as JSON: part of a cache's fingerprint."""
        return {"use": self.name, "version": self.version, "options": self.options()}

    def as_dict(self) -> dict[str, Any]:
        """Return the step in the form that `datacheck.transforms.step` parses."""
        return {self.name: self.options()}

    def spec(self, specs: Specs, name: str) -> ArraySpec:
        """Return the spec of a field that this step needs.

        Raises:
            UsageError: there is no such field.
        """
        if name not in specs:
            msg = (
                f"{self.name}: no field {name!r}; the fields here are "
                f"{', '.join(sorted(specs)) or 'none'}"
            )
            raise UsageError(msg)
        return specs[name]

    def numeric(self, specs: Specs, name: str, *, kinds: str = "f", rank: int = 1) -> ArraySpec:
        """Return the spec of an array field with a dtype kind in `kinds` and at least `rank` axes.

        Raises:
            UsageError: the field is text or JSON, or has another dtype or fewer axes.
        """
        spec = self.spec(specs, name)
        if spec.kind != "array" or np.dtype(spec.dtype).kind not in kinds:
            what = spec.dtype if spec.kind == "array" else spec.kind
            wanted = " or ".join(
                {"f": "floats", "i": "integers", "u": "unsigned integers", "b": "bool"}[k]
                for k in kinds
            )
            msg = f"{self.name}: {name} is {what}; this step takes {wanted}. Put a cast before it."
            raise UsageError(msg)
        if len(spec.item) + (spec.dim is not None) < rank:
            msg = (
                f"{self.name}: {name} has {len(spec.item) + (spec.dim is not None)} axes; this "
                f"step needs {rank}"
            )
            raise UsageError(msg)
        return spec


def with_columns(block: Block, columns: Mapping[str, Column]) -> Block:
    """Return the block with these columns added or replaced."""
    return replace(block, fields=dict(sorted({**block.fields, **columns}.items())))


def with_entries(column: Column, first: int, stop: int, change: Callable[[Array], Array]) -> Column:
    """Apply `change` to the entries [first, stop) of the last axis of every sample.

    Notes:
        If a sample is one vector, its numbers are rows of the column and have no axis of their own.
    """
    values: Array = np.array(column.values)
    if values.ndim > 1 or column.lengths is None:
        part: Any = (..., slice(first, stop))
    else:
        positions = np.arange(len(values)) - np.repeat(column.starts, column.lengths)
        part = (positions >= first) & (positions < stop)
    values[part] = change(values[part])
    return replace(column, values=values)


def refuse(block: Block, bad: Array, reason: Callable[[int], str]) -> Result:
    """Return the block without its bad samples, and the bad samples with reasons.

    Shapes:
        bad: bool (samples)
    """
    refused = [(block.keys[i], reason(i)) for i in np.flatnonzero(bad).tolist()]
    return ([block.take(np.flatnonzero(~bad))] if not bad.all() else []), refused


def samples_of(rows: Array, column: Column) -> Array:
    """Return bool (samples): whether a sample has a true row.

    Shapes:
        rows: bool (rows): one entry per row of `column`
    """
    if column.lengths is None:
        return rows
    mask = np.zeros(len(column), bool)
    mask[np.searchsorted(column.starts, np.flatnonzero(rows), side="right") - 1] = True
    return mask


# What NumPy and Python raise on values of unexpected shape, kind or size.
_STEP_ERRORS = (ArithmeticError, AttributeError, IndexError, TypeError, ValueError)


def map_samples(
    block: Block, names: Iterable[str], function: Callable[[int], Mapping[str, Array]]
) -> Result:
    """Replace the array fields `names`, sample by sample.

    Args:
        block: the samples.
        names: the fields that `function` returns; all its arrays of one field agree in dtype and
            item shape.
        function: from sample index to new arrays; may raise `InvalidSample`.

    Notes:
        A sample on which the function fails is refused: a single sample of unexpected shape or kind
        must not end the whole build.
    """
    names = list(names)
    made: list[int] = []
    values: list[Mapping[str, Array]] = []
    refused: list[Refusal] = []
    for i, key in enumerate(block.keys):
        try:
            values.append(function(i))
            made.append(i)
        except InvalidSample as error:
            refused.append((key, str(error)))
        except _STEP_ERRORS as error:
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            refused.append(
                (key, f"{', '.join(names)}: a step of the pipeline fails on it ({what})")
            )
    if not made:
        return [], refused
    columns = {name: Column.of([v[name] for v in values]) for name in names}
    return [with_columns(block.take(made), columns)], refused


def row_fields(specs: Specs, points: str, along: Sequence[str]) -> tuple[str, ...]:
    """Return the fields cut together with `points`: its ragged dimension's fields and `along`."""
    dim = specs[points].dim
    same = [name for name, spec in specs.items() if dim is not None and spec.dim == dim]
    return tuple(sorted({points, *same, *along}))


def choose_rows(
    block: Block, points: str, along: Sequence[str], choose: Callable[[str, Array], Array]
) -> Result:
    """Keep the rows that `choose` returns for every sample, in all fields of `along`.

    Args:
        block: the samples.
        points: the field that decides.
        along: the fields cut in the same way (`points` among them); a field that a block lacks is
            skipped.
        choose: from (key, array of `points`) to int64 row numbers; may raise `InvalidSample`.
    """
    if points not in block.fields:
        return [], [(key, f"{points} is absent") for key in block.keys]
    names = [name for name in along if name in block.fields]

    def cut(i: int) -> dict[str, Array]:
        values = block.fields[points][i]
        for name in names:
            other = block.fields[name][i]
            if other.ndim == 0 or len(other) != len(values):
                row_count = len(other) if other.ndim else "no"
                msg = f"{name}: {row_count} rows where {points} has {len(values)}"
                raise InvalidSample(msg)
        rows = choose(block.keys[i], values)
        return {name: block.fields[name][i][rows] for name in names}

    return map_samples(block, names, cut)
