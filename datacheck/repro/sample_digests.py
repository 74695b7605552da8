"""Digests of the samples of a dataset, field by field; children read the samples."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datacheck.errors import MissingDependencyError, UsageError
from datacheck.model.finding import Progress, Tick
from datacheck.model.row_keys import storable
from datacheck.runtime.hashing import canonical_json, digest_parts, digest_sample, digest_value
from datacheck.runtime.machine import usable_cpus
from datacheck.workers.wire import answers, text

if TYPE_CHECKING:
    from datacheck.model.sample import Block
    from datacheck.schema.model import Schema
    from datacheck.sources import Item, Source
    from datacheck.sources.listing import Listing

Array = np.ndarray[Any, Any]

TASK_ITEMS = 512
TASK_BYTES = 64 << 20
SMALL_BYTES = 256 << 20
MOST_VALUES = 16_000_000  # digests of eight bytes; for large data one per four bytes
# Parts of a schema that do not change the values of samples.
_JUDGED = ("name", "roots", "loader", "duplicates", "rules", "checks")
_TASK = "datacheck.repro.sample_digests:digest_items"


class DigestRows(Mapping[str, Mapping[str, str]]):
    """The digest of each field of each sample, by key.

    Digests are 16 hex digits, stored in eight bytes.

    Args:
        rows: by key, the names of the fields that a sample has, in order, and their digests
            concatenated.
    """

    def __init__(self, rows: Iterable[tuple[str, tuple[str, ...], bytes]]) -> None:
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.packed = {
            key: (shared.setdefault(names, names), digests) for key, names, digests in rows
        }

    def __getitem__(self, key: str) -> dict[str, str]:
        """Return the digests of a sample's fields."""
        names, digests = self.packed[key]
        return dict(
            zip(names, (digests[i : i + 8].hex() for i in range(0, len(digests), 8)), strict=True)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.packed)

    def __len__(self) -> int:
        return len(self.packed)


@dataclass(frozen=True)
class SampleDigests:
    """Digests of samples, field by field.

    Args:
        schema: name of the schema.
        rows: by key (``split/key`` if there are splits), the digest of each field that the sample
            has: xxh3_64 over name, dtype, shape and values, 16 hex digits.
        unread: by key, why a sample could not be made.
        reading: digest of the parts of the schema that define how samples are read; empty if
            unknown.
        lasting: whether the result follows from the data alone: no child died, no library was
            missing.
    """

    schema: str
    rows: DigestRows
    unread: Mapping[str, str] = field(default_factory=dict)
    reading: str = ""
    lasting: bool = field(default=True, compare=False)

    @property
    def digest(self) -> str:
        """`digest_value` of schema, rows and unread, computed with one row of JSON at a time."""
        return digest_parts(self._parts())

    def same_reading(self, other: SampleDigests) -> bool:
        """Return whether both read samples in the same way, as far as they know."""
        if self.reading and other.reading:
            return self.reading == other.reading
        return self.schema == other.schema

    def contents(self) -> dict[str, Any]:
        """Return the content of each sample by key, as `tree_diff` compares it."""
        # A sample that cannot be made has a content of its own: the key makes it unique.
        return self.rows.packed | {
            key: ("cannot be made", key, reason) for key, reason in self.unread.items()
        }

    def differing_fields(self, other: SampleDigests, keys: Iterable[str]) -> dict[str, list[str]]:
        """Return the names of the fields that differ, for each of the samples that both have."""
        fields = {}
        for key in keys:
            if key in self.rows and key in other.rows:
                before = self.rows[key]
                after = other.rows[key]
                fields[key] = [
                    name
                    for name in sorted({*before, *after})
                    if before.get(name) != after.get(name)
                ]
        return fields

    def _parts(self) -> Iterator[bytes]:
        yield b"[" + canonical_json(self.schema) + b",{"
        comma = b""
        for key in sorted(self.rows):
            yield comma + canonical_json(key) + b":" + canonical_json(self.rows[key])
            comma = b","
        yield b"}," + canonical_json(self.unread) + b"]"


