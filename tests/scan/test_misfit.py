"""What a scan says where no file fits: the folder that does, another schema, a schema of one line."""

import re

import pytest

from datacheck.errors import UsageError
from datacheck.scan import scan
from datacheck.scan.runner import listed
from datacheck.schema.load import parse_schema
from datacheck.sources import matches
from datacheck.testing.synth import write


def touched(folder, *paths):
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x")


def said(data, schema=None):
    with pytest.raises(UsageError) as caught:
        scan(data, schema)
    return str(caught.value)


@pytest.fixture
def hands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touched(tmp_path, "a/HO3D/train/SM1/meta/0000.pkl", "a/HO3D/train/SM1/meta/0001.pkl", "a/b/train/SM1/meta/0000.pkl")
    return tmp_path / "a/HO3D"


@pytest.mark.parametrize("below", ["train", "train/SM1", "train/SM1/meta", "train/SM1/meta/0000.pkl"])
@pytest.mark.parametrize("schema", [None, "ho3d"])
def test_the_folder_above_that_fits_is_named(hands, below, schema):
    assert "fits the folder a/HO3D: datacheck scan a/HO3D --schema ho3d\n" in said(hands / below, schema)


@pytest.mark.parametrize("schema", [None, "ho3d"])
def test_the_folder_below_that_fits_most_is_named(hands, schema):
    assert f"schema ho3d fits the folder {hands}: datacheck scan {hands} --schema ho3d\n" in said(hands.parent, schema)
    assert f"schema ho3d fits the folder {hands}" in said(hands.parent.parent, schema)


def test_a_folder_of_another_layout_names_the_schema_that_fits_it(hands):
    assert "\n    schema ho3d fits 2 of them: --schema ho3d\n" in said(hands, "libero")


def test_a_robomimic_file_of_any_name_is_scanned_with_the_line_that_the_message_gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("robomimic", tmp_path / "made", seed=0)
    (tmp_path / "demos").mkdir()
    next((tmp_path / "made").rglob("*.hdf5")).rename(tmp_path / "demos/mine.hdf5")
    assert "extends: NAME, " in said(tmp_path / "demos")
    assert "(NAME is aloha or libero or robomimic)" in said(tmp_path / "demos")
    message = said(tmp_path / "demos", "robomimic")
    assert "its only file does not fit schema robomimic" in message
    line = re.search(r"\{datacheck: .*\}", message)[0]
    assert scan(tmp_path / "demos", parse_schema(line)).report.exit_code == 0


@pytest.mark.parametrize("ending", [".hdf5", ".jsonl", ".tar"])
def test_every_schema_that_is_offered_for_other_names_can_be_extended_so(tmp_path, ending):
    touched(tmp_path, f"some/odd one{ending}", "notes.txt")
    (tmp_path / f"some/odd one{ending}").write_bytes(b"more than the notes")
    message = said(tmp_path)
    line = re.search(r"\{datacheck: .*\}", message)[0]
    names = re.search(r"NAME is (.*)\)", message) or re.search(r"extends: (\w+)", message)
    for name in names[1].split(" or "):
        assert matches(parse_schema(line.replace("NAME", name)), listed(tmp_path)) == 1


def test_every_message_says_how_to_draft_a_schema(tmp_path):
    touched(tmp_path / "my data", "a.ply")
    data = tmp_path / "my data"
    assert said(data).endswith(f"\n    datacheck init '{data}' drafts a schema from what is in them")
    assert said(data, "ho3d").endswith(f"\n    datacheck init '{data}' drafts a schema from what is in them")
