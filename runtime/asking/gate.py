"""How many requests are under way at once: one at first, fewer when the server is busy (docs/ask.md §5)."""

from __future__ import annotations

import threading
from typing import Final

_IN_A_ROW: Final = 20


class Gate:
    """At most `limit` requests under way: 1 until the first answer, then `most`.

    A busy server halves what is under way, 20 answers in a row add one. stopped: nothing new is sent."""

    def __init__(self, most: int) -> None:
        self._most, self.limit = most, 1
        self._running = self._row = self._halvings = 0
        self._changed = threading.Condition()
        self._begun = self.stopped = False

    def enter(self) -> int | None:
        """Waits for a place; a number for `leave`, None once the gate is stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped or self._running < self.limit)
            if self.stopped:
                return None
            self._running += 1
            return self._halvings

    def leave(self, entered: int, *, congested: bool, answered: bool) -> None:
        """Gives the place back, and says how the request went. Requests that were under way together halve once."""
        with self._changed:
            if congested and entered == self._halvings:
                self.limit, self._row = max(1, self._running // 2), 0
                self._halvings += 1
            elif answered and not self._begun:
                self._begun, self.limit = True, self._most
            elif answered:
                self._row += 1
                if self._row >= _IN_A_ROW:
                    self._row, self.limit = 0, min(self._most, self.limit + 1)
            self._running -= 1
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Waits, unless the gate is stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self.stopped, seconds)

    def stop(self) -> None:
        with self._changed:
            self.stopped = True
            self._changed.notify_all()
