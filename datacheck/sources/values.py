"""Values as containers give them, made plain: native arrays, `str`, JSON values, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from datacheck.formats import limits
from datacheck.formats.parsed import rectangular, to_json
from datacheck.schema.model import FieldSpec

Array = np.ndarray[Any, Any]


def plain(value: Any, spec: FieldSpec, *, parsed: bool = False) -> Any:
    """Return `value` as a block can hold it, or None where there is nothing.

    Args:
        value: what a container returned.
        spec: the field's declaration: lists become arrays where a number is expected, and stay JSON elsewhere.
        parsed: the value comes from a JSON text and needs no check.

    Returns:
        An array (little-endian, C order, bool, integer or float), a `str`, a JSON value, or None.

    Raises:
        FormatError: it is none of these: objects, records, text that is not UTF-8, ragged lists.

    Notes:
        Built-in formats give plain values already; this holds those of plug-ins to the same. JSON has one kind of
        number: integers become floats where the schema declares floats.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value))
    if isinstance(value, bytes):
        return limits.text(value)
    if isinstance(value, bool | int | float) and not spec.is_text:
        return _cast(_array(np.asarray(value)), spec)
    if isinstance(value, list | tuple) and _numeric(spec):
        return _cast(rectangular(value), spec)
    return value if parsed else _json(value)


def _numeric(spec: FieldSpec) -> bool:
    return not spec.is_text and (spec.shape is not None or spec.dtype is not None or spec.role not in {None, "id"})


def _array(value: Array) -> Any:
    return limits.strings(value) if value.dtype.kind in "SUT" else limits.plain(value)


def _cast(value: Any, spec: FieldSpec) -> Any:
    if not isinstance(value, np.ndarray) or spec.dtype is None or value.dtype.kind not in "iuf":
        return value
    wanted = np.dtype(spec.dtype)
    if wanted.kind not in "iuf" or (value.size and wanted.kind in "iu" and value.dtype.kind == "f"):
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        cast = value.astype(wanted)
    same = cast == value if wanted.kind in "iu" else np.isfinite(cast) == np.isfinite(value)
    return cast if bool(same.all()) else value  # what does not fit keeps its dtype, for the rule about dtypes to see


def _json(value: Any) -> Any:
    try:
        orjson.dumps(value)
    except TypeError:
        return to_json(value)
    return value


def weigh(value: Any) -> int:
    """Return about how many bytes a plain value takes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, str):
        return len(value)
    return len(orjson.dumps(value)) if isinstance(value, dict | list) else 8
