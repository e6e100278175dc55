"""The numbers of predicted boxes: those of the default protocol with intervals, and those of published scorers."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError, XBenchError
from ...metrics_gpu.detection.average_precision import average_precision
from ...metrics_gpu.detection.boxes import Answers
from ...metrics_gpu.detection.error_kinds import KINDS, anatomy
from ...metrics_gpu.detection.overlaps import BoxOverlaps, overlaps
from ...metrics_gpu.detection.published.grid_hit import GRID_HIT
from ...metrics_gpu.detection.published.scorer import Values
from ...metrics_gpu.detection.scores import Hallucination, MatchedScores, hallucination, matched_scores
from ...metrics_gpu.statistics.bootstrap import macro_mean
from ...metrics_gpu.statistics.exact_sums import exact_mean
from ...metrics_gpu.statistics.intervals import MANY_PATIENTS, Interval, percentile_interval
from ..data.answers.dialects.dialect_registry import GRID
from ..host.protocols import SCORERS
from ..results.load_rows import StoredRun
from ..results.numbers.run_numbers import Results
from ..results.selected_pairs import Patients
from ..results.stored_boxes import WITHOUT_BOX, StoredBoxes, load_boxes


@dataclass(frozen=True, eq=False)
class BoxScores:
    """The numbers of one model on one dataset; fractions.

    matched: at each threshold; intervals: of its F1, mean over classes; None where too few patients stand behind it.
    precision: AP by threshold, empty without scores. inside, dice_native, iou_native: means over classes. duplicates:
    boxes about a true box that is hit. published: by scorer. faults: a sentence for each scorer of an installed package
    that was not asked for by name and failed. Where no region is a union of boxes, duplicates is None and published is
    empty.
    """

    model: str
    dataset: str
    title: str
    stored: StoredBoxes
    matched: Sequence[MatchedScores]
    intervals: Sequence[Interval | None]
    precision: Mapping[str, float]
    inside: float | None
    dice_native: float | None
    iou_native: float | None
    duplicates: int | None
    invented: Hallucination
    published: Mapping[str, Values]
    faults: tuple[str, ...] = ()

    @property
    def coverage(self) -> dict[str, int | None]:
        """How many pairs have which answer, and how many boxes were dropped, cut, duplicate, or for absent classes."""
        stored = self.stored
        told = {"answered": ("answered",), "silent": WITHOUT_BOX, "unparsable": ("unparsable",)}
        found: dict[str, int | None] = {name: stored.of_state(*states) for name, states in told.items()}
        found["without_line"] = stored.of_state("missing")
        found |= {f"{name}_boxes": int(stored.counters[name].sum()) for name in ("illegal", "outside", "clipped")}
        return {
            **found,
            "duplicate_boxes": self.duplicates,
            "hallucinated_boxes": None if self.masks else self.invented.boxes,
        }

    @property
    def masks(self) -> bool:
        """Whether they are a reader's masks, which are no boxes."""
        return bool(self.stored.cell.entry["boxes"].get("masks"))

    @property
    def why_no_precision(self) -> str:
        """Why there is no average precision; empty if there is."""
        return "" if self.precision else "no scores"


def box_scores(run: StoredRun, results: Results, scorers: Sequence[str] = ()) -> list[BoxScores]:
    """The numbers of every cell of predicted boxes; scorers: names of the published ones, if empty all that apply.

    Raises RunError when a result file cannot be read, and as `SCORERS` for a scorer of a package, where it is named.
    """
    found = []
    for (model, dataset), cell in results.cells.items():
        if cell.rows.boxed and "words" not in cell.rows.entry["boxes"]:
            stored = load_boxes(run, cell.rows)
            found.append(_scores(stored, str(results.title(dataset)), results.patients[dataset], scorers, model))
    return found


def _scores(stored: StoredBoxes, title: str, patients: Patients, names: Sequence[str], model: str) -> BoxScores:
    answers = stored.answers
    of_case = np.array([patients.number[name] for name in stored.cell.patients], np.intp)
    table = overlaps(answers.given, answers.truth)
    of_pair, of_negative = of_case[answers.case_of], of_case[answers.negative_case]
    matched = matched_scores(answers, table, patients.draws, (of_pair, of_negative))
    enough = patients.draws is not None and len(np.unique(of_pair)) >= MANY_PATIENTS
    kinds = anatomy(answers)
    cells = GRID in (stored.cell.entry["boxes"].get("frames") or ())
    fitting = names or [name for name in SCORERS if cells or name != GRID_HIT.name]
    published, faults = _published(answers, table, fitting, bool(names)) if len(stored.places) else ({}, ())
    native = stored.native
    return BoxScores(
        model=model,
        dataset=stored.cell.dataset,
        title=title,
        stored=stored,
        matched=matched,
        intervals=[percentile_interval(scores.f1_classes[1:]) if enough else None for scores in matched],
        precision=average_precision(answers) if answers.given.scores is not None else {},
        inside=_mean(native.inside, stored),
        dice_native=_mean(native.dice, stored),
        iou_native=_mean(native.iou, stored),
        duplicates=int((kinds.kind == KINDS.index("duplicate")).sum()) if len(stored.places) else None,
        invented=hallucination(answers),
        published=published,
        faults=faults,
    )


def _published(
    answers: Answers, table: BoxOverlaps, names: Iterable[str], named: bool
) -> tuple[dict[str, Values], tuple[str, ...]]:
    """The numbers of these scorers; and, unless the user `named` them, why some of packages are left out.

    Raises XBenchError for one that is named and fails.
    """
    published, faults = dict[str, Values](), list[str]()
    for name in names:
        try:
            published[name] = _numbers(name, answers, table)
        except XBenchError as error:
            if named:
                raise
            faults.append(f"scorer {name}, left out: {error}")
    return published, tuple(faults)


def _numbers(name: str, answers: Answers, table: BoxOverlaps) -> Values:
    """The numbers of a scorer. Raises XBenchError for one of a package that fails."""
    scorer = SCORERS[name]
    if name in SCORERS.own:
        return scorer.compute(answers, table)
    try:
        values = {key: None if value is None else float(value) for key, value in scorer.compute(answers, table).items()}
    except Exception as error:  # of a package's code: any can come
        frame = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(f"{type(error).__name__} ({error})".split())
        raise RunError(
            f"The scorer '{name}' raised {said} in {frame.filename}, line {frame.lineno}; correct the package."
        ) from error
    if scorer.main not in values:
        raise RunError(f"The scorer '{name}' gives no number '{scorer.main}', its main one; correct the package.")
    return values


def _mean(values: NDArray[np.float64], stored: StoredBoxes) -> float | None:
    """Mean over classes of the mean over pairs."""
    class_of = stored.cell.class_of
    return macro_mean(exact_mean(values[class_of == c]) for c in np.unique(class_of))
