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
    xyz = np.abs(rows[:, :3]).max(axis=0)
    more = rows[:, 3:]
    shares = more.max(axis=0) <= 1
    are_bytes = (more.max(axis=0) <= 255) & (more == np.floor(more)).all(axis=0)
    are_coordinates = (
        bool((rows[:, :3] < 0).any()) or xyz.max() > _UNIT
    )  # else all columns look alike
    return bool(
        xyz.max() <= _FARTHEST
        and (more >= 0).all()
        and (shares | are_bytes).all()
        and are_coordinates
    )


def _sniffed(path: AnyPath, size: int) -> Container | None:
    """Return the file as its first numbers suggest, None if they suggest nothing."""
    words = _head(path, size)
    if not _are_floats(words):
        raw = _RawFile(path, "bytes", np.dtype(np.uint8), (size,))
        raw.untyped = True
        return raw
    count = next((n for n in (4, 5, 6) if size % (4 * n) == 0 and _are_columns(words, n)), 0)
    return (
        _RawFile(path, "points", np.dtype("<f4"), (size // (4 * count), count)) if count else None
    )


def _open(path: AnyPath, hint: Hint) -> Container:
    size = path.stat().st_size
    lowered = path.name.lower()
    label = lowered.endswith(".label")
    named = bool(hint.dtype or hint.item)
    if not named and not label and not lowered.endswith(".pcd.bin"):
        container = _sniffed(path, size)
        if container is not None:
            return container
    dtype = plain_type(np.dtype(hint.dtype or ("uint32" if label else "float32")))
    item = hint.item
    if not hint.dtype and not item and not label:
        item = (5,) if lowered.endswith(".pcd.bin") else (4,) if size % 16 == 0 else ()
    row = math.prod(item) * dtype.itemsize
    if row == 0 or size % row:
        row_text = f"rows of {list(item)} " if item else ""
        msg = f"{size:,} bytes are no whole number of {row_text}{dtype}, {row} bytes each"
        raise FormatError(msg)
    return _RawFile(path, "labels" if label else "points", dtype, (size // row, *item))


KITTI = Format("kitti", (".pcd.bin", ".label", ".bin"), _open)
