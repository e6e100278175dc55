"""The command `xbench-fast`. One file per group of commands. Other modules are imported when a command runs."""

from __future__ import annotations

from .app import main

__all__ = ["main"]
