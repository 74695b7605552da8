"""The machine below the process: CPU, what BLAS makes of it, GPU and driver, container."""

from __future__ import annotations

import csv
import ctypes
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datacheck.cpus import usable_cpus
from datacheck.digest import digest_value
from datacheck.repro.environment.native import mapped

_SECONDS = 15.0
_ASKED = (
    "name", "driver_version", "vbios_version", "compute_cap", "memory.total", "ecc.mode.current", "mig.mode.current",
)  # fmt: skip
_LEVELS = {  # of the psABI of x86-64
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "x86-64-v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
}


def hardware() -> dict[str, Any]:
    """Return the CPU with its SIMD level, cores, memory and kernel."""
    cpu = _cpu()
    flags = cpu.pop("flags")
    missing = {level: needed - flags for level, needed in _LEVELS.items()}
    known = [level for level in _LEVELS if not any(missing[lower] for lower in _LEVELS if lower <= level)]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        **cpu,
        "simd": known[0] if known else platform.machine(),
        "flags": digest_value(sorted(flags)),
        "cpus": os.cpu_count(),
        "usable_cpus": usable_cpus(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))),
        "memory_gib": round(pages / 2**30),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
    }


def _cpu() -> dict[str, Any]:
    said: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        said[name.strip()] = value.strip()
    return {
        "cpu": said.get("model name") or platform.processor() or platform.machine(),
        "vendor": said.get("vendor_id") or said.get("CPU implementer", ""),
        "microcode": said.get("microcode", ""),
        "flags": set((said.get("flags") or said.get("Features", "")).split()),
    }


def blas() -> dict[str, Any]:
    """Return the linear algebra that is loaded: libraries, versions, the kernels that they chose, threads."""
    control = sys.modules.get("threadpoolctl")
    if control is not None:
        pools = [{k: v for k, v in pool.items() if k != "filepath"} for pool in control.threadpool_info()]
    else:
        places = [path for path in mapped("/proc/self/maps") if "openblas" in path.lower()]
        pools = [said for path in places if (said := _openblas(path))]
    pools.sort(key=str)
    threads = {f"{pool.get('internal_api')} {number}": pool.pop("num_threads") for number, pool in enumerate(pools)}
    return {"libraries": pools, "threads": threads, **_numpy_blas()}


def _openblas(path: str) -> dict[str, Any]:
    """Ask an OpenBLAS that is loaded already; wheels rename what it exports."""
    library = ctypes.CDLL(path)
    for prefix in ("scipy_", ""):
        for suffix in ("64_", "", "_64"):
            names = [f"{prefix}openblas_get_{what}{suffix}" for what in ("corename", "config", "num_threads")]
            if all(hasattr(library, name) for name in names):
                core, config, threads = (getattr(library, name) for name in names)
                core.restype = config.restype = ctypes.c_char_p
                version = re.search(rb"OpenBLAS (\S+)", config())
                return {
                    "internal_api": "openblas", "version": version[1].decode() if version else "",
                    "architecture": core().decode(), "num_threads": int(threads()),
                }  # fmt: skip
    return {}


def _numpy_blas() -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    config = getattr(getattr(numpy, "__config__", None), "CONFIG", {})
    return {"numpy": {k: v for k, v in config.get("Build Dependencies", {}).get("blas", {}).items() if "dir" not in k}}


def gpu() -> dict[str, Any]:
    """Return GPUs, driver, CUDA and cuDNN; CUDA is not started for it."""
    said: dict[str, Any] = {"devices": list(_devices()), **_built_with()}
    if not said["devices"]:
        said["none"] = "nvidia-smi is not installed or names no device"
    return said


def _devices() -> Iterator[dict[str, str]]:
    try:
        run = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=True, timeout=_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return
    for row in csv.reader(run.stdout.splitlines(), skipinitialspace=True):
        yield dict(zip(_ASKED, row, strict=False))


def _built_with() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    said = {"cuda": torch.version.cuda, "hip": getattr(torch.version, "hip", None)}
    started = bool(said["cuda"] or said["hip"]) and torch.cuda.is_initialized()
    return {**said, "cudnn": torch.backends.cudnn.version() if said["cuda"] else None, "started": started}


def container() -> dict[str, Any]:
    """Return the kind of container, its image where it says so, the system in it and its share of the machine."""
    said: dict[str, Any] = {"kind": _kind()}
    inside = _assigned(Path("/run/.containerenv"))  # podman's
    said |= {name: inside[name] for name in ("image", "imageid") if name in inside}
    for name in ("SINGULARITY_CONTAINER", "APPTAINER_CONTAINER"):
        if name in os.environ:
            said["image"] = Path(os.environ[name]).name
    release = _assigned(Path("/etc/os-release"))
    said["system"] = f"{release.get('ID', '')} {release.get('VERSION_ID', '')}".strip()
    try:
        said["cpu_share"] = Path("/sys/fs/cgroup/cpu.max").read_text().strip()
    except OSError:
        said["cpu_share"] = ""
    return said


def _kind() -> str:
    signs = {"docker": "/.dockerenv", "podman": "/run/.containerenv", "singularity": "/.singularity.d"}
    found = [kind for kind, place in signs.items() if Path(place).exists()]
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        found.append("kubernetes")
    return " ".join(found) or "none"


def _assigned(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip().strip('"') for name, sign, value in (li.partition("=") for li in lines) if sign}
