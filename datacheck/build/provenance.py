"""Records of shards: all facts about a shard, in a file that carries its own digest.

A child writes the record (`write`) and answers with its size and digest only, so an answer is
small. `read_records` reads what a task answered; an interrupted build goes on from the records
whose size and digest its coordinator noted. A record is not trusted: `fits` holds it against the
plan.
"""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck.build.plan import BuildPlan
from datacheck.build.shard import MOST_REASON
from datacheck.cache import layout
from datacheck.errors import DatacheckError, StorageError
from datacheck.model.row_keys import keys_from_runs
from datacheck.model.sample import ArraySpec, Origin
from datacheck.runtime import fsops, numerics
from datacheck.runtime.beneath import read_file
from datacheck.runtime.hashing import digest_bytes, digest_parts
from datacheck.workers.parallel import TaskResult
from datacheck.workers.wire import FrameLimits, decode, encode, text

Array = np.ndarray[Any, Any]

# In findings.json: the sample was read, but a transform refused it or it does not fit the cache.
NOT_MADE = "DC961"

_DIGEST = 32  # hex digits
_MOST_BYTES = 1 << 30  # of the record of a shard of a million samples; real ones are far smaller
# The JSON holds the reasons of samples that were not made, no arrays.
_DECODE_LIMITS = FrameLimits(256 << 20, 5_000_000, _MOST_BYTES, _MOST_BYTES)
# Rows of one sample, or bytes of its origin: the sum of a million of them fits into an int64.
_MOST_LENGTH = 1 << 40
_HEX = re.compile(f"[0-9a-f]{{{_DIGEST}}}")


@dataclass(frozen=True, eq=False)
class ShardRecord:
    """One finished shard of all fields.

    Shapes:
        made: bool (samples)
        digest: uint64 (samples), 0 where not made
        present[field]: bool (samples), of optional fields
        lengths[dim]: int64 (samples) [rows]
        chunks[field]: uint64 (inner chunks in use), digests of the decoded chunks
        sizes[field]: uint64 (inner chunks in use) [bytes] as stored
        origins: uint8 (bytes), the concatenated texts
        origin_lengths: int64 (samples) [bytes], 0 for a sample that was never read

    Args:
        g: number of the shard.
        files: size and xxh3_128 of each field's file as the task wrote it; without the index if the
            field is ragged.
        reasons: place in the shard and reason of the samples that were not made; ascending.
        whole: size and xxh3_128 of ragged files that already have an index, from an earlier cache.
        numerics: digest of the numeric environment of the process that made it (`numerics.digest`).
    """

    g: int
    made: Array
    digest: Array
    present: Mapping[str, Array]
    lengths: Mapping[str, Array]
    files: Mapping[str, tuple[int, str]]
    chunks: Mapping[str, Array]
    sizes: Mapping[str, Array]
    origins: Array
    origin_lengths: Array
    reasons: Sequence[tuple[int, str]]
    whole: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    numerics: str = field(default_factory=numerics.digest)


_NAMES = {one.name for one in fields(ShardRecord)}


def write(folder: Path, record: ShardRecord) -> list[Any]:
    """Write a record to ``folder/<g>``, followed by its digest; return [g, size, xxh3_128].

    Notes:
        Not synced: the digest shows whether it survived a crash. Equal records are equal bytes.
    """
    parts = encode(vars(record))
    digest = digest_parts(parts)
    fsops.write_file(folder / str(record.g), [*parts, digest.encode()], sync=False)
    return [record.g, sum(map(len, parts)), digest]


def read(folder: Path, g: int, size: int, digest: str) -> ShardRecord | None:
    """Return the record of shard `g`; None if it is missing or not the one that `write` reported.

    Raises:
        StorageError: the operating system refuses.
    """
    data = _read_verified(folder / str(g))
    return (
        None
        if data is None or (len(data), digest_bytes(data)) != (size, digest)
        else _record(data, g)
    )


