"""Convert container values to plain values: native arrays, `str`, JSON values, or None."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson

from datacheck.errors import FormatError
from datacheck.formats import limits
from datacheck.formats.parsed import rectangular, to_json
from datacheck.formats.textfile import Columns
from datacheck.model.sample import Container, Peeked
from datacheck.schema.model import FieldSpec

Array = np.ndarray[Any, Any]
HeaderTest = Callable[[Peeked], bool]  # whether a header is enough, so that the values stay unread

_PLAIN = frozenset(
    map(np.dtype, ("?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"))
)
_ANY = FieldSpec()  # made once: it takes longer than reading a number
_LARGE_BYTES = 64 << 20
_STRIP = 1 << 16
_MOST_BYTES = 1 << 50  # limit for a peeked array, so that thousands of them still have a total size


def plain(value: Any, spec: FieldSpec, *, parsed: bool = False) -> Any:
    """Return `value` in a form that a block can hold; None for no value.

    Args:
        value: what a container returned.
        spec: the field's declaration: lists become arrays where it expects numbers, and stay JSON
            elsewhere.
        parsed: the value comes from JSON text and needs no check.

    Returns:
        An array (little-endian, C order, bool, integer or float), a `str`, a JSON value, or None.

    Raises:
        FormatError: the value is none of these: objects, records, text that is not UTF-8, ragged
            lists.

    Notes:
        Built-in formats return plain values already; this function holds plug-ins to the same
        standard. JSON has a single number type: integers become floats where the schema declares
        floats.
    """
    if value is None or isinstance(value, str) or _is_plain(value):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value))
    if isinstance(value, bytes):
        return limits.text(value)
    if isinstance(value, bool | int | float) and not spec.is_text:
        return _cast(_array(np.asarray(value)), spec)
    if isinstance(value, list | tuple) and is_rows(spec):
        return _cast(rectangular(value), spec)
    return value if parsed else _json(value)


def _is_plain(value: Any) -> bool:
    return type(value) is np.ndarray and value.dtype in _PLAIN and bool(value.flags.c_contiguous)


def is_rows(spec: FieldSpec) -> bool:
    """Return whether to read a list as an array, because the field is declared as numbers."""
    return not spec.is_text and (
        spec.shape is not None or spec.dtype is not None or spec.role not in {None, "id"}
    )


def _array(value: Array) -> Any:
    return limits.strings(value) if value.dtype.kind in "SUT" else limits.plain(value)


def _cast(value: Any, spec: FieldSpec) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    cast = cast_all(value, spec)
    # Values that do not fit keep their dtype, so that the rule about dtypes sees them.
    return value if cast is None else cast


def cast_all(value: Array, spec: FieldSpec) -> Array | None:
    """Cast numbers to the declared dtype; None where some do not fit.

    The array stays unchanged if it or the declared dtype is not numeric, or if it holds floats and
    integers are declared.
    """
    if spec.dtype is None or value.dtype.kind not in "iuf":
        return value
    target_dtype = np.dtype(spec.dtype)
    if target_dtype.kind not in "iuf" or (
        value.size and target_dtype.kind in "iu" and value.dtype.kind == "f"
    ):
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        cast = value.astype(target_dtype)
    same = cast == value if target_dtype.kind in "iu" else np.isfinite(cast) == np.isfinite(value)
    return cast if bool(same.all()) else None


def _json(value: Any) -> Any:
    try:
        orjson.dumps(value)
    except TypeError:
        return to_json(value)
    return value


def always(seen: Peeked) -> bool:
    """Accept every header."""
    del seen
    return True


def like_pixels(seen: Peeked) -> bool:
    """Return whether an array looks like images: uint8 with 3 axes or more."""
    return seen.dtype == np.uint8 and seen.ndim >= 3


def read_value(
    container: Container,
    name: str,
    spec: FieldSpec,
    field: str,
    look: HeaderTest | None = None,
    rows: tuple[int, int] | None = None,
) -> Any:
    """Return one plain value, None if absent; an error names the field.

    Args:
        container, name: where the value is.
        spec, field: the declared field.
        look: returns `Peeked` where this test accepts the header; None reads the value.
        rows: read only rows [start, stop).
    """
    try:
        if look is not None and (header := _peeked(container, name)) is not None and look(header):
            return header
        raw_value = container.read(name) if rows is None else container.read_rows(name, *rows)
        value = (
            _plain_column(container, name, raw_value, spec)
            if isinstance(container, Columns)
            else plain(raw_value, spec)
        )
    except KeyError:
        return None
    except OSError as error:
        raise FormatError(f"{field}: {error.strerror or error}".removeprefix(": ")) from error
    except FormatError as error:
        if not field:
            raise
        raise FormatError(_of_field(str(error), name, field), error.code) from error
    if isinstance(value, np.ndarray) and not value.size:
        limits.check_shape(value.shape)
    return value


def _plain_column(container: Columns, name: str, raw_value: Any, spec: FieldSpec) -> Any:
    """Return a table column as a plain value.

    Raises:
        FormatError: the column is declared as numbers or times, but some cells are not; names them.
    """
    if isinstance(raw_value, list) and raw_value and is_rows(spec):
        raise FormatError(container.why_text(name))
    return plain(raw_value, spec)


def read_numbers(container: Container, name: str, look: HeaderTest) -> Array | Peeked | None:
    """Return an array, None for other values; texts stay unread where the format can tell.

    Args:
        container, name: where the value is.
        look: returns `Peeked` where this test accepts the header.

    Raises:
        FormatError: the value is damaged or of a refused type.
    """
    header: Peeked | None = None
    if type(container).peek is not Container.peek:
        try:
            header = None if container.stores_text(name) else _peeked(container, name)
        except (KeyError, OSError):
            return None
        if header is None or look(header):
            return header
    value = read_value(container, name, _ANY, "")
    return value if isinstance(value, np.ndarray) else None


class ColumnMajorTable(limits.Values):
    """A container of one table of plain numbers with contiguous columns."""


def read_planar(container: Container, name: str) -> Array | None:
    """Return a large table of numbers in column-major order, None for other values.

    Shapes:
        returns: any (rows, columns), each column contiguous

    Notes:
        Reads strip by strip: the whole table and its transpose together would take twice the
        memory.
    """
    if isinstance(container, ColumnMajorTable):
        table: Array = container.read(name)
        return table
    if type(container).read_rows is Container.read_rows:
        return None
    shape, dtype = container.peek(name)
    if (
        len(shape) != 2
        or not _LARGE_BYTES < shape[0] * shape[1] * np.dtype(dtype).itemsize <= limits.VALUE_BYTES
    ):
        return None
    planes = np.empty(shape[::-1], dtype)
    for start in range(0, shape[0], _STRIP):
        planes[:, start : start + _STRIP] = container.read_rows(name, start, start + _STRIP).T
    return planes.T


def part_of(table: Any, start: int, stop: int) -> Any:
    """Return columns [start, stop) of a table; a single column as a flat array."""
    if isinstance(table, Peeked):
        return Peeked((len(table), *([] if stop - start == 1 else [stop - start])), table.dtype)
    return table[:, start] if stop - start == 1 else table[:, start:stop]


def _peeked(container: Container, name: str) -> Peeked | None:
    """Return an array's header, None for texts, JSON and formats without headers."""
    if type(container).peek is Container.peek:
        return None
    shape, dtype = container.peek(name)
    if dtype in {"text", "json"} or np.dtype(dtype).kind not in "biuf":
        return None
    header = Peeked(tuple(int(n) for n in shape), np.dtype(dtype))
    limits.check_shape(header.shape)
    if math.prod(header.shape) * header.dtype.itemsize > _MOST_BYTES:
        msg = f"an array of shape {list(header.shape)}"
        raise FormatError(msg)
    return header


def _of_field(reason: str, name: str, field: str) -> str:
    """Return a reason that begins with the field's name instead of the container's name for it."""
    head, colon, rest = reason.partition(": ")
    return f"{field}: {rest if colon and (name == head or name.startswith((f'{head}/', f'{head}.'))) else reason}"


def check_written(values: Mapping[str, Any]) -> None:
    """Check that every value can be written as JSON: the parser accepts deeper nesting.

    Raises:
        FormatError: (DC701) a value is nested too deep; the message names the field.
    """
    for name, value in values.items():
        try:
            if isinstance(value, dict | list):
                orjson.dumps(value)
        except TypeError as error:
            msg = f"{name}: nested too deep ({error})"
            raise FormatError(msg, "DC701") from error


def nested_value(record: Mapping[str, Any], at: str) -> Any:
    """Return the value in a JSON object at a name or a path ("pose/left"); None if absent."""
    if at in record:
        return record[at]
    value: Any = record
    for level in at.split("/"):
        value = value.get(level) if isinstance(value, dict) else None
    return value


def kind_of(value: Any) -> str:
    """Return the type of a parsed JSON value, in words."""
    kinds = {
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return kinds.get(type(value), "nothing")
