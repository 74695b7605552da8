"""The card of a dataset, held against mlcroissant, sha256sum's algorithm and the data."""

import hashlib
import json
import os
import re
from pathlib import Path

import mlcroissant as mlc
import numpy as np
import pytest
import rdflib
from click.testing import CliRunner

import datacheck
from datacheck.cli.main import datacheck as command
from datacheck.cli.main import run as run_command
from datacheck.errors import UsageError
from datacheck.report import croissant
from datacheck.report.croissant import card
from datacheck.runtime import fsops
from datacheck.sources.listing import Listing
from datacheck.sources.roots import Entries, Entry
from tests.integrations.conftest import write_data
from tests.report.hostile import HOSTILE, leaks

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:rdflib", "ignore:.*is deprecated, use:DeprecationWarning"
)

SAID = {
    "license": "CC-BY-4.0",
    "url": "https://example.org/d",
    "creator": "Lin",
    "citeAs": "Lin 2026",
    "datePublished": "2026-11-22",
    "version": "1.0.0",
}
LINES = """
datacheck: 1
name: lines
samples: {files: "*.jsonl", each: line}
fields:
  text: {role: text}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_data(tmp_path)


@pytest.fixture
def done(here):
    return datacheck.scan_dataset("data", "plain.yaml")


def opened(path):
    """The card as mlcroissant reads it; one with an error is none."""
    return mlc.Dataset(str(path))


def warned(dataset):
    return {re.search(r"/(\w+)\"", text)[1] for text in dataset.metadata.ctx.issues.warnings}


def test_every_file_is_there_with_its_sha256(done, here):
    found = json.loads(card(".datacheck").bytes)
    objects = {
        o["contentUrl"]: o["sha256"] for o in found["distribution"] if o["@type"] == "cr:FileObject"
    }
    assert objects == {
        f"{i}.npy": hashlib.sha256((here / f"data/{i}.npy").read_bytes()).hexdigest()
        for i in range(10)
    }


def test_another_reader_of_json_ld_finds_the_same_files_and_what_was_said(done, here):
    graph = rdflib.Graph().parse(data=card(".datacheck", SAID, here).bytes, format="json-ld")
    sc, cr = (
        rdflib.Namespace("https://schema.org/"),
        rdflib.Namespace("http://mlcommons.org/croissant/"),
    )
    (dataset,) = graph.subjects(rdflib.RDF.type, sc.Dataset)
    objects = list(graph.subjects(rdflib.RDF.type, cr.FileObject))
    assert {(dataset, sc.distribution, o) for o in objects} <= {*graph}
    assert {
        str(graph.value(o, sc.contentUrl)): str(graph.value(o, sc.sha256)) for o in objects
    } == {
        f"data/{i}.npy": hashlib.sha256((here / f"data/{i}.npy").read_bytes()).hexdigest()
        for i in range(10)
    }
    assert str(graph.value(dataset, sc.license)) == "CC-BY-4.0"
    assert str(graph.value(dataset, cr.citeAs)) == "Lin 2026"
    (of,) = graph.subjects(sc.name, rdflib.Literal("datacheck/digest", lang="en"))
    assert str(graph.value(of, sc.value)) == done.report.dataset["digest"]


def test_the_verdict_and_the_digest_are_properties(done):
    found = json.loads(card(".datacheck").bytes)
    values = {p["name"]: p["value"] for p in found["additionalProperty"]}
    assert values["datacheck/digest"] == done.report.dataset["digest"]
    assert (
        values["datacheck/verdict"],
        values["datacheck/valid"],
        values["datacheck/failing"],
    ) == ("fail", 9, "DC221")


@pytest.mark.parametrize(
    ("said", "missing"), [(SAID, set()), ({}, {"citeAs", "datePublished", "license", "version"})]
)
def test_mlcroissant_finds_no_error_and_no_warning_where_all_is_said(done, here, said, missing):
    made = card(".datacheck", said, here)
    (here / "croissant.json").write_bytes(made.bytes)
    read = opened(here / "croissant.json")
    assert warned(read) == missing <= {*made.unsaid}
    (records,) = read.metadata.record_sets
    (x,) = records.fields
    assert (x.name, x.is_array, x.array_shape) == ("x", True, "4")
    assert {o.id: o.sha256 for o in read.metadata.file_objects}.keys() == {
        f"file/data/{i}.npy" for i in range(10)
    }


@pytest.mark.parametrize(
    "schema", ["ho3d", "libero", "scannet", "sceneleap", "minimind_sft", "lerobot", "kitti"]
)
def test_every_kind_of_field_is_a_type_of_croissant(schema, here):
    from datacheck.schema.load import load_schema

    fields = {name: spec for name, spec in load_schema(schema).fields.items() if name != "*"}
    (samples,) = croissant._sample_records(fields, [".x"])
    whole = {
        "@context": croissant._CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": schema,
        "description": "d",
        "url": "https://example.org",
        "distribution": [croissant._file_set([".x"], "")],
        "recordSet": [samples],
    }
    (here / "croissant.json").write_text(json.dumps(whole))
    assert {f.name for f in opened(here / "croissant.json").metadata.record_sets[0].fields} == set(
        fields
    )


@pytest.mark.parametrize(
    ("dtype", "shown"),
    [
        ("uint8", "cr:UInt8"),
        ("int64", "cr:Int64"),
        ("float32", "cr:Float32"),
        ("bool", "sc:Boolean"),
        ("text", "sc:Text"),
    ],
)
def test_types_have_the_names_of_croissant(dtype, shown):
    assert croissant._type(croissant.FieldSpec(dtype=dtype)) == shown


def test_lines_are_read_by_mlcroissant_from_the_card(here):
    (here / "lines").mkdir()
    texts = [f"line {i}" for i in range(5)]
    (here / "lines/a.jsonl").write_text(
        "".join(json.dumps({"text": text}) + "\n" for text in texts)
    )
    (here / "lines.yaml").write_text(LINES)
    datacheck.scan_dataset("lines", "lines.yaml", output=here / "run")
    (here / "croissant.json").write_bytes(card(here / "run", SAID, here).bytes)
    records = opened(here / "croissant.json").records("samples")
    assert [record["samples/text"].decode() for record in records] == texts


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name, here):
    evil = (
        HOSTILE[name].replace("/", "_").replace("\0", "_")[:60].encode("utf-8", "ignore").decode()
        or "x"
    )
    for file in (here / "data").iterdir():
        os.rename(file, here / f"data/x{evil}{file.name}")
    schema = {
        "datacheck": 1,
        "name": "evil",
        "samples": {"files": "*.npy"},
        "fields": {"x": {"role": "value"}},
    }
    (here / "evil.yaml").write_text(json.dumps(schema))
    datacheck.scan_dataset("data", "evil.yaml", output=here / "run")
    made = card(here / "run", SAID | {"description": HOSTILE[name] or "-", "creator": evil}, here)
    (here / "croissant.json").write_bytes(made.bytes)
    found = json.loads(made.bytes)
    objects = [o for o in found["distribution"] if o["@type"] == "cr:FileObject"]
    assert len({o["@id"] for o in objects}) == 10
    assert all(re.fullmatch(r"data/[\w.~%-]+", o["contentUrl"], re.ASCII) for o in objects)
    assert not leaks(json.dumps(found, ensure_ascii=False))
    assert warned(opened(here / "croissant.json")) == set()


def test_hostile_fields_and_splits_are_text():
    for evil in HOSTILE.values():
        plain = evil.encode("utf-8", "replace").decode()
        (samples,) = croissant._sample_records({plain: croissant.FieldSpec()}, [".npy"])
        (splits,) = croissant._split_records({plain: {"samples": 1, "valid": 1}})
        assert not leaks(json.dumps([samples, splits], ensure_ascii=False))


def test_data_that_changed_since_the_scan_have_no_card(done, here):
    np.save(here / "data/4.npy", np.ones(4, np.float32))
    with pytest.raises(UsageError, match=r"4\.npy: has changed since the scan"):
        card(".datacheck")
    (here / "data/4.npy").unlink()
    with pytest.raises(UsageError, match=r"4\.npy: is not there any more"):
        card(".datacheck")


@pytest.mark.parametrize(
    ("name", "bad"),
    [("result.json", b"{"), ("result.json", b"[]"), ("listing.npz", b""), ("schema.yaml", b"x: [")],
)
def test_a_run_that_cannot_be_read_is_told(done, name, bad, capfd):
    Path(done.report.folder, name).write_bytes(bad)
    assert run_command(["card", ".datacheck"]) == 2
    assert "this run cannot be read (" in capfd.readouterr().err


def test_very_many_files_are_not_read_and_it_is_told(done, here, monkeypatch):
    monkeypatch.setattr(croissant, "MOST_FILES", 9)
    (here / "data/4.npy").unlink()
    made = card(".datacheck")
    assert [o["@type"] for o in json.loads(made.bytes)["distribution"]] == ["cr:FileSet"]
    assert "10 files are more than 9" in made.notes[0]


def test_a_zarr_folder_has_no_sha256_and_it_is_told(here):
    import zarr

    zarr.save(here / "z/a.zarr", np.zeros(3))
    datacheck.scan_dataset("z", "files", output=here / "run")
    assert card(here / "run").notes == [
        "1 Zarr folder is not listed by itself: a folder has no SHA-256"
    ]


MESHED = """
datacheck: 1
name: meshed
roots: {objects: objects}
samples: {files: "{id}.npy"}
fields:
  x: {role: value, shape: [4]}
  mesh: {file: "{objects}/{id}.npy", shape: [P, 3]}
