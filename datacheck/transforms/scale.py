"""Convert a field to another unit by the exact factor."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field, field_validator

from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec, Block, Column
from datacheck.schema.grammar import ANGLE, LENGTH, TIME, UNITS, Strings, one_of
from datacheck.transforms.base import Array, Result, Specs, Transform, with_columns, with_entries


class Scale(Transform):
    """Convert fields from one unit to another.

    Args:
        fields: the fields to convert; floats.
        to: the new unit (m, cm, mm, in, ft; rad, deg; s, ms, us, ns).
        unit (written ``from``): the current unit; by default the unit that the schema declares.
        columns: convert only these columns of the last axis, [start, stop) (xyz of xyz + normals);
            default all.

    Notes:
        The factor is an exact fraction for lengths and times: mm to m divides by 1000. Computed in
        float64, then rounded once to the field's dtype.
    """

    name: ClassVar[str] = "scale"
    version: ClassVar[int] = 1
    lists: ClassVar[tuple[str, ...]] = ("fields",)
    fields: Strings
    to: Annotated[str, one_of(UNITS, "unit")]
    unit: Annotated[str | None, one_of(UNITS, "unit")] = Field(default=None, alias="from")
    columns: list[int] | None = None

    @field_validator("columns")
    @classmethod
    def _pair(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and (len(value) != 2 or not 0 <= value[0] < value[1]):
            msg = "columns are written [start, stop]"
            raise ValueError(msg)
        return value

    @property
    def partly_changed_fields(self) -> tuple[str, ...]:
        """The fields, if only some columns are converted."""
        return tuple(self.fields) if self.columns is not None else ()

    def bind(self, specs: Specs) -> Scale:
        """Return the step with its source unit, from the schema if the pipeline does not give it.

        Raises:
            UsageError: neither gives it.
        """
        if self.unit is not None:
            return self
        units = {specs[n].attrs.get("unit") for n in self.fields if n in specs}
        if len(units) != 1 or None in units:
            msg = (
                f"scale: the schema declares no one unit for {', '.join(self.fields)}; say from: "
                f"mm (or fix the schema)"
            )
            raise UsageError(msg)
        return self.model_copy(update={"unit": units.pop()})

    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the specs with the new unit in their attributes."""
        for name in self.fields:
            self.numeric(specs, name, rank=0)
        ratio(self.unit or "", self.to)
        return {
            **specs,
            **{
                n: replace(specs[n], attrs={**specs[n].attrs, "unit": self.to}) for n in self.fields
            },
        }

    def apply(self, block: Block) -> Result:
        """Return the block with the fields in the new unit."""
        factor = ratio(self.unit or "", self.to)
        present = [name for name in self.fields if name in block.fields]
        return [
            with_columns(
                block, {name: self._scaled(block.fields[name], factor) for name in present}
            )
        ], []

    def _scaled(self, column: Column, factor: Fraction | float) -> Column:
        if self.columns is None:
            return replace(column, values=_multiply(column.values, factor))
        start, stop = self.columns
        return with_entries(column, start, stop, lambda values: _multiply(values, factor))


def ratio(old: str, new: str) -> Fraction | float:
    """Return the factor from unit `old` to unit `new`: a fraction where that is exact.

    Raises:
        UsageError: the units measure different quantities.
    """
    for kind in (LENGTH, TIME):
        if old in kind and new in kind:
            # repr gives the decimal number as declared, not the float's binary value.
            return Fraction(repr(kind[old])) / Fraction(repr(kind[new]))
    if old in ANGLE and new in ANGLE:
        return ANGLE[old] / ANGLE[new]
    msg = f"scale: {old or 'no unit'} cannot become {new}"
    raise UsageError(msg)


def _multiply(values: Array, factor: Fraction | float) -> Array:
    # A float16 in millimetres may overflow to infinity; `run` then refuses the sample.
    with np.errstate(over="ignore"):
        wide = values.astype(np.float64)
        numerator, denominator = (
            (factor.numerator, factor.denominator) if isinstance(factor, Fraction) else (factor, 1)
        )
        return (wide * numerator / denominator).astype(values.dtype)
