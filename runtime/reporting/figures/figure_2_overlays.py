"""Figure 2 as the paper draws it: a grid of overlays, findings down and models across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.sweep.maps import scaled_map
from ...host.protocols import find_protocol
from ...results.numbers.run_numbers import Results
from ...results.schema import GRID
from .figure import Figure, conditions, finish
from .style import COLUMN, PAGE, drawing_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from ..gallery.model import Gallery, GalleryCase, Overlay

_NAME, _TITLE = "figure-2-overlays", "Figure 2: maps of the models and regions of the radiologists"
_ROWS, _MODELS = 5, 7
_TRUTH, _LEVEL, _HALO = "#35d0ff", "#ffffff", "#000000"
_LEFT, _RIGHT, _TOP, _BOTTOM, _GAP = 0.36, 0.04, 0.24, 0.45, 0.04  # inches around and between the pictures
_TALLEST = 9.0  # of the drawing, which has to fit a page
_OPACITY, _FIXED = 0.65, 50


@dataclass(frozen=True, eq=False)
class GridRow:
    """A case of the gallery with its radiograph, uint8 [H, W], and the overlays of the models."""

    case: GalleryCase
    pixels: NDArray[np.uint8]
    overlays: Sequence[Overlay]


def overlays_figure(results: Results, gallery: Gallery) -> Figure | None:
    """Up to five findings, those with most pairs of each dataset in turn; None if no radiograph can be read."""
    models = gallery.models[:_MODELS]
    rows = grid_rows(results, gallery, models)
    if not rows:
        return None
    with drawing_style(_NAME):
        return finish(draw_overlays(rows, models, gallery), _NAME, _TITLE, _caption(results, gallery, rows, models))


def grid_rows(results: Results, gallery: Gallery, models: Sequence[str]) -> list[GridRow]:
    """The rows: of each finding the case with the median Dice (else the gallery's first) that all `models` have."""
    chosen: dict[tuple[str, str], int] = {}
    for number, case in enumerate(gallery.cases):
        shown = {overlay.model for overlay in gallery.overlays if overlay.case == number}
        key = (case.dataset, case.finding)
        if case.image is not None and shown >= set(models) and (key not in chosen or case.why == "median Dice"):
            chosen[key] = number
    places: dict[str, int] = {}
    ordered = []
    pairs = {
        (dataset, name): max(cell.count("pointing", name) for cell in results.column(dataset))
        for dataset, name in chosen
    }
    for key in sorted(chosen, key=lambda key: -pairs[key]):
        places[key[0]] = places.get(key[0], -1) + 1
        ordered.append((places[key[0]], list(gallery.titles).index(key[0]), chosen[key]))
    rows: list[GridRow] = []
    room, side = _TALLEST - _TOP - _BOTTOM, _widths(models)[1]
    for _, _, number in sorted(ordered):
        case = gallery.cases[number]
        pixels = gallery.originals.pixels(case.dataset, case.case_id) if len(rows) < _ROWS else None
        if pixels is not None:
            room -= side * pixels.shape[0] / pixels.shape[1] + _GAP
            if room < 0 and rows:
                break
            overlay_of = {overlay.model: overlay for overlay in gallery.overlays if overlay.case == number}
            rows.append(GridRow(case, pixels, [overlay_of[model] for model in models]))
    return rows


def _widths(models: Sequence[str]) -> tuple[float, float]:
    """The width of the drawing and of a picture, in inches."""
    width = COLUMN if len(models) < 4 else PAGE
    return width, (width - _LEFT - _RIGHT + _GAP) / max(2, len(models)) - _GAP


def draw_overlays(rows: Sequence[GridRow], models: Sequence[str], gallery: Gallery) -> Drawing:
    """The drawing: each picture in its own shape; below it the scale of the maps and what the lines are."""
    from matplotlib.figure import Figure as Drawing

    width, side = _widths(models)
    heights = [side * row.pixels.shape[0] / row.pixels.shape[1] for row in rows]
    height = _TOP + sum(heights) + _GAP * (len(rows) - 1) + _BOTTOM
    drawing = Drawing(figsize=(width, height))
    top = height - _TOP
    several = len(gallery.titles) > 1
    for row, tall in zip(rows, heights, strict=True):
        pictures: dict[str, Any] = {}
        for column, (model, overlay) in enumerate(zip(models, row.overlays, strict=True)):
            left = _LEFT + column * (side + _GAP)
            axes = drawing.add_axes((left / width, (top - tall) / height, side / width, tall / height))
            _picture(axes, row, overlay, pictures)
            if row is rows[0]:
                axes.set_title(_fitted(model, side), loc="center", fontsize=7, pad=3)
            if not column:
                place = f"\n{_fitted(gallery.titles[row.case.dataset], tall)}" if several else ""
                axes.set_ylabel(_fitted(row.case.finding, tall) + place, fontsize=7, labelpad=2)
        top -= tall + _GAP
    _keys(drawing, width, height)
    return drawing


def _fitted(name: str, inches: float) -> str:
    """A name, shortened to the room that it has at 7 points; the caption has it whole."""
    room = max(4, int(inches / 0.058))
    return name if len(name) <= room else f"{name[: room - 1]}…"


def _picture(axes: Axes, row: GridRow, overlay: Overlay, pictures: dict[str, Any]) -> None:
    from matplotlib import colormaps

    height, width = row.pixels.shape
    extent = (0, width, height, 0)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    grey = axes.imshow(row.pixels, cmap="gray", vmin=0, vmax=255, extent=extent, interpolation="none", aspect="auto")
    if len(row.overlays) > 1:
        _share(grey, pictures)
    sweeping = find_protocol(overlay.protocol).sweeping
    values, thresholds = scaled_map(overlay.saliency, frame=overlay.frame, sweeping=sweeping), sweeping.thresholds
    share = np.clip((values - thresholds[0]) / (thresholds[-1] - thresholds[0]), 0, 1)
    heat = colormaps["inferno"](share, bytes=True)
    heat[..., 3] = np.round(255 * _OPACITY * share)
    axes.imshow(heat, extent=extent, interpolation="none", aspect="auto")
    runs = np.array(row.case.truth, np.intp)
    region = np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(GRID, GRID)
    lines = [(region, _TRUTH, "solid")]
    if sweeping.tau_scale == 1 and not overlay.degenerate:
        lines.append((values >= thresholds[_FIXED], _LEVEL, "dashed"))
    y, x = (np.arange(-0.5, GRID + 1) / GRID * side for side in (height, width))
    for mask, colour, style in lines:
        if mask.any():
            framed = np.pad(mask, 1).astype(np.float32)
            axes.contour(x, y, framed, [0.5], colors=_HALO, linewidths=1.6, linestyles="solid")
            axes.contour(x, y, framed, [0.5], colors=colour, linewidths=0.9, linestyles=style)
    if not overlay.degenerate:
        down, across = divmod(overlay.argmax, GRID)
        look: dict[str, Any] = {"marker": "o" if overlay.hit else "x", "markerfacecolor": "none", "linestyle": "none"}
        for colour, line in ((_HALO, 2.2), ("#ffffff", 1.0)):
            axes.plot((across + 0.5) * width / GRID, (down + 0.5) * height / GRID, markersize=4.5,
                      markeredgecolor=colour, markeredgewidth=line, **look)  # fmt: skip
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)


