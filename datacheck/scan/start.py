"""Start a scan: choose the schema, find the folders of its checks, and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from datacheck.errors import UsageError
from datacheck.formats.base import format_of
from datacheck.model.finding import Progress
from datacheck.model.table import Texts
from datacheck.rules import rules_for
from datacheck.rules.base import pluralize
from datacheck.rules.selection import rule_complaints
from datacheck.scan.run import run_scan
from datacheck.scan.scan_run import COMPARED, Audit, FailOn, Request, ScanRun
from datacheck.scan.scanned_dataset import list_dataset
from datacheck.schema.model import RuleSpec, Schema
from datacheck.sources import matches, plan_work
from datacheck.sources.kinds import NO_GROUP
from datacheck.sources.listing import Listing

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


# If less than a tenth of the files fit, report how many: the schema may be wrong. If they also have
# less than a tenth of the bytes, it is wrong.
_FEW = 10
# Rules that judge by what a draft expects of all samples though it has looked at some: a missing
# field, another shape or type, numbers beyond the measured range. They only warn.
_BY_DRAFT = ("DC121", "DC122", "DC224")


def _scan_with_fitting_schema(
    request: Request, progress: Progress | None, report: Callable[[str], None]
) -> ScanRun:
    """Scan with the built-in schema that fits, else with a draft of what is in the files."""
    data = request.data
    listing = list_dataset(data)
    schema = _builtin_that_fits(data, listing)
    if schema is None:
        return run_scan(_drafted(data, listing, report), request, progress)
    fitting_files, files = matches(schema, listing), len(listing.entries)
    few = f" {fitting_files:,} of {files:,} files" if fitting_files * _FEW < files else ""
    if few and _covers_little(schema, listing):
        report(f"schema {schema.name} fits{few} only: --schema {schema.name} scans these alone")
        return run_scan(_draft(data, report), request, progress)
    report(f"schema {schema.name} (its file patterns fit{few}; choose another with --schema)")
    run = run_scan(schema, request, progress)
    lacking = _lacking_group(run)
    if not lacking:
        return run
    report(f"schema {schema.name} is not the right one: no file holds a group like {lacking}")
    return run_scan(_draft(data, report), request, progress)


def _covers_little(schema: Schema, listing: Listing) -> bool:
    """Tell whether a schema claims less than a tenth of the bytes of data that are read.

    Pictures, videos and notes accompany data, and do not count.
    """
    from datacheck.infer.data_files import is_accompanying  # noqa: PLC0415  few scans need it

    sizes = {
        path: size
        for path, size in zip(listing.entries.paths, listing.entries.sizes.tolist(), strict=True)
        if format_of(path) is not None and not is_accompanying(path)
    }
    unclaimed = sum(sizes.get(path, 0) for path in plan_work(schema, listing).unclaimed)
    total = sum(sizes.values())
    return bool((total - unclaimed) * _FEW < total)


def _drafted(data: Path, listing: Listing, report: Callable[[str], None]) -> Schema:
    """Return a draft for data that no built-in schema fits.

    Raises:
        UsageError: a built-in schema fits a folder above or below, so a draft would judge the
            wrong one.
    """
    from datacheck.infer.suggest import elsewhere, no_schema_fits  # noqa: PLC0415  it loads all built-in schemas

    if elsewhere(data, listing):
        raise UsageError(no_schema_fits(data, listing))
    return _draft(data, report, "no built-in schema fits: ")


def _draft(data: Path, report: Callable[[str], None], reason: str = "") -> Schema:
    """Return a draft of what is in the files, and report what it assumes.

    Args:
        data: folder or file.
        report: called with each line.
        reason: begins the first line.

    Raises:
        UsageError: no format reads any of the files.
    """
    from datacheck.infer.draft import draft  # noqa: PLC0415  only data that no built-in schema fits need it
    from datacheck.infer.suggest import typed  # noqa: PLC0415  as above
    from datacheck.infer.writing import assumptions  # noqa: PLC0415  as above
    from datacheck.schema.load import parse_schema  # noqa: PLC0415  YAML is not needed with a Schema

    drafted = draft(data)
    schema = parse_schema(drafted.text)
    report(f"{reason}drafted a schema from {pluralize(drafted.samples, 'sample')}")
    for line in (*assumptions(schema), *drafted.notes):
        report(f"    {line}")
    report(
        f"    to correct the draft: datacheck init {typed(data)}, then scan with --schema "
        f"datacheck.yaml"
    )
    if drafted.extends:
        return schema
    warnings = {code: RuleSpec(severity="warning") for code in _BY_DRAFT}
    return schema.model_copy(update={"rules": warnings | schema.rules})


def _lacking_group(run: ScanRun) -> str:
    """Return the group that all samples lack, so that the schema is wrong; "" if some hold it."""
    start = f"DC101 {NO_GROUP}"
    reasons = Texts.of(run.table.reasons).words
    if not len(run.table) or not all(reason.startswith(start) for reason in reasons):
        return ""
    return reasons[0].removeprefix(start).strip()


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
        schema = _builtin_that_fits(data, listing)
        if schema is None:
            from datacheck.infer.suggest import no_schema_fits  # noqa: PLC0415  it loads all built-in schemas

            raise UsageError(no_schema_fits(data, listing))
        return schema
    return load_schema(name, lambda schema: list(rule_complaints(schema, rules_for(schema))))


def _builtin_that_fits(data: Path, listing: Listing) -> Schema | None:
    """Return the built-in schema whose file patterns fit; None where none fits.

    Raises:
        UsageError: no format reads the files, or several schemas fit.
    """
    from datacheck.infer.suggest import texts_by_language, unreadable  # noqa: PLC0415  it loads all built-in schemas
    from datacheck.schema.load import choose_schema  # noqa: PLC0415  YAML is not needed with a Schema

    problem = "" if texts_by_language(listing.entries.paths) else unreadable(data, listing)
    if problem:
        raise UsageError(problem)
    return choose_schema(lambda schema: matches(schema, listing))
