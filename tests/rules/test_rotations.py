"""Rotations that are none, conventions that differ, normals: both sides of every limit, causes, odd input."""

from functools import partial
from timeit import timeit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.model import rotation
from datacheck.model.sample import Column, Origin, Piece, stack
from datacheck.rules.families.rotations import OFF, normals, record_matrices, rigid, spin, unit
from datacheck.rules.placement import first_poses, rows_of, transforms_of
from datacheck.schema.model import FieldSpec
from datacheck.testing.draw import rotation as rodrigues
from tests.rules.harness import grasps, judged, measured, schema_of, turns


def findings(schema, *fields):
    schema = schema_of(schema)
    samples = [("", Piece(f"s{i:03d}", one, Origin(""))) for i, one in enumerate(fields)]
    return judged(schema, measured(schema, samples)).findings


def rng(seed=0):
    return np.random.default_rng(seed)


# ---------------------------------------------------------------------------------- the mathematics


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=3), st.floats(0.01, 100))
def test_the_matrix_of_a_quaternion_is_that_of_its_axis_and_angle_whatever_its_length(
    vector, length
):
    angle = float(np.linalg.norm(vector))
    axis = np.array(vector) / angle if angle > 1e-9 else np.array([1.0, 0, 0])
    q = length * np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * axis])
    np.testing.assert_allclose(rotation.matrices(q[None]), rodrigues(np.array([vector])), atol=1e-7)


def test_orders_differ_by_a_roll_and_a_zero_quaternion_is_no_rotation():
    q = np.array([[0.1, 0.2, 0.3, 0.9]])
    np.testing.assert_array_equal(rotation.wxyz(q, "xyzw"), [[0.9, 0.1, 0.2, 0.3]])
    np.testing.assert_array_equal(rotation.wxyz(q, "wxyz"), q)
    assert np.isnan(rotation.matrices(np.zeros((1, 4)))).all()


def test_moving_there_and_back_is_no_motion():
    t = np.tile(np.eye(4), (2, 1, 1))
    t[:, :3, :3] = rodrigues(np.array([[0.1, 2.0, -1.0], [0.0, 0.0, 1.0]]))
    t[:, :3, 3] = [[1, 2, 3], [-1, 0, 5]]
    points = rng().normal(size=(3, 7))
    counts = np.array([3, 4])
    away = rotation.transformed(points, t, counts)
    np.testing.assert_allclose(away[:, 0], t[0, :3, :3] @ points[:, 0] + [1, 2, 3])
    np.testing.assert_allclose(
        rotation.transformed(away, rotation.inverse(t), counts), points, atol=1e-12
    )


# ---------------------------------------------------------------------------------- reading columns


def test_rows_are_cut_from_vectors_and_from_the_last_axis():
    flat, counts = rows_of(Column.of([np.arange(48.0), np.arange(47.0), np.zeros(0)]), 3)
    assert (flat.shape, counts.tolist()) == ((16, 3), [16, 0, 0])
    rows, counts = rows_of(Column.of([np.zeros((2, 6)), np.zeros((5, 6))]), 3)
    assert (rows.shape, counts.tolist()) == ((14, 3), [4, 10])
    assert rows_of(Column.of([np.zeros((2, 4))]), 3) is None


def test_transforms_of_all_shapes_become_rigid_motions():
    full = np.arange(16.0).reshape(4, 4)
    # One signature: rows of 4
    read, counts, whole = transforms_of(Column.of([full, full[:3], full[:2]]))
    assert (counts.tolist(), whole.tolist()) == ([1, 1, 0], [True, False])
    np.testing.assert_array_equal(read[0], full)
    np.testing.assert_array_equal(read[1], np.vstack([full[:3], [0, 0, 0, 1]]))
    read, counts, whole = transforms_of(Column.of([np.ones((2, 3, 3), np.int64)]))
    assert (read.shape, counts.tolist(), whole.any()) == ((2, 4, 4), [2], False)
    assert read[0, :3, 3].tolist() == [0, 0, 0]


def test_a_pose_is_read_by_its_columns_and_its_order():
    text = """fields: {{g: {{role: pose, shape: [G, 7], columns: "pos:3 quat:4"}},
                      g.quat: {{role: quaternion, order: {}}}}}"""
    poses = grasps(rng(), 5)
    (block,) = stack(
        [Piece("a", {"g": poses}, Origin("")), Piece("b", {"g": poses[1:]}, Origin(""))]
    )
    here, known = first_poses(block, schema_of(text.format("wxyz")), "g")
    assert known.all()
    np.testing.assert_allclose(here[:, :3, 3], poses[:2, :3])
    np.testing.assert_allclose(here[:, :3, :3], rotation.matrices(poses[:2, 3:]))
    other, _ = first_poses(block, schema_of(text.format("xyzw")), "g")
    np.testing.assert_allclose(
        other[0, :3, :3], rotation.matrices(np.roll(poses[:1, 3:], 1, axis=1))[0]
    )


