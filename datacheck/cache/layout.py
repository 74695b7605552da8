"""The names of a cache's files, its ``zarr.json`` documents and its shard index, format version 1.

`docs/cache-format.md` is the specification; this module is its only implementation of names and
numbers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from math import gcd, prod
from typing import Any
from urllib.parse import quote, unquote

import google_crc32c
import numpy as np

from datacheck.cache.codec import PLAIN, Codec
from datacheck.model.sample import ArraySpec

Array = np.ndarray[Any, Any]

FORMAT = 1
MANIFEST = "manifest.json"
COMMIT = "commit.json"  # in an object store: names the attempt that is the cache
BUILD = "build.json"  # time, place and versions of the build; not covered by the manifest
STAMPS = "stamps"  # in it: size, mtime, ctime, inode and time of listing, by path
SOURCES = "sources.json"
INPUTS = "inputs.json"  # the inputs that the key is a digest of
FINDINGS = "findings.json"
ZARR = "zarr.json"
BUILDING = ".building"
TRASH = ".trash"
NO_SPLIT = "all"  # the split folder for a dataset without splits

CHUNK_BYTES = 64 << 10
SHARD_BYTES = 64 << 20
PAGE = 4096  # shards of whole pages follow each other in a map without gaps, see `MappedRows`
MAX_SAMPLES_PER_SHARD = 1 << 20
ABSENT = 2**64 - 1

KEY_DIM = "samples.key"
ORIGIN_DIM = "samples.origin"

_SHARD = re.compile(r"(.+)/c([./])([0-9]{1,15})(?:\2[0])*")  # other writers separate with slashes
AXES = 62  # axes of an array: NumPy allows 64, and a batch of windows adds one
_NAME = 1_000  # characters of the key, which is printed in full
_MOST = 1 << 48  # limit of every count: NumPy multiplies such numbers
_TYPES = {
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
}


def field_path(name: str) -> str:
    """Return the array path of a field: ``fields/obs/ee_pos``, with unsafe characters escaped."""
    return "fields/" + _escape_name(name)


def present_path(name: str) -> str:
    """Return the array path of a field's presence mask."""
    return "present/" + _escape_name(name)


def rows_path(dim: str, what: str) -> str:
    """Return the array path of a row table; `what` is "start" or "length"."""
    return f"rows/{_escape_name(dim)}/{what}"


def digests_path(array: str) -> str:
    """Return the path of the digests of an array's inner chunks."""
    return f"digests/{array}"


def sample_path(what: str) -> str:
    """Return the array path of "key", "origin", "made", "valid" or "digest"."""
    return f"samples/{what}"


def shard_file(name: str, spec: ArraySpec, g: int) -> str:
    """Return the path of shard `g` of a field, relative to its cache."""
    grid = Grid(spec.dtype, (1, *spec.item), 1, 1)
    return f"{field_path(name)}/{grid.shard_file(g)}"


def shard_of(file: str) -> tuple[str, int] | None:
    """Return the array and the number of a shard file; None for any other file."""
    match = _SHARD.fullmatch(file)
    return (match[1], int(match[3])) if match else None


def field_name(path: str) -> str:
    """Return the field name of a path made by `field_path`."""
    return "/".join(unquote(part) for part in path.removeprefix("fields/").split("/"))


def group_paths(arrays: Iterable[str]) -> list[str]:
    """Return the path of every group above these arrays, the root ("") first.

    Each group needs a ``zarr.json``.
    """
    paths = {
        "/".join(array.split("/")[:depth])
        for array in arrays
        for depth in range(array.count("/") + 1)
    }
    return sorted({"", *paths})


def text_dim(field: str) -> str:
    """Return the ragged dimension of a text or JSON field; each such field has its own."""
    return "fields." + field


@lru_cache(4096)
def _escape_name(name: str) -> str:
    return "/".join(_escape_part(quote(part, safe=" @+=,()[]")) for part in name.split("/"))


def _escape_part(part: str) -> str:
    """Return one part of a path, escaped where Zarr or a file system would misread it."""
    if part.strip(".") and part != ZARR and not part.startswith("__"):
        return part
    return "%" + part.encode()[:1].hex().upper() + part[1:] if part else "%00"


def zarr_type(dtype: str) -> str:
    """Return the Zarr v3 name of a dtype.

    Raises:
        ValueError: Zarr v3 has no plain type for it.
    """
    name = np.dtype(dtype).name
    if name not in _TYPES:
        msg = f"a cache cannot hold dtype {dtype}; plain numbers and bool only"
        raise ValueError(msg)
    return name


