"""Others read a cache: a process with zarr, and one with JSON, struct and NumPy; neither knows datacheck."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datacheck.build.builder import build_cache
from datacheck.cache import layout
from datacheck.cache.codec import Codec
from tests.build.make import MIXED, job_of, mixed, schema_of

HERE = Path(__file__).parent
READERS = [HERE / "read_by_hand.py", HERE / "read_by_zarr.py"]


def read_by(reader, folder, out):
    """Run a reader in a process that cannot import datacheck; return what it found, by key and field."""
    line = [sys.executable, "-I", str(reader), str(folder), str(out)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=out.parent, timeout=120)
    assert done.returncode == 0, done.stderr
    with np.load(out) as read:
        return {name: read[name] for name in read.files}


def same(read, written):
    """Hold what was read to what was written, dtype included."""
    assert sorted(read) == sorted(f"{key}|{name}" for key, sample in written.items() for name in sample)
    for key, sample in written.items():
        for name, value in sample.items():
            stored = read[f"{key}|{name}"]
            assert (stored.dtype, stored.shape) == (value.dtype, value.shape), (key, name)
            assert stored.tobytes() == value.tobytes(), (key, name)


@pytest.fixture(scope="module", params=["none", "zstd"])
def cache(request, tmp_path_factory):
    tmp = tmp_path_factory.mktemp("independent")
    written = mixed(tmp / "data")
    whole = layout.SHARD_BYTES
    layout.SHARD_BYTES = 1 << 14
    job = job_of(schema_of(MIXED), tmp / "data", invalid={"002.npz": ("DC201",)})
    try:
        built = build_cache(replace(job, codec=Codec.parse(request.param)), tmp / "out")
    finally:
        layout.SHARD_BYTES = whole
    return built.path, written


@pytest.mark.parametrize("reader", READERS, ids=lambda path: path.stem)
def test_another_program_reads_the_same_values(cache, tmp_path, reader):
    folder, written = cache
    same(read_by(reader, folder, tmp_path / "read.npz"), written)


def test_every_document_is_canonical_json(cache):
    folder, _ = cache
    for path in folder.rglob("*.json"):
        text = path.read_text()
        assert text == json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":")), path
