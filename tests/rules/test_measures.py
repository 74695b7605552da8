"""What is measured of a sample depends on the sample alone, and is what plain NumPy says of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datacheck.model.sample import Column, Origin, Piece
from datacheck.rules import catalogue
from datacheck.rules.measures import components, finite, numbers, place, quantile, reduced, turn
from datacheck.rules.selection import choose_rules, measures_of
from datacheck.rules.skeletons import SKELETONS, bones
from datacheck.schema.model import FieldSpec
from tests.rules.harness import hand, measured, schema_of

SCHEMA = """
samples: {files: "*", group: "{seq}"}
fields:
  xyz: {role: points, shape: [P, 3], unit: m, size: 0.1..5, centered: no}
  label: {role: class, shape: [P], classes: 0..9, ignore: [-1]}
  instance: {role: instance, shape: [P], ignore: [-1], min_points: 3}
  joints: {role: joints, shape: [21, 3], unit: m, skeleton: mano21_ho3d, frame: camera_opengl, intrinsics: k,
           image_size: [640, 480]}
  k: {role: intrinsics, shape: [3, 3]}
  pose: {role: pose, shape: [G, 7], columns: "pos:3 quat:4"}
  pose.pos: {role: position, unit: m, near: place.pos, distance: 0..9}
  pose.quat: {role: quaternion, order: wxyz}
  place: {role: pose, shape: [7], columns: "pos:3 quat:4"}
  place.pos: {role: position, unit: m}
  q: {role: joint_angle, shape: [T, 2], unit: rad}
  a: {role: action, shape: [T, 2]}
  t: {role: timestamp, shape: [T], unit: s}
  v: {role: rotvec, shape: [6], unit: rad}
  flag: {role: flag, must_be: false}
  c: {role: chat, train_on: assistant}
  words: {role: text, min_trained_tokens: 1}
loader: {clip: 30, voxel: 0.1, min_points: 3}
attrs: {steps: T}
windows: {length: 4}
"""


def piece(number: int, sizes: tuple[int, int, int], wrong: float) -> Piece:
    """A sample of given numbers of points, grasps and steps; now and then with a NaN or a zero row."""
    rng = np.random.default_rng(number)
    points, grasps, steps = sizes
    fields = {
        "xyz": rng.normal(size=(points, 3)).astype(np.float32),
        "label": rng.integers(-1, 9, points).astype(np.float32),
        "instance": rng.integers(-1, 4, points),
        "joints": hand(rng)[0],
        "k": np.array([[600.0, 0, 320], [0, 600, 240], [0, 0, 1]]),
        "pose": rng.normal(size=(grasps, 7)),
        "place": rng.normal(size=7),
        "q": rng.normal(size=(steps, 2)),
        "a": rng.normal(size=(steps, 2)),
        "t": np.cumsum(rng.uniform(0.04, 0.09, steps)),
        "v": rng.normal(size=6),
        "flag": np.array(False),
        "c": [{"role": "user", "content": "?" * grasps}, {"role": "assistant", "content": "!"}],
        "words": "word " * points,
        "beyond": rng.normal(size=(steps, 2)),
    }
    if wrong > 0.7 and grasps:
        fields["pose"][0] = -1.0
    if wrong > 0.8 and points:
        fields["xyz"][-1] = np.nan
    if wrong > 0.9:
        fields["q"][steps // 2 :] = 0.0
    facts = {"id": str(number), "split_key": str(number % 3), "attrs/steps": np.array(steps)}
    return Piece(f"s{number:03d}", fields, Origin("f"), str(number % 2), facts)


samples = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 40), st.integers(0, 5), st.integers(0, 12)), st.floats(0, 1)
    ),
    min_size=1,
    max_size=6,
)


def same(one, other):
    assert one.keys == other.keys
    assert set(one.columns) == set(other.columns)
    for name, column in one.columns.items():
        twin = other.columns[name]
        equal(column.present, twin.present, name)
        equal(column.values[column.present], twin.values[twin.present], name)


def equal(one, other, name):
    """Fail unless two arrays are equal; NumPy's comparison takes a third of a millisecond, and is needed rarely."""
    if (one.dtype, one.shape) != (other.dtype, other.shape) or one.tobytes() != other.tobytes():
        np.testing.assert_array_equal(one, other, err_msg=name)


