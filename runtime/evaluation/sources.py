"""Where a cell's pixels come from: the store of prepared images, or the files themselves each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ...engines.geometry import Geometry
from .decoding import PixelSource, direct_source
from .pairing import LoadedDataset

__all__ = ["OpenSource", "source_opener"]

OpenSource = Callable[[LoadedDataset, Geometry], AbstractContextManager[PixelSource]]


def source_opener(cache: Path | None, say: Callable[[str], None]) -> OpenSource:
    """A function that opens the source of a dataset's pixels for one geometry; without `cache` nothing is kept.

    `say` is told when the store cannot be used. Opening raises RunError when the cache cannot be written.
    """

    @contextmanager
    def opened(loaded: LoadedDataset, geometry: Geometry) -> Iterator[PixelSource]:
        if cache is None:
            yield direct_source(geometry)
            return
        from ..prepared import PreparedStore

        # All cases, not the limited ones: a trial on a few of them then fills the store of the full evaluation.
        with PreparedStore.open(cache, loaded.name, loaded.dataset.cases(), geometry) as store:
            if store.note:
                say(store.note)
            yield store

    return opened
