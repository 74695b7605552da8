"""Compare two caches: match samples by key, compare digests, then values where digests differ."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from datacheck.cache.reader import Cache, WholeColumn, blocks, sample_bytes, whole_column
from datacheck.errors import UsageError
from datacheck.model.sample import ArraySpec

Array = np.ndarray[Any, Any]
Codes = tuple[str, ...]

_AT_ONCE = 1 << 20  # values
MOST_CHANGES = 250_000  # changes kept, each of one field of one sample


@dataclass(frozen=True, slots=True)
class ValueChange:
    """The difference of one field of one sample.

    Args:
        before: its shape in the first cache; None if the sample lacks it there.
        after: its shape in the second cache; None if the sample lacks it there.
        values: how many values have other bytes; 0 if the shapes differ.
        largest: the largest difference of values that are finite in both caches; None if there are
            none, and for bool and text.
        relative: the largest ratio of such a difference to the larger magnitude of both values, at
            most 2.
        first: the index of the first differing value; () if the shapes differ.
    """

    before: tuple[int, ...] | None
    after: tuple[int, ...] | None
    values: int = 0
    largest: float | None = None
    relative: float | None = None
    first: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.before is None or self.after is None:
            return "only in the second" if self.before is None else "only in the first"
        if self.before != self.after:
            return f"{list(self.before)}, then {list(self.after)}"
        by = "" if self.largest is None else f", by up to {self.largest:.6g}"
        by += f" (relative {self.relative:.3g})" if self.relative else ""
        position = f", first at {list(self.first)}" if prod(self.before) > 1 else ""
        return f"{self.values:,} of {prod(self.before):,} values{by}{position}"


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences of two caches.

    Args:
        fields: fields that only one cache has, or that are stored differently: a description for
            each cache, "" if it lacks the field.
        added: keys that only the second cache has, in bytewise order.
        removed: keys that only the first cache has, in bytewise order.
        changed: by key and field, the content of samples in both caches.
        verdicts: by key, the codes of the findings that made the sample invalid, in the first and
            in the second cache; no codes if it is valid.
        unread: how many samples in both caches were not compared, because of `most`, or because
            250,000 values had changed before. If both caches have the same fields, each of these
            samples has changed.
    """

    fields: dict[str, tuple[str, str]]
    added: list[str]
    removed: list[str]
    changed: dict[str, dict[str, ValueChange]]
    verdicts: dict[str, tuple[Codes, Codes]]
    unread: int = 0

    def __bool__(self) -> bool:
        return bool(
            self.fields
            or self.added
            or self.removed
            or self.changed
            or self.verdicts
            or self.unread
        )


def diff(
    a: Cache, b: Cache, fields: Collection[str] | None = None, most: int | None = None
) -> Diff:
    """Return the differences of two caches, independent of their shards and chunks.

    Args:
        a: the first.
        b: the second.
        fields: the fields to compare; None: all.
        most: bytes of values to read of each cache: samples beyond are counted but not compared;
            None: all.

    Raises:
        UsageError: neither cache has such a field.
        CorruptionError: the stored data is damaged, or the keys of a cache do not ascend.

    Notes:
        Samples are matched by key. Values are compared by their bytes: a NaN equals itself, 0.0
        differs from -0.0. A sample that was not made has no fields. Fields that are stored
        differently (dtype, shape, kind) are reported once, not sample by sample. If both caches
        have the same fields, only samples of different digests are read. The comparison ends with
        the block that holds the 250,000th changed value.
    """
    field_changes = _fields(a, b, fields)
    shared = [name for name in sorted(a.fields) if name in b.fields and name not in field_changes]
    compared = [name for name in shared if fields is None or name in fields]
    matches = _match_samples(a, b)
    of_a, of_b = matches.of_a, matches.of_b
    differs = np.ones(len(of_a), dtype=bool)
    if same_digest_scheme(a, b):
        differs = a.digests(of_a) != b.digests(of_b)
    indices = np.flatnonzero(differs)
    sizes = _sizes(a, b, compared, of_a[indices], of_b[indices])
    read_count = (
        len(indices) if most is None else int(np.searchsorted(np.cumsum(sizes), most, side="right"))
    )
    read_a, read_b = of_a[indices[:read_count]], of_b[indices[:read_count]]
    compared_count = 0
    places: list[int] = []
    changes: list[dict[str, ValueChange]] = []
    for place, change in enumerate(_changed(a, b, compared, read_a, read_b)):
        compared_count += 1
        if change:
            places.append(place)
            changes.append(change)
    return Diff(
        field_changes,
        matches.added,
        matches.removed,
        dict(zip(a.keys(read_a[places]), changes, strict=True)),
        matches.verdicts,
        len(indices) - compared_count,
    )


