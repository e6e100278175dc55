"""Batches that NVIDIA DALI decodes on the GPU and the engine reads there; pixels are neither stored nor copied back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageAccessError, ImageError, RunError
from ....engines.geometry import Geometry
from ...host.paths import has_file
from ...images.contents import ABSENT
from ...images.dali import DaliDecoder
from ..decoding import DecodedCase
from .feeding import Batch

if TYPE_CHECKING:
    from ...datasets.base import Case
    from ..cell import CellWork

__all__ = ["DaliFeed", "DaliSource"]

_BUFFERS: Final = 2


@dataclass(frozen=True)
class DaliSource:
    """The source of a dataset whose images DALI decodes on the GPU: the engine uses a `DaliFeed` instead of calling it.

    A call raises RunError: an engine that needs pixels on the host can only use prepared images.
    """

    dataset: str

    def __call__(self, case: Case, /) -> tuple[NDArray[np.uint8], int, int]:
        raise RunError(
            f"The decoder dali needs room for the prepared images of {self.dataset}; give --cache, raise "
            "--cache-limit, or use --decoder cpu."
        )


class DaliFeed:
    """Decodes `batches` of (chunk, last of it, cases) on the GPU, while the engine computes the previous batch."""

    def __init__(
        self,
        cupy: Any,
        batches: Sequence[tuple[int, bool, Sequence[Case]]],
        cell: CellWork,
        geometry: Geometry,
        *,
        device: int | None,
    ) -> None:
        self._cupy, self._batches, self._geometry, self._findings = cupy, batches, geometry, tuple(cell.findings)
        self._contents, self._draw = cell.contents, cell.draw
        largest = max((len(cases) for _, _, cases in batches), default=1)
        read = cell.contents.read
        self._decoder = DaliDecoder([geometry], batch=largest, threads=cell.workers, device=device, read=read)
        shape = (largest, 1, geometry.size, geometry.size)
        self._ring = [cupy.empty(shape, np.uint8) for _ in range(_BUFFERS)]
        self._copied: list[Batch | None] = [None] * _BUFFERS
        self._stream = cupy.cuda.Stream(non_blocking=True)

    def __iter__(self) -> Iterator[Batch]:
        with self._decoder:
            for number, (chunk, last, cases) in enumerate(self._batches):
                place = number % _BUFFERS
                earlier = self._copied[place]
                if earlier is not None and earlier.copied is not None:
                    earlier.copied.synchronize()
                batch = self._decode(chunk, last, cases, self._ring[place])
                self._copied[place] = batch
                yield batch

    def close(self) -> None:
        """Does nothing: no other thread runs."""

    def _decode(self, chunk: int, last: bool, cases: Sequence[Case], buffer: Any) -> Batch:
        cupy = self._cupy
        present = [place for place, case in enumerate(cases) if has_file(case.image)]
        errors: dict[int, ImageError] = {}
        sizes: dict[int, tuple[int, int]] = {}
        for decoded in self._decoder.batches([cases[place].image for place in present], errors):
            places = [present[number] for number in decoded.numbers]
            sizes.update(zip(places, decoded.sizes, strict=True))
            with self._stream:
                pixels = cupy.from_dlpack(decoded.tensors[0])
                buffer[cupy.asarray(np.array(places, np.int64))] = pixels.reshape(len(places), *buffer.shape[1:])
            # The decoder reuses its memory for the next images.
            self._stream.synchronize()
        failed = {present[number]: error for number, error in errors.items()}
        items = [self._item(case, sizes.get(place), failed.get(place)) for place, case in enumerate(cases)]
        return Batch(chunk, last, items, self._closed_up(buffer, sorted(sizes)))

    def _closed_up(self, buffer: Any, places: Sequence[int]) -> Any:
        """The pixels of these places, moved to the front."""
        if list(places) != list(range(len(places))):
            with self._stream:
                buffer[: len(places)] = buffer[self._cupy.asarray(np.array(places, np.int64))]
            self._stream.synchronize()
        return buffer[: len(places)]

    def _item(self, case: Case, size: tuple[int, int] | None, error: ImageError | None) -> DecodedCase:
        from ...images.geometry import field_of_view

        if error is not None:
            image = ABSENT if isinstance(error, ImageAccessError) else self._contents.hash_of(case.image)
            return DecodedCase(case, "unreadable", str(error), image=image)
        if size is None:
            return DecodedCase(case, "missing", "the image file does not exist", image=ABSENT)
        grid = case.size or size
        masks, sub_pixel, faults = self._draw(case, grid, self._findings)
        frame, image = field_of_view(self._geometry, *size), self._contents.hash_of(case.image)
        return DecodedCase(case, "ok", None, None, frame, masks, sub_pixel, grid, faults, image)
