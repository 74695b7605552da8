"""A scan as its caller sees it: the request, the loader to audit, and the finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from datacheck.masks import Trainer
from datacheck.model.finding import Report
from datacheck.model.sample import Depth
from datacheck.model.table import Table
from datacheck.schema.model import Schema
from datacheck.sources import plan_work
from datacheck.sources.base import Work
from datacheck.sources.listing import Listing
from datacheck.workers.budget import Limits

Array = np.ndarray[Any, Any]
FailOn = Literal["error", "warning", "never"]


@dataclass(frozen=True)
class Request:
    """The data and the options of a scan.

    Args:
        data: folder, file or Zarr folder.
        roots: extra folders by name.
        workers: child processes; None: one for small data, one per core for large.
        scheduler: address of a Dask scheduler to use instead.
        output: folder for the results; None: a new one in ``.datacheck``.
        rehash: read every file, including unchanged ones.
        fail_on: the lowest severity that makes the exit code 1.
        command: the command line, for the record.
        limits: of time and memory, per item.
        reference: folder of a finished run to compare with.
        baseline: file of known findings, which are not reported again.
        paths: folders in which the schema's own checks are found (the folder of the schema's file,
            or the working folder).
        level: how deep to read: "structure" headers only, "numeric" all values but pixels, "deep"
            everything; None: "deep" where the files have at most 64 MiB, else "numeric".
        allow_unread: most of the bytes may be in files that are not opened (DC113 is off).
        tokenizer: file or folder in place of the schema's; trainer: in place of the schema's
            (`TokenizerSpec.trainer`).
    """

    data: Path
    roots: Mapping[str, Path] = field(default_factory=dict)
    workers: int | None = None
    scheduler: str | None = None
    output: Path | None = None
    rehash: bool = False
    fail_on: FailOn = "error"
    command: str = ""
    limits: Limits = field(default_factory=Limits)
    reference: Path | None = None
    baseline: Path | None = None
    paths: Sequence[str] = ()
    level: Depth | None = None
    allow_unread: bool = False
    tokenizer: Path | None = None
    trainer: Trainer | None = None


COMPARED = 2000


@dataclass(frozen=True)
class Audit:
    """The loader that a scan audits.

    Args:
        factory: ``module:function``; called without arguments it returns a map-style dataset.
        schema: what its samples promise.
        files: the schema of the files that it reads (`Request.data`), None where they are not
            scanned.
        split: the split that it serves, "" where there is one only.
        compared: how many samples are read a second time.
    """

    factory: str
    schema: Schema
    files: Schema | None = None
    split: str = ""
    compared: int = COMPARED


@dataclass(frozen=True, eq=False)
class ScanRun:
    """A finished scan.

    Args:
        report: verdicts, findings and counts.
        table: one row per listed sample.
        listing: the files with their digests.
        valid: bool (samples): fit for training.
        codes: per sample, the codes that make it unfit.
        schema: the schema with its extra folders in place.
    """

    report: Report
    table: Table
    listing: Listing
    valid: Array
    codes: list[tuple[str, ...]]
    schema: Schema

    @cached_property
    def work(self) -> Work:
        """The items that the schema makes of the listing."""
        return plan_work(self.schema, self.listing)
