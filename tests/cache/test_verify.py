"""Verification: nothing can be changed, added or taken away unseen."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.cache import layout
from datacheck.cache.manifest import measure_files, write_manifest
from datacheck.cache.store import open_store
from datacheck.cache.verify import verify
from datacheck.errors import UsageError
from datacheck.sample import ArraySpec
from tests.cache.make import make_cache

SPECS = {
    "joints": ArraySpec("float32", (21, 3)),
    "points": ArraySpec("float64", (3,), "P"),
    "say": ArraySpec("uint8", (), layout.text_dim("say"), "text", optional=True),
}


@pytest.fixture
def cache(tmp_path):
    rng = np.random.default_rng(0)
    samples = [{"joints": rng.random((21, 3), np.float32), "points": rng.random((n % 3, 3))} for n in range(5)]
    samples[2]["say"] = "hello"
    return make_cache(tmp_path, SPECS, samples, k=2, valid=[True, False, True, True, True])


def remade(folder, root):
    (folder / "manifest.json").unlink()
    write_manifest(folder, measure_files(folder), root)


def test_an_intact_cache_has_no_problems(cache):
    assert verify(cache) == []
    assert verify(cache, "quick") == []


def test_a_flipped_bit_in_any_file_is_found_and_the_file_named(cache):
    rng = np.random.default_rng(1)
    files = [path for path, _ in open_store(cache).files()]
    assert len(files) > 40
    for name in files:
        path = cache / name
        raw = path.read_bytes()
        at = int(rng.integers(len(raw)))
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :])
        try:
            problems = verify(cache)
        except UsageError:  # the format number itself was hit
            problems = []
            assert name == "manifest.json"
        else:
            assert {p.file for p in problems} == {name}, name
        path.write_bytes(raw)
    assert verify(cache) == []


def test_damage_in_a_shard_names_its_samples(cache):
    path = cache / "fields/joints/c.1.0.0"
    raw = bytearray(path.read_bytes())
    raw[5] ^= 8
    path.write_bytes(raw)
    (problem,) = verify(cache)
    assert (problem.file, problem.shard) == ("fields/joints/c.1.0.0", 1)
    assert problem.samples == "samples 2 to 3, sample/000002 to sample/000003"
    assert "expected xxh3_64" in problem.what
    assert verify(cache, "quick") == []


def test_missing_extra_short_and_linked_files_are_found_quickly(cache, tmp_path):
    (cache / "extra.txt").write_text("x")
    (cache / "samples/made/c.0").rename(tmp_path / "made")
    (cache / "samples/valid/c.0").rename(tmp_path / "valid")
    (cache / "samples/valid/c.0").symlink_to(tmp_path / "valid")
    with (cache / "sources.json").open("ab") as file:
        file.write(b" ")
    for depth in ("quick", "full"):
        found = {p.file: p.what for p in verify(cache, depth)}
        assert sorted(found) == ["extra.txt", "samples/made/c.0", "samples/valid/c.0", "sources.json"]
        assert "missing" in found["samples/made/c.0"]
        assert "symbolic link" in found["samples/valid/c.0"]


def test_build_json_is_outside(cache):
    (cache / "build.json").write_text("{}")
    assert verify(cache) == []


def test_a_row_table_that_swaps_samples_is_found_though_every_digest_fits(cache):
    """Somebody who rewrites manifest and chunk digests cannot swap two samples unseen."""
    root = verify_root(cache)
    for what in ("start", "length"):
        file = cache / f"rows/P/{what}/c.0"
        raw = bytearray(file.read_bytes())
        raw[8:16], raw[16:24] = raw[16:24], raw[8:16]
        file.write_bytes(raw)
        rewrite_digests(cache, f"rows/P/{what}")
    remade(cache, root)
    found = {p.file for p in verify(cache)}
    assert "samples/digest" in found
    assert "rows/P/start" in found


def test_a_wrong_content_root_is_found(cache):
    remade(cache, "0" * 32)
    (problem,) = verify(cache)
    assert "content root" in problem.what


def test_what_is_no_cache_is_a_wrong_request(tmp_path):
    with pytest.raises(UsageError, match="no finished cache"):
        verify(tmp_path)


def verify_root(cache):
    from datacheck.cache.manifest import read_manifest

    return read_manifest(open_store(cache)).content_root


def rewrite_digests(cache, array):
    """Make the chunk digests of a one-chunk table fit it."""
    import xxhash

    chunk = (cache / array / "c.0").read_bytes()[:65536]
    file = cache / "digests" / array / "c.0"
    raw = bytearray(file.read_bytes())
    raw[:8] = xxhash.xxh3_64_intdigest(chunk).to_bytes(8, "little")
    file.write_bytes(raw)
