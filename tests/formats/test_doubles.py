"""A file in which a value has the name of one that is made of others is refused: one of the two would not be seen."""

from __future__ import annotations

import io

import h5py
import numpy as np
import pytest

from datacheck.errors import FormatError
from tests.formats.reading import read_all

PCD = """VERSION .7
FIELDS x y z points
SIZE 4 4 4 4
TYPE F F F F
COUNT 1 1 1 3
WIDTH 1
HEIGHT 1
POINTS 1
DATA ascii
"""
PLY = """ply
format ascii 1.0
element vertex 3
property float x
property float y
property float z
element face 1
property list uchar int vertex_index
property list uchar int vertex_indices
end_header
0 0 0
1 0 0
0 1 0
3 0 1 2 3 0 0 0
"""


def npz(path):
    np.savez(path, **{"s": np.zeros(2, [("a", "f4")]), "s.a": np.ones(2, "f4")})


def hdf5(path):
    with h5py.File(path, "w") as file:
        file["t"], file["t.v"] = np.zeros(2, [("v", "f4")]), np.ones(2, "f4")


DOUBLE = {
    "a.pcd": lambda path: path.write_text(f"{PCD}1 2 3 4 5 6\n"),
    "a.ply": lambda path: path.write_text(PLY),
    "a.yaml": lambda path: path.write_text('1: [.nan]\n"1": [1.0]\n'),
    "a.npz": npz,
    "a.h5": hdf5,
}


@pytest.mark.parametrize("name", DOUBLE)
def test_two_values_of_one_name_are_refused(tmp_path, name):
    DOUBLE[name](tmp_path / name)
    with pytest.raises(FormatError, match="two values are named"):
        read_all(tmp_path / name)


def test_a_zip_behind_an_array_is_no_npz(tmp_path):
    """NumPy goes by the first bytes: it reads the array, and the members of the zip nowhere."""
    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.full(3, np.nan))
    np.savez(archive, points=np.zeros(3))
    (tmp_path / "a.npz").write_bytes(array.getvalue() + archive.getvalue())
    assert np.isnan(np.load(tmp_path / "a.npz")).all()
    with pytest.raises(FormatError, match="NumPy goes by the first bytes"):
        read_all(tmp_path / "a.npz")
