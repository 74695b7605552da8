"""The reference and the baseline: results of earlier runs that the user has a run compared with.

Rules compare the rows of the reference with the new rows. The baseline holds findings that are
known and not reported again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datacheck.errors import StorageError, UsageError
from datacheck.model.table import Table
from datacheck.rules.engine import RuleResults
from datacheck.rules.measurement import is_plain
from datacheck.rules.measures import in_form
from datacheck.scan import baseline, run_documents
from datacheck.scan.run_documents import read_result
from datacheck.scan.samples import read_table
from datacheck.schema.model import Schema


@dataclass(frozen=True, eq=False)
class PriorResults:
    """Results of earlier runs that the user has a run compared with.

    Args:
        reference: the rows of a finished run, or None.
        reference_name: id and folder of that run as ``result.json`` states them; {} without one.
        baseline: known findings, which are not reported again, or None.
    """

    reference: Table | None
    reference_name: Mapping[str, Mapping[str, str]]
    baseline: baseline.Baseline | None

    def without_known(self, results: RuleResults, table: Table) -> tuple[RuleResults, list[str]]:
        """Return results without known findings, and sentences on what the baseline hides."""
        if self.baseline is None:
            return results, []
        return baseline.apply(self.baseline, results, table)


def read_prior_results(
    schema: Schema, reference: Path | None, known_findings: Path | None
) -> PriorResults:
    """Read the reference and the baseline of a scan.

    Raises:
        UsageError: one of them cannot be read, or is of another schema.
    """
    return PriorResults(
        None if reference is None else read_reference(reference, schema),
        named_reference(reference),
        None if known_findings is None else baseline.read(known_findings),
    )


def read_reference(folder: Path, schema: Schema) -> Table:
    """Return the rows of a finished run.

    Args:
        folder: the folder of a run: ``.datacheck/<run>``, or ``.datacheck/latest``.
        schema: the schema in force; a schema of another name measures other things.

    Raises:
        UsageError: there is no finished run, it cannot be read, or it was made with a schema of
            another name.
    """
    place = run_documents.run_in(folder)
    if place is None:
        msg = (
            f"{folder}: is no finished run. --reference names the folder of one, for example "
            f".datacheck/latest"
        )
        raise UsageError(msg)
    try:
        name = read_result(place)["schema"]["name"]
        table = read_table(place / run_documents.SAMPLES) if name == schema.name else None
        if table is not None and is_plain(schema) and not in_form(table.columns):
            msg = "its columns have another form than those of a scan"
            raise ValueError(msg)  # noqa: TRY301  handled below like any other damage
    except Exception as error:
        raise run_documents.unread(folder, error) from error
    if table is None:
        msg = (
            f"{folder}: was made with schema {name}, not {schema.name}: their rows cannot be "
            f"compared."
        )
        raise UsageError(msg)
    return table


def named_reference(folder: Path | None) -> dict[str, dict[str, str]]:
    """Return ``reference`` of a report's run: id and folder, relative to the working folder.

    {} without a reference.

    Notes:
        ``.datacheck/latest`` points to another run as soon as this run is published, so the folder
        is the link's target.
    """
    place = None if folder is None else run_documents.run_in(folder)
    if place is None:
        return {}
    try:
        run = read_result(place)["run"]["id"]
    except (OSError, ValueError) as error:
        raise run_documents.unread(place, error) from error
    return {"reference": {"run": run, "folder": os.path.relpath(place.resolve())}}


def reference_of(run: Mapping[str, Any], schema: Schema) -> Table | None:
    """Return the rows that a finished run was compared with, or None.

    None where the run has no reference, or the reference is gone or damaged.

    Args:
        run: ``run`` of its result.json.
        schema: that of the run.
    """
    stored = run.get("reference")
    if stored is None:
        return None
    folder = Path(stored["folder"])
    try:
        same_run = named_reference(folder).get("reference", {}).get("run") == stored["run"]
        return read_reference(folder, schema) if same_run else None
    except (UsageError, StorageError, OSError, LookupError, TypeError, ValueError):
        # Damaged or unreadable since: the page is drawn without it.
        return None