"""


@pytest.mark.parametrize("place", ["meshes", "data/meshes"])
def test_files_of_an_extra_folder_are_named_where_they_lie_and_once(here, place):
    (here / place).mkdir()
    for file in list((here / "data").glob("*.npy")):
        np.save(here / place / file.name, np.zeros((5, 3)))
    (here / "meshed.yaml").write_text(MESHED)
    datacheck.scan_dataset("data", "meshed.yaml", roots={"objects": place}, output=here / "run")
    made = card(here / "run", SAID, here)
    assert made.notes == []
    found = [o for o in json.loads(made.bytes)["distribution"] if o["@type"] == "cr:FileObject"]
    assert sorted(o["contentUrl"] for o in found) == sorted(
        f"{folder}/{i}.npy" for folder in ("data", place) for i in range(10)
    )
    assert all(
        hashlib.sha256((here / o["contentUrl"]).read_bytes()).hexdigest() == o["sha256"]
        for o in found
    )
    alone = card(here / "run")
    names = [o["contentUrl"] for o in json.loads(alone.bytes)["distribution"][1:]]
    assert all((here / "data" / name).is_file() for name in names)
    assert len(names) == (10 if place == "meshes" else 20)
    assert [note.partition(":")[0] for note in alone.notes] == (
        ["files of --root objects are not listed"] if place == "meshes" else []
    )


def test_a_place_where_no_card_can_go_is_told_before_anything_is_read(
    done, here, monkeypatch, capfd
):
    monkeypatch.setattr(croissant, "card", lambda *_: pytest.fail("the data were read"))
    assert run_command(["card", ".datacheck", "-o", "nowhere/card.json"]) == 2
    assert "nowhere/card.json: there is no folder nowhere. Make it" in capfd.readouterr().err
    # As read-only
    monkeypatch.setattr(fsops.os, "access", lambda path, mode, **_: not mode & os.W_OK)
    assert run_command(["card", ".datacheck", "-o", "card.json"]) == 3
    assert "nothing can be written there" in capfd.readouterr().err


def test_the_command_writes_and_says_what_is_missing(done, here):
    told = CliRunner().invoke(
        command, ["card", ".datacheck", "-o", "croissant.json", "--set", "license=CC-BY-4.0"]
    )
    assert told.exit_code == 0
    assert "missing in the card; set them with --set NAME=TEXT: url, creator, citeAs" in told.output
    assert json.loads((here / "croissant.json").read_text())["license"] == "CC-BY-4.0"
    assert CliRunner().invoke(command, ["card", ".datacheck"]).stdout_bytes.startswith(b"{")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["data"], "data: is no finished run"),
        ([".datacheck", "--set", "licence=x"], "--set licence=x: write NAME=TEXT"),
        ([".datacheck", "-o", "plain.yaml"], "plain.yaml: exists, and is not overwritten"),
    ],
)
def test_a_wrong_request_is_told(done, args, told, capfd):
    assert run_command(["card", *args]) == 2
    assert told in capfd.readouterr().err


def test_a_file_without_end_that_a_run_of_somebody_else_names_is_not_read():
    """Files of /proc say that they have no bytes; this one has 2**55."""
    entry = Entry(f"{os.getpid()}/pagemap", 0, 0, 0, 0, 0)
    listing = Listing(Path("/proc"), Entries.of([entry]))
    with pytest.raises(UsageError, match=r"pagemap: has changed since the scan"):
        croissant._sha256(listing, entry)
    assert not listing.holds(entry.path)


@pytest.mark.parametrize("size", [2, 4])
def test_a_file_of_another_size_is_not_read(tmp_path, monkeypatch, size):
    (tmp_path / "a").write_bytes(b"abc")
    monkeypatch.setattr(croissant, "Digester", lambda: None)  # whoever updates it fails
    entry = Entry("a", size, 0, 0, 0, 0)
    with pytest.raises(UsageError, match="has changed since the scan"):
        croissant._sha256(Listing(tmp_path, Entries.of([entry])), entry)
