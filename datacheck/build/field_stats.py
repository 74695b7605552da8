"""Statistics of every field before a build: from the scan's table, else by reading again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from datacheck.errors import DatacheckError, MissingDependencyError, UsageError
from datacheck.model.finding import Progress, Tick, note_reporter
from datacheck.model.row_keys import storable_keys
from datacheck.model.sample import Block, Column, Kind
from datacheck.model.table import Measured, Table, Texts
from datacheck.runtime.sandbox import Sandbox
from datacheck.schema.model import ANY, Schema
from datacheck.sources.base import Item, Unread
from datacheck.sources.kinds import SourceSetup
from datacheck.sources.roots import sandbox_of
from datacheck.workers.parallel import ordered_map
from datacheck.workers.wire import answers, check, int64, natural, text

Array = np.ndarray[Any, Any]

TASK_ITEMS = 256
_MOST_FIELDS = 4096  # each is a folder of its own
_MOST_NAMES = 200_000  # counted field names
# _FEW_FIELDS fields are always kept; more as long as _EACH bytes per field and sample fit into
# _BYTES.
_FEW_FIELDS = 40
_BYTES = 256 << 20
_EACH = 12
_LOOK = "datacheck.build.field_stats:look"


@dataclass(frozen=True)
class Signature:
    """Kind, dtype, number of axes and sizes after the first axis of a field in one sample."""

    kind: Kind
    dtype: str
    rank: int
    item: tuple[int, ...]


@dataclass(eq=False)
class FieldStats:
    """Statistics of one field over all samples of a split.

    Shapes:
        which: int32 (samples), positions in `signatures`; -1 where the field is absent
        length: int64 (samples), size of the first axis; 0 for scalars, text and JSON
    """

    signatures: list[Signature]
    which: Array
    length: Array
    _numbers: dict[Signature, int] = field(default_factory=dict, repr=False)

    @staticmethod
    def nothing(samples: int) -> FieldStats:
        """Return the statistics of a field that no sample has."""
        return FieldStats([], np.full(samples, -1, np.int32), np.zeros(samples, np.int64))

    def add(self, index: Array, signature: Signature, lengths: Array | int) -> None:
        """Record that the samples at `index` have the field, with these sizes of the first axis."""
        if signature not in self._numbers:
            self._numbers[signature] = len(self.signatures)
            self.signatures.append(signature)
        self.which[index] = self._numbers[signature]
        self.length[index] = lengths


def signature(column: Column) -> Signature:
    """Return the signature that all samples of a column share."""
    if column.kind != "array":
        return Signature(column.kind, "uint8", 1, ())
    rank = column.values.ndim - (column.lengths is None)
    return Signature(
        "array", column.values.dtype.name, rank, tuple(int(n) for n in column.values.shape[1:])
    )


def stats_of_blocks(keys: Sequence[str], blocks: Sequence[Block]) -> dict[str, FieldStats]:
    """Return the statistics of each field in blocks of the samples `keys`."""
    positions = {key: i for i, key in enumerate(keys)}
    stats: dict[str, FieldStats] = {}
    for block in blocks:
        index = np.array([positions[key] for key in block.keys], dtype=np.int64)
        for name, column in block.fields.items():
            array = column.kind == "array" and column.lengths is not None
            lengths = column.lengths if array and column.lengths is not None else 0
            stats.setdefault(name, FieldStats.nothing(len(keys))).add(
                index, signature(column), lengths
            )
    return dict(sorted(stats.items()))


def has_field_stats(schema: Schema, table: Table) -> bool:
    """Return whether a scan's table has the statistics of every field."""
    return (
        bool(schema.stored)
        and ANY not in schema.fields
        and any(f"{n}:ndim" in table.columns for n in schema.stored)
    )


def stats_of_table(schema: Schema, table: Table) -> dict[str, FieldStats]:
    """Return the statistics of each field that a scan measured; see `has_field_stats`."""
    return {
        name: _stats_of_columns(
            len(table), *(table.columns.get(f"{name}:{stat}") for stat in ("ndim", "dtype", "dims"))
        )
        for name in schema.stored
        if f"{name}:ndim" in table.columns  # else no sample has it
    }