def parse_dtype(document: Mapping[str, Any]) -> str:
    """Return the dtype of an array, which must be spelled as in Zarr v3.

    NumPy would also accept None (as float64), ">f8" and "d".

    Raises:
        KeyError, TypeError, ValueError: the document names no plain type of Zarr v3.
    """
    dtype = document["data_type"]
    if not isinstance(dtype, str) or dtype not in _TYPES:
        msg = f"data_type {str(dtype)[:40]!r}; a cache holds plain numbers and bool only"
        raise ValueError(msg)
    return dtype


@dataclass(frozen=True, slots=True)
class Grid:
    """How an array is cut along its first axis, the only one that is cut.

    `shape` is the whole array, `shard` the rows of a file, `chunk` the rows of an inner chunk,
    which divides `shard` evenly.
    """

    dtype: str
    shape: tuple[int, ...]
    shard: int
    chunk: int

    def __post_init__(self) -> None:
        if len(self.shape) > AXES:
            msg = f"an array of {len(self.shape):,} axes; a cache has at most {AXES}"
            raise ValueError(msg)
        _check_counts(0, *self.shape[:1])
        _check_counts(1, *self.item, self.shard, self.chunk)
        if not self.shape or self.shard % self.chunk:
            msg = f"shape {self.shape}, cut into {self.shard} and {self.chunk} rows"
            raise ValueError(msg)

    @property
    def item(self) -> tuple[int, ...]:
        """Shape of one row."""
        return self.shape[1:]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.item) * np.dtype(self.dtype).itemsize

    @property
    def chunk_bytes(self) -> int:
        """Bytes of one inner chunk."""
        return self.chunk * self.row_bytes

    @property
    def chunks_per_shard(self) -> int:
        """Inner chunks of one shard, including absent ones."""
        return self.shard // self.chunk

    @property
    def shards(self) -> int:
        """Number of shard files."""
        return -(-self.shape[0] // self.shard)

    def shard_file(self, g: int) -> str:
        """Return the file of shard `g`, relative to the array's folder.

        All shards lie directly in that folder, so no shard needs a folder of its own.
        """
        return ".".join(["c", str(g), *("0" for _ in self.item)])


def _check_counts(least: int, *numbers: Any) -> None:
    """Raise `ValueError` unless these are counts: numbers in a document are untrusted."""
    if not all(type(number) is int and least <= number < _MOST for number in numbers):
        msg = f"{numbers} are not whole numbers of {least} or more"
        raise ValueError(msg)


def ends_of(lengths: Array, total: int) -> Array:
    """Return the end of each of several concatenated values: int64 (values).

    Args:
        lengths: int64 (values), from an untrusted file.
        total: the largest allowed sum.

    Raises:
        ValueError: a length is negative, or the sum exceeds `total`.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    # A sum that overflows 64 bits is smaller than its predecessor, because no length exceeds
    # `total`.
    if len(ends) and (
        lengths.min() < 0
        or lengths.max() > total
        or (ends[1:] < ends[:-1]).any()
        or ends[-1] > total
    ):
        msg = f"lengths that are negative, or add up to more than {total:,}"
        raise ValueError(msg)
    return ends


def chunk_rows(row_bytes: int) -> int:
    """Return the rows of an inner chunk.

    1 for rows of 64 KiB or more, else a power of two whose rows take up to 64 KiB.
    """
    return (
        1
        if row_bytes >= CHUNK_BYTES
        else 1 << max(0, (CHUNK_BYTES // max(1, row_bytes)).bit_length() - 1)
    )


def aligned_rows(row_bytes: int) -> int:
    """Return the smallest power of two of rows whose bytes are a multiple of a page."""
    return PAGE // gcd(max(1, row_bytes), PAGE)


def samples_per_shard(sample_bytes: int, specs: Iterable[ArraySpec]) -> int:
    """Return k, a power of two: shards of about 64 MiB whose big fixed fields end on a page.

    Args:
        sample_bytes: the median size of a sample over all fields.
        specs: the fields. Fields of a page or more per sample are kept page-aligned if that at most
            doubles k, because a build holds a whole shard in memory.
    """
    wanted = 1 << max(0, (SHARD_BYTES // max(1, sample_bytes)).bit_length() - 1)
    k = min(wanted, MAX_SAMPLES_PER_SHARD)
    aligned = [
        aligned_rows(spec.item_bytes)
        for spec in specs
        if spec.dim is None and spec.item_bytes >= PAGE
    ]
    return max([k, *(rows for rows in aligned if rows <= 2 * k)])


def fixed_grid(spec: ArraySpec, samples: int, k: int) -> Grid:
    """Return the grid of a fixed field: `k` samples per shard."""
    return Grid(spec.dtype, (samples, *spec.item), k, min(k, chunk_rows(spec.item_bytes)))


def ragged_rows(specs: Sequence[ArraySpec], fullest: int) -> int:
    """Return R, the rows of a shard for all ragged fields of one dimension.

    Args:
        specs: the fields that share the dimension.
        fullest: the rows of the fullest shard.
    """
    r = max(max(chunk_rows(s.item_bytes), aligned_rows(s.item_bytes)) for s in specs)
    while r < fullest:
        r *= 2
    return r


def ragged_grid(spec: ArraySpec, shards: int, r: int) -> Grid:
    """Return the grid of a ragged field: `r` rows per shard, used or not."""
    return Grid(spec.dtype, (shards * r, *spec.item), r, chunk_rows(spec.item_bytes))


def field_grid(spec: ArraySpec, samples: int, k: int, dims: Mapping[str, int]) -> Grid:
    """Return the grid of a field; for a ragged field `dims` gives the rows of a shard."""
    return (
        fixed_grid(spec, samples, k)
        if spec.dim is None
        else ragged_grid(spec, -(-samples // k), dims[spec.dim])
    )


def table_grid(dtype: str, rows: int, item: tuple[int, ...] = ()) -> Grid:
    """Return the grid of a table that the coordinator writes: one shard of any length."""
    chunk = chunk_rows(prod(item) * np.dtype(dtype).itemsize)
    shard = chunk
    while shard < rows:
        shard *= 2
    return Grid(dtype, (rows, *item), shard, chunk)


def fill_value(dtype: str) -> float | int | bool | str | list[Any]:
    """Return the fill value of a type as Zarr JSON.

    It is NaN for floats, so that a missing chunk never looks like data.
    """
    kind = np.dtype(dtype).kind
    if kind == "f":
        return "NaN"
    if kind == "c":
        return ["NaN", "NaN"]
    return False if kind == "b" else 0


def fill_array(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return an array of the fill value, for example to pad the last inner chunk."""
    kind = np.dtype(dtype).kind
    value: Any = np.nan if kind == "f" else complex(np.nan, np.nan) if kind == "c" else 0
    return np.full(shape, value, dtype=np.dtype(dtype).newbyteorder("<"))


@dataclass(frozen=True, slots=True)
class Root:
    """The attributes of the root group (``attributes.datacheck``).

    Args:
        key: the fingerprint of the build's inputs, 16 hex digits; also the folder's name.
        pipeline: name of the pipeline.
        schema: name of the schema.
        split: the split's folder, `NO_SPLIT` for a dataset without splits.
        samples: S, the number of samples, made or not.
        shard_samples: k, the samples of one shard of every field; a power of two.
        dims: R, the rows of one shard, by ragged dimension of the fields.
        windows: the default windows over episodes: dim, length, stride, pad, short; None: episodes
            are served whole.
    """

    key: str
    pipeline: str
    schema: str
    split: str
    samples: int
    shard_samples: int
    dims: Mapping[str, int] = field(default_factory=dict)
    windows: Mapping[str, Any] | None = None

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the root group."""
        header: dict[str, Any] = {
            "format": FORMAT,
            "pipeline": self.pipeline,
            "schema": self.schema,
            "key": self.key,
            "split": self.split,
            "samples": self.samples,
            "shard_samples": self.shard_samples,
            "dims": dict(self.dims),
        }
        return {
            "datacheck": header
            | ({"windows": dict(self.windows)} if self.windows is not None else {})
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Root:
        """Parse the root group's document.

        Raises:
            KeyError, TypeError, ValueError: it is not the root of a cache of this format.
        """
        attributes: dict[str, Any] = {"windows": None} | dict(document["attributes"]["datacheck"])
        if not isinstance(attributes["dims"], dict):
            msg = "the dimensions are no object"
            raise TypeError(msg)
        texts = (
            attributes["key"],
            attributes["pipeline"],
            attributes["schema"],
            attributes["split"],
        )
        _check_counts(0, attributes["samples"])
        _check_counts(
            1, attributes["format"], attributes["shard_samples"], *attributes["dims"].values()
        )
        names_valid = (
            all(isinstance(text, str) for text in texts) and len(attributes["key"]) <= _NAME
        )
        if not names_valid or not isinstance(attributes["windows"], dict | None):
            msg = (
                f"a name is no text, the key has more than {_NAME:,} letters, or the windows are "
                f"no object"
            )
            raise ValueError(msg)
        if attributes["dims"].keys() & {KEY_DIM, ORIGIN_DIM}:
            msg = "a dimension of the fields that is that of the keys or origins"
            raise ValueError(msg)
        check_dims(attributes["dims"])
        return cls(**{f.name: attributes[f.name] for f in dataclass_fields(cls)})


def check_dims(names: Iterable[str]) -> None:
    """Raise `ValueError` if a dimension's name holds a lone surrogate, which no path can hold."""
    for name in names:
        if any("\ud800" <= letter <= "\udfff" for letter in name):
            msg = f"the dimension {name!r} holds half of a surrogate pair"
            raise ValueError(msg)


def field_attributes(spec: ArraySpec) -> dict[str, Any]:
    """Return the attributes of a field's array: those of its spec, then kind, dim and optional."""
    attributes = dict(spec.attrs) | {"kind": spec.kind, "dim": spec.dim, "optional": spec.optional}
    return {"datacheck": attributes}


def array_document(
    grid: Grid,
    attributes: Mapping[str, Any],
    dimensions: Sequence[str | None] | None = None,
    codec: Codec = PLAIN,
) -> dict[str, Any]:
    """Return the ``zarr.json`` of an array; only fields have a codec."""
    plain = {"name": "bytes", "configuration": {"endian": "little"}}
    if np.dtype(grid.dtype).itemsize == 1:
        plain = {"name": "bytes"}
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(grid.shape),
        "data_type": zarr_type(grid.dtype),
        "chunk_grid": {
            "name": "regular",
            "configuration": {"chunk_shape": [grid.shard, *grid.item]},
        },
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": fill_value(grid.dtype),
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [grid.chunk, *grid.item],
                    "codecs": [plain, *codec.document()],
                    "index_codecs": [
                        {"name": "bytes", "configuration": {"endian": "little"}},
                        {"name": "crc32c"},
                    ],
                    "index_location": "end",
                },
            }
        ],
        "attributes": dict(attributes),
        "dimension_names": list(dimensions) if dimensions else [None] * len(grid.shape),
        "storage_transformers": [],
    }


