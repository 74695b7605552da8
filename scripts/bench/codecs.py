"""What compression is worth: size and processor time of real files, cut into the inner chunks of a cache.

    python scripts/bench/codecs.py NAME=FILE...    .npy, .hdf5 (NAME=FILE:dataset), .bin (float32),
    else bytes

Blosc with a byte shuffle stands beside it for comparison; a cache never uses it
(docs/decisions/0006).
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import h5py
import numcodecs
import numpy as np
from numcodecs.blosc import Blosc

from datacheck.cache.codec import Codec
from datacheck.cache.layout import chunk_rows

ROUNDS = 5
CODECS = ["zstd:1", "zstd:3", "zstd:9", "blosc"]


def load(where: str) -> np.ndarray[Any, Any]:
    file, _, dataset = where.partition(":")
    if file.endswith(".npy"):
        return np.load(file)
    if file.endswith(".hdf5"):
        with h5py.File(file) as opened:
            return np.asarray(opened[dataset])
    return np.fromfile(file, np.float32 if file.endswith(".bin") else np.uint8)


def seconds(work: Callable[[], Any], size: int) -> float:
    """Processor seconds of one call, the median of rounds that are long enough to tell."""
    times = max(1, (16 << 20) // size)
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - start) / times)
    return statistics.median(found)


def measured(name: str, raw: memoryview, chunk: int, itemsize: int) -> tuple[int, float, float]:
    """Return the bytes stored, seconds to encode, seconds to decode."""
    if name == "blosc":
        codec = Blosc("zstd", 3, Blosc.SHUFFLE)
        numcodecs.blosc.set_nthreads(1)
        pieces = [raw[at : at + chunk] for at in range(0, len(raw), chunk)]
        chunks = [np.frombuffer(piece, f"V{itemsize}") for piece in pieces]
        parts = [codec.encode(some) for some in chunks]
        out = np.empty(chunk, np.uint8)
        back = seconds(lambda: [codec.decode(part, out) for part in parts], len(raw))
        return (
            sum(map(len, parts)),
            seconds(lambda: [codec.encode(some) for some in chunks], len(raw)),
            back,
        )
    ours = Codec.parse(name)
    parts, sizes = ours.encode(raw, chunk)
    stored = [memoryview(part) for part in parts]
    out = memoryview(bytearray(chunk))
    encode = seconds(lambda: ours.encode(raw, chunk), len(raw))
    return (
        int(sizes.sum()),
        encode,
        seconds(lambda: [ours.decode(part, out) for part in stored], len(raw)),
    )


def main(files: list[str]) -> None:
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}"
    print(
        f"{machine}, numcodecs {numcodecs.__version__}, median of {ROUNDS} rounds of processor time"
    )
    print(f"{'':24}{'dtype':9}{'MB':>6}  " + "".join(f"{name:>22}" for name in CODECS))
    print(
        f"{'':24}{'':9}{'':6}  "
        + f"{'size   write   read':>22}" * len(CODECS)
        + "    [of plain, MB/s, MB/s]"
    )
    for name, where in (file.split("=", 1) for file in files):
        values = load(where)
        row = values.itemsize * int(np.prod(values.shape[1:], dtype=int))
        chunk = chunk_rows(row) * row
        raw = memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        raw = raw[: len(raw) // chunk * chunk] or raw
        cells = []
        for codec in CODECS:
            size, write, read = measured(codec, raw, min(chunk, len(raw)), values.itemsize)
            cells.append(
                f"{size / len(raw):8.2f}{len(raw) / write / 1e6:7.0f}{len(raw) / read / 1e6:7.0f}"
            )
        print(f"{name:24}{values.dtype.name:9}{len(raw) / 1e6:6.1f}  " + "".join(cells))


if __name__ == "__main__":
    main(sys.argv[1:] or sys.exit(__doc__))
