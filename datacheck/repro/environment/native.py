"""Compiled code of this process: every library that is mapped, its digest and build id, and whose it is."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from datacheck.cpus import usable_cpus
from datacheck.digest import Digester
from datacheck.repro.environment.names import free_name
from datacheck.repro.environment.packages import Installed, Owner, real_path

_LIBRARY = re.compile(r"\.(so|dylib)(\.[0-9][0-9.]*)?( \(deleted\))?$")
_SYSTEM = ("/usr/lib", "/lib", "/usr/local/cuda", "/usr/local/nvidia", "/opt/rocm")
_GONE = " (deleted)"
_READ = 1 << 20
_KNOWN: dict[tuple[str, int, int, int], dict[str, Any]] = {}  # a second capture reads only what has changed


def native(found: Installed, maps: str = "/proc/self/maps") -> dict[str, Any]:
    """Return every compiled library that this process has mapped.

    Args:
        found: what is installed.
        maps: the kernel's list of maps.

    Returns:
        By name (that of RECORD, else that of the module, else the file's): digest, build_id (None where the linker
        wrote none), owner (a package, "interpreter", "system", None: nobody says whose it is) and intact: whether it
        is what RECORD says, None where no RECORD lists it. A file that was replaced after it was loaded has `missing`.
    """
    paths = mapped(maps)
    modules = {real_path(file): name for name, file in _extensions()}
    alive = [path for path in paths if not path.endswith(_GONE)]
    with ThreadPoolExecutor(min(8, usable_cpus())) as pool:  # digests release the lock
        read = dict(zip(alive, pool.map(lambda path: _read(path, found.owner(path)), alive), strict=True))
    said: dict[str, Any] = {}
    for path in paths:
        real = path.removesuffix(_GONE)
        name = free_name(real, said, _name(real, found.owner(real), modules.get(real)))
        said[name] = read.get(path) or {"missing": "the file was replaced or removed after it was loaded"}
        said[name] = {**said[name], "owner": owner_of(real, found)}
    return dict(sorted(said.items()))


def mapped(maps: str) -> list[str]:
    """Return the paths of the libraries in a list of maps, sorted."""
    with open(maps, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123  no path of a file on disk
        parts = [line.rstrip("\n").split(None, 5) for line in file]
    return sorted({part[5] for part in parts if len(part) == 6 and "x" in part[1] and _LIBRARY.search(part[5])})


def owner_of(path: str, found: Installed) -> str | None:
    """Return whose a library is: a package's name, "interpreter", "system", or None."""
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
    """Return the folders of the interpreter, with a separator behind each."""
    found = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    base = os.path.realpath(sys.base_prefix)
    if base not in {"/usr", "/usr/local", "/"}:  # elsewhere the libraries there are its own
        found.add(f"{base}/lib")
    return tuple(f"{folder}{os.sep}" for folder in found)


def _extensions() -> Iterable[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and _LIBRARY.search(file):
            yield name, file


def _name(path: str, owner: Owner | None, module: str | None) -> str:
    if owner is not None:
        return owner.path
    parts = Path(path).parts
    return "/".join(parts[-1 - module.count(".") :]) if module else parts[-1]


def _read(path: str, owner: Owner | None) -> dict[str, Any]:
    try:
        status = os.stat(path)  # noqa: PTH116  one call per library
        key = (path, status.st_size, status.st_mtime_ns, status.st_ino)
        if key not in _KNOWN:
            _KNOWN[key] = _measured(path, owner)
        return _KNOWN[key]
    except OSError as error:
        return {"missing": (error.strerror or str(error)).lower()}


def _measured(path: str, owner: Owner | None) -> dict[str, Any]:
    """Read a library once."""
    hasher, recorded = Digester(), hashlib.sha256()
    view = memoryview(bytearray(_READ))
    wanted = owner is not None and bool(owner.sha256)
    with Path(path).open("rb", buffering=0) as file:
        try:
            identity = build_id(file)
        except (OSError, ValueError, OverflowError, struct.error):  # damaged; its digest is told nevertheless
            identity = None
        file.seek(0)
        while size := file.readinto(view):
            hasher.update(view[:size])
            if wanted:
                recorded.update(view[:size])
    intact = recorded.hexdigest() == owner.sha256 if owner is not None and wanted else None
    return {"digest": hasher.hexdigest(), "build_id": identity, "intact": intact}


def build_id(file: Any) -> str | None:
    """Return the build id that the linker wrote into an ELF file (its note GNU, type 3), None where there is none.

    Reference: System V ABI, program headers and notes; ``man 5 elf``.
    """
    head = file.read(64)
    if len(head) < 64 or head[:4] != b"\x7fELF" or head[4] != 2:  # 64 bits only: no other runs PyTorch
        return None
    order = "<" if head[5] == 1 else ">"
    (start,) = struct.unpack_from(f"{order}Q", head, 32)
    size, count = struct.unpack_from(f"{order}HH", head, 54)
    file.seek(start)
    table = file.read(size * count)
    for at in range(0, len(table) - 55, size or 56):
        kind, _, offset, _, _, length = struct.unpack_from(f"{order}IIQQQQ", table, at)
        if kind == 4 and length < _READ:
            file.seek(offset)
            if (said := _note(file.read(length), order)) is not None:
                return said
    return None


def _note(data: bytes, order: str) -> str | None:
    at = 0
    while at + 12 <= len(data):
        name, size, kind = struct.unpack_from(f"{order}III", data, at)
        value = at + 12 + (name + 3) // 4 * 4
        if kind == 3 and data[at + 12 : at + 16] == b"GNU\0":
            return data[value : value + size].hex()
        at = value + (size + 3) // 4 * 4
    return None


def unowned(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the libraries of a capture's section that no package, interpreter or system owns."""
    return {name: library for name, library in said.items() if isinstance(library, dict) and library["owner"] is None}
