"""A clock of run and trust directories that never stands still: what holds only within one second fails every time."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Callable

from xbench_fast.runtime.results import run_directory
from xbench_fast.runtime.trust.probes import directory


def tick(patch: Callable[..., None]) -> None:
    """Every time that a directory writes is a second after the one before."""
    begun = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    seconds = itertools.count()

    def now() -> str:
        return (begun + datetime.timedelta(seconds=next(seconds))).isoformat(timespec="seconds")

    for module in (run_directory, directory):
        patch(module, "now", now)