def group_document(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``zarr.json`` of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}


def grid_of(document: Mapping[str, Any]) -> tuple[Grid, Codec] | None:
    """Return the grid and codec of an array; None if its codec chain is not exactly ours.

    An array of another chain needs the general reader.
    """
    try:
        (sharding,) = document["codecs"]
        chain = sharding["configuration"]
        shape = document["shape"]
        shard = document["chunk_grid"]["configuration"]["chunk_shape"]
        grid = Grid(parse_dtype(document), tuple(shape), shard[0], chain["chunk_shape"][0])
        codec = Codec.of(chain["codecs"][1:])
        if codec is None:
            return None
        ours = array_document(grid, document["attributes"], document.get("dimension_names"), codec)
    except (KeyError, ValueError, TypeError, IndexError):
        return None
    matches = all(
        ours[k] == document.get(k)
        for k in ("codecs", "chunk_grid", "chunk_key_encoding", "node_type")
    )
    return (grid, codec) if matches else None


def pack_index(grid: Grid, sizes: Array) -> bytes:
    """Return the index of a shard, with its crc32c.

    Shapes:
        sizes: uint64 (inner chunks in use) [bytes] as stored, packed from the start of the file
    """
    index = np.full((grid.chunks_per_shard, 2), ABSENT, dtype="<u8")
    index[: len(sizes), 0] = np.cumsum(sizes, dtype=np.uint64) - sizes
    index[: len(sizes), 1] = sizes
    raw = index.tobytes()
    return raw + struct.pack("<I", google_crc32c.value(raw))


def plain_sizes(grid: Grid, used: int) -> Array:
    """Return uint64 (used): the stored size of uncompressed inner chunks."""
    return np.full(used, grid.chunk_bytes, np.uint64)


def index_bytes(grid: Grid) -> int:
    """Return the size of a shard's index with its crc32c."""
    return grid.chunks_per_shard * 16 + 4
