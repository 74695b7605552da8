"""Random numbers of synthetic data: a generator per sample, shared distributions and curves."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from datacheck.runtime.hashing import digest_bytes

Array = np.ndarray[Any, Any]


def generator(seed: int, *path: int | str) -> np.random.Generator:
    """Return the generator for a path; its numbers do not depend on other draws.

    Args:
        seed: 0 or more.
        path: identifies what is drawn ("ho3d", "ABF10"): words and numbers.
    """
    words = [
        part if isinstance(part, int) else int(digest_bytes(part.encode())[:8], 16) for part in path
    ]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *words])))


def lognormal(rng: np.random.Generator, median: float, sigma: float, low: int, high: int) -> int:
    """Return a log-normal size around `median`, clipped to low..high."""
    return int(np.clip(round(median * float(np.exp(sigma * rng.standard_normal()))), low, high))


def curves(rng: np.random.Generator, steps: int, count: int, cycles: float = 1.5) -> Array:
    """Return smooth curves that keep moving: three sines of random phase each.

    Shapes:
        returns: float64 (steps, count), within -1..1

    Args:
        cycles: periods of the slowest sine over 100 steps; at 30 steps a second, 1.5 is a calm
            hand.
    """
    time = np.arange(steps)[:, None] / 100.0
    total = np.zeros((steps, count))
    for weight, factor in ((0.6, 1.0), (0.28, 1.7), (0.12, 2.9)):
        rate = cycles * factor * rng.uniform(0.85, 1.15, count)
        total += weight * np.sin(2 * np.pi * (rate * time + rng.uniform(size=count)))
    return total


def unit_vectors(rng: np.random.Generator, count: int) -> Array:
    """Return float64 (count, 3): directions, uniform over the sphere."""
    vectors = rng.standard_normal((count, 3)) + 1e-9
    out: Array = vectors / np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    return out


def rotation(rotvec: Array) -> Array:
    """Return the matrices of rotation vectors (Rodrigues).

    Shapes:
        rotvec: float (rows, 3) [rad]
        returns: float64 (rows, 3, 3)
    """
    angle = np.sqrt(np.einsum("ij,ij->i", rotvec, rotvec))
    axis = rotvec / np.maximum(angle, 1e-12)[:, None]
    zero = np.zeros(len(rotvec))
    cross = np.stack(
        [
            zero,
            -axis[:, 2],
            axis[:, 1],
            axis[:, 2],
            zero,
            -axis[:, 0],
            -axis[:, 1],
            axis[:, 0],
            zero,
        ],
        axis=1,
    ).reshape(-1, 3, 3)
    square = np.einsum("nij,njk->nik", cross, cross)
    sine = np.sin(angle)[:, None, None]
    cosine = np.cos(angle)[:, None, None]
    out: Array = np.eye(3) + sine * cross + (1 - cosine) * square
    return out


def quaternion_product(a: Array, b: Array) -> Array:
    """Return the Hamilton products of quaternions w, x, y, z: `b` is applied first, then `a`."""
    w1, x1, y1, z1 = np.moveaxis(a, -1, 0)
    w2, x2, y2, z2 = np.moveaxis(b, -1, 0)
    return np.stack(
        [
            w1 * w2 - x1 * x2 - y1 * y2 - z1 * z2,
            w1 * x2 + x1 * w2 + y1 * z2 - z1 * y2,
            w1 * y2 - x1 * z2 + y1 * w2 + z1 * x2,
            w1 * z2 + x1 * y2 - y1 * x2 + z1 * w2,
        ],
        axis=-1,
    )


def dumps(record: Mapping[str, Any]) -> bytes:
    """Return the pickle of a dict of arrays, byte strings, integers, None, and lists of these."""
    items = b"".join(_text(key) + _value(value) for key, value in record.items())
    return b"\x80\x02}(" + items + b"u."


def _text(text: str) -> bytes:
    data = text.encode("latin1")
    return (
        b"U" + bytes([len(data)]) if len(data) < 256 else b"T" + struct.pack("<i", len(data))
    ) + data


def _value(value: Any) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_value, value)) + b"e"
    return _array(value)


def _integer(value: int) -> bytes:
    return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)


def _tuple(values: tuple[int, ...]) -> bytes:
    parts = b"".join(map(_integer, values))
    return (
        b"(" + parts + b"t"
        if not 1 <= len(values) <= 3
        else parts + (b"\x85", b"\x86", b"\x87")[len(values) - 1]
    )


def _array(array: np.ndarray[Any, Any]) -> bytes:
    kind = array.dtype.str
    order = _text("|" if kind[0] == "|" else "<")
    dtype = b"cnumpy\ndtype\n" + _text(kind[1:]) + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + order + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    data = np.ascontiguousarray(array).tobytes()
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return (
        made
        + b"(K\x01"
        + _tuple(array.shape)
        + dtype
        + b"\x89T"
        + struct.pack("<i", len(data))
        + data
        + b"tb"
    )
