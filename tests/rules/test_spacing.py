"""How far points are apart: grids of a known step, and SciPy's KD-tree of all points."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from datacheck.model.sample import Column
from datacheck.rules.families.clouds import repeats
from datacheck.rules.point_spacing import spacing
from datacheck.schema.model import FieldSpec
from tests.rules.harness import judged, measured, pieces_of, schema_of


def apart(*clouds):
    """The spacing of each cloud of one block, None where there is none."""
    column = Column(np.concatenate(clouds), np.array([len(c) for c in clouds]))
    with np.errstate(all="ignore"):
        found = spacing(column, np.ones(len(column), bool))
    return [
        value if known else None
        for value, known in zip(found.values.tolist(), found.present, strict=True)
    ]


def grid(*sides):
    return np.indices(sides).reshape(3, -1).T


def sphere(count, seed=0):
    points = np.random.default_rng(seed).standard_normal((count, 3))
    return points / np.linalg.norm(points, axis=1)[:, None]


def nearest(cloud):
    """The distance of each place to the nearest other one."""
    places = np.unique(cloud.astype(np.float64) + 0.0, axis=0)
    return cKDTree(places).query(places, 2)[0][:, 1]


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float32, np.float64, np.uint16, np.int64, np.int8]
)
@pytest.mark.parametrize("sides", [(6, 7, 8), (1, 40, 3), (5, 1, 1)])
def test_points_of_a_grid_are_a_step_apart(sides, dtype):
    assert apart((grid(*sides) * 3).astype(dtype)) == [3.0]


@pytest.mark.parametrize(
    "sides", [(1, 150, 200), (31, 30, 32), (20, 1, 1000), (30_000, 1, 1), (400, 700, 1)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint16])
@pytest.mark.parametrize("order", ["rising", "mixed"])
def test_so_are_those_of_a_large_one_in_any_order(sides, dtype, order):
    cloud = (grid(*sides) * 2).astype(dtype)
    cloud = np.random.default_rng(1).permutation(cloud) if order == "mixed" else cloud
    assert apart(cloud, cloud[: len(cloud) // 2]) == [2.0, 2.0]


@given(
    st.lists(st.tuples(*[st.integers(-3, 3)] * 3), min_size=2, max_size=32),
    st.integers(-20, 20),
    st.sampled_from([np.float32, np.float64]),
)
def test_of_few_points_it_is_the_median_over_all_of_them(places, exponent, dtype):
    cloud = np.array(places, dtype) * dtype(2.0**exponent)
    if len({*places}) < 2:
        assert apart(cloud) == [None]
        return
    tree = cKDTree(np.unique(cloud, axis=0))
    gaps = sorted(tree.query(point, 2)[0][1] for point in cloud)
    assert apart(cloud)[0] == pytest.approx(gaps[(len(gaps) - 1) // 2], rel=1e-6)


CLOUDS = {
    "sphere": lambda n: sphere(n) * 0.05,
    "volume": lambda n: np.random.default_rng(2).uniform(-1, 1, (n, 3)),
    "line": lambda n: np.random.default_rng(3).uniform(0, 1, (n, 1)) * [1, 2, 3],
    "plane": lambda n: np.random.default_rng(4).uniform(0, 1, (n, 3)) * [1, 0, 1],
    "lidar": lambda n: sphere(n) * np.exp(np.random.default_rng(5).normal(0, 1.5, (n, 1))),
    "two things": lambda n: sphere(n) * 0.1 + (np.arange(n) % 2)[:, None] * 50,
    "far away": lambda n: sphere(n) * 20 + [5e5, 4e6, 100],
    "an outlier": lambda n: np.where(np.arange(n)[:, None] == n // 2, 1e30, sphere(n)),
    "tiny": lambda n: sphere(n) * 1e-25,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count", [500, 3_000, 40_000])
@pytest.mark.parametrize("kind", CLOUDS)
def test_it_is_the_distance_of_a_usual_point_to_its_nearest(kind, count, dtype):
    cloud = CLOUDS[kind](count).astype(dtype)
    gaps, (found,) = nearest(cloud), apart(cloud)
    assert np.isclose(gaps, found, rtol=1e-5, atol=0).any()
    # Close to it points are far denser, and the few asked see few of these
    usual = 0.02 if kind == "lidar" else 0.15
    assert np.quantile(gaps, usual) <= found <= np.quantile(gaps, 1 - usual)


@pytest.mark.parametrize("count", [60, 3_000])
def test_copies_are_no_neighbours_and_what_is_not_finite_is_no_point(count):
    cloud = grid(1, count, 40)[: 4 * count].astype(np.float32)
    assert apart(np.repeat(cloud, 3, axis=0)) == [1.0]
    assert apart(np.concatenate([cloud, np.repeat(cloud[-1:], len(cloud), axis=0)])) == [1.0]
    holes = cloud.copy()
    holes[::2] = [np.nan, np.inf, 0]
    whole = np.delete(cloud, np.s_[::2], axis=0)
    (found,) = apart(holes)
    assert found in nearest(whole)
    assert found == pytest.approx(np.median(nearest(whole)))
    holes[: 4 * count - 20] = np.nan
    assert apart(holes) == [pytest.approx(np.median(nearest(whole[-10:])))]


@pytest.mark.parametrize(
    "cloud",
    [
        np.zeros((0, 3)),
        np.ones((1, 3)),
        np.ones((2, 3)),
        np.ones((5_000, 3)),
        np.full((9, 3), np.nan),
        np.full((5_000, 3), np.inf),
        np.array([[0, 0, 0], [np.nan, 0, 0]]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_without_two_places_there_is_none(cloud, dtype):
    assert apart(cloud.astype(dtype), np.eye(3, dtype=dtype)) == [None, pytest.approx(2**0.5)]


@pytest.mark.parametrize(
    ("far", "dtype"), [(1e30, np.float32), (3e38, np.float32), (1e150, np.float64)]
)
def test_numbers_however_large_are_measured(far, dtype):
    assert apart(np.array([[0, 0, 0], [0, far, 0]], dtype)) == [pytest.approx(far)]
    assert apart(np.array([[0, 0, 0], [0, far, 0], [1, 0, 0]], dtype)) == [1.0]


def test_a_cloud_has_the_same_spacing_beside_any_others():
    rng = np.random.default_rng(6)
    clouds = [
        rng.normal(size=(n, 3)).astype(np.float32)
        for n in (7, 7, 300, 5_000, 3_000, 7, 2_048, 2_049)
    ]
    assert apart(*clouds) == [apart(cloud)[0] for cloud in clouds]


def test_frames_of_an_episode_are_no_cloud():
    assert spacing(Column(np.zeros((4, 9, 3)), np.array([4])), np.ones(1, bool)) is None
    assert spacing(Column(np.zeros((4, 3))), np.ones(4, bool)) is None


def test_of_a_cloud_with_copies_it_is_said_how_far_others_are_apart():
    schema = schema_of({"fields": {"p": {"role": "points", "shape": ["P", 3], "unit": "cm"}}})
    cloud = np.concatenate([grid(1, 5, 4) * 0.5 + 0.25, np.full((30, 3), 0.25)])
    (finding,) = judged(schema, measured(schema, pieces_of([{"p": cloud.tolist()}]))).findings
    assert finding.message.endswith(
        "copies of another one (60 % of them; others are 0.5 cm apart, median)."
    )


def test_a_fourth_of_small_clouds_and_every_large_one_is_asked_whatever_lies_beside_it():
    rng = np.random.default_rng(8)
    clouds = [np.concatenate([np.zeros((1, 3)), rng.normal(size=(20, 3))]) for _ in range(400)]
    clouds += [rng.normal(size=(65_537, 3)), np.zeros((0, 3))]
    found = [
        repeats.function(Column.of(some), FieldSpec(role="points"))["spacing"]
        for some in (clouds, clouds[:200])
    ]
    known = found[0].present
    # Of 400 with one chance in four: 100, and 8.7 off
    assert 70 < np.count_nonzero(known[:400]) < 130
    assert known[400:].tolist() == [True, False]
    assert found[1].present.tolist() == known[:200].tolist()
