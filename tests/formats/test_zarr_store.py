"""Zarr stores: values equal to zarr's, and what zarr would make up is refused."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
import tracemalloc
import zlib
from functools import partial

import google_crc32c
import numcodecs
import numpy as np
import pyarrow as pa
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
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=7, chunks=(3,), dtype=dtype, zarr_format=version
    )
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


def test_a_link_to_a_file_is_no_part_of_a_store(tmp_path):
    store = tmp_path / "a.zarr"
    shutil.copytree(CORPUS / "zarr/y_replay_v2.zarr", store)
    (tmp_path / "y.npy").write_bytes(b"x")
    (store / "data/notes.npy").symlink_to("../../y.npy")
    (store / "README").symlink_to("nowhere")
    with open_container(store) as container:
        assert container.names() == ["data/action", "meta/episode_ends"]


def test_one_broken_array_does_not_lose_the_others(tmp_path):
    store = tmp_path / "a.zarr"
    shutil.copytree(CORPUS / "zarr/y_replay_v3.zarr", store)
    meta = json.loads((store / "data/action/zarr.json").read_text())
    meta["codecs"] = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": "numcodecs.pickle"},
    ]
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
    visit = zarr_store._stored_chunks
    monkeypatch.setattr(
        zarr_store, "_stored_chunks", lambda *args: visits.append(1) or visit(*args)
    )
    with open_container(tmp_path / "a.zarr") as container:
        rows = [container.read_rows("array", i, i + 2).tolist() for i in (0, 2, 4)]
    assert (rows, len(visits)) == ([[0, 1], [2, 3], [4, 5]], 1)


def test_groups_are_groups_not_folders_of_chunks(tmp_path):
    store = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2)
    store.create_array(
        "data/x",
        shape=(4, 4),
        chunks=(2, 2),
        dtype="i4",
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )[:] = 1
    store.create_group("data/demo_1")
    with open_container(tmp_path / "a.zarr") as container:
        assert container.groups("/data/*") == ["data/demo_1"]
        assert container.groups("/data/*/*") == []


def stored(tmp_path, version, **codecs):
    """Write an array of one chunk of 1,000 numbers; return the path of the chunk."""
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=1000, chunks=(1000,), dtype="i4", zarr_format=version, **codecs
    )
    array[:] = np.arange(1000)
    return tmp_path / "a.zarr" / ("0" if version == 2 else "c/0")


_lzma = partial(lzma.compress, preset=0)  # the usual preset takes three times as long
V2 = {
    "gzip": (numcodecs.GZip, gzip.compress),
    "zlib": (numcodecs.Zlib, zlib.compress),
    "bz2": (numcodecs.BZ2, bz2.compress),
    "lzma": (numcodecs.LZMA, _lzma),
    "zstd": (numcodecs.Zstd, numcodecs.Zstd().encode),
    "lz4": (numcodecs.LZ4, numcodecs.LZ4().encode),
    "blosc": (numcodecs.Blosc, numcodecs.Blosc().encode),
}
V3 = {
    "gzip": (zarr.codecs.GzipCodec, gzip.compress),
    "zstd": (zarr.codecs.ZstdCodec, numcodecs.Zstd().encode),
    "blosc": (zarr.codecs.BloscCodec, numcodecs.Blosc().encode),
    "bz2": (zarr.codecs.numcodecs.BZ2, bz2.compress),
    "lzma": (zarr.codecs.numcodecs.LZMA, _lzma),
    "lz4": (zarr.codecs.numcodecs.LZ4, numcodecs.LZ4().encode),
    "zlib": (zarr.codecs.numcodecs.Zlib, zlib.compress),
}
BOTH = [(2, name, *V2[name]) for name in V2] + [(3, name, *V3[name]) for name in V3]


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in")
@pytest.mark.parametrize(
    ("version", "name", "codec", "compress"), BOTH, ids=[f"{v} {n}" for v, n, *_ in BOTH]
)
def test_a_chunk_is_decoded_to_the_bytes_that_are_declared_and_no_further(
    tmp_path, version, name, codec, compress
):
    chunk = stored(tmp_path, version, compressors=codec())
    assert read_all(tmp_path / "a.zarr")["array"].tolist() == list(range(1000))
    chunk.write_bytes(compress(bytes(32 << 20)))  # of 4,000 declared
    tracemalloc.start()
    with (
        open_container(tmp_path / "a.zarr") as container,
        pytest.raises(FormatError, match=f"a chunk in {name} holds"),
    ):
        container.read("array")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


@pytest.mark.parametrize("name", ["gzip", "bz2", "lzma"])
def test_streams_behind_each_other_are_one(tmp_path, name):
    codec, compress = V2[name]
    chunk = stored(tmp_path, 2, compressors=codec())
    raw = np.arange(1000, dtype="<i4").tobytes()
    chunk.write_bytes(compress(raw[:1500]) + compress(raw[1500:]))
    assert read_all(tmp_path / "a.zarr")["array"].tolist() == list(range(1000))
    chunk.write_bytes(compress(raw)[:-9])
    with (
        open_container(tmp_path / "a.zarr") as container,
        pytest.raises(FormatError, match="array"),
    ):
        container.read("array")


def test_a_zstd_frame_without_its_size_is_read_and_bounded(tmp_path):
    """Block by block: three bytes of header, then of a run one byte that stands for up to 128 KiB."""
    chunk = stored(tmp_path, 2, compressors=numcodecs.Zstd())
    head = bytes.fromhex("28b52ffd") + b"\x00\x88"  # no size, a window of 128 MiB
    run = ((4000 << 3) | 2 | 1).to_bytes(3, "little") + b"\0"
    chunk.write_bytes(head + run)
    assert read_all(tmp_path / "a.zarr")["array"].tolist() == [0] * 1000
    raw, packed = np.random.default_rng(0).bytes(3000) + bytes(1000), pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as out:  # writes no size
        out.write(raw)
    chunk.write_bytes(packed.getvalue().to_pybytes())
    assert read_all(tmp_path / "a.zarr")["array"].tolist() == np.frombuffer(raw, "<i4").tolist()
    more = ((131072 << 3) | 2).to_bytes(3, "little") + b"\0"
    chunk.write_bytes(head + more * 9000 + run)
    with (
        open_container(tmp_path / "a.zarr") as container,
        pytest.raises(FormatError, match="a chunk in zstd holds"),
    ):
        container.read("array")


@pytest.mark.parametrize("version", [2, 3])
def test_a_chunk_of_texts_holds_no_more_than_are_declared(tmp_path, version):
    filters = {"filters": [numcodecs.VLenUTF8()]} if version == 2 else {}
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=3,
        chunks=(3,),
        dtype="str",
        zarr_format=version,
        compressors=None,
        **filters,
    )
    array[:] = np.array(["a", "b", "c"], dtype=object)
    assert read_all(tmp_path / "a.zarr")["array"] == ["a", "b", "c"]
    chunk = tmp_path / "a.zarr" / ("0" if version == 2 else "c/0")
    chunk.write_bytes((2**31 - 1).to_bytes(4, "little") + chunk.read_bytes()[4:])
    with (
        open_container(tmp_path / "a.zarr") as container,
        pytest.raises(FormatError, match="2,147,483,647 texts; 3"),
    ):
        container.read("array")


@pytest.mark.parametrize("levels", [1, 2, 4, 5, 50])
@pytest.mark.parametrize("where", ["codecs", "index_codecs"])
def test_codecs_are_known_at_any_depth(tmp_path, levels, where):
    store = tmp_path / "a.zarr"
    shutil.copytree(CORPUS / "zarr/y_sharded.zarr", store)
    meta = json.loads((store / "zarr.json").read_text())
    plain = [{"name": "bytes", "configuration": {"endian": "little"}}]
    inner = [{"name": "numcodecs.pickle"}]
    for _ in range(levels):
        codecs = {"codecs": plain, "index_codecs": plain} | {where: inner}
        inner = [{"name": "sharding_indexed", "configuration": {"chunk_shape": [1], **codecs}}]
    (store / "zarr.json").write_text(json.dumps(meta | {"codecs": inner}))
    what = r"encoded with numcodecs\.pickle" if levels <= 4 else "deeper than 4 levels"
    with open_container(store) as container, pytest.raises(FormatError, match=what):
        container.read("array")


def test_shards_whose_chunks_are_compressed_are_read_and_bounded(tmp_path):
    data = np.arange(64, dtype="i4")
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=64,
        shards=(32,),
        chunks=(8,),
        dtype="i4",
        compressors=zarr.codecs.GzipCodec(),
    )
    array[:] = data
    np.testing.assert_array_equal(read_all(tmp_path / "a.zarr")["array"], data)
    bomb = gzip.compress(bytes(64 << 20))
    index = np.array([[0, len(bomb)]] * 4, "<u8").tobytes()
    (tmp_path / "a.zarr/c/0").write_bytes(
        bomb + index + google_crc32c.value(index).to_bytes(4, "little")
    )
    with (
        open_container(tmp_path / "a.zarr") as container,
        pytest.raises(FormatError, match="a chunk in gzip holds"),
    ):
        container.read("array")


def test_zarr_sees_no_other_metadata_than_those_that_were_checked(tmp_path, monkeypatch):
    """Who exchanges .zarray between the check and the use would choose the codecs, also one that runs code."""
    array = zarr.create_array(
        tmp_path / "a", shape=(4,), chunks=(4,), dtype="f4", zarr_format=2, compressors=None
    )
    array[:] = [1, 2, 3, 4]
    described = zarr_store.read_array_metadata

    def exchanged(folder):
        found = described(folder)
        meta = json.loads((tmp_path / "a/.zarray").read_text())
        (tmp_path / "a/.zarray").write_text(
            json.dumps(meta | {"dtype": "|O", "filters": [{"id": "pickle"}]})
        )
        monkeypatch.setattr(zarr_store, "read_array_metadata", described)
        return found

    store = zarr_store._ZarrStore(tmp_path / "a")
    monkeypatch.setattr(zarr_store, "read_array_metadata", exchanged)
    assert store._decoded(store._root).tolist() == [1, 2, 3, 4]
    with pytest.raises(FormatError, match="pickle"):
        store._decoded(store._root)


@pytest.mark.parametrize("text", ["x", "{}", '{"zarr_format": 3}'])
def test_a_group_names_its_version(tmp_path, text):
    (tmp_path / ".zgroup").write_text(text)
    with pytest.raises(FormatError):
        zarr_store._ZarrStore(tmp_path)


def test_a_store_without_an_array_is_none(tmp_path):
    (tmp_path / ".zgroup").write_text('{"zarr_format": 2}')
    with pytest.raises(FormatError, match="holds no array"):
        zarr_store._ZarrStore(tmp_path).names()


@pytest.mark.parametrize("kind", ["[]", "{}", "null", '"folder"'])
def test_a_node_of_no_known_type_is_refused(tmp_path, kind):
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=3)
    group.create_array("x", data=np.arange(3.0))
    (tmp_path / "a.zarr/x/zarr.json").write_text(f'{{"zarr_format": 3, "node_type": {kind}}}')
    with open_container(tmp_path / "a.zarr") as container:
        assert container.names() == ["x"]
        with pytest.raises(FormatError):
            container.read("x")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_stale_consolidated_metadata_are_refused_as_zarr_reads_by_them(tmp_path, version):
    path = tmp_path / "a.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    made = group.create_group("demo").create_array("x", data=np.arange(6.0).reshape(3, 2))
    group.create_array("still", data=np.arange(2.0))
    zarr.consolidate_metadata(str(path), zarr_format=version)
    with open_container(path) as container:
        assert container.read("demo/x").tolist() == [[0, 1], [2, 3], [4, 5]]
    made.append(np.full((2, 2), 9.0))
    assert zarr.open_group(str(path), mode="r", zarr_format=version)["demo/x"].shape == (3, 2)
    with open_container(path) as container:
        for read in (container.read, lambda name: container.read_rows(name, 0, 2)):
            with pytest.raises(
                FormatError, match=r"metadata say shape \[3, 2\], the array\'s own \[5, 2\]"
            ):
                read("demo/x")
        assert container.read("still").tolist() == [0, 1]
    zarr.consolidate_metadata(str(path), zarr_format=version)
    with open_container(path) as container:
        assert container.read("demo/x").tolist() == [[0, 1], [2, 3], [4, 5], [9, 9], [9, 9]]


SCALED = {"id": "fixedscaleoffset", "offset": 0, "scale": 0.001, "dtype": "<f4", "astype": "<f4"}
TURNED = {"name": "transpose", "configuration": {"order": [1, 0]}}


@pytest.mark.parametrize(
    ("version", "key", "change"),
    [
        (2, "fill_value", lambda said: said.update(fill_value="NaN")),
        (2, "filters", lambda said: said.update(filters=[SCALED])),
        (2, "dimension_separator", lambda said: said.update(dimension_separator="/")),
        (2, "compressor", lambda said: said.update(compressor={"id": "zlib", "level": 1})),
        (3, "fill_value", lambda said: said.update(fill_value="NaN")),
        (3, "codecs", lambda said: said.update(codecs=[TURNED, *said["codecs"]])),
        (
            3,
            "chunk_key_encoding",
            lambda said: said["chunk_key_encoding"]["configuration"].update(separator="."),
        ),
        (3, None, lambda said: said.update(codecs=[{"name": "own.code"}, *said["codecs"]])),
    ],
)
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_consolidated_metadata_that_give_other_values_are_refused(tmp_path, version, key, change):
    path = tmp_path / "a.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    group.create_array(
        "x", shape=(6, 4), chunks=(2, 4), dtype="f4", compressors=None, fill_value=0.5
    )[:4] = 1
    zarr.consolidate_metadata(str(path), zarr_format=version)
    document = path / (".zmetadata" if version == 2 else "zarr.json")
    meta = json.loads(document.read_text())
    said = (
        meta["metadata"]["x/.zarray"]
        if version == 2
        else meta["consolidated_metadata"]["metadata"]["x"]
    )
    with open_container(path) as container:
        assert container.read("x").mean() == np.float32(5 / 6)
    change(said)
    document.write_text(json.dumps(meta))
    why = (
        f"consolidated metadata say {key} "
        if key
        else "encoded with own.code, which is not read here"
    )
    with open_container(path) as container, pytest.raises(FormatError, match=why):
        container.read("x")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_consolidated_metadata_of_a_group_within_count_too(tmp_path, version):
    path = tmp_path / "a.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=version).create_group("data")
    group.create_array("x", shape=(6,), chunks=(2,), dtype="f4", fill_value=0.5)[:4] = 1
    zarr.consolidate_metadata(str(path / "data"), zarr_format=version)
    document = path / "data" / (".zmetadata" if version == 2 else "zarr.json")
    document.write_text(document.read_text().replace("0.5", '"NaN"'))
    assert np.isnan(zarr.open_group(str(path / "data"), mode="r")["x"][:]).sum() == 2
    with (
        open_container(path) as container,
        pytest.raises(FormatError, match="metadata say fill_value"),
    ):
        container.read("data/x")


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_consolidated_metadata_within_those_of_a_group_count_too(tmp_path):
    path = tmp_path / "a.zarr"
    group = (
        zarr.open_group(str(path), mode="w", zarr_format=3)
        .create_group("data")
        .create_group("deep")
    )
    group.create_array("x", shape=(6,), chunks=(2,), dtype="f4", fill_value=0.5)[:4] = 1
    inner = ("", "data", "data/deep", "data/deep/x")
    root, data, deep, array = (
        json.loads((path / place / "zarr.json").read_text()) for place in inner
    )
    inline = {"kind": "inline", "must_understand": False}
    deep["consolidated_metadata"] = inline | {"metadata": {"x": array | {"fill_value": "NaN"}}}
    root["consolidated_metadata"] = inline | {"metadata": {"data": data, "data/deep": deep}}
    (path / "zarr.json").write_text(json.dumps(root))
    assert np.isnan(zarr.open_group(str(path), mode="r")["data/deep/x"][:]).sum() == 2
    with (
        open_container(path) as container,
        pytest.raises(FormatError, match="metadata say fill_value"),
    ):
        container.read("data/deep/x")


def test_consolidated_metadata_of_the_other_version_are_refused(tmp_path):
    """zarr reads the array that the root says, whatever documents lie in its folder."""
    path = tmp_path / "a.zarr"
    zarr.open_group(str(path), mode="w", zarr_format=2).create_array("x", data=np.ones(4, "f4"))
    zarr.consolidate_metadata(str(path), zarr_format=2)
    shutil.rmtree(path / "x")
    zarr.create_array(str(path / "x"), data=np.zeros(4, "f4"), zarr_format=3)
    with (
        open_container(path) as container,
        pytest.raises(FormatError, match="metadata say zarr_format 2"),
    ):
        container.read("x")


@pytest.mark.parametrize(("version", "fill"), [(2, np.nan), (3, np.nan), (2, None), (2, 0), (3, 0)])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_consolidated_metadata_with_defaults_filled_in_are_no_others(tmp_path, version, fill):
    path = tmp_path / "a.zarr"
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    group.create_array("x", shape=(6,), chunks=(2,), dtype="f8", fill_value=fill)[:] = 1
    own = path / "x" / (".zarray" if version == 2 else "zarr.json")
    meta = json.loads(own.read_text())
    meta.pop("dimension_separator", None)  # which has a default
    if version == 3:
        for codec in meta["codecs"]:
            if codec["name"] == "zstd":
                codec["configuration"].pop("checksum", None)
    own.write_text(json.dumps(meta))
    zarr.consolidate_metadata(str(path), zarr_format=version)
    with open_container(path) as container:
        assert container.read("x").tolist() == [1] * 6


@pytest.mark.parametrize("place", ["", "x"])
def test_documents_of_both_versions_are_refused(tmp_path, place):
    """zarr-python 3 reads by zarr.json, zarr-python 2 by the others: each other numbers."""
    zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=2).create_array(
        "x", data=np.ones(3, "f4")
    )
    more = zarr.open_group(tmp_path / "b.zarr", mode="w", zarr_format=3)
    more.create_array("x", data=np.ones(3, "f4"))
    shutil.copy(
        tmp_path / "b.zarr" / place / "zarr.json", tmp_path / "a.zarr" / place / "zarr.json"
    )
    with pytest.raises(
        FormatError, match=r"beside zarr\.json: versions 2 and 3 of zarr read different arrays"
    ):
        read_all(tmp_path / "a.zarr")


CHUNK_PATHS = [
    ("7.0", "outside of the shape"),
    ("2.1", "outside of the shape"),
    *((name, "no chunk") for name in ("02.0", "\N{ARABIC-INDIC DIGIT TWO}.0", "2.0.0", "2", "2/0")),
]


@pytest.mark.parametrize(("name", "reason"), CHUNK_PATHS)
def test_a_chunk_at_a_path_that_zarr_does_not_read_is_refused(tmp_path, name, reason):
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(40, 3), chunks=(10, 3), dtype="f4", fill_value=0, zarr_format=2
    )
    array[:] = np.ones((40, 3))
    assert read_all(tmp_path / "a.zarr")["array"].sum() == 120
    (tmp_path / "a.zarr" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "a.zarr/2.0").rename(tmp_path / "a.zarr" / name)
    with pytest.raises(FormatError, match=reason):
        read_all(tmp_path / "a.zarr")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("shape", [(), (0,), (25,), (13, 4, 5)])
def test_chunks_of_any_number_of_axes_are_found_by_their_paths(tmp_path, version, separator, shape):
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=shape,
        chunks=tuple(min(2, max(size, 1)) for size in shape),
        dtype="i4",
        zarr_format=version,
        chunk_key_encoding={"name": "v2" if version == 2 else "default", "separator": separator},
    )
    data = np.arange(1, 1 + np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    array[...] = data
    np.testing.assert_array_equal(read_all(tmp_path / "a.zarr")["array"], data)
