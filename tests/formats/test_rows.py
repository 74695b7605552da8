"""Rows of an array are the same rows that reading all of it gives, in every format that can leave the rest unread."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datacheck.formats.base import open_container
from tests.formats.reading import check_value

DATA = np.arange(60, dtype=">f8").reshape(20, 3)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    np.save(folder / "a.npy", DATA)
    with h5py.File(folder / "a.hdf5", "w") as file:
        file.create_dataset("array", data=DATA, chunks=(7, 3), compression="gzip")
    array = zarr.create_array(folder / "a.zarr", shape=DATA.shape, chunks=(7, 3), dtype=">f8")
    array[:] = DATA
    return folder


@pytest.mark.parametrize("name", ["a.npy", "a.hdf5", "a.zarr"])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(0, 25), count=st.integers(0, 25))
def test_rows_are_a_slice(stored, name, start, count):
    with open_container(stored / name) as container:
        rows = container.read_rows("array", start, start + count)
        check_value(name, rows)
        np.testing.assert_array_equal(rows, DATA[start : start + count])
        with pytest.raises(KeyError):
            container.read_rows("other", 0, 1)


def test_rows_of_a_dataset_too_large_to_read_whole(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        data = file.create_dataset("array", (1 << 33,), "u1", chunks=(1 << 10,))
        data[5:8] = [1, 2, 3]
    with open_container(tmp_path / "a.hdf5") as container:
        assert container.read_rows("array", 4, 9).tolist() == [0, 1, 2, 3, 0]
