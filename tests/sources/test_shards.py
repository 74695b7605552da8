"""Shards that other libraries wrote: their samples, and caches made of them, have the values that went in."""

from __future__ import annotations

import io
import json
import shutil
import struct
import tarfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datacheck.cache import open_cache
from datacheck.errors import FormatError
from datacheck.formats.base import open_container
from datacheck.formats.mds import named_shards
from datacheck.pipeline import build
from datacheck.scan import Request, run_scan, scan
from datacheck.schema.load import load_schema
from datacheck.schema.model import Schema
from datacheck.sources import (
    Item,
    indexes,
    list_files,
    named_files,
    open_source,
    plan_work,
    with_indexes,
)
from datacheck.workers.parallel import Death, TaskResult
from tests.formats.reading import CORPUS
from tests.sources.schemas import every, schema

FIELDS = {
    "points": {"at": "points.npy", "shape": ["P", 3], "dtype": "float32"},
    "label": {"at": "cls", "shape": []},
    "caption": {"at": "txt", "dtype": "text"},
    "scene": {"at": "json/scene", "dtype": "text"},
    "rotation": {"at": "pose.npz/r", "shape": [3, 3]},
    "joints": {"at": "pyd/joints", "shape": ["J", 3]},
}


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
    samples, unread = every(
        open_source(schema({"files": "*.tar", "each": "key"}, FIELDS), shards), item(path)
    )
    assert unread == []
    assert list(samples) == [f"{path.name}:/train/000{i}" for i in range(3)]
    for i, sample in enumerate(samples.values()):
        assert np.array_equal(sample["points"], points(i))
        assert (sample["label"], sample["caption"], sample["scene"]) == (
            3 * i,
            f"cup {i}, café",
            f"scene000{i}",
        )
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
    samples, unread = every(
        open_source(schema({"files": "*.tar", "each": "key"}, FIELDS), shards), item(path)
    )
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


# ---------------------------------------------------------------------------------------------- MDS

MDS = Path(__file__).parent / "mds"
COLUMNS = {
    "points": {"shape": ["P", 3], "dtype": "float32"},
    "rows": {"shape": ["R"]},
    "any": {"shape": ["A", 2]},
    "label": {"shape": []},
    "caption": {"dtype": "text"},
    "about": {"dtype": "json"},
    "raw": {"shape": [2]},
    "weight": {"shape": []},
    "code": {"shape": []},
    "ratio": {"shape": []},
    "pickled": {"shape": [3]},
    "big": {"shape": []},
    "picture": {"shape": [2, 4, 3]},
}
MDS_SCHEMA = {"samples": {"files": ["*.mds", "*.mds.zstd"], "each": "key"}, "fields": COLUMNS}


@pytest.fixture
def mds(tmp_path, request):
    """What Streaming's MDSWriter wrote of the samples, and the shards in their order."""
    shutil.copytree(MDS / request.param, tmp_path / "data")
    return tmp_path / "data", sorted((tmp_path / "data").glob("shard*"))


@pytest.mark.parametrize("mds", ["plain", "zstd"], indirect=True)
def test_mds_samples_have_the_values_that_streaming_was_given(mds):
    folder, paths = mds
    source = open_source(schema(**MDS_SCHEMA), folder)
    found = [every(source, item(path)) for path in paths]
    assert [unread for _, unread in found] == [[], []]
    assert [key for samples, _ in found for key in samples] == [
        f"{path.name}:/{number:012d}"
        for path, count in zip(paths, (4, 1), strict=True)
        for number in range(count)
    ]
    for i, sample in enumerate(sample for samples, _ in found for sample in samples.values()):
        assert np.array_equal(sample["points"], points(i))
        assert (sample["rows"].dtype, sample["rows"].tolist()) == (
            np.int64,
            [i * n for n in range(i + 1)],
        )
        assert (sample["any"].dtype, sample["any"].tolist()) == (np.float16, [[i] * 2] * (i + 1))
        assert (sample["label"], sample["caption"]) == (3 * i, f"cup {i}, café")
        assert sample["about"] == {"scene": f"scene000{i}", "size": [i, i + 1], "weight": i / 4}
        assert (sample["weight"], sample["code"], sample["ratio"], sample["big"]) == (
            i / 4,
            -i,
            i / 8,
            60_000 + i,
        )
        assert sample["raw"].tolist() == [i, 255]
        assert sample["pickled"].tolist() == [i] * 3
        assert (sample["picture"] == [i, 2, 3]).all()


