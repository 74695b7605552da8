"""WAV sound: "samples", [N] for one channel or [N, channels], and "rate" in Hz.

Own reader: PCM of 8, 16, 24 and 32 bits and IEEE floats of 32 and 64 bits, also as
WAVE_FORMAT_EXTENSIBLE. The samples keep their type, except that 24 bits become int32 at its full
scale (256 times the stored number), as in SciPy and soundfile. 8 bits are uint8 around 128, as
stored. Chunks after the samples are ignored; other bytes there are refused, as they are samples
that the size of the data chunk omits.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import Values, check_bytes
from datacheck.model.sample import Array
from datacheck.runtime.beneath import AnyPath

_PCM = 1
_FLOAT = 3
_EXTENSIBLE = 0xFFFE
_DTYPES = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "<i4",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}
_CODECS = {
    2: "Microsoft ADPCM",
    6: "A-law",
    7: "mu-law",
    0x11: "IMA ADPCM",
    0x31: "GSM 6.10",
    0x50: "MPEG",
    0x55: "MP3",
}
# Follows the codec in the sub-format of an extensible header.
_GUID = b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
_UNSUPPORTED = {
    b"RIFX": "big-endian numbers",
    b"RF64": "sizes of 64 bits",
    b"BW64": "sizes of 64 bits",
}


class _WavFormat(NamedTuple):
    codec: int
    channels: int
    rate: int
    bits: int


def _parse(data: bytes, hint: Hint) -> Values:
    del hint
    check_bytes(len(data), "the file")
    if data[:4] in _UNSUPPORTED:
        msg = (
            f"a WAV file of kind {data[:4].decode()} ({_UNSUPPORTED[data[:4]]}); RIFF is read: "
            f"convert it"
        )
        raise FormatError(msg)
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        what = (
            f"a RIFF file of kind {data[8:12]!r}"
            if data[:4] == b"RIFF"
            else f"it starts with {data[:12]!r}"
        )
        msg = f"not a WAV file: {what}"
        raise FormatError(msg)
    sound, offset = None, 12
    while offset + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, offset)
        offset += 8
        if name == b"data":
            return _values(data, offset, size, sound)
        if size > len(data) - offset:
            msg = (
                f"the chunk {name!r} at byte {offset - 8:,} says {size:,} bytes, {len(data) - offset:,} "
                f"are left: " + _CUT
            )
            raise FormatError(msg)
        if name == b"fmt ":
            sound = _format(data[offset : offset + size])
        offset += size + size % 2  # a chunk of an odd size has a byte of padding
    msg = f"no data chunk in {len(data):,} bytes: " + _CUT
    raise FormatError(msg)


# From here on: sizes that programs write that do not know the length beforehand.
_UNKNOWN = 0x7FFF0000
_CUT = "the file is cut short, or damaged"
_LEAST_REST = 64  # fewer bytes behind the samples are not examined
_CHUNK = re.compile(rb"[ -~]{4}")


def _format(chunk: bytes) -> _WavFormat:
    """Return the contents of the format chunk.

    Raises:
        FormatError: it is too short, of a codec that is not read, or contradicts itself.
    """
    if len(chunk) < 16:
        msg = f"a format chunk of {len(chunk)} bytes; 16 are the fewest"
        raise FormatError(msg)
    codec, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", chunk)
    if codec == _EXTENSIBLE and len(chunk) >= 40 and chunk[26:40] == _GUID:
        codec = int.from_bytes(chunk[24:26], "little")
    if codec not in {_PCM, _FLOAT}:
        name = _CODECS.get(codec, "an unknown codec")
        msg = f"sound encoded with {name} (number {codec:#06x}); PCM and floats are read: decode it"
        raise FormatError(msg)
    if (codec, bits) not in _DTYPES:
        kind = "PCM" if codec == _PCM else "floats"
        known = [str(size) for known, size in _DTYPES if known == codec]
        msg = f"{kind} of {bits} bits; {', '.join(known)} are read"
        raise FormatError(msg)
    if not channels or not rate or frame != channels * bits // 8:
        msg = (
            f"the format chunk contradicts itself: {channels} channels of {bits} bits at {rate:,} "
            f"Hz in frames of "
            f"{frame} bytes"
        )
        raise FormatError(msg)
    return _WavFormat(codec, channels, rate, bits)


def _values(data: bytes, offset: int, size: int, sound: _WavFormat | None) -> Values:
    """Return the values of a file.

    Args:
        data: the file.
        offset: first byte of the samples.
        size: declared size of the samples, in bytes.
        sound: the format chunk, None if there is none before the samples.
    """
    available = len(data) - offset
    if sound is None:
        msg = "no format chunk before the data chunk: nothing says what the samples are"
        raise FormatError(msg)
    if size == 0:
        then = (
            f"{available:,} follow: its writer did not finish the file"
            if available
            else "no sample follows the header"
        )
        msg = f"the data chunk says 0 bytes, {then}"
        raise FormatError(msg)
    if size > available:
        why = (
            "a program wrote it to a pipe, or was ended: convert it"
            if size >= _UNKNOWN
            else "the file is cut short"
        )
        msg = f"the data chunk says {size:,} bytes, {available:,} are left: {why}"
        raise FormatError(msg)
    frame = sound.channels * sound.bits // 8
    if size % frame:
        msg = f"{size:,} bytes of samples are no whole number of frames of {frame} bytes"
        raise FormatError(msg)
    _check_rest(data, offset + size)
    samples = _numbers(data, offset, size, sound)
    samples = samples if sound.channels == 1 else samples.reshape(-1, sound.channels)
    return Values({"samples": samples, "rate": np.asarray(sound.rate, dtype=np.int64)})


def _check_rest(data: bytes, stop: int) -> None:
    """Refuse bytes behind the data chunk that are no chunk, no ID3 tag and no padding.

    Some writers omit the byte of padding of an odd chunk.
    """
    rest = len(data) - stop
    if rest < _LEAST_REST or data.count(b"\0", stop) == rest:
        return
    for place in (stop, stop + 1):
        name, size = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        is_chunk = _CHUNK.fullmatch(name) is not None and size <= len(data) - place - 8
        if is_chunk or name.startswith((b"ID3", b"TAG")):
            return
    msg = f"{rest:,} bytes that are no chunk follow the data chunk: its size is too small"
    raise FormatError(msg)


def _numbers(data: bytes, offset: int, size: int, sound: _WavFormat) -> Array:
    """Return the numbers of all channels, one frame after another."""
    dtype = np.dtype(_DTYPES[sound.codec, sound.bits])
    if sound.bits != 24:
        return np.frombuffer(data, dtype, size // dtype.itemsize, offset)
    wide = np.zeros((size // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8, size, offset).reshape(-1, 3)
    return wide.reshape(-1).view(dtype)


def _open(path: AnyPath, hint: Hint) -> Values:
    check_bytes(path.stat().st_size, "the file")
    return _parse(path.read_bytes(), hint)


WAV = Format("wav", (".wav",), _open, parse=_parse, magic=(b"RIFF",))
