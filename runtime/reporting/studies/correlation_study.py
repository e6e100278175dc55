"""Study of correlation: whether recognition (AUC) predicts grounding (pointing), with its uncertainty (Fig. 3)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.recognition.scores import recognition
from ....metrics_gpu.statistics.correlation import Correlation, correlation, patients_r2, without_group_means
from ....metrics_gpu.statistics.intervals import Interval, percentile_interval
from ...results.comparability import find_basis, on_one_basis
from ...results.numbers.fields import find_interval, grounding_interval
from ..figures.study_correlation import draw_correlation
from ..tables.metric_names import heading, p_value
from ..tables.table import Column, Item, Table
from .material import Material
from .study_cell import StudyCell
from .study_outcome import Rows, StudyOutcome, drawn
from .writing import between, limits, metric_cell, number_cell

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Point:
    """AUC and pointing of one cell or of one model's mean, with their intervals and replicates float64 [B]."""

    model: str
    dataset: str
    auc: float
    pointing: float
    auc_interval: Interval | None
    pointing_interval: Interval | None
    auc_drawn: Float
    pointing_drawn: Float
    images: int
    pairs: int
    datasets: tuple[str, ...]
    basis: Hashable = None

    def row(self, kind: str, level: float) -> dict[str, Any]:
        return {
            "points": kind,
            "model": self.model,
            "dataset": self.dataset,
            "datasets": len(self.datasets),
            "images": self.images,
            "pairs": self.pairs,
            "auc": self.auc,
            **limits("auc", self.auc_interval),
            "pointing": self.pointing,
            **limits("pointing", self.pointing_interval),
        }


def study_correlation(material: Material) -> StudyOutcome:
    """Correlation of mean AUC and mean pointing over models, and over (model, dataset) points."""
    level = material.sampling.level
    cells, remarks = [], []
    for cell in material.cells:
        place = _cell_point(cell, level)
        if isinstance(place, str):
            remarks.append(f"{cell.model} on {cell.title} is left out: {place}")
        else:
            cells.append(place)
    cells, other = _alike(cells)
    shared = _shared(cells)
    models = _model_points([point for point in cells if point.dataset in shared], level)
    only = "" if {point.dataset for point in cells} == {*shared} else f", over {', '.join(shared) or 'no dataset'} only"
    sets: list[tuple[str, Sequence[_Point], bool, str]] = [("models", models, False, f"one point per model{only}")]
    if len({point.dataset for point in cells}) > 1:
        sets.append(("cells", cells, False, "one point per model and dataset"))
        sets.append(("cells, centred", cells, True, "the same less the dataset's means"))
    rows = [_correlated(name, points, centred, words, material) for name, points, centred, words in sets]
    points = [point.row(kind, level) for kind, found in (("models", models), ("cells", cells)) for point in found]
    left = [row for name, found, centred, _ in sets for row in _left_out(name, found, centred)]
    figures, said = drawn(lambda: draw_correlation(points, rows, material))
    facts = (
        "AUC: mean over the classes with both labels; pointing: mean over the classes with regions; then over datasets",
        material.sampling.fact,
        *material.unfinished,
    )
    return StudyOutcome(
        name="correlation",
        title="Does recognition predict grounding?",
        facts=facts,
        tables=(_summary(rows, material), _points_table(points, material), _left_table(left, material)),
        data={"correlation": rows, "points": points, "left_out": left},
        settings=material.sampling.settings,
        figures=figures,
        remarks=(*remarks, *other, *said),
    )


