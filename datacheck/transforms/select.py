"""Keep some fields, or drop some."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar

from pydantic import model_validator

from datacheck.model.sample import ArraySpec, Block
from datacheck.schema.grammar import Strings
from datacheck.transforms.base import Result, Specs, Transform


class Select(Transform):
    """Keep the named fields, or all but the dropped ones.

    Args:
        fields: the fields to keep.
        drop: the fields to leave out; exactly one of the two is given.
    """

    name: ClassVar[str] = "select"
    version: ClassVar[int] = 1
    short: ClassVar[str] = "fields"
    lists: ClassVar[tuple[str, ...]] = ("fields", "drop")
    fields: Strings = ()
    drop: Strings = ()

    @model_validator(mode="after")
    def _one(self) -> Select:
        if bool(self.fields) == bool(self.drop):
            msg = "give either fields (to keep) or drop"
            raise ValueError(msg)
        return self

    def without(self, absent: Collection[str]) -> Transform | None:
        """Return the step for data without these declared fields, None if none is left to drop."""
        step = self.model_copy(
            update={o: tuple(n for n in getattr(self, o) if n not in absent) for o in self.lists}
        )
        if step.fields or step.drop:
            return step
        return self if self.fields else None

    def derive(self, specs: Specs) -> dict[str, ArraySpec]:
        """Return the kept specs."""
        for name in (*self.fields, *self.drop):
            self.spec(specs, name)
        return {name: spec for name, spec in specs.items() if self._keeps(name)}

    def apply(self, block: Block) -> Result:
        """Return the block with the kept columns, uncopied."""
        return [
            replace(block, fields={n: c for n, c in block.fields.items() if self._keeps(n)})
        ], []

    def _keeps(self, name: str) -> bool:
        return name in self.fields if self.fields else name not in self.drop
