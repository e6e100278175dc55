"""The command `xbench-export`: options in, a bundle out. Other modules are imported when a subcommand runs."""

from __future__ import annotations

from .export_command import main

__all__ = ["main"]
