"""``datacheck cache gc``: remove old caches, abandoned builds and the trash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.options import PathOrUrl
from datacheck.cli.output import say

if TYPE_CHECKING:
    from datacheck.build.gc import GcCandidate

_UNIT_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}


class _Age(click.ParamType[float]):
    name = "AGE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse ``7d`` to seconds."""
        number = str(value)[:-1]
        unit = str(value)[-1:]
        if not number.isdecimal() or unit not in _UNIT_SECONDS:
            self.fail(
                f"{value!r} is not a number with m, h, d or w (minutes to weeks), as in 7d",
                param,
                ctx,
            )
        return float(number) * _UNIT_SECONDS[unit]


@click.command("gc")
@click.argument("folder", type=PathOrUrl(), default=Path("cache"))
@click.option(
    "--keep", type=click.IntRange(0), metavar="N", help="Keep the newest N caches of each split."
)
@click.option(
    "--older-than", "older", type=_Age(), help="Remove only what is older than AGE: 12h, 7d, 2w."
)
@click.option(
    "--unlocked",
    is_flag=True,
    help="Skip reader locks, for network file systems: you guarantee that nothing reads these "
    "caches.",
)
@click.option("--delete", is_flag=True, help="Remove the listed entries; without it, only list.")
@click.pass_context
def gc(
    ctx: click.Context,
    folder: Path | str,
    keep: int | None,
    older: float | None,
    unlocked: bool,  # noqa: FBT001  click's
    delete: bool,  # noqa: FBT001  click's
) -> None:
    """List the removable entries below FOLDER or a URL (default: cache); --delete removes them.

    Removable are the trash, builds whose process has ended, and finished caches that neither --keep
    nor --older-than protects; without either option, every finished cache stays. A cache that is
    being read stays, too. Below a URL, only unfinished builds are removed, a day after their last
    sign of life.

    Files that do not belong to a cache are listed, but never removed; the exit code is then 1.
    """
    from datacheck.build import gc as gc_folder
    from datacheck.build import gc_bucket

    if isinstance(folder, str):
        candidates = gc_bucket.survey(folder, keep, older)
        remove = gc_bucket.remove
    else:
        candidates = gc_folder.survey(folder, keep, older, unlocked=unlocked)
        remove = gc_folder.remove
    removed = []
    for candidate in candidates:
        if candidate.goes and delete and remove(candidate):
            removed.append(candidate)
        say(*_candidate_lines(candidate, removed=candidate in removed, delete=delete))
    removable = [candidate for candidate in candidates if candidate.goes]
    say(_summary(removed if delete else removable, delete=delete))
    ctx.exit(int(any(candidate.strange for candidate in candidates)))


def _candidate_lines(candidate: GcCandidate, *, removed: bool, delete: bool) -> Iterator[str]:
    """Yield what becomes of a candidate, the bytes that it frees and those that it shares."""
    from datacheck.build.gc import freed_bytes
    from datacheck.report.words import format_bytes

    fate = _fate(candidate, removed=removed, delete=delete)
    refused = candidate.goes and delete and not removed
    why = "in use, being removed, or not a build of datacheck" if refused else candidate.why
    if candidate.kind == "unknown":
        yield f"{fate:12}  {candidate.path}  ({why})"
        return
    freed = freed_bytes([candidate])
    size = sum(size for _, _, size in candidate.files.values())
    shared = f", of them {format_bytes(size - freed)} shared" if size > freed else ""
    age = _age_text(candidate.age)
    yield f"{fate:12}  {candidate.path}  {format_bytes(size)}{shared}, {age} ({why})"
    reason = "not written by a build" if candidate.kind == "build" else "no file of this cache"
    for path in candidate.strange:
        yield f"    {path}: {reason}, left. Remove it yourself if it is not needed."


def _fate(candidate: GcCandidate, *, removed: bool, delete: bool) -> str:
    if removed:
        return "removed"
    return "would remove" if candidate.goes and not delete else "stays"


def _summary(candidates: list[GcCandidate], *, delete: bool) -> str:
    from datacheck.build.gc import freed_bytes
    from datacheck.report.words import format_bytes

    if not candidates:
        return "Nothing to remove."
    freed = format_bytes(freed_bytes(candidates))
    if delete:
        return f"{freed} freed"
    return f"{freed} would be freed. Nothing was removed: --delete does it."


def _age_text(seconds: float) -> str:
    hours = seconds / 3600
    if hours >= 48:
        return f"{hours / 24:.0f} days old"
    return f"{hours:.0f} hours old" if hours >= 2 else "new"
