"""The least that a scan could take: the bare passes that its rules cannot do without, each timed alone.

    python scripts/bench/floor.py [--rounds 7]

clouds  a scene of 155,000 points of 12 float32 columns: what a point takes [ns], and 48 bytes over
that [MB/s] lines   1 MB of JSON lines of each kind of scan.py, again and again: MB/s of processor
time

Passes are plain NumPy, pyarrow, orjson and xxhash calls over data in the page cache, and
datacheck's own cut of lines; one after the other they are what a scan could do if its rules, its
tables and Python itself took no time. Medians over the rounds.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pj
import scan
import xxhash

from datacheck.formats import jsonl
from datacheck.sources.fast_jsonl import chat_strings, text_strings

Array = np.ndarray
POINTS, COLUMNS = 155_000, 12
STRIP = 1 << 14


def timed(call: Callable[[], object], rounds: int) -> float:
    """Return the median seconds of processor time of a call."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return statistics.median(found)


# ------------------------------------------------------------------------------------------- clouds


def turned(path: Path) -> Array:
    """Read a table, digest it, and lay its columns one behind the other, a piece at a time."""
    planes, digester = np.empty((COLUMNS, POINTS), np.float32), xxhash.xxh3_128()
    piece = np.empty(((1 << 20) // (4 * COLUMNS), COLUMNS), np.float32)
    with path.open("rb", buffering=0) as file:
        for start in range(0, POINTS, len(piece)):
            rows = piece[: POINTS - start]
            file.readinto(memoryview(rows).cast("B"))
            digester.update(rows.data)
            planes[:, start : start + len(rows)] = rows.T
    return planes


def point_keys(xyz: Array) -> Array:
    """One number of 64 bits for each point."""
    keys = np.zeros(xyz.shape[1], np.uint64)
    for start in range(0, len(keys), STRIP):
        part = keys[start : start + STRIP]
        for axis, odd in zip(
            xyz, (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93), strict=True
        ):
            part += axis[start : start + STRIP].view(np.uint32) * np.uint64(odd)
        part ^= part >> np.uint64(29)
    return keys


def voxel_keys(xyz: Array) -> Array:
    """One number for each voxel of 2 cm."""
    low = xyz.min(axis=1).astype(np.float64)
    sizes = ((xyz.max(axis=1) - low) / 0.02).astype(np.int64) + 1
    keys = np.zeros(xyz.shape[1], np.int32)
    for start in range(0, len(keys), STRIP):
        part = keys[start : start + STRIP]
        for axis, least, size in zip(xyz, low, sizes, strict=True):
            part *= np.int32(size)
            part += ((axis[start : start + STRIP] - least) / 0.02).astype(np.int32)
    return keys


def same(keys: Array, bits: int = 19) -> int:
    """Tell equal keys by a table of slots: write, read back, compare."""
    own, table = np.arange(len(keys), dtype=np.int32), np.empty(1 << bits, np.int32)
    slots = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(64 - bits)).astype(
        np.intp
    )
    table[slots] = own
    return int(np.count_nonzero(table.take(slots) != own))


def labels(pair: Array) -> Array:
    """Count points by class and instance."""
    whole = pair.astype(np.int32)
    return np.bincount(whole[0] * 64 + whole[1], minlength=41 * 64)


def clouds(rounds: int) -> None:
    """Print the passes over a scene."""
    rng = np.random.Generator(np.random.Philox(1))
    table = rng.uniform(0, 1, (POINTS, COLUMNS)).astype(np.float32)
    table[:, :3] *= [8, 6, 3]
    table[:, 9], table[:, 10], table[:, 11] = (
        rng.integers(0, 900, POINTS),
        rng.integers(0, 41, POINTS),
        rng.integers(0, 60, POINTS),
    )
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "scene.bin")
        path.write_bytes(table.tobytes())
        planes = turned(path)
        exact, cubes = point_keys(planes[:3]), voxel_keys(planes[:3])
        steps: dict[str, Callable[[], object]] = {
            "read, digest, one transposed copy": lambda: turned(path),
            "smallest and largest of each column": lambda: (planes.min(axis=1), planes.max(axis=1)),
            "sums of positions and colours": lambda: planes[:6].sum(axis=1, dtype=np.float64),
            "lengths of normals": lambda: np.sqrt((planes[6:9] ** 2).sum(axis=0)).min(),
            "a key of each point": lambda: point_keys(planes[:3]),
            "equal points": lambda: same(exact),
            "a key of each voxel": lambda: voxel_keys(planes[:3]),
            "points of one voxel": lambda: same(cubes),
            "classes and instances, counted": lambda: labels(planes[10:12]),
            "segments, counted": lambda: np.bincount(planes[9].astype(np.int32)),
        }
        table_of(steps, rounds, POINTS * COLUMNS * 4, POINTS)


