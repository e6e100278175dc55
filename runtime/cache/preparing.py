"""Decoding a dataset ahead of any evaluation: every image once, for all the geometries asked for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass

from ...engines.errors import ImageAccessError, ImageError
from ..images.decode import decode_ahead
from ..images.decoders import CPU, Decoder
from .prepared_keys import Identity, file_identity
from .prepared_set import Filled, PreparedSet

__all__ = ["Preparation", "prepare"]

_GPU_BATCH = 64


@dataclass(frozen=True)
class Preparation:
    """What became of the images of a dataset: `decoded` now, `ready` before, `missing` or `unreadable`."""

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
    found: Counter[Filled] = Counter()
    on_gpu = _fill_on_gpu(images, cases, threads, decoder)
    with closing(decode_ahead(images.fill, cases, threads, window=4 * threads)) as filled:
        for state in filled:
            found[state] += 1
            advance(1)
    seconds = time.monotonic() - start
    found["ready"] -= on_gpu
    found["decoded"] += on_gpu
    return Preparation(
        len(cases), found["decoded"], found["ready"], found["missing"], found["unreadable"], round(seconds, 3)
    )


def _fill_on_gpu(images: PreparedSet, cases: range, threads: int, decoder: Decoder) -> int:
    """Decodes what the stores of the decoder's geometries lack; returns how many images became ready."""
    stores = images.stores(decoder.on_gpu)
    if not stores:
        return 0
    from ..images.dali import DaliDecoder

    done, tried = 0, set[int]()
    geometries = [store.geometry for store in stores]
    with DaliDecoder(geometries, batch=_GPU_BATCH, threads=threads, device=decoder.device) as dali:
        for start in range(0, len(cases), _GPU_BATCH):
            wanted: list[tuple[int, Identity]] = []
            for index in cases[start : start + _GPU_BATCH]:
                slot = stores[0].slot(index)
                with suppress(FileNotFoundError, ImageError):
                    identity = file_identity(stores[0].path(slot))
                    if slot not in tried and any(store.lacks(slot, identity) for store in stores):
                        wanted.append((slot, identity))
                        tried.add(slot)
            for (slot, identity), made in zip(
                wanted, dali.decode([stores[0].path(slot) for slot, _ in wanted]), strict=True
            ):
                for place, store in enumerate(stores):
                    if isinstance(made, ImageAccessError):
                        # Not left to the exact decoder either: a store holds the pixels of one decoder.
                        store.skip(slot, str(made))
                    elif isinstance(made, ImageError):
                        store.refuse(slot, str(made), identity)
                    else:
                        store.put(slot, made[0][place], made[1:], identity)
                done += not isinstance(made, ImageError)
    return done