@pytest.mark.parametrize("mds", ["plain", "zstd"], indirect=True)
def test_a_cache_of_mds_shards_has_their_values(mds, tmp_path):
    folder, _ = mds
    run = scan(folder)
    assert (run.schema.name, run.codes) == ("mds", [()] * 5)
    (built,) = build(schema(**MDS_SCHEMA), folder, tmp_path / "cache")
    assert (built.samples, built.valid) == (5, 5)
    cache = open_cache(built.path, verify="full")
    assert np.array_equal(
        cache.gather_ragged("points", np.arange(5))[0],
        np.concatenate([points(i) for i in range(5)]),
    )
    assert cache.gather("big", np.arange(5)).tolist() == [60_000, 60_001, 60_002, 60_003, 60_004]
    assert cache.texts("caption", [4]) == ["cup 4, café"]


def indexed(folder, change):
    path = folder / "index.json"
    said = json.loads(path.read_text())
    change(said["shards"][0])
    path.write_text(json.dumps(said))


INDEX = {
    "its sha1 is [0-9a-f]{40}, but index.json says 00": lambda s: s["raw_data"]["hashes"].update(
        sha1="00"
    ),
    "its xxh64 is [0-9a-f]{16}, but index.json says None": lambda s: s["raw_data"]["hashes"].update(
        xxh64=None
    ),
    "declares the hash 'md6', which is not known": lambda s: s["raw_data"]["hashes"].update(
        md6="00"
    ),
    "2,438 bytes, but index.json says 9": lambda s: s["raw_data"].update(bytes=9),
    "index.json says samples 5, but the shard has 4": lambda s: s.update(samples=5),
    r"index.json says column_names \[.*, but the shard has \[": lambda s: s[
        "column_names"
    ].reverse(),
    r"index.json says column_encodings \[.*, but the shard has \[": lambda s: s[
        "column_encodings"
    ].reverse(),
    r"index.json says column_sizes \[4, .*, but the shard has \[": lambda s: s.update(
        column_sizes=[4] * len(s["column_sizes"])
    ),
    "index.json says version 1, but the shard has 2": lambda s: s.update(version=1),
    "index.json in its folder does not list it": lambda s: s["raw_data"].update(
        basename="shard.00007.mds"
    ),
}


@pytest.mark.parametrize("reason", INDEX)
@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_a_shard_that_its_index_contradicts_is_refused(mds, reason):
    folder, paths = mds
    indexed(folder, INDEX[reason])
    with pytest.raises(FormatError, match=reason):
        every(open_source(schema(**MDS_SCHEMA), folder), item(paths[0]))


@pytest.mark.parametrize("mds", ["plain", "zstd"], indirect=True)
def test_a_flipped_bit_anywhere_in_a_shard_is_seen_by_its_hash(mds):
    folder, paths = mds
    data = paths[1].read_bytes()
    for place in range(0, len(data), 61):
        paths[1].write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(FormatError, match=r"its sha1 is"):
            every(open_source(schema(**MDS_SCHEMA), folder), item(paths[1]))


@pytest.mark.parametrize("name", ["", "./", "a/../"])
@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_a_shard_that_its_index_names_twice_is_refused(mds, name):
    folder, paths = mds
    said = json.loads((folder / "index.json").read_text())
    other = {**said["shards"][0], "samples": 500}
    said["shards"].append(
        {**other, "raw_data": {**other["raw_data"], "basename": name + "shard.00000.mds"}}
    )
    (folder / "index.json").write_text(json.dumps(said))
    with pytest.raises(FormatError, match="lists it 2 times, so Streaming reads it as often"):
        every(open_source(schema(**MDS_SCHEMA), folder), item(paths[0]))
    assert every(open_source(schema(**MDS_SCHEMA), folder), item(paths[1]))


