"""Digests of values, arrays and files: xxh3 over canonical bytes, the same on every machine.

Values without a canonical form (NaN in JSON, sets, objects) are refused: a random key would be
worse than an error.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from datacheck.runtime.aligned import empty
from datacheck.runtime.beneath import File, check_holes, open_regular

if TYPE_CHECKING:
    from typing_extensions import Buffer

# The size of a core's private cache: smaller pieces read slower, larger ones digest slower.
READ_BYTES = 1 << 20
_SHOWN = 100  # characters of a text that is too long


def canonical_json(value: object) -> bytes:
    """Return the one JSON text of `value`: keys sorted, no spaces, UTF-8, no NaN.

    Args:
        value: None, bool, int, finite float, str, list, tuple or mapping with str keys.

    Raises:
        TypeError: `value` has no canonical form (a set, an array, an object, a non-text key).
        ValueError: a float is NaN or infinite.

    Notes:
        -0.0 becomes 0.0. Integral floats stay floats (1.0 is not 1).
    """
    return json.dumps(
        _canonical(value),
        sort_keys=True,
        ensure_ascii=False,
        separators=(",", ":"),
        allow_nan=False,
    ).encode("utf-8", "surrogatepass")


def _canonical(value: object) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            msg = f"{value} has no canonical JSON form"
            raise ValueError(msg)
        return float(value) + 0.0  # turns -0.0 into 0.0
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            msg = "canonical JSON needs text keys"
            raise TypeError(msg)
        return {key: _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    msg = f"{type(value).__name__} has no canonical JSON form"
    raise TypeError(msg)


Digester = xxhash.xxh3_128  # `digest_bytes` for data in pieces: update, hexdigest


def digest_bytes(data: Buffer) -> str:
    """Return xxh3_128 of `data` as 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(data)


def shortened(text: str, most: int) -> str:
    """Return a text unchanged, or shortened if it takes more than `most` bytes as JSON.

    A shortened text is its beginning, its length and its digest.

    Notes:
        Different texts stay different, so shortened keys do not collide.
    """
    if len(text) <= most // 6 - 1:  # a character takes at most six bytes as JSON
        return text
    if (
        len(text) <= most
        and len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) <= most
    ):
        return text
    return (
        f"{text[:_SHOWN]}… ({len(text):,} characters, "
        f"{digest_bytes(text.encode('utf-8', 'surrogatepass'))})"
    )


def digest_raw(data: Buffer) -> bytes:
    """Return xxh3_128 of `data` as 16 bytes, most significant first.

    Its hex digits are those of `digest_bytes`.
    """
    return xxhash.xxh3_128_digest(data)


def digest_parts(parts: Iterable[Buffer]) -> str:
    """Return xxh3_128 of concatenated pieces as 32 hex digits."""
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def digest_value(value: object) -> str:
    """Return xxh3_128 of the canonical JSON of `value` as 32 hex digits."""
    return xxhash.xxh3_128_hexdigest(canonical_json(value))


def digest64(data: Buffer) -> int:
    """Return xxh3_64 of `data` as an unsigned integer (one chunk of a cache)."""
    return xxhash.xxh3_64_intdigest(data)


def digests64(parts: Iterable[Buffer]) -> np.ndarray[Any, Any]:
    """Return the `digest64` of each piece, such as each row of a C-contiguous array.

    Shapes:
        returns: uint64 (pieces)
    """
    joined = b"".join(map(xxhash.xxh3_64_digest, parts))  # Python integers would take longer
    return np.frombuffer(joined, ">u8").astype(np.uint64)


def digest_array(array: np.ndarray[Any, Any]) -> str:
    """Return xxh3_128 of an array's values: dtype, shape, then little-endian C-order bytes."""
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    header = canonical_json([plain.dtype.str, list(array.shape)])
    return xxhash.xxh3_128_hexdigest(header + b"\0" + plain.tobytes())


def digest_sample(fields: Iterable[tuple[str, np.ndarray[Any, Any]]]) -> int:
    """Return xxh3_64 over a sample's fields in name order, each framed by name, dtype and shape.

    Args:
        fields: (name, array) pairs in name order; arrays C-contiguous, little-endian, plain dtypes.
    """
    hasher = xxhash.xxh3_64()
    for name, array in fields:
        hasher.update(_frame(name, array.dtype, array.shape))
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.intdigest()


def _frame(name: str, dtype: np.dtype[Any], shape: Sequence[int]) -> bytes:
    return f"{name}\0{dtype.str}\0{','.join(map(str, shape))}\0".encode()


def digest_rows(fields: Sequence[tuple[str, np.ndarray[Any, Any]]]) -> np.ndarray[Any, Any]:
    """Return the `digest_sample` of each of many samples with the same fields, dtypes and shapes.

    For small samples it takes a fifth of the time of `digest_sample`.

    Shapes:
        returns: uint64 (samples)

    Args:
        fields: (name, array) pairs in name order; row i of each array belongs to sample i.
    """
    count = len(fields[0][1])
    parts = []
    for name, array in fields:
        frame = _frame(name, array.dtype, array.shape[1:])
        parts.append(np.broadcast_to(np.frombuffer(frame, np.uint8), (count, len(frame))))
        parts.append(
            np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(count, array[0].nbytes)
        )
    # `out` fixes C order; otherwise the memory order of a part decides
    joined = np.empty((count, sum(part.shape[1] for part in parts)), np.uint8)
    np.concatenate(parts, axis=1, out=joined)
    return digests64(joined)


def digest_head(path: str | os.PathLike[str], size: int) -> xxhash.xxh3_128:
    """Return a `Digester` of the first `size` bytes of a file, or of all of a shorter file.

    The caller may update it with more bytes.
    """
    hasher = Digester()
    # one buffer for all reads: allocating fresh memory takes longer than the digest
    view = empty([min(size, READ_BYTES)], np.uint8).data
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while size and (count := file.readinto(view[:size])):
            hasher.update(view[:count])
            size -= count
    return hasher


def digest_file(
    path: str | os.PathLike[str] | int, beat: Callable[[], object] | None = None
) -> str:
    """Return xxh3_128 of a file's bytes as 32 hex digits, reading it once in pieces.

    Args:
        path: a regular file, or its descriptor, which is closed.
        beat: called after each piece.

    Raises:
        OSError: the file cannot be read, or has too many holes (`check_holes`).
    """
    hasher = xxhash.xxh3_128()
    view = empty([READ_BYTES], np.uint8).data
    if isinstance(path, File):
        path = path.descriptor()
    with os.fdopen(
        path if isinstance(path, int) else open_regular(path), "rb", buffering=0
    ) as file:
        check_holes(file.fileno())
        while size := file.readinto(view):
            hasher.update(view[:size])
            if beat is not None:
                beat()
    return hasher.hexdigest()
