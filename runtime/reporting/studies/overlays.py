"""One case as a picture: radiograph and truth, beside the heat map or the boxes that a model gave. Pillow only."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import XBenchError
from ....engines.file_names import joined, unique_stems
from ....engines.visible_text import visible_line
from ....metrics_gpu.sweep.maps import scaled_map
from ....metrics_gpu.sweep.masks import GRID, unpack_masks
from ...host.config import DatasetConfig
from ...host.protocols import find_protocol
from ...results.load_rows import StoredRun
from ...results.stored_maps import MapRows
from ..gallery.overlay import blend, outline, png
from ..gallery.pictures import open_originals
from ..gallery.small_pictures import small_pictures
from .columns import Shown
from .kept_maps import kept_maps
from .material import Material
from .study_cell import StudyCell

_SCALE: Final = 2
_TRUTH: Final = (64, 220, 96)
_MARKED: Final = (90, 200, 255)
_POINT: Final = (255, 255, 255)
_WRONG: Final = (255, 170, 60)


def _hit(row: Mapping[str, Any]) -> str:
    if row["degenerate"]:
        return "constant map"
    return {0.0: "miss", 1.0: "hit"}.get(row["hit"], f"{row['hit']:.2f}")


HIT: Final = Shown("hit", _hit)
"""Whether a case is a hit; a share if several maxima tie."""


def draw_overlay(
    maps: MapRows,
    saliency: NDArray[np.float32],
    index: int,
    row: Mapping[str, Any],
    title: str,
    picture: bytes | None,
) -> bytes:
    """PNG, the radiograph with the truth beside the same with the heat map and the contour at the row's threshold.

    maps, saliency: as `kept_maps` gives them; index: which of their pairs. row: `model`, `case`, `class`, `tau`,
    `dice`, `hit`, `end`. picture: an image of the whole frame, 224 x 224; black without one.
    """
    from PIL import Image, ImageDraw

    rules = find_protocol(str(maps.entry.get("protocol", "default")))
    y0, x0, y1, x1 = maps.frames[index].tolist()
    values = scaled_map(saliency[index], frame=(y0, x0, y1, x1), sweeping=rules.sweeping)
    level = round(100 * row["tau"])
    marked = values >= rules.sweeping.thresholds[level]
    truth = unpack_masks(maps.masks[index : index + 1], GRID[1])[0]
    grey = _grey(picture)
    highest = float(values.max())
    share = np.clip(values.astype(np.float64) / highest, 0, 1) if highest > 0 else np.zeros(values.shape)
    plain, heated = _enlarged(grey), _enlarged(blend(grey, share, 0.15 + 0.45 * share))
    for canvas, masks in ((plain, ((truth, _TRUTH),)), (heated, ((truth, _TRUTH), (marked, _MARKED)))):
        for mask, colour in masks:
            canvas[outline(mask.repeat(_SCALE, axis=0).repeat(_SCALE, axis=1), at_border=True)] = colour
    pair = np.concatenate([plain, heated], axis=1)
    lines = (
        f"{row['model']} on {title}: {row['class']}, {row['case']} ({row['end']})",
        f"tau {row['tau']:.2f}, Dice {100 * row['dice']:.1f}, pointing {'hit' if row['hit'] > 0 else 'miss'}",
        "green: truth; blue: marked at tau; cross: maximum",
    )
    image = Image.fromarray(pair)
    if not maps.degenerate[index]:
        y, x = divmod(int(maps.argmax[index]), GRID[1])
        across, down = plain.shape[1] + _SCALE * x + _SCALE // 2, _SCALE * y + _SCALE // 2
        draw = ImageDraw.Draw(image)
        draw.line((across - 6, down, across + 6, down), fill=_POINT)
        draw.line((across, down - 6, across, down + 6), fill=_POINT)
    return _captioned(image, lines)


def draw_boxes(
    boxes: Sequence[tuple[Sequence[float], str]],
    size: tuple[int, int],
    lines: Sequence[str],
    picture: bytes | None,
) -> bytes:
    """PNG, the radiograph with the true boxes beside the same with the given ones too.

    boxes: each with its colour, by `true`, `given`, `wrong` (a given one) or `lost` (a true one that has the colour of
    wrong ones on the right); size: width and height of the image whose pixels they are in; lines: the text below.
    picture: as in `draw_overlay`.
    """
    from PIL import Image, ImageDraw

    ground = _enlarged(_grey(picture))
    wide = ground.shape[1]
    image = Image.fromarray(np.concatenate([ground, ground], axis=1))
    draw = ImageDraw.Draw(image)
    scale = (wide / size[0], ground.shape[0] / size[1])
    colours = (
        {"true": _TRUTH, "lost": _TRUTH},
        {"true": _TRUTH, "lost": _WRONG, "given": _MARKED, "wrong": _WRONG},
    )
    for panel, of in enumerate(colours):
        for (left, top, right, bottom), kind in boxes:
            if kind in of:
                x, y = left * scale[0] + panel * wide, top * scale[1]
                corner = (max(right * scale[0] + panel * wide - 1, x), max(bottom * scale[1] - 1, y))
                draw.rectangle((x, y, *corner), outline=of[kind], width=2)
    return _captioned(image, lines)


def case_pictures(
    run: StoredRun, rows: Sequence[Mapping[str, Any]], datasets: Mapping[str, DatasetConfig]
) -> tuple[dict[tuple[str, str], bytes], list[str]]:
    """(dataset, case) -> picture of the cases of `rows`, and why some are missing or may be of other images.

    datasets: current folders of datasets, used instead of the run's configuration.
    """
    wanted: dict[str, set[str]] = {}
    for row in rows:
        wanted.setdefault(row["dataset"], set()).add(row["case"])
    originals, changed = open_originals(run, wanted, datasets)
    pictures, lacking = small_pictures(run, originals, datasets)
    return pictures, [f"{note} Overlays without a picture have a black ground." for note in (*lacking, *changed)]


def overlay_names(groups: Sequence[tuple[str, ...]]) -> list[str]:
    """The file of each overlay in the folder of a study: its group, and its number among those of this group."""
    counted = Counter[tuple[str, ...]]()
    names = []
    for *parts, last in groups:
        counted[*parts, last] += 1
        names.append(joined(*parts, f"{last}-{counted[*parts, last]}"))
    return [f"overlays/{stem}.png" for stem in unique_stems(names)]


def case_overlays(
    material: Material,
    cells: Sequence[StudyCell],
    rows: Sequence[dict[str, Any]],
    datasets: Mapping[str, DatasetConfig],
) -> tuple[dict[str, bytes], list[str]]:
    """PNG files of cases, and why some are missing or lack the image; their names are set as the rows' `overlay`.

    rows: of these cells, as `draw_overlay` takes them. datasets: as in `case_pictures`.
    """
    pictures, remarks = case_pictures(material.run, rows, datasets)
    files: dict[str, bytes] = {}
    names = overlay_names([(row["model"], row["dataset"], row["end"]) for row in rows])
    for cell in cells:
        shown = [
            (row, name)
            for row, name in zip(rows, names, strict=True)
            if (row["model"], row["dataset"]) == (cell.model, cell.dataset)
        ]
        try:
            maps, saliency = kept_maps(cell, material.run)
        except XBenchError as error:
            remarks.append(f"No overlays of {cell.model} on {cell.title}: {error}")
            continue
        index_of = {key: index for index, key in enumerate(zip(maps.case_id, maps.finding, strict=True))}
        for row, name in shown:
            index = index_of[row["case"], row["class"]]
            picture = pictures.get((cell.dataset, row["case"]))
            files[name] = draw_overlay(maps, saliency, index, row, cell.title, picture)
            row["overlay"] = name
    return files, remarks


def _captioned(picture: Any, lines: Sequence[str]) -> bytes:
    """PNG, a picture with lines of text below."""
    from PIL import Image, ImageDraw

    width, height = picture.size
    image = Image.new("RGB", (width, height + 14 * len(lines) + 6), (20, 20, 20))
    image.paste(picture, (0, 0))
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        draw.text((4, height + 3 + 14 * number), visible_line(line), fill=(230, 230, 230))
    return png(np.asarray(image))


def _grey(picture: bytes | None) -> NDArray[np.uint8]:
    from PIL import Image

    if picture is None:
        return np.zeros(GRID, np.uint8)
    with Image.open(io.BytesIO(picture)) as image:
        grey = image.convert("L")
        if grey.size != (GRID[1], GRID[0]):
            grey = grey.resize((GRID[1], GRID[0]), Image.Resampling.BICUBIC)
        return np.asarray(grey, np.uint8)


def _enlarged(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    colours = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=2)
    large: NDArray[np.uint8] = colours.repeat(_SCALE, axis=0).repeat(_SCALE, axis=1)
    return large
