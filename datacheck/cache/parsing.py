"""Parsing of a cache's documents under limits, which are checked before memory is allocated.

Anybody may have written a cache, so no size in it is trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from datacheck.cache import layout
from datacheck.cache.layout import Grid
from datacheck.cache.windows import Windows
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec
from datacheck.runtime.documents import (
    DEPTH,
    check_depth,
    check_values,
    count_brackets,
    count_values,
)

DOCUMENT_BYTES = 4 << 20  # zarr.json, inputs.json, commit.json
SOURCES = 2_500_000  # source files of a cache
_SOURCE_DOCUMENTS = {layout.SOURCES, layout.FINDINGS, layout.BUILD}
_BYTES = {layout.MANIFEST: 64 << 20}  # 700,000 files
# Values of one JSON document: an empty object takes 3 bytes in the file and 72 in memory.
VALUES = 8_000_000
LEVELS = 254  # nesting of a value of a JSON field: the limit of orjson
SAMPLES = 1 << 32
SHARDS = 100_000  # shards of a cache beyond the number of its files
CHUNK_BYTES = 4 << 30  # one decoded inner chunk of one row
# One decoded inner chunk of several rows, all decoded to read any of them: 16 times the size that a
# build writes.
ROWS_BYTES = 1 << 20
# Inner chunks of one shard: its index, of 16 bytes each, is read whole. A build writes at most two
# million of a fixed field; of a ragged field so many are more than 64 GiB of one shard.
SHARD_CHUNKS = 1 << 22
SAMPLE_BYTES = 4 << 30  # the fixed fields of one sample; also its rows of one ragged field
# One text or JSON value: as a Python object it takes up to seven times as much.
TEXT_BYTES = 512 << 20
WINDOW_BYTES = 1 << 30  # one window, cut as the cache declares by default
WINDOW_STEPS = 1 << 20  # steps of one field in such a window
WINDOWS_BYTES = 4 << 30  # such windows in one batch
# Absent chunks of a field: other writers omit chunks that hold only the fill value.
ABSENT_BYTES = 256 << 20
ABSENT_TABLE_BYTES = 16 << 20  # the same for a table, which is read whole
ABSENT_CHUNK_BYTES = 64  # counted of a smaller chunk, whose entries take memory, too


def most_bytes(path: str) -> int:
    """Return the largest size accepted for a JSON document of a cache [bytes]."""
    return 512 << 20 if path in _SOURCE_DOCUMENTS else _BYTES.get(path, DOCUMENT_BYTES)


def most_values(path: str) -> int:
    """Return the largest number of values accepted in a JSON document of a cache."""
    return 2 * VALUES if path in _SOURCE_DOCUMENTS else VALUES


def check_chunks(grid: layout.Grid) -> None:
    """Raise `ValueError` if an inner chunk is too large to decode, or a shard has too many."""
    if grid.chunks_per_shard > SHARD_CHUNKS:
        msg = (
            f"{grid.chunks_per_shard:,} inner chunks of a shard; at most {SHARD_CHUNKS:,} are read"
        )
        raise ValueError(msg)
    limit, rows = (
        (CHUNK_BYTES, "one row") if grid.chunk == 1 else (ROWS_BYTES, f"{grid.chunk:,} rows")
    )
    if grid.chunk_bytes > limit:
        msg = (
            f"inner chunks of {grid.chunk_bytes:,} bytes; at most {limit:,} are read of one that "
            f"holds {rows}"
        )
        raise ValueError(msg)


_TABLES = {"rows": "int64", "present": "bool", "made": "bool", "valid": "bool", "digest": "uint64"}
_KINDS = {"array", "text", "json"}
# Of the attributes of a field, which stay in memory during training: JSON values, bytes.
_FIELD_VALUES = 2_000
_FIELD_BYTES = 256 << 10
FIELDS_BYTES = 64 << 20  # attributes of all fields
# JSON values of all documents of groups and arrays: names may share one file, and parsing a value
# takes up to a microsecond. The document of an array has about 60 and those of its attributes.
DOCUMENTS_VALUES = 4_000_000
_TEXTS = {layout.sample_path("key"), layout.sample_path("origin")}


def json_object(raw: bytes, most: int = VALUES) -> dict[str, Any]:
    """Return the JSON object in `raw`, nested at most as deep as Python's stack allows.

    Raises:
        ValueError: `raw` is no JSON object, or has more than `most` values.
    """
    check_values(raw, most)
    try:
        document = json.loads(raw)
    except RecursionError as error:
        msg = "nested deeper than Python's stack"
        raise ValueError(msg) from error
    if not isinstance(document, dict):
        msg = "not a JSON object"
        raise ValueError(msg)  # noqa: TRY004  a malformed text like any other
    return document


def parse_document(raw: bytes, path: str = "") -> dict[str, Any]:
    """Return the JSON object in `raw`, the document of a cache at `path`.

    Raises:
        ValueError: it is no JSON object, or has too many values (`most_values`) or levels.
    """
    document = json_object(raw, most_values(path))
    if count_brackets(raw) > DEPTH:
        check_depth(document)
    return document


def parse_size(value: Any) -> int:
    """Return a number of bytes.

    Raises:
        ValueError: no file can have this size.
    """
    if type(value) is not int or not 0 <= value < 1 << 62:  # a bool is an int
        msg = f"a size that no file has ({type(value).__name__})"
        raise ValueError(msg)
    return value


def findings_bytes(samples: int) -> int:
    """Return the largest size accepted for ``findings.json`` [bytes]: as for valid.json of a run."""
    return min(most_bytes(layout.FINDINGS), (4 << 20) + 4096 * samples)


def parse_findings(raw: bytes, samples: int) -> dict[str, list[str]]:
    """Return the content of ``findings.json``: finding codes by key.

    Raises:
        ValueError: the document has another structure, or too many values for so many samples.
    """
    most = min(most_values(layout.FINDINGS), 2_000_000 + 32 * samples)
    findings = json_object(raw, most)
    check_depth(findings)
    if not all(
        isinstance(codes, list) and all(isinstance(code, str) for code in codes)
        for codes in findings.values()
    ):
        msg = "not codes by key"
        raise ValueError(msg)
    return findings


def parse_root(document: Mapping[str, Any], files: int) -> layout.Root:
    """Return the attributes of the root group.

    Args:
        document: its ``zarr.json``.
        files: the number of files of the cache.

    Raises:
        KeyError, TypeError, ValueError: it is not the root of a cache of this format.
    """
    root = layout.Root.of(document)
    if root.samples > SAMPLES:
        msg = f"{root.samples:,} samples; at most {SAMPLES:,} are read"
        raise ValueError(msg)
    if (shards := -(-root.samples // root.shard_samples)) > SHARDS + files:
        msg = f"{shards:,} shards of {files:,} files"
        raise ValueError(msg)
    return root


# Memory for a step of a window besides its values: its position and whether it is padding.
STEP_OVERHEAD_BYTES = 64


def check_sizes(said: Mapping[str, Any] | None, fields: Mapping[str, ArraySpec]) -> None:
    """Raise `ValueError` if one sample, or one default window, needs too much memory to serve.

    Args:
        said: the default windows, as the root group declares them.
        fields: the fields of the cache.
    """
    size = sum(spec.item_bytes for spec in fields.values() if spec.dim is None)
    if size > SAMPLE_BYTES:
        msg = f"samples of {size:,} bytes; at most {SAMPLE_BYTES:,} are served"
        raise ValueError(msg)
    try:
        windows = None if said is None else Windows.of(said)
    except UsageError:  # reported when windows are used
        return
    if windows is None:
        return
    before, after = windows.extent
    steps = {
        name: max(before + 1 + after, len(offsets)) for name, offsets in windows.deltas.items()
    }
    step_counts = {
        n: steps.get(n, before + 1 + after) for n, spec in fields.items() if spec.dim == windows.dim
    }
    size = sum(
        count * (fields[name].item_bytes + STEP_OVERHEAD_BYTES)
        for name, count in step_counts.items()
    )
    if size > WINDOW_BYTES:
        msg = f"windows of {size:,} bytes; at most {WINDOW_BYTES:,} are served by default"
        raise ValueError(msg)
    if (most := max(step_counts.values(), default=0)) > WINDOW_STEPS:
        msg = f"windows of {most:,} steps; at most {WINDOW_STEPS:,} are served by default"
        raise ValueError(msg)


def check_no_overlap(fields: Iterable[str]) -> None:
    """Raise `ValueError` if a field lies inside another field.

    A Zarr array holds no other array, and a file holds no folder.
    """
    # "\0" sorts before every other character, so nested fields follow their outer field directly.
    paths = sorted(layout.field_path(name).replace("/", "\0") for name in fields)
    for outer, inner in pairwise(paths):
        if inner.startswith(outer + "\0"):
            msg = f"a field inside a field: {inner}".replace("\0", "/")
            raise ValueError(msg)


def parse_spec(path: str, document: Mapping[str, Any]) -> ArraySpec | None:
    """Return the spec of a field; None for an array that is no field.

    Raises:
        KeyError, TypeError, ValueError: the document is not that of a field.
    """
    if not path.startswith("fields/"):
        return None
    if layout.field_path(layout.field_name(path)) != path:
        msg = "two paths for one field"
        raise ValueError(msg)
    attributes = dict(document["attributes"]["datacheck"])
    if count_values(attributes, _FIELD_VALUES) > _FIELD_VALUES:
        msg = f"says more than {_FIELD_VALUES:,} values of a field"
        raise ValueError(msg)
    if (size := attribute_bytes(attributes)) > _FIELD_BYTES:
        msg = f"says {size:,} bytes of a field; at most {_FIELD_BYTES:,} are read"
        raise ValueError(msg)
    kind = attributes.pop("kind")
    dim = attributes.pop("dim")
    optional = attributes.pop("optional")
    is_text = (document["data_type"], len(document["shape"])) == ("uint8", 1) and isinstance(
        dim, str
    )
    if kind not in _KINDS or not (kind == "array" or is_text) or not isinstance(dim, str | None):
        msg = f"kind {kind!r} with dim {dim!r}, of {document['data_type']}"
        raise ValueError(msg)
    layout.check_dims([dim or ""])
    return ArraySpec(
        document["data_type"], tuple(document["shape"][1:]), dim, kind, optional, attributes
    )


def attribute_bytes(attributes: Mapping[str, Any]) -> int:
    """Return the bytes of a field's attributes as JSON."""
    return len(json.dumps(attributes))


