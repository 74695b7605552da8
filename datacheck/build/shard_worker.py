"""The worker of a build: reads the samples of a shard, transforms them, writes every field's shard.

It runs in an expendable child process. A shard is a pure function of its task, so a task may run
twice, or on another machine. Facts about a shard go into its record; only the record's size and
digest come back.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from datacheck import transforms
from datacheck.build import provenance
from datacheck.build.provenance import ShardRecord
from datacheck.build.shard import BufferPool, Shard
from datacheck.cache import Cache, layout, open_cache
from datacheck.cache.codec import Codec
from datacheck.errors import DatacheckError, MissingDependencyError, StorageError, UsageError
from datacheck.model.row_keys import keys_from_runs
from datacheck.model.sample import ArraySpec, Block, Column, Origin
from datacheck.plugins import add_module_folders
from datacheck.runtime import fsops, numerics
from datacheck.runtime.hashing import digest_parts, digest_value, digests64
from datacheck.schema.model import Schema
from datacheck.sources import open_source
from datacheck.sources.base import Item, Source, Unread
from datacheck.sources.listing import stat_entry
from datacheck.transforms.base import Transform
from datacheck.workers.wire import answers, natural, text

Array = np.ndarray[Any, Any]
Beat = Callable[[int], None]


def _is_record_list(answer: list[list[Any]], task: Mapping[str, Any]) -> bool:
    return sorted(g for g, *_ in answer) == sorted(order["g"] for order in task["items"])


@answers(
    [(natural, natural, text)],
    _is_record_list,
    raises=(UsageError, StorageError, MissingDependencyError),
    of_items=True,
)
def write_shards(task: dict[str, Any], beat: Beat) -> list[list[Any]]:
    """Make the shards of a task (see `parallel.run_task`).

    Args:
        task: schema (`Schema.as_dict`), root, roots, steps (`Transform.as_dict`), identities
            (digest of each step when the build was planned), paths (folders of user functions),
            specs (by field), codec (in words), samples (in the split), k, folder (of the unfinished
            cache; None: only records are written), records (their folder), again (see
            `read_blocks`; may be missing), earlier (the cache that copies come from, or ""),
            numerics (`numerics.numeric_environment` where the build was planned), items: one per
            shard: number, keys (`keys_to_runs`), reads (`Item.as_dict` with keys, files with size,
            times and digest), copies (`ReusableCache.copies`, or None).
        beat: called with a shard's place in the task.

    Returns:
        [g, size, xxh3_128] of the record of each shard: see `provenance.write`. A size of 0: the
        earlier cache lacks data that it should have, and nothing was written.

    Raises:
        UsageError: a source file changed since it was scanned, or a step since the build was
            planned, or is another one on this machine; or a user's function failed.
        OutOfSpaceError: the disk is full.
        StorageError: this machine computes other numbers, or does not see the folders.
    """
    source, steps = load_task(task)
    specs = {name: spec_from(data) for name, data in task["specs"].items()}
    rooms = (BufferPool(), BufferPool())
    again = task.get("again", False)
    writes: list[Future[list[Any]]] = []
    failed: list[list[Any]] = []
    earlier: Cache | None = None
    with ThreadPoolExecutor(1) as disk:  # writes one shard while the next is made
        for place, order in enumerate(task["items"]):
            beat(place)
            shard = Shard(keys_from_runs(order["keys"]), specs, rooms[len(writes) % 2])
            try:
                if order["copies"] is not None:
                    # Not mapped: a map of a failing disk kills the process.
                    earlier = earlier or open_cache(task["earlier"], io="pread")
                    _copy(shard, earlier, order["copies"])
            except DatacheckError:
                failed.append([order["g"], 0, ""])
                continue
            _fill(shard, source, steps, order["reads"], lambda _: beat(place), again=again)  # noqa: B023  called at once
            for read in order["reads"]:
                _check_unchanged(source, read["files"])
            if writes:
                writes[-1].result()  # raises if it failed; the next shard needs its memory
            writes.append(disk.submit(_write_shard, shard, order["g"], task))
        return [written.result() for written in writes] + failed


def load_task(task: Mapping[str, Any]) -> tuple[Source, list[Transform]]:
    """Return the source and the steps of a task; see `write_shards`."""
    numerics.check_same(task["numerics"])
    root = Path(task["root"])
    roots = {name: Path(path) for name, path in task["roots"].items()}
    _check_folders(root, *roots.values(), Path(task["records"]))
    add_module_folders(task["paths"])
    steps = [transforms.step(entry) for entry in task["steps"]]
    _check_steps(steps, task["identities"])
    return open_source(Schema.model_validate(task["schema"]), root, roots), steps


def _check_folders(*folders: Path) -> None:
    """Raise unless this machine has the folders of the build."""
    for folder in folders:
        if not folder.is_dir():
            msg = (
                f"{folder}: no such file or directory on {socket.gethostname()}. Every worker must "
                f"see the data and "
                "the caches under the paths that this command sees. Nothing was published."
            )
            raise StorageError(msg)


def _check_steps(steps: Sequence[Transform], identities: Sequence[str]) -> None:
    for step, planned in zip(steps, identities, strict=True):
        if digest_value(step.identity()) != planned:
            name = next(iter(step.as_dict()))
            msg = (
                f"{name}: its files changed during the build, or are others on this worker. "
                f"Nothing was published."
            )
            raise UsageError(msg)


def spec_as(spec: ArraySpec) -> list[Any]:
    """Return a spec as JSON values."""
    return [spec.dtype, list(spec.item), spec.dim, spec.kind, spec.optional, dict(spec.attrs)]


def spec_from(data: Sequence[Any]) -> ArraySpec:
    """Return the spec that `spec_as` encoded."""
    dtype, item, dim, kind, optional, attrs = data
    return ArraySpec(dtype, tuple(item), dim, kind, optional, attrs)


def _copy(shard: Shard, cache: Cache, copies: Mapping[str, Any]) -> None:
    """Copy samples from an earlier cache; every byte is checked as it is read.

    Raises:
        CorruptionError: the earlier cache is damaged.
        UsageError, StorageError: the earlier cache no longer exists, or cannot be read.
    """
    places, numbers = (np.array(values, np.int64) for values in copies["made"])
    columns = {}
    for name, spec in shard.specs.items():
        present = cache.present(name, numbers)
        mask = slice(None) if present is None else present
        if spec.dim is None:
            columns[name] = places[mask], Column(cache.gather(name, numbers[mask]))
        else:
            columns[name] = (
                places[mask],
                Column(*cache.gather_ragged(name, numbers[mask]), spec.kind),
            )
    shard.take(places, columns)
    refused = [[place, number] for place, number, _ in copies["refused"]]
    places, numbers = (
        np.array([*zip(places, numbers, strict=True), *refused], np.int64).reshape(-1, 2).T
    )
    for place, origin in zip(places.tolist(), cache.origins(numbers), strict=True):
        shard.origins[shard.keys[place]] = origin
    for place, _, reason in copies["refused"]:
        shard.refuse(shard.keys[place], reason)


def _fill(
    shard: Shard,
    source: Source,
    steps: Sequence[Transform],
    reads: Sequence[Mapping[str, Any]],
    alive: Callable[[int], None],
    *,
    again: bool,
) -> None:
    more = {
        read["item"]["path"]: [path for path, *_ in read["files"] if path != read["item"]["path"]]
        for read in reads
    }
    for read_result in read_blocks(source, reads, alive, again=again):
        if isinstance(read_result, Unread):
            shard.refuse(read_result.key, f"{read_result.code} {read_result.reason}")
            continue
        blocks, refused = transforms.run(steps, read_result)
        for key, reason in refused:
            shard.refuse(key, reason)
        for made_block in blocks:
            shard.put(
                made_block, ours=not steps
            )  # a step may keep its arrays, and change them later
        for key, origin in zip(read_result.keys, read_result.origins, strict=True):
            shard.origins[key] = origin_text(origin, more.get(origin.file, ()))


def read_blocks(
    source: Source, reads: Sequence[Mapping[str, Any]], alive: Callable[[int], None], *, again: bool
) -> Iterator[Block | Unread]:
    """Yield the blocks of samples of the files of a task.

    Args:
        source: reads them.
        reads: of a task.
        alive: called as work goes on.
        again: read from the last key to the first, each block in two halves; the result of a sample
            must not depend on it.
    """
    items = [Item.from_dict(read["item"]) for read in (reads[::-1] if again else reads)]
    for read_result in source.read_all(items, alive):
        if again and isinstance(read_result, Block):
            order = sorted(range(len(read_result)), key=read_result.keys.__getitem__, reverse=True)
            half = len(read_result) // 2
            yield from (read_result.take(part) for part in (order[:half], order[half:]) if part)
        else:
            yield read_result


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


def _check_unchanged(source: Source, files: Sequence[Sequence[Any]]) -> None:
    """Raise if a file changed since the scan; checked after reading, so that no change is missed.

    Args:
        source: has the digests of files that were read whole: bytes may change without the times.
        files: path, size, times, inode and digest of each.
    """
    for path, *expected, digest in files:
        entry = stat_entry(source.root, path, source.roots)
        if (
            entry is None
            or list(entry[1:5]) != expected
            or source.digests.get(path, digest) != digest
        ):
            host = socket.gethostname()
            what = (
                "is not there" if entry is None else "changed during the build, or is another one"
            )
            msg = f"{path}: {what} on {host}. Nothing was published; run the same command again."
            raise UsageError(msg)


def _write_shard(shard: Shard, g: int, task: Mapping[str, Any]) -> list[Any]:
    """Write the files of shard `g`, then its record."""
    rows = shard.close()
    files = {}
    chunks = {}
    sizes = {}
    codec = Codec.parse(task["codec"])
    for name, spec in shard.specs.items():
        grid = layout.fixed_grid(spec, task["samples"], task["k"]) if spec.dim is None else None
        chunk = grid.chunk if grid is not None else layout.chunk_rows(spec.item_bytes)
        payload = rows.padded(name, chunk)
        chunks[name] = chunk_digests(payload, chunk * spec.item_bytes)
        parts, sizes[name] = codec.encode(payload, chunk * spec.item_bytes)
        mode = 0o644  # writable: the index of a ragged field follows once all shards are made
        if grid is not None:
            parts.append(layout.pack_index(grid, sizes[name]))
            mode = 0o444  # complete; a read-only file may be linked into a later cache
        files[name] = (sum(map(len, parts)), digest_parts(parts))
        if task["folder"] is not None:
            path = Path(task["folder"], layout.field_path(name), shard_file(g, spec))
            fsops.write_file(path, parts, mode=mode)
    texts = [shard.origins.get(key, "").encode() for key in shard.keys]
    record = ShardRecord(
        g,
        shard.made,
        rows.sample_digests(),
        shard.present,
        rows.lengths,
        files,
        chunks,
        sizes,
        np.frombuffer(b"".join(texts), np.uint8),
        np.array([len(text) for text in texts], np.int64),
        [(place, shard.reasons[place]) for place in sorted(shard.reasons)],
    )
    return provenance.write(Path(task["records"]), record)


def shard_file(g: int, spec: ArraySpec) -> str:
    """Return the file of shard `g` of a field, relative to its array."""
    return layout.Grid(spec.dtype, (1, *spec.item), 1, 1).shard_file(g)


def chunk_digests(payload: memoryview, chunk_bytes: int) -> Array:
    """Return uint64 (chunks): xxh3_64 of each inner chunk."""
    count = len(payload) // max(1, chunk_bytes)
    return digests64(np.frombuffer(payload, np.uint8).reshape(count, chunk_bytes))
