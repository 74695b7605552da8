"""The guess that each step of ``datacheck init`` makes about one field.

A step returns the part of the declaration that it can tell, with its reasons. `Guess.plus` joins
the parts; the draft writes the reasons behind the field as a comment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Guess:
    """The guessed declaration of a field, or a part of it."""

    spec: dict[str, Any] = field(default_factory=dict)
    """Keys of `datacheck.schema.model.FieldSpec`, as in YAML."""
    why: tuple[str, ...] = ()
    """The reasons, one short phrase each."""

    def plus(self, *others: Guess) -> Guess:
        """Return the guess with the keys and reasons of others; later keys win."""
        spec = dict(self.spec)
        why = list(self.why)
        for other in others:
            spec |= other.spec
            why += other.why
        return Guess(spec, tuple(why))

    def without(self, key: str) -> Guess:
        """Return the guess without a key; the reasons stay."""
        return Guess({name: value for name, value in self.spec.items() if name != key}, self.why)
