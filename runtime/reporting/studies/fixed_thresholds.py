"""Dice and IoU at thresholds that nobody chose by the pairs, and each against 0.5 on the same pairs (docs/metrics.md
§4.6)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....engines.errors import ConfigError
from ....metrics_gpu.grounding.best_thresholds import FIXED
from ....metrics_gpu.statistics.intervals import mean_interval
from ....metrics_gpu.statistics.measured_numbers import Measured, Parts
from ....metrics_gpu.statistics.multiple_tests import corrected
from ....metrics_gpu.sweep.counts import dice_curves, iou_curves
from ....metrics_gpu.sweep.sweep_options import LEVELS
from ...results.comparing.difference import Difference, averaged
from ..tables.table import MEAN_OF_DATASETS
from .columns import StudyTable, measured, metric, numbers, p_values, percents, texts
from .estimates import over_datasets
from .study_cell import PIXELS
from .threshold_curves import DICE, IOU, CellCurves

AT: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""The thresholds of the table, unless others are named."""

_SCORES: Final = {"dice": (dice_curves, DICE), "iou": (iou_curves, IOU)}
_TEST: Final = ("p", "p_bound", "p_holm", "family")


@dataclass(frozen=True, eq=False)
class _At:
    """One model at one level. row: what is known before the tests. scores, differences: by name of `_SCORES`; a
    difference is that from 0.5, and 0.5 itself has none."""

    row: dict[str, Any]
    scores: dict[str, Measured]
    differences: dict[str, Difference]


def levels_at(thresholds: Iterable[float]) -> tuple[int, ...]:
    """The levels of these thresholds, each once, the lowest first. Raises ConfigError for one that was not counted."""
    levels = set()
    for tau in thresholds:
        level = round(100 * tau) if abs(tau) < LEVELS else LEVELS
        if not 0 <= level < LEVELS or abs(100 * tau - level) > 1e-6:
            raise ConfigError(
                f"--at {tau:g} was not counted: maps are counted at the {LEVELS} steps 0, 0.01, 0.02 to 1; name one."
            )
        levels.add(level)
    return tuple(sorted(levels))


def fixed_rows(
    models: Sequence[Sequence[CellCurves]], levels: Sequence[int], whole: Collection[str]
) -> list[dict[str, Any]]:
    """A row for each model, dataset, class and level, and for the means over classes and over datasets.

    models: the cells of each model; whole: the models that have a mean over datasets. Dice and IoU are a family each,
    over all these means; single classes and baselines are not tested.
    """
    found: list[_At] = []
    for cells in models:
        of_cells = [[list(_of_cell(item, k)) for k in levels] for item in cells]
        found += [at for of_levels in of_cells for own in of_levels for at in own]
        if len(cells) > 1 and cells[0].cell.model in whole:
            found += [_over_datasets([own[0] for own in one], cells[0].level) for one in zip(*of_cells, strict=True)]
    tested = [(at.row, score, item) for at in found for score, item in at.differences.items()]
    items = corrected([item for *_, item in tested], [score for _, score, _ in tested])
    for (row, score, _), item in zip(tested, items, strict=True):
        row |= measured(f"{score}_difference", item) | {f"{score}_{key}": item.test[key] for key in _TEST}
    return [at.row for at in found]


def _of_cell(item: CellCurves, k: int) -> Iterator[_At]:
    """The mean over classes, then each class."""
    tested = item.cell.weights != "baseline"
    sample, area = item.sample, item.cell.counts.area[:, k] / PIXELS
    curves = {score: of(item.cell.counts)[:, [k, FIXED]] for score, (of, _) in _SCORES.items()}
    for name in item.names:
        group = "" if name == "mean" else name
        marked = sample.shares(area, group)
        scores, differences = {}, {}
        for score, each in curves.items():
            places = [_SCORES[score][1].start + level for level in (k, FIXED)]
            (value, fixed), drawn = item.mean(name)[places].tolist(), item.drawn(name)[:, places]
            parts = sample.shares(each[:, 0], group)
            scores[score] = Measured(value, mean_interval(drawn[:, 0], parts, item.level), drawn=drawn[:, 0])
            apart, gaps = sample.shares(each[:, 0] - each[:, 1], group), drawn[:, 0] - drawn[:, 1]
            if k != FIXED and apart is not None:
                differences[score] = Difference(
                    field=f"{score}_fixed",
                    name=group,
                    value=value - fixed,
                    minuend=value,
                    reference=fixed,
                    interval=mean_interval(gaps, apart, item.level, None),
                    drawn=gaps,
                    parts=Parts(sample.names, apart.of_patients, sample.seed) if tested and not group else None,
                )
        share = None if marked is None else float(marked.of_patients.sum())
        yield _At(_row(item.key(name), k, share, scores), scores, differences)


def _over_datasets(cells: Sequence[_At], level: float) -> _At:
    """The unweighted mean over datasets."""
    first = cells[0].row
    scores = {score: over_datasets((at.scores[score] for at in cells), level) for score in _SCORES}
    differences = {
        score: averaged([at.differences[score] for at in cells], [1.0] * len(cells), level)
        for score in cells[0].differences
    }
    key = {"model": first["model"], "dataset": MEAN_OF_DATASETS, "class": "mean", "n": sum(at.row["n"] for at in cells)}
    area = sum(at.row["area"] for at in cells) / len(cells)
    return _At(_row(key, round(100 * first["tau"]), area, scores), scores, differences)


def _row(key: dict[str, Any], k: int, area: float | None, scores: dict[str, Measured]) -> dict[str, Any]:
    row = {**key, "tau": k / 100, "area": area}
    for score, value in scores.items():
        row |= measured(score, value) | measured(f"{score}_difference", Measured())
        row |= {f"{score}_{test}": value for test, value in Measured().test.items()}
    return row


FIXED_TABLE: Final = StudyTable(
    "At fixed thresholds",
    "fixed-thresholds",
    (
        *texts("model", "dataset", "n"),
        numbers("tau"),
        percents("area", "marked"),
        *(
            column
            for score, group in (("dice", "Dice"), ("iou", "IoU"))
            for column in (
                metric(score, "value", group, of=f"{score}_fixed"),
                metric(f"{score}_difference", "minus 0.5", group, of=f"{score}_fixed"),
                p_values(f"{score}_p", group=group, bound=f"{score}_p_bound"),
                p_values(f"{score}_p_holm", "p (Holm)", group, bound=f"{score}_p_bound"),
            )
        ),
    ),
    (
        "percent, differences in percentage points on the same pairs; means over the classes that have pairs; classes "
        "are in fixed.csv",
        "marked: share of the image at or above the threshold",
        "p: two-sided, of sign flips by patient; <: no pattern was as extreme; p (Holm): corrected for all thresholds, "
        "models and datasets of the table, Dice and IoU apart; baselines are not tested",
        f"{MEAN_OF_DATASETS}: unweighted",
    ),
)
