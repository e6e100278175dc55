"""Standardised gaps of pointing between groups, a drawing for each dataset."""

from __future__ import annotations

from ....metrics_gpu.trust.subgroups import HITS
from ..studies.material import Material
from ..studies.study_outcome import Rows
from ..studies.writing import between
from .canvas import canvas, span
from .figure import Figure, looks


def draw_gaps(rows: Rows, material: Material) -> list[Figure]:
    """A line for each gap, a point for each model. Raises MissingExtraError without matplotlib."""
    known = [row for row in rows if row["measure"] == HITS and row["standardised"] is not None]
    look = looks(material.models)
    found = []
    for number, dataset in enumerate(dict.fromkeys(row["dataset"] for row in known), 1):
        own = [row for row in known if row["dataset"] == dataset]
        lines = list(dict.fromkeys((row["attribute"], row["first"], row["second"]) for row in own))
        models = [model for model in material.models if any(row["model"] == model for row in own)]
        with canvas(f"subgroups-{number}", 0.9 + (0.12 + 0.14 * len(models)) * len(lines)) as sheet:
            axes = sheet.lines([f"{name}: {a} minus {b}" for name, a, b in lines], "gap, percentage points")
            for row in own:
                line = lines.index((row["attribute"], row["first"], row["second"]))
                shift = 0.6 * ((models.index(row["model"]) + 0.5) / len(models) - 0.5)
                limits, mark = between(row, "standardised"), look[row["model"]]
                first = row is next(each for each in own if each["model"] == row["model"])
                percent = None if limits is None else [100 * end for end in limits]
                span(axes, percent, line + shift, color=mark.colour, linewidth=1)
                axes.plot(
                    [100 * row["standardised"]],
                    [line + shift],
                    mark.mark,
                    color=mark.colour,
                    markersize=4,
                    label=row["model"] if first else None,
                )
            title = f"Gaps of pointing at equal findings and sizes: {material.title(dataset)}"
            counted = "; ".join(
                f"{name}, {a} minus {b}: {sides[0]} and {sides[1]} patients"
                for (name, a, b), sides in zip(lines, (_patients(own, line) for line in lines), strict=True)
            )
            caption = f"Bootstrap intervals over patients. {counted}."
            found.append(sheet.finished(title, caption, material.of_dataset(dataset).stamps, legend=3))
    return found


def _patients(rows: Rows, line: tuple[str, str, str]) -> tuple[int, int]:
    row = next(row for row in rows if (row["attribute"], row["first"], row["second"]) == line)
    return row["patients_first"], row["patients_second"]
