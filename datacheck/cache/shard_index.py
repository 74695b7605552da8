"""How the chunks of an array are stored, and where they lie in each shard file.

`layout.grid_of` recognises the ``zarr.json`` that datacheck writes; `parse_chunk_storage` reads
those of other writers, as far as they cut the first axis only and use the same codecs.

A shard file holds chunks and an index: offset and stored size of each. datacheck writes the chunks
one after the other from the start of the file, so their sizes tell where they lie. Other writers
may order them freely, leave gaps, or leave out chunks of the fill value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np

from datacheck.cache import layout, parsing
from datacheck.cache.codec import Codec, most_stored
from datacheck.cache.layout import Grid
from datacheck.cache.manifest import CacheFiles
from datacheck.cache.store import Store

Array = np.ndarray[Any, Any]

_LITTLE_ENDIAN = {"name": "bytes", "configuration": {"endian": "little"}}
_INDEX_CODECS = [_LITTLE_ENDIAN, {"name": "crc32c"}]


@dataclass(frozen=True)
class ChunkStorage:
    """How the chunks of an array are named and stored.

    Args:
        codec: the codec of each chunk.
        separator: between the parts of a file's name.
        sharded: whether a file holds several chunks and their index; else one chunk.
        index_first: whether the index is at the start of the file; else at its end.
    """

    codec: Codec
    separator: str = "."
    sharded: bool = True
    index_first: bool = False

    def files(self, path: str, grid: Grid) -> Iterator[str]:
        """Yield the shard files of an array, in order."""
        prefix = f"{path}/c{self.separator}"
        suffix = f"{self.separator}0" * len(grid.item)
        return (f"{prefix}{shard}{suffix}" for shard in range(grid.shards))


def parse_chunk_storage(document: Mapping[str, Any]) -> tuple[Grid, ChunkStorage]:
    """Return how an array is cut and stored.

    Raises:
        KeyError, TypeError, ValueError: the array is stored in an unsupported way.
    """
    shape = document["shape"]
    chunk_grid = document["chunk_grid"]
    shard = chunk_grid["configuration"]["chunk_shape"]
    codecs = document["codecs"]
    sharded = len(codecs) == 1 and codecs[0]["name"] == "sharding_indexed"
    chunk = shard
    index_location = "end"
    if sharded:
        sharding = codecs[0]["configuration"]
        chunk = sharding["chunk_shape"]
        codecs = sharding["codecs"]
        index_location = sharding.get("index_location", "end")
        if sharding["index_codecs"] != _INDEX_CODECS or index_location not in {"start", "end"}:
            msg = "an index that is not bytes and crc32c"
            raise ValueError(msg)
    if chunk_grid["name"] != "regular" or shard[1:] != shape[1:] or chunk[1:] != shape[1:]:
        msg = f"cut into {shard} and {chunk}; only the first axis of {shape} may be cut"
        raise ValueError(msg)
    grid = Grid(layout.parse_dtype(document), tuple(shape), shard[0], chunk[0])
    storage = ChunkStorage(
        _parse_codec(codecs, grid), _parse_separator(document), sharded, index_location == "start"
    )
    return grid, storage


def _parse_codec(codecs: Any, grid: Grid) -> Codec:
    """Return the codec of inner codecs; raise `ValueError` for codecs outside this format."""
    byte_order = [_LITTLE_ENDIAN]
    if np.dtype(grid.dtype).itemsize == 1:
        byte_order.append({"name": "bytes"})
    codec = Codec.of(codecs[1:]) if codecs[:1] and codecs[0] in byte_order else None
    if codec is None:
        names = ", ".join(
            str(entry["name"] if isinstance(entry, Mapping) else entry)[:40] for entry in codecs[:4]
        )
        msg = f"codecs {names}; a cache holds little-endian bytes, plain or in zstd with a checksum"
        raise ValueError(msg)
    return codec


def _parse_separator(document: Mapping[str, Any]) -> str:
    encoding = document["chunk_key_encoding"]
    separator = encoding.get("configuration", {}).get("separator", "/")
    if encoding["name"] != "default" or separator not in {"/", "."}:
        msg = f"chunk_key_encoding {str(encoding)[:80]}"
        raise ValueError(msg)
    return str(separator)


# ----------------------------------------------------------------------------- the index of a shard


@dataclass(frozen=True, eq=False)
class ShardChunks:
    """The present inner chunks of a shard.

    Args:
        sizes: uint64 (chunks), as stored [bytes].
        packed: whether they lie one after the other from the start of the file.
    """

    sizes: Array
    packed: bool


def read_shard_chunks(
    cache_files: CacheFiles, store: Store, path: str, grid: Grid, shard: int
) -> ShardChunks:
    """Return the present inner chunks of a shard of the array at `path`.

    Raises:
        CorruptionError: see `read_index`; also if a chunk has no bytes.
    """
    name = f"{path}/{grid.shard_file(shard)}"
    index = read_index(cache_files, store, name, grid)
    sizes = index[index[:, 0] != layout.ABSENT, 1]
    count = len(sizes)
    # No codec makes such a chunk. An index of zeros may be a hole, which costs no byte on the disk.
    if not sizes.all():
        cache_files.fail(f"{name}: the shard index has a chunk of 0 bytes")
    # No overflow: `read_index` limits the sizes, and their number.
    ends = np.cumsum(sizes, dtype=np.uint64)
    packed_bytes = int(ends[-1]) if count else 0
    packed = (
        packed_bytes + layout.index_bytes(grid) == cache_files.files[name][0]
        and bool((index[:count, 0] == ends - sizes).all())
        and bool((index[count:] == layout.ABSENT).all())
    )
    return ShardChunks(sizes, packed)


def packed_index(sizes: Array) -> Array:
    """Return offset and size of chunks that lie one after the other, int64 (chunks, 2) [bytes]."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return np.stack([ends - sizes.astype(np.int64), sizes.astype(np.int64)], axis=1)


