"""A console of rich that shows control characters and marks of direction instead of sending them to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from ....engines.commands import CLOSED_PIPE, silence
from ....engines.visible_text import visible_text


class VisibleConsole(Console):
    """As its base, whose own styles and movements of the cursor stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible_text(segment.text))

    def on_broken_pipe(self) -> None:
        """The reader of a pipe went away: rich itself would end with status 1."""
        silence(sys.stdout, sys.stderr)
        raise SystemExit(CLOSED_PIPE)
