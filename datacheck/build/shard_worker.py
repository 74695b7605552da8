"""The worker of a build: reads the samples of a shard, transforms them, writes every field's shard.

It runs in an expendable child process. A shard is a pure function of its task, so a task may run
twice, or on another machine. Facts about a shard go into its record; only the record's size and
digest come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from datacheck import transforms
from datacheck.build import provenance
from datacheck.build.provenance import ShardRecord, origin_text
from datacheck.build.reading import Beat, check_unchanged, open_task, read_blocks
from datacheck.build.shard import BufferPool, Shard, chunk_digests
from datacheck.build.shard_task import SampleCopies, ShardOrder, TaskSetup
from datacheck.cache import Cache, layout, open_cache
from datacheck.errors import DatacheckError, MissingDependencyError, StorageError, UsageError
from datacheck.model.sample import Column
from datacheck.runtime import fsops
from datacheck.runtime.hashing import digest_parts
from datacheck.sources.base import Source, Unread
from datacheck.transforms.base import Transform
from datacheck.workers.wire import answers, natural, text


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
        task: a `TaskSetup` as JSON values, and under "items" a `ShardOrder` for each shard.
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
    setup = TaskSetup.from_dict(task)
    source, steps = open_task(setup)
    buffers = (BufferPool(), BufferPool())
    earlier = _EarlierCache()
    writes: list[Future[list[Any]]] = []
    failed: list[list[Any]] = []
    with ThreadPoolExecutor(1) as disk:  # writes one shard while the next is made
        for place, order in enumerate(map(ShardOrder.from_dict, task["items"])):
            beat(place)
            shard = Shard(order.keys, setup.specs, buffers[len(writes) % 2])
            if order.copies is not None and not earlier.copy_into(shard, order.copies):
                failed.append([order.g, 0, ""])
                continue
            alive = partial(beat, place)
            _fill(shard, source, steps, order, alive, again=setup.again)
            for read in order.reads:
                check_unchanged(source, read.files)
            if writes:
                writes[-1].result()  # raises if it failed; the next shard needs its memory
            writes.append(disk.submit(_write_shard, shard, order.g, setup))
        return [written.result() for written in writes] + failed


class _EarlierCache:
    """The cache that a task copies samples from; opened for the first shard that needs it."""

    def __init__(self) -> None:
        self._cache: Cache | None = None

    def copy_into(self, shard: Shard, copies: SampleCopies) -> bool:
        """Copy samples into a shard; return False if the cache is damaged, gone or unreadable."""
        try:
            if self._cache is None:
                # Not mapped: a map of a failing disk kills the process.
                self._cache = open_cache(copies.cache, io="pread")
            _copy(shard, self._cache, copies)
        except DatacheckError:
            return False
        return True


def _copy(shard: Shard, cache: Cache, copies: SampleCopies) -> None:
    """Copy samples from an earlier cache; every byte is checked as it is read.

    Raises:
        CorruptionError: the earlier cache is damaged.
        UsageError, StorageError: the earlier cache no longer exists, or cannot be read.
    """
    places, numbers = copies.places, copies.numbers
    columns = {}
    for name, spec in shard.specs.items():
        present = cache.present(name, numbers)
        mask = slice(None) if present is None else present
        if spec.dim is None:
            column = Column(cache.gather(name, numbers[mask]))
        else:
            column = Column(*cache.gather_ragged(name, numbers[mask]), spec.kind)
        columns[name] = places[mask], column
    shard.take(places, columns)
    for place, _, reason in copies.refused:
        shard.refuse(shard.keys[place], reason)
    refused = [(place, number) for place, number, _ in copies.refused]
    all_samples = [*zip(places.tolist(), numbers.tolist(), strict=True), *refused]
    origins = cache.origins(np.array([number for _, number in all_samples], np.int64))
    for (place, _), origin in zip(all_samples, origins, strict=True):
        shard.origins[shard.keys[place]] = origin


def _fill(
    shard: Shard,
    source: Source,
    steps: Sequence[Transform],
    order: ShardOrder,
    alive: Callable[[], None],
    *,
    again: bool,
) -> None:
    """Read the files of an order, apply the steps, and put the samples into the shard."""
    companions = {
        read.item.path: [file.path for file in read.files if file.path != read.item.path]
        for read in order.reads
    }
    for read_result in read_blocks(source, order.reads, alive, again=again):
        if isinstance(read_result, Unread):
            shard.refuse(read_result.key, f"{read_result.code} {read_result.reason}")
            continue
        blocks, refused = transforms.run(steps, read_result)
        for key, reason in refused:
            shard.refuse(key, reason)
        for block in blocks:
            # A step may keep its arrays, and change them later.
            shard.put(block, ours=not steps)
        for key, origin in zip(read_result.keys, read_result.origins, strict=True):
            shard.origins[key] = origin_text(origin, companions.get(origin.file, ()))


def _write_shard(shard: Shard, g: int, setup: TaskSetup) -> list[Any]:
    """Write the files of shard `g`, then its record; return what `provenance.write` does."""
    rows = shard.close()
    files = {}
    chunks = {}
    sizes = {}
    for name, spec in shard.specs.items():
        grid = (
            layout.fixed_grid(spec, setup.samples, setup.shard_samples)
            if spec.dim is None
            else None
        )
        chunk = grid.chunk if grid is not None else layout.chunk_rows(spec.item_bytes)
        payload = rows.padded(name, chunk)
        chunks[name] = chunk_digests(payload, chunk * spec.item_bytes)
        parts, sizes[name] = setup.codec.encode(payload, chunk * spec.item_bytes)
        mode = 0o644  # writable: the index of a ragged field follows once all shards are made
        if grid is not None:
            parts.append(layout.pack_index(grid, sizes[name]))
            mode = 0o444  # complete; a read-only file may be linked into a later cache
        files[name] = (sum(map(len, parts)), digest_parts(parts))
        if setup.folder is not None:
            fsops.write_file(setup.folder / layout.shard_file(name, spec, g), parts, mode=mode)
    texts = [shard.origins.get(key, "").encode() for key in shard.keys]
    record = ShardRecord(
        g=g,
        made=shard.made,
        digest=rows.sample_digests(),
        present=shard.present,
        lengths=rows.lengths,
        files=files,
        chunks=chunks,
        sizes=sizes,
        origins=np.frombuffer(b"".join(texts), np.uint8),
        origin_lengths=np.array([len(text) for text in texts], np.int64),
        reasons=[(place, shard.reasons[place]) for place in sorted(shard.reasons)],
    )
    return provenance.write(setup.records, record)
