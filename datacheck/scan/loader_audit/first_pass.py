"""The first pass over a loader: read every index once, in order, in one process, and measure it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from datacheck.model.finding import Progress, Tick
from datacheck.model.sample import Block
from datacheck.model.table import Table, concatenate
from datacheck.rules.base import Measure
from datacheck.rules.measurement import MeasurementRunner
from datacheck.scan.loader_audit.loader_process import Answer, Loader, read_all
from datacheck.scan.loader_audit.sample_builder import SampleBuilder, sample_digest, whole_fields
from datacheck.scan.rows import checked_rows, unread_rows
from datacheck.scan.scan_run import Audit
from datacheck.schema.model import Schema
from datacheck.sources.base import Part, Unread, blocks
from datacheck.workers.budget import Limits

Array = np.ndarray[Any, Any]

_TICK_SAMPLES = 64  # samples between two reports of the progress


@dataclass(eq=False)
class AuditProgress:
    """How far an audit is.

    Args:
        report: called with each tick, or None.
        samples: how many have been read.
        doing: what is done now, in words.
    """

    report: Progress | None
    samples: int = 0
    doing: str = "reading"

    def tell(self, length: int) -> None:
        """Report how many of `length` samples have been read."""
        if self.report is not None:
            self.report(Tick(self.samples, length, 0, 0, self.samples, 0, self.doing))


@dataclass(frozen=True, eq=False)
class ServedIndex:
    """The first pass's results for every index.

    Shapes:
        digests: uint64 (indices), 0 where there is no sample

    Args:
        keys: by index.
        digests: of whole samples.
        instead: by requested index, the sample that the loader served instead, in words.
    """

    keys: Sequence[str]
    digests: Array
    instead: Mapping[int, str]


@dataclass(frozen=True, eq=False)
class FirstPass:
    """What the first pass has read.

    Args:
        factory: the loader.
        length: of its dataset.
        whole: the loader's names of the fields that are one text or JSON value.
        table: the rows of all samples.
        served: key, digest and origin of the sample at each index.
        field_digests: of the compared samples, by index.
        crashes: measurements that failed.
        deaths: indices on which datacheck's own code failed.
        undeclared: fields that the schema does not list.
    """

    factory: str
    length: int
    whole: Sequence[str]
    table: Table
    served: ServedIndex
    field_digests: Mapping[int, Mapping[str, int]]
    crashes: list[dict[str, str]]
    deaths: list[dict[str, str]]
    undeclared: set[str]


def read_loader(
    schema: Schema,
    audit: Audit,
    limits: Limits,
    measures: Sequence[Measure],
    progress: AuditProgress,
) -> FirstPass:
    """Read and measure all samples of a loader.

    Args:
        schema: from `served`, of the split.
        audit: the loader.
        limits: of time and memory, per sample.
        measures: the measurements that the rules need.
        progress: advances every few samples.

    Raises:
        UsageError: the loader cannot be built.
    """
    whole = whole_fields(schema)
    runner = MeasurementRunner(schema, measures)
    loader = Loader(audit.factory, whole, limits)
    try:
        loader.build()
        samples = _SampleReader(loader, schema, audit, progress)
        tables = [_rows(block, runner, audit) for block in blocks(samples.parts(), audit.split)]
    finally:
        loader.close()
    return FirstPass(
        factory=audit.factory,
        length=loader.length,
        whole=whole,
        table=concatenate(tables),
        served=samples.served(),
        field_digests=samples.field_digests,
        crashes=list(runner.crashes.values()),
        deaths=samples.deaths,
        undeclared=runner.undeclared,
    )


def _rows(block: Block | Unread, runner: MeasurementRunner, audit: Audit) -> Table:
    if isinstance(block, Unread):
        return unread_rows([block], audit.factory, audit.split)
    return checked_rows(block, runner.measure(block))


class _SampleReader:
    """Reads a loader index by index, and remembers what the later checks compare with."""

    def __init__(
        self, loader: Loader, schema: Schema, audit: Audit, progress: AuditProgress
    ) -> None:
        self.field_digests: dict[int, Mapping[str, int]] = {}
        self.deaths: list[dict[str, str]] = []
        self._loader = loader
        self._progress = progress
        self._builder = SampleBuilder(schema, audit.factory)
        self._compared = set(spread(range(loader.length), audit.compared))
        self._digests = np.zeros(loader.length, np.uint64)
        # By requested index: the index that the dataset went on to, and whether that is an index of
        # a dataset inside the user's.
        self._redirects: dict[int, tuple[int, bool]] = {}

    def parts(self) -> Iterator[Part]:
        """Yield the samples in order."""
        self._progress.tell(self._loader.length)
        for answer in read_all(self._loader):
            self._remember(answer)
            yield self._builder.piece(answer)
            self._progress.samples += 1
            if self._progress.samples % _TICK_SAMPLES == 0:
                self._progress.tell(self._loader.length)

    def _remember(self, answer: Answer) -> None:
        index = int(answer["index"])
        if "crash" in answer:
            self.deaths.append({"rule": "", "at": f"index {index}", "traceback": answer["error"]})
        if "error" in answer:
            return
        self._digests[index] = sample_digest(answer["digests"])
        if answer["instead"] is not None:
            other_index, inner = answer["instead"]
            self._redirects[index] = other_index, inner
        if index in self._compared:
            self.field_digests[index] = answer["digests"]

    def served(self) -> ServedIndex:
        """Return what each index has served, after all have been read."""
        keys = self._builder.keys
        instead = {
            index: f"item {other_index} of the dataset inside" if inner else keys[other_index]
            for index, (other_index, inner) in self._redirects.items()
        }
        return ServedIndex(keys, self._digests, instead)


def spread(items: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of the items, evenly spread, with both ends."""
    if len(items) <= most:
        return list(items)
    places = np.unique(np.linspace(0, len(items) - 1, most).round().astype(np.int64))
    return [items[place] for place in places.tolist()]
