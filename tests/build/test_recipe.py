"""What only judges samples leaves the arrays as they are, and the recipe says so; everything else makes other ones."""

from __future__ import annotations

import pytest

from datacheck.build.builder import build_cache
from datacheck.build.prepare import prepare
from datacheck.schema.model import FieldSpec, Schema
from tests.build.make import MIXED, job_of, mixed, schema_of, tree

BAND = "0..9"
JUDGES = {
    "range": BAND,
    "size": BAND,
    "distance": BAND,
    "centered_on": "joints",
    "up": "z",
    "max_speed": 2.0,
    "robot": "panda",
    "drives": "joints",
    "lag": 1,
    "values": [1.0],
    "near": "joints",
    "posed_by": "joints",
    "rests": BAND,
    "indexes": "cloud",
    "encloses": "cloud",
    "areas": "other",
    "box_format": "cxcywh",
    "pixels_of": "image",
    "annotates": "labels",
    "encodes": ["a", "b"],
    "share": BAND,
    "stats": {"mean": [0.0]},
    "ignore": [255],
    "classes": 20,
    "min_points": 5,
    "min_instances": 1,
    "must_be": 3,
    "speakers": ["user"],
    "train_on": "user",
    "preferred_over": "other",
    "continues": "other",
    "spans_of": "other",
    "unanswerable": "other",
    "tools": "other",
    "images": "other",
    "videos": "other",
    "audios": "other",
    "label_of": "cloud",
    "shift": 1,
    "min_trained_tokens": 3,
}
MAKES = {
    "role": "position",
    "shape": ["Q", 3],
    "dtype": "float64",
    "unit": "mm",
    "optional": True,
    "absent": True,
    "at": "other",
    "file": "{file}.npy",
    "columns": "x y z",
    "finite": False,
    "frame": "world",
    "intrinsics": "k",
    "extrinsics": "t",
    "scale": 0.001,
    "channels": [1.0, 256.0],
    "origin": "bottom_left",
    "image_size": [640, 480],
    "skeleton": "mano21_ho3d",
    "order": "wxyz",
    "sentinels": [-1.0],
    "centered": "root",  # an attribute of the array, which a step may read
}
SCHEMA_JUDGES = {
    "duplicates",
    "splits",
    "windows",
    "episode",
    "loader",
    "rules",
    "checks",
    "attrs",
    "when",
}
SCHEMA_MAKES = {
    "datacheck",
    "name",
    "samples",
    "fields",
    "roots",
    "tokenizer",
    "columns",
    "near_names",
}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recipe")
    mixed(folder, 5)

    def of(**change):
        schema = schema_of(MIXED)
        cloud = FieldSpec.model_validate(MIXED["cloud"] | change)
        job = job_of(schema, folder)
        said = schema.model_copy(update={"fields": {**schema.fields, "cloud": cloud}})
        return prepare(job.__class__(**{**vars(job), "schema": said})).fingerprint.recipe

    return of


def test_every_key_is_known_to_judge_or_to_make():
    assert {*JUDGES, *MAKES} == set(FieldSpec.model_fields)
    assert set(Schema.model_fields) == SCHEMA_JUDGES | SCHEMA_MAKES


@pytest.mark.parametrize("key", sorted(JUDGES))
def test_a_key_that_judges_leaves_the_recipe(recipe, key):
    assert recipe(**{key: JUDGES[key]}) == recipe()


@pytest.mark.parametrize("key", sorted(set(MAKES) - {"absent", "file", "columns"}))
def test_a_key_that_makes_changes_the_recipe(recipe, key):
    assert recipe(**{key: MAKES[key]}) != recipe()


def test_what_only_judges_leaves_every_byte_of_the_arrays(tmp_path):
    """All such keys at once, those of the schema too; the key of the cache is another one all the same."""
    mixed(tmp_path / "data", 12)
    plain = schema_of(MIXED)
    strict = schema_of(
        {
            **MIXED,
            "cloud": MIXED["cloud"]
            | {"range": "-9..9", "size": "0.1..90", "up": "z", "min_points": 1},
            "labels": MIXED["labels"] | {"classes": 20, "ignore": [255]},
            "joints": MIXED["joints"] | {"distance": "0..9"},
            "score": MIXED["score"] | {"range": "-9..9"},
        },
        rules={"DC221": "warning"},
    )
    one, other = (
        build_cache(job_of(schema, tmp_path / "data"), tmp_path / "out").path
        for schema in (plain, strict)
    )
    assert one != other
    arrays = [name for name in tree(one) if name.startswith(("fields/", "rows/"))]
    assert len(arrays) > 8
    assert {name: tree(one)[name] for name in arrays} == {
        name: tree(other)[name] for name in arrays
    }
