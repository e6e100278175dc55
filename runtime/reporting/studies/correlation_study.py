"""Study of correlation: whether recognition (AUC) predicts grounding (pointing), with its uncertainty (Fig. 3)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.recognition.scores import recognition
from ....metrics_gpu.statistics.correlation import correlation, patients_r2, without_group_means
from ....metrics_gpu.statistics.intervals import Interval
from ....metrics_gpu.statistics.measured_numbers import Measured
from ...results.comparability import find_basis, on_one_basis
from ...results.numbers.fields import number_of
from ..figures.study_figures import draw_correlation
from .columns import StudyTable, limits_of, measured, metric, numbers, p_values, text, texts
from .estimates import over_datasets
from .material import Material
from .study_cell import StudyCell
from .study_outcome import StudyOutcome
from .writing import limits

Float = NDArray[np.float64]


_FIELDS: Final = ("auc", "pointing")


@dataclass(frozen=True, eq=False)
class _Point:
    """AUC and pointing, by `_FIELDS`, of one cell or of one model's mean."""

    model: str
    dataset: str
    values: Mapping[str, Measured]
    images: int
    pairs: int
    datasets: int = 1
    basis: Hashable = None

    def row(self, points: str) -> dict[str, Any]:
        row = {"points": points, "model": self.model, "dataset": self.dataset, "datasets": self.datasets}
        row |= {"images": self.images, "pairs": self.pairs}
        for name, number in self.values.items():
            row |= measured(name, number)
        return row


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
    points = [point.row(name) for name, found in (("models", models), ("cells", cells)) for point in found]
    left = [row for name, found, centred, _ in sets for row in _left_out(name, found, centred)]
    facts = (
        "AUC: mean over the classes with both labels; pointing: mean over the classes with regions; then over datasets",
        material.sampling.fact,
        *material.unfinished,
    )
    return StudyOutcome(
        name="correlation",
        title="Does recognition predict grounding?",
        facts=facts,
        tables=(
            material.table(_SUMMARY, rows),
            material.table(_POINTS, points),
            material.table(_LEFT_OUT, left),
        ),
        data={"correlation": rows, "points": points, "left_out": left},
        settings=material.sampling.settings,
        remarks=(*remarks, *other),
    ).with_figures(lambda: draw_correlation(points, rows, material))


def _cell_point(cell: StudyCell, level: float) -> _Point | str:
    """A cell's point, or the reason why it has none."""
    if cell.weights == "baseline":
        return "a baseline has no score to recognise anything by"
    if not cell.n:
        return "it has no pair with a region"
    if not cell.scored:
        return "a score is missing or not finite"
    scores = recognition(cell.rows.logits, cell.rows.labels, cell.classes, cell.draws, cell.image_patients)
    grounding = cell.drawn_scores()
    if scores.value("auc") is None or grounding.value("pointing") is None:
        return "no class has both images with and without the finding, so there is no AUC"
    sample = cell.sample
    auc = number_of(scores, "auc", "", sample, level)
    pointing = number_of(grounding, "pointing", "", sample, level)
    basis = find_basis(cell.rows, cell.pairs)
    return _Point(
        model=cell.model,
        dataset=cell.dataset,
        values={"auc": auc, "pointing": pointing},
        images=len(cell.rows.logits),
        pairs=cell.n,
        basis=(basis.protocol, basis.pairs[""], basis.labels[""]),
    )


def _alike(cells: Sequence[_Point]) -> tuple[list[_Point], list[str]]:
    """The points that rest on the pairs and labels of most points of their dataset, and a sentence on each other."""
    alike = on_one_basis([point.basis for point in cells], [point.dataset for point in cells])
    why = "it rests on other images, pairs or labels than most models there"
    pairs = list(zip(cells, alike, strict=True))
    remarks = [f"{point.model} on {point.dataset} is left out: {why}" for point, same in pairs if not same]
    return [point for point, same in pairs if same], remarks


def _model_points(cells: Sequence[_Point], level: float) -> list[_Point]:
    """Means over datasets, one point per model."""
    points = []
    for model in dict.fromkeys(point.model for point in cells):
        of_model = [point for point in cells if point.model == model]
        points.append(
            _Point(
                model=model,
                dataset="mean",
                values={name: over_datasets((point.values[name] for point in of_model), level) for name in _FIELDS},
                images=sum(point.images for point in of_model),
                pairs=sum(point.pairs for point in of_model),
                datasets=len(of_model),
            )
        )
    return points


