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
