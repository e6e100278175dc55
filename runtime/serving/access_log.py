"""One JSON line a request. It never holds what was sent or answered: images, texts, names of files, tokens."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

__all__ = ["AccessLog"]


class AccessLog:
    """Writes to `stream` (default: standard error); without one, or after it failed, nothing is written."""

    def __init__(self, stream: TextIO | None = None, *, enabled: bool = True) -> None:
        self._stream = (sys.stderr if stream is None else stream) if enabled else None

    @property
    def enabled(self) -> bool:
        """Whether lines are written."""
        return self._stream is not None

    def write(self, **fields: Any) -> None:
        """Adds the time to `fields` and writes them. Requests are answered even when the log cannot be written."""
        if self._stream is None:
            return
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields})
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None
