"""``datacheck cache``: each command is imported when called; only `build` loads the builder."""

from __future__ import annotations

import click

from datacheck.cli.lazy import LazyGroup

_COMMANDS = {  # name: its module in datacheck.cli, its line in the help
    "build": ("build", "Scan DATA and build a checksummed cache of each split."),
    "explain-key": ("explain_key", "Say why a build would not find the newest cache."),
    "info": ("info", "Show what a cache holds."),
    "report": ("cache_report", "Write a page that shows what a cache holds."),
    "verify": ("verify", "Check that finished caches are what was written."),
    "repair": ("repair", "Make anew what is damaged of a cache."),
    "diff": ("cache_diff", "Show which samples and fields differ between two caches."),
    "export": ("export", "Write the samples of a cache for other loaders."),
    "gc": ("gc", "Remove old caches, abandoned builds and the trash."),
    "ls": ("info", "List the finished caches and the unfinished builds."),
}


@click.group("cache", cls=LazyGroup, table=_COMMANDS)
def cache() -> None:
    """Build, check, repair, list and remove caches."""
