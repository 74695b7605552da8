"""The codecs of Zarr arrays, limited: no chunk becomes larger than its array declares.

Only known codecs are decoded. Without a limit, libraries allocate the size that a stream declares,
or decode until it ends: 45 bytes of bzip2 hold a gigabyte. `bounded` limits the codecs of an opened
array: in version 2 it replaces their method ``decode``, in version 3 it wraps them in codecs of its
own. Both ways lead to `_LimitedDecoder`.
"""

from __future__ import annotations

import bz2
import dataclasses
import lzma
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from datacheck.errors import FormatError

# Not decoded: pickle (runs code), json2, msgpack2, vlen-bytes, vlen-array, categorize.
V2_CODECS = frozenset(
    {
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
        "jenkins_lookup3",
        "lz4",
        "lzma",
        "packbits",
        "quantize",
        "shuffle",
        "vlen-utf8",
        "zlib",
        "zstd",
    }
)
V3_CODECS = frozenset(
    {"blosc", "bytes", "crc32c", "gzip", "sharding_indexed", "transpose", "vlen-utf8", "zstd"}
) | {f"numcodecs.{name}" for name in V2_CODECS}
# The codecs whose output may be much larger than their input.
_EXPANDING = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"})
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
    if meta.zarr_format == 2:
        _limit_v2_codecs(meta)
        return array
    meta = dataclasses.replace(meta, codecs=_limited_v3_codecs(meta.codecs))
    return zarr.Array(zarr.AsyncArray(meta, array.store_path))


# ---------------------------------------------------------------------------------------- version 2


def _limit_v2_codecs(meta: Any) -> None:
    """Limit the codecs of a version 2 array; no other array shares these objects."""
    count = math.prod(meta.chunks)
    dtype = meta.dtype.to_native_dtype()
    codecs = list(meta.filters or ())
    most = count * dtype.itemsize
    if codecs:  # a filter may store each value as a wider type
        most = count * max(16, dtype.itemsize)
    if dtype.hasobject:
        most = _TEXT_BYTES
    if meta.compressor is not None:
        codecs.append(meta.compressor)
    for codec in codecs:
        name = codec.codec_id
        if name == "vlen-utf8":
            codec.decode = _count_checked(codec.decode, count)
        elif name in _EXPANDING:
            codec.decode = _LimitedDecoder(name, codec, codec.decode, most + _SLACK_BYTES)


def _count_checked(decode: Decode, count: int) -> Decode:
    """Return a decoder of texts that refuses chunks of more texts than `count`."""

    def decode_checked(stored: Any, out: Any = None) -> Any:
        del out
        _check_count(bytes(memoryview(stored).cast("B")[:4]), count)
        return decode(stored)

    return decode_checked


# ---------------------------------------------------------------------------------------- version 3


def _limited_v3_codecs(codecs: Any) -> tuple[Any, ...]:
    """Return codecs of zarr, those that expand replaced by limited ones."""
    limited = []
    index_bytes = 0
    for codec in codecs:
        config = codec.to_dict()
        name = config if isinstance(config, str) else config["name"]
        name = name.removeprefix("numcodecs.")
        if name == "sharding_indexed":
            # Later codecs encode the shard with its index, which has 16 bytes for each chunk.
            index_bytes = 16
            limited_codec = dataclasses.replace(
                codec,
                codecs=_limited_v3_codecs(codec.codecs),
                index_codecs=_limited_v3_codecs(codec.index_codecs),
            )
        elif name == "vlen-utf8":
            limited_codec = _text_codec()
        elif name in _EXPANDING:
            limited_codec = _limited_codec_class()(codec, name, index_bytes)
        else:
            limited_codec = codec
        limited.append(limited_codec)
    return tuple(limited)


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
def _limited_codec_class() -> Any:
    """Return the class of a codec that limits another one to the bytes that a chunk may have."""
    from zarr.abc.codec import BytesBytesCodec  # noqa: PLC0415  see above

    class LimitedCodec(BytesBytesCodec):  # type: ignore[misc]  # zarr is untyped here
        is_fixed_size = False

        def __init__(self, inner: Any, name: str, index_bytes: int) -> None:
            self._inner = inner
            self._name = name
            self._index_bytes = index_bytes

        def to_dict(self) -> Any:
            return self._inner.to_dict()

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
            return int(self._inner.compute_encoded_size(input_byte_length, chunk_spec))

        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            import asyncio  # noqa: PLC0415  20 ms that only a reader of such a codec should pay

            dtype = chunk_spec.dtype.to_native_dtype()
            most = math.prod(chunk_spec.shape) * (dtype.itemsize + self._index_bytes)
            if dtype.kind in "OT":
                most = _TEXT_BYTES
            codec = getattr(self._inner, "_codec", None) or _numcodec(self._name)
            decode = _LimitedDecoder(self._name, codec, codec.decode, most + _SLACK_BYTES)
            decoded = await asyncio.to_thread(decode, chunk_bytes.to_bytes())
            return chunk_spec.prototype.buffer.from_bytes(bytes(decoded))

    return LimitedCodec


