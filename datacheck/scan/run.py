"""One scan, from the data folder to the report.

Each stage is a module that hands one value to the next:

1. `prior_results.read_prior_results` reads the reference and the baseline: `PriorResults`. A mistake
   in these options is reported before any data are listed.
2. `scanned_dataset.open_dataset` lists the files and puts the schema in force: a `ScannedDataset`.
3. `judging.choose_criteria` chooses the rules, and with them the measurements: `Criteria`.
4. `incremental.measure_dataset` keeps the rows of unchanged files and measures the others in child
   processes: a `MeasuredState`.
5. `judging.judge_run` judges the rows: `Judged`.
6. `summary.report_of` makes the `Report`, and `run_writer.publish` writes the folder of the run.

The working folder (`run_dir.Journal`) is held during stages 4 to 6: it stores each measured part,
from which an interrupted scan goes on.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from datacheck.errors import DamagedRunError
from datacheck.model.finding import Progress
from datacheck.scan.incremental import measure_dataset
from datacheck.scan.judging import choose_criteria, judge_run
from datacheck.scan.pairs import CachedSecondRead, Rereader
from datacheck.scan.prior_results import PriorResults, read_prior_results
from datacheck.scan.run_dir import Journal, run_location
from datacheck.scan.run_writer import RunContents, publish
from datacheck.scan.scan_run import Request, ScanRun
from datacheck.scan.scanned_dataset import open_dataset
from datacheck.scan.summary import RunContext, report_of
from datacheck.schema.model import Schema


def run_scan(schema: Schema, request: Request, progress: Progress | None = None) -> ScanRun:
    """Scan a dataset and write the run's files.

    Args:
        schema: what the data promise.
        request: the data and the options.
        progress: called after each task.

    Raises:
        UsageError: the data are missing or empty, the schema fits none of them, or an option, a
            waiver or the reference is wrong.
        OutOfSpaceError: the results do not fit on the disk.
        StorageError: the disk or the Dask cluster refuses.
        KeyboardInterrupt: the user stopped the scan; finished parts are kept, and its notes say so.

    Notes:
        Rows depend on the data and the schema only, never on workers, order or interruptions. Where
        the files of an earlier scan turn out to be damaged, every data file is read again.
    """
    schema = schema.with_tokenizer(request.tokenizer, request.trainer)
    prior = read_prior_results(schema, request.reference, request.baseline)
    try:
        return _scan(schema, prior, request, progress)
    except DamagedRunError:
        if request.rehash:
            raise
        # listed anew: files may have changed since
        return _scan(schema, prior, replace(request, rehash=True), progress)


def _scan(
    schema: Schema, prior: PriorResults, request: Request, progress: Progress | None
) -> ScanRun:
    began = time.time()
    dataset = open_dataset(schema, request.data, request.roots)
    level = request.level or dataset.default_level
    criteria = choose_criteria(
        dataset.rates, level, prior, request.paths, allow_unread=request.allow_unread
    )
    job = dataset.job(request, [measure.name for measure in criteria.measures], level)
    place = run_location(dataset.schema, dataset.root, dataset.only, request.roots, request.output)
    journal = Journal(place, criteria.settings.key)
    with journal.held():
        measured = measure_dataset(
            dataset, job, criteria.settings, place, journal, progress, rehash=request.rehash
        )
        state = measured.state
        second_read = CachedSecondRead(Rereader(job, dataset.items, progress), state.pairs)
        rows_of = state.folder if measured.kept_samples else None
        judged = judge_run(state, criteria, second_read, rows_of)
        facts = RunContext(
            schema=dataset.declared,
            data=request.data,
            state=state,
            began=began,
            kept_files=measured.kept_files,
            kept_samples=measured.kept_samples,
            level=level,
            silenced=judged.silenced,
            coverage=judged.coverage,
            remarks=_remarks(request, prior, job.sandbox_text),
            last=measured.last,
        )
        report = report_of(facts, request.command, request.fail_on, judged.results)
        contents = RunContents(report, judged.results, dataset.declared, state, second_read.answers)
        report = publish(contents, place, journal)
    return ScanRun(
        report,
        state.table,
        state.listing,
        judged.results.valid,
        judged.results.codes,
        dataset.rates.of_all(dataset.schema),
    )


def _remarks(request: Request, prior: PriorResults, sandbox: str) -> dict[str, Any]:
    remarks: dict[str, Any] = {"sandbox": sandbox, **prior.reference_name}
    if request.allow_unread:
        remarks["allow_unread"] = True
    return remarks
