"""Files of predicted boxes as models: the answers for a dataset, scored as unions of boxes (docs/detection.md §1).

The rows have the counts of a map that is 1 inside the union and 0 outside. Pointing and the image's own counts are on
the native grid. The column `answer` has what was answered and the true boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.detection.boxes import BoxLists, Int, Rectangles, centres, pointed
from ....metrics_gpu.detection.unions import UnionCounts, on_grid, pixel_rectangles, union_counts
from ....metrics_gpu.sweep.counts import Counts
from ....metrics_gpu.sweep.masks import unpack_masks
from ...data.answers.answered import MANY_MISSING, BoxAnswers, BoxFile, State
from ...data.answers.dialects.dialect_registry import DIALECTS
from ...data.answers.frame_check import frame_check, out_of_view
from ...data.answers.questions import Questions
from ...data.answers.unread_answers import text_warnings, unread_answers
from ...data.answers.words.views import lateral_rows
from ...data.datasets.readers.reader_marks import ReaderMasks
from ...data.datasets.region_boxes import Boxes
from ...results.schema import GRID
from ..decoded_case import DecodedCase
from ..drawn import DrawnPairs
from ..measure import Measure
from ..scoring import Scored
from .answer_column import answer_column, each_list, float_lists, one_level, placed
from .baselines import draw_case
from .box_facts import file_facts, word_facts
from .box_models import BoxModel
from .box_sources import read_answers, sources
from .reader_masks import masks_reference
from .reference_sources import Reference, ScoredCases, note_size
from .true_zones import TrueZones, side_check
from .word_scoring import PairRegions, WordScoring

if TYPE_CHECKING:
    import pyarrow as pa

    from ...data.datasets.dataset import Region
    from ...results.loaded_dataset import LoadedDataset

_ANSWER: Final = "answer every pair, with [] where nothing was found, or leave the others out (--missing leave-out)."
_LOOK: Final = "look at the file with xbench-fast boxes check (docs/boxes.md §4)."
_COUNTERS: Final = ("illegal", "outside", "clipped", "duplicates", "truncated", "over_limit")


def boxes_reference(model: BoxModel, loaded: LoadedDataset, measure: Measure) -> Reference | str:
    """A file of boxes on a dataset, or the reason why it has no rows under the protocol. Raises DataError."""
    if measure.protocol.sweeping.normalise == "none":
        return f"the protocol {measure.protocol.name} cuts maps as they are, and boxes are no map"
    dataset = loaded.dataset
    names = (loaded.name, dataset.name, dataset.title)
    questions = Questions(dataset.cases(), dataset.classes, names, loaded.file_sizes)
    marks = dataset.reader_marks(model.reader) if model.reader else None
    if isinstance(marks, str):
        return marks
    if isinstance(marks, ReaderMasks):
        return masks_reference(model, marks, loaded, measure)
    file = read_answers(model, marks, questions)
    places = sources(file, questions, model)
    if model.moved and not (places >= 0).any():
        return "no finding has answers of two patients"
    words = None
    if file.thorax is not None:
        zones = TrueZones.of(questions, file.thorax)
        words = WordScoring(file, questions, zones, lateral_rows(questions, dataset))
        places = np.where(words.frontal(file.positives), places, -1)
    answers = _Answers(file, questions, places, words, model.moved)
    if words is None:
        frame_note = frame_check(file, questions)
    else:  # in a control the sides are another patient's, or swapped
        frame_note = "" if model.moved or model.mirrored else side_check(file, words.zones, places >= 0)
    share = _missing_share(file, questions, places, loaded)
    unread = unread_answers(
        file, *(_within(answers, questions, loaded) for answers in (file.positives, file.negatives))
    )
    record = file_facts(model, file, marks, unread) | {"frame_check": frame_note, "missing_share": share}
    record |= word_facts(model, words.not_frontal, words.frame_fixed) if words else {}
    many = f"{share:.1%} of the pairs with a region have no line" if share > MANY_MISSING else ""
    original = not model.moved and not model.reader and not model.mirrored
    absent = bool(many) and original and model.options.missing == "count" and share > 0.5
    faults = [f"{many} and are scored as silent; {_ANSWER}"] * absent
    faults += [f"{unread.sentence}; {_LOOK}"] * (original and unread.most)
    warnings = [many] * (bool(many) and not absent) + [unread.sentence] * (
        unread.many and not (original and unread.most)
    )
    remarks = [*(f"warning: {text}" for text in (*warnings, *text_warnings(file))), *file.unscored]
    remarks += [file.mislabelled] * bool(file.mislabelled)
    return Reference(
        name=model.name,
        findings=list(dataset.classes),
        prepare=partial(draw_case, findings=list(dataset.classes), contents=loaded.contents),
        score=partial(answers.score, loaded=loaded),
        batch=64,
        # A moved answer depends on the patients of other cases too, and so do the usual zones of a finding.
        description=" ".join(
            [
                model.description,
                *([loaded.regions_digest] if model.moved or words else []),
                *DIALECTS.added_facts(file.frames),
            ]
        ),
        facts={"weights": "boxes", "grid": None, "boxes": record},
        answers=True,
        words=words is not None,
        remarks=[*remarks, *([frame_note] if frame_note else []), *(marks.remarks if marks else ())],
        fault=" ".join(faults),
    )


class _Answers:
    """The answers of a file, found by case and finding. sources: as in `box_sources`. moved: no negatives are asked."""

    def __init__(
        self,
        file: BoxFile,
        questions: Questions,
        sources: NDArray[np.intp],
        words: WordScoring | None = None,
        moved: bool = False,
    ) -> None:
        self._file, self._questions, self._sources, self._moved = file, questions, sources, moved
        self._words = words
        self._out_of_view = out_of_view(file.positives, questions) & (not moved)

    def score(self, batch: Sequence[DecodedCase], loaded: LoadedDataset) -> ScoredCases:
        """Drawn cases, and the file's answers for the readable ones."""
        drawn = [case for case in batch if case.status == "ok"]
        findings = list(loaded.dataset.classes)
        for case in batch:
            note_size(case, loaded)
        row_of = np.array([self._questions.case(case.case.case_id) for case in drawn], np.int64)
        grid = row_of[:, None] * len(findings) + np.arange(len(findings))
        positive = self._file.positives.positions(grid)
        left = list[int]()
        for row, case in enumerate(drawn):
            columns = {name: findings.index(name) for name in case.masks}
            absent = {name for name, column in columns.items() if self._sources[positive[row, column]] < 0}
            left += [row * len(findings) + columns[name] for name in columns if name in absent]
            case.masks = {name: mask for name, mask in case.masks.items() if name not in absent}
        pairs = DrawnPairs.of(drawn, findings)
        places = positive[pairs.of_case, pairs.of_finding]
        sizes = np.array([drawn[c].size for c in pairs.of_case], np.int64).reshape(-1, 2)[:, ::-1].copy()
        held = zip(pairs.of_case.tolist(), pairs.of_finding.tolist(), strict=True)
        regions = [drawn[c].case.regions[findings[f]] for c, f in held]
        given = self._words.drawn(self._sources[places], places, sizes) if self._words else self._given(places, sizes)
        counted = _count(given, regions, sizes, pairs.masks)
        negative = self._file.negatives.positions(grid).ravel()
        frontal = np.append(self._words.frontal(self._file.negatives), True)[negative] if self._words else True
        asked = np.flatnonzero((negative >= 0) & (not self._moved) & frontal)
        column = self._column(given, places, (negative[asked], positive.ravel()[left]), counted)
        rows = np.concatenate([pairs.of_case * len(findings) + pairs.of_finding, asked, np.array(left, np.intp)])
        order = np.full(grid.size, -1, np.int64)
        order[rows] = np.arange(len(rows))
        return batch, [Scored(pairs, counted.counts, answers=placed(column, order))]

    def _given(self, places: NDArray[np.intp], sizes: Int) -> BoxLists:
        """The boxes for these pairs, in pixels of their images; boxes of another image keep their place in it."""
        sources, positives = self._sources[places], self._file.positives
        given = _lists(positives).take(sources)
        if (sources == places).all():
            return given
        scale = sizes / np.maximum(positives.sizes[sources], 1)
        edges = np.tile(sizes, 2)[given.owner]
        boxes = np.minimum(given.boxes * np.tile(scale, 2)[given.owner], edges)
        return BoxLists(boxes, given.offsets, given.scores)

    def _column(
        self,
        given: BoxLists,
        places: NDArray[np.intp],
        others: tuple[NDArray[np.intp], NDArray[np.intp]],
        counted: _Counted,
    ) -> pa.StructArray:
        """The answers of pairs, then of `others`: of negatives, and of pairs that are left out, which are empty.

        places, others: where they stand in the file's columns.
        """
        (asked, left), positives, negatives = others, self._file.positives, self._file.negatives
        parts = ((positives, self._sources[places]), (negatives, asked), (positives, left))
        taken = [given, _lists(negatives).take(asked), BoxLists.of([[]] * len(left))]
        size = np.concatenate([counted.sizes, negatives.sizes[asked], positives.sizes[left]])
        without: list[None] = [None] * (len(asked) + len(left))
        values: dict[str, Any] = {
            "state": np.concatenate([answers.state[rows] for answers, rows in parts]),
            "boxes": float_lists([array for lists in taken for array in each_list(lists, lists.boxes)]),
            "scores": float_lists([array for lists in taken for array in each_list(lists, lists.scores)]),
            "truth": float_lists([*counted.truth, *without]),
            "crowd": [*counted.crowd, *without],
            "width": size[:, 0],
            "height": size[:, 1],
            **{name: np.concatenate([getattr(answers, name)[rows] for answers, rows in parts]) for name in _COUNTERS},
            "out_of_view": np.concatenate([self._out_of_view[places], np.zeros(len(without), np.bool_)]),
            **{name: [*getattr(counted.native, name).tolist(), *without] for name in ("area", "overlap", "region")},
        }
        if self._words:
            values["words"] = self._words.column(parts, places, counted.regions)
        return answer_column(values)