def _cell_point(cell: StudyCell, level: float) -> _Point | str:
    """A cell's point, or the reason why it has none."""
    if cell.weights == "baseline":
        return "a baseline has no score to recognise anything by"
    if not cell.n:
        return "it has no pair with a region"
    if not cell.scored:
        return "a score is missing or not finite"
    scores = recognition(cell.rows.logits, cell.rows.labels, cell.classes, cell.draws, cell.image_patients)
    found = cell.drawn_scores()
    pointing = found.macro.pointing
    if scores.auc is None or pointing is None:
        return "no class has both images with and without the finding, so there is no AUC"
    assert scores.drawn is not None and found.drawn is not None  # the cell has draws
    basis = find_basis(cell.rows, cell.pairs)
    return _Point(
        model=cell.model,
        dataset=cell.dataset,
        auc=scores.auc,
        pointing=pointing,
        auc_interval=find_interval(scores, "auc", "", scores.drawn.macro["auc"], cell.sample, level),
        pointing_interval=grounding_interval(found, "pointing", "", cell.sample, level),
        auc_drawn=scores.drawn.macro["auc"],
        pointing_drawn=found.drawn.macro["pointing"],
        images=len(cell.rows.logits),
        pairs=cell.n,
        datasets=(cell.dataset,),
        basis=(basis.protocol, basis.pairs[""], basis.labels[""]),
    )


def _alike(cells: Sequence[_Point]) -> tuple[list[_Point], list[str]]:
    """The points that rest on the pairs and labels of most points of their dataset, and a sentence on each other."""
    alike = on_one_basis([point.basis for point in cells], [point.dataset for point in cells])
    why = "it rests on other images, pairs or labels than most models there"
    found = list(zip(cells, alike, strict=True))
    said = [f"{point.model} on {point.dataset} is left out: {why}" for point, same in found if not same]
    return [point for point, same in found if same], said


def _model_points(cells: Sequence[_Point], level: float) -> list[_Point]:
    """Means over datasets, one point per model."""
    points = []
    for model in dict.fromkeys(point.model for point in cells):
        own = [point for point in cells if point.model == model]
        points.append(
            _Point(
                model=model,
                dataset="mean",
                auc=float(np.mean([point.auc for point in own])),
                pointing=float(np.mean([point.pointing for point in own])),
                auc_interval=_combined([(point.auc_interval, point.auc_drawn) for point in own], level),
                pointing_interval=_combined([(point.pointing_interval, point.pointing_drawn) for point in own], level),
                auc_drawn=np.mean([point.auc_drawn for point in own], axis=0),
                pointing_drawn=np.mean([point.pointing_drawn for point in own], axis=0),
                images=sum(point.images for point in own),
                pairs=sum(point.pairs for point in own),
                datasets=tuple(point.dataset for point in own),
            )
        )
    return points


def _combined(found: Sequence[tuple[Interval | None, Float]], level: float) -> Interval | None:
    """The interval of a mean over datasets; None if one of them has too few patients."""
    if any(interval is None or interval.method == "t" for interval, _ in found):
        return None
    return percentile_interval(np.mean([drawn for _, drawn in found], axis=0), level)


def _shared(cells: Sequence[_Point]) -> list[str]:
    """Datasets in which every model has a point."""
    models = {point.model for point in cells}
    own = {name: {p.model for p in cells if p.dataset == name} for name in dict.fromkeys(p.dataset for p in cells)}
    return [name for name, found in own.items() if found == models]


def _values(points: Sequence[_Point], centred: bool) -> tuple[Float, Float]:
    x, y = np.array([point.auc for point in points]), np.array([point.pointing for point in points])
    if not centred:
        return x, y
    groups = [point.dataset for point in points]
    return without_group_means(x, groups), without_group_means(y, groups)


def _groups(points: Sequence[_Point]) -> list[str] | None:
    """The model of each point if one has several: these are not independent. Else None."""
    names = [point.model for point in points]
    return names if len(set(names)) < len(names) else None


def _measure(points: Sequence[_Point], centred: bool, material: Material) -> Correlation:
    sampling = material.sampling
    x, y = _values(points, centred)
    return correlation(
        x, y, groups=_groups(points), level=sampling.level, replicates=sampling.replicates, seed=sampling.seed
    )


