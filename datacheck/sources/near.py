"""Names that say the same as another: ``actions`` and ``action``, ``obs/ee-pos`` and ``observation.ee_pos``."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from datacheck.errors import FormatError
from datacheck.sample import Container
from datacheck.schema.model import FieldSpec

_OUTER = frozenset({"data", "obs", "observation", "observations"})


def folded(name: str) -> str:
    """Return a name without what near names differ in: case, plural, ``-`` and ``_``, groups of observations."""
    levels = [level for level in re.split(r"[./]", name.lower().replace("-", "_")) if level]
    levels = [level for level in levels[:-1] if level not in _OUTER] + levels[-1:]
    return "/".join("_".join(re.sub(r"(?<=[^s])s$", "", word) for word in level.split("_") if word) for level in levels)


def near_name(wanted: str, names: Iterable[str]) -> str:
    """Return the only name that is near another one, "" where there is none or are several."""
    found = [name for name in names if folded(name) == folded(wanted)]
    return found[0] if len(found) == 1 else ""


def may_be(container: Container, name: str, spec: FieldSpec) -> bool:
    """Tell from the header of a value whether it can be what is declared of a field: its kind, and its sizes."""
    try:
        shape, dtype = container.peek(name)
    except (KeyError, FormatError):
        return False
    if dtype in {"text", "json"}:
        return spec.is_text
    return not spec.is_text and np.dtype(dtype).kind in "biuf" and fits(shape, spec)


def fits(shape: Iterable[int], spec: FieldSpec) -> bool:
    """Tell whether a shape has the axes and sizes that are declared of a field."""
    sizes, wanted = tuple(shape), spec.shape
    if wanted is None:
        return True
    alike = zip(wanted, sizes, strict=False)
    return len(wanted) == len(sizes) and all(axis == size for axis, size in alike if isinstance(axis, int))
