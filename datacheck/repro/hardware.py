"""Machine of this process: mapped libraries with digest and owner, CPU, BLAS, GPU, container."""

from __future__ import annotations

import csv
import ctypes
import functools
import hashlib
import os
import platform
import re
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from datacheck.repro.code import InstalledPackages, PackageFile, free_name, real_path
from datacheck.runtime.hashing import Digester, digest_value
from datacheck.runtime.machine import usable_cpus

_LIBRARY = re.compile(r"\.(so|dylib)(\.[0-9][0-9.]*)?( \(deleted\))?$")
_SYSTEM = ("/usr/lib", "/lib", "/usr/local/cuda", "/usr/local/nvidia", "/opt/rocm")
_DELETED = " (deleted)"
_READ = 1 << 20
# A second capture reads only libraries that have changed.
_LIBRARY_CACHE: dict[tuple[str, int, int, int], dict[str, Any]] = {}


def native(found: InstalledPackages, maps: str = "/proc/self/maps") -> dict[str, Any]:
    """Return every compiled library that this process has mapped.

    Args:
        found: the installed packages.
        maps: the kernel's list of maps.

    Returns:
        By name (that of RECORD, else of the module, else of the file): digest, build_id (None if
        the linker wrote none), owner (a package, "interpreter", "system", None: unknown) and
        intact: whether it matches RECORD, None if no RECORD lists it. A file that was replaced
        after it was loaded has `missing`.
    """
    paths = mapped(maps)
    modules = {real_path(file): name for name, file in _extensions()}
    alive = [path for path in paths if not path.endswith(_DELETED)]
    # Digests release the interpreter lock
    with ThreadPoolExecutor(min(8, usable_cpus())) as pool:
        entries = dict(
            zip(alive, pool.map(lambda path: _read(path, found.owner(path)), alive), strict=True)
        )
    libraries: dict[str, Any] = {}
    for path in paths:
        real = path.removesuffix(_DELETED)
        name = free_name(real, libraries, _name(real, found.owner(real), modules.get(real)))
        libraries[name] = entries.get(path) or {
            "missing": "the file was replaced or removed after it was loaded"
        }
        libraries[name] = {**libraries[name], "owner": owner_of(real, found)}
    return dict(sorted(libraries.items()))


