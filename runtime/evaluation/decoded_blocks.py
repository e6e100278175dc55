"""Blocks of cases -> model inputs and regions: prepared cases are read at once, the rest case by case in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..data.datasets.pixels import read_many
from ..data.datasets.region_grid import DrawRegions, ManyRegions, draw_regions
from ..data.images.contents import Contents
from ..data.images.resizing import field_of_view
from .decoded_case import DecodedCase, decode_case
from .drawn import CaseColumns, DrawnPairs

if TYPE_CHECKING:
    from ...engines.geometry import Geometry
    from ..data.datasets.dataset import Case
    from ..data.datasets.pixels import PixelSource
    from ..data.images.views import View

_PIECE = 4  # cases that one task decodes, at most
_BLOCK, _BLOCK_BYTES = 256, 16 << 20  # cases that are read and swept together, at most, and the bytes of their pixels
_NOWHERE = (0.0, 0.0, 1.0, 1.0)

DecodedPiece = tuple[list[tuple[int, DecodedCase]], ManyRegions]
"""Cases that were decoded one by one, with their places in a block, and their regions."""


@dataclass(frozen=True, eq=False)
class Block:
    """Cases with their model inputs. pixels: uint8 [B, planes, S, S], of the readable ones, and `pairs` are theirs."""

    columns: CaseColumns
    pixels: NDArray[np.uint8]
    pairs: DrawnPairs


@dataclass(frozen=True, eq=False)
class CaseReader:
    """Reads cases from `source`, with the regions of `findings` that `draw` draws, as `draw_regions` does.

    contents: those in which `source` enters what it reads. sizes: gets the (height, width) of every image that is read,
    by case. view: the change that `source` makes in every image, which its map must be put back from.
    planes: model inputs of an image, of it and its tiles.
    """

    source: PixelSource
    geometry: Geometry
    findings: Sequence[str]
    contents: Contents
    draw: DrawRegions = draw_regions
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    view: View | None = None
    planes: int = 1

    def begin(self, cases: Sequence[Case], target: NDArray[np.uint8], pool: ThreadPoolExecutor) -> BegunBlock:
        """Reads what is prepared into `target`, uint8 [n, planes, S, S], and hands the other cases to the threads."""
        prepared, sizes, images = read_many(self.source, cases, target)
        self.sizes.update({case.case_id: (h, w) for case, (h, w) in zip(cases, sizes.tolist(), strict=True) if h})
        frames = np.array([self.frame(height, width) for height, width in sizes.tolist()], np.float64)
        stated_sizes = [case.size for case in cases]
        if any(stated_sizes):
            sizes = np.array([size or read for size, read in zip(stated_sizes, sizes.tolist(), strict=True)], np.int32)
        if prepared.all():
            regions = self.draw(cases, sizes, self.findings)
        else:
            places = np.flatnonzero(prepared)
            regions = self.draw([cases[at] for at in places.tolist()], sizes[places], self.findings).at(places)
        rest = np.flatnonzero(~prepared).tolist()
        waiting = [
            pool.submit(self._one_by_one, cases, rest[start : start + _PIECE], target)
            for start in range(0, len(rest), _PIECE)
        ]
        columns = CaseColumns(cases, prepared, images, prepared.copy())
        return BegunBlock(self.findings, columns, target, frames, sizes, regions, waiting)

    def _one_by_one(self, cases: Sequence[Case], places: Sequence[int], target: NDArray[np.uint8]) -> DecodedPiece:
        done = list[tuple[int, DecodedCase]]()
        for at in places:
            decoded = decode_case(cases[at], self.source, self.geometry, (), self.contents)
            if decoded.pixels is not None:
                target[at] = decoded.pixels
                decoded.pixels = None  # memory of a store need not stay in use
                decoded.frame = self.frame(*(decoded.file_size or (0, 0)))
            done.append((at, decoded))
        read = [(at, decoded) for at, decoded in done if decoded.size is not None]
        sizes = np.array([decoded.size for _, decoded in read], np.int32).reshape(-1, 2)
        regions = self.draw([decoded.case for _, decoded in read], sizes, self.findings)
        self.sizes.update({decoded.case.case_id: decoded.file_size for _, decoded in read if decoded.file_size})
        return done, regions.at(np.array([at for at, _ in read], np.intp))

    @cached_property
    def frame(self) -> Callable[[int, int], tuple[float, float, float, float]]:
        """The field of view of a native height and width; 0 where the image was not read."""

        def frame(height: int, width: int) -> tuple[float, float, float, float]:
            if not height:
                return _NOWHERE
            covered = field_of_view(self.geometry, height, width)
            return covered if self.view is None else self.view.frame(covered, self.geometry.size)

        return lru_cache(4096)(frame)


@dataclass(frozen=True, eq=False)
class BegunBlock:
    """A block that is being read. `regions`: of its prepared cases, on native grids of `sizes`, [n, 2]; `waiting`: the
    other cases, with their places."""

    findings: Sequence[str]
    columns: CaseColumns
    target: NDArray[np.uint8]
    frames: NDArray[np.float64]
    sizes: NDArray[np.int32]
    regions: ManyRegions
    waiting: Sequence[Future[DecodedPiece]]

    def result(self) -> Block:
        """Waits for the cases that are read one by one. Raises their errors."""
        columns, cases, pixels = self.columns, self.columns.cases, self.target
        pieces = [piece.result() for piece in self.waiting]
        for singles, _ in pieces:
            columns.put(singles)
            for at, decoded in singles:
                self.frames[at], self.sizes[at] = decoded.frame, decoded.size or (0, 0)
        regions = ManyRegions.joined([self.regions, *(drawn for _, drawn in pieces)])
        columns.faults.extend(regions.faults)
        frames, sizes = self.frames, self.sizes
        if columns.unread:
            places = np.flatnonzero(columns.readable)
            for to, source in enumerate(places.tolist()):
                if to != source:
                    pixels[to] = pixels[source]
            cases, frames, sizes = [cases[at] for at in places.tolist()], frames[places], sizes[places]
            regions = regions._replace(of_case=(np.cumsum(columns.readable) - 1)[regions.of_case])
            pixels = pixels[: len(places)]
        of_case, of_finding, masks, sub_pixel, _ = regions
        pairs = DrawnPairs(self.findings, of_case, of_finding, masks, frames[of_case], sub_pixel, cases, sizes)
        return Block(columns, pixels, pairs)


def read_ahead(
    reader: CaseReader, chunks: Iterable[Sequence[Case]], batch: int, workers: int
) -> Generator[Block, None, None]:
    """The cases of each chunk in blocks of whole batches, read in advance by `workers` threads.

    A block is large while everything is prepared, and a batch where images must be decoded: the engine then need not
    wait for many. The number of blocks in advance bounds the memory. The pixels of a block may be overwritten once the
    next block is asked for. Closing the iterator cancels what has not started.
    """
    pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
    waiting: deque[tuple[NDArray[np.uint8], Future[BegunBlock]]] = deque()
    shape, free = (reader.planes, *[reader.geometry.size] * 2), list[NDArray[np.uint8]]()
    most = max(1, min(_BLOCK, _BLOCK_BYTES // prod(shape)) // batch) * batch
    size, ahead = batch, 1 + -(-2 * _PIECE * workers // batch)
    try:
        for chunk in chunks:
            start = 0
            while start < len(chunk):
                cases = chunk[start : start + size]
                start += size
                memory = _take(free, len(cases), shape)
                waiting.append((memory, pool.submit(reader.begin, cases, memory[: len(cases)], pool)))
                if len(waiting) > (ahead if size < most else 2):
                    memory, block = waiting.popleft()
                    begun = block.result()
                    size = batch if begun.waiting else most
                    yield begun.result()
                    free.append(memory)
        for _, block in waiting:
            yield block.result().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _take(free: list[NDArray[np.uint8]], count: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Room for the pixels of `count` images, from `free` where one of the arrays is large enough.

    Memory that is new costs more time than reading what is prepared into it.
    """
    for index, memory in enumerate(free):
        if len(memory) >= count:
            return free.pop(index)
    return np.empty((count, *shape), np.uint8)
