"""The shape grammar of schemas: ``[T, 7]``, ``[P, 3]``, ``[]``; names are axes, integers are sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence

Dim = int | str
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_PRODUCT = re.compile(r"(\d+)[xX*](\d+)")


def _is_dim(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and value >= 0
    return isinstance(value, str) and _NAME.match(value) is not None


def parse_dim(value: object) -> Dim:
    """Return one axis: a size of 0 or more, or a name.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, int | str) and _is_dim(value):
        return value
    msg = f"cannot read axis {value!r}; axes are names or integers of 0 or more"
    raise ValueError(msg)


SAMPLES = "samples"  # as a count: how many samples the file holds
SUM = "sum "  # before an axis: its sizes added up over the samples of the file


def parse_count(value: object) -> Dim:
    """Return what an attribute counts: a number, an axis, ``samples``, or ``sum T``.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(value, str) and value.startswith(SUM) and _is_dim(axis := value.removeprefix(SUM).strip()):
        return SUM + axis
    try:
        return parse_dim(value)
    except ValueError as error:
        msg = f"{error}; an attribute may also count samples, or sum T (an axis added up over them)"
        raise ValueError(msg) from error


def parse_shape(value: object) -> object:
    """Return a list of axes as a tuple; what is not a list passes through to the type check.

    Raises:
        ValueError: an item is no axis; the message shows the whole shape and, for ``4x4``, what was meant.
    """
    if not isinstance(value, list | tuple):
        return value
    for item in value:
        if not _is_dim(item):
            msg = f"cannot read axis {item!r} in {shows(value)}; axes are names or integers of 0 or more"
            meant = [_PRODUCT.fullmatch(v) if isinstance(v, str) else None for v in value]
            if isinstance(item, str) and _PRODUCT.fullmatch(item):
                sizes = [s for v, m in zip(value, meant, strict=True) for s in ([m[1], m[2]] if m else [v])]
                msg += f". Did you mean {shows(sizes)}?"
            raise ValueError(msg)
    return tuple(value)


def shows(dims: Sequence[object]) -> str:
    """Return a shape as a person writes it."""
    return "[" + ", ".join(map(str, dims)) + "]"