def digest_samples(
    schema: Schema, listing: Listing, workers: int | None, progress: Progress | None
) -> SampleDigests:
    """Return the digests of all samples that a schema finds in a listing.

    Args:
        schema: how to read samples.
        listing: the files.
        workers: children that read; None: one for small data, one per core for large.
        progress: called after each part.

    Raises:
        UsageError: the schema fits none of the files, or two samples have the same key.
        StorageError: a worker failed for another reason than a file.
    """
    from datacheck.sources.roots import sandbox_of  # noqa: PLC0415  `datacheck.repro` is light
    from datacheck.workers.parallel import ordered_map  # noqa: PLC0415  as above

    items = items_of(schema, listing)
    total = sum(item.nbytes for item in items)
    tasks = list(_cut_tasks(items))
    if workers is None:
        workers = 1 if total < SMALL_BYTES else usable_cpus()
    shared = task_of(schema, listing.root, listing.roots)
    todo = (shared | {"items": [item.as_dict() for item in group]} for group in tasks)
    rows: dict[str, tuple[tuple[str, ...], bytes]] = {}
    unread: dict[str, str] = {}
    lasting = True
    files = nbytes = digests = 0
    pool_options: dict[str, Any] = {
        "workers": max(1, min(workers, len(tasks))),
        "sandbox": sandbox_of(listing.root, listing.roots, schema),
    }
    for group, outcome in zip(tasks, ordered_map(_TASK, todo, **pool_options), strict=True):
        for payload in outcome.payloads:
            for key, names, packed in _unpacked(payload["blocks"]):
                if key in rows:
                    msg = (
                        f"{listing.root}: two samples have the key {key}, so the schema "
                        f"{schema.name} does not fit."
                    )
                    raise UsageError(msg)
                rows[key] = names, packed
                digests += len(names)
            unread |= dict(payload["unread"])
            lasting &= not payload["lacking"]
            _check_count(digests, total, len(rows), schema)
        unread |= {
            death.item["path"]: death.how.strip().splitlines()[-1] for death in outcome.deaths
        }
        lasting &= not outcome.deaths
        files, nbytes = files + len(group), nbytes + sum(item.nbytes for item in group)
        if progress is not None:
            progress(Tick(files, len(items), nbytes, total, len(rows), 0, "samples"))
    digest_rows = DigestRows((key, *rows[key]) for key in sorted(rows))
    return SampleDigests(
        schema.name, digest_rows, dict(sorted(unread.items())), reading_of(schema), lasting
    )


