"""Hold the documents of a cache to what they may say: digests prove that they are whole, not that they make sense."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from datacheck.cache import layout
from datacheck.cache.layout import Grid
from datacheck.sample import ArraySpec

_TABLES = {"rows": "int64", "present": "bool", "made": "bool", "valid": "bool", "digest": "uint64"}
_KINDS = {"array", "text", "json"}
_TEXTS = {layout.sample_path("key"), layout.sample_path("origin")}


def parsed(raw: bytes) -> dict[str, Any]:
    """Return the JSON object in `raw`.

    Raises:
        ValueError: there is none.
    """
    try:
        said = json.loads(raw)
    except RecursionError as error:
        msg = "nested too deep"
        raise ValueError(msg) from error
    if not isinstance(said, dict):
        msg = "not a JSON object"
        raise ValueError(msg)  # noqa: TRY004  text that does not fit, as any other
    return said


def findings(raw: bytes) -> dict[str, list[str]]:
    """Return what ``findings.json`` says: codes by key.

    Raises:
        ValueError: it says something else.
    """
    said = parsed(raw)
    if not all(isinstance(codes, list) and all(isinstance(code, str) for code in codes) for codes in said.values()):
        msg = "not codes by key"
        raise ValueError(msg)
    return said


def spec_of(path: str, document: Mapping[str, Any]) -> ArraySpec | None:
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
    kind, dim, optional = said.pop("kind"), said.pop("dim"), said.pop("optional")
    is_text = (document["data_type"], len(document["shape"])) == ("uint8", 1) and isinstance(dim, str)
    if kind not in _KINDS or not (kind == "array" or is_text) or not isinstance(dim, str | None):
        msg = f"kind {kind!r} with dim {dim!r}, of {document['data_type']}"
        raise ValueError(msg)
    return ArraySpec(document["data_type"], tuple(document["shape"][1:]), dim, kind, optional, said)


def foreign_grid(document: Mapping[str, Any]) -> Grid:
    """Return the grid of an array of any codec that is cut along its first axis only.

    Raises:
        KeyError, TypeError, ValueError: it is cut in another way, or of a type that a cache cannot hold.
    """
    shape, shard = document["shape"], document["chunk_grid"]["configuration"]["chunk_shape"]
    codec = document["codecs"][0]
    chunk = codec["configuration"]["chunk_shape"] if codec["name"] == "sharding_indexed" else shard
    if shard[1:] != shape[1:] or chunk[1:] != shape[1:]:
        msg = f"cut into {shard} and {chunk}; only the first axis of {shape} may be cut"
        raise ValueError(msg)
    return Grid(layout.zarr_type(document["data_type"]), tuple(shape), shard[0], chunk[0])


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
    if grid.shape[0] != rows:
        msg = f"{grid.shape[0]:,} rows, {rows:,} expected"
        raise ValueError(msg)
