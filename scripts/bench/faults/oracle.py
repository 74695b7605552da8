"""The cache that flips.py damages, and what each of its bytes concerns, reckoned with json and numpy alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datacheck.cache import layout
from datacheck.pipeline import build
from datacheck.schema.model import Schema

SAMPLES = 14
SCHEMA = Schema.model_validate(
    {
        "datacheck": 1,
        "name": "flips",
        "samples": {"files": "*.npz"},
        "fields": {
            "cloud": {"role": "points", "shape": ["P", 3], "dtype": "float32", "unit": "m"},
            "labels": {"role": "class", "shape": ["P"], "dtype": "int16"},
            "depth": {"role": "value", "shape": [128, 130], "dtype": "float32"},
            "hand/joints": {"role": "joints", "shape": [21, 3], "dtype": "float64", "unit": "m"},
            "hand/side": {"role": "value", "shape": [], "dtype": "uint8"},
            "say": {"role": "text", "optional": True},
        },
    }
)
Named = tuple[str, int | None, int, int]  # field, shard, samples [first, stop)


def make(place: Path, compress: str = "none") -> Path:
    """Build a cache of about 5 MB in four shards; one sample cannot be read."""
    rng, data = np.random.Generator(np.random.Philox(0)), place / "data"
    data.mkdir()
    for i in range(SAMPLES):
        rows = int(rng.integers(1, 7000))
        sample = {
            "cloud": rng.standard_normal((rows, 3)).astype(np.float32),
            "labels": rng.integers(0, 20, rows).astype(np.int16),
            "depth": rng.random((128, 130), dtype=np.float32) + 0.5,
            "hand/joints": rng.standard_normal((21, 3)),
            "hand/side": np.uint8(i % 2),
        }
        if i % 3:
            sample["say"] = np.array(f"sample {i} says {'x' * int(rng.integers(1, 200))}")
        np.savez(data / f"{i:03d}.npz", **sample)
    (data / "009.npz").write_bytes(b"PK\x03\x04 no archive")
    usual, layout.SHARD_BYTES = layout.SHARD_BYTES, 1 << 18
    try:
        (built,) = build(SCHEMA, data, place / "out", workers=1, compress=compress)
    finally:
        layout.SHARD_BYTES = usual
    for path in (built.path, *built.path.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    return built.path


@dataclass
class Stored:
    """One array as its zarr.json says."""

    shard: int
    chunk: int
    rows: int
    row_bytes: int

    @property
    def chunks(self) -> int:
        """Inner chunks of the array."""
        return -(-self.rows // self.chunk)


class Oracle:
    """What damage of each byte concerns, reckoned from the intact cache."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.files = {
            p.relative_to(cache).as_posix(): p.stat().st_size
            for p in cache.rglob("*")
            if p.is_file()
        }
        self.files.pop("build.json")
        self.root = json.loads((cache / "zarr.json").read_text())["attributes"]["datacheck"]
        self.samples, self.k = self.root["samples"], self.root["shard_samples"]
        self.arrays: dict[str, Stored] = {}
        self.dims: dict[str, str | None] = {}
        for name in (n.removesuffix("/zarr.json") for n in self.files if n.endswith("/zarr.json")):
            said = json.loads((cache / name / "zarr.json").read_text())
            if said["node_type"] == "array":
                item = (
                    int(np.prod(said["shape"][1:], dtype=int))
                    * np.dtype(said["data_type"]).itemsize
                )
                shard = said["chunk_grid"]["configuration"]["chunk_shape"][0]
                chunk = said["codecs"][0]["configuration"]["chunk_shape"][0]
                self.arrays[name] = Stored(shard, chunk, said["shape"][0], item)
                if name.startswith("fields/"):
                    self.dims[name.removeprefix("fields/")] = said["attributes"]["datacheck"]["dim"]

    def fields(self, file: str) -> str:
        """Return the fields that a file is about."""
        family, _, rest = file.removeprefix("digests/").rpartition("/")[0].partition("/")
        if family == "rows":
            return ", ".join(
                sorted(n for n, d in self.dims.items() if d and (rest + "/").startswith(d + "/"))
            )
        if family not in {"fields", "present"}:
            return ""
        return ", ".join(sorted(n for n in self.dims if rest and (n + "/").startswith(rest + "/")))

    def whole(self, file: str) -> Named:
        """Return what damage of a whole file concerns."""
        if file == "manifest.json":
            return "", None, 0, 0
        g = self.shard(file)
        if g is None or not file.startswith("fields/"):
            return self.fields(file), None, 0, self.samples
        return self.fields(file), g, g * self.k, min(self.samples, (g + 1) * self.k)

    def byte(self, file: str, at: int) -> Named:
        """Return what damage of one byte concerns."""
        g, path = self.shard(file), file.rpartition("/")[0]
        if g is None:
            return self.whole(file)
        of = path.removeprefix("digests/")
        if of != path:
            if at >= self.arrays[of].chunks * 8:
                return self.whole(file)
            chunk = at // 8
        else:
            array = self.arrays[path]
            held = [
                j
                for j, (start, size) in enumerate(self.index(file, array))
                if start <= at < start + size
            ]
            if not held:
                return self.whole(file)
            chunk = g * (array.shard // array.chunk) + held[0]
        return self.chunk(of, chunk)

    def index(self, file: str, array: Stored) -> list[tuple[int, int]]:
        """Return offset and size of the inner chunks that a shard holds."""
        share = array.shard // array.chunk
        raw = (
            np.fromfile(self.cache / file, "u1")[-share * 16 - 4 : -4].view("<u8").reshape(share, 2)
        )
        return [(start, size) for start, size in raw.tolist() if start != 2**64 - 1]

    def chunk(self, path: str, number: int) -> Named:
        """Return what damage of an inner chunk concerns."""
        array, name = self.arrays[path], self.fields(f"{path}/c")
        first, stop = number * array.chunk, min(array.rows, (number + 1) * array.chunk)
        g = first // array.shard if path.startswith("fields/") else None
        low, high = self.owners(path, first, stop)
        if high <= low:
            low, high = (
                (0, self.samples)
                if g is None
                else (g * self.k, min(self.samples, (g + 1) * self.k))
            )
        if g is None and low // self.k == (high - 1) // self.k:
            g = low // self.k
        return name, g, low, high

    def owners(self, path: str, first: int, stop: int) -> tuple[int, int]:
        """Return the samples that have rows in [first, stop) of an array."""
        dim = {"samples/key": "samples.key", "samples/origin": "samples.origin"}.get(path)
        dim = self.dims.get(path.removeprefix("fields/")) if path.startswith("fields/") else dim
        if dim is None:
            return first, min(self.samples, stop)
        start, length = (
            np.fromfile(self.cache / f"rows/{dim}/{what}/c.0", "<i8", count=self.samples)
            for what in ("start", "length")
        )
        hit = [
            i
            for i in range(self.samples)
            if length[i] and start[i] < stop and start[i] + length[i] > first
        ]
        return (hit[0], hit[-1] + 1) if hit else (0, 0)

    @staticmethod
    def shard(file: str) -> int | None:
        """Return the number of a shard file."""
        name = file.rpartition("/")[2]
        return int(name.split(".")[1]) if name.startswith("c.") else None
