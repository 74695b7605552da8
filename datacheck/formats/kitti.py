"""Raw numbers without a header: KITTI and nuScenes sweeps, SemanticKITTI labels, token files.

The schema declares the contents of a file (dtype and item). Without a declaration, .label is
uint32, .pcd.bin is nuScenes' float32 [N, 5], and .bin is guessed from its first numbers: float32 of
4, 5 or 6 columns (x, y, z and intensity, ring or colours), or as many as its size allows. Files
that do not look like float32 are "bytes": labels and tokens of any integer type look alike.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from datacheck.errors import FormatError
from datacheck.formats.base import Format, Hint
from datacheck.formats.limits import plain_type, stored
from datacheck.model.sample import Array, Container
from datacheck.runtime.beneath import AnyPath


class _RawFile(Container):
    def __init__(
        self, path: AnyPath, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> None:
        self._path = path
        self._name = name
        self._dtype = dtype
        self._shape = shape

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


_HEAD = 1 << 14  # float32 numbers that are examined
_ROWS = 4  # fewer say nothing about columns
# Range of plausible absolute values, and the share of values that must lie in it.
_SOME = (1e-6, 1e6)
_NEARLY_ALL = 0.9
_FARTHEST = 1000.0  # metres from a sensor
_UNIT = 1.5  # largest coordinate of a cloud in a unit cube


def _head(path: AnyPath, size: int) -> Array:
    """Return the first words of a file.

    Shapes:
        returns: float32 (words)
    """
    return stored(path, np.dtype("<f4"), (min(_HEAD, size // 4),))


def _are_floats(words: Array) -> bool:
    """Return whether words are float32 measurements.

    The bytes of integers, read as float32, have absurd exponents or are denormal.
    """
    words = words[words.view(np.uint32) != 0]
    low, high = _SOME
    with np.errstate(invalid="ignore"):
        sizes = np.abs(words)
        plausible = (sizes >= low) & (sizes <= high)
    # Bit patterns of NaN.
    plausible |= np.isinf(words) | np.isin(words.view(np.uint32), (0x7FC00000, 0xFFC00000))
    return bool(np.count_nonzero(plausible) >= _NEARLY_ALL * len(words))


def _are_columns(words: Array, count: int) -> bool:
    """Return whether numbers are rows of x, y, z in metres and intensities, rings or colours.

    Intensities and colours are in [0, 1] or integers up to 255.
    """
    rows = words[: len(words) // count * count].reshape(-1, count)
    rows = rows[np.isfinite(rows).all(axis=1)]
    if len(rows) < _ROWS:
        return False
    xyz = rows[:, :3]
    others = rows[:, 3:]
    farthest = np.abs(xyz).max()
    are_shares = others.max(axis=0) <= 1
    are_bytes = (others.max(axis=0) <= 255) & (others == np.floor(others)).all(axis=0)
    # Otherwise all columns look alike.
    are_coordinates = (xyz < 0).any() or farthest > _UNIT
    return bool(
        farthest <= _FARTHEST
        and (others >= 0).all()
        and (are_shares | are_bytes).all()
        and are_coordinates
    )


def _sniffed(path: AnyPath, size: int) -> Container | None:
    """Return the file as its first numbers suggest, None if they suggest nothing."""
    words = _head(path, size)
    if not _are_floats(words):
        raw = _RawFile(path, "bytes", np.dtype(np.uint8), (size,))
        raw.untyped = True
        return raw
    for columns in (4, 5, 6):
        row_bytes = 4 * columns
        if size % row_bytes == 0 and _are_columns(words, columns):
            return _RawFile(path, "points", np.dtype("<f4"), (size // row_bytes, columns))
    return None


def _open(path: AnyPath, hint: Hint) -> Container:
    size = path.stat().st_size
    name = path.name.lower()
    is_label = name.endswith(".label")
    is_nuscenes = name.endswith(".pcd.bin")
    is_declared = bool(hint.dtype or hint.item)
    if not is_declared and not is_label and not is_nuscenes:
        container = _sniffed(path, size)
        if container is not None:
            return container
    dtype = plain_type(np.dtype(hint.dtype or ("uint32" if is_label else "float32")))
    item = hint.item
    if not is_declared and is_nuscenes:
        item = (5,)
    elif not is_declared and not is_label and size % 16 == 0:
        item = (4,)
    row_bytes = math.prod(item) * dtype.itemsize
    if row_bytes == 0 or size % row_bytes:
        row_text = f"rows of {list(item)} " if item else ""
        msg = f"{size:,} bytes are no whole number of {row_text}{dtype}, {row_bytes} bytes each"
        raise FormatError(msg)
    shape = (size // row_bytes, *item)
    return _RawFile(path, "labels" if is_label else "points", dtype, shape)


KITTI = Format("kitti", (".pcd.bin", ".label", ".bin"), _open)