def _numcodec(name: str) -> Any:
    """Return the decoder of a codec that needs no configuration for decoding."""
    from zarr.registry import get_numcodec  # noqa: PLC0415  see above

    return get_numcodec({"id": name})


# ------------------------------------------------------------------------------------------- limits


@dataclass(frozen=True, slots=True)
class _LimitedDecoder:
    """Decodes a chunk; raises `FormatError` before it allocates more bytes than allowed.

    Args:
        name: the name of the codec, one of `_EXPANDING`.
        codec: the codec of numcodecs, for its settings.
        decode: its own decoder, for codecs that declare the size of their output.
        most: the bytes that a chunk may have.
    """

    name: str
    codec: Any
    decode: Decode
    most: int

    def __call__(self, stored: Any, out: Any = None) -> Any:
        del out
        decoded = self._decoded(memoryview(stored).cast("B"))
        self._check_size(memoryview(decoded).nbytes)
        return decoded

    def _decoded(self, stored: memoryview) -> Any:
        match self.name:
            case "zlib" | "gzip":
                return self._inflate(stored)
            case "bz2":
                return self._streams(stored, bz2.BZ2Decompressor)
            case "lzma":
                return self._lzma(stored)
            case "zstd":
                return self._zstd(stored)
            case "blosc":
                return self._blosc(stored)
            case "lz4":
                return self._lz4(stored)
        raise AssertionError(self.name)

    def _check_size(self, size: int) -> None:
        if size > self.most:
            msg = (
                f"a chunk in {self.name} holds more than the {self.most:,} bytes that are declared "
                f"of it"
            )
            raise FormatError(msg)

    def _inflate(self, stored: memoryview) -> bytes:
        """Decode zlib, or gzip, of which a chunk may have several members."""
        is_gzip = self.name == "gzip"
        rest = bytes(stored)
        parts = []
        total = 0
        while True:
            stream = zlib.decompressobj(31 if is_gzip else 15)
            parts.append(stream.decompress(rest, self.most - total + 1))
            total += len(parts[-1])
            self._check_end(stream, total)
            rest = stream.unused_data.lstrip(b"\0") if is_gzip else b""
            if not rest:
                return b"".join(parts)

    def _lzma(self, stored: memoryview) -> bytes:
        container = self.codec.format
        filters = self.codec.filters
        if container != lzma.FORMAT_RAW:
            return self._streams(
                stored, lambda: lzma.LZMADecompressor(container, _LZMA_BYTES, filters)
            )
        # A raw stream takes no limit of memory; its filters say how much it uses.
        largest = max((entry.get("dict_size", 0) for entry in filters or ()), default=0)
        if largest > _LZMA_BYTES:
            msg = f"lzma with a dictionary of {largest:,} bytes; at most {_LZMA_BYTES:,} are read"
            raise FormatError(msg)
        return self._streams(stored, lambda: lzma.LZMADecompressor(container, None, filters))

    def _streams(self, stored: memoryview, open_stream: Callable[[], Any]) -> bytes:
        """Decode streams of bz2 or lzma that follow one another."""
        rest = bytes(stored)
        parts = []
        total = 0
        while True:
            stream = open_stream()
            try:
                parts.append(stream.decompress(rest, self.most - total + 1))
            except (OSError, lzma.LZMAError):
                if parts:  # trailing bytes after the last stream are no stream
                    return b"".join(parts)
                raise
            total += len(parts[-1])
            self._check_end(stream, total)
            rest = stream.unused_data
            if not rest:
                return b"".join(parts)

    def _check_end(self, stream: Any, total: int) -> None:
        """Raise if the chunk is too large so far, or its stream has no end."""
        self._check_size(total)
        if not stream.eof:
            msg = f"{self.name}: the chunk ends too early"
            raise FormatError(msg)

    def _zstd(self, stored: memoryview) -> Any:
        # It starts a thread, which a server that forks children must not have.
        import pyarrow as pa  # noqa: PLC0415

        # Streamed, because a frame need not declare its size.
        with pa.input_stream(pa.py_buffer(stored), compression="zstd") as stream:
            return stream.read(self.most + 1)

    def _blosc(self, stored: memoryview) -> Any:
        # The header declares the decoded size in bytes 4 to 7, the stored size in bytes 12 to 15.
        if len(stored) < 16 or struct.unpack_from("<I", stored, 12)[0] > len(stored):
            msg = "blosc: the chunk ends too early"
            raise FormatError(msg)
        self._check_size(struct.unpack_from("<I", stored, 4)[0])
        return self.decode(stored)

    def _lz4(self, stored: memoryview) -> Any:
        if len(stored) >= 4:  # numcodecs writes the decoded size in front
            self._check_size(struct.unpack_from("<I", stored)[0])
        return self.decode(stored)


def _check_count(head: bytes, count: int) -> None:
    """Raise `FormatError` if a chunk of texts declares more texts than its array does."""
    declared = int.from_bytes(head, "little")
    if declared > count:
        msg = f"a chunk says that it holds {declared:,} texts; {count:,} are declared"
        raise FormatError(msg)
