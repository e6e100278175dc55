"""Deletion, insertion and region deletion (docs/trust-probes.md §3): which pixels are filled, and what the scores say.

V. Petsiuk, A. Das, K. Saenko, "RISE", BMVC 2018, with other cells, fills and controls: cells of the model's own grid
instead of pixels, a grey or blurred fill instead of black, which is air in a radiograph, and differences from random
orders instead of areas, which cannot be compared between models or fills.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import named_stream

Grey = NDArray[np.uint8]
Region = NDArray[np.bool_]

FILLS: Final = ("mean", "blur16")
RANDOM_ORDERS: Final = 3  # of the same image, with which the order of the map is compared (docs/trust-probes.md §3.1)
PLACEMENTS: Final = 8
LEAST_SCORE: Final = 0.1
"""Pairs with a smaller score of the whole image say nothing: it has not far to fall."""
MOST_FILL: Final = 0.5
"""A fill is void for a pair where the filled image keeps more than this share of the score."""
_MOST_STEPS: Final = (
    14  # a step for each row of the grid of 14 x 14, and no more for finer ones (docs/trust-probes.md §3.1)
)
_BLUR: Final = 14  # standard deviations of the blur in the width of the image: 16 px of 224
_MOVES: Final = 14  # steps of a placement in the width of the image: 16 px of 224


def fill_of(image: Grey, name: str) -> Grey:
    """What takes the place of deleted pixels: uint8, the shape of `image`, uint8 [S, S].

    `mean`: the image's own mean grey; `blur16`: the image through a Gaussian with a standard deviation of S / 14 pixels
    (one cell of a 14 x 14 grid), edges repeated. Both rounded half to even. Raises ValueError for another name.
    """
    if name == "mean":
        return np.full_like(image, np.rint(image.mean(dtype=np.float64)))
    if name != "blur16":
        raise ValueError(f"unknown fill {name!r}; known: {', '.join(FILLS)}")
    from scipy.ndimage import gaussian_filter

    smooth = gaussian_filter(image.astype(np.float64), image.shape[0] / _BLUR, mode="nearest")
    return np.asarray(np.rint(smooth), np.uint8)


def cell_order(saliency: NDArray[np.float32]) -> NDArray[np.intp]:
    """The cells of a map [h, w] by descending saliency, flat indices intp [h * w]; ties by the lowest index.

    A map that is not finite has no order: its cells keep their places, as in a constant map.
    """
    flat = saliency.reshape(-1)
    return np.argsort(-flat if np.isfinite(flat).all() else np.zeros(flat.shape), kind="stable")


def random_orders(name: str, cells: int, count: int = RANDOM_ORDERS) -> NDArray[np.intp]:
    """`count` random orders of the cells, intp [count, cells], of the stream `name`."""
    bits = named_stream(name).random_raw(count * cells).reshape(count, cells)
    return np.argsort(bits, axis=1, kind="stable")


def steps_of(grid: tuple[int, int]) -> int:
    """In how many steps the cells of a grid (h, w) are filled: a row's worth of cells each, in at most 14 steps."""
    return min(grid[0], _MOST_STEPS)


def inner_stages(start: Grey, end: Grey, order: NDArray[np.intp], grid: tuple[int, int], steps: int) -> Grey:
    """uint8 [steps - 1, S, S]: the images between `start` and `end`, uint8 [S, S] each, which are no part of it.

    In stage k of 1..steps-1 the first round(k * cells / steps) cells of `order` (intp [h * w]) are from `end`. The
    cell of a pixel is the one that holds it when the grid covers the image. Deletion goes from the image to the fill,
    insertion from the fill to the image.
    """
    size = start.shape[0]
    done = np.rint(np.arange(1, steps) * len(order) / steps)
    first = np.empty(len(order), np.uint8)  # the stage, from 0, that is the first to have a cell of `end`
    first[order] = np.searchsorted(done, np.arange(len(order)), side="right")
    rows, columns = (np.arange(size) * cells // size for cells in grid)
    stage_of = first.reshape(grid)[np.ix_(rows, columns)]
    stages = np.empty((steps - 1, size, size), np.uint8)
    # Bits that differ, where a pixel is one of `end`: several times as fast as a choice pixel by pixel.
    np.less_equal(stage_of, np.arange(steps - 1, dtype=np.uint8)[:, None, None], out=stages.view(np.bool_))
    stages *= np.uint8(255)
    stages &= start ^ end
    stages ^= start
    return stages


def curve_area(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Area under curves of scores [..., n + 1], over an axis from 0 to 1: the trapezoids of RISE's evaluation."""
    steps = scores.shape[-1] - 1
    return np.asarray((scores.sum(axis=-1) - scores[..., 0] / 2 - scores[..., -1] / 2) / steps)


def placements(region: Region, taken: Region, name: str, most: int = PLACEMENTS) -> Region:
    """bool [n, S, S], n <= most: the region moved elsewhere in the image, to places that hold no part of `taken`.

    region: bool [S, S]; taken: bool [S, S], every region of the image, this one too. It is moved by multiples of S / 14
    pixels (16 of 224) along both axes, stays inside whole, and where there are more than `most` places, those are drawn
    by the stream `name`. Raises ValueError for an empty region.
    """
    size = region.shape[0]
    rows, columns = np.flatnonzero(region.any(axis=1)), np.flatnonzero(region.any(axis=0))
    if not len(rows):
        raise ValueError("an empty region cannot be moved")
    box = region[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    moves = np.rint(np.arange(-_MOVES + 1, _MOVES) * size / _MOVES).astype(np.intp)
    free = []
    for top in rows[0] + moves:
        for left in columns[0] + moves:
            bottom, right = top + box.shape[0], left + box.shape[1]
            inside = top >= 0 and left >= 0 and bottom <= size and right <= size
            if inside and not (taken[top:bottom, left:right] & box).any():
                free.append((top, left))
    if len(free) > most:
        drawn = np.argsort(named_stream(name).random_raw(len(free)), kind="stable")[:most]
        free = [free[at] for at in sorted(drawn.tolist())]
    moved = np.zeros((len(free), *region.shape), np.bool_)
    for copy, (top, left) in zip(moved, free, strict=True):
        copy[top : top + box.shape[0], left : left + box.shape[1]] = box
    return moved


def mirrored(region: Region, taken: Region) -> Region | None:
    """The region bool [S, S] reflected about the vertical midline; None where it meets `taken`, as in `placements`."""
    other = region[:, ::-1]
    return None if (other & taken).any() else other
