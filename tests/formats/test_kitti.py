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


RNG = np.random.default_rng(3)
XYZ = np.c_[RNG.uniform(-60, 60, (400, 2)), RNG.uniform(-3, 4, 400)]
SHARE, RING, RGB = (
    RNG.uniform(0, 1, (400, 1)),
    RNG.integers(0, 32, (400, 1)),
    RNG.integers(0, 256, (400, 3)),
)


@pytest.mark.parametrize(
    ("columns", "shape"),
    [
        ([XYZ, SHARE], (400, 4)),  # KITTI
        ([XYZ, (255 * SHARE).round(), RING], (400, 5)),  # nuScenes
        ([XYZ, RGB], (400, 6)),  # ScanNet of mmdetection3d
        ([XYZ, RGB / 255], (400, 6)),  # SUN RGB-D
        ([np.abs(XYZ), SHARE], (400, 4)),
        ([XYZ / 1000, SHARE], (400, 4)),
        ([XYZ], (300, 4)),  # nothing says how many columns there are
        ([XYZ[:399]], (1197,)),
    ],
)
def test_the_columns_of_raw_coordinates_are_told_by_their_numbers(tmp_path, columns, shape):
    np.concatenate(columns, axis=1).astype(np.float32).tofile(tmp_path / "a.bin")
    assert read_all(tmp_path / "a.bin")["points"].shape == shape


INTEGERS = [
    RNG.integers(0, 20, 4001).astype(np.uint8),  # semantic labels
    np.where(RNG.random(4000) < 0.97, 0, 255).astype(np.uint8),  # a mask
    RNG.integers(0, 256, 4000).astype(np.uint8),
    RNG.integers(0, 50_257, 4000).astype(np.uint16),  # tokens
    (50_257 * RNG.random(4000) ** 8).astype(np.uint16),  # most of them frequent ones
    # SemanticKITTI
    (RNG.integers(0, 20, 4000) | RNG.integers(0, 300, 4000) << 16).astype(np.uint32),
    RNG.integers(-1, 40, 4000).astype(np.int64),  # masks of mmdetection3d
    RNG.integers(0, 128_256, 4000).astype(np.uint32),
]


@pytest.mark.parametrize("values", INTEGERS)
def test_integers_are_no_coordinates(tmp_path, values):
    values.tofile(tmp_path / "a.bin")
    found = read_all(tmp_path / "a.bin")
    assert found["bytes"].tobytes() == values.tobytes()
    with open_container(
        tmp_path / "a.bin", Hint(values.dtype.name)
    ) as container:  # as a schema may say
        np.testing.assert_array_equal(container.read("points"), values)


def test_a_few_nan_do_not_make_a_cloud_bytes(tmp_path):
    cloud = np.concatenate([XYZ, SHARE], axis=1).astype(np.float32)
    cloud[::9] = np.nan
    cloud[::11, 3] = 0
    cloud.tofile(tmp_path / "a.bin")
    np.testing.assert_array_equal(read_all(tmp_path / "a.bin")["points"], cloud)
