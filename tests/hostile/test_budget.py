"""Slow and large attacks among good files: all that is good is judged, all that is not is named, nothing is read twice.

`scripts/bench/faults/attacks.py` makes the attacks, and measures what fifty of each cost.
"""

import importlib.util
import io
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import zarr

from datacheck.errors import FormatError
from datacheck.formats import hdf5, jsonl, limits, zarr_store
from datacheck.formats.base import open_container
from datacheck.formats.limits import FIELDS
from datacheck.scan import measuring
from datacheck.scan.run import run_scan
from datacheck.scan.scan_run import Request
from datacheck.schema.load import parse_schema
from datacheck.sources import Item, listing, open_source
from datacheck.sources import fields as fields_module
from datacheck.sources.fields import FieldMap
from datacheck.workers import budget, parallel

PLACE = Path(__file__).parents[2] / "scripts" / "bench" / "faults" / "attacks.py"


@pytest.fixture(scope="module")
def attacks():
    spec = importlib.util.spec_from_file_location("attacks", PLACE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["attacks"] = module
    spec.loader.exec_module(module)
    return module


def scanned(folder, schema, **options):
    return run_scan(parse_schema(schema), Request(folder, output=folder.parent / "run", **options))


SLOW = {  # minutes to write, or to read within their budget
    "npz of 4 GB of zeros",
    "npz of 900 MB of zeros",
    "npz of 100,000 members",
    "JSON lines, gzip of 20 million",
    "JSON lines, gzip of one line of 10 GB",
    "JSON, gzip of 1 GB",
    "MDS, zstd of 1 GB",
    "MDS of 2 million samples",
    "Zarr, bz2 chunk of 1 GB",
    "Zarr, gzip chunk of 4 GB",
    "JSON of 40 MB of empty lists",
    "YAML of 800,000 keys",
    "YAML aliases to 19 million",
    "HDF5, 4 GB of zeros in gzip",
    "HDF5, a chunk that unpacks to more",
    "HDF5 of 300,000 groups",
    "HDF5 of 100,000 datasets",
    "HDF5 of 60,000 attributes",
    "pickle of 800,000 keys",
    "PNG of 13,000 x 13,000",
    "JPEG 2000",
    "PLY of 2 million empty lists",
    "PCD, LZF of 250 MB",
    "Parquet of 500 million zeros",
    "Parquet of one text, 20 million times",
    "Parquet of 10,000 columns",
    "tar of 100,000 members",
    "text of one line of 30 MB",
    "OBJ of one face of 5 million corners",
    "companion pipe",
    "companion device",
    "companion outside",
}
READ = {
    "Zarr of 900,000 absent chunks",
    "Zarr, rows of 900,000 absent chunks",
    "JSON lines of 100,000 keys each",
    "PLY of vertices without properties",
    "PLY of 3,000 properties",
}


def test_every_attack_among_good_files_is_named_and_every_good_file_is_judged(attacks, tmp_path):
    kinds = [name for name in attacks.KINDS if name not in SLOW]
    assert {*SLOW, *READ} <= set(attacks.KINDS)
    folder = tmp_path / "data"
    folder.mkdir()
    attacks.fill(folder, kinds, 2, 24)
    table = scanned(folder, attacks.SCHEMA, workers=1).table
    status = {}
    for file, one in zip(table.files, table.status.tolist(), strict=True):
        status.setdefault(file, set()).add(one)
    assert {status[file.name] == {0} for file in folder.glob("good_*")} == {True}
    read = {
        file.name.rpartition("_")[0] for file in folder.iterdir() if 0 in status.get(file.name, ())
    }
    hostile = {name.replace(" ", "-") for name in kinds}
    assert read & hostile <= {name.replace(" ", "-") for name in READ}
    assert {name for name in hostile if not any(file.startswith(name) for file in status)} == set()


def test_a_json_document_of_one_line_takes_few_reads(tmp_path, monkeypatch):
    class Counted(io.RawIOBase):
        reads = 0

        def __init__(self, file):
            self.file = file

        def readable(self):
            return True

        def readinto(self, buffer):
            type(self).reads += 1
            return self.file.readinto(buffer)

        def close(self):
            self.file.close()
            super().close()

    (tmp_path / "a.json").write_text(json.dumps({f"k{number}": number for number in range(20_000)}))
    opened = jsonl._opened
    monkeypatch.setattr(jsonl, "_opened", lambda path: Counted(opened(path)))
    assert jsonl.document(tmp_path / "a.json")["k19999"] == 19_999
    assert Counted.reads < 10


def test_lines_as_one_value_are_what_they_are_one_by_one_and_not_too_many(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    for deep, refused in ((250, False), (252, False), (253, True)):
        path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n' + b"[" * deep + b"]" * deep + b"\n")
        if refused:
            with pytest.raises(FormatError, match=r"line 3 .*nested more than 250 deep"):
                jsonl.records(path)
        else:
            assert jsonl.records(path)[0] == {"a": 1}
    path.write_bytes(b"1\n" * 10)
    monkeypatch.setattr(jsonl, "_RECORDS", 9)
    with pytest.raises(FormatError, match="more than 9 lines as one value"):
        jsonl.records(path)


def test_a_file_of_too_many_values_is_one_finding_and_a_field_that_the_schema_names_is_read(
    tmp_path,
):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.json").write_text(
        json.dumps({f"k{number}": number for number in range(FIELDS + 1)})
    )
    (tmp_path / "data/b.json").write_text(
        json.dumps({f"k{number}": number for number in range(100)})
    )
    table = scanned(
        tmp_path / "data", "datacheck: 1\nname: s\nsamples: {files: '*.json'}\nfields: {'*': {}}\n"
    ).table
    reasons = dict(zip(table.files, table.reasons, strict=True))
    assert reasons == {
        "a.json": "DC101 holds 30,001 values; at most 30,000 are read as one sample",
        "b.json": "",
    }
    named = "datacheck: 1\nname: s\nsamples: {files: '*.json'}\nfields: {k7: {}}\n"
    assert set(scanned(tmp_path / "data", named).table.reasons) == {""}


@pytest.mark.parametrize("fields", ["'*': {}", "other: {}"])
def test_no_object_of_an_hdf5_file_of_too_many_is_opened(tmp_path, monkeypatch, fields):
    for module in (limits, hdf5, fields_module):
        monkeypatch.setattr(module, "FIELDS", 20)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(41):
            file[f"inner/k{number}"] = 1.0
        file["other"] = 2.0
    opened = []
    inner = hdf5._Hdf5._object
    monkeypatch.setattr(
        hdf5._Hdf5, "_object", lambda self, *at: (opened.append(at[0]), inner(self, *at))[1]
    )
    parsed = parse_schema(
        f"datacheck: 1\nname: s\nsamples: {{files: '*.h5'}}\nfields: {{{fields}}}\n"
    )
    with open_container(tmp_path / "a.h5") as container:
        if "other" in parsed.fields:
            assert list(FieldMap(parsed).read(container)) == ["other"]
            assert FieldMap(parsed).unlisted(container, (0, 0)) == ({}, [])
        else:
            with pytest.raises(
                FormatError, match="holds 43 objects or more; at most 20 are read as one sample"
            ):
                FieldMap(parsed).read(container)
    assert not [name for name in opened if name.startswith("inner/")]


def test_groups_within_groups_of_an_hdf5_file_are_counted_before_they_are_opened(
    tmp_path, monkeypatch
):
    """300 groups of 1,000 groups each: 300 are opened, not 60,000."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for outer in range(30):
            for inner in range(40):
                file.create_group(f"g{outer}/g{inner}")
    for module in (limits, hdf5):
        monkeypatch.setattr(module, "FIELDS", 100)
    opened = []
    inner_object = hdf5._Hdf5._object
    monkeypatch.setattr(
        hdf5._Hdf5, "_object", lambda self, *at: (opened.append(at[0]), inner_object(self, *at))[1]
    )
    with open_container(tmp_path / "a.h5") as container:
        assert container.least() == 30 + 30 * 40
    assert len(opened) == 30


@pytest.mark.parametrize("ending", ["npz", "mds", "tar"])
def test_how_many_values_a_shard_holds_is_known_before_they_are_looked_at(
    attacks, tmp_path, ending
):
    path = (
        attacks.good(tmp_path, list(attacks.GOOD).index(ending))
        if ending in attacks.GOOD
        else tmp_path / "a.mds"
    )
    if ending == "mds":
        config = b'{"version":2,"format":"mds","column_names":["a"],"column_encodings":["uint8"],"column_sizes":[1]}'
        stops = np.arange(20 + len(config), 20 + len(config) + 3, dtype="<u4")
        path.write_bytes(
            np.uint32(2).tobytes() + stops.tobytes() + b"    " + config.replace(b" ", b"") + b"\1\2"
        )
    with open_container(path) as container:
        assert isinstance(container, limits.CountedContainer)
        assert container.least() == len(container.names()) > 0


def test_records_without_common_names_become_no_table_of_all_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(fields_module, "_CELLS", 1000)
    monkeypatch.setattr(limits, "FIELDS", 50)
    (tmp_path / "data").mkdir()
    lines = [json.dumps({f"k{line}_{number}": number for number in range(9)}) for line in range(40)]
    (tmp_path / "data/a.jsonl").write_text("\n".join(lines))
    schema = "datacheck: 1\nname: s\nsamples: {files: '*.jsonl', each: line}\nfields: {'*': {}}\n"
    table = scanned(tmp_path / "data", schema, workers=1).table
    assert table.status.tolist() == [0] * 40


@pytest.mark.parametrize("version", [2, 3])
def test_of_a_zarr_array_of_absent_chunks_only_the_others_are_asked_for(
    tmp_path, monkeypatch, version
):
    monkeypatch.setattr(zarr_store, "_ABSENT", 3)
    for number, (shape, chunks, dtype, fill) in enumerate(
        [((50, 7), (3, 2), "f4", 1.5), ((60,), (1,), "i8", -3), ((40, 4, 3), (2, 4, 2), "u1", 9)]
    ):
        path = tmp_path / f"{number}.zarr"
        array = zarr.create_array(
            path, shape=shape, chunks=chunks, dtype=dtype, zarr_format=version, fill_value=fill
        )
        array[10:12] = 5
        array[-1] = 7
        asked = []
        read = zarr.storage.LocalStore.get

        async def counted(store, key, *how, read=read, asked=asked, **more):
            asked.append(key)
            return await read(store, key, *how, **more)

        expected = array[...]
        with monkeypatch.context() as patch, open_container(path) as container:
            patch.setattr(zarr.storage.LocalStore, "get", counted)
            np.testing.assert_array_equal(container.read("array"), expected)
            for start, stop in ((0, 5), (9, 14), (shape[0] - 3, shape[0] + 4), (5, 5)):
                np.testing.assert_array_equal(
                    container.read_rows("array", start, stop), expected[start:stop]
                )
        present = len(
            [p for p in path.rglob("*") if p.is_file() and not p.name.startswith((".", "zarr"))]
        )
        chunk_reads = [
            key for key in asked if not key.endswith((".zarray", ".zattrs", "zarr.json", ".zgroup"))
        ]
        assert len(set(chunk_reads)) <= present


def test_the_coordinator_digests_nothing_of_what_killed_a_child(tmp_path, monkeypatch):
    (tmp_path / "a.npy").write_bytes(b"x")
    monkeypatch.setattr(
        listing, "digest_file", lambda *_: pytest.fail("the coordinator reads a file")
    )
    job = SimpleNamespace(source=SimpleNamespace(root=tmp_path, roots={}))
    ((path, *_, digest),) = measuring._undigested_entries(job, ["a.npy"])
    assert (path, digest) == ("a.npy", "")


def test_a_sample_of_too_many_fields_is_refused_by_number():
    with pytest.raises(FormatError, match="30,001 values"):
        limits.check_fields(FIELDS + 1)
    limits.check_fields(FIELDS)


def test_a_file_that_ends_by_a_limit_is_tried_once_however_many_links_lead_to_it(
    tmp_path, monkeypatch
):
    """24 links to one file that takes a minute held a scan for 24 minutes and more."""
    monkeypatch.setattr(budget, "FIRST", budget.ItemBudget(64 << 20, 3.0, 500e3))
    monkeypatch.setattr(parallel, "WHOLE", budget.ItemBudget(96 << 20, 10.0, 100e3))
    folder = tmp_path / "data"
    folder.mkdir()
    # Else it is refused for its packing
    noise = np.random.default_rng(0).integers(0, 256, (3 << 19,), np.uint8)
    np.savez_compressed(folder / "a.npz", x=np.concatenate([noise, np.zeros(256 << 20, np.uint8)]))
    np.savez(folder / "good.npz", x=np.arange(8, dtype=np.uint8))
    for number in range(12):
        (folder / f"hard_{number}.npz").hardlink_to(folder / "a.npz")
        (folder / f"soft_{number}.npz").symlink_to("a.npz")
    copy = folder / "other.npz"
    copy.write_bytes((folder / "a.npz").read_bytes())
    table = scanned(
        folder, "datacheck: 1\nname: t\nsamples: {files: '*.npz'}\nfields: {'*': {}}\n", workers=1
    ).table
    said = dict(zip(table.files, table.reasons, strict=True))
    assert (said.pop("good.npz"), len(said)) == ("", 26)
    tried = {
        file: reason
        for file, reason in said.items()
        if "not read, as it is the same file as a.npz: " not in reason
    }
    assert sorted(tried) == ["a.npz", "other.npz"]  # a copy may be another file
    assert all("needs more than " in reason for reason in said.values())


@pytest.mark.parametrize(
    "odd", ["a copy", "another format", "other files beside it", "another split", "another part"]
)
def test_only_links_to_one_file_read_with_equal_files_read_the_same(tmp_path, odd):
    """A sample that shares a file with a bad one may be good."""
    files = "samples: {files: '{split}/{id}.*'}\nfields: {x: {}, y: {file: 'y/{id}.npy'}}\n"
    (tmp_path / "y").mkdir()
    (tmp_path / "train").mkdir()
    for name in ("a", "b"):
        np.save(tmp_path / f"y/{name}.npy", np.zeros(3))
    first = tmp_path / "train/a.npz"
    np.savez(first, x=np.zeros(3))
    (tmp_path / "train/b.npz").hardlink_to(first)
    (tmp_path / "train/b.txt").hardlink_to(first)
    source = open_source(parse_schema(f"datacheck: 1\nname: t\n{files}"), tmp_path)
    one = Item("train/a.npz", "train", {"split": "train", "id": "a"}, nbytes=first.stat().st_size)
    other = replace(one, path="train/b.npz", names={"split": "train", "id": "b"})
    assert measuring.item_bytes(source, one.as_dict()) != measuring.item_bytes(
        source, other.as_dict()
    )  # y is another file
    # As a worker that does not see the files
    elsewhere = open_source(source.schema, tmp_path / "elsewhere")
    assert measuring.item_bytes(elsewhere, one.as_dict()) != measuring.item_bytes(
        elsewhere, other.as_dict()
    )
    (tmp_path / "y/b.npy").unlink()
    (tmp_path / "y/b.npy").symlink_to("a.npy")
    assert measuring.item_bytes(source, one.as_dict()) == measuring.item_bytes(
        source, other.as_dict()
    )
    if odd == "a copy":
        (tmp_path / "train/b.npz").unlink()
        shutil.copy2(first, tmp_path / "train/b.npz")
    elif odd == "other files beside it":
        (tmp_path / "y/b.npy").unlink()
    changed = {
        "another format": {"path": "train/b.txt"},
        "another split": {"split": "val"},
        "another part": {"part": (0, 9, 0)},
    }
    other = replace(other, **changed.get(odd, {}))
    assert measuring.item_bytes(source, one.as_dict()) != measuring.item_bytes(
        source, other.as_dict()
    )