def mapped(maps: str) -> list[str]:
    """Return the paths of the libraries in a list of maps, sorted."""
    # The path is not that of a file on disk.
    with open(maps, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
        parts = [line.rstrip("\n").split(None, 5) for line in file]
    return sorted(
        {
            part[5]
            for part in parts
            if len(part) == 6 and "x" in part[1] and _LIBRARY.search(part[5])
        }
    )


def owner_of(path: str, found: InstalledPackages) -> str | None:
    """Return the owner of a library: a package's name, "interpreter", "system", or None."""
    owner = found.owner(path)
    if owner is not None:
        return owner.package
    if any(f"/{part}/" in path for part in ("site-packages", "dist-packages")):
        return None
    if path.startswith(_interpreter()):
        return "interpreter"
    return "system" if path.startswith(_SYSTEM) else None


@functools.cache
def _interpreter() -> tuple[str, ...]:
    """Return the folders of the interpreter, each with a trailing separator."""
    folder_paths = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    base = os.path.realpath(sys.base_prefix)
    if base not in {"/usr", "/usr/local", "/"}:  # elsewhere the libraries below base are its own
        folder_paths.add(f"{base}/lib")
    return tuple(f"{folder}{os.sep}" for folder in folder_paths)


def _extensions() -> Iterable[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and _LIBRARY.search(file):
            yield name, file


def _name(path: str, owner: PackageFile | None, module: str | None) -> str:
    if owner is not None:
        return owner.path
    parts = Path(path).parts
    return "/".join(parts[-1 - module.count(".") :]) if module else parts[-1]


def _read(path: str, owner: PackageFile | None) -> dict[str, Any]:
    try:
        status = os.stat(path)  # noqa: PTH116  one system call per library
        key = (path, status.st_size, status.st_mtime_ns, status.st_ino)
        if key not in _LIBRARY_CACHE:
            _LIBRARY_CACHE[key] = _library_entry(path, owner)
        return _LIBRARY_CACHE[key]
    except OSError as error:
        return {"missing": (error.strerror or str(error)).lower()}


def _library_entry(path: str, owner: PackageFile | None) -> dict[str, Any]:
    """Read a library once for digest, build id and the comparison with RECORD."""
    hasher = Digester()
    recorded = hashlib.sha256()
    view = memoryview(bytearray(_READ))
    has_digest = owner is not None and bool(owner.sha256)
    with Path(path).open("rb", buffering=0) as file:
        try:
            identity = build_id(file)
        except (OSError, ValueError, OverflowError, struct.error):
            # A damaged file still gets a digest.
            identity = None
        file.seek(0)
        while size := file.readinto(view):
            hasher.update(view[:size])
            if has_digest:
                recorded.update(view[:size])
    intact = recorded.hexdigest() == owner.sha256 if owner is not None and has_digest else None
    return {"digest": hasher.hexdigest(), "build_id": identity, "intact": intact}


def build_id(file: Any) -> str | None:
    """Return the build id of an ELF file (note GNU, type 3), None if the linker wrote none.

    Reference: System V ABI, program headers and notes; ``man 5 elf``.
    """
    head = file.read(64)
    # 64 bits only: PyTorch runs on no others.
    if len(head) < 64 or head[:4] != b"\x7fELF" or head[4] != 2:
        return None
    order = "<" if head[5] == 1 else ">"
    (start,) = struct.unpack_from(f"{order}Q", head, 32)
    size, count = struct.unpack_from(f"{order}HH", head, 54)
    file.seek(start)
    table = file.read(size * count)
    for position in range(0, len(table) - 55, size or 56):
        kind, _, offset, _, _, length = struct.unpack_from(f"{order}IIQQQQ", table, position)
        if kind == 4 and length < _READ:
            file.seek(offset)
            if (note := _note(file.read(length), order)) is not None:
                return note
    return None


def _note(data: bytes, order: str) -> str | None:
    position = 0
    while position + 12 <= len(data):
        name, size, kind = struct.unpack_from(f"{order}III", data, position)
        value = position + 12 + (name + 3) // 4 * 4
        if kind == 3 and data[position + 12 : position + 16] == b"GNU\0":
            return data[value : value + size].hex()
        position = value + (size + 3) // 4 * 4
    return None


def unowned(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the libraries of a capture's section that no package, interpreter or system owns."""
    return {
        name: library
        for name, library in said.items()
        if isinstance(library, dict) and library["owner"] is None
    }


_SECONDS = 15.0
_SMI_FIELDS = (
    "name",
    "driver_version",
    "vbios_version",
    "compute_cap",
    "memory.total",
    "ecc.mode.current",
    "mig.mode.current",
)
_LEVELS = {  # of the x86-64 psABI
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "x86-64-v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
}


def hardware() -> dict[str, Any]:
    """Return the CPU with its SIMD level, cores, memory and kernel."""
    cpu = _cpu()
    flags = cpu.pop("flags")
    missing = {level: needed - flags for level, needed in _LEVELS.items()}
    supported_levels = [
        level for level in _LEVELS if not any(missing[lower] for lower in _LEVELS if lower <= level)
    ]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        **cpu,
        "simd": supported_levels[0] if supported_levels else platform.machine(),
        "flags": digest_value(sorted(flags)),
        "cpus": os.cpu_count(),
        "usable_cpus": usable_cpus(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))),
        "memory_gib": round(pages / 2**30),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
    }


def _cpu() -> dict[str, Any]:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return {
        "cpu": fields.get("model name") or platform.processor() or platform.machine(),
        "vendor": fields.get("vendor_id") or fields.get("CPU implementer", ""),
        "microcode": fields.get("microcode", ""),
        "flags": set((fields.get("flags") or fields.get("Features", "")).split()),
    }


