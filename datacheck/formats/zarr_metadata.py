"""The metadata documents of Zarr stores, versions 2 and 3: which folder is an array, and its form.

Everything that decides what zarr decodes is checked here: `ArrayMetadata` keeps the bytes of the
document, so that zarr reads the ones that were checked. A group may hold a consolidated copy of the
metadata of its arrays, by which zarr reads; `check_consolidated` refuses one that differs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.limits import DEPTH, check_bytes, wrap_errors
from datacheck.formats.parsed import parse_json
from datacheck.formats.zarr_codecs import V2_CODECS, V3_CODECS, check_codecs
from datacheck.runtime.beneath import File

V3_DOCUMENT = "zarr.json"  # name of the metadata file of version 3
_META_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """The checked metadata of one array.

    Args:
        version: of Zarr, 2 or 3.
        shape, chunks: of the array, and of one chunk.
        dtype: None for text of any length.
        fill: the declared fill value; None if none is declared.
        chunk_path: matches the relative path of a chunk.
        document_name, document: name and bytes of the metadata file.
    """

    version: int
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any] | None
    fill: Any
    chunk_path: re.Pattern[str]
    document_name: str
    document: bytes


def node_kind(folder: File) -> str:
    """Return "array", "group" or "" for a folder, by its metadata files.

    Raises:
        FormatError: the metadata are damaged, of an unknown version, or of both versions.
    """
    name = _node_document(folder)
    if name == ".zarray":
        return "array"
    if name == V3_DOCUMENT:
        kind = read_mapping(folder / V3_DOCUMENT).get("node_type")
        # A tuple: the value may be a list, which cannot be looked up in a set.
        if kind not in ("array", "group"):
            msg = (
                "zarr.json names no node_type array or group: an early draft of version 3, or no "
                "Zarr store"
            )
            raise FormatError(msg)
        return str(kind)
    if not name:
        return ""
    if read_mapping(folder / ".zgroup").get("zarr_format") != 2:
        msg = ".zgroup names no zarr_format 2"
        raise FormatError(msg)
    return "group"


def _node_document(folder: File) -> str:
    """Return the name of the document that makes a folder an array or a group, or "".

    Raises:
        FormatError: there are documents of both versions.
    """
    v2_document = next((name for name in (".zarray", ".zgroup") if (folder / name).is_file()), "")
    if not (folder / V3_DOCUMENT).is_file():
        return v2_document
    if v2_document:
        msg = (
            f"{v2_document} beside {V3_DOCUMENT}: versions 2 and 3 of zarr read different arrays. "
            f"Remove one of the two"
        )
        raise FormatError(msg)
    return V3_DOCUMENT


def read_mapping(path: File) -> dict[str, Any]:
    """Return a metadata file as a mapping.

    Raises:
        FormatError: the file cannot be read, is too large, or holds no JSON mapping.
    """
    return _parse_mapping(_read_document(path), path.name)


def _read_document(path: File) -> bytes:
    try:
        with path.open(buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            check_bytes(size, path.name, _META_BYTES)
            return file.read(size)
    except OSError as error:
        msg = f"{path.name}: {error.strerror or error}"
        raise FormatError(msg) from error


def _parse_mapping(data: bytes, name: str) -> dict[str, Any]:
    document = parse_json(data)
    if not isinstance(document, dict):
        msg = f"{name} holds no JSON mapping"
        raise FormatError(msg)
    return document


def read_array_metadata(folder: File) -> ArrayMetadata:
    """Return the checked metadata of an array.

    Raises:
        FormatError: they are damaged, or declare a codec, type or grid that is not read.
    """
    name = ".zarray" if _node_document(folder) == ".zarray" else V3_DOCUMENT
    version = 2 if name == ".zarray" else 3
    document = _read_document(folder / name)
    meta = _parse_mapping(document, name)
    with wrap_errors("damaged Zarr metadata"):
        _check_codecs_known(meta, version)
        if version == 2:
            chunks = _sizes(meta["chunks"], 1)
            dtype = _v2_dtype(meta["dtype"])
            chunk_path = _chunk_path("", meta.get("dimension_separator", "."), len(chunks))
        else:
            chunks = _sizes(_v3_chunk_shape(meta), 1)
            dtype = _v3_dtype(meta["data_type"])
            chunk_path = _v3_chunk_path(meta["chunk_key_encoding"], len(chunks))
        shape = _sizes(meta["shape"], 0)
        if len(shape) != len(chunks):
            msg = f"shape {list(shape)} but chunks {list(chunks)}"
            raise FormatError(msg)
        fill = meta.get("fill_value")
        return ArrayMetadata(version, shape, chunks, dtype, fill, chunk_path, name, document)


def _check_codecs_known(meta: Mapping[str, Any], version: int) -> None:
    if version == 2:
        codecs = [meta["compressor"], *(meta["filters"] or [])]
        check_codecs([codec["id"] for codec in codecs if codec], V2_CODECS)
    else:
        check_codecs(meta["codecs"], V3_CODECS)


def _sizes(values: Any, least: int) -> tuple[int, ...]:
    if not all(type(n) is int and least <= n < 1 << 62 for n in values) or len(values) > DEPTH:
        msg = f"sizes {str(values)[:60]}"
        raise FormatError(msg)
    return tuple(values)


def _chunk_path(prefix: str, separator: Any, axes: int) -> re.Pattern[str]:
    """Return a pattern of the relative paths of chunks, such as ``c/0/1`` or ``0.1``.

    Only the one spelling that zarr reads matches: ASCII digits without leading zeros.
    """
    if separator not in {".", "/"}:
        msg = f"chunk names with separator {str(separator)[:10]!r}"
        raise FormatError(msg)
    number = r"(?:0|[1-9][0-9]{0,18})"
    numbers = re.escape(separator).join([*([prefix] if prefix else []), *[number] * axes])
    return re.compile(numbers or "0")


def _v2_dtype(kind: Any) -> np.dtype[Any] | None:
    if kind == "|O":
        return None
    members = list(map(_structure_member, kind)) if isinstance(kind, list) else kind
    dtype: np.dtype[Any] = np.dtype(members)
    return dtype


def _structure_member(member: Any) -> Any:
    """Return a member of a structured type as NumPy takes it: name, type and maybe a shape."""
    return (member[0], member[1], *(tuple(part) for part in member[2:]))


def _v3_dtype(kind: Any) -> np.dtype[Any] | None:
    if kind == "string":
        return None
    if isinstance(kind, str):
        return np.dtype(kind)
    name = kind["name"]
    if name == "string":
        return None
    if name in {"numpy.datetime64", "numpy.timedelta64"}:
        return np.dtype("i8")
    if name in {"fixed_length_utf32", "null_terminated_bytes"}:
        return np.dtype(f"S{int(kind.get('configuration', {})['length_bytes'])}")
    msg = f"values of type {name} are not read; numbers and text are"
    raise FormatError(msg)


def _v3_chunk_shape(meta: Mapping[str, Any]) -> Any:
    if meta["chunk_grid"]["name"] != "regular" or meta.get("storage_transformers"):
        msg = "only regular chunk grids without storage transformers are read"
        raise FormatError(msg)
    return meta["chunk_grid"]["configuration"]["chunk_shape"]


def _v3_chunk_path(encoding: Any, axes: int) -> re.Pattern[str]:
    if not isinstance(encoding, dict):
        encoding = {"name": encoding}
    settings = encoding.get("configuration", {})
    if encoding["name"] == "default":
        return _chunk_path("c", settings.get("separator", "/"), axes)
    return _chunk_path("", settings.get("separator", "."), axes)


# --------------------------------------------------------------------------- consolidated metadata

# Keys that decide values and shape and have one spelling. Codecs are not among them: zarr fills in
# their defaults when it consolidates.
_DECIDING = frozenset({"shape", "chunks", "dtype", "order", "data_type", "chunk_grid", "endian"})
# Keys that are compared once zarr has filled in the defaults.
_WITH_DEFAULTS = (
    "fill_value",
    "filters",
    "compressor",
    "codecs",
    "dimension_separator",
    "chunk_key_encoding",
)


@dataclass(frozen=True, slots=True)
class Consolidated:
    """The consolidated metadata of a group.

    Args:
        version: of Zarr, 2 or 3.
        entries: the metadata by path; in version 2 the paths are those of the metadata documents.
    """

    version: int
    entries: Mapping[str, Any]

    def of_array(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield the metadata of an array: its own entry, and those in entries of groups around it.

        For an array without an entry, zarr reads the array's own metadata, or does not find the
        array.
        """
        entry = self.entries.get(f"{path}/.zarray" if self.version == 2 else path)
        if isinstance(entry, dict):
            yield entry
        if self.version == 2:
            return
        parts = path.split("/")
        for depth in range(1, len(parts)):
            group = self.entries.get("/".join(parts[:depth]))
            nested = _v3_entries(group)
            if nested is not None:
                yield from Consolidated(3, nested).of_array("/".join(parts[depth:]))


