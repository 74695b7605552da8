"""Caches that were built once are read for ever, by everybody, and their sources still give just these bytes."""

from __future__ import annotations

import tarfile

import numcodecs
import numpy as np
import pytest

from datacheck.cache import open_cache
from datacheck.cache.manifest import read_manifest
from datacheck.cache.store import open_store
from datacheck.cache.verify import verify
from tests.build.make import tree
from tests.golden.make import (
    ARCHIVES,
    BROKEN,
    HERE,
    ODD,
    SOURCES,
    build_all,
    expected,
    packed,
    write_sources,
)
from tests.independent.test_readers import READERS, read_by, same

CODEC_VERSION = "0.16.6"  # of numcodecs, by which 1-zstd was written: another one may give other bytes of equal values


def unpacked(archive, folder):
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module", params=ARCHIVES)
def golden(request, tmp_path_factory):
    """The folder of the caches of one archive, and its codec."""
    return unpacked(
        HERE / f"{request.param}.tar.xz", tmp_path_factory.mktemp(request.param)
    ), ARCHIVES[request.param]


def caches(folder):
    """The caches below a folder, by pipeline."""
    return {
        path.parent.parent.parent.name: path.parent for path in folder.glob("*/all/*/manifest.json")
    }


def values(cache):
    """Return what a cache serves, by key and field."""
    found = {}
    for i in np.flatnonzero(cache.made).tolist():
        for name, spec in cache.fields.items():
            present = cache.present(name, [i])
            if present is None or present[0]:
                served = (
                    cache.gather(name, [i])[0]
                    if spec.dim is None
                    else cache.gather_ragged(name, [i])[0]
                )
                found[f"{cache.key(i)}|{name}"] = np.asarray(served)
    return found


def test_an_archive_holds_what_a_cache_can_hold(golden):
    folder, codec = golden
    found = caches(folder)
    assert sorted(found) == ["arrays", "talks"]
    cache = open_cache(found["arrays"])
    assert cache.root.shard_samples == 2
    assert cache.root.windows == {
        "dim": "T",
        "length": 4,
        "stride": 2,
        "pad": "edge",
        "short": "pad",
    }
    assert [cache.key(i) for i in np.flatnonzero(~cache.made)] == list(BROKEN)
    assert cache.codes("a02.npz") == ["DC201", "DC304"]
    assert cache.lengths("P", [4, 5]).tolist() == [0, 0]  # shard 2 has no rows
    kinds = {spec.kind for path in found.values() for spec in open_cache(path).fields.values()}
    assert kinds == {"array", "text", "json"}
    assert {array.codec for name, array in cache._arrays.items() if name.startswith("fields/")} == {
        codec
    }
    assert ODD in cache.fields


@pytest.mark.parametrize("archive", sorted(HERE.glob("*.tar.xz")), ids=lambda path: path.name)
def test_every_archive_there_ever_was_is_whole(archive, tmp_path):
    found = caches(unpacked(archive, tmp_path))
    assert found
    assert [problem for path in found.values() for problem in verify(path, "values")] == []


def test_it_is_still_read(golden):
    folder, _ = golden
    found = caches(folder)
    for io in ("mmap", "pread"):
        read = {}
        for path in found.values():
            read |= values(open_cache(path, io=io, verify="always"))
        same(read, expected())
    assert open_cache(found["talks"]).texts("text", [0, 1, 3]) == [
        "grüße 你好 \U0001f600",
        "",
        'line\nbreak \\ " \t',
    ]


@pytest.mark.parametrize("reader", READERS, ids=lambda path: path.stem)
def test_another_program_reads_it(golden, tmp_path, reader):
    read = {}
    for path in caches(golden[0]).values():
        read |= read_by(reader, path, tmp_path / "read.npz")
    same(read, expected())


def test_its_sources_still_give_the_same_bytes(golden, tmp_path):
    folder, codec = golden
    before = caches(folder)
    for built in build_all(SOURCES, tmp_path / "out", codec):
        path = before[built.path.parent.parent.name]
        assert built.path.name == path.name
        assert (
            read_manifest(open_store(built.path)).content_root
            == read_manifest(open_store(path)).content_root
        )
        if codec.name == "none" or numcodecs.__version__ == CODEC_VERSION:
            assert tree(built.path) == tree(path)


def test_the_sources_are_what_the_script_says(tmp_path):
    """Else what is expected of the caches would be of other files."""
    write_sources(tmp_path / "sources")
    for path in (p for p in SOURCES.rglob("*") if p.is_file()):
        again = tmp_path / "sources" / path.relative_to(SOURCES)
        if path.suffix == ".npz" and path.name not in BROKEN:
            with np.load(path) as one, np.load(again) as other:
                assert one.files == other.files
                assert all(one[name].tobytes() == other[name].tobytes() for name in one.files)
        else:
            assert path.read_bytes() == again.read_bytes()


def test_archives_are_small():
    """They go with every source distribution."""
    assert sum(path.stat().st_size for path in HERE.rglob("*") if path.is_file()) < 300_000
    assert packed({"a": b"b"}) == packed({"a": b"b"})
