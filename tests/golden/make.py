"""The golden caches: small ones that hold everything a cache can hold, and the sources that they were built from.

    python -m tests.golden.make        # writes the archives and sources that are not there; changes
    none that is

An archive is never changed: readers must read it for as long as they read its format. Where
datacheck makes other bytes of the same files on purpose (`VALUES` in datacheck/build/fingerprint.py
is one more), `ARCHIVES` gets new names, and the old archives stay: they are no longer built again,
and still read.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build.builder import Built, build_cache
from datacheck.build.job import BuildJob
from datacheck.cache import layout
from datacheck.cache.codec import Codec
from tests.build.make import job_of, schema_of

HERE = Path(__file__).parent
SOURCES = HERE / "sources"
CODECS = {"plain": Codec(), "zstd": Codec("zstd")}
# Format, then which; what is built now
ARCHIVES = {f"1-{name}": codec for name, codec in CODECS.items()}

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
]  # complex numbers of a file become two columns
ODD = "odd/~@+=,()[] -_.ä%/zarr.json"  # every character that a name may have, and two that are escaped
ARRAYS: dict[str, Any] = {
    **{f"fixed/{dtype}": {"shape": [2]} for dtype in DTYPES},
    **{f"ragged/{dtype}": {"shape": ["R"]} for dtype in DTYPES},
    "scalar": {"shape": [], "dtype": "float32"},
    "image": {"shape": [256, 256], "dtype": "uint8"},
    "points": {"role": "points", "shape": ["P", 3], "dtype": "float32", "unit": "m"},
    "labels": {"role": "class", "shape": ["P"], "dtype": "int32"},
    "near": {"shape": ["P", 2], "dtype": "float16", "optional": True},
    "weight": {"shape": [2], "dtype": "float64", "optional": True},
    "action": {"role": "action", "shape": ["T", 7], "dtype": "float32"},
    "state": {"shape": ["T", 2, 3], "dtype": "float64"},
    "maps": {"shape": ["M", 128, 130], "dtype": "float32"},
    ODD: {"shape": [3], "dtype": "int16"},
}
TEXTS: dict[str, Any] = {
    "text": {"role": "text"},
    "turns": {"role": "chat"},
    "note": {"role": "text", "optional": True},
}
BROKEN = ("a04.npz", "a05.npz", "a08.npz")  # a shard of nothing, and one sample of another


def arrays() -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield key and fields of each sample that can be read."""
    rng = np.random.Generator(np.random.Philox(1))
    for i in range(11):
        rows, steps = (0, 9, 4, 1, 0, 0, 30, 5, 0, 2, 17)[i], 1 + i % 6
        some = {
            dtype: rng.integers(0, 2 if dtype == "bool" else 100, 2 + rows).astype(dtype)
            for dtype in DTYPES
        }
        sample = {f"fixed/{dtype}": values[:2] for dtype, values in some.items()}
        sample |= {f"ragged/{dtype}": values[2:] for dtype, values in some.items()}
        sample |= {
            "scalar": np.float32(i) / 7,
            "image": ((np.add.outer(np.arange(256), np.arange(256)) // 16 + i) % 7).astype(
                np.uint8
            ),
            "points": rng.standard_normal((rows, 3)).astype(np.float32),
            "labels": rng.integers(0, 20, rows).astype(np.int32),
            "action": rng.standard_normal((steps, 7)).astype(np.float32),
            "state": rng.integers(-5, 5, (steps, 2, 3)) / 4,
            "maps": np.full((i % 3, 128, 130), i, np.float32),
            ODD: np.array([i, -i, 300], np.int16),
        }
        if i % 3:
            sample["weight"] = rng.standard_normal(2)
        if i % 4:
            sample["near"] = rng.standard_normal((rows, 2)).astype(np.float16)
        yield f"a{i:02d}.npz", sample


def texts() -> list[dict[str, Any]]:
    """Return the records of the JSON lines; the third cannot be made."""
    return [
        {
            "text": "grüße 你好 \U0001f600",
            "turns": [{"role": "user", "content": "hi"}],
            "note": "first",
        },
        {"text": "", "turns": [{"b": 1e-7, "a": 0.5, "c": [1, None, True]}]},
        {"text": "lone \ud800 surrogate", "turns": []},
        {"text": 'line\nbreak \\ " \t', "turns": [{"content": "long " * 60}] * 3, "note": ""},
        {"text": "z", "turns": []},
    ]


def expected() -> dict[str, dict[str, np.ndarray]]:
    """Return what the caches hold, by key and field: the sources with the camera turned, texts as bytes."""
    made = {key: dict(sample) for key, sample in arrays() if key not in BROKEN}
    for sample in made.values():
        sample["points"] = sample["points"] * np.array([1, -1, -1], np.float32)
    for i, record in enumerate(texts()):
        if i == 2:
            continue
        said = json.dumps(
            record["turns"], sort_keys=True, ensure_ascii=False, separators=(",", ":")
        )
        sample = {"text": record["text"], "turns": said} | (
            {"note": record["note"]} if "note" in record else {}
        )
        encoded = {name: np.frombuffer(text.encode(), np.uint8) for name, text in sample.items()}
        made[f"talks.jsonl:{i:012d}"] = encoded
    return made


def write_sources(folder: Path) -> None:
    """Write the files that the caches are built from."""
    (folder / "arrays").mkdir(parents=True)
    (folder / "talks").mkdir()
    for key, sample in arrays():
        if key in BROKEN:
            (folder / "arrays" / key).write_bytes(b"PK\x03\x04 not a zip file")
        else:
            np.savez_compressed(folder / "arrays" / key, **sample)
    lines = "".join(json.dumps(record) + "\n" for record in texts())
    (folder / "talks/talks.jsonl").write_text(lines)


def jobs(sources: Path, codec: Codec) -> list[BuildJob]:
    """Return the jobs of both caches, with a verdict that no rule can change."""
    windows = {"length": 4, "stride": 2, "pad": "edge", "short": "pad"}
    steps = [{"camera": {"fields": ["points"], "to": "opencv"}}]
    arrays_ = schema_of(ARRAYS, windows=windows)
    texts_ = schema_of(TEXTS, files="*.jsonl", samples={"each": "line"})
    made = [
        job_of(
            arrays_,
            sources / "arrays",
            steps=steps,
            invalid={"a02.npz": ("DC201", "DC304")},
            pipeline="arrays",
        ),
        job_of(texts_, sources / "talks", pipeline="talks"),
    ]
    return [replace(job, codec=codec) for job in made]


@contextmanager
def small_shards() -> Iterator[None]:
    """Let a shard hold two samples."""
    before, layout.SHARD_BYTES = layout.SHARD_BYTES, 240_000
    try:
        yield
    finally:
        layout.SHARD_BYTES = before


def build_all(sources: Path, out: Path, codec: Codec) -> list[Built]:
    """Build both caches below `out`."""
    with small_shards():
        return [build_cache(job, out) for job in jobs(sources, codec)]


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return a tar archive, without times and owners: most of a small cache is padding."""
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w:xz", preset=9, format=tarfile.USTAR_FORMAT
    ) as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def main() -> None:
    """Write what is not there."""
    if not SOURCES.exists():
        write_sources(SOURCES)
    for name, codec in ARCHIVES.items():
        archive = HERE / f"{name}.tar.xz"
        if archive.exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            build_all(SOURCES, Path(folder), codec)
            found = {
                p.relative_to(folder).as_posix(): p for p in Path(folder).rglob("*") if p.is_file()
            }
            archive.write_bytes(
                packed({n: p.read_bytes() for n, p in found.items() if p.name != layout.BUILD})
            )


if __name__ == "__main__":
    main()