def _share(image: Any, pictures: dict[str, Any]) -> None:
    """Lets the pictures of a row be one array where it is drawn unchanged, which a PDF then holds once."""
    make = image.make_image

    def made(renderer: Any, magnification: float = 1.0, unsampled: bool = False) -> Any:
        pixels, left, bottom, transform = make(renderer, magnification, unsampled)
        return (pictures.setdefault("grey", pixels) if unsampled else pixels), left, bottom, transform

    image.make_image = made


def _keys(drawing: Drawing, width: float, height: float) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.lines import Line2D

    axes = drawing.add_axes((_LEFT / width, 0.24 / height, 0.9 / width, 0.07 / height))
    scale = drawing.colorbar(ScalarMappable(cmap="inferno"), cax=axes, orientation="horizontal", ticks=[0, 1])
    scale.outline.set_linewidth(0.4)
    axes.tick_params(length=2, pad=1, width=0.4)
    axes.set_title("map", fontsize=7, pad=2, loc="left")
    dark = {"color": _HALO, "linewidth": 0.9}
    none = {"linestyle": "none", "markerfacecolor": "none", "markeredgecolor": _HALO, "markersize": 4}
    handles = [
        Line2D([], [], color=_TRUTH, linewidth=1.4, label="region"),
        Line2D([], [], linestyle="dashed", label="map at 0.5", **dark),  # type: ignore[arg-type]
        Line2D([], [], marker="o", label="hit", **none),  # type: ignore[arg-type]
        Line2D([], [], marker="x", label="miss", **none),  # type: ignore[arg-type]
    ]
    across = 4 if width > COLUMN else 2
    place = ((_LEFT + 1.0) / width, 0.0)
    drawing.legend(handles=handles, loc="lower left", bbox_to_anchor=place, ncols=across, frameon=False,
                   columnspacing=1.0, handletextpad=0.5, handlelength=1.8, labelspacing=0.2, borderpad=0.2)  # fmt: skip


def _caption(results: Results, gallery: Gallery, rows: Sequence[GridRow], models: Sequence[str]) -> str:
    shown = [f"{r.case.finding}, {gallery.titles[r.case.dataset]}, {r.case.case_id} ({r.case.why})" for r in rows]
    sentences = [
        f"Maps of {', '.join(models)}, from left to right, over radiographs in their own shape.",
        "Colour: the normalised map, clear where it is low; cyan line: the radiologists' region; dashed line: where "
        "the map reaches 0.5; ring: its maximum inside the region, cross: outside.",
        f"From top to bottom: {'; '.join(shown)}.",
        "Findings are those with most pairs of each dataset in turn, cases those with the median Dice of a finding.",
    ]
    if len(gallery.models) > len(models):
        sentences.append(f"Not drawn for lack of room: {', '.join(gallery.models[len(models) :])}.")
    sentences += conditions(results, (cell for cell in results.finished if cell.model in models))
    return " ".join(sentences)
