"""The benchmark of reading, reduced: every store serves the bytes of the flat files, and one that does not is told."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest


@pytest.fixture
def bench(repository, monkeypatch):
    monkeypatch.syspath_prepend(str(repository / "scripts/bench"))
    import read

    return read


def test_ours_and_stores_of_others_are_read_warm_and_cold(repository, tmp_path):
    command = [
        sys.executable,
        str(repository / "scripts/bench/read.py"),
        "joints",
        "ragged",
        "--folder",
        str(tmp_path),
    ]
    small = ["--scale", "0.001", "--rounds", "1", "--seconds", "0", "--cold", "1", "--need", "0"]
    peers = ["--peers", f"{sys.executable}:zarr,robomimic"]
    done = subprocess.run([*command, *small, *peers], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr  # 1: a peer was faster, as it may be here
    for name in ("joints", "ragged"):
        part = done.stdout[done.stdout.index(f"\n{name}: ") :]
        for title in ("page cache", "cache dropped"):
            rows = part[part.index(title) :].splitlines()[1:12]
            speeds = [float(re.split(r" {2,}", row)[1]) for row in rows]
            assert [row.split()[0] for row in rows[-2:]] == ["zarr", "robomimic"]
            assert all(np.isfinite(speeds))
    assert list(tmp_path.iterdir()) == []


def test_items_are_the_rows_of_windows_and_of_ragged_samples(bench, tmp_path):
    windows = bench.Workload(3, {"x": ("float32", (2,))}, (65, 70), 1, 1, windows=True)
    data = bench.write(tmp_path / "windows", windows, 3)
    expected = [
        [start + at, 64]
        for start, length in zip(data.starts.tolist(), data.lengths.tolist(), strict=True)
        for at in range(length - 64 + 1)
    ]
    assert data.items(list(range(len(data)))) == expected
    ragged = bench.write(
        tmp_path / "ragged", bench.Workload(3, {"x": ("float32", (3,))}, (5, 9), 1, 1), 3
    )
    files = [np.load(tmp_path / f"ragged/data/{i:08d}.npy") for i in range(3)]
    for number, (first, count) in enumerate(ragged.items([0, 1, 2])):
        np.testing.assert_array_equal(ragged.maps()["x"][first : first + count], files[number])


def test_a_store_that_serves_other_bytes_is_told(bench, tmp_path):
    data = bench.write(tmp_path / "joints", bench.WORKLOADS["joints"], 70)

    class Way:
        def __init__(self, shift):
            self.shift = shift

        def check(self, asked):
            rows = [(first + self.shift) % 70 for first, _ in asked.items]
            return bench.checksum(data, {"x": data.maps()["x"][rows]}), asked.items

    bench.checked("joints", data, {"right": Way(0)})
    with pytest.raises(SystemExit, match="joints: wrong serves other values"):
        bench.checked("joints", data, {"right": Way(0), "wrong": Way(1)})