@dataclass(frozen=True)
class _Counted:
    """counts: of the rows. native: of the image's own grid. truth: the true boxes, None where there are no boxes.

    crowd: which of them are marked as a crowd, None where none is. regions: for the ceilings of words.
    """

    counts: Counts
    native: UnionCounts
    truth: list[NDArray[np.float64] | None]
    crowd: list[list[bool] | None]
    regions: PairRegions

    @property
    def sizes(self) -> Int:
        return self.regions.sizes


def _count(given: BoxLists, regions: Sequence[Region], sizes: Int, masks: NDArray[np.uint8]) -> _Counted:
    """Counts of P pairs. sizes: width and height; masks: the packed regions on the grid."""
    spans, truth, crowd = [], list[NDArray[np.float64] | None](), list[list[bool] | None]()
    for region, (width, height) in zip(regions, sizes.tolist(), strict=True):
        boxes = region if isinstance(region, Boxes) else None
        rectangles = boxes.spans(height, width) if boxes else []
        spans.append(np.array(rectangles, np.int64).reshape(-1, 4)[:, [2, 0, 3, 1]])
        truth.append(boxes.clipped(height, width) if boxes else None)
        crowd.append(boxes.crowded(height, width).tolist() if boxes and boxes.crowd else None)
    ends = np.concatenate([[0], np.cumsum([len(pair_spans) for pair_spans in spans])]).astype(np.int64)
    true = Rectangles(np.concatenate([np.zeros((0, 4), np.int64), *spans]), ends)
    answered = pixel_rectangles(given, sizes)
    small = on_grid(answered, sizes, GRID)
    native, grid = union_counts(answered, true), union_counts(small, on_grid(true, sizes, GRID))
    centre = centres(given, sizes)
    hit = pointed(centre, true)
    for p in [pair for pair, boxes in enumerate(truth) if boxes is None]:
        width, height = sizes[p].tolist()
        mask = regions[p].mask(height, width)
        _enter(native, p, _drawn(answered, p, (height, width)), mask)
        _enter(grid, p, _drawn(small, p, (GRID, GRID)), unpack_masks(masks[p : p + 1], GRID)[0])
        hit[p] = centre[p, 0] >= 0 and mask[centre[p, 1], centre[p, 0]]
    counts = one_level(grid, centre, sizes, hit)

    def inside(pair: int, at: Int) -> NDArray[np.bool_]:
        if truth[pair] is None:
            return np.asarray(regions[pair].mask(*sizes[pair][::-1].tolist())[at[:, 1], at[:, 0]])
        spans_of_pair = true.spans[true.offsets[pair] : true.offsets[pair + 1], None]
        held = (spans_of_pair[..., :2] <= at) & (at < spans_of_pair[..., 2:])
        return np.asarray(held.all(axis=2).any(axis=0))

    return _Counted(counts, native, truth, crowd, PairRegions(unpack_masks(masks, GRID), inside, sizes))


