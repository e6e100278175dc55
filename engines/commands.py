"""The group class of the command lines `xbench-fast` and `xbench-export`: each command is imported when it is run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from .registry import did_you_mean

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """`targets` maps the name of a command to ("module:object", summary), relative to the package `package`.

    The list of commands shows the summaries and imports no command."""

    def __init__(self, *arguments: Any, targets: Mapping[str, tuple[str, str]], package: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.targets, self._package = targets, package

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without importing anything."""
        return list(self.targets)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in self.targets:
            return None
        module, _, attribute = self.targets[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module, self._package), attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The names and their summaries, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.targets.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click; the error for an unknown name ends with the most similar command."""
        if args[0] not in self.targets and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"There is no command '{args[0]}': {did_you_mean(args[0], self.targets)}.")
        return super().resolve_command(ctx, args)