# ------------------------------------------------------------------------------------------ DC304

QUAT = "fields: {q: {role: quaternion, shape: [G, 4], order: wxyz}}"
MOTION = "fields: {t: {role: transform, shape: [G, 4, 4]}}"


@pytest.mark.parametrize(
    ("length", "wanted"), [(1.0009, []), (0.9991, []), (1.0011, ["scaled"]), (0.9989, ["scaled"])]
)
def test_the_length_of_a_quaternion_may_be_off_by_a_thousandth(length, wanted):
    assert [
        f.kind for f in findings(QUAT, {"q": turns(rng(), 9, length)}, {"q": turns(rng(1), 9)})
    ] == wanted


def test_half_precision_is_no_fault_and_integers_are_read():
    half = turns(rng(), 200).astype(np.float16)
    assert np.abs(np.linalg.norm(half.astype(float), axis=1) - 1).max() > 1e-4
    assert findings(QUAT, {"q": half}) == []
    assert findings(QUAT, {"q": np.tile([1, 0, 0, 0], (5, 1))}) == []


def test_one_zero_quaternion_among_many_is_an_error_and_lengths_that_differ_have_no_factor():
    q = turns(rng(), 400)
    q[7] = 0
    mixed = turns(rng(1), 400)
    mixed[::2] *= 1.5
    found = {f.kind: f for f in findings(QUAT, {"q": q}, {"q": mixed}, {"q": turns(rng(2), 400)})}
    assert {kind: f.rows.tolist() for kind, f in found.items()} == {"zero": [0], "length": [1]}
    assert found["length"].cause is None
    assert found["zero"].measured == {"zeros": 1}


def motions(count=6):
    t = np.tile(np.eye(4), (count, 1, 1))
    t[:, :3, :3] = rodrigues(rng(3).uniform(-2, 2, (count, 3)))
    t[:, :3, 3] = rng(4).normal(size=(count, 3))
    return t


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda t: t, None),
        (lambda t: t.astype(np.float16), None),
        (lambda t: np.swapaxes(t, 1, 2).copy(), "transposed"),
        (lambda t: t * np.array([[-1.0], [1], [1], [1]]), "mirror"),
        (lambda t: np.concatenate([t[:, :3, :3] * 2, t[:, :3, 3:]], axis=2), "scaled"),
        (lambda t: t + 0.01 * (np.arange(16).reshape(4, 4) == 1), "skew"),
        (lambda t: t + (np.arange(16).reshape(4, 4) == 14), "last-row"),
        (lambda t: t * 0, "zero"),
    ],
)
def test_each_way_of_being_no_motion_has_its_name(change, kind):
    bad = change(motions())
    schema = MOTION if bad.shape[1] == 4 else MOTION.replace("4, 4", "3, 4")
    # Zeros alone would be a placeholder
    schema = schema.replace("}}", "}, x: {role: value, shape: [2]}}")
    found = findings(schema, {"t": bad, "x": np.ones(2)})
    found = [f for f in found if f.code != "DC222"] if kind != "zero" else found
    wanted = [] if kind is None else [("DC222", "zeros")] if kind == "zero" else [("DC304", kind)]
    assert [(f.code, f.kind) for f in found] == wanted


def test_a_scaled_matrix_names_its_factor():
    t = motions()
    t[:, :3, :3] *= 0.1
    (finding,) = findings(MOTION, {"t": t})
    assert finding.cause.factor == pytest.approx(10)


def test_the_quaternion_of_a_pose_is_judged_once():
    pose = grasps(rng(), 30)
    pose[:, 3:] *= 3
    bare = 'fields: {g: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}}'
    part = bare.replace("}}", "}, g.quat: {role: quaternion, order: wxyz}}")
    assert [(f.code, f.fields) for f in findings(bare, {"g": pose})] == [("DC304", ("g",))]
    assert [(f.code, f.fields) for f in findings(part, {"g": pose})] == [("DC304", ("g.quat",))]


def test_rotations_that_are_not_there_are_not_measured():
    assert unit.function(Column.of([np.zeros((0, 4)), np.eye(4)]), FieldSpec(role="quaternion"))[
        "shortest"
    ].present.tolist() == [False, True]
    assert rigid.function(Column.of([np.zeros((0, 4, 4))]), FieldSpec(role="transform"))[
        "skew"
    ].present.tolist() == [False]
    assert unit.function(Column.of([np.zeros((3, 5))]), FieldSpec(role="quaternion")) == {}
    assert findings(QUAT, {"q": np.full((3, 4), np.nan)})[0].code == "DC221"


