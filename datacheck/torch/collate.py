"""Collate functions: a gathered batch passes through the default collate without a copy.

`Batch` is what ``CachedDataset.__getitems__`` returns. It behaves like a list of dict samples and
still holds the stacked arrays. Importing this module registers `Row` with the default collate of
PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch.utils.data._utils.collate import collate, default_collate_fn_map

from datacheck.errors import DatacheckError, UsageError

Array = np.ndarray[Any, Any]
Kind = Literal["fixed", "ragged", "object"]


class Row(dict[str, Any]):
    """One sample: a dict of tensors and texts that also knows which of its fields are ragged.

    Args:
        values: the fields.
        kinds: "fixed", "ragged" (the first axis differs between samples), or "object" (text, JSON:
            never stacked).
    """

    __slots__ = ("kinds",)

    def __init__(
        self,
        values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        super().__init__(values)
        self.kinds: Mapping[str, Kind] = kinds or {}


@dataclass(frozen=True, slots=True)
class RaggedColumn:
    """A ragged field of a batch.

    Shapes:
        values: any (rows, *item)

    Args:
        values: the rows of all samples, concatenated.
        ends: the end of each sample's rows.
    """

    values: torch.Tensor
    ends: list[int]

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.values[self.ends[i - 1] if i else 0 : self.ends[i]]


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A field of a batch whose arrays have not been copied.

    Args:
        arrays: one for each sample, read-only.
        ragged: whether their first axes differ.
    """

    arrays: list[Array]
    ragged: bool

    def __getitem__(self, i: int) -> Array:
        return self.arrays[i]


Column: TypeAlias = torch.Tensor | RaggedColumn | ViewColumn | list[Any]


class Batch(MutableSequence[Row]):
    """A gathered batch that behaves like a list of samples; rows are created on access.

    Args:
        columns: the fields, in order: a tensor (samples, *item), `RaggedColumn`, `ViewColumn`, or a
            list of texts or JSON values.
        size: number of samples.

    Notes:
        Tensors of a row are views: changing one in place changes the batch, too. The batch notices
        rows with replaced, added or removed values, and a reordered list; it is then stacked from
        its rows. Pickled, it is a list of rows.
    """

    def __init__(self, columns: dict[str, Column], size: int) -> None:
        self._columns, self._size = columns, size
        self.kinds: dict[str, Kind] = {name: _kind(column) for name, column in columns.items()}
        self._rows: list[Row | None] = [None] * size
        self._given: list[tuple[Row, tuple[Any, ...]]] = []
        self._edited = False

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        row = self._rows[i]
        if row is None:
            i = range(len(self))[i]
            row = Row({name: column[i] for name, column in self._columns.items()}, self.kinds)
            self._rows[i] = row
            self._given.append((row, tuple(row.values())))
        return row

    def __setitem__(self, i: Any, value: Any) -> None:
        self._edit()[i] = value

    def __delitem__(self, i: Any) -> None:
        del self._edit()[i]

    def insert(self, index: int, value: Row) -> None:
        """Insert a sample before position `index`."""
        self._edit().insert(index, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))

    def _edit(self) -> list[Any]:
        for i in range(len(self)):
            self[i]
        self._edited = True
        return self._rows

    @property
    def columns(self) -> dict[str, Column] | None:
        """The gathered fields; None if rows were replaced or changed since."""
        if self._edited or not all(self._same(row, values) for row, values in self._given):
            return None
        return self._columns

    def _same(self, row: Row, values: tuple[Any, ...]) -> bool:
        return list(row) == list(self._columns) and all(
            a is b for a, b in zip(row.values(), values, strict=True)
        )


def _kind(column: Column) -> Kind:
    if isinstance(column, list):
        return "object"
    return (
        "ragged"
        if isinstance(column, RaggedColumn) or (isinstance(column, ViewColumn) and column.ragged)
        else "fixed"
    )


