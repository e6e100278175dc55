"""Opens the engine of the next bundle in a thread, while the cells of the current one are computed.

Reading a bundle, checking its hashes and making a session take seconds, in which the device would have nothing to do.
One engine at most is open in advance. Whatever keeps it from being opened, such as memory that the current engine
holds, is dropped without a word: at its turn it is opened again, alone, and what fails then is its own fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Self

from ...engines.base import Engine, Neighbour
from ...engines.bundle import Bundle
from ...engines.errors import XBenchError

Say = Callable[[str], None]


class NotInAdvance(Exception):
    """An engine that cannot be opened while another one runs; internal to this package."""


class Turn(Neighbour):
    """What an engine is opened with: where its lines go, and how it shares the device with the other engine.

    ahead: it is opened while another one runs. Its lines then wait for `begin`, so that the log has the order of
    engines that are opened one after the other. It must not build a plan: kernels are timed for that, on a device that
    nothing else uses.
    """

    def __init__(self, opening: NextEngine, say: Say, *, ahead: bool) -> None:
        self.ahead = ahead
        self._opening, self._say = opening, say
        self._lines: list[str] = []

    def say(self, line: str) -> None:
        """Shows a line of the engine, or keeps it until `begin`."""
        if self.ahead:
            self._lines.append(line)
        else:
            self._say(line)

    def begin(self) -> None:
        """Makes the engine the current one."""
        self.ahead = False
        for line in self._lines:
            self._say(line)
        self._lines.clear()

    @property
    def busy(self) -> bool:
        return self._opening.busy

    def give_way(self) -> bool:
        """Whether the other engine gave its memory back. Raises NotInAdvance for the engine opened in advance."""
        if self.ahead:
            raise NotInAdvance
        return self._opening.drop()


@dataclass(frozen=True)
class Opened:
    """An open engine, and the context manager that closes it."""

    bundle: Bundle
    engine: Engine
    closing: AbstractContextManager[Engine]
    turn: Turn


class NextEngine:
    """The engine that is opened in advance. Use as a context manager, in one thread; leaving waits and closes.

    bundles: in the order of their turns. open_bundle: returns the open engine of one, or None where no cell needs it;
    it runs in a thread.
    """

    def __init__(self, bundles: Sequence[Path], open_bundle: Callable[[Path, Turn], Opened | None], say: Say) -> None:
        self._after = dict(pairwise(bundles))
        self._open, self._say = open_bundle, say
        self._thread: Thread | None = None
        self._opened: Opened | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    @property
    def busy(self) -> bool:
        """Whether the engine is being opened now. Once it is not, this stays so until the next `start_after`."""
        return self._thread is not None and self._thread.is_alive()

    def turn(self) -> Turn:
        """For an engine that is opened now, in the caller's thread."""
        return Turn(self, self._say, ahead=False)

    def start_after(self, path: Path) -> None:
        """Begins to open the engine of the bundle that follows the one at `path`, if any."""
        following = self._after.get(path)
        if following is not None:
            self._thread = Thread(target=self._work, args=(following,), name="next-engine")
            self._thread.start()

    def take(self, stack: ExitStack) -> Opened | None:
        """The engine of the bundle whose turn it is, to be closed with `stack`; None where it is not open."""
        self._join()
        opened, self._opened = self._opened, None
        if opened is not None:
            stack.push(opened.closing)
        return opened

    def drop(self) -> bool:
        """Closes the engine, once its opening has ended; whether there was one."""
        self._join()
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(XBenchError):
                opened.closing.__exit__(None, None, None)
        return opened is not None

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self, path: Path) -> None:
        try:
            self._opened = self._open(path, Turn(self, self._say, ahead=True))
        # Also what a third party's engine raises: at its turn it is opened again, and what fails then is raised.
        except BaseException:
            self._opened = None
