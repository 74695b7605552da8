"""The tables of commands, and the group that imports a command only when it runs.

``datacheck --help`` prints the help lines of a table and imports no command, so it stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click

# Each table: name of a command: (its module in datacheck.cli, its line in the help), in the order
# of the help. The attribute of the module has the name of the command, with _ for -.
COMMANDS = {
    "scan": ("scan", "Find broken samples in a dataset."),
    "view": ("view", "Show one sample and its findings as a page with pictures."),
    "report": ("finished_run", "Print the report of a finished run in any format."),
    "rescore": ("finished_run", "Judge a finished run again with other thresholds."),
    "baseline": (
        "finished_run",
        "Save the findings of a run, so that later scans report new ones only.",
    ),
    "init": ("schema", "Draft a schema from data; every guess is marked."),
    "explain": ("rules", "Explain a rule: what it checks, why it matters, how to fix it."),
    "rules": ("rules", "List all rules, or those that a schema runs."),
    "schema": ("schema", "Check a schema file."),
    "fix": ("fix", "Write a copy of a dataset in which one rule's findings are repaired."),
    "export": ("export", "Write the valid samples of a dataset as a dataset again."),
    "cache": ("commands", "Build, verify, repair and list caches."),
    "card": ("card", "Write a Croissant card for a scanned dataset."),
    "manifest": ("manifest", "Record every file of a dataset with its digest."),
    "diff": ("diff", "Compare two datasets, manifests, caches or recorded runs."),
    "repro": ("commands", "Check, compare and bisect training runs that should be reproducible."),
    "split": ("split", "Write split lists that keep related samples together."),
    "demo": ("demo", "Run the whole workflow on synthetic data with planted faults."),
}
CACHE_COMMANDS = {
    "build": ("cache_build", "Scan data and build a checksummed cache for each split."),
    "explain-key": ("cache_build", "Explain why a build would not reuse the newest cache."),
    "info": ("cache_info", "Show the fields, counts and sizes of a cache."),
    "report": ("cache_report", "Write an HTML page about a cache."),
    "verify": ("cache_verify", "Verify finished caches against their checksums."),
    "repair": ("cache_build", "Rebuild the damaged shards of caches."),
    "diff": ("cache_diff", "Compare the samples and fields of two caches."),
    "export": ("cache_export", "Export the samples of a cache for other loaders."),
    "gc": ("cache_gc", "Remove old caches, abandoned builds and the trash."),
    "ls": ("cache_info", "List finished caches and unfinished builds."),
}
REPRO_COMMANDS = {
    "bisect": (
        "repro_bisect",
        "Find the switch that changes a training, and the step where it does.",
    ),
    "capture": (
        "repro_capture",
        "Record packages, libraries, code, hardware and settings as JSON.",
    ),
    "check": ("repro_check", "Report what is not pinned in a training process, and how to pin it."),
    "diff": ("repro_diff", "Compare two recorded runs and find the step where they diverge."),
}


class LazyGroup(click.Group):
    """A group of commands that live in separate modules.

    Args:
        table: the commands, as the tables above.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in the order of the help."""
        del ctx
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None for an unknown name."""
        del ctx
        from datacheck.plugins import resolve

        if cmd_name not in self._table:
            return None
        module, _ = self._table[cmd_name]
        command: click.Command = resolve(f"datacheck.cli.{module}:{cmd_name.replace('-', '_')}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in self._table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for an unknown name, suggest a similar one."""
        if args and args[0] not in self._table and not args[0].startswith("-"):
            similar = get_close_matches(args[0], self._table, n=1)
            hint = (
                f"Did you mean {similar[0]}?" if similar else f"Known are {', '.join(self._table)}."
            )
            msg = f"no command is called {args[0]!r}. {hint}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)


@click.group("cache", cls=LazyGroup, table=CACHE_COMMANDS)
def cache() -> None:
    """Build, verify, repair, compare, export and remove caches."""


@click.group("repro", cls=LazyGroup, table=REPRO_COMMANDS)
def repro() -> None:
    """Find out why the same training code gives different results."""
