"""Positions of clouds as one number each, made once for all who ask whether points are the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from datacheck.rules.measures import MOST_COMPONENTS, extremes, positions, reduced
from datacheck.sample import Column

Array = np.ndarray[Any, Any]

_ODD = tuple(np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93], dtype=np.uint64))
_STRIP = 1 << 15  # points that stay in the cache of a core
_MOST_KEPT = 1 << 23  # keys of more points would take too much memory: they are made again
_HALF, _OTHER = np.uint64(32), np.uint64(29)
_CELLS = 1e5  # of a cloud's size: positions that float32 holds too coarsely are rounded to them
_COARSE = 1e-6  # of a cloud's size: float32 must tell apart what is as far apart as this
_LEAST, _MOST = 1e-30, 1e30  # sizes and places that float32 holds with all of its digits


def mixed(keys: Array) -> Array:
    """Return uint64 keys stirred so that every bit depends on every bit (the finaliser of splitmix64)."""
    keys = keys.copy()
    shifted = keys >> np.uint64(30)
    keys ^= shifted
    keys *= np.uint64(0xBF58476D1CE4E5B9)
    np.right_shift(keys, np.uint64(27), out=shifted)
    keys ^= shifted
    keys *= np.uint64(0x94D049BB133111EB)
    np.right_shift(keys, np.uint64(31), out=shifted)
    keys ^= shifted
    return keys


def exact_keys(column: Column) -> tuple[Array, Array | None] | None:
    """Return a key of each position of a field: equal for equal ones, for others not (1 in 2**64 pairs).

    Shapes:
        keys: uint64 (rows)
        lengths: int64 (samples), None where each sample is one position

    Returns:
        None where the field holds no positions.

    Notes:
        -0 is 0. Made once, but for very large clouds.
    """
    return _kept(column, "_exact_keys", _exact)


def content_keys(column: Column) -> tuple[Array, Array | None] | None:
    """Return as `exact_keys`, of positions in float32: a copy in another dtype has the same keys.

    Notes:
        Where a cloud is so far from the origin that float32 is coarse against its size (1e-6), its positions are
        rounded to 1e-5 of that instead, unless all of them are float32 numbers: writers subtract other offsets.
    """
    return _kept(column, "_content_keys", _narrow)


def _kept(column: Column, name: str, make: Any) -> tuple[Array, Array | None] | None:
    if name in column.__dict__:
        known: tuple[Array, Array | None] | None = column.__dict__[name]
        return known
    found: tuple[Array, Array | None] | None = make(column)
    if len(column.values) <= _MOST_KEPT:
        column.__dict__[name] = found
    return found


def _exact(column: Column) -> tuple[Array, Array | None] | None:
    if column.values.dtype.kind == "f" and column.values.dtype.itemsize <= 4:
        return content_keys(column)
    found = positions(column)
    return None if found is None else (_keys64(found[0].astype(np.float64, copy=False)), found[1])


def _narrow(column: Column) -> tuple[Array, Array | None] | None:
    found = positions(column)
    if found is None:
        return None
    xyz, lengths = found
    narrow = xyz.astype(np.float32, copy=False)
    if lengths is None or xyz.dtype.itemsize <= 2 or xyz.dtype == np.float32:
        return _keys32(narrow), lengths
    coarse, size = _coarse(column, xyz, lengths)
    if coarse.any():
        changed = np.logical_or.reduce([one != same for one, same in zip(narrow, xyz, strict=True)])
        coarse &= reduced(np.add, changed, lengths) > 0
    keys = np.empty(len(narrow[0]), np.uint64) if coarse[lengths > 0].all() else _keys32(narrow)
    stops = np.cumsum(lengths)
    for i in np.flatnonzero(coarse):
        part = slice(stops[i] - lengths[i], stops[i])
        keys[part] = _keys64(np.round(np.multiply(xyz[:, part], _CELLS / size[i], dtype=np.float64)))
    return keys, lengths


def _coarse(column: Column, xyz: Array, lengths: Array) -> tuple[Array, Array]:
    """Return bool (samples): whose positions float32 does not hold finely enough; and their sizes, 1 for points."""
    known = column.values.ndim == 2 and column.values.shape[1] <= MOST_COMPONENTS
    ends = extremes(column)[:2] if known else [reduced(ufunc, xyz, lengths) for ufunc in (np.minimum, np.maximum)]
    low, high = (end[:3].astype(np.float64) for end in ends)
    size, reach = (high - low).max(axis=0), np.maximum(-low, high).max(axis=0)
    fine = (reach * np.finfo(np.float32).eps <= _COARSE * size) & (size > _LEAST) & (reach < _MOST)
    return ~fine & np.isfinite(size), np.where(size > 0, size, 1.0)


def _keys32(xyz: Array) -> Array:
    """Return a key of each position.

    Shapes:
        xyz: float32 (3, rows)
        returns: uint64 (rows)
    """
    keys = np.empty(xyz.shape[1], np.uint64)
    other, shifted = np.empty((2, min(_STRIP, len(keys))), np.uint64)
    plain = np.empty(len(other), np.float32)
    for start in range(0, len(keys), _STRIP):
        part = slice(start, start + _STRIP)
        key = keys[part]
        along, high, zeroed = other[: len(key)], shifted[: len(key)], plain[: len(key)]
        bits = zeroed.view(np.uint32)
        np.add(xyz[0, part], 0, out=zeroed)  # -0 + 0 is 0
        key[:] = bits
        np.add(xyz[1, part], 0, out=zeroed)
        along[:] = bits
        along <<= _HALF
        key |= along
        key *= _ODD[0]
        key ^= np.right_shift(key, _HALF, out=high)  # a sum alone would not tell which coordinates belong together
        np.add(xyz[2, part], 0, out=zeroed)
        along[:] = bits
        along *= _ODD[1]
        key += along
        key ^= np.right_shift(key, _OTHER, out=high)  # the same again would undo the first where z is 0
        key *= _ODD[2]
        key ^= np.right_shift(key, _HALF, out=high)
    return keys


def _keys64(xyz: Array) -> Array:
    """Return a key of each position.

    Shapes:
        xyz: float64 (3, rows)
        returns: uint64 (rows)
    """
    keys = np.zeros(xyz.shape[1], np.uint64)
    for start in range(0, len(keys), _STRIP):
        key = keys[start : start + _STRIP]
        for axis, odd in zip(xyz, _ODD, strict=True):
            key += (axis[start : start + _STRIP] + 0.0).view(np.uint64)  # -0 + 0 is 0
            key *= odd
            key ^= key >> _HALF
        key[:] = mixed(key)  # the last axis was stirred but once
    return keys
