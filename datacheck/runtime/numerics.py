"""Digests of fixed computations, so that machines with different numerics never share a build.

The computations are those that a transform may use because they give the same bits on every CPU
(`transforms.base`). Machines with other SIMD instructions or another BLAS agree. A machine whose
NumPy rounds, casts, adds or sorts differently does not.
"""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

import datacheck
from datacheck.errors import StorageError
from datacheck.runtime.hashing import digest_bytes, digest_value

Array = np.ndarray[Any, Any]

_COUNT = 4099  # a prime, so that every vector width leaves a remainder


def numeric_environment() -> dict[str, str]:
    """Return what the bytes of a shard depend on besides its task: versions, byte order, numerics.

    Notes:
        Takes milliseconds, once per process. The same on every CPU, for every SIMD level and number
        of threads.
    """
    return {**_versions(), **_computed()}


@cache
def computation_digest() -> str:
    """Return one digest of all computations, without the versions, as 32 hex digits."""
    return digest_value(_computed())


@cache
def digest() -> str:
    """Return one digest of `numeric_environment`, as 32 hex digits."""
    return digest_value(numeric_environment())


def check_same(planned: Mapping[str, str]) -> None:
    """Raise unless this process has the numerics of the process that planned the build.

    Args:
        planned: the `numeric_environment` of that process.

    Raises:
        StorageError: they differ; the message names the host and the differences.
    """
    current = numeric_environment()
    versions = _versions()
    differs = [
        name for name in sorted({*current, *planned}) if current.get(name) != planned.get(name)
    ]
    if not differs:
        return
    details = [
        f"{n} {current.get(n)} instead of {planned.get(n)}" for n in differs if n in versions
    ]
    details += (
        [f"other results of: {', '.join(n for n in differs if n not in versions)}"]
        if not details
        else []
    )
    msg = (
        f"the worker on {socket.gethostname()} ({sys.executable}) has {', '.join(details)}. It made "
        f"nothing, and nothing "
        "was published. Give all workers and this command the same environment, then run the same "
        "command again."
    )
    raise StorageError(msg)


def _versions() -> dict[str, str]:
    return {
        "datacheck": datacheck.__version__,
        "NumPy": np.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "byte order": sys.byteorder,
    }


@cache
def _computed() -> dict[str, str]:
    integers = (
        np.arange(_COUNT, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(12345)
    ) % np.uint64(1 << 31)
    values = integers.astype(np.float64) / 97 - 1e7
    results = {
        "casts": _casts(integers, values),
        "sorts": _sorts(integers),
        "random words": _words(),
    }
    for dtype in (np.float32, np.float64):
        results |= {
            f"{name} of {np.dtype(dtype).name}": array
            for name, array in _sums(values.astype(dtype)).items()
        }
    return {
        name: digest_bytes(np.ascontiguousarray(array).view(np.uint8).data)
        for name, array in results.items()
    }


def _sums(values: Array) -> dict[str, Array]:
    rows = values[: len(values) // 3 * 3].reshape(-1, 3) * np.array([1, 1e-3, 1e3], values.dtype)
    return {
        "quotients": values[1:] / values[:-1],
        "square roots": np.sqrt(np.abs(values)),
        "sums": np.concatenate(
            [values.sum(keepdims=True), values[::2].sum(keepdims=True), rows.sum(axis=0)]
        ),
        "sums of rows": np.concatenate(
            [rows.sum(axis=1), np.add.reduceat(values, [0, 5, 700, 4000])]
        ),
        "running sums": np.cumsum(values),
        "means": np.concatenate(
            [values.mean(keepdims=True), rows.mean(axis=-2), rows.mean(axis=1)]
        ),
        "products": np.einsum("ij,kj->ki", rows[:3] / 1e7, rows / 1e7),
        "lengths": np.einsum("ij,ij->i", rows, rows),
    }


def _casts(integers: Array, values: Array) -> Array:
    special = np.array([0, -0.0, 1e-310, 65519, 65520, 1e39, np.inf, -1.5, 2.5, 1 / 3])
    inputs = np.concatenate([values, values / 1e9, special])
    # Overflow to infinity is part of what is digested. `errstate`, because Python's warning filters
    # are not thread-safe.
    with np.errstate(all="ignore"):
        parts = [
            inputs.astype(np.float16),
            inputs.astype(np.float32),
            np.rint(inputs).astype(np.float32),
        ]
    parts += [
        integers.astype(np.float32),
        values.astype(np.int32),
        np.floor(values / 0.02).astype(np.int64),
    ]
    return np.concatenate([array.view(np.uint8) for array in parts])


def _sorts(integers: Array) -> Array:
    ties = (integers % np.uint64(50)).astype(np.float32)
    return np.concatenate([np.argsort(ties, kind="stable"), np.lexsort((ties[::-1], ties))])


def _words() -> Array:
    return np.random.Philox(key=7).random_raw(64)