def read_index(
    cache_files: CacheFiles, store: Store, name: str, grid: Grid, *, index_first: bool = False
) -> Array:
    """Return offset and stored size of each inner chunk of a shard file.

    Both are `layout.ABSENT` for an absent chunk.

    Shapes:
        returns: uint64 (inner chunks, 2) [bytes]

    Args:
        cache_files: the files of the cache.
        store: the store to read from.
        name: path of the shard.
        grid: how the array is cut.
        index_first: whether the index is at the start of the file; else at its end.

    Raises:
        CorruptionError: the size or the crc32c is wrong, the index points outside of the file, a
            chunk has more bytes than any codec produces, or there are too many chunks.
    """
    with cache_files.checked_content(name):
        parsing.check_chunks(grid)  # before memory is allocated for each
    length = _checked_length(cache_files, store, name)
    size = layout.index_bytes(grid)
    raw = bytearray(min(size, length))
    store.read_into(name, 0 if index_first else length - len(raw), memoryview(raw))
    words = np.frombuffer(raw, np.uint8)[:-4]
    if len(raw) < size or struct.pack("<I", google_crc32c.value(words)) != raw[-4:]:
        cache_files.fail(f"{name}: the crc32c of the shard index does not match")
    index = words.view("<u8").reshape(-1, 2)
    is_present = index[:, 0] != layout.ABSENT
    present = index if is_present.all() else index[is_present]
    offsets = present[:, 0]
    sizes = present[:, 1]
    data_stop = np.uint64(length if index_first else length - size)
    # Not offsets + sizes: the sum could overflow.
    if (offsets > data_stop).any() or (sizes > data_stop - offsets).any():
        cache_files.fail(f"{name}: the shard index points outside of the file")
    _check_stored_sizes(cache_files, name, grid, sizes)
    return index


def _checked_length(cache_files: CacheFiles, store: Store, name: str) -> int:
    """Return the size of a file, which must be the manifest's."""
    expected = cache_files.files.get(name, (-1, ""))[0]
    length = store.size(name)
    if length is None:
        cache_files.fail(f"{name}: missing")
    if length < 0:
        cache_files.fail(f"{name}: no plain file")
    if length != expected:
        cache_files.fail(f"{name}: {length:,} bytes, the manifest says {expected:,}")
    return length


def _check_stored_sizes(cache_files: CacheFiles, name: str, grid: Grid, sizes: Array) -> None:
    """Raise if a stored chunk has more bytes than a codec produces.

    Reading it would take memory out of proportion to the data that it decodes to.
    """
    limit = most_stored(grid.chunk_bytes)
    if len(sizes) and int(sizes.max()) > limit:
        cache_files.fail(
            f"{name}: a chunk of {int(sizes.max()):,} bytes; at most {limit:,} are read of "
            f"{grid.chunk_bytes:,} decoded"
        )


def read_foreign_indices(
    cache_files: CacheFiles, store: Store, path: str, grid: Grid, storage: ChunkStorage
) -> list[Array]:
    """Return offset and stored size of each inner chunk of each shard, whoever wrote them.

    Both are 0 for a chunk that is not stored, which consists of the fill value.

    Shapes:
        returns: uint64 (inner chunks, 2) for each shard [bytes]

    Raises:
        CorruptionError: a file is missing, its index is damaged or invalid, or chunks that are not
            stored stand for too many bytes.
    """
    read = _read_foreign_index if storage.sharded else _single_chunk_index
    limit = parsing.ABSENT_BYTES if path.startswith("fields/") else parsing.ABSENT_TABLE_BYTES
    indices = []
    absent_bytes = 0
    for name in storage.files(path, grid):
        index = read(cache_files, store, name, grid, storage)
        absent_chunks = int(np.count_nonzero(index[:, 1] == 0))
        absent_bytes += absent_chunks * max(grid.chunk_bytes, parsing.ABSENT_CHUNK_BYTES)
        # After each shard: the indices of all may take more memory than there is.
        if absent_bytes > limit:
            cache_files.fail(
                f"{path}: {absent_bytes:,} bytes of chunks that are not stored; at most {limit:,}"
            )
        indices.append(index)
    return indices


def _read_foreign_index(
    cache_files: CacheFiles, store: Store, name: str, grid: Grid, storage: ChunkStorage
) -> Array:
    index = read_index(cache_files, store, name, grid, index_first=storage.index_first)
    absent = (index[:, 0] == layout.ABSENT) | (index[:, 1] == 0)
    stored = index[~absent]
    # Chunks that overlap would let a small file stand for any number of rows.
    stored = stored[np.argsort(stored[:, 0], kind="stable")]
    ends = stored[:, 0] + stored[:, 1]
    if (stored[1:, 0] < ends[:-1]).any():
        cache_files.fail(f"{name}: the shard index has chunks that lie over each other")
    index[absent] = 0
    return index


def _single_chunk_index(
    cache_files: CacheFiles, store: Store, name: str, grid: Grid, storage: ChunkStorage
) -> Array:
    """Return the index of a file that is one chunk."""
    del store, storage
    if name not in cache_files.files:
        cache_files.fail(f"{name}: missing")
    index = np.array([[0, cache_files.files[name][0]]], np.uint64)
    _check_stored_sizes(cache_files, name, grid, index[:, 1])
    return index
