"""Others read a cache: a process with zarr, and one with JSON, struct and NumPy; neither knows datacheck."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xxhash

from datacheck.build.builder import build_cache
from datacheck.cache import layout
from datacheck.cache.codec import Codec
from datacheck.cache.manifest import measure_files, read_manifest, write_manifest
from datacheck.cache.store import open_store
from datacheck.model.sample import ArraySpec
from datacheck.runtime.hashing import canonical_json
from tests.build.make import MIXED, job_of, mixed, schema_of
from tests.cache.make import make_cache
from tests.independent import read_by_hand

HERE = Path(__file__).parent
READERS = [HERE / "read_by_hand.py", HERE / "read_by_zarr.py"]


def read_by(reader, folder, out):
    """Run a reader in a process that cannot import datacheck; return what it found, by key and field."""
    line = [sys.executable, "-I", str(reader), str(folder), str(out)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=out.parent, timeout=800)
    assert done.returncode == 0, done.stderr
    with np.load(out) as read:
        return {name: read[name] for name in read.files}


def same(read, written):
    """Hold what was read to what was written, dtype included."""
    assert sorted(read) == sorted(
        f"{key}|{name}" for key, sample in written.items() for name in sample
    )
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
        assert text == json.dumps(
            json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":")
        ), path


# ----------------------------------------------------------------------------------------- controls


SPECS = {
    "joints": ArraySpec("float32", (3,)),
    "points": ArraySpec("float64", (2,), "P"),
    "say": ArraySpec("uint8", (), layout.text_dim("say"), "text", optional=True),
}


def edit(path, change):
    """Rewrite a file by a function of its bytes."""
    path.write_bytes(bytes(change(bytearray(path.read_bytes()))))


def flipped(at):
    def change(raw):
        raw[at] ^= 1
        return raw

    return change


def said(path, change):
    """Rewrite a JSON document, canonically."""
    document = json.loads(path.read_text())
    change(document)
    path.write_bytes(canonical_json(document))


WRONG = {
    "a file too many": lambda c: (c / "fields/notes.txt").write_text("x"),
    "a document with a space": lambda c: edit(c / "sources.json", lambda raw: b" " + raw),
    "a value of another digest": lambda c: edit(c / "fields/joints/c.0.0", flipped(3)),
    "another digest of a chunk": lambda c: edit(c / "digests/fields/joints/c.0", flipped(0)),
    "padding that is not fill": lambda c: edit(c / "fields/joints/c.2.0", flipped(14)),
    "an index of another crc32c": lambda c: edit(c / "fields/joints/c.1.0", flipped(-2)),
    "another digest of a sample": lambda c: (
        edit(c / "samples/digest/c.0", flipped(8)),
        redigest(c, "samples/digest"),
    ),
    "valid and not made": lambda c: (
        edit(c / "samples/made/c.0", flipped(0)),
        redigest(c, "samples/made"),
    ),
    "invalid without a finding": lambda c: (
        edit(c / "samples/valid/c.0", flipped(1)),
        redigest(c, "samples/valid"),
    ),
    "rows with a gap": lambda c: (
        edit(c / "rows/P/start/c.0", flipped(8)),
        redigest(c, "rows/P/start"),
    ),
    "keys that do not ascend": lambda c: (
        edit(c / "samples/key/c.0", flipped(12)),
        redigest(c, "samples/key"),
    ),
    "another key": lambda c: said(c / "inputs.json", lambda d: d["said"].update(more=1)),
    "a group without a document": lambda c: (c / "fields/zarr.json").unlink(),
    "another cut": lambda c: said(
        c / "zarr.json", lambda d: d["attributes"]["datacheck"].update(shard_samples=4)
    ),
    "another format": lambda c: said(
        c / "zarr.json", lambda d: d["attributes"]["datacheck"].update(format=2)
    ),
    "folders for shards": lambda c: said(
        c / "fields/joints/zarr.json",
        lambda d: d["chunk_key_encoding"]["configuration"].update(separator="/"),
    ),
    "a type of another size": lambda c: said(
        c / "fields/joints/zarr.json", lambda d: d.update(data_type="int32")
    ),
    "no checksum": lambda c: said(
        c / "fields/joints/zarr.json",
        lambda d: d["codecs"][0]["configuration"]["codecs"].append(
            {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
        ),
    ),
}


def redigest(folder, array):
    """Make the digest of the first chunk of a table fit it."""
    shape = json.loads((folder / array / "zarr.json").read_text())["codecs"][0]["configuration"][
        "chunk_shape"
    ][0]
    kind = json.loads((folder / array / "zarr.json").read_text())["data_type"]
    chunk = (folder / array / "c.0").read_bytes()[: shape * np.dtype(kind).itemsize]
    found = xxhash.xxh3_64_intdigest(chunk).to_bytes(8, "little")
    edit(folder / "digests" / array / "c.0", lambda raw: found + raw[8:])


def hand_made(tmp_path, codec="none"):
    rng = np.random.default_rng(0)
    samples = [
        {"joints": rng.random(3, np.float32), "points": rng.random((i % 3, 2))} for i in range(5)
    ]
    samples[1]["say"] = "hello"
    return make_cache(
        tmp_path, SPECS, samples, k=2, valid=[True] * 4 + [False], codec=Codec.parse(codec)
    )


def remade(folder):
    """Write a manifest that fits the files as they are now, with the content root that was there."""
    root = read_manifest(open_store(folder)).content_root
    (folder / "manifest.json").unlink()
    write_manifest(folder, measure_files(folder), root)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_reader_by_hand_takes_a_right_cache(tmp_path, codec):
    folder = hand_made(tmp_path, codec)
    remade(folder)
    assert read_by_hand.Cache(folder).sample(1).keys() == {"joints", "points", "say"}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_reader_by_hand_sees_what_the_specification_forbids(tmp_path, wrong):
    """Each is planted by somebody who also writes the manifest anew."""
    folder = hand_made(tmp_path)
    WRONG[wrong](folder)
    remade(folder)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        read_by_hand.Cache(folder)
