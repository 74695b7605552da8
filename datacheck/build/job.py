"""The job of a build: what one split is made from, as a scan has seen and judged it.

A `BuildJob` is plain data. The key of the cache and all its bytes follow from it; an `Execution`
says only how the work is carried out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build.field_stats import FieldStats
from datacheck.cache.codec import PLAIN, Codec
from datacheck.model.finding import Progress, Tick
from datacheck.runtime.sandbox import Sandbox
from datacheck.schema.model import Schema
from datacheck.sources.base import Item
from datacheck.sources.kinds import SourceSetup
from datacheck.sources.roots import Entry, sandbox_of
from datacheck.sources.row_slices import LEAST_BYTES
from datacheck.transforms.base import Transform
from datacheck.workers.parallel import Limits

Array = np.ndarray[Any, Any]

LIMITS = Limits(item_s=600.0)  # an item is a whole shard


@dataclass(frozen=True, eq=False)
class SplitSamples:
    """Every listed sample of one split, in bytewise key order, valid or not.

    Shapes:
        item_of: int64 (samples), positions in `items`
        readable, valid: bool (samples)
        nbytes: int64 (samples) [bytes] of all fields as read

    Args:
        keys: unique and ascending.
        items: the files of the samples.
        inner: the path inside the file.
        codes: the finding codes that made a sample invalid.
    """

    keys: list[str]
    items: list[Item]
    item_of: Array
    inner: list[str]
    readable: Array
    valid: Array
    codes: list[tuple[str, ...]]
    nbytes: Array

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, eq=False)
class BuildJob:
    """The inputs of a build of one split: plain data, including the verdicts of the scan.

    Args:
        pipeline: its name: the folder below the output.
        schema: the whole schema; `Schema.for_split` is applied here.
        split: the split, "" for a dataset without splits.
        root, roots: the folders of the files.
        steps: the pipeline's transforms, unbound.
        samples: in key order, with the verdict on each.
        field_stats: the statistics of each field before the transforms.
        files: per item the listing paths of all files that reading it opens.
        sources: their entries, digests included.
        paths: folders of the user's functions.
        codec: the codec of the fields' chunks.
        hashed: the sources without a digest from a scan.
        marks: by path, where lines of large files begin, see `Listing.marks`.
        excess_fields: how many rare fields are left out because a cache holds only so many.
    """

    pipeline: str
    schema: Schema
    split: str
    root: Path
    roots: Mapping[str, Path]
    steps: Sequence[Transform]
    samples: SplitSamples
    field_stats: Mapping[str, FieldStats]
    files: Sequence[Sequence[str]]
    sources: Mapping[str, Entry]
    paths: Sequence[str] = ()
    codec: Codec = PLAIN
    hashed: Sequence[str] = ()
    marks: Mapping[str, Array] = field(default_factory=dict)
    excess_fields: int = 0

    @property
    def split_schema(self) -> Schema:
        """The declarations in force for the split."""
        return self.schema.for_split(self.split)

    @property
    def own_code(self) -> bool:
        """Whether a step is a user's function."""
        return any(step.own_code for step in self.steps)

    @property
    def limits(self) -> Limits:
        """The limits of one child that makes shards."""
        return replace(LIMITS, own_code=self.own_code)

    def source_setup(self) -> SourceSetup:
        """Return what a child opens the source from; its folders are absolute paths."""
        roots = {name: absolute(path) for name, path in self.roots.items()}
        return SourceSetup(self.schema, absolute(self.root), roots)

    def sandbox(self, *, read: Iterable[Path] = (), write: Iterable[Path] = ()) -> Sandbox | None:
        """Return the sandbox of a child that makes shards; None if a step is a user's function.

        Args:
            read, write: further folders that it may read, or write into.
        """
        if self.own_code:
            return None
        more = [*map(str, read), *(file for step in self.steps for file in step.files)]
        return sandbox_of(self.root, self.roots, read=more, write=map(str, write))

    def entries(self, item: int) -> list[Entry]:
        """Return the entries of all files that reading an item opens, the main one first."""
        return [self.sources[path] for path in self.files[item] if path in self.sources]

    def digests(self) -> dict[str, tuple[int, str]]:
        """Return size and digest of every source file, by path."""
        return {
            path: (entry.size, entry.digest or "") for path, entry in sorted(self.sources.items())
        }

    def stamps(self) -> dict[str, list[int]]:
        """Return size, mtime, ctime, inode and time of listing of the `hashed` files, by path."""
        return {path: list(self.sources[path][1:6]) for path in sorted(self.hashed)}


@dataclass(frozen=True)
class Execution:
    """How the work of a build is carried out; its result does not depend on it.

    Args:
        workers: child processes of this machine.
        scheduler: address of a Dask scheduler to use instead.
        progress: called after every task.
    """

    workers: int = 1
    scheduler: str | None = None
    progress: Progress | None = None

    @property
    def parallel(self) -> bool:
        """Whether several children may work at the same time."""
        return self.workers > 1 or self.scheduler is not None

    def report(self, tick: Tick) -> None:
        """Report progress, if the caller wants it."""
        if self.progress is not None:
            self.progress(tick)


def absolute(path: Path) -> Path:
    """Return an absolute path; ``..`` is removed as text, links stay."""
    return Path(os.path.abspath(path))  # noqa: PTH100  links stay links


def even_fields(job: BuildJob) -> dict[int, tuple[str, ...]]:
    """Return, by item of a large file, the fields that the scan found to be arrays.

    See `Item.even`.
    """
    readable = np.flatnonzero(job.samples.readable)
    items, first_samples = np.unique(job.samples.item_of[readable], return_index=True)
    fields = {}
    for item, place in zip(items.tolist(), readable[first_samples].tolist(), strict=True):
        if job.samples.items[item].nbytes >= LEAST_BYTES:
            kinds = {
                name: stats.signatures[stats.which[place]].kind
                for name, stats in job.field_stats.items()
                if stats.which[place] >= 0
            }
            fields[item] = tuple(sorted(name for name, kind in kinds.items() if kind == "array"))
    return fields
