"""Datasets to rebuild caches of: many shards of little data, with every layout, unreadable samples and refused ones."""

from __future__ import annotations

import shutil

import numpy as np

from datacheck.build import make_shards
from datacheck.build.builder import build_cache
from datacheck.cache import layout
from datacheck.model.row_keys import keys_from_runs
from datacheck.plugins import resolve
from datacheck.runtime import fsops
from datacheck.workers.parallel import TaskResult
from datacheck.workers.wire import decode, encode
from tests.build.make import job_of, schema_of, tree

FIELDS = {
    "cloud": {"role": "points", "shape": ["P", 2], "dtype": "float32"},
    "near": {"role": "points", "shape": ["P", 3], "dtype": "float16", "optional": True},
    "joints": {"role": "joints", "shape": [5, 3], "dtype": "float64"},
    "weight": {"role": "value", "shape": [2], "dtype": "float64", "optional": True},
    "score": {"role": "value", "shape": [], "dtype": "float64"},
}
CAST = {"cast": {"fields": ["score"], "to": "float32"}}  # refuses what float32 cannot hold
NOT_READ = b"PK\x03\x04 not a zip file"


def small(patch):
    """Let little data make many shards, in tasks that run in this process; return the list of all orders to come."""
    seen = []

    def here(function, tasks, **_):
        for task in map(dict, tasks):
            seen.extend(task["items"])
            asked = decode(b"".join(encode(task)))
            yield TaskResult(
                task, [decode(b"".join(encode(resolve(function)(asked, lambda _: None))))]
            )

    patch.setattr(layout, "SHARD_BYTES", 1 << 11)
    patch.setattr(layout, "CHUNK_BYTES", 1 << 8)
    patch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 12)
    patch.setattr(make_shards, "ordered_map", here)
    # Of no concern here, and nearly all of the time
    patch.setattr(fsops.System, "sync", lambda *_: None)
    return seen


def write(folder, name, seed):
    """Write a sample of that many numbers; some lack fields, cannot be read, or cannot be made."""
    rng = np.random.Generator(np.random.Philox(seed))
    rows = int(rng.integers(0, 60)) if seed % 5 else 300
    sample = {
        "cloud": rng.standard_normal((rows, 2)).astype(np.float32),
        "joints": rng.standard_normal((5, 3)),
        "score": np.float64(1e300 if seed % 7 == 3 else seed),
    }
    if seed % 3:
        sample["near"] = rng.standard_normal((rows, 3)).astype(np.float16)
    if seed % 2:
        sample["weight"] = rng.standard_normal(2)
    folder.mkdir(exist_ok=True)
    if seed % 11 == 5:
        (folder / name).write_bytes(NOT_READ)
    else:
        np.savez(folder / name, **sample)


def dataset(folder, count=30):
    for i in range(count):
        write(folder, f"{i:03d}.npz", i)


def job(folder, steps=(CAST,), **more):
    return job_of(schema_of(FIELDS), folder, steps=steps, **more)


def agree(one, other):
    """Hold a rebuilt cache against one that was built from nothing."""
    assert one.path.name == other.path.name
    assert tree(one.path) == tree(other.path)
    assert (one.made, one.valid, one.nbytes) == (other.made, other.valid, other.nbytes)
    assert one.reused or one.not_made == other.not_made


def rebuilt(job, place):
    """Build beside earlier caches and from nothing, compare, and return what the first says."""
    before = {path: (path.stat().st_ino, path.read_bytes()) for path in files(place / "out")}
    one = build_cache(job, place / "out")
    shutil.rmtree(place / "fresh", ignore_errors=True)
    agree(one, build_cache(job, place / "fresh"))
    # No earlier cache is touched
    assert before == {path: (path.stat().st_ino, path.read_bytes()) for path in before}
    return one


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def shards(path):
    return {p.relative_to(path).as_posix(): p for p in sorted((path / "fields").rglob("c.*"))}


def read(orders):
    """Return the keys that were asked of the sources."""
    return sorted(
        key
        for order in orders
        for one in order["reads"]
        for key in keys_from_runs(one["item"]["keys"])
    )


def flip(path, offset=None):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 if offset is None else offset] ^= 4
    path.chmod(0o644)
    path.write_bytes(raw)
    path.chmod(0o444)
