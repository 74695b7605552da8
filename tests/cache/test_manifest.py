"""The manifest: self digest, format version, content root; and that the maker's caches are valid Zarr."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xxhash
import zarr

from datacheck.cache import layout, open_cache
from datacheck.cache.bucket import Bucket
from datacheck.cache.manifest import content_root, measure_files, read_manifest, write_manifest
from datacheck.cache.store import open_store
from datacheck.cache.verify import verify
from datacheck.errors import CorruptionError, UsageError
from datacheck.model.sample import ArraySpec
from datacheck.runtime.hashing import canonical_json, digest_value
from tests.cache.make import make_cache

SPECS = {
    "joints": ArraySpec("float32", (3,)),
    "obs/points": ArraySpec("float32", (3,), "P"),
    "label": ArraySpec("int64", (), "P"),
    "text": ArraySpec("uint8", (), layout.text_dim("text"), "text", optional=True),
}


@pytest.fixture
def cache(tmp_path):
    rng = np.random.default_rng(0)
    samples = [
        {
            "joints": rng.random(3, dtype=np.float32),
            "obs/points": rng.random((n, 3), dtype=np.float32),
            "label": np.arange(n),
        }
        | ({"text": f"größe {n}"} if n else {})
        for n in (3, 0, 5, 2, 7)
    ]
    return make_cache(tmp_path, SPECS, samples, k=2), samples


def test_a_cache_is_an_ordinary_zarr_group(cache):
    folder, samples = cache
    group = zarr.open_group(folder, mode="r")
    arrays = {
        name
        for name, node in group["fields"].members(max_depth=None)
        if isinstance(node, zarr.Array)
    }
    assert arrays == {"joints", "obs/points", "label", "text"}
    for i, sample in enumerate(samples):
        start, length = int(group["rows/P/start"][i]), int(group["rows/P/length"][i])
        np.testing.assert_array_equal(
            group["fields/obs/points"][start : start + length], sample["obs/points"]
        )
        np.testing.assert_array_equal(group["fields/joints"][i], sample["joints"])
    assert group["present/text"][:].tolist() == ["text" in s for s in samples]
    assert group.attrs["datacheck"]["samples"] == 5


def test_the_digest_is_that_of_the_document_without_it(cache):
    folder, _ = cache
    said = json.loads((folder / "manifest.json").read_text())
    digest = said.pop("digest")
    text = json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert (
        xxhash.xxh3_128_hexdigest(text.encode())
        == digest
        == read_manifest(open_store(folder)).digest
    )


def test_every_changed_byte_of_the_manifest_is_seen(cache):
    folder, _ = cache
    path = folder / "manifest.json"
    raw = path.read_bytes()
    for at in range(0, len(raw), 13):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        with pytest.raises(CorruptionError):
            read_manifest(open_store(folder))


def test_no_manifest_means_no_cache(tmp_path):
    with pytest.raises(UsageError, match="no finished cache"):
        read_manifest(open_store(tmp_path))


def test_a_newer_format_is_refused_by_name(cache):
    path = cache[0] / "manifest.json"
    newer = json.loads(path.read_bytes()) | {"format": 2}
    path.write_bytes(canonical_json(newer))
    with pytest.raises(CorruptionError, match="its own digest"):  # a flipped bit, not a newer cache
        read_manifest(open_store(cache[0]))
    newer["digest"] = digest_value({name: said for name, said in newer.items() if name != "digest"})
    path.write_bytes(canonical_json(newer))
    with pytest.raises(UsageError, match="format 2"):
        read_manifest(open_store(cache[0]))


def test_the_content_root_sees_keys_that_only_change_their_borders():
    def root(lengths, digests=(1, 2)):
        keys = np.frombuffer(b"abc", dtype=np.uint8)
        return content_root(
            [("x", "float32", (3,))], np.array(lengths), [keys], np.array(digests, dtype=np.uint64)
        )

    assert root([1, 2]) == root([1, 2])
    assert len({root([1, 2]), root([2, 1]), root([1, 2], (1, 3))}) == 3


def test_what_a_later_version_of_the_format_may_add_is_passed_over(tmp_path):
    """Keys that this reader does not know stay in format 1; so they must not disturb it."""
    spec = {"x": ArraySpec("float32", (3,), attrs={"unit": "m"})}
    folder = make_cache(tmp_path, spec, [{"x": np.full(3, i, np.float32)} for i in range(3)])
    for name in ("zarr.json", "fields/x/zarr.json", "samples/made/zarr.json"):
        said = json.loads((folder / name).read_text())
        said["attributes"].setdefault("datacheck", {})["later"] = {"a": [1, None]}
        said["attributes"]["another-tool"] = 1
        (folder / name).write_bytes(canonical_json(said))
    inputs = json.loads((folder / "inputs.json").read_text()) | {"later": 1}
    (folder / "inputs.json").write_bytes(canonical_json(inputs))
    before = read_manifest(open_store(folder))
    (folder / "manifest.json").unlink()
    write_manifest(folder, measure_files(folder), before.content_root)
    assert verify(folder, "values") == []
    cache = open_cache(folder)
    assert cache.gather("x", [2, 0]).tolist() == [[2, 2, 2], [0, 0, 0]]
    assert cache.fields["x"].attrs == {"unit": "m", "later": {"a": [1, None]}}


def test_the_documents_of_a_cache_have_a_limit_together(tmp_path, monkeypatch):
    folder = make_cache(tmp_path, {"x": ArraySpec("float32", (3,))}, [{"x": np.zeros(3)}])
    documents = [
        p for p in folder.rglob("zarr.json") if p.relative_to(folder).parts[0] != "digests"
    ]
    total = sum(path.stat().st_size for path in documents)
    monkeypatch.setattr("datacheck.cache.manifest.DOCUMENTS_BYTES", total)
    open_cache(folder)
    assert verify(folder) == []
    monkeypatch.setattr("datacheck.cache.manifest.DOCUMENTS_BYTES", total - 1)
    with pytest.raises(CorruptionError, match=f"have {total:,} bytes; at most {total - 1:,} are"):
        open_cache(folder)
    assert [problem.file for problem in verify(folder)] == ["manifest.json"]


def test_no_more_of_a_document_is_fetched_than_the_bucket_lists():
    class Listed:
        def sizes(self, prefix):
            return {"c/zarr.json": 70, "c/sources.json": 600 << 20, "c/a/zarr.json": 5 << 20}

        def get(self, keys, most):
            asked.append(dict(zip(keys, most, strict=True)))
            return [None for _ in keys]

    asked = []
    bucket = Bucket("s3://bucket/c")
    bucket.objects = Listed()
    bucket.prefetch(["zarr.json", "a/zarr.json", "sources.json", "b/zarr.json"])
    assert asked[-1] == {
        "c/zarr.json": 70,
        "c/a/zarr.json": 4 << 20,
        "c/sources.json": 512 << 20,
        "c/b/zarr.json": 0,
    }
