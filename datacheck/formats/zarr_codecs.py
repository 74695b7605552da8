"""Which codecs of Zarr are decoded, and how far: no chunk becomes larger than its array declares.

Libraries allocate what a stream says of itself, or go on until it ends: 45 bytes of bzip2 hold a gigabyte.
"""

from __future__ import annotations

import bz2
import dataclasses
import lzma
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from datacheck.errors import FormatError

# Not pickle (runs code), json2, msgpack2, vlen-bytes, vlen-array, categorize.
V2_CODECS = frozenset(
    {
        *("adler32", "bitround", "blosc", "bz2", "crc32", "crc32c", "delta", "fixedscaleoffset", "fletcher32", "gzip"),
        *("jenkins_lookup3", "lz4", "lzma", "packbits", "quantize", "shuffle", "vlen-utf8", "zlib", "zstd"),
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
_ROOM = 1 << 20  # for checksums and the index of a shard
_LZMA_BYTES = 256 << 20  # of memory; its highest preset takes 65 MiB

Decode = Callable[[Any], Any]


def check_codecs(codecs: list[Any], known: frozenset[str]) -> None:
    """Check the names of codecs, also of those within shards.

    Args:
        codecs: of version 2 their ids; of version 3 as the metadata have them.
        known: those that are decoded.

    Raises:
        FormatError: one is not, or shards are nested deeper than 4 levels.
        KeyError, TypeError: they are not named as codecs are.
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
    """Return an opened array of zarr whose chunks are decoded to the bytes that it declares, or to a `FormatError`."""
    import zarr  # noqa: PLC0415  0.2 s, for stores of this format only

    meta = array.metadata
    if array.metadata.zarr_format == 2:
        _bound_instances(meta)
        return array
    meta = dataclasses.replace(meta, codecs=tuple(_wrapped(meta.codecs)))
    return zarr.Array(zarr.AsyncArray(meta, array.store_path))


# ------------------------------------------------------------------------------------------------ version 2


def _bound_instances(meta: Any) -> None:
    """Bound the codecs of an array of version 2, which belong to it alone."""
    count, dtype = math.prod(meta.chunks), meta.dtype.to_native_dtype()
    filters = [*(meta.filters or ())]
    size = _TEXT_BYTES if dtype.hasobject else count * (max(16, dtype.itemsize) if filters else dtype.itemsize)
    for codec in [*filters, *([meta.compressor] if meta.compressor is not None else [])]:
        if codec.codec_id == "vlen-utf8":
            codec.decode = _counting(codec.decode, count)
        elif codec.codec_id in _DECODERS:
            codec.decode = _limited(codec.codec_id, codec, codec.decode, size + _ROOM)


# ------------------------------------------------------------------------------------------------ version 3


def _wrapped(codecs: Any) -> Iterator[Any]:
    """Yield codecs with bounded ones in the place of those that expand."""
    index = 0  # bytes of an element that the index of a shard may take besides
    for codec in codecs:
        said = codec.to_dict()
        name = (said if isinstance(said, str) else said["name"]).removeprefix("numcodecs.")
        if name == "sharding_indexed":
            index = 16
            inner = {part: tuple(_wrapped(getattr(codec, part))) for part in ("codecs", "index_codecs")}
            yield dataclasses.replace(codec, **inner)
        elif name == "vlen-utf8":
            yield _texts()
        else:
            yield _stream()(codec, name, index) if name in _DECODERS else codec


@cache
def _texts() -> Any:
    """Return the codec of texts, of which no chunk holds more than its array declares."""
    import zarr  # noqa: PLC0415  see above

    class VLenUTF8Codec(zarr.codecs.VLenUTF8Codec):  # type: ignore[misc]  # zarr asks for this name
        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            _check_count(chunk_bytes.to_bytes()[:4], math.prod(chunk_spec.shape))
            return await super()._decode_single(chunk_bytes, chunk_spec)

    return VLenUTF8Codec()


@cache
def _stream() -> Any:
    """Return the class of a codec that holds another one to the bytes that a chunk may have."""
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
            decode = _limited(self._name, own, own.decode, size + _ROOM)
            import asyncio  # noqa: PLC0415  20 ms that only a reader of such a codec should pay

            found = await asyncio.to_thread(decode, chunk_bytes.to_bytes())
            return chunk_spec.prototype.buffer.from_bytes(bytes(found))

    return Stream


def _instance(name: str) -> Any:
    """Return the decoder of a codec that needs no configuration to decode."""
    from zarr.registry import get_numcodec  # noqa: PLC0415  see above

    return get_numcodec({"id": name})


# ------------------------------------------------------------------------------------------------ limits


def _limited(name: str, codec: Any, decode: Decode, most: int) -> Decode:
    """Return a decoder that raises `FormatError` where there are more than `most` bytes, before it takes them."""

    def within(stored: Any, out: Any = None) -> Any:
        del out
        found = _DECODERS[name](memoryview(stored).cast("B"), most, codec, decode)
        _check_size(name, memoryview(found).nbytes, most)
        return found

    return within


def _counting(decode: Decode, count: int) -> Decode:
    def within(stored: Any, out: Any = None) -> Any:
        del out
        _check_count(bytes(memoryview(stored).cast("B")[:4]), count)
        return decode(stored)

    return within


def _check_count(head: bytes, count: int) -> None:
    """Raise `FormatError` where a chunk of texts says that it holds more of them than its array declares."""
    if int.from_bytes(head, "little") > count:
        msg = f"a chunk says that it holds {int.from_bytes(head, 'little'):,} texts; {count:,} are declared"
        raise FormatError(msg)


def _check_size(name: str, size: int, most: int) -> None:
    if size > most:
        msg = f"a chunk in {name} holds more than the {most:,} bytes that are declared of it"
        raise FormatError(msg)


def _zlib(stored: memoryview, most: int, codec: Any, decode: Decode) -> bytes:
    del decode
    gzip = codec.codec_id == "gzip"
    rest, parts, left = bytes(stored), [], most
    while True:
        stream = zlib.decompressobj(31 if gzip else 15)
        parts.append(stream.decompress(rest, left + 1))
        left -= len(parts[-1])
        _check_size(codec.codec_id, most - left, most)
        if not stream.eof:
            msg = f"{codec.codec_id}: the chunk ends too early"
            raise FormatError(msg)
        rest = stream.unused_data.lstrip(b"\0") if gzip else b""  # of gzip several members may follow each other
        if not rest:
            return b"".join(parts)


def _bz2(stored: memoryview, most: int, codec: Any, decode: Decode) -> bytes:
    del codec, decode
    return _streams("bz2", stored, most, bz2.BZ2Decompressor)


def _lzma(stored: memoryview, most: int, codec: Any, decode: Decode) -> bytes:
    del decode
    form = codec.format
    if form == lzma.FORMAT_RAW:
        largest = max((one.get("dict_size", 0) for one in codec.filters or ()), default=0)
        if largest > _LZMA_BYTES:
            msg = f"lzma with a dictionary of {largest:,} bytes; at most {_LZMA_BYTES:,} are read"
            raise FormatError(msg)
    limit = None if form == lzma.FORMAT_RAW else _LZMA_BYTES
    return _streams("lzma", stored, most, lambda: lzma.LZMADecompressor(form, limit, codec.filters))


def _streams(name: str, stored: memoryview, most: int, opened: Callable[[], Any]) -> bytes:
    """Return what streams hold that lie one behind the other."""
    rest, parts, left = bytes(stored), [], most
    while True:
        stream = opened()
        try:
            parts.append(stream.decompress(rest, left + 1))
        except (OSError, lzma.LZMAError):
            if parts:  # what is behind the last stream is none
                return b"".join(parts)
            raise
        left -= len(parts[-1])
        _check_size(name, most - left, most)
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
    import pyarrow as pa  # noqa: PLC0415  it starts a thread, which no server may have that forks children

    with pa.input_stream(pa.py_buffer(stored), compression="zstd") as stream:  # a frame need not tell its size
        found = stream.read(most + 1)
    _check_size("zstd", len(found), most)
    return found


_DECODERS: dict[str, Callable[[memoryview, int, Any, Decode], Any]] = {
    "blosc": _blosc, "bz2": _bz2, "gzip": _zlib, "lz4": _lz4, "lzma": _lzma, "zlib": _zlib, "zstd": _zstd,
}  # fmt: skip