@pytest.mark.parametrize("each", ["key", None])
@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_the_index_is_among_the_files_of_a_shard_whatever_its_samples_are(mds, each):
    folder, paths = mds
    samples = {"files": "*.mds"} | ({"each": each} if each else {})
    files = Schema.model_validate(
        {"datacheck": 1, "name": "m", "samples": samples, "fields": {"*": {}}}
    )
    assert open_source(files, folder).files(item(paths[0])) == ["shard.00000.mds", "index.json"]


@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_the_index_is_among_the_files_of_a_shard(mds):
    """So that a scan looks again when only it has changed."""
    folder, paths = mds
    source = open_source(schema(**MDS_SCHEMA), folder)
    assert source.files(item(paths[0])) == ["shard.00000.mds", "index.json"]
    (folder / "index.json").unlink()
    assert source.files(item(paths[0])) == ["shard.00000.mds"]
    assert len(every(source, item(paths[0]))[0]) == 4


@pytest.mark.parametrize("mds", ["plain", "zstd"], indirect=True)
def test_a_shard_that_is_gone_is_named(mds, tmp_path):
    folder, paths = mds
    paths[1].unlink()
    run = scan(folder)
    (finding,) = run.report.findings
    assert finding.code == "DC105"
    assert finding.measured["missing"] == ["shard.00001.mds"]
    assert run.table.reasons[-1] == "DC105 index.json names it (1 samples), but it is gone"
    assert not any("no sample uses" in said for said in run.report.unchecked)
    assert scan(paths[0]).codes == [()] * 4  # one file alone misses no other


@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_a_shard_that_is_packed_in_another_way_is_no_missing_one(mds):
    folder, paths = mds
    paths[0].rename(folder / "shard.00000.mds.gz")
    indexed(folder, lambda shard: shard.update(zip_data={"basename": "shard.00000.mds.gz"}))
    run = scan(folder)
    assert run.codes[0] == ("DC101",)
    assert run.table.reasons[0].endswith(
        "but only shard.00000.mds.gz is there, packed in a way that is not read"
    )


@pytest.mark.parametrize("mds", ["zstd"], indirect=True)
def test_a_shard_that_lies_there_plain_and_packed_counts_once(mds):
    """So Streaming leaves them with keep_zip; it reads the plain one."""
    folder, _ = mds
    for path in (MDS / "plain").glob("shard*"):
        shutil.copy(path, folder)
    assert {key.partition(":")[0] for key in scan(folder).table.keys} == {
        "shard.00000.mds",
        "shard.00001.mds",
    }


@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_an_index_that_is_no_json_is_named(mds):
    folder, paths = mds
    (folder / "index.json").write_text("{")
    with pytest.raises(FormatError, match=r"index\.json: not JSON"):
        every(open_source(schema(**MDS_SCHEMA), folder), item(paths[0]))


@pytest.mark.parametrize("name", [[], {}, 7, None, "../shard.00000.mds", "\0"])
@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_an_index_with_a_name_that_is_none_is_no_crash(mds, name):
    folder, paths = mds
    indexed(folder, lambda shard: shard["raw_data"].update(basename=name))
    with pytest.raises(FormatError, match=r"does not list it"):
        every(open_source(schema(**MDS_SCHEMA), folder), item(paths[0]))
    shards, outside = named_shards(folder / "index.json")
    assert [names for names, _ in shards] == [["shard.00001.mds"]]
    assert outside == [name if isinstance(name, str) else ""]


@pytest.mark.parametrize("prefix", ["./", ".//", "sub/../"])
@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_a_shard_that_is_gone_is_named_however_the_index_writes_its_path(mds, prefix):
    """Streaming normalises the path, so the index is valid and the loss must not be hidden."""
    folder, paths = mds
    path = folder / "index.json"
    said = json.loads(path.read_bytes())
    for shard in said["shards"]:
        shard["raw_data"]["basename"] = prefix + shard["raw_data"]["basename"]
    path.write_text(json.dumps(said))
    paths[1].unlink()
    (finding,) = scan(folder).report.findings
    assert finding.code == "DC105"
    assert finding.measured["missing"] == ["shard.00001.mds"]


