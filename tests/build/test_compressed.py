"""A compressed cache holds what a plain one holds, and is made as deterministically."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

from datacheck.build import make_shards
from datacheck.build.builder import build_cache
from datacheck.build.prepare import prepare
from datacheck.build.publish import publish
from datacheck.cache import layout, open_cache
from datacheck.cache.codec import Codec
from datacheck.cache.manifest import measure_files, read_manifest, write_manifest
from datacheck.cache.store import open_store
from datacheck.cache.verify import verify
from datacheck.cli.main import datacheck
from datacheck.errors import NondeterministicBuildError, UsageError
from datacheck.pipeline import build, load_pipeline
from datacheck.plugins import resolve
from datacheck.workers.parallel import TaskResult
from tests.build.make import MIXED, job_of, mixed, schema_of, tree
from tests.build.test_builder import check


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "SHARD_BYTES", 1 << 14)
    monkeypatch.setattr("datacheck.build.plan.SOURCE_BYTES", 1 << 15)
    written = mixed(tmp_path / "data")
    return job_of(schema_of(MIXED), tmp_path / "data", invalid={"003.npz": ("DC201",)}), written


def test_the_values_are_those_of_the_plain_cache(tmp_path, job):
    job, written = job
    plain = build_cache(job, tmp_path / "out")
    packed = build_cache(replace(job, codec=Codec("zstd")), tmp_path / "out")
    assert plain.path.name != packed.path.name
    assert packed.nbytes < plain.nbytes
    check(packed.path, job.samples.keys, written, MIXED)
    assert verify(packed.path) == []
    caches = [open_cache(one.path, verify="full") for one in (plain, packed)]
    assert caches[0].manifest.content_root == caches[1].manifest.content_root
    before, after = tree(plain.path), tree(packed.path)
    same = {path for path in after if before.get(path) == after[path]}
    assert {p for p in after if p.startswith("digests/")} <= same  # digests are of decoded chunks
    codecs = zarr.open_group(packed.path, mode="r")["fields/cloud"].metadata.codecs[0].codecs
    assert codecs[1].to_dict() == {"name": "zstd", "configuration": {"level": 3, "checksum": True}}


def test_workers_do_not_matter(tmp_path, job):
    job = replace(job[0], codec=Codec("zstd", 1))
    one, two = (build_cache(job, tmp_path / f"{n}", workers=n) for n in (1, 2))
    assert tree(one.path) == tree(two.path)
    assert one.path.name == two.path.name


def test_an_interrupted_build_goes_on_with_its_compressed_shards(tmp_path, job, monkeypatch):
    job = replace(job[0], codec=Codec("zstd", 2))
    golden = tree(build_cache(job, tmp_path / "golden").path)
    made = []

    def inline(function, tasks, **_):
        for task in tasks:
            made.extend(order["g"] for order in task["items"])
            yield TaskResult(task, [resolve(function)(task, lambda _: None)])

    def stop(tick):
        if tick.files >= 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(make_shards, "ordered_map", inline)
    with pytest.raises(KeyboardInterrupt):
        build_cache(job, tmp_path / "out", progress=stop)
    before = len(made)
    made.clear()
    assert tree(build_cache(job, tmp_path / "out").path) == golden
    assert 0 < len(made) <= prepare(job).plan.shards - before + 1


def recompressed(folder, level):
    """Write the shards of a field as another version of the library would: other frames of the same values."""
    array = json.loads((folder / "fields/joints/zarr.json").read_text())
    grid, codec = layout.grid_of(array)
    for file in (folder / "fields/joints").glob("c.*"):
        raw = file.read_bytes()
        index = np.frombuffer(raw[-layout.index_bytes(grid) : -4], "<u8").reshape(-1, 2)
        chunks = bytearray()
        for offset, size in index[index[:, 0] != layout.ABSENT].tolist():
            out = bytearray(grid.chunk_bytes)
            codec.decode(memoryview(raw)[offset : offset + size], memoryview(out))
            chunks += out
        parts, sizes = Codec("zstd", level).encode(memoryview(chunks), grid.chunk_bytes)
        file.unlink()
        file.write_bytes(b"".join([*parts, layout.pack_index(grid, sizes)]))
    return write_again(folder, read_manifest(open_store(folder)).content_root)


def test_frames_of_another_version_of_zstd_are_the_same_content(tmp_path, job):
    job = replace(job[0], codec=Codec("zstd"))
    target = build_cache(job, tmp_path / "out").path
    stage = target.parent / layout.BUILDING / "other"
    shutil.copytree(target, stage / "whole")
    manifest = recompressed(stage / "whole", 19)
    assert manifest.digest != read_manifest(open_store(target)).digest
    assert verify(stage / "whole", "values") == []
    assert publish(stage / "whole", target, manifest) == "theirs"
    other = stage / "whole/digests/fields/joints/c.0"
    other.chmod(0o644)
    other.write_bytes(bytes([other.read_bytes()[0] ^ 1]) + other.read_bytes()[1:])
    manifest = write_again(stage / "whole", manifest.content_root)
    with pytest.raises(NondeterministicBuildError, match="digests/fields/joints"):
        publish(stage / "whole", target, manifest)


def write_again(folder, root):
    (folder / "manifest.json").unlink()
    return write_manifest(folder, measure_files(folder), root)


def test_the_option_wins_over_the_pipeline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mixed(tmp_path / "data", 4)
    (tmp_path / "mine.yaml").write_text(
        schema_of({"joints": MIXED["joints"]}).model_dump_json(exclude_defaults=True)
    )
    text = "datacheck: 1\nname: packed\nschema: mine.yaml\ncache: {out: out, compress: zstd:7}\n"
    (tmp_path / "packed.yaml").write_text(text)
    assert load_pipeline("packed.yaml").codec == Codec("zstd", 7)

    def found(**options):
        (built,) = build("packed.yaml", "data", **options)
        return open_cache(built.path)._arrays["fields/joints"].codec

    assert found() == Codec("zstd", 7)
    assert found(compress="none") == Codec()
    assert found(compress="zstd") == Codec("zstd", 3)
    with pytest.raises(UsageError, match="lz4"):
        build("packed.yaml", "data", compress="lz4")
    line = ["cache", "build", "packed.yaml", "--data", "data", "--compress", "zstd:1"]
    assert CliRunner().invoke(datacheck, line).exit_code == 0
    assert len(list((tmp_path / "out/packed/all").glob("*/manifest.json"))) == 4
