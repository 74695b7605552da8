"""Read the samples of a task in a child, exactly those that the scan has read.

A build may run on another machine than the scan, and minutes after it. `open_task` checks that this
process computes the same numbers, sees the same folders and has the same steps; `check_unchanged`
checks each file once it is read.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from datacheck import transforms
from datacheck.build.shard_task import FileRead, TaskSetup
from datacheck.errors import StorageError, UsageError
from datacheck.model.sample import Block
from datacheck.plugins import add_module_folders
from datacheck.runtime import numerics
from datacheck.runtime.hashing import digest_value
from datacheck.sources.base import Source, Unread
from datacheck.sources.listing import stat_entry
from datacheck.sources.roots import Entry
from datacheck.transforms.base import Transform

Beat = Callable[[int], None]


def open_task(setup: TaskSetup) -> tuple[Source, list[Transform]]:
    """Return the source and the steps of a task.

    Raises:
        UsageError: a step changed since the build was planned, or is another one on this machine.
        StorageError: this machine computes other numbers, or does not see the folders.
    """
    numerics.check_same(setup.numerics)
    source = setup.source
    _check_folders(source.root, *source.roots.values(), setup.records)
    add_module_folders(setup.paths)
    steps = [transforms.step(entry) for entry in setup.steps]
    _check_steps(steps, setup.identities)
    return source.open(), steps


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


def read_blocks(
    source: Source, reads: Sequence[FileRead], alive: Callable[[], None], *, again: bool
) -> Iterator[Block | Unread]:
    """Yield the blocks of samples of the files of an order.

    Args:
        source: reads them.
        reads: of the order.
        alive: called as work goes on.
        again: read from the last key to the first, each block in two halves; the result of a sample
            must not depend on it.
    """
    items = [read.item for read in reads]
    if not again:
        yield from source.read_all(items, lambda _: alive())
        return
    for read_result in source.read_all(items[::-1], lambda _: alive()):
        if isinstance(read_result, Block):
            yield from _in_other_order(read_result)
        else:
            yield read_result


def _in_other_order(block: Block) -> Iterator[Block]:
    order = sorted(range(len(block)), key=block.keys.__getitem__, reverse=True)
    half = len(block) // 2
    for part in (order[:half], order[half:]):
        if part:
            yield block.take(part)


def check_unchanged(source: Source, files: Sequence[Entry]) -> None:
    """Raise if a file changed since the scan; checked after reading, so that no change is missed.

    Args:
        source: has the digests of files that were read whole: bytes may change without the times.
        files: the entries that the scan saw.

    Raises:
        UsageError: a file changed, or is missing.
    """
    for scanned in files:
        current = stat_entry(source.root, scanned.path, source.roots)
        if current is None:
            problem = "is not there"
        elif current[1:5] != scanned[1:5] or (
            source.digests.get(scanned.path, scanned.digest) != scanned.digest
        ):
            problem = "changed during the build, or is another one"
        else:
            continue
        msg = (
            f"{scanned.path}: {problem} on {socket.gethostname()}. Nothing was published; run the "
            f"same command again."
        )
        raise UsageError(msg)
