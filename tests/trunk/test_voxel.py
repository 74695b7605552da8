import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.voxel import cells, occupied, representatives


def plain(points, edge):
    """Of each voxel its lowest row and its number of points, from a dictionary."""
    low = points.astype(np.float64).min(axis=0)
    found: dict[tuple[int, ...], list[int]] = {}
    for row, point in enumerate(points.astype(np.float64)):
        found.setdefault(tuple(np.floor((point - low) / edge).astype(int)), []).append(row)
    return sorted((rows[0], len(rows)) for rows in found.values())


clouds = hnp.arrays(np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.floats(-4, 4, width=32))


@given(clouds, st.sampled_from([0.05, 0.7, 3.0]))
def test_each_occupied_voxel_keeps_its_lowest_row(points, edge):
    rows, counts = occupied(points, edge)
    assert list(zip(rows.tolist(), counts.tolist(), strict=True)) == plain(points, edge)
    np.testing.assert_array_equal(representatives(points, edge), rows)


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_a_huge_extent_gives_the_same_kind_of_answer(scale):
    points = np.random.default_rng(0).uniform(0, scale, (200, 3))
    rows, counts = occupied(points, 0.3 * scale if scale == 1.0 else 1e-3)
    assert counts.sum() == 200
    assert (np.diff(rows) > 0).all()


def test_no_points_have_no_voxels():
    assert cells(np.zeros((0, 3)), 0.1).shape == (0, 3)
    assert [len(a) for a in occupied(np.zeros((0, 3)), 0.1)] == [0, 0]
