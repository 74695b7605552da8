"""Too few points, and the same points again: counts from NumPy's unique rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.model.sample import Column
from datacheck.rules.families.clouds import repeats
from datacheck.schema.model import FieldSpec
from tests.rules.harness import codes, judged, measured, pieces_of, scan, schema_of

POINTS = FieldSpec(role="points", shape=("P", 3))


def copies(*clouds):
    """Return (points, copies) of each cloud as the measurement sees them in one block."""
    column = Column(np.concatenate(clouds), np.array([len(c) for c in clouds]))
    found = repeats.function(column, POINTS)
    return list(zip(found["placed"].tolist(), found["copies"].values.tolist(), strict=True))


def expected(cloud):
    whole = cloud[np.isfinite(cloud).all(axis=1)] + 0.0
    return len(whole), len(whole) - len(np.unique(whole, axis=0)) if len(whole) else 0


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.integers(1, 12),
    st.integers(0, 99),
    st.sampled_from([np.float32, np.float64]),
)
def test_copies_are_what_unique_rows_leave_over(sizes, values, seed, dtype):
    rng = np.random.default_rng(seed)
    levels = np.array([np.nan, np.inf, -0.0, 0.0, *rng.standard_normal(values)], dtype=dtype)
    clouds = [rng.choice(levels, (size, 3), p=None) for size in sizes]
    assert copies(*clouds) == [expected(c) for c in clouds]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_large_clouds_are_counted_exactly(dtype):
    rng = np.random.default_rng(5)
    cloud = rng.integers(-40, 40, (60_000, 3)).astype(dtype)
    assert copies(cloud, cloud[:7]) == [expected(cloud), expected(cloud[:7])]
    assert expected(cloud)[1] > 3000


def test_of_a_large_cloud_a_few_copies_count_as_none_and_more_are_counted():
    rng = np.random.default_rng(6)
    cloud = rng.standard_normal((100_000, 3)).astype(np.float32)
    few, many, one = cloud.copy(), cloud.copy(), cloud.copy()
    few[:300] = cloud[300:600]
    many[:2_000] = cloud[2_000:4_000]
    one[:30_000] = cloud[30_000]  # all copies in one place
    wanted = [(100_000, n) for n in (0, 0, 2_000, 30_000)]
    assert copies(cloud, few, many, one) == wanted
    assert [copies(c)[0] for c in (cloud, few, many, one)] == wanted
    assert copies(few[:600]) == [(600, 300)]


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("step", [1.0, 0.01])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_points_on_a_line_or_in_a_plane_copies_are_counted(axes, step, dtype):
    side = 100_000 if len(axes) == 1 else 317
    cloud = np.zeros((side ** len(axes), 3), dtype)
    cloud[:, list(axes)] = np.indices((side,) * len(axes)).reshape(len(axes), -1).T * step
    cloud[-2_500:] = cloud[:2_500]
    assert copies(cloud) == [expected(cloud)]


def test_equal_points_of_two_clouds_are_no_copies():
    cloud = np.random.default_rng(1).standard_normal((9, 3))
    assert copies(cloud, cloud, cloud[::-1]) == [(9, 0)] * 3


def test_minus_zero_is_zero_and_points_without_a_place_do_not_count():
    zeros = np.array([[0.0, 1, 2], [-0.0, 1, 2], [np.nan, 0, 0], [np.nan, 0, 0]])
    assert copies(zeros) == [(2, 1)]


SCHEMA = {"fields": {"p": {"role": "points", "shape": ["P", 3], "finite": False, "min_points": 8}}}


def found(clouds, schema=SCHEMA):
    schema = schema_of(schema)
    samples = pieces_of([{"p": cloud.tolist()} for cloud in clouds])
    return judged(schema, measured(schema, samples))


def test_a_cloud_padded_with_its_last_point_is_found_a_few_copies_are_not():
    cloud = np.random.default_rng(2).standard_normal((100, 3))
    few, many = cloud.copy(), cloud.copy()
    few[80:], many[79:] = few[79], many[78]  # 20 and 21 copies of 100
    (finding,) = found([cloud, few, many]).findings
    assert (finding.code, finding.severity, finding.failed, finding.examples) == (
        "DC227",
        "warning",
        1,
        ("s000002",),
    )
    assert finding.measured == {"share": 0.21, "points": 21}


def test_missing_points_of_an_organised_cloud_are_no_copies():
    cloud = np.random.default_rng(3).standard_normal((100, 3))
    cloud[10:90] = np.nan
    assert found([cloud]).findings == []


def test_the_fewest_points_are_a_lower_bound():
    clouds = [
        np.random.default_rng(i).standard_normal((size, 3)) for i, size in enumerate([8, 7, 200])
    ]
    (finding,) = found(clouds).findings
    assert (finding.code, finding.severity, finding.failed, finding.measured) == (
        "DC124",
        "error",
        1,
        {"smallest": 7},
    )


def test_an_empty_cloud_is_reported_once():
    text = """
    schema: {fields: {p: {role: points, shape: [P, 3], min_points: 8}}}
    samples:
      - {n: 2, p: {box: [30, 3]}}
      - {p: {normal: [0, 3]}}
    """
    assert codes(scan(text)[0]) == ["DC124"]


def test_a_cloud_without_points_is_found_where_the_schema_names_no_fewest():
    text = """
    schema: {fields: {p: {role: points, shape: [P, 3], size: 0..100}}}
    samples:
      - {n: 2, p: {box: [30, 3]}}
      - {p: {normal: [0, 3]}}
      - {p: {box: [2, 3]}}
    """
    found_, _ = scan(text)
    assert [(f.code, f.failed, f.message) for f in found_.findings] == [
        ("DC124", 1, "1 sample has no points.")
    ]


def test_one_point_of_a_small_cloud_may_be_the_origin_two_may_not():
    cloud = np.random.default_rng(4).standard_normal((40, 3))
    one, two = cloud.copy(), cloud.copy()
    one[0], two[[0, 9]] = 0, 0
    findings = [(f.code, f.severity, f.failed) for f in found([one, two]).findings]
    assert findings == [("DC222", "warning", 1)]
