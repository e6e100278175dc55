"""Drawing of the study of groups: differences of groups of models, over patients and over models."""

from __future__ import annotations

from ..studies.material import Material
from ..studies.study_outcome import Rows
from ..tables.metric_names import METRICS, heading
from .canvas import Mark, canvas
from .figure import Figure
from .style import looks

_KINDS = {"patients": "difference", "models": "models"}
"""What an interval is over -> the columns of its ends."""


def draw_groups(rows: Rows, hidden: str, material: Material) -> list[Figure]:
    """A line for each contrast and measure, with the intervals over patients and over models, but for the `hidden` one.

    Raises MissingExtraError without matplotlib.
    """
    kinds = [kind for kind in _KINDS if kind != hidden]
    look = looks(list(_KINDS))
    names = [
        f"{row['first']} minus {row['second']}, "
        + (heading(row["measure"]) if row["measure"] in METRICS else "residual of Point")
        for row in rows
    ]
    with canvas("groups", 1.1 + 0.36 * len(rows)) as sheet:
        axes = sheet.lines(names, "difference, percentage points")
        for place, row in enumerate(rows):
            for kind in kinds:
                key = _KINDS[kind]
                shown = {f"{key}{end}": row[f"{key}{end}"] for end in ("_low", "_high")}
                shown |= {"model": f"over {kind}", key: row["difference"]}
                Mark(shown, key, look[kind]).draw(axes, place + (0.15 if kind == "models" else -0.15))
        counted = "; ".join(f"{name}: {row['models']} models" for name, row in zip(names, rows, strict=True))
        caption = (
            "Over patients: these models on other patients; over models: the models as a sample, Student's interval by "
            f"Welch. {counted}."
        )
        return [sheet.finished("Differences of groups of models", caption, material.stamps, legend=2)]
