"""Drawing of the study of the gap: AUC against pointing of each finding, a panel for each model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..studies.material import Material
from ..studies.study_outcome import Rows
from .axis_labels import name_points
from .canvas import Mark, canvas
from .figure import Figure
from .style import GREY, PALE, looks

if TYPE_CHECKING:
    from ..studies.gap.finding_points import Quadrants

_MOST_NAMES = 15
"""Up to this number of findings in a panel they are named; more names would hide the marks."""


def draw_gap(rows: Rows, bounds: Quadrants, material: Material) -> list[Figure]:
    """The panels; a mark is filled where its quadrant stands after the correction. Raises MissingExtraError without
    matplotlib."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    look = looks([material.title(name) for name in datasets])
    with canvas("gap", 2.6, len(models)) as sheet:
        for axes, model in zip(sheet.panels, models, strict=True):
            own = [row for row in rows if row["model"] == model]
            axes.fill_between([100 * bounds.auc, 104], -4, 100 * bounds.pointing, color=PALE, alpha=0.5, linewidth=0)
            axes.axvline(100 * bounds.auc, color=GREY, linewidth=0.6)
            axes.axhline(100 * bounds.pointing, color=GREY, linewidth=0.6)
            for row in own:
                title = material.title(row["dataset"])
                shown = {**row, "model": title}
                sure = row["p_holm"] is not None and row["p_holm"] < 1 - bounds.level
                Mark(shown, "auc", look[title]).draw_interval(axes, 100 * row["pointing"])
                Mark(shown, "pointing", look[title]).draw(axes, 100 * row["auc"], upright=True, filled=sure)
            least = min(100 * row["auc"] for row in own)
            axes.set_xlim(min(45, least - 5), 104)
            axes.set_ylim(-4, 104)
            axes.set_title(model)
            axes.set_xlabel("AUC, percent")
            axes.set_ylabel("pointing, percent")
        sheet.legend(min(len(datasets), 4))
        for axes, model in zip(sheet.panels, models, strict=True):  # now that the layout has all its parts
            own = [row for row in rows if row["model"] == model]
            if len(own) <= _MOST_NAMES:
                places = [[100 * row[key] for row in own] for key in ("auc", "pointing")]
                name_points(axes, [row["class"] for row in own], *places)
        caption = (
            f"One mark for each finding, {len(rows)} in all. Lines: the bounds, AUC {100 * bounds.auc:g} and pointing "
            f"{100 * bounds.pointing:g} percent; grey: recognised, not grounded. Filled: the quadrant stands after "
            "Holm's correction for all findings. Bars: intervals of each number over patients."
        )
        title = "Recognition and grounding of each finding"
        return [sheet.finished(title, caption, material.stamps)]
