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
        found = gc_bucket.survey(folder, keep, older)
        remove = gc_bucket.remove
    else:
        found = gc_folder.survey(folder, keep, older, unlocked=unlocked)
        remove = gc_folder.remove
    gone = []
    for one in found:
        if one.goes and delete and remove(one):
            gone.append(one)
        say(*_lines(one, removed=one in gone, delete=delete))
    going = [one for one in found if one.goes]
    if delete:
        say(f"{format_bytes(freed_bytes(gone))} freed" if gone else "Nothing to remove.")
    elif going:
        say(
            f"{format_bytes(freed_bytes(going))} would be freed. Nothing was removed: --delete "
            f"does it."
        )
    else:
        say("Nothing to remove.")
    ctx.exit(int(any(one.strange for one in found)))


def _lines(one: GcCandidate, *, removed: bool, delete: bool) -> Iterator[str]:
    """Yield the lines on one candidate: its fate, the bytes it frees and those it shares."""
    from datacheck.build.gc import freed_bytes

    if one.goes and delete:
        what, why = (
            ("removed", one.why)
            if removed
            else ("stays", "in use, just being removed, or not ours to remove")
        )
    else:
        what = "would remove" if one.goes else "stays"
        why = one.why
    if one.kind == "unknown":
        yield f"{what:12}  {one.path}  ({why})"
        return
    own, size = freed_bytes([one]), sum(size for _, _, size in one.files.values())
    shared = f", of them {format_bytes(size - own)} shared" if size > own else ""
    yield f"{what:12}  {one.path}  {format_bytes(size)}{shared}, {_age(one.age)} ({why})"
    for path in one.strange:
        what = "not written by a build" if one.kind == "build" else "no file of this cache"
        yield f"    {path}: {what}, left. Remove it yourself if nobody needs it."


def _age(seconds: float) -> str:
    days = seconds / 86400
    hours = seconds / 3600
    return (
        f"{days:.0f} days old" if days >= 2 else f"{hours:.0f} hours old" if hours >= 2 else "new"
    )