@settings(max_examples=25)
@given(samples, st.randoms(use_true_random=False))
def test_a_block_measures_as_its_samples_do_alone_in_any_order(drawn, random):
    schema = schema_of(SCHEMA)
    pieces = [("", piece(n, sizes, wrong)) for n, (sizes, wrong) in enumerate(drawn)]
    together = measured(schema, pieces)
    same(together, measured(schema, pieces, alone=True))
    random.shuffle(pieces)
    same(together, measured(schema, pieces))


def test_long_samples_measure_as_short_ones_beside_them():
    schema = schema_of(SCHEMA)
    pieces = [
        ("", piece(n, (points, 3, 9), 0.0)) for n, points in enumerate([9, 5000, 20, 4096, 4095])
    ]
    same(measured(schema, pieces), measured(schema, pieces, alone=True))


def test_thresholds_change_no_row():
    plain = schema_of(SCHEMA)
    pieces = [("", piece(n, (20, 3, 9), 0.95)) for n in range(4)]
    rows = measured(plain, pieces)
    as_they_are = {}
    for code, rule in catalogue().items():
        wild = {
            name: value * 7 if isinstance(value, float) else value
            for name, value in rule.defaults.items()
        }
        if wild == dict(rule.defaults):
            as_they_are |= {code: wild} if wild else {}
            continue
        rules = schema_of({"rules": {code: wild}}).rules
        same(rows, measured(plain.model_copy(update={"rules": rules}), pieces))
    assert as_they_are
    rules = schema_of({"rules": as_they_are}).rules
    same(rows, measured(plain.model_copy(update={"rules": rules}), pieces))
    wide = schema_of(
        SCHEMA.replace("size: 0.1..5", "size: 1..2").replace("distance: 0..9", "distance: 1..2")
    )
    same(rows, measured(wide, pieces))


def test_what_rows_depend_on_is_said_and_thresholds_are_not():
    plain = schema_of(SCHEMA)
    known = {m.name: m.settings(plain) for m in measures_of(choose_rules(plain, catalogue()))}
    other = schema_of(
        SCHEMA.replace("size: 0.1..5", "size: 1..2").replace("voxel: 0.1", "voxel: 0.2")
    )
    changed = {
        m.name
        for m in measures_of(choose_rules(other, catalogue()))
        if m.settings(other) != known[m.name]
    }
    assert changed == {"funnel", "objects"}
    other = schema_of(SCHEMA.replace("skeleton: mano21_ho3d", "skeleton: mano21_openpose"))
    changed = {
        m.name
        for m in measures_of(choose_rules(other, catalogue()))
        if m.settings(other) != known[m.name]
    }
    assert changed == {"bones"}
    order = "loader: {voxel: 0.1, clip: 30, min_points: 3}"
    other = schema_of(SCHEMA.replace("loader: {clip: 30, voxel: 0.1, min_points: 3}", order))
    changed = {
        m.name
        for m in measures_of(choose_rules(other, catalogue()))
        if m.settings(other) != known[m.name]
    }
    assert changed == {"funnel", "objects"}


ragged = st.lists(st.integers(0, 9), min_size=1, max_size=6)


def arrays(sizes, item=(), seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(-5, 6, (size, *item)).astype(np.float32) for size in sizes]


@given(ragged)
def test_reductions_are_those_of_each_sample(sizes):
    parts = arrays(sizes, (2,))
    column = Column.of(parts)
    rows = np.ascontiguousarray(column.values.T)
    for ufunc, each in ((np.add, np.sum), (np.minimum, np.min), (np.maximum, np.max)):
        wanted = [each(p, axis=0) if len(p) else np.zeros(2) for p in parts]
        np.testing.assert_array_equal(reduced(ufunc, rows, column.lengths), np.transpose(wanted))


@given(ragged, st.floats(0, 1))
def test_quantiles_are_the_lower_ones_of_each_sample(sizes, share):
    parts = arrays(sizes)
    column = Column.of(parts)
    wanted = [np.quantile(p, share, method="lower") if len(p) else np.nan for p in parts]
    # floor(share * (n - 1)) may sit on the next value where the product is a whole number but for
    # rounding
    found = quantile(column.values, column.lengths, share)
    for value, want, part in zip(found, wanted, parts, strict=True):
        assert (np.isnan(value) and not len(part)) or value in part
        assert (
            np.isnan(want)
            or abs(np.searchsorted(np.sort(part), value) - np.searchsorted(np.sort(part), want))
            <= 1
        )