def blas() -> dict[str, Any]:
    """Return the loaded BLAS libraries: versions, the kernels that they chose, threads."""
    control = sys.modules.get("threadpoolctl")
    if control is not None:
        pools = [
            {k: v for k, v in pool.items() if k != "filepath"} for pool in control.threadpool_info()
        ]
    else:
        places = [path for path in mapped("/proc/self/maps") if "openblas" in path.lower()]
        pools = [library for path in places if (library := _openblas(path))]
    pools.sort(key=str)
    threads = {
        f"{pool.get('internal_api')} {number}": pool.pop("num_threads")
        for number, pool in enumerate(pools)
    }
    return {"libraries": pools, "threads": threads, **_numpy_blas()}


def _openblas(path: str) -> dict[str, Any]:
    """Return the facts of a loaded OpenBLAS; wheels rename its exported functions."""
    library = ctypes.CDLL(path)
    for prefix in ("scipy_", ""):
        for suffix in ("64_", "", "_64"):
            names = [
                f"{prefix}openblas_get_{fact}{suffix}"
                for fact in ("corename", "config", "num_threads")
            ]
            if all(hasattr(library, name) for name in names):
                core, config, threads = (getattr(library, name) for name in names)
                core.restype = config.restype = ctypes.c_char_p
                version = re.search(rb"OpenBLAS (\S+)", config())
                return {
                    "internal_api": "openblas",
                    "version": version[1].decode() if version else "",
                    "architecture": core().decode(),
                    "num_threads": int(threads()),
                }
    return {}


def _numpy_blas() -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    config = getattr(getattr(numpy, "__config__", None), "CONFIG", {})
    return {
        "numpy": {
            k: v
            for k, v in config.get("Build Dependencies", {}).get("blas", {}).items()
            if "dir" not in k
        }
    }


def gpu() -> dict[str, Any]:
    """Return GPUs, driver, CUDA and cuDNN, without starting CUDA."""
    section: dict[str, Any] = {"devices": list(_devices()), **_built_with()}
    if not section["devices"]:
        section["none"] = "nvidia-smi is not installed or names no device"
    return section


def _devices() -> Iterator[dict[str, str]]:
    try:
        run = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(_SMI_FIELDS)}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return
    for row in csv.reader(run.stdout.splitlines(), skipinitialspace=True):
        yield dict(zip(_SMI_FIELDS, row, strict=False))


def _built_with() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    versions = {"cuda": torch.version.cuda, "hip": getattr(torch.version, "hip", None)}
    started = bool(versions["cuda"] or versions["hip"]) and torch.cuda.is_initialized()
    return {
        **versions,
        "cudnn": torch.backends.cudnn.version() if versions["cuda"] else None,
        "started": started,
    }


def container() -> dict[str, Any]:
    """Return the kind of container, its image if known, its system, and its share of the CPUs."""
    section: dict[str, Any] = {"kind": _kind()}
    inside = _assigned(Path("/run/.containerenv"))  # podman
    section |= {name: inside[name] for name in ("image", "imageid") if name in inside}
    for name in ("SINGULARITY_CONTAINER", "APPTAINER_CONTAINER"):
        if name in os.environ:
            section["image"] = Path(os.environ[name]).name
    release = _assigned(Path("/etc/os-release"))
    section["system"] = f"{release.get('ID', '')} {release.get('VERSION_ID', '')}".strip()
    try:
        section["cpu_share"] = Path("/sys/fs/cgroup/cpu.max").read_text().strip()
    except OSError:
        section["cpu_share"] = ""
    return section


def _kind() -> str:
    signs = {
        "docker": "/.dockerenv",
        "podman": "/run/.containerenv",
        "singularity": "/.singularity.d",
    }
    kinds = [kind for kind, place in signs.items() if Path(place).exists()]
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        kinds.append("kubernetes")
    return " ".join(kinds) or "none"


def _assigned(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {
        name.strip(): value.strip().strip('"')
        for name, sign, value in (li.partition("=") for li in lines)
        if sign
    }
