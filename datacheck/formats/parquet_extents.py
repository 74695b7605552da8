"""The bytes of a Parquet file that its footer names; readers skip all others.

The footer is parsed here. pyarrow does not give the places of indexes, and aborts the process where
it is asked for a column with wrong values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import IO, Any

import numpy as np

from datacheck.errors import FormatError

_MARK_BYTES = 4
_TAIL_BYTES = 8  # the size of the footer and the mark
_JOINED = b"PAR1PAR1"  # the end of a file and the start of another
# Bytes without an owner that are not zero: old writers give some sizes of chunks too low.
_ALLOWED_BYTES = 1 << 16
_ALLOWED_PART = 100
_PIECE_BYTES = 1 << 20
_HEADER_BYTES = 256  # of a Bloom filter, at most

# Types of values in Thrift's compact protocol.
_TRUE, _FALSE, _BYTE = 1, 2, 3
_INTEGERS = {4, 5, 6}
_DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 7, 8, 9, 10, 11, 12
# Fields by number: the row groups of the footer, their chunks, and places and sizes of these.
_CHUNK_META = {7: None, 9: None, 11: None, 14: None, 15: None}
_CHUNK = {3: _CHUNK_META, 4: None, 5: None, 6: None, 7: None}
_FOOTER: dict[int, Any] = {4: {1: _CHUNK}}


def check_extents(file: IO[bytes], size: int) -> None:
    """Refuse a file that joins two, or one with many bytes that its footer does not name.

    Args:
        file: the file.
        size: its size in bytes.

    Raises:
        FormatError: bytes without an owner hold the end and the start of a file, or more of them
            than 64 KiB, 1 % of the file and the size of the footer together are not zero.
    """
    file.seek(size - _TAIL_BYTES)
    footer = int.from_bytes(file.read(_MARK_BYTES), "little")
    stop = size - _TAIL_BYTES - footer
    file.seek(stop)
    places = sorted(_places(file, file.read(footer)))
    position = _MARK_BYTES
    unnamed = 0
    for start, length in (*places, (stop, 0)):
        unnamed += _unnamed_bytes(file, position, min(start, stop))
        position = max(position, start + max(0, length))
    # Polars writes what the footer says of a chunk behind the chunk, too.
    if unnamed > footer + _ALLOWED_BYTES + size // _ALLOWED_PART:
        msg = (
            f"{unnamed:,} of {size:,} bytes belong to no column and no index that its footer "
            f"names, so readers skip them; their content is unknown. Write the file again"
        )
        raise FormatError(msg)


def _places(file: IO[bytes], footer: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offset and length of each column chunk, index and Bloom filter."""
    for group in _structure(footer, 0, _FOOTER)[0].get(4, ()):
        for chunk in group.get(1, ()):
            meta = chunk.get(3, {})
            starts = [start for start in (meta.get(9, 0), meta.get(11, 0)) if start > 0]
            yield min(starts, default=0), meta.get(7, 0)
            yield chunk.get(4, 0), chunk.get(5, 0)
            yield chunk.get(6, 0), chunk.get(7, 0)
            if 14 in meta:
                yield meta[14], meta[15] if 15 in meta else _filter_bytes(file, meta[14])


def _filter_bytes(file: IO[bytes], start: int) -> int:
    """Return the length of a Bloom filter from its header: early writers did not name it."""
    file.seek(start)
    header, end = _structure(file.read(_HEADER_BYTES), 0, {1: None})
    return int(header.get(1, 0)) + end


def _unnamed_bytes(file: IO[bytes], start: int, stop: int) -> int:
    """Return how many bytes of a gap are not zero (padding).

    Raises:
        FormatError: a file ends and another begins in it.
    """
    file.seek(start)
    left = stop - start
    found = 0
    before = b""
    while left > 0 and (piece := file.read(min(_PIECE_BYTES, left))):
        if _JOINED in before + piece:
            msg = (
                "two Parquet files joined: readers see the columns of the last footer only. Read "
                "each file by itself and write one file of both"
            )
            raise FormatError(msg)
        found += int(np.count_nonzero(np.frombuffer(piece, np.uint8)))
        before = piece[1 - len(_JOINED) :]
        left -= len(piece)
    return found


def _structure(  # noqa: C901  one loop, for speed
    data: bytes, at: int, wanted: Mapping[int, Any] = MappingProxyType({})
) -> tuple[dict[int, Any], int]:
    """Return the wanted fields by their numbers, and the end, of a structure at an offset.

    Notes:
        In one loop with local names: a footer may have a million fields.
    """
    found: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head > 15:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        if kind == _BINARY:
            length = data[at]
            at += 1
            if length > 127:
                length, at = _varint(data, at - 1)
            at += length
        elif kind in _INTEGERS:
            if number in wanted:
                found[number], at = _integer(data, at)
            else:
                while data[at] > 127:
                    at += 1
                at += 1
        elif kind == _STRUCT and number in wanted:
            found[number], at = _structure(data, at, wanted[number])
        elif kind == _LIST and number in wanted:
            found[number], at = _structures(data, at, wanted[number])
        elif kind not in {_TRUE, _FALSE}:
            at = _end(data, at, kind)
    return found, at + 1


def _structures(
    data: bytes, at: int, wanted: Mapping[int, Any]
) -> tuple[list[dict[int, Any]], int]:
    """Return the structures of a list and its end."""
    head = data[at]
    count, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
    if head & 15 != _STRUCT:
        msg = f"a footer whose groups or columns have the type {head & 15}"
        raise FormatError(msg)
    found = []
    for _ in range(count):
        value, at = _structure(data, at, wanted)
        found.append(value)
    return found, at


def _end(data: bytes, at: int, kind: int) -> int:
    """Return the end of a value that is not wanted."""
    if kind == _STRUCT:
        return _structure(data, at)[1]
    if kind in {_LIST, _SET}:
        head = data[at]
        count, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
        return _end_of_all(data, at, count, (head & 15,))
    if kind in {_MAP, _BINARY, *_INTEGERS}:
        length, at = _varint(data, at)
        if kind != _MAP:
            return at + (length if kind == _BINARY else 0)
        kinds = data[at]
        return _end_of_all(data, at + 1, length, (kinds >> 4, kinds & 15)) if length else at
    if kind not in {_TRUE, _FALSE, _BYTE, _DOUBLE}:
        msg = f"a footer with a value of the unknown type {kind}"
        raise FormatError(msg)
    data[at]  # raises behind the end
    return at + (8 if kind == _DOUBLE else 1)


def _end_of_all(data: bytes, at: int, count: int, kinds: tuple[int, ...]) -> int:
    for _ in range(count):
        for kind in kinds:
            at = _end(data, at, kind)
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[at]) > 127 and shift < 64:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
    return value | byte << shift, at + 1


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at
