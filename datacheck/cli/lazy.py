"""A command group that imports a command when it is called, so that ``--help`` stays fast."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose commands live in separate modules.

    Args:
        table: for each command, its module in ``datacheck.cli`` and its line in the help, in
            display order. The module's attribute is named like the command, with ``_`` for ``-``.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **more: Any) -> None:
        super().__init__(*args, **more)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in display order."""
        del ctx
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        del ctx
        from datacheck.plugins import resolve

        if cmd_name not in self._table:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = resolve(f"datacheck.cli.{self._table[cmd_name][0]}:{name}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in self._table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for an unknown name, suggest a similar one."""
        if args and args[0] not in self._table and not args[0].startswith("-"):
            near = get_close_matches(args[0], self._table, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(self._table)}."
            msg = f"no command is called {args[0]!r}. {hint}"
            raise click.UsageError(msg, ctx)
        return super().resolve_command(ctx, args)