def _check_count(values: int, nbytes: int, samples: int, schema: Schema) -> None:
    """Raise `UsageError` if files of this size have more values than a manifest may hold."""
    most = max(MOST_VALUES, nbytes // 4)
    if values > most:
        msg = (
            f"{samples:,} samples and more have {values:,} values by schema {schema.name}; a "
            f"manifest names at most "
            f"{most:,} of files with {nbytes:,} bytes. List the fields that count in the schema, "
            f'without "*".'
        )
        raise UsageError(msg)


def _unpacked(
    blocks: list[tuple[list[str], list[str], str]],
) -> Iterator[tuple[str, tuple[str, ...], bytes]]:
    """Yield key, field names and digests of each sample in the blocks of a child."""
    for names, keys, digests in blocks:
        shared = tuple(names)
        row_bytes = 8 * len(names)
        octets = bytes.fromhex(digests)
        for i, key in enumerate(keys):
            yield key, shared, octets[i * row_bytes : (i + 1) * row_bytes]


def reading_of(schema: Schema) -> str:
    """Return the digest of the parts of a schema that define how samples are read.

    Locations and rules are left out.
    """
    return digest_value(
        {name: setting for name, setting in schema.as_dict().items() if name not in _JUDGED}
    )


def items_of(schema: Schema, listing: Listing) -> Sequence[Item]:
    """Return the files that hold the samples.

    Raises:
        UsageError: there are none.
    """
    from datacheck.sources import plan_work  # noqa: PLC0415  as above

    items = plan_work(
        schema.located(listing.root, listing.roots).placed(listing.roots), listing
    ).items
    if not items:
        patterns = ", ".join(schema.samples.files)
        msg = (
            f"{listing.root}: none of its {len(listing.entries):,} files fits schema {schema.name} "
            f"(samples.files: "
            f"{patterns}). Choose another schema; --schema files takes any folder."
        )
        raise UsageError(msg)
    return items


def task_of(schema: Schema, root: Path, roots: Mapping[str, Path]) -> dict[str, Any]:
    """Return the part of a task that all tasks share."""
    from datacheck.sources import SourceSetup  # noqa: PLC0415  as above

    return SourceSetup(schema, root, roots).absolute().as_dict()


def folders_json(root: Path, roots: Mapping[str, Path]) -> dict[str, Any]:
    """Return the folders of data as JSON values."""
    return {
        "root": str(root.absolute()),
        "roots": {name: str(path.absolute()) for name, path in sorted(roots.items())},
    }


def _cut_tasks(items: Sequence[Item]) -> Iterator[list[Item]]:
    group: list[Item] = []
    nbytes = 0
    for item in items:
        if group and (len(group) == TASK_ITEMS or nbytes + item.nbytes > TASK_BYTES):
            yield group
            group = []
            nbytes = 0
        group.append(item)
        nbytes += item.nbytes
    if group:
        yield group


# ------------------------------------------------------------------------------------- in the child


def _is_hex(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]*", value) is not None


@answers(
    {"blocks": [([text], [text], _is_hex)], "unread": [(text, text)], "lacking": bool},
    lambda answer, _: all(
        len(digests) == 16 * len(names) * len(keys) for names, keys, digests in answer["blocks"]
    ),
    raises=(UsageError, MissingDependencyError),
)
def digest_items(task: dict[str, Any], beat: Callable[[int], None]) -> dict[str, Any]:
    """Read items and digest their samples (see `parallel.run_task`).

    Returns:
        blocks (names of fields, keys, all digests concatenated, sample by sample), unread (key,
        reason), lacking: whether a library was missing.
    """
    from datacheck.sources import Item, Unread  # noqa: PLC0415  as above

    source = source_of(task)
    blocks: list[list[Any]] = []
    unread: list[list[str]] = []
    lacking = False
    for outcome in source.read_limited([Item.from_dict(data) for data in task["items"]], beat):
        if isinstance(outcome, Unread):
            unread.append([outcome.key, f"{outcome.code} {outcome.reason}"])
            lacking |= outcome.skipped
        else:
            blocks.append(_digest_block(outcome))
    return {"blocks": blocks, "unread": unread, "lacking": lacking}


def source_of(task: dict[str, Any]) -> Source:
    """Return the source that reads the samples of a task; see `task_of`."""
    from datacheck.sources import SourceSetup  # noqa: PLC0415  as above

    return SourceSetup.from_dict(task).open()


def _digest_block(block: Block) -> list[Any]:
    names = sorted(block.fields)
    digests = np.empty((len(block), len(names)), ">u8")
    for j, name in enumerate(names):
        digests[:, j] = [digest_sample([(name, value)]) for value in values(block, name)]
    return [names, keys(block), digests.tobytes().hex()]


def keys(block: Block) -> list[str]:
    """Return the key of each sample of a block, prefixed with the split if there are splits."""
    return [f"{block.split}/{key}" if block.split else key for key in storable(list(block.keys))]


def values(block: Block, name: str) -> Iterator[Array]:
    """Yield a field of each sample of a block, little-endian; text and JSON as their bytes."""
    column = block.fields[name]
    for i in range(len(block)):
        value = np.asarray(column[i])
        # astype, unlike ascontiguousarray, keeps scalars.
        yield value.astype(value.dtype.newbyteorder("<"), order="C", copy=False)
