"""The comparison of the graphs with the model, minutes for a large one, says how much is left."""

from __future__ import annotations

from xbench_fast.export.parity.compare_graphs import Countdown


def test_a_line_every_ten_seconds() -> None:
    lines, times = list[str](), iter([0.0, 4.0, 12.0, 13.0, 30.0, 60.0])
    counter = Countdown(40, lines.append, lambda: next(times))
    for _ in range(5):
        counter.add(8)
    assert lines == [
        "parity: 16 of 40 pictures compared, 18 s to go",
        "parity: 32 of 40 pictures compared, 8 s to go",
    ], "the last picture needs no line"
