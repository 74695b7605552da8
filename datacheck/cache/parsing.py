"""How much one document of a cache may be: checked before memory is taken, as anybody may have written it."""

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
from datacheck.runtime.documents import check_depth, check_values, count_values

DOCUMENT_BYTES = 4 << 20  # zarr.json, inputs.json, commit.json
SOURCES = 2_500_000  # files that a cache is made of
_SOURCE_DOCUMENTS = {layout.SOURCES, layout.FINDINGS, layout.BUILD}
_BYTES = {layout.MANIFEST: 64 << 20}  # 700,000 files
VALUES = (
    8_000_000  # of one JSON document: an empty object takes 3 bytes in the file and 72 in memory
)
LEVELS = 254  # of a value of a JSON field: what orjson writes
SAMPLES = 1 << 32
SHARDS = 100_000  # that a cache has beside those that are files of it
CHUNK_BYTES = 4 << 30  # one inner chunk, decoded: of one row
ROWS_BYTES = (
    1 << 20
)  # an inner chunk of several rows, decoded for any of them: 16 times what a build writes
SAMPLE_BYTES = 4 << 30  # the fixed fields of one sample, and its rows of one other field
TEXT_BYTES = (
    512 << 20
)  # one text or JSON value: as an object of Python it takes up to seven times as much
WINDOW_BYTES = 1 << 30  # one window as the cache cuts them by default
WINDOW_STEPS = 1 << 20  # the same, of one field
WINDOWS_BYTES = 4 << 30  # such windows of one batch
ABSENT_BYTES = (
    256 << 20
)  # chunks of a field that are not stored, as other writers leave out what is all fill value
ABSENT_TABLE_BYTES = 16 << 20  # the same of a table, which is read as a whole


def most_bytes(path: str) -> int:
    """Return how many bytes a JSON document of a cache may have."""
    return 512 << 20 if path in _SOURCE_DOCUMENTS else _BYTES.get(path, DOCUMENT_BYTES)


def most_values(path: str) -> int:
    """Return how many values a JSON document of a cache may have."""
    return 2 * VALUES if path in _SOURCE_DOCUMENTS else VALUES


def check_chunk(grid: layout.Grid) -> None:
    """Raise `ValueError` where an inner chunk has more bytes than may be decoded."""
    most, rows = (
        (CHUNK_BYTES, "one row") if grid.chunk == 1 else (ROWS_BYTES, f"{grid.chunk:,} rows")
    )
    if grid.chunk_bytes > most:
        msg = (
            f"inner chunks of {grid.chunk_bytes:,} bytes; at most {most:,} are read of one that "
            f"holds {rows}"
        )
        raise ValueError(msg)


_TABLES = {"rows": "int64", "present": "bool", "made": "bool", "valid": "bool", "digest": "uint64"}
_KINDS = {"array", "text", "json"}
_FIELD_VALUES = 2_000  # that are said of a field, which a training keeps
_TEXTS = {layout.sample_path("key"), layout.sample_path("origin")}


def json_object(raw: bytes, most: int = VALUES) -> dict[str, Any]:
    """Return the JSON object in `raw`; what it holds may be nested as deep as Python's stack.

    Raises:
        ValueError: there is none, or one of more than `most` values.
    """
    check_values(raw, most)
    try:
        said = json.loads(raw)
    except RecursionError as error:
        msg = "nested deeper than Python's stack"
        raise ValueError(msg) from error
    if not isinstance(said, dict):
        msg = "not a JSON object"
        raise ValueError(msg)  # noqa: TRY004  text that does not fit, as any other
    return said


def parse_document(raw: bytes, path: str = "") -> dict[str, Any]:
    """Return the JSON object in `raw`, the document of a cache at `path`.

    Raises:
        ValueError: there is none, or one of too many values or levels (see `limits`).
    """
    said = json_object(raw, most_values(path))
    check_depth(said)
    return said


def parse_size(value: Any) -> int:
    """Return a number of bytes.

    Raises:
        ValueError: it is none that files can have.
    """
    if type(value) is not int or not 0 <= value < 1 << 62:  # a bool is an int
        msg = f"a size that no file has ({type(value).__name__})"
        raise ValueError(msg)
    return value


def parse_findings(raw: bytes) -> dict[str, list[str]]:
    """Return what ``findings.json`` says: codes by key.

    Raises:
        ValueError: it says something else.
    """
    said = parse_document(raw, layout.FINDINGS)
    if not all(
        isinstance(codes, list) and all(isinstance(code, str) for code in codes)
        for codes in said.values()
    ):
        msg = "not codes by key"
        raise ValueError(msg)
    return said


