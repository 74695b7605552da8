"""How an array of a cache is stored, from its ``zarr.json``: the grid, the codec, names of files.

`layout.grid_of` recognises the documents that datacheck writes. This module reads those of other
writers, as far as they cut the first axis only and use the same codecs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.cache import layout
from datacheck.cache.codec import Codec
from datacheck.cache.layout import Grid

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
