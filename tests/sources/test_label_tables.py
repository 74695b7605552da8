"""The classes that a loader keeps are read from the table that it reads itself."""

import json

import pytest
import yaml

from datacheck.sources import with_label_table
from tests.sources.schemas import schema

CHAIR, TABLE, WALL = (
    {"name": name, "validation": used} for name, used in (("a", True), ("b", True), ("w", False))
)


def kept(folder, step="labels.yaml"):
    fields = {"c": {"role": "class", "shape": ["P"]}, "i": {"role": "instance", "shape": ["P"]}}
    told, notes = with_label_table(
        schema("*.npy", fields, loader={"voxel": 0.1, "keep_classes": step}), folder, {}
    )
    assert [name for name, _ in told.loader.steps] == ["voxel", "keep_classes"]
    return told.loader.get("keep_classes"), [(note.code, note.key, note.reason) for note in notes]


@pytest.mark.parametrize("name", ["labels.yaml", "labels.json"])
@pytest.mark.parametrize(
    ("table", "classes"),
    [
        ({3: CHAIR, 5: TABLE, 0: WALL}, [3, 5]),
        ({0: WALL, 3: WALL}, [0, 3]),  # none is used, so Mask3D uses all
        ({3: {"name": "a"}, 5: TABLE}, [3, 5]),  # without a word on it
    ],
)
def test_classes_that_are_not_for_validation_are_dropped(tmp_path, name, table, classes):
    text = yaml.safe_dump(table) if name.endswith("yaml") else json.dumps(table)
    (tmp_path / name).write_text(text)
    assert kept(tmp_path, name) == (classes, [])


def test_null_entries_are_named_and_drop_their_class(tmp_path):
    (tmp_path / "labels.yaml").write_text(yaml.safe_dump({3: CHAIR, 5: None, 7: "sofa"}))
    classes, [(code, key, reason)] = kept(tmp_path)
    assert (classes, code, key) == ([3], "DC404", "labels.yaml")
    assert reason.startswith("has no entry for 5, 7: there is null, or no mapping")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "cannot be read: a Git LFS pointer",
        ),
        ("{", "cannot be read: not YAML"),
        ("name: chair\n", "names no class: its keys are no class numbers (name)"),
        ("", "names no class: its keys are no class numbers (nothing)"),
    ],
)
def test_a_table_that_is_none_takes_nothing_and_is_told(tmp_path, text, reason):
    (tmp_path / "labels.yaml").write_text(text)
    step, notes = kept(tmp_path)
    assert step == "labels.yaml"
    assert [said.startswith(reason) for _, _, said in notes] == [True], notes


def test_without_a_table_the_step_takes_nothing(tmp_path):
    assert kept(tmp_path) == ("labels.yaml", [])
    long = "a" * 300 + ".yaml"  # no system has a file of such a name
    assert kept(tmp_path, long) == (long, [])
    assert kept(tmp_path, [3, 5]) == ([3, 5], [])


def test_a_table_of_more_than_a_megabyte_is_told_and_not_read(tmp_path):
    """YAML of 470,000 keys took half a minute."""
    table = tmp_path / "labels.yaml"
    table.write_bytes(b"0: {}\n1: {validation: false}\n".ljust(1 << 20, b"#"))
    assert kept(tmp_path, "labels.yaml") == ([0], [])
    table.write_bytes(table.read_bytes() + b"#")
    step, [(code, key, reason)] = kept(tmp_path, "labels.yaml")
    assert (step, code, key) == ("labels.yaml", "DC404", "labels.yaml")
    assert reason.startswith("cannot be read: ")
    assert "1,048,577 bytes" in reason