def _enter(counts: UnionCounts, pair: int, answered: NDArray[np.bool_], true: NDArray[np.bool_]) -> None:
    counts.area[pair], counts.region[pair] = answered.sum(), true.sum()
    counts.overlap[pair] = (answered & true).sum()


def _drawn(lists: Rectangles, pair: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
    mask = np.zeros(shape, np.bool_)
    for left, top, right, bottom in lists.spans[lists.offsets[pair] : lists.offsets[pair + 1]].tolist():
        mask[top:bottom, left:right] = True
    return mask


def _lists(answers: BoxAnswers) -> BoxLists:
    return BoxLists(answers.boxes, answers.offsets, answers.scores)


def _missing_share(file: BoxFile, questions: Questions, places: NDArray[np.intp], loaded: LoadedDataset) -> float:
    """The share of the pairs within the limit whose answer has no line. places: as in `box_sources`."""
    within = np.flatnonzero(_within(file.positives, questions, loaded))
    lines = np.where(places < 0, np.arange(len(places)), places)[within]
    return float((file.positives.state[lines] == State.MISSING).mean()) if len(within) else 0.0


def _within(answers: BoxAnswers, questions: Questions, loaded: LoadedDataset) -> NDArray[np.bool_]:
    """bool [P]: the pairs of cases within the limit."""
    cases = [questions.case(case.case_id) for case in loaded.all_cases]
    return np.isin(answers.places // len(questions.classes), cases)
