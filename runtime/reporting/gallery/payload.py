"""A gallery as plain data for the page: numbers as they are, arrays as base64 of little-endian bytes."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from ....metrics_gpu.grounding.protocols import protocol
from ....metrics_gpu.sweep.thresholds import threshold_table
from ...results.schema import GRID
from .model import Gallery, GalleryCase, Overlay

__all__ = ["gallery_payload", "overlay_size", "picture_size", "truth_size"]


def gallery_payload(gallery: Gallery) -> dict[str, Any]:
    """Everything the viewer needs, ready for JSON.

    map: float32 [h * w]. counts: uint16 [202], area[101] and overlap[101]; a grid of 224 x 224 has 50,176 pixels.
    arithmetic: per protocol, how a map is swept; thresholds float32 [101].
    """
    protocols = list(dict.fromkeys(overlay.protocol for overlay in gallery.overlays))
    datasets = list(gallery.titles)
    return {
        "grid": GRID,
        "models": list(gallery.models),
        "datasets": [{"name": name, "title": gallery.titles[name]} for name in datasets],
        "arithmetic": {name: _arithmetic(name) for name in protocols},
        "images": [_base64(image) for image in gallery.images],
        "cases": [_case(case, datasets) for case in gallery.cases],
        "overlays": [_overlay(overlay, gallery.models) for overlay in gallery.overlays],
    }


def overlay_size(cells: int) -> int:
    """Characters of an overlay whose map has so many cells."""
    return 4 * -(-4 * cells // 3) + 4 * -(-404 // 3) + 260


def picture_size(image: bytes) -> int:
    """Characters of a picture."""
    return 4 * -(-len(image) // 3) + 3


def truth_size(runs: int) -> int:
    """Characters of a case whose region has so many runs, about; a run is at most 5 digits and mostly 3."""
    return 4 * runs + 200


def _arithmetic(name: str) -> dict[str, Any]:
    how = protocol(name)
    thresholds = threshold_table(how.comparison, how.tau_scale).astype("<f4")
    return {
        "upsample": how.upsample,
        "normalise": how.normalise,
        "scale": how.tau_scale,
        "thresholds": _base64(thresholds.tobytes()),
    }


def _case(case: GalleryCase, datasets: list[str]) -> dict[str, Any]:
    return {
        "dataset": datasets.index(case.dataset),
        "id": case.case_id,
        "finding": case.finding,
        "why": case.why,
        "image": case.image,
        "truth": list(case.truth),
    }


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
