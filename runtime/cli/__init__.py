"""The command `xbench-fast`. One file per group of commands; what they need is imported when they run."""

from __future__ import annotations

from .app import main

__all__ = ["main"]
