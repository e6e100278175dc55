"""Prepares the images of a dataset in several geometries; each image is decoded once, also before an evaluation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from ....engines.errors import ImageAccessError, ImageError
from ....engines.geometry import Geometry
from ..datasets.dataset import Case
from ..images.contents import Contents, FileState, file_state
from ..images.decode import decode_ahead
from ..images.decoders import CPU, Decoder
from .image_store import PreparedStore

Filled = Literal["ready", "decoded", "missing", "unreadable"]

_GPU_BATCH = 64


class PreparedSet:
    """One store per geometry, over the same cases. Use as a context manager.

    Thread-safe, unless two threads request the same case at the same time.
    """

    def __init__(self, stores: Sequence[PreparedStore], stack: ExitStack) -> None:
        self._stores = {store.geometry.key: store for store in stores}
        for store in stores:
            store.others = [other for other in stores if other is not store]
        self._stack = stack

    @classmethod
    def open(
        cls,
        cache_root: Path,
        dataset_name: str,
        cases: Sequence[Case],
        geometries: Sequence[Geometry],
        *,
        reader: Callable[[Geometry], str] | None = None,
        wait: Callable[[Path], None] | None = None,
    ) -> PreparedSet:
        """Opens the stores as `PreparedStore.open` does; `reader`: the decoder of a geometry. Raises RunError."""
        distinct = {geometry.key: geometry for geometry in geometries}
        with ExitStack() as stack:
            # Always in the same order, so that two processes never wait for each other's stores (deadlock).
            stores = [
                stack.enter_context(
                    PreparedStore.open(
                        cache_root,
                        dataset_name,
                        cases,
                        distinct[key],
                        reader=reader(distinct[key]) if reader else None,
                        wait=wait,
                    )
                )
                for key in sorted(distinct)
            ]
            opened = cls(stores, stack.pop_all())
        opened.use(Contents())
        return opened

    def __enter__(self) -> PreparedSet:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def use(self, contents: Contents) -> None:
        """Enters what is read of image files in `contents`, and answers from it whether a file changed."""
        for store in self._stores.values():
            store.contents = contents

    @property
    def notes(self) -> list[str]:
        """The reasons why stores do not write to disk."""
        return [store.note for store in self._stores.values() if store.note]

    @property
    def damaged(self) -> int:
        """How many prepared images were damaged and are decoded again, in any geometry."""
        return len(set().union(*(store.damaged for store in self._stores.values())))

    def stores(self, wanted: Callable[[Geometry], bool]) -> list[PreparedStore]:
        """The stores of the geometries that are `wanted`."""
        return [store for store in self._stores.values() if wanted(store.geometry)]

    def source(self, geometry: Geometry) -> PreparedStore:
        """The source of the pixels in one geometry. It stores a decoded image in all geometries."""
        return self._stores[geometry.key]

    def fill(self, index: int) -> Filled:
        """Prepares one case in all geometries, and returns the outcome. Raises RunError."""
        stores = list(self._stores.values())
        index = stores[0].slot(index)
        try:
            state = file_state(stores[0].path(index))
            wanted = next((store for store in stores if store.lacks(index, state)), None)
            if wanted is not None:
                wanted.load(index)
                return "decoded"
            stores[0].find(index, state)
        except FileNotFoundError:
            return "missing"
        except ImageError:
            return "unreadable"
        return "ready"


@dataclass(frozen=True)
class Preparation:
    """Number of images of a dataset by state: `decoded` now, `ready` before, `missing` or `unreadable`."""

    cases: int
    decoded: int
    ready: int
    missing: int
    unreadable: int
    seconds: float

    def __str__(self) -> str:
        text = f"{self.cases} images: {self.decoded} decoded, {self.ready} ready before"
        if self.decoded:
            text += f", {self.decoded / max(self.seconds, 1e-9):.1f}/s"
        if self.missing or self.unreadable:
            text += f"; {self.missing} missing, {self.unreadable} unreadable"
        return text


def prepare(
    images: PreparedSet, cases: range, threads: int, advance: Callable[[int], None], decoder: Decoder = CPU
) -> Preparation:
    """Prepares the cases at the positions `cases` in `threads` threads; memory does not grow with their number.

    Raises RunError, and EngineError when the decoder fails.
    """
    start = time.monotonic()
    counts: Counter[Filled] = Counter()
    on_gpu = _fill_on_gpu(images, cases, threads, decoder)
    with closing(decode_ahead(images.fill, cases, threads, window=4 * threads)) as filled:
        for state in filled:
            counts[state] += 1
            advance(1)
    seconds = time.monotonic() - start
    counts["ready"] -= on_gpu
    counts["decoded"] += on_gpu
    return Preparation(
        len(cases), counts["decoded"], counts["ready"], counts["missing"], counts["unreadable"], round(seconds, 3)
    )


def _fill_on_gpu(images: PreparedSet, cases: range, threads: int, decoder: Decoder) -> int:
    """Decodes the images that the stores of the decoder's geometries lack; returns the number of images now ready."""
    stores = images.stores(decoder.on_gpu)
    if not stores:
        return 0
    from ..images.dali import DaliDecoder

    done, tried, dali = 0, set[int](), None
    geometries = [store.geometry for store in stores]
    read = stores[0].contents.read
    with ExitStack() as stack:
        for start in range(0, len(cases), _GPU_BATCH):
            wanted: list[tuple[int, FileState]] = []
            for index in cases[start : start + _GPU_BATCH]:
                slot = stores[0].slot(index)
                with suppress(FileNotFoundError, ImageError):
                    state = file_state(stores[0].path(slot))
                    if slot not in tried and any(store.lacks(slot, state) for store in stores):
                        wanted.append((slot, state))
                        tried.add(slot)
            if not wanted:
                continue
            if dali is None:  # not before an image is lacking: the next model finds them all
                dali = stack.enter_context(
                    DaliDecoder(geometries, batch=_GPU_BATCH, threads=threads, device=decoder.device, read=read)
                )
            for (slot, state), made in zip(
                wanted, dali.decode([stores[0].path(slot) for slot, _ in wanted]), strict=True
            ):
                for number, store in enumerate(stores):
                    if isinstance(made, ImageAccessError):
                        # The exact decoder is not used instead: a store holds the pixels of one decoder only.
                        store.skip(slot, str(made))
                    elif isinstance(made, ImageError):
                        store.refuse(slot, str(made), state)
                    else:
                        store.put(slot, made[0][number], made[1:], state)
                done += not isinstance(made, ImageError)
    return done
