"""Opens the sources of a cell: its pixels, prepared or from the image files on every read, and its regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...engines.errors import RunError
from ...engines.geometry import Geometry
from ..data.cache.preparing import prepare
from ..data.datasets.pixels import PixelSource, direct_source
from ..data.datasets.region_grid import DrawRegions, draw_regions
from ..data.images.decoders import CPU, Decoder
from ..results.loaded_dataset import LoadedDataset

if TYPE_CHECKING:
    from ..data.cache.preparing import PreparedSet

OpenMasks = Callable[[LoadedDataset], AbstractContextManager[DrawRegions]]
OpenSource = Callable[[LoadedDataset, Geometry], AbstractContextManager[PixelSource]]
Say = Callable[[str], None]


@dataclass(frozen=True)
class CacheFolder:
    """The folder of prepared images, and its size limit in bytes; None: no limit."""

    path: Path
    limit: int | None = None


def source_opener(
    cache: Path | None,
    say: Say,
    *,
    geometries: Callable[[LoadedDataset], Sequence[Geometry]] | None = None,
    limit: int | None = None,
    decoder: Decoder = CPU,
    threads: int = 1,
) -> OpenSource:
    """A function that opens the source of a dataset's pixels for one geometry; without `cache` nothing is stored.

    `geometries`: all that the run needs of a dataset; an image is decoded once for all of them. `limit`: size limit of
    the cache in bytes. A `decoder` on the GPU fills the cache, in `threads` threads, when a source is opened, once for
    all models. `say` gets messages about the cache. Opening raises RunError when the cache cannot be written, or has no
    room for what a decoder on the GPU makes.
    """

    @contextmanager
    def opened(loaded: LoadedDataset, geometry: Geometry) -> Iterator[PixelSource]:
        wanted = [geometry, *(geometries(loaded) if geometries else ())]
        prepared = None
        if decoder.name == "dali" and not decoder.on_gpu(geometry):
            say(f"{loaded.name}: DALI cannot make {geometry.key}, so its images are decoded on the CPU")
        if cache is not None:
            folder = CacheFolder(cache, limit)
            prepared = open_prepared(folder, loaded, wanted, say, decoder=decoder)
            # Together too large: open at least the geometry that is needed now.
            prepared = prepared or open_prepared(folder, loaded, [geometry], say, decoder=decoder)
        if prepared is None and decoder.on_gpu(geometry):
            raise RunError(
                f"The decoder dali needs room for the prepared images of {loaded.name}; give --cache, raise "
                "--cache-limit, or use --decoder cpu."
            )
        if prepared is None:
            if cache is not None:
                say(f"{loaded.name}: its prepared images would not fit the cache limit, so they are not kept")
            yield direct_source(geometry, loaded.contents)
            return
        with prepared:
            for note in prepared.notes:
                say(note)
            if decoder.on_gpu(geometry):
                say(f"{loaded.name}: {prepare(prepared, loaded.span, threads, lambda count: None, decoder)}")
            yield prepared.source(geometry)
            if prepared.damaged:
                say(f"{loaded.name}: {prepared.damaged} prepared images were damaged, and were decoded again")

    return opened


@contextmanager
def drawn_each_time(loaded: LoadedDataset) -> Iterator[DrawRegions]:
    """Draws every region when it is needed, and keeps nothing."""
    yield draw_regions


def masks_opener(cache: Path | None, say: Say, limit: int | None = None) -> OpenMasks:
    """A function that opens the regions of a dataset on the evaluation grid: drawn once and kept in `cache`, unless
    there is none or they do not fit its `limit`. Opening raises RunError when the cache cannot be written."""
    if cache is None:
        return drawn_each_time

    @contextmanager
    def opened(loaded: LoadedDataset) -> Iterator[DrawRegions]:
        from ..data.cache.eviction import make_room
        from ..data.cache.mask_store import MaskStore, mask_bytes, mask_folder

        cases, digest, former = loaded.dataset.cases(), loaded.regions_digest, loaded.former_regions_digests
        if limit is not None:
            need, folder = mask_bytes(cases), mask_folder(cache, loaded.name, digest, former)[0]
            if need > limit or not make_room(cache, limit, need, {folder})[1]:
                yield draw_regions
                return
        verify = loaded.contents.verify
        with MaskStore.open(cache, loaded.name, cases, digest, former=former, verify=verify) as store:
            yield store
            if store.damaged:
                say(f"{loaded.name}: the masks of {len(store.damaged)} images were damaged, and were drawn again")

    return opened


def open_prepared(
    cache: CacheFolder,
    loaded: LoadedDataset,
    geometries: Sequence[Geometry],
    say: Say,
    *,
    wait: Callable[[Path], None] | None = None,
    decoder: Decoder = CPU,
) -> PreparedSet | None:
    """The prepared images of a dataset in these geometries, after making room for them; None: the limit is too small.

    The stores cover all cases, not only the limited ones: a trial on a few uses the stores of the full evaluation.
    Raises RunError.
    """
    from ..data.cache.eviction import make_room
    from ..data.cache.preparing import PreparedSet
    from ..data.cache.store_files import store_bytes
    from ..data.cache.store_layout import store_folder
    from ..host.sizes import format_bytes

    cases = loaded.dataset.cases()
    if cache.limit is not None:
        distinct = {geometry.key: geometry for geometry in geometries}.values()
        need = sum(store_bytes(len(cases), geometry) for geometry in distinct)
        if need > cache.limit:
            return None
        folders = {store_folder(cache.path, loaded.name, cases, g, decoder.reader(g))[0] for g in distinct}
        for store in make_room(cache.path, cache.limit, need, folders)[0]:
            say(f"cache limit: {format_bytes(store.bytes)} of {store.dataset}, {store.geometry} were deleted")
    if wait is None and any(map(decoder.on_gpu, geometries)):

        def wait(folder: Path) -> None:
            say(f"{loaded.name}: waiting for another process that prepares {folder}")

    opened = PreparedSet.open(cache.path, loaded.name, cases, geometries, reader=decoder.reader, wait=wait)
    opened.use(loaded.contents)
    return opened
