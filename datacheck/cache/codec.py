"""How the inner chunks of a field are stored: plain, or as one zstd frame each, with a checksum.

The default is plain: a plain shard is mapped and read at the speed of memory.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from datacheck.errors import CorruptionError, UsageError

Array = np.ndarray[Any, Any]

LEVELS = range(1, 23)
_LEVEL = 3  # the default of zstd
_MAGIC = 0xFD2FB528
_BLOCK_HEADER = 3
_CHECKSUM = 4
# types of blocks
_RLE = 1
_RESERVED = 3
# A frame may have _BLOCKS blocks, and one more per _BLOCK_BYTES; zstd splits by 900.
_BLOCKS = 256
_BLOCK_BYTES = 512


@dataclass(frozen=True)
class Codec:
    """The codec of a field's inner chunks.

    Args:
        name: "none" or "zstd".
        level: of zstd, 1 (fast) to 22 (small); ignored for "none".

    Notes:
        Deterministic for one version of the zstd library; other versions may give other bytes for
        the same values.
    """

    name: Literal["none", "zstd"] = "none"
    level: int = _LEVEL

    def __str__(self) -> str:
        return "none" if self.name == "none" else f"{self.name}:{self.level}"

    @classmethod
    def parse(cls, text: str) -> Codec:
        """Return the codec of "none", "zstd" or "zstd:LEVEL".

        Raises:
            UsageError: the text is none of these.
        """
        name, _, level = text.partition(":")
        if text == "none":
            return cls()
        if name == "zstd" and (
            text == name or (level.isascii() and level.isdigit() and int(level) in LEVELS)
        ):
            return cls("zstd", int(level or _LEVEL))
        msg = (
            f"compression {text!r} is not known; there is none, zstd, and zstd:{LEVELS[0]} to "
            f"zstd:{LEVELS[-1]}"
        )
        raise UsageError(msg)

    @classmethod
    def of(cls, document: Any) -> Codec | None:
        """Return the codec of `document`, or None if it is not one of ours."""
        for level in LEVELS:
            if document == cls("zstd", level).document():
                return cls("zstd", level)
        return cls() if document == [] else None

    def document(self) -> list[dict[str, Any]]:
        """Return the entries after ``bytes`` in the inner codecs of ``zarr.json``."""
        if self.name == "none":
            return []
        return [{"name": "zstd", "configuration": {"level": self.level, "checksum": True}}]

    def encode(
        self, payload: memoryview, chunk_bytes: int
    ) -> tuple[list[bytes | memoryview], Array]:
        """Return the stored bytes of whole inner chunks, and the stored size of each.

        Shapes:
            sizes: uint64 (chunks) [bytes]
        """
        count = len(payload) // max(1, chunk_bytes)
        if self.name == "none":
            return [payload], np.full(count, chunk_bytes, np.uint64)
        parts = [
            self._zstd.encode(payload[j * chunk_bytes : (j + 1) * chunk_bytes])
            for j in range(count)
        ]
        return parts, np.array([len(part) for part in parts], np.uint64)

    def decode(self, stored: memoryview, out: memoryview) -> None:
        """Fill `out` with the inner chunk that `stored` holds.

        Raises:
            CorruptionError: it is not one whole frame of exactly that many bytes, or its checksum
                does not match.

        Notes:
            Allocates nothing by the frame's own header: the header must state the size of `out`.
        """
        if self.name == "none":
            if len(stored) != len(out):
                msg = f"{len(stored):,} bytes where a chunk has {len(out):,}"
                raise CorruptionError(msg)
            out[:] = stored
            return
        # Checked here, because the library accepts several frames, and leaves the end of `out`
        # untouched if they hold less.
        if not _is_frame(stored, len(out)):
            msg = f"not one zstd frame of {len(out):,} bytes with a checksum"
            raise CorruptionError(msg)
        try:
            self._zstd.decode(stored, out)
        except (RuntimeError, ValueError) as error:
            msg = f"zstd cannot decompress it ({error})"
            raise CorruptionError(msg) from error

    def load(self) -> None:
        """Load the library now: a process forked while a thread loads it would wait for ever."""
        if self.name != "none":
            self._zstd  # noqa: B018

    @cached_property
    def _zstd(self) -> Any:
        from numcodecs.zstd import Zstd  # noqa: PLC0415  takes 0.07 s, loads every other codec

        return Zstd(level=self.level, checksum=True)


PLAIN = Codec()


def most_stored(size: int) -> int:
    """Return an upper bound for the stored bytes of a chunk of `size` bytes.

    It exceeds the size that zstd gives to incompressible bytes.
    """
    return size + (size >> 7) + 1024


def _is_frame(stored: memoryview, size: int) -> bool:
    """Return whether the bytes are exactly one zstd frame of `size` decoded bytes.

    The frame must have a checksum and no dictionary.

    Reference: RFC 8878, sections 3.1.1.1 and 3.1.1.2.
    """
    if len(stored) < 5 or struct.unpack_from("<I", stored)[0] != _MAGIC:
        return False
    descriptor = stored[4]
    # `rest`: the reserved bit and the kind of dictionary.
    single = bool(descriptor & 0x20)
    checksum = bool(descriptor & 0x04)
    rest = descriptor & 0x0B
    width = [int(single), 2, 4, 8][descriptor >> 6]
    offset = 5 + (0 if single else 1)
    if not checksum or rest or not width or len(stored) < offset + width:
        return False
    content = int.from_bytes(stored[offset : offset + width], "little") + (256 if width == 2 else 0)
    max_blocks = _BLOCKS + size // _BLOCK_BYTES
    return content == size and _end_of_blocks(
        stored, offset + width, max_blocks
    ) + _CHECKSUM == len(stored)


def _end_of_blocks(stored: memoryview, offset: int, most: int) -> int:
    """Return the end of the last block; an offset after the end if the blocks are invalid.

    More than `most` blocks are invalid too: a block may be empty and still takes time, here and in
    the library.
    """
    for _ in range(most):
        if offset + _BLOCK_HEADER > len(stored):
            break
        header = int.from_bytes(stored[offset : offset + _BLOCK_HEADER], "little")
        kind = header >> 1 & 3
        size = header >> 3
        if kind == _RESERVED:
            break
        offset += _BLOCK_HEADER + (1 if kind == _RLE else size)
        if header & 1:
            return offset
    return len(stored) + 1
