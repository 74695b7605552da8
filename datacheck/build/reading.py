"""Read the samples of a task in a child: from the files that the scan has read, or an earlier cache.

A build may run on another machine than the scan, and minutes after it. `open_task` checks that this
process computes the same numbers, sees the same folders and has the same steps; `check_unchanged`
checks each file once it is read. `EarlierCache` reads samples that a finished cache already has.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datacheck import transforms
from datacheck.build.shard_task import FileRead, SampleCopies, TaskSetup
from datacheck.cache import Cache, open_cache
from datacheck.errors import DatacheckError, StorageError, UsageError
from datacheck.model.sample import ArraySpec, Block, Column
from datacheck.plugins import add_module_folders
from datacheck.runtime import numerics
from datacheck.runtime.hashing import digest_value
from datacheck.sources.base import Source, Unread
from datacheck.sources.listing import stat_entry
from datacheck.transforms.base import Transform

Array = np.ndarray[Any, Any]
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


def check_unchanged(source: Source, read: FileRead) -> None:
    """Raise if a file changed since the scan; checked after reading, so that no change is missed.

    Args:
        source: has the digests of files that were read whole: bytes may change without the times.
        read: has the entries that the scan saw.

    Raises:
        UsageError: a file changed, or is missing.
    """
    for scanned in read.files:
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


class CopiedSamples(NamedTuple):
    """The samples of one shard that an earlier cache has.

    Args:
        columns: of every field, the ascending places of the samples that have it, and their values.
        origins: of each sample, by place; of those that the earlier cache could not make, too.
    """

    columns: Mapping[str, tuple[Array, Column]]
    origins: Mapping[int, str]


class EarlierCache:
    """The cache that a task copies samples from; opened for the first shard that needs it."""

    def __init__(self) -> None:
        self._cache: Cache | None = None

    def read(self, copies: SampleCopies, specs: Mapping[str, ArraySpec]) -> CopiedSamples | None:
        """Return samples, every byte checked; None if the cache is damaged, gone or unreadable.

        Args:
            copies: the samples.
            specs: the fields, those of the cache.
        """
        try:
            if self._cache is None:
                # Not mapped: a map of a failing disk kills the process.
                self._cache = open_cache(copies.cache, io="pread")
            return _read_samples(self._cache, copies, specs)
        except DatacheckError:
            return None


def _read_samples(
    cache: Cache, copies: SampleCopies, specs: Mapping[str, ArraySpec]
) -> CopiedSamples:
    places, numbers = copies.places, copies.numbers
    columns = {}
    for name, spec in specs.items():
        present = cache.present(name, numbers)
        mask = slice(None) if present is None else present
        if spec.dim is None:
            column = Column(cache.gather(name, numbers[mask]))
        else:
            column = Column(*cache.gather_ragged(name, numbers[mask]), spec.kind)
        columns[name] = places[mask], column
    refused = [(place, number) for place, number, _ in copies.refused]
    all_samples = [*zip(places.tolist(), numbers.tolist(), strict=True), *refused]
    origins = cache.origins(np.array([number for _, number in all_samples], np.int64))
    return CopiedSamples(
        columns, {place: origin for (place, _), origin in zip(all_samples, origins, strict=True)}
    )
