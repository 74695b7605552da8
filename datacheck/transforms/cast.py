"""Change the dtype of fields; refuse samples whose values the new dtype cannot hold."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np

from datacheck.model.sample import ArraySpec, Block, Column
from datacheck.schema.grammar import DTYPES, Strings, one_of
from datacheck.transforms.base import (
    Array,
    Result,
    Specs,
    Transform,
    refuse,
    samples_of,
    with_columns,
)

_NUMBERS = DTYPES - {"text", "json"}


class Cast(Transform):
    """Cast fields to a dtype.

    Args:
        fields: the fields to cast.
        to: the new dtype, a NumPy name ("float32").
        exact: whether rounding of floats is refused too.

    Notes:
        A float that is cast to a narrower float is rounded to nearest, ties to even; every other
        value must be equal after the cast and back. A sample with a value that is not, or with a
        finite float that becomes infinite, is refused.
    """

    name: ClassVar[str] = "cast"
    version: ClassVar[int] = 1
    lists: ClassVar[tuple[str, ...]] = ("fields",)
    fields: Strings
    to: Annotated[str, one_of(_NUMBERS, "dtype")]
    exact: bool = False

    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the specs with the new dtype."""
        changed = {
            n: replace(self.numeric(specs, n, kinds="fiub", rank=0), dtype=self.to)
            for n in self.fields
        }
        return {**specs, **changed}

    def apply(self, block: Block) -> Result:
        """Return the samples that the new dtype can hold."""
        bad = np.zeros(len(block), bool)
        cause: dict[int, str] = {}
        columns = {}
        for name in self.fields:
            if name not in block.fields:
                continue
            column = block.fields[name]
            values = cast(column.values, self.to)
            columns[name] = Column(values, column.lengths)
            wrong = samples_of(lost(column.values, values, exact=self.exact), column)
            cause |= {int(i): name for i in np.flatnonzero(wrong & ~bad)}
            bad |= wrong
        return refuse(
            with_columns(block, columns), bad, lambda i: f"{cause[i]}: values do not fit {self.to}"
        )


def fits(old: Any, new: Any) -> bool:
    """Return whether dtype `new` represents every value of dtype `old` exactly."""
    old, new = np.dtype(old), np.dtype(new)
    # NumPy counts int64 to float64 as safe, although it rounds.
    rounds = old.kind in "iu" and old.itemsize == 8 and new.kind in "fc"
    return np.can_cast(old, new, "safe") and not rounds


def cast(values: Array, to: Any) -> Array:
    """Return the values in another dtype, without warnings; `lost` finds values that do not fit."""
    with np.errstate(all="ignore"):
        made: Array = values.astype(to)
        return made


def lost(old: Array, new: Array, *, exact: bool = True) -> Array:
    """Return bool (rows): whether a row has a value that did not survive the cast.

    Shapes:
        old, new: (rows, ...): before and after

    Args:
        old, new: before and after.
        exact: whether rounding to a narrower float counts as lost.
    """
    if fits(old.dtype, new.dtype):
        return np.zeros(len(old), bool)
    kinds = old.dtype.kind + new.dtype.kind
    if kinds == "ff" and not exact:
        wrong: Any = np.isinf(new) & np.isfinite(old)
    else:
        with np.errstate(all="ignore"):
            wrong = new.astype(old.dtype) != old
            wrong |= _wrapped(old, new)
            if kinds == "ff":
                wrong &= ~(np.isnan(old) & np.isnan(new))
    rows: Array = wrong.reshape(len(old), math.prod(wrong.shape[1:])).any(axis=1)
    return rows


def _wrapped(old: Array, new: Array) -> Any:
    """Return where a value differs after the cast although casting back restores it.

    Examples are -1 as uint64, and 2**63 - 1 as float64.
    """
    if "b" in {old.dtype.kind, new.dtype.kind}:
        return False
    wrong: Any = (new < 0) != (old < 0)
    if old.dtype.kind in "iu" and new.dtype.kind == "f":
        wrong |= new >= float(np.iinfo(old.dtype).max) + 1
    if old.dtype.kind == "f" and new.dtype.kind in "iu":
        wrong |= old >= float(np.iinfo(new.dtype).max) + 1
    return wrong
