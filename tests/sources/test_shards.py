"""Shards that other libraries wrote: their samples, and caches made of them, have the values that went in."""

from __future__ import annotations

import io
import shutil
import tarfile

import numpy as np
import pytest

from datacheck.cache import open_cache
from datacheck.errors import FormatError
from datacheck.pipeline import build
from datacheck.scan import scan
from datacheck.schema.load import load_schema
from datacheck.sources import Item, open_source
from tests.formats.reading import CORPUS
from tests.sources.schemas import every, schema

FIELDS = {
    "points": {"at": "points.npy", "shape": ["P", 3], "dtype": "float32"},
    "label": {"at": "cls", "shape": []}, "caption": {"at": "txt", "dtype": "text"},
    "scene": {"at": "json/scene", "dtype": "text"}, "rotation": {"at": "pose.npz/r", "shape": [3, 3]},
    "joints": {"at": "pyd/joints", "shape": ["J", 3]},
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Scans leave their results in the working directory."""
    monkeypatch.chdir(tmp_path)


def points(i):
    """What scripts/corpus/peers.py gives the sample number `i`."""
    return (np.arange(18, dtype=np.float32).reshape(6, 3) + i) / 8


@pytest.fixture
def shards(tmp_path):
    (tmp_path / "data").mkdir()
    for path in (CORPUS / "tar").glob("y_webdataset-*"):
        shutil.copy(path, tmp_path / "data")
    return tmp_path / "data"


def item(path):
    return Item(path.name, nbytes=path.stat().st_size)


def added(path, name, data, kind=tarfile.REGTYPE):
    """Append a member to a shard."""
    with tarfile.open(path, "a") as out:
        info = tarfile.TarInfo(name)
        info.size, info.type, info.linkname = len(data), kind, "/etc/passwd"
        out.addfile(info, io.BytesIO(data))


def test_webdataset_s_samples_are_its_keys(shards):
    path = shards / "y_webdataset-000000.tar"
    samples, unread = every(open_source(schema({"files": "*.tar", "each": "key"}, FIELDS), shards), item(path))
    assert unread == []
    assert list(samples) == [f"{path.name}:/train/000{i}" for i in range(3)]
    for i, sample in enumerate(samples.values()):
        assert np.array_equal(sample["points"], points(i))
        assert (sample["label"], sample["caption"], sample["scene"]) == (3 * i, f"cup {i}, café", f"scene000{i}")
        assert np.array_equal(sample["rotation"], np.eye(3) * i)
        assert np.array_equal(sample["joints"], np.full((2, 3), i))


def test_a_cache_of_webdataset_shards_has_their_values(shards, tmp_path):
    assert scan(shards).schema.name == "webdataset"
    (built,) = build(schema({"files": "*.tar", "each": "key"}, FIELDS), shards, tmp_path / "cache")
    assert (built.samples, built.valid) == (5, 5)
    cache = open_cache(built.path, verify="full")
    rows, lengths = cache.gather_ragged("points", np.arange(5))
    assert np.array_equal(rows, np.concatenate([points(i) for i in range(5)]))
    assert lengths.tolist() == [6] * 5
    assert cache.gather("label", np.arange(5)).tolist() == [0, 3, 6, 9, 12]
    assert cache.texts("caption", [4]) == ["cup 4, café"]


def test_every_value_of_a_shard_gets_into_a_cache_without_a_schema_of_its_own(shards, tmp_path):
    (built,) = build(load_schema("webdataset"), shards, tmp_path / "cache")
    cache = open_cache(built.path, verify="full")
    assert np.array_equal(cache.gather("points.npy", [4])[0], points(4))
    assert cache.gather("json/weight", np.arange(5)).tolist() == [0, 0.25, 0.5, 0.75, 1.0]


def test_a_link_in_a_shard_costs_one_sample(shards):
    path = shards / "y_webdataset-000001.tar"
    added(path, "train/0004.secret.txt", b"", tarfile.SYMTYPE)
    samples, unread = every(open_source(schema({"files": "*.tar", "each": "key"}, FIELDS), shards), item(path))
    assert list(samples) == [f"{path.name}:/train/0003"]
    (lost,) = unread
    assert (lost.key, lost.code) == (f"{path.name}:/train/0004", "DC101")
    assert lost.reason == "caption: 'train/0004.secret.txt' is a symbolic link, no file"


def test_a_shard_that_is_cut_short_is_an_error_of_the_scan(shards):
    path = shards / "y_webdataset-000001.tar"
    path.write_bytes(path.read_bytes()[:5000])
    run = scan(shards, "webdataset")
    assert run.codes == [(), (), (), ("DC101",)]
    assert run.table.keys[-1] == path.name


def test_key_is_for_files_that_have_keys(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(FormatError, match=r"samples\.each: key is for shards"):
        every(open_source(schema({"files": "*.npz", "each": "key"}), tmp_path), item(tmp_path / "a.npz"))
