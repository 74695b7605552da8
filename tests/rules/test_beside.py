"""From where hands come to a thing, by hands that are put above, beside and below it."""

import numpy as np
import pytest

from datacheck.model.sample import Origin, Piece, stack
from datacheck.rules.placement import near
from tests.rules.harness import schema_of

SCHEMA = """
fields:
  g: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}
  g.pos: {role: position, unit: m, near: o.pos}
  o: {role: pose, shape: [7], columns: "pos:3 quat:4"}
  o.pos: {role: position, unit: m}
  v: {role: points, shape: [P, 3], posed_by: o SAID}
"""
CLOUD = """
fields:
  g: {role: position, shape: [G, 3], unit: m, near: v}
  v: {role: points, shape: [P, 3] SAID}
"""
PLACE = np.array([0.3, -0.2, 0.1])
OFFSETS = {
    "above": [0, 0, 0.2],
    "below": [0, 0, -0.2],
    "aside": [0.2, 0, 0],
    "half": [0.1 * 3**0.5, 0, 0.1],
}
BIN = {"above": 0, "below": 19, "aside": 10, "half": 5}  # cosines -1, 1, 0, -0.5


def measured(schema, *samples):
    (block,) = stack([Piece(str(n), fields, Origin("")) for n, fields in enumerate(samples)])
    with np.errstate(all="ignore"):
        return near.function(block, schema_of(schema))


def posed(*offsets, at=PLACE):
    hands = np.zeros((len(offsets), 7))
    hands[:, :3] = np.reshape(offsets, (-1, 3)) + at
    return {"g": hands, "o": np.array([*at, 1, 0, 0, 0]), "v": np.ones((4, 3))}


def counts(found, name="g.pos"):
    column = found[f"{name}:approach"]
    return [{n: many for n, many in enumerate(row) if many} for row in column.values.tolist()]


@pytest.mark.parametrize("side", OFFSETS)
@pytest.mark.parametrize("said", [", up: z", ", rests: 0..1"])
def test_a_hand_above_a_thing_comes_from_above(side, said):
    assert counts(measured(SCHEMA.replace("SAID", said), posed(OFFSETS[side]))) == [{BIN[side]: 1}]


@pytest.mark.parametrize(
    ("up", "side"), [("-z", "above"), ("x", "aside"), ("-x", "aside"), ("y", "above")]
)
def test_up_is_where_the_schema_says(up, side):
    found = measured(SCHEMA.replace("SAID", f", up: {up}"), posed(OFFSETS[side]))
    assert counts(found) == [{{"-z": 19, "x": 0, "-x": 19, "y": 10}[up]: 1}]


def test_each_sample_counts_its_own_and_what_is_not_finite_in_none():
    some = posed(
        *[OFFSETS["above"]] * 3, OFFSETS["half"], [np.nan, 0, 1], [0, 0, np.inf], [0, 0, 0]
    )
    lost = posed(OFFSETS["below"]) | {"o": np.full(7, np.nan)}
    found = measured(
        SCHEMA.replace("SAID", ", up: z"), some, posed(), lost, posed(OFFSETS["below"])
    )
    assert counts(found) == [{0: 3, 5: 1}, {}, {}, {19: 1}]
    assert found["g.pos:approach"].present.tolist() == [True, False, True, True]
    assert found["g.pos:approach"].values.dtype == np.int64


@pytest.mark.parametrize(
    ("said", "at", "wanted"),
    [
        (", up: z", [0, 0, 1], 0),
        (", frame: camera_opengl", [0, 1, 0], 0),
        (", frame: camera_opencv", [0, 1, 0], 19),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_beside_a_cloud_it_is_its_centroid_and_its_own_up(said, at, wanted, dtype):
    cloud = np.array([[1, 0, 0], [-1, 0, 0], [0, 3, 0], [0, -3, 0]], dtype)
    found = measured(CLOUD.replace("SAID", said), {"g": np.array([at, at], dtype), "v": cloud})
    assert counts(found, "g") == [{wanted: 2}]


@pytest.mark.parametrize("schema", [SCHEMA, CLOUD])
def test_where_nothing_says_which_way_is_up_there_is_none(schema):
    sample = posed(OFFSETS["above"])
    sample = sample if schema is SCHEMA else {"g": sample["g"][:, :3], "v": sample["v"]}
    assert [name.rpartition(":")[2] for name in measured(schema.replace("SAID", ""), sample)] == [
        "near"
    ]


def test_hands_however_far_are_counted():
    found = measured(
        SCHEMA.replace("SAID", ", up: z"), posed([0, 0, 1e30], [0, 0, -1e30], [1e30, 0, 0])
    )
    assert counts(found) == [{0: 1, 10: 1, 19: 1}]


def test_a_schema_that_says_another_up_measures_again():
    one, other = (schema_of(SCHEMA.replace("SAID", said)) for said in (", up: z", ", up: y"))
    assert near.settings(one) != near.settings(other)
    assert near.settings(one) == near.settings(
        schema_of(SCHEMA.replace("SAID", ", up: z, size: 0..1"))
    )
