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
from datacheck.build.reading import Beat, EarlierCache, check_unchanged, open_task, read_blocks
from datacheck.build.shard import BufferPool, Shard, chunk_digests
from datacheck.build.shard_task import SampleCopies, ShardOrder, TaskSetup
from datacheck.cache import layout
from datacheck.errors import MissingDependencyError, StorageError, UsageError
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
    earlier = EarlierCache()
    writes: list[Future[list[Any]]] = []
    failed: list[list[Any]] = []
    with ThreadPoolExecutor(1) as disk:  # writes one shard while the next is made
        for place, order in enumerate(map(ShardOrder.from_dict, task["items"])):
            beat(place)
            shard = Shard(order.keys, setup.specs, buffers[len(writes) % 2])
            if order.copies is not None and not _copy(shard, order.copies, earlier):
                failed.append([order.g, 0, ""])
                continue
            alive = partial(beat, place)
            _fill(shard, source, steps, order, alive, again=setup.again)
            for read in order.reads:
                check_unchanged(source, read)
            if writes:
                writes[-1].result()  # raises if it failed; the next shard needs its memory
            writes.append(disk.submit(_write_shard, shard, order.g, setup))
        return [written.result() for written in writes] + failed


def _copy(shard: Shard, copies: SampleCopies, earlier: EarlierCache) -> bool:
    """Copy samples into a shard; return False if the earlier cache cannot give them."""
    copied = earlier.read(copies, shard.specs)
    if copied is None:
        return False
    shard.take(copies.places, copied.columns)
    for place, _, reason in copies.refused:
        shard.refuse(shard.keys[place], reason)
    for place, origin in copied.origins.items():
        shard.origins[shard.keys[place]] = origin
    return True


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
            shard.origins[key] = provenance.origin_text(origin, companions.get(origin.file, ()))


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
    record = provenance.ShardRecord(
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
