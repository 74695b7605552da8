"""The data of a scan: the listed files, the schema as it holds for them, and the plan of the reads.

What the user declares and what is in force are two schemas: the second has its folders in place,
and the statistics, classes and step rates that files of the data state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from datacheck.errors import UsageError
from datacheck.model.sample import Depth
from datacheck.model.table import Note
from datacheck.scan.measure_tasks import ScanJob
from datacheck.scan.scan_run import Request
from datacheck.schema.model import Schema
from datacheck.sources import (
    SourceSetup,
    check_alone,
    plan_work,
    with_indexes,
    with_label_table,
    with_pictures,
    with_rate,
    with_stats,
)
from datacheck.sources.base import Item, Work
from datacheck.sources.lerobot import StepRates
from datacheck.sources.listing import Listing, list_files, target

# Up to this many bytes, a scan without a level reads pixels too: it takes some seconds.
SMALL = 64 << 20
_PICTURES = "clip_motion"  # the measurement beside which pictures of videos are decoded
_FEW = 4  # tasks that one process has done before others have started


@dataclass(frozen=True, eq=False)
class ScannedDataset:
    """The files of a dataset, and the schema that holds for them.

    Args:
        data: as the user named it: folder, file or Zarr folder.
        root: the folder that was listed.
        only: the listed file where `data` is one file; None for a folder.
        roots: extra folders by name.
        listing: the files.
        declared: the schema as the user wrote it.
        rates: the step rates of LeRobot datasets.
        notes: on the files that state statistics, classes and rates.
    """

    data: Path
    root: Path
    only: str | None
    roots: Mapping[str, Path]
    listing: Listing
    declared: Schema
    rates: StepRates
    notes: list[Note]

    @property
    def schema(self) -> Schema:
        """The schema in force."""
        return self.rates.schema

    @property
    def default_level(self) -> Depth:
        """How deep a scan reads where the user names no level."""
        return "deep" if self.listing.nbytes <= SMALL else "numeric"

    def job(self, request: Request, measures: Sequence[str], level: Depth) -> ScanJob:
        """Return what all tasks of a scan share.

        Args:
            request: the options of the scan.
            measures: names of the measurements.
            level: how deep the scan reads.
        """
        return ScanJob(
            SourceSetup(self.schema, self.root, self.roots),
            measures,
            level,
            request.workers,
            request.scheduler,
            request.limits,
            request.paths,
        )

    def items(self) -> Sequence[Item]:
        """Return the items to read; planned at each call, as a million of them take much memory."""
        return plan_work(self.schema, self.listing).items

    def plan(self, job: ScanJob) -> Work:
        """Return the plan of a scan: the items, and the notes on everything that was listed.

        Args:
            job: how files are read; it decides whether pictures of videos are decoded.

        Raises:
            UsageError: the schema fits no file.
            StorageError: no child could be started.
        """
        work = plan_work(self.schema, self.listing)
        if not work.items and not any(note.missing for note in work.notes):
            from datacheck.infer.suggest import mismatch_error  # noqa: PLC0415  it loads all built-in schemas

            raise UsageError(mismatch_error(self.schema, self.listing, self.data))
        indexed = with_indexes(work, self.schema, self.listing)
        # The measurements of rules that are switched off or too deep are not part of the job.
        if _PICTURES in job.measures:
            indexed = with_pictures(
                indexed,
                self.schema,
                self.listing,
                workers=lambda tasks: job.worker_count(tasks, small=tasks < _FEW),
                scheduler=job.scheduler,
            )
        return replace(indexed, notes=[*indexed.notes, *self.notes])


def open_dataset(schema: Schema, data: Path, roots: Mapping[str, Path]) -> ScannedDataset:
    """List the data and put the schema in force.

    Raises:
        UsageError: the data or an extra folder are missing, the data are empty, or a file that the
            schema names does not hold what it should.
    """
    root, only = target(data)
    listing = list_dataset(data, roots)
    placed = schema.placed(roots, root)
    check_alone(placed, listing.alone, schema.tokenizer)
    stated, notes = with_stated_values(placed, root, roots)
    rates = with_rate(stated, listing)
    return ScannedDataset(data, root, only, roots, listing, schema, rates, [*notes, *rates.notes])


def with_stated_values(
    schema: Schema, root: Path, roots: Mapping[str, Path]
) -> tuple[Schema, list[Note]]:
    """Return a schema with the statistics and classes that files state, and notes on these files.

    Raises:
        UsageError: such a file holds something else.
    """
    with_statistics, unread = with_stats(schema, root, roots)
    labelled, notes = with_label_table(with_statistics, root, roots)
    return labelled, [*notes, *unread]


def list_dataset(data: Path, roots: Mapping[str, Path] | None = None) -> Listing:
    """Return the files of a dataset.

    Raises:
        UsageError: the data or an extra folder are missing, or the data are empty.
    """
    root, only = target(data)
    listing = list_files(root, roots, only)
    if not listing.entries:
        path, reason = listing.skipped[0] if listing.skipped else ("", "")
        left_out = (
            f" that can be scanned ({len(listing.skipped):,} left out; {path}: {reason})"
            if path
            else ""
        )
        msg = f"{data}: holds no files{left_out}. Check the path."
        raise UsageError(msg)
    return listing
