"""A name whose group is not there is absent, not damage: optional observations of robot demonstrations."""

import h5py
import numpy as np
import pytest

from datacheck.formats.base import open_container


def test_a_value_below_a_group_that_does_not_exist_is_absent(tmp_path):
    with h5py.File(tmp_path / "demo.hdf5", "w") as file:
        file["data/demo_0/actions"] = np.zeros((5, 7))
    with open_container(tmp_path / "demo.hdf5") as container:
        assert container.read("data/demo_0/actions").shape == (5, 7)
        for name in ("data/demo_0/obs/image", "data/demo_1/obs/deep/er", "else"):
            with pytest.raises(KeyError):
                container.read(name)
