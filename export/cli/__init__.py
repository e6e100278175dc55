"""The command `xbench-export`: options in, a bundle out. What a subcommand needs is imported when it runs."""

from __future__ import annotations

from .export_command import main

__all__ = ["main"]