def merge_batches(parts: Sequence[tuple[Array, Any]], size: int) -> Batch | None:
    """Merge several gathered batches into one; None where they can only be merged row by row.

    Args:
        parts: positions in the merged batch, int64 (samples), and the samples for them.
        size: samples of the merged batch.
    """
    columns = [
        (places, batch.columns if isinstance(batch, Batch) else None) for places, batch in parts
    ]
    known_columns = [
        (places, batch_columns) for places, batch_columns in columns if batch_columns is not None
    ]
    if len(known_columns) < len(parts) or not known_columns:
        return None
    merged = {
        name: _merge_columns(
            [(places, batch_columns[name]) for places, batch_columns in known_columns], size
        )
        for name in known_columns[0][1]
    }
    complete_columns = {name: column for name, column in merged.items() if column is not None}
    return Batch(complete_columns, size) if len(complete_columns) == len(merged) else None


def _merge_columns(parts: Sequence[tuple[Array, Column]], size: int) -> Column | None:
    layouts = {
        (type(c), c.dtype, c.shape[1:])
        for _, column in parts
        if isinstance(c := _values(column), torch.Tensor)
    }
    kinds = {_kind(column) for _, column in parts}
    if (
        len(kinds) > 1
        or len(layouts) > 1
        or any(isinstance(column, ViewColumn) for _, column in parts)
    ):
        return None
    if kinds == {"fixed"}:
        values = [_values(column) for _, column in parts]
        out = values[0].new_empty((size, *values[0].shape[1:]))
        for (places, _), part in zip(parts, values, strict=True):
            out.numpy()[places] = part.numpy()  # a third of the time of index_copy_
        return out
    rows: list[Any] = [None] * size
    for places, column in parts:
        for i, place in enumerate(places.tolist()):
            rows[place] = column[i]
    return (
        rows
        if kinds == {"object"}
        else RaggedColumn(torch.cat(rows), np.cumsum([len(row) for row in rows]).tolist())
    )


def _values(column: Column) -> Any:
    return column.values if isinstance(column, RaggedColumn) else column


def collate_rows(
    batch: Sequence[Mapping[str, Any]], *, collate_fn_map: Any = None
) -> dict[str, Any]:
    """Return a batch as the default collate does: tensors stacked, texts and JSON values listed.

    Raises:
        UsageError: a ragged field cannot be stacked, or samples have values of different forms in a
            field.
    """
    columns = batch.columns if isinstance(batch, Batch) else None
    if columns is not None:
        return {name: _stack_column(name, column) for name, column in columns.items()}
    kinds = getattr(batch[0], "kinds", {})
    registered = collate_fn_map or default_collate_fn_map
    stacked = {}
    for name in batch[0]:
        values = [row[name] for row in batch]
        with _refusing_mixed_forms(name, values):
            if kinds.get(name) == "object":
                stacked[name] = _one_kind(values)
                continue
            if (
                kinds.get(name) == "ragged"
                and _have_rows(values)
                and len({_is_array(v) for v in values}) == 1
            ):
                _refuse_unequal(name, [len(value) for value in values])
            stacked[name] = (
                _stack_arrays(values)
                if _are_views(values)
                else collate(_as_tensors(values), collate_fn_map=registered)
            )
    return stacked


@contextmanager
def _refusing_mixed_forms(
    name: str, values: Sequence[Any], *, rows: bool = False
) -> Iterator[None]:
    """Raise `UsageError` if values of two forms cannot be joined, usually of two datasets."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        forms = sorted({_value_form(value, rows=rows) for value in values})
        if isinstance(error, DatacheckError) or len(forms) == 1:
            raise
        msg = (
            f"{name} is {forms[0]} in one sample of this batch and {forms[1]} in another, so they "
            f"cannot be joined. "
            f"Leave the field out with fields=[...], or bring its values in line with transform=."
        )
        raise UsageError(msg) from error


def _value_form(value: Any, *, rows: bool) -> str:
    if not _is_array(value):
        return type(value).__name__
    shape = [*(["rows"] if rows and value.ndim else []), *value.shape[1 if rows else 0 :]]
    return f"{str(value.dtype).removeprefix('torch.')} [{', '.join(map(str, shape))}]"


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray)


def _one_kind(values: list[Any]) -> list[Any]:
    """Return the values of an "object" field unstacked: all texts, or all arrays."""
    if len({_is_array(value) for value in values}) > 1:
        msg = "texts and arrays"
        raise TypeError(msg)
    return values


def _as_tensors(values: Sequence[Any]) -> Sequence[Any]:
    """Return tensors if `values` mixes tensors and arrays (``copy=False``), else unchanged."""
    if {torch.Tensor, np.ndarray} != {type(value) for value in values}:
        return values
    return [
        torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
        for value in values
    ]


def _are_views(values: Sequence[Any]) -> bool:
    return all(isinstance(value, np.ndarray) and not value.flags.writeable for value in values)


def _stack_arrays(arrays: Sequence[Array]) -> torch.Tensor:
    """Stack read-only arrays, without PyTorch's warning about tensors on read-only memory."""
    return torch.from_numpy(np.stack(arrays))


