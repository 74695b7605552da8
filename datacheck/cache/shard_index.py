"""Where the inner chunks of a shard lie: its index, checked against the file before anything relies on it."""

from __future__ import annotations

import struct
from typing import Any

import google_crc32c
import numpy as np

from datacheck.cache import layout
from datacheck.cache.codec import most_stored
from datacheck.cache.layout import Grid
from datacheck.cache.place import Place
from datacheck.cache.store import Store

Array = np.ndarray[Any, Any]


def read_index(place: Place, store: Store, name: str, grid: Grid, *, first: bool = False) -> Array:
    """Return offset and stored size of each inner chunk of a shard file, `layout.ABSENT` twice for an absent one.

    Shapes:
        returns: uint64 (inner chunks, 2) [bytes]

    Args:
        place: the cache.
        store: where it is read from.
        name: path of the shard.
        grid: how the array is cut.
        first: whether the index lies at the beginning of the file; else at its end.

    Raises:
        CorruptionError: the size or the crc32c is wrong, the index points outside of the file, or a chunk has more
            bytes than any codec makes of it.
    """
    size, said = layout.index_bytes(grid), place.files.get(name, (-1, ""))[0]
    length = store.size(name)
    if length is None:
        place.fail(f"{name}: missing")
    if length != said:
        what = f"{length:,} bytes, the manifest says {said:,}" if length >= 0 else "no plain file"
        place.fail(f"{name}: {what}")
    raw = bytearray(min(size, length))
    store.read_into(name, 0 if first else length - len(raw), memoryview(raw))
    if len(raw) < size or struct.pack("<I", google_crc32c.value(bytes(raw[:-4]))) != raw[-4:]:
        place.fail(f"{name}: the crc32c of the shard index does not match")
    index = np.frombuffer(raw[:-4], dtype="<u8").reshape(-1, 2)
    present = index[index[:, 0] != layout.ABSENT]
    room = np.uint64(length - (0 if first else size))
    if (present[:, 0] > room).any() or (present[:, 1] > room - present[:, 0]).any():
        place.fail(f"{name}: the shard index points outside of the file")
    check_stored(place, name, grid, present[:, 1])
    return index


def check_stored(place: Place, name: str, grid: Grid, sizes: Array) -> None:
    """Fail where chunks have more bytes than a codec makes of them: reading would take longer than what is served.

    Shapes:
        sizes: uint64 (inner chunks) [bytes] as stored
    """
    most = most_stored(grid.chunk_bytes)
    if len(sizes) and int(sizes.max()) > most:
        what = f"a chunk of {int(sizes.max()):,} bytes; at most {most:,} are read of {grid.chunk_bytes:,} decoded"
        place.fail(f"{name}: {what}")


def chunk_sizes(place: Place, store: Store, path: str, grid: Grid, g: int) -> tuple[Array, bool]:
    """Return the stored size of each inner chunk that shard `g` holds, and whether they lie as this format says.

    Raises:
        CorruptionError: see `read_index`.
    """
    name = f"{path}/{grid.shard_file(g)}"
    index = read_index(place, store, name, grid)
    sizes = index[index[:, 0] != layout.ABSENT, 1]
    whole = sum(sizes.tolist()) + layout.index_bytes(grid) == place.files[name][0]
    return sizes, whole and index.tobytes() == layout.pack_index(grid, sizes)[:-4]


def table_bytes(dtype: str, rows: int) -> int:
    """Return how many bytes the file of a table of so many rows has at most, however its inner chunks are cut."""
    return rows * (np.dtype(dtype).itemsize + 16) + 2 * layout.CHUNK_BYTES
