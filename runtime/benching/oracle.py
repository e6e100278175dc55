"""Reference results for checks: independent code, on new random inputs for every run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ...engines.base import Scores
    from ...engines.bundle import Bundle

TOLERANCES: Final = {"fp32": 1e-3, "tf32": 5e-3, "fp16": 2e-2, "bf16": 8e-2}
"""Largest ||out - reference|| / ||reference|| by precision: ten times what rounding alone was seen to cause."""

_LEVELS = 101


def oracle_scores(bundle: Bundle, pixels: NDArray[np.uint8], text: NDArray[np.float32]) -> Scores:
    """Scores by ONNX Runtime on the CPU, image by image and without its graph optimisations."""
    from ...engines.backends.ort_session import CPU_PROVIDER, open_session
    from ...engines.base import Scores

    graph: Path | bytes = bundle.file("image")
    if bundle.manifest.precision == "bf16":
        from ...engines.backends.rounding import with_rounding

        graph = with_rounding(bundle.file("image"))
    session = open_session(graph, [CPU_PROVIDER], None, optimise=False)
    parts = [session.run(["logits", "saliency"], {"pixels": image[None], "text": text}) for image in pixels]
    return Scores(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def check_scores(scores: Scores, wanted: Scores, precision: str) -> str | None:
    """What is wrong with `scores`, or None."""
    limit = TOLERANCES.get(precision, TOLERANCES["fp32"])
    for name in ("logits", "saliency"):
        a, b = (np.asarray(getattr(side, name), np.float64) for side in (scores, wanted))
        if a.shape != b.shape:
            return f"{name} have the shape {a.shape} instead of {b.shape}"
        error = float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(b)), 1e-30)
        if not error <= limit:  # true for a NaN too
            return (
                f"{name} differ from onnxruntime-cpu by {error:.2g} of their norm (at most {limit:g} for {precision})"
            )
    return None


def naive_counts(grid: NDArray[np.float32], mask: NDArray[np.bool_]) -> dict[str, Any]:
    """Counts of one pair over the whole frame: a loop over rows for the map, one over thresholds for the counts."""
    height, width = mask.shape
    one = np.float32(1)
    y, x = (_places(grid.shape[i], (height, width)[i]) for i in range(2))
    values = np.empty((height, width), np.float32)
    for row in range(height):
        upper, lower = (grid[y[i][row]][x[0]] * (one - x[2]) + grid[y[i][row]][x[1]] * x[2] for i in range(2))
        values[row] = upper * (one - y[2][row]) + lower * y[2][row]
    span = values.max() - values.min()
    flat = not (np.isfinite(values).all() and span > 0)
    normal = np.zeros_like(values) if flat else (values - values.min()) / span
    area, overlap = np.empty(_LEVELS, np.int64), np.empty(_LEVELS, np.int64)
    for k in range(_LEVELS):
        marked = normal >= np.float32(k / 100)
        area[k], overlap[k] = marked.sum(), np.logical_and(marked, mask).sum()
    argmax = 0 if flat else int(values.argmax())
    return {"area": area, "overlap": overlap, "region": int(mask.sum()), "argmax": argmax,
            "hit": bool(not flat and mask.flat[argmax]), "degenerate": flat}  # fmt: skip


def check_counts(
    counts: Any, grids: NDArray[np.float32], masks: NDArray[np.bool_], where: NDArray[np.intp] | None = None
) -> str | None:
    """What is wrong with the counts of a sweep of whole frames at the pairs `where` (default all), or None."""
    for pair in range(len(grids)) if where is None else where:
        for name, value in naive_counts(grids[pair], masks[pair]).items():
            if not np.array_equal(getattr(counts, name)[pair], value):
                return f"the sweep's {name} of a random pair differs from a loop over pixels"
    return None


def check_decode(path: Path, pixels: NDArray[np.uint8]) -> str | None:
    """What is wrong with the decoded `pixels` of a grey PNG or JPEG, or None (other files are not checked)."""
    from PIL import Image

    if path.suffix.lower() not in (".png", ".jpg", ".jpeg"):
        return None
    with Image.open(path) as image:
        if image.mode != "L":
            return None
        wanted = np.asarray(image)
    slack = 0 if path.suffix.lower() == ".png" else 2  # JPEG decoders round the same transform differently
    if pixels.shape != wanted.shape or np.abs(pixels.astype(int) - wanted).max() > slack:
        return f"{path.name} is decoded to other pixels than Pillow's"
    return None


def _places(cells: int, pixels: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """For every pixel, the lower and upper cell and the weight of the upper one; half-pixel centres."""
    source = np.clip((np.arange(pixels) + 0.5) / pixels * cells - 0.5, 0.0, cells - 1.0)
    low = np.floor(source).astype(np.int64)
    return low, np.minimum(low + 1, cells - 1), (source - low).astype(np.float32)
