"""The plan of a build: the fields of the cache, and the cut of its samples into shards and tasks.

A child that begins in the middle of a file which is packed as a whole reads what lies before it,
too. `seek_points` asks a child once where reading of large files can begin; `BuildPlan.series` cuts
the tasks accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from datacheck.build.job import BuildJob, SplitSamples, even_fields
from datacheck.cache import layout
from datacheck.cache.codec import PLAIN, Codec
from datacheck.errors import FormatError, MissingDependencyError, UsageError
from datacheck.model.finding import Tick
from datacheck.model.sample import ArraySpec
from datacheck.sources.base import Item
from datacheck.sources.kinds import SourceSetup
from datacheck.sources.row_slices import LEAST_BYTES
from datacheck.workers.parallel import ordered_map
from datacheck.workers.wire import answers

Array = np.ndarray[Any, Any]

SOURCE_BYTES = 256 << 20  # source bytes of one task
_FIND_SEEK_POINTS = "datacheck.build.plan:find_seek_points"
_MOST_REREAD = 1 / 16  # share of the source bytes of a task that other tasks may read, too


@dataclass(frozen=True, eq=False)
class BuildPlan:
    """Everything that decides the bytes of a cache.

    Args:
        split: the split's folder name.
        samples: in key order.
        specs: the fields of the cache, by name.
        shard_samples: samples per shard.
        per_task: shards of one task.
        codec: the codec of the fields' chunks.
        left_out: a sentence for each field that is left out, see `without_unstorable`.
        unchanged_axes: the fields whose axes no step changes.
    """

    split: str
    samples: SplitSamples
    specs: dict[str, ArraySpec]
    shard_samples: int
    per_task: int = 1
    codec: Codec = PLAIN
    left_out: Sequence[str] = ()
    unchanged_axes: frozenset[str] = frozenset()

    @property
    def compressed(self) -> bool:
        """Whether the size of a stored chunk depends on its values."""
        return self.codec != PLAIN

    @property
    def shards(self) -> int:
        """Number of shards of every field."""
        return -(-len(self.samples) // self.shard_samples)

    @property
    def dims(self) -> dict[str, list[str]]:
        """The fields of each ragged dimension."""
        by_dim: dict[str, list[str]] = {}
        for name, spec in self.specs.items():
            if spec.dim is not None:
                by_dim.setdefault(spec.dim, []).append(name)
        return dict(sorted(by_dim.items()))

    def shard(self, g: int) -> slice:
        """Return the samples of shard `g`."""
        return slice(g * self.shard_samples, min(len(self.samples), (g + 1) * self.shard_samples))

    def series(self, points: Mapping[int, Array] | None = None) -> Iterator[list[list[int]]]:
        """Yield series of tasks, each a list of shards; one process runs a whole series.

        Args:
            points: by item, the numbers of the samples at which reading of its file can begin,
                ascending from 0; the file of another item can be entered at any sample.

        Notes:
            A process that begins after such a point also reads the samples in between, which the
            process before it has read. A series ends where that overhead is small compared to the
            bytes it reads itself.
        """
        sizes = np.add.reduceat(
            self.samples.nbytes, range(0, len(self.samples), self.shard_samples)
        ).tolist()
        start = size = 0
        for g in range(1, self.shards + 1):
            size += sizes[g - 1]
            full = (
                g - start >= self.per_task and self._again(g, points or {}) <= size * _MOST_REREAD
            )
            if full or g == self.shards:
                yield [
                    list(range(i, min(g, i + self.per_task)))
                    for i in range(start, g, self.per_task)
                ]
                start, size = g, 0

    def _again(self, g: int, points: Mapping[int, Array]) -> int:
        """Return the bytes of samples that are read again if a process begins with shard `g`."""
        index = self.shard(g).start
        if index >= len(self.samples) or (item := int(self.samples.item_of[index])) not in points:
            return 0
        number = int(self.samples.keys[index].rpartition(":")[2])
        point = int(points[item][np.searchsorted(points[item], number, side="right") - 1])
        reread = slice(max(0, index - (number - point)), index)
        return int(self.samples.nbytes[reread][self.samples.item_of[reread] == item].sum())

    def before(self, doing: str, shards: Sequence[int]) -> Tick:
        """Return the progress before work on these shards; bytes are those of samples as read."""
        nbytes = sum(int(self.samples.nbytes[self.shard(g)].sum()) for g in shards)
        return Tick(0, len(shards), 0, nbytes, 0, 0, f"{doing} {self.split}", "shards")

    def after(self, tick: Tick, shards: Collection[int]) -> Tick:
        """Return the progress after these shards are done as well."""
        parts = [self.shard(g) for g in shards]
        nbytes = sum(int(self.samples.nbytes[part].sum()) for part in parts)
        samples = sum(part.stop - part.start for part in parts)
        return tick._replace(
            files=tick.files + len(parts),
            nbytes=tick.nbytes + nbytes,
            samples=tick.samples + samples,
        )

    def uploading(self, sent: int, total: int) -> Tick:
        """Return the progress of an upload of the finished cache [bytes]."""
        doing = f"uploading {self.split}"
        return Tick(self.shards, self.shards, sent, total, len(self.samples), 0, doing, "shards")


def make_plan(
    split: str,
    samples: SplitSamples,
    specs: dict[str, ArraySpec],
    sample_bytes: int,
    codec: Codec = PLAIN,
    *,
    left_out: Sequence[str] = (),
    unchanged_axes: frozenset[str] = frozenset(),
) -> BuildPlan:
    """Return the plan: shards of about 64 MiB, tasks of about 256 MiB of source."""
    shard_samples = layout.samples_per_shard(sample_bytes, specs.values())
    median_bytes = int(np.median(samples.nbytes[samples.readable])) if samples.readable.any() else 1
    per_task = max(1, SOURCE_BYTES // max(1, shard_samples * median_bytes))
    return BuildPlan(
        split, samples, specs, shard_samples, per_task, codec, left_out, unchanged_axes
    )


def seek_points(job: BuildJob, plan: BuildPlan) -> dict[int, Array]:
    """Return, by item, the numbers of the samples at which reading of its file can begin.

    Notes:
        Asks `find_seek_points` only about large files that several tasks read; skips files of lines with known
        offsets.
    """
    numbers = [number for number in _items_of_several_tasks(plan) if _is_packed(job, number)]
    if not numbers:
        return {}
    even = even_fields(job)
    items = [replace(job.samples.items[n], even=even.get(n, ())) for n in numbers]
    task = job.source_setup().as_dict() | {"items": [item.as_dict() for item in items]}
    number_of = {(item.path, item.split): n for n, item in zip(numbers, items, strict=True)}
    points_of: dict[int, Array] = {}
    # A file that kills the child has no points; the task that reads it reports why.
    for outcome in ordered_map(_FIND_SEEK_POINTS, [task], limits=job.limits, sandbox=job.sandbox()):
        for path, split, points in chain.from_iterable(outcome.payloads):
            points_of[number_of[path, split]] = points
    return points_of


def _items_of_several_tasks(plan: BuildPlan) -> list[int]:
    """Return the items with samples on both sides of the border between two tasks."""
    per_task = plan.shard_samples * plan.per_task
    first_samples = np.arange(per_task, len(plan.samples), per_task)
    items = plan.samples.item_of[first_samples]
    return sorted(set(items[items == plan.samples.item_of[first_samples - 1]].tolist()))


def _is_packed(job: BuildJob, number: int) -> bool:
    """Return whether a file is large, and not one of lines whose offsets the scan has found."""
    item = job.samples.items[number]
    return item.nbytes >= LEAST_BYTES and item.path not in job.marks


def _points(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype == np.int64
        and value.ndim == 1
        and value[:1].tolist() == [0]
        and bool((np.diff(value) > 0).all())
    )


def _of_items(answer: list[Any], task: dict[str, Any]) -> bool:
    return {(path, split) for path, split, _ in answer} <= {
        (item["path"], item["split"]) for item in task["items"]
    }


@answers([(str, str, _points)], _of_items, raises=(UsageError, MissingDependencyError))
def find_seek_points(task: dict[str, Any], beat: Callable[[int], None]) -> list[list[Any]]:
    """Return path, split and `Source.seek_points` of each file that cannot be entered anywhere.

    Args:
        task: a `SourceSetup` as JSON values, with items (`Item.as_dict`).
        beat: called with an item's number before it is touched.
    """
    source = SourceSetup.from_dict(task).open()
    results = []
    for number, item in enumerate(map(Item.from_dict, task["items"])):
        beat(number)
        try:
            points = source.seek_points(item)
        except FormatError:  # the task that reads the file reports it
            continue
        if points is not None:
            results.append([item.path, item.split, points])
    return results