# ------------------------------------------------------------------------------------------ DC305

GRASPS = """
fields:
  g: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}
  g.pos: {role: position, unit: m, near: o}
  g.quat: {role: quaternion, order: ORDER}
  o: {role: position, shape: [3], unit: m}
"""


@pytest.mark.parametrize("declared", ["wxyz", "xyzw"])
@pytest.mark.parametrize("stored", ["wxyz", "xyzw"])
def test_grasps_tell_the_order_of_their_quaternions(declared, stored):
    samples = [
        {"g": grasps(rng(i), 40, order=stored), "o": rng(i).normal(0, 0.01, 3)} for i in range(4)
    ]
    found = findings(GRASPS.replace("ORDER", declared), *samples)
    assert [(f.code, f.kind, f.failed) for f in found] == (
        [] if declared == stored else [("DC305", stored, 4)]
    )


def test_smoothness_cannot_tell_the_order():
    """Why the rule does not look at angular speed: permuting four numbers keeps every angle between quaternions."""
    a, b = turns(rng(0), 100), turns(rng(1), 100)
    for order in ("wxyz", "xyzw"):
        p, q = rotation.wxyz(a, order), rotation.wxyz(b, order)
        np.testing.assert_allclose(
            np.abs((p * q).sum(axis=1)), np.abs((a * b).sum(axis=1)), atol=1e-12
        )


def yaws(count, order="wxyz"):
    half = rng(5).uniform(-1.5, 1.5, count)
    q = np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], axis=1)
    return [{"q": row} for row in (q if order == "wxyz" else np.roll(q, -1, axis=1))]


@pytest.mark.parametrize(
    ("declared", "samples", "rows"),
    [
        ("wxyz", yaws(30), None),
        ("wxyz", yaws(30, "xyzw"), 30),
        ("wxyz", yaws(27) + yaws(30, "xyzw")[:3], 3),
        ("wxyz", yaws(10, "xyzw"), None),  # too few to call it a habit
        ("xyzw", yaws(30, "xyzw"), None),
        ("xyzw", yaws(30), None),  # or everything turns about x: not to be told
        ("xyzw", yaws(27, "xyzw") + yaws(30)[:3], 3),
    ],
)
def test_things_that_stand_turn_about_z(declared, samples, rows):
    found = findings(
        f"fields: {{q: {{role: quaternion, shape: [4], order: {declared}}}}}", *samples
    )
    assert [(f.code, f.failed) for f in found] == ([] if rows is None else [("DC305", rows)])


# ------------------------------------------------------------------------------------------ DC312


VECTORS = "fields: {r: {role: rotvec, shape: [T, 3], unit: rad}}"


@pytest.mark.parametrize(
    ("length", "kinds"), [(3.14, []), (3.2, ["unwrapped"]), (6.28, ["unwrapped"]), (6.3, ["long"])]
)
def test_the_length_of_a_rotation_vector_says_what_it_is(length, kinds):
    r = np.array([0.6, 0.0, 0.8]) * np.full((50, 1), length) + [[0, 1e-9, 0]]
    r[0] += 1e-6
    found = findings(VECTORS, {"r": r})
    assert [f.kind for f in found] == kinds
    assert [f.severity for f in found] == [
        {"unwrapped": "info", "long": "warning"}[k] for k in kinds
    ]


def test_degrees_are_compared_with_degrees_and_joints_one_by_one():
    pose = np.full(48, 100.0)  # 16 joints of 173 degrees
    found = findings("fields: {r: {role: rotvec, shape: [48], unit: deg}}", {"r": pose})
    assert found == []
    assert (
        findings("fields: {r: {role: rotvec, shape: [48], unit: deg}}", {"r": 2.2 * pose})[0].kind
        == "long"
    )


def test_a_vector_that_turns_round_as_a_whole_is_no_euler_angle():
    angle = np.linspace(2.0, 4.2, 60)
    axis = np.array([0.6, 0.64, 0.48])
    wrapped = np.where(angle > np.pi, angle - 2 * np.pi, angle)[:, None] * axis
    yaw = (np.linspace(2.0, 4.2, 60) + np.pi) % (2 * np.pi) - np.pi
    euler = np.stack([np.full(60, 2.5), np.full(60, 0.4), yaw], axis=1)
    near = np.stack([np.full(60, 0.1), np.full(60, 0.4), yaw], axis=1)  # as well a vector about z
    column = Column.of([wrapped, euler, near, euler[:0]])
    found = spin.function(column, FieldSpec(role="rotvec", unit="rad"))
    assert found["euler"].values[:3].tolist() == [0, 1, 0]
    assert found["euler"].present.tolist() == [True, True, True, False]


