"""PCD: the three encodings give the same cloud; LZF unpacks what it should and nothing else."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datacheck.errors import FormatError
from datacheck.formats.pcd import unpack_lzf
from tests.formats.reading import CORPUS, read_all


@pytest.mark.parametrize("encoding", ["binary", "compressed"])
def test_binary_encodings(encoding):
    values = read_all(CORPUS / f"pcd/y_{encoding}.pcd")
    assert sorted(values) == ["colors", "label", "normals", "points"]
    np.testing.assert_array_equal(values["points"], np.arange(15, dtype="f4").reshape(5, 3))
    assert values["points"].dtype == np.float32
    assert values["colors"].tolist() == [[255, 128, 1]] * 5
    assert values["normals"].tolist() == [[0, 0, 1]] * 5
    assert values["label"].dtype == np.uint16
    assert values["label"].tolist() == [0, 1, 2, 3, 4]


def test_ascii_counts_and_version_5():
    values = read_all(CORPUS / "pcd/y_ascii.pcd")
    np.testing.assert_array_equal(values["points"], [[1, 2, 3], [np.nan] * 3])
    assert values["intensity"].tolist() == [0.5, 1]
    counted = read_all(CORPUS / "pcd/y_counts.pcd")
    assert sorted(counted) == ["fpfh", "points"]
    assert counted["fpfh"].tolist() == [[7, 8]]
    assert read_all(CORPUS / "pcd/y_version_5.pcd")["points"].tolist() == [[1, 2, 3], [4, 5, 6]]


def test_padding_of_no_bytes_is_read_as_padding(tmp_path):
    """As writers of lidars with alignment have it: ``_`` with COUNT 0 between other fields."""
    record = np.dtype({"names": ["x", "y", "z", "ring"], "formats": ["<f4", "<f4", "<f4", "<u2"],
                       "offsets": [0, 4, 8, 16], "itemsize": 24})  # fmt: skip
    points = np.zeros(3, record)
    points["x"], points["y"], points["z"], points["ring"] = (
        [1, 2, 3],
        [4, 5, 6],
        [7, 8, 9],
        [0, 1, 2],
    )
    header = (
        "VERSION 0.7\nFIELDS x y z _ _ ring _\nSIZE 4 4 4 1 1 2 1\nTYPE F F F U U U U\n"
        "COUNT 1 1 1 4 0 1 6\nWIDTH 3\nHEIGHT 1\nPOINTS 3\nDATA binary\n"
    )
    (tmp_path / "a.pcd").write_bytes(header.encode() + points.tobytes())
    values = read_all(tmp_path / "a.pcd")
    assert sorted(values) == ["points", "ring"]
    assert values["points"].tolist() == [[1, 4, 7], [2, 5, 8], [3, 6, 9]]
    assert values["ring"].tolist() == [0, 1, 2]
    (tmp_path / "b.pcd").write_bytes(
        header.replace("COUNT 1", "COUNT 0").encode() + points.tobytes()
    )
    with pytest.raises(FormatError, match="COUNT"):
        read_all(tmp_path / "b.pcd")


def test_lzf_against_the_format_by_hand():
    assert unpack_lzf(b"\x02abc", 3) == b"abc"  # three literals
    assert unpack_lzf(b"\x02abc\x20\x02", 6) == b"abcabc"  # 3 bytes from 3 back
    # 10 bytes from 1 back: overlaps itself
    assert unpack_lzf(b"\x00a\xe0\x01\x00", 11) == b"a" * 11
    assert unpack_lzf(b"\x01ab\x60\x01", 7) == b"abababa"
    assert unpack_lzf(b"", 0) == b""


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (b"\x02ab", 3),
        (b"\x20\x00", 3),
        (b"\x00a\x20", 4),
        (b"\x00a\xe0", 9),
        (b"\x02abc", 2),
        (b"", 1),
    ],
)
def test_lzf_refuses_what_is_cut_or_leads_outside(data, size):
    with pytest.raises(FormatError):
        unpack_lzf(data, size)


@given(data=st.binary(max_size=60), size=st.integers(0, 400))
def test_lzf_never_gives_another_size(data, size):
    with contextlib.suppress(FormatError):
        assert len(unpack_lzf(data, size)) == size


def test_real_clouds(shared_data):
    folder = shared_data / "a_pointclouds/PointCloudLibrary-pcl"
    expected = {  # from the index of the data: points, lowest corner
        "bunny.pcd": (397, (-0.09394, 0.03742, -0.05503)),
        "colored_cloud.pcd": (1000, (-0.8871, -0.6507, 0.882)),
        "car6.pcd": (10031, (-40.17, -68.56, -6.99)),
        "milk.pcd": (13704, (-0.1401, -0.2638, 0.714)),
        "nhood_test.pcd": (36, (-1.094, -0.7936, 1.504)),
    }
    for name, (count, low) in expected.items():
        points = read_all(folder / name)["points"]
        assert points.shape == (count, 3)
        np.testing.assert_allclose(points.min(axis=0), low, rtol=6e-4)
    mug = read_all(folder / "table_scene_mug_stereo_textured.pcd")
    assert mug["points"].shape == (307200, 3)
    assert int((~np.isfinite(mug["points"]).all(axis=1)).sum()) == 97920
    assert mug["colors"].shape == (307200, 3)


@pytest.mark.parametrize(
    ("written", "fits"), [("18446744073709549568", True), ("18446744073709551616", False)]
)
def test_ascii_numbers_are_held_to_the_declared_type(tmp_path, written, fits):
    (tmp_path / "a.pcd").write_text(
        f"FIELDS t\nSIZE 8\nTYPE U\nWIDTH 1\nHEIGHT 1\nDATA ascii\n{written}\n"
    )
    if fits:
        assert read_all(tmp_path / "a.pcd")["t"].tolist() == [int(written)]
    else:
        with pytest.raises(FormatError, match="t is declared uint64"):
            read_all(tmp_path / "a.pcd")


def test_times_in_nanoseconds_stay_exact_in_text(tmp_path):
    """float64 makes one of the three."""
    times = [1700000000123456789, 1700000000123456796, 1700000000123456803, -5]
    header = (
        "VERSION .7\nFIELDS x y z t\nSIZE 4 4 4 8\nTYPE F F F I\nCOUNT 1 1 1 1\nWIDTH 4\nHEIGHT 1\n"
    )
    body = "".join(f"1 2 3 {time}\n" for time in times)
    (tmp_path / "a.pcd").write_text(
        f"# .PCD v.7\n{header}VIEWPOINT 0 0 0 1 0 0 0\nPOINTS 4\nDATA ascii\n{body}"
    )
    values = read_all(tmp_path / "a.pcd")
    assert (values["t"].dtype, values["t"].tolist()) == (np.int64, times)
