"""Split the batch of a loader into samples: named arrays, texts and JSON values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from datacheck.model.named_values import RefusedError, named_values

Array = np.ndarray[Any, Any]


Values = dict[str, Any]

# Suffixes of the values that a collate function adds to a field.
_COMPANION_SUFFIXES = ("_offset", "_mask", "_is_pad", "_is_present")
_PAD_SUFFIX = "_is_pad"


def samples_of(
    batch: Any, fields: Mapping[str, str], steps: Collection[str] = (), *, rest: bool = False
) -> list[Values]:
    """Return the samples of a batch: arrays, texts and JSON values by field.

    Args:
        batch: one of: a dict (nested ones are joined with ``/``) of tensors, arrays or lists with
            one entry per sample; a tuple or list of these (names ``0``, ``1``, ...); a single one
            (``0``); a list of dicts, one per sample, which may also be a part of a tuple
            (``1/boxes``). A field with `<name>_offset` is ragged (rows of all samples, and the end
            of each sample); a field with `<name>_mask` is padded; rows where `<name>_is_pad` is
            True are not data; samples where `<name>_is_present` is False lack the field.
        fields: the fields to look for, and their other name in the batch ("": none).
        steps: fields that keep their padded steps, because their number of steps is fixed.
        rest: also return all other names.

    Raises:
        RefusedError: the batch has no such form, or its parts disagree.
    """
    parts: dict[str, Any] = _columns_of_rows(batch, fields) if _is_rows(batch) else parts_of(batch)
    inner = {
        place for name in (*fields, *fields.values()) for place in _parent_names(name)
    } - fields.keys()
    for name in [name for name in parts if name in inner and _is_rows(parts[name])]:
        parts |= _columns_of_rows(parts.pop(name), fields, f"{name}/")
    companion_names = {name + end for name in parts for end in _COMPANION_SUFFIXES} - fields.keys()
    companions = {
        name: value
        for name, value in parts.items()
        if name in companion_names and _length(value) >= 0
    }
    columns: dict[str, list[Any]] = {}
    for name, field in _present_fields(parts, fields, companion_names, rest=rest).items():
        if (column := _column(name, parts[name], companions, keep=field in steps)) is not None:
            columns[field] = column
    lengths = {field: len(column) for field, column in columns.items()}
    if len(set(lengths.values())) > 1:
        words = ", ".join(f"{field} {count}" for field, count in lengths.items())
        msg = f"the fields of a batch have one entry per sample; found {words}"
        raise RefusedError(msg)
    count = next(iter(lengths.values()), _count(parts, companion_names))
    return [{field: c[i] for field, c in columns.items() if c[i] is not None} for i in range(count)]


def name_places(batch: Any, fields: Mapping[str, str]) -> Any:
    """Return a tuple of dicts as a dict by position, if fields use such names (``0/image``).

    Notes:
        Only these names distinguish it from a list of samples; anything else is returned unchanged.
    """
    if not _is_rows(batch):
        return batch
    places = {str(place) for place in range(len(batch))}
    named_so = any(
        name.partition("/")[0] in places for name in (*fields, *fields.values()) if "/" in name
    )
    return {str(place): part for place, part in enumerate(batch)} if named_so else batch


def parts_of(batch: Any) -> dict[str, Any]:
    """Return the parts of a batch by name; for a list of dicts, the parts of the first.

    Raises:
        RefusedError: this is not a batch.
    """
    top = batch[0] if _is_rows(batch) and len(batch) else batch
    if isinstance(top, Mapping):
        return dict(_flat(top))
    if isinstance(top, list | tuple):
        return dict(_flat({str(place): part for place, part in enumerate(top)}))
    if _length(top) >= 0:
        return {"0": top}
    msg = (
        f"a batch is a dict of fields, a tuple of them, or a list of dicts; found "
        f"{type(batch).__name__}"
    )
    raise RefusedError(msg)


def is_empty(batch: Any) -> bool:
    """Whether a batch has no samples or no entries; False for a value that is not a batch."""
    if _is_rows(batch):
        return not len(batch)
    try:
        return not any(_length(value) > 0 for value in parts_of(batch).values())
    except RefusedError:
        return False


def has_windows(batch: Any) -> bool:
    """Whether the samples of a batch are windows of episodes."""
    return any(name.endswith(_PAD_SUFFIX) for name in parts_of(batch))


def _is_rows(batch: Any) -> bool:
    sequence = isinstance(batch, Sequence) and not isinstance(batch, str | bytes)
    return sequence and all(isinstance(row, Mapping) for row in batch)


def _parent_names(name: str) -> Iterator[str]:
    """Return the names of the dicts around a nested field."""
    parts = name.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def _flat(
    batch: Mapping[Any, Any], head: str = "", whole_names: Collection[str] = ()
) -> Iterator[tuple[str, Any]]:
    for key, value in batch.items():
        name = f"{head}{key}"
        if isinstance(value, Mapping) and name not in whole_names:
            yield from _flat(value, f"{name}/", whole_names)
        elif value is not None:
            yield name, value


def _present_fields(
    parts: Mapping[str, Any],
    fields: Mapping[str, str],
    companion_names: Collection[str],
    *,
    rest: bool,
) -> dict[str, str]:
    """Return the fields that are in the batch, by their names there."""
    names = {
        name if name in parts or not batch_name else batch_name: name
        for name, batch_name in fields.items()
    }
    present = {name: field for name, field in names.items() if name in parts}
    return present | {
        name: name for name in parts if rest and name not in present and name not in companion_names
    }


def _length(value: Any) -> int:
    """Return the length of a value, -1 if it has none."""
    if hasattr(value, "shape"):
        return int(value.shape[0]) if len(value.shape) else -1
    return len(value) if isinstance(value, list | tuple) else -1


def _count(parts: Mapping[str, Any], companion_names: Collection[str]) -> int:
    """Return the number of samples if no field tells it."""
    for name, value in parts.items():
        if (
            name not in companion_names
            and (length := _length(parts.get(f"{name}_offset", value))) >= 0
        ):
            return length
    return 0


def _columns_of_rows(
    rows: Sequence[Mapping[str, Any]], fields: Mapping[str, str], head: str = ""
) -> dict[str, list[Any]]:
    """Return one value per sample by name, None where a sample lacks it."""
    flat = [dict(_flat(row, head, {*fields, *fields.values()})) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: [row.get(name) for row in flat] for name in names}


def _column(name: str, value: Any, parts: Mapping[str, Any], *, keep: bool) -> list[Any] | None:
    """Return one value per sample (None: no such field); None for a value of the whole batch."""
    if _length(value) < 0:
        return None
    ends = parts.get(f"{name}_offset")
    column = (
        _entries(name, value)
        if ends is None
        else _split_ragged(name, _host_array(name, value), _host_array(name, ends))
    )
    for end, real in (("_mask", True), (_PAD_SUFFIX, False)):
        if f"{name}{end}" in parts and not (end == _PAD_SUFFIX and keep):
            column = _mask_rows(
                f"{name}{end}", column, _entries(name, parts[f"{name}{end}"]), real=real
            )
    if f"{name}_is_present" in parts:
        present = _entries(name, parts[f"{name}_is_present"])
        if len(present) != len(column):
            msg = f"{name}_is_present has {len(present)} entries, {name} {len(column)} samples"
            raise RefusedError(msg)
        return [
            item if is_present is None or np.all(is_present) else None
            for item, is_present in zip(column, present, strict=True)
        ]
    return column


def _entries(name: str, value: Any) -> list[Any]:
    """Return one value per sample."""
    if isinstance(value, list | tuple):
        return [
            None if item is None else named_values({name: _to_host(item)}, (name,)).get(name)
            for item in value
        ]
    return [np.asarray(item) for item in _host_array(name, value)]


def _host_array(name: str, value: Any) -> Array:
    array = named_values({name: _to_host(value)})[name]
    if not isinstance(array, np.ndarray) or not array.ndim:
        msg = (
            f"{name}: found {type(value).__name__}; there is one entry per sample of a field and "
            f"of what goes with it"
        )
        raise RefusedError(msg)
    return array


def _to_host(value: Any) -> Any:
    return value.detach().cpu() if hasattr(value, "detach") else value


def _split_ragged(name: str, values: Array, ends: Array) -> list[Any]:
    if ends.ndim != 1 or ends.dtype.kind not in "iu":
        # An offset of another kind is a value of the user's own, not the end of rows.
        return [np.asarray(item) for item in values]
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    if (ends < starts).any() or (int(ends[-1]) if len(ends) else 0) != len(values):
        msg = (
            f"{name}_offset says where each sample ends, the last at {len(values)} rows; found "
            f"{ends.tolist()[:8]}"
        )
        raise RefusedError(msg)
    return [values[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _mask_rows(name: str, column: list[Any], marks: list[Any], *, real: bool) -> list[Any]:
    """Return the real rows of each sample.

    Marks that are not one bool per row have another meaning and change nothing.
    """
    if any(
        isinstance(mark, np.ndarray) and (mark.dtype != bool or mark.ndim != 1) for mark in marks
    ):
        return column
    shapes = [np.shape(item)[:1] for item in column]
    if shapes != [np.shape(mark) for mark in marks]:
        mark_shapes = ", ".join(str(list(np.shape(mark))) for mark in marks[:3])
        msg = (
            f"{name} marks the rows of each sample; for shapes {[*map(list, shapes[:3])]} it has "
            f"{mark_shapes}"
        )
        raise RefusedError(msg)
    return [
        item if mark is None else item[mark == real]
        for item, mark in zip(column, marks, strict=True)
    ]