@pytest.mark.parametrize("name", ["../data/shard.00001.mds", "/shard.00001.mds", ".", 7])
@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_an_index_that_names_shards_outside_of_its_folder_is_an_error(mds, name):
    folder, paths = mds
    path = folder / "index.json"
    said = json.loads(path.read_bytes())
    said["shards"][1]["raw_data"]["basename"] = name
    path.write_text(json.dumps(said))
    paths[1].unlink()
    (finding,) = scan(folder).report.findings
    assert (finding.code, finding.severity) == ("DC105", "error")
    shown = name if isinstance(name, str) else ""
    assert f"1 of 2 shards, such as {shown!r}" in finding.message


def test_columns_that_are_not_read_are_told(tmp_path):
    """Else a cache without them is all that anybody would see of it."""
    write_mds(
        tmp_path / "shard.00000.mds", {"i": "str_int", "q": "pil"}, {"i": ("7", 7), "q": ("raw", 0)}
    )
    pq.write_table(pa.table({"x": [1], "d": [{"a": b"1"}]}), tmp_path / "t.parquet")
    (said,) = (said for said in scan(tmp_path, "mds").report.unchecked if "not read" in said)
    assert said.endswith("not judged (not read, or there are too many): q")
    (said,) = (
        said
        for said in scan(tmp_path / "t.parquet", "files").report.unchecked
        if "not read" in said
    )
    assert said.endswith("not judged (not read, or there are too many): d")


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_unlisted_values_of_a_type_that_is_not_read_are_told(tmp_path, suffix):
    for number in range(2):
        values = {"a": np.full((4, 3), number, "f4"), "raw": np.frombuffer(bytes(6), "V3")}
        if suffix == "npz":
            np.savez(tmp_path / f"{number}.npz", **values)
        else:
            with h5py.File(tmp_path / f"{number}.h5", "w") as file:
                for name, value in values.items():
                    file[name] = value
    spec = schema({"files": f"*.{suffix}"}, {"a": {"shape": ["P", 3]}, "b": {"optional": True}})
    report = scan(tmp_path, spec).report
    (said,) = (said for said in report.unchecked if "not read" in said)
    assert said.endswith("not judged (not read, or there are too many): raw")
    read = report.dataset["read"]
    assert (read["fields_read"], read["fields"]) == (1, 2)


def test_numbers_that_are_written_as_text_are_read_in_one_way_only(tmp_path):
    """A million digits and a letter took a day: each share of them was tried before and behind the point."""
    words = {"i": (str(2**63 - 1), 2**63 - 1), "x": ("-1.5e-07", -1.5e-07), "n": ("-inf", -np.inf)}
    write_mds(
        tmp_path / "shard.00000.mds", {"i": "str_int", "x": "str_float", "n": "str_float"}, words
    )
    with open_container(tmp_path / "shard.00000.mds") as shard:
        assert {name: shard.read(f"{0:012d}/{name}") for name in words} == {
            name: found for name, (_, found) in words.items()
        }
    write_mds(tmp_path / "shard.00001.mds", {"x": "str_float"}, {"x": ("1" * 1_000_000 + "x", 0)})
    with (
        open_container(tmp_path / "shard.00001.mds") as shard,
        pytest.raises(FormatError, match="where a number is expected"),
    ):
        shard.read(f"{0:012d}/x")


def write_mds(path, columns, values):
    """Write a shard of one sample, as the format's description says."""
    sizes = {
        "column_names": list(columns),
        "column_encodings": list(columns.values()),
        "column_sizes": [None] * len(columns),
    }
    head = json.dumps({"version": 2, "format": "mds", **sizes}).encode()
    texts = [values[name][0].encode() for name in columns]
    body = struct.pack(f"<{len(texts)}I", *map(len, texts)) + b"".join(texts)
    start = 12 + len(head)
    path.write_bytes(struct.pack("<III", 1, start, start + len(body)) + head + body)


