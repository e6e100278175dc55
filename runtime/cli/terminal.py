"""Where commands print their tables."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["make_console"]

_WIDTH_OF_A_FILE = 200


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; wide enough not to break tables where the output is a file or a pipe.

    `stderr`: for what is told on the way while the output itself is data.
    """
    from rich.console import Console

    plain = not (sys.stderr if stderr else sys.stdout).isatty() and "COLUMNS" not in os.environ
    return Console(width=_WIDTH_OF_A_FILE if plain else None, stderr=stderr)
