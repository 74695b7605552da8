"""Zarr stores: values equal to zarr's, and what zarr would make up is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import zarr

from datacheck.errors import FormatError
from datacheck.formats import zarr_store
from datacheck.formats.base import open_container
from tests.formats.reading import CORPUS, read_all


@pytest.mark.parametrize("version", [2, 3])
def test_replay_buffers(version):
    path = CORPUS / f"zarr/y_replay_v{version}.zarr"
    values = read_all(path)
    assert sorted(values) == ["data/action", "meta/episode_ends"]
    np.testing.assert_array_equal(values["data/action"], np.arange(12.0).reshape(6, 2))
    assert values["meta/episode_ends"].tolist() == [2, 6]
    with open_container(path) as container:
        assert container.attrs() == {"fps": np.int64(10)}
        assert container.groups("/*") == ["data", "meta"]
        assert container.groups("/data/*") == []
        for name in ("data", "data/other", "../x", "data/../data/action", "", "data/action.x"):
            with pytest.raises(KeyError):
                container.read(name)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "<i4", ">f4", "f2", "f8", "c8", "U3", "M8[s]"])
def test_types(tmp_path, version, dtype):
    data = np.arange(7).astype(dtype)
    array = zarr.create_array(tmp_path / "a.zarr", shape=7, chunks=(3,), dtype=dtype, zarr_format=version)
    array[:] = data
    found = read_all(tmp_path / "a.zarr")["array"]
    if dtype == "U3":
        assert found == data.tolist()
    elif dtype == "c8":
        np.testing.assert_array_equal(found[:, 0] + 1j * found[:, 1], data)
    else:
        np.testing.assert_array_equal(found, data.astype("i8") if dtype.startswith("M8") else data)


pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")


def test_text_of_any_length(tmp_path):
    array = zarr.create_array(tmp_path / "a.zarr", shape=3, chunks=(2,), dtype="str")
    array[:] = np.array(["a", "two words", "é"], dtype=object)
    assert read_all(tmp_path / "a.zarr")["array"] == ["a", "two words", "é"]


def test_shards_structures_and_chunks_of_fill():
    assert read_all(CORPUS / "zarr/y_sharded.zarr")["array"].tolist() == list(range(16))
    assert read_all(CORPUS / "zarr/y_structured.zarr")["array.x"].tolist() == [1, 2, 3, 4]
    assert read_all(CORPUS / "zarr/y_fill.zarr")["array"].tolist() == [1.5] * 4


@pytest.mark.parametrize("target", ["chunk", "folder"])
def test_links_inside_a_store_are_refused(tmp_path, target):
    store = tmp_path / "a.zarr"
    shutil.copytree(CORPUS / "zarr/y_replay_v2.zarr", store)
    (tmp_path / "secret").write_bytes(bytes(64))
    if target == "chunk":
        chunk = store / "data/action/0.0"
        chunk.unlink()
        chunk.symlink_to(tmp_path / "secret")
        name = "data/action"
    else:
        (store / "other").symlink_to(CORPUS / "zarr/y_replay_v2.zarr/data")
        name = "other/action"
    with open_container(store) as container:
        with pytest.raises(FormatError, match="link inside a store"):
            container.read(name)
        assert container.read("meta/episode_ends").tolist() == [2, 6]


def test_one_broken_array_does_not_lose_the_others(tmp_path):
    store = tmp_path / "a.zarr"
    shutil.copytree(CORPUS / "zarr/y_replay_v3.zarr", store)
    meta = json.loads((store / "data/action/zarr.json").read_text())
    meta["codecs"] = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "numcodecs.pickle"}]
    (store / "data/action/zarr.json").write_text(json.dumps(meta))
    with open_container(store) as container:
        assert container.names() == ["data/action", "meta/episode_ends"]
        assert container.read("meta/episode_ends").tolist() == [2, 6]
        with pytest.raises(FormatError, match=r"data/action: encoded with numcodecs\.pickle"):
            container.read("data/action")


def test_chunks_are_visited_once_however_often_rows_are_read(tmp_path, monkeypatch):
    array = zarr.create_array(tmp_path / "a.zarr", shape=(6,), chunks=(2,), dtype="i4")
    array[:] = np.arange(6)
    visits = []
    visit = zarr_store._stored
    monkeypatch.setattr(zarr_store, "_stored", lambda *args: visits.append(1) or visit(*args))
    with open_container(tmp_path / "a.zarr") as container:
        rows = [container.read_rows("array", i, i + 2).tolist() for i in (0, 2, 4)]
    assert (rows, len(visits)) == ([[0, 1], [2, 3], [4, 5]], 1)


def test_groups_are_groups_not_folders_of_chunks(tmp_path):
    store = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    store.create_array(
        "data/x", shape=(4, 4), chunks=(2, 2), dtype="i4", chunk_key_encoding={"name": "v2", "separator": "/"}
    )[:] = 1
    store.create_group("data/demo_1")
    with open_container(tmp_path / "a.zarr") as container:
        assert container.groups("/data/*") == ["data/demo_1"]
        assert container.groups("/data/*/*") == []
