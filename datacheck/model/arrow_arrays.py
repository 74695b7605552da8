"""Arrow arrays as NumPy arrays, straight from their buffers.

`to_numpy` imports pandas if it is installed (0.3 s), and `cast`, `fill_null`, `flatten` and
`value_lengths` import `pyarrow.compute` (0.1 s). A child that reads one small file would spend nearly all of its
time on these imports.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.model.sample import Array

_DTYPES = {f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DTYPES |= {"bool": "bool", "halffloat": "f2", "float": "f4", "double": "f8"}


def present(rows: Any) -> Array:
    """Return which entries of an array are not null.

    Shapes:
        returns: bool (entries)
    """
    if not rows.null_count:
        return np.ones(len(rows), bool)
    return _bits(rows.buffers()[0], rows)


def numbers(rows: Any) -> Array:
    """Return the numbers of an array; null entries have any value.

    Args:
        rows: booleans, integers or floats; of dates and times their counts.

    Shapes:
        returns: (entries); a view of the Arrow buffer, except booleans
    """
    kind = rows.type
    count = f"i{kind.bit_width // 8}"  # of a date or time
    dtype = np.dtype(_DTYPES.get(str(kind), count))
    if not len(rows):
        return np.zeros(0, dtype)
    data = rows.buffers()[1]
    if dtype.kind == "b":
        return _bits(data, rows)
    return np.frombuffer(data, dtype, len(rows), rows.offset * dtype.itemsize)


def list_lengths(rows: Any) -> Array:
    """Return the lengths of the lists of an array; a null entry has length 0.

    Shapes:
        returns: int64 (entries)
    """
    if _is_fixed(rows):
        lengths = np.full(len(rows), rows.type.list_size, np.int64)
    else:
        lengths = np.diff(_offsets(rows)).astype(np.int64)
    return lengths * present(rows) if rows.null_count else lengths


def flattened(rows: Any) -> Any:
    """Return the Arrow array of the items of all lists of an array, without those of null entries."""
    if rows.null_count:
        return rows.flatten()
    if _is_fixed(rows):
        size = rows.type.list_size
        return rows.values.slice(rows.offset * size, len(rows) * size)
    offsets = _offsets(rows)
    return rows.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _is_fixed(rows: Any) -> bool:
    return hasattr(rows.type, "list_size")


def _offsets(rows: Any) -> Array:
    """Return the offsets of lists in their items, int32 or int64 (entries + 1)."""
    dtype = np.dtype(np.int64 if str(rows.type).startswith("large_list") else np.int32)
    if not len(rows):
        return np.zeros(1, dtype)
    return np.frombuffer(rows.buffers()[1], dtype, len(rows) + 1, rows.offset * dtype.itemsize)


def _bits(buffer: Any, rows: Any) -> Array:
    first, stop = rows.offset // 8, (rows.offset + len(rows) + 7) // 8
    octets = np.frombuffer(buffer, np.uint8, stop - first, first)
    begin = rows.offset - 8 * first
    return np.unpackbits(octets, bitorder="little")[begin : begin + len(rows)].view(bool)
