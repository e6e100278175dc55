"""A command group whose subcommands are imported when they are asked for."""

from __future__ import annotations

import importlib

import click

__all__ = ["LazyGroup"]

_COMMANDS = {
    "wrap": ".wrap_command:wrap_command",
    "plan": ".plan_command:plan_command",
    "triton": ".triton_command:triton_command",
}
"""Name -> "module:object", relative to this package."""


class LazyGroup(click.Group):
    """`xbench-export` and what stands behind it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, without importing anything."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        target = _COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, attribute = target.partition(":")
        found: click.Command = getattr(importlib.import_module(module, __package__), attribute)
        return found
