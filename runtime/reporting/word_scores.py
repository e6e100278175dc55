"""The numbers of answers in words: regions, sides, zones and presence, between ceilings and floors (docs/words.md §6,
§7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.detection.boxes import Float, Int
from ...metrics_gpu.statistics.bootstrap import Draws
from ...metrics_gpu.statistics.intervals import MANY_PATIENTS, Interval, percentile_interval
from ...metrics_gpu.statistics.measured_numbers import Measured
from ...metrics_gpu.statistics.ranks import mean_ranks
from ...metrics_gpu.zones.bounds import BOUNDS, NUMBERS
from ...metrics_gpu.zones.zone_scores import class_means_of, side_table, zone_scores
from ..data.answers.words.class_answers import Remark, WordState
from ..results.load_rows import StoredRun
from ..results.numbers.run_numbers import Results
from ..results.numbers.word_columns import StoredWords
from ..results.selected_pairs import Patients
from ..results.stored_boxes import StoredBoxes, load_boxes

REGION_SCORES: Final = ("dice", "iou", "pointing", "inside")
SHARES: Final = ("dice", "iou", "pointing")
_TAU: Final = 50  # every threshold but 0 has the counts of the drawn places
_SIZED: Final = 20
"""Pairs with a size word from which on sizes are compared."""

_PRESENT: Final = (WordState.ANSWERED, WordState.UNLOCATED)


@dataclass(frozen=True, eq=False)
class WordScores:
    """The numbers of one file of words on one dataset; fractions.

    means: number -> means over pairs, of each class float64 [1 + B, C] and over classes [1 + B]: `REGION_SCORES`,
    `ZONE_SCORES`, and "ceiling dice" and the like for `BOUNDS` and `NUMBERS`. many: whether enough patients stand
    behind intervals. presence: shares of all positive pairs, and of the negatives that were asked, that are said to be
    present, and with a place. size: Spearman's correlation of size words and areas, None from fewer than 20 pairs.
    """

    model: str
    dataset: str
    title: str
    stored: StoredBoxes
    words: StoredWords
    means: Mapping[str, tuple[Float, Float]]
    many: bool
    presence: Mapping[str, Measured]
    size: Measured

    @property
    def names(self) -> tuple[str, ...]:
        """The classes."""
        return self.stored.cell.findings

    @property
    def told(self) -> Mapping[str, object]:
        """What run.json keeps of the file."""
        return dict(self.stored.cell.entry["boxes"])

    @property
    def ranked(self) -> bool:
        """Whether it is an answer, and no control or floor."""
        return not self.told.keys() & {"moved", "mirrored", "floor"}

    def number(self, name: str, of_class: int | None = None) -> Measured:
        """A number of `means`, for a class or in the mean over classes, with its interval."""
        classes, macro = self.means[name]
        return self._measured(macro if of_class is None else classes[:, of_class])

    def share(self, name: str) -> Measured:
        """A number divided by its ceiling on the same pairs; above 1 where a text joins places."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._measured(self.means[name][1] / self.means[f"ceiling {name}"][1])

    def _measured(self, row: Float) -> Measured:
        if not np.isfinite(row[0]):
            return Measured()
        interval: Interval | None = percentile_interval(row[1:]) if self.many else None
        return Measured(float(row[0]), interval, basis=self.stored.truth, ranked=self.ranked)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Pairs by state, answers by remark, statements that were skipped, pairs with a stated zone, and answers that
        were refused or cut off."""
        states = {state.name.lower(): int((self.words.state == state).sum()) for state in WordState}
        remarks = {str(remark.name).lower(): int((self.words.remarks & remark > 0).sum()) for remark in Remark}
        counted = {"skipped": int(self.words.skipped.sum()), "zones_stated": int((self.words.stated > 0).sum())}
        counted |= {"refused": self.stored.of_state("refused")}
        counted |= {"truncated": int(self.stored.counters["truncated"].sum())}
        return {**states, **remarks, **counted}

    @property
    def sides(self) -> Int:
        """int64 [4, 4]: pairs by true and stated sides."""
        return side_table(self.words.stated_sides, self.words.true_sides)


def word_scores(run: StoredRun, results: Results) -> list[WordScores]:
    """The numbers of every cell of words. Raises RunError when a result file cannot be read."""
    found = []
    for (model, dataset), cell in results.cells.items():
        if cell.rows.boxed and "words" in cell.rows.entry["boxes"]:
            stored = load_boxes(run, cell.rows)
            assert stored.words is not None
            found.append(_scores(stored, stored.words, str(results.title(dataset)), results.patients[dataset], model))
    return found


def _scores(stored: StoredBoxes, words: StoredWords, title: str, patients: Patients, model: str) -> WordScores:
    cell, counts = stored.cell, stored.cell.counts
    area, overlap = counts.area[:, _TAU].astype(np.float64), counts.overlap[:, _TAU].astype(np.float64)
    columns = {
        "dice": 2 * overlap / np.maximum(area + counts.region, 1),
        "iou": overlap / np.maximum(area + counts.region - overlap, 1),
        "pointing": np.where(stored.given > 0, counts.hit, False).astype(np.float64),
        "inside": np.asarray(stored.native.inside, np.float64),
        **zone_scores(words.stated, words.true, words.stated_sides, words.true_sides),
    }
    for place, bound in enumerate(BOUNDS):
        columns |= {f"{bound} {name}": words.bounds[:, place, number] for number, name in enumerate(NUMBERS)}
    of_case = np.array([patients.number[name] for name in cell.patients], np.intp)
    of_pair, of_negative = of_case[cell.case_of[cell.image_of]], of_case[stored.answers.negative_case]
    share = partial(_share, draws=patients.draws)
    return WordScores(
        model=model,
        dataset=cell.dataset,
        title=title,
        stored=stored,
        words=words,
        means=class_means_of(columns, cell.class_of, len(cell.findings), patients.draws, of_pair),
        many=patients.draws is not None and len(np.unique(of_pair)) >= MANY_PATIENTS,
        presence={
            "sensitivity": share(np.isin(words.state, _PRESENT), of_pair),
            "said_present": share(np.isin(words.negative_state, _PRESENT), of_negative),
            "said_present_located": share(words.negative_state == WordState.ANSWERED, of_negative),
        },
        size=_sizes(words.size, counts.region.astype(np.float64), of_pair, patients.draws),
    )


def _sizes(ranks: Int, regions: Float, patient_of: NDArray[np.intp], draws: Draws | None) -> Measured:
    """Spearman's correlation of the rank of size words and the area of the region, over pairs with a size word."""
    sized = np.flatnonzero(ranks > 0)
    if len(sized) < _SIZED or len(np.unique(ranks[sized])) < 2 or len(np.unique(regions[sized])) < 2:
        return Measured(n=len(sized))
    rows = [_spearman(ranks[sized], regions[sized])]
    for weights in draws.counts if draws is not None else ():
        drawn = np.repeat(sized, weights[patient_of[sized]])
        rows.append(_spearman(ranks[drawn], regions[drawn]) if len(drawn) > 2 else np.nan)
    row = np.array(rows)
    many = draws is not None and len(np.unique(patient_of[sized])) >= MANY_PATIENTS
    return Measured(float(row[0]), percentile_interval(row[1:]) if many else None, n=len(sized))


def _spearman(x: NDArray[np.integer] | Float, y: Float) -> float:
    a, b = mean_ranks(x), mean_ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum() / scale) if scale else float("nan")


def _share(said: NDArray[np.bool_], patient_of: NDArray[np.intp], draws: Draws | None) -> Measured:
    """The share of all pairs, with its interval over patients."""
    if not len(said):
        return Measured()
    of_pairs = class_means_of({"": said.astype(np.float64)}, np.zeros(len(said), np.intp), 1, draws, patient_of)
    row = of_pairs[""][1]
    many = draws is not None and len(np.unique(patient_of)) >= MANY_PATIENTS
    return Measured(float(row[0]), percentile_interval(row[1:]) if many else None, n=len(said))
