import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from datacheck.model.voxel_grid import (
    are_last,
    cells,
    deciding_rows,
    last_rows,
    occupied,
    representatives,
)


def plain(points, edge):
    """Of each voxel its lowest row and its number of points, from a dictionary."""
    low = points.astype(np.float64).min(axis=0)
    found: dict[tuple[int, ...], list[int]] = {}
    for row, point in enumerate(points.astype(np.float64)):
        found.setdefault(tuple(np.floor((point - low) / edge).astype(int)), []).append(row)
    return sorted((rows[0], len(rows)) for rows in found.values())


clouds = hnp.arrays(
    np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.floats(-4, 4, width=32)
)


@given(clouds, st.sampled_from([0.05, 0.7, 3.0]))
def test_each_occupied_voxel_keeps_its_lowest_row(points, edge):
    rows, counts = occupied(points, edge)
    assert list(zip(rows.tolist(), counts.tolist(), strict=True)) == plain(points, edge)
    np.testing.assert_array_equal(representatives(points, edge), rows)


@given(clouds, st.sampled_from([0.05, 0.7, 3.0]), st.integers(1, 3), st.randoms())
def test_what_decides_holds_the_first_and_enough_of_each_owner(points, edge, enough, random):
    owner = np.array([random.randrange(4) for _ in points])
    first = np.array(
        [next((row for row, o in enumerate(owner) if o == who), -1) for who in (1, 2, 3)]
    )
    size = np.array([(owner == who).sum() for who in (1, 2, 3)])
    every = representatives(points, edge)
    some = deciding_rows(points, edge, owner, size, first, enough)
    assert set(some.tolist()) <= set(every.tolist())
    assert (np.diff(some) > 0).all()
    for who in (1, 2, 3):
        mine, all_of_it = some[owner[some] == who], every[owner[every] == who]
        assert mine[:1].tolist() == all_of_it[:1].tolist()
        assert len(mine) == len(all_of_it) or len(mine) >= enough


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_a_huge_extent_gives_the_same_kind_of_answer(scale):
    points = np.random.default_rng(0).uniform(0, scale, (200, 3))
    rows, counts = occupied(points, 0.3 * scale if scale == 1.0 else 1e-3)
    assert counts.sum() == 200
    assert (np.diff(rows) > 0).all()


def test_no_points_have_no_voxels():
    assert cells(np.zeros((0, 3)), 0.1).shape == (0, 3)
    assert [len(a) for a in occupied(np.zeros((0, 3)), 0.1)] == [0, 0]


@given(st.lists(st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=60))
def test_each_row_is_told_the_last_row_with_its_key(keys):
    last = [len(keys) - 1 - keys[::-1].index(key) for key in keys]
    assert last_rows(np.array(keys, dtype=np.int64)).tolist() == last
    assert are_last(np.array(keys, dtype=np.int64)).tolist() == [
        i == row for i, row in enumerate(last)
    ]


def test_keys_made_to_share_a_slot_are_told_apart_all_the_same():
    same_top_bits = np.arange(500, dtype=np.uint64) * np.uint64(
        pow(0x9E3779B97F4A7C15, -1, 1 << 64)
    )
    keys = np.concatenate([same_top_bits, same_top_bits[::-1]])
    assert last_rows(keys).tolist() == [*range(999, 499, -1), *range(500, 1000)]
    assert are_last(keys).tolist() == [False] * 500 + [True] * 500


def test_keys_that_share_every_slot_are_sorted(monkeypatch):
    from datacheck.model import voxel_grid

    monkeypatch.setattr(voxel_grid, "_ODD", (np.uint64(0),) * 3)
    keys = np.random.default_rng(0).integers(0, 40, 300)
    last = [int(np.flatnonzero(keys == key)[-1]) for key in keys]
    assert last_rows(keys).tolist() == last
    assert are_last(keys).tolist() == [i == row for i, row in enumerate(last)]


def sorted_cells(points, edge):
    """What `occupied` said before: cells in order of keys that are sorted."""
    cell = cells(points, edge)
    _, first, counts = np.unique(cell, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_scene_has_the_voxels_that_sorting_its_cells_gives(order):
    rng = np.random.default_rng(1)
    points = np.asarray(rng.uniform([-3, 0, 1], [4, 5, 3.5], (40_000, 3)), np.float32, order=order)
    for edge in (0.02, 0.1):
        for found, wanted in zip(occupied(points, edge), sorted_cells(points, edge), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_points_that_are_no_numbers_make_no_trouble():
    points = np.array([[0.0, 0, 0], [np.nan, 0, 0], [np.inf, 1, 1]])
    with np.errstate(all="ignore"):
        assert occupied(points, 0.1)[1].sum() == 3


def test_many_keys_are_told_apart_band_by_band(monkeypatch):
    from datacheck.model import voxel_grid

    keys = np.random.default_rng(3).integers(0, 900, 5000)
    whole = last_rows(keys)
    monkeypatch.setattr(voxel_grid, "_BAND", 700)
    assert last_rows(keys).tolist() == whole.tolist()
    for dtype in (np.int32, np.uint64):
        assert are_last(keys.astype(dtype)).tolist() == (whole == np.arange(5000)).tolist()
