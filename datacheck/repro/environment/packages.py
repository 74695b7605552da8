"""What is installed: versions, what their RECORD says, which package a file belongs to."""

from __future__ import annotations

import copy
import csv
import functools
import json
import os
import re
import sys
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datacheck.digest import digest_bytes

_OWN = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "top_level.txt"}
_NAMED = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)\.dist-info")


@dataclass(frozen=True)
class Owner:
    """A file of a package as its RECORD lists it.

    Args:
        package: the package.
        path: the file's path below the folder that the package is installed in.
        sha256: hex digits, "" where none is recorded.
    """

    package: str
    path: str
    sha256: str


@dataclass
class Installed:
    """What the folders of `sys.path` have installed.

    Args:
        packages: by name: version, record (a digest, None where there is no RECORD), and where they apply editable,
            shadowed (versions of the same name that lie further back on `sys.path`), loaded (a module of it is).
    """

    packages: dict[str, dict[str, Any]] = field(default_factory=dict)
    _files: dict[str, Owner] = field(default_factory=dict)

    def owner(self, path: str) -> Owner | None:
        """Return the package that a file belongs to, None where no RECORD lists it; `path` without links."""
        return self._files.get(path)

    def add(self, place: Path) -> None:
        """Read one .dist-info or .egg-info."""
        name, version = _named(place)
        known = self.packages.get(name)
        if known is not None:  # of two the first on sys.path is imported
            known.setdefault("shadowed", []).append(version)
            return
        rows = _record(place)
        said: dict[str, Any] = {"version": version, "record": None if rows is None else _digest(place.name, rows)}
        if _editable(place):
            said["editable"] = True
        self.packages[name] = said
        root = f"{os.path.realpath(place.parent)}{os.sep}"
        for path, digest in rows or ():
            if not path.startswith(".."):
                self._files.setdefault(root + path, Owner(name, path, digest))


def installed() -> Installed:
    """Read what is installed, in the order of `sys.path`.

    Notes:
        What is as it was at the last call is not read again; what was read stays in memory.
    """
    read = _read(tuple((place, _stamp(place)) for place in _places()))
    if any("unreadable" in said for said in read.packages.values()):
        _read.cache_clear()  # it may be readable the next time, and look the same
    found = Installed(copy.deepcopy(read.packages), read._files)  # noqa: SLF001
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        owner = found.owner(real_path(file)) if isinstance(file, str) else None
        if owner is not None:
            found.packages[owner.package]["loaded"] = True
    return found


@functools.lru_cache(maxsize=1)
def _read(places: tuple[tuple[Path, Any], ...]) -> Installed:
    found = Installed()
    for place, _ in places:
        try:
            found.add(place)
        except (OSError, ValueError, csv.Error) as error:
            found.packages.setdefault(place.name, {"version": "", "record": None, "unreadable": str(error)})
    found.packages = dict(sorted(found.packages.items()))
    return found


def _stamp(place: Path) -> tuple[tuple[int, int, int] | None, ...]:
    """Return what of the files that are read of a package changes when they do."""
    found: list[tuple[int, int, int] | None] = []
    for name in ("", "RECORD", "direct_url.json", "METADATA", "PKG-INFO"):
        try:
            status = (place / name).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ctime_ns, status.st_size, status.st_ino))
    return tuple(found)


def real_path(file: str) -> str:
    """Return the path without links of the file of a module: of an absolute one, where it was when first asked for."""
    return _known_path(file) if file.startswith(os.sep) else os.path.realpath(file)


_known_path = functools.cache(os.path.realpath)  # a process has thousands, and each step of one asks the system


def _places() -> Iterator[Path]:
    seen = set()
    for folder in sys.path:
        real = os.path.realpath(folder or ".")
        if real not in seen and Path(real).is_dir():
            seen.add(real)
            yield from _metadata(Path(real))


def _metadata(folder: Path) -> Iterator[Path]:
    if folder.suffix == ".egg" and (folder / "EGG-INFO").is_dir():
        yield folder / "EGG-INFO"
    try:
        names = sorted(place.name for place in folder.iterdir())
    except OSError:
        return
    yield from (folder / name for name in names if name.endswith((".dist-info", ".egg-info")))


def _named(place: Path) -> tuple[str, str]:
    match = _NAMED.fullmatch(place.name)
    if match:  # a tenth of the time of reading the metadata
        name, version = match["name"], match["version"]
    else:
        from importlib.metadata import PathDistribution  # noqa: PLC0415  slow to import, and few need it

        said = PathDistribution(place).metadata
        name, version = said["Name"] or place.name, said["Version"] or ""
    return re.sub(r"[-_.]+", "-", name).lower(), version


def _record(place: Path) -> list[tuple[str, str]] | None:
    """Return (path, sha256 as hex digits or "") of each file that a package has installed, None without a RECORD."""
    try:
        text = (place / "RECORD").read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    lines = text.splitlines()
    if '"' in text:
        rows = [(row[0], row[1]) for row in csv.reader(lines) if len(row) > 1]
    else:  # csv takes three times as long, for 40,000 lines
        rows = [(parts[0], parts[1]) for line in lines if len(parts := line.rsplit(",", 2)) == 3]
    return [(path, _hex(digest)) for path, digest in rows]


def _hex(digest: str) -> str:
    kind, _, value = digest.partition("=")
    return urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex() if kind == "sha256" else ""


def _digest(place: str, rows: list[tuple[str, str]]) -> str:
    """Digest what a package is, not where and by whom it was installed."""
    own = {f"{place}/{name}" for name in _OWN}
    kept = sorted((path, digest) for path, digest in rows if digest and not path.startswith("..") and path not in own)
    return digest_bytes("\n".join(f"{path},{digest}" for path, digest in kept).encode())


def _editable(place: Path) -> bool:
    try:
        said = json.loads((place / "direct_url.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return bool(isinstance(said, dict) and said.get("dir_info", {}).get("editable"))