def read_consolidated(folder: File) -> list[Consolidated]:
    """Return the consolidated metadata of a group, for each version of which it has some.

    Raises:
        FormatError: a metadata file cannot be read.
    """
    found = []
    if (folder / ".zmetadata").is_file():
        entries = read_mapping(folder / ".zmetadata").get("metadata")
        if isinstance(entries, dict):
            found.append(Consolidated(2, entries))
    if (folder / V3_DOCUMENT).is_file():
        entries = _v3_entries(read_mapping(folder / V3_DOCUMENT))
        if entries is not None:
            found.append(Consolidated(3, entries))
    return found


def _v3_entries(group: Any) -> dict[str, Any] | None:
    """Return the consolidated metadata in a group's own metadata of version 3."""
    outer = group.get("consolidated_metadata") if isinstance(group, dict) else None
    entries = outer.get("metadata") if isinstance(outer, dict) else None
    return entries if isinstance(entries, dict) else None


def check_consolidated(array: ArrayMetadata, path: str, consolidated: Consolidated) -> None:
    """Compare the metadata of an array with a group's consolidated copy.

    Args:
        array: the metadata of the array.
        path: its path, relative to the group.
        consolidated: the metadata of the group.

    Raises:
        FormatError: they differ, or the copy uses something that is not read.
    """
    own = _parse_mapping(array.document, array.document_name)
    own["endian"] = _v3_byte_order(own)
    for entry in consolidated.of_array(path):
        if array.version != consolidated.version:
            _refuse_stale("zarr_format", consolidated.version, array.version)
        _check_same(own, entry, array.version)