# ------------------------------------------------------------------------------------------ DC311


def test_normals_are_counted_by_how_far_they_are_from_length_1():
    n = np.tile([0.0, 0.6, 0.8], (100, 1)).astype(np.float32)
    n[:3] *= 1.06
    n[3] = 0
    n[4] = np.nan
    found = normals.function(Column.of([n, n[10:], n[:0]]), FieldSpec(role="normal"))
    assert found["off"].values[0].tolist() == [5 if limit < 0.06 else 2 for limit in OFF]
    assert found["off"].values[1].tolist() == [0] * len(OFF)
    assert (found["none"].values[0], found["off"].present.tolist()) == (1, [True, True, False])


NORMALS = "fields: {n: {role: normal, shape: [P, 3]}, x: {role: value, shape: [2]}}"


@pytest.mark.parametrize(("count", "wanted"), [(1, []), (2, ["length"]), (100, ["absent"])])
def test_more_than_a_hundredth_of_the_normals_must_be_wrong(count, wanted):
    n = np.tile([0.0, 0.6, 0.8], (100, 1))
    n[:count] = 0
    found = findings(NORMALS, {"n": n, "x": np.ones(2)})
    assert [(f.code, f.kind, f.severity) for f in found] == [
        ("DC311", kind, "warning") for kind in wanted
    ]


# --------------------------------------------------------------------------------- matrices in JSON


def pose(number):
    matrix = np.eye(4)
    matrix[:3, :3] = rodrigues(rng(number).normal(size=(1, 3)))[0]
    matrix[:3, 3] = [number + 0.5, 2, 3]
    return matrix


def records(count, transposed=(), key="transform_matrix"):
    return [
        {"file_path": f"{i}.jpg", key: (pose(i).T if i in transposed else pose(i)).tolist()}
        for i in range(count)
    ]


FRAMES = "fields: {frames: {dtype: json}}"


@pytest.mark.parametrize(
    ("transposed", "where"),
    [
        ([3], "transform_matrix of frames 3"),
        ([0, 1, 5, 7, 8, 9], "transform_matrix of frames 0-1, 5, 7-9"),
    ],
)
def test_transposed_matrices_of_a_list_are_named_by_their_places(transposed, where):
    (found,) = findings(FRAMES, {"frames": records(20)}, {"frames": records(20, transposed)})
    assert (found.code, found.rows.tolist(), found.severity) == ("DC316", [1], "error")
    assert found.message.startswith(
        f"{len(transposed)} of 20 matrices in records are transposed ({where}):"
    )


@pytest.mark.parametrize(
    "frames",
    [
        records(20),
        records(7, [3]),  # too few
        records(20, range(11)),  # nobody knows which are right
        records(20, range(20)),  # all alike: a convention
        [*records(19), {"transform_matrix": np.eye(4).tolist()}],  # both rows and columns
        [
            *records(19),
            {"transform_matrix": [[1, 2, 3, 4]] * 4},
            {"transform_matrix": [[[0, 0, 0, 1]] * 4] * 4},
        ],
        [
            *records(19),
            {"transform_matrix": [["0", 0, 0, 1]] * 4},
            {"transform_matrix": [[2**62, 0, 0, 1]] * 4},
        ],
        [*records(19), 7, None, "x", [pose(1).T.tolist()], {"transform_matrix": {"x": [[1]]}}],
        {"0001": records(2)[0]},
        [[1, 2], [3, 4]],
    ],
)
def test_what_is_no_transposed_matrix(frames):
    assert [f.code for f in findings(FRAMES, {"frames": frames})] == []


def test_of_several_keys_the_one_with_transposed_matrices_is_named():
    both = [one | {"a": pose(i).tolist()} for i, one in enumerate(records(9, [4], "b"))]
    (found,) = findings(FRAMES, {"frames": both})
    assert "1 of 9 matrices in records are transposed (b of frames 4)" in found.message


def test_millions_of_other_records_are_passed_over_once():
    """They were passed over for each of up to 32 keys: seven seconds for a list of 10 MB."""
    spent, schema = [], schema_of(FRAMES)
    for keys in (1, 32):
        (block,) = stack([Piece("a", {"frames": [[[1]]]}, Origin("a"), "", {})], "")
        first = {f"k{i}": pose(i).tolist() for i in range(keys)}
        block.fields["frames"].__dict__["objects"] = [[first, *[{}] * 500_000]]
        spent.append(
            min(
                timeit(partial(record_matrices.function, block, schema), number=1) for _ in range(3)
            )
        )
    assert spent[1] < 8 * spent[0]
