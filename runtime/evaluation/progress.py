"""Progress of an evaluation: bars with rates on a terminal or in a notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Protocol

from ...engines.visible_text import visible_text
from ..data.datasets.region_boxes import FAULTS

if TYPE_CHECKING:
    from rich.console import Console

_SECONDS_TO_FIRST_LINE = 5.0  # whoever reads a log wants to know soon whether something happens
_SECONDS_BETWEEN_LINES = 30.0  # where lines stay, as in a log
_SECONDS_BETWEEN_BARS = 0.2  # where a bar replaces the last one
_NAMED = 12  # names that a line lists


class Advance(Protocol):
    """Counts finished cases, of which some may have failed."""

    def __call__(self, count: int, failed: int = 0) -> None: ...


class Progress(Protocol):
    """`say` prints a line; `cell` opens a cell of `total` cases, or other units, and yields a function that counts
    finished ones."""

    def say(self, line: str) -> None: ...

    def cell(self, title: str, total: int, unit: str = "cases") -> AbstractContextManager[Advance]: ...


class PlainProgress:
    """Lines for logs and pipes: the first after 5 seconds of a cell, then at most one per half minute."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock

    def say(self, line: str) -> None:
        self._write(line)

    @contextmanager
    def cell(self, title: str, total: int, unit: str = "cases") -> Iterator[Advance]:
        start = self._clock()
        done, lost, due = 0, 0, start + _SECONDS_TO_FIRST_LINE

        def advance(count: int, failed: int = 0) -> None:
            nonlocal done, lost, due
            done, lost = done + count, lost + failed
            now = self._clock()
            if now >= due and 0 < done < total:
                due = now + _SECONDS_BETWEEN_LINES
                rate = done / (now - start)
                left = f"{rate:.1f}/s, {(total - done) / rate:.0f} s to go"
                self._write(f"{title}: {done} of {total} {unit}{_lost(lost)}, {left}")

        yield advance


class RichProgress:
    """One bar per cell, with failures, rate and remaining time."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def cell(self, title: str, total: int, unit: str = "cases") -> Iterator[Advance]:
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(),
        )
        with progress.Progress(*columns, console=self._console, transient=True) as bars:
            task = bars.add_task(title, total=total, rate="")
            lost = 0

            def advance(count: int, failed: int = 0) -> None:
                nonlocal lost
                lost += failed
                bars.advance(task, count)
                speed = bars.tasks[0].speed
                rate = f"{speed:.1f}/s" if speed else ""
                bars.update(task, rate=f"{rate}{_lost(lost)}")

            yield advance


class SilentProgress:
    """No output."""

    def say(self, line: str) -> None:
        pass

    @contextmanager
    def cell(self, title: str, total: int, unit: str = "cases") -> Iterator[Advance]:
        yield lambda count, failed=0: None


class NotebookProgress:
    """One bar per cell in a Jupyter notebook, drawn by the notebook's display without widgets; lines are printed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock

    def say(self, line: str) -> None:
        print(visible_text(line))

    @contextmanager
    def cell(self, title: str, total: int, unit: str = "cases") -> Iterator[Advance]:
        from IPython.display import HTML, display

        start = shown = self._clock()
        done = lost = 0

        def bar() -> Any:
            seconds = self._clock() - start
            rate = done / seconds if seconds else 0.0
            left = f" {rate:.1f}/s, {max(0, total - done) / rate:.0f} s to go" if rate else ""
            drawn = f"<progress value={done} max={max(total, 1)}></progress> {done} of {total}{_lost(lost)}{left}"
            return HTML(f"{escape(visible_text(title))} {drawn}")

        handle = display(bar(), display_id=True)

        def advance(count: int, failed: int = 0) -> None:
            nonlocal done, lost, shown
            done, lost = done + count, lost + failed
            if self._clock() - shown >= _SECONDS_BETWEEN_BARS or done >= total:
                shown = self._clock()
                handle.update(bar())

        try:
            yield advance
        finally:
            handle.update(HTML(""))


def progress_for(console: Console) -> Progress:
    """Bars in a notebook or when `console` is a terminal, else plain lines through it."""
    if console.is_jupyter:
        return NotebookProgress()
    rich = RichProgress(console)
    return rich if console.is_terminal else PlainProgress(rich.say)


def _lost(failed: int) -> str:
    return f", {failed} failed" if failed else ""


def not_asked_line(prompt_set: str, classes: Sequence[str], total: int) -> str:
    """The message about classes of a dataset without a prompt: a mean over the others is not a mean over all."""
    return (
        f"{len(classes)} of {total} classes are not asked for, as the prompt set '{prompt_set}' does not have them: "
        f"{some_names(classes)}"
    )


def some_names(names: Sequence[str]) -> str:
    """The first of many names, for a message."""
    return ", ".join([*names[:_NAMED], *["..."] * (len(names) > _NAMED)]) or "none"


def cell_summary(cases: int, computed: int, coverage: Mapping[str, int], seconds: float, unread: str) -> str:
    """The last line of a cell: cases, rate, what could not be read (`unread`), and regions that leave their image."""
    text = f"{cases} cases"
    if computed < cases:
        text += f" ({cases - computed} taken over from before)"
    if computed:
        text += f", {computed / max(seconds, 1e-9):.1f} cases/s"
    if unread:
        text += f"; {unread}"
    if faults := fault_words(coverage):
        text += f"; {faults} (xbench-fast datasets check names them)"
    return text


def fault_words(counts: Mapping[str, int]) -> str:
    """The regions with a fault of each kind, in words; empty if there is none."""
    words = {
        "outside": "outside their image and not counted",
        "clipped": "partly outside their image and clipped",
        "empty": "without a pixel and not counted",
    }
    parts = [f"{counts[fault]} {words[fault]}" for fault in FAULTS if counts.get(fault)]
    return f"regions: {', '.join(parts)}" if parts else ""
