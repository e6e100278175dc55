"""The contents of a gallery, and the same as plain data for the page.

Everything is on the evaluation grid of 224 x 224 pixels (docs/metrics.md §1).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....engines.visible_text import visible_line
from ...host.protocols import find_protocol
from ...results.schema import GRID
from .pictures import Originals


@dataclass(frozen=True)
class GalleryCase:
    """One (image, class) pair of a dataset, shown for every model that has it.

    why: the reason of the choice, such as "best Dice". image: index into `Gallery.images`, None if the picture
    is not available. truth: row-major run lengths of the region, 0 and 1 in turn, starting with 0. phrase: what the
    image was asked instead of the class, of a dataset that asks phrases and whose files are there.
    """

    dataset: str
    case_id: str
    finding: str
    why: str
    image: int | None
    truth: tuple[int, ...]
    phrase: str = ""


@dataclass(frozen=True, eq=False)
class Overlay:
    """The map of one model in one case, with its counts.

    case: index into `Gallery.cases`. saliency: float32 [h, w], as swept, before normalisation. frame: (y0, x0, y1, x1),
    the part of the image that it covers. area, overlap: int32 [101], as stored. best: level of the threshold that is
    best for the class. argmax: row * 224 + column. protocol: name of the protocol the counts were made by.
    """

    model: str
    case: int
    protocol: str
    saliency: NDArray[np.float32]
    frame: tuple[float, float, float, float]
    area: NDArray[np.int32]
    overlap: NDArray[np.int32]
    best: int
    argmax: int
    hit: bool
    degenerate: bool


@dataclass(frozen=True)
class Gallery:
    """images: 8-bit grey JPEG, the whole frame: in its native size where `native` says so, else squashed to 224 x 224.
    titles: dataset -> its printed name.

    models: in the order of the report. originals: the files of the radiographs. notes: what a reader must know about
    the pictures, such as why some are absent.
    """

    images: tuple[bytes, ...]
    native: tuple[bool, ...]
    cases: tuple[GalleryCase, ...]
    overlays: tuple[Overlay, ...]
    models: tuple[str, ...]
    titles: Mapping[str, str]
    notes: tuple[str, ...] = ()
    originals: Originals = field(default_factory=Originals, compare=False, repr=False)


def gallery_payload(gallery: Gallery) -> dict[str, Any]:
    """Everything the viewer needs, ready for JSON.

    map: float32 [h * w]. counts: uint16 [202], area[101] and overlap[101]; a grid of 224 x 224 has 50,176 pixels.
    arithmetic: per protocol, how a map is swept; thresholds float32 [101].
    """
    datasets, arithmetic = list(gallery.titles), {}
    for name in dict.fromkeys(overlay.protocol for overlay in gallery.overlays):
        sweeping = find_protocol(name).sweeping
        arithmetic[name] = {
            "upsample": sweeping.upsample,
            "normalise": sweeping.normalise,
            "scale": sweeping.tau_scale,
            "thresholds": _base64(sweeping.thresholds.astype("<f4").tobytes()),
        }
    return {
        "grid": GRID,
        "models": list(map(visible_line, gallery.models)),
        "datasets": [{"name": visible_line(name), "title": visible_line(gallery.titles[name])} for name in datasets],
        "arithmetic": arithmetic,
        "images": [_base64(image) for image in gallery.images],
        "native": list(gallery.native),
        "cases": [
            {
                "dataset": datasets.index(case.dataset),
                "id": visible_line(case.case_id),
                "finding": visible_line(case.finding),
                "why": visible_line(case.why),
                "image": case.image,
                "truth": list(case.truth),
                **({"phrase": visible_line(case.phrase)} if case.phrase else {}),
            }
            for case in gallery.cases
        ],
        "overlays": [_overlay(overlay, gallery.models) for overlay in gallery.overlays],
    }


def overlay_size(cells: int) -> int:
    """Characters of an overlay whose map has this number of cells."""
    return 4 * -(-4 * cells // 3) + 4 * -(-404 // 3) + 260


def picture_size(image: bytes) -> int:
    """Characters of a picture."""
    return 4 * -(-len(image) // 3) + 3


def truth_size(runs: int) -> int:
    """Approximate characters of a case whose region has this number of runs; a run is at most 5 digits, mostly 3."""
    return 4 * runs + 200


def _overlay(overlay: Overlay, models: tuple[str, ...]) -> dict[str, Any]:
    counts = np.concatenate([overlay.area, overlay.overlap]).astype("<u2")
    return {
        "case": overlay.case,
        "model": models.index(overlay.model),
        "protocol": overlay.protocol,
        "grid": list(overlay.saliency.shape),
        "frame": list(overlay.frame),
        "map": _base64(overlay.saliency.astype("<f4").tobytes()),
        "counts": _base64(counts.tobytes()),
        "best": overlay.best,
        "argmax": overlay.argmax,
        "hit": overlay.hit,
        "degenerate": overlay.degenerate,
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
