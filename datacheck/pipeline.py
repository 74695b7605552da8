"""From a pipeline to caches: scan, check, build. The one module that imports `scan` and `build`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.build import fingerprint
from datacheck.build.builder import Built, build_cache, prepare
from datacheck.build.check import Share
from datacheck.build.field_stats import FieldStats, has_field_stats, measure_fields, stats_of_table
from datacheck.build.fingerprint import InputDifference
from datacheck.build.fingerprint import explain as explained
from datacheck.build.finish import hashed_before
from datacheck.build.job import BuildJob, digests
from datacheck.build.plan import SplitSamples
from datacheck.build.repair import RepairedCache, repair_caches
from datacheck.build.target import check_writable, target_of
from datacheck.cache.codec import Codec
from datacheck.cache.store import is_url
from datacheck.errors import DatacheckError, StorageError, UsageError
from datacheck.model.finding import Progress, Verdict
from datacheck.model.table import CHECKED, Table, Texts
from datacheck.pipelinefile import Pipeline, load_pipeline, of_schema
from datacheck.rules.base import pluralize
from datacheck.runtime.machine import usable_cpus
from datacheck.scan import Request, ScanRun, run_scan
from datacheck.scan.measuring import NOT_HERE
from datacheck.schema.grammar import suggestion
from datacheck.schema.model import Schema
from datacheck.sources import open_source
from datacheck.sources.base import Item, Source
from datacheck.sources.listing import digest_entry
from datacheck.sources.roots import Entry

__all__ = [
    "Built",
    "Explained",
    "Pipeline",
    "RepairedCache",
    "build",
    "explain",
    "job_of",
    "load_pipeline",
    "of_schema",
    "repair",
]

_NAMED = 5  # samples named in a message
_HEAD = 40  # characters of a reason: its code and its first words
_LARGE = 256 << 20  # bytes of source files from which on every core gets a worker


def build(
    pipeline: Pipeline | Schema | str | Path,
    data: str | Path | None = None,
    out: str | Path | None = None,
    *,
    roots: Mapping[str, str | Path] | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    split: str | None = None,
    run: ScanRun | None = None,
    progress: Progress | None = None,
    compress: str | None = None,
    reuse: bool = True,
    staging: str | Path | None = None,
    check: Share | None = None,
    allow_missing: int = 0,
) -> list[Built]:
    """Scan a dataset and build a cache of each of its splits.

    Does what ``datacheck cache build`` does, without printing.

    Args:
        pipeline: a pipeline or schema, the name of a built-in one, or a file.
        data: the data folder; None: the pipeline's.
        out: the folder or URL of the caches; None: the pipeline's, else ``cache``.
        roots: extra folders by name; they override those of the pipeline.
        workers: processes; None: one for small data, one per core for large.
        scheduler: address of a Dask scheduler to use instead.
        split: build this split only.
        run: a scan of the same data with the same schema; None: scan now (unchanged files are not
            opened again).
        progress: called after each task of the scan and of the builds.
        compress: "none", "zstd" or "zstd:LEVEL"; None: the pipeline's choice, else none.
        reuse: copy unchanged content from the split's newest cache; False: build everything.
        staging: the folder in which caches for a URL are built; None: a folder of the user's.
        check: build "some" or "all" shards twice, and publish nothing where the two differ.
        allow_missing: how many samples may be missing because this machine could not read them.

    Returns:
        The caches in order of the splits' names. `Built.unfit` counts the valid samples that a
        cache lacks because of their sizes.

    Raises:
        UsageError: an argument names something that does not exist or does not fit, or a file
            changed during the build.
        StorageError: `out` cannot be written to (raised before the scan), or this machine could
            not read more samples than `allow_missing`.
        OutOfSpaceError: the disk is full; nothing was published.
        NondeterministicBuildError: an earlier build of the same inputs has other content, or the
            check failed.
    """
    chosen = _resolve_pipeline(pipeline, compress)
    if staging is not None and is_url(staging):
        msg = (
            f"{staging}: caches for a URL grow on a disk of this machine. Name a folder for "
            f"staging."
        )
        raise UsageError(msg)
    target = _target(chosen, out)
    check_writable(target)
    if run is None:
        run = run_scan(
            chosen.schema,
            Request(*_data_folders(chosen, data, roots), workers, scheduler, paths=chosen.paths),
            progress,
        )
    _check_rules_ran(run)
    _check_missing(run, allow_missing)
    workers = workers or (1 if run.listing.nbytes < _LARGE else usable_cpus())
    names = _splits(chosen, run, split)
    earlier_entries = {
        name: hashed_before(target, chosen.name, name) if reuse else {} for name in names
    }
    jobs = [
        job_of(chosen, run, name, workers, scheduler, earlier_entries[name], progress)
        for name in names
    ]
    place = None if staging is None else Path(staging)
    options: dict[str, Any] = {
        "workers": workers,
        "scheduler": scheduler,
        "progress": progress,
        "reuse": reuse,
    }
    caches = [build_cache(job, target, staging=place, check=check, **options) for job in jobs]
    return [replace(cache, unlisted=run.listing.refused) for cache in caches]


@dataclass(frozen=True, eq=False)
class Explained:
    """The key of a split's build, compared with the split's newest cache.

    Args:
        path: where the cache is, or would be.
        newest: the newest finished cache of the split, or None.
        differences: how the build's inputs differ from those of `newest`; empty where `newest` is
            `path`.
        built: whether the cache at `path` exists.
    """

    path: Path | str
    newest: Path | str | None
    differences: list[InputDifference]
    built: bool


def explain(
    pipeline: Pipeline | Schema | str | Path,
    data: str | Path | None = None,
    out: str | Path | None = None,
    *,
    roots: Mapping[str, str | Path] | None = None,
    workers: int | None = None,
    split: str | None = None,
    progress: Progress | None = None,
    compress: str | None = None,
) -> list[Explained]:
    """Scan a dataset and say why each split's build has another key than its newest cache.

    Nothing is built. Args and Raises as in `build`.
    """
    chosen = _resolve_pipeline(pipeline, compress)
    run = run_scan(
        chosen.schema,
        Request(*_data_folders(chosen, data, roots), workers, paths=chosen.paths),
        progress,
    )
    _check_rules_ran(run)
    explanations = []
    for name in _splits(chosen, run, split):
        job = job_of(
            chosen,
            run,
            name,
            workers or 1,
            hashed=hashed_before(_target(chosen, out), chosen.name, name),
        )
        plan, _, inputs = prepare(job)
        target = target_of(
            _target(chosen, out), (chosen.name, plan.split, fingerprint.key(inputs["said"])), None
        )
        newest = target.newest()
        unchanged = newest in {None, target.path}
        reasons = (
            []
            if newest is None or unchanged
            else explained(inputs["said"], digests(job), job.samples, newest)
        )
        explanations.append(Explained(target.path, newest, reasons, target.exists()))
    return explanations


def repair(
    pipeline: Pipeline | Schema | str | Path,
    data: str | Path | None = None,
    out: str | Path | None = None,
    *,
    roots: Mapping[str, str | Path] | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    split: str | None = None,
    progress: Progress | None = None,
    compress: str | None = None,
) -> list[RepairedCache]:
    """Scan a dataset, check the cache of each split byte by byte, and rebuild damaged shards only.

    Args and Raises as in `build`; see `repair_caches`.
    """
    chosen = _resolve_pipeline(pipeline, compress)
    target = _target(chosen, out)
    if not isinstance(target, Path):
        msg = (
            f"{target}: what lies in an object store cannot be repaired. Delete the cache, and "
            f"build it again."
        )
        raise UsageError(msg)
    check_writable(target)
    run = run_scan(
        chosen.schema,
        Request(*_data_folders(chosen, data, roots), workers, scheduler, paths=chosen.paths),
        progress,
    )
    _check_rules_ran(run)
    _check_missing(run)
    jobs = [
        job_of(chosen, run, name, workers or 1, scheduler, None, progress)
        for name in _splits(chosen, run, split)
    ]
    return repair_caches(jobs, target, workers=workers or 1, scheduler=scheduler, progress=progress)


def _resolve_pipeline(pipeline: Pipeline | Schema | str | Path, compress: str | None) -> Pipeline:
    if isinstance(pipeline, Schema):
        pipeline = of_schema(pipeline)
    chosen = pipeline if isinstance(pipeline, Pipeline) else load_pipeline(pipeline)
    return chosen if compress is None else replace(chosen, codec=Codec.parse(compress))


def _target(chosen: Pipeline, out: str | Path | None) -> Path | str:
    target = out if out is not None else chosen.out or Path("cache")
    return target if is_url(target) else Path(target)


def _data_folders(
    chosen: Pipeline, data: str | Path | None, roots: Mapping[str, str | Path] | None
) -> tuple[Path, dict[str, Path]]:
    """Return the data folder and the extra folders by name."""
    folder = Path(data) if data is not None else chosen.data
    if folder is None:
        msg = f"pipeline {chosen.name} does not say where the data are: --data DIR"
        raise UsageError(msg)
    return folder, {**chosen.roots, **{name: Path(path) for name, path in (roots or {}).items()}}


def _check_rules_ran(run: ScanRun) -> None:
    """Raise where a rule crashed: its verdict on the samples is unknown."""
    crashed = [v.code for v in run.report.verdicts if v.verdict is Verdict.CRASH]
    if crashed:
        code = crashed[0]
        msg = (
            f"rule {code} crashed during the scan, so its verdict on the samples is missing. "
            f"See datacheck scan; to build without it: rules: {{{code}: off}} in the schema."
        )
        raise DatacheckError(msg)


def _check_missing(run: ScanRun, allowed: int = 0) -> None:
    """Raise where this machine could not read more samples than allowed.

    A cache without them would look complete.
    """
    reasons = Texts.of(run.table.reasons).places()
    rows = sorted(
        row for why, rows in reasons if f" {NOT_HERE}: " in why[:_HEAD] for row in rows.tolist()
    )
    lost = [run.table.keys[row] for row in rows]
    if len(lost) > allowed:
        named = ", ".join([*lost[:_NAMED], *(["..."] if len(lost) > _NAMED else [])])
        msg = (
            f"{pluralize(len(lost))} could not be read on this machine, which says nothing of the "
            f"data: {named}. Nothing "
            "was built. Look at its memory and at what ends processes there, then run the same "
            "command again; "
            f"--allow-missing {len(lost)} builds without them."
        )
        raise StorageError(msg)


def _splits(pipeline: Pipeline, run: ScanRun, split: str | None) -> list[str]:
    """Return the splits to build, sorted; a folder that could not be listed is not a split."""
    refused = {path for path, _ in run.listing.refused}
    table = run.table
    existing = sorted(
        {name for key, name in zip(table.keys, table.splits, strict=True) if key not in refused}
        or {""}
    )
    requested = [split] if split is not None else list(pipeline.splits) or existing
    for name in requested:
        if name not in existing:
            listed = (
                ", ".join(filter(None, existing))
                or "none (no split in samples.files of the schema)"
            )
            msg = (
                f"no split {name!r}{suggestion(name, existing)}; the splits of these data: {listed}"
            )
            raise UsageError(msg)
    return sorted(set(requested))


def job_of(
    pipeline: Pipeline,
    run: ScanRun,
    split: str,
    workers: int = 1,
    scheduler: str | None = None,
    hashed: Mapping[str, Entry] | None = None,
    progress: Progress | None = None,
) -> BuildJob:
    """Return the inputs of one split's build: the scan's rows and its verdict on each key."""
    listing = run.listing
    schema = pipeline.schema.located(listing.root, listing.roots).placed(set(listing.roots))
    index = np.array(
        [i for i, name in enumerate(run.table.splits) if name == split], dtype=np.int64
    )
    table = run.table.take(index)
    _check_unique_keys(table.keys)
    items, item_of = _items(run.work.items, table, split)
    samples = SplitSamples(
        keys=list(table.keys),
        items=items,
        item_of=item_of,
        inner=list(table.inner),
        readable=table.status == CHECKED,
        valid=run.valid[index] & (table.status == CHECKED),
        codes=[run.codes[int(i)] for i in index],
        nbytes=np.asarray(table.nbytes, dtype=np.int64),
    )
    source = open_source(schema, listing.root, listing.roots)
    read_items = set(item_of[samples.readable].tolist())
    files = [
        source.files(item) if number in read_items else [] for number, item in enumerate(items)
    ]
    paths = sorted({path for item_files in files for path in item_files})
    field_stats, excess_fields = _field_stats(
        source, table, items, split, workers, scheduler, progress
    )
    return BuildJob(
        pipeline=pipeline.name,
        schema=schema,
        split=split,
        root=listing.root,
        roots=listing.roots,
        steps=pipeline.steps,
        samples=samples,
        seen=field_stats,
        files=files,
        sources={path: _entry(run, path, hashed or {}) for path in paths},
        paths=pipeline.paths,
        codec=pipeline.codec,
        hashed=[path for path in paths if not listing.by_path[path].digest],
        marks={
            item.path: marks
            for item in items
            if (marks := source.marks_of(item, listing.marks)) is not None
        },
        too_many=excess_fields,
    )


def _check_unique_keys(keys: Sequence[str]) -> None:
    for key, next_key in pairwise(keys):
        if key == next_key:
            msg = (
                f"two samples have the key {key}. List it once; if it is one file in two roles, "
                f"use two schemas."
            )
            raise UsageError(msg)


def _items(all_items: Sequence[Item], table: Table, split: str) -> tuple[list[Item], Any]:
    """Return the items of a split, and for each sample the position of its item.

    A sample whose listed file does not exist gets an item of its own.
    """
    items = [item for item in all_items if item.split == split]
    place = {item.path: number for number, item in enumerate(items)}
    item_of = np.zeros(len(table), np.int64)
    for i, path in enumerate(table.files):
        if path not in place:  # listed, but the file does not exist
            place[path] = len(items)
            items.append(Item(path, split))
        item_of[i] = place[path]
    return items, item_of


def _field_stats(
    source: Source,
    table: Table,
    items: Sequence[Item],
    split: str,
    workers: int,
    scheduler: str | None,
    progress: Progress | None,
) -> tuple[dict[str, FieldStats], int]:
    """Return the statistics of each field, and how many fields exceed the limit and have none."""
    schema = source.schema.for_split(split)
    if has_field_stats(schema, table):
        return stats_of_table(schema, table), 0
    readable = {table.files[int(i)] for i in np.flatnonzero(table.status == CHECKED)}
    readable_items = [item for item in items if item.path in readable]
    place = source.schema, source.root, source.roots
    return measure_fields(
        *place, readable_items, table.keys, workers=workers, scheduler=scheduler, progress=progress
    )


def _entry(run: ScanRun, path: str, hashed: Mapping[str, Entry]) -> Entry:
    """Return a file's entry as the scan saw it, with its digest.

    Raises:
        UsageError: the file is not in the listing (it was written while the scan ran).
        FormatError: the file can no longer be read.
    """
    entry = run.listing.by_path.get(path)
    if entry is None:
        msg = f"{path}: was not there when the data were listed. Run the same command again."
        raise UsageError(msg)
    if entry.digest:
        return entry
    earlier = hashed.get(path)
    if earlier is not None and earlier[1:5] == entry[1:5]:
        return entry._replace(digest=earlier.digest)
    return entry._replace(digest=digest_entry(run.listing.root, path, run.listing.roots))
