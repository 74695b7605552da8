"""Raw numbers without a header: KITTI and nuScenes sweeps (.bin), SemanticKITTI labels (.label), token files.

The schema says what a file holds (dtype and item). Where it does not: .bin is float32 [N, 4] (x, y, z, reflectance)
if its size allows it and flat float32 otherwise, .pcd.bin is nuScenes' float32 [N, 5], .label is uint32.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import plain_type, stored
from datacheck.runtime.beneath import Place
from datacheck.sample import Container


class _Raw(Container):
    def __init__(self, path: Place, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._path, self._name, self._dtype, self._shape = path, name, dtype, shape

    def names(self) -> list[str]:
        return [self._name]

    def read(self, name: str) -> Any:
        if name != self._name:
            raise KeyError(name)
        return stored(self._path, self._dtype, self._shape)

    def peek(self, name: str) -> tuple[tuple[int, ...], str]:
        if name != self._name:
            raise KeyError(name)
        return self._shape, self._dtype.str


def _open(path: Place, hint: Hint) -> Container:
    size, lowered = path.stat().st_size, path.name.lower()
    label = lowered.endswith(".label")
    dtype = plain_type(np.dtype(hint.dtype or ("uint32" if label else "float32")))
    item = hint.item
    if not hint.dtype and not item and not label:
        item = (5,) if lowered.endswith(".pcd.bin") else (4,) if size % 16 == 0 else ()
    row = math.prod(item) * dtype.itemsize
    if row == 0 or size % row:
        of = f"rows of {list(item)} " if item else ""
        msg = f"{size:,} bytes are no whole number of {of}{dtype}, {row} bytes each"
        raise FormatError(msg)
    return _Raw(path, "labels" if label else "points", dtype, (size // row, *item))


KITTI = Format("kitti", (".pcd.bin", ".label", ".bin"), _open)
