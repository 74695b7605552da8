"""Start a scan: choose the schema, find the folders of its checks, and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from datacheck.errors import UsageError
from datacheck.model.finding import Progress
from datacheck.rules import rules_for
from datacheck.rules.selection import rule_complaints
from datacheck.scan.run import run_scan
from datacheck.scan.scan_run import COMPARED, Audit, FailOn, Request, ScanRun
from datacheck.scan.scanned_dataset import list_dataset
from datacheck.scan.unnamed_schema import (
    builtin_that_fits,
    covers_little,
    draft_schema,
    draft_unless_elsewhere,
    lacking_group,
)
from datacheck.schema.model import Schema
from datacheck.sources import matches

__all__ = [
    "FailOn",
    "Progress",
    "Request",
    "ScanRun",
    "paths_of",
    "run_scan",
    "scan",
    "scan_loader",
    "schema_for",
]


def scan(
    data: str | Path,
    schema: Schema | str | Path | None = None,
    *,
    roots: Mapping[str, str | Path] | None = None,
    progress: Progress | None = None,
    report: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> ScanRun:
    """Scan a dataset: ``datacheck scan`` without printing.

    Args:
        data: folder, file or Zarr folder.
        schema: a schema, the name of a built-in one, or a file; None: the built-in one that fits,
            else a draft of what is in the files, as `datacheck init` makes it.
        roots: extra folders by name.
        progress: called after each task.
        report: called, where `schema` is None, with lines about the schema that is used.
        options: see `Request`.

    Raises:
        UsageError: the data are missing or empty, no format reads them, several schemas fit, an
            option or a waiver is wrong.
        StorageError: the results cannot be written, or the Dask cluster refuses.
    """
    folders = {name: Path(folder) for name, folder in (roots or {}).items()}
    if schema is None:
        request = Request(Path(data), folders, **options)
        return _scan_with_fitting_schema(request, progress, report)
    chosen = schema if isinstance(schema, Schema) else schema_for(Path(data), schema)
    paths = options.pop("paths", None) or paths_of(
        chosen, None if isinstance(schema, Schema) else schema
    )
    return run_scan(chosen, Request(Path(data), folders, paths=paths, **options), progress)


# If less than a tenth of the files fit, report how many: the schema may be wrong.
_FEW = 10


def _scan_with_fitting_schema(
    request: Request, progress: Progress | None, report: Callable[[str], None]
) -> ScanRun:
    """Scan with the built-in schema that fits, else with a draft of what is in the files."""
    data = request.data
    listing = list_dataset(data)
    schema = builtin_that_fits(data, listing)
    if schema is None:
        return run_scan(draft_unless_elsewhere(data, listing, report), request, progress)
    fitting_files, files = matches(schema, listing), len(listing.entries)
    few = f" {fitting_files:,} of {files:,} files" if fitting_files * _FEW < files else ""
    if few and covers_little(schema, listing):
        report(f"schema {schema.name} fits{few} only: --schema {schema.name} scans these alone")
        return run_scan(draft_schema(data, report), request, progress)
    report(f"schema {schema.name} (its file patterns fit{few}; choose another with --schema)")
    run = run_scan(schema, request, progress)
    lacking = lacking_group(run)
    if not lacking:
        return run
    report(f"schema {schema.name} is not the right one: no file holds a group like {lacking}")
    return run_scan(draft_schema(data, report), request, progress)


def scan_loader(
    factory: str,
    schema: Schema | str | Path | None = None,
    data: str | Path | None = None,
    *,
    files_schema: Schema | str | Path | None = None,
    roots: Mapping[str, str | Path] | None = None,
    split: str = "",
    compare: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> ScanRun:
    """Scan what a loader returns: ``datacheck scan --loader`` without printing.

    Args:
        factory: ``module:function``; called without arguments it returns a map-style dataset.
        schema: what its samples promise; None: only rules that hold for any dataset are judged.
        data: the files that the loader reads; they are scanned too, and compared with the samples
            that it returns.
        files_schema: what the files promise; None: `schema` where its file patterns fit, else the
            built-in one that fits.
        roots: extra folders of the files by name.
        split: the split that the loader serves, "" where there is one only.
        compare: how many samples are read a second time; None: 2,000.
        progress: called from time to time.
        options: see `Request`.

    Raises:
        UsageError: the loader cannot be built, or an option or a waiver is wrong.
        StorageError: the results cannot be written.
    """
    # Only scans of loaders need it.
    from datacheck.scan.loader_audit.audit import run_audit  # noqa: PLC0415

    chosen = schema if isinstance(schema, Schema) else schema_for(Path(), schema or "files")
    paths = options.pop("paths", None) or paths_of(
        chosen, None if isinstance(schema, Schema) else schema
    )
    files = None if data is None else _schema_of_files(Path(data), chosen, files_schema)
    folders = {name: Path(folder) for name, folder in (roots or {}).items()}
    request = Request(Path(factory if data is None else data), folders, paths=paths, **options)
    audit = Audit(factory, chosen, files, split, COMPARED if compare is None else compare)
    return run_audit(audit, request, progress)


def _schema_of_files(data: Path, schema: Schema, named: Schema | str | Path | None) -> Schema:
    """Return the schema of a loader's files: the named one, else `schema`, else a built-in one.

    `schema` is used where its file patterns fit the files.

    Notes:
        A schema whose only patterns are wildcards describes what the loader returns, not files.
    """
    if named is not None:
        return named if isinstance(named, Schema) else schema_for(data, named)
    listing = list_dataset(data)
    if any(set(pattern) - {"*", "/"} for pattern in schema.samples.files) and matches(
        schema, listing
    ):
        return schema
    try:
        return schema_for(data, None)
    except UsageError:  # no built-in schema fits, or several do
        return schema_for(data, "files")


def paths_of(schema: Schema, named: str | Path | None) -> list[str]:
    """Return the folders, besides installed modules, that hold the schema's own checks.

    Args:
        schema: the loaded schema.
        named: the file that it was loaded from, whose folder is returned; None for a schema made
            in Python, which has the working folder.

    Returns:
        [] where the schema has no checks of its own.
    """
    if not schema.checks:
        return []
    if named is None:
        return [str(Path.cwd())]
    return [str(Path(named).resolve().parent)] if Path(named).is_file() else []


def schema_for(data: Path, name: str | Path | None) -> Schema:
    """Return the schema of that name or file; None: the built-in one whose file patterns fit.

    Raises:
        UsageError: there is no such schema; the data are missing or empty, or none or several fit.
    """
    from datacheck.schema.load import load_schema  # noqa: PLC0415  YAML is not needed with a Schema

    if name is None:
        listing = list_dataset(data)
        schema = builtin_that_fits(data, listing)
        if schema is None:
            from datacheck.infer.suggest import no_schema_fits  # noqa: PLC0415  it loads all built-in schemas

            raise UsageError(no_schema_fits(data, listing))
        return schema
    return load_schema(name, lambda schema: list(rule_complaints(schema, rules_for(schema))))
