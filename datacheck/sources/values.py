"""Values as containers give them, made plain: native arrays, `str`, JSON values, or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from datacheck.errors import FormatError
from datacheck.schema.model import FieldSpec

Array = np.ndarray[Any, Any]

_LOOSE = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def plain(value: Any, spec: FieldSpec, *, parsed: bool = False) -> Any:
    """Return `value` as a block can hold it, or None where there is nothing.

    Args:
        value: what a container returned.
        spec: the field's declaration: lists become arrays where a number is expected, and stay JSON elsewhere.
        parsed: the value comes from a JSON text and needs no check.

    Returns:
        An array (native byte order, C order, bool, integer, float or complex), a `str`, a JSON value, or None.

    Raises:
        FormatError: it is none of these: objects, records, text that is not UTF-8, ragged lists.

    Notes:
        Arrays of text become lists. Dates become int64 in their own unit. JSON has one kind of number: integers become
        floats where the schema declares floats.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value))
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, bool | int | float) and not spec.is_text:
        return _cast(_array(np.asarray(value)), spec)
    if isinstance(value, list | tuple) and _numeric(spec):
        return _cast(_rectangular(value), spec)
    return value if parsed else _json(value)


def _numeric(spec: FieldSpec) -> bool:
    return not spec.is_text and (spec.shape is not None or spec.dtype is not None or spec.role not in {None, "id"})


def _array(value: Array) -> Any:
    kind = value.dtype.kind
    if kind == "U":
        return value.tolist()
    if kind == "S":
        return _texts(value.tolist())
    if kind in "mM":
        value = value.view(np.dtype(np.int64).newbyteorder(value.dtype.byteorder))
    elif kind not in "biufc":
        what = {"O": "Python objects", "V": "records"}.get(kind, str(value.dtype))
        msg = f"holds {what}, not numbers; export it as plain arrays"
        raise FormatError(msg)
    dtype = np.dtype(f"{kind}{8 if kind == 'f' else 16}") if value.dtype.char in "gG" else value.dtype.newbyteorder("=")
    return np.asarray(value, dtype=dtype, order="C")


def _texts(value: Any) -> Any:
    return [_texts(item) for item in value] if isinstance(value, list) else _text(value)


def _text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = f"text is not UTF-8 at byte {error.start}"
        raise FormatError(msg) from error


def _rectangular(value: list[Any] | tuple[Any, ...]) -> Array:
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        msg = "a list of lists of different lengths where an array is declared"
        raise FormatError(msg) from error
    if array.dtype.kind not in "biuf":
        msg = "a list that holds more than numbers where an array is declared"
        raise FormatError(msg)
    return array


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
        try:
            return orjson.loads(orjson.dumps(value, option=_LOOSE))
        except TypeError as error:
            msg = f"holds what JSON cannot ({error}); export it as plain values"
            raise FormatError(msg) from error
    return value


def weigh(value: Any) -> int:
    """Return about how many bytes a plain value takes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, str):
        return len(value)
    return len(orjson.dumps(value)) if isinstance(value, dict | list) else 8
