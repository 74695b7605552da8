"""The digest of a batch, and what stands for its samples whatever their order."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from datacheck.digest import digests64
from datacheck.repro.runs.tensors import (
    MASK,
    NO_VALUES,
    ODD,
    STEP,
    Digest,
    in_memory,
    is_near,
    is_simple,
    parts,
    shape_of,
)

Array = np.ndarray[Any, Any]

_WIDE = 4096  # bytes of a row; xxh3 of each takes less time then than a sum of words
_SIGNS = 512  # bytes of a row of float32 whose signs are told in pairs, too
_ROWS = 1024  # of more wide rows none is digested: it takes 0.3 us for each
_TURN = 0x165667B19E3779F9


def digest_batch(batch: Any, samples: int | None = None) -> tuple[Digest, int | None]:
    """Return the digest of a batch, and a number that stands for its samples whatever their order.

    Args:
        batch: as `parts`.
        samples: how many it has; tensors of that length along the first axis have a row for each.

    Returns:
        The digest; the sum of what stands for each sample modulo 2**64, or None where it would leave out values: those
        of a tensor or array that has no row for each sample, or lies on a device.

    Notes:
        Numbers and texts stand beside each sample of their batch, since nothing says whose they are: two sums are
        equal where the same samples came in another order only if what their batches hold besides is equal, too.
    """
    digest, rows, whole = Digest(), None, True
    besides: list[tuple[str, Any]] = []
    for place, (name, value) in enumerate(parts(batch)):
        array = None if samples is None else _in_rows(value, samples)
        if array is None:
            digest.add(name, value)
            if _has_values(value):
                whole = False
            else:
                besides.append((name, value))
            continue
        wide = array.nbytes > _WIDE * len(array)
        each = digests64(array.reshape(len(array), -1)) if wide else _sums(array)
        digest.add(f"{name} {value.dtype} {tuple(value.shape)}", each if wide else array)
        turned = each * np.uint64((_TURN * (2 * place + 1)) & MASK)
        rows = turned if rows is None else rows ^ turned
    if rows is None or not whole:
        return digest, None
    if besides:
        other = Digest()
        for name, value in besides:
            other.add(name, value)
        rows = rows ^ np.uint64(int(other.text()[-16:], 16))
    mixed = (rows ^ (rows >> np.uint64(29))) * np.uint64(ODD)
    return digest, int(mixed.sum(dtype=np.uint64))


def _in_rows(value: Any, samples: int) -> Array | None:
    """Return a tensor or array with a row for each sample; None where it has none, or lies on a device."""
    if hasattr(value, "untyped_storage"):
        if not (is_simple(value) and is_near(value)) and not (shape_of(value) and _is_plain(value)):
            return None
        try:
            array = in_memory(value.detach())
        except NO_VALUES:
            return None
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        array = np.ascontiguousarray(value)
    else:
        return None
    if not value.shape or len(array) != samples or not array.nbytes or _many(array):
        return None
    return array


def _has_values(value: Any) -> bool:
    """Tell a tensor or array that holds more than one number by itself."""
    shape = shape_of(value)
    if isinstance(value, np.ndarray):
        return bool(shape) and bool(value.nbytes)
    return hasattr(value, "untyped_storage") and 0 not in shape and (bool(shape) or not _is_plain(value))


def _is_plain(tensor: Any) -> bool:
    """Tell a tensor in main memory whose rows lie there as they are."""
    of_its_own = any(hasattr(tensor, name) for name in ("to_local", "__tensor_flatten__"))
    plain = str(tensor.layout) == "torch.strided" and not (tensor.is_nested or tensor.is_quantized or of_its_own)
    return plain and is_near(tensor)


def _many(array: Array) -> bool:
    return len(array) > _ROWS and array.nbytes > _WIDE * len(array)


def _sums(array: Array) -> Array:
    """Return a number for each row: uint64 (rows); the sum of its words, each times an odd number of its place.

    Notes:
        The highest bits of two words cancel out (2**63 times two odd numbers): signs of float64 (half a turn about an
        axis changes two of each point) and every second of float32 (few change alone in a long row).
    """
    octets = array.reshape(len(array), -1).view(np.uint8)
    width = octets.shape[1]
    weights, whole = _weights(-(-width // 8)), width // 8
    words = octets[:, : 8 * whole].view(np.uint64)
    if array.dtype.kind in "fc" and (array.itemsize > 4 or width <= _SIGNS):
        words = words ^ (words >> np.uint64(29))
    found: Array = np.einsum("ij,j->i", words, weights[:whole])  # as words @ weights, in half the time
    if width % 8:
        last = np.zeros((len(array), 8), np.uint8)
        last[:, : width % 8] = octets[:, 8 * whole :]
        found = found + last.view(np.uint64)[:, 0] * weights[whole]
    return found


@functools.cache
def _weights(count: int) -> Array:
    words = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(ODD)
    words = (words ^ (words >> np.uint64(31))) * np.uint64(STEP)
    return (words ^ (words >> np.uint64(29))) | np.uint64(1)
