"""Decoding ahead, in order and bounded; progress in plain lines."""

from __future__ import annotations

import io
import time
from typing import Any

from rich.console import Console
from xbench_fast.runtime.data.images.decode import decode_ahead
from xbench_fast.runtime.evaluation.progress import PlainProgress, RichProgress


def test_decoding_keeps_its_order_and_its_window() -> None:
    taken: list[int] = []

    def work(item: int) -> int:
        time.sleep(0.002 * (item % 3))
        return item * item

    def items() -> Any:
        for item in range(40):
            taken.append(item)
            yield item

    ahead = []
    for index, value in enumerate(decode_ahead(work, items(), 3, window=5)):
        assert value == index * index
        ahead.append(len(taken) - index)
    assert len(taken) == 40 and max(ahead) <= 5


def test_an_abandoned_decoder_cancels_what_has_not_started() -> None:
    started: list[int] = []

    def work(item: int) -> int:
        started.append(item)
        time.sleep(0.01)
        return item

    stream = decode_ahead(work, iter(range(1000)), 1, window=50)
    assert next(stream) == 0
    stream.close()
    assert len(started) < 50


def test_plain_progress_speaks_after_five_seconds_and_then_every_half_minute() -> None:
    lines: list[str] = []
    moments = iter([100.0, 104.9, 105.0, 134.9, 135.0, 165.0])
    with PlainProgress(lines.append, lambda: next(moments)).cell("a on b", 50) as advance:
        for _ in range(5):
            advance(10)
    assert lines == ["a on b: 20 of 50 cases, 4.0/s, 8 s to go", "a on b: 40 of 50 cases, 1.1/s, 9 s to go"]


def test_progress_names_failures() -> None:
    lines: list[str] = []
    moments = iter([0.0, 5.0, 10.0, 40.0])
    with PlainProgress(lines.append, lambda: next(moments)).cell("ask", 50, "pairs") as advance:
        advance(0, 0)
        advance(10, 2)
        advance(10, 1)
    assert lines == [
        "ask: 10 of 50 pairs, 2 failed, 1.0/s, 40 s to go",
        "ask: 20 of 50 pairs, 3 failed, 0.5/s, 60 s to go",
    ]
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    with RichProgress(screen).cell("ask", 50, "pairs") as advance:
        advance(10, 2)
        advance(10, 1)
    assert ", 3 failed" in screen.file.getvalue()  # type: ignore[attr-defined]
