"""Raw files: what the schema says decides, then the size."""

from __future__ import annotations

import numpy as np
import pytest

from datacheck.errors import FormatError
from datacheck.formats.base import Hint, open_container
from tests.formats.reading import CORPUS, read_all


def test_defaults_by_name_and_size():
    assert read_all(CORPUS / "kitti/y_000008.bin")["points"].shape == (6, 4)
    assert read_all(CORPUS / "kitti/y_flat.bin")["points"].shape == (3,)
    assert read_all(CORPUS / "kitti/y_lidar.pcd.bin")["points"].shape == (4, 5)
    labels = read_all(CORPUS / "kitti/y_000000.label")["labels"]
    assert (labels & 0xFFFF).tolist() == [40, 50]
    assert (labels >> 16).tolist() == [7, 0]


@pytest.mark.parametrize("count", [12, 9_000_000])  # read, mapped
def test_hints(tmp_path, count):
    data = np.arange(count, dtype="u2")
    data.tofile(tmp_path / "tokens.bin")
    with open_container(tmp_path / "tokens.bin", Hint("uint16", (4,))) as container:
        assert container.peek("points") == ((count // 4, 4), "<u2")
        np.testing.assert_array_equal(container.read("points"), data.reshape(-1, 4))
    with pytest.raises(FormatError, match=r"rows of \[7\] uint16, 14 bytes each"):
        open_container(tmp_path / "tokens.bin", Hint("uint16", (7,)))


@pytest.mark.parametrize("rows", [10, 2_000_000])  # read, mapped
def test_a_sweep_that_shrinks_after_it_was_opened_is_refused(tmp_path, rows):
    np.zeros((rows, 4), "<f4").tofile(tmp_path / "a.bin")
    with open_container(tmp_path / "a.bin") as container:
        (tmp_path / "a.bin").write_bytes(b"\0" * 24)
        with pytest.raises(FormatError, match="cannot be read"):
            container.read("points")
