"""Decoding in separate processes, for files that may take long: a process is ended when no request waits for it.

A decoder in a thread cannot be stopped, and some hold Python's lock while they work. A process gives back its processor
and its memory when it is killed, and a decoder that crashes takes only its own process with it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Final

import msgspec
import numpy as np

from ....engines.errors import ImageError
from ....engines.geometry import Geometry
from ..protocol.request_errors import Internal
from ..protocol.requests import Request
from .request_images import Prepared, shown_side

_LOG = logging.getLogger(__name__)
_COMMAND: Final = (sys.executable, "-P", "-m", f"{__package__}.decoder_process")

HEAD: Final = 8
"""Bytes of the length, little-endian, that precedes each message."""

READY: Final = b"\x01"
"""What a process writes when it has started."""


class DecodeJob(msgspec.Struct, array_like=True, frozen=True):
    """The request to a process: files, a `Geometry.key`, the `shown_side` of `display`, and how long it may take."""

    images: list[bytes]
    geometry: str
    side: int
    seconds: int


class DecodedImage(msgspec.Struct, array_like=True, frozen=True):
    """A `Prepared`; `shown`: height and width of `display`, (0, 0) for none."""

    pixels: bytes
    size: tuple[int, int]
    frame: tuple[float, float, float, float]
    shown: tuple[int, int]
    display: bytes


class DecodeReply(msgspec.Struct, array_like=True, frozen=True):
    """The images of a job, or the sentence of an ImageError."""

    images: list[DecodedImage]
    error: str = ""


class Decoders:
    """At most `most` processes, each started when it is needed and kept. Used from one event loop."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._idle: list[asyncio.Future[Process]] = []  # some may still start
        self._all: set[Process] = set()

    async def prepare(self, request: Request, geometry: Geometry, seconds: float) -> list[Prepared]:
        """As `prepare_request`, for files. Cancelling kills the process; after `seconds` it ends by itself.

        Raises ImageError, also when the decoder crashes, and Internal.
        """
        # A process whose server was killed has nobody who ends it.
        job = DecodeJob(list(request.images), geometry.key, shown_side(request.outputs), math.ceil(seconds) + 1)
        async with self._free:
            started = await self._take()
            process = started.result()
            try:
                reply = await _exchange(process, msgspec.msgpack.encode(job))
                self._idle.append(started)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise _crashed(await process.wait()) from error
            finally:
                if started not in self._idle and process.returncode is None:
                    process.kill()
        decoded = msgspec.msgpack.decode(reply, type=DecodeReply)
        if decoded.error:
            raise ImageError(decoded.error)
        return [_prepared(item, geometry.size) for item in decoded.images]

    async def close(self) -> None:
        """Ends every process."""
        await asyncio.gather(*self._idle, return_exceptions=True)
        for process in self._all:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in self._all))
        self._all.clear()
        self._idle.clear()

    async def _take(self) -> asyncio.Future[Process]:
        self._all = {process for process in self._all if process.returncode is None}
        while True:
            started = self._idle.pop() if self._idle else asyncio.ensure_future(self._start())
            try:
                process = await asyncio.shield(started)
            except asyncio.CancelledError:
                self._idle.append(started)  # else a short timeout would end every process before its first file
                raise
            if process.returncode is None:
                return started

    async def _start(self) -> Process:
        # A session of its own: Ctrl-C in a terminal is for the server, which answers what it accepted.
        process = await asyncio.create_subprocess_exec(
            *_COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
        )
        self._all.add(process)
        assert process.stdout is not None
        if await process.stdout.read(len(READY)) != READY:
            raise _crashed(await process.wait())
        return process


async def _exchange(process: Process, message: bytes) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(len(message).to_bytes(HEAD, "little"))
    process.stdin.write(message)
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(HEAD), "little")
    return await process.stdout.readexactly(length)


def _prepared(item: DecodedImage, size: int) -> Prepared:
    pixels = np.frombuffer(item.pixels, np.uint8).reshape(size, size)
    display = np.frombuffer(item.display, np.uint8).reshape(item.shown) if item.display else None
    return Prepared(pixels, item.size, item.frame, display)


def _crashed(status: int) -> ImageError | Internal:
    """The error for a process that ended without a reply: a signal is the work of its file."""
    if status < 0:
        return ImageError(f"An image cannot be read: its decoder ended with signal {-status}; the file may be damaged.")
    _LOG.error("A process that decodes images ended with status %d", status)
    return Internal()
