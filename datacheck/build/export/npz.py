"""One .npz per sample, in folders as the keys say: ``np.load(path, allow_pickle=False)`` reads it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from datacheck import fsops
from datacheck.build.export.samples import Exported, file_name, npy
from datacheck.cache import Cache
from datacheck.errors import UsageError

_END = ".npz"


def write(cache: Cache, samples: Iterable[Exported], folder: Path) -> dict[str, object]:
    """Write a file for each sample; return what is to be known of the names.

    Raises:
        UsageError: two keys have one name on this file system.
        OutOfSpaceError: the disk is full.
    """
    del cache
    for sample in samples:
        path = folder / _name(sample.key)
        if path.exists():
            msg = f"{sample.key}: another sample has the same file name on this file system. Choose another format."
            raise UsageError(msg)
        fsops.make_directory(path.parent, sync=False)
        fsops.write_file(path, _zipped(sample), sync=False)
    return {"key": "the path without .npz, unquoted", "texts": "uint8, UTF-8"}


def _name(key: str) -> str:
    *folders, name = file_name(key).split("/")
    # a folder must not have the name of a file
    return "/".join(
        [*(f"{part[: -len(_END)]}%2Enpz" if part.endswith(_END) else part for part in folders), name + _END]
    )


def _zipped(sample: Exported) -> bytes:
    file = io.BytesIO()
    texts = {name: np.frombuffer(text, np.uint8) for name, text in sample.texts.items()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        for name, array in sorted({**sample.arrays, **texts}.items()):
            entry = zipfile.ZipInfo(f"{name}.npy")  # its time is the first of 1980
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            packed.writestr(entry, npy(array))
    return file.getvalue()
