"""Zarr stores in a folder, versions 2 and 3: no chunk becomes larger than its array declares.

Only known codecs are decoded, and each is limited. Without a limit, libraries allocate the size
that a stream declares, or decode until it ends: 45 bytes of bzip2 hold a gigabyte.
"""

from __future__ import annotations

import bz2
import dataclasses
import errno
import json
import lzma
import math
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import (
    DEPTH,
    check_bytes,
    check_expansion,
    expand,
    matching,
    plain,
    plain_type,
    wrap_errors,
)
from datacheck.formats.parsed import from_python, parse_json
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath, ConfinedFolder, File

# Not decoded: pickle (runs code), json2, msgpack2, vlen-bytes, vlen-array, categorize.
V2_CODECS = frozenset(
    {
        *(
            "adler32",
            "bitround",
            "blosc",
            "bz2",
            "crc32",
            "crc32c",
            "delta",
            "fixedscaleoffset",
            "fletcher32",
            "gzip",
        ),
        *(
            "jenkins_lookup3",
            "lz4",
            "lzma",
            "packbits",
            "quantize",
            "shuffle",
            "vlen-utf8",
            "zlib",
            "zstd",
        ),
    }
)
V3_CODECS = frozenset(
    {
        *("blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "vlen-utf8", "zstd"),
        *(f"numcodecs.{name}" for name in V2_CODECS),
    }
)
_NESTED = 4  # levels of shards in shards; writers make one
_TEXT_BYTES = 1 << 30  # of a chunk of texts, whose size nothing declares
_SLACK_BYTES = 1 << 20  # for checksums and the index of a shard
_LZMA_BYTES = 256 << 20  # of memory; the highest preset of lzma takes 65 MiB

Decode = Callable[[Any], Any]


def check_codecs(codecs: list[Any], known: frozenset[str]) -> None:
    """Check the names of codecs, including those within shards.

    Args:
        codecs: their ids (version 2), or the codecs as in the metadata (version 3).
        known: names of the codecs that are decoded.

    Raises:
        FormatError: a codec is not known, or shards are nested deeper than 4 levels.
        KeyError, TypeError: an entry is not a codec.
    """
    for name in _names(codecs, _NESTED):
        if name not in known:
            msg = f"encoded with {str(name)[:80]}, which is not read here"
            raise FormatError(msg)


def _names(codecs: list[Any], depth: int) -> Iterator[Any]:
    for codec in codecs:
        name = codec if isinstance(codec, str) else codec["name"]
        yield name
        if name == "sharding_indexed":
            if not depth:
                msg = f"shards within shards, deeper than {_NESTED} levels"
                raise FormatError(msg)
            inner = codec.get("configuration", {})
            yield from _names([*inner["codecs"], *inner.get("index_codecs", [])], depth - 1)


def bounded(array: Any) -> Any:
    """Return an opened zarr array, limited: chunks larger than declared raise `FormatError`."""
    import zarr  # noqa: PLC0415  0.2 s, for stores of this format only

    meta = array.metadata
    if array.metadata.zarr_format == 2:
        _bound_instances(meta)
        return array
    meta = dataclasses.replace(meta, codecs=tuple(_bounded_codecs(meta.codecs)))
    return zarr.Array(zarr.AsyncArray(meta, array.store_path))


# ---------------------------------------------------------------------------------------- version 2


def _bound_instances(meta: Any) -> None:
    """Limit the codecs of a version 2 array; no other array shares these objects."""
    count = math.prod(meta.chunks)
    dtype = meta.dtype.to_native_dtype()
    filters = [*(meta.filters or ())]
    size = (
        _TEXT_BYTES
        if dtype.hasobject
        else count * (max(16, dtype.itemsize) if filters else dtype.itemsize)
    )
    for codec in [*filters, *([meta.compressor] if meta.compressor is not None else [])]:
        if codec.codec_id == "vlen-utf8":
            codec.decode = _counting(codec.decode, count)
        elif codec.codec_id in _DECODERS:
            codec.decode = _limited(codec.codec_id, codec, codec.decode, size + _SLACK_BYTES)


# ---------------------------------------------------------------------------------------- version 3


def _bounded_codecs(codecs: Any) -> Iterator[Any]:
    """Yield the codecs, each codec that expands replaced by a limited one."""
    index = 0  # bytes per element that the index of a shard may take in addition
    for codec in codecs:
        config = codec.to_dict()
        name = (config if isinstance(config, str) else config["name"]).removeprefix("numcodecs.")
        if name == "sharding_indexed":
            index = 16
            inner = {
                part: tuple(_bounded_codecs(getattr(codec, part)))
                for part in ("codecs", "index_codecs")
            }
            yield dataclasses.replace(codec, **inner)
        elif name == "vlen-utf8":
            yield _text_codec()
        else:
            yield _bounded_codec_class()(codec, name, index) if name in _DECODERS else codec


@cache
def _text_codec() -> Any:
    """Return a codec of texts that refuses chunks with more texts than their array declares."""
    import zarr  # noqa: PLC0415  see above

    # zarr looks codecs up by this class name.
    class VLenUTF8Codec(zarr.codecs.VLenUTF8Codec):  # type: ignore[misc]
        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            _check_count(chunk_bytes.to_bytes()[:4], math.prod(chunk_spec.shape))
            return await super()._decode_single(chunk_bytes, chunk_spec)

    return VLenUTF8Codec()


@cache
def _bounded_codec_class() -> Any:
    """Return the class of a codec that limits another one to the bytes that a chunk may have."""
    from zarr.abc.codec import BytesBytesCodec  # noqa: PLC0415  see above

    class Stream(BytesBytesCodec):  # type: ignore[misc]  # zarr is untyped here
        is_fixed_size = False

        def __init__(self, inner: Any, name: str, index: int) -> None:
            self._inner, self._name, self._index = inner, name, index

        def to_dict(self) -> Any:
            return self._inner.to_dict()

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
            return int(self._inner.compute_encoded_size(input_byte_length, chunk_spec))

        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            dtype = chunk_spec.dtype.to_native_dtype()
            each = dtype.itemsize + self._index
            size = _TEXT_BYTES if dtype.kind in "OT" else math.prod(chunk_spec.shape) * each
            own = getattr(self._inner, "_codec", None) or _instance(self._name)
            decode = _limited(self._name, own, own.decode, size + _SLACK_BYTES)
            import asyncio  # noqa: PLC0415  20 ms that only a reader of such a codec should pay

            decoded = await asyncio.to_thread(decode, chunk_bytes.to_bytes())
            return chunk_spec.prototype.buffer.from_bytes(bytes(decoded))

    return Stream


def _instance(name: str) -> Any:
    """Return the decoder of a codec that needs no configuration for decoding."""
    from zarr.registry import get_numcodec  # noqa: PLC0415  see above

    return get_numcodec({"id": name})


# ------------------------------------------------------------------------------------------- limits


def _limited(name: str, codec: Any, decode: Decode, most: int) -> Decode:
    """Return a decoder that raises `FormatError` before it allocates more than `most` bytes."""

    def within(stored: Any, out: Any = None) -> Any:
        del out
        decoded = _DECODERS[name](memoryview(stored).cast("B"), most, codec, decode)
        _check_size(name, memoryview(decoded).nbytes, most)
        return decoded

    return within


def _counting(decode: Decode, count: int) -> Decode:
    def within(stored: Any, out: Any = None) -> Any:
        del out
        _check_count(bytes(memoryview(stored).cast("B")[:4]), count)
        return decode(stored)

    return within


def _check_count(head: bytes, count: int) -> None:
    """Raise `FormatError` if a chunk of texts declares more texts than its array does."""
    if int.from_bytes(head, "little") > count:
        msg = (
            f"a chunk says that it holds {int.from_bytes(head, 'little'):,} texts; {count:,} are "
            f"declared"
        )
        raise FormatError(msg)


def _check_size(name: str, size: int, most: int) -> None:
    if size > most:
        msg = f"a chunk in {name} holds more than the {most:,} bytes that are declared of it"
        raise FormatError(msg)


def _zlib(stored: memoryview, most: int, codec: Any, decode: Decode) -> bytes:
    del decode
    gzip = codec.codec_id == "gzip"
    rest = bytes(stored)
    parts = []
    remaining = most
    while True:
        stream = zlib.decompressobj(31 if gzip else 15)
        parts.append(stream.decompress(rest, remaining + 1))
        remaining -= len(parts[-1])
        _check_size(codec.codec_id, most - remaining, most)
        if not stream.eof:
            msg = f"{codec.codec_id}: the chunk ends too early"
            raise FormatError(msg)
        # A gzip chunk may consist of several members.
        rest = stream.unused_data.lstrip(b"\0") if gzip else b""
        if not rest:
            return b"".join(parts)


def _bz2(stored: memoryview, most: int, codec: Any, decode: Decode) -> bytes:
    del codec, decode
    return _streams("bz2", stored, most, bz2.BZ2Decompressor)


def _lzma(stored: memoryview, most: int, codec: Any, decode: Decode) -> bytes:
    del decode
    form = codec.format
    if form == lzma.FORMAT_RAW:
        largest = max((entry.get("dict_size", 0) for entry in codec.filters or ()), default=0)
        if largest > _LZMA_BYTES:
            msg = f"lzma with a dictionary of {largest:,} bytes; at most {_LZMA_BYTES:,} are read"
            raise FormatError(msg)
    limit = None if form == lzma.FORMAT_RAW else _LZMA_BYTES
    return _streams("lzma", stored, most, lambda: lzma.LZMADecompressor(form, limit, codec.filters))


def _streams(name: str, stored: memoryview, most: int, opened: Callable[[], Any]) -> bytes:
    """Return the contents of streams that follow one another."""
    rest = bytes(stored)
    parts = []
    remaining = most
    while True:
        stream = opened()
        try:
            parts.append(stream.decompress(rest, remaining + 1))
        except (OSError, lzma.LZMAError):
            if parts:  # trailing bytes after the last stream are no stream
                return b"".join(parts)
            raise
        remaining -= len(parts[-1])
        _check_size(name, most - remaining, most)
        if not stream.eof:
            msg = f"{name}: the chunk ends too early"
            raise FormatError(msg)
        rest = stream.unused_data
        if not rest:
            return b"".join(parts)


def _blosc(stored: memoryview, most: int, codec: Any, decode: Decode) -> Any:
    del codec
    if len(stored) < 16 or struct.unpack_from("<I", stored, 12)[0] > len(stored):
        msg = "blosc: the chunk ends too early"
        raise FormatError(msg)
    _check_size("blosc", struct.unpack_from("<I", stored, 4)[0], most)
    return decode(stored)


def _lz4(stored: memoryview, most: int, codec: Any, decode: Decode) -> Any:
    del codec
    if len(stored) >= 4:
        _check_size("lz4", struct.unpack_from("<I", stored)[0], most)
    return decode(stored)


def _zstd(stored: memoryview, most: int, codec: Any, decode: Decode) -> Any:
    del codec, decode
    # It starts a thread, which a server that forks children must not have.
    import pyarrow as pa  # noqa: PLC0415

    # Streamed, because a frame need not declare its size.
    with pa.input_stream(pa.py_buffer(stored), compression="zstd") as stream:
        unpacked = stream.read(most + 1)
    _check_size("zstd", len(unpacked), most)
    return unpacked


_DECODERS: dict[str, Callable[[memoryview, int, Any, Decode], Any]] = {
    "blosc": _blosc,
    "bz2": _bz2,
    "gzip": _zlib,
    "lz4": _lz4,
    "lzma": _lzma,
    "zlib": _zlib,
    "zstd": _zstd,
}


_META_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 30
_NODES = 100_000
_CHUNKS = 1_000_000
_ABSENT = 10_000  # from so many missing chunks on, only existing chunks are read
# But only up to so many existing ones; with more, reading all costs little extra.
_PRESENT = 100_000
_V3_DOCUMENT = "zarr.json"  # name of the metadata file of version 3
_SOLE = "array"
_ROOT = ""


class _Array(NamedTuple):
    """The checked metadata of one array."""

    version: int
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype[Any] | None  # None for text of any length
    fill: Any
    key: re.Pattern[str]  # matches the relative path of a chunk
    document: tuple[str, bytes]  # name and bytes of the metadata


# Keys that decide values and shape and have one spelling. Codecs are not among them: zarr fills in
# their defaults when it consolidates.
_DECIDING = frozenset({"shape", "chunks", "dtype", "order", "data_type", "chunk_grid", "endian"})
# Keys that are compared once zarr has filled in the defaults.
_FILLED = (
    "fill_value",
    "filters",
    "compressor",
    "codecs",
    "dimension_separator",
    "chunk_key_encoding",
)


def _endian(meta: Mapping[str, Any]) -> Any:
    """Return the byte order that the codecs of version 3 declare, None if they declare none."""
    codecs = meta.get("codecs")
    for codec in codecs if isinstance(codecs, list) else []:
        configuration = (
            codec.get("configuration")
            if isinstance(codec, dict) and codec.get("name") == "bytes"
            else None
        )
        if isinstance(configuration, dict):
            return configuration.get("endian")
    return None


def _consolidated_entries(
    consolidated: Mapping[str, Any], path: str, version: int
) -> Iterator[Mapping[str, Any]]:
    """Yield the consolidated metadata of an array: its own entry, or an entry of a group around it.

    For an array without an entry, zarr reads the array's own metadata, or does not find the array.
    """
    entry = consolidated.get(f"{path}/.zarray" if version == 2 else path)
    if isinstance(entry, dict):
        yield entry
    parts = path.split("/") if version == 3 else []
    for depth in range(1, len(parts)):
        group = consolidated.get("/".join(parts[:depth]))
        nested = group.get("consolidated_metadata") if isinstance(group, dict) else None
        nested_entries = nested.get("metadata") if isinstance(nested, dict) else None
        if isinstance(nested_entries, dict):
            yield from _consolidated_entries(nested_entries, "/".join(parts[depth:]), version)


def _check_same(
    own: Mapping[str, Any], consolidated: Mapping[str, Any], version: int, other: int
) -> None:
    """Compare the metadata of an array with its consolidated metadata.

    Raises:
        FormatError: they differ.
    """
    if version != other:
        raise FormatError(_stale_error("zarr_format", other, version))
    consolidated = {**consolidated, "endian": _endian(consolidated)}
    for key in sorted(_DECIDING & own.keys() & consolidated.keys()):
        if own[key] != consolidated[key] and consolidated[key] is not None:
            raise FormatError(_stale_error(key, consolidated[key], own[key]))
    if any(own.get(key) != consolidated.get(key) for key in _FILLED):
        _check_defaults(own, consolidated, version)


def _check_defaults(own: Mapping[str, Any], consolidated: Mapping[str, Any], version: int) -> None:
    """Compare the keys that have defaults, both sides as zarr completes them.

    Raises:
        FormatError: they differ, or the consolidated metadata use something that is not read.
    """
    # 0.2 s, for such stores only.
    from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata  # noqa: PLC0415

    kind = ArrayV2Metadata if version == 2 else ArrayV3Metadata
    with wrap_errors("damaged consolidated metadata"):
        _check_known(consolidated, version)
        own_values, consolidated_values = (
            kind.from_dict({k: v for k, v in meta.items() if k != "endian"}).to_dict()
            for meta in (own, consolidated)
        )
    for key in _FILLED:
        # Compared as text, because NaN is not equal to itself.
        if repr(own_values.get(key)) != repr(consolidated_values.get(key)):
            raise FormatError(_stale_error(key, consolidated_values.get(key), own_values.get(key)))


def _check_known(meta: Mapping[str, Any], version: int) -> None:
    """Refuse codecs that are not read."""
    if version == 2:
        check_codecs(
            [c["id"] for c in [meta["compressor"], *(meta["filters"] or [])] if c], V2_CODECS
        )
    else:
        check_codecs(meta["codecs"], V3_CODECS)


def _stale_error(key: str, consolidated: Any, own: Any) -> str:
    return (
        f"the consolidated metadata say {key} {_short(consolidated)}, the array's own {_short(own)}; "
        "zarr reads by the former. Consolidate them again (zarr.consolidate_metadata)"
    )


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _document(path: File) -> bytes:
    """Return the bytes of a metadata file."""
    try:
        with path.open(buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            check_bytes(size, path.name, _META_BYTES)
            return file.read(size)
    except OSError as error:
        msg = f"{path.name}: {error.strerror or error}"
        raise FormatError(msg) from error


def _parsed(data: bytes, name: str) -> dict[str, Any]:
    document = parse_json(data)
    if not isinstance(document, dict):
        msg = f"{name} holds no JSON mapping"
        raise FormatError(msg)
    return document


def _metadata(path: File) -> dict[str, Any]:
    return _parsed(_document(path), path.name)


def _node(folder: File) -> str:
    """Return the name of the document that makes a folder an array or a group, or "".

    Raises:
        FormatError: there are documents of both versions.
    """
    old = next((name for name in (".zarray", ".zgroup") if (folder / name).is_file()), "")
    if not (folder / _V3_DOCUMENT).is_file():
        return old
    if old:
        msg = (
            f"{old} beside {_V3_DOCUMENT}: versions 2 and 3 of zarr read different arrays. "
            f"Remove one of the two"
        )
        raise FormatError(msg)
    return _V3_DOCUMENT


def _kind(folder: File) -> str:
    """Return "array", "group" or "" for a folder, by its metadata files."""
    name = _node(folder)
    if name == ".zarray":
        return "array"
    if name == _V3_DOCUMENT:
        kind = _metadata(folder / _V3_DOCUMENT).get("node_type")
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
    if _metadata(folder / ".zgroup").get("zarr_format") != 2:
        msg = ".zgroup names no zarr_format 2"
        raise FormatError(msg)
    return "group"


def _described(folder: File) -> _Array:
    """Return the checked metadata of an array, with its bytes, the only ones that zarr reads."""
    name = ".zarray" if _node(folder) == ".zarray" else _V3_DOCUMENT
    version = 2 if name == ".zarray" else 3
    document = _document(folder / name)
    meta = _parsed(document, name)
    with wrap_errors("damaged Zarr metadata"):
        _check_known(meta, version)
        if version == 2:
            chunks = meta["chunks"]
            kind = meta["dtype"]
            key = _key("", meta.get("dimension_separator", "."))
            dtype = (
                None
                if kind == "|O"
                else np.dtype([_member(m) for m in kind] if isinstance(kind, list) else kind)
            )
        else:
            chunks = _grid(meta)
            dtype = _v3_type(meta["data_type"])
            key = _v3_key(meta["chunk_key_encoding"])
        shape = _sizes(meta["shape"], 0)
        sizes = _sizes(chunks, 1)
        if len(shape) != len(sizes):
            msg = f"shape {list(shape)} but chunks {list(sizes)}"
            raise FormatError(msg)
        return _Array(version, shape, sizes, dtype, meta.get("fill_value"), key, (name, document))


def _key(prefix: str, separator: Any) -> re.Pattern[str]:
    if separator not in {".", "/"}:
        msg = f"chunk names with separator {str(separator)[:10]!r}"
        raise FormatError(msg)
    part = re.escape(separator)
    return re.compile(rf"c({part}\d+)*" if prefix else rf"\d+({part}\d+)*")


def _v3_key(encoding: Any) -> re.Pattern[str]:
    named = encoding if isinstance(encoding, dict) else {"name": encoding}
    default = named["name"] == "default"
    return _key(
        "c" if default else "",
        named.get("configuration", {}).get("separator", "/" if default else "."),
    )


def _member(member: Any) -> Any:
    return (member[0], member[1], *(tuple(part) for part in member[2:]))


def _sizes(values: Any, least: int) -> tuple[int, ...]:
    if not all(type(n) is int and least <= n < 1 << 62 for n in values) or len(values) > DEPTH:
        msg = f"sizes {str(values)[:60]}"
        raise FormatError(msg)
    return tuple(values)


def _grid(meta: dict[str, Any]) -> Any:
    if meta["chunk_grid"]["name"] != "regular" or meta.get("storage_transformers"):
        msg = "only regular chunk grids without storage transformers are read"
        raise FormatError(msg)
    return meta["chunk_grid"]["configuration"]["chunk_shape"]


def _v3_type(kind: Any) -> np.dtype[Any] | None:
    if isinstance(kind, str) and kind != "string":
        return np.dtype(kind)
    name = kind if isinstance(kind, str) else kind["name"]
    settings = {} if isinstance(kind, str) else kind.get("configuration", {})
    if name == "string":
        return None
    if name in {"numpy.datetime64", "numpy.timedelta64"}:
        return np.dtype("i8")
    if name == "fixed_length_utf32":
        return np.dtype(f"S{int(settings['length_bytes'])}")
    if name == "null_terminated_bytes":
        return np.dtype(f"S{int(settings['length_bytes'])}")
    msg = f"values of type {name} are not read; numbers and text are"
    raise FormatError(msg)


class _ZarrStore(Container):
    """A Zarr store in a folder."""

    def __init__(self, root: AnyPath) -> None:
        self._root = (
            root.without_links()
            if isinstance(root, File)
            else File(ConfinedFolder(root), "", links=False)
        )
        self._kind = _kind(self._root)
        self._stored: dict[File, tuple[int, int, list[str]]] = {}
        self._said: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}

    def names(self) -> list[str]:
        if self._kind == "array":
            return self._names_of(_ROOT)
        value_names: list[str] = []
        stack = [_ROOT]
        seen = 0
        while stack:
            for inner in self._below(stack.pop()):
                seen += 1
                kind = self._kind_of(inner)
                if kind == "array":
                    value_names += self._names_of(inner)
                elif inner.count("/") < DEPTH:
                    stack.append(inner)
            if seen > _NODES:
                msg = f"more than {_NODES:,} folders"
                raise FormatError(msg)
        if not value_names:
            msg = "a Zarr store that holds no array"
            raise FormatError(msg)
        return sorted(value_names)

    def _kind_of(self, inner: str) -> str:
        try:
            return _kind(self._root / inner)
        except FormatError:
            return "array"  # broken: reading it raises the error

    def _below(self, inner: str) -> list[str]:
        with os.scandir(self._root / inner) as entries:
            names = [
                entry.name
                for entry in entries
                if entry.is_dir(follow_symlinks=False) or _hides_folder(entry)
            ]
        return [
            f"{inner}/{name}" if inner else name
            for name in sorted(names)
            if not name.startswith(".")
        ]

    def _names_of(self, inner: str) -> list[str]:
        name = inner or _SOLE
        try:
            described = _described(self._folder(inner))
        except FormatError:
            return [name]
        if described.dtype is not None and described.dtype.names is not None:
            return sorted(expand(name, np.empty(0, described.dtype)))
        return [name]

    def _folder(self, inner: str) -> File:
        """Return the folder of an inner path; the path stays inside the store."""
        parts = [part for part in inner.split("/") if part]
        if any(part in {".", ".."} or "\0" in part for part in parts):
            raise KeyError(inner)
        folder = self._root / "/".join(parts) if parts else self._root
        try:
            folder.stat()
        except OSError as error:
            if error.errno == errno.ELOOP:
                msg = f"{inner}: {_LINK}"
                raise FormatError(msg) from error
        return folder

    def _locate(self, name: str) -> tuple[str, File]:
        """Return (inner path, folder) of the array that holds a value."""
        name = name.strip("/")
        cut = len(name)
        while cut > 0:
            inner = name[:cut] if self._kind != "array" else _ROOT
            folder = self._folder(inner)
            if (
                folder.is_dir()
                and self._kind_of(inner) == "array"
                and name.startswith(inner or _SOLE)
            ):
                return inner, folder
            cut = name.rfind(".", 0, cut)
        raise KeyError(name)

    def read(self, name: str) -> Any:
        inner, folder = self._locate(name)
        name = name.strip("/")
        try:
            self._check_consolidated(inner, _described(folder))
            values = expand(inner or _SOLE, self._decoded(folder))
        except FormatError as error:
            msg = f"{inner or _SOLE}: {error}"
            raise FormatError(msg) from error
        value = values[name]
        if isinstance(value, FormatError):
            raise value
        return value

    def read_rows(self, name: str, start: int, stop: int) -> Any:
        inner, folder = self._locate(name)
        described = _described(folder)
        if described.dtype is None or described.dtype.kind not in "biuf" or not described.shape:
            return super().read_rows(name, start, stop)
        if name.strip("/") != (inner or _SOLE):
            raise KeyError(name)
        try:
            self._check_consolidated(inner, described)
            return plain(self._decoded(folder, (start, min(stop, described.shape[0]))))
        except FormatError as error:
            msg = f"{inner or _SOLE}: {error}"
            raise FormatError(msg) from error

    def _check_consolidated(self, inner: str, described: _Array) -> None:
        """Refuse an array that the consolidated metadata of a group contradict: zarr reads by them.

        Raises:
            FormatError: they contradict it, or cannot be read.
        """
        own = _parsed(described.document[1], described.document[0])
        own["endian"] = _endian(own)
        parts = inner.split("/") if inner else []
        for depth in range(len(parts)):
            group = "/".join(parts[:depth])
            rest = "/".join(parts[depth:])
            for version, entries in self._consolidated(group):
                for entry in _consolidated_entries(entries, rest, version):
                    _check_same(own, entry, described.version, version)

    def _consolidated(self, group: str) -> list[tuple[int, Mapping[str, Any]]]:
        """Return (version, consolidated metadata by path) for each version that a group has.

        In version 2 the paths are those of the metadata documents.
        """
        if group not in self._said:
            folder = self._root / group if group else self._root
            old = (
                _metadata(folder / ".zmetadata").get("metadata")
                if (folder / ".zmetadata").is_file()
                else None
            )
            outer = (
                _metadata(folder / _V3_DOCUMENT).get("consolidated_metadata")
                if (folder / _V3_DOCUMENT).is_file()
                else None
            )
            new = outer.get("metadata") if isinstance(outer, dict) else None
            self._said[group] = [
                (version, metadata)
                for version, metadata in ((2, old), (3, new))
                if isinstance(metadata, dict)
            ]
        return self._said[group]

    def _decoded(self, folder: File, rows: tuple[int, int] | None = None) -> Array:
        """Return all values of one array, or its rows [start, stop)."""
        described = _described(folder)
        itemsize = 16 if described.dtype is None else described.dtype.itemsize
        count = math.prod(
            -(-n // c) for n, c in zip(described.shape, described.chunks, strict=True)
        )
        # Cached: it visits every chunk, and rows of one array are read in many calls.
        if folder not in self._stored:
            self._stored[folder] = _stored(folder, described.key)
        stored, files, keys = self._stored[folder]
        check_bytes(math.prod(described.chunks) * itemsize, "one chunk", _CHUNK_BYTES)
        shape = (
            described.shape if rows is None else (max(0, rows[1] - rows[0]), *described.shape[1:])
        )
        check_expansion(math.prod(shape) * itemsize, stored, "the array")
        if count > _CHUNKS:
            msg = f"{count:,} chunks; at most {_CHUNKS:,} are read"
            raise FormatError(msg)
        if described.fill is None and files < count:
            msg = (
                f"{count - files:,} of {count:,} chunks are missing, and there is no fill value "
                f"for them to stand for"
            )
            raise FormatError(msg)
        import zarr  # noqa: PLC0415  0.2 s, for stores of this format only

        with wrap_errors("damaged Zarr array"):
            store = _folder_store()(folder, described)
            array = bounded(zarr.open_array(store, mode="r", zarr_format=described.version))
            if count - files > _ABSENT and files == len(keys) and described.dtype is not None:
                return _present(array, keys, described, rows or (0, described.shape[0]))
            values = np.asarray(array[...] if rows is None else array[rows[0] : rows[1]])
            return values.astype(str) if values.dtype.kind == "O" else values

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        described = _described(self._locate(name)[1])
        if described.dtype is None or described.dtype.kind not in "biufcMm":
            return super().peek(name)
        pair = (2,) if described.dtype.kind == "c" else ()
        return (*described.shape, *pair), plain_type(described.dtype).str

    def stores_text(self, name: str) -> bool:
        dtype = _described(self._locate(name)[1]).dtype
        return dtype is None or dtype.kind in "SU"

    def attrs(self, name: str = "") -> dict[str, Any]:
        """Return the attributes of a group or array: arrays, text, JSON."""
        folder = self._folder(name.strip("/") if name != _SOLE or self._kind != "array" else _ROOT)
        if (folder / _V3_DOCUMENT).is_file():
            attributes = _metadata(folder / _V3_DOCUMENT).get("attributes")
        elif (folder / ".zattrs").is_file():
            attributes = _metadata(folder / ".zattrs")
        else:
            attributes = {}
        items = sorted(attributes.items()) if isinstance(attributes, dict) else []
        return {key: from_python(value) for key, value in items if value is not None}

    def groups(self, pattern: str) -> list[str]:
        """Return the groups that match ``/data/demo_*``, sorted; ``*`` stays in one level."""
        return matching(pattern, self._below, lambda inner: self._kind_of(inner) != "array")


_LINK = "a link inside a store is not followed"


def _hides_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether a link hides an array or a group; a link to a file is no part of a store."""
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:  # the link leads to itself, or to a folder without permission
        return True


def _present(array: Any, keys: list[str], described: _Array, rows: tuple[int, int]) -> Array:
    """Return rows [start, stop) of an array; reads only existing chunks.

    Asking zarr for a missing chunk costs as much as reading an existing one.
    """
    values = np.full(
        (max(0, rows[1] - rows[0]), *described.shape[1:]), array.fill_value, array.dtype
    )
    for key in keys:
        chunk_index = [int(number) for number in re.findall(r"\d+", key)]
        spans = [
            slice(i * c, min(n, (i + 1) * c))
            for i, c, n in zip(chunk_index, described.chunks, described.shape, strict=False)
        ]
        row_span = slice(max(spans[0].start, rows[0]), min(spans[0].stop, rows[1]))
        if len(chunk_index) == len(described.shape) and all(
            s.start < s.stop for s in (row_span, *spans)
        ):
            inner = slice(row_span.start - rows[0], row_span.stop - rows[0])
            values[inner, *spans[1:]] = array[row_span, *spans[1:]]
    return values


def _stored(folder: File, key: re.Pattern[str]) -> tuple[int, int, list[str]]:
    """Return (bytes, files, names of the first `_PRESENT` files) of an array's chunks."""
    size = 0
    files = 0
    keys = list[str]()
    for inner, entry in _below(folder):
        if entry.is_symlink():
            msg = f"{inner}: {_LINK}"
            raise FormatError(msg)
        if entry.is_dir() or entry.name.startswith(".") or inner == "zarr.json":
            continue
        # zarr would not read this file and would give the fill value instead.
        if not key.fullmatch(inner):
            msg = (
                f"{inner} is no chunk by the store's own naming ({key.pattern}); its values "
                f"would be passed over"
            )
            raise FormatError(msg)
        size += entry.stat(follow_symlinks=False).st_size
        files += 1
        if len(keys) < _PRESENT:
            keys.append(inner)
    return size, files, keys


def _below(folder: File) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield (relative path, entry) of everything below a folder.

    Does not follow links and does not enter hidden folders.
    """
    waiting = [""]
    while waiting:
        relative = waiting.pop()
        current = folder / relative if relative else folder
        with os.scandir(current) as entries:
            for entry in entries:
                inner = f"{relative}/{entry.name}" if relative else entry.name
                yield inner, entry
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    waiting.append(inner)


def _span(request: Any, size: int) -> tuple[int, int]:
    """Return the byte range [start, stop) of a request by zarr to a file of `size` bytes."""
    # Imported together with zarr only.
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest  # noqa: PLC0415

    if isinstance(request, RangeByteRequest):
        return request.start, min(request.end, size)
    if isinstance(request, OffsetByteRequest):
        return request.offset, size
    return (max(0, size - request.suffix) if isinstance(request, SuffixByteRequest) else 0), size


@cache
def _folder_store() -> Any:
    """Return zarr's store class for a folder; it opens chunks by handle and follows no link."""
    import asyncio  # noqa: PLC0415  with zarr

    import zarr  # noqa: PLC0415  as above

    class Beneath(zarr.storage.LocalStore):  # type: ignore[misc]
        def __init__(self, folder: File, described: _Array) -> None:
            super().__init__(Path(os.fspath(folder)), read_only=True)
            self._folder, self._key = folder, described.key
            self._name, self._document = described.document

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            return await asyncio.to_thread(self._read, key, prototype, byte_range)

        def _read(self, key: str, prototype: Any, byte_range: Any) -> Any:
            if key == self._name:  # the bytes that were checked, even if the file has changed since
                return _buffer(self._document, prototype)
            if not self._key.fullmatch(key):  # other metadata: attributes
                return None
            try:
                with (self._folder / key).open(buffering=0) as file:
                    start, stop = _span(byte_range, os.fstat(file.fileno()).st_size)
                    check_bytes(stop - start, f"chunk {key}", _CHUNK_BYTES)
                    file.seek(start)
                    data = file.read(max(0, stop - start))
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None
            return _buffer(data, prototype)

    def _buffer(data: bytes, prototype: Any) -> Any:
        return (prototype or zarr.core.buffer.default_buffer_prototype()).buffer.from_bytes(data)

    return Beneath


def _open(path: AnyPath, hint: Hint) -> Container:
    del hint
    return _ZarrStore(path)


ZARR = Format("zarr", (".zarr",), _open, directory=(".zgroup", ".zarray", "zarr.json"))