def _stats_of_columns(
    samples: int, ndim: Measured | None, dtype: Measured | None, dims: Measured | None
) -> FieldStats:
    stats = FieldStats.nothing(samples)
    if ndim is None or dtype is None:
        return stats
    present_samples = np.flatnonzero(ndim.present)
    rank = ndim.values[present_samples].astype(np.int64)
    sizes = (
        np.zeros((len(present_samples), 1), np.int64)
        if dims is None
        else dims.values[present_samples].astype(np.int64)
    )
    # Columns after the last axis hold no sizes.
    sizes[np.arange(sizes.shape[1]) >= np.maximum(rank, 1)[:, None]] = 0
    names = Texts.of(dtype.values[present_samples].tolist())
    kinds, kind_index = _distinct(np.column_stack([rank, names.rows, sizes[:, 1:]]))
    order = np.argsort(kind_index, kind="stable")
    ends = np.searchsorted(kind_index[order], np.arange(len(kinds)), "right").tolist()
    for number, (count, name, *item) in enumerate(kinds.tolist()):
        members = order[ends[number - 1] if number else 0 : ends[number]]
        if count < 0:
            kind: Kind = "json" if names.words[name] == "json" else "text"
            stats.add(present_samples[members], Signature(kind, "uint8", 1, ()), 0)
        else:
            signature = Signature(
                "array", names.words[name], count, tuple(item[: max(0, count - 1)])
            )
            stats.add(present_samples[members], signature, sizes[members, 0] if count else 0)
    return stats


def _distinct(rows: Array) -> tuple[Array, Array]:
    """Return the distinct rows in ascending order, and the position of each row among them.

    Like ``np.unique(axis=0)``, but without sorting whole rows.

    Shapes:
        rows: int64 (rows, columns)
        returns: int64 (kinds, columns); int64 (rows)
    """
    which = np.zeros(len(rows), np.int64)
    for column in rows.T:
        if (column != column[:1]).any():
            values, place = np.unique(column, return_inverse=True)
            which = np.unique(which * len(values) + place, return_inverse=True)[1]
    first = np.unique(which, return_index=True)[1]
    return rows[first], which


