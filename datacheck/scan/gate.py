"""Whether a build may rely on a scan, and which splits it has.

A cache must not lack samples whose verdict is unknown: because a rule crashed, or because this
machine could not read them. Faults of the data are verdicts, and stop no build.
"""

from __future__ import annotations

from collections.abc import Sequence

from datacheck.errors import DatacheckError, StorageError, UsageError
from datacheck.model.finding import Verdict
from datacheck.model.table import Texts
from datacheck.rules.base import pluralize
from datacheck.scan.measuring import NOT_HERE
from datacheck.scan.scan_run import ScanRun
from datacheck.schema.grammar import suggestion

_NAMED = 5  # samples named in a message
_HEAD = 40  # characters of a reason: its code and its first words


def check_rules_ran(run: ScanRun) -> None:
    """Raise if a rule crashed: its verdict on the samples is unknown.

    Raises:
        DatacheckError: one did.
    """
    crashed = [v.code for v in run.report.verdicts if v.verdict is Verdict.CRASH]
    if crashed:
        code = crashed[0]
        msg = (
            f"rule {code} crashed during the scan, so its verdict on the samples is missing. "
            f"See datacheck scan; to build without it: rules: {{{code}: off}} in the schema."
        )
        raise DatacheckError(msg)


def check_nothing_missing(run: ScanRun, allowed: int = 0) -> None:
    """Raise if this machine could not read more samples than allowed.

    A cache without them would look complete.

    Raises:
        StorageError: it could not.
    """
    lost = _keys_not_read_here(run)
    if len(lost) <= allowed:
        return
    named = ", ".join(lost[:_NAMED])
    if len(lost) > _NAMED:
        named += ", ..."
    msg = (
        f"{pluralize(len(lost))} could not be read on this machine, which says nothing of the "
        f"data: {named}. Nothing "
        "was built. Look at its memory and at what ends processes there, then run the same "
        "command again; "
        f"--allow-missing {len(lost)} builds without them."
    )
    raise StorageError(msg)


def _keys_not_read_here(run: ScanRun) -> list[str]:
    rows: list[int] = []
    for reason, reason_rows in Texts.of(run.table.reasons).places():
        if f" {NOT_HERE}: " in reason[:_HEAD]:
            rows += reason_rows.tolist()
    return [run.table.keys[row] for row in sorted(rows)]


def choose_splits(run: ScanRun, requested: Sequence[str]) -> list[str]:
    """Return the splits to build, sorted; a folder that could not be listed is not a split.

    Args:
        run: the scan.
        requested: their names; empty: all splits of the data.

    Raises:
        UsageError: the data have no such split.
    """
    refused = {path for path, _ in run.listing.refused}
    table = run.table
    listed = {
        name for key, name in zip(table.keys, table.splits, strict=True) if key not in refused
    }
    existing = sorted(listed or {""})
    for name in requested:
        if name not in existing:
            names = ", ".join(filter(None, existing))
            names = names or "none (no split in samples.files of the schema)"
            near = suggestion(name, existing)
            msg = f"no split {name!r}{near}; the splits of these data: {names}"
            raise UsageError(msg)
    return sorted(set(requested)) if requested else existing
