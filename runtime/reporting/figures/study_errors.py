"""Boxes of each kind of error, one stacked bar per model, dataset and cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....metrics_gpu.detection.error_kinds import KINDS
from ..studies.anatomy.anatomy_rows import cut_name
from ..studies.material import Material
from ..studies.study_outcome import Rows
from .canvas import canvas
from .figure import DARK, PALE, Figure, looks


def draw_errors(rows: Rows, material: Material) -> list[Figure]:
    """Boxes per 100 pairs by kind; `rows`: those of all pairs. Raises MissingExtraError without matplotlib."""
    bars: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        bars.setdefault(_bar_name(row, material), []).append(row)
    if not bars:
        return []
    look = looks([kind for kind in KINDS if kind not in ("hit", "silent")])
    with canvas("errors", 1.3 + 0.3 * len(bars)) as sheet:
        axes = sheet.lines(list(bars), "boxes per 100 pairs; silent and missed: true boxes")
        for k, kind in enumerate(KINDS):
            values = [100 * own[k]["boxes_per_pair"] for own in bars.values()]
            before = [sum(100 * row["boxes_per_pair"] for row in own[:k]) for own in bars.values()]
            colour = {"hit": PALE, "silent": "white"}.get(kind) or look[kind].colour
            axes.barh(
                range(len(bars)),
                values,
                left=before,
                height=0.7,
                color=colour,
                edgecolor=DARK,
                linewidth=0.4,
                hatch="////" if kind == "silent" else None,
                label=kind.replace("_", " "),
            )
        counted = "; ".join(
            f"{name}, n = {own[0]['n']}: "
            + ", ".join(f"{row['kind'].replace('_', ' ')} {100 * row['boxes_per_pair']:.1f}" for row in own)
            for name, own in bars.items()
        )
        words = "silent and missed are true boxes; beside maps their threshold, with a star if it is in-sample"
        caption = f"Boxes of each kind per 100 pairs; {words}. {counted}."
        return [sheet.finished("Kinds of errors", caption, material.stamps, legend=5)]


def _bar_name(row: Mapping[str, Any], material: Material) -> str:
    return f"{row['model']}, {material.title(row['dataset'])}, {cut_name(row)}"
