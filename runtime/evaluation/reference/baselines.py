"""Baselines: reference maps that do not depend on the image, to compare models with (docs/metrics.md §4, §5, §13).

    baseline:ones     the whole image at every threshold: the floor of every best-threshold number
    baseline:center   one Gaussian in the middle of the frame, standard deviation a quarter of the side
    baseline:chance   a random 14 x 14 map for every pair, drawn from its case and class
    baseline:prior    the mean region of the finding in other patients (`prior`)

`ones` is a mask, not a map: a constant map would be normalised to zeros, so its counts are given directly. All of its
pixels tie; its pointing is the expected hit of a random one of them, the mean region fraction, which is the chance
level. The maps of the others are swept like a model's maps.

Baselines need only the regions. A pair also counts if its image is missing, unless the image's size is needed to draw
the region.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ConfigError, ImageError
from ....engines.registry import did_you_mean
from ....metrics_gpu.sweep.counts import Counts
from ...data.datasets.region_grid import region_masks
from ...data.images.contents import ABSENT, Contents
from ...results.schema import GRID, THRESHOLD_COUNT
from ..decoded_case import DecodedCase
from ..drawn import DrawnPairs
from ..measure import Measure
from ..scoring import Scored

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case

PREFIX = "baseline:"
SEED = 0
_CELLS = 14  # the grid of a ViT with patches of 16 at 224 pixels

BASELINES = {
    "ones": "the whole image at every threshold",
    "center": "a centred Gaussian, standard deviation a quarter of the side",
    "chance": f"a random {_CELLS} x {_CELLS} map per pair, seed {SEED}",
    "prior": "the mean region of the finding in other patients",
}


def split_baselines(models: Sequence[str]) -> tuple[list[str], list[str]]:
    """The baselines among the names of models, with their prefix, and the other names. Raises ConfigError."""
    baselines = list(dict.fromkeys(name for name in models if name.startswith(PREFIX)))
    for name in baselines:
        valid = [PREFIX + other for other in BASELINES]
        if name not in valid:
            raise ConfigError(f"There is no baseline '{name}': {did_you_mean(name, valid)}.")
    return baselines, [name for name in models if not name.startswith(PREFIX)]


def describe_baseline(name: str) -> str:
    """A description of a baseline's map; it is part of the key of its results."""
    return BASELINES[name.removeprefix(PREFIX)]


def baseline_grid(name: str) -> tuple[int, int] | None:
    """Height and width of the maps in the rows of a baseline; None if equal for all pairs and not stored."""
    return (_CELLS, _CELLS) if name == f"{PREFIX}chance" else None


def draw_case(case: Case, findings: Sequence[str], contents: Contents | None = None) -> DecodedCase:
    """A case with the masks of its regions and without pixels.

    A case whose regions cannot be drawn, because only its image gives their size, is "missing" or "unreadable". Raises
    DataError for a region that does not fit its image. `contents` gets the size that is read of the image.
    """
    if not any(name in case.regions for name in findings):
        return DecodedCase(case, "ok")
    size, image = case.size or _own_size(case), None
    if size is None:
        contents = contents or Contents()
        try:
            size = contents.read_size(case.image)
        except FileNotFoundError:
            why = "the image file does not exist, and the size of its regions is unknown"
            return DecodedCase(case, "missing", why, image=ABSENT)
        except ImageError as error:
            return DecodedCase(case, "unreadable", str(error), image=ABSENT)
        image = contents.size_hash(case.image)
    masks, sub_pixel, faults = region_masks(case, size, findings)
    return DecodedCase(case, "ok", masks=masks, sub_pixel=sub_pixel, size=size, faults=faults, image=image)


def baseline_scores(name: str, batch: Sequence[DecodedCase], findings: Sequence[str], measure: Measure) -> Scored:
    """The counts of those drawn cases of a batch that are readable, of any baseline but prior; there is no score, so
    logits are null."""
    drawn = [case for case in batch if case.status == "ok"]
    pairs = DrawnPairs.of(drawn, findings)
    if name == f"{PREFIX}ones":
        return Scored(pairs, _count_whole(pairs.masks))
    if name == f"{PREFIX}center":
        maps = np.repeat(center_map()[None], len(pairs), axis=0)
    else:
        ids = [drawn[case].case.case_id for case in pairs.of_case.tolist()]
        drawn_maps = [_random(case, findings[at]) for case, at in zip(ids, pairs.of_finding.tolist(), strict=True)]
        maps = np.array(drawn_maps, np.float32).reshape(-1, _CELLS, _CELLS)
    counts, native = measure.count(pairs, maps)
    return Scored(pairs, counts, maps=None if baseline_grid(name) is None else maps, native=native)


def _count_whole(packed: NDArray[np.uint8]) -> Counts:
    """The counts of a mask of all pixels, for regions of packed bits."""
    from ....metrics_gpu.sweep.masks import unpack_masks

    masks = unpack_masks(packed, GRID)
    region = masks.sum(axis=(1, 2), dtype=np.int32)
    return Counts(
        area=np.full((len(masks), THRESHOLD_COUNT), GRID * GRID, np.int32),
        overlap=np.repeat(region[:, None], THRESHOLD_COUNT, axis=1),
        region=region,
        argmax=np.zeros(len(masks), np.int32),
        hit=masks[:, 0, 0],  # the first of the tied maxima in row-major order
        degenerate=np.zeros(len(masks), np.bool_),
    )


def center_map() -> NDArray[np.float32]:
    offset = (np.arange(GRID) + 0.5) / GRID - 0.5
    side = np.exp(-0.5 * (offset / 0.25) ** 2)
    return (side[:, None] * side[None, :]).astype(np.float32)


def _random(case_id: str, finding: str) -> NDArray[np.float32]:
    """Uniform in [0, 1), from a hash: the same on every machine and in any order of the pairs."""
    seed = f"{SEED}\0{case_id}\0{finding}".encode(errors="surrogatepass")
    words = np.frombuffer(hashlib.shake_128(seed).digest(2 * _CELLS * _CELLS), "<u2")
    return (words.reshape(_CELLS, _CELLS) / np.float32(65536)).astype(np.float32)


def _own_size(case: Case) -> tuple[int, int] | None:
    """The grid that a mask among the regions was drawn on; boxes and polygons have none."""
    for region in case.regions.values():
        for part in getattr(region, "parts", (region,)):
            size = getattr(part, "size", None)
            if size is not None:
                return int(size[0]), int(size[1])
    return None