def test_key_is_for_files_that_have_keys(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with pytest.raises(FormatError, match=r"samples\.each: key is for shards"):
        every(
            open_source(schema({"files": "*.npz", "each": "key"}), tmp_path),
            item(tmp_path / "a.npz"),
        )


@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_an_index_that_names_very_many_absent_files_is_told_in_part(mds, monkeypatch):
    monkeypatch.setattr(indexes, "_MISSING_BYTES", 3 * 200)
    texts = "shard.90000.mds", "index.json names it (4 samples), but it is gone"
    monkeypatch.setattr(indexes, "_A_NOTE", 200 - sum(map(len, texts)))
    folder, _ = mds
    path = folder / "index.json"
    said = json.loads(path.read_bytes())
    shard = said["shards"][0]
    for count, told in ((2, 2), (9, 3)):
        gone = [json.loads(json.dumps(shard)) for _ in range(count)]
        for number, one in enumerate(gone):
            one["raw_data"]["basename"] = f"shard.9{number:04}.mds"
        path.write_text(json.dumps(said | {"shards": [*said["shards"], *gone]}))
        listing, spec = list_files(folder), load_schema("mds")
        notes = with_indexes(plan_work(spec, listing), spec, listing).notes
        assert sum(note.missing for note in notes) == told
        assert any("gone 3 are told" in note.reason for note in notes) == (count == 9)


@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_an_index_on_which_its_reader_dies_is_told(mds, monkeypatch):
    folder, _ = mds
    outcome = TaskResult(
        {}, deaths=[Death({"path": "index.json"}, "needs more than 1 byte of memory")]
    )
    monkeypatch.setattr(indexes, "ordered_map", lambda *_, **__: [outcome])
    listing, spec = list_files(folder), load_schema("mds")
    (note,) = with_indexes(plan_work(spec, listing), spec, listing).notes
    assert (note.code, note.key) == ("DC101", "index.json")
    assert note.reason.endswith(
        "so the files that it names are not missed: needs more than 1 byte of memory"
    )


@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_indexes_share_what_is_looked_for_and_none_is_said_to_name_too_many(mds):
    folder, _ = mds
    shutil.copytree(folder, folder / "again")
    task = {"index": "index.json", "root": str(folder), "roots": {}, "most": 2}
    task["items"] = [{"path": "again/index.json"}, {"path": "index.json"}]
    first, second = named_files.read_named_files(task, lambda _: None)
    count = len(json.loads((folder / "index.json").read_bytes())["shards"])
    assert (len(first["files"]), len(second["files"])) == (min(2, count), max(0, 2 - count))
    (said,) = second["faults"]
    assert said.startswith(
        f"names {count} files, of which {max(0, 2 - count)} are looked for, as the indexes together"
    )


@pytest.mark.parametrize("mds", ["plain"], indirect=True)
def test_an_index_that_names_very_many_files_hides_no_absent_file_of_another(
    mds, tmp_path, monkeypatch
):
    """One index named 240,000 shards: of another none was looked for, and the shard that lacked was green."""
    folder, _ = mds
    for part in ("aaa", "good"):
        shutil.copytree(folder, tmp_path / "data" / part)
    path = tmp_path / "data/aaa/index.json"
    said = json.loads(path.read_bytes())
    said["shards"] += [json.loads(json.dumps(said["shards"][0])) for _ in range(40)]
    for number, one in enumerate(said["shards"][-40:]):
        one["raw_data"]["basename"] = f"shard.9{number:04}.mds"
    path.write_text(json.dumps(said))
    lost = json.loads((tmp_path / "data/good/index.json").read_bytes())["shards"][0]["raw_data"][
        "basename"
    ]
    (tmp_path / "data/good" / lost).unlink()
    monkeypatch.setattr(indexes, "_MOST_MISSING", 20)
    monkeypatch.setattr(indexes, "_MISSING_BYTES", 5 * 200)
    listing, spec = list_files(tmp_path / "data"), load_schema("mds")
    work = with_indexes(plan_work(spec, listing), spec, listing)
    assert f"good/{lost}" in {note.key for note in work.notes if note.missing}
    cut = [note for note in work.notes if note.about.get("kind") == "unsought"]
    assert [note.key for note in cut] == ["aaa/index.json"] * 2
    findings = run_scan(spec, Request(tmp_path / "data", output=tmp_path / "run")).report.findings
    told = [
        one
        for one in findings
        if "as the indexes together name" in one.message or "are told" in one.message
    ]
    assert [(one.code, one.severity.value) for one in told] == [("DC105", "error")] * 2