def _read_verified(path: Path) -> bytes | None:
    try:
        data = read_file(path, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EFBIG:
            msg = (
                f"{path}: {error.strerror}. It is no record of a shard: delete it, and run the "
                f"same command again."
            )
            raise StorageError(msg) from error
        raise fsops.as_storage_error(error, path) from error
    data, digest = data[:-_DIGEST], data[-_DIGEST:]
    return data if digest_bytes(data).encode() == digest else None


def _record(data: bytes, g: int) -> ShardRecord | None:
    try:
        record = decode(data, room=_DECODE_LIMITS)
        # Written by another version of datacheck or NumPy.
        if record.keys() != _NAMES or record["numerics"] != numerics.digest():
            return None
        if record["g"] != g:  # the digest does not cover the file's name
            return None
        for key in ("files", "whole"):
            record[key] = {name: (count, digest) for name, (count, digest) in record[key].items()}
        record["reasons"] = [(place, why) for place, why in record["reasons"]]
        return ShardRecord(**record)
    # Written by another version
    except (struct.error, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None


def read_records(outcome: TaskResult, folder: Path, plan: BuildPlan) -> list[ShardRecord]:
    """Return the records of a task's shards, checked against the task's answer and the plan.

    Raises:
        StorageError: a record is not the one that the task reported, or its process died.
        DatacheckError: the task failed unexpectedly.

    Notes:
        A shard that an earlier cache should have provided, and could not, has no record.
    """
    if outcome.deaths:
        death = outcome.deaths[0]
        keys = keys_from_runs(death.item["keys"])
        last_line = death.how.strip().splitlines()[-1]
        msg = f"samples {keys[0]} to {keys[-1]}: {last_line}. Nothing was published."
        error = DatacheckError if death.crash else StorageError
        raise error(msg)
    records = []
    for g, size, digest in chain.from_iterable(outcome.payloads):
        if not size:
            continue
        record = read(folder, g, size, digest)
        if record is None:
            msg = (
                f"{folder / str(g)}: not what a worker wrote. Do all workers see this folder? "
                f"Nothing was published."
            )
            raise StorageError(msg)
        if not fits(record, plan):
            msg = (
                f"{folder / str(g)}: does not fit the plan of this build. A worker wrote it or "
                f"somebody changed it; no "
                "damaged source file does this: please report it. Nothing was published."
            )
            raise StorageError(msg)
        records.append(record)
    return records


def fits(found: ShardRecord, plan: BuildPlan) -> bool:
    """Return whether a record fits a shard of this plan; its digest does not show its author.

    Notes:
        A compromised worker, or anyone with access to the folder, may write any record, and later
        code relies on it.
    """
    try:
        return _is_of(found, plan)
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError):
        return False


def _is_of(record: ShardRecord, plan: BuildPlan) -> bool:
    part = plan.shard(record.g)
    specs = plan.specs
    count = max(0, part.stop - part.start)
    per_sample = [(record.made, "?"), (record.digest, "<u8"), (record.origin_lengths, "<i8")]
    per_sample += [(record.present[name], "?") for name, spec in specs.items() if spec.optional]
    per_sample += [(record.lengths[dim], "<i8") for dim in plan.dims]
    counts = [record.origin_lengths, *(record.lengths[dim] for dim in plan.dims)]
    return (
        type(record.g) is int
        and record.files.keys() == specs.keys() >= record.whole.keys()
        and all(_is_column(array, count, kind) for array, kind in per_sample)
        and all(((array >= 0) & (array < _MOST_LENGTH)).all() for array in counts)
        and _is_column(record.origins, int(record.origin_lengths.sum()), "u1")
        and all(_are_chunks(record, name, spec, plan, count) for name, spec in specs.items())
        and all(_is_reason(place, why, count) for place, why in record.reasons)
    )


def _is_column(array: Any, count: int, kind: str) -> bool:
    return isinstance(array, np.ndarray) and (array.shape, array.dtype) == (
        (count,),
        np.dtype(kind),
    )


def _is_reason(place: Any, why: Any, count: int) -> bool:
    return type(place) is int and 0 <= place < count and text(why) and len(why) <= MOST_REASON


def _are_chunks(
    record: ShardRecord, name: str, spec: ArraySpec, plan: BuildPlan, count: int
) -> bool:
    """Return whether number and sizes of a field's chunks and files fit its rows."""
    if spec.dim is None:
        grid = layout.fixed_grid(spec, len(plan.samples), plan.shard_samples)
        rows = count
        chunk = grid.chunk
        index = layout.index_bytes(grid)
    else:
        rows = int(record.lengths[spec.dim].sum())
        chunk = layout.chunk_rows(spec.item_bytes)
        index = 0
    used = -(-rows // chunk) if spec.item_bytes else 0
    chunks = record.chunks[name]
    sizes = record.sizes[name]
    # Incompressible chunks grow a little.
    chunk_limit = 2 * chunk * spec.item_bytes + layout.CHUNK_BYTES
    (size, digest), (whole_size, whole_digest) = (
        record.files[name],
        record.whole.get(name, (0, "0" * _DIGEST)),
    )
    return (
        _is_column(chunks, used, "<u8")
        and isinstance(sizes, np.ndarray)
        and sizes.shape == (used,)
        and sizes.dtype.kind in "iu"
        and bool(((sizes >= 0) & (sizes <= chunk_limit)).all())
        and type(size) is type(whole_size) is int
        and sum(sizes.tolist()) <= size <= used * chunk_limit + index
        and 0 <= whole_size < 2 * (used * chunk_limit + index) + _MOST_BYTES
        and all(_HEX.fullmatch(one) is not None for one in (digest, whole_digest))
    )


def origin_text(origin: Origin, more: Sequence[str] = ()) -> str:
    """Return a sample's origin as canonical JSON: the main file first, then its companions."""
    main: dict[str, Any] = {"file": origin.file}
    if origin.inner:
        main["inner"] = origin.inner
    if origin.rows is not None:
        main["rows"] = list(origin.rows)
    # For text and integers orjson's sorted keys are canonical JSON, at a tenth of the time.
    return orjson.dumps(
        [main, *({"file": file} for file in more)], option=orjson.OPT_SORT_KEYS
    ).decode()
