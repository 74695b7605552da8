"""What a scan and its children tell each other: a task, and the measured items that come back.

Both travel as JSON values and arrays; each has one form here and one place that writes and reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datacheck.model.sample import Depth
from datacheck.model.table import Table
from datacheck.rules.chat_turns import FAILED
from datacheck.rules.measurement import is_plain
from datacheck.runtime.machine import usable_cpus
from datacheck.runtime.sandbox import Sandbox, sandbox_parts
from datacheck.schema.model import Schema
from datacheck.sources.base import Item
from datacheck.sources.kinds import SourceSetup
from datacheck.sources.roots import Entry, sandbox_of
from datacheck.workers.budget import Limits


@dataclass(frozen=True)
class ScanJob:
    """The part of a scan that all of its tasks share.

    Args:
        source: the files, and the schema by which they are read.
        measures: names of the measurements.
        level: how deep to read.
        workers: processes; None: one for small data, one per core for large.
        scheduler: address of a Dask scheduler to use instead.
        limits: of time and memory, per item.
        paths: folders in which a user's own modules are found.
    """

    source: SourceSetup
    measures: Sequence[str]
    level: Depth = "numeric"
    workers: int | None = None
    scheduler: str | None = None
    limits: Limits = field(default_factory=Limits)
    paths: Sequence[str] = ()

    def worker_count(self, tasks: int, *, small: bool) -> int:
        """Return how many processes run these tasks, from 1 to `tasks`.

        Args:
            tasks: how many tasks there are at most.
            small: one process has done them before others have started.
        """
        wanted = self.workers
        if wanted is None:
            wanted = 1 if small else usable_cpus()
        return max(1, min(wanted, tasks))

    @property
    def plain(self) -> bool:
        """Whether all measurements are datacheck's own, so that the form of columns is known."""
        return is_plain(self.source.schema)

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox of the children; None where the schema names the user's own functions."""
        return sandbox_of(self.source.root, self.source.roots, self.source.schema)

    @property
    def sandbox_text(self) -> str:
        """The parts of the sandbox, for the record."""
        return "off (own checks)" if self.sandbox is None else sandbox_parts()


@dataclass(frozen=True)
class MeasureTask:
    """Items for one child to read and measure.

    Args:
        source: the files, and the schema by which they are read.
        level: how deep to read.
        measures: names of the measurements.
        items: what to read.
        paths: folders in which a user's own modules are found.
    """

    source: SourceSetup
    level: Depth
    measures: Sequence[str]
    items: Sequence[Item]
    paths: Sequence[str]

    @staticmethod
    def from_wire(task: Mapping[str, Any]) -> MeasureTask:
        """Return the task of `task_wire`."""
        return MeasureTask(
            source=SourceSetup.from_dict(task),
            level=task["level"],
            measures=task["measures"],
            items=[Item.from_dict(record) for record in task["items"]],
            paths=task.get("paths", ()),
        )


def task_wire(job: ScanJob, items: Sequence[Item], *, plain: bool) -> dict[str, Any]:
    """Return a task as JSON values.

    Args:
        job: what all tasks share.
        items: what to read.
        plain: as `ScanJob.plain`: only then the form of the columns is known, and the answer checked.
    """
    return job.source.absolute().as_dict() | {
        "measures": list(job.measures),
        "level": job.level,
        "items": [item.as_dict() for item in items],
        "paths": list(job.paths),
        "without": _without_tokenizer(job.source.schema),
        "plain": plain,
    }


def _without_tokenizer(schema: Schema) -> dict[str, Any]:
    """Return the task arguments for one more try of files that killed their child.

    The tokenizer may be the cause, so the retry runs without it.
    """
    spec = schema.tokenizer
    if spec is None or spec.path is None:
        return {}
    less = spec.model_copy(update={"path": spec.path + FAILED})
    return {"schema": schema.model_copy(update={"tokenizer": less}).as_dict()}


@dataclass(frozen=True, eq=False)
class MeasuredItems:
    """What a child answers to a task.

    Args:
        table: the rows (`Table.as_wire`).
        items: path, split and files of each item whose rows may be kept.
        entries: each file as it was when it was read, with its digest.
        crashes: the first failure of each measurement: measure, key, traceback.
        undeclared: fields in the data that the schema does not list.
        host: the machine of the child.
        cut: of a first part: how many samples the file has, and how many make a part; else 0, 0.
        deaths: items on which datacheck's own code failed; the parent adds them.
    """

    table: dict[str, Any]
    items: Sequence[tuple[str, str, list[str]]] = ()
    entries: Sequence[Entry] = ()
    crashes: Sequence[dict[str, str]] = ()
    undeclared: Sequence[str] = ()
    host: str = ""
    cut: tuple[int, int] = (0, 0)
    deaths: Sequence[dict[str, str]] = ()

    def rows(self) -> Table:
        """Return the rows as a table."""
        return Table.from_wire(self.table)

    def as_wire(self) -> dict[str, Any]:
        """Return the answer as JSON values and arrays."""
        return {
            "table": self.table,
            "items": [list(item) for item in self.items],
            "entries": [list(entry) for entry in self.entries],
            "crashes": list(self.crashes),
            "undeclared": list(self.undeclared),
            "host": self.host,
            "cut": list(self.cut),
        }

    @staticmethod
    def from_wire(answer: Mapping[str, Any]) -> MeasuredItems:
        """Return the answer of `as_wire`."""
        samples, step = answer["cut"]
        return MeasuredItems(
            table=answer["table"],
            items=[(path, split, files) for path, split, files in answer["items"]],
            entries=[Entry(*record) for record in answer["entries"]],
            crashes=answer["crashes"],
            undeclared=answer["undeclared"],
            host=answer["host"],
            cut=(samples, step),
        )