@dataclass(frozen=True, eq=False)
class _Matches:
    """The samples of two caches, matched by key.

    Shapes:
        of_a, of_b: int64 (samples of both), their numbers in each cache

    Args:
        of_a, of_b: the samples that both caches have, in the order of their keys.
        added, removed: see `Diff`.
        verdicts: see `Diff`.
    """

    of_a: Array
    of_b: Array
    added: list[str]
    removed: list[str]
    verdicts: dict[str, tuple[Codes, Codes]]


class _Keys:
    """The keys of a cache in ascending order, a block at a time.

    Attributes:
        number: of the sample whose key is the first of the block.
        block: the next keys; empty at the end.
    """

    def __init__(self, cache: Cache) -> None:
        self._blocks = cache.key_blocks()
        self.number = 0
        self.block = next(self._blocks, [])

    def take(self, last: str) -> list[str]:
        """Return the keys of the block up to `last`, and go on behind them."""
        count = bisect_right(self.block, last)
        taken = self.block[:count]
        self.number += count
        self.block = self.block[count:] or next(self._blocks, [])
        return taken


def _match_samples(a: Cache, b: Cache) -> _Matches:
    """Match samples by key, in blocks: all keys at once take 200 bytes for each sample.

    Raises:
        CorruptionError: the keys of a cache do not ascend.
    """
    first = a.findings()
    second = b.findings()
    left = _Keys(a)
    right = _Keys(b)
    of_a = [np.zeros(0, np.int64)]
    of_b = [np.zeros(0, np.int64)]
    added: list[str] = []
    removed: list[str] = []
    verdicts: dict[str, tuple[Codes, Codes]] = {}
    while left.block or right.block:
        last = min(keys.block[-1] for keys in (left, right) if keys.block)
        number_a = left.number
        number_b = right.number
        keys = left.take(last)
        unmatched = {key: number for number, key in enumerate(right.take(last), number_b)}
        numbers = np.array([unmatched.pop(key, -1) for key in keys], np.int64)
        matched = np.flatnonzero(numbers >= 0)
        of_a.append(number_a + matched)
        of_b.append(numbers[matched])
        added += unmatched
        removed += [keys[place] for place in np.flatnonzero(numbers < 0).tolist()]
        if first or second:
            for place in matched.tolist():
                key = keys[place]
                pair = (tuple(first.get(key, ())), tuple(second.get(key, ())))
                if pair[0] != pair[1]:
                    verdicts[key] = pair
    return _Matches(np.concatenate(of_a), np.concatenate(of_b), added, removed, verdicts)


def same_digest_scheme(a: Cache, b: Cache) -> bool:
    """Return whether equal samples have equal digests in both caches: both have the same fields."""
    fields_a, fields_b = (
        {name: (spec.dtype, spec.item) for name, spec in cache.fields.items()} for cache in (a, b)
    )
    return fields_a == fields_b


def _sizes(a: Cache, b: Cache, names: list[str], of_a: Array, of_b: Array) -> Array:
    """Return int64 (pairs): the decoded bytes of these fields, of the larger sample of a pair."""
    sizes: Array = np.maximum(sample_bytes(a, names, of_a), sample_bytes(b, names, of_b))
    return sizes


def _fields(a: Cache, b: Cache, fields: Collection[str] | None) -> dict[str, tuple[str, str]]:
    unknown = sorted(set(fields or ()) - set(a.fields) - set(b.fields))
    if unknown:
        field_list = ", ".join(sorted({*a.fields, *b.fields}))
        msg = f"no field {unknown[0]!r}; there are {field_list}"
        raise UsageError(msg)
    names = sorted({*a.fields, *b.fields} if fields is None else set(fields))
    storage = {
        name: (_describe_storage(a.fields.get(name)), _describe_storage(b.fields.get(name)))
        for name in names
    }
    return {name: pair for name, pair in storage.items() if pair[0] != pair[1]}


def _describe_storage(spec: ArraySpec | None) -> str:
    """Return how a field is stored, in words; whether it is optional makes no difference."""
    if spec is None:
        return ""
    shape = ", ".join(map(str, [*([spec.dim] if spec.dim is not None else []), *spec.item]))
    return f"{spec.dtype} [{shape}]" if spec.kind == "array" else spec.kind


def _changed(
    a: Cache, b: Cache, names: list[str], of_a: Array, of_b: Array
) -> Iterator[dict[str, ValueChange]]:
    """Yield the differences of each pair of samples in blocks, up to `MOST_CHANGES` changes."""
    change_count = 0
    for block in blocks(_sizes(a, b, names, of_a, of_b), fields=2 * len(names)):
        if change_count >= MOST_CHANGES:
            return
        changes: list[dict[str, ValueChange]] = [{} for _ in range(len(of_a[block]))]
        for name in names:
            before = whole_column(a, name, of_a[block])
            after = whole_column(b, name, of_b[block])
            is_array = a.fields[name].kind == "array"
            for i in _differing_samples(before, after):
                change = compare_values(before.value(i), after.value(i), number=is_array)
                if change is not None:
                    changes[i][name] = change
                    change_count += 1
        yield from changes