def measure_fields(
    schema: Schema,
    root: Path,
    roots: Mapping[str, Path],
    items: Sequence[Item],
    keys: Sequence[str],
    *,
    workers: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, FieldStats], int]:
    """Read every item again; return the statistics of each field, and how many are left out.

    The statistics cover the samples `keys`.

    Raises:
        DatacheckError: a child died on a file that the scan could read.
        UsageError: the samples have more fields than a cache holds, and half of the samples or more
            have each; or far more.

    Notes:
        Reads only headers where the format has them. Every item is opened, because the lengths of
        all samples decide how a cache is cut. A schema that lists its fields avoids this, because
        the scan has measured those. If there are too many fields, those that the fewest samples
        have are left out, ties by name.
    """
    shared = SourceSetup(schema, root, roots).absolute().as_dict()
    tasks = [
        shared | {"items": [item.as_dict() for item in items[i : i + TASK_ITEMS]]}
        for i in range(0, len(items), TASK_ITEMS)
    ]
    max_fields = min(_MOST_FIELDS, max(_FEW_FIELDS, _BYTES // (_EACH * max(1, len(keys)))))
    records = partial(
        _records, tasks, workers, scheduler, sandbox_of(root, roots, schema), progress
    )
    stats, counts = _collect_stats(records(), keys, max_fields)
    if len(counts) > max_fields:
        stats.clear()
        stats, _ = _collect_stats(
            records(), keys, max_fields, _most_common(counts, len(keys), max_fields, schema.fields)
        )
    return dict(sorted(stats.items())), len(counts) - len(stats)


def _collect_stats(
    records: Iterable[dict[str, Any]], keys: Sequence[str], most: int, chosen: Collection[str] = ()
) -> tuple[dict[str, FieldStats], Counter[str]]:
    """Return the statistics of fields, and how many samples have each field.

    Covers the first `most` fields, or the chosen ones.

    Raises:
        UsageError: there are far too many fields.
    """
    positions = {key: i for i, key in enumerate(keys)}
    stats: dict[str, FieldStats] = {}
    counts: Counter[str] = Counter()
    for record in records:
        index = [(i, positions[key]) for i, key in enumerate(record["keys"]) if key in positions]
        if not index:
            continue
        record_index, sample_index = (
            np.array(part, dtype=np.int64) for part in zip(*index, strict=True)
        )
        for name, ((kind, dtype, rank, item), lengths) in record["fields"].items():
            counts[name] += len(sample_index)
            if name in chosen or (not chosen and len(counts) <= most):
                field_stats = stats.setdefault(name, FieldStats.nothing(len(keys)))
                field_stats.add(
                    sample_index, Signature(kind, dtype, rank, tuple(item)), lengths[record_index]
                )
        if len(counts) > _MOST_NAMES:
            raise UsageError(_too_many(len(keys), _MOST_NAMES))
    return stats, counts


def _most_common(
    counts: Mapping[str, int], samples: int, most: int, listed: Collection[str]
) -> set[str]:
    """Return the names of the fields to keep.

    The fields that the schema lists come first, then those that the most samples have, ties by
    name.

    Raises:
        UsageError: half of the samples or more have one more field than that.
    """
    names = sorted(counts, key=lambda name: (name not in listed, -counts[name], name))
    if 2 * counts[names[most]] >= samples:
        raise UsageError(_too_many(samples, most))
    return set(names[:most])


def _too_many(samples: int, most: int) -> str:
    return (
        f"{samples:,} samples have more than {most:,} fields. List those that the cache should "
        f"hold."
    )


def _records(
    tasks: list[dict[str, Any]],
    workers: int,
    scheduler: str | None,
    box: Sandbox | None,
    progress: Progress | None,
) -> Iterator[dict[str, Any]]:
    report = note_reporter(progress, Tick(0, 0, 0, 0, 0, 0, "looking"))
    for outcome in ordered_map(
        _LOOK, tasks, workers=workers, scheduler=scheduler, sandbox=box, told=report
    ):
        for death in outcome.deaths:
            msg = (
                f"{death.item['path']}: {death.how.strip().splitlines()[-1]}; the scan could "
                f"read it. Run it again."
            )
            raise DatacheckError(msg)
        for payload in outcome.payloads:
            yield from payload


def _is_number(name: str) -> bool:
    dtype = np.dtype(name[:40])  # text and JSON have the dtype of their bytes
    return dtype.name == name and dtype.kind in "biufc"


def _is_signature(value: Any) -> bool:
    check(value, (text, text, int64, [natural]))
    kind, dtype, rank, _ = value
    return kind in get_args(Kind) and _is_number(dtype) and 0 <= rank <= 64


def _is_column(size: Array, count: int) -> bool:
    return size.dtype == np.int64 and size.shape == (count,) and bool((size >= 0).all())


def _of_keys(answer: list[Any], _: Any) -> bool:
    lengths = [(record["keys"], size) for record in answer for _, size in record["fields"].values()]
    return all(_is_column(size, len(keys)) for keys, size in lengths)


@answers(
    [{"keys": [text], "fields": {text: (_is_signature, np.ndarray)}}],
    _of_keys,
    raises=(UsageError, MissingDependencyError),
)
def look(task: dict[str, Any], beat: Callable[[int], None]) -> list[dict[str, Any]]:
    """Return one record per block of the task's items: keys, and signature and lengths by field."""
    source = SourceSetup.from_dict(task).open(level="structure")
    records = []
    for block in source.read_limited([Item.from_dict(data) for data in task["items"]], beat):
        if isinstance(block, Unread):
            continue
        fields = {}
        for name, stats in stats_of_blocks(block.keys, [block]).items():
            signature = stats.signatures[0]
            fields[name] = [
                [signature.kind, signature.dtype, signature.rank, list(signature.item)],
                stats.length,
            ]
        records.append({"keys": list(storable_keys(block.keys)), "fields": fields})
    return records
