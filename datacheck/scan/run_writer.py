"""Write a finished run: its documents into the working folder, and that folder to its place.

A file that would equal the one of the earlier run, whose rows this run has kept, becomes a link to
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from datacheck.errors import StorageError
from datacheck.model.finding import Report
from datacheck.rules.engine import RuleResults
from datacheck.scan import run_documents
from datacheck.scan.run_dir import Journal, RunLocation
from datacheck.scan.run_state import RunState, state_bytes
from datacheck.scan.samples import codes_digest, read_codes, table_bytes
from datacheck.schema.model import Schema

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class RunContents:
    """What the files of a run hold.

    Args:
        report, results: the verdicts and findings.
        schema: as the user wrote it.
        state: the rows, and the state for the next scan.
        pairs: results of the second read of pairs of samples, by the digest of the question.
    """

    report: Report
    results: RuleResults
    schema: Schema
    state: RunState
    pairs: Mapping[str, Mapping[str, Array]]


def publish(contents: RunContents, place: RunLocation, journal: Journal) -> Report:
    """Write the files of a run and publish its folder; return the report with that folder.

    Args:
        contents: what the files hold.
        place, journal: the run's final place, and its working folder.

    Raises:
        OutOfSpaceError: the results do not fit on the disk.
        StorageError: the disk refuses.
    """
    try:
        staged = journal.stage(_files(contents))
    # Another scan may have replaced the earlier run since: write all files instead of linking.
    except (FileNotFoundError, StorageError) as error:
        earlier_run = contents.state.folder
        if earlier_run == Path() or not isinstance(error.__cause__ or error, FileNotFoundError):
            raise
        unlinked = replace(contents.state, folder=Path(), written=False)
        staged = journal.stage(_files(replace(contents, state=unlinked)))
    folder = place.publish(staged, contents.report.run["id"])
    journal.clear()
    return replace(contents.report, folder=str(folder))


def _files(contents: RunContents) -> dict[str, bytes | memoryview | Path]:
    """Return the bytes of each file by name, or the path of an equal file of the earlier run."""
    from datacheck.schema.load import dump_schema  # noqa: PLC0415  YAML is not needed before

    report, results, state = contents.report, contents.results, contents.state
    valid = run_documents.valid(report, state.table, results.codes)
    return {
        run_documents.RESULT: run_documents.dump_json(run_documents.result(report)),
        run_documents.SAMPLES: _samples(results, state),
        run_documents.VALID: run_documents.dump_json(valid),
        run_documents.LISTING: _listing(state, contents.pairs),
        # Never a link to the file of an earlier run: people edit it.
        run_documents.SCHEMA: dump_schema(contents.schema).encode(),
    }


def _samples(results: RuleResults, state: RunState) -> memoryview | Path:
    written = state.folder / run_documents.SAMPLES
    if state.folder != Path() and read_codes(written) == codes_digest(results.failing):
        return written
    return table_bytes(state.table, results.failing)


def _listing(state: RunState, pairs: Mapping[str, Mapping[str, Array]]) -> memoryview | Path:
    if state.written and pairs.keys() == state.pairs.keys():
        return state.folder / run_documents.LISTING
    return state_bytes(replace(state, pairs=pairs))