def check_attributes(size: int) -> None:
    """Raise `ValueError` if the attributes of all fields so far have too many bytes."""
    if size > FIELDS_BYTES:
        msg = f"fields with more than {FIELDS_BYTES:,} bytes of attributes"
        raise ValueError(msg)


def check_document_values(values: int) -> None:
    """Raise `ValueError` if the documents of groups and arrays parsed so far have too many values."""
    if values > DOCUMENTS_VALUES:
        msg = (
            f"the {layout.ZARR} documents of the cache have more than {DOCUMENTS_VALUES:,} values, "
            f"counted once for each name"
        )
        raise ValueError(msg)


def check_array(path: str, grid: Grid, spec: ArraySpec | None, root: layout.Root) -> None:
    """Check dtype and length of an array of a cache.

    Args:
        path: path of the array.
        grid: its shards and chunks.
        spec: its spec if it is a field; None for a table.
        root: the attributes of the root group.

    Raises:
        ValueError: dtype or length do not fit this array.
    """
    dtype, rows = grid.dtype, root.samples
    if spec is not None and spec.dim is not None:
        rows = -(-root.samples // root.shard_samples) * root.dims.get(spec.dim, 0)
    elif path in _TEXTS:
        dtype = "uint8"
        rows = grid.shape[0]
    elif spec is None:
        family, _, name = path.partition("/")
        dtype = _TABLES.get(name if family == "samples" else family, dtype)
    if spec is None and (grid.dtype, grid.item) != (dtype, ()):
        msg = f"{grid.dtype} {list(grid.shape)}; a table of {dtype} expected"
        raise ValueError(msg)
    if spec is None and grid.shards > 1:
        msg = f"{grid.shards:,} shards; a table is one"
        raise ValueError(msg)
    if grid.shape[0] != rows:
        msg = f"{grid.shape[0]:,} rows, {rows:,} expected"
        raise ValueError(msg)