# -------------------------------------------------------------------------------------------- lines


def lines(what: str, rounds: int) -> None:
    """Print the passes over lines of one kind."""
    name, make = scan.LINES[what]
    chat = name == "sft"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x", "lines.jsonl")
        count = scan.write_lines(path, make, 1e6)
        data, pieces = path.read_bytes(), list(jsonl.pieces(path))
    message = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    schema = pa.schema([("conversations", message) if chat else ("text", pa.string())])
    how = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    whole = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)

    def arrow() -> pa.Table:
        found = pj.read_json(pa.BufferReader(data), read_options=whole, parse_options=how)
        found.validate(full=True)
        return found

    def cut() -> bool:
        if chat:
            chats = [chat_strings(piece.data, piece.count, "conversations") for piece in pieces]
            return all(found is not None and len(found[2].array()) for found in chats)
        texts = [text_strings(piece.data, piece.count, ["text"]) for piece in pieces]
        return all(found is not None and len(found["text"].array()) for found in texts)

    assert cut()
    column = arrow()[0].chunk(0)
    texts = column.values.field(1) if chat else column
    octets = np.frombuffer(texts.buffers()[2], np.uint8)
    places = np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1].tolist()
    joined, parts = octets.tobytes(), data.splitlines()

    def counted() -> tuple[object, ...]:
        return (
            bytes(bytearray(data)),
            np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")),
            xxhash.xxh3_128(data),
        )

    def looked_at() -> tuple[object, ...]:
        return octets <= ord(" "), octets < ord(" "), (octets[2:] == 0x80) & (octets[1:-1] == 0x80)

    steps: dict[str, Callable[[], object]] = {
        "copy, count lines, digest the file": counted,
        "cut at quotes (NumPy), UTF-8": cut,
        "  or parse into columns (Arrow)": arrow,
        "  or into objects (orjson)": lambda: [orjson.loads(part) for part in parts],
        "white space, control characters": looked_at,
        "a digest of each text": lambda: [
            xxhash.xxh3_64_intdigest(joined[a:b]) for a, b in pairwise(places)
        ],
    }
    print(f"{what}: {count:,} lines")
    table_of(steps, rounds * 5, len(data), None)


def table_of(
    steps: dict[str, Callable[[], object]], rounds: int, nbytes: int, points: int | None
) -> None:
    """Print each pass and all of them one after the other; those that begin with a blank are alternatives."""
    total = 0.0
    for name, call in steps.items():
        took = timed(call, rounds)
        total += 0 if name.startswith(" ") else took
        each = f"{took / points * 1e9:8.1f} ns a point" if points else ""
        print(f"  {name:38}{each}{nbytes / took / 1e6:10,.0f} MB/s")
    each = f"{total / points * 1e9:8.1f} ns a point" if points else ""
    print(f"  {'one after the other':38}{each}{nbytes / total / 1e6:10,.0f} MB/s")


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    print(
        f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f}), {platform.machine()}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}, pyarrow {pa.__version__}"
    )
    print(f"clouds: {POINTS:,} points")
    clouds(asked.rounds)
    for what in scan.LINES:
        lines(what, asked.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
