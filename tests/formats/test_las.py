"""LAS and LAZ: the same cloud both ways, laspy's values, no library before the header is checked."""

from __future__ import annotations

import sys
import time

import laspy
import numpy as np
import pytest

from datacheck.errors import FormatError, MissingDependencyError
from tests.formats.reading import CORPUS, read_all


def test_plain_and_compressed_hold_the_same():
    plain, packed = (read_all(CORPUS / f"las/y_points.{suffix}") for suffix in ("las", "laz"))
    assert sorted(plain) == sorted(packed)
    for name, value in plain.items():
        np.testing.assert_array_equal(value, packed[name])
    np.testing.assert_allclose(plain["points"][:, 0], 100 + np.arange(6) / 4)
    np.testing.assert_allclose(plain["points"][:, 2], np.arange(6) / 100)
    assert plain["colors"].dtype == np.uint16
    assert plain["colors"][:, 0].tolist() == [0, 1000, 2000, 3000, 4000, 5000]
    assert plain["intensity"].tolist() == [0, 1, 2, 3, 4, 5]


REAL = [
    "simple.las",
    "simple.laz",
    "extrabytes.las",
    "simple1_3.las",
    "1_4_w_evlr.laz",
    "simple.copc.laz",
    "autzen.las",
]


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_laspys(shared_data, name):
    path = shared_data / "a_pointclouds/laspy-laspy" / name
    values, cloud = read_all(path), laspy.read(path)
    np.testing.assert_array_equal(values["points"], cloud.xyz)
    for name in cloud.point_format.dimension_names:
        if name not in {"X", "Y", "Z", "red", "green", "blue"}:
            np.testing.assert_array_equal(values[name], np.asarray(cloud[name]))


@pytest.mark.parametrize("seed", range(20))
def test_garbage_ends_at_once(tmp_path, seed):
    head = (CORPUS / "las/y_points.las").read_bytes()[:94]
    noise = np.random.default_rng(seed).integers(0, 256, 4000, dtype=np.uint8).tobytes()
    (tmp_path / "a.las").write_bytes(head + noise)
    start = time.process_time()
    with pytest.raises(FormatError):
        read_all(tmp_path / "a.las")
    assert time.process_time() - start < 2


def test_a_panic_of_the_decompressor_is_a_format_error(shared_data):
    with pytest.raises(FormatError, match="chunk table"):
        read_all(
            shared_data / "f_malformed/PDAL-PDAL/laz/simple-laszip-compressor-version-1.2r0.laz"
        )


def test_an_absent_decompressor_is_no_fault_of_the_file(monkeypatch):
    monkeypatch.setattr(laspy.LazBackend, "detect_available", lambda: ())
    monkeypatch.setitem(sys.modules, "lazrs", None)
    with pytest.raises(MissingDependencyError, match=r"datacheck\[clouds\]"):
        read_all(CORPUS / "las/y_points.laz")


def cloud(path, count=5000, point_format=3, version="1.2"):
    header = laspy.LasHeader(point_format=point_format, version=version)
    header.scales = [0.001] * 3
    data = laspy.LasData(header)
    data.x, data.y, data.z = np.random.default_rng(0).uniform(0, 20, (3, count))
    data.write(path)
    return path


def declare(path, count):
    data = bytearray(path.read_bytes())
    data[107:111] = count.to_bytes(4, "little")
    path.write_bytes(data)


@pytest.mark.parametrize("suffix", ["las", "laz"])
def test_a_count_that_is_too_small_is_refused(tmp_path, suffix):
    path = cloud(tmp_path / f"a.{suffix}")
    assert len(read_all(path)["points"]) == 5000
    declare(path, 50)
    with pytest.raises(FormatError, match=r"follow the last point|hold more"):
        read_all(path)


def test_the_chunks_of_a_compressed_file_hold_no_more_points_than_it_declares(tmp_path):
    path = cloud(tmp_path / "a.laz", 150_000)
    assert len(read_all(path)["points"]) == 150_000
    declare(path, 40_000)
    with pytest.raises(FormatError, match=r"3 chunks of .* hold more"):
        read_all(path)


@pytest.mark.parametrize(("point_format", "version"), [(1, "1.2"), (6, "1.4"), (7, "1.4")])
@pytest.mark.parametrize("count", [1, 50_000, 100_000])
def test_whole_chunks_and_few_points_are_read(tmp_path, count, point_format, version):
    path = cloud(tmp_path / "a.laz", count, point_format, version)
    assert len(read_all(path)["points"]) == count


@pytest.mark.parametrize(
    "rest",
    [
        bytes(1000),
        b"\0\0" + b"LAStools".ljust(16, b"\0") + b"\x1e\0" + (40).to_bytes(8, "little") + b"x" * 72,
        b"end",
    ],
)
def test_padding_and_records_behind_the_points_are_no_points(tmp_path, rest):
    path = cloud(tmp_path / "a.las")
    with path.open("ab") as file:
        file.write(rest)
    assert len(read_all(path)["points"]) == 5000