def test_a_declared_vector_has_components_and_one_of_another_length_has_none():
    column = Column.of([np.arange(4.0), np.arange(3.0), 10 + np.arange(4.0)])
    values, lengths, fits = components(column, FieldSpec(role="value", shape=(4,)))
    assert (values.shape, lengths, fits.tolist()) == ((4, 3), None, [True, False, True])
    found = numbers.function(column, FieldSpec(role="value", shape=(4,)))
    assert found["min"].present.tolist() == [True, False, True]
    np.testing.assert_array_equal(found["max"].values[2], [10, 11, 12, 13])


def test_finiteness_is_counted_per_sample_with_the_first_bad_row():
    column = Column.of(
        [np.zeros((3, 2)), np.array([[0, 1], [np.inf, np.nan], [0, np.nan]]), np.zeros((0, 2))]
    )
    found = finite.function(column, FieldSpec())
    assert (found["count"].tolist(), found["nonfinite"].tolist()) == ([6, 6, 0], [0, 3, 0])
    assert found["bad_row"].tolist() == [-1, 1, -1]
    huge = Column.of([np.full((4, 2), 3e38, np.float32)])  # finite numbers whose sum is not
    assert finite.function(huge, FieldSpec())["nonfinite"].tolist() == [0]


def test_a_place_is_where_plain_numpy_says():
    rng = np.random.default_rng(5)
    parts = [rng.normal(size=(size, 3)) for size in (1, 7, 50)]
    found = place.function(Column.of(parts), FieldSpec(role="position"))
    for i, part in enumerate(parts):
        span = part.max(axis=0) - part.min(axis=0)
        np.testing.assert_allclose(found["box"].values[i], np.linalg.norm(span), atol=1e-12)
        np.testing.assert_allclose(found["centroid"].values[i], part.mean(axis=0))
        np.testing.assert_allclose(found["first"].values[i], part[0])
        assert found["front"].values[i] == (part[:, 2] > 0).mean()
        norms = np.sort(np.linalg.norm(part, axis=1))
        np.testing.assert_allclose(found["norm"].values[i], norms[(len(norms) - 1) // 2])


def test_angles_are_taken_without_their_sign():
    found = turn.function(
        Column.of([np.array([[-3.0, 1.0], [2.0, 0.5]])]), FieldSpec(role="joint_angle")
    )
    assert (found["peak"].values[0], found["p99"].values[0]) == (3.0, 2.0)


@pytest.mark.parametrize("name", sorted(SKELETONS))
def test_a_skeleton_names_every_joint_once_and_fits_in_a_row(name):
    skeleton = SKELETONS[name]
    assert sorted({j for pair in skeleton.bones for j in pair}) == list(range(21))
    assert len(skeleton.bones) == len(skeleton.table) == len(skeleton.bone_names) == 20
    assert len(set(skeleton.pairs)) == len(skeleton.pairs) <= 64
    assert skeleton.pairs[:20] == skeleton.bones
    assert skeleton.median == pytest.approx(0.028, abs=1e-4)


def test_bones_have_the_published_lengths():
    column = Column.of([hand(np.random.default_rng(3))[0]])
    found = bones.function(column, FieldSpec(role="joints", skeleton="mano21_ho3d"))
    wanted = [0.0906, 0.0330, 0.0222, 0.0255, 0.0947, 0.0317, 0.0233, 0.0263]  # index, middle
    np.testing.assert_allclose(found["pairs"].values[0, :8], wanted, atol=1e-6)
    assert found["bone"].values[0] == pytest.approx(0.028, abs=1e-4)


def test_bones_of_sequences_are_medians_over_their_steps():
    spec, still = (
        FieldSpec(role="joints", skeleton="mano21_ho3d"),
        hand(np.random.default_rng(3))[0].astype(np.float64),
    )
    sizes = [np.array([1.0, 1.0, 1.3, 0.9, 1.0]), np.ones(0), np.array([2.0])]
    found = bones.function(Column.of([size[:, None, None] * still for size in sizes]), spec)
    single = bones.function(Column.of([still]), spec)["pairs"].values[0].astype(np.float64)
    assert found["pairs"].present.tolist() == [True, False, True]
    assert found["moments"].values.tolist() == [5, 0, 1]
    for row, size in ((0, sizes[0]), (2, sizes[2])):
        np.testing.assert_allclose(found["pairs"].values[row], np.median(size) * single, rtol=1e-6)
        np.testing.assert_allclose(
            found["sway"].values[row], np.std(size) * single, rtol=1e-5, atol=1e-9
        )
        strain = np.abs(size - np.median(size)).max() * single[:20]
        np.testing.assert_allclose(found["strain"].values[row], strain, rtol=1e-5, atol=1e-9)
