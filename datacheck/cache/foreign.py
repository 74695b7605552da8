"""Arrays that other writers have put into a cache: valid Zarr, cut or ordered otherwise than this format says.

Their documents may ask for the codecs of this format and no others, each chunk for its own bytes and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.cache import layout, limits
from datacheck.cache.chunks import ChunkRows
from datacheck.cache.codec import PLAIN, Codec
from datacheck.cache.layout import Grid
from datacheck.cache.place import Place
from datacheck.cache.shard_index import check_stored, read_index
from datacheck.cache.store import Store
from datacheck.errors import CorruptionError

Array = np.ndarray[Any, Any]

_INDEX = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]


@dataclass(frozen=True)
class Chain:
    """How the chunks of an array are named and stored.

    Args:
        codec: what each chunk went through.
        separator: between the parts of a file's name.
        sharded: whether a file holds several chunks and their index; else one.
        first: whether the index lies at the beginning of the file.
    """

    codec: Codec
    separator: str = "."
    sharded: bool = True
    first: bool = False

    def files(self, path: str, grid: Grid) -> Iterator[str]:
        """Yield the shard files of an array, in order."""
        first, last = f"{path}/c{self.separator}", f"{self.separator}0" * len(grid.item)
        return (f"{first}{g}{last}" for g in range(grid.shards))


def chain_of(document: Mapping[str, Any]) -> tuple[Grid, Chain]:
    """Return how an array is cut and stored.

    Raises:
        KeyError, TypeError, ValueError: in a way that is not read here.
    """
    shape, regular = document["shape"], document["chunk_grid"]
    shard = regular["configuration"]["chunk_shape"]
    codecs = document["codecs"]
    sharded = len(codecs) == 1 and codecs[0]["name"] == "sharding_indexed"
    inner = codecs[0]["configuration"] if sharded else {"chunk_shape": shard, "codecs": codecs, "index_codecs": _INDEX}
    chunk, at = inner["chunk_shape"], inner.get("index_location", "end")
    if regular["name"] != "regular" or shard[1:] != shape[1:] or chunk[1:] != shape[1:]:
        msg = f"cut into {shard} and {chunk}; only the first axis of {shape} may be cut"
        raise ValueError(msg)
    if inner["index_codecs"] != _INDEX or at not in {"start", "end"}:
        msg = "an index that is not bytes and crc32c"
        raise ValueError(msg)
    grid = Grid(layout.type_of(document), tuple(shape), shard[0], chunk[0])
    return grid, Chain(_codec(inner["codecs"], grid), _separator(document), sharded, at == "start")


def _codec(codecs: Any, grid: Grid) -> Codec:
    """Return the codec of inner codecs: only those of this format."""
    plain = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if np.dtype(grid.dtype).itemsize == 1:
        plain.append({"name": "bytes"})
    codec = Codec.of(codecs[1:]) if codecs[:1] and codecs[0] in plain else None
    if codec is None:
        names = ", ".join(str(one["name"] if isinstance(one, Mapping) else one)[:40] for one in codecs[:4])
        msg = f"codecs {names}; a cache holds little-endian bytes, plain or in zstd with a checksum"
        raise ValueError(msg)
    return codec


def _separator(document: Mapping[str, Any]) -> str:
    encoding = document["chunk_key_encoding"]
    separator = encoding.get("configuration", {}).get("separator", "/")
    if encoding["name"] != "default" or separator not in {"/", "."}:
        msg = f"chunk_key_encoding {str(encoding)[:80]}"
        raise ValueError(msg)
    return str(separator)


def _absent(index: Array) -> Array:
    """Return which chunks are of the fill value: those that are not stored, and those of no bytes."""
    found: Array = (index[:, 0] == layout.ABSENT) | (index[:, 1] == 0)
    return found


def _check_apart(place: Place, name: str, stored: Array) -> None:
    """Fail where a byte of a file belongs to several chunks: a small file would be any number of rows."""
    stored = stored[np.argsort(stored[:, 0], kind="stable")]
    if (stored[1:, 0] < (stored[:, 0] + stored[:, 1])[:-1]).any():
        place.fail(f"{name}: the shard index has chunks that lie over each other")


class ForeignRows(ChunkRows):
    """Rows of files whose chunks lie in any order, with anything between them; an absent chunk is of the fill value.

    Args:
        grid: how the array is cut.
        chain: how its chunks are stored.
        place: the cache, in a folder.
        path: of the array.
        store: where the files are read from.
        check: see `ChunkRows`.

    Raises:
        CorruptionError: a file is missing, or its index is damaged or makes no sense.
    """

    def __init__(
        self, grid: Grid, chain: Chain, place: Place, path: str, store: Store,
        check: Callable[[int, Array | None], None],
    ) -> None:  # fmt: skip
        files = list(chain.files(path, grid))
        super().__init__(grid, chain.codec, store, files, [], check)
        if chain.sharded:
            self._index = [read_index(place, store, name, grid, first=chain.first) for name in files]
            for name, index in zip(files, self._index, strict=True):
                _check_apart(place, name, index[~_absent(index)])
        else:
            sizes = [place.files.get(name, (-1, ""))[0] for name in files]
            missing = next((name for name, size in zip(files, sizes, strict=True) if size < 0), None)
            if missing is not None:
                place.fail(f"{missing}: missing")
            self._index = [np.array([[0, size]], np.uint64) for size in sizes]
            for name, index in zip(files, self._index, strict=True):
                check_stored(place, name, grid, index[:, 1])
        most = limits.ABSENT_BYTES if path.startswith("fields/") else limits.ABSENT_TABLE_BYTES
        absent = sum(int(_absent(index).sum()) for index in self._index) * grid.chunk_bytes
        if absent > most:
            place.fail(f"{path}: {absent:,} bytes of chunks that are not stored; at most {most:,}")

    def _part(self, number: int) -> tuple[str, int, int]:
        g, j = divmod(number, self._grid.chunks_per_shard)
        start, size = self._index[g][j].tolist()
        return (self._files[g], 0, 0) if start == layout.ABSENT else (self._files[g], start, size)

    def _decoded(self, stored: memoryview) -> Array:
        if not len(stored):
            return layout.fill_array(self._grid.dtype, (self._grid.chunk, *self._grid.item)).reshape(-1).view(np.uint8)
        if self._codec == PLAIN and len(stored) != self._grid.chunk_bytes:
            msg = f"{len(stored):,} bytes where a chunk has {self._grid.chunk_bytes:,}"
            raise CorruptionError(msg)
        return super()._decoded(stored)