def parse_root(document: Mapping[str, Any], files: int) -> layout.Root:
    """Return what the root group says.

    Args:
        document: its ``zarr.json``.
        files: how many the cache has.

    Raises:
        KeyError, TypeError, ValueError: it says not what a cache of this format says.
    """
    root = layout.Root.of(document)
    if root.samples > SAMPLES:
        msg = f"{root.samples:,} samples; at most {SAMPLES:,} are read"
        raise ValueError(msg)
    if (shards := -(-root.samples // root.shard_samples)) > SHARDS + files:
        msg = f"{shards:,} shards of {files:,} files"
        raise ValueError(msg)
    return root


STEP_OVERHEAD_BYTES = (
    64  # that a step of a window takes besides its values: where it lies, and whether it is padding
)


def check_sizes(said: Mapping[str, Any] | None, fields: Mapping[str, ArraySpec]) -> None:
    """Raise `ValueError` where one sample, or one window by default, would take more memory than is served at once.

    Args:
        said: how episodes are cut by default, as the root group says it.
        fields: of the cache.
    """
    size = sum(spec.item_bytes for spec in fields.values() if spec.dim is None)
    if size > SAMPLE_BYTES:
        msg = f"samples of {size:,} bytes; at most {SAMPLE_BYTES:,} are served"
        raise ValueError(msg)
    try:
        windows = None if said is None else Windows.of(said)
    except UsageError:  # whoever asks for windows is told
        return
    if windows is None:
        return
    before, behind = windows.extent
    steps = {name: max(before + 1 + behind, len(asked)) for name, asked in windows.deltas.items()}
    own = {
        n: steps.get(n, before + 1 + behind)
        for n, spec in fields.items()
        if spec.dim == windows.dim
    }
    size = sum(
        count * (fields[name].item_bytes + STEP_OVERHEAD_BYTES) for name, count in own.items()
    )
    if size > WINDOW_BYTES:
        msg = f"windows of {size:,} bytes; at most {WINDOW_BYTES:,} are served by default"
        raise ValueError(msg)
    if (most := max(own.values(), default=0)) > WINDOW_STEPS:
        msg = f"windows of {most:,} steps; at most {WINDOW_STEPS:,} are served by default"
        raise ValueError(msg)


def check_no_overlap(fields: Iterable[str]) -> None:
    """Raise `ValueError` where a field lies inside another: an array of Zarr holds no array, and a file no folder."""
    paths = sorted(
        layout.field_path(name).replace("/", "\0") for name in fields
    )  # what lies inside comes next
    for outer, inner in pairwise(paths):
        if inner.startswith(outer + "\0"):
            msg = f"a field inside a field: {inner}".replace("\0", "/")
            raise ValueError(msg)


def parse_spec(path: str, document: Mapping[str, Any]) -> ArraySpec | None:
    """Return the spec of a field; None of an array of another kind.

    Raises:
        KeyError, TypeError, ValueError: it says not what that of a field says.
    """
    if not path.startswith("fields/"):
        return None
    if layout.field_path(layout.field_name(path)) != path:
        msg = "two paths for one field"
        raise ValueError(msg)
    said = dict(document["attributes"]["datacheck"])
    if count_values(said, _FIELD_VALUES) > _FIELD_VALUES:
        msg = f"says more than {_FIELD_VALUES:,} values of a field"
        raise ValueError(msg)
    kind, dim, optional = said.pop("kind"), said.pop("dim"), said.pop("optional")
    is_text = (document["data_type"], len(document["shape"])) == ("uint8", 1) and isinstance(
        dim, str
    )
    if kind not in _KINDS or not (kind == "array" or is_text) or not isinstance(dim, str | None):
        msg = f"kind {kind!r} with dim {dim!r}, of {document['data_type']}"
        raise ValueError(msg)
    layout.check_dims([dim or ""])
    return ArraySpec(document["data_type"], tuple(document["shape"][1:]), dim, kind, optional, said)


def check_array(path: str, grid: Grid, spec: ArraySpec | None, root: layout.Root) -> None:
    """Check type and length of an array of a cache.

    Args:
        path: of the array.
        grid: how it is cut.
        spec: of a field; None of a table.
        root: what the cache says of itself.

    Raises:
        ValueError: they are not what this array must have.
    """
    dtype, rows = grid.dtype, root.samples
    if spec is not None and spec.dim is not None:
        rows = -(-root.samples // root.shard_samples) * root.dims.get(spec.dim, 0)
    elif path in _TEXTS:
        dtype, rows = "uint8", grid.shape[0]
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
