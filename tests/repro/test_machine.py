"""What lies below a process, told by programs and libraries that stand in for those that this machine lacks."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from datacheck.repro import hardware

SMI = """#!/bin/sh
case "$1" in --query-gpu=name,driver_version,*) ;; *) exit 9;; esac
echo "NVIDIA GeForce RTX 4090, 535.104.05, 95.02.18.80.5E, 8.9, 24564, [N/A], [N/A]"
echo "NVIDIA GeForce RTX 4090, 535.104.05, 95.02.18.80.5E, 8.9, 24564, [N/A], [N/A]"
"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """Put a program called nvidia-smi first on the path."""

    def smi(text):
        (tmp_path / "nvidia-smi").write_text(text)
        (tmp_path / "nvidia-smi").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return smi


def test_gpus_are_told_by_nvidia_smi(smi):
    smi(SMI)
    said = hardware.gpu()
    assert len(said["devices"]) == 2
    assert said["devices"][0]["name"] == "NVIDIA GeForce RTX 4090"
    assert said["devices"][0]["driver_version"] == "535.104.05"
    assert said["devices"][0]["mig.mode.current"] == "[N/A]"
    assert "none" not in said


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 9\n", "#!/bin/sh\nsleep 60\n"])
def test_a_driver_that_fails_or_hangs_is_no_gpu(smi, monkeypatch, text):
    monkeypatch.setattr(hardware, "_SECONDS", 0.5)
    smi(text)
    assert hardware.gpu()["none"] == "nvidia-smi is not installed or names no device"


def test_thread_pools_are_asked_where_threadpoolctl_is_loaded(monkeypatch):
    pools = [
        {
            "user_api": "blas",
            "internal_api": "mkl",
            "version": "2024",
            "num_threads": 8,
            "filepath": "/opt/x/libmkl.so",
        }
    ]
    control = SimpleNamespace(threadpool_info=lambda: [dict(pool) for pool in pools])
    monkeypatch.setitem(sys.modules, "threadpoolctl", control)
    said = hardware.blas()
    assert said["threads"] == {"mkl 0": 8}
    assert said["libraries"] == [{"user_api": "blas", "internal_api": "mkl", "version": "2024"}]


def test_the_simd_level_is_that_of_the_flags():
    words = (
        Path("/proc/cpuinfo")
        .read_text()
        .split("flags")[1]
        .partition(":")[2]
        .splitlines()[0]
        .split()
    )
    level = hardware.hardware()["simd"]
    assert (level == "x86-64-v4") is (
        {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2"} <= set(words)
    )
