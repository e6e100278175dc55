"""How many images of a model may be on their way at once, and when all of them are through."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..protocol.errors import Draining, Overloaded, TooLarge

__all__ = ["Admission"]

_LONGEST_WAIT: Final = 60
_MEMORY: Final = 0.1  # weight of the newest batch in the running mean


class Admission:
    """Counts the images that were accepted and not answered yet; used from one event loop.

    At most `capacity` images are on their way; a request that does not fit is refused at once, as a whole.
    """

    def __init__(self, capacity: int, name: str) -> None:
        self.capacity = capacity
        self.on_their_way = 0
        self._name = name
        self._closed = False
        self._seconds: float | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def closed(self) -> bool:
        """Whether nothing is accepted any more."""
        return self._closed

    @contextmanager
    def admit(self, images: int) -> Iterator[None]:
        """Holds room for `images` while the request is worked on. Raises as `check`."""
        self.check(images)
        self.on_their_way += images
        self._empty.clear()
        try:
            yield
        finally:
            self.on_their_way -= images
            if self.on_their_way == 0:
                self._empty.set()

    def check(self, images: int) -> None:
        """Raises TooLarge when `images` never fit, Overloaded when they do not fit now, Draining after `close`."""
        if self._closed:
            raise Draining("The server is shutting down; ask another one.", retry_after=5)
        if images > self.capacity:
            raise TooLarge(f"The request holds {images} images, {self._name} takes {self.capacity} at once.")
        if self.on_their_way + images > self.capacity:
            raise Overloaded(
                f"{self._name} has {self.on_their_way} of {self.capacity} images on their way; try again later.",
                retry_after=self.retry_after,
            )

    @property
    def full(self) -> bool:
        """Whether not a single image would be accepted."""
        return self._closed or self.on_their_way >= self.capacity

    @property
    def retry_after(self) -> int:
        """Whole seconds, at least 1, after which the images on their way are through, as far as can be told."""
        seconds = (self._seconds or 0.0) * self.on_their_way
        return min(_LONGEST_WAIT, max(1, math.ceil(seconds)))

    def took(self, seconds: float, images: int) -> None:
        """Notes that the engine answered `images` in `seconds`."""
        newest = seconds / images
        self._seconds = newest if self._seconds is None else (1 - _MEMORY) * self._seconds + _MEMORY * newest

    def close(self) -> None:
        """Refuses everything from now on."""
        self._closed = True

    async def wait_empty(self) -> None:
        """Returns when every accepted image was answered."""
        await self._empty.wait()