def _stack_column(name: str, column: Column) -> Any:
    if isinstance(column, ViewColumn):
        if column.ragged:
            _refuse_unequal(name, [len(array) for array in column.arrays])
        return _stack_arrays(column.arrays)
    if not isinstance(column, RaggedColumn):
        return column
    lengths = _lengths(column.ends)
    _refuse_unequal(name, lengths)
    return column.values.reshape(len(lengths), max(lengths, default=0), *column.values.shape[1:])


def _have_rows(values: Iterable[Any]) -> bool:
    """Whether all values have rows: a transform may have replaced them by a number."""
    return all(getattr(value, "ndim", 1) for value in values)


def _refuse_unequal(name: str, lengths: list[int]) -> None:
    if len(set(lengths)) > 1:
        msg = (
            f"{name} has {min(lengths)} to {max(lengths)} rows in this batch, so the default "
            f"collate cannot stack it. "
            f"Give the DataLoader collate_fn=datacheck.torch.collate_ragged (values and offsets) "
            f"or "
            f"datacheck.torch.collate_pad (padded, with a mask), or leave the field out with "
            f"fields=[...]."
        )
        raise UsageError(msg)


def _lengths(ends: list[int]) -> list[int]:
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def collate_ragged(
    batch: Sequence[Mapping[str, Any]], *, ragged: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return a batch with concatenated ragged fields; ``<name>_offset`` has the ends of samples.

    Shapes:
        <name>: (rows of all samples, *item)
        <name>_offset: int64 (samples), the Pointcept convention

    Args:
        batch: samples of a `CachedDataset`, or dicts.
        ragged: names of the ragged fields; needed for plain dicts only.

    Raises:
        UsageError: the samples do not say which of their fields are ragged, or a field is named
            ``<name>_offset``.
    """

    def join(name: str, column: RaggedColumn) -> dict[str, Any]:
        return {
            name: column.values,
            f"{name}_offset": torch.tensor(column.ends, dtype=torch.int64, device="cpu"),
        }

    return _collate_ragged_by(batch, ragged, join)


def collate_pad(
    batch: Sequence[Mapping[str, Any]], *, ragged: Sequence[str] | None = None, value: float = 0
) -> dict[str, Any]:
    """Return a batch with ragged fields padded to the longest; ``<name>_mask`` marks real rows.

    Shapes:
        <name>: (samples, longest, *item)
        <name>_mask: bool (samples, longest), True for real rows

    Args:
        batch: samples of a `CachedDataset`, or dicts.
        ragged: names of the ragged fields; needed for plain dicts only.
        value: the padding value.

    Raises:
        UsageError: the samples do not say which of their fields are ragged, a field cannot hold
            `value`, or a field is named ``<name>_mask``.
    """

    def pad(name: str, column: RaggedColumn) -> dict[str, Any]:
        lengths = torch.tensor(_lengths(column.ends), dtype=torch.int64, device="cpu")
        mask = torch.arange(int(lengths.max()), device="cpu") < lengths[:, None]
        try:
            padded = column.values.new_full((*mask.shape, *column.values.shape[1:]), value)
        except RuntimeError as error:
            msg = (
                f"{name}: {value} cannot stand behind its end, it is {column.values.dtype}. "
                f"Choose another value="
            )
            raise UsageError(msg) from error
        padded[mask] = column.values
        return {name: padded, f"{name}_mask": mask}

    return _collate_ragged_by(batch, ragged, pad)


def _collate_ragged_by(
    batch: Sequence[Mapping[str, Any]],
    ragged: Sequence[str] | None,
    join: Callable[[str, RaggedColumn], dict[str, Any]],
) -> dict[str, Any]:
    """Collate a batch; `join` returns what becomes of a ragged field, by name."""
    if not len(batch) or not isinstance(batch[0], Mapping):
        kind = type(batch[0]).__name__ if len(batch) else "samples"
        msg = f"a batch of {len(batch)} {kind}; dicts are collated here"
        raise UsageError(msg)
    columns = batch.columns if isinstance(batch, Batch) else None
    ragged_names = _ragged_names(batch, ragged, touched=columns is None)
    collated: dict[str, Any] = {}
    for name in batch[0]:
        column = None if columns is None else columns[name]
        if name in ragged_names:
            joined = join(name, _as_ragged(name, column, batch))
            _check_no_clash(name, joined, batch[0])
            collated |= joined
        elif column is not None:
            collated[name] = _stack_column(name, column)
        else:
            kinds = [getattr(row, "kinds", None) for row in batch]
            rows = [Row({name: row[name]}, kind) for row, kind in zip(batch, kinds, strict=True)]
            collated |= collate_rows(rows)
    return collated


def _as_ragged(
    name: str, column: Column | None, batch: Sequence[Mapping[str, Any]]
) -> RaggedColumn:
    """Return a ragged field of a batch: as gathered, or joined from its rows."""
    if isinstance(column, RaggedColumn):
        return column
    if isinstance(column, ViewColumn):
        return _join_rows(name, column.arrays)
    return _join_rows(name, [row[name] for row in batch])


def _check_no_clash(name: str, joined: Mapping[str, Any], sample: Mapping[str, Any]) -> None:
    for made in joined:
        if made != name and made in sample:
            msg = (
                f"the field {made} has the name of what is made of {name}. Leave one of them out "
                f"or rename it."
            )
            raise UsageError(msg)


def _ragged_names(
    batch: Sequence[Mapping[str, Any]], given_names: Sequence[str] | None, *, touched: bool
) -> set[str]:
    """Return the names of the ragged fields: as given, or else as the samples say."""
    if given_names is not None:
        if unknown_names := set(given_names) - set(batch[0]):
            msg = f"ragged: no field {', '.join(sorted(unknown_names))}; there are {', '.join(batch[0])}"
            raise UsageError(msg)
        return set(given_names)
    kinds: Mapping[str, str] | None = getattr(batch[0], "kinds", None)
    if kinds is None:
        msg = (
            "these samples are plain dicts: say which fields are ragged, for example "
            "functools.partial(collate_ragged, ragged=['points'])"
        )
        raise UsageError(msg)
    ragged_fields = [name for name in batch[0] if kinds.get(name) == "ragged"]
    return {name for name in ragged_fields if not touched or _have_rows(row[name] for row in batch)}


def _join_rows(name: str, values: Sequence[Any]) -> RaggedColumn:
    with _refusing_mixed_forms(name, values, rows=True):
        return _ragged_rows(name, values)


def _ragged_rows(name: str, values: Sequence[Any]) -> RaggedColumn:
    if values and _are_views(values):
        return RaggedColumn(
            torch.from_numpy(np.concatenate(values)),
            np.cumsum([len(value) for value in values]).tolist(),
        )
    tensors = [torch.as_tensor(value) for value in _as_tensors(values)]
    if not _have_rows(tensors):
        msg = f"{name}: a sample has one number there, and no rows. Leave it out of ragged="
        raise UsageError(msg)
    ends = torch.tensor([len(tensor) for tensor in tensors]).cumsum(0)
    return RaggedColumn(torch.cat(tensors), ends.tolist())


default_collate_fn_map[Row] = collate_rows
