"""A finished run that is judged again: its rows, and a schema put in force for them.

A run may come from somebody else, together with its schema. So modules and files that only this
schema names are not trusted: its own checks do not run, and each file must be as it was scanned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datacheck.errors import UsageError
from datacheck.model.sample import Depth
from datacheck.scan.judging import Criteria
from datacheck.scan.measurement_settings import MeasurementSettings, missing_measurements
from datacheck.scan.run_documents import read_schema, unread
from datacheck.scan.run_state import RunState, read_run, read_state
from datacheck.scan.scanned_dataset import with_stated_values
from datacheck.schema.model import Schema
from datacheck.sources import with_rate
from datacheck.sources.lerobot import StepRates
from datacheck.sources.listing import stat_entry
from datacheck.sources.loader_tables import path_of

_NAMED = 5


@dataclass(frozen=True, eq=False)
class StoredRun:
    """A finished run as a rescore judges it.

    Args:
        folder: as the user named it.
        document: its ``result.json``.
        state: its rows, with notes on datasets that state no step rate.
        declared: the schema to judge by: the caller's, or the run's own.
        rates: the step rates of LeRobot datasets, with the schema in force.
        trusted: the caller named the schema. Otherwise nothing that it names is imported, and a
            file that it names must be as it was scanned: whoever shares a run chooses its schema.
    """

    folder: Path
    document: Mapping[str, Any]
    state: RunState
    declared: Schema
    rates: StepRates
    trusted: bool

    @property
    def level(self) -> Depth:
        """How deep the run has read."""
        level: Depth = self.document["run"].get("level", "numeric")
        return level

    def missing_measurements(self, criteria: Criteria) -> list[str]:
        """Return phrases that say why the rows cannot be judged by these criteria.

        Raises:
            DamagedRunError: the stored settings of the measurements are damaged.
        """
        measures = criteria.measures
        needed = MeasurementSettings.of(
            criteria.rates.schema, measures, self.level, outside=self.trusted
        )
        try:
            stored = MeasurementSettings.from_json(self.state.measured)
            return list(missing_measurements(stored, needed, measures))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise unread(self.folder, error) from error

    def skipped_checks(self, command: str) -> list[str]:
        """Return a sentence on the checks that did not run; [] where there are none."""
        return [] if self.trusted else not_run(self.declared, f"datacheck {command} {self.folder}")


def read_stored_run(folder: Path, schema: Schema | None) -> StoredRun:
    """Read a finished run and put a schema in force for it.

    Args:
        folder: of the run, or the folder of all runs for the newest.
        schema: the caller's; None: the run's own.

    Raises:
        UsageError: there is no such run, it is the run of a loader, or a file that the schema names
            is missing or not as it was scanned.
    """
    state, document, own_schema = read_run(
        folder, lambda place, document: (read_state(place), document, read_schema(place))
    )
    if not state.measured:
        msg = (
            f"{folder}: is of a loader, and its samples must be read to be judged, since nothing "
            f"tells whether its "
            f"code has changed. Scan it again: --loader {document['dataset']['root']}; datacheck "
            f"report {folder} prints "
            "what it found"
        )
        raise UsageError(msg)
    trusted = schema is not None
    declared = own_schema if schema is None else schema
    if not trusted:
        _check_named_files(declared, state)
    listing = state.listing
    placed = declared.placed(listing.roots, listing.root)
    in_force, _ = with_stated_values(placed, listing.root, listing.roots)
    # Only documents of LeRobot datasets that are as they were scanned.
    rates = with_rate(in_force, listing, sorted(set(state.table.files)))
    new_notes = [note for note in rates.notes if note not in state.notes]
    written = state.written and not new_notes
    state = replace(state, notes=[*state.notes, *new_notes], written=written)
    return StoredRun(folder, document, state, declared, rates, trusted)


def _check_named_files(schema: Schema, state: RunState) -> None:
    """Refuse a run whose schema names a file that is not as it was scanned.

    Whoever shares a run may name any file in its schema.

    Raises:
        UsageError: there is such a file.
    """
    root, roots = state.listing.root, state.listing.roots
    paths = [
        path_of(spec.stats, roots)
        for spec in schema.fields.values()
        if spec.stats and spec.stats.file
    ]
    classes = schema.loader.get("keep_classes") if schema.loader is not None else None
    if isinstance(classes, str):
        paths.append(classes)
    for path in paths:
        if stat_entry(root, path, roots) is not None and not state.listing.holds(path):
            msg = (
                f"{path}: the schema of the run names it, but it is not what was scanned. Scan the "
                f"data again, or name "
                "the schema (--schema FILE)"
            )
            raise UsageError(msg)


def without_checks(schema: Schema) -> Schema:
    """Return the schema of a run without its own checks.

    Otherwise whoever shares a run would choose which modules its reader imports.
    """
    rules = {code: spec for code, spec in schema.rules.items() if code not in schema.checks}
    return schema.model_copy(update={"checks": (), "rules": rules}) if schema.checks else schema


def not_run(schema: Schema, command: str) -> list[str]:
    """Return a sentence that names the checks of a run's schema that did not run, and the remedy.

    Empty where the schema has no checks of its own.
    """
    if not schema.checks:
        return []
    more = f" and {len(schema.checks) - _NAMED} more" if len(schema.checks) > _NAMED else ""
    names = f"{', '.join(schema.checks[:_NAMED])}{more}"
    why = "modules that only the schema.yaml of a run names are not imported"
    return [f"own checks not run ({names}): {why}. Name the schema: {command} --schema FILE"]
