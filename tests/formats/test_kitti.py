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


CALIBRATION = """P2: 700 0 600 45 0 700 170 0.2 0 0 1 0.003
R0_rect: 1 0 0 0 1 0 0 0 1
Tr_velo_to_cam: 0 -1 0 0.5 0 0 -1 -0.25 1 0 0 -2
"""
LABELS = """Car 0.00 0 1.85 387.5 181.5 423.5 203.5 1.5 1.75 4.0 -16.5 2.25 58.5 1.57
DontCare -1 -1 -10 503.5 169.5 590.5 190.5 -1 -1 -1 -1000 -1000 -1000 -10
Cyclist 0.50 3 -1.65 676.5 163.5 688.5 193.5 2.0 0.5 1.75 4.5 1.25 45.5 -1.55
"""


def values_of(folder, text):
    (folder / "a.txt").write_text(text)
    return read_all(folder / "a.txt")


def test_a_calibration_gives_its_matrices_and_the_way_from_the_camera_to_the_lidar(tmp_path):
    found = values_of(tmp_path, CALIBRATION)
    assert {name: value.shape for name, value in found.items()} == {
        "P2": (3, 4),
        "R0_rect": (3, 3),
        "Tr_velo_to_cam": (3, 4),
        "camera_to_velo": (4, 4),
    }
    # The camera looks along the lidar's x: its z is x + 2, its x is -y + 0.5, its y is -z - 0.25.
    point = found["camera_to_velo"] @ [1.0, 2.0, 3.0, 1.0]
    np.testing.assert_allclose(point, [3.0 + 2.0, 0.5 - 1.0, -2.0 - 0.25, 1.0])


def test_labels_give_boxes_in_the_axes_of_the_camera(tmp_path):
    found = values_of(tmp_path, LABELS)
    assert found["names"] == ["Car", "Cyclist"]  # a region to ignore is no object
    assert found["location"].tolist() == [[-16.5, 2.25, 58.5], [4.5, 1.25, 45.5]]
    assert found["dimensions"][0].tolist() == [1.5, 1.75, 4.0]
    assert found["boxes_2d"][1].tolist() == [676.5, 163.5, 688.5, 193.5]
    # The centre is half of the height above the underside, and y points down.
    assert found["boxes"][0].tolist() == [-16.5, 1.5, 58.5, 4.0, 1.5, 1.75, 1.57]
    cloud_only = LABELS.replace("387.5 181.5 423.5 203.5", "0 0 0 0").replace(
        "676.5 163.5 688.5 193.5", "0 0 0 0"
    )
    assert "boxes_2d" not in values_of(tmp_path, cloud_only)
    only_regions = values_of(tmp_path, LABELS.splitlines()[1])
    assert (only_regions["names"], only_regions["boxes"].shape) == ([], (0, 7))


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("1.25", r"line 3 has 13 numbers behind the class; the first line has 14 numbers"),
        ("1.25 ?", "line 3 holds words behind the class"),
    ],
)
def test_a_damaged_line_of_labels_is_named(tmp_path, new, reason):
    with pytest.raises(FormatError, match=reason):
        values_of(tmp_path, LABELS.replace("1.25 45.5", new))


@pytest.mark.parametrize(
    "text",
    [
        "the 0.1 7 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1.0 1.1 1.2 1.3\nof 0 0\n",  # word vectors
        "Ann: 1 2 3 go\nBob: no\n",
        "a: 1 2 3\na: 4 5 6\n",
        "width: 640\nheight: 480\n",
        "x: 1 2 3\n" * 65,
    ],
)
def test_other_texts_stay_texts(tmp_path, text):
    assert values_of(tmp_path, text) == {"text": text}


def test_a_calibration_that_cannot_be_inverted_lacks_the_way_back(tmp_path):
    flat = CALIBRATION.replace("0 0 -1 -0.25", "0 0 0 0")
    assert "camera_to_velo" not in values_of(tmp_path, flat)
