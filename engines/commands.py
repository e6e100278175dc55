"""What the command lines `xbench-fast` and `xbench-export` share: groups that import a command when it is run, and
suggestions for a mistyped command or choice."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from .registry import did_you_mean

__all__ = ["CLOSED_PIPE", "Choice", "LazyGroup"]

CLOSED_PIPE = 141
"""The exit status where the reader of a pipe went away, as a shell has it for SIGPIPE."""


class Choice(click.Choice[str]):
    """One of a few words, as in click; the error for another word ends with the most similar one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """The sentence after the option's name."""
        return f"'{value}' is unknown: {did_you_mean(str(value), self.choices)}."


class LazyGroup(click.Group):
    """`targets` maps the name of a command to ("module:object", summary), relative to the package `package`; other
    commands are added as in click.

    The list of commands shows the summaries and imports no command."""

    def __init__(
        self,
        *arguments: Any,
        targets: Mapping[str, tuple[str, str]] | None = None,
        package: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self.targets, self._package = targets or {}, package

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without importing anything."""
        return [*self.targets, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        if cmd_name not in self.targets:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.targets[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module, self._package), attribute)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        """As in click, which exits with status 1 where the reader of a pipe went away."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains once more at exit
            raise click.exceptions.Exit(CLOSED_PIPE) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The names and their summaries, without importing anything."""
        if not self.targets:
            super().format_commands(ctx, formatter)
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self.targets.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in click; the error for an unknown name ends with the most similar command."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"There is no command '{args[0]}': {did_you_mean(args[0], known)}.")
        return super().resolve_command(ctx, args)