def _correlated(name: str, points: Sequence[_Point], centred: bool, words: str, material: Material) -> dict[str, Any]:
    found = _measure(points, centred, material)
    return {
        "points": name,
        "meaning": words,
        "n": found.n,
        "models": len({point.model for point in points}),
        "r": found.r,
        "r2": found.r2,
        "r2_adjusted": found.adjusted_r2,
        "p": found.p,
        "spearman_p": found.spearman_p,
        **limits("r2_fisher", found.fisher_r2),
        **limits("r2_bootstrap", found.bootstrap_r2),
        **limits("r2_patients", None if found.r2 is None else _patients_r2(points, centred, material.sampling.level)),
        "spearman": found.spearman,
        "slope": found.slope,
        "intercept": found.intercept,
        "r2_left_out_low": found.r2_range[0] if found.r2_range else None,
        "r2_left_out_high": found.r2_range[1] if found.r2_range else None,
    }


def _patients_r2(points: Sequence[_Point], centred: bool, level: float) -> Interval | None:
    """Interval of R² of the same models on other patients: models are kept, patients are resampled."""
    x, y = (np.stack([getattr(p, name) for p in points], axis=1) for name in ("auc_drawn", "pointing_drawn"))
    if centred:
        datasets = np.array([point.dataset for point in points])
        for values in (x, y):
            for name in np.unique(datasets):
                values[:, datasets == name] -= values[:, datasets == name].mean(axis=1, keepdims=True)
    return patients_r2(x, y, len({point.model for point in points}), level)


def _left_out(name: str, points: Sequence[_Point], centred: bool) -> list[dict[str, Any]]:
    """R² without each model; centring is done before."""
    found = correlation(*_values(points, centred), groups=_groups(points), replicates=1)
    models = dict.fromkeys(point.model for point in points)
    return [
        {"points": name, "without": model, "r2": value}
        for model, value in zip(models, found.left_out or (None,) * len(models), strict=True)
    ]


def _summary(rows: Rows, material: Material) -> Table:
    columns = ("points", "n", "models", "R²", "adjusted", "p", "Fisher", "bootstrap", "patients", "leave one out",
               "Spearman", "p of Spearman", "slope")  # fmt: skip
    body: list[tuple[Item, ...]] = []
    for row in rows:
        ranges = [between(row, f"r2_{name}") for name in ("fisher", "bootstrap", "patients", "left_out")]
        texts = ["-" if found is None else f"{found[0]:.2f} to {found[1]:.2f}" for found in ranges]
        body.append(
            (
                str(row["meaning"]),
                str(row["n"]),
                str(row["models"]),
                number_cell(row["r2"]),
                number_cell(row["r2_adjusted"]),
                p_value(row["p"]),
                *texts,
                number_cell(row["spearman"]),
                p_value(row["spearman_p"]),
                number_cell(row["slope"]),
            )
        )
    notes = (
        "Fisher: from r of independent points; bootstrap: models drawn with replacement, with all their datasets; "
        "patients: the models stay, their patients are drawn",
        "leave one out: smallest and largest R² without one model",
        "adjusted: R² less its upward bias with few points; p: over permutations of the points",
        "-: not defined; R² takes three points with some spread, its intervals four models, Fisher four independent "
        "points, p independent points",
    )
    return Table(
        "R² of AUC and pointing", tuple(map(Column, columns)), tuple(body), material.stamps, notes, "correlation"
    )


def _points_table(points: Rows, material: Material) -> Table:
    body = tuple(
        (
            str(row["model"]),
            "mean" if row["dataset"] == "mean" else material.title(row["dataset"]),
            str(row["datasets"]),
            str(row["images"]),
            str(row["pairs"]),
            metric_cell("auc", row["auc"], between(row, "auc")),
            metric_cell("pointing", row["pointing"], between(row, "pointing")),
        )
        for row in points
    )
    columns = tuple(
        map(Column, ("model", "dataset", "datasets", "n images", "n pairs", heading("auc"), heading("pointing")))
    )
    return Table("The points", columns, body, material.stamps, ("percent",), "points", lead=2)


def _left_table(rows: Rows, material: Material) -> Table:
    body = tuple((str(row["points"]), str(row["without"]), number_cell(row["r2"])) for row in rows)
    return Table("R² without one model", tuple(map(Column, ("points", "without", "R²"))), body, material.stamps, lead=2)
