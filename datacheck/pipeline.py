"""From a pipeline to caches: scan the data, check the scan, build the cache of each split.

`build`, `explain` and `repair` begin alike: resolve the pipeline, scan, refuse a scan that nothing
may be built on, and make one `BuildJob` per split of what the scan saw (`handover`). Then the build
takes over (`build.builder`). `scan` and `build` do not import each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from datacheck.build.builder import Built, build_cache
from datacheck.build.check import Share
from datacheck.build.input_differences import Explained, explain_key
from datacheck.build.repair import RepairedCache, repair_caches
from datacheck.build.target import check_writable, parse_out, parse_staging
from datacheck.errors import UsageError
from datacheck.handover import job_of, jobs_of, workers_for
from datacheck.model.finding import Progress
from datacheck.pipelinefile import Pipeline, load_pipeline, of_schema, resolve_pipeline
from datacheck.scan import Request, ScanRun, run_scan
from datacheck.scan.gate import check_nothing_missing, check_rules_ran, choose_splits
from datacheck.schema.model import Schema

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
    chosen = resolve_pipeline(pipeline, compress)
    staging_folder = parse_staging(staging)
    caches = parse_out(out if out is not None else chosen.out)
    check_writable(caches)
    if run is None:
        run = _scan(chosen, data, roots, workers, scheduler, progress)
    check_rules_ran(run)
    check_nothing_missing(run, allow_missing)
    splits = choose_splits(run, chosen.splits if split is None else [split])
    workers = workers or workers_for(run)
    known_digests = caches if reuse else None
    jobs = jobs_of(chosen, run, splits, workers, scheduler, known_digests, progress)
    built = [
        build_cache(
            job,
            caches,
            workers=workers,
            scheduler=scheduler,
            progress=progress,
            reuse=reuse,
            staging=staging_folder,
            check=check,
        )
        for job in jobs
    ]
    return [replace(cache, unlisted=run.listing.refused) for cache in built]


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
    chosen = resolve_pipeline(pipeline, compress)
    caches = parse_out(out if out is not None else chosen.out)
    run = _scan(chosen, data, roots, workers, None, progress)
    check_rules_ran(run)
    splits = choose_splits(run, chosen.splits if split is None else [split])
    jobs = jobs_of(chosen, run, splits, workers or 1, known_digests=caches)
    return [explain_key(job, caches) for job in jobs]


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
    chosen = resolve_pipeline(pipeline, compress)
    caches = parse_out(out if out is not None else chosen.out)
    if not isinstance(caches, Path):
        msg = (
            f"{caches}: what lies in an object store cannot be repaired. Delete the cache, and "
            f"build it again."
        )
        raise UsageError(msg)
    check_writable(caches)
    run = _scan(chosen, data, roots, workers, scheduler, progress)
    check_rules_ran(run)
    check_nothing_missing(run)
    splits = choose_splits(run, chosen.splits if split is None else [split])
    jobs = jobs_of(chosen, run, splits, workers or 1, scheduler, progress=progress)
    return repair_caches(jobs, caches, workers=workers or 1, scheduler=scheduler, progress=progress)


def _scan(
    pipeline: Pipeline,
    data: str | Path | None,
    roots: Mapping[str, str | Path] | None,
    workers: int | None,
    scheduler: str | None,
    progress: Progress | None,
) -> ScanRun:
    """Scan the data of a pipeline; `data` and `roots` override what the pipeline says."""
    folder = Path(data) if data is not None else pipeline.data
    if folder is None:
        msg = f"pipeline {pipeline.name} does not say where the data are: --data DIR"
        raise UsageError(msg)
    overrides = {name: Path(path) for name, path in (roots or {}).items()}
    all_roots = {**pipeline.roots, **overrides}
    request = Request(folder, all_roots, workers, scheduler, paths=pipeline.paths)
    return run_scan(pipeline.schema, request, progress)
