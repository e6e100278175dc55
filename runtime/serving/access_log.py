"""One JSON line per request. It never holds what clients send or receive: images, texts, names of files, tokens."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from ...engines.visible_text import visible_json


class AccessLog:
    """Writes to `stream` (default: standard error) while it is `enabled`; a stream that fails disables it."""

    def __init__(self, stream: TextIO | None = None, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self._stream = sys.stderr if stream is None else stream

    def write(self, **fields: Any) -> None:
        """Adds the time to `fields` and writes them. Requests are answered even when the log cannot be written."""
        if not self.enabled:
            return
        line = visible_json(json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields}))
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self.enabled = False