def _shared(cells: Sequence[_Point]) -> list[str]:
    """Datasets in which every model has a point."""
    models = {point.model for point in cells}
    models_of = {
        name: {p.model for p in cells if p.dataset == name} for name in dict.fromkeys(p.dataset for p in cells)
    }
    return [name for name, measured_models in models_of.items() if measured_models == models]


def _values(points: Sequence[_Point], centred: bool) -> tuple[Float, Float]:
    x, y = (np.array([point.values[name].value for point in points]) for name in _FIELDS)
    if not centred:
        return x, y
    groups = [point.dataset for point in points]
    return without_group_means(x, groups), without_group_means(y, groups)


def _groups(points: Sequence[_Point]) -> list[str] | None:
    """The model of each point if one has several: these are not independent. Else None."""
    names = [point.model for point in points]
    return names if len(set(names)) < len(names) else None


def _correlated(name: str, points: Sequence[_Point], centred: bool, words: str, material: Material) -> dict[str, Any]:
    fit = correlation(*_values(points, centred), groups=_groups(points), **material.sampling.settings)
    return {
        "points": name,
        "meaning": words,
        "n": fit.n,
        "models": len({point.model for point in points}),
        "r": fit.r,
        "r2": fit.r2,
        "r2_adjusted": fit.adjusted_r2,
        "p": fit.p,
        "spearman_p": fit.spearman_p,
        **limits("r2_fisher", fit.fisher_r2),
        **limits("r2_bootstrap", fit.bootstrap_r2),
        **limits("r2_patients", None if fit.r2 is None else _patients_r2(points, centred, material.sampling.level)),
        "spearman": fit.spearman,
        "slope": fit.slope,
        "intercept": fit.intercept,
        "r2_left_out_low": fit.r2_range[0] if fit.r2_range else None,
        "r2_left_out_high": fit.r2_range[1] if fit.r2_range else None,
    }


def _patients_r2(points: Sequence[_Point], centred: bool, level: float) -> Interval | None:
    """Interval of R² of the same models on other patients: models are kept, patients are resampled."""
    x, y = (
        np.stack([drawn for point in points if (drawn := point.values[name].drawn) is not None], axis=1)
        for name in _FIELDS
    )
    if centred:
        datasets = np.array([point.dataset for point in points])
        for values in (x, y):
            for name in np.unique(datasets):
                values[:, datasets == name] -= values[:, datasets == name].mean(axis=1, keepdims=True)
    return patients_r2(x, y, len({point.model for point in points}), level)


def _left_out(name: str, points: Sequence[_Point], centred: bool) -> list[dict[str, Any]]:
    """R² without each model; centring is done before."""
    fit = correlation(*_values(points, centred), groups=_groups(points), replicates=1)
    models = dict.fromkeys(point.model for point in points)
    return [
        {"points": name, "without": model, "r2": value}
        for model, value in zip(models, fit.left_out or (None,) * len(models), strict=True)
    ]


_SUMMARY: Final = StudyTable(
    "R² of AUC and pointing",
    "correlation",
    (
        text("meaning", "points"),
        *texts("n", "models"),
        numbers("r2", "R²"),
        numbers("r2_adjusted", "adjusted"),
        p_values("p"),
        limits_of("r2_fisher", "Fisher"),
        limits_of("r2_bootstrap", "bootstrap"),
        limits_of("r2_patients", "patients"),
        limits_of("r2_left_out", "leave one out"),
        numbers("spearman", "Spearman"),
        p_values("spearman_p", "p of Spearman"),
        numbers("slope"),
    ),
    (
        "Fisher: from r of independent points; bootstrap: models drawn with replacement, with all their datasets; "
        "patients: the models stay, their patients are drawn",
        "leave one out: smallest and largest R² without one model",
        "adjusted: R² less its upward bias with few points; p: over permutations of the points",
        "-: not defined; R² takes three points with some spread, its intervals four models, Fisher four independent "
        "points, p independent points",
    ),
)
_POINTS: Final = StudyTable(
    "The points",
    "points",
    (
        *texts("model", "dataset", "datasets"),
        text("images", "n images"),
        text("pairs", "n pairs"),
        metric("auc"),
        metric("pointing"),
    ),
    ("percent",),
    lead=2,
)
_LEFT_OUT: Final = StudyTable("R² without one model", "", (*texts("points", "without"), numbers("r2", "R²")), lead=2)
