"""The shape grammar of schemas: ``[T, 7]``, ``[P, 3]``, ``[]``; names are axes, integers are sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence

Dim = int | str
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def parse_dim(value: object) -> Dim:
    """Return one axis: a size of 0 or more, or a name.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and _NAME.match(value):
        return value
    suggestion = ""
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+)[xX*](\d+)", value)):
        suggestion = f". Did you mean {match[1]}, {match[2]}?"
    msg = f"cannot read axis {value!r}; axes are names or integers{suggestion}"
    raise ValueError(msg)


def shows(dims: Sequence[Dim]) -> str:
    """Return a shape as a person writes it."""
    return "[" + ", ".join(map(str, dims)) + "]"


def matches(dims: Sequence[Dim], shape: Sequence[int]) -> bool:
    """Tell whether `shape` has the declared rank and the declared sizes (names match any size)."""
    return len(dims) == len(shape) and all(isinstance(d, str) or d == s for d, s in zip(dims, shape, strict=True))
