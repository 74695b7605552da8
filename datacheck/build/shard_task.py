"""The task that a child makes shards from, as values.

A task holds what all tasks of the build share (`TaskSetup`), and one `ShardOrder` per shard: the
files to read and the samples to copy. It crosses processes as JSON, with the orders under "items";
`as_dict` and `from_dict` are the only code that knows that form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.cache.codec import Codec
from datacheck.model.row_keys import keys_from_runs, keys_to_runs
from datacheck.model.sample import ArraySpec
from datacheck.sources.base import Item
from datacheck.sources.kinds import SourceSetup
from datacheck.sources.roots import Entry

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class TaskSetup:
    """What all tasks of a build share.

    Args:
        source: reads the samples.
        steps: the bound transforms, `Transform.as_dict` of each.
        identities: the digest of each step's identity when the build was planned.
        paths: folders of user functions.
        specs: the fields of the cache, by name.
        codec: of the fields' chunks.
        samples: number of samples of the split.
        shard_samples: samples per shard.
        folder: the unfinished cache, where the shards are written; None: nowhere.
        records: where the record of each shard is written.
        numerics: `numerics.numeric_environment` where the build was planned.
        again: read the samples in another order than the first time, see `reading.read_blocks`.
    """

    source: SourceSetup
    steps: Sequence[Mapping[str, Any]]
    identities: Sequence[str]
    paths: Sequence[str]
    specs: Mapping[str, ArraySpec]
    codec: Codec
    samples: int
    shard_samples: int
    folder: Path | None
    records: Path
    numerics: Mapping[str, str]
    again: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the setup as JSON values."""
        return {
            **self.source.as_dict(),
            "steps": list(self.steps),
            "identities": list(self.identities),
            "paths": list(self.paths),
            "specs": {name: _spec_as_list(spec) for name, spec in self.specs.items()},
            "codec": str(self.codec),
            "samples": self.samples,
            "shard_samples": self.shard_samples,
            "folder": None if self.folder is None else str(self.folder),
            "records": str(self.records),
            "numerics": dict(self.numerics),
            "again": self.again,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> TaskSetup:
        """Return the setup of a task."""
        return TaskSetup(
            source=SourceSetup.from_dict(data),
            steps=data["steps"],
            identities=data["identities"],
            paths=data["paths"],
            specs={name: _spec_from_list(values) for name, values in data["specs"].items()},
            codec=Codec.parse(data["codec"]),
            samples=data["samples"],
            shard_samples=data["shard_samples"],
            folder=None if data["folder"] is None else Path(data["folder"]),
            records=Path(data["records"]),
            numerics=data["numerics"],
            again=data["again"],
        )


def _spec_as_list(spec: ArraySpec) -> list[Any]:
    return [spec.dtype, list(spec.item), spec.dim, spec.kind, spec.optional, dict(spec.attrs)]


def _spec_from_list(values: Sequence[Any]) -> ArraySpec:
    dtype, item, dim, kind, optional, attrs = values
    return ArraySpec(dtype, tuple(item), dim, kind, optional, attrs)


@dataclass(frozen=True, eq=False)
class FileRead:
    """One file to read.

    Args:
        item: the file, with the keys of the samples to read.
        files: the entries of all files that reading it opens, as the scan saw them.
    """

    item: Item
    files: Sequence[Entry]

    def as_dict(self, runs: list[Any]) -> dict[str, Any]:
        """Return the read as JSON values; `runs`: `keys_to_runs` of the item's keys."""
        item = replace(self.item, keys=None).as_dict()
        files = [[entry.path, *entry[1:5], entry.digest or ""] for entry in self.files]
        return {"item": item | {"keys": runs}, "files": files}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> FileRead:
        """Return the read of `as_dict`; the entries lack the time of the listing."""
        files = [
            Entry(path, size, mtime_ns, ctime_ns, inode, 0, digest)
            for path, size, mtime_ns, ctime_ns, inode, digest in data["files"]
        ]
        return FileRead(Item.from_dict(data["item"]), files)


@dataclass(frozen=True, eq=False)
class SampleCopies:
    """The samples of one shard that are copied from an earlier cache.

    Shapes:
        places, numbers: int64 (samples made): place in the shard, number in the earlier cache

    Args:
        cache: the folder of the earlier cache.
        refused: place, number and reason of the samples that it could not make.
    """

    cache: Path
    places: Array
    numbers: Array
    refused: Sequence[tuple[int, int, str]]

    def as_dict(self) -> dict[str, Any]:
        """Return the copies as JSON values."""
        return {
            "cache": str(self.cache),
            "made": [self.places.tolist(), self.numbers.tolist()],
            "refused": [list(sample) for sample in self.refused],
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> SampleCopies:
        """Return the copies of `as_dict`."""
        places, numbers = (np.array(values, np.int64) for values in data["made"])
        refused = [(place, number, reason) for place, number, reason in data["refused"]]
        return SampleCopies(Path(data["cache"]), places, numbers, refused)


@dataclass(frozen=True, eq=False)
class ShardOrder:
    """One shard to make: its samples in order, the files to read, and the samples to copy.

    Args:
        g: number of the shard.
        keys: of all its samples.
        reads: the files of the samples to read.
        copies: the samples to copy from an earlier cache, or None.
    """

    g: int
    keys: Sequence[str]
    reads: Sequence[FileRead]
    copies: SampleCopies | None

    def as_dict(self) -> dict[str, Any]:
        """Return the order as JSON values."""
        runs = keys_to_runs(self.keys)
        reads = []
        for read in self.reads:
            keys = read.item.keys or ()
            # Most shards lie in one file: their keys are encoded, and held, once.
            all_keys = len(keys) == len(self.keys)
            reads.append(read.as_dict(runs if all_keys else keys_to_runs(keys)))
        copies = None if self.copies is None else self.copies.as_dict()
        return {"g": self.g, "keys": runs, "reads": reads, "copies": copies}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> ShardOrder:
        """Return the order of `as_dict`."""
        copies = None if data["copies"] is None else SampleCopies.from_dict(data["copies"])
        reads = [FileRead.from_dict(read) for read in data["reads"]]
        return ShardOrder(data["g"], keys_from_runs(data["keys"]), reads, copies)
