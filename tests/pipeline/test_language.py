"""Pipeline files: what they say, and how a fault in one is told."""

from __future__ import annotations

import pytest

from datacheck.errors import SchemaError, UsageError
from datacheck.pipeline import load_pipeline
from datacheck.schema.load import builtin

SCHEMA = (
    "datacheck: 1\nname: tiny\nsamples: {files: '*.npz'}\nfields:\n  x: {role: points, shape: "
    "[P, 3], unit: mm}\n"
)
PIPELINE = """\
datacheck: 1
name: mine
schema: tiny.yaml
source: {data: data, roots: {objects: meshes}}
transforms:
  - select: [x]
  - scale:
      fields: x
      to: m
cache: {out: caches, splits: [train]}
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SCHEMA)

    def written(text):
        (tmp_path / "mine.yaml").write_text(text)
        return tmp_path / "mine.yaml"

    return written


def test_a_pipeline_says_source_schema_transforms_cache(write, tmp_path):
    loaded = load_pipeline(write(PIPELINE))
    assert (loaded.name, loaded.schema.name) == ("mine", "tiny")
    assert (loaded.data, loaded.out) == (tmp_path / "data", tmp_path / "caches")
    assert loaded.roots == {"objects": tmp_path / "meshes"}
    assert loaded.splits == ("train",)
    assert [s.as_dict() for s in loaded.steps] == [
        {"select": {"fields": ["x"]}},
        {"scale": {"fields": ["x"], "to": "m"}},
    ]
    assert loaded.paths == (), (
        "no folder of modules where neither a step nor a check is the user's own"
    )


def test_modules_are_looked_for_beside_the_file_that_names_them(write, tmp_path):
    steps = PIPELINE.replace("transforms:", "transforms:\n  - own_steps:halve")
    assert steps != PIPELINE
    assert load_pipeline(write(steps)).paths == (str(tmp_path),)


def test_a_schema_is_the_pipeline_without_transforms(write, tmp_path):
    loaded = load_pipeline(tmp_path / "tiny.yaml") if write("") else None
    assert loaded is not None
    assert (loaded.name, loaded.steps, loaded.data) == ("tiny", (), None)
    assert load_pipeline("kitti").schema.name == "kitti"


@pytest.mark.parametrize("name", builtin("pipelines"))
def test_every_built_in_pipeline_loads(name):
    loaded = load_pipeline(name)
    assert loaded.name == name
    assert all(step.identity() for step in loaded.steps)


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("name: mine", "name: ../mine", 2, "name"),
        ("cache: {out", "cash: {out", 10, "unknown key 'cash'"),
        ("select: [x]", "selekt: [x]", 6, "Did you mean 'select'"),
        ("to: m", "too: m", 9, "unknown key 'too'"),
        ("to: m", "to: metres", 9, "'metres' is not a known unit"),
        ("datacheck: 1", "datacheck: 2", 1, "1"),
        ("splits: [train]", "splits: 3", 10, "splits"),
    ],
)
def test_a_fault_is_told_with_file_and_line(write, old, new, line, said):
    path = write(PIPELINE.replace(old, new))
    with pytest.raises(SchemaError) as caught:
        load_pipeline(path)
    assert said in str(caught.value)
    assert any(text.startswith(f"{path}:{line}") for text in str(caught.value).splitlines()), str(
        caught.value
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ho3", "no pipeline or schema is called 'ho3'; built in are .*Did you mean 'ho3d'"),
        ("no/such.yaml", "no such file"),
        ("absent.yaml", "no such file"),
    ],
)
def test_an_unknown_name_lists_what_there_is(name, said):
    with pytest.raises(UsageError, match=said):
        load_pipeline(name)