def _differing_samples(before: WholeColumn, after: WholeColumn) -> list[int]:
    """Return which samples differ in a field.

    Compares all samples at once, because one call per sample would dominate the time.
    """
    only_one = before.present != after.present
    both = before.present & after.present
    if before.ends is None or after.ends is None:
        differing = only_one | (both & _differing_rows(before.rows, after.rows))
        return np.flatnonzero(differing).tolist()
    counts_before = np.diff(before.ends, prepend=0)
    counts_after = np.diff(after.ends, prepend=0)
    same_count = counts_before == counts_after
    comparable = both & same_count
    rows_before = before.rows
    rows_after = after.rows
    if not comparable.all():
        rows_before = rows_before[np.repeat(comparable, counts_before)]
        rows_after = rows_after[np.repeat(comparable, counts_after)]
    counts = np.where(comparable, counts_before, 0)
    differing = only_one | (both & ~same_count)
    nonempty = np.flatnonzero(counts)
    if nonempty.size:
        starts = (np.cumsum(counts) - counts)[nonempty]
        differing_rows = _differing_rows(rows_before, rows_after)
        differing[nonempty] = np.logical_or.reduceat(differing_rows, starts)
    return np.flatnonzero(differing).tolist()


def _differing_rows(x: Array, y: Array) -> Array:
    """Return which rows of two arrays of one shape and dtype differ in their bytes, bool (rows)."""
    if not x.size:
        return np.zeros(len(x), bool)
    differing: Array = (_row_bytes(x, len(x)) != _row_bytes(y, len(y))).any(axis=1)
    return differing


def _row_bytes(values: Array, rows: int) -> Array:
    """Return the bytes of values, uint8 (rows, bytes of a row)."""
    raw: Array = np.ascontiguousarray(values).reshape(-1).view(np.uint8).reshape(rows, -1)
    return raw


def compare_values(x: Array | None, y: Array | None, *, number: bool) -> ValueChange | None:
    """Return the difference of two values of a field; None if their bytes are equal.

    Args:
        x, y: before and after, of one dtype; None for a missing value.
        number: whether to compute numeric differences.
    """
    if x is None and y is None:
        return None
    if x is None or y is None:
        return ValueChange(None if x is None else x.shape, None if y is None else y.shape)
    if x.shape != y.shape:
        return ValueChange(x.shape, y.shape)
    if not x.size:
        return None
    differing = (_row_bytes(x, x.size) != _row_bytes(y, y.size)).any(axis=1)
    if not differing.any():
        return None
    first = tuple(int(i) for i in np.unravel_index(int(differing.argmax()), x.shape))
    largest = None
    relative = None
    if number and x.dtype.kind in "iufc":
        largest, relative = _largest_difference(x.reshape(-1)[differing], y.reshape(-1)[differing])
    return ValueChange(x.shape, y.shape, int(differing.sum()), largest, relative, first)


def _largest_difference(x: Array, y: Array) -> tuple[float | None, float | None]:
    """Return the largest absolute and relative difference of values that are finite in both."""
    # In parts, because the extended precision needs much memory.
    parts = [slice(start, start + _AT_ONCE) for start in range(0, len(x), _AT_ONCE)]
    differences = [
        values for part in parts if (values := _finite_difference(x[part], y[part])) is not None
    ]
    if not differences:
        return None, None
    largest, share = (max(values) for values in zip(*differences, strict=True))
    return min(largest, sys.float_info.max), share  # the difference may exceed the largest float


def _finite_difference(x: Array, y: Array) -> tuple[float, float] | None:
    """Return `_largest_difference` of some values; None if none is finite in both."""
    # Exact modulo 2**64; float64 could not distinguish 2**62 from its neighbour.
    if x.dtype.kind in "iu":
        difference = (
            np.maximum(x, y).astype(np.uint64) - np.minimum(x, y).astype(np.uint64)
        ).astype(np.float64)
        return float(difference.max()), float(
            (difference / np.maximum(np.abs(x.astype(float)), np.abs(y.astype(float)))).max()
        )
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.any():
        return None
    # Wide, because two float64 may differ by twice the largest float64.
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    with np.errstate(all="ignore"):
        x, y = x[finite].astype(wide), y[finite].astype(wide)
        difference = np.abs(x - y)
        size = np.maximum(np.abs(x), np.abs(y))
        # `size` is 0 for 0.0 against -0.0, which differ in their bytes only.
        relative = np.divide(difference, size, out=np.zeros_like(difference), where=size > 0)
        return float(difference.max()), float(relative.max())
