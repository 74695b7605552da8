"""``datacheck cache verify``."""

from __future__ import annotations

from pathlib import Path

import click

from datacheck.cli.info import path_argument, split_option

_SHOWN = 20


@click.command()
@path_argument
@click.option("--quick", "depth", flag_value="quick", help="The manifest, the set of files and their sizes only.")
@click.option("--full", "depth", flag_value="full", default=True, help="Every byte and every sample (the default).")
@split_option
@click.pass_context
def verify(ctx: click.Context, path: Path, depth: str, split: str | None) -> None:
    """Check that finished caches are what was written; the exit code is 7 where one is not."""
    from datacheck.cache.find import choose_cache, find_caches
    from datacheck.cache.verify import verify as verify_cache

    folders = list(find_caches(path)) if split is None else []
    damaged = False
    for folder in folders or [choose_cache(path, split)]:
        problems = verify_cache(folder, "quick" if depth == "quick" else "full")
        checked = "manifest, files and sizes" if depth == "quick" else "every byte and every sample"
        click.echo(f"{folder}: {_counted(len(problems)) if problems else f'intact ({checked})'}")
        for problem in problems[:_SHOWN]:
            click.echo(f"    {problem}")
        if len(problems) > _SHOWN:
            click.echo(f"    ... and {len(problems) - _SHOWN} more")
        damaged |= bool(problems)
    if damaged:
        click.echo("Rebuild what is damaged: delete that folder and run datacheck cache build again.")
        ctx.exit(7)


def _counted(problems: int) -> str:
    return "1 problem" if problems == 1 else f"{problems:,} problems"
