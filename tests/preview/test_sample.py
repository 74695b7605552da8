"""Whole samples: which field becomes which picture; nothing that a value holds raises."""

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.preview.overlays import near_points
from datacheck.preview.pictures import PreviewBuilder, previews
from datacheck.schema.grammar import ROLES
from datacheck.schema.load import load_schema, parse_schema
from datacheck.schema.model import FieldSpec

SCHEMA = """\
datacheck: 1
name: made
samples: {files: "*.npy"}
episode: {fps: 20}
fields:
  xyz: {role: points, shape: [P, 3], unit: m}
  rgb: {role: color, shape: [P, 3]}
  semantic: {role: class, shape: [P], ignore: [-1]}
  hand: {role: joints, shape: [21, 3], unit: m, skeleton: mano21}
  actions: {role: action, shape: [T, 7], columns: "motion:6 gripper"}
  view: {role: image, shape: [T, H, W, 3]}
  depth: {role: depth, shape: [H, W]}
  said: {role: text}
"""


def sample():
    rng = np.random.default_rng(0)
    return {
        "xyz": rng.normal(size=(40, 3)),
        "rgb": rng.integers(0, 256, (40, 3)),
        "semantic": np.arange(40) % 3 - 1,
        "hand": rng.normal(size=(21, 3)),
        "actions": rng.normal(size=(30, 7)),
        "view": rng.integers(0, 256, (30, 8, 8, 3), np.uint8),
        "depth": rng.uniform(size=(8, 8)),
        "said": "hello",
        "other": np.arange(3),
    }


def test_every_field_becomes_the_picture_of_its_role():
    made = {one["field"]: one for one in previews(PreviewBuilder(sample(), parse_schema(SCHEMA)))}
    assert {name: one["kind"] for name, one in made.items()} == {
        "xyz": "cloud",
        "rgb": "note",
        "semantic": "note",
        "hand": "skeleton",
        "actions": "timeline",
        "view": "film",
        "depth": "image",
        "said": "text",
        "other": "note",
    }
    assert made["xyz"]["colour"]["name"] == "rgb"
    assert [dim["name"] for dim in made["actions"]["dims"]] == [f"motion {n}" for n in range(6)] + [
        "gripper"
    ]
    assert made["other"]["about"] == "int64 [3]: 0 1 2"


def test_fields_of_interest_come_first_and_labels_among_them_colour_the_points():
    made = previews(PreviewBuilder(sample(), parse_schema(SCHEMA), ["actions.gripper"]))
    assert made[0]["field"] == "actions"
    made = previews(PreviewBuilder(sample(), parse_schema(SCHEMA), ["xyz", "semantic"]))
    assert (made[0]["field"], made[0]["colour"]["name"]) == ("xyz", "semantic")
    assert made[0]["colour"]["names"] == ["-1 (ignored)", "0", "1"]


@pytest.mark.parametrize(
    ("classes", "odd"), [("0..1", ["2"]), ("2", ["2"]), ("[0, 2]", ["1"]), ("0..9", [])]
)
def test_labels_outside_the_declared_classes_are_named(classes, odd):
    schema = parse_schema(SCHEMA.replace("ignore: [-1]", f"ignore: [-1], classes: {classes}"))
    fields = sample() | {"semantic": np.arange(40) % 4 - 1}
    made = previews(PreviewBuilder(fields, schema, ["semantic", "xyz"]))[0]["colour"]["names"]
    assert [name for name in made if "no class" in name] == [f"{name} (no class)" for name in odd]


def test_an_undeclared_array_is_drawn_as_what_it_looks_like():
    fields = {
        "a": np.zeros((50, 3), np.float32),
        "b": np.zeros((9, 9, 3), np.uint8),
        "c": np.zeros((4, 2)),
    }
    schema = parse_schema('datacheck: 1\nname: any\nsamples: {files: "*.npy"}\n')
    made = {one["field"]: one["kind"] for one in previews(PreviewBuilder(fields, schema))}
    assert made == {"a": "cloud", "b": "image", "c": "note"}


def test_grasps_are_drawn_with_the_object_where_its_pose_puts_it():
    schema = load_schema("sceneleap")
    half = np.sqrt(0.5)  # a quarter turn about z, then 1 m along x; the loader scales by 0.1
    fields = {
        "grasp_qpos": np.zeros((2, 23)),
        "obj_pose": np.array([1, 0, 0, half, 0, 0, half]),
        "verts": np.array([[10.0, 0, 0], [0, 10, 0]]),
    }
    name, points = near_points(schema.spec("grasp_qpos.pos"), fields, schema)
    assert name == "verts"
    np.testing.assert_allclose(points, [[1, 1, 0], [0, 0, 0]], atol=1e-12)
    made = {one["field"]: one for one in previews(PreviewBuilder(fields, schema))}
    assert made["grasp_qpos.pos"]["colour"]["names"] == ["grasp_qpos.pos", "verts"]
    assert made["grasp_qpos.pos"]["points"] == 4


ANYTHING = st.one_of(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5
    ),
    st.text(st.characters(exclude_categories=())),
    st.sampled_from(["f2", "f8", "u1", "i8", "?", "U3", "S3", "c16", "M8[s]"]).flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)
        )
    ),
)


@given(
    role=st.sampled_from(sorted(ROLES)),
    value=ANYTHING,
    timed=st.booleans(),
    name=st.text(max_size=4),
)
def test_any_value_of_any_role_gives_pictures_or_says_why_not(role, value, timed, name):
    schema = parse_schema(SCHEMA)  # as a model: not every role may be declared with this shape
    odd = FieldSpec(role=role, shape=["T" if timed else "P", 3])
    schema = schema.model_copy(update={"fields": schema.fields | {"odd": odd}})
    made = previews(PreviewBuilder(sample() | {"odd": value, "?" + name: value}, schema, ["odd"]))
    assert {one["field"] for one in made} >= {"odd", "xyz"}
    assert all(one["about"] for one in made)
    assert orjson.loads(orjson.dumps(made)) is not None


@pytest.mark.parametrize("value", [1e308, -1e308, np.finfo("f8").max])
def test_the_largest_numbers_do_not_overflow(value):
    points = np.array([[value, 0, 0], [-value, 1, 1]])
    fields = {"xyz": points, "hand": np.full((21, 3), value), "actions": np.full((5, 7), value)}
    made = previews(PreviewBuilder(fields, parse_schema(SCHEMA)))
    assert [one["kind"] for one in made] == ["cloud", "skeleton", "timeline"]
    assert orjson.loads(orjson.dumps(made)) == made
