"""Drawings of the studies: values with their intervals, by variant, method, stratum, group or point, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....metrics_gpu.detection.error_kinds import KINDS
from ....metrics_gpu.grounding.strata import STRATA
from ....metrics_gpu.trust.subgroups import HITS
from ..studies.anatomy.anatomy_rows import cut_name
from ..studies.material import Material
from ..studies.study_outcome import Rows
from .canvas import Mark, canvas, dodged
from .figure import Figure
from .style import DARK, GREY, PALE, looks


def draw_differences(name: str, title: str, rows: Rows, stamps: tuple[str, ...]) -> list[Figure]:
    """Differences of variants from the first, a line for each row. Raises MissingExtraError without matplotlib."""
    if not rows:
        return []
    look = looks(list(dict.fromkeys(str(row["model"]) for row in rows)))
    names = [
        f"{row['variant']}, {row['dataset']}" + (f", {row['stratum']}" if row.get("stratum", "mean") != "mean" else "")
        for row in rows
    ]
    with canvas(name, 0.9 + 0.26 * len(rows)) as sheet:
        axes = sheet.lines(names, "difference from the reference, percentage points")
        for place, row in enumerate(rows):
            Mark(row, "difference", look[str(row["model"])]).draw(axes, place)
        counted = "; ".join(
            f"{words} against {row['reference']}, n = {row['n']}" for words, row in zip(names, rows, strict=True)
        )
        return [sheet.finished(title, f"Paired differences with bootstrap intervals over patients: {counted}.", stamps)]


def draw_spread(rows: Rows, stamps: tuple[str, ...]) -> list[Figure]:
    """Pointing of each class by prompt set, a drawing for each model and dataset, a mark for each set; the first set is
    filled. Raises MissingExtraError without matplotlib."""
    figures = []
    for number, (model, dataset) in enumerate(dict.fromkeys((row["model"], row["dataset"]) for row in rows), 1):
        lines: dict[str, list[Mapping[str, Any]]] = {}
        for row in rows:
            if (row["model"], row["dataset"]) == (model, dataset) and row["value"] is not None:
                lines.setdefault(str(row["class"]), []).append(row)
        look = looks([model])[model]
        with canvas(f"prompt-spread-{number}", 0.9 + 0.3 * len(lines)) as sheet:
            axes = sheet.lines(list(lines), "pointing, percent")
            for place, own in enumerate(lines.values()):
                values = [100 * row["value"] for row in own]
                axes.plot([min(values), max(values)], [place, place], color=GREY, linewidth=0.8)
                axes.plot(
                    values[1:], [place] * (len(values) - 1), look.mark, color=look.colour, markersize=4, alpha=0.5
                )
                axes.plot(values[:1], [place], "D", color=DARK, markersize=4)
            counted = "; ".join(f"{name}, n = {own[0]['n']}" for name, own in lines.items())
            caption = (
                f"{model} on {dataset}: a mark for each prompt set, a diamond for the reference. The spread is above 0 "
                f"by chance alone where a class has few pairs. {counted}."
            )
            figures.append(sheet.finished("Pointing of each finding by prompt set", caption, stamps))
    return figures


def draw_calibration(rows: Rows, labels: Mapping[str, str], material: Material) -> list[Figure]:
    """Gain in Dice by method, a mark per model; `labels`: methods as printed. Raises MissingExtraError without
    matplotlib."""
    methods = [name for name in labels if name != "none" and any(row["method"] == name for row in rows)]
    if not methods:
        return []
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    look = looks(material.models)
    with canvas("calibration", 1.4 + 0.42 * len(methods)) as sheet:
        axes = sheet.lines([labels[name] for name in methods], "gain over tau = 0.5, percentage points of Dice")
        for row in rows:
            model = row["model"]
            if row["method"] in methods:
                place = methods.index(row["method"]) + dodged(models.index(model), len(models))
                Mark(row, "gain_points", look[model], 1).draw(axes, place)
        caption = (
            "Mean over datasets with bootstrap intervals over patients. The best threshold is chosen on the pairs that "
            "are scored and so in-sample; all others are fitted on other patients or not at all."
        )
        return [sheet.finished("Gain in Dice by calibration", caption, material.stamps, legend=3)]


def draw_strata(rows: Rows, material: Material) -> list[Figure]:
    """Pointing minus chance by fixed stratum, a line per model: its mean over datasets, or the only dataset of the run.

    Raises MissingExtraError without matplotlib.
    """
    lines = []
    for model in material.models:
        strata = [row for row in rows if row["division"] == "fixed" and row["model"] == model]
        means = [row for row in strata if row["dataset"] == "mean of datasets"] or strata
        if means and not material.no_mean(model):
            lines.append((model, means))
    if not lines:
        return []
    look = looks(material.models)
    with canvas("strata", 3.2) as sheet:
        (axes,) = sheet.panels
        for number, (model, line) in enumerate(lines):
            defined = [row for row in line if row["above_chance"] is not None]
            places = [STRATA.index(row["stratum"]) + dodged(number, len(lines)) for row in defined]
            values = [100 * row["above_chance"] for row in defined]
            axes.plot(places, values, color=look[model].colour, linewidth=0.8)
            for place, row in zip(places, defined, strict=True):
                Mark(row, "above_chance", look[model]).draw(axes, place, upright=True)
        axes.axhline(0, color=GREY, linewidth=0.6)
        axes.set_xticks(range(len(STRATA)), STRATA)
        axes.set_xlim(-0.5, len(STRATA) - 0.5)
        axes.set_ylabel("pointing minus chance, percentage points")
        counted = "; ".join(f"{m}: {', '.join(str(row['n']) for row in line)}" for m, line in lines)
        caption = f"Bootstrap intervals over patients; pairs per stratum: {counted}."
        return [sheet.finished("Pointing above chance by size of the region", caption, material.stamps, legend=3)]


def draw_gaps(rows: Rows, material: Material) -> list[Figure]:
    """Standardised gaps of pointing, a drawing for each dataset, a line for each gap and a mark for each model. Raises
    MissingExtraError without matplotlib."""
    defined = [row for row in rows if row["measure"] == HITS and row["standardised"] is not None]
    look = looks(material.models)
    figures = []
    for number, dataset in enumerate(dict.fromkeys(row["dataset"] for row in defined), 1):
        gaps: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for row in defined:
            if row["dataset"] == dataset:
                gaps.setdefault((row["attribute"], f"{row['first']} minus {row['second']}"), []).append(row)
        shown = {row["model"] for own in gaps.values() for row in own}
        models = [model for model in material.models if model in shown]
        with canvas(f"subgroups-{number}", 0.9 + (0.12 + 0.14 * len(models)) * len(gaps)) as sheet:
            axes = sheet.lines([": ".join(gap) for gap in gaps], "gap, percentage points")
            for line, own in enumerate(gaps.values()):
                for row in own:
                    place = line + dodged(models.index(row["model"]), len(models))
                    Mark(row, "standardised", look[row["model"]]).draw(axes, place)
            title = f"Gaps of pointing at equal findings and sizes: {material.title(dataset)}"
            counted = "; ".join(
                f"{', '.join(gap)}: {own[0]['patients_first']} and {own[0]['patients_second']} patients"
                for gap, own in gaps.items()
            )
            caption = f"Bootstrap intervals over patients. {counted}."
            figures.append(sheet.finished(title, caption, material.of_dataset(dataset).stamps, legend=3))
    return figures


def draw_correlation(points: Rows, rows: Rows, material: Material) -> list[Figure]:
    """AUC against pointing with the least-squares line, of the models, and of the (model, dataset) points if there are
    some. Raises MissingExtraError without matplotlib."""
    figures = []
    look = looks(material.models)
    for name, title in (("models", "AUC and pointing of each model"), ("cells", "AUC and pointing by dataset")):
        used = [row for row in points if row["points"] == name]
        line = next((row for row in rows if row["points"] == name), None)
        if not used or line is None:
            continue
        with canvas(f"correlation-{name}", 3.6) as sheet:
            (axes,) = sheet.panels
            if line["slope"] is not None:
                ends = [min(row["auc"] for row in used), max(row["auc"] for row in used)]
                heights = [100 * (line["intercept"] + line["slope"] * end) for end in ends]
                axes.plot([100 * end for end in ends], heights, color=GREY, linewidth=0.8, linestyle="--")
            for row in used:
                Mark(row, "auc", look[row["model"]]).draw_interval(axes, 100 * row["pointing"])
                Mark(row, "pointing", look[row["model"]]).draw(axes, 100 * row["auc"], upright=True)
            axes.set_xlabel("mean AUC, percent")
            axes.set_ylabel("mean pointing, percent")
            r2 = "R² is not defined" if line["r2"] is None else f"R² = {line['r2']:.2f}"
            caption = (
                f"{len(used)} points, {r2}; bars are bootstrap intervals over patients, the line is least squares."
            )
            figures.append(sheet.finished(title, caption, material.stamps, legend=3))
    return figures


def draw_errors(rows: Rows, material: Material) -> list[Figure]:
    """Boxes of each kind of error per 100 pairs, one stacked bar per model, dataset and cut; `rows`: those of all
    pairs. Raises MissingExtraError without matplotlib."""
    bars: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        bars.setdefault(f"{row['model']}, {material.title(row['dataset'])}, {cut_name(row)}", []).append(row)
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