def _check_same(own: Mapping[str, Any], entry: Mapping[str, Any], version: int) -> None:
    entry = {**entry, "endian": _v3_byte_order(entry)}
    for key in sorted(_DECIDING & own.keys() & entry.keys()):
        if own[key] != entry[key] and entry[key] is not None:
            _refuse_stale(key, entry[key], own[key])
    if any(own.get(key) != entry.get(key) for key in _WITH_DEFAULTS):
        _check_defaults(own, entry, version)


def _check_defaults(own: Mapping[str, Any], entry: Mapping[str, Any], version: int) -> None:
    """Compare the keys that have defaults, both sides as zarr completes them."""
    # 0.2 s, for such stores only.
    from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata  # noqa: PLC0415

    kind = ArrayV2Metadata if version == 2 else ArrayV3Metadata
    with wrap_errors("damaged consolidated metadata"):
        _check_codecs_known(entry, version)
        own_values = kind.from_dict(_without_endian(own)).to_dict()
        entry_values = kind.from_dict(_without_endian(entry)).to_dict()
    for key in _WITH_DEFAULTS:
        # Compared as text, because NaN is not equal to itself.
        if repr(own_values.get(key)) != repr(entry_values.get(key)):
            _refuse_stale(key, entry_values.get(key), own_values.get(key))


def _without_endian(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if key != "endian"}


def _v3_byte_order(meta: Mapping[str, Any]) -> Any:
    """Return the byte order that the codecs of version 3 declare, None if they declare none."""
    codecs = meta.get("codecs")
    if not isinstance(codecs, list):
        return None
    for codec in codecs:
        if isinstance(codec, dict) and codec.get("name") == "bytes":
            configuration = codec.get("configuration")
            if isinstance(configuration, dict):
                return configuration.get("endian")
    return None


def _refuse_stale(key: str, consolidated: Any, own: Any) -> NoReturn:
    msg = (
        f"the consolidated metadata say {key} {_short(consolidated)}, the array's own {_short(own)}; "
        "zarr reads by the former. Consolidate them again (zarr.consolidate_metadata)"
    )
    raise FormatError(msg)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
