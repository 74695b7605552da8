"""The schema of data for which the user names none: the built-in one that fits, or a draft."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from datacheck.errors import UsageError
from datacheck.formats.base import format_of
from datacheck.model.table import Texts
from datacheck.rules.base import pluralize
from datacheck.scan.scan_run import ScanRun
from datacheck.schema.model import RuleSpec, Schema
from datacheck.sources import matches, plan_work
from datacheck.sources.kinds import NO_GROUP
from datacheck.sources.listing import Listing

_LITTLE = 0.1  # of the bytes of data
# Rules that judge by what a draft expects of all samples though it has looked at some: a missing
# field, another shape or type, numbers beyond the measured range. They only warn.
_BY_DRAFT = ("DC121", "DC122", "DC224")


def builtin_that_fits(data: Path, listing: Listing) -> Schema | None:
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


def covers_little(schema: Schema, listing: Listing) -> bool:
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
    return bool(total - unclaimed < _LITTLE * total)


def draft_unless_elsewhere(data: Path, listing: Listing, report: Callable[[str], None]) -> Schema:
    """Return a draft for data that no built-in schema fits.

    Raises:
        UsageError: a built-in schema fits a folder above or below, so a draft would judge the
            wrong one.
    """
    from datacheck.infer.suggest import elsewhere, no_schema_fits  # noqa: PLC0415  it loads all built-in schemas

    if elsewhere(data, listing):
        raise UsageError(no_schema_fits(data, listing))
    return draft_schema(data, report, "no built-in schema fits: ")


def draft_schema(data: Path, report: Callable[[str], None], reason: str = "") -> Schema:
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


def lacking_group(run: ScanRun) -> str:
    """Return the group that all samples lack, so that the schema is wrong; "" if some hold it."""
    start = f"DC101 {NO_GROUP}"
    reasons = Texts.of(run.table.reasons).words
    if not len(run.table) or not all(reason.startswith(start) for reason in reasons):
        return ""
    return reasons[0].removeprefix(start).strip()
