"""``datacheck cache gc``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datacheck.cli.info import PathOrUrl
from datacheck.cli.say import say
from datacheck.report.words import format_bytes

if TYPE_CHECKING:
    from datacheck.build.gc import GcCandidate

_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
_HELP = """Show what could be removed below FOLDER or a URL (default: cache), and remove it with --delete.

That is: what lies in .trash, builds whose builder is gone, and the caches that --keep or --older-than let go; with
both, those that both let go. A cache that somebody reads stays. What is no part of a cache is never removed but named,
and the exit code is then 1. Below a URL only builds go, a day after they were last heard of.
"""


class _Age(click.ParamType[float]):
    name = "AGE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse ``7d``."""
        number = str(value)[:-1]
        unit = str(value)[-1:]
        if not number.isdecimal() or unit not in _UNITS:
            self.fail(
                f"{value!r} is not a number with m, h, d or w (minutes to weeks), as in 7d",
                param,
                ctx,
            )
        return float(number) * _UNITS[unit]


@click.command("gc", help=_HELP)
@click.argument("folder", type=PathOrUrl(), default=Path("cache"))
@click.option(
    "--keep",
    type=click.IntRange(0),
    metavar="N",
    help="Of the caches of each split the newest N stay.",
)
@click.option("--older-than", "older", type=_Age(), help="Only what is older goes: 12h, 7d, 2w.")
@click.option("--unlocked", is_flag=True, help="On a network file system: nobody reads what goes.")
@click.option("--delete", is_flag=True, help="Remove it; else it is only shown.")
@click.pass_context
def gc(
    ctx: click.Context,
    folder: Path | str,
    keep: int | None,
    older: float | None,
    unlocked: bool,  # noqa: FBT001  click's
    delete: bool,  # noqa: FBT001  click's
) -> None:
    """Survey the folder, print what can be removed, and remove it with ``--delete``."""
    from datacheck.build import gc as gc_folder
    from datacheck.build import gc_bucket
    from datacheck.build.gc import freed_bytes

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
        say(*_lines(candidate, removed=candidate in removed, delete=delete))
    removable = [candidate for candidate in candidates if candidate.goes]
    if delete:
        say(f"{format_bytes(freed_bytes(removed))} freed" if removed else "Nothing to remove.")
    elif removable:
        say(
            f"{format_bytes(freed_bytes(removable))} would be freed. Nothing was removed: --delete "
            f"does it."
        )
    else:
        say("Nothing to remove.")
    ctx.exit(int(any(candidate.strange for candidate in candidates)))


def _lines(candidate: GcCandidate, *, removed: bool, delete: bool) -> Iterator[str]:
    """Yield the lines on one candidate: its fate, the bytes it frees and those it shares."""
    from datacheck.build.gc import freed_bytes

    if candidate.goes and delete:
        status, why = (
            ("removed", candidate.why)
            if removed
            else ("stays", "in use, just being removed, or not ours to remove")
        )
    else:
        status = "would remove" if candidate.goes else "stays"
        why = candidate.why
    if candidate.kind == "unknown":
        yield f"{status:12}  {candidate.path}  ({why})"
        return
    own, size = freed_bytes([candidate]), sum(size for _, _, size in candidate.files.values())
    shared = f", of them {format_bytes(size - own)} shared" if size > own else ""
    yield f"{status:12}  {candidate.path}  {format_bytes(size)}{shared}, {_age(candidate.age)} ({why})"
    for path in candidate.strange:
        status = "not written by a build" if candidate.kind == "build" else "no file of this cache"
        yield f"    {path}: {status}, left. Remove it yourself if nobody needs it."


def _age(seconds: float) -> str:
    days = seconds / 86400
    hours = seconds / 3600
    return (
        f"{days:.0f} days old" if days >= 2 else f"{hours:.0f} hours old" if hours >= 2 else "new"
    )
