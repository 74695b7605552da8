"""One .npz per sample, in folders as the keys say: ``np.load(path, allow_pickle=False)`` reads it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from datacheck import fsops
from datacheck.build.export.samples import ABOUT, Exported, file_name, npy
from datacheck.cache import Cache
from datacheck.digest import digest_bytes
from datacheck.errors import UsageError

_END = ".npz"
_LONGEST = 230  # of 255 bytes: while it is written a file has a longer name
_DEEPEST = 64  # folders in each other
_RENAMED = "renamed"  # the folder of samples whose keys are no names of files


def write(cache: Cache, samples: Iterable[Exported], folder: Path) -> dict[str, object]:
    """Write a file for each sample; return what is to be known of the names.

    Raises:
        UsageError: two keys have one name on this file system.
        OutOfSpaceError: the disk is full.

    Notes:
        A key that is too long for a name, or has too many folders, is in `renamed` of what is returned.
    """
    del cache
    renamed: dict[str, str] = {}
    for sample in samples:
        name = _name(sample.key)
        if max(map(len, name.split("/"))) > _LONGEST or name.count("/") > _DEEPEST:
            name = f"{_RENAMED}/{digest_bytes(sample.key.encode('utf-8', 'surrogatepass'))}{_END}"
            renamed[name] = sample.key
        path = folder / name
        if path.exists():
            shown = sample.key[:200]
            msg = f"{shown}: another sample has the same file name on this file system. Choose another format."
            raise UsageError(msg)
        fsops.make_directory(path.parent, sync=False)
        fsops.write_file(path, _zipped(sample), sync=False)
    said: dict[str, object] = {"key": "the path without .npz, unquoted", "texts": "uint8, UTF-8"}
    return said | {"key": f"{said['key']}, or as renamed says", "renamed": renamed} if renamed else said


def _name(key: str) -> str:
    *folders, name = file_name(key).split("/")
    return "/".join([*map(_folder, folders), name + _END])


def _folder(part: str) -> str:
    """Return the name of a folder, which must not be that of a file: its last dot is escaped then."""
    stem, dot, end = part.rpartition(".")
    return f"{stem}%2E{end}" if dot + end == _END or part == ABOUT else part


def _zipped(sample: Exported) -> bytes:
    file = io.BytesIO()
    texts = {name: np.frombuffer(text, np.uint8) for name, text in sample.texts.items()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        for name, array in sorted({**sample.arrays, **texts}.items()):
            entry = zipfile.ZipInfo(f"{name}.npy")  # its time is the first of 1980
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            packed.writestr(entry, npy(array))
    return file.getvalue()
